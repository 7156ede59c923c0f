/* Lowering: small programs under hand-written and random traces, run in the bounds-checked interpreter, against direct evaluation. */
#include "tests/arena.h"
#include "tests/unit/lprog_eval.c"
#include "tests/unit/instructions.h"
#include "block/block.h"
#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

static kn_hw cpu = { .id = "cpu", .gpu = false, .max_threads_per_block = 1, .vector_bytes = 64 };
static kn_hw held = { .id = "cpu", .gpu = false, .max_threads_per_block = 1, .vector_bytes = 32, .vector_registers = 12 };
static kn_hw gpu = { .id = "gpu", .gpu = true, .max_threads_per_block = 1024, .max_shared_per_block = 49152, .lanes = 32 };

static kiln_bytes bytes(const char *s) { return (kiln_bytes){ s, strlen(s) }; }

static int64_t elems(const kn_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->shape[i];
    return n;
}

/* Small integers: sums are exact, so every order of summation gives the same. */
static void fill(const kn_program *p, double **x)
{
    unsigned seed = 12345;
    for (int i = 0; i < p->ntensors; i++) {
        int64_t n = elems(&p->tensors[i]);
        x[i] = calloc((size_t)n, sizeof(double));
        for (int64_t k = 0; k < n && i < p->ninputs; k++) {
            seed = seed * 1103515245u + 12345u;
            x[i][k] = (double)((int)(seed >> 16) % 7 - 3) + (p->tensors[i].dtype == KN_U8 ? 3 : 0);
        }
    }
}

/* Direct evaluation of a statement's body at given axis values. */
static double direct(const kn_program *p, double *const *x, const int64_t *axis, const kn_expr *e)
{
    if (e->op == KN_OP_CONST_F) return e->u.f;
    if (e->op == KN_OP_CONST_I) return (double)e->u.i;
    if (e->op == KN_OP_AXIS) return (double)axis[e->u.axis];
    if (e->op == KN_OP_SELECT) return direct(p, x, axis, e->args[direct(p, x, axis, e->args[0]) != 0 ? 1 : 2]);
    if (e->op == KN_OP_LOAD) {
        const kn_tensor *t = &p->tensors[e->u.tensor];
        int64_t at = 0;
        for (int i = 0; i < t->rank; i++) {
            int64_t k = (int64_t)direct(p, x, axis, e->args[i]);
            if (k < 0 || k >= t->shape[i]) {
                if (!e->padded) fail_msg("the test program reads out of bounds");
                return e->pad_value;
            }
            at = at * t->shape[i] + k;
        }
        return x[e->u.tensor][at];
    }
    double a = direct(p, x, axis, e->args[0]), b = e->nargs > 1 ? direct(p, x, axis, e->args[1]) : a;
    return round_to(e->dtype, apply(e->op, e->dtype, a, b));
}

static void direct_all(const kn_program *p, double *const *x)
{
    for (int n = 0; n < p->nstmts; n++) {
        const kn_stmt *s = p->stmts[n];
        int64_t axis[KILN_MAX_AXES] = { 0 }, total = 1;
        char *seen = calloc((size_t)elems(&p->tensors[s->out]), 1);
        for (int i = 0; i < s->naxes; i++) total *= s->axes[i].extent;
        for (int64_t k = 0; k < total; k++) {
            int64_t rest = k, at = 0;
            for (int i = s->naxes - 1; i >= 0; i--) {
                axis[i] = rest % s->axes[i].extent;
                rest /= s->axes[i].extent;
            }
            for (int i = 0; i < p->tensors[s->out].rank; i++) at = at * p->tensors[s->out].shape[i] + (int64_t)direct(p, x, axis,
                s->lhs[i]);
            double v = direct(p, x, axis, s->body), *o = &x[s->out][at];
            *o = seen[at] ? combine((int)s->red, *o, v) : v;
            seen[at] = 1;
        }
        for (int64_t k = 0; k < elems(&p->tensors[s->out]); k++) x[s->out][k] = round_to(p->tensors[s->out].dtype, x[s->out][k]);
        free(seen);
    }
}

static const char *check(const char *inputs, const char *text, const kn_hw *hw, const char *trace)
{
    static char why[1200];
    kiln_arena *a = kiln_arena_open(&(kiln_host){ NULL, mem, NULL });
    kiln_diag d = { 0 };
    kn_program *p;
    kn_tree *t;
    kn_lprog *l;
    kn_blocks *k;
    why[0] = 0;
    double *want[KILN_MAX_TENSORS] = { 0 }, *got[KILN_MAX_TENSORS] = { 0 };
    if (kn_parse(a, bytes(text), bytes(inputs), &p, &d) || kn_trace_apply(a, p, hw, bytes(trace), &t, &d) || kn_blocks_of_tree(a, t, hw, &k, &d) ||
        kn_blocks_check(k, hw, &d) || kn_lower(a, t, hw, &l, &d) ||
        kn_lprog_check(l, &d)) {
        snprintf(why, sizeof why, "%s (%s)", d.message, d.hint);
    } else {
        fill(p, want);
        fill(t->program, got); /* a schedule may have added temporaries */
        const char *bad = lprog_eval(l, got);
        if (bad) snprintf(why, sizeof why, "%s", bad);
        else direct_all(p, want);
        for (int i = p->ninputs; i < p->ninputs + p->noutputs && !why[0]; i++)
            for (int64_t k = 0; k < elems(&p->tensors[i]) && !why[0]; k++)
                if (!(fabs(want[i][k] - got[i][k]) <= 1e-5 * (1 + fabs(want[i][k]))))
                    snprintf(why, sizeof why, "%s[%lld] is %g, not %g", p->tensors[i].name, (long long)k, got[i][k], want[i][k]);
        if (why[0] && getenv("LOWER_DUMP")) {
            kn_buf b;
            kn_buf_init(&b, a);
            kn_lprog_print(&b, l);
            fputs(kn_buf_take(&b).p, stderr);
        }
    }
    for (int i = 0; i < KILN_MAX_TENSORS; i++) {
        free(want[i]);
        free(got[i]);
    }
    kiln_arena_close(a);
    return why[0] ? why : NULL;
}

#define MM "c[M,N] +=! a[M,K]*b[K,N]"
#define CONV "o[N,F,P,Q] +=! pad(x, 0.0)[N,C,P+R-1,Q+S-1]*w[F,C,R,S] where P in 7, Q in 9"
static const struct { const char *name, *inputs, *text; const kn_hw *hw; const char *trace; } cases[] = {
#include "tests/unit/lower_cases.def"
};

static void test_cases(void **state)
{
    (void)state;
    int bad = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *why = check(cases[i].inputs, cases[i].text, cases[i].hw, cases[i].trace);
        if (!why) continue;
        print_error("%s: %s\n", cases[i].name, why);
        bad++;
    }
    assert_int_equal(bad, 0);
}

static kn_lprog *lowered(kiln_arena *a, const char *inputs, const char *text, const kn_hw *hw, const char *trace)
{
    kiln_diag d = { 0 };
    kn_program *p;
    kn_tree *t;
    kn_lprog *l = NULL;
    if (kn_parse(a, bytes(text), bytes(inputs), &p, &d) || kn_trace_apply(a, p, hw, bytes(trace), &t, &d) || kn_lower(a, t, hw, &l, &d))
        fail_msg("%s", d.message);
    return l;
}

/* The last task has one panel of three: the loop over them ends there, since whole panels past the end would be computed for nothing. */
static void test_panels_end_with_their_axis(void **state)
{
    static const char trace[] = "split c N 3 2 4\nsplit c M 3\nreorder c N.0 M.0 | N.1 K.0 | M.1 N.2 N.3\nparallel c N.0\n"
                                "unroll c M.1\nunroll c N.2\nvectorize c N.3\n";
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){ NULL, mem, NULL });
    kn_buf b;
    assert_null(check("a=f32:6x5&b=f32:5x30", MM, &cpu, trace));
    kn_buf_init(&b, a);
    kn_lprog_print(&b, lowered(a, "a=f32:6x5&b=f32:5x30", MM, &cpu, trace));
    kiln_bytes text = kn_buf_take(&b);
    if (!strstr(text.p, "N_1 in 0 .. min(3,")) fail_msg("all panels are walked\n%.*s", (int)text.n, text.p);
    kiln_arena_close(a);
}

static unsigned rnd(unsigned *s, unsigned n) { return (*s = *s * 1664525u + 1013904223u) / 65536u % n; }

/* What a window reads for several of its rows is read once, as far as there are registers. */
static void test_held(void **state)
{
    (void)state;
    static const char *const cases[2] = {"unroll y S.0\n", ""};
    const char *text = "y[C,P,Q] +=! x[C,P+R,Q+S]*w[C,R,S] where P in 8, Q in 16", *inputs = "x=f32:2x10x18&w=f32:2x3x3";
    for (int i = 0; i < 2; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){ NULL, mem, NULL });
        kn_buf b;
        kn_buf_init(&b, a);
        kn_putf(&b, "split y Q 1 8\nsplit y P 1 4\nreorder y C.0 | P.0 Q.0 P.1 S.0 R.0 | P.2 Q.1 Q.2\nunroll y P.2\nunroll y R.0\n%sunroll y Q.1\n"
                "vectorize y Q.2", cases[i]);
        kiln_bytes trace = kn_buf_take(&b);
        assert_null(check(inputs, text, &held, trace.p));
        kn_lprog *l = lowered(a, inputs, text, &held, trace.p);
        int n = -1;
        for (int k = 0; k < l->nbuffers; k++)
            if (!strncmp(l->buffers[k].name, "window", 6)) n = (int)l->buffers[k].elems;
        assert_int_equal(n, i ? 4 : 12); /* of six rows a column of taps the two in the middle thrice, their neighbours twice */
        kiln_arena_close(a);
    }
}

static void test_random_matmul(void **state)
{
    (void)state;
    unsigned s = 7;
    static const int width[] = { 2, 4, 8, 16 };
    for (int i = 0; i < 30; i++) {
        char in[96], tr[1024];
        snprintf(in, sizeof in, "a=f32:%ux%u&b=f32:", 1 + rnd(&s, 13), 1 + i % 11);
        snprintf(in + strlen(in), 32, "%ux%u", 1 + i % 11, 1 + rnd(&s, 40));
        int v = width[rnd(&s, 4)];
        int n = snprintf(tr, sizeof tr,
                         "split c M %u %u\nsplit c N %u %u %d\nsplit c K %u\n"
                         "reorder c M.0 N.0 | K.0 | M.1 N.1 | K.1 | M.2 N.2 N.3\nparallel c M.0\nparallel c N.0\nunroll c M.2\nunroll c "
                         "N.2\nvectorize c N.3\n",
                         1 + rnd(&s, 3), 1 + rnd(&s, 4), 1 + rnd(&s, 2), 1 + rnd(&s, 3), v, 1 + rnd(&s, 6));
        if (rnd(&s, 2)) n += snprintf(tr + n, sizeof tr - (size_t)n, "cache_read c 0 scratch K.0 loops M.1 K.1 M.2\n");
        unsigned how = rnd(&s, 3);
        if (how == 1) snprintf(tr + n, sizeof tr - (size_t)n, "cache_read c 1 scratch K.0 loops N.1 K.1 N.2 N.3\n");
        if (how == 2) snprintf(tr + n, sizeof tr - (size_t)n, "prepack c 1 %s\n", rnd(&s, 2) ? "N.0 K.0 N.1 K.1 N.2 N.3" : "K.0 N.0 N.1 N.2 K.1 N.3");
        if (how == 2) strcat(in, ":const");
        const char *why = check(in, MM, &cpu, tr);
        if (why) fail_msg("%s\n%s%s", in, tr, why);
    }
}

static void test_random_conv(void **state)
{
    (void)state;
    unsigned s = 11;
    for (int i = 0; i < 24; i++) {
        char in[96], text[200], tr[1024];
        unsigned h = 3 + rnd(&s, 6), w = 3 + rnd(&s, 8), r = 1 + rnd(&s, 3), st = 1 + rnd(&s, 2), c = 1 + rnd(&s, 3), f = 1 + rnd(&s, 5);
        unsigned pad = r / 2, ph = (h + 2 * pad - r) / st + 1, pw = (w + 2 * pad - r) / st + 1;
        snprintf(in, sizeof in, "x=f32:%ux%ux%u&w=f32:%ux%ux%ux%u", c, h, w, f, c, r, r);
        snprintf(text, sizeof text, "o[F,P,Q] +=! pad(x, 0.0)[C,P*%u+R-%u,Q*%u+S-%u]*w[F,C,R,S] where P in %u, Q in %u", st, pad, st,
            pad, ph, pw);
        int n = snprintf(
            tr, sizeof tr,
            "split o F 1 %u\nsplit o P 2\nsplit o Q 2 4\nsplit o C 2\nreorder o F.0 P.0 | C.0 | F.1 P.1 Q.0 | C.1 R.0 S.0 | F.2 Q.1 Q.2\n"
            "parallel o F.0\nparallel o P.0\nunroll o F.2\nunroll o Q.1\nvectorize o Q.2\n",
            1 + rnd(&s, 3));
        if (rnd(&s, 2)) n += snprintf(tr + n, sizeof tr - (size_t)n, "cache_read o 0 scratch %s region\n", rnd(&s, 2) ? "C.0" : "P.0");
        unsigned how = rnd(&s, 3);
        if (how == 1) snprintf(tr + n, sizeof tr - (size_t)n, "cache_read o 1 scratch C.0 loops F.1 C.1 R.0 S.0 F.2\n");
        if (how == 2) snprintf(tr + n, sizeof tr - (size_t)n, "prepack o 1 F.0 C.0 F.1 C.1 R.0 S.0 F.2\n");
        if (how == 2) strcat(in, ":const");
        const char *why = check(in, text, &cpu, tr);
        if (why) fail_msg("%s\n%s\n%s%s", in, text, tr, why);
    }
}

static void test_random_gpu(void **state)
{
    (void)state;
    unsigned s = 5;
    for (int i = 0; i < 30; i++) {
        char in[96], tr[1024];
        unsigned k = 1 + rnd(&s, 19), pad = rnd(&s, 2);
        snprintf(in, sizeof in, "a=f32:%ux%u&b=f32:%ux%u", 1 + rnd(&s, 13), k, k, 1 + rnd(&s, 17));
        int n = snprintf(
            tr, sizeof tr,
            "split c M %u %u\nsplit c N %u %u\nsplit c K %u %u\nreorder c M.0 N.0 | M.2 N.2 K.2 | K.0 | K.1 | M.1 N.1\nbind c M.0 grid\n"
            "bind c N.0 grid\nbind c M.2 thread\nbind c N.2 thread\nbind c K.2 thread\nrfactor c K.2\nbind c M.1 vthread\nbind c N.1 "
            "vthread\n",
            1 + rnd(&s, 3), 1 + rnd(&s, 3), 1 + rnd(&s, 3), 1 + rnd(&s, 3), 1 + rnd(&s, 4), 1 + rnd(&s, 3));
        if (rnd(&s, 2)) n += snprintf(tr + n, sizeof tr - (size_t)n, "cache_read c 0 shared K.0 loops M.1 M.2 K.1 K.2 pad %u\n", pad);
        if (rnd(&s, 2)) snprintf(tr + n, sizeof tr - (size_t)n, "cache_read c 1 shared K.0 loops K.1 K.2 N.1 N.2\n");
        const char *why = check(in, MM, &gpu, tr);
        if (why) fail_msg("%s\n%s%s", in, tr, why);
    }
}

int main(void)
{
    kiln_arena *a = kiln_arena_open(&(kiln_host){ NULL, mem, NULL });
    add_instructions(a, &cpu);
    add_instructions(a, &gpu);
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_cases), cmocka_unit_test(test_held), cmocka_unit_test(test_random_matmul),
                                        cmocka_unit_test(test_panels_end_with_their_axis),
                                        cmocka_unit_test(test_random_conv), cmocka_unit_test(test_random_gpu) };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kiln_arena_close(a);
    return failed;
}
