/* Which operators run on a GPU's tensor unit, and why the others do not: each row of tensor_units.def in each dtype is constructed for each
 * device, its source is searched for the instruction, and its kernel is run in the emulator. The table is compared with a file.
 * usage: tensor-units TABLE.csv [EVERY]; only every so many kernels are emulated, 0: none. Status 0 when no row differs and every value is right. */
#include "tests/arena.h"
#include "tests/golden/ops_table.h"
#include "workers/child.h"
#include "workers/workers.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct { const char *form, *floats, *bytes; } forms[] = {
#define X(form, floats, bytes) {form, floats, bytes},
#include "tests/golden/tensor_units.def"
};
static const char *const dtypes[] = {"f16", "bf16", "f32", "i8"}, *const targets[] = {"nvidia-a100", "nvidia-h200"};
/* What stands in the text of a kernel that uses the unit. */
static const char *const marks[] = {"wgmma.mma_async", "mma.sync"};
#define COUNT(t) (sizeof(t) / sizeof *(t))

typedef struct row { char unit[32], why[160]; } row;

static void with_dtype(const char *request, const char *dtype, char *out, size_t cap)
{
    size_t n = 0;
    for (; *request && n + 8 < cap; request++) {
        if (*request == '$') n += (size_t)snprintf(out + n, cap - n, "%s", dtype);
        else out[n++] = *request;
    }
    out[n] = 0;
}

/* By the PTX that the source has. */
static void unit_of(const kiln_kernel *k, kiln_bytes trace, row *r)
{
    static const char note[] = "# no tensor cores: ";
    snprintf(r->why, sizeof r->why, "not stated");
    for (size_t i = 0; i < COUNT(marks); i++) {
        if (!memmem(k->source.p, k->source.n, marks[i], strlen(marks[i]))) continue;
        snprintf(r->unit, sizeof r->unit, "%s", marks[i]);
        r->why[0] = 0;
        return;
    }
    const char *at = memmem(trace.p, trace.n, note, sizeof note - 1);
    if (at) at += sizeof note - 1;
    if (at) snprintf(r->why, sizeof r->why, "%.*s", (int)strcspn(at, "\n"), at);
    for (char *p = r->why; *p; p++)
        if (*p == ',') *p = ';';
}

/* False: it could not be made, or computes something else. */
static bool judge(const worker_tools *tools, const char *text, const char *target, const kiln_hw *hw, bool emulated, row *r)
{
    kiln_arena *a = kiln_arena_open(&(kiln_host){.mem = mem});
    kiln_request *q = NULL;
    kiln_candidates *c = NULL;
    kiln_kernel *k = NULL;
    kiln_diag d = {0};
    worker_verdict v;
    worker_error e = {0};
    bool good = !kiln_request_json(a, (kiln_bytes){text, strlen(text)}, &q, &d) && !kiln_construct(a, q->program, hw, "default", 1, &c, &d) &&
                !kiln_generate(a, q->program, hw, c->c[0].trace, &k, &d);
    if (!good) printf("%s: %s %s\n", text, d.pointer, d.message);
    if (good) unit_of(k, c->c[0].trace, r);
    if (good && emulated) {
        good = worker_emulate(tools, q->program, k, 400, &v, &e) && v.ok && !strcmp(v.how, "emulated");
        if (!good) printf("%s on %s: %s %s\n", text, target, e.message, v.detail);
    }
    kiln_arena_close(a);
    return good;
}

/* The table's line for these three (which of its instructions the unit runs is printed, but not compared); false: it has none, or another. */
static bool expected(FILE *table, const char *key, const char *rest)
{
    char line[512];
    size_t n = strlen(key);
    rewind(table);
    while (fgets(line, sizeof line, table)) {
        line[strcspn(line, "\r\n")] = 0;
        if (strncmp(line, key, n) || line[n] != ',') continue;
        if (!strcmp(line + n + 1, rest)) return true;
        printf("DIFFERENT from the table: %s\n", line);
        return false;
    }
    printf("not in the table\n");
    return false;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "child")) return child_main(argc, argv);
    FILE *table = argc > 1 ? fopen(argv[1], "r") : NULL;
    int every = argc > 2 ? atoi(argv[2]) : 1, n = 0, on = 0, emulated = 0, bad = 0;
    if (!table) return fprintf(stderr, "usage: tensor-units TABLE.csv [EVERY]\n"), 2;
    static worker_tools tools;
    workers_find_tools("build", &tools);
    snprintf(tools.worker, sizeof tools.worker, "%s", argv[0]);
    kiln_arena *a = kiln_arena_open(&(kiln_host){.mem = mem});
    kiln_hw *hw[COUNT(targets)];
    for (size_t t = 0; t < COUNT(targets); t++)
        if (!(hw[t] = ops_device(a, targets[t]))) return 1;
    for (size_t f = 0; f < COUNT(forms); f++)
        for (size_t y = 0; y < COUNT(dtypes); y++)
            for (size_t t = 0; t < COUNT(targets); t++) {
                const char *request = strcmp(dtypes[y], "i8") ? forms[f].floats : forms[f].bytes;
                char text[1024], form[80], key[160], rest[200];
                row r = {"", ""};
                if (!*request) continue;
                with_dtype(request, dtypes[y], text, sizeof text);
                bool emulate = every && n % every == 0;
                if (!judge(&tools, text, targets[t], hw[t], emulate, &r)) bad++;
                snprintf(form, sizeof form, "%s", forms[f].form);
                for (char *p = form; *p; p++)
                    if (*p == ',') *p = ';';
                snprintf(key, sizeof key, "%s,%s,%s", form, dtypes[y], targets[t]);
                snprintf(rest, sizeof rest, "%s,%s", *r.why ? "no" : "yes", r.why);
                printf("%s,%s%s%s\n", key, rest, *r.unit ? "," : "", r.unit);
                n++, on += !*r.why, emulated += emulate;
                bad += !expected(table, key, rest);
            }
    kiln_arena_close(a);
    fclose(table);
    printf("tensor-units: %d of %d kernels on the tensor unit, %d run in the emulator, %d different\n", on, n, emulated, bad);
    return bad != 0;
}
