/* Vector functions of C text are held to their error bounds: compiled, loaded, run over dense samples and what is special. */
#include "tests/unit/lprog_text.h"
#include <float.h>

enum { NS = 1 << 15 };

/* How far `got`, of t, is from what is wanted, in units of t's last place. */
static double ulps(enum kn_dtype t, double got, long double want)
{
    bool wide = t == KN_F64;
    double w = wide ? (double)want : (double)(float)want, top = wide ? DBL_MAX : (double)FLT_MAX;
    if (want != want) return got != got ? 0 : 1e9;
    if (isinf(w) || isinf(got)) return got == w ? 0 : fabsl(want) > (long double)top && fabs(got) == top ? 1 : 1e9;
    int e, least = wide ? DBL_MIN_EXP : FLT_MIN_EXP;
    frexpl(want, &e);
    return (double)(fabsl((long double)got - want) / ldexpl(1, (e < least ? least : e) - (wide ? DBL_MANT_DIG : FLT_MANT_DIG)));
}

static long double by_3(long double x) { return x / 3; }
static long double by_tiny(long double x) { return x / (long double)1e-40f; }
static long double by_huge(long double x) { return x / (long double)-3e38f; }
static long double one_by_root(long double x) { return 1 / sqrtl(x); }

static long double power(long double x) { return powl(x, -0.75L); }
static long double cube(long double x) { return powl(x, 3); }
static long double large_power(long double x) { return powl(x, -31.25L); }
static long double high_power(long double x) { return powl(x, 300.5L); }
static long double huge_power(long double x) { return powl(x, 1e10L); }
static long double odd_power(long double x) { return powl(x, -7); }
static long double even_power(long double x) { return powl(x, 2); }
static long double root(long double x) { return powl(x, 0.5L); }
static long double inverse(long double x) { return powl(x, -1); }
static long double no_power(long double x) { return powl(x, -0.0L); }
static long double all_power(long double x) { return powl(x, INFINITY); }

/* Half of the samples are of all exponents, the others between lo and hi, if that is a range. */
static const struct {
    enum kn_op op;
    const char *name;
    long double (*f)(long double);
    double lo, hi, bound, bound64; /* of f32 and f64 */
    float by;                      /* the divisor, or exponent, that all lanes have */
} functions[] = {
    {KN_OP_EXP, "exp", expl, -110, 95, 2, 1, 0},
    {KN_OP_EXP, "exp, far", expl, -750, 715, 2, 1, 0},
    {KN_OP_LOG, "log", logl, 0, 0, 2, 1, 0},
    {KN_OP_LOG, "log about 1", logl, .4, 2.2, 2, 1, 0},
    {KN_OP_TANH, "tanh", tanhl, -12, 12, 4, 2, 0},
    {KN_OP_TANH, "tanh, near", tanhl, -.7, .7, 4, 2, 0},
    {KN_OP_ERF, "erf", erfl, -6.5, 6.5, 4, 2, 0},
    {KN_OP_ERF, "erf, near", erfl, -1.5, 1.5, 4, 2, 0},
    {KN_OP_SQRT, "sqrt", sqrtl, 0, 1e6, .51, .51, 0},
    {KN_OP_SIN, "sin", sinl, -20, 20, 1.5, 1, 0},
    {KN_OP_SIN, "sin, far", sinl, -2e5, 2e5, 1.5, 1, 0},
    {KN_OP_SIN, "sin, farther", sinl, -6e6, 6e6, 1.5, 1, 0},
    {KN_OP_COS, "cos", cosl, -20, 20, 1.5, 1, 0},
    {KN_OP_COS, "cos, far", cosl, -2e5, 2e5, 1.5, 1, 0},
    {KN_OP_COS, "cos, farther", cosl, -6e6, 6e6, 1.5, 1, 0},
    {KN_OP_FLOOR, "floor", floorl, -9, 9, 0, 0, 0},
    {KN_OP_CEIL, "ceil", ceill, -9, 9, 0, 0, 0},
    {KN_OP_ROUND, "rint", rintl, -9, 9, 0, 0, 0},
    {KN_OP_ABS, "fabs", fabsl, -9, 9, 0, 0, 0},
    {KN_OP_DIV, "x / 3", by_3, 0, 0, 1.5, .51, 3},
    {KN_OP_DIV, "x / 1e-40", by_tiny, 0, 0, .51, .51, 1e-40f},
    {KN_OP_DIV, "x / -3e38", by_huge, 0, 0, 1.5, .51, -3e38f},
    {KN_OP_RSQRT, "rsqrt", one_by_root, 0, 0, 1.5, 1.5, 0},
    {KN_OP_POW, "x ^ -0.75", power, 0, 2, .8, 1, -.75f},
    {KN_OP_POW, "x ^ 3", cube, -9, 9, .8, 1.5, 3},
    {KN_OP_POW, "x ^ 0.5", root, 0, 9, .51, .51, .5f},
    {KN_OP_POW, "x ^ -1", inverse, -9, 9, .51, .51, -1},
    {KN_OP_POW, "x ^ -31.25", large_power, 0, 9, .8, 1, -31.25f},
    {KN_OP_POW, "x ^ 300.5", high_power, 0, 12, .8, 1, 300.5f},
    {KN_OP_POW, "x ^ 1e10", huge_power, 0.9999999, 1.0000001, .8, 1, 1e10f},
    {KN_OP_POW, "x ^ -7", odd_power, -9, 9, .8, 1, -7},
    {KN_OP_POW, "x ^ 2", even_power, 0, 0, .8, 1, 2},
    {KN_OP_POW, "x ^ -0", no_power, 0, 0, 0, 0, -0.0f},
    {KN_OP_POW, "x ^ inf", all_power, 0, 0, 0, 0, INFINITY},
};
#define NF (sizeof functions / sizeof *functions)

static bool takes_two(int f) { return functions[f].op == KN_OP_DIV || functions[f].op == KN_OP_POW; }

/* A float or double whose bits are the number's, which spreads over exponents and fractions. */
static double of_bits(enum kn_dtype t, uint32_t i)
{
    uint64_t bits = t == KN_F64 ? (i * UINT64_C(140656423948149) + (uint64_t)i * i) * 8191 : i * 32749u + i * i;
    uint32_t low = (uint32_t)bits;
    double wide;
    float narrow;
    memcpy(&wide, &bits, 8);
    memcpy(&narrow, &low, 4);
    return t == KN_F64 ? wide : (double)narrow;
}

static void put(enum kn_dtype t, void *x, uint32_t i, double value)
{
    if (t == KN_F64)
        ((double *)x)[i] = value;
    else
        ((float *)x)[i] = (float)value;
}
static double get(enum kn_dtype t, const void *x, uint32_t i) { return t == KN_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i]; }

static void samples(enum kn_dtype t, void *x, size_t f)
{
    static const double special[] = {
        0.0, -0.0, INFINITY, -INFINITY, NAN, 1, -1, 0.5, -0.5, 1.5, 2.5, 4, -4, 0.625, 1e-20, 1e5, 99999.9921875, -1e5,
        3.141592653589793, 1.5707963267948966,
        /* the ends of f32 */ 1e-45, -1e-45, 0x1p-126, 0x1.fffffep127, -0x1.fffffep127, 88.72283, 88.72284, -103.97208, -103.9721,
        -87.33655, 8388607.5, 16777216.0,
        /* and of f64 */ 0x1p-1074, -0x1p-1074, 0x1p-1022, 0x0.fp-1022, DBL_MAX, -DBL_MAX, 709.782712893384, 709.7827128933841, -745.1332191019411,
        -745.1332191019412, -708.3964185322641, 4503599627370495.5, 9007199254740992.0, 5.95, 0.6249999999999999};
    for (uint32_t i = 0; i < NS; i++) {
        if (i < sizeof special / sizeof *special)
            put(t, x, i, special[i]);
        else if (i & 1 || functions[f].lo == functions[f].hi)
            put(t, x, i, of_bits(t, i));
        else
            put(t, x, i, functions[f].lo + (functions[f].hi - functions[f].lo) * (i + .37 * (i % 97) / 97) / NS);
    }
}

/* One kernel with a launch and an output for each function. */
static kn_lprog *all_functions(enum kn_dtype t, int lanes)
{
    enum kn_dtype types[NF + 1];
    int64_t n = NS;
    for (size_t f = 0; f <= NF; f++) types[f] = t;
    buffers(NF, types, NS);
    kn_expr *at = bin(KN_OP_MUL, var(0), ci(lanes));
    kn_lprog *l = lprog(1, types, NS, NS / lanes, NULL);
    kn_program *p = (kn_program *)(uintptr_t)l->program;
    l->fns = kn_array(A, kn_fn, NF);
    for (int f = 0; f < (int)NF; f++) {
        if (f) kn_add_tensor(p, "y", t, KN_OUTPUT, 1, &n);
        l->fns[f] = (kn_fn){.grid = NS / lanes, .threads = 1, .var_grid = 0, .var_thread = -1, .nargs = 2, .args = {0, f + 1}};
        kn_expr *x = rd(0, at, lanes), *by = takes_two(f) ? splat(cf(t, (double)functions[f].by), lanes) : NULL;
        l->fns[f].body = st(f + 1, at, by ? bin(functions[f].op, x, by) : un(functions[f].op, x));
    }
    p->noutputs = l->nfns = NF;
    return l;
}

static void check_function(enum kn_dtype t, size_t f, const void *x, const void *y, bool report)
{
    double worst = 0, where = 0, bound = t == KN_F64 ? functions[f].bound64 : functions[f].bound;
    for (uint32_t i = 0; i < NS; i++) {
        double u = ulps(t, get(t, y, i), functions[f].f((long double)get(t, x, i)));
        if (isinf(get(t, x, i)) && u > 0) u = 1e9; /* limits are what they are: x * (1 + erf x) is not a number there */
        if (u > worst) worst = u, where = get(t, x, i);
    }
    for (uint32_t i = 0; i < 2; i++) {
        long double want = functions[f].f((long double)get(t, x, i));
        if (want == 0) assert_int_equal(!!signbit(get(t, y, i)), !!signbit(want));
    }
    if (report) print_message("%s %s: %.2f ulp at %a\n", kn_dtype_text(t), functions[f].name, worst, where);
    if (worst > bound) fail_msg("%s %s: %g ulp at %a", kn_dtype_text(t), functions[f].name, worst, where);
}

static void check_functions(enum kn_dtype t, int lanes, const char *compiler, const char *flags, bool report)
{
    static double x[NS], y[NF][NS];
    built b = build(print(all_functions(t, lanes), "c"), compiler, flags);
    for (size_t f = 0; f < NF; f++) {
        const void *in[] = {x};
        void *out[NF];
        for (size_t i = 0; i < NF; i++) out[i] = y[i];
        samples(t, x, f);
        assert_int_equal(b.run(in, out, NULL, NULL), 0);
        check_function(t, f, x, y[f], report);
        for (uint32_t i = 0; i < NS && lanes < 16 && (functions[f].op == KN_OP_TANH || functions[f].op == KN_OP_ERF); i++)
            assert_false(fabs(get(t, y[f], i)) > 1);
    }
    dlclose(b.so);
}

static void functions_without_fma(void **state)
{
    (void)state;
    check_functions(KN_F32, 8, "gcc", "", true);
    check_functions(KN_F64, 4, "gcc", "", true);
}

static void functions_for_this_machine(void **state)
{
    (void)state;
    check_functions(KN_F32, 16, "clang", "-march=native", false);
    check_functions(KN_F32, 4, "gcc", "-march=native", false);
    check_functions(KN_F32, 8, "gcc", "-march=native", true);
    check_functions(KN_F64, 8, "gcc", "-march=native", true);
    check_functions(KN_F64, 2, "clang", "-march=native", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(functions_without_fma, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(functions_for_this_machine, open_arena, close_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
