/* Terms that padding makes nothing of a reduction are left out: rows of a window that lie outside of what it goes over. Where those are, is an affine
 * condition on one spatial axis and one axis of the reduction, so that whichever of their loops is opened last runs over less. A factor that is not
 * finite, which would make something of a zero, is not looked at there; libraries for convolutions do the same. */
#include "lower/lower.h"
#include "te/expr.h"
#include <math.h>

/* What the reduction takes for nothing, where the load is outside: zeros among factors of a sum, infinities of a maximum. */
static bool is_nothing(enum kn_reduce red, const kn_expr *body, const kn_expr *load, double pad)
{
    if (body == load) {
        if (red == KN_RED_SUM) return pad == 0;
        return kn_dtype_class(load->dtype) == 'f' && pad == (red == KN_RED_MAX ? -INFINITY : INFINITY) && (red == KN_RED_MAX || red == KN_RED_MIN);
    }
    if (red != KN_RED_SUM || (body->op != KN_OP_MUL && body->op != KN_OP_CAST)) return false;
    for (int i = 0; i < body->nargs; i++)
        if (is_nothing(red, body->args[i], load, pad)) return true;
    return false;
}

/* The only loop of the axis that comes round more than once; -1: there are more, or it is none that is walked through. */
static int only_loop(const kn_sg *sg, int axis)
{
    int found = -1;
    for (int i = 0; i < sg->g->nloops; i++) {
        const kn_loop *l = &sg->g->loops[i];
        if (l->axis != axis || l->extent == 1) continue;
        if (found >= 0 || l->kind != KN_SERIAL || l->stride != 1 || l->rfactor || l->extent != sg->s->axes[axis].extent) return -1;
        found = i;
    }
    return found;
}

/* The loops of the places stand around register tiles; an instruction's results, which are walked through once more at their end, around the
 * reduction's loop too. */
static bool walked(const kn_sg *sg, int axis, int reduce)
{
    int inside = sg->g->tensor.intrin ? reduce : sg->tile;
    for (int i = 0; i < sg->g->nloops; i++)
        if (sg->g->loops[i].axis == axis && sg->g->loops[i].extent > 1 && (i >= inside || kn_is_register(sg->g->loops[i].kind))) return false;
    return true;
}

/* Iterations that are inside, for the index of the first one and its step; one that goes backwards (transposed convolutions) counts from the end. */
static int64_t inside_of(const kn_skip *k, int64_t at, int64_t extent)
{
    int64_t index = k->from + k->by_spatial * at, step = k->by_reduce < 0 ? -k->by_reduce : k->by_reduce;
    if (k->by_reduce < 0) index = k->extent - 1 - index;
    int64_t lo = kn_floor_div(step - 1 - index, step), hi = kn_floor_div(k->extent - 1 - index, step) + 1;
    return (hi > extent ? extent : hi) - (lo < 0 ? 0 : lo);
}

/* Partial sums wait in memory between the loop's iterations, and between those of no other loop: the first of them begins the sum, another one
 * ends it. */
static bool begins_and_ends(const kn_sg *sg, int loop)
{
    for (int i = 0; i < sg->tile && loop < sg->tile; i++) {
        const kn_loop *l = &sg->g->loops[i];
        if (i != loop && sg->s->axes[l->axis].reduce && l->extent > 1 && only_loop(sg, l->axis) != i) return false;
    }
    return loop < sg->tile && sg->part < 0;
}

/* Every place has something to sum, and enough of the rest falls away. */
static bool pays(const kn_sg *sg, const kn_skip *k)
{
    enum { MOST_PLACES = 4096, WORTH = 100 };
    int64_t places = k->spatial < 0 ? 1 : sg->s->axes[k->spatial].extent, extent = sg->s->axes[k->reduce].extent, left = 0;
    int64_t fewest = begins_and_ends(sg, k->loop) ? 2 : 1;
    if (places > MOST_PLACES) return false;
    for (int64_t at = 0; at < places; at++) {
        int64_t n = inside_of(k, at, extent);
        if (n < fewest) return false;
        left += n;
    }
    return (places * extent - left) * WORTH >= places * extent;
}

/* Terms of one iteration of the reduction's loop, those of all places of the tile where it is written out: bounds that are not known ahead cost a few
 * instructions, and rolled loops. */
static bool long_enough(const kn_lw *w, const kn_sg *sg, int loop)
{
    enum { TERMS = 16 };
    int64_t n = 1, places = 1;
    bool text = loop >= sg->tile && w->hw->vector_registers < KN_LW_MANY;
    for (int i = 0; i < sg->g->nloops; i++) {
        const kn_loop *l = &sg->g->loops[i];
        bool reduce = sg->s->axes[l->axis].reduce, unrolled = i >= sg->tile && l->kind == KN_UNROLL;
        if (i == loop || (!reduce && !unrolled)) continue;
        text &= unrolled || l->extent == 1;
        if (!kn_mul_fits(reduce ? n : places, l->extent, reduce ? &n : &places)) return true;
    }
    return (text && n > 1 ? n * places : n) >= TERMS;
}

static bool skip_of(const kn_lw *w, const kn_sg *sg, const kn_affine *f, int64_t extent, kn_skip *k)
{
    *k = (kn_skip){.reduce = -1, .spatial = -1, .from = f->offset, .extent = extent};
    for (int a = 0; a < sg->s->naxes; a++) {
        if (!f->coef[a] || sg->s->axes[a].extent < 2) continue;
        int *axis = sg->s->axes[a].reduce ? &k->reduce : &k->spatial;
        if (*axis >= 0 || (f->coef[a] < 1 && !sg->s->axes[a].reduce)) return false;
        *axis = a;
        *(sg->s->axes[a].reduce ? &k->by_reduce : &k->by_spatial) = f->coef[a];
    }
    k->loop = k->reduce < 0 ? -1 : only_loop(sg, k->reduce);
    if (k->loop < 0 || (k->spatial >= 0 && !walked(sg, k->spatial, k->loop))) return false;
    return long_enough(w, sg, k->loop) && pays(sg, k);
}

static bool taken(const kn_sg *sg, const kn_skip *k)
{
    for (int i = 0; i < sg->nskips; i++)
        if (sg->skips[i].reduce == k->reduce || (k->spatial >= 0 && sg->skips[i].spatial == k->spatial)) return true;
    return false;
}

/* Somewhere the index is outside. */
static bool leaves(const kn_sg *sg, const kn_padded_dim *x)
{
    int64_t lo = x->at.offset, hi = lo;
    for (int a = 0; a < sg->s->naxes; a++) *(x->at.coef[a] < 0 ? &lo : &hi) += x->at.coef[a] * (sg->s->axes[a].extent - 1);
    return lo < 0 || hi >= x->extent;
}

void kn_lw_find_skips(const kn_lw *w, kn_sg *sg)
{
    const kn_program *p = w->p->program;
    if (w->hw->gpu || sg->s->scatter || sg->s->red == KN_RED_NONE || kn_lw_blocked(w, sg) >= 0) return;
    for (int i = 0; i < sg->g->ncaches; i++)
        if (sg->g->caches[i].copies) return; /* filled for iterations to come, from the first one on */
    for (int l = 0; l < sg->nloads; l++) {
        const kn_stmt *copy = sg->loads[l]->padded ? NULL : kn_padded_copy(p, sg->loads[l]->u.tensor);
        const kn_expr *from = copy ? copy->body : sg->loads[l];
        if (!from->padded || !is_nothing(sg->s->red, sg->s->body, sg->loads[l], from->pad_value)) continue;
        for (int d = 0; d < from->nargs && sg->npadded < KN_LW_SKIPS; d++) {
            kn_padded_dim *x = &sg->padded[sg->npadded];
            kn_skip k;
            x->extent = p->tensors[from->u.tensor].shape[d];
            if (!kn_padded_index(sg->loads[l], copy, d, &x->at) || !leaves(sg, x)) continue;
            sg->npadded++;
            if (skip_of(w, sg, &x->at, x->extent, &k) && !taken(sg, &k)) sg->skips[sg->nskips++] = k;
        }
    }
}

/* The loop is the last to be opened of those whose values say what is left out. */
static bool settles(const kn_sg *sg, const kn_skip *k, int loop)
{
    int axis = sg->g->loops[loop].axis;
    if (axis != k->reduce && axis != k->spatial) return false;
    for (int i = 0; i < sg->g->nloops; i++) {
        const kn_loop *l = &sg->g->loops[i];
        if (i != loop && (l->axis == k->reduce || l->axis == k->spatial) && l->extent > 1 && !sg->val[i]) return false;
    }
    return true;
}

bool kn_lw_skipped(kn_lw *w, const kn_sg *sg, kn_expr *const *av)
{
    for (int i = 0; i < sg->npadded; i++) {
        const kn_padded_dim *x = &sg->padded[i];
        int64_t lo = x->at.offset, hi = lo;
        for (int a = 0; a < sg->s->naxes; a++) {
            int64_t least, most, c = x->at.coef[a];
            if (!c) continue;
            kn_lw_range(w, av[a], &least, &most);
            if (least < 0) least = 0;
            if (most >= sg->s->axes[a].extent) most = sg->s->axes[a].extent - 1;
            lo += c * (c < 0 ? most : least);
            hi += c * (c < 0 ? least : most);
        }
        if (hi < 0 || lo >= x->extent) return true;
    }
    return false;
}

bool kn_lw_drawn_in(const kn_sg *sg, const kn_expr *index, int64_t extent)
{
    kn_affine at;
    for (int i = 0; i < sg->nskips && sg->drawn_in; i++) {
        const kn_skip *k = &sg->skips[i];
        bool same = k->extent == extent && kn_affine_of(index, &at) && at.offset == k->from;
        for (int a = 0; a < sg->s->naxes && same; a++)
            same = at.coef[a] == (a == k->reduce ? k->by_reduce : a == k->spatial ? k->by_spatial : 0) || sg->s->axes[a].extent < 2;
        if (same) return true;
    }
    return false;
}

static kn_expr *quotient(kn_lw *w, kn_expr *x, int64_t by) { return by == 1 ? x : kn_bin(w->a, KN_OP_FLOORDIV, x, kn_lw_int(w, by)); }

/* Iterations `step` apart in the index: the first that is inside, and the one behind the last; `at` is the index before the first. */
static kn_expr *inside_from(kn_lw *w, kn_expr *at, int64_t step)
{
    return quotient(w, kn_bin(w->a, KN_OP_SUB, kn_lw_int(w, step - 1), at), step);
}

static kn_expr *inside_to(kn_lw *w, kn_expr *at, int64_t step, int64_t extent)
{
    return quotient(w, kn_bin(w->a, KN_OP_SUB, kn_lw_int(w, extent - 1 + step), at), step);
}

/* Of a step backwards both as seen from the other end. */
static int64_t forward(kn_lw *w, const kn_skip *k, int64_t step, kn_expr **at)
{
    if (step < 0) *at = kn_lw_simp(w, kn_bin(w->a, KN_OP_SUB, kn_lw_int(w, k->extent - 1), *at));
    return step < 0 ? -step : step;
}

static kn_expr *index_at(kn_lw *w, const kn_sg *sg, const kn_skip *k, bool without_reduce)
{
    kn_expr *av[KILN_MAX_AXES], *at = kn_lw_int(w, k->from);
    kn_env_axes(w, sg, av);
    if (k->spatial >= 0) at = kn_bin(w->a, KN_OP_ADD, at, kn_bin(w->a, KN_OP_MUL, av[k->spatial], kn_lw_int(w, k->by_spatial)));
    if (!without_reduce) at = kn_bin(w->a, KN_OP_ADD, at, kn_bin(w->a, KN_OP_MUL, av[k->reduce], kn_lw_int(w, k->by_reduce)));
    return kn_lw_simp(w, at);
}

void kn_lw_skip(kn_lw *w, const kn_sg *sg, int loop, kn_expr **lo, kn_expr **hi)
{
    for (int i = 0; i < sg->nskips; i++) {
        const kn_skip *k = &sg->skips[i];
        const kn_loop *l = &sg->g->loops[loop];
        if (!settles(sg, k, loop)) continue;
        kn_expr *at = index_at(w, sg, k, false);
        int64_t step = forward(w, k, l->stride * (l->axis == k->reduce ? k->by_reduce : k->by_spatial), &at);
        *lo = kn_lw_simp(w, kn_bin(w->a, KN_OP_MAX, *lo, inside_from(w, at, step)));
        *hi = kn_lw_simp(w, kn_bin(w->a, KN_OP_MIN, *hi, inside_to(w, at, step, k->extent)));
    }
}

kn_expr *kn_lw_skip_end(kn_lw *w, const kn_sg *sg, int loop, bool last)
{
    const kn_loop *l = &sg->g->loops[loop];
    for (int i = 0; i < sg->nskips; i++) {
        const kn_skip *k = &sg->skips[i];
        if (k->loop != loop) continue;
        kn_expr *at = index_at(w, sg, k, true);
        int64_t step = forward(w, k, k->by_reduce, &at);
        if (!last) return kn_lw_simp(w, kn_bin(w->a, KN_OP_MAX, kn_lw_int(w, 0), inside_from(w, at, step)));
        kn_expr *end = kn_bin(w->a, KN_OP_MIN, kn_lw_int(w, l->extent), inside_to(w, at, step, k->extent));
        return kn_lw_simp(w, kn_bin(w->a, KN_OP_SUB, end, kn_lw_int(w, 1)));
    }
    return kn_lw_int(w, last ? l->extent - 1 : 0);
}
