/* Products whose rows begin at no multiple of 16 bytes, on a GPU whose copy engine or asynchronous copies want that: the axes that lie in memory are
 * filled up, in copies. What these are worth, beside a kernel that gathers its elements one by one, says the cost model. */
#include "construct/site.h"

enum { RUN_BYTES = 16 };

/* Axes along which a factor's rows lie, and end at no such multiple. */
static uint32_t ragged(const kn_site *x)
{
    uint32_t axes = 0;
    for (int l = 0; l < x->nloads; l++) {
        const kn_site_access *a = &x->load[l];
        if (!a->linear || a->padded || a->bent || a->bytes >= RUN_BYTES) return 0;
        for (int i = 0; i < x->s->naxes; i++)
            if ((a->axes >> i & 1) && a->coef[i] == 1 && x->s->axes[i].extent * a->bytes % RUN_BYTES) axes |= 1u << i;
    }
    return axes;
}

const char *kn_padded_steps(kiln_arena *a, const kn_site *x)
{
    if (x->s->scatter || !x->contraction || x->nloads != 2) return NULL;
    uint32_t axes = ragged(x);
    kn_buf b;
    kn_buf_init(&b, a);
    for (int i = x->s->naxes - 1; i >= 0; i--) /* the sum's first: along the others results change their name */
        if (axes >> i & 1) kn_putf(&b, "pad_einsum %s %s %d\n", x->name, x->s->axes[i].name, RUN_BYTES / x->load[0].bytes);
    return axes ? kn_buf_take(&b).p : NULL;
}
