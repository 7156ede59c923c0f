/* Tiles that the copy engine of a GPU brings into shared memory (tensor maps, mbarriers): what a load must be for that, and the launch around it. The
 * rules are those of cuTensorMapEncodeTiled in CUDA's driver API, and of 128-byte swizzled boxes. */
#include "schedule/sched.h"
#include <stdio.h>
#include <string.h>

enum { ROW = 128, MOST_BOX = 256, REGISTERS_ASKING = 24 };

bool kn_stage_bulk(const kn_stage *g)
{
    for (int i = 0; i < g->ncaches; i++)
        if (g->caches[i].bulk) return true;
    return false;
}

kn_affine *kn_bulk_address(kiln_arena *a, const kn_tree *t, const kn_stage *g, int number)
{
    const kn_expr *load = kn_stage_load(t, g, number);
    kn_affine *out = kn_new(a, kn_affine);
    if (!load || load->padded || !out) return NULL;
    const kn_tensor *x = &t->program->tensors[load->u.tensor];
    kn_expr *at = kn_const_i(a, KN_I64, 0);
    for (int i = 0; i < x->rank && at; i++)
        at = kn_bin(a, KN_OP_ADD, kn_bin(a, KN_OP_MUL, at, kn_const_i(a, KN_I64, x->shape[i])), load->args[i]);
    at = at ? kn_simplify(a, at, kn_sched_range, (void *)(uintptr_t)kn_stage_stmt(t, g)) : NULL;
    return at && kn_affine_of(at, out) ? out : NULL;
}

/* Elements of an axis in the tile: loops of the cache that are the axis's innermost digits, outer ones first; -1: they are not. */
static int64_t tile_of(const kn_stage *g, const kn_cache *c, int axis)
{
    int64_t n = 1;
    for (int i = c->nloops - 1; i >= 0; i--) {
        const kn_loop *l = &g->loops[c->loops[i]];
        if (l->axis != axis) continue;
        if (l->stride != n || n > KILN_MAX_EXTENT) return -1;
        n *= l->extent;
    }
    return n;
}

static const char *dimensions(const kn_stmt *s, const kn_affine *f, int bytes, kn_bulk *x)
{
    for (int i = 0; i < s->naxes; i++) {
        int at = x->rank;
        if (!f->coef[i] || s->axes[i].extent == 1) continue;
        if (x->rank == KN_BULK_RANK) return "has more than 5 dimensions";
        if (f->coef[i] < 0) return "runs backwards along an axis";
        for (; at > 0 && x->stride[at - 1] > f->coef[i] * bytes; at--)
            x->axis[at] = x->axis[at - 1], x->stride[at] = x->stride[at - 1], x->extent[at] = x->extent[at - 1];
        x->axis[at] = i, x->stride[at] = f->coef[i] * bytes, x->extent[at] = s->axes[i].extent;
        x->rank++;
    }
    if (!x->rank || x->stride[0] != bytes) return "is contiguous along no axis";
    for (int d = 1; d < x->rank; d++) {
        if (x->stride[d] % 16) return "has a stride that is no multiple of 16 bytes";
        if (x->stride[d] < x->stride[d - 1] * x->extent[d - 1]) return "has dimensions that overlap";
        if (x->stride[d] >= INT64_C(1) << 40) return "has a stride of 2^40 bytes or more";
    }
    return NULL;
}

static const char *boxes(const kn_tree *t, const kn_stage *g, const kn_cache *c, int bytes, kn_bulk *x)
{
    int64_t whole = 1;
    kn_swizzle z;
    for (int d = 0; d < x->rank; d++) {
        int64_t n = tile_of(g, c, x->axis[d]);
        if (n < 1) return "has a tile that is cut up by loops outside of it";
        whole *= n;
        if (d == 0) {
            if (n * bytes % ROW) return "has rows of a tile that are no multiple of 128 bytes";
            x->boxes = (int)(n * bytes / ROW);
            n = ROW / bytes;
        }
        if (n > MOST_BOX) return "has a tile of more than 256 elements along a dimension";
        if (d && n > 1 && x->rows) return "has a tile of three dimensions";
        if (d && n > 1) x->rows = d;
        x->box[d] = (int)n;
    }
    if (!c->swizzle || !kn_swizzle_of(t, g, c, &z) || z.unit * bytes != ROW || z.row * z.rows != whole || (x->boxes > 1 && !c->panels))
        return "has a tile that does not lie in swizzled rows, or panels, of 128 bytes";
    if (g->loops[c->loops[c->nloops - 1]].axis != x->axis[0]) return "has a tile that is not contiguous where memory is";
    if (z.rows % 8) return "has a tile of rows that are no multiple of 8";
    return NULL;
}

/* Pixels by 128 bytes of channels, which must not reach over the end of a tap's. */
static const char *windows(const kn_tree *t, const kn_stage *g, const kn_cache *c, const kn_tensor *from, kn_bulk *x)
{
    const kn_window *w = c->window;
    int bytes = kn_dtype_bytes(from->dtype);
    int64_t pixels = tile_of(g, c, w->axis[0]), channels = tile_of(g, c, w->axis[1]), step = bytes;
    kn_swizzle z;
    x->rank = 4, x->rows = 1, x->boxes = 1, x->window = w;
    for (int d = 0; d < 4; step *= from->shape[3 - d++]) x->stride[d] = step, x->extent[d] = from->shape[3 - d], x->box[d] = 1;
    if (from->shape[3] * bytes % ROW) return "has channels of no multiple of 128 bytes";
    if (channels * bytes != ROW || pixels < 8 || pixels > 1024) return "has a tile of no 8 to 1024 pixels by 128 bytes of channels";
    if (!c->swizzle || !kn_swizzle_of(t, g, c, &z) || z.unit * bytes != ROW || z.row * z.rows != pixels * channels || z.rows % 8 ||
        g->loops[c->loops[c->nloops - 1]].axis != w->axis[1])
        return "has a tile that does not lie in swizzled rows of 128 bytes";
    x->box[0] = (int)channels, x->box[1] = (int)pixels;
    return NULL;
}

bool kn_cache_multicast(const kn_tree *t, const kn_stage *g, const kn_cache *c)
{
    const kn_expr *load = kn_stage_load(t, g, c->load);
    return g->cluster > 1 && load && !(kn_axes_in(load) >> g->loops[g->cluster_loop].axis & 1);
}

bool kn_bulk_of(const kn_tree *t, const kn_stage *g, const kn_cache *c, kn_bulk *out, char *why, size_t cap)
{
    const kn_expr *load = kn_stage_load(t, g, c->load);
    *out = (kn_bulk){0};
    bool window = load && !c->address && c->window;
    const char *bad = !load || (!c->address && !window) ? "has no address that is affine in the axes, and is no window over images"
                    : !window && c->address->offset ? "does not begin where its tensor does" : NULL;
    int bytes = load ? kn_dtype_bytes(load->dtype) : 0;
    if (window) bad = windows(t, g, c, &t->program->tensors[load->u.tensor], out);
    if (!bad && !window) bad = dimensions(kn_stage_stmt(t, g), c->address, bytes, out);
    if (!bad && !window) bad = boxes(t, g, c, bytes, out);
    out->parts = kn_cache_multicast(t, g, c) ? g->cluster : 1;
    if (window && out->parts > 1) bad = "is a window, which a cluster does not share";
    if (!bad && (!out->rows || out->box[out->rows] % (8 * out->parts)))
        bad = "has too few rows for each block of a cluster to bring a part";
    if (!bad) out->box[out->rows] /= out->parts;
    if (!bad) return true;
    snprintf(why, cap, "load %d %s: no bulk copy brings its tiles", c->load, bad);
    return false;
}

/* The axis of the stage that index d of what is stored is, or is a digit of: axis / *below, of as many values as the dimension has. -1: none. */
static int digit_of(const kn_tree *t, const kn_stage *g, int d, int64_t *below)
{
    int stmt = g->epilogue >= 0 ? g->epilogue : g->stmt;
    const kn_expr *e = t->program->stmts[stmt]->lhs[d];
    int64_t extent = t->program->tensors[kn_stage_out(t, g)].shape[d];
    if (e->op == KN_OP_MOD && e->args[1]->op == KN_OP_CONST_I && e->args[1]->u.i == extent) e = e->args[0];
    bool part = e->op == KN_OP_FLOORDIV && e->args[1]->op == KN_OP_CONST_I;
    *below = part ? e->args[1]->u.i : 1;
    if (part) e = e->args[0];
    return e->op == KN_OP_AXIS ? kn_stage_axis_of(t, g, stmt, e->u.axis) : -1;
}

/* Dimensions that are the digits of one axis, as where axes have become one, are one of the map. */
bool kn_bulk_out(const kn_tree *t, const kn_stage *g, kn_bulk *x, char *why, size_t cap)
{
    const kn_tensor *out = &t->program->tensors[kn_stage_out(t, g)];
    int64_t bytes = kn_dtype_bytes(out->dtype), step = bytes;
    const char *bad = out->rank > KN_BULK_RANK || out->rank < 2 ? "has no 2 to 5 dimensions" : NULL;
    *x = (kn_bulk){ .boxes = 1, .parts = 1 };
    for (int d = out->rank - 1; d >= 0 && !bad; d--) {
        int64_t below;
        int axis = digit_of(t, g, d, &below), at = x->rank++;
        if (axis >= 0 && at && axis == x->axis[at - 1] && below == x->extent[at - 1]) {
            x->rank--;
            x->extent[at - 1] *= out->shape[d];
            step *= out->shape[d];
            continue;
        }
        if (axis < 0 || below != 1) bad = "has a dimension that is no axis by itself";
        else if (at && step % 16) bad = "has a stride that is no multiple of 16 bytes";
        else if (axis == g->loops[g->tensor.loop[0]].axis && at) x->rows = at;
        else if ((axis == g->loops[g->tensor.loop[1]].axis) != !at) bad = "is not contiguous along the instruction's columns";
        if (bad) break;
        x->axis[at] = axis, x->extent[at] = out->shape[d], x->stride[at] = step;
        x->box[at] = at == 0 ? (int)(ROW / bytes) : at == x->rows ? KN_BULK_ROWS : 1;
        step *= out->shape[d];
    }
    for (int d = 0; d < x->rank && !bad; d++)
        if (x->extent[d] != kn_stage_stmt(t, g)->axes[x->axis[d]].extent) bad = "has a dimension that is no axis by itself";
    if (!bad && !x->rows) bad = "does not have the instruction's rows";
    if (!bad && g->tensor.intrin->s->axes[1].extent * bytes % ROW) bad = "has tiles of no 128 bytes a row";
    if (!bad) return true;
    snprintf(why, cap, "what is stored %s: no bulk copy takes it", bad);
    return false;
}

int64_t kn_stage_bulk_bytes(const kn_stage *g, const kn_hw *hw)
{
    int groups = kn_stage_bulk(g) ? kn_stage_threads(g, hw) / KN_BULK_THREADS - 1 : 0;
    return groups ? KN_BULK_BARRIERS + (g->bulk_store ? (int64_t)groups * KN_BULK_STAGED : 0) : 0;
}

int64_t kn_stage_blocks(const kn_stage *g, const kn_hw *hw)
{
    int64_t tiles = 1, n = g->cluster > 1 ? g->cluster : 1, most = hw->units / n;
    for (int i = 0; i < g->nloops; i++) {
        if (g->loops[i].kind != KN_GRID && g->loops[i].kind != KN_PARALLEL) continue;
        tiles *= n > 1 && i == g->cluster_loop ? kn_ceil_div(g->loops[i].extent, n) : g->loops[i].extent;
    }
    return (g->persist && most > 0 && tiles > most ? most : tiles) * n;
}

/* What a launch gives each of n threads is a multiple of 8; those that only ask leave theirs to those that compute. */
int kn_stage_registers(const kn_stage *g, const kn_hw *hw, bool asks)
{
    int threads = kn_stage_threads(g, hw), groups = threads / KN_BULK_THREADS - 1;
    int given = hw->registers_per_unit / (threads ? threads : 1) / 8 * 8;
    if (!kn_stage_bulk(g) || groups < 2 || given > hw->registers_per_thread) return 0;
    int most = (given * (groups + 1) - REGISTERS_ASKING) / groups / 8 * 8;
    if (most > 240) most = 240;
    return asks ? REGISTERS_ASKING : most;
}

/* Loops outside of the instruction: blocks, warps, one of the reduction at which all caches are filled, and only unrolled ones inside of it. */
static const char *nest(const kn_tree *t, const kn_stage *g)
{
    int at = -1;
    for (int i = 0; i < g->tensor.at; i++) {
        const kn_loop *l = &g->loops[i];
        if (l->kind == KN_GRID || (l->kind == KN_THREAD && l->warp)) {
            if (at >= 0) return "a loop of blocks or warps stands inside the one that copies are filled at";
        } else if (l->kind == KN_SERIAL && at < 0 && kn_is_reduce(t, g, i)) {
            at = i;
        } else if (l->kind != KN_UNROLL) {
            return "there is another loop than of blocks, warps, and one of the reduction outside of the unrolled ones";
        }
    }
    for (int i = 0; i < g->ncaches; i++) {
        if (!g->caches[i].bulk) return "one of its caches is filled in another way";
        if (g->caches[i].at != at) return "not all of its caches are filled at the loop of the reduction";
        if (g->caches[i].copies != g->caches[0].copies) return "its caches do not have the same number of copies";
    }
    return NULL;
}

/* A tensor that bulk copies bring is an argument as a map, so that nothing else may read it. */
static const char *alone(const kn_tree *t, const kn_stage *g, const kn_cache *c)
{
    const kn_expr *loads[KILN_MAX_TENSORS], *own = kn_stage_load(t, g, c->load);
    for (int part = 0; part < 2; part++) {
        if (part && g->epilogue < 0) break;
        int n = kn_loads(t->program->stmts[part ? g->epilogue : g->stmt]->body, loads, KILN_MAX_TENSORS);
        for (int i = 0; i < n && i < KILN_MAX_TENSORS; i++)
            if (loads[i] != own && loads[i]->u.tensor == own->u.tensor) return "a tensor that bulk copies bring is read in another way too";
    }
    return NULL;
}

/* Registers of results that a thread keeps. */
static int64_t results(const kn_tree *t, const kn_stage *g)
{
    int64_t n = g->tensor.intrin->operand[0].elems / KN_BULK_THREADS * (kn_intrin_brief(g->tensor.intrin) ? 2 : 1);
    for (int i = 0; i < g->tensor.at; i++)
        if (g->loops[i].kind == KN_UNROLL && !kn_is_reduce(t, g, i)) n *= g->loops[i].extent;
    return n;
}

bool kn_bulk_fits(const kn_tree *t, const kn_stage *g, const kn_hw *hw, char *why, size_t cap)
{
    const kn_warp *warp = g->tensor.intrin ? kn_warp_of(g->tensor.intrin->spec) : NULL;
    const char *bad = !warp || warp->threads != KN_BULK_THREADS ? "no instruction of 128 threads reads what bulk copies bring" : nest(t, g);
    kn_bulk x;
    for (int i = 0; i < g->ncaches && !bad; i++) bad = alone(t, g, &g->caches[i]);
    if (!bad && g->at_stage >= 0) bad = "bulk copies are for a stage of its own";
    if (bad) return snprintf(why, cap, "%s", bad) < 0;
    for (int i = 0; i < g->ncaches; i++)
        if (!kn_bulk_of(t, g, &g->caches[i], &x, why, cap)) return false;
    if (g->bulk_store && !kn_bulk_out(t, g, &x, why, cap)) return false;
    int compute = kn_stage_registers(g, hw, false), threads = kn_stage_threads(g, hw);
    int64_t need = results(t, g);
    int have = compute ? compute : hw->registers_per_unit / threads / 8 * 8;
    if (have > hw->registers_per_thread) have = hw->registers_per_thread;
    if (need + 24 > have)
        return snprintf(why, cap, "%lld registers of results and those of addresses are more than the %d of a thread", (long long)need, have) < 0;
    return true;
}
