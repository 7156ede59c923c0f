/* Producers cover what is read from them, and no element is written by two iterations. */
#include "block/check.h"
#include "te/expr.h"

typedef struct outer { kn_ck *c; const kn_bnode *common; bool shared, keep; } outer;

/* Loops around both sides are fixed while one is compared with the other; the threads that fill shared memory together are not. */
static bool fixed(const outer *o, int var)
{
    for (const kn_bnode *p = o->common; p; p = p->parent)
        if (p->kind == KN_BN_LOOP && p->var == var && !(o->shared && p->loop == KN_THREAD)) return true;
    return !o->shared && o->common && o->c->b->vars[var]->loop == KN_THREAD;
}

static kn_expr *zero(void *user, kiln_arena *a, kn_expr *e)
{
    const outer *o = user;
    return e->op == KN_OP_VAR && fixed(o, e->u.var) != o->keep ? kn_const_i(a, KN_I64, 0) : e;
}

/* The part of e that the fixed loops make (keep), or the rest of it. */
static kn_expr *part(outer *o, const kn_expr *e, bool keep)
{
    kiln_arena *a = o->c->b->a;
    o->keep = keep;
    kn_expr *x = kn_rewrite(a, (kn_expr *)e, zero, o);
    return x ? kn_simplify(a, x, kn_block_var_range, (void *)o->c->b) : NULL;
}

static bool span(const kn_ck *c, const kn_expr *e, int64_t *lo, int64_t *hi)
{
    return e && kn_expr_range(e, kn_block_var_range, (void *)c->b, lo, hi);
}

/* The writer's index is the reader's with other iterators, and each of those stays below the writer's condition. */
static bool same_form(const kn_block *w, const kn_block *r, const kn_expr *x, const kn_expr *y)
{
    int64_t lo, hi;
    if (x->op == KN_OP_AXIS)
        return kn_expr_range(y, kn_block_iter_range, (void *)r, &lo, &hi) && lo >= 0 && hi < w->s.axes[x->u.axis].extent;
    if (x->op != y->op || x->nargs != y->nargs || (x->op == KN_OP_CONST_I && x->u.i != y->u.i)) return false;
    for (int i = 0; i < x->nargs; i++)
        if (!same_form(w, r, x->args[i], y->args[i])) return false;
    return true;
}

static bool cut(const kn_block *w, const kn_expr *e)
{
    for (int i = 0; i < w->s.naxes; i++)
        if (kn_ck_limit(w, i) < INT64_MAX && kn_ck_uses(e, KN_OP_AXIS, i)) return true;
    return false;
}

static bool covers(outer *o, const kn_block *w, const kn_region *wr, const kn_block *r, const kn_region *rr, int d)
{
    kn_ck *c = o->c;
    kiln_arena *a = c->b->a;
    const kn_tensor *t = &c->b->tensors->tensors[rr->buffer];
    int64_t lo, hi, wlo, whi, ilo, ihi;
    const kn_expr *wx = kn_block_bound(c->b, w, wr->lo[d]), *rx = kn_block_bound(c->b, r, rr->lo[d]);
    kn_expr *base = wx ? part(o, wx, true) : NULL, *rest = wx ? part(o, wx, false) : NULL;
    if (!rx || !base || !rest) return false;
    kn_expr *whole = kn_simplify(a, kn_bin(a, KN_OP_SUB, (kn_expr *)wx, kn_bin(a, KN_OP_ADD, base, rest)), kn_block_var_range, (void *)c->b);
    bool split = whole && whole->op == KN_OP_CONST_I && whole->u.i == 0;
    bool form = same_form(w, r, wr->lo[d], rr->lo[d]);
    if (form && (cut(w, wr->lo[d]) || !split) && wr->lo[d]->op != KN_OP_AXIS) return rr->extent[d] <= wr->extent[d];
    if (!split || !span(c, rest, &wlo, &whi)) return false;
    kn_expr *diff = kn_simplify(a, kn_bin(a, KN_OP_SUB, (kn_expr *)rx, base), kn_block_var_range, (void *)c->b);
    if (!span(c, diff, &lo, &hi)) return false;
    if (kn_expr_range(rr->lo[d], kn_block_iter_range, (void *)r, &ilo, &ihi) && base->op == KN_OP_CONST_I) {
        lo = ilo - base->u.i > lo ? ilo - base->u.i : lo;
        hi = ihi - base->u.i < hi ? ihi - base->u.i : hi;
    }
    if (rr->clipped && base->op == KN_OP_CONST_I) {
        lo = lo < 0 ? 0 : lo;
        hi = hi > t->shape[d] - rr->extent[d] ? t->shape[d] - rr->extent[d] : hi;
    }
    if (lo < wlo || hi + rr->extent[d] > whi + wr->extent[d]) return false;
    if (!cut(w, wr->lo[d])) return true;
    if (wr->lo[d]->op != KN_OP_AXIS) { /* only a condition that takes nothing from an index over all loops is harmless */
        bool all = base->op == KN_OP_CONST_I && kn_expr_range(wr->lo[d], kn_block_iter_range, (void *)w, &wlo, &whi);
        return all && hi + rr->extent[d] <= whi + wr->extent[d];
    }
    if (!kn_expr_range(rr->lo[d], kn_block_iter_range, (void *)r, &ilo, &ihi)) return false;
    if (rr->clipped && ihi > t->shape[d] - rr->extent[d]) ihi = t->shape[d] - rr->extent[d];
    return ihi + rr->extent[d] <= w->s.axes[wr->lo[d]->u.axis].extent - 1 + wr->extent[d];
}

static bool before(const kn_ck *c, const kn_bnode *x, const kn_bnode *y)
{
    for (int i = 0; i < c->nblocks; i++) {
        if (c->blocks[i] == y) return false;
        if (c->blocks[i] == x) return true;
    }
    return false;
}

static bool one_read(kn_ck *c, const kn_bnode *n, const kn_region *r)
{
    const kn_bnode *w = c->writer[r->buffer];
    const char *name = kn_ck_buffer(c, r->buffer);
    bool shared = c->b->scope[r->buffer] == KN_SHARED;
    if (c->b->tensors->tensors[r->buffer].role == KN_INPUT) return true;
    if (!w) return kn_ck_fail(c, KN_FAULT_UNCOVERED, n, "nothing writes %s", name);
    if (!before(c, w, n)) return kn_ck_fail(c, KN_FAULT_UNCOVERED, n, "%s is written later, by block %s", name, w->block->name);
    outer o = { .c = c, .common = kn_ck_common(n, w), .shared = shared };
    for (const kn_bnode *p = o.common; p; p = p->parent)
        if (p->kind == KN_BN_LOOP && p->extent > 1 && kn_ck_bound_by(w->block, p->var, true))
            return kn_ck_fail(c, KN_FAULT_PARTIAL, n, "%s is still summed over loop %s", name, p->name);
    for (const kn_bnode *p = w->parent; p && p != o.common; p = p->parent)
        if (p->kind == KN_BN_IF) return kn_ck_fail(c, KN_FAULT_UNCOVERED, n, "%s is written under a condition", name);
    enum kn_scope s = c->b->scope[r->buffer];
    if (!o.common && s != KN_GLOBAL) return kn_ck_fail(c, KN_FAULT_UNCOVERED, n, "%s does not live from one nest to another", name);
    for (int d = 0; d < c->b->tensors->tensors[r->buffer].rank; d++)
        if (!covers(&o, w->block, &w->block->writes[0], n->block, r, d))
            return kn_ck_fail(c, shared ? KN_FAULT_COOPERATIVE : KN_FAULT_UNCOVERED, n, "index %d of %s reaches what block %s does not write",
                              d, name, w->block->name);
    return true;
}

bool kn_ck_reads(kn_ck *c, const kn_bnode *n)
{
    for (int i = 0; i < n->block->nreads; i++)
        if (!one_read(c, n, &n->block->reads[i])) return false;
    return true;
}

/* The node around everything that touches the buffer; NULL: the whole program. */
static const kn_bnode *home(const kn_ck *c, int buffer)
{
    const kn_bnode *at = c->writer[buffer];
    if (c->b->tensors->tensors[buffer].role == KN_OUTPUT) return NULL;
    for (int i = 0; i < c->nblocks; i++)
        for (int k = 0; k < c->blocks[i]->block->nreads; k++)
            if (c->blocks[i]->block->reads[k].buffer == buffer) at = kn_ck_common(at, c->blocks[i]);
    return at && at->kind == KN_BN_BLOCK ? at->parent : at;
}

/* The region's indices over the loops, outer ones fixed; raw: as bound, which keeps the digits of a fused count on one line. */
static const char *clash(kn_ck *c, const kn_bnode *n, const kn_region *w, bool raw)
{
    outer o = { .c = c, .common = home(c, w->buffer), .shared = c->b->scope[w->buffer] == KN_SHARED };
    kn_im *m = kn_new(c->b->a, kn_im);
    kn_im_sum *sums = kn_array(c->b->a, kn_im_sum, KILN_MAX_RANK);
    kn_expr *idx[KILN_MAX_RANK] = { NULL };
    int rank = c->b->tensors->tensors[w->buffer].rank, line;
    int64_t points = 1, reach = 1, one;
    if (!m || !sums) return "out of memory";
    m->b = c->b;
    for (int d = 0; d < rank; d++) {
        kn_expr *x = raw ? kn_block_bound_raw(c->b, n->block, w->lo[d]) : kn_block_bound(c->b, n->block, w->lo[d]);
        idx[d] = !x ? NULL : raw ? kn_rewrite(c->b->a, x, zero, &o) : part(&o, x, false);
        if (!idx[d] || !kn_im_sum_of(m, idx[d], &sums[d])) return "an index is not quasi-affine";
        for (int t = 0; t < sums[d].n; t++)
            if (!kn_mul_fits(reach, sums[d].t[t].extent, &reach)) reach = INT64_MAX;
        if (kn_im_dense(&sums[d], &one) < 0) return "an index takes values twice";
    }
    for (const kn_bnode *p = n->parent; p; p = p->parent) {
        if (p->kind != KN_BN_LOOP || p->extent == 1 || fixed(&o, p->var) || !kn_ck_bound_by(n->block, p->var, false)) continue;
        bool used = false;
        for (int d = 0; d < rank; d++) used |= kn_ck_uses(idx[d], KN_OP_VAR, p->var);
        if (!used) return "a loop moves nothing in it";
        if (!kn_mul_fits(points, p->extent, &points)) return "too many iterations";
    }
    return kn_im_independent(m, sums, rank, &line) && reach >= points ? NULL : "different iterations write one element";
}

/* (axis // lower) % extent, a digit of an iterator. */
typedef struct digit { int axis; int64_t lower, extent; } digit;

static bool digit_of(const kn_expr *e, const kn_stmt *s, digit *d)
{
    if (e->op == KN_OP_AXIS) {
        *d = (digit){ e->u.axis, 1, s->axes[e->u.axis].extent };
        return true;
    }
    if ((e->op != KN_OP_FLOORDIV && e->op != KN_OP_MOD) || e->args[1]->op != KN_OP_CONST_I || !digit_of(e->args[0], s, d)) return false;
    int64_t c = e->args[1]->u.i;
    if (c < 1) return false;
    if (e->op == KN_OP_MOD) {
        if (c < d->extent && d->extent % c && d->lower * d->extent < s->axes[d->axis].extent) return false;
        d->extent = c < d->extent ? c : d->extent;
        return true;
    }
    if (d->extent % c && d->lower * d->extent < s->axes[d->axis].extent) return false;
    d->extent = kn_ceil_div(d->extent, c);
    return kn_mul_fits(d->lower, c, &d->lower);
}

/* The digits of that iterator stand each in one index, from the lowest to the highest. */
static bool complete(const digit *d, int n, int axis, int64_t all)
{
    int64_t reach = 1;
    for (int found = 1; found;) {
        found = 0;
        for (int i = 0; i < n; i++)
            if (d[i].axis == axis && d[i].lower == reach && d[i].extent > 1 && kn_mul_fits(reach, d[i].extent, &reach)) found = 1;
    }
    return reach >= all;
}

/* An affine index in which no step is smaller than what the smaller steps before it reach; *axes: its iterators. */
static bool steps_apart(const kn_stmt *s, const kn_affine *f, uint32_t *axes)
{
    uint32_t left = 0;
    for (int i = 0; i < s->naxes; i++) left |= f->coef[i] && s->axes[i].extent > 1 ? 1u << i : 0;
    *axes = left;
    for (int64_t reach = 0; left;) {
        int least = -1;
        for (int i = 0; i < s->naxes; i++)
            if ((left >> i & 1) && (least < 0 || f->coef[i] < f->coef[least])) least = i;
        if (f->coef[least] <= reach) return false;
        reach += f->coef[least] * (s->axes[least].extent - 1);
        left &= ~(1u << least);
    }
    return true;
}

/* Values of an iterator while the loops around the buffer's home stand still: that many follow each other. */
static int64_t moving(kn_ck *c, const kn_bnode *n, const kn_region *w, int axis)
{
    outer o = { .c = c, .common = home(c, w->buffer), .shared = c->b->scope[w->buffer] == KN_SHARED };
    int64_t lo, hi, all = n->block->s.axes[axis].extent;
    kn_expr *at = kn_axis_ref(c->b->a, axis);
    const kn_expr *x = o.common && at ? kn_block_bound(c->b, n->block, at) : NULL;
    return x && span(c, part(&o, x, false), &lo, &hi) && hi - lo < all ? hi - lo + 1 : all;
}

/* The indices over the iterators, whose bindings are known to be independent: affine maps of some, all digits of others that change, write every
 * element once, whatever loops walk past the domain under `where`. */
static bool injective(kn_ck *c, const kn_bnode *n, const kn_region *w)
{
    const kn_stmt *s = &n->block->s;
    digit digits[KILN_MAX_RANK];
    int ndigits = 0;
    uint32_t seen = 0, cut_up = 0;
    for (int d = 0; d < c->b->tensors->tensors[w->buffer].rank; d++) {
        kn_affine f;
        uint32_t axes;
        if (w->extent[d] != 1) return false;
        if (!kn_affine_of(w->lo[d], &f)) {
            if (!digit_of(w->lo[d], s, &digits[ndigits])) return false;
            cut_up |= 1u << digits[ndigits++].axis;
            continue;
        }
        if (!steps_apart(s, &f, &axes) || (axes & seen)) return false;
        seen |= axes;
    }
    if (cut_up & seen) return false;
    for (int i = 0; i < s->naxes; i++) {
        if ((cut_up >> i & 1) && !complete(digits, ndigits, i, moving(c, n, w, i))) return false;
        if (!s->axes[i].reduce && !((seen | cut_up) >> i & 1) && moving(c, n, w, i) > 1) return false;
    }
    return true;
}

enum { COUNTED_MOST = 1 << 16 };

/* Value of an index at given iterators; false: it is no integer arithmetic on them. */
static bool value_at(const kn_expr *e, const int64_t *axis, int64_t *v)
{
    int64_t x = 0, y = 0;
    if (e->op == KN_OP_CONST_I) return *v = e->u.i, true;
    if (e->op == KN_OP_AXIS) return *v = axis[e->u.axis], true;
    if (e->nargs < 1 || e->nargs > 2 || e->dtype != KN_I64) return false;
    if (!value_at(e->args[0], axis, &x) || (e->nargs == 2 && !value_at(e->args[1], axis, &y))) return false;
    switch (e->op) {
    case KN_OP_ADD: return *v = x + y, true;
    case KN_OP_SUB: return *v = x - y, true;
    case KN_OP_MUL: return *v = x * y, true;
    case KN_OP_NEG: return *v = -x, true;
    case KN_OP_FLOORDIV: return y > 0 && (*v = kn_floor_div(x, y), true);
    case KN_OP_MOD: return y > 0 && (*v = kn_floor_mod(x, y), true);
    default: return false;
    }
}

/* The same by counting, for domains that are small: every combination of the spatial iterators, each element once. */
static bool counted(kn_ck *c, const kn_bnode *n, const kn_region *w)
{
    const kn_stmt *s = &n->block->s;
    const kn_tensor *t = &c->b->tensors->tensors[w->buffer];
    int64_t points = 1, elems = 1, axis[KILN_MAX_AXES] = { 0 };
    if (home(c, w->buffer)) return false;
    for (int i = 0; i < s->naxes; i++)
        if (!s->axes[i].reduce && (!kn_mul_fits(points, s->axes[i].extent, &points) || points > COUNTED_MOST)) return false;
    for (int d = 0; d < t->rank; d++)
        if (w->extent[d] != 1 || !kn_mul_fits(elems, t->shape[d], &elems) || elems > 16 * COUNTED_MOST) return false;
    bool *seen = kn_array(c->b->a, bool, elems);
    for (int64_t k = 0; seen && k < points; k++) {
        int64_t rest = k, at = 0, x;
        for (int i = s->naxes - 1; i >= 0; i--) {
            if (s->axes[i].reduce) continue;
            axis[i] = rest % s->axes[i].extent;
            rest /= s->axes[i].extent;
        }
        for (int d = 0; d < t->rank; d++) {
            if (!value_at(w->lo[d], axis, &x) || x < 0 || x >= t->shape[d]) return false;
            at = at * t->shape[d] + x;
        }
        if (seen[at]) return false;
        seen[at] = true;
    }
    return seen != NULL;
}

static bool overlap(kn_ck *c, const kn_bnode *n, const kn_region *w)
{
    const char *why = clash(c, n, w, true);
    if (why) why = clash(c, n, w, false);
    if (why && (injective(c, n, w) || counted(c, n, w))) why = NULL;
    return why ? kn_ck_fail(c, KN_FAULT_OVERLAP, n, "%s: %s", kn_ck_buffer(c, w->buffer), why) : true;
}

bool kn_ck_writes(kn_ck *c, const kn_bnode *n)
{
    for (int i = 0; i < n->block->nwrites; i++) {
        const kn_region *w = &n->block->writes[i];
        const kn_tensor *t = &c->b->tensors->tensors[w->buffer];
        if (!overlap(c, n, w)) return false;
        for (int d = 0; d < t->rank && t->role == KN_OUTPUT; d++) {
            int64_t lo, hi;
            if (!kn_expr_range(w->lo[d], kn_block_iter_range, (void *)n->block, &lo, &hi) || lo > 0 || hi + w->extent[d] < t->shape[d])
                return kn_ck_fail(c, KN_FAULT_UNWRITTEN, n, "index %d of %s does not reach all of it", d, t->name);
        }
    }
    return true;
}
