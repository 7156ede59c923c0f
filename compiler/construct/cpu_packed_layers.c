/* The other factor of a window's sum in layers: of its copy, which fills in the padding, a part of the terms lies together for all places, as long as
 * a panel's block in L1. A tile of places then reads one run, layers use every set of the caches, and prefetchers follow; whole terms of each place
 * one behind the other are short runs far apart, of which a block's fall into a few sets. */
#include "construct/packed.h"
#include <string.h>

/* The copy that the load reads is a map of its own, which nothing else reads, with the blocked axis alone along its last dimension. */
static bool is_copied(const packed *k, const kn_expr *load)
{
    const kn_program *p = k->x->t->program;
    const kn_stmt *writer = NULL;
    const kn_expr *loads[KN_SITE_LOADS], *last = load->args[load->nargs - 1];
    int reads = 0;
    if (p->tensors[load->u.tensor].role != KN_TEMP || load->padded || last->op != KN_OP_AXIS || last->u.axis != k->blocked) return false;
    for (int i = 0; i < p->nstmts; i++) {
        int n = kn_loads(p->stmts[i]->body, loads, KN_SITE_LOADS);
        if (n > KN_SITE_LOADS) return false;
        for (int l = 0; l < n; l++) reads += loads[l]->u.tensor == load->u.tensor;
        if (p->stmts[i]->out == load->u.tensor) writer = p->stmts[i];
    }
    return writer && writer->red == KN_RED_NONE && reads == 1 && load->nargs < KILN_MAX_RANK;
}

/* The other factor's load; NULL: it has no layers. Of long vectors a place's terms are fewer and runs are longer (not measured). */
static const kn_expr *layered(const packed *k)
{
    enum { PLACES = 128 }; /* fewer wait for what is copied of rows that lie along the lanes: a layer's are shorter runs of them */
    const kn_expr *loads[2];
    if (k->p < 0 || !kn_cpu_short_vectors(k->x) || k->lies || k->dots || k->beside || k->padded || k->boxed || k->uneven) return NULL;
    if (!kn_packed_in_panels(k) || kn_loads(k->x->s->body, loads, 2) != 2 || !is_copied(k, loads[k->v])) return NULL;
    bool lies = k->copied && !k->turns, made = k->x->t->program->tensors[loads[k->w]->u.tensor].role == KN_TEMP; /* better turned as it is packed */
    return lies && (made || extent(k, k->p) * extent(k, k->q) < PLACES) ? NULL : loads[k->v];
}

/* Whole vectors that divide the axis, of which half of L1 holds a panel's block; at least so many steps as partial sums are worth bringing for, but
 * where layers save a copied factor's packing, too (3x3 in groups of 40 channels to 20, of 16 to 16: layers of 8 take 1.4 and 1.14 times as long). */
int64_t kn_packed_layer(const packed *k, int64_t nv)
{
    enum { STEPS = 96 };
    const kn_hw_level *l1 = kn_hw_level_named(k->x->hw, "l1");
    int64_t all = extent(k, k->blocked), inside = k->x->reduce_extent / all, line = nv * k->lanes * kn_packed_bytes(k), best = 0;
    int64_t room = (l1 ? l1->capacity_bytes : 32768) / 2 / (line * inside), least = kn_ceil_div(STEPS, inside);
    if (!layered(k)) return 0;
    for (int64_t n = k->lanes; n < all && (n <= room || best < least); n += k->lanes)
        if (all % n == 0) best = n;
    return best < least && (!k->copied || kn_packed_whole(k)) ? 0 : best;
}

void kn_packed_put_layers(kn_buf *b, const packed *k)
{
    const kn_expr *load = layered(k);
    int last = load->nargs - 1, row = 0;
    while (row < last && !(kn_axes_in(load->args[row]) >> k->p & 1)) row++;
    kn_putf(b, "transform_layout %s", k->x->t->program->tensors[load->u.tensor].name);
    for (int d = 0; d < last; d++) {
        if (d == row) kn_putf(b, " %d/%lld", last, (long long)k->layer);
        kn_putf(b, " %d", d);
    }
    if (row == last) kn_putf(b, " %d/%lld", last, (long long)k->layer);
    kn_putf(b, " %d%%%lld\n", last, (long long)k->layer);
}
