/* CUDA text of a pipeline of bulk copies: barriers, boxes of tensor maps, registers of roles. */
#include "codegen/gen.h"

static void put_bar(kn_gen *g, const kn_pipe *p)
{
    kn_put_buffer(g, p->bars);
    kn_put(&g->out, " + ");
    kn_put_index(g, p->slot);
}

static void put_map(kn_gen *g, int tensor)
{
    for (int i = 0; i < g->p->nbuffers; i++) {
        if (g->p->buffers[i].scope != KN_GLOBAL || g->p->buffers[i].slot != tensor) continue;
        kn_put(&g->out, "&");
        kn_put_buffer(g, i);
        return;
    }
    kn_gen_refuse(g, KILN_INTERNAL, "a map of no argument");
}

static void put_load(kn_gen *g, const kn_pipe *p)
{
    bool all = p->peers > 1;
    if (p->offset[0]) g->warp[KN_WT_WINDOW] = true;
    else g->warp[(all ? KN_WT_LOAD_ALL_2 : KN_WT_LOAD_2) + p->rank - 2] = true;
    kn_putf(&g->out, p->offset[0] ? "k_window(" : all ? "k_load_all_%d(" : "k_load_%d(", p->rank);
    kn_put_buffer(g, p->buffer);
    kn_put(&g->out, " + ");
    kn_put_index(g, p->at);
    kn_put(&g->out, ", ");
    put_map(g, p->tensor);
    kn_put(&g->out, ", ");
    put_bar(g, p);
    for (int i = 0; i < p->rank; i++) {
        kn_put(&g->out, ", ");
        kn_put_index(g, p->coord[i]);
    }
    for (int i = 0; i < 2 && p->offset[0]; i++) {
        kn_put(&g->out, ", ");
        kn_put_index(g, p->offset[i]);
    }
    if (all) kn_putf(&g->out, ", %d", (1 << p->peers) - 1);
    kn_put(&g->out, ");");
}

static void put_arrive(kn_gen *g, const kn_pipe *p)
{
    if (p->peer) g->warp[KN_WT_ARRIVE_AT] = true;
    kn_put(&g->out, p->peer ? "k_arrive_at(" : "k_arrive(");
    put_bar(g, p);
    if (p->peer) {
        kn_put(&g->out, ", ");
        kn_put_index(g, p->peer);
    }
    kn_put(&g->out, ");");
}

static void put_store(kn_gen *g, const kn_pipe *p)
{
    g->warp[KN_WT_STORE_2 + p->rank - 2] = g->warp[KN_WT_MAP] = true;
    kn_putf(&g->out, "k_store_%d(", p->rank);
    put_map(g, p->tensor);
    kn_put(&g->out, ", ");
    kn_put_buffer(g, p->buffer);
    kn_put(&g->out, " + ");
    kn_put_index(g, p->at);
    for (int i = 0; i < p->rank; i++) {
        kn_put(&g->out, ", ");
        kn_put_index(g, p->coord[i]);
    }
    kn_put(&g->out, ");");
}

/* The number of a named barrier is written out for each group: one that is computed would take all of them. */
static void put_meet(kn_gen *g, const kn_pipe *p)
{
    g->warp[KN_WT_MEET] = true;
    for (int64_t i = 1; i <= p->n; i++) {
        if (i < p->n) {
            kn_put(&g->out, "if (");
            kn_put_index(g, p->slot);
            kn_putf(&g->out, " == %lld) ", (long long)i);
        }
        kn_putf(&g->out, i < p->n ? "KN_MEET(%lld); else " : "KN_MEET(%lld);", (long long)i);
    }
}

void kn_put_pipe(kn_gen *g, const kn_ls *s)
{
    const kn_pipe *p = s->pipe;
    static const char *const names[] = {[KN_PIPE_INIT] = "k_bar_init(", [KN_PIPE_EXPECT] = "k_expect(", [KN_PIPE_AWAIT] = "k_await("};
    g->warp[KN_WT_SHARED_AT] = g->warp[KN_WT_BARS] = true;
    switch (p->step) {
    case KN_PIPE_INIT:
    case KN_PIPE_EXPECT:
    case KN_PIPE_AWAIT:
        kn_put(&g->out, names[p->step]);
        put_bar(g, p);
        kn_put(&g->out, ", ");
        if (p->step == KN_PIPE_AWAIT) kn_put_index(g, p->parity);
        else kn_putf(&g->out, "%lld", (long long)p->n);
        kn_put(&g->out, ");");
        break;
    case KN_PIPE_OPEN: kn_put(&g->out, "k_bar_open();"); break;
    case KN_PIPE_ARRIVE: put_arrive(g, p); break;
    case KN_PIPE_LOAD: put_load(g, p); break;
    case KN_PIPE_PREFETCH:
        g->warp[KN_WT_PREFETCH_MAP] = true;
        kn_put(&g->out, "KN_PREFETCH_MAP(");
        put_map(g, p->tensor);
        kn_put(&g->out, ");");
        break;
    case KN_PIPE_REGISTERS:
        g->warp[KN_WT_ROLES] = true;
        kn_putf(&g->out, "KN_REGISTERS(\"%s\", %lld);", p->more ? "inc" : "dec", (long long)p->n);
        break;
    case KN_PIPE_MEET: put_meet(g, p); break;
    case KN_PIPE_STORE: put_store(g, p); break;
    case KN_PIPE_STORED:
        g->warp[KN_WT_STORED] = true;
        kn_putf(&g->out, "KN_STORED(%lld);", (long long)p->n);
        break;
    case KN_PIPE_CLUSTER:
        g->warp[KN_WT_CLUSTER] = true;
        kn_put(&g->out, "KN_CLUSTER();");
        break;
    default: kn_gen_refuse(g, KILN_INTERNAL, "a step of bulk copies that has no text");
    }
}
