/* The tile tree as indented text: one line a tile, then what hangs on its loops. */
#include "schedule/sched.h"

static void put_loop(kn_buf *b, const kn_loop *l)
{
    kn_putf(b, " %s:%lld", l->name, (long long)l->extent);
    if (l->kind != KN_SERIAL) kn_putf(b, "(%s)", l->warp ? "warp" : kn_loop_kind_text(l->kind));
    if (l->rfactor) kn_put(b, "(rfactor)");
    if (l->unroll) kn_putf(b, "(unroll %d)", l->unroll);
}

static void put_cache(kn_buf *b, const kn_tree *t, const kn_stage *g, const kn_cache *c)
{
    const kn_expr *load = kn_stage_load(t, g, c->load);
    const char *name = load ? t->program->tensors[load->u.tensor].name : "?";
    if (c->at < 0) kn_putf(b, "load %d %s packed ahead:", c->load, name);
    else kn_putf(b, "cache %d %s %s at %s:", c->load, name, kn_scope_text(c->scope), g->loops[c->at].name);
    if (c->region) kn_put(b, " region");
    if (c->last) kn_putf(b, " last %d", c->last - 1);
    for (int i = 0; i < c->nloops; i++) {
        kn_putf(b, " %s", g->loops[c->loops[i]].name);
        if (c->by[i]) kn_putf(b, "/%lld", (long long)c->by[i]);
        if (c->count[i]) kn_putf(b, "%%%lld", (long long)c->count[i]);
    }
    if (c->copies) kn_putf(b, " copies %d%s", c->copies, c->bulk ? " bulk" : c->async ? " async" : "");
    if (c->swizzle) kn_put(b, c->panels ? " swizzled panels" : " swizzled");
    if (c->pad) kn_putf(b, " pad %lld", (long long)c->pad);
    kn_putf(b, " (%lld bytes)\n", (long long)kn_cache_bytes(t, g, c));
}

static void indent(kn_buf *b, int n)
{
    for (int i = 0; i < n; i++) kn_put(b, "  ");
}

static void put_tensor(kn_buf *b, const kn_stage *g)
{
    kn_putf(b, ", %s at %s:", g->tensor.intrin->name, g->loops[g->tensor.at].name);
    for (int l = 0; l < g->tensor.intrin->nloops; l++)
        kn_putf(b, " %s=%s", g->tensor.intrin->s->axes[l].name, g->tensor.loop[l] < 0 ? "-" : g->loops[g->tensor.loop[l]].name);
}

static void put_stage(kn_buf *b, const kn_tree *t, const kn_stage *g)
{
    kn_putf(b, "stage %s", kn_stage_name(t, g));
    if (g->at_stage >= 0)
        kn_putf(b, " at %s of %s", t->stages[g->at_stage]->loops[g->at_loop].name, kn_stage_name(t, t->stages[g->at_stage]));
    if (g->ahead) kn_put(b, ", computed ahead");
    if (g->init_at >= 0) kn_putf(b, ", initialised at %s", g->loops[g->init_at].name);
    if (g->tensor.intrin) put_tensor(b, g);
    kn_put(b, "\n");
    for (int k = 0; k < g->ncaches; k++) {
        if (g->caches[k].at >= 0) continue;
        indent(b, 1);
        put_cache(b, t, g, &g->caches[k]);
    }
    int depth = 0;
    for (int i = 0; i < g->nloops; depth++) {
        int tile = g->loops[i].tile;
        indent(b, depth + 1);
        kn_putf(b, "tile %d:", tile);
        int first = i;
        for (; i < g->nloops && g->loops[i].tile == tile; i++) put_loop(b, &g->loops[i]);
        kn_put(b, "\n");
        for (int k = 0; k < g->ncaches; k++)
            if (g->caches[k].at >= first && g->caches[k].at < i) {
                indent(b, depth + 2);
                put_cache(b, t, g, &g->caches[k]);
            }
    }
    indent(b, depth + 1);
    kn_print_stmt(b, t->program, kn_stage_stmt(t, g));
    kn_put(b, "\n");
    if (g->epilogue >= 0) {
        indent(b, depth + 1);
        kn_put(b, "then ");
        kn_print_stmt(b, t->program, t->program->stmts[g->epilogue]);
        kn_put(b, "\n");
    }
}

void kn_tree_print(kn_buf *b, const kn_tree *t)
{
    for (int i = 0; i < t->nstages; i++) put_stage(b, t, t->stages[i]);
}
