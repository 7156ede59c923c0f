/* Which tiles around an instruction a core has for itself. Tasks are dealt out in runs; where the loop of the first of them leads to results that
 * lie near to each other, as the lines of an image of which each filter has its own do, the cores write into the same lines of their caches, and
 * each of them reads all that moves with what lies further apart, weights (on a Sapphire Rapids, 3x3 windows, channels first, of 160 to 512 channels
 * 1.0 to 1.3 times as fast on two cores, 1.03 to 1.3 on one; of 128 and 64, whose image is larger than they are, 0.8 to 1.07). */
#include "intrin/trace.h"

int kn_map_result_dim(const kn_map_writer *w, const kn_map_outer *l)
{
    int loop = -1;
    if (l->axis >= 0 && kn_map_several(w->x->loops[l->axis])) return -1;
    for (int i = 0; i < w->m->stmt->naxes && l->axis < 0; i++)
        if (w->m->stmt->axes[i].name == l->name) loop = i;
    if (l->axis >= 0) loop = __builtin_ctz(w->x->loops[l->axis]);
    for (int k = 0; k < w->m->op[0].nsoft && loop >= 0; k++)
        if (w->m->op[0].soft_index[k]->op == KN_OP_AXIS && w->m->op[0].soft_index[k]->u.axis == loop) return k;
    return -1;
}

/* Bytes of the operands that move with the loop and not with the other one. */
static double held_by(const kn_map_writer *w, const kn_map_outer *l, const kn_map_outer *other)
{
    double bytes = 0;
    for (int o = 1; o < w->m->nops; o++)
        if ((l->moves & ~other->moves) >> o & 1) bytes += w->held[o];
    return bytes;
}

void kn_map_deal_out(kn_map_writer *w, const kn_hw *hw)
{
    enum { FEWEST = 2, MORE = 2 }; /* tiles of a core; times what moves with them is to what all cores read then */
    int first = 0;
    if (!w->unit || !w->tidy || hw->units < 2) return;
    while (first < w->nouter && !w->outer[first].reduce && kn_map_tiles(&w->outer[first]) == 1) first++;
    for (int i = first + 1; i < w->nouter && !w->outer[i].reduce; i++) {
        int64_t tiles = kn_map_tiles(&w->outer[i]);
        int further = kn_map_result_dim(w, &w->outer[i]), nearer = kn_map_result_dim(w, &w->outer[first]);
        if (further < 0 || further >= nearer || tiles % hw->units || tiles / hw->units < FEWEST) continue;
        double own = held_by(w, &w->outer[i], &w->outer[first]), all = held_by(w, &w->outer[first], &w->outer[i]);
        if (!(own > 0) || own < MORE * all) continue;
        w->outer[i].own = tiles / hw->units;
        return;
    }
}
