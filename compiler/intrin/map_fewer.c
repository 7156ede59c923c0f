/* A mapping onto an instruction with fewer iterations of some loops (intrin/fewer.c), chosen so that tiles are whole. */
#include "intrin/map.h"

/* Iterations of a tile, of at most `most`, that divide all of them and make at most half as many tiles more; else `most`, as where one tile of
 * results has room for all: there is little to gain. */
static int64_t whole_tiles(int64_t all, int64_t most, int64_t by, bool reduce)
{
    int64_t least = kn_ceil_div(all, most);
    if (least == 1 && !reduce) return most;
    for (int64_t n = least; 2 * n <= 3 * least; n++)
        if (all % n == 0 && all / n % by == 0) return all / n;
    return most;
}

/* The load of a tensor of the instruction. */
static const kn_expr *load_of(const kn_intrin *it, int tensor)
{
    const kn_expr *loads[KILN_MAX_TENSORS];
    int n = kn_loads(it->s->body, loads, KILN_MAX_TENSORS);
    for (int i = 0; i < n && i < KILN_MAX_TENSORS; i++)
        if (loads[i]->u.tensor == tensor) return loads[i];
    return NULL;
}

/* The same mappings onto another instruction, which differs from theirs in extents alone. */
static const kn_maps *maps_onto(kiln_arena *a, const kn_maps *m, const kn_intrin *it)
{
    kn_maps *y = kn_new(a, kn_maps);
    if (!y) return NULL;
    *y = *m;
    y->it = it, y->hard = it->program, y->intrin = it->s, y->turned = NULL;
    for (int o = 0; o < y->nops; o++) {
        const kn_expr *load = o ? load_of(it, y->op[o].hard) : NULL;
        if (o && !load) return NULL;
        y->op[o].hard_index = o ? load->args : it->s->lhs;
    }
    return y;
}

/* Results lie in memory along the loops of another axis than j, and leave a tile in vectors of that. Along j itself they leave it in squares of its
 * rows and columns, or in whole vectors; along neither one by one. */
static bool results_across(const kn_maps *m, const kn_mapping *x, int j)
{
    const kn_map_operand *d = &m->op[0];
    uint32_t others = 0, along = d->nsoft ? kn_axes_in(d->soft_index[d->nsoft - 1]) : 0;
    for (int k = 0; k < m->it->nspatial; k++)
        if (k != j) others |= x->loops[k];
    return (along & others) && !(along & x->loops[j]);
}

const kn_maps *kn_map_fewer(kiln_arena *a, const kn_maps *m, const kn_mapping *x, bool terms)
{
    int64_t extent[KN_INTRIN_LOOPS];
    kn_map_window v;
    bool other = false, flat = kn_map_flattens(m, x, &v); /* of its places, those between the rows of the window count as well */
    for (int j = 0; j < m->it->nloops; j++) {
        extent[j] = m->intrin->axes[j].extent;
        if (!m->it->fewer[j] || !x->loops[j] || (j < m->it->nspatial && (terms || flat || !results_across(m, x, j)))) continue;
        extent[j] = whole_tiles(kn_map_extent(m, x, j), extent[j], m->it->fewer[j], j >= m->it->nspatial);
        other |= extent[j] != m->intrin->axes[j].extent;
    }
    const kn_intrin *it = other ? kn_intrin_at(a, m->it, extent) : NULL;
    return it ? maps_onto(a, m, it) : NULL;
}
