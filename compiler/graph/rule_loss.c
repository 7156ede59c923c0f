/* Rules of NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss: minus the log-probability of the target class, weighed by class, targets
 * of ignore_index left out, then summed or averaged. */
#include "graph/settle.h"
#include <string.h>

typedef struct loss {
    kn_raw *r;
    int x, target, ignored;
    int64_t shape[KILN_MAX_RANK];
    int rank;
} loss; /* shape: of the target; ignored: bool or -1 */

static int where(loss *l, int condition, int x, int y)
{
    int in[3] = {condition, x, y};
    return x < 0 || y < 0 ? -1 : kn_emit(l->r->s, "Where", 3, in, 0, NULL);
}

/* The target as i64, those to be ignored as class 0. */
static kiln_status targets(loss *l)
{
    kn_raw *r = l->r;
    const kn_value *x = &r->s->g->values[l->x], *t = kn_raw_in(r, 1);
    bool fits = t && x->rank >= 2 && t->rank == x->rank - 1 && kn_dtype_class(t->dtype) == 'i';
    for (int i = 0; fits && i < t->rank; i++) fits = t->shape[i] == x->shape[i ? i + 1 : 0];
    if (!fits) return kn_raw_bad(r, KILN_SHAPE, "scores [N, C, D1 ...] and classes [N, D1 ...] are right");
    l->rank = t->rank;
    memcpy(l->shape, t->shape, sizeof l->shape);
    l->target = kn_emit_cast(r->s, r->in[1], KN_I64);
    l->ignored = -1;
    if (!kn_node_attr(r->n, "ignore_index")) return l->target < 0 ? r->s->d->status : KILN_OK;
    int index = kn_emit_fill(r->s, KN_I64, 0, NULL, (double)kn_raw_int(r, "ignore_index", 0));
    l->ignored = kn_emit2(r->s, "Equal", l->target, index);
    l->target = l->ignored < 0 ? -1 : where(l, l->ignored, kn_emit_fill(r->s, KN_I64, 0, NULL, 0), l->target);
    return l->target < 0 ? r->s->d->status : KILN_OK;
}

/* Weight of every target; *out -1: all are one. */
static kiln_status weights(loss *l, int *out)
{
    kn_settle *s = l->r->s;
    kn_gattr axis = kn_gattr_int("axis", 0);
    int zero = kn_emit_scalar_like(s, l->x, 0);
    *out = -1;
    if (kn_raw_in(l->r, 2))
        *out = kn_emit(s, "Gather", 2, (int[]){l->r->in[2], l->target}, 1, &axis);
    else if (l->ignored >= 0)
        *out = kn_emit_scalar_like(s, l->x, 1);
    else
        return KILN_OK;
    if (*out >= 0 && l->ignored >= 0) *out = where(l, l->ignored, zero, *out);
    return *out < 0 ? s->d->status : KILN_OK;
}

static kiln_status finish(loss *l, int y, int w)
{
    kn_settle *s = l->r->s;
    kn_gattr flat = kn_gattr_int("keepdims", 0);
    const char *how = kn_raw_str(l->r, "reduction", "mean");
    if (w >= 0) y = kn_emit2(s, "Mul", y, w);
    if (y < 0 || !strcmp(how, "none")) return kn_raw_out(l->r, 0, y);
    if (strcmp(how, "sum") && strcmp(how, "mean"))
        return kn_raw_bad(l->r, KILN_REQUEST, "reduction \"%.40s\" is none of none, sum, mean", how);
    int total = kn_emit(s, *how == 'm' && w < 0 ? "ReduceMean" : "ReduceSum", 1, &y, 1, &flat);
    if (total < 0 || *how == 's' || w < 0) return kn_raw_out(l->r, 0, total);
    return kn_raw_out(l->r, 0, kn_emit2(s, "Div", total, kn_emit(s, "ReduceSum", 1, &w, 1, &flat)));
}

static kiln_status likelihood(kn_raw *r, int x)
{
    loss l = {.r = r, .x = x};
    kn_gattr axis = kn_gattr_int("axis", 1);
    int64_t column[KILN_MAX_RANK] = {0};
    int w;
    kiln_status s = targets(&l);
    if (s == KILN_OK) s = weights(&l, &w);
    if (s != KILN_OK) return s;
    for (int i = 0; i <= l.rank; i++) column[i] = i == 1 ? 1 : l.shape[i ? i - 1 : 0];
    int at = kn_emit_reshape(r->s, l.target, l.rank + 1, column);
    int y = at < 0 ? -1 : kn_emit(r->s, "GatherElements", 2, (int[]){x, at}, 1, &axis);
    y = kn_emit1(r->s, "Neg", kn_emit_reshape(r->s, y, l.rank, l.shape));
    return y < 0 ? r->s->d->status : finish(&l, y, w);
}

kiln_status kn_rule_nllloss(kn_raw *r)
{
    return kn_raw_in(r, 0) ? likelihood(r, r->in[0]) : kn_raw_bad(r, KILN_REQUEST, "input 0 is mandatory");
}

kiln_status kn_rule_crossentropy(kn_raw *r)
{
    kn_gattr axis = kn_gattr_int("axis", 1);
    if (!kn_raw_in(r, 0)) return kn_raw_bad(r, KILN_REQUEST, "input 0 is mandatory");
    int x = kn_emit(r->s, "LogSoftmax", 1, r->in, 1, &axis);
    kiln_status s = kn_raw_out(r, 1, x);
    return s == KILN_OK ? likelihood(r, x) : s;
}
