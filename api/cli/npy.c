/* NumPy's .npy files: enough to hand arrays to a kernel and take its result. */
#include "api/cli/npy.h"
#include "api/cli/cli.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *descr(const char *dtype)
{
    static const char *const map[][2] = {{"f32", "<f4"}, {"f64", "<f8"}, {"f16", "<f2"}, {"i64", "<i8"}, {"i32", "<i4"},
                                         {"i16", "<i2"}, {"i8", "|i1"},  {"u8", "|u1"},  {"bool", "|b1"}, {"bf16", "<u2"},
                                         {"f8e4m3", "|u1"}, {"f8e5m2", "|u1"}};
    for (size_t i = 0; i < sizeof map / sizeof *map; i++)
        if (!strcmp(map[i][0], dtype)) return map[i][1];
    return "";
}

/* "(512, 512)", "(5,)", "()" */
static void shape_text(const kiln_arg *a, char *out, size_t cap)
{
    size_t used = (size_t)snprintf(out, cap, "(");
    for (int i = 0; i < a->rank; i++)
        used += (size_t)snprintf(out + used, cap - used, "%s%lld%s", i ? ", " : "", (long long)a->shape[i], a->rank == 1 ? "," : "");
    snprintf(out + used, cap - used, ")");
}

/* What a header has between `before` and `after`, for a message. */
static void between(const char *text, const char *before, char after, char *out, size_t cap)
{
    const char *p = strstr(text, before), *end = p ? strchr(p + strlen(before), after) : NULL;
    snprintf(out, cap, "%.*s", end ? (int)(end - p - (int)strlen(before)) : 1, end ? p + strlen(before) : "?");
}

/* Says what a file has and what is wanted instead. */
static void refuse(const char *path, const char *text, const kiln_arg *arg, const char *shape, size_t bytes)
{
    char dtype[40], has[200];
    between(text, "'descr': '", '\'', dtype, sizeof dtype);
    between(text, "'shape': ", ')', has, sizeof has);
    const char *known = dtype;
    static const char *const names[] = {"f32", "f64", "f16", "i64", "i32", "i16", "i8", "u8", "bool"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(descr(names[i]), dtype)) known = names[i];
    cli_fail(DATA, "%s has %s of shape %s) in %s order with %zu bytes of data; %s needs %s of shape %s in C order, %lld bytes", path, known, has,
             strstr(text, "'fortran_order': True") ? "Fortran" : "C", bytes, arg->name, arg->dtype, shape, (long long)arg->bytes);
}

const char *npy_read(const char *path, const kiln_arg *arg, char **file)
{
    size_t n;
    char shape[256], *p = cli_read_file(NULL, path, &n);
    *file = p;
    if (!p) return NULL;
    bool two = n > 12 && p[6] == 2;
    size_t head = n > 12 ? (unsigned char)p[8] | (size_t)(unsigned char)p[9] << 8 | (two ? (size_t)(unsigned char)p[10] << 16 : 0) : 0;
    size_t start = (two ? 12u : 10u) + head;
    shape_text(arg, shape, sizeof shape);
    if (n < 12 || memcmp(p, "\x93NUMPY", 6) || start > n) {
        cli_fail(DATA, "%s is no .npy file", path);
        return NULL;
    }
    char saved = p[start - 1];
    p[start - 1] = 0;
    const char *text = p + (two ? 12 : 10);
    bool fits = strstr(text, descr(arg->dtype)) && strstr(text, shape) && strstr(text, "False") && n - start == (size_t)arg->bytes;
    if (!fits) refuse(path, text, arg, shape, n - start);
    p[start - 1] = saved;
    return fits ? p + start : NULL;
}

bool npy_write(const char *path, const kiln_arg *arg, const void *data)
{
    char shape[256], head[512];
    shape_text(arg, shape, sizeof shape);
    int n = snprintf(head, sizeof head, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr(arg->dtype), shape);
    int total = (10 + n + 1 + 63) / 64 * 64 - 10;
    FILE *f = fopen(path, "wb");
    if (!f) return cli_fail(CANT_CREATE, "%s cannot be written", path) < 0;
    unsigned char start[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)(total & 255), (unsigned char)(total >> 8)};
    bool good = fwrite(start, 1, 10, f) == 10 && fwrite(head, 1, (size_t)n, f) == (size_t)n;
    for (int i = n; i < total - 1; i++) good = good && fputc(' ', f) != EOF;
    good = good && fputc('\n', f) != EOF && fwrite(data, 1, (size_t)arg->bytes, f) == (size_t)arg->bytes;
    good = fclose(f) == 0 && good;
    return good || cli_fail(CANT_CREATE, "writing %s failed", path) < 0;
}
