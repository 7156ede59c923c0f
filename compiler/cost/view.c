/* A stage as the cost model sees it: accesses by affine maps, footprints by sum |c| * (t - 1) + 1 (ROLLER 3.3, from the maps alone). */
#include "cost/model.h"
#include "te/expr.h"
#include <math.h>
#include <string.h>

/* Whether a step of the axis moves the index by one, whatever else is added to it: the taps of a window whose strides were taken apart are there by
 * their quotients. */
static bool moves_by_one(const kn_expr *e, int axis)
{
    if (e->op == KN_OP_ADD) {
        int left = (int)(kn_axes_in(e->args[0]) >> axis & 1), right = (int)(kn_axes_in(e->args[1]) >> axis & 1);
        if (left + right != 1) return false; /* gcc 12 at -O1 takes `left != right` of two such bits for `right` */
        return moves_by_one(e->args[right], axis);
    }
    return e->op == KN_OP_AXIS && e->u.axis == axis;
}

/* The axis with coefficient one in the fastest dimension, rather a spatial one than that of a window's taps; a fused axis stands there as
 * X % c. */
static int unit_axis(const kn_stmt *s, const kn_expr *last, uint32_t axes)
{
    kn_affine f;
    if (last->op == KN_OP_MOD && last->args[0]->op == KN_OP_AXIS) return last->args[0]->u.axis;
    bool affine = kn_affine_of(last, &f);
    for (int pass = 0; pass < 2; pass++)
        for (int i = s->naxes - 1; i >= 0; i--)
            if (s->axes[i].reduce == (pass == 1) && (axes >> i & 1) && (affine ? f.coef[i] == 1 : moves_by_one(last, i))) return i;
    return -1;
}

static bool reads(const kn_expr *e, int tensor)
{
    bool yes = e->op == KN_OP_LOAD && e->u.tensor == tensor;
    for (int i = 0; i < e->nargs && !yes; i++) yes = reads(e->args[i], tensor);
    return yes;
}

/* A copy that another stage makes, small enough to be in L2 still. */
static bool copied_near(const kn_tree *t, const kn_hw *hw, int tensor)
{
    const kn_tensor *x = &t->program->tensors[tensor];
    const kn_hw_level *l2 = kn_hw_level_named(hw, "l2");
    double bytes = kn_dtype_bytes(x->dtype);
    for (int d = 0; d < x->rank; d++) bytes *= (double)x->shape[d];
    if (hw->gpu || x->role != KN_TEMP || !l2 || bytes > (double)l2->capacity_bytes / 4) return false;
    for (int k = 0; k < t->nstages; k++) {
        const kn_stmt *s = t->program->stmts[t->stages[k]->stmt];
        if (kn_stage_out(t, t->stages[k]) == tensor) return s->red == KN_RED_NONE && s->body->op == KN_OP_LOAD;
    }
    return false;
}

/* What is attached to a loop shares its iteration: temporaries stay there, and what an earlier stage has read is near. */
static bool near(const kn_tree *t, const kn_hw *hw, const kn_stage *g, int tensor)
{
    const kn_stage *root = g->at_stage >= 0 ? t->stages[g->at_stage] : g;
    for (int k = 0; k < t->nstages && t->stages[k] != g; k++) {
        const kn_stage *p = t->stages[k];
        bool together = p->at_stage >= 0 && t->stages[p->at_stage] == root;
        if (together && (kn_stage_out(t, p) == tensor || reads(t->program->stmts[p->stmt]->body, tensor))) return true;
    }
    return copied_near(t, hw, tensor) || (g->at_stage >= 0 && kn_stage_out(t, g) == tensor);
}

/* On a GPU temporaries between stages of one block, and what is kept for them, lie in registers. */
static bool own(const kn_stage_view *v, int tensor, bool store)
{
    const kn_stage *root = v->g->at_stage >= 0 ? v->t->stages[v->g->at_stage] : v->g;
    if (!v->hw->gpu) return false;
    if (store) return v->g != root;
    const kn_expr *loads[32];
    int n = kn_loads(v->t->program->stmts[root->stmt]->body, loads, 32);
    for (int i = 0; i < n && i < 32 && v->g != root; i++) if ((root->kept >> i & 1) && loads[i]->u.tensor == tensor) return true;
    for (int k = 0; k < v->t->nstages; k++) {
        const kn_stage *p = v->t->stages[k];
        if (p->at_stage >= 0 && v->t->stages[p->at_stage] == root && kn_stage_out(v->t, p) == tensor) return true;
    }
    return false;
}

static void add_access(kn_stage_view *v, int tensor, kn_expr *const *idx, bool store, int load)
{
    if (v->naccesses == KN_COST_ACCESSES) return;
    const kn_tensor *x = &v->t->program->tensors[tensor];
    kn_access *a = &v->access[v->naccesses++];
    memset(a, 0, sizeof *a);
    a->tensor = tensor;
    a->bytes = kn_dtype_bytes(x->dtype);
    a->rank = x->rank;
    a->store = store;
    a->load = load;
    a->near = near(v->t, v->hw, v->g, store ? kn_stage_out(v->t, v->g) : tensor);
    a->own = own(v, store ? kn_stage_out(v->t, v->g) : tensor, store);
    a->cache = -1;
    for (int i = 0; i < x->rank; i++) {
        a->shape[i] = x->shape[i];
        a->index[i] = idx[i];
        a->in[i] = kn_axes_in(idx[i]);
        a->axes |= a->in[i];
    }
    int last = x->rank - 1; /* the fastest dimension that has more than one element */
    while (last > 0 && x->shape[last] == 1) last--;
    a->unit_axis = last >= 0 ? unit_axis(v->s, idx[last], a->in[last]) : -1;
    for (int i = 0; i < v->g->ncaches && !store; i++) if (v->g->caches[i].load == load) a->cache = i;
}

static double flops_of(const kn_expr *e)
{
    double n = 0;
    if (e->op == KN_OP_LOAD || (e->dtype == KN_I64 && !kn_loads(e, NULL, 0))) return 0; /* index arithmetic is strength-reduced away */
    for (int i = 0; i < e->nargs; i++) n += flops_of(e->args[i]);
    if (kn_is_function(e->op)) return n + 10; /* polynomial of about that many multiply-adds */
    return n + (e->op >= KN_OP_ADD);
}

/* Loops of the consumer outside the attachment point that the attached stage does not mirror repeat it. */
static double repeats(const kn_tree *t, const kn_stage *g)
{
    if (g->at_stage < 0) return 1;
    const kn_stage *c = t->stages[g->at_stage];
    double n = 1;
    for (int i = 0; i <= g->at_loop; i++) {
        bool mirrored = false;
        for (int k = 0; k < g->nloops; k++) mirrored = mirrored || g->loops[k].shared_with == i;
        if (!mirrored) n *= (double)c->loops[i].extent;
    }
    return n;
}

static bool in_registers(enum kn_loop_kind k) { return k == KN_UNROLL || k == KN_VECTOR || k == KN_VTHREAD; }

/* A loop of the register tile around one term of each of its sums, or no loop at all. */
static bool written_term(const kn_stage_view *v, const kn_loop *l)
{
    return (l->extent == 1 && !v->hw->gpu) || (v->s->axes[l->axis].reduce && !l->rfactor);
}

/* Half of the last vector along the axis of a sum's lanes is not computed where half is enough. */
static void halve_last(kn_stage_view *v)
{
    const kn_stage *g = v->g;
    const kn_loop *last = g->nloops ? &g->loops[g->nloops - 1] : NULL;
    if (v->hw->gpu || v->s->red == KN_RED_NONE || !last || last->kind != KN_VECTOR || v->s->axes[last->axis].reduce || g->tensor.intrin) return;
    int64_t n = v->s->axes[last->axis].extent, lanes = last->extent;
    v->iterations *= kn_hw_vectors(v->hw, n, lanes, kn_dtype_bytes(kn_stmt_acc(v->s))) / (double)kn_ceil_div(n, lanes);
}

void kn_stage_view_of(const kn_tree *t, const kn_stage *g, const kn_hw *hw, kn_stage_view *v)
{
    memset(v, 0, sizeof *v);
    v->t = t, v->g = g, v->hw = hw, v->s = t->program->stmts[g->stmt];
    const kn_expr *loads[KN_COST_ACCESSES - 1];
    int n = kn_loads(v->s->body, loads, KN_COST_ACCESSES - 1);
    if (n > KN_COST_ACCESSES - 1) n = KN_COST_ACCESSES - 1;
    for (int i = 0; i < n; i++) add_access(v, loads[i]->u.tensor, loads[i]->args, false, i);
    const kn_stmt *e = g->epilogue >= 0 ? t->program->stmts[g->epilogue] : NULL;
    add_access(v, v->s->out, v->s->lhs, true, -1);
    v->access[v->naccesses - 1].bytes = kn_dtype_bytes(t->program->tensors[e ? e->out : v->s->out].dtype);
    v->iterations = repeats(t, g);
    v->tasks = v->threads = 1;
    v->first_inner = v->first_reg = g->nloops;
    for (int i = g->nloops - 1; i >= 0; i--) {
        const kn_loop *l = &g->loops[i];
        v->iterations *= (double)l->extent;
        if (l->kind == KN_PARALLEL || l->kind == KN_GRID) v->tasks *= (double)l->extent;
        else if (l->kind == KN_THREAD) v->threads *= (double)l->extent;
        else v->first_inner = i;
        bool once = l->extent == 1 && !hw->gpu; /* no loop at all */
        if ((in_registers(l->kind) || once) && v->first_reg == i + 1) v->first_reg = i;
        enum kn_loop_kind outer = l->shared_with >= 0 ? t->stages[g->at_stage]->loops[l->shared_with].kind : KN_SERIAL;
        if (outer == KN_PARALLEL || outer == KN_GRID) v->tasks *= (double)l->extent;
        if (outer == KN_THREAD) v->threads *= (double)l->extent;
    }
    if (kn_stage_warps(g)) v->threads = kn_stage_threads(g, hw);
    if (kn_stage_warps(g) || (g->tensor.intrin && !hw->gpu)) { /* what a core holds at once, or a warp, whose threads share it */
        for (v->first_reg = g->tensor.at; v->first_reg > 0 && g->loops[v->first_reg - 1].kind == KN_UNROLL;) v->first_reg--;
    }
    v->first_point = v->first_reg;
    bool more = !hw->gpu && !kn_stage_bare(v); /* but for taps of a window, which share what they read: all that are written out are one point */
    for (int i = 0; i + 1 < v->naccesses; i++) more &= !kn_slides(v, &v->access[i]);
    for (int i = 0; i < v->first_reg; i++) more |= v->s->axes[g->loops[i].axis].reduce && g->loops[i].extent > 1;
    for (int i = v->first_reg; more && i + 1 < g->nloops && written_term(v, &g->loops[i]); i++) v->first_point = i + 1;
    kn_short_tile last;
    if (!hw->gpu && kn_stage_short_tile(v->s, g, &last)) {
        const kn_loop *l = &g->loops[last.loop];
        double padded = (double)kn_round_up(v->s->axes[l->axis].extent, l->extent * l->stride);
        v->iterations *= (double)(last.from + last.vectors * l->stride) / padded;
    }
    halve_last(v);
    v->flops = flops_of(v->s->body) + (v->s->red != KN_RED_NONE);
    if (v->flops < 1) v->flops = 1; /* a copy costs its move */
    v->epilogue_flops = e ? flops_of(e->body) : 0;
}

/* Vectors of a window's taps begin anywhere in a line, and every other one reaches into the next, which is a second access. */
bool kn_slides(const kn_stage_view *v, const kn_access *x)
{
    uint32_t reduced = (1u << v->s->naxes) - (1u << v->s->nspatial);
    return x->cache < 0 && x->rank && (x->in[x->rank - 1] & reduced) && (x->in[x->rank - 1] & ~reduced);
}

static bool counted(const kn_stage_view *v, int loop, int from, bool threads)
{
    return loop >= from || (threads && v->g->loops[loop].kind == KN_THREAD);
}

/* What the loops of a box do to each axis of `axes`: values from the first to the last, and how many distinct ones: a cyclic mapping leaves
 * holes. */
typedef struct box { double span[KILN_MAX_AXES], points[KILN_MAX_AXES]; } box;

static void box_of(const kn_stage_view *v, uint32_t axes, int from, bool threads, box *b)
{
    for (int a = 0; a < v->s->naxes; a++) b->span[a] = b->points[a] = 1;
    for (int i = 0; i < v->g->nloops; i++) {
        const kn_loop *l = &v->g->loops[i];
        if (!(axes >> l->axis & 1) || !counted(v, i, from, threads)) continue;
        b->span[l->axis] += (double)(l->extent - 1) * (double)l->stride;
        b->points[l->axis] *= (double)l->extent;
    }
    for (int a = 0; a < v->s->naxes; a++) {
        double full = (double)v->s->axes[a].extent;
        if (b->span[a] > full) b->span[a] = full;
        if (b->points[a] > full) b->points[a] = full;
    }
}

/* Values an index takes over the box: sum |c| * (t - 1) + 1 where it is affine; fused axes come apart by // and %. */
static double index_span(const box *b, const kn_expr *e)
{
    if (e->op == KN_OP_AXIS) return b->span[e->u.axis];
    if (e->op == KN_OP_CONST_I) return 1;
    double x = e->nargs > 0 ? index_span(b, e->args[0]) : 1;
    if (e->op == KN_OP_NEG) return x;
    if (e->nargs != 2) return x;
    double y = index_span(b, e->args[1]);
    bool by_const = e->args[1]->op == KN_OP_CONST_I, const_by = e->args[0]->op == KN_OP_CONST_I;
    double c = by_const ? (double)e->args[1]->u.i : const_by ? (double)e->args[0]->u.i : 0;
    if (c < 0) c = -c;
    if (e->op == KN_OP_ADD || e->op == KN_OP_SUB) return x + y - 1;
    if (e->op == KN_OP_MUL && (by_const || const_by)) return c * ((by_const ? x : y) - 1) + 1;
    if (e->op == KN_OP_FLOORDIV && by_const && c > 0) return (double)(int64_t)((x + c - 1) / c);
    if (e->op == KN_OP_MOD && by_const && c > 0) return x < c ? x : c;
    return x * y;
}

static double dim_span(const kn_stage_view *v, const box *b, const kn_access *x, int dim)
{
    double whole = index_span(b, x->index[dim]), pts = 1;
    uint32_t axes = x->in[dim];
    for (int a = 0; a < v->s->naxes; a++) if (axes >> a & 1) pts *= b->points[a];
    double n = whole < pts ? whole : pts; /* no more elements than iterations that name them */
    return n < (double)x->shape[dim] ? n : (double)x->shape[dim];
}

/* Dimensions that are quotients and remainders of one axis do not vary by themselves: of n elements no more than iterations that name them. */
static double distinct(const kn_stage_view *v, const kn_access *x, const box *b, double n)
{
    double pts = 1;
    for (int a = 0; a < v->s->naxes; a++) if (x->axes >> a & 1) pts *= b->points[a];
    return n < pts ? n : pts;
}

double kn_footprint(const kn_stage_view *v, const kn_access *x, int from, bool threads)
{
    double n = 1;
    box b;
    box_of(v, x->axes, from, threads, &b);
    for (int i = 0; i < x->rank; i++) n *= dim_span(v, &b, x, i);
    return v->hw->gpu ? n : distinct(v, x, &b, n); /* what a GPU's terms were fitted to counts boxes */
}

double kn_whole_box(const kn_stage_view *v, const kn_access *x, int from)
{
    double n = 1;
    box b;
    box_of(v, x->axes, from, false, &b);
    for (int i = 0; i < x->rank; i++) {
        double span = index_span(&b, x->index[i]);
        n *= span < (double)x->shape[i] ? span : (double)x->shape[i];
    }
    return n;
}

double kn_stretch(const kn_stage_view *v, const kn_access *x, int from)
{
    double n = 1, pitch = 1;
    box b;
    box_of(v, x->axes, from, false, &b);
    for (int i = x->rank - 1; i >= 0; pitch *= (double)x->shape[i], i--) n += (dim_span(v, &b, x, i) - 1) * pitch;
    return n;
}

double kn_fills(const kn_stage_view *v, const kn_access *x, int from, bool threads)
{
    double n = 1, best = 1;
    for (int i = 0; i < from && i < v->g->nloops; i++) {
        const kn_loop *l = &v->g->loops[i];
        if (threads && l->kind == KN_THREAD) continue;
        n *= (double)l->extent;
        bool own = l->kind == KN_GRID ||
                   l->kind == KN_THREAD; /* nothing is kept between blocks or threads; a core's next task finds its caches warm */
        if (own || (x->axes >> l->axis & 1)) best = n;
    }
    return best;
}

/* Bytes of the box that follow each other, and from where one such run begins to where the next one does; 0: there is one. */
static double run_of(const kn_stage_view *v, const kn_access *x, int from, bool threads, double *pitch)
{
    double run = x->bytes;
    box b;
    box_of(v, x->axes, from, threads, &b);
    *pitch = 0;
    for (int i = x->rank - 1; i >= 0; i--) {
        double n = dim_span(v, &b, x, i);
        if (i && n < (double)x->shape[i] && dim_span(v, &b, x, i - 1) > 1) *pitch = run * (double)x->shape[i];
        run *= n;
        if (n < (double)x->shape[i]) break;
    }
    return run;
}

double kn_apart(const kn_stage_view *v, const kn_access *x, int from, double way, double *run)
{
    double apart = way, pitch = x->bytes;
    bool inside = true; /* the run of elements that follow each other */
    box b;
    box_of(v, x->axes, from, false, &b);
    *run = x->bytes;
    for (int i = x->rank - 1; i >= 0; pitch *= (double)x->shape[i], i--) {
        double n = dim_span(v, &b, x, i);
        if (inside) *run *= n;
        else for (; n > 1 && fmod(pitch, apart) > 0; apart /= 2) {}
        inside = inside && n >= (double)x->shape[i];
    }
    return apart;
}

double kn_rounding(const kn_stage_view *v, const kn_access *x, int from, bool threads, double transaction)
{
    double pitch, run = run_of(v, x, from, threads, &pitch);
    double moved = transaction * (double)(int64_t)((run + transaction - 1) / transaction);
    return moved / run;
}

double kn_line_rounding(const kn_stage_view *v, const kn_access *x, int from, double line)
{
    double pitch, run = run_of(v, x, from, false, &pitch), moved = kn_rounding(v, x, from, false, line);
    return pitch > 0 && pitch < moved * run ? pitch / run : moved;
}

double kn_register_values(const kn_stage_view *v)
{
    double n = 1;
    for (int i = v->first_reg; i < v->g->nloops; i++) {
        const kn_loop *l = &v->g->loops[i];
        if (!v->s->axes[l->axis].reduce || l->rfactor) n *= (double)l->extent;
    }
    return n;
}

/* Results, and two sets of the fragments of one instruction's step. */
static double warp_registers(const kn_stage_view *v)
{
    double need = kn_register_values(v), steps = 1;
    if (kn_stage_lanes(v->g, v->hw) > v->hw->lanes) return need / kn_stage_lanes(v->g, v->hw); /* sources stay in shared memory */
    for (int i = v->first_reg; i < v->g->tensor.at; i++)
        if (v->s->axes[v->g->loops[i].axis].reduce) steps *= (double)v->g->loops[i].extent;
    for (int i = 0; i + 1 < v->naccesses; i++) need += kn_footprint(v, &v->access[i], v->first_reg, false) * v->access[i].bytes / 4 / steps * 2;
    return need / v->hw->lanes;
}

/* Elements of a thread's share of a row. */
static double kept_elements(const kn_stage_view *v, const kn_access *x)
{
    box b;
    box_of(v, x->axes, v->first_reg, false, &b);
    return distinct(v, x, &b, kn_footprint(v, x, v->first_reg, false));
}

double kn_kept_bytes(const kn_stage_view *v)
{
    double bytes = 0;
    for (int i = 0; i + 1 < v->naccesses; i++)
        if (v->access[i].load >= 0 && (v->g->kept >> v->access[i].load & 1))
            bytes += kept_elements(v, &v->access[i]) * v->access[i].bytes;
    return bytes;
}

/* Narrow elements are widened once and stay so. */
static double kept_registers(const kn_stage_view *v)
{
    double n = 0;
    for (int i = 0; i + 1 < v->naccesses; i++) {
        const kn_access *x = &v->access[i];
        bool kept = x->load >= 0 && (v->g->kept >> x->load & 1);
        if (kept) n += kept_elements(v, x) * (x->bytes < 4 ? 4 : x->bytes) / 4;
    }
    return n;
}

bool kn_stage_bare(const kn_stage_view *v)
{
    const kn_expr *e = v->s->body;
    while (e->op == KN_OP_CAST) e = e->args[0];
    return e->op == KN_OP_LOAD && kn_dtype_class(e->dtype) == 'f' && v->s->red != KN_RED_NONE;
}

/* Places of the tile slide along this loop of terms: what one term of theirs reads is another term of their neighbours. */
static bool shares(const kn_stage_view *v, const kn_access *x, int loop)
{
    uint32_t places = 0, axis = 1u << v->g->loops[loop].axis;
    for (int i = v->first_reg; i < v->g->nloops; i++) {
        const kn_loop *l = &v->g->loops[i];
        if (!v->s->axes[l->axis].reduce && l->kind == KN_UNROLL && l->extent > 1) places |= 1u << l->axis;
    }
    for (int d = 0; d < x->rank; d++)
        if ((x->in[d] & axis) && (x->in[d] & places)) return true;
    return false;
}

/* Elements that wait in registers for the next step of the outermost such loop; those that no other term has come from memory as they are added. */
static double waiting(const kn_stage_view *v, const kn_access *x, double lanes)
{
    for (int i = v->first_reg; i < v->g->nloops; i++) {
        const kn_loop *l = &v->g->loops[i];
        if (!v->s->axes[l->axis].reduce || l->extent < 2 || l->kind == KN_VECTOR || !shares(v, x, i)) continue;
        double box = kn_footprint(v, x, i + 1, false), each = 1;
        for (int k = i + 1; k < v->g->nloops; k++) each *= (double)v->g->loops[k].extent;
        return box < each ? box : each;
    }
    return lanes;
}

double kn_register_need(const kn_stage_view *v)
{
    if (v->g->kept) return kept_registers(v) + 16; /* 28 to 80 where ptxas says 28 to 80: rows of 8 to 64 elements a thread */
    if (kn_stage_warps(v->g)) return warp_registers(v);
    double lanes = 1;
    for (int i = v->first_reg; i < v->g->nloops; i++) if (v->g->loops[i].kind == KN_VECTOR) lanes = (double)v->g->loops[i].extent;
    int acc = kn_dtype_bytes(kn_stmt_acc(v->s));
    double word = v->hw->gpu ? 4 : v->hw->vector_bytes, need = 0;
    double values = kn_register_values(v);
    need = v->hw->gpu ? values * acc / word : (values / lanes) * (lanes * acc > word ? lanes * acc / word : 1);
    double most = 0, others = 0; /* vectors of factors whose lanes run along the sum: those of one are held, the other's come one by one */
    bool along = !v->hw->gpu && !kn_stage_bare(v) && v->g->nloops && v->s->axes[v->g->loops[v->g->nloops - 1].axis].reduce;
    for (int i = 0; i + 1 < v->naccesses; i++) {
        double f = kn_footprint(v, &v->access[i], v->first_point, false);
        if (!v->hw->gpu && kn_stage_bare(v) && f > lanes) f = waiting(v, &v->access[i], lanes);
        double held = v->hw->gpu ? f * v->access[i].bytes / 4 : f >= lanes ? f / lanes : 1;
        need += held;
        others += held < most ? held : most;
        if (held > most) most = held;
    }
    return along && others > 1 ? need - most + 1 : need;
}
