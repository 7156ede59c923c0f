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
    if (overflows && flags & (VERIFY_EXTREME | VERIFY_BIG) && !isfinite(got)) {
        return 0; /* a step on the way leaves the dtype's range, though not that of the reference: inf - inf, inf * 0 */
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

static bool compare_output(const verify_check *c, kiln_ref *ref, reader *r, int output, double until, worker_verdict *v, bool *broken)
{
    kiln_arg a;
    verify_points points;
    judge j = {.exact = c->job->source[c->kind].kind == VERIFY_INTEGER && verify_text_is_exact(c->text)};
    int64_t index, done = 0, tried = 0;
    kiln_program_output(c->program, output, &a);
    verify_dtype_find(a.dtype, &j.dtype);
    kiln_tolerance(c->program, output, &j.rtol, &j.atol);
    v->rtol = j.rtol > v->rtol ? j.rtol : v->rtol;
    v->atol = j.atol > v->atol ? j.atol : v->atol;
    double start = verify_now_ms(), hard = start + OVER_BUDGET * (until - start) + 20;
    verify_points_open(&points, &a, c->job->source[c->kind].seed + (uint64_t)output);
    while (done < MOST && verify_points_next(&points, &index) && tried++ < 1 << 20) {
        const char *array = c->outputs[output];
        int bytes = verify_dtype_bytes(j.dtype);
        if (c->sparse && is_poison(array + index * bytes, bytes)) {
            continue;
        }
        double now = verify_now_ms(), value, scale;
        if (done >= 2 && (now > hard || (done >= LEAST && now > until))) {
            break;
        }
        r->flags = 0;
        if (kiln_ref_at(ref, output, index, &value, &scale) != KILN_OK) {
            snprintf(v->detail, sizeof v->detail, "the reference could not compute output %d, element %lld", output, (long long)index);
            *broken = true;
            return false;
        }
        double got = verify_load(j.dtype, array, index), error = error_of(&j, got, value, scale, r->flags);
        done++;
        v->checked++;
        if (error > 1 && (r->flags & VERIFY_EXTREME)) {
            continue; /* single precision may leave its range where double does not: says nothing */
        }
        if (error > v->max_error) {
            v->max_error = error;
        }
        if (error > 1) {
            describe(&a, output, index, c->job->source[c->kind].kind, got, value, error, v);
            return false;
        }
    }
    return true;
}

bool verify_compare(const verify_check *c, worker_verdict *v, bool *broken)
{
    kiln_diag d = {0};
    kiln_ref *ref = NULL;
    reader r = {.source = &c->job->source[c->kind]};
    kiln_arena *arena = worker_arena(NULL);
    int nout = kiln_program_outputs(c->program);
    bool ok = arena != NULL;
    for (int i = 0; i < kiln_program_inputs(c->program); i++) {
        r.dtype[i] = (verify_dtype)c->job->args[i].dtype;
    }
    if (!ok || kiln_ref_open(arena, c->program, read_input, &r, &ref, &d) != KILN_OK) {
        snprintf(v->detail, sizeof v->detail, "the reference cannot run this program: %.300s", arena ? d.message : "out of memory");
        *broken = true;
        ok = false;
    }
    for (int o = 0; o < nout && ok; o++) {
        ok = compare_output(c, ref, &r, o, verify_now_ms() + c->budget_ms / nout, v, broken);
    }
    kiln_arena_close(arena);
    return ok;
}
