/* Launchers of GPU kernels: compiled by gcc and clang without a warning, then called against the mock driver: by raw pointers and as
 * TVM-FFI. */
#include "artifact/launch_text.h"
#include "artifact/launcher.h"
#include "tests/arena.h"
#include "workers/workers.h"
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

typedef struct tensor {
    void *data;
    int32_t device, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} tensor;
typedef struct any {
    int32_t type_index;
    uint32_t zero;
    void *p;
} any;
typedef int (*tvm_function)(void *, const any *, int32_t, any *);
typedef struct launcher {
    int32_t (*launch)(const void *const *, void *const *, void *, void *);
    int64_t (*workspace)(void);
    const char *(*error)(void);
    void (*load)(const void *);
    tvm_function tvm;
    void *library;
} launcher;

static kiln_arena *arena;
static char own_dir[500];
static char dir[] = "/tmp/kiln-launcher.XXXXXX", mock_path[600];
static void *mock;
static int (*init)(unsigned), (*retain)(void **, int), (*set_current)(void *), (*alloc)(uint64_t *, size_t),
    (*to_device)(uint64_t, const void *, size_t), (*to_host)(void *, uint64_t, size_t);
static void *context;

static kiln_hw *device(void)
{
    static char text[65536];
    kiln_hw *hw = NULL;
    kiln_diag d = {0};
    FILE *f = fopen("hwspecs/nvidia-h200.json", "rb");
    size_t n = f ? fread(text, 1, sizeof text, f) : 0;
    if (f) fclose(f);
    if (kiln_hw_parse(arena, (kiln_bytes){text, n}, &hw, &d)) fail_msg("%s", d.message);
    return hw;
}

static kiln_kernel *kernel(const char *text, const char *inputs, kiln_program **p)
{
    kiln_request *r;
    kiln_candidates *c;
    kiln_kernel *k = NULL;
    kiln_diag d = {0};
    kiln_hw *hw = device();
    if (kiln_request_text(arena, (kiln_bytes){text, strlen(text)}, (kiln_bytes){inputs, strlen(inputs)}, NULL, &r, &d) ||
        kiln_construct(arena, r->program, hw, "default", 1, &c, &d) || kiln_generate(arena, r->program, hw, c->c[0].trace, &k, &d))
        fail_msg("%s", d.message);
    *p = r->program;
    return k;
}

static launcher compile(const kiln_kernel *k, kiln_bytes text, const char *cc, const char *name)
{
    char path[200], command[700], symbol[200];
    launcher l = {0};
    snprintf(path, sizeof path, "%s/%s.c", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fwrite(text.p, 1, text.n, f);
    fclose(f);
    snprintf(command, sizeof command, "%s -std=gnu11 -O1 -Wall -Wextra -Werror -shared -fPIC -o %s/%s.so %s", cc, dir, name, path);
    if (system(command)) fail_msg("%s", command);
    snprintf(path, sizeof path, "%s/%s.so", dir, name);
    l.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!l.library) fail_msg("%s", dlerror());
    const struct {
        const char *format;
        void **to;
    } want[] = {{"%s_launch", (void **)&l.launch},
                {"%s_workspace", (void **)&l.workspace},
                {"%s_error", (void **)&l.error},
                {"%s_load", (void **)&l.load},
                {"__tvm_ffi_%s", (void **)&l.tvm}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        snprintf(symbol, sizeof symbol, want[i].format, k->entry);
        *want[i].to = dlsym(l.library, symbol);
        assert_non_null(*want[i].to);
    }
    assert_string_equal((const char *)dlsym(l.library, "kiln_entry"), k->entry);
    return l;
}

/* A module for the mock: each launch adds the first two of its arrays into the last. */
static void put_functions(kn_buf *b, const kiln_kernel *k, int elems)
{
    for (int i = 0; i < k->nlaunches; i++) {
        const kiln_launch *l = &k->launches[i];
        kn_putf(b, "fn %s body=add us=1 elems=%d regs=32 threads=%d static=%lld cluster=%d params=", l->entry, elems, l->threads,
                (long long)(l->dynamic_shared_bytes ? 0 : l->shared_bytes), l->cluster > 1 ? l->cluster : 0);
        for (int j = 0; j < l->nargs; j++) kn_putf(b, "%s%s", j ? "," : "", l->maps && l->maps[j].rank ? "tmap" : "ptr");
        kn_put(b, "\n");
    }
}

static const char *image(const kiln_kernel *k, int elems)
{
    kn_buf b;
    kn_buf_init(&b, arena);
    kn_put(&b, "MOCK arch=90\n");
    put_functions(&b, k, elems);
    return kn_buf_take(&b).p;
}

/* The same with the kernels for any address, which the mock runs on another number of elements. */
static const char *whole_image(const kiln_kernel *k, int elems, int any)
{
    kn_buf b;
    kn_buf_init(&b, arena);
    assert_non_null(k->fallback);
    kn_put(&b, "MOCK arch=90\n");
    put_functions(&b, k, elems);
    put_functions(&b, k->fallback, any);
    return kn_buf_take(&b).p;
}

static uint64_t array(int n, float first)
{
    float host[256];
    uint64_t p;
    for (int i = 0; i < n && i < 256; i++) host[i] = first + (float)i;
    assert_int_equal(alloc(&p, sizeof host), 0);
    assert_int_equal(to_device(p, host, sizeof host), 0);
    return p;
}

static float at(uint64_t p, int i)
{
    float x;
    assert_int_equal(to_host(&x, p + 4 * (uint64_t)i, 4), 0);
    return x;
}

static void raw_pointers(void **state)
{
    kiln_program *p;
    kiln_kernel *k = kernel("y[I] = a[I] + b[I]", "a=f32:256&b=f32:256", &p);
    (void)state;
    launcher l = compile(k, k->launcher, "cc", "raw");
    uint64_t a = array(256, 1), b = array(256, 100), y = array(256, 0);
    const void *in[] = {(void *)(uintptr_t)a, (void *)(uintptr_t)b};
    void *out[] = {(void *)(uintptr_t)y};
    assert_int_equal(l.workspace(), 0);
    assert_int_equal(l.launch(in, out, NULL, NULL), 200); /* no image yet */
    assert_non_null(strstr(l.error(), "no image"));
    l.load("MOCK arch=80\n");
    assert_int_equal(l.launch(in, out, NULL, NULL), 209);
    assert_string_equal(l.error(), "CUDA_ERROR_NO_BINARY_FOR_GPU");
    l.load(image(k, 256));
    assert_int_equal(l.launch(in, out, NULL, NULL), 0);
    assert_true(at(y, 7) == 1 + 7 + 100 + 7);
    set_current(NULL);
    assert_int_equal(l.launch(in, out, NULL, NULL), 201);
    set_current(context);
}

/* Addresses that are no multiples of 16 go to the kernels that take any, in an image that has them; the rest never does. */
static void unaligned(void **state)
{
    kiln_program *p;
    kiln_kernel *k = kernel("y[I] = a[I] + b[I]", "a=f32:64&b=f32:64", &p);
    (void)state;
    assert_non_null(strstr(k->manifest.p, "\"fallback\":{\"when\":[\"unaligned\"],"));
    assert_non_null(strstr(k->manifest.p, k->fallback->launches[0].entry));
    launcher l = compile(k, k->launcher, "cc", "unaligned");
    uint64_t a = array(256, 1), b = array(256, 100), y = array(256, 0);
    const void *in[] = {(void *)(uintptr_t)a, (void *)(uintptr_t)b}, *odd[] = {(void *)(uintptr_t)(a + 4), in[1]};
    void *out[] = {(void *)(uintptr_t)y};
    l.load(whole_image(k, 64, 32));
    assert_int_equal(l.launch(in, out, NULL, NULL), 0);
    assert_true(at(y, 63) == 1 + 63 + 100 + 63);
    assert_int_equal(l.launch(odd, out, NULL, NULL), 0);
    assert_true(at(y, 31) == 1 + 32 + 100 + 31 && at(y, 63) == 1 + 63 + 100 + 63);
    l = compile(k, k->launcher, "cc", "unaligned_without");
    l.load(image(k, 64));
    assert_int_equal(l.launch(odd, out, NULL, NULL), 500);
    assert_non_null(strstr(l.error(), "no kernel for such addresses"));
}

static void needs_workspace(const char *expr, const char *inputs, int ninputs, const char *cc, const char *name)
{
    kiln_program *p;
    kiln_kernel *k = kernel(expr, inputs, &p);
    int64_t bytes = 0;
    assert_true(k->ntemps > 0 && k->nlaunches > 1);
    bytes = kn_workspace_bytes(k);
    launcher l = compile(k, k->launcher, cc, name);
    uint64_t x = array(256, 1), z = array(256, 2), y = array(256, 0), w;
    assert_int_equal(l.workspace(), bytes);
    assert_int_equal(alloc(&w, (size_t)l.workspace()), 0);
    const void *in[] = {(void *)(uintptr_t)x, (void *)(uintptr_t)(ninputs > 1 ? z : x)};
    void *out[] = {(void *)(uintptr_t)y};
    l.load(image(k, 1));
    assert_int_equal(l.launch(in, out, NULL, NULL), 1); /* a workspace is needed */
    assert_int_equal(l.launch(in, out, (void *)(uintptr_t)w, NULL), 0);
}

static void temporaries(void **state)
{
    (void)state;
    needs_workspace("r[I] +=! x[I,J]; y[J] +=! x[I,J]*r[I]", "x=f32:64x128", 1, "clang", "temporaries");
    needs_workspace("c[M,N] +=! a[M,K]*b[K,N]", "a=f16:16x16384&b=f16:16384x64", 2, "cc", "parts"); /* split-K: parts, then their sum */
}

static void tvm_ffi(void **state)
{
    kiln_program *p;
    kiln_kernel *k = kernel("y[I] = a[I] + b[I]", "a=f32:128&b=f32:128", &p);
    (void)state;
    launcher l = compile(k, k->launcher, "cc", "tvm");
    uint64_t a = array(256, 1), b = array(256, 100), y = array(256, 0);
    int64_t shape[] = {128}, stride[] = {1}, other[] = {2};
    tensor t[3];
    any args[3], result = {-1, 1, NULL};
    const uint64_t at_device[] = {a, b, y};
    for (int i = 0; i < 3; i++) {
        t[i] = (tensor){(void *)(uintptr_t)at_device[i], 2, 0, 1, 2, 32, 1, shape, i ? stride : NULL, 0};
        args[i] = (any){7, 0, &t[i]};
    }
    l.load(whole_image(k, 128, 100));
    set_current(NULL); /* a thread of a framework that has none current */
    assert_int_equal(l.tvm(NULL, args, 3, &result), 0);
    set_current(context);
    assert_int_equal(result.type_index, 0);
    assert_true(at(y, 5) == 1 + 5 + 100 + 5);
    assert_int_equal(l.tvm(NULL, args, 2, &result), -1);
    t[1].device = 1; /* on the CPU */
    assert_int_equal(l.tvm(NULL, args, 3, &result), -1);
    t[1].device = 2, t[1].byte_offset = 2; /* not aligned to its element */
    assert_int_equal(l.tvm(NULL, args, 3, &result), -1);
    t[1].byte_offset = 4; /* not aligned to 16 */
    assert_int_equal(l.tvm(NULL, args, 3, &result), 0);
    set_current(context);
    assert_true(at(y, 99) == 1 + 99 + 100 + 100);
    t[1].byte_offset = 0, t[1].strides = other;
    assert_int_equal(l.tvm(NULL, args, 3, &result), -1);
    t[1].strides = stride, t[1].device_id = 1;
    assert_int_equal(l.tvm(NULL, args, 3, &result), -1);
    t[1].device_id = 0, t[1].bits = 64;
    assert_int_equal(l.tvm(NULL, args, 3, &result), -1);
    t[1].bits = 32, args[1].type_index = 1;
    assert_int_equal(l.tvm(NULL, args, 3, &result), -1);
}

/* Clusters, tensor maps and shared memory beyond 48 KiB: what kernels of sm_90a ask for. */
static void hopper(void **state)
{
    kiln_program *p;
    kiln_kernel k = *kernel("y[I] = a[I] + b[I]", "a=f32:256&b=f32:256", &p);
    kiln_launch one = k.launches[0];
    k.fallback = NULL;
    kiln_tensor_map maps[3] = {{.rank = 2, .dtype = "f32", .dims = {16, 16}, .strides = {64}, .box = {16, 8}, .swizzle = 2}};
    kiln_bytes text;
    (void)state;
    one.cluster = 2, one.grid = 8, one.dynamic_shared_bytes = one.shared_bytes = 100000, one.maps = maps;
    k.launches = &one, k.nlaunches = 1;
    assert_int_equal(kn_launcher(arena, p, device(), &k, &text), KILN_OK);
    launcher l = compile(&k, text, "clang", "hopper");
    uint64_t a = array(256, 1), b = array(256, 100), y = array(256, 0);
    const void *in[] = {(void *)(uintptr_t)a, (void *)(uintptr_t)b}, *odd[] = {(void *)(uintptr_t)(a + 4), in[1]};
    void *out[] = {(void *)(uintptr_t)y};
    l.load(image(&k, 64));
    assert_int_equal(l.launch(in, out, NULL, NULL), 0);
    assert_true(at(y, 3) == 1 + 3 + 100 + 3);
    assert_int_equal(l.launch(odd, out, NULL, NULL), 1); /* a map's address is aligned to 16 */
}

/* A product as it is constructed: the mock holds its maps, its cluster and its shared memory against the driver's rules. */
static void copy_engine(void **state)
{
    kiln_request *r;
    kiln_candidates *c;
    kiln_kernel *k = NULL;
    kiln_diag d = {0};
    const char *text = "c[M,N] +=! a[M,K]*b[N,K]", *inputs = "a=bf16:2056x2056&b=bf16:2056x2056";
    (void)state;
    if (kiln_request_text(arena, (kiln_bytes){text, strlen(text)}, (kiln_bytes){inputs, strlen(inputs)}, NULL, &r, &d)) fail_msg("%s", d.message);
    if (kiln_construct(arena, r->program, device(), "default", 16, &c, &d)) fail_msg("%s", d.message);
    for (int i = 0; i < c->n && !k; i++)
        if (strstr(c->c[i].trace.p, " bulk\n") && strstr(c->c[i].trace.p, "cluster") &&
            kiln_generate(arena, r->program, device(), c->c[i].trace, &k, &d)) fail_msg("%s", d.message);
    assert_non_null(k);
    assert_int_equal(k->launches[0].cluster, 2);
    assert_non_null(k->launches[0].maps);
    assert_non_null(strstr(k->manifest.p, "\"tensor_map\":\"in0\""));
    assert_non_null(strstr(k->manifest.p, "\"registers\":{\"asking\":24,\"computing\":240}"));
    assert_non_null(strstr(k->manifest.p, "\"driver_cuda\":\"12.0\""));
    launcher l = compile(k, k->launcher, "cc", "copies");
    uint64_t a = 0, b = 0, y = 0;
    assert_int_equal(alloc(&a, 2056 * 2056 * 2) || alloc(&b, 2056 * 2056 * 2) || alloc(&y, 2056 * 2056 * 2), 0);
    const void *in[] = {(void *)(uintptr_t)a, (void *)(uintptr_t)b}, *odd[] = {in[0], (void *)(uintptr_t)(b + 8)};
    void *out[] = {(void *)(uintptr_t)y};
    assert_non_null(strstr(k->manifest.p, "\"fallback\":{\"when\":[\"unaligned\",\"old_driver\"],"));
    l.load(whole_image(k, 64, 64));
    assert_int_equal(l.launch(in, out, NULL, NULL), 0);
    assert_int_equal(l.launch(odd, out, NULL, NULL), 0); /* no map of it is asked for */
}

/* The way of a worker that has a GPU: found, checked against the reference, timed; wrong values and hangs are told apart. */
static void measured_by_a_worker(void **state)
{
    kiln_program *p;
    kiln_kernel *k = kernel("y[I] = a[I] + b[I]", "a=f32:256&b=f32:256", &p);
    worker_tools t = {.tmp = "/tmp"};
    worker_verdict v;
    worker_error e = {0};
    double us[3];
    char *text = strdup(image(k, 256));
    worker_blob module = {.p = text, .n = strlen(text)};
    (void)state;
    snprintf(t.worker, sizeof t.worker, "%.400s/../kiln-worker", own_dir);
    worker_gpu_here(&t, t.gpu);
    assert_string_equal(t.gpu, "sm_90");
    assert_true(worker_gpu_runs(&t, "sm_90a") && worker_gpu_runs(&t, "sm_90"));
    assert_false(worker_gpu_runs(&t, "sm_9") || worker_gpu_runs(&t, "sm_80") || worker_gpu_runs(&t, "sm_900"));
    if (!worker_run_gpu(&t, p, k, &module, 3, &v, us, &e)) fail_msg("%s", e.message);
    assert_true(v.ok && v.checked > 20 && v.max_error <= 1);
    assert_true(us[0] > 0.9 && us[0] < 1.1 && us[1] <= us[0] && us[0] <= us[2]);
    free(text);
    kiln_kernel *other = kernel("y[I] = a[I] - b[I]", "a=f32:256&b=f32:256", &p);
    module = (worker_blob){.p = strdup(image(other, 256))};
    module.n = strlen(module.p);
    assert_true(worker_run_gpu(&t, p, other, &module, 1, &v, us, &e)); /* the mock adds */
    assert_false(v.ok);
    assert_non_null(strstr(v.detail, "should be"));
    free(module.p);
    module = (worker_blob){.p = "MOCK arch=80\n", .n = 13};
    assert_false(worker_run_gpu(&t, p, other, &module, 1, &v, us, &e));
    assert_non_null(strstr(e.message, "load-failed"));
    *t.worker = 0;
    worker_gpu_here(&t, t.gpu);
    assert_string_equal(t.gpu, "");
    assert_false(worker_gpu_runs(&t, "sm_90"));
}

static void *symbol(const char *name)
{
    void *p = dlsym(mock, name);
    if (!p) exit(1);
    return p;
}

static int setup(void **state)
{
    (void)state;
    arena = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    mock = dlopen(mock_path, RTLD_NOW | RTLD_LOCAL);
    if (!arena || !mock || !mkdtemp(dir)) return 1;
    setenv("KILN_LIBCUDA", mock_path, 1);
    *(void **)&init = symbol("cuInit"), *(void **)&retain = symbol("cuDevicePrimaryCtxRetain"),
           *(void **)&set_current = symbol("cuCtxSetCurrent");
    *(void **)&alloc = symbol("cuMemAlloc_v2"), *(void **)&to_device = symbol("cuMemcpyHtoD_v2"),
           *(void **)&to_host = symbol("cuMemcpyDtoH_v2");
    return init(0) || retain(&context, 0) || set_current(context);
}

static int teardown(void **state)
{
    char command[100];
    (void)state;
    kiln_arena_close(arena);
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command);
}

int main(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/');
    (void)argc;
    snprintf(own_dir, sizeof own_dir, "%.*s", slash ? (int)(slash - argv[0]) : 1, slash ? argv[0] : ".");
    snprintf(mock_path, sizeof mock_path, "%.*slibcuda_mock.so", slash ? (int)(slash - argv[0]) + 1 : 2, slash ? argv[0] : "./");
    const struct CMUnitTest tests[] = {cmocka_unit_test(raw_pointers), cmocka_unit_test(unaligned), cmocka_unit_test(temporaries),
                                       cmocka_unit_test(tvm_ffi),
                                       cmocka_unit_test(hopper), cmocka_unit_test(copy_engine),
                                       cmocka_unit_test(measured_by_a_worker)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
