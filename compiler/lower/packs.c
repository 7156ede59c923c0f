/* What is done before the first call: copies of constant inputs, in the order in which stages read them, and what is computed of them alone. The copy
 * lies where the caller's pointer points, what is computed behind it. */
#include "lower/lower.h"

int kn_lw_packed(kn_lw *w, int tensor, int64_t elems)
{
    if (w->packed_buffer[tensor] >= 0) return w->packed_buffer[tensor];
    int b = kn_lw_buffer(w, "packed", w->p->program->tensors[tensor].dtype, 1, elems, KN_PACKED);
    w->p->buffers[b].slot = tensor;
    return w->packed_buffer[tensor] = b;
}

/* The copies are made last, so that what is computed before has their place as scratch memory. */
void kn_lw_ahead(kn_lw *w)
{
    for (int i = 0; i < w->t->nstages && !w->status; i++) {
        const kn_stage *g = w->t->stages[i];
        if (!g->ahead) continue;
        int out = kn_stage_out(w->t, g), b = kn_lw_buffer(w, "ahead", w->p->program->tensors[out].dtype, 1,
                                                          kn_lw_elems(&w->p->program->tensors[out]), KN_PACKED);
        w->p->buffers[b].slot = kn_stage_constant(w->t, g);
        w->tensor_buffer[out] = b;
        kn_fn *fn = &w->p->packs[w->p->npacks];
        int64_t calls = w->p->scratch_bytes;
        w->p->scratch_bytes = 0;
        kn_lw_fn(w, fn, &w->p->npacks, i);
        fn->scratch_bytes = w->p->scratch_bytes;
        w->p->scratch_bytes = calls;
    }
}

void kn_lw_packs(kn_lw *w, int stage)
{
    const kn_stage *g = w->t->stages[stage];
    for (int k = 0; k < g->ncaches && !w->status; k++) {
        if (g->caches[k].scope != KN_PACKED) continue;
        kn_sg *sg = kn_new(w->a, kn_sg);
        kn_fn *fn = w->fn = &w->p->packs[w->p->npacks];
        if (!sg || !kn_lw_stage_init(w, sg, stage, true)) {
            if (!sg) kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
            return;
        }
        *fn = (kn_fn){.stage = stage, .grid = 1, .threads = 1, .var_grid = kn_lw_var(w, "task", 0, 0), .var_thread = -1};
        w->tail = &fn->body;
        kn_lw_fill(w, sg, k);
        kn_lw_finish_fn(w, fn, &w->p->npacks);
    }
}

/* A constant that calls read as it is, of which something is computed ahead. */
static void copy_whole(kn_lw *w, int tensor)
{
    int64_t n = kn_lw_elems(&w->p->program->tensors[tensor]);
    int to = kn_lw_packed(w, tensor, n), from = kn_lw_tensor(w, tensor), i = kn_lw_var(w, "i", 0, n - 1);
    kn_fn *fn = w->fn = &w->p->packs[w->p->npacks];
    *fn = (kn_fn){.grid = 1, .threads = 1, .var_grid = kn_lw_var(w, "task", 0, 0), .var_thread = -1};
    w->tail = &fn->body;
    kn_ls *loop = kn_lw_for(w, i, kn_lw_int(w, 0), kn_lw_int(w, n));
    if (!loop) return;
    w->tail = &loop->body;
    kn_lw_store(w, to, kn_lw_ref(w, i), kn_lw_read(w, from, kn_lw_ref(w, i), 1));
    kn_lw_finish_fn(w, fn, &w->p->npacks);
}

static void place(kn_lw *w, int tensor)
{
    const kn_lprog *p = w->p;
    int copy = w->packed_buffer[tensor];
    int64_t own = copy < 0 ? 0 : p->buffers[copy].elems * kn_dtype_bytes(p->buffers[copy].dtype), at = kn_round_up(own, 64);
    for (int i = 0; i < p->nbuffers; i++) {
        kn_buffer *b = &p->buffers[i];
        if (b->scope != KN_PACKED || b->slot != tensor || i == copy) continue;
        b->offset = at;
        at += kn_round_up(b->elems * kn_dtype_bytes(b->dtype), 64);
    }
    for (int i = 0; i < p->npacks; i++) {
        kn_fn *f = &p->packs[i];
        if (kn_pack_slot(p, i) == tensor && f->scratch_bytes) f->scratch_at = f->scratch_bytes <= own ? 0 : at;
    }
}

void kn_lw_place_packed(kn_lw *w)
{
    for (int i = 0; i < w->t->nstages && !w->status; i++) {
        int x = w->t->stages[i]->ahead ? kn_stage_constant(w->t, w->t->stages[i]) : -1;
        if (x < 0) continue;
        if (w->packed_buffer[x] < 0 && kn_loads_in_calls(w->t, x)) copy_whole(w, x);
        if (!w->status) place(w, x);
    }
}
