/* From a mapping to its sizes: tiles with padded tails, outer loops, and where every operand's elements stand. */
#include "intrin/map.h"
#include <string.h>

static const kn_intrin_operand *hard_operand(const kn_maps *m, int o)
{
    return &m->it->operand[kn_intrin_operand_of(m->it, m->op[o].hard)];
}

static bool loop_moves(const kn_map_operand *x, int loop)
{
    for (int k = 0; k < x->nsoft; k++)
        if (kn_axes_in(x->soft_index[k]) >> loop & 1) return true;
    return false;
}

/* The packed copy, from its innermost dimension out. */
static bool packed(const kn_maps *m, const kn_map_plan *p, int o, kn_map_layout *y)
{
    const kn_intrin_operand *h = hard_operand(m, o);
    int64_t row = 1;
    *y = (kn_map_layout){.tile_bytes = h->elems * kn_dtype_bytes(h->dtype), .elems = h->elems};
    for (int k = h->rank - 1; k >= 0 && h->plain; k--) {
        for (int j = 0; j < m->it->nloops; j++) y->step[j] += h->index[k].coef[j] * row;
        row *= h->shape[k];
    }
    for (int j = m->it->nloops - 1; j >= 0; j--) {
        if (!(h->loops >> j & 1)) continue;
        y->tile[j] = y->elems;
        if (!kn_mul_fits(y->elems, p->tiles[j], &y->elems)) return false;
    }
    for (int l = m->stmt->naxes - 1; l >= 0; l--) {
        if (!(p->outer >> l & 1) || !loop_moves(&m->op[o], l)) continue;
        y->loop[l] = y->elems;
        if (!kn_mul_fits(y->elems, m->stmt->axes[l].extent, &y->elems)) return false;
    }
    return y->elems <= KILN_MAX_ELEMENTS;
}

/* Step of the loops that feed axis j without a tail, if they are one run: each steps over all of those inside of it. 0: they are none. */
static int64_t whole_run(const kn_maps *m, const kn_mapping *x, int j, const int64_t *coef)
{
    int64_t step = 0, next = 0;
    for (int l = m->stmt->naxes - 1; l >= 0; l--) {
        int64_t extent = m->stmt->axes[l].extent;
        if (!(x->loops[j] >> l & 1) || (extent == 1 && kn_map_extent(m, x, j) > 1)) continue;
        if (step && coef[l] != next) return 0;
        if (!step) step = coef[l];
        next = coef[l] * extent;
    }
    return kn_map_extent(m, x, j) % m->intrin->axes[j].extent ? 0 : step;
}

/* The operand where it is: every axis one loop without a tail, nothing padded, and the instruction's rows contiguous. */
static bool direct(const kn_maps *m, const kn_mapping *x, int o, kn_map_layout *y)
{
    const kn_map_operand *op = &m->op[o];
    const kn_intrin_operand *h = hard_operand(m, o);
    const kn_tensor *t = &m->soft->tensors[op->soft];
    const kn_expr *loads[KILN_MAX_TENSORS];
    int64_t stride = 1, coef[KILN_MAX_AXES] = {0};
    kn_map_layout z = {.direct = true, .tile_bytes = y->tile_bytes};
    if (!h->plain || (op->load >= 0 && op->load < kn_loads(m->stmt->body, loads, KILN_MAX_TENSORS) && loads[op->load]->padded)) return false;
    for (int k = op->nsoft - 1; k >= 0; k--) {
        kn_affine f;
        if (!kn_affine_of(op->soft_index[k], &f)) return false;
        for (int l = 0; l < m->stmt->naxes; l++) coef[l] += f.coef[l] * stride;
        z.base += f.offset * stride;
        stride *= t->shape[k];
    }
    z.elems = stride;
    memcpy(z.loop, coef, sizeof coef);
    for (int j = 0; j < m->it->nloops; j++) {
        for (int l = 0; l < m->stmt->naxes; l++)
            if (x->loops[j] >> l & 1) z.loop[l] = 0;
        if (!(h->loops >> j & 1)) continue;
        z.step[j] = whole_run(m, x, j, coef);
        if (!z.step[j]) return false;
        z.tile[j] = z.step[j] * m->intrin->axes[j].extent;
    }
    if (h->rank && (h->lone[h->rank - 1] < 0 || z.step[h->lone[h->rank - 1]] != 1)) return false;
    *y = z;
    return true;
}

kiln_status kn_map_plan_of(const kn_maps *m, const kn_mapping *x, kn_map_plan *out, kiln_diag *d)
{
    kn_map_plan p = {.calls = 1, .outer = (1u << m->stmt->naxes) - 1};
    double wanted = 1;
    bool fits = true;
    for (int j = 0; j < m->it->nloops; j++) {
        p.outer &= ~x->loops[j];
        p.fused[j] = kn_map_extent(m, x, j);
        fits = fits && p.fused[j] > 0;
        p.tiles[j] = kn_ceil_div(p.fused[j], m->intrin->axes[j].extent);
        fits = fits && kn_mul_fits(p.calls, p.tiles[j], &p.calls);
        wanted *= (double)p.fused[j];
    }
    for (int l = 0; l < m->stmt->naxes && fits; l++) {
        if (!(p.outer >> l & 1)) continue;
        fits = kn_mul_fits(p.calls, m->stmt->axes[l].extent, &p.calls);
        wanted *= (double)m->stmt->axes[l].extent;
    }
    for (int o = 0; o < m->nops && fits; o++) {
        fits = packed(m, &p, o, &p.operand[o]);
        if (fits) direct(m, x, o, &p.operand[o]);
    }
    if (!fits) return kn_fail(d, KILN_LIMIT, "%s: an operand would have more than 2^40 elements", m->it->name);
    p.padding = (double)p.calls * (double)m->it->points / wanted;
    *out = p;
    return KILN_OK;
}
