/* Where values lie between kernels: those that are alive at the same time side by side, the others on top of each other. */
#include "graph/plan.h"
#include <stdlib.h>

enum { ALIGN = 64 }; /* bytes; a cache line */

typedef struct life {
    int value, from, to; /* steps, inclusive */
    int64_t bytes, offset;
} life;

/* From when to when the owner of each value is alive: written first, read last, by whatever name. */
static void lifetimes(const kn_partition *p, life *of)
{
    for (int v = 0; v < p->g->nvalues; v++) of[v] = (life){v, -1, -1, 0, -1};
    for (int s = 0; s < p->nsteps; s++) {
        const kn_group *g = &p->groups[p->steps[s]];
        for (int i = 0; i < g->nin + g->nout; i++) {
            life *l = &of[kn_source(p, i < g->nin ? g->in[i] : g->out[i - g->nin])];
            if (l->from < 0) l->from = s;
            l->to = s;
        }
    }
    for (int i = 0; i < p->g->noutputs; i++) of[kn_source(p, p->g->outputs[i])].to = p->nsteps; /* copied out after the last step */
}

/* Greatest first; then by time, then by number: the same graph, the same plan. */
static int by_size(const void *x, const void *y)
{
    const life *a = x, *b = y;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? 1 : -1;
    if (a->from != b->from) return a->from < b->from ? -1 : 1;
    return a->value < b->value ? -1 : a->value > b->value;
}

static int by_offset(const void *x, const void *y)
{
    const life *a = *(const life *const *)x, *b = *(const life *const *)y;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    return a->value < b->value ? -1 : a->value > b->value;
}

/* The smallest gap that l fits in, among those placed before it that are alive with it. */
static int64_t place(const life *l, life *placed, int n, life **near)
{
    int k = 0;
    for (int i = 0; i < n; i++)
        if (placed[i].from <= l->to && l->from <= placed[i].to) near[k++] = &placed[i];
    qsort(near, (size_t)k, sizeof *near, by_offset);
    int64_t end = 0, best = -1, smallest = INT64_MAX;
    for (int i = 0; i < k; i++) {
        int64_t gap = near[i]->offset - end;
        if (gap >= l->bytes && gap < smallest) {
            smallest = gap;
            best = end;
        }
        if (near[i]->offset + near[i]->bytes > end) end = near[i]->offset + near[i]->bytes;
    }
    return best >= 0 ? best : end;
}

kiln_status kn_partition_memory(const kn_partition *p, const bool *fixed, int64_t *offsets, int64_t *bytes, kiln_diag *d)
{
    int n = 0, nv = p->g->nvalues;
    life *all = kn_array(p->a, life, nv + 1), **near = kn_array(p->a, life *, nv + 1);
    if (!all || !near) return kn_fail(d, KILN_MEMORY, "out of memory");
    lifetimes(p, all);
    for (int v = 0; v < nv; v++) {
        offsets[v] = -1;
        if (fixed[v] || all[v].from < 0 || p->places[v].base != v) continue;
        life l = all[v];
        l.bytes = kn_round_up(kn_value_bytes(&p->g->values[v]), ALIGN);
        all[n++] = l;
    }
    qsort(all, (size_t)n, sizeof *all, by_size);
    *bytes = 0;
    for (int i = 0; i < n; i++) {
        all[i].offset = place(&all[i], all, i, near);
        offsets[all[i].value] = all[i].offset;
        if (all[i].offset + all[i].bytes > *bytes) *bytes = all[i].offset + all[i].bytes;
        if (*bytes > KILN_MAX_ELEMENTS) return kn_fail(d, KILN_LIMIT, "the values between kernels take more than 2^40 bytes");
    }
    return KILN_OK;
}
