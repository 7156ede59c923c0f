/* Kiln's own kernels and the reference: construction, gcc, data of eighths, comparison. */
#include "load-tests/kernels/own.h"
#include "tests/arena.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

typedef int32_t (*entry_fn)(const void *const *, void *const *, void *, const void *);
typedef struct kernel {
    void *so, *workspace, *out, *packed[BENCH_INPUTS]; /* inputs as their prepack entries make them; NULL: as they are */
    int64_t out_bytes;
    entry_fn run;
    int64_t (*room_for)(int32_t); /* of the workspace, by the number of workers */
    const void *in[BENCH_INPUTS];
    struct kiln_pool *pool;
} kernel;

static void *room(int64_t bytes) { return aligned_alloc(4096, (size_t)(bytes + 8191) / 4096 * 4096); }

static float from_half(uint16_t h, bool bf16)
{
    float f;
    uint32_t u = (uint32_t)h << 16;
    if (bf16) {
        memcpy(&f, &u, sizeof f);
    } else {
        int e = h >> 10 & 31, m = h & 1023;
        f = ldexpf((float)(e ? m + 1024 : m), (e ? e : 1) - 25);
        if (h >> 15) { f = -f; }
    }
    return f;
}

/* Eighths in -1..1 (of which bf16 and f16 hold every one), small integers for i8 and u8. */
static void store(void *p, const char *dtype, int64_t i, int eighths)
{
    float f = (float)eighths / 8;
    uint32_t u;
    _Float16 h = (_Float16)f;
    memcpy(&u, &f, sizeof u);
    if (!strcmp(dtype, "f32")) {
        ((float *)p)[i] = f;
    } else if (!strcmp(dtype, "bf16")) {
        ((uint16_t *)p)[i] = (uint16_t)(u >> 16);
    } else if (!strcmp(dtype, "f16")) {
        memcpy((uint16_t *)p + i, &h, 2);
    } else if (!strcmp(dtype, "i32")) {
        ((int32_t *)p)[i] = eighths;
    } else {
        ((int8_t *)p)[i] = (int8_t)(*dtype == 'u' ? eighths + 8 : eighths);
    }
}

static double load(const void *p, const char *dtype, int64_t i)
{
    if (!strcmp(dtype, "f32")) { return ((const float *)p)[i]; }
    if (!strcmp(dtype, "bf16") || !strcmp(dtype, "f16")) { return from_half(((const uint16_t *)p)[i], *dtype == 'b'); }
    if (!strcmp(dtype, "i32")) { return ((const int32_t *)p)[i]; }
    return *dtype == 'u' ? (double)((const uint8_t *)p)[i] : (double)((const int8_t *)p)[i];
}

static bool known(const char *dtype) { return strstr("f32 bf16 f16 i32 i8 u8", dtype) != NULL; }

/* Which input of the case an argument of the kernel is: by its name where ops.def gave one (i0, i1, ...), else as they come. */
static int input_of(const own *o, int argument)
{
    const char *name = o->r->input_names[argument];
    return name[0] == 'i' && name[1] >= '0' && name[1] < '0' + BENCH_INPUTS && !name[2] ? name[1] - '0' : argument;
}

bool own_open(own *o, bench_case *c, const char *request, char *why, size_t n)
{
    kiln_diag d = {0};
    kiln_arg arg;
    o->a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    if (kiln_request_json(o->a, (kiln_bytes){request, strlen(request)}, &o->r, &d)) {
        snprintf(why, n, "%s %s", d.pointer, d.message);
        return false;
    }
    double bytes;
    kiln_work(o->r->program, &o->flops, &bytes);
    c->nin = kiln_program_inputs(o->r->program);
    if (c->nin > BENCH_INPUTS || kiln_program_outputs(o->r->program) != 1) {
        snprintf(why, n, "the bench takes %d inputs at most and one output", BENCH_INPUTS);
        return false;
    }
    for (int k = 0; k < c->nin; k++) {
        int i = input_of(o, k);
        kiln_program_input(o->r->program, k, &arg);
        if (!known(arg.dtype)) { return snprintf(why, n, "dtype %s", arg.dtype), false; }
        snprintf(c->in_dtype[i], sizeof c->in_dtype[i], "%.7s", arg.dtype);
        c->in_elems[i] = arg.elems;
        c->in_bytes[i] = arg.bytes;
        c->in[i] = room(arg.bytes);
        uint32_t seed = (uint32_t)i * 77777 + 1;
        for (int64_t j = 0; j < arg.elems; j++) {
            seed = seed * 1664525 + 1013904223;
            store(c->in[i], arg.dtype, j, (int)(seed >> 8) % 17 - 8);
        }
    }
    kiln_program_output(o->r->program, 0, &arg);
    snprintf(c->out_dtype, sizeof c->out_dtype, "%.7s", arg.dtype);
    c->out_elems = arg.elems;
    c->out_bytes = arg.bytes;
    return known(arg.dtype) || (snprintf(why, n, "dtype %s", arg.dtype), false);
}

void own_close(own *o, bench_case *c)
{
    for (int i = 0; i < c->nin && i < BENCH_INPUTS; i++) { free(c->in[i]); }
    if (o->a) { kiln_arena_close(o->a); }
}

bool own_constant(own *o, const char *request)
{
    static const char no[] = "\"constant\":false", yes[] = "\"constant\":true ";
    char text[4096];
    kiln_diag d = {0};
    snprintf(text, sizeof text, "%s", request);
    char *at = strstr(text, no);
    for (char *next = at; next; next = strstr(next, no)) { memcpy(next, yes, sizeof yes - 1); }
    o->a = at ? kiln_arena_open(&(kiln_host){NULL, mem, NULL}) : NULL;
    return o->a && !kiln_request_json(o->a, (kiln_bytes){text, strlen(text)}, &o->r, &d);
}

static void call(void *state)
{
    kernel *k = state;
    k->run(k->in, (void *[]){k->out}, k->workspace, k->pool);
}

static void fetch(void *state, void *out)
{
    kernel *k = state;
    memcpy(out, k->out, (size_t)k->out_bytes);
}

static void drop(void *state)
{
    kernel *k = state;
    for (int i = 0; i < BENCH_INPUTS; i++) { free(k->packed[i]); }
    free(k->out);
    free(k->workspace);
    if (k->so) { dlclose(k->so); }
    free(k);
}

/* Where an object of this source and these flags is kept from run to run, so that a run that measures does not compile; "": nowhere. */
static void kept_path(kiln_bytes source, const char *flags, char *path, size_t n)
{
    const char *dir = getenv("BENCH_KEEP");
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < source.n; i++) { h = (h ^ (uint8_t)source.p[i]) * UINT64_C(0x100000001b3); }
    for (const char *f = flags; *f; f++) { h = (h ^ (uint8_t)*f) * UINT64_C(0x100000001b3); }
    *path = 0;
    if (dir && *dir) { snprintf(path, n, "%s/%016llx-%zu.so", dir, (unsigned long long)h, source.n); }
}

/* gcc on the source in a directory of its own; the object stays open after its file is gone. */
static void *built(kiln_bytes source, const char *flags, const char *keep)
{
    char dir[] = "/tmp/kiln-bench-XXXXXX", path[64], command[2048], move[1200];
    if (!mkdtemp(dir)) { return NULL; }
    snprintf(path, sizeof path, "%s/k.c", dir);
    FILE *f = fopen(path, "w");
    bool ok = f && fwrite(source.p, 1, source.n, f) == source.n && !fclose(f);
    snprintf(command, sizeof command, "gcc -std=gnu11 %s -fPIC -shared -fvisibility=hidden -Wno-psabi %s -o %s/k.so -lm", flags, path, dir);
    ok = ok && !system(command);
    unlink(path);
    snprintf(path, sizeof path, "%s/k.so", dir);
    void *so = ok ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    snprintf(move, sizeof move, "mv %s %s", path, keep);
    if (!so || !*keep || system(move)) { unlink(path); }
    rmdir(dir);
    return so;
}

static bool compile(kernel *k, kiln_bytes source, const char *flags)
{
    char keep[1100], name[200];
    kept_path(source, flags, keep, sizeof keep);
    k->so = *keep ? dlopen(keep, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!k->so) { k->so = built(source, flags, keep); }
    if (!k->so) { return false; }
    const char *entry = dlsym(k->so, "kiln_entry");
    snprintf(name, sizeof name, "%s_workspace", entry);
    *(void **)&k->room_for = dlsym(k->so, name);
    *(void **)&k->run = dlsym(k->so, entry);
    k->workspace = room(k->room_for(k->pool ? k->pool->nthreads : 1));
    return true;
}

/* Inputs that the kernel wants packed are, once. */
static void pack(kernel *k, int nin)
{
    char name[240];
    for (int i = 0; i < nin; i++) {
        int64_t (*entry)(const void *, void *) = NULL;
        snprintf(name, sizeof name, "%s_prepack_%d", (const char *)dlsym(k->so, "kiln_entry"), i);
        *(void **)&entry = dlsym(k->so, name);
        if (!entry) { continue; }
        k->packed[i] = room(entry(NULL, NULL));
        entry(k->in[i], k->packed[i]);
        k->in[i] = k->packed[i];
    }
}

static void service_flags(const kiln_hw *hw, char *out, size_t cap)
{
    const char *const *list;
    int n = kiln_hw_flags(hw, &list);
    size_t used = (size_t)snprintf(out, cap, "-O2 -ffp-contract=fast -fno-math-errno -fno-trapping-math");
    for (int i = 0; i < n; i++) { used += (size_t)snprintf(out + used, cap - used, " %s", list[i]); }
}

bool own_traced(own *o, const bench_case *c, kiln_hw *hw, kiln_bytes trace, const char *flags, struct kiln_pool *pool, bench_run *run, char *why,
                size_t n)
{
    kiln_diag d = {0};
    kiln_kernel *text;
    char own_flags[1024];
    if (kiln_generate(o->a, o->r->program, hw, trace, &text, &d)) {
        snprintf(why, n, "%s %s", d.pointer, d.message);
        return false;
    }
    service_flags(hw, own_flags, sizeof own_flags);
    kernel *k = calloc(1, sizeof *k);
    k->pool = pool;
    k->out = room(k->out_bytes = c->out_bytes);
    for (int i = 0; i < c->nin; i++) { k->in[i] = c->in[input_of(o, i)]; }
    *run = (bench_run){k, call, fetch, drop};
    if (compile(k, text->source, *flags ? flags : own_flags)) {
        pack(k, c->nin);
        return true;
    }
    snprintf(why, n, "gcc refuses the source");
    drop(k);
    return false;
}

bool own_kernel(own *o, const bench_case *c, kiln_hw *hw, bool constructed, const char *flags, struct kiln_pool *pool, bench_run *run,
                char *why, size_t n)
{
    kiln_diag d = {0};
    kiln_candidates *found = NULL;
    if (constructed && kiln_construct(o->a, o->r->program, hw, "default", 1, &found, &d)) {
        snprintf(why, n, "%s %s", d.pointer, d.message);
        return false;
    }
    return own_traced(o, c, hw, found ? found->c[0].trace : (kiln_bytes){"", 0}, flags, pool, run, why, n);
}

void own_alone(const bench_run *shared, bench_run *run)
{
    const kernel *of = shared->state;
    kernel *k = calloc(1, sizeof *k);
    *k = (kernel){.out_bytes = of->out_bytes, .run = of->run, .room_for = of->room_for};
    memcpy(k->in, of->in, sizeof k->in);
    k->out = room(k->out_bytes);
    k->workspace = room(k->room_for(1));
    *run = (bench_run){k, call, fetch, drop};
}

typedef struct reader {
    const own *o;
    const bench_case *c;
} reader;

static double read_input(void *user, int input, int64_t index)
{
    const reader *r = user;
    int i = input_of(r->o, input);
    return load(r->c->in[i], r->c->in_dtype[i], index);
}

/* Infinities, and what is no number, are like themselves alone. */
static bool alike(double a, double b, double most) { return a == b || (isnan(a) && isnan(b)) || (isfinite(b) && fabs(a - b) <= most); }

int own_judge(own *o, const bench_case *c, const void *out)
{
    enum { SAMPLES = 60 };
    reader user = {o, c};
    kiln_ref *ref;
    kiln_diag d = {0};
    int wrong = 0;
    double value, scale, rtol, atol;
    kiln_tolerance(o->r->program, 0, &rtol, &atol);
    if (kiln_ref_open(o->a, o->r->program, read_input, &user, &ref, &d)) { return SAMPLES; }
    for (int i = 0; i < SAMPLES; i++) {
        int64_t at = i * (c->out_elems - 1) / (SAMPLES - 1);
        bool known_value = !kiln_ref_at(ref, 0, at, &value, &scale);
        wrong += !known_value || !alike(load(out, c->out_dtype, at), value, rtol * scale + atol);
    }
    return wrong;
}

int64_t own_differ(const own *o, const bench_case *c, const void *x, const void *y)
{
    int64_t wrong = 0;
    bool half = strstr("bf16 f16", c->out_dtype) != NULL;
    double rtol = half ? 0x1p-7 : c->exact ? 0 : 1e-4, atol = c->exact ? 0 : 1e-5;
    (void)o;
    if (c->exact && !half && !memcmp(x, y, (size_t)c->out_bytes)) { return 0; }
    for (int64_t i = 0; i < c->out_elems; i++) {
        double a = load(x, c->out_dtype, i), b = load(y, c->out_dtype, i);
        wrong += !alike(a, b, rtol * fabs(b) + atol);
    }
    return wrong;
}
