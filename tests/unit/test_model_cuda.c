/* A whole model on a GPU: its launcher compiled by gcc and clang without a warning, then run against the mock driver, which carries kernels out
 * by the emulator. The numbers are those that another runtime gave (tests/data). */
#include "tests/arena.h"
#include "tests/emu/image.h"
#include <cjson/cJSON.h>
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { KERNELS = 32, ENDS = 4 };
typedef struct launcher {
    void *library;
    int64_t (*arena)(void), (*weights)(void);
    int32_t (*steps)(void);
    const char *(*error)(void);
    int32_t (*load)(void **, const void *const *, const void *const *);
    int32_t (*launch)(void *, const void *const *, void *const *, void *, void *);
    int32_t (*step)(void *, int32_t, const void *const *, void *const *, void *, void *);
    int32_t (*unload)(void *);
} launcher;
/* A model with what another runtime gave, made once. */
typedef struct model {
    kiln_plan *plan;
    kiln_image images[KERNELS];
    char *modules[KERNELS], *file;
    kiln_bytes launcher, manifest;
    float *in[ENDS], *out[ENDS];
    uint64_t feeds[ENDS], results[ENDS];
    cJSON *data;
} model;

static kiln_arena *arena;
static char dir[] = "/tmp/kiln-model-cuda.XXXXXX", driver[600];
static model cnn;
static void *mock, *context;
static int (*init)(unsigned), (*retain)(void **, int), (*set_current)(void *), (*alloc)(uint64_t *, size_t), (*release)(uint64_t),
    (*to_device)(uint64_t, const void *, size_t), (*to_host)(void *, uint64_t, size_t), (*fill)(uint64_t, unsigned char, size_t),
    (*room)(size_t *, size_t *), (*new_stream)(void **, unsigned), (*drop_stream)(void *), (*settle)(void);

static char *slurp(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s", path);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *p = malloc(*n + 1);
    if (!p || fread(p, 1, *n, f) != *n) fail_msg("%s", path);
    p[*n] = 0;
    fclose(f);
    return p;
}

static kiln_hw *device(const char *id)
{
    char path[100];
    size_t n;
    kiln_hw *hw;
    kiln_diag d = {0};
    snprintf(path, sizeof path, "hwspecs/%s.json", id);
    char *text = slurp(path, &n);
    if (kiln_hw_parse(arena, (kiln_bytes){text, n}, &hw, &d)) fail_msg("%s", d.message);
    free(text);
    return hw;
}

static float *numbers(const cJSON *list, int64_t elems)
{
    float *p = calloc((size_t)elems + 1, sizeof *p);
    const cJSON *x;
    int64_t i = 0;
    cJSON_ArrayForEach(x, list) if (i < elems) p[i++] = (float)x->valuedouble;
    assert_int_equal(i, elems);
    return p;
}

static void build(model *m, const char *name, const char *target)
{
    char path[300];
    size_t n, ndata;
    kiln_diag d = {0};
    kiln_graph *g;
    kiln_hw *hw = device(target);
    snprintf(path, sizeof path, "tests/data/%s.onnx", name);
    m->file = slurp(path, &n);
    if (kiln_graph_onnx(arena, (kiln_bytes){m->file, n}, NULL, &g, &d) || kiln_graph_plan(arena, g, hw, &m->plan, &d)) fail_msg("%s", d.message);
    assert_true(m->plan->nkernels <= KERNELS && m->plan->ninputs <= ENDS && m->plan->noutputs <= ENDS);
    for (int i = 0; i < m->plan->nkernels; i++) {
        kiln_candidates *c;
        kiln_kernel *k = NULL;
        if (kiln_construct(arena, m->plan->kernels[i], hw, "default", 1, &c, &d) ||
            kiln_generate(arena, m->plan->kernels[i], hw, c->c[0].trace, &k, &d)) fail_msg("%s", d.message);
        m->images[i] = (kiln_image){k, "cubin", "00"};
        snprintf(path, sizeof path, "%s/%s.%d", dir, name, i);
        assert_true(emu_image("cc", k, path));
        strcat(path, ".image");
        m->modules[i] = slurp(path, &n);
    }
    if (kiln_plan_link(arena, m->plan, hw, m->images, &m->launcher, &m->manifest, &d)) fail_msg("%s", d.message);
    snprintf(path, sizeof path, "tests/data/%s.json", name);
    char *data = slurp(path, &ndata);
    m->data = cJSON_ParseWithLength(data, ndata);
    free(data);
    for (int i = 0; i < m->plan->ninputs; i++) {
        const kiln_arg *a = &m->plan->inputs[i];
        m->in[i] = numbers(cJSON_GetObjectItem(cJSON_GetObjectItem(m->data, "inputs"), a->name), a->elems);
        assert_int_equal(alloc(&m->feeds[i], (size_t)a->bytes + 16) || to_device(m->feeds[i], m->in[i], (size_t)a->bytes), 0);
    }
    for (int i = 0; i < m->plan->noutputs; i++) {
        const kiln_arg *a = &m->plan->outputs[i];
        m->out[i] = numbers(cJSON_GetObjectItem(cJSON_GetObjectItem(m->data, "outputs"), a->name), a->elems);
        assert_int_equal(alloc(&m->results[i], (size_t)a->bytes + 16), 0);
    }
}

static void demolish(model *m)
{
    for (int i = 0; i < ENDS; i++) free(m->in[i]), free(m->out[i]);
    for (int i = 0; i < KERNELS; i++) free(m->modules[i]);
    free(m->file);
    cJSON_Delete(m->data);
}

static launcher compile(const model *m, const char *text, size_t n, const char *cc, const char *name)
{
    char path[200], command[700], symbol[200];
    launcher l = {0};
    snprintf(path, sizeof path, "%s/%s.c", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fwrite(text, 1, n, f);
    fclose(f);
    snprintf(command, sizeof command, "%s -std=gnu11 -O0 -Wall -Wextra -Werror -shared -fPIC -o %s/%s.so %s", cc, dir, name, path);
    if (system(command)) fail_msg("%s", command);
    snprintf(path, sizeof path, "%s/%s.so", dir, name);
    l.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!l.library) fail_msg("%s", dlerror());
    const struct {
        const char *name;
        void **to;
    } want[] = {{"arena", (void **)&l.arena},   {"weights", (void **)&l.weights}, {"steps", (void **)&l.steps}, {"error", (void **)&l.error},
                {"load", (void **)&l.load},     {"launch", (void **)&l.launch},   {"step", (void **)&l.step},   {"unload", (void **)&l.unload}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        snprintf(symbol, sizeof symbol, "%s_%s", m->plan->entry, want[i].name);
        *want[i].to = dlsym(l.library, symbol);
        if (!*want[i].to) fail_msg("%s", symbol);
    }
    assert_string_equal((const char *)dlsym(l.library, "kiln_entry"), m->plan->entry);
    return l;
}

/* Of each weight that has bytes of its own, where they are. */
static const void **weights_of(const kiln_plan *p)
{
    const void **all = calloc((size_t)p->nweights + 1, sizeof *all);
    for (int i = 0; i < p->nweights; i++) all[i] = p->weights[i].splat || p->weights[i].of >= 0 ? NULL : p->weights[i].data;
    return all;
}

static int load(const model *m, const launcher *l, void **loaded)
{
    const void **weights = weights_of(m->plan);
    int r = l->load(loaded, (const void *const *)m->modules, weights);
    free(weights);
    return r;
}

static void poison(const model *m)
{
    for (int i = 0; i < m->plan->noutputs; i++) assert_int_equal(fill(m->results[i], 0xff, (size_t)m->plan->outputs[i].bytes), 0);
}

/* Of the largest magnitude of an output. */
static double difference(const model *m)
{
    double worst = 0;
    for (int i = 0; i < m->plan->noutputs; i++) {
        int64_t n = m->plan->outputs[i].elems;
        float *got = calloc((size_t)n, sizeof *got), most = 1;
        if (to_host(got, m->results[i], (size_t)n * sizeof *got)) worst = INFINITY;
        for (int64_t k = 0; k < n; k++) most = fmaxf(most, fabsf(m->out[i][k]));
        for (int64_t k = 0; k < n; k++) {
            double d = fabs((double)got[k] - m->out[i][k]) / most;
            if (!(d <= worst)) worst = d == d ? d : INFINITY;
        }
        free(got);
    }
    return worst;
}

static int run(const model *m, const launcher *l, void *loaded, void *place, void *stream)
{
    const void *in[ENDS];
    void *out[ENDS];
    for (int i = 0; i < ENDS; i++) in[i] = (void *)(uintptr_t)m->feeds[i], out[i] = (void *)(uintptr_t)m->results[i];
    return l->launch(loaded, in, out, place, stream);
}

static size_t used(void)
{
    size_t free_bytes, all;
    assert_int_equal(room(&free_bytes, &all), 0);
    return all - free_bytes;
}

/* The whole way: images, weights, arena, steps; on a stream; in an arena of the caller's own; step by step; and everything is given back. */
static void runs(void **state)
{
    const char *const compilers[] = {"gcc", "clang"};
    (void)state;
    for (int c = 0; c < 2; c++) {
        launcher l = compile(&cnn, cnn.launcher.p, cnn.launcher.n, compilers[c], compilers[c]);
        void *loaded = NULL, *stream;
        uint64_t own = 0;
        size_t before = used();
        if (load(&cnn, &l, &loaded)) fail_msg("%s", l.error());
        assert_int_equal(used() - before, (size_t)(l.arena() + l.weights()));
        poison(&cnn);
        if (run(&cnn, &l, loaded, NULL, NULL)) fail_msg("%s", l.error());
        assert_true(difference(&cnn) < 1e-5);
        poison(&cnn);
        assert_int_equal(new_stream(&stream, 1) || alloc(&own, (size_t)l.arena()) || fill(own, 0xff, (size_t)l.arena()), 0);
        assert_int_equal(settle(), 0); /* the stream does not wait for the null stream */
        assert_int_equal(run(&cnn, &l, loaded, (void *)(uintptr_t)own, stream), 0);
        assert_true(difference(&cnn) < 1e-5);
        assert_int_equal(drop_stream(stream), 0);
        assert_true(run(&cnn, &l, loaded, NULL, stream) != 0); /* a stream that is gone */
        assert_non_null(strstr(l.error(), "step 1 of "));
        const void *in[] = {(void *)(uintptr_t)cnn.feeds[0]};
        void *out[ENDS];
        for (int i = 0; i < ENDS; i++) out[i] = (void *)(uintptr_t)cnn.results[i];
        poison(&cnn);
        for (int i = 0; i < l.steps(); i++) assert_int_equal(l.step(loaded, i, in, out, NULL, NULL), 0);
        assert_true(difference(&cnn) < 1e-5);
        assert_int_equal(l.step(loaded, l.steps(), in, out, NULL, NULL), 1);
        assert_int_equal(release(own) || l.unload(loaded), 0);
        assert_int_equal(used(), before);
    }
}

/* Inputs that are no multiples of 16 go to the kernels that take any address. */
static void unaligned(void **state)
{
    launcher l = compile(&cnn, cnn.launcher.p, cnn.launcher.n, "cc", "unaligned");
    void *loaded = NULL;
    uint64_t feed = cnn.feeds[0], result = cnn.results[1];
    (void)state;
    assert_int_equal(load(&cnn, &l, &loaded), 0);
    cnn.feeds[0] += 4, cnn.results[1] += 4;
    poison(&cnn);
    assert_int_equal(to_device(cnn.feeds[0], cnn.in[0], (size_t)cnn.plan->inputs[0].bytes), 0);
    if (run(&cnn, &l, loaded, NULL, NULL)) fail_msg("%s", l.error());
    assert_true(difference(&cnn) < 1e-5);
    cnn.feeds[0] = feed, cnn.results[1] = result;
    assert_int_equal(to_device(feed, cnn.in[0], (size_t)cnn.plan->inputs[0].bytes) || l.unload(loaded), 0);
}

static void refusals(void **state)
{
    launcher l = compile(&cnn, cnn.launcher.p, cnn.launcher.n, "cc", "refusals");
    void *loaded = &l;
    size_t before = used();
    const void *images[KERNELS];
    const void **weights = weights_of(cnn.plan);
    (void)state;
    memcpy(images, cnn.modules, sizeof images);
    assert_int_equal(l.load(&loaded, NULL, weights), 200);
    assert_null(loaded);
    assert_non_null(strstr(l.error(), "kernel 1 of "));
    images[2] = "MOCK arch=80\n";
    assert_int_equal(l.load(&loaded, images, weights), 209);
    assert_non_null(strstr(l.error(), "kernel 3 of "));
    assert_non_null(strstr(l.error(), "CUDA_ERROR_NO_BINARY_FOR_GPU"));
    assert_int_equal(l.load(&loaded, (const void *const *)cnn.modules, NULL), 1);
    assert_non_null(strstr(l.error(), "weight 1 of "));
    set_current(NULL);
    assert_int_equal(l.load(&loaded, (const void *const *)cnn.modules, weights), 201);
    set_current(context);
    assert_int_equal(used(), before);
    assert_int_equal(l.load(&loaded, (const void *const *)cnn.modules, weights), 0);
    set_current(NULL);
    assert_int_equal(run(&cnn, &l, loaded, NULL, NULL), 201);
    set_current(context);
    assert_int_equal(run(&cnn, &l, NULL, NULL, NULL), 1);
    assert_int_equal(l.unload(loaded) || l.unload(NULL), 0);
    assert_int_equal(used(), before);
    free(weights);
}

/* What the test would not see if it were wrong, planted: each must show. */
static char *replaced(const char *text, const char *what, const char *by)
{
    const char *at = strstr(text, what);
    if (!at) fail_msg("no %s", what);
    char *out = malloc(strlen(text) + strlen(by) + 1);
    size_t n = (size_t)(at - text);
    sprintf(out, "%.*s%s%s", (int)n, text, by, at + strlen(what));
    return out;
}

/* Rows i and j of a table change places. */
static char *swapped(const char *text, const char *table, int i, int j)
{
    char *out = strdup(text), *row = strstr(out, table), *from[2] = {NULL, NULL};
    size_t n[2] = {0, 0};
    assert_non_null(row);
    for (int k = 0; k <= j; k++) {
        row = strchr(row, '\n') + 1;
        if (k == i) from[0] = row, n[0] = strcspn(row, "\n");
        if (k == j) from[1] = row, n[1] = strcspn(row, "\n");
    }
    const char *a = text + (from[0] - out), *b = text + (from[1] - out), *rest = b + n[1];
    sprintf(out, "%.*s%.*s%.*s%.*s%s", (int)(a - text), text, (int)n[1], b, (int)(b - a - (ptrdiff_t)n[0]), a + n[0], (int)n[0], a, rest);
    return out;
}

static void mutant(char *text, const char *name)
{
    launcher l = compile(&cnn, text, strlen(text), "cc", name);
    int status = 0;
    pid_t child = fork(); /* it may write anywhere */
    if (!child) {
        void *loaded = NULL;
        const int crashes[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL}; /* else cmocka goes on with the next test here */
        for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++) signal(crashes[i], SIG_DFL);
        if (load(&cnn, &l, &loaded)) _exit(2);
        poison(&cnn);
        _exit(run(&cnn, &l, loaded, NULL, NULL) != 0 || difference(&cnn) > 1e-4);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) != 1) fail_msg("%s is not noticed", name);
    dlclose(l.library);
    free(text);
}

static void mutants(void **state)
{
    const char *t = cnn.launcher.p;
    (void)state;
    mutant(swapped(t, "k_plan[] = {", 0, 1), "steps_in_another_order");
    mutant(swapped(t, "k_plan[] = {", cnn.plan->nsteps - 2, cnn.plan->nsteps - 1), "last_steps_in_another_order");
    mutant(replaced(t, "for (i32 i = from; i < to && !r; i++) r = k_do_step", "for (i32 i = from + 1; i < to && !r; i++) r = k_do_step"),
           "a_step_is_missing");
    mutant(replaced(t, "i < K_WEIGHTS && !r; i++) {", "i < K_WEIGHTS / 2 && !r; i++) {"), "half_the_weights_are_missing");
    mutant(replaced(t, "weights[i], (__SIZE_TYPE__)w->bytes)", "weights[i], (__SIZE_TYPE__)w->bytes / 2)"), "half_of_each_weight_is_missing");
    mutant(replaced(t, "return (u8 *)p + s->offset;", "return (u8 *)p + (s->place == 2 ? s->offset / 2 : s->offset);"), "values_overlap");
    mutant(replaced(t, "arena + temps, stream)", "arena + temps - temps, stream)"), "temporaries_over_values");
    mutant(replaced(t, "params[i] = &pointer[i];", "params[s->nargs - 1 - i] = &pointer[i];"), "arguments_turned_round");
}

static void *symbol(const char *name)
{
    void *p = dlsym(mock, name);
    if (!p) exit(1);
    return p;
}

static int set_up(void **state)
{
    (void)state;
    arena = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    mock = dlopen(driver, RTLD_NOW | RTLD_LOCAL);
    if (!mock) fprintf(stderr, "%s\n", dlerror());
    if (!arena || !mock || !mkdtemp(dir)) return 1;
    setenv("KILN_LIBCUDA", driver, 1);
    *(void **)&init = symbol("cuInit"), *(void **)&retain = symbol("cuDevicePrimaryCtxRetain"), *(void **)&set_current = symbol("cuCtxSetCurrent");
    *(void **)&alloc = symbol("cuMemAlloc_v2"), *(void **)&release = symbol("cuMemFree_v2"), *(void **)&fill = symbol("cuMemsetD8_v2");
    *(void **)&to_device = symbol("cuMemcpyHtoD_v2"), *(void **)&to_host = symbol("cuMemcpyDtoH_v2"), *(void **)&room = symbol("cuMemGetInfo_v2");
    *(void **)&new_stream = symbol("cuStreamCreate"), *(void **)&drop_stream = symbol("cuStreamDestroy_v2");
    *(void **)&settle = symbol("cuCtxSynchronize");
    if (init(0) || retain(&context, 0) || set_current(context)) return 1;
    build(&cnn, "small_cnn", "nvidia-h200");
    return 0;
}

static int tear_down(void **state)
{
    char command[100];
    (void)state;
    demolish(&cnn);
    kiln_arena_close(arena);
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command);
}

int main(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/');
    (void)argc;
    snprintf(driver, sizeof driver, "%.*slibcuda_emu.so", slash ? (int)(slash - argv[0]) + 1 : 2, slash ? argv[0] : "./");
    const struct CMUnitTest tests[] = {cmocka_unit_test(runs), cmocka_unit_test(unaligned), cmocka_unit_test(refusals), cmocka_unit_test(mutants)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
