/* Convolutions that take some of the rows and columns alone (1x1 with steps): these are copied beside each other, so that their places are one axis
 * and the product is one of matrices. */
#include "construct/cpu.h"
#include "te/expr.h"

/* The load takes some of the rows and columns alone, each of its indices an axis of its own or a multiple of it: steps after which it reads what it
 * takes, in the same order, so that places are one run with nothing between rows; NULL: it is a window, or goes past its tensor. */
const char *kn_cpu_thinned(kiln_arena *a, const kn_site *v, int l, const kn_expr *load, const char *plane)
{
    kn_buf b;
    uint32_t seen = 0, many = 0;
    for (int i = 0; i < v->s->naxes && i < KILN_MAX_AXES; i++) many |= (uint32_t)(v->s->axes[i].extent > 1) << i;
    kn_buf_init(&b, a);
    kn_putf(&b, "reindex %s %d %s\ntransform_layout %s", v->name, l, plane, plane);
    for (int d = 0; d < load->nargs; d++) {
        uint32_t in = kn_axes_in(load->args[d]), moving = in & many, all = kn_axes_in(load);
        if ((moving & (moving - 1)) || (in & seen)) return NULL;
        seen |= in;
        for (; in; in &= in - 1) { /* each where it is among all of them */
            int at = 0;
            for (uint32_t below = ((in & -in) - 1) & all; below; below &= below - 1) at++;
            kn_putf(&b, " %d", at);
        }
    }
    kn_put(&b, "\n");
    kiln_bytes lines = kn_buf_take(&b);
    return v->load[l].padded ? NULL : lines.p;
}

/* Rows of an image whose last tiles compute so much beyond their ends, or of which each panel of a constant that L2 does not hold would read lines
 * with gaps between them. */
bool kn_cpu_joins_rows(const kn_site *x)
{
    enum { WORTH = 16 }; /* one place in so many, which is more than a copy of what is met by some dozen columns takes */
    int q, p;
    int64_t mr = kn_cpu_packed_rows(x, &q, &p), lanes = x->hw->vector_bytes / kn_cpu_acc_bytes(x), weights = kn_cpu_acc_bytes(x);
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    if (!mr || kn_cpu_extent(x, x->n) < WORTH * lanes) return false;
    for (int l = 0; l < x->nloads; l++)
        for (int i = 0; i < x->s->naxes && !(x->load[l].axes >> q & 1); i++)
            if (x->load[l].axes >> i & 1) weights *= kn_cpu_extent(x, i);
    int64_t rows = kn_cpu_extent(x, p), by_row = kn_round_up(kn_cpu_extent(x, q), mr) * rows, joined = kn_round_up(kn_cpu_extent(x, q) * rows, mr);
    bool again = l2 && kn_cpu_short_vectors(x) && weights > l2->capacity_bytes / 2; /* measured for these: 0.68 to 0.93 of the time */
    return again || (by_row - joined) * WORTH >= joined;
}
