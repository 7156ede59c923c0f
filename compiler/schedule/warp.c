/* What a block of warps is: its threads, its swizzled caches, and what must hold of a stage whose warps compute an instruction together. */
#include "schedule/sched.h"
#include <stdio.h>

bool kn_stage_warps(const kn_stage *g)
{
    for (int i = 0; i < g->nloops; i++)
        if (g->loops[i].warp) return true;
    return false;
}

int kn_stage_lanes(const kn_stage *g, const kn_hw *hw)
{
    const kn_warp *w = g->tensor.intrin ? kn_warp_of(g->tensor.intrin->spec) : NULL;
    return w ? w->threads : hw->lanes;
}

int kn_cache_ahead(const kn_stage *g, const kn_cache *c)
{
    const kn_warp *w = g->tensor.intrin && kn_stage_warps(g) ? kn_warp_of(g->tensor.intrin->spec) : NULL;
    return c->copies - 1 - (c->async && w && w->threads > 32);
}

int kn_stage_threads(const kn_stage *g, const kn_hw *hw)
{
    int64_t n = kn_stage_warps(g) ? kn_stage_lanes(g, hw) : 1;
    for (int i = 0; i < g->nloops; i++)
        if (g->loops[i].kind == KN_THREAD && !kn_mul_fits(n, g->loops[i].extent, &n)) return INT32_MAX;
    if (kn_stage_bulk(g)) n += KN_BULK_THREADS;
    return n > INT32_MAX ? INT32_MAX : (int)n;
}

/* A row is what the last loops of the cache span that belong to one axis. */
bool kn_swizzle_of(const kn_tree *t, const kn_stage *g, const kn_cache *c, kn_swizzle *out)
{
    const kn_expr *load = kn_stage_load(t, g, c->load);
    int64_t row = 1;
    if (!load || c->region || !c->nloops || c->pad) return false;
    int bytes = kn_dtype_bytes(t->program->tensors[load->u.tensor].dtype), axis = g->loops[c->loops[c->nloops - 1]].axis;
    for (int i = c->nloops - 1; i >= 0 && g->loops[c->loops[i]].axis == axis; i--)
        if (!kn_mul_fits(row, g->loops[c->loops[i]].extent, &row) || row > KILN_MAX_EXTENT) return false;
    int64_t n = row * bytes, rows = 1;
    for (int i = 0; i < c->nloops; i++)
        if (!kn_mul_fits(rows, g->loops[c->loops[i]].extent, &rows)) return false;
    if (n < 64 || bytes > 8 || (c->panels ? n % 128 != 0 : (n & (n - 1)) != 0)) return false;
    *out = (kn_swizzle){ .unit = (n < 128 || c->panels ? 128 : n) / bytes, .runs = n < 128 ? 4 : 8, .run = 16 / bytes,
                         .row = row, .rows = rows / row };
    return true;
}

/* Loops outside of the instruction: blocks, warps, spatial ones, then the reduction's, and inside of it only unrolled ones. */
static bool loops_fit(const kn_tree *t, const kn_stage *g, char *why, size_t cap)
{
    bool reduced = false;
    for (int i = 0; i < g->tensor.at; i++) {
        const kn_loop *l = &g->loops[i];
        bool reduce = kn_is_reduce(t, g, i);
        const char *bad = l->kind == KN_THREAD && !l->warp ? "is bound to threads, others to warps"
                        : l->kind == KN_UNROLL && !reduced ? "is unrolled outside of the reduction"
                        : l->kind == KN_SERIAL && reduced && !reduce ? "is serial inside the reduction: results would not stay in registers"
                        : NULL;
        for (int k = 0; k < i && !bad; k++)
            if (g->loops[k].kind == KN_UNROLL && l->kind == KN_SERIAL) bad = "is serial inside an unrolled one";
        if (bad) return snprintf(why, cap, "loop '%s' %s", l->name, bad) < 0;
        reduced |= reduce;
    }
    if (!reduced) return snprintf(why, cap, "no loop of the reduction stands outside of the instruction") < 0;
    return true;
}

/* The cache that holds a source of the instruction; NULL. */
static const kn_cache *cache_of(const kn_tree *t, const kn_stage *g, const kn_expr *source)
{
    for (int i = 0; i < g->ncaches; i++)
        if (kn_stage_load(t, g, g->caches[i].load) == source) return &g->caches[i];
    return NULL;
}

/* What the threads of a group need of a source: rows of 128 bytes along R, or panels of them along the other dimension of two-byte elements. */
static bool source_fits(const kn_tree *t, const kn_stage *g, const kn_cache *c, int own)
{
    kn_swizzle z;
    int last = c->nloops ? g->loops[c->loops[c->nloops - 1]].axis : -1, bytes = kn_dtype_bytes(kn_stage_load(t, g, c->load)->dtype);
    bool along_r = last == g->loops[g->tensor.loop[2]].axis;
    if (!c->swizzle || !kn_swizzle_of(t, g, c, &z) || (c->copies && kn_cache_ahead(g, c) < 1)) return false;
    if (along_r) return z.row * bytes == 128 && z.rows % 8 == 0;
    return c->panels && bytes == 2 && last == g->loops[g->tensor.loop[own]].axis && z.rows % 16 == 0;
}

bool kn_warp_fits(const kn_tree *t, const kn_stage *g, const kn_hw *hw, char *why, size_t cap)
{
    const kn_tensor_tile *x = &g->tensor;
    const kn_expr *source[KN_INTRIN_OPERANDS] = { NULL };
    if (!x->intrin) return snprintf(why, cap, "no instruction is computed by its warps") < 0;
    if (!kn_warp_of(x->intrin->spec)) return snprintf(why, cap, "'%s' is no instruction that a warp's threads compute together", x->intrin->name) < 0;
    bool group = kn_warp_of(x->intrin->spec)->threads > 32;
    if (hw->lanes != 32) return snprintf(why, cap, "a warp has %d threads, not 32", hw->lanes) < 0;
    for (int l = 0; l < x->intrin->nloops; l++)
        if (x->loop[l] < 0) return snprintf(why, cap, "loop %s of '%s' has no loop here", x->intrin->s->axes[l].name, x->intrin->name) < 0;
    if (!loops_fit(t, g, why, cap) || !kn_tensor_sources(t, g, x, source, why, cap)) return false;
    for (int o = 1; o < x->intrin->noperands; o++) {
        const kn_cache *c = source[o]->op == KN_OP_LOAD ? cache_of(t, g, source[o]) : NULL;
        if (!c || c->region || c->scope != KN_SHARED || c->at >= x->at || g->loops[c->at].kind != KN_SERIAL)
            return snprintf(why, cap, "operand %s of '%s' is no load with a shared cache by loops", x->intrin->operand[o].name, x->intrin->name) < 0;
        if (group && !source_fits(t, g, c, o - 1))
            return snprintf(why, cap, "operand %s of '%s' does not lie in swizzled rows of 128 bytes along R, or in panels of them, with a copy "
                            "to spare", x->intrin->operand[o].name, x->intrin->name) < 0;
    }
    return true;
}
