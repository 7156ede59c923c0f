/* What copies the wanted part of a result that has grown to whole tiles. On a unit of its own (AMX) it finishes the sum where results lie as in their
 * tiles, and is no copy then; where they are turned on their way out it is attached: the part that a task's loops have made is copied while L1 holds
 * it, instead of after all of the result went out to memory. */
#include "intrin/trace.h"

static const kn_tensor *result(const kn_map_writer *w) { return &w->m->soft->tensors[w->m->op[0].soft]; }

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
    int64_t e = cut ? w->m->intrin->axes[l->axis].extent : 1, lanes = lanes_of(w, result(w)->shape[k]), all = e * (l ? l->piece : 1), by[3];
    int n = 0;
    if (l && l->own) by[n++] = l->own;
    if (last && lanes > 1 && all > 1 && all % lanes == 0) by[n++] = all / lanes, by[n++] = lanes;
    else if (all > 1 || (l && l->own)) by[n++] = all;
    else if (last && lanes > 1) by[n++] = lanes;
    if (n) kn_putf(w->b, "split %s W%d", w->crop, k);
    for (int i = 0; i < n; i++) kn_putf(w->b, " %lld%s", (long long)by[i], i + 1 < n ? "" : "\n");
    return n + 1;
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
        if (has_grown(w, &w->outer[shared]) || kn_map_result_dim(w, &w->outer[shared]) < 0) break;
        iterations *= kn_map_tiles(&w->outer[shared]);
    }
    return iterations > 1 ? shared : 0;
}

void kn_map_crop_attach(kn_map_writer *w, const kn_hw *hw, int shared)
{
    int rank = w->m->op[0].nsoft, dim[KILN_MAX_RANK], count[KILN_MAX_RANK] = {0}, last = rank - 1;
    const kn_map_outer *of[KILN_MAX_RANK] = {NULL};
    int64_t tasks = 1;
    for (int i = 0; i < shared; i++) dim[i] = kn_map_result_dim(w, &w->outer[i]), of[dim[i]] = &w->outer[i];
    for (int k = 0; k < rank; k++) count[k] = splits(w, k, of[k]);
    kn_putf(w->b, "reorder %s", w->crop);
    for (int i = 0; i < shared; i++)
        if (w->outer[i].own) kn_putf(w->b, " W%d.0", dim[i]);
    for (int i = 0; i < shared; i++) kn_putf(w->b, " W%d.%d", dim[i], kn_map_level(&w->outer[i]));
    kn_put(w->b, " |");
    for (int k = 0; k < rank; k++)
        for (int n = of[k] ? 1 + kn_map_level(of[k]) : 0; n < count[k] - (k == last && count[k] > 1); n++) kn_putf(w->b, " W%d.%d", k, n);
    if (count[last] > 1) kn_putf(w->b, " W%d.%d", last, count[last] - 1);
    kn_put(w->b, "\n");
    for (int i = 0; i < shared && kn_map_forks(w, hw); i++)
        if (w->outer[i].own) kn_putf(w->b, "parallel %s W%d.0\n", w->crop, dim[i]), tasks *= hw->units;
    for (int i = 0; i < shared && kn_map_forks(w, hw) && !kn_map_tasks_enough(tasks, hw); i++) {
        kn_putf(w->b, "parallel %s W%d.%d\n", w->crop, dim[i], kn_map_level(&w->outer[i]));
        tasks *= kn_map_shared(&w->outer[i]);
    }
    if (count[last] > 1) kn_putf(w->b, "vectorize %s W%d.%d\n", w->crop, last, count[last] - 1);
    kn_putf(w->b, "compute_at %s %s W%d.%d\n", w->stmt, w->crop, dim[shared - 1], kn_map_level(&w->outer[shared - 1]));
}
