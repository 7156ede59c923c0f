/* Programs that are lowered and run in the bounds-checked interpreter of loop programs, against the reference's values. Included by tests. */
#include "tests/arena.h"
#include "tests/unit/device.h"
#include "codegen/codegen.h"
#include "construct/construct.h"
#include "te/ref.h"
#include "tests/unit/lprog_eval.c"
#include <stdarg.h>
#include <setjmp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static int64_t elems_of(const kn_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->shape[i];
    return n;
}

/* Small eighths: exact in every dtype here, so sums compare to rounding of the last steps only. */
static void fresh(const kn_program *p, double **x)
{
    for (int t = 0; t < p->ntensors; t++) {
        int64_t n = elems_of(&p->tensors[t]);
        x[t] = calloc((size_t)n, sizeof(double));
        char class = kn_dtype_class(p->tensors[t].dtype);
        for (int64_t k = 0; k < n && t < p->ninputs; k++)
            x[t][k] = (double)((k * 37 + t * 11) % 23 - (class == 'u' ? 0 : 11)) / (class == 'f' ? 8 : 1);
    }
}

static void discard(double **x, int n)
{
    for (int t = 0; t < n; t++) free(x[t]);
}

static kn_lprog *lowered(kiln_arena *a, const kn_program *p, const kn_hw *hw, kiln_bytes trace, const char *what)
{
    kn_tree *t;
    kn_lprog *l = NULL;
    kiln_diag d = {0};
    if (kn_trace_apply(a, p, hw, trace, &t, &d) || kn_lower(a, t, hw, &l, &d) || kn_lprog_check(l, &d))
        fail_msg("%s: %s\n%s", what, d.message, trace.p);
    return l;
}

static void run_one(kiln_arena *a, const kn_program *p, const kn_hw *hw, kiln_bytes trace, double *const *want, const char *what)
{
    kiln_diag d = {0};
    double *got[KILN_MAX_TENSORS] = {0};
    kn_lprog *l = lowered(a, p, hw, trace, what);
    kiln_bytes source, header;
    if (!hw->gpu && kn_language_find("c")->print(a, l, "kiln_test", &source, &header, &d)) fail_msg("%s: %s\n%s", what, d.message, trace.p);
    fresh(p, got);
    const char *bad = lprog_eval(l, got);
    if (bad) fail_msg("%s: %s\n%s", what, bad, trace.p);
    for (int i = p->ninputs; i < p->ninputs + p->noutputs; i++)
        for (int64_t k = 0; k < elems_of(&p->tensors[i]); k++)
            if (!(fabs(want[i][k] - got[i][k]) <= 1e-4 * (1 + fabs(want[i][k]))))
                fail_msg("%s: %s[%lld] is %g, not %g\n%s", what, p->tensors[i].name, (long long)k, got[i][k], want[i][k], trace.p);
    discard(got, p->ntensors);
}

/* The same against what the reference computes of the inputs. */
static void run_checked(kiln_arena *a, const kn_program *p, const kn_hw *hw, kiln_bytes trace, const char *what)
{
    kiln_diag d = {0};
    double *want[KILN_MAX_TENSORS] = {0};
    fresh(p, want);
    if (kn_ref_all(a, p, want, &d)) fail_msg("%s: %s", what, d.message);
    run_one(a, p, hw, trace, want, what);
    discard(want, p->ntensors);
}

static kiln_bytes text_of(const char *s) { return (kiln_bytes){s, s ? strlen(s) : 0}; }

static kn_program *parsed(kiln_arena *a, const char *text, const char *inputs)
{
    kn_program *p;
    kiln_diag d = {0};
    if (kn_parse(a, text_of(text), text_of(inputs), &p, &d)) fail_msg("%s of %s: %s", text, inputs, d.message);
    return p;
}

/* The program, in the canonical form of a request's, and up to `most` candidates of the default policy. */
static kiln_candidates *constructed(kiln_arena *a, const char *text, const char *inputs, const kn_hw *hw, int most, kn_program **canonical)
{
    int in[KILN_MAX_TENSORS], out[KILN_MAX_TENSORS];
    kiln_diag d = {0};
    kiln_candidates *list = NULL;
    if (kn_canon(a, parsed(a, text, inputs), canonical, in, out, &d) ||
        kn_policy_find("default")->construct(a, *canonical, hw, most, &list, &d))
        fail_msg("%s of %s: %s", text, inputs, d.message);
    return list;
}

/* A program on a device, and the trace of its first candidate. The caller closes the arena, which holds the rest. */
typedef struct opened {
    kiln_arena *a;
    kn_hw *hw;
    kn_program *p;
    kiln_bytes trace;
} opened;

static inline opened first_of(const char *id, const char *text, const char *inputs)
{
    opened o = {.a = kiln_arena_open(&(kiln_host){NULL, mem, NULL})};
    o.hw = device(o.a, id);
    o.trace = constructed(o.a, text, inputs, o.hw, 1, &o.p)->c[0].trace;
    return o;
}
