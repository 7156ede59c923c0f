/* Gradients against differences of the forward program in the reference interpreter: exact on integers where the program is linear in each
 * element (a step of 1 is then the slope), to sixth order elsewhere; refusals and requests. */
#include "tests/arena.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "grad/grad.h"
#include "te/ref.h"

static kiln_arena *open_arena(void) { return kiln_arena_open(&(kiln_host){NULL, mem, NULL}); }
static kiln_bytes bytes(const char *s) { return (kiln_bytes){s, strlen(s)}; }

static kn_program *parse(kiln_arena *a, const char *inputs, const char *text)
{
    kn_program *p = NULL;
    kiln_diag d = {0};
    if (kn_parse(a, bytes(text), bytes(inputs), &p, &d) != KILN_OK) fail_msg("%s\n%d:%d: %s", text, d.line, d.col, d.message);
    return p;
}

static int64_t elems(const kn_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->shape[i];
    return n;
}

static double **storage(kiln_arena *a, const kn_program *p)
{
    double **m = kn_array(a, double *, p->ntensors);
    for (int t = 0; t < p->ntensors; t++) m[t] = kn_array(a, double, elems(&p->tensors[t]));
    return m;
}

static void evaluate(const kn_program *p, double **m)
{
    kiln_diag d = {0};
    kiln_arena *a = open_arena();
    if (kn_ref_all(a, p, m, &d) != KILN_OK) fail_msg("%s", d.message);
    kiln_arena_close(a);
}

static int tensor_of(const kn_program *p, const char *name)
{
    for (int i = 0; i < p->ntensors; i++)
        if (!strcmp(p->tensors[i].name, name)) return i;
    fail_msg("no tensor %s", name);
    return -1;
}

/* sum of dy * y over all outputs, with element `at` of input k moved by h. */
static double moved(const kn_program *p, double **m, const double *dy, int k, int64_t at, double h)
{
    double keep = m[k][at], sum = 0;
    int64_t n = 0;
    m[k][at] += h;
    evaluate(p, m);
    for (int o = 0; o < p->noutputs; o++)
        for (int64_t i = 0; i < elems(&p->tensors[p->ninputs + o]); i++) sum += dy[n++] * m[p->ninputs + o][i];
    m[k][at] = keep;
    return sum;
}

static double slope(const kn_program *p, double **m, const double *dy, int k, int64_t at, bool exact)
{
    double h = 1e-3;
    if (exact) return moved(p, m, dy, k, at, 1) - moved(p, m, dy, k, at, 0);
    double one = moved(p, m, dy, k, at, h) - moved(p, m, dy, k, at, -h), two = moved(p, m, dy, k, at, 2 * h) - moved(p, m, dy, k, at, -2 * h);
    double three = moved(p, m, dy, k, at, 3 * h) - moved(p, m, dy, k, at, -3 * h);
    return (45 * one - 9 * two + three) / (60 * h);
}

/* Integers from -4 to 4, or reals that keep away from kinks and zeros. */
static double value(int k, int64_t i, bool exact)
{
    uint64_t x = ((uint64_t)i * 2654435761u + (uint64_t)k * 40503u + 12345u) * UINT64_C(0x9e3779b97f4a7c15);
    x ^= x >> 29;
    return exact ? (double)(x % 9) - 4 : 0.25 + (double)(x % 1000003) / 1000003.0;
}

static kn_program *gradient_of(kiln_arena *a, const kn_program *p, const char *wanted)
{
    kiln_diag d = {0};
    kn_program *g = NULL;
    int k[KILN_MAX_TENSORS], n = 0;
    for (int i = 0; i < p->ninputs; i++)
        if (strchr(wanted, p->tensors[i].name[0])) k[n++] = i;
    if (kn_grad(a, p, k, n, &g, &d) != KILN_OK) fail_msg("%s: %s", d.pointer, d.message);
    return g;
}

static void report(const kn_program *g)
{
    kiln_arena *a = open_arena();
    kiln_bytes t = {0};
    kiln_program_text(a, g, &t);
    print_error("%s\n", t.p);
    kiln_arena_close(a);
}

/* The gradient text parses back; its inputs' values are the forward program's. */
static void compare(const char *inputs, const char *text, const char *wanted, bool exact)
{
    kiln_arena *a = open_arena();
    kn_program *p = parse(a, inputs, text), *g = gradient_of(a, p, wanted);
    if (getenv("KILN_SHOW")) report(g);
    double **m = storage(a, p), **w = storage(a, g), *dy;
    int64_t all = 0, n = 0;
    for (int o = 0; o < p->noutputs; o++) all += elems(&p->tensors[p->ninputs + o]);
    dy = kn_array(a, double, all);
    for (int64_t i = 0; i < all; i++) dy[i] = value(77, i, exact);
    for (int k = 0; k < p->ninputs; k++)
        for (int64_t i = 0; i < elems(&p->tensors[k]); i++) m[k][i] = value(k, i, exact);
    for (int k = 0; k < g->ninputs; k++) {
        n = 0;
        for (int o = 0; o < p->noutputs; o++) {
            const kn_tensor *y = &p->tensors[p->ninputs + o];
            if (g->tensors[k].name[0] == 'd' && !strcmp(g->tensors[k].name + 1, y->name)) memcpy(w[k], dy + n, sizeof(double) * (size_t)elems(y));
            n += elems(y);
        }
        for (int i = 0; i < p->ninputs; i++)
            if (!strcmp(p->tensors[i].name, g->tensors[k].name)) memcpy(w[k], m[i], sizeof(double) * (size_t)elems(&p->tensors[i]));
    }
    evaluate(g, w);
    for (int o = 0; o < g->noutputs; o++) {
        const kn_tensor *t = &g->tensors[g->ninputs + o];
        int k = tensor_of(p, t->name + 1);
        assert_int_equal(elems(t), elems(&p->tensors[k]));
        for (int64_t i = 0; i < elems(t); i++) {
            double want = slope(p, m, dy, k, i, exact), got = w[g->ninputs + o][i];
            if (exact ? got == want : fabs(got - want) <= 1e-10 + 1e-9 * fabs(want)) continue;
            report(g);
            fail_msg("%s: %s[%lld] is %.17g, not %.17g", text, t->name, (long long)i, got, want);
        }
    }
    kiln_arena_close(a);
}

static void exactly(const char *inputs, const char *text, const char *wanted) { compare(inputs, text, wanted, true); }
static void closely(const char *inputs, const char *text, const char *wanted) { compare(inputs, text, wanted, false); }

static void products(void **state)
{
    (void)state;
    exactly("a=f64:4x5&b=f64:5x3", "c[M,N] +=! a[M,K]*b[K,N]", "ab");
    exactly("a=f64:2x4x5&b=f64:5x3", "c[B,M,N] +=! a[B,M,K]*b[K,N]", "ab");
    exactly("a=f64:4x5&b=f64:3x5", "c[M,N] +=! a[M,K]*b[N,K]", "b");
}

static void convolutions(void **state)
{
    (void)state;
    const char *in2 = "x=f64:1x2x7x6&w=f64:3x2x3x2";
    exactly("x=f64:2x2x9&w=f64:2x2x3", "y[N,F,P] +=! x[N,C,P+R]*w[F,C,R] where P in 7", "xw");
    exactly(in2, "y[N,F,P,Q] +=! pad(x,0.0)[N,C,P+R-1,Q+S-1]*w[F,C,R,S] where P in 7, Q in 7", "xw");
    exactly(in2, "y[N,F,P,Q] +=! pad(x,0.0)[N,C,P*2+R-1,Q*3+S]*w[F,C,R,S] where P in 4, Q in 2", "xw");
    exactly(in2, "y[N,F,P,Q] +=! pad(x,0.0)[N,C,P+R*2-1,Q*2+S*3-1]*w[F,C,R,S] where P in 5, Q in 3", "xw");
    exactly("x=f64:1x4x6&w=f64:6x2x3", "y[N,F,P] +=! pad(x,0.0)[N,F//3*2+C,P*2+R-1]*w[F,C,R] where P in 3, C in 2", "xw");
    exactly("x=f64:1x2x9&w=f64:3x2x5", "y[N,F,P] +=! pad(x,0.0)[N,C,P*4+R*6-3]*w[F,C,R] where P in 4", "xw");
}

/* By what a convolution goes over: a product of reads with padding, that asks nothing, and of steps in phases; what is a matter of places alone is
 * asked of these. */
static void gradients_are_convolutions(void **state)
{
    static const struct { const char *inputs, *text; int nstmts; bool asks; } one[] = {
        {"x=f32:1x2x7x6&w=f32:3x2x3x3", "y[N,F,P,Q] +=! pad(x,0.0)[N,C,P+R-1,Q+S-1]*w[F,C,R,S] where P in 7, Q in 6", 1, false},
        {"x=f32:1x2x28x30&w=f32:3x2x3x3", "y[N,F,P,Q] +=! pad(x,0.0)[N,C,P*2+R-1,Q*2+S-1]*w[F,C,R,S] where P in 14, Q in 15", 2, false},
        {"x=f32:1x8x9x2&w=f32:2x2x2x3", "y[N,P,Q,F] +=! x[N,P*2+R,Q*3+S,C]*w[R,S,C,F] where P in 4, Q in 3", 2, false},
        {"x=f16:1x2x40&w=f16:3x2x3", "y[N,F,P] +=! cast(pad(x,0.0)[N,C,P*2+R-1],f32)*cast(w[F,C,R],f32) where P in 20 : f16", 3, false},
        {"x=f32:1x2x9&w=f32:3x2x5", "y[N,F,P] +=! pad(x,0.0)[N,C,P*4+R*6-3]*w[F,C,R] where P in 4", 2, true},
        {"x=f32:9", "w[I] = cast(I%2,f32)/2.0 where I in 18; y[I] = x[I//2]*w[I]", 1, false}, /* tables of places are what they say there */
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = open_arena();
        kn_program *p = parse(a, one[i].inputs, one[i].text), *g = NULL;
        int x = tensor_of(p, "x");
        kiln_diag d = {0};
        kn_buf b;
        assert_int_equal(kn_grad(a, p, &x, 1, &g, &d), KILN_OK);
        kn_buf_init(&b, a);
        kn_print_program(&b, g);
        kiln_bytes text = kn_buf_take(&b);
        bool asks = strstr(text.p, "select") != NULL;
        if (g->nstmts != one[i].nstmts || asks != one[i].asks) fail_msg("%zu: %d statements\n%s", i, g->nstmts, text.p);
        kiln_arena_close(a);
    }
}

static void transposed_convolutions(void **state)
{
    (void)state;
    exactly("x=f64:1x2x4&w=f64:2x3x3",
            "y[N,F,P] +=! select((P+1-R)%2==0 && P+1-R>=0 && (P+1-R)//2<4, x[N,C,min(max((P+1-R)//2,0),3)], 0.0)*w[C,F,R] where P in 7", "xw");
    exactly("x=f64:1x2x4&w=f64:2x3x3", "y[N,F,P] +=! select((P+1-R)%2==0, pad(x,0.0)[N,C,(P+1-R)//2], 0.0)*w[C,F,R] where P in 7", "xw");
    exactly("x=f64:1x2x4&w=f64:2x3x3",
            "y[N,F,P] +=! select((P+1-R)%3==0 && 0<=(P+1-R)//3 && (P+1-R)//3<4, x[N,C,(P+1-R)//3], 0.0)*w[C,F,R] where P in 9", "xw");
}

static void moves(void **state)
{
    (void)state;
    exactly("x=f64:1x8x2x3", "y[N,C,H,W] = x[N,(H%2*2+W%2)*2+C,H//2,W//2] where C in 2, H in 4, W in 6", "x");
    exactly("x=f64:1x2x4x6", "y[N,C,H,W] = x[N,C%2,H*2+C//4,W*2+C//2%2] where C in 8, H in 2, W in 3", "x");
    exactly("x=f64:6x4", "y[A,B] = x[B,A]", "x");
    exactly("x=f64:24", "y[A,B,C] = x[A*12+B*4+C] where A in 2, B in 3, C in 4", "x");
    exactly("x=f64:2x3x4", "y[A] = x[A//12,A//4%3,A%4] where A in 24", "x");
    exactly("x=f64:7", "y[A] = x[A//3] where A in 20", "x");
    exactly("x=f64:5", "y[A,B] = x[A%5] where A in 13, B in 2", "x");
    exactly("x=f64:8", "y[A] = x[min(A*2,7)] where A in 6", "x");
    exactly("x=f64:40", "y[A,B,C] = x[A*6+B*10+C*15+3] where A in 2, B in 2, C in 2", "x");
    exactly("x=f64:8", "y[A] = x[7-A] where A in 8", "x");
    exactly("x=f64:4&z=f64:5", "y[A] = select(A<4, x[A], z[A-4]) where A in 9", "xz");
}

/* The border, read from outside at either end, at one of them by most points, by falling indices (which are compared at every point), along two
 * dimensions, with weights of the points, of an element that is read twice. */
static void clamps(void **state)
{
    (void)state;
    exactly("x=f64:6", "y[A] = x[min(max(A-2,0),5)] where A in 11", "x");
    exactly("x=f64:3", "y[A] = x[max(A-7,0)] where A in 10", "x");
    exactly("x=f64:2x4", "y[N,A] = x[N,min(A,3)] where A in 4", "x");
    exactly("x=f64:5", "y[A] = x[min(max(3-A,0),4)] where A in 9", "x");
    exactly("x=f64:5x4", "y[A,B] = x[min(max(A-1,0),4),min(max(B-2,0),3)]*cast(A+2*B+1,f64) where A in 7, B in 9", "x");
    exactly("x=f64:4", "y[A] = x[min(max((A*2+3)//6-1,0),3)]*cast((A*2+3)%6,f64) + x[min(max((A*2+3)//6,0),3)]*cast(6-(A*2+3)%6,f64) "
            "where A in 12", "x");
    exactly("x=f64:2x6", "w[A] = cast(A%4+1,f64) where A in 24; y[N,A] = x[N,min(max(A//4-1,0),5)]*w[A] where A in 24", "x");
    exactly("x=f64:3x9", "s[N,P] +=! x[N,min(max(P*2+R-2,0),8)] where P in 5, R in 3; y[N,P] = s[N,P]*2.0", "x");
    closely("x=f64:7", "y[A] = x[max(A-3,0)]*x[max(A-3,0)]+x[A] where A in 7", "x");
    kiln_arena *a = open_arena();
    kn_program *g = gradient_of(a, parse(a, "x=f64:50", "y[A] = x[min(max((A*2-1)//4,0),49)] where A in 100"), "x");
    for (int i = 0; i < g->nstmts; i++) /* no loop over all that might read an element */
        for (int k = g->stmts[i]->nspatial; k < g->stmts[i]->naxes; k++) assert_true(g->stmts[i]->axes[k].extent <= 4);
    kiln_arena_close(a);
}

static void pools_and_maps(void **state)
{
    (void)state;
    exactly("x=f64:1x2x7", "s[N,C,P] +=! pad(x,0.0)[N,C,P*2+R-1] where P in 4, R in 3; y[N,C,P] = s[N,C,P]*3.0", "x");
    exactly("a=f64:4x5&b=f64:5", "y[I,J] = a[I,J]+b[J]", "ab");
    exactly("a=f64:4x5&b=f64:4x1", "y[I,J] = a[I,J]*b[I,0]*2.0", "ab");
    exactly("a=f64:3x4", "y[] +=! a[I,J]", "a");
    exactly("a=f64:3x4&b=f64:4", "u[I,J] = a[I,J]-b[J]; y[I] +=! u[I,J]; z[I,J] = u[I,J]*2.0+b[J]", "ab");
    exactly("a=f64:5", "p[] *=! a[I]; y[] = p[]+1.0", "a");
    closely("a=f64:3x4", "y[I] *=! a[I,J]*2.0+1.0", "a");
    closely("x=f64:2x9", "y[N,P] >=! x[N,P*2+R] where P in 4, R in 3", "x");
    closely("x=f64:3x4", "y[N] <=! x[N,C]*x[N,C]+x[N,C]", "x");
    closely("x=f64:7x8", "y[P,Q] >=! pad(x,-inf)[P*2+R-1,Q*3+S-2] where P in 4, Q in 3, R in 3, S in 4", "x");
    exactly("x=f64:9x8", "s[P,Q] +=! pad(x,0.0)[P*2+R-1,Q*3+S-1] where P in 5, Q in 3, R in 3, S in 2; y[P,Q] = s[P,Q]*cast(P+Q,f64)", "x");
}

/* Extrema of windows that overlap, in one to three dimensions, by steps, with taps apart, padded: read where they exist, and 0 elsewhere, so that
 * nothing is asked of places. */
static void extrema_of_windows(void **state)
{
    (void)state;
    static const struct { const char *inputs, *text; bool asks; } one[] = { /* elements far from each other */
        {"x=f64:2x9", "u[N,A] = x[N,A]+cast((N*9+A)*11%19,f64)*100.0 where A in 9; y[N,P] >=! u[N,P+R] where P in 7, R in 3", false},
        {"x=f64:2x9", "u[N,A] = x[N,A]+cast((N*9+A)*11%19,f64)*100.0; y[N,P] >=! pad(u,-inf)[N,P+R-1] where P in 9, R in 3", false},
        {"x=f64:2x11", "u[N,A] = x[N,A]+cast((N*11+A)*7%23,f64)*100.0; y[N,P] <=! pad(u,inf)[N,P+R*2-2] where P in 11, R in 3", false},
        {"x=f64:7x8", "u[A,B] = x[A,B]+cast((A*8+B)*11%59,f64)*100.0; y[P,Q] >=! pad(u,-inf)[P+R-1,Q+S-2] where "
         "P in 7, Q in 8, R in 3, S in 4", false},
        {"x=f64:4x5x3", "u[A,B,C] = x[A,B,C]+cast((A*15+B*3+C)*11%61,f64)*100.0; y[P,Q,O] >=! pad(u,-inf)[P+R-1,Q+S-1,O+T-1] where "
         "P in 4, Q in 5, O in 3, R in 3, S in 3, T in 3", false},
        {"x=f64:2x30", "u[N,A] = x[N,A]+cast((N*30+A)*11%61,f64)*100.0; y[N,P] >=! pad(u,-inf)[N,P*2+R-1] where P in 15, R in 3", true},
        {"x=f64:13x12", "u[A,B] = x[A,B]+cast((A*12+B)*11%157,f64)*100.0; y[P,Q] >=! pad(u,-inf)[P*2+R-1,Q*3+S*2-2] where "
         "P in 7, Q in 4, R in 3, S in 3", true},
        {"x=f64:5x6x7", "u[A,B,C] = x[A,B,C]+cast((A*42+B*7+C)*11%211,f64)*100.0; y[P,Q,O] <=! pad(u,inf)[P*2+R-1,Q*2+S-1,O*2+T-1] where "
         "P in 3, Q in 3, O in 4, R in 3, S in 3, T in 3", true},
    };
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = open_arena();
        kn_program *g = gradient_of(a, parse(a, one[i].inputs, one[i].text), "x");
        kn_buf b;
        kn_buf_init(&b, a);
        kn_print_program(&b, g);
        kiln_bytes text = kn_buf_take(&b);
        bool asks = strstr(text.p, "< ") || strstr(text.p, "<= ");
        if (asks != one[i].asks) fail_msg("%s\n%s", one[i].text, text.p);
        kiln_arena_close(a);
        exactly(one[i].inputs, one[i].text, "x");
    }
    closely("x=f64:2x9&w=f64:3", "y[N,P] >=! pad(x,0.0)[N,P+R-1]*w[R] where P in 9", "xw");
}

/* Equal elements share what comes in evenly, window by window; none equals what is not a number. */
static void ties_of_windows(void **state)
{
    (void)state;
    static const struct { double x[6], dx[6]; } one[] = {
        {{2, 2, 2, 2, 2, 2}, {1. / 3, 1. / 3 + 2. / 3, 1. / 3 + 2. / 3 + 1, 2. / 3 + 1 + 4. / 3, 1 + 4. / 3, 4. / 3}},
        {{5, 1, 5, 0, 0, 0}, {0.5, 0, 0.5 + 2 + 3, 4. / 3, 4. / 3, 4. / 3}},
        {{1, 2, 3, (double)NAN, 3, 4}, {0, 0, 1, 0, 0, 0}},
    };
    kiln_arena *a = open_arena();
    kn_program *g = gradient_of(a, parse(a, "x=f64:6", "y[P] >=! x[P+R] where P in 4, R in 3"), "x");
    double **m = storage(a, g);
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        memcpy(m[tensor_of(g, "x")], one[i].x, sizeof one[i].x);
        for (int k = 0; k < 4; k++) m[tensor_of(g, "dy")][k] = k + 1;
        evaluate(g, m);
        for (int k = 0; k < 6; k++) assert_true(fabs(m[g->ninputs][k] - one[i].dx[k]) < 1e-14);
    }
    kiln_arena_close(a);
}

static void every_function(void **state)
{
    (void)state;
    static const char *const f[] = {"exp(a[I])", "log(a[I])", "sqrt(a[I])", "rsqrt(a[I])", "tanh(a[I])", "erf(a[I])", "sin(a[I])", "cos(a[I])",
                                    "pow(a[I],b[I])", "pow(a[I],3.0)", "min(a[I],b[I])", "max(a[I],b[I])", "max(a[I],0.9)", "min(0.9,a[I])",
                                    "abs(a[I]-0.7)", "a[I]/b[I]", "select(a[I]<b[I],a[I]*a[I],b[I])", "-a[I]+b[I]", "floor(a[I])+a[I]",
                                    "ceil(a[I])*b[I]", "round(a[I]*0.3)+b[I]", "gelu(a[I])", "sigmoid(a[I])*b[I]", "relu(a[I]-0.6)", "a[I]%b[I]"};
    char text[128];
    for (size_t i = 0; i < sizeof f / sizeof *f; i++) {
        snprintf(text, sizeof text, "y[I] = %s%s", f[i], strchr(f[i], 'b') && strstr(f[i], "b[") ? "" : " + b[I]*0.5");
        closely("a=f64:9&b=f64:9", text, "ab");
    }
}

static void chains(void **state)
{
    (void)state;
    closely("x=f64:3x5", "m[A] >=! x[A,B]; e[A,B] = exp(x[A,B]-m[A]); z[A] +=! e[A,B]; y[A,B] = e[A,B]/z[A]", "x");
    closely("x=f64:3x5&g=f64:5&b=f64:5",
            "s[A] +=! x[A,B]; d[A,B] = x[A,B]-s[A]/5.0; v[A] +=! d[A,B]*d[A,B]; y[A,B] = d[A,B]*rsqrt(v[A]/5.0+0.00001)*g[B]+b[B]", "xgb");
    exactly("x=f64:9", "w[I] = cast(I%2*2,f64) where I in 18; y[I] = x[I//2]*w[I]", "x");
    closely("x=f64:4x3&w=f64:3x2", "h[M,N] +=! x[M,K]*w[K,N]; y[M,N] = gelu(h[M,N])*h[M,N]", "xw");
}

/* What softmax and its kin subtract, so that exponentials stay small, is no matter to the result, and has no part in the gradient; where something
 * else is made of it, or of what it is subtracted from, it has. */
static void shifts(void **state)
{
#define MAXIMUM "m[A] >=! x[A,B]; e[A,B] = exp(x[A,B]-m[A]); "
#define SOFTMAX MAXIMUM "s[A] +=! e[A,B]; y[A,B] = e[A,B]/s[A]"
    static const struct { const char *inputs, *text; bool flows; } one[] = {
        {"x=f64:3x5", SOFTMAX, false},
        {"x=f64:3x5", "m[B] >=! x[A,B]; e[A,B] = exp(x[A,B]-m[B]); s[B] +=! e[A,B]; y[A,B] = e[A,B]/s[B]", false},
        {"x=f64:2x4x3", "m[A,C] >=! x[A,B,C]; e[A,B,C] = exp(x[A,B,C]-m[A,C]); s[A,C] +=! e[A,B,C]; y[A,B,C] = e[A,B,C]/s[A,C]", false},
        {"x=f64:3x5", "m[A] <=! x[A,B]; e[A,B] = exp(m[A]-x[A,B]); s[A] +=! e[A,B]; y[A,B] = e[A,B]/s[A]", false},
        {"x=f64:3x5", "m[A] >=! x[A,B]; s[A] +=! exp(x[A,B]-m[A]); y[A,B] = x[A,B]-m[A]-log(s[A])", false},
        {"x=f64:3x5", "m[A] >=! x[A,B]; s[A] +=! exp(x[A,B]-m[A]); y[A] = m[A]+log(s[A])", false},
        {"x=f64:3x4", "m[] >=! x[A,B]; s[] +=! exp(x[A,B]-m[]); y[] = m[]+log(s[])", false},
        {"x=f64:3x5", "m[A] >=! x[A,B]; e[A,B] = exp((x[A,B]-m[A])*0.5); s[A] +=! e[A,B]; y[A,B] = e[A,B]*(1.0/s[A])", false},
        {"x=f64:3x5", MAXIMUM "s[A] +=! e[A,B]; y[A,B] = e[A,B]/(exp(-m[A])+s[A])", false}, /* one more term, which is 0 */
        {"x=f64:3x5", MAXIMUM "k[A,B] = select(B<=A+1, e[A,B], 0.0); s[A] +=! k[A,B]; y[A,B] = k[A,B]/s[A]", false},
        {"x=f64:3x5", MAXIMUM "s[A] +=! e[A,B]*e[A,B]; y[A,B] = e[A,B]*rsqrt(s[A])", false},
        {"x=f64:3x6", "m[A,C] >=! x[A,C*3+B] where C in 2, B in 3; e[A,B] = exp(x[A,B]-m[A,B//3]); "
         "s[A,C] +=! e[A,C*3+B] where C in 2, B in 3; y[A,B] = e[A,B]/s[A,B//3]", false},
        {"x=f64:3x4&k=f64:5x4&v=f64:5x2", "q[A,B] +=! x[A,D]*k[B,D]; m[A] >=! q[A,B]; e[A,B] = exp(q[A,B]-m[A]); s[A] +=! e[A,B]; "
         "p[A,B] = e[A,B]/s[A]; y[A,D] +=! p[A,B]*v[B,D]", false},
        {"x=f64:3x4&k=f64:5x4&v=f64:5x2", "q[A,B] +=! x[A,D]*k[B,D]; m[A] >=! q[A,B]; e[A,B] = exp(q[A,B]-m[A]); s[A] +=! e[A,B]; "
         "o[A,D] +=! e[A,B]*v[B,D]; y[A,D] = o[A,D]/s[A]", false},
        /* look-alikes */
        {"x=f64:3x5", MAXIMUM "y[A,B] = e[A,B]", true},
        {"x=f64:3x5", SOFTMAX "; z[A] = m[A]*2.0", true},
        {"x=f64:3x5", MAXIMUM "s[A] +=! e[A,B]; y[A,B] = e[A,B]/(s[A]+0.5)", true},
        {"x=f64:3x5", MAXIMUM "s[A] +=! e[A,B]; y[A,B] = e[A,B]/(s[A]*s[A])", true},
        {"x=f64:3x5", MAXIMUM "s[B] +=! e[A,B]; y[A,B] = e[A,B]/s[B]", true},
        {"x=f64:3x5", "m[A] >=! x[A,B]; s[A] +=! exp(x[A,B]-m[A]); y[A] = m[A]*2.0+log(s[A])", true},
        {"x=f64:3x5", "m[A] >=! x[A,B]; s[A] +=! exp(x[A,B]*2.0-m[A]*2.0); y[A] = m[A]+log(s[A])", true},
        {"x=f64:3x3", MAXIMUM "s[A] +=! e[A,B]; y[A,B] = e[A,B]/s[B]", true},
        {"x=f64:3x5", "m[A] >=! x[A,B]; e[A,B] = exp(x[A,B]-m[2-A]); s[A] +=! e[A,B]; y[A,B] = e[A,B]/s[A]*m[A]", true},
        {"x=f64:3x5", MAXIMUM "s[A] +=! select(e[A,B]<0.6, e[A,B], 0.25); y[A,B] = e[A,B]/s[A]", true},
        {"x=f64:3x5", "m[A] >=! x[A,B]; e[A,B] = exp((x[A,B]-m[A])*m[A]); s[A] +=! e[A,B]; y[A,B] = e[A,B]/s[A]", true},
        {"x=f64:3x5", "m[A] >=! x[A,B]; e[A,B] = exp(x[A,B]-pad(m,0.0)[A+1]); s[A] +=! e[A,B]; y[A,B] = e[A,B]/s[A]", true},
    };
#undef MAXIMUM
#undef SOFTMAX
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = open_arena();
        kn_program *g = gradient_of(a, parse(a, one[i].inputs, one[i].text), "x");
        bool flows = false;
        for (int t = 0; t < g->ntensors; t++) flows |= !strncmp(g->tensors[t].name, "ties_", 5);
        if (flows != one[i].flows) {
            report(g);
            fail_msg("%s", one[i].text);
        }
        kiln_arena_close(a);
        closely(one[i].inputs, one[i].text, "x");
    }
    closely("x=f64:3x4&k=f64:5x4&v=f64:5x2", "q[A,B] +=! x[A,D]*k[B,D]; m[A] >=! q[A,B]; e[A,B] = exp(q[A,B]-m[A]); s[A] +=! e[A,B]; "
            "p[A,B] = e[A,B]/s[A]; y[A,D] +=! p[A,B]*v[B,D]", "xkv");
}

static int refused(const char *inputs, const char *text, int input, kiln_diag *d)
{
    kiln_arena *a = open_arena();
    kn_program *g = NULL, *p = parse(a, inputs, text);
    *d = (kiln_diag){0};
    kiln_status s = kn_grad(a, p, &input, 1, &g, d);
    kiln_arena_close(a);
    return (int)s;
}

static void refusals(void **state)
{
    (void)state;
    kiln_diag d;
    assert_int_equal(refused("a=i32:4", "y[I] = a[I]*2", 0, &d), KILN_DTYPE);
    assert_string_equal(d.pointer, "/grad/0");
    assert_int_equal(refused("a=f32:4", "y[I] = cast(cast(a[I],i32),f32)", 0, &d), KILN_UNSUPPORTED);
    assert_int_equal(d.line, 1);
    assert_non_null(strstr(d.message, "i32"));
    assert_int_equal(refused("a=f32:4", "t[I] = cast(a[I],i32); y[I] = cast(t[I],f32)", 0, &d), KILN_UNSUPPORTED);
    assert_int_equal(refused("a=f32:4", "y[I] = a[I]<1.0", 0, &d), KILN_DTYPE);
    /* a place and a condition have no gradient to lose, computed before as where they are used */
    assert_int_equal(refused("a=f32:4&x=f32:9", "t[I] = cast(a[I],i32); h[I] = a[I]<3.0; y[I] = select(h[I], a[I]*x[t[I]], 0.0)", 0, &d), KILN_OK);
    assert_int_equal(refused("a=f32:4&x=f32:9", "t[I] = cast(a[I],i32); h[I] = a[I]<3.0; y[I] = select(h[I], x[t[I]], 0.0)", 0, &d), KILN_OK);
    assert_int_equal(refused("a=f32:4&i=i32:4", "y[I] = 0.0 where I in 4; y[i[J]] +=. a[J]", 0, &d), KILN_UNSUPPORTED);
    assert_non_null(strstr(d.message, "scatter"));
}

static kiln_status request(kiln_arena *a, const char *json, kiln_request **r, kiln_diag *d)
{
    *d = (kiln_diag){0};
    return kiln_request_json(a, bytes(json), r, d);
}

#define MATMUL "{\"op\":\"MatMul\",\"inputs\":[{\"name\":\"left\",\"dtype\":\"f32\",\"shape\":[4,5]},{\"dtype\":\"f32\",\"shape\":[5,3]}]"

static void requests(void **state)
{
    (void)state;
    kiln_arena *a = open_arena();
    kiln_request *r = NULL, *plain = NULL;
    kiln_diag d;
    static const char *const names[] = {"left", "A", "x0"};
    char json[512];
    for (int i = 0; i < 3; i++) {
        snprintf(json, sizeof json, MATMUL ",\"grad\":[\"%s\"]}", names[i]);
        if (request(a, json, &r, &d) != KILN_OK) fail_msg("%s: %s", d.pointer, d.message);
        assert_int_equal(r->ninputs, 2);
        assert_string_equal(r->output_names[0], "dleft");
        int dy = !strcmp(r->input_names[0], "dy") ? 0 : 1;
        assert_string_equal(r->input_names[dy], "dy");
        assert_string_equal(r->input_names[1 - dy], "in1");
    }
    if (request(a, MATMUL ",\"grad\":[\"B\",\"A\"]}", &r, &d) != KILN_OK) fail_msg("%s: %s", d.pointer, d.message);
    assert_int_equal(r->noutputs, 2);
    kiln_bytes with = {0}, without = {0};
    assert_int_equal(request(a, MATMUL "}", &plain, &d), KILN_OK);
    assert_int_equal(kn_canon_bytes(a, r->program, &with), KILN_OK);
    assert_int_equal(kn_canon_bytes(a, plain->program, &without), KILN_OK);
    assert_true(with.n != without.n || memcmp(with.p, without.p, with.n) != 0); /* what keys hash */
    static const struct { const char *grad, *pointer; kiln_status status; } wrong[] = {
        {"[\"c\"]", "/grad/0", KILN_REQUEST},          {"[\"A\",\"x0\"]", "/grad/1", KILN_REQUEST}, {"[]", "/grad", KILN_REQUEST},
        {"\"a\"", "/grad", KILN_REQUEST},              {"[3]", "/grad/0", KILN_REQUEST},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(json, sizeof json, MATMUL ",\"grad\":%s}", wrong[i].grad);
        assert_int_equal(request(a, json, &r, &d), wrong[i].status);
        assert_string_equal(d.pointer, wrong[i].pointer);
    }
    static const char cast[] = "{\"expr\":\"y[I] = cast(cast(q[I],i32),f32)\",\"inputs\":{\"q\":\"f32[4]\"},\"grad\":[\"q\"]}";
    assert_int_equal(request(a, cast, &r, &d), KILN_UNSUPPORTED);
    assert_string_equal(d.pointer, "/grad");
    assert_true(d.line == 1 && d.col > 0);
    kiln_arena_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products),
        cmocka_unit_test(convolutions),
        cmocka_unit_test(gradients_are_convolutions),
        cmocka_unit_test(transposed_convolutions),
        cmocka_unit_test(moves), cmocka_unit_test(clamps),
        cmocka_unit_test(pools_and_maps),
        cmocka_unit_test(extrema_of_windows),
        cmocka_unit_test(ties_of_windows),
        cmocka_unit_test(every_function),
        cmocka_unit_test(chains),
        cmocka_unit_test(shifts),
        cmocka_unit_test(refusals),
        cmocka_unit_test(requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
