/* The mock of the CUDA driver refuses what the driver refuses: every rule broken once. Without that the runner's tests would prove little.
 */
#include "workers/gpu/gpu.h"
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY = 209,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    ILLEGAL_ADDRESS = 700,
    OUT_OF_RESOURCES = 701
};
static gpu_driver cu;
static void *context, *module, *function;
static const char image[] = "MOCK arch=90\nfn f body=add regs=64 threads=512 static=1024 elems=64 params=ptr,ptr,i32\n"
                            "fn g body=add regs=64 threads=512 elems=64 cluster=2 params=tmap,ptr\n";

static int path_of(const char *argv0, char *out, size_t n)
{
    const char *slash = strrchr(argv0, '/');
    return snprintf(out, n, "%.*slibcuda_mock.so", slash ? (int)(slash - argv0) + 1 : 0, argv0);
}

static int setup(void **s)
{
    (void)s;
    return cu.Init(0) || cu.DevicePrimaryCtxRetain(&context, 0) || cu.CtxSetCurrent(context) || cu.ModuleLoadData(&module, image) ||
           cu.ModuleGetFunction(&function, module, "f");
}
static int teardown(void **s)
{
    (void)s;
    return cu.DevicePrimaryCtxRelease(0);
}

static void contexts(void **s)
{
    gpu_ptr p;
    int version;
    (void)s;
    assert_int_equal(cu.DriverGetVersion(&version), OK);
    assert_int_equal(cu.MemAlloc(&p, 16), NOT_INITIALIZED);
    assert_int_equal(cu.Init(0), OK);
    assert_int_equal(cu.MemAlloc(&p, 16), INVALID_CONTEXT);
    assert_int_equal(cu.DevicePrimaryCtxRetain(&context, 0), OK);
    assert_int_equal(cu.MemAlloc(&p, 16), INVALID_CONTEXT); /* retained is not current */
    assert_int_equal(cu.CtxSetCurrent(context), OK);
    assert_int_equal(cu.MemAlloc(&p, 16), OK);
    assert_int_equal(cu.DevicePrimaryCtxRelease(0), OK);
    assert_int_equal(cu.MemFree(p), INVALID_CONTEXT);
    assert_int_equal(cu.DevicePrimaryCtxRelease(0), INVALID_CONTEXT);
}

static void memory(void **s)
{
    gpu_ptr p, q;
    char host[64] = {0};
    (void)s;
    assert_int_equal(cu.MemAlloc(&p, 0), INVALID_VALUE);
    assert_int_equal(cu.MemAlloc(&p, (size_t)1 << 40), OUT_OF_MEMORY);
    assert_int_equal(cu.MemAlloc(&p, 64), OK);
    assert_int_equal(cu.MemAlloc(&q, 64), OK);
    assert_int_equal(cu.MemcpyHtoD(p, host, 64), OK);
    assert_int_equal(cu.MemcpyHtoD(p, host, 65), INVALID_VALUE);
    assert_int_equal(cu.MemcpyHtoD(p + 1, host, 64), INVALID_VALUE);
    assert_int_equal(cu.MemcpyDtoD(q, p, 64), OK);
    assert_int_equal(cu.MemFree(p), OK);
    assert_int_equal(cu.MemFree(p), INVALID_VALUE);
    assert_int_equal(cu.MemcpyDtoH(host, p, 1), INVALID_VALUE);
    assert_int_equal(cu.MemsetD8(q, 0, 65), INVALID_VALUE);
}

static void modules(void **s)
{
    void *m, *f;
    (void)s;
    assert_int_equal(cu.ModuleLoadData(&m, "\177ELF"), INVALID_IMAGE);
    assert_int_equal(cu.ModuleLoadData(&m, "MOCK arch=80\n"), NO_BINARY);
    assert_int_equal(cu.ModuleGetFunction(&f, module, "nothing"), NOT_FOUND);
    assert_int_equal(cu.ModuleUnload(module), OK);
    assert_int_equal(cu.ModuleGetFunction(&f, module, "f"), INVALID_HANDLE);
    assert_int_equal(cu.FuncSetAttribute(function, 8, 1000), INVALID_HANDLE);
    assert_int_equal(cu.LaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), INVALID_HANDLE);
}

static int launch(unsigned gx, unsigned gy, unsigned bx, unsigned shared, void **params)
{
    return cu.LaunchKernel(function, gx, gy, 1, bx, 1, 1, shared, NULL, params, NULL);
}

static void launches(void **s)
{
    gpu_ptr p, q;
    int n = 64;
    (void)s;
    cu.MemAlloc(&p, 256);
    cu.MemAlloc(&q, 256);
    void *params[] = {&p, &q, &n}, *few[] = {&p, &q, NULL};
    assert_int_equal(launch(1, 1, 64, 0, params), OK);
    assert_int_equal(launch(0, 1, 64, 0, params), INVALID_VALUE);
    assert_int_equal(launch(1, 65536, 64, 0, params), INVALID_VALUE);
    assert_int_equal(launch(1, 1, 1025, 0, params), INVALID_VALUE);
    assert_int_equal(launch(1, 1, 1024, 0, params), OUT_OF_RESOURCES);    /* made for 512 */
    assert_int_equal(launch(1, 1, 64, 48 * 1024, params), INVALID_VALUE); /* with 1 KiB static: more than 48 KiB */
    assert_int_equal(cu.FuncSetAttribute(function, 8, 64 * 1024), OK);
    assert_int_equal(launch(1, 1, 64, 64 * 1024, params), OK);
    assert_int_equal(cu.FuncSetAttribute(function, 8, 240000), INVALID_VALUE);
    assert_int_equal(launch(1, 1, 64, 0, few), INVALID_VALUE);
    assert_int_equal(launch(1, 1, 64, 0, NULL), INVALID_VALUE);
    assert_int_equal(cu.StreamSynchronize(NULL), OK);
}

/* A kernel that touches freed memory: the launch is taken, all that follows fails until the process ends. */
static void late_pointer(void **s)
{
    gpu_ptr p, q;
    int n = 64;
    (void)s;
    cu.MemAlloc(&p, 256);
    cu.MemAlloc(&q, 256);
    cu.MemFree(q);
    assert_int_equal(launch(1, 1, 64, 0, (void *[]){&p, &q, &n}), OK);
    assert_int_equal(cu.StreamSynchronize(NULL), ILLEGAL_ADDRESS);
    assert_int_equal(cu.MemAlloc(&q, 16), ILLEGAL_ADDRESS);
}

static void clusters_and_maps(void **s)
{
    gpu_ptr p, q;
    void *g;
    _Alignas(128) unsigned char map[128];
    const uint64_t dims[] = {64, 64}, strides[] = {256}, odd[] = {250};
    const unsigned box[] = {32, 64}, wide[] = {64, 64}, one[] = {1, 1};
    (void)s;
    cu.MemAlloc(&p, 64 * 64 * 4);
    cu.MemAlloc(&q, 256);
    assert_int_equal(cu.ModuleGetFunction(&g, module, "g"), OK);
    void *at = (void *)(uintptr_t)p;
    assert_int_equal(cu.TensorMapEncodeTiled(map, 7, 2, at, dims, strides, box, one, 0, 3, 0, 0), OK);
    assert_int_equal(cu.TensorMapEncodeTiled(map, 7, 2, at, dims, odd, box, one, 0, 3, 0, 0), INVALID_VALUE);
    assert_int_equal(cu.TensorMapEncodeTiled(map, 7, 2, at, dims, strides, wide, one, 0, 3, 0, 0), INVALID_VALUE);
    assert_int_equal(cu.TensorMapEncodeTiled(map, 7, 2, (char *)at + 4, dims, strides, box, one, 0, 3, 0, 0), INVALID_VALUE);
    assert_int_equal(cu.TensorMapEncodeTiled(map + 1, 7, 2, at, dims, strides, box, one, 0, 3, 0, 0), INVALID_VALUE);
    assert_int_equal(cu.TensorMapEncodeTiled(map, 7, 6, at, dims, strides, box, one, 0, 3, 0, 0), INVALID_VALUE);
    gpu_launch_attribute a = {.id = GPU_ATTRIBUTE_CLUSTER, .value.dim = {2, 1, 1}};
    gpu_launch_config c = {.grid = {4, 1, 1}, .block = {64, 1, 1}, .attributes = &a, .nattributes = 1};
    void *params[] = {map, &q};
    assert_int_equal(cu.LaunchKernelEx(&c, g, params, NULL), OK);
    c.grid[0] = 3;
    assert_int_equal(cu.LaunchKernelEx(&c, g, params, NULL), INVALID_VALUE);
    c.grid[0] = 4, a.value.dim[0] = 4;
    assert_int_equal(cu.LaunchKernelEx(&c, g, params, NULL), INVALID_VALUE); /* made for 2 */
    c.grid[0] = 16, a.value.dim[0] = 16;
    assert_int_equal(cu.LaunchKernelEx(&c, g, params, NULL), INVALID_VALUE);
    memset(map, 0, sizeof map);
    c.nattributes = 0, a.value.dim[0] = 2;
    assert_int_equal(cu.LaunchKernelEx(&c, g, params, NULL), INVALID_VALUE);
}

static void events(void **s)
{
    void *a, *b, *stream;
    float ms;
    (void)s;
    assert_int_equal(cu.StreamCreate(&stream, 1), OK);
    assert_int_equal(cu.EventCreate(&a, 0), OK);
    assert_int_equal(cu.EventCreate(&b, 0), OK);
    assert_int_equal(cu.EventRecord(a, stream), OK);
    assert_int_equal(cu.EventElapsedTime(&ms, a, b), INVALID_HANDLE); /* b was not recorded */
    assert_int_equal(cu.EventRecord(b, &ms), INVALID_HANDLE);         /* no such stream */
    assert_int_equal(cu.EventRecord(b, stream), OK);
    assert_int_equal(cu.EventElapsedTime(&ms, a, b), OK);
    assert_int_equal(cu.EventDestroy(a), OK);
    assert_int_equal(cu.EventRecord(a, stream), INVALID_HANDLE);
    assert_int_equal(cu.StreamDestroy(stream), OK);
    assert_int_equal(cu.StreamSynchronize(stream), INVALID_HANDLE);
}

/* The null stream's work is not done when the call returns: a stream apart from it overtakes, another waits. */
static void null_stream(void **s)
{
    gpu_ptr p, q;
    float in[64], out[64];
    int n = 64;
    void *params[] = {&p, &q, &n}, *stream;
    (void)s;
    for (int i = 0; i < n; i++) in[i] = 3;
    cu.MemAlloc(&p, sizeof in);
    cu.MemAlloc(&q, sizeof out);
    assert_int_equal(cu.MemcpyHtoD(p, in, sizeof in), OK);
    for (unsigned apart = 0; apart < 2; apart++) {
        assert_int_equal(cu.StreamCreate(&stream, apart), OK);
        assert_int_equal(cu.MemsetD8(q, 0xff, sizeof out), OK);
        assert_int_equal(cu.LaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, stream, params, NULL), OK);
        assert_int_equal(cu.StreamSynchronize(stream), OK);
        assert_int_equal(cu.MemcpyDtoH(out, q, sizeof out), OK);
        assert_true(apart ? isnan(out[0]) : out[0] == 6);
        assert_int_equal(cu.StreamDestroy(stream), OK);
    }
}

int main(int argc, char **argv)
{
    char path[600], why[300];
    (void)argc;
    path_of(argv[0], path, sizeof path);
    setenv("KILN_LIBCUDA", path, 1);
    if (!gpu_driver_open(&cu, why, sizeof why)) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contexts), /* first: nothing is initialised yet */
        cmocka_unit_test_setup_teardown(memory, setup, teardown),
        cmocka_unit_test_setup_teardown(modules, setup, teardown),
        cmocka_unit_test_setup_teardown(launches, setup, teardown),
        cmocka_unit_test_setup_teardown(clusters_and_maps, setup, teardown),
        cmocka_unit_test_setup_teardown(events, setup, teardown),
        cmocka_unit_test_setup_teardown(null_stream, setup, teardown),
        cmocka_unit_test_setup(late_pointer, setup), /* last: nothing works after it */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
