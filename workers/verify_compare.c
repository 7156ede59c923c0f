/* Compares sampled output elements with the reference, within the tolerance of the program. */
#include "workers/arena.h"
#include "workers/verify.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL = 2048, LEAST = 32, MOST = 4096, OVER_BUDGET = 4 };

bool verify_text_is_exact(const char *text)
{
    static const char *const inexact[] = {"/", "%", "exp", "log", "sqrt", "tanh", "erf", "sin", "cos", "pow", "sigmoid"};
    for (size_t i = 0; i < sizeof inexact / sizeof *inexact; i++) {
        if (strstr(text, inexact[i])) {
            return false;
        }
    }
    for (const char *c = text; *c; c++) { /* "0.125", "1e-5" */
        bool fraction = *c == '.' && isdigit((unsigned char)c[1]) && !(c[1] == '0' && !isalnum((unsigned char)c[2]));
        if (fraction || (*c == 'e' && c[1] == '-' && isdigit((unsigned char)c[2]))) {
            return false;
        }
    }
    return true;
}

bool verify_text_is_elementwise(const char *text) { return strstr(text, "=!") == NULL && strstr(text, "=.") == NULL; }

/* Coordinates that tiles like to get wrong. */
static int64_t boundary(int64_t extent, uint64_t h)
{
    static const int64_t near[] = {0, 1, 3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128};
    int64_t x = near[h % (sizeof near / sizeof *near)];
    switch (h >> 8 & 3) {
    case 0: return extent - 1;
    case 1: return x < extent ? extent - 1 - x : 0;
    case 2: return x < extent ? x : extent - 1;
    default: return (int64_t)((h >> 16) % (uint64_t)extent);
    }
}

void verify_points_open(verify_points *p, const kiln_arg *arg, uint64_t seed)
{
    *p = (verify_points){.arg = arg, .seed = seed, .n = arg->elems};
}

bool verify_points_next(verify_points *p, int64_t *index)
{
    const kiln_arg *a = p->arg;
    int64_t i = p->i++, corners = a->rank <= 5 ? INT64_C(1) << a->rank : 32, at = 0;
    uint64_t h = verify_mix(p->seed + (uint64_t)i * 3);
    if (p->n <= SMALL) { /* all, in an order that spreads: 1229 is a prime and no small output's divisor but its own */
        *index = p->n % 1229 ? i * 1229 % p->n : i;
        return i < p->n;
    }
    for (int d = 0; d < a->rank; d++) {
        int64_t n = a->shape[d], x;
        if (i < corners) {
            x = i >> (a->rank - 1 - d) & 1 ? n - 1 : 0;
        } else {
            h = verify_mix(h);
            x = i & 1 ? boundary(n, h) : (int64_t)((h >> 8) % (uint64_t)n);
        }
        at = at * n + x;
    }
    *index = i == 1 ? p->n - 1 : at; /* the last one is second, whatever the budget */
    return true;
}

/* What one evaluation of the reference read. */
typedef struct reader { const verify_source *source; verify_dtype dtype[VERIFY_MAX_ARGS]; int flags; } reader;

static double read_input(void *user, int input, int64_t index)
{
    reader *r = user;
    return verify_input(r->source, r->dtype[input], input, index, &r->flags);
}

typedef struct judge { verify_dtype dtype; double rtol, atol; bool exact; } judge;

/* Error over what is allowed: <= 1 passes. */
static double error_of(const judge *j, double got, double ref, double scale, int flags)
{
    double bound = j->rtol * scale + j->atol, error;
    double loose = flags & VERIFY_BIG ? 64 : 1; /* |x| = 96 in exp() magnifies the argument's rounding */
    if (!verify_dtype_is_float(j->dtype)) {
        if (isinf(scale)) return 0; /* what a float or a product beyond the integers becomes is open, or not known here */
        double span = ldexp(1, 8 * verify_dtype_bytes(j->dtype));
        error = fabs(got - ref);
        if (error <= (j->exact ? 0 : bound) || (span < 9e15 && fabs(ref) < 9e15 && fmod(error, span) == 0)) {
            return 0; /* equal, or equal after wrapping */
        }
        return error / (bound > 0 ? bound : 0.5);
    }
    if (isnan(ref)) {
        return isnan(got) ? 0 : INFINITY;
    }
    if (isnan(scale)) {
        return 0; /* an infinity times what rounding may have made zero is in it */
    }
    bool overflows = scale > verify_dtype_max(j->dtype) && (isfinite(scale) || isinf(ref));
    if (overflows && !isfinite(got)) {
        return 0; /* a step on the way leaves the dtype's range, though not that of the reference: inf - inf, inf * 0. The scale alone tells: what
                   * was read for an intermediate value that another element had computed is not among the flags */
    }
    if (isnan(got)) {
        return INFINITY;
    }
    if (fabs(ref) > verify_dtype_max(j->dtype)) { /* overflows when stored; near the edge rounding decides */
        return (isinf(got) || fabs(got) > 0.99 * verify_dtype_max(j->dtype)) && (got > 0) == (ref > 0) ? 0 : INFINITY;
    }
    error = fabs(got - ref);
    if (j->exact && fabs(ref) <= verify_dtype_exact(j->dtype) && scale <= (j->dtype == VERIFY_F64 ? 9007199254740992.0 : 16777216.0)) {
        return error == 0 ? 0 : error / (bound > 0 ? bound : 1) + 1; /* no rounding anywhere: equal or wrong */
    }
    return error == 0 ? 0 : error / (loose * bound + verify_dtype_tiny(j->dtype));
}

static const char *kind_name(int kind) { return kind == VERIFY_RANDOM ? "random" : kind == VERIFY_INTEGER ? "integer-exact" : "edge"; }

static void describe(const kiln_arg *a, int output, int64_t index, int kind, double got, double ref, double error, worker_verdict *v)
{
    char at[200] = "";
    int64_t coord[KILN_MAX_RANK], rest = index;
    for (int d = a->rank - 1; d >= 0; d--) {
        coord[d] = rest % a->shape[d];
        rest /= a->shape[d];
    }
    for (int d = 0, n = 0; d < a->rank && n < (int)sizeof at; d++) {
        n += snprintf(at + n, sizeof at - (size_t)n, "%s%lld", d ? "," : "", (long long)coord[d]);
    }
    snprintf(v->detail, sizeof v->detail, "output %d[%s] is %.9g, the reference says %.9g (%s inputs, %.3g times the tolerance)",
             output, at, got, ref, kind_name(kind), error);
}

static bool is_poison(const char *p, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        if ((unsigned char)p[i] != VERIFY_POISON_A) {
            return false;
        }
    }
    return true;
}

/* The elements of one output that are compared, and what the reference says of them. */
typedef struct walk {
    const verify_check *check;
    kiln_ref *ref;
    reader *reader;
    int output, bytes;
    double until, hard;
    int64_t done, tried;
    kiln_arg arg;
    verify_points points;
} walk;
enum step { STEP_END, STEP_ELEMENT, STEP_BROKEN };

static void walk_open(walk *w, const verify_check *c, kiln_ref *ref, reader *r, int output)
{
    double start = verify_work_ms(), budget = c->budget_ms / c->job->nout;
    *w = (walk){.check = c, .ref = ref, .reader = r, .output = output, .until = start + budget, .hard = start + OVER_BUDGET * budget + 20};
    kiln_program_output(c->program, output, &w->arg);
    w->bytes = (int)(w->arg.bytes / w->arg.elems);
    verify_points_open(&w->points, &w->arg, c->job->source[c->kind].seed + (uint64_t)output);
}

static enum step walk_next(walk *w, verify_expected *x)
{
    const verify_check *c = w->check;
    while (w->done < MOST && verify_points_next(&w->points, &x->index) && w->tried++ < 1 << 20) {
        if (c->sparse && is_poison(c->outputs[w->output] + x->index * w->bytes, w->bytes)) {
            continue;
        }
        double now = verify_work_ms();
        if (w->done >= 2 && (now > w->hard || (w->done >= LEAST && now > w->until))) {
            return STEP_END;
        }
        w->reader->flags = 0;
        if (kiln_ref_at(w->ref, w->output, x->index, &x->value, &x->scale) != KILN_OK) {
            return STEP_BROKEN;
        }
        x->flags = w->reader->flags;
        w->done++;
        return STEP_ELEMENT;
    }
    return STEP_END;
}

/* known: the elements that were computed beforehand; NULL: none were. */
static bool compare_output(const verify_check *c, walk *w, const verify_expected *known, int64_t nknown, worker_verdict *v, bool *broken)
{
    judge j = {.exact = c->job->source[c->kind].kind == VERIFY_INTEGER && verify_text_is_exact(c->text)};
    verify_expected x;
    verify_dtype_find(w->arg.dtype, &j.dtype);
    kiln_tolerance(c->program, w->output, &j.rtol, &j.atol);
    v->rtol = j.rtol > v->rtol ? j.rtol : v->rtol;
    v->atol = j.atol > v->atol ? j.atol : v->atol;
    for (int64_t i = 0; known == NULL || i < nknown; i++) {
        enum step step = STEP_ELEMENT;
        if (known != NULL) {
            x = known[i];
        } else {
            step = walk_next(w, &x);
        }
        if (step == STEP_END) {
            break;
        }
        if (step == STEP_BROKEN) {
            snprintf(v->detail, sizeof v->detail, "the reference could not compute output %d, element %lld", w->output, (long long)x.index);
            *broken = true;
            return false;
        }
        double got = verify_load(j.dtype, c->outputs[w->output], x.index), error = error_of(&j, got, x.value, x.scale, x.flags);
        v->checked++;
        if (error > 1 && (x.flags & VERIFY_EXTREME)) {
            continue; /* single precision may leave its range where double does not: says nothing */
        }
        if (error > v->max_error) {
            v->max_error = error;
        }
        if (error > 1) {
            describe(&w->arg, w->output, x.index, c->job->source[c->kind].kind, got, x.value, error, v);
            return false;
        }
    }
    return true;
}

static bool open_reference(const verify_check *c, kiln_arena *arena, reader *r, kiln_ref **ref, kiln_diag *d)
{
    *r = (reader){.source = &c->job->source[c->kind]};
    for (int i = 0; i < c->job->nin; i++) {
        r->dtype[i] = (verify_dtype)c->job->args[i].dtype;
    }
    return arena != NULL && kiln_ref_open(arena, c->program, read_input, r, ref, d) == KILN_OK;
}

void verify_expect(const verify_check *c, verify_expectations *out)
{
    kiln_diag d = {0};
    kiln_ref *ref = NULL;
    reader r;
    walk w;
    kiln_arena *arena = worker_arena(NULL);
    int64_t n = 0;
    *out = (verify_expectations){.x = malloc((size_t)c->job->nout * MOST * sizeof *out->x)};
    bool ok = out->x != NULL && open_reference(c, arena, &r, &ref, &d);
    for (int o = 0; o < c->job->nout && ok; o++) {
        enum step step;
        walk_open(&w, c, ref, &r, o);
        while ((step = walk_next(&w, &out->x[n])) == STEP_ELEMENT) {
            n++;
        }
        out->n[o] = w.done;
        ok = step == STEP_END;
    }
    kiln_arena_close(arena);
    if (!ok) { /* who compares finds out again, and says why */
        free(out->x);
        out->x = NULL;
    }
}

bool verify_compare(const verify_check *c, worker_verdict *v, bool *broken)
{
    kiln_diag d = {0};
    kiln_ref *ref = NULL;
    reader r;
    walk w;
    const verify_expected *known = c->known != NULL ? c->known->x : NULL;
    kiln_arena *arena = known == NULL ? worker_arena(NULL) : NULL;
    bool ok = known != NULL || open_reference(c, arena, &r, &ref, &d);
    if (!ok) {
        snprintf(v->detail, sizeof v->detail, "the reference cannot run this program: %.300s", arena ? d.message : "out of memory");
        *broken = true;
    }
    for (int o = 0; o < c->job->nout && ok; o++) {
        walk_open(&w, c, ref, &r, o);
        ok = compare_output(c, &w, known, known != NULL ? c->known->n[o] : 0, v, broken);
        known += known != NULL ? c->known->n[o] : 0;
    }
    kiln_arena_close(arena);
    return ok;
}
