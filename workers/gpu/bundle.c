/* Reads a bundle's description: one item a line, a word and key=value pairs. The grammar is in workers/gpu/README.md. */
#include "workers/gpu/gpu.h"
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    gpu_bundle *b;
    char *line;
    int number;
    char *why;
    size_t why_n;
    bool bad;
} reader;

static void refuse(reader *r, const char *what, const char *right)
{
    if (!r->bad) snprintf(r->why, r->why_n, "bundle.txt:%d: %s; %s", r->number, what, right);
    r->bad = true;
}

/* The text behind " key=", up to the next blank; NULL. */
static const char *find(const reader *r, const char *key, size_t *n)
{
    size_t k = strlen(key);
    for (const char *p = strchr(r->line, ' '); p; p = strchr(p + 1, ' ')) {
        if (strncmp(p + 1, key, k) || p[1 + k] != '=') continue;
        *n = strcspn(p + 2 + k, " ");
        return p + 2 + k;
    }
    return NULL;
}

static void word(reader *r, const char *key, char *out, size_t cap)
{
    size_t n = 0;
    const char *p = find(r, key, &n);
    if (!p || !n || n >= cap) {
        char what[80];
        snprintf(what, sizeof what, "%s= is %s", key, p ? "empty or too long" : "missing");
        refuse(r, what, "each item needs its words");
        n = 0;
    }
    if (n) memcpy(out, p, n);
    out[n] = 0;
}

static double number(reader *r, const char *key, double fallback)
{
    size_t n;
    char *end;
    const char *p = find(r, key, &n);
    if (!p) return fallback;
    double x = strtod(p, &end);
    if (end != p + n || !n) refuse(r, "not a number", key);
    return x;
}

static int64_t integer(reader *r, const char *key, int64_t fallback, int64_t lo, int64_t hi)
{
    size_t n;
    char *end;
    const char *p = find(r, key, &n);
    if (!p) return fallback;
    long long x = strtoll(p, &end, 10);
    if (end != p + n || !n || x < lo || x > hi) refuse(r, "a number that is out of range", key);
    return x;
}

/* Numbers between commas; how many. */
static int list(reader *r, const char *key, uint64_t *out, int most)
{
    size_t n;
    int count = 0;
    const char *p = find(r, key, &n), *stop = p ? p + n : NULL;
    while (p && p < stop) {
        char *end;
        if (count == most || *p < '0' || *p > '9') break;
        out[count++] = strtoull(p, &end, 10);
        p = *end == ',' ? end + 1 : end;
        if (end < stop && *end != ',') break;
    }
    if (p && p != stop) refuse(r, "a list of numbers is expected", key);
    return count;
}

static void triple(reader *r, const char *key, unsigned out[3])
{
    uint64_t x[3] = {1, 1, 1};
    list(r, key, x, 3);
    for (int i = 0; i < 3; i++) {
        if (x[i] < 1 || x[i] > 0x7fffffff) refuse(r, "a dimension that is 0 or too large", key);
        out[i] = (unsigned)x[i];
    }
}

/* One more element behind an array; what it held moves. */
static void *more(void **array, int *n, size_t size)
{
    void *p = realloc(*array, (size_t)(*n + 1) * size);
    if (!p) {
        fputs("out of memory\n", stderr);
        exit(71);
    }
    *array = p;
    return memset((char *)p + (size_t)(*n)++ * size, 0, size);
}
#define MORE(array, n) more((void **)&(array), &(n), sizeof *(array))

static gpu_group *group(reader *r)
{
    if (r->b->ngroups) return &r->b->groups[r->b->ngroups - 1];
    refuse(r, "an item before the first group", "group id=... comes first");
    return NULL;
}

static int buffer(reader *r, const gpu_group *g, const char *key)
{
    char id[32];
    word(r, key, id, sizeof id);
    for (int i = 0; i < g->nbuffers; i++)
        if (!strcmp(g->buffers[i].id, id)) return i;
    refuse(r, "no such buffer in the group", key);
    return 0;
}

static void read_module(reader *r)
{
    gpu_module *m = MORE(r->b->modules, r->b->nmodules);
    word(r, "id", m->id, sizeof m->id);
    word(r, "file", m->file, sizeof m->file);
    if (strchr(m->file, '/')) refuse(r, "a path", "a module's file lies beside bundle.txt");
}

static void read_group(reader *r)
{
    size_t n;
    gpu_group *g = MORE(r->b->groups, r->b->ngroups);
    word(r, "id", g->id, sizeof g->id);
    word(r, "key", g->key, sizeof g->key);
    word(r, "target", g->target, sizeof g->target);
    g->program = find(r, "program", &n);
}

static void read_buffer(reader *r)
{
    char dtype[16];
    gpu_group *g = group(r);
    if (!g) return;
    gpu_buffer *b = MORE(g->buffers, g->nbuffers);
    word(r, "id", b->id, sizeof b->id);
    word(r, "dtype", dtype, sizeof dtype);
    if (!verify_dtype_find(dtype, &b->dtype)) refuse(r, "no such dtype", "f32, f64, f16, bf16, i64, i32, i16, i8, u8, bool");
    b->elems = integer(r, "elems", 0, 1, KILN_MAX_ELEMENTS);
    if (b->elems < 1) refuse(r, "elems= is missing", "elements of the buffer");
    b->bytes = b->elems * verify_dtype_bytes(b->dtype);
    size_t n;
    b->input = (int)integer(r, "input", find(r, "temporary", &n) ? -2 : -1, 0, VERIFY_MAX_ARGS);
}

static void read_kernel(reader *r)
{
    char module[64];
    size_t n;
    gpu_group *g = group(r);
    if (!g) return;
    gpu_kernel *k = MORE(g->kernels, g->nkernels);
    word(r, "id", k->id, sizeof k->id);
    word(r, "module", module, sizeof module);
    k->module = -1;
    for (int i = 0; i < r->b->nmodules; i++)
        if (!strcmp(r->b->modules[i].id, module)) k->module = i;
    if (k->module < 0) refuse(r, "no such module", "a module is described before its kernels");
    k->rank = (int)integer(r, "rank", 0, 0, 1 << 20);
    k->flops = number(r, "flops", 0), k->bytes = number(r, "bytes", 0), k->predicted_us = number(r, "predicted_us", 0);
    k->trace = find(r, "trace", &n);
}

static gpu_kernel *kernel(reader *r)
{
    gpu_group *g = group(r);
    if (g && g->nkernels) return &g->kernels[g->nkernels - 1];
    refuse(r, "an item before the first kernel", "kernel id=... comes first");
    return NULL;
}

static void read_launch(reader *r)
{
    gpu_kernel *k = kernel(r);
    if (!k) return;
    gpu_step *s = MORE(k->steps, k->nsteps);
    word(r, "entry", s->entry, sizeof s->entry);
    triple(r, "grid", s->grid);
    triple(r, "block", s->block);
    triple(r, "cluster", s->cluster);
    s->shared = (unsigned)integer(r, "shared", 0, 0, 1 << 20);
    s->persistent = integer(r, "persistent", 0, 0, 1) == 1;
    if (s->grid[1] > 65535 || s->grid[2] > 65535) refuse(r, "a grid of more than 65535 in y or z", "tiles go in x");
    if ((uint64_t)s->block[0] * s->block[1] * s->block[2] > 1024) refuse(r, "a block of more than 1024 threads", "block=x,y,z");
    for (int i = 0; i < 3; i++)
        if (s->grid[i] % s->cluster[i]) refuse(r, "the grid is no multiple of the cluster", "cluster=x,y,z");
    if ((uint64_t)s->cluster[0] * s->cluster[1] * s->cluster[2] > 8)
        refuse(r, "a cluster of more than 8 blocks", "8 is what every device allows");
}

static void read_map(reader *r, gpu_map *m)
{
    static const char *const names[] = {"u8", "u16", "u32", "i32", "u64", "i64", "f16", "f32", "f64", "bf16", "f32ftz", "tf32"};
    char dtype[16];
    uint64_t box[GPU_RANK] = {0};
    word(r, "dtype", dtype, sizeof dtype);
    m->dtype = -1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], dtype)) m->dtype = (int)i;
    m->rank = list(r, "dims", m->dims, GPU_RANK);
    int nstrides = list(r, "strides", m->strides, GPU_RANK), nbox = list(r, "box", box, GPU_RANK);
    for (int i = 0; i < GPU_RANK; i++) m->box[i] = box[i] > 256 ? 257 : (unsigned)box[i];
    m->swizzle = (int)integer(r, "swizzle", 0, 0, 3);
    m->l2 = (int)integer(r, "l2", 0, 0, 3);
    m->oob = (int)integer(r, "oob", 0, 0, 1);
    m->pixels = (unsigned)integer(r, "pixels", 0, 0, 1024);
    static const char *const keys[2][3] = {{"lower_x", "upper_x", "step_x"}, {"lower_y", "upper_y", "step_y"}};
    for (int i = 0; i < GPU_RANK; i++) m->steps[i] = 1;
    for (int d = 0; d < 2 && m->pixels; d++) {
        m->lower[d] = (int)integer(r, keys[d][0], 0, -128, 127);
        m->upper[d] = (int)integer(r, keys[d][1], 0, -128, 127);
        m->steps[1 + d] = (unsigned)integer(r, keys[d][2], 1, 1, 8);
    }
    if (m->pixels && m->rank != 4) refuse(r, "a window over a tensor of another rank than 4", "image, row, column, channel");
    if (nbox != m->rank || nstrides != m->rank - 1) refuse(r, "dims, strides and box disagree in rank", "one stride less than dimensions");
    const char *wrong = gpu_map_wrong(m);
    if (wrong) refuse(r, "the driver would refuse this tensor map", wrong);
}

static void read_arg(reader *r)
{
    size_t n;
    gpu_group *g = group(r);
    gpu_kernel *k = kernel(r);
    if (!g || !k || !k->nsteps || k->steps[k->nsteps - 1].nargs == GPU_ARGS) {
        refuse(r, "an argument without its launch, or too many", "launch entry=... comes first");
        return;
    }
    gpu_step *s = &k->steps[k->nsteps - 1];
    gpu_arg *a = &s->args[s->nargs++];
    if (find(r, "ptr", &n))
        a->kind = GPU_POINTER, a->buffer = buffer(r, g, "ptr");
    else if (find(r, "i32", &n))
        a->kind = GPU_I32, a->i = integer(r, "i32", 0, INT32_MIN, INT32_MAX);
    else if (find(r, "i64", &n))
        a->kind = GPU_I64, a->i = integer(r, "i64", 0, INT64_MIN, INT64_MAX);
    else if (find(r, "f32", &n))
        a->kind = GPU_F32, a->f = (float)number(r, "f32", 0);
    else if (find(r, "tmap", &n)) {
        a->kind = GPU_TENSOR_MAP;
        a->buffer = buffer(r, g, "tmap");
        read_map(r, &a->map);
    } else
        refuse(r, "an argument of no known kind", "ptr=, i32=, i64=, f32= or tmap=");
}

static void read_check(reader *r)
{
    size_t n;
    gpu_group *g = group(r);
    if (!g) return;
    gpu_check *c = MORE(g->checks, g->nchecks);
    c->buffer = buffer(r, g, "buffer");
    c->source.seed = (uint64_t)integer(r, "seed", 0, 0, INT64_MAX);
    c->source.kind = (int32_t)integer(r, "kind", 0, 0, VERIFY_KINDS - 1);
    c->source.nonzero = (int32_t)integer(r, "nonzero", 0, 0, 1);
    c->rtol = number(r, "rtol", 0), c->atol = number(r, "atol", 0);
    const char *p = find(r, "points", &n), *stop = p ? p + n : NULL;
    while (p && p < stop && !r->bad) {
        char *end;
        gpu_point x = {.index = strtoll(p, &end, 10)};
        if (*end == ':') x.value = strtod(end + 1, &end);
        if (*end == ':') x.scale = strtod(end + 1, &end);
        if ((end != stop && *end != ';') || x.index < 0 || x.index >= g->buffers[c->buffer].elems)
            refuse(r, "a point is wrong", "index:value:scale;...");
        gpu_point *to = MORE(c->points, c->npoints);
        *to = x;
        p = end + (end < stop);
    }
    if (!c->npoints) refuse(r, "a check without points", "points=index:value:scale;...");
}

static const struct {
    const char *word;
    void (*read)(reader *r);
} items[] = {
    {"module", read_module}, {"group", read_group}, {"buffer", read_buffer}, {"kernel", read_kernel},
    {"launch", read_launch}, {"arg", read_arg},     {"check", read_check},
};

static char *slurp(const char *path)
{
    FILE *f = fopen(path, "rb");
    size_t cap = 1 << 16, n = 0, got;
    char *p = f ? malloc(cap) : NULL;
    while (p && (got = fread(p + n, 1, cap - n - 1, f)) > 0) {
        n += got;
        if (cap - n > 1) continue;
        char *q = realloc(p, cap *= 2);
        if (!q) free(p);
        p = q;
    }
    if (f) fclose(f);
    if (p) p[n] = 0;
    return p;
}

bool gpu_bundle_open(gpu_bundle *b, const char *dir, char *why, size_t n)
{
    char path[600];
    memset(b, 0, sizeof *b);
    snprintf(b->dir, sizeof b->dir, "%s", dir);
    snprintf(path, sizeof path, "%s/bundle.txt", b->dir);
    b->text = slurp(path);
    if (!b->text) {
        snprintf(why, n, "%s cannot be read", path);
        return false;
    }
    reader r = {.b = b, .why = why, .why_n = n};
    for (char *next, *l = b->text; l && *l && !r.bad; l = next) {
        next = strchr(l, '\n');
        if (next) *next++ = 0;
        r.line = l;
        r.number++;
        if (!*l || *l == '#') continue;
        size_t i = 0, w = strcspn(l, " ");
        while (i < sizeof items / sizeof *items && (strlen(items[i].word) != w || strncmp(items[i].word, l, w))) i++;
        if (i == sizeof items / sizeof *items)
            refuse(&r, "no such item", "module, group, buffer, kernel, launch, arg, check");
        else
            items[i].read(&r);
    }
    return !r.bad;
}

int gpu_map_element_bytes(int dtype)
{
    static const int bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4};
    return dtype >= 0 && dtype < (int)(sizeof bytes / sizeof *bytes) ? bytes[dtype] : 0;
}

const char *gpu_map_wrong(const gpu_map *m)
{
    unsigned e = (unsigned)gpu_map_element_bytes(m->dtype), span = m->swizzle ? 16u << m->swizzle : 0;
    if (!e) return "no such dtype";
    if (m->rank < 1 || m->rank > GPU_RANK) return "1 to 5 dimensions";
    for (int i = 0; i < m->rank; i++) {
        if (m->dims[i] < 1 || m->dims[i] > UINT64_C(1) << 32) return "dimensions are 1 to 2^32";
        if (m->box[i] < 1 || m->box[i] > 256) return "a box is 1 to 256 in each dimension";
    }
    for (int i = 0; i + 1 < m->rank; i++)
        if (m->strides[i] % 16 || m->strides[i] < 1 || m->strides[i] >= UINT64_C(1) << 40)
            return "strides are multiples of 16 bytes below 2^40";
    if (m->box[0] * e % 16) return "a box's rows are multiples of 16 bytes";
    if (span && m->box[0] * e > span) return "a box's rows fit the swizzle: 32, 64 or 128 bytes";
    return NULL;
}

static int hex(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

void gpu_put_json(FILE *f, const char *p)
{
    fputc('"', f);
    for (; p && *p && *p != ' '; p++) {
        int c = (unsigned char)*p;
        if (c == '%' && hex(p[1]) >= 0 && hex(p[2]) >= 0) c = hex(p[1]) * 16 + hex(p[2]), p += 2;
        if (c == '"' || c == '\\')
            fprintf(f, "\\%c", c);
        else if (c < 32)
            fprintf(f, "\\u%04x", c);
        else
            fputc(c, f);
    }
    fputc('"', f);
}
