/* Loops that an instruction computes which 128 threads issue together and which reads its sources from shared memory (wgmma): each step of the
 * reduction is a group of instructions that runs on while the next copies arrive; results stay in registers until the reduction ends. */
#include "lower/tile.h"
#include <string.h>

enum { TILES = 8 };

/* Sums of which the unit keeps few bits (sum_bits) last for one iteration; then they are added to those of the whole reduction, which have all. */
typedef struct group {
    kn_lw *w;
    kn_sg *sg;
    const kn_intrin *it;
    int64_t tiles, steps, registers; /* of the destination; of the reduction in one iteration; of a thread for one tile */
    bool brief;
    kn_expr *own, *turned[128 / 8]; /* in_box's: a thread's place in a box of results, and of its columns */
} group;

static kn_expr *plus(kn_lw *w, kn_expr *x, kn_expr *y)
{
    kn_expr *e = kn_bin(w->a, KN_OP_ADD, x, y);
    return e ? kn_lw_simp(w, e) : &w->dry;
}

static kn_expr *part(kn_lw *w, kn_expr *lane, int64_t by, int64_t of, int64_t step) /* lane / by % of * step */
{
    kn_expr *e = kn_bin(w->a, KN_OP_MOD, kn_bin(w->a, KN_OP_FLOORDIV, lane, kn_lw_int(w, by)), kn_lw_int(w, of));
    e = e ? kn_bin(w->a, KN_OP_MUL, e, kn_lw_int(w, step)) : NULL;
    return e ? kn_lw_simp(w, e) : &w->dry;
}

static group group_of(kn_lw *w, kn_sg *sg)
{
    group x = { .w = w, .sg = sg, .it = sg->g->tensor.intrin, .tiles = 1, .steps = 1 };
    for (int i = sg->first_reduce; i < sg->tile; i++)
        if (sg->g->loops[i].kind == KN_UNROLL) *(kn_tile_reduces(sg, i) ? &x.steps : &x.tiles) *= sg->g->loops[i].extent;
    x.registers = x.it->operand[0].elems / 128;
    x.brief = kn_intrin_brief(x.it);
    if (x.tiles > TILES) kn_lw_fail(w, KILN_TRACE, "a group of warps keeps at most %d tiles of results, not %lld", TILES, (long long)x.tiles);
    return x;
}

/* The unrolled loops at iteration c of the destination's and k of the reduction's. */
static void at_tile(group *x, int64_t c, int64_t k)
{
    for (int i = x->sg->tile - 1; i >= x->sg->first_reduce; i--) {
        const kn_loop *l = &x->sg->g->loops[i];
        if (l->kind != KN_UNROLL) continue;
        int64_t *n = kn_tile_reduces(x->sg, i) ? &k : &c;
        x->sg->val[i] = kn_lw_int(x->w, *n % l->extent);
        *n /= l->extent;
    }
}

static void fresh(group *x, int buffer)
{
    enum kn_dtype acc = x->it->operand[0].dtype;
    for (int64_t c = 0; c < x->tiles * x->registers && !x->w->status; c++)
        kn_lw_store(x->w, buffer, kn_lw_int(x->w, c), kn_tile_identity(x->w, x->it->red, acc));
}

static void leave(group *x)
{
    for (int i = x->sg->first_reduce; i < x->sg->g->nloops; i++)
        if (i >= x->sg->tile || x->sg->g->loops[i].kind == KN_UNROLL) x->sg->val[i] = NULL;
}

void kn_lw_group_begin(kn_lw *w, kn_sg *sg)
{
    group x = group_of(w, sg);
    enum kn_dtype acc = x.it->operand[0].dtype;
    memcpy(sg->unreduced, sg->clipped, sizeof sg->clipped);
    sg->results = kn_lw_buffer(w, "result", acc, 1, x.tiles * x.registers, KN_REGISTER);
    fresh(&x, sg->results);
}

/* Where source o of the present tile begins, as if nothing were swizzled: that is made of addresses by the instruction itself. */
static void source(group *x, int o, const kn_expr *load, kn_call *call, bool *turned)
{
    kn_lw *w = x->w;
    const kn_sg *sg = x->sg;
    int cache = -1;
    kn_swizzle z;
    for (int i = 0; i < sg->nloads; i++)
        if (sg->loads[i] == load && sg->cache_of[i] >= 0) cache = sg->cache_of[i];
    const kn_cache *c = cache < 0 ? NULL : &sg->g->caches[cache];
    if (!c || !kn_swizzle_of(w->t, sg->g, c, &z)) {
        kn_lw_fail(w, KILN_INTERNAL, "operand %s of '%s' has no swizzled cache", x->it->operand[o].name, x->it->name);
        return;
    }
    kn_expr *at = kn_lw_int(w, 0);
    for (int i = 0; i < c->nloops; i++) {
        const kn_expr *v = c->loops[i] < sg->tile ? sg->val[c->loops[i]] : NULL; /* the instruction's own loops begin at 0 */
        at = kn_bin(w->a, KN_OP_MUL, at, kn_lw_int(w, sg->g->loops[c->loops[i]].extent));
        if (v) at = kn_bin(w->a, KN_OP_ADD, at, (kn_expr *)v);
    }
    at = at ? kn_lw_simp(w, at) : &w->dry;
    *turned = sg->g->loops[c->loops[c->nloops - 1]].axis != sg->g->loops[sg->g->tensor.loop[2]].axis;
    int64_t row_bytes = z.unit * kn_dtype_bytes(load->dtype);
    if (*turned) { /* panels: column / unit, then rows of R */
        kn_expr *column = kn_bin(w->a, KN_OP_MOD, at, kn_lw_int(w, z.row)), *down = kn_bin(w->a, KN_OP_FLOORDIV, at, kn_lw_int(w, z.row));
        kn_expr *panel = kn_bin(w->a, KN_OP_MUL, kn_bin(w->a, KN_OP_FLOORDIV, column, kn_lw_int(w, z.unit)), kn_lw_int(w, z.rows * z.unit));
        at = plus(w, panel, kn_bin(w->a, KN_OP_MUL, down, kn_lw_int(w, z.unit)));
    }
    call->lead[o] = *turned ? z.rows * row_bytes : 16;
    call->stride[o] = 8 * row_bytes;
    call->buffer[o] = sg->cache_buffer[cache];
    call->at[o] = c->copies ? plus(w, at, kn_lw_copy_of(w, sg, cache, sg->val[c->at])) : at;
}

static int instruction(group *x, const bool *turned)
{
    kn_lprog *p = x->w->p;
    for (int i = 0; i < p->ncalls; i++)
        if (p->calls[i].intrin == x->it && p->calls[i].warp && p->calls[i].turned[1] == turned[1] && p->calls[i].turned[2] == turned[2]) return i;
    kn_emulated *f = &p->calls[p->ncalls];
    *f = (kn_emulated){ .intrin = x->it, .warp = kn_warp_of(x->it->spec), .turned = { false, turned[1], turned[2] } };
    return p->ncalls++;
}

/* Whether there are results that nobody stores: the only tile along an axis is longer than the axis. The assembler gives their registers to others
 * while instructions still write them, finds that, and then lets no instruction overlap another (C7514): such a group ends in its own iteration. */
static bool surplus(const kn_sg *sg)
{
    for (int a = 0; a < sg->s->naxes; a++) {
        int64_t thread = 1, others = 1;
        for (int i = 0; i < sg->g->nloops; i++) {
            const kn_loop *l = &sg->g->loops[i];
            if (l->axis == a) *(i >= sg->tile || l->kind == KN_UNROLL ? &thread : &others) *= l->extent;
        }
        if (!sg->s->axes[a].reduce && others == 1 && thread > sg->s->axes[a].extent) return true;
    }
    return false;
}

void kn_lw_group_tile(kn_lw *w, kn_sg *sg)
{
    group x = group_of(w, sg);
    const kn_expr *load[KN_INTRIN_OPERANDS] = { NULL };
    char why[300];
    if (!kn_tensor_sources(w->t, sg->g, &sg->g->tensor, load, why, sizeof why)) {
        kn_lw_fail(w, KILN_TRACE, "statement '%s': %s", w->p->program->tensors[sg->s->out].name, why);
        return;
    }
    enum kn_dtype acc = x.it->operand[0].dtype;
    int sums = x.brief ? kn_lw_buffer(w, "sum", acc, 1, x.tiles * x.registers, KN_REGISTER) : sg->results;
    if (x.brief) fresh(&x, sums);
    kn_lw_group(w, KN_GROUP_READY);
    for (int64_t k = 0; k < x.steps; k++) {
        for (int64_t c = 0; c < x.tiles && !w->status; c++) {
            bool turned[3] = { false };
            kn_call *call = kn_new(w->a, kn_call);
            if (!call) {
                kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
                return;
            }
            at_tile(&x, c, k);
            for (int o = 1; o < 3; o++) source(&x, o, load[o], call, &turned[o]);
            call->fn = instruction(&x, turned);
            call->buffer[0] = sums;
            call->at[0] = kn_lw_int(w, c * x.registers);
            kn_lw_call(w, call);
        }
    }
    leave(&x);
    kn_lw_group(w, KN_GROUP_COMMIT);
    if (x.brief) {
        kn_lw_group_end_of(w, sums);
        for (int64_t c = 0; c < x.tiles * x.registers && !w->status; c++) {
            kn_expr *at = kn_lw_int(w, c);
            kn_lw_store(w, sg->results, at, kn_lw_node(w, KN_OP_ADD, acc, 1, kn_lw_read(w, sg->results, at, 1), kn_lw_read(w, sums, at, 1), NULL));
        }
        return;
    }
    bool ahead = sg->g->ncaches > 0 && !surplus(sg);
    for (int i = 0; i < sg->g->ncaches; i++) {
        const kn_cache *cache = &sg->g->caches[i];
        ahead = ahead && cache->async && kn_cache_ahead(sg->g, cache) < cache->copies - 1;
    }
    kn_lw_group(w, ahead ? 1 : 0); /* with a copy to spare this iteration's may still run in the next one */
}

/* Where a thread's pairs lie in a box of results: its row, and what swizzling makes of each of its columns there. Said once for all boxes: a
 * compiler would find the same, and is slow at it. */
static void in_box(group *x)
{
    kn_lw *w = x->w;
    kn_sg *sg = x->sg;
    int64_t columns = kn_lw_bulk_columns(w, sg);
    kn_expr *row = plus(w, part(w, sg->lane, 32, 4, 16), part(w, sg->lane, 4, 8, 1));
    x->own = kn_lw_let(w, "own", kn_bin(w->a, KN_OP_MUL, row, kn_lw_int(w, columns)));
    for (int64_t i = 0; i < columns / 8; i++) {
        kn_expr *column = plus(w, part(w, sg->lane, 1, 4, 2), kn_lw_int(w, i * 8));
        kn_expr *turned = kn_lw_node(w, KN_OP_XOR, KN_I64, 1, column, part(w, sg->lane, 4, 8, columns / 8), NULL);
        x->turned[i] = turned ? kn_lw_let(w, "turned", turned) : &w->dry;
    }
}

/* A box of results, 128 bytes wide, from register r of tile c on: swizzled rows of shared memory, from where the copy engine takes it. */
static void stage_box(group *x, int64_t c, int64_t first)
{
    kn_lw *w = x->w;
    kn_sg *sg = x->sg;
    int64_t columns = kn_lw_bulk_columns(w, sg);
    int stage;
    kn_expr *low = part(w, sg->lane, 4, 8, 1), *box = kn_lw_bulk_box(w, sg, &stage), *own = plus(w, box, x->own);
    for (int64_t r = 0; r < columns / 2 && !w->status; r += 2) {
        kn_expr *row = plus(w, plus(w, part(w, sg->lane, 32, 4, 16), low), kn_lw_int(w, r % 4 / 2 * 8));
        kn_expr *column = plus(w, part(w, sg->lane, 1, 4, 2), kn_lw_int(w, r / 4 * 8));
        kn_expr *at = kn_bin(w->a, KN_OP_ADD, plus(w, own, x->turned[r / 4]), kn_lw_int(w, r % 4 / 2 * 8 * columns));
        sg->val[sg->g->tensor.loop[0]] = row;
        kn_tile_stage_pair(w, sg, plus(w, column, kn_lw_int(w, first / 4 * 8)), c * x->registers + first + r, stage, at ? at : &w->dry);
    }
    sg->val[sg->g->tensor.loop[0]] = kn_lw_int(w, 0);
    sg->val[sg->g->tensor.loop[1]] = kn_lw_int(w, first / 4 * 8);
    kn_lw_bulk_store(w, sg, box, stage);
}

void kn_lw_group_end(kn_lw *w, kn_sg *sg)
{
    group x = group_of(w, sg);
    kn_lw_group_end_of(w, sg->results);
    if (sg->bulk) kn_lw_bulk_done(w, sg);
    memcpy(sg->clipped, sg->unreduced, sizeof sg->clipped);
    for (int i = sg->first_reduce; i < sg->g->nloops; i++) sg->val[i] = NULL;
    if (sg->g->bulk_store) in_box(&x);
    for (int64_t c = 0; c < x.tiles; c++) {
        at_tile(&x, c, 0);
        for (int i = sg->first_reduce; i < sg->tile; i++)
            if (kn_tile_reduces(sg, i)) sg->val[i] = NULL;
        for (int64_t r = 0; r < x.registers && !w->status && sg->g->bulk_store; r++)
            if (r % (4 * kn_lw_bulk_columns(w, sg) / 8) == 0) stage_box(&x, c, r);
        for (int64_t r = 0; r < x.registers && !w->status && !sg->g->bulk_store; r += 2) {
            kn_expr *row = plus(w, part(w, sg->lane, 32, 4, 16), part(w, sg->lane, 4, 8, 1));
            sg->val[sg->g->tensor.loop[0]] = plus(w, row, kn_lw_int(w, r % 4 / 2 * 8));
            kn_tile_store_pair(w, sg, plus(w, part(w, sg->lane, 1, 4, 2), kn_lw_int(w, r / 4 * 8)), c * x.registers + r);
        }
    }
    for (int i = sg->first_reduce; i < sg->g->nloops; i++) sg->val[i] = NULL;
}
