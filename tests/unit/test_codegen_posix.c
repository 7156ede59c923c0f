/* Code generation: printed text is compiled by the system's compilers, loaded and run. */
#include "tests/unit/lprog_text.h"

/* ---- every kind of expression: scalar, vector and CUDA text must agree with values computed here ---- */
enum { N = 256, OUTS = 7 };
static const enum kn_dtype MIXED[4 + OUTS] = {KN_F32, KN_F32, KN_F16, KN_I32, KN_F32, KN_F16, KN_I32, KN_BOOL, KN_F32, KN_BF16, KN_F32};

static kn_lprog *mixed(int lanes, bool gpu)
{
    int64_t n = N;
    buffers(3 + OUTS, MIXED, N);
    kn_expr *at = bin(KN_OP_MUL, var(0), ci(lanes)), *a = rd(0, at, lanes), *b = rd(1, at, lanes), *h = rd(2, at, lanes),
            *d = rd(3, at, lanes);
    kn_expr *i = at, *c3 = node(KN_OP_CONST_I, KN_I32, 1, 0, NULL, NULL, NULL), *c7 = node(KN_OP_CONST_I, KN_I32, 1, 0, NULL, NULL, NULL);
    if (lanes > 1) {
        i = node(KN_OP_LANES, KN_I64, lanes, 1, bin(KN_OP_ADD, at, var(3)), NULL, NULL);
        i->var = 3;
    }
    c3->u.i = -3;
    c7->u.i = 7;
    kn_expr *less = cmp(KN_OP_LT, a, b);
    kn_expr *next = rd(0, bin(KN_OP_ADD, at, ci(1)), lanes);
    kn_expr *value[OUTS] = {
        sel(less, bin(KN_OP_MAX, a, b), bin(KN_OP_MIN, a, splat(cf(KN_F32, 0.5), lanes))),
        bin(KN_OP_ADD, bin(KN_OP_MUL, h, h), cast(KN_F16, a)),
        bin(KN_OP_ADD, bin(KN_OP_FLOORDIV, d, splat(c3, lanes)), bin(KN_OP_MOD, d, splat(c7, lanes))),
        cmp(KN_OP_OR, less, un(KN_OP_NOT, cmp(KN_OP_LE, d, splat(c7, lanes)))),
        sel(cmp(KN_OP_LT, i, splat(ci(N - 1), lanes)), next, splat(cf(KN_F32, -INFINITY), lanes)),
        cast(KN_BF16, a),
        bin(KN_OP_ADD, cast(KN_F32, i), cast(KN_F32, less)),
    };
    kn_lprog *l = lprog(4 - 1, MIXED, N, N / lanes, NULL);
    kn_program *p = (kn_program *)(uintptr_t)l->program;
    p->ntensors = p->ninputs = p->noutputs = 0;
    for (int k = 0; k < 4 + OUTS; k++) kn_add_tensor(p, "x", MIXED[k], k < 4 ? KN_INPUT : KN_OUTPUT, 1, &n);
    p->ninputs = 4;
    p->noutputs = l->nfns = OUTS;
    l->fns = kn_array(A, kn_fn, OUTS);
    for (int k = 0; k < OUTS; k++) {
        l->fns[k] =
            (kn_fn){.grid = N / lanes, .threads = 1, .var_grid = 0, .var_thread = gpu ? 2 : -1, .nargs = 5, .args = {0, 1, 2, 3, 4 + k}};
        l->fns[k].body = st(4 + k, at, value[k]);
    }
    return l;
}

static float half_of(double x) /* rounded to 11 bits, subnormals kept, as a float */
{
    if (x != x || isinf(x) || x == 0) return (float)x;
    int e;
    frexp(x, &e);
    double unit = ldexp(1, (e < -13 ? -13 : e) - 11), r = rint(x / unit) * unit;
    return fabs(r) > 65504 ? (float)copysign(INFINITY, x) : (float)r;
}
static float half_bits(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 1023;
    double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return (float)(h >> 15 ? -v : v);
}
static void same(float got, float want, int k, int i)
{
    if (!(got == want || (got != got && want != want))) fail_msg("output %d, element %d: %a, wanted %a", k, i, (double)got, (double)want);
}

static void run_mixed(entry_fn run)
{
    static float a[N], b[N], o0[N], o4[N], o6[N];
    static uint16_t h[N], o1[N], o5[N];
    static int32_t d[N], o2[N];
    static uint8_t o3[N];
    for (int i = 0; i < N; i++) {
        a[i] = i % 17 == 3 ? NAN : (float)(i * 37 % 101 - 50) / 7 * (i % 5 == 4 ? 1e-6f : 1);
        b[i] = i % 19 == 5 ? NAN : (float)(i * 53 % 97 - 48) / 7;
        h[i] = (uint16_t)(i * 257 + i);
        d[i] = i * 7919 % 1000 - 500;
    }
    const void *in[] = {a, b, h, d};
    void *out[] = {o0, o1, o2, o3, o4, o5, o6};
    assert_int_equal(run(in, out, NULL, NULL), 0);
    for (int i = 0; i < N; i++) {
        float x = a[i], y = b[i], hv = half_bits(h[i]), w;
        uint32_t bits;
        same(o0[i], x < y ? y : x != x ? x : x < 0.5f ? x : 0.5f, 0, i);
        same(half_bits(o1[i]), half_of((double)half_of((double)hv * hv) + half_of(x)), 1, i);
        int q = d[i] / -3 - (d[i] % -3 != 0 && d[i] > 0), r = ((d[i] % 7) + 7) % 7;
        assert_int_equal(o2[i], q + r);
        assert_int_equal(o3[i], x < y || d[i] > 7);
        same(o4[i], i < N - 1 ? a[i + 1] : -INFINITY, 4, i);
        bits = (uint32_t)o5[i] << 16;
        memcpy(&w, &bits, 4);
        if (x != x)
            assert_true(w != w);
        else
            assert_true(fabsf(w - x) <= ldexpf(fabsf(x), -8));
        same(o6[i], (float)i + (x < y), 6, i);
    }
}

static void expressions_in_c(void **state)
{
    (void)state;
    static const struct {
        int lanes;
        const char *compiler, *flags;
    } runs[] = {{1, "gcc", ""}, {2, "gcc", ""}, {16, "gcc", "-march=native"}, {1, "clang", ""}, {8, "clang", "-march=native"}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        built b = build(print(mixed(runs[i].lanes, false), "c"), runs[i].compiler, runs[i].flags);
        run_mixed(b.run);
        dlclose(b.so);
    }
}

static const char keywords[] =
    "#define __global__\n#define __shared__ static\n#define __launch_bounds__(n)\n#define __syncthreads()\n#include <math.h>\n"
    "static struct { unsigned x; } blockIdx, threadIdx;\n";

static kiln_bytes as_c(kiln_bytes cuda, int fns, int grid)
{
    kn_buf b;
    kn_buf_init(&b, A);
    kn_put(&b, keywords);
    kn_putn(&b, cuda.p, cuda.n);
    kn_put(&b, "__attribute__((visibility(\"default\"))) int kiln_test(const void *const *in, void *const *out)\n{\n");
    for (int f = 0; f < fns; f++)
        kn_putf(&b, "    for (blockIdx.x = 0; blockIdx.x < %d; blockIdx.x++) kiln_test_%d(in[0], in[1], in[2], in[3], out[%d]);\n", grid, f,
                f);
    kn_put(&b, "    return 0;\n}\n");
    return kn_buf_take(&b);
}

static void expressions_in_cuda(void **state)
{
    (void)state;
    static const int lanes[] = {1, 4, 2};
    for (int i = 0; i < 3; i++) {
        kiln_bytes cuda = print(mixed(lanes[i], true), "cuda");
        assert_null(strstr(cuda.p, "#include"));
        built b = build(as_c(cuda, OUTS, N / lanes[i]), "gcc", "-Wno-unused -ffp-contract=off");
        run_mixed(b.run);
        dlclose(b.so);
    }
}

typedef int (*nvrtc_create)(void **, const char *, const char *, int, const char *const *, const char *const *);
typedef int (*nvrtc_compile)(void *, int, const char *const *);
typedef int (*nvrtc_destroy)(void **);
typedef int (*nvrtc_size)(void *, size_t *);
typedef int (*nvrtc_text)(void *, char *);

/* NVRTC opens its builtins by bare name, which in a wheel finds nothing unless they are loaded already. */
static void load_builtins(const char *nvrtc)
{
    char pattern[1024];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%.*slibnvrtc-builtins.so.*", (int)(strrchr(nvrtc, '/') ? strrchr(nvrtc, '/') + 1 - nvrtc : 0), nvrtc);
    if (glob(pattern, 0, NULL, &found) == 0) dlopen(found.gl_pathv[0], RTLD_NOW | RTLD_GLOBAL);
    globfree(&found);
}

static void cuda_under_nvrtc(void **state)
{
    (void)state;
    const char *path = getenv("KILN_NVRTC");
    if (path && *path) load_builtins(path);
    void *so = path && *path ? dlopen(path, RTLD_NOW) : NULL;
    if (!so) {
        print_message("skipped: KILN_NVRTC names no NVRTC library\n");
        skip();
    }
    nvrtc_create create = (nvrtc_create)(uintptr_t)dlsym(so, "nvrtcCreateProgram");
    nvrtc_compile compile = (nvrtc_compile)(uintptr_t)dlsym(so, "nvrtcCompileProgram");
    nvrtc_destroy destroy = (nvrtc_destroy)(uintptr_t)dlsym(so, "nvrtcDestroyProgram");
    nvrtc_size size = (nvrtc_size)(uintptr_t)dlsym(so, "nvrtcGetProgramLogSize");
    nvrtc_text text = (nvrtc_text)(uintptr_t)dlsym(so, "nvrtcGetProgramLog");
    static const char *const arch[] = {"--gpu-architecture=compute_80", "--gpu-architecture=sm_90"};
    for (int i = 0; i < 2; i++) {
        void *program;
        assert_int_equal(create(&program, print(mixed(4, true), "cuda").p, "k.cu", 0, NULL, NULL), 0);
        if (compile(program, 1, &arch[i]) != 0) {
            size_t n = 0;
            size(program, &n);
            char *log = kn_alloc(A, n + 1);
            text(program, log);
            fail_msg("%s", log);
        }
        destroy(&program);
    }
}

/* ---- a blocked multiply with accumulators in registers, the pool, the workspace, TVM-FFI ---- */
enum { M = 8, K = 24, W = 32 };
static kn_lprog *matmul(void)
{
    enum kn_dtype types[] = {KN_F32, KN_F32, KN_F32};
    buffers(2, types, M * K);
    BUF[1].elems = K * W;
    BUF[2].elems = M * W;
    BUF[3].lanes = 8;
    BUF[3].elems = 4;
    BUF[4] = (kn_buffer){.name = "row", .dtype = KN_F32, .lanes = 1, .elems = K, .scope = KN_SCRATCH, .slot = -1, .offset = 64};
    kn_ls *body = loop(1, ci(0), ci(K), st(4, var(1), rd(0, bin(KN_OP_ADD, bin(KN_OP_MUL, var(0), ci(K)), var(1)), 1)));
    kn_ls *inner = NULL, *last = NULL;
    for (int j = 0; j < 4; j++) body = then(body, st(3, ci(j), splat(cf(KN_F32, 0), 8)));
    for (int j = 0; j < 4; j++) {
        kn_expr *w = rd(1, bin(KN_OP_ADD, bin(KN_OP_MUL, var(2), ci(W)), ci(j * 8)), 8);
        kn_ls *s = st(3, ci(j), bin(KN_OP_ADD, rd(3, ci(j), 8), bin(KN_OP_MUL, splat(rd(4, var(2), 1), 8), w)));
        if (last)
            last->next = s;
        else
            inner = s;
        last = s;
    }
    body = then(body, loop(2, ci(0), ci(K), inner));
    for (int j = 0; j < 4; j++) body = then(body, st(2, bin(KN_OP_ADD, bin(KN_OP_MUL, var(0), ci(W)), ci(j * 8)), rd(3, ci(j), 8)));
    kn_lprog *l = lprog(2, types, M * K, M, body);
    kn_program *p = (kn_program *)(uintptr_t)l->program;
    int64_t shape[3][2] = {{M, K}, {K, W}, {M, W}};
    p->ntensors = 0;
    for (int i = 0; i < 3; i++) kn_add_tensor(p, "x", KN_F32, i < 2 ? KN_INPUT : KN_OUTPUT, 2, shape[i]);
    p->ninputs = 2;
    p->noutputs = 1;
    l->scratch_bytes = 192;
    return l;
}

typedef struct pool {
    void *ctx;
    int32_t nthreads;
    void (*parallel_for)(void *, int64_t, void (*)(void *, int64_t, int32_t), void *);
} pool;
static void backwards(void *ctx, int64_t n, void (*task)(void *, int64_t, int32_t), void *closure)
{
    while (n-- > 0) {
        ++*(int *)ctx;
        task(closure, n, (int32_t)(n % 3));
    }
}
typedef struct tensor {
    void *data;
    int32_t device, id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t offset;
} tensor;
typedef struct any {
    int32_t type;
    uint32_t zero;
    void *p;
} any;

static void check_product(const float *a, const float *b, const float *c)
{
    for (int i = 0; i < M; i++)
        for (int j = 0; j < W; j++) {
            float sum = 0;
            for (int k = 0; k < K; k++) sum += a[i * K + k] * b[k * W + j];
            assert_true(c[i * W + j] == sum); /* small integers: exact */
        }
}

static void abi_of_c(void **state)
{
    (void)state;
    static float padded[16 + M * K], *a = padded + 16, b[K * W], c[M * W];
    _Alignas(64) static char workspace[192 * 3];
    kiln_bytes source = print(matmul(), "c"), again = print(matmul(), "c");
    assert_int_equal(source.n, again.n);
    assert_memory_equal(source.p, again.p, source.n);
    built so = build(source, "gcc", "");
    for (int i = 0; i < M * K; i++) a[i] = (float)(i % 7 - 3);
    for (int i = 0; i < K * W; i++) b[i] = (float)(i % 5 - 2);
    int calls = 0;
    pool p = {&calls, 3, backwards};
    const void *in[] = {a, b};
    void *out[] = {c};
    assert_string_equal((const char *)dlsym(so.so, "kiln_entry"), "kiln_test");
    assert_int_equal(((int64_t(*)(int32_t))(uintptr_t)dlsym(so.so, "kiln_test_workspace"))(3), 192 * 3);
    assert_null(dlsym(so.so, "task_0"));
    assert_int_equal(so.run(in, out, NULL, NULL), 1);
    assert_int_equal(so.run(in, out, workspace, &p), 0);
    assert_int_equal(calls, M);
    check_product(a, b, c);
    memset(c, 0, sizeof c);
    int (*ffi)(void *, const any *, int32_t, any *) =
        (int (*)(void *, const any *, int32_t, any *))(uintptr_t)dlsym(so.so, "__tvm_ffi_kiln_test");
    int64_t sa[] = {M, K}, sb[] = {K, W}, sc[] = {M, W}, strides[] = {W, 1}, bad[] = {1, K};
    struct {
        char head[24];
        tensor t;
    } object = {.t = {b, 1, 0, 2, 2, 32, 1, sb, strides, 0}};
    tensor ta = {padded, 1, 0, 2, 2, 32, 1, sa, NULL, 64}, tc = {c, 1, 0, 2, 2, 32, 1, sc, NULL, 0};
    any args[] = {{7, 0, &ta}, {70, 0, &object}, {7, 0, &tc}}, result = {9, 9, NULL};
    assert_int_equal(ffi(NULL, args, 3, &result), 0);
    assert_int_equal(result.type, 0);
    check_product(a, b, c);
    assert_int_equal(ffi(NULL, args, 2, &result), -1);
    object.t.strides = bad;
    assert_int_equal(ffi(NULL, args, 3, &result), -1);
    object.t.strides = NULL;
    object.t.bits = 64;
    assert_int_equal(ffi(NULL, args, 3, &result), -1);
    object.t.bits = 32;
    kn_lprog *large = matmul();
    large->scratch_bytes = 20000; /* more than the symbol has room for on its stack */
    built other = build(print(large, "c"), "clang", "");
    memset(c, 0, sizeof c);
    *(void **)&ffi = dlsym(other.so, "__tvm_ffi_kiln_test");
    assert_int_equal(ffi(NULL, args, 3, &result), 0);
    check_product(a, b, c);
    args[0].type = 1;
    assert_int_equal(ffi(NULL, args, 3, &result), -1);
    dlclose(other.so);
    dlclose(so.so);
}

/* What a lane of `to` has to be after a conversion of lane i, whose bits are i where `from` is narrow. */
static double converted(enum kn_dtype from, enum kn_dtype to, uint32_t i, float x)
{
    uint32_t bits, even;
    memcpy(&bits, &x, 4);
    even = (bits + 0x7fff + (bits >> 16 & 1)) >> 16 << 16;
    if (from == KN_F16) return (double)half_bits((uint16_t)i);
    if (from == KN_I8) return (int8_t)i;
    if (from == KN_U8) return (uint8_t)i;
    if (to == KN_F16) return (double)half_of((double)x);
    if (from == KN_BF16) bits = i << 16;
    else if (x == x) bits = even;
    memcpy(&x, &bits, 4);
    return (double)x;
}

/* A lane of the array, of that dtype. */
static double lane_of(enum kn_dtype t, const void *array, int i)
{
    uint32_t bits;
    float x;
    if (t == KN_F16) return (double)half_bits(((const uint16_t *)array)[i]);
    if (t == KN_I32) return ((const int32_t *)array)[i];
    if (t == KN_I16) return ((const int16_t *)array)[i];
    if (t == KN_U8 || t == KN_I8) return t == KN_U8 ? ((const uint8_t *)array)[i] : ((const int8_t *)array)[i];
    bits = t == KN_BF16 ? (uint32_t)((const uint16_t *)array)[i] << 16 : ((const uint32_t *)array)[i];
    memcpy(&x, &bits, 4);
    return (double)x;
}

/* Every half, bf16 and byte as a wider number, and back from numbers at and beside the ties between halves: in text for any processor and by its own
 * instructions. */
static void conversions(void **state)
{
    enum { N = 65536 };
    static const char *const flags[] = {"", "-mavx2 -mf16c", "-mavx512f -mavx512bw -mavx512dq -mf16c"};
    static const enum kn_dtype types[][2] = {{KN_F16, KN_F32}, {KN_F32, KN_F16}, {KN_BF16, KN_F32},
                                             {KN_F32, KN_BF16}, {KN_I8, KN_I32}, {KN_U8, KN_F32}};
    static const uint32_t beside[] = {0, 0xfff, 0x1000, 0x1001};
    static const int widths[] = {1, 4, 8, 16, 32};
    static _Alignas(64) uint16_t h[N];
    static _Alignas(64) uint8_t byte[N];
    static _Alignas(64) float x[N], out[N];
    (void)state;
    for (int i = 0; i < 90; i++) {
        const enum kn_dtype *t = types[i / 15];
        int lanes = widths[i % 5], f = i / 5 % 3;
        const void *in = t[0] == KN_F32 ? (const void *)x : kn_dtype_bytes(t[0]) == 1 ? (const void *)byte : h;
        if ((f && !__builtin_cpu_supports("avx2")) || (f > 1 && !__builtin_cpu_supports("avx512dq"))) continue;
        for (uint32_t k = 0; k < N; k++) {
            uint32_t bits = k << 16;
            float v = half_bits((uint16_t)k);
            if (t[1] != KN_BF16) memcpy(&bits, &v, 4);
            bits += beside[k & 3] << (t[1] == KN_BF16 ? 3 : 0);
            memcpy(&x[k], &bits, 4);
            h[k] = (uint16_t)k;
            byte[k] = (uint8_t)k;
        }
        buffers(1, t, N);
        kn_expr *at = lanes > 1 ? bin(KN_OP_MUL, var(0), ci(lanes)) : var(0);
        kn_lprog *l = lprog(1, t, N, N / lanes, st(1, at, cast(t[1], rd(0, at, lanes))));
        built b = build(print(l, "c"), i & 1 ? "clang" : "gcc", flags[f]);
        assert_int_equal(b.run((const void *[]){in}, (void *[]){out}, NULL, NULL), 0);
        for (int k = 0; k < N; k++) same((float)lane_of(t[1], out, k), (float)converted(t[0], t[1], (uint32_t)k, x[k]), i, k);
        dlclose(b.so);
    }
}

/* What is chosen among bf16s is not rounded again. */
static void chosen_are_cut(void **state)
{
    enum { N = 65536, L = 16 };
    static const enum kn_dtype types[] = {KN_BF16, KN_BF16};
    static _Alignas(64) uint16_t in[N], out[N];
    static const char *const flags[] = {"", "-mavx512f -mavx512bw -mavx512dq"};
    (void)state;
    for (int i = 0; i < N; i++) in[i] = (uint16_t)i;
    for (int f = 0; f < 2; f++) {
        if (f && !__builtin_cpu_supports("avx512dq")) continue;
        buffers(1, types, N);
        kn_expr *at = bin(KN_OP_MUL, var(0), ci(L));
        kn_expr *value = bin(KN_OP_MAX, splat(cf(KN_F32, -2), L), cast(KN_F32, rd(0, at, L)));
        kiln_bytes source = print(lprog(1, types, N, N / L, st(1, at, cast(KN_BF16, value))), "c");
        assert_non_null(strstr(source.p, "= k_cut_bf16x16("));
        built b = build(source, f ? "clang" : "gcc", flags[f]);
        assert_int_equal(b.run((const void *[]){in}, (void *[]){out}, NULL, NULL), 0);
        for (int k = 0; k < N; k++) {
            double x = lane_of(KN_BF16, in, k);
            same((float)lane_of(KN_BF16, out, k), (float)(x < -2 ? -2 : x), f, k);
        }
        dlclose(b.so);
    }
}

/* Products, shifts and magnitudes of bytes and 16 bits in whole vectors and parts of these: compilers take some of them apart, lane by lane. */
static void narrow_lanes(void **state)
{
    enum { N = 1024 };
    static const enum kn_dtype types[] = {KN_U8, KN_I8, KN_I16};
    static const enum kn_op ops[] = {KN_OP_MUL, KN_OP_SHL, KN_OP_SHR, KN_OP_ABS};
    static const char *const flags[] = {"", "-mavx2"};
    static _Alignas(64) uint8_t x[2 * N], y[2 * N], out[2 * N];
    (void)state;
    for (int i = 0; i < 2 * N; i++) x[i] = (uint8_t)(i * 37 + i / 256), y[i] = (uint8_t)(i * 11 + i / 64);
    for (int i = 0; i < 3 * 4 * 3; i++) {
        enum kn_dtype t = types[i / 12], three[] = {t, t, t};
        enum kn_op op = ops[i / 3 % 4];
        int lanes = 8 << i % 3, f = lanes > 8;
        if ((f && !__builtin_cpu_supports("avx2")) || (op == KN_OP_ABS && kn_dtype_class(t) == 'u')) continue;
        buffers(2, three, N);
        kn_expr *at = bin(KN_OP_MUL, var(0), ci(lanes)), *a = rd(0, at, lanes), *b = rd(1, at, lanes);
        kiln_bytes source = print(lprog(2, three, N, N / lanes, st(2, at, op == KN_OP_ABS ? un(op, a) : bin(op, a, b))), "c");
        if (op == KN_OP_SHL) assert_non_null(strstr(source.p, "= k_shl_"));
        if (op == KN_OP_MUL) assert_true(!strstr(source.p, "= k_product_") == (lanes >= 16 || t == KN_I16));
        built so = build(source, i & 1 ? "clang" : "gcc", flags[f]);
        assert_int_equal(so.run((const void *[]){x, y}, (void *[]){out}, NULL, NULL), 0);
        for (int k = 0; k < N; k++) {
            int p = (int)lane_of(t, x, k), q = (int)lane_of(t, y, k), bits = 8 * kn_dtype_bytes(t), by = q & (bits - 1);
            unsigned u = (unsigned)p;
            int want = op == KN_OP_MUL ? (int)(u * (unsigned)q) : op == KN_OP_SHL ? (int)(u << by) : op == KN_OP_SHR ? p >> by : abs(p);
            int got = (int)lane_of(t, out, k), mask = (1 << bits) - 1;
            if ((got & mask) != (want & mask)) fail_msg("%s %d, %d lanes: %d of %d and %d", kn_dtype_text(t), (int)op, lanes, got, p, q);
        }
        dlclose(so.so);
    }
}

/* Doubles become bytes and 16 bits by way of words, as floats do. */
static void doubles_narrow(void **state)
{
    enum { N = 512, L = 16 };
    static const enum kn_dtype to[] = {KN_I16, KN_I8, KN_U8};
    static _Alignas(64) double x[N];
    static _Alignas(64) uint8_t out[2 * N];
    (void)state;
    for (int i = 0; i < N; i++) x[i] = (i - N / 2) * 0.49 / (i % 3 + 1);
    for (int i = 0; i < 3; i++) {
        const enum kn_dtype types[] = {KN_F64, to[i]};
        buffers(1, types, N);
        kn_expr *at = bin(KN_OP_MUL, var(0), ci(L)), *value = rd(0, at, L);
        if (to[i] == KN_U8) value = un(KN_OP_ABS, value);
        kiln_bytes source = print(lprog(1, types, N, N / L, st(1, at, cast(to[i], value))), "c");
        assert_non_null(strstr(source.p, ", i32x16)"));
        built b = build(source, i & 1 ? "clang" : "gcc", "");
        assert_int_equal(b.run((const void *[]){x}, (void *[]){out}, NULL, NULL), 0);
        for (int k = 0; k < N; k++) assert_int_equal((int)lane_of(to[i], out, k), (int)(to[i] == KN_U8 ? fabs(x[k]) : x[k]));
        dlclose(b.so);
    }
}

/* Lines written past the caches: where they are aligned, by an instruction, elsewhere as any store, with and without a pool. */
static void lines_past_the_caches(void **state)
{
    enum { LINES = 6, N = LINES * 16 };
    static const char *const compilers[] = {"gcc", "clang"};
    static const enum kn_dtype types[] = {KN_F32, KN_F32};
    static _Alignas(64) float x[N], y[N + 1];
    (void)state;
    buffers(1, types, N);
    kn_expr *at = bin(KN_OP_MUL, var(0), ci(16));
    kn_ls *s = st(1, at, bin(KN_OP_ADD, rd(0, at, 16), splat(cf(KN_F32, 1), 16)));
    s->streams = true;
    kn_lprog *l = lprog(1, types, N, LINES, s);
    kiln_bytes source = print(l, "c");
    assert_non_null(strstr(source.p, "    k_stream_f32x16("));
    assert_non_null(strstr(source.p, "if (k->pooled) KN_STREAMED();"));
    for (int i = 0; i < N; i++) x[i] = (float)i;
    for (int i = 0; i < 8; i++) {
        int calls = 0, off = i & 1;
        bool wide = i & 4;
        pool p = {&calls, 3, backwards};
        if (wide && !__builtin_cpu_supports("avx512f")) continue;
        built b = build(source, compilers[i >> 1 & 1], wide ? "-mavx512f -mavx512bw" : "");
        for (int pooled = 0; pooled < 2; pooled++) {
            memset(y, 0, sizeof y);
            assert_int_equal(b.run((const void *[]){x}, (void *[]){y + off}, NULL, pooled ? &p : NULL), 0);
            for (int k = 0; k < N; k++) assert_true(y[off + k] == x[k] + 1);
            assert_true(y[off ? 0 : N] == 0);
        }
        assert_int_equal(calls, LINES);
        dlclose(b.so);
    }
}

/* Of a vector at a row's end the lanes in one line, wherever the buffer begins: those before are another vector's, those behind another row's. */
static void parts_of_lines(void **state)
{
    enum { LINES = 4 };
    static const char *const compilers[] = {"gcc", "clang"};
    static const struct { enum kn_dtype t; int lanes, by; } one[] = {
        {KN_F32, 16, 0}, {KN_F32, 16, 5}, {KN_F32, 16, -3}, {KN_F32, 16, 15}, {KN_F32, 16, -15}, {KN_F32, 16, 16}, {KN_F32, 16, -40},
        {KN_I32, 16, 9}, {KN_I32, 16, -9}, {KN_F64, 8, 3},  {KN_F64, 8, -5},  {KN_F64, 8, 8},    {KN_I64, 8, -1},
    };
    static _Alignas(64) unsigned char x[LINES * 64], y[LINES * 64 + 8];
    (void)state;
    for (int i = 0; i < LINES * 64; i++) x[i] = (unsigned char)(i % 63 + 1);
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        int n = one[i].lanes, size = 64 / n;
        const enum kn_dtype types[] = {one[i].t, one[i].t};
        buffers(1, types, LINES * n);
        kn_expr *at = bin(KN_OP_MUL, var(0), ci(n));
        kn_ls *s = st(1, at, rd(0, at, n));
        s->streams = true;
        s->lo = ci(one[i].by);
        kiln_bytes source = print(lprog(1, types, LINES * n, LINES, s), "c");
        for (int k = 0; k < 8; k++) {
            int off = k & 1 ? size : 0;
            if (k & 4 && !__builtin_cpu_supports("avx512f")) continue;
            built b = build(source, compilers[k >> 1 & 1], k & 4 ? "-mavx512f -mavx512bw" : "");
            memset(y, 0, sizeof y);
            assert_int_equal(b.run((const void *[]){x}, (void *[]){y + off}, NULL, NULL), 0);
            for (int l = 0; l < LINES * n; l++) {
                bool written = l % n >= one[i].by && l % n < n + one[i].by;
                const unsigned char *to = y + off + l * size;
                for (int e = 0; e < size; e++)
                    if (to[e] != (written ? x[l * size + e] : 0)) fail_msg("case %zu, build %d, lane %d", i, k, l);
            }
            dlclose(b.so);
        }
    }
}

/* ---- division of integers, which vectors do in floats or by reciprocals ---- */
static int64_t integer(enum kn_dtype t, const void *x, int i)
{
    return t == KN_I64 ? ((const int64_t *)x)[i] : t == KN_I32 ? ((const int32_t *)x)[i] : t == KN_I16 ? ((const int16_t *)x)[i]
           : t == KN_I8 ? ((const int8_t *)x)[i] : ((const uint8_t *)x)[i];
}

/* Element i of operand k: every third is near an end of what t holds, or of what a double does, or small. */
static void put_integer(enum kn_dtype t, void *x, int i, int k)
{
    static const int64_t ends[] = {0, 1, -1, INT64_MIN, INT64_MAX, INT32_MIN, INT32_MAX, 3, -7,
                                   1ll << 51, -(1ll << 51), (1ll << 51) - 1, 127, -128, 1ll << 60, 6};
    int at = k ? i / 48 : i / 3;
    int64_t v = i % 3 == 0 ? ends[at % 16] : (int64_t)((uint64_t)(i * 2 + k + 1) * 0x9e3779b97f4a7c15u) >> (i % 3 == 1 ? 10 + i % 53 : 48 + i % 12);
    memcpy((char *)x + i * kn_dtype_bytes(t), &v, (size_t)kn_dtype_bytes(t));
}

static int64_t divided(int64_t x, int64_t y, bool mod)
{
    if (y == 0) return 0;
    if (y == -1) return mod ? 0 : (int64_t)(0 - (uint64_t)x);
    int64_t q = x / y, r = x % y;
    if (r && (r < 0) != (y < 0)) q--, r += y;
    return mod ? r : q;
}

static kn_expr *whole(enum kn_dtype t, int64_t x, int lanes)
{
    kn_expr *e = node(KN_OP_CONST_I, t, 1, 0, NULL, NULL, NULL);
    e->u.i = x;
    return splat(e, lanes);
}

enum { DIVIDED = 1536, BYS = 3 };
static void check_divisions(enum kn_dtype t, int lanes, const char *compiler, const char *flags)
{
    static const int64_t by[BYS] = {0 /* the second operand */, 7, -3};
    enum kn_dtype types[3] = {t, t, t};
    static _Alignas(64) int64_t x[DIVIDED], y[DIVIDED], out[DIVIDED];
    for (int i = 0; i < DIVIDED; i++) put_integer(t, x, i, 0), put_integer(t, y, i, 1);
    for (int k = 0; k < 2 * BYS; k++) {
        bool mod = k & 1;
        int64_t c = by[k / 2];
        if (c < 0 && t == KN_U8) continue;
        buffers(2, types, DIVIDED);
        kn_expr *at = lanes > 1 ? bin(KN_OP_MUL, var(0), ci(lanes)) : var(0), *a = rd(0, at, lanes), *b = c ? whole(t, c, lanes) : rd(1, at, lanes);
        kn_ls *body = st(2, at, bin(mod ? KN_OP_MOD : KN_OP_FLOORDIV, a, b));
        built run = build(print(lprog(2, types, DIVIDED, DIVIDED / lanes, body), "c"), compiler, flags);
        assert_int_equal(run.run((const void *[]){x, y}, (void *[]){out}, NULL, NULL), 0);
        for (int i = 0; i < DIVIDED; i++) {
            int64_t wide = divided(integer(t, x, i), c ? c : integer(t, y, i), mod), want = integer(t, &wide, 0);
            if (integer(t, out, i) != want)
                fail_msg("%s x%d, %s: %lld %s %lld is %lld", kn_dtype_text(t), lanes, flags, (long long)integer(t, x, i), mod ? "mod" : "div",
                         (long long)(c ? c : integer(t, y, i)), (long long)integer(t, out, i));
        }
        dlclose(run.so);
    }
}

static void divisions(void **state)
{
    static const enum kn_dtype types[] = {KN_I8, KN_U8, KN_I16, KN_I32, KN_I64};
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        check_divisions(types[i], 16, "gcc", "");
        check_divisions(types[i], kn_dtype_bytes(types[i]) > 4 ? 8 : 64, i & 1 ? "clang" : "gcc", "-march=native");
    }
    for (int i = 2; i < 4 && __builtin_cpu_supports("avx2"); i++) { /* halves and words in vectors of floats that fill registers */
        check_divisions(types[i], 8, "gcc", "-mavx2 -mfma");
        check_divisions(types[i], 16, i & 1 ? "gcc" : "clang", "-mavx2 -mfma");
        check_divisions(types[i], 4, "clang", "-mavx2 -mfma");
    }
    check_divisions(KN_I64, 1, "gcc", "");
}

/* Lanes whose least or greatest one is wanted, what is not a number among them now and then; without branches. */
static void extrema_of_lanes(void **state)
{
    enum { N = 512 };
    static const enum kn_dtype types[] = {KN_F32, KN_F64, KN_I32};
    static _Alignas(64) char x[N * 8], out[N * 8];
    static const char *const flags[] = {"", "-mavx2 -mfma", "-mavx512f"};
    (void)state;
    for (int i = 0; i < 3 * 2 * 2 * 3; i++) {
        enum kn_dtype t = types[i % 3];
        bool max = i / 3 % 2, real = t != KN_I32;
        int lanes = i / 6 % 2 ? 8 : 4, k = i / 12;
        if ((k == 1 && !__builtin_cpu_supports("avx2")) || (k == 2 && !__builtin_cpu_supports("avx512f"))) continue;
        for (int e = 0; e < N; e++) {
            int v = (int)((unsigned)e * 2654435761u >> 20) % 101 - 50;
            if (t == KN_F32) ((float *)x)[e] = v == 13 ? NAN : (float)v;
            else if (t == KN_F64) ((double *)x)[e] = v == 13 ? NAN : v;
            else ((int32_t *)x)[e] = v;
        }
        const enum kn_dtype both[] = {t, t};
        buffers(1, both, N);
        kn_expr *one = node(KN_OP_HSUM, t, 1, 1, rd(0, bin(KN_OP_MUL, var(0), ci(lanes)), lanes), NULL, NULL);
        one->u.i = max ? KN_RED_MAX : KN_RED_MIN;
        built b = build(print(lprog(1, both, N, N / lanes, st(1, var(0), one)), "c"), i & 1 ? "clang" : "gcc", flags[k]);
        assert_int_equal(b.run((const void *[]){x}, (void *[]){out}, NULL, NULL), 0);
        for (int e = 0; e < N / lanes; e++) {
            double want = max ? -INFINITY : INFINITY, got = t == KN_F32 ? ((float *)out)[e] : t == KN_F64 ? ((double *)out)[e] : ((int32_t *)out)[e];
            for (int l = e * lanes; l < (e + 1) * lanes; l++) {
                double v = t == KN_F32 ? ((float *)x)[l] : t == KN_F64 ? ((double *)x)[l] : ((int32_t *)x)[l];
                want = real && (isnan(want) || isnan(v)) ? NAN : max == (v > want) ? v : want;
            }
            if (isnan(want) ? !isnan(got) : got != want) fail_msg("%s x%d, %s: %g, not %g", kn_dtype_text(t), lanes, flags[k], got, want);
        }
        dlclose(b.so);
    }
}

/* What is read where a place that was read says, if that is one: in the other lanes nothing is read, which would be far outside. */
static void guarded_places(void **state)
{
    enum { N = 256, L = 16 };
    static const enum kn_dtype types[] = {KN_I32, KN_F32, KN_F32};
    static int32_t place[N];
    static float x[N], out[N];
    (void)state;
    for (int k = 0; k < N; k++) place[k] = k % 5 == 2 ? -1000000000 : k * 7 % N, x[k] = (float)k;
    buffers(2, types, N);
    kn_expr *at = bin(KN_OP_MUL, var(0), ci(L)), *lane = bin(KN_OP_ADD, at, var(3)), *one = cast(KN_I64, rd(0, lane, 1));
    kn_expr *there = node(KN_OP_LANES, KN_F32, L, 1, rd(1, one, 1), NULL, NULL);
    there->var = 3;
    kn_expr *value = sel(cmp(KN_OP_LE, whole(KN_I32, 0, L), rd(0, at, L)), there, splat(cf(KN_F32, -1), L));
    built b = build(print(lprog(2, types, N, N / L, st(2, at, value)), "c"), "gcc", "");
    assert_int_equal(b.run((const void *[]){place, x}, (void *[]){out}, NULL, NULL), 0);
    for (int k = 0; k < N; k++) same(out[k], k % 5 == 2 ? -1 : (float)(k * 7 % N), 0, k);
    dlclose(b.so);
}

/* ---- choices by what was read blend; those by places evaluate one side, which alone may be there ---- */
static void choices(void **state)
{
    enum { N = 256, KINDS = 5 };
    static const enum kn_dtype kinds[KINDS] = {KN_I32, KN_F16, KN_BOOL, KN_BF16, KN_I64};
    static _Alignas(64) uint8_t in[3][N * 8], out[N * 8];
    (void)state;
    for (int i = 0; i < 4 * KINDS; i++) {
        enum kn_dtype t = kinds[i % KINDS], test = i / KINDS & 1 ? KN_I32 : KN_BOOL, types[] = {test, t, t, t};
        int lanes = i / KINDS & 2 ? 32 : 16, bytes = kn_dtype_bytes(t);
        for (int k = 0; k < N * 8; k++) {
            in[1][k] = (uint8_t)(t == KN_BOOL ? k % 3 == 0 : k * 37 + k / 256);
            in[2][k] = (uint8_t)(t == KN_BOOL ? k % 5 == 0 : k * 91 + 1);
        }
        for (int k = 0; k < N; k++) {
            int32_t sign = k % 7 < 3 ? -k - 1 : k;
            if (test == KN_I32)
                memcpy(in[0] + 4 * k, &sign, 4);
            else
                in[0][k] = k % 7 < 3;
        }
        buffers(3, types, N);
        kn_expr *at = bin(KN_OP_MUL, var(0), ci(lanes)), *c = rd(0, at, lanes);
        if (test == KN_I32) c = cmp(KN_OP_LT, c, whole(KN_I32, 0, lanes));
        kiln_bytes text = print(lprog(3, types, N, N / lanes, st(3, at, sel(c, rd(1, at, lanes), rd(2, at, lanes)))), "c");
        const char *body = strstr(text.p, "void task_0("), *chosen = strstr(body, " ? ");
        if (chosen && chosen < strstr(body, "\n}\n")) fail_msg("a lane at a time:\n%s", body);
        built b = build(text, i & 1 ? "clang" : "gcc", i & 2 ? "-march=native" : "");
        assert_int_equal(b.run((const void *[]){in[0], in[1], in[2]}, (void *[]){out}, NULL, NULL), 0);
        for (int k = 0; k < N; k++) {
            const uint8_t *want = in[k % 7 < 3 ? 1 : 2] + k * bytes;
            if (t != KN_F16 || (want[1] & 0x7c) != 0x7c) assert_memory_equal(out + k * bytes, want, (size_t)bytes);
        }
        dlclose(b.so);
    }
}

/* A condition that all lanes have evaluates one side, also of booleans: there is nothing to read on the other one. */
static void one_side(void **state)
{
    enum { L = 16, N = 3 * L };
    static const enum kn_dtype kinds[] = {KN_BOOL, KN_U8, KN_F32};
    static uint8_t in[N * 4], out[N * 4];
    (void)state;
    for (int k = 0; k < N * 4; k++) in[k] = (uint8_t)(k % 3 == 0);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        enum kn_dtype types[] = {kinds[i], kinds[i], kinds[i]};
        buffers(2, types, N);
        kn_expr *at = bin(KN_OP_MUL, var(0), ci(L)), *far = bin(KN_OP_MUL, bin(KN_OP_SUB, var(0), ci(2)), ci(1ll << 40));
        kn_expr *e = sel(cmp(KN_OP_LT, var(0), ci(2)), rd(0, at, L), rd(1, far, L));
        built b = build(print(lprog(2, types, N, N / L, st(2, at, e)), "c"), i & 1 ? "clang" : "gcc", "");
        assert_int_equal(b.run((const void *[]){in, in}, (void *[]){out}, NULL, NULL), 0);
        assert_memory_equal(out, in, (size_t)(2 * L * kn_dtype_bytes(kinds[i])));
        assert_memory_equal(out + 2 * L * kn_dtype_bytes(kinds[i]), in, (size_t)(L * kn_dtype_bytes(kinds[i])));
        dlclose(b.so);
    }
}

/* Two vectors interleaved by units of lanes, inside of blocks of four units. */
static void units_stay_together(void **state)
{
    enum { N = 128, L = 64, HALF = 32 };
    static const enum kn_dtype types[][2] = {{KN_I8, KN_I8}, {KN_BF16, KN_BF16}};
    static _Alignas(64) uint8_t in[2 * N], out[2 * N];
    (void)state;
    for (int i = 0; i < 2 * N; i++) in[i] = (uint8_t)i;
    for (int i = 0; i < 8; i++) {
        int t = i & 1, bytes = 1 + t, lanes = t ? HALF : L, unit = 4 / bytes, part = i >> 1 & 1;
        buffers(1, types[t], N);
        kn_expr *e = node(KN_OP_ZIP, types[t][0], lanes, 2, rd(0, ci(0), lanes), rd(0, ci(lanes), lanes), NULL);
        e->u.i = part, e->unit = unit, e->var = 4 * unit;
        built b = build(print(lprog(1, types[t], N, 1, st(1, ci(0), e)), "c"), i & 4 ? "clang" : "gcc", "");
        assert_int_equal(b.run((const void *[]){in}, (void *[]){out}, NULL, NULL), 0);
        for (int k = 0; k < lanes; k++) {
            int block = k / e->var, at = (part * e->var + k % e->var) / unit, from = at % 2 * lanes + block * e->var + at / 2 * unit + k % unit;
            assert_memory_equal(out + k * bytes, in + from * bytes, (size_t)bytes);
        }
        dlclose(b.so);
    }
}

static void refusals(void **state)
{
    (void)state;
    kiln_bytes source = {0}, header;
    kiln_diag d = {0};
    enum kn_dtype types[] = {KN_F32, KN_F32};
    buffers(1, types, 48);
    kn_lprog *l = lprog(1, types, 48, 16, st(1, ci(0), rd(0, ci(0), 3)));
    assert_int_equal(kn_language_find("c")->print(A, l, "e", &source, &header, &d), KILN_UNSUPPORTED);
    assert_null(source.p);
    BUF[2] = (kn_buffer){.name = "s", .dtype = KN_F32, .lanes = 1, .elems = 12289, .scope = KN_SHARED, .slot = -1};
    l = lprog(1, types, 48, 16, st(2, ci(0), rd(0, ci(0), 1)));
    assert_int_equal(kn_language_find("cuda")->print(A, l, "e", &source, &header, &d), KILN_INTERNAL);
    l->fns[0].shared_bytes = 4 * 12289;
    assert_int_equal(kn_language_find("cuda")->print(A, l, "e", &source, &header, &d), KILN_OK);
    assert_non_null(strstr(source.p, "KN_DYNAMIC(k_shared, 49156);"));
    source = (kiln_bytes){0};
    l = lprog(1, types, 48, 16, st(3, var(0), rd(0, ci(0), 1)));
    assert_int_equal(kn_language_find("c")->print(A, l, "e", &source, &header, &d), KILN_INTERNAL);
    assert_null(kn_language_find("fortran"));
    assert_null(kn_languages_at(kn_languages_count()));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(expressions_in_c, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(expressions_in_cuda, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(cuda_under_nvrtc, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(abi_of_c, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(lines_past_the_caches, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(parts_of_lines, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(conversions, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(chosen_are_cut, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(narrow_lanes, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(doubles_narrow, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(divisions, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(extrema_of_lanes, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(guarded_places, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(choices, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(one_side, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(units_stay_together, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(refusals, open_arena, close_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
