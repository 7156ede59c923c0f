/* What copies the wanted part of a result that has grown to whole tiles. On a unit of its own (AMX) it finishes the sum where results lie as in their
 * tiles, and is no copy then; where they are turned on their way out it is attached: the part that a task's loops have made is copied while L1 holds
 * it, instead of after all of the result went out to memory. */
#include "intrin/trace.h"

static const kn_tensor *result(const kn_map_writer *w) { return &w->m->soft->tensors[w->m->op[0].soft]; }

/* Dimension of the result at which the loop is written by itself; -1: none. */
static int dim_of(const kn_map_writer *w, const kn_map_outer *l)
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

/* Elements of a vector that the last dimension, of so many elements, is copied in. */
static int64_t lanes_of(const kn_map_writer *w, int64_t extent)
{
    int64_t lanes = w->vector_bytes / 4;
    while (lanes > extent) lanes /= 2;
    return lanes;
}

bool kn_map_crop_finishes(const kn_map_writer *w)
{
    return w->crop && w->unit && w->tidy && kn_map_results_along(w, w->m->it->operand[0].rank - 1);
}

void kn_map_crop_alone(const kn_map_writer *w)
{
    int rank = w->m->op[0].nsoft, lanes = w->vector_bytes / 4;
    if (!w->crop || !w->tidy || w->unit || rank < 2) return;
    while (lanes > 1 && result(w)->shape[rank - 1] % lanes) lanes /= 2;
    if (lanes < 4) return;
    kn_putf(w->b, "split %s W%d %d\nparallel %s W0.0\nparallel %s W1.0\nvectorize %s W%d.1\n", w->crop, rank - 1, lanes, w->crop, w->crop, w->crop,
            rank - 1);
}

/* Loops of the copy's dimension k: as the statement's, the last one in vectors. Gives how many. */
static int splits(const kn_map_writer *w, int k, const kn_map_outer *l)
{
    bool cut = l && l->axis >= 0 && kn_map_cut(w, l->axis), last = k == w->m->op[0].nsoft - 1;
    int64_t e = cut ? w->m->intrin->axes[l->axis].extent : 1, lanes = lanes_of(w, result(w)->shape[k]), all = e * (l ? l->piece : 1);
    int n = 1;
    if (last && lanes > 1 && all > 1 && all % lanes == 0) {
        kn_putf(w->b, "split %s W%d %lld %lld\n", w->crop, k, (long long)(all / lanes), (long long)lanes);
        return 3;
    }
    if (all > 1) {
        kn_putf(w->b, "split %s W%d %lld\n", w->crop, k, (long long)all);
        return 2;
    }
    if (last && lanes > 1) kn_putf(w->b, "split %s W%d %lld\n", w->crop, k, (long long)lanes), n = 2;
    return n;
}

static bool has_grown(const kn_map_writer *w, const kn_map_outer *l) { return l->axis >= 0 && (w->grown >> l->axis & 1); }

int kn_map_crop_shares(kn_map_writer *w)
{
    int shared = 0;
    int64_t iterations = 1;
    if (!w->crop || !w->unit || !w->tidy || w->m->op[0].nsoft < 2) return 0;
    for (int i = 1; i < w->nouter && !w->outer[i].reduce; i++) /* what has grown goes inside */
        for (int k = i; k > 0 && has_grown(w, &w->outer[k - 1]) && !has_grown(w, &w->outer[k]); k--) {
            kn_map_outer l = w->outer[k];
            w->outer[k] = w->outer[k - 1], w->outer[k - 1] = l;
        }
    for (; shared < w->nouter && shared < KILN_MAX_RANK && !w->outer[shared].reduce; shared++) {
        if (has_grown(w, &w->outer[shared]) || dim_of(w, &w->outer[shared]) < 0) break;
        iterations *= kn_ceil_div(w->outer[shared].count, w->outer[shared].piece);
    }
    return iterations > 1 ? shared : 0;
}

void kn_map_crop_attach(kn_map_writer *w, const kn_hw *hw, int shared)
{
    int rank = w->m->op[0].nsoft, dim[KILN_MAX_RANK], count[KILN_MAX_RANK] = {0}, last = rank - 1;
    const kn_map_outer *of[KILN_MAX_RANK] = {NULL};
    int64_t tasks = 1;
    for (int i = 0; i < shared; i++) dim[i] = dim_of(w, &w->outer[i]), of[dim[i]] = &w->outer[i];
    for (int k = 0; k < rank; k++) count[k] = splits(w, k, of[k]);
    kn_putf(w->b, "reorder %s", w->crop);
    for (int i = 0; i < shared; i++) kn_putf(w->b, " W%d.0", dim[i]);
    kn_put(w->b, " |");
    for (int k = 0; k < rank; k++)
        for (int n = of[k] ? 1 : 0; n < count[k] - (k == last && count[k] > 1); n++) kn_putf(w->b, " W%d.%d", k, n);
    if (count[last] > 1) kn_putf(w->b, " W%d.%d", last, count[last] - 1);
    kn_put(w->b, "\n");
    for (int i = 0; i < shared && kn_map_forks(w, hw) && !kn_map_tasks_enough(tasks, hw); i++) {
        kn_putf(w->b, "parallel %s W%d.0\n", w->crop, dim[i]);
        tasks *= kn_ceil_div(w->outer[i].count, w->outer[i].piece);
    }
    if (count[last] > 1) kn_putf(w->b, "vectorize %s W%d.%d\n", w->crop, last, count[last] - 1);
    kn_putf(w->b, "compute_at %s %s W%d.0\n", w->stmt, w->crop, dim[shared - 1]);
}
