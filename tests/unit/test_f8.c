/* Floats of 8 bits: every value, every tie and its neighbours in the compiler's own conversions and in generated code for CPU and GPU (emulated);
 * what saturates, what does not; products. */
#include "tests/arena.h"
#include "tests/unit/device.h"
#include "te/te.h"
#include "workers/child.h"
#include "workers/verify.h"
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tests/unit/request.h"

static worker_tools tools;

/* By the text of the specification, without the code under test. */
static double by_definition(bool e4m3, int bits)
{
    int fraction = e4m3 ? 3 : 2, m = bits % (1 << fraction), e = bits % 128 >> fraction, bias = e4m3 ? 7 : 15;
    double x = e ? ldexp(1 + ldexp(m, -fraction), e - bias) : ldexp(m, 1 - bias - fraction);
    if (e4m3 ? bits % 128 == 127 : e == 31) x = e4m3 || m ? NAN : INFINITY;
    return bits >= 128 ? -x : x;
}

static const enum kn_dtype TYPES[] = {KN_F8E4M3, KN_F8E5M2};

static void every_value(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++)
        for (int b = 0; b < 256; b++) {
            double x = by_definition(t == 0, b), y = kn_f8_value(TYPES[t], (uint8_t)b);
            assert_true(isnan(x) ? isnan(y) : x == y && signbit(x) == signbit(y));
            if (isnan(x)) assert_true((kn_f8_bits(TYPES[t], y) & 0x7f) == 0x7f);
            else if (isinf(x)) assert_int_equal(kn_f8_bits(TYPES[t], x), b > 128 ? 0xfb : 0x7b);
            else assert_int_equal(kn_f8_bits(TYPES[t], x), b);
        }
}

enum { NEAR = 5, MOST = 1 << 12 };

/* Each positive value, the tie above it and what is next to the tie; then what saturates. Both signs. Returns how many. */
static int hard_cases(int t, float *x, uint8_t *want)
{
    int n = 0, last = t ? 0x7b : 0x7e;
    for (int b = 0; b <= last; b++) {
        float low = (float)by_definition(t == 0, b), high = b < last ? (float)by_definition(t == 0, b + 1) : low, tie = (low + high) / 2;
        float list[NEAR] = {low, nextafterf(tie, low), tie, nextafterf(tie, 2 * high), high};
        uint8_t bits[NEAR] = {(uint8_t)b, (uint8_t)b, (uint8_t)(b + (b & 1)), (uint8_t)(b + 1), (uint8_t)(b + 1)};
        for (int i = 0; i < (b < last ? NEAR : 1); i++) x[n] = list[i], want[n++] = bits[i];
    }
    float beyond[] = {t ? 57345.0f : 449, t ? 61439.0f : 463.9f, t ? 61440.0f : 464, t ? 65536.0f : 480, 1e30f, INFINITY};
    for (int i = 0; i < 6; i++) x[n] = beyond[i], want[n++] = (uint8_t)last;
    x[n] = 0x1p-140f, want[n++] = 0;
    for (int i = 0, all = n; i < all; i++) x[n] = -x[i], want[n++] = want[i] | 0x80;
    x[n] = NAN, want[n++] = 0x7f;
    assert_true(n <= MOST);
    return n;
}

static void every_tie(void **state)
{
    (void)state;
    static float x[MOST];
    static uint8_t want[MOST];
    for (int t = 0; t < 2; t++) {
        int n = hard_cases(t, x, want);
        for (int i = 0; i < n; i++) {
            uint8_t got = kn_f8_bits(TYPES[t], (double)x[i]);
            if (got != want[i]) fail_msg("%a becomes %02x, not %02x", (double)x[i], got, want[i]);
            double y = kn_f8_round(TYPES[t], (double)x[i]);
            assert_true(isnan(x[i]) ? isnan(y) : y == kn_f8_value(TYPES[t], want[i]));
        }
    }
}

static kiln_kernel *generated(kiln_arena *a, const kiln_request *r, const kiln_hw *hw)
{
    kiln_candidates *list = NULL;
    kiln_kernel *k = NULL;
    kiln_diag d = {0};
    if (kiln_construct(a, r->program, hw, "default", 1, &list, &d)) fail_msg("%s", d.message);
    if (kiln_generate(a, r->program, hw, list->c[0].trace, &k, &d)) fail_msg("%s", d.message);
    return k;
}

typedef int (*entry_fn)(const void *const *in, void *const *out, void *workspace, const void *pool);

/* A CPU kernel, loaded; *so is to be closed. */
static entry_fn loaded(kiln_arena *a, const kiln_request *r, void **so)
{
    worker_blob blob = {0};
    worker_error e;
    char dir[CHILD_DIR_BYTES], path[CHILD_DIR_BYTES + 16], why[200];
    kiln_kernel *k = generated(a, r, device(a, "x86-64-avx2"));
    const char *const flags[] = {"-mavx2", "-mfma"};
    if (!worker_compile_c(&tools, k->source, flags, 2, 60000, &blob, &e)) fail_msg("%s", e.message);
    if (!child_dir_make(&tools, dir, why, sizeof why)) fail_msg("%s", why);
    assert_true(child_dir_put(dir, "k.so", blob.p, blob.n));
    snprintf(path, sizeof path, "%s/k.so", dir);
    *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    child_dir_remove(dir);
    free(blob.p);
    assert_non_null(*so);
    void *f = dlsym(*so, k->entry);
    entry_fn run;
    memcpy(&run, &f, sizeof run);
    return run;
}

static int place(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(names[i], name)) return i;
    fail_msg("no %s", name);
    return 0;
}

/* Vectors and the scalar rest of a length that is no multiple of theirs. What is only moved keeps its infinities. */
static void conversions_of_generated_code(void **state)
{
    (void)state;
    static float x[MOST], wide[256];
    static uint8_t want[MOST], got[MOST], bits[256], same[256];
    for (int b = 0; b < 256; b++) bits[b] = (uint8_t)b;
    for (int t = 0; t < 2; t++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){.mem = mem});
        const char *name = kn_dtype_text(TYPES[t]);
        void *so, *out[3];
        const void *in[2];
        int n = hard_cases(t, x, want);
        kiln_request *r = request(a, kn_format(a, "y[I] = cast(x[I],%s); w[J] = cast(b[J],f32); z[L] = b[255-L] where L in 256", name),
                                  kn_format(a, "x=f32:%d&b=%s:256", n, name));
        in[place(r->input_names, 2, "x")] = x;
        in[place(r->input_names, 2, "b")] = bits;
        out[place(r->output_names, 3, "y")] = got;
        out[place(r->output_names, 3, "w")] = wide;
        out[place(r->output_names, 3, "z")] = same;
        assert_int_equal(loaded(a, r, &so)(in, out, NULL, NULL), 0);
        for (int i = 0; i < n; i++)
            if (got[i] != want[i]) fail_msg("%s: %a becomes %02x, not %02x", name, (double)x[i], got[i], want[i]);
        for (int b = 0; b < 256; b++) {
            double v = by_definition(t == 0, b);
            assert_true(isnan(v) ? isnan(wide[b]) : v == (double)wide[b]);
            assert_true(isnan(by_definition(t == 0, 255 - b)) ? (same[b] & 0x7f) > 0x7c : same[b] == 255 - b);
        }
        dlclose(so);
        kiln_arena_close(a);
    }
}

static void the_verifier_s_own(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        verify_dtype v;
        assert_true(verify_dtype_find(kn_dtype_text(TYPES[t]), &v));
        for (int b = 0; b < 256; b++) {
            uint8_t byte = (uint8_t)b, back = 0;
            double x = verify_load(v, &byte, 0), y = by_definition(t == 0, b);
            assert_true(isnan(y) ? isnan(x) : x == y);
            verify_store(v, &back, 0, x);
            assert_true(isnan(y) || back == byte);
        }
    }
}

/* Kernels of several kinds against the reference, on the CPU and emulated. */
static void kernels(void **state)
{
    (void)state;
    static const struct { const char *expr, *inputs; } cases[] = {
        {"c[M,N] +=! cast(a[M,K],f32)*cast(b[N,K],f32)", "a=f8e4m3:37x72&b=f8e4m3:41x72"},
        {"c[M,N] +=! cast(a[M,K],f32)*cast(b[K,N],f32) : f8e5m2", "a=f8e5m2:33x70&b=f8e4m3:70x35"},
        {"y[I,J] = cast(max(cast(x[J,I],f32) * s[], 0.0), f8e4m3)", "x=f8e5m2:33x37&s=f32"},
        {"y[I] max=! x[I,J]", "x=f8e4m3:17x130"},
    };
    static const char *const targets[] = {"x86-64-avx2", "nvidia-a100"};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        worker_verdict v;
        worker_error e;
        worker_blob so = {0};
        kiln_arena *a = kiln_arena_open(&(kiln_host){.mem = mem});
        bool gpu = i % 2;
        kiln_request *r = request(a, cases[i / 2].expr, cases[i / 2].inputs);
        kiln_kernel *k = generated(a, r, device(a, targets[gpu]));
        const char *const flags[] = {"-mavx2", "-mfma"};
        bool ran = gpu ? worker_emulate(&tools, r->program, k, 150, &v, &e)
                       : worker_compile_c(&tools, k->source, flags, 2, 60000, &so, &e) && worker_verify_cpu(&tools, r->program, k, &so, 100, &v, &e);
        if (!ran) fail_msg("%s: %s", cases[i / 2].expr, e.message);
        if (!v.ok) fail_msg("%s on %s: %s", cases[i / 2].expr, targets[gpu], v.detail);
        free(so.p);
        kiln_arena_close(a);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "child")) return child_main(argc, argv);
    workers_find_tools("build", &tools);
    snprintf(tools.worker, sizeof tools.worker, "%s", argv[0]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value),         cmocka_unit_test(every_tie), cmocka_unit_test(conversions_of_generated_code),
        cmocka_unit_test(the_verifier_s_own), cmocka_unit_test(kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
