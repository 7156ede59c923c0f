/* Windows over few channels, for instructions with registers of their own, whose rows of terms they do not fill: along the columns every window
 * gets its elements side by side in a copy, so that columns and channels of the weights are one axis of terms (im2col along rows alone). */
#include "construct/site.h"
#include "te/expr.h"

enum { FEW = 32 }; /* channels */

/* Dimension of the load that columns and taps alone slide along, the channels' by itself beside it; no other one has any of these axes. */
static bool slides(const kn_site *x, const kn_expr *load, int b, int r, int c)
{
    uint32_t pair = 1u << b | 1u << r;
    bool window = false, channels = false;
    for (int d = 0; d < load->nargs; d++) {
        const kn_expr *at = load->args[d];
        kn_affine f;
        uint32_t in = kn_axes_in(at);
        bool own = at->op == KN_OP_AXIS && at->u.axis == c;
        if (!(in & (pair | 1u << c))) continue;
        if (own && !channels) channels = true;
        else if (in == pair && !window && kn_affine_of(at, &f) && f.coef[b] > 0 && f.coef[r] > 0) window = true;
        else return false;
    }
    return window && channels && x->s->axes[r].extent > 1 && x->s->axes[c].extent > 1 && x->s->axes[c].extent <= FEW;
}

const char *kn_unfold_steps(kiln_arena *a, const kn_site *x, const char *copy, const char *taps)
{
    const kn_expr *loads[KN_SITE_LOADS];
    const kn_axis *axes = x->s->axes;
    if (x->hw->gpu || !x->hw->tile_registers || !x->contraction || x->s->scatter || kn_loads(x->s->body, loads, KN_SITE_LOADS) != 2) return NULL;
    const kn_tensor *tensors = x->t->program->tensors;
    for (int l = 0; l < 2; l++) {
        if (!loads[l]->padded && tensors[loads[l]->u.tensor].role != KN_INPUT) continue; /* such a copy's rows are not unfolded once more */
        for (int b = x->s->nspatial - 1; b >= 0; b--) /* the innermost one that slides: its windows lie in the same lines */
            for (int r = x->s->nspatial; r < x->s->naxes; r++)
                for (int c = x->s->nspatial; c < x->s->naxes; c++)
                    if (c != r && slides(x, loads[l], b, r, c))
                        return kn_format(a, "unfold %s %d %s %s %s %s%s %s\nreindex %s %d %s", x->name, l, axes[b].name, axes[r].name, axes[c].name,
                                         axes[r].name, axes[c].name, copy, x->name, 1 - l, taps);
    }
    return NULL;
}
