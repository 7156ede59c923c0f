/* Shapes of data tiles and the quantities computed from them, as the published ROLLER artifact defines them (OSDI'22; Op.py). */
#include "construct/roller.h"
#include <string.h>

static bool same_access(const kn_expr *x, const kn_expr *y)
{
    if (x->u.tensor != y->u.tensor || x->nargs != y->nargs) return false;
    for (int i = 0; i < x->nargs; i++)
        if (!kn_expr_equal(x->args[i], y->args[i])) return false;
    return true;
}

/* Dimensions of one access over fused axes: bare axes of one group are one dimension, everything else keeps its own. */
static bool fused_access(const kn_expr *load, const int *group, const int *members, kn_roller_operand *o)
{
    uint32_t done = 0;
    for (int k = 0; k < load->nargs; k++) {
        kn_affine x;
        if (!kn_affine_of(load->args[k], &x)) return false;
        bool bare = load->args[k]->op == KN_OP_AXIS && members[group[load->args[k]->u.axis]] > 1;
        if (bare && done >> group[load->args[k]->u.axis] & 1) continue;
        kn_affine *out = &o->index[o->rank++];
        *out = (kn_affine){.offset = x.offset};
        if (bare) {
            out->coef[group[load->args[k]->u.axis]] = 1;
            done |= 1u << group[load->args[k]->u.axis];
            continue;
        }
        for (int i = 0; i < KILN_MAX_AXES; i++)
            if (x.coef[i]) out->coef[group[i]] += x.coef[i];
    }
    return true;
}

/* out[F, P] +=! x[F, K] * y[K, P] */
static void gemm_view(const kn_program *p, const kn_stmt *s, const int *group, kn_roller_view *v)
{
    const kn_expr *loads[2];
    kn_loads(s->body, loads, 2);
    v->nspatial = 2;
    v->nreduce = 1;
    for (int i = 0; i < 3; i++) v->full[i] = 1;
    for (int i = 0; i < s->naxes; i++) v->full[group[i]] *= s->axes[i].extent;
    v->nin = 2;
    for (int i = 0; i < 2; i++) {
        uint32_t axes = kn_axes_in(loads[i]);
        bool second = false;
        for (int k = 0; k < s->nspatial; k++) second = second || ((axes >> k & 1) && group[k] == 1);
        kn_roller_operand *o = &v->in[second];
        o->rank = 2;
        o->bytes = kn_dtype_bytes(p->tensors[loads[i]->u.tensor].dtype);
        o->index[0].coef[second ? 2 : 0] = 1;
        o->index[1].coef[second ? 1 : 2] = 1;
    }
}

kiln_status kn_roller_view_of(const kn_program *p, int stmt, kn_roller_view *v, int *group, kiln_diag *d)
{
    const kn_stmt *s = p->stmts[stmt];
    const kn_expr *loads[KN_ROLLER_OPERANDS];
    memset(v, 0, sizeof *v);
    v->out_bytes = kn_dtype_bytes(p->tensors[s->out].dtype);
    if (kn_roller_gemm_groups(s, group)) {
        gemm_view(p, s, group, v);
        return KILN_OK;
    }
    int axes = kn_roller_fuse_groups(s, group), members[KILN_MAX_AXES] = {0};
    v->nspatial = s->nspatial ? group[s->nspatial - 1] + 1 : 0;
    v->nreduce = axes - v->nspatial;
    for (int i = 0; i < axes; i++) v->full[i] = 1;
    for (int i = 0; i < s->naxes; i++) {
        v->full[group[i]] *= s->axes[i].extent;
        members[group[i]]++;
    }
    int n = kn_loads(s->body, loads, KN_ROLLER_OPERANDS);
    if (n > KN_ROLLER_OPERANDS) n = KN_ROLLER_OPERANDS;
    for (int i = 0; i < n; i++) {
        bool again = false;
        for (int k = 0; k < i && !again; k++) again = same_access(loads[i], loads[k]);
        if (again) continue;
        kn_roller_operand *o = &v->in[v->nin++];
        o->bytes = kn_dtype_bytes(p->tensors[loads[i]->u.tensor].dtype);
        if (!fused_access(loads[i], group, members, o))
            return kn_fail(d, KILN_UNSUPPORTED, "policy roller wants affine indices; statement %d reads %s otherwise", stmt + 1,
                           p->tensors[loads[i]->u.tensor].name);
    }
    /* The artifact sizes a pooling window (a reduction of one operand) without the padding around it. */
    v->clip_padding = v->nin == 1 && v->nreduce > 0;
    return KILN_OK;
}

/* Extent of dimension k of an operand's data tile: sum |c| * (t - 1) + 1 over the axes (research: ROLLER 1.2). */
int64_t kn_roller_dim(const kn_roller_view *v, const kn_roller_operand *o, int k, const int64_t *t)
{
    int64_t extent = 1;
    for (int i = 0; i < v->nspatial + v->nreduce; i++) {
        int64_t c = o->index[k].coef[i] < 0 ? -o->index[k].coef[i] : o->index[k].coef[i];
        extent += c * (t[i] - 1);
    }
    if (v->clip_padding && o->index[k].offset < 0) extent += 2 * o->index[k].offset;
    return extent;
}

static double operand_elems(const kn_roller_view *v, const kn_roller_operand *o, const int64_t *t)
{
    double n = 1;
    for (int k = 0; k < o->rank; k++) n *= (double)kn_roller_dim(v, o, k, t);
    return n;
}

static double out_elems(const kn_roller_view *v, const int64_t *t)
{
    double n = 1;
    for (int i = 0; i < v->nspatial; i++) n *= (double)t[i];
    return n;
}

/* Reduce sizes rounded up to whole steps: the tile's whole reduction. */
static void whole_reduction(const kn_roller_view *v, const int64_t *t, int64_t *out)
{
    for (int i = 0; i < v->nspatial + v->nreduce; i++) out[i] = i < v->nspatial ? t[i] : kn_round_up(v->full[i], t[i]);
}

double kn_roller_compute(const kn_roller_view *v, const int64_t *t)
{
    int64_t whole[KILN_MAX_AXES];
    whole_reduction(v, t, whole);
    double n = out_elems(v, t);
    for (int i = v->nspatial; i < v->nspatial + v->nreduce; i++) n *= (double)whole[i];
    return n * v->out_bytes / 2;
}

double kn_roller_in_bytes(const kn_roller_view *v, const int64_t *t)
{
    int64_t whole[KILN_MAX_AXES];
    double n = 0;
    whole_reduction(v, t, whole);
    for (int i = 0; i < v->nin; i++) n += operand_elems(v, &v->in[i], whole) * v->in[i].bytes;
    return n;
}

double kn_roller_traffic(const kn_roller_view *v, const int64_t *t)
{
    return kn_roller_in_bytes(v, t) + out_elems(v, t) * v->out_bytes;
}

double kn_roller_footprint(const kn_roller_view *v, const int64_t *t)
{
    double n = 0;
    for (int i = 0; i < v->nin; i++) n += operand_elems(v, &v->in[i], t) * v->in[i].bytes;
    return n;
}

double kn_roller_regs(const kn_roller_view *v, const int64_t *t)
{
    double n = out_elems(v, t);
    for (int i = 0; i < v->nin; i++) n += operand_elems(v, &v->in[i], t);
    return n * v->out_bytes / 4;
}

/* Does reuse grow with the tile? The artifact's test on tiles of 0.1 .. 0.9 of every axis: compute per input byte must rise by more than
 * 2 everywhere and by more than 4 on average (Op.IODependent). */
bool kn_roller_io_dependent(const kn_roller_view *v)
{
    double previous = 0, least = 0, sum = 0;
    for (int step = 1; step <= 9; step++) {
        double x = (double)step / 10, n = 1;
        int64_t t[KILN_MAX_AXES];
        for (int i = 0; i < v->nspatial + v->nreduce; i++) {
            t[i] = (int64_t)(x * (double)v->full[i]);
            if (t[i] < 1) t[i] = 1;
            n *= (double)t[i];
        }
        double y = n / kn_roller_in_bytes(v, t), slope = (y - previous) / 0.1;
        if (step == 2 || (step > 2 && slope < least)) least = slope;
        if (step > 1) sum += slope;
        previous = y;
    }
    return least > 2 && sum / 8 > 4;
}
