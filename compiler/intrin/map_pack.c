/* Packing before a mapped statement: operands laid out in the instruction's tiles by statements of their own, reduce axes padded with zeros. */
#include "intrin/trace.h"

static bool moves(const kn_map_operand *x, int loop)
{
    for (int k = 0; k < x->nsoft; k++)
        if (kn_axes_in(x->soft_index[k]) >> loop & 1) return true;
    return false;
}

/* The dimensions that `reindex` gives the copy: the axes that the load uses, in the statement's order. False: too many. */
static bool dimensions(const kn_map_writer *w, kn_map_source *s)
{
    uint32_t taken = 0;
    for (int j = 0; j < w->m->intrin->naxes; j++) taken |= w->x->loops[j];
    for (int l = 0; l < w->m->stmt->naxes; l++) {
        int dim = -1;
        if (!(taken >> l & 1) && moves(s->op, l)) dim = l;
        for (int j = 0; j < w->m->intrin->naxes; j++)
            if (w->x->loops[j] && __builtin_ctz(w->x->loops[j]) == l && (s->hard->loops >> j & 1)) dim = KILN_MAX_AXES + j;
        if (dim < 0) continue;
        if (s->ndims == KILN_MAX_RANK) return false;
        s->dim[s->ndims++] = dim;
    }
    return true;
}

/* The instruction's axis that one loop feeds which is index k of the operand by itself; -1: none. */
static int lone_axis(const kn_map_writer *w, const kn_map_source *s, int k)
{
    const kn_expr *index = s->op->soft_index[k];
    for (int j = 0; j < w->m->intrin->naxes && index->op == KN_OP_AXIS; j++)
        if ((s->hard->loops >> j & 1) && w->x->loops[j] == 1u << index->u.axis) return j;
    return -1;
}

static bool padded_load(const kn_map_writer *w, const kn_map_operand *op)
{
    const kn_expr *loads[KILN_MAX_TENSORS];
    return op->load >= 0 && op->load < kn_loads(w->m->stmt->body, loads, KILN_MAX_TENSORS) && loads[op->load]->padded;
}

/* Axis j is the operand's only one, and one loop without a tail walks for it along memory: where nothing is padded, its vectors lie there already,
 * whatever window they belong to. */
static bool walks(const kn_map_writer *w, const kn_map_source *s, int j)
{
    int64_t step = 0;
    if (s->hard->rank != 1 || s->hard->lone[0] != j || kn_map_several(w->x->loops[j])) return false;
    return kn_map_extent(w->m, w->x, j) % w->m->intrin->axes[j].extent == 0 && kn_map_one_run(w, s, j, &step) && step == 1;
}

/* The instruction's axis that one loop feeds which steps forward along index k, where other loops do too (a window): tiles of it can be read out of
 * one copy wherever they begin. Elements further apart than one are for units that load row by row. -1: none. */
static int sliding_axis(const kn_map_writer *w, const kn_map_source *s, int k)
{
    for (int j = 0; j < w->m->intrin->naxes; j++) {
        kn_affine f;
        if (!(s->hard->loops >> j & 1) || !w->x->loops[j] || kn_map_several(w->x->loops[j])) continue;
        if (!kn_affine_in(s->op->soft_index[k], w->x->loops[j], &f)) continue;
        int64_t step = f.coef[__builtin_ctz(w->x->loops[j])];
        bool row = w->unit && s->hard->plain && s->hard->rank == 2 && s->hard->lone[0] == j;
        for (int i = 0; i < s->op->nsoft; i++)
            if (i != k && (kn_axes_in(s->op->soft_index[i]) & w->x->loops[j])) step = 0;
        if (j < w->m->it->nspatial && (step == 1 || (row && step > 0))) return j;
    }
    return -1;
}

/* A unit loads the operand row by row: its terms lie along memory, and one dimension steps from row to row, a window's too. The tensor with its
 * padding filled in serves as it lies. */
static bool lies_in_rows(const kn_map_writer *w, const kn_map_source *s)
{
    const kn_intrin_operand *h = s->hard;
    if (!w->unit || !h->plain || h->rank != 2 || h->lone[0] < 0 || h->lone[1] < 0 || s->op->nsoft < 2) return false;
    if (lone_axis(w, s, s->op->nsoft - 1) != h->lone[1]) return false;
    for (int k = 0; k < s->op->nsoft - 1; k++)
        if (sliding_axis(w, s, k) == h->lone[0]) return true;
    return false;
}

/* A padded load of which every axis of the instruction is an index by itself, or walks along memory or a window, needs no dimension for each loop:
 * the tensor with its padding filled in has what all windows share only once. */
static bool is_box(const kn_map_writer *w, kn_map_source *s)
{
    int left = 0;
    if (lies_in_rows(w, s)) {
        for (int k = 0; k < s->op->nsoft; k++) s->dim[k] = -1;
        s->ndims = s->op->nsoft;
        return s->box = s->plain = true;
    }
    if (!s->padded && !s->plane) return false;
    for (int j = 0; j < w->m->intrin->naxes; j++) {
        bool feeds = w->x->loops[j] && (s->hard->loops >> j & 1);
        left += feeds && !walks(w, s, j);
        s->plain = s->plain || (feeds && walks(w, s, j));
    }
    for (int k = 0; k < s->op->nsoft; k++) {
        int j = s->plain ? -1 : lone_axis(w, s, k);
        if (j < 0 && !s->plain && (j = sliding_axis(w, s, k)) >= 0) s->slides |= 1u << k;
        s->dim[k] = j < 0 ? -1 : KILN_MAX_AXES + j;
        left -= j >= 0;
    }
    s->box = left == 0;
    s->plain = s->plain && s->box;
    if (!s->box) s->slides = 0, s->plane = NULL;
    s->ndims = s->box ? s->op->nsoft : 0;
    return s->box;
}

int kn_map_dim_of(const kn_map_source *s, int j)
{
    for (int d = 0; d < s->ndims; d++)
        if (s->dim[d] == KILN_MAX_AXES + j) return d;
    return -1;
}

/* Digits of the operand's tile in the order in which they lie there: of its indices as they are, or of its places. */
static int digits_of(const kn_intrin_operand *h, kn_intrin_digit *g)
{
    if (!h->plain) {
        for (int i = 0; i < h->ndigits; i++) g[i] = h->digit[i];
        return h->ndigits;
    }
    for (int k = 0; k < h->rank; k++) g[k] = (kn_intrin_digit){k, 1, h->shape[k]};
    return h->rank;
}

/* Outer loops and tiles in front, then the instruction's own dimensions as they lie in its tile. Only whole tiles can be laid out. */
static bool lay_out(kn_map_writer *w, const kn_map_source *s)
{
    kn_intrin_digit g[KN_INTRIN_DIGITS + KILN_MAX_RANK];
    int n = digits_of(s->hard, g), rank = s->ndims;
    for (int k = 0; k < s->hard->rank; k++) {
        int j = s->hard->lone[k];
        if (j < 0 || (kn_map_cut(w, j) && w->extent[j] % w->m->intrin->axes[j].extent)) return false;
    }
    for (int i = 0; i < n; i++) rank += kn_map_cut(w, s->hard->lone[g[i].dim]);
    for (int i = 0; i < n; i++) { /* a window's dimension is not taken apart */
        int d = kn_map_dim_of(s, s->hard->lone[g[i].dim]);
        if (d >= 0 && (s->slides >> d & 1) && (g[i].by > 1 || g[i].count < s->hard->shape[g[i].dim])) return false;
    }
    for (uint32_t d = s->slides; d; d &= d - 1) rank--;
    if (rank > KILN_MAX_RANK || !s->hard->rank || s->plain || !n) return false;
    kn_putf(w->b, "transform_layout %s", s->name);
    for (int d = 0; d < s->ndims; d++) {
        int j = s->dim[d] - KILN_MAX_AXES;
        if (s->slides >> d & 1) continue;
        if (j < 0 || !kn_map_cut(w, j)) kn_putf(w->b, " %d", d);
        else if (w->extent[j] > w->m->intrin->axes[j].extent) kn_putf(w->b, " %d/%lld", d, (long long)w->m->intrin->axes[j].extent);
    }
    for (int i = 0; i < n; i++) {
        int j = s->hard->lone[g[i].dim], d = kn_map_dim_of(s, j);
        if (d < 0 || !kn_map_cut(w, j)) continue;
        kn_putf(w->b, " %d", d);
        if (s->slides >> d & 1) continue;
        if (g[i].by > 1) kn_putf(w->b, "/%lld", (long long)g[i].by);
        if (g[i].by * g[i].count < w->extent[j]) kn_putf(w->b, "%%%lld", (long long)g[i].count);
    }
    kn_put(w->b, "\n");
    return true;
}

static const char *dim_axis(const kn_map_writer *w, int d) { return d < KILN_MAX_AXES ? w->m->stmt->axes[d].name : w->axis[d - KILN_MAX_AXES]; }
static int64_t dim_extent(const kn_map_writer *w, int d) { return d < KILN_MAX_AXES ? w->m->stmt->axes[d].extent : w->extent[d - KILN_MAX_AXES]; }

/* Loop of the copy that dimension d is, boxes counting theirs. */
static const char *copy_axis(const kn_map_writer *w, const kn_map_source *s, int d)
{
    for (int i = 0; s->plane && i < s->plane->naxes; i++) { /* of whole rows the one along them */
        kn_affine at;
        if (kn_affine_of(s->plane->lhs[d], &at) && at.coef[i] == 1) return s->plane->axes[i].name;
    }
    return s->box ? kn_format(w->b->a, "X%d", d) : dim_axis(w, s->dim[d]);
}

/* Dimension d of the copy is cut at an axis of the instruction, which is *j. */
static bool dim_cut(const kn_map_writer *w, const kn_map_source *s, int d, int *j)
{
    *j = s->dim[d] - KILN_MAX_AXES;
    return *j >= 0 && kn_map_cut(w, *j);
}

/* Loop `level` of dimension d's axis of the copy: one further in where a task has a piece of it. */
static void put_loop(kn_map_writer *w, const kn_map_source *s, int d, int level)
{
    kn_putf(w->b, " %s.%d", copy_axis(w, s, d), level + (s->led == d + 1));
}

/* The loops of the copy begin with the one that it shares with the task in which it is made. */
static void put_order(kn_map_writer *w, const kn_map_source *s)
{
    kn_putf(w->b, "reorder %s", s->name);
    if (s->led) kn_putf(w->b, " %s.0", copy_axis(w, s, s->led - 1));
}

static void put_split(kn_map_writer *w, const kn_map_source *s, int d)
{
    kn_putf(w->b, "split %s %s", s->name, copy_axis(w, s, d));
    if (s->led == d + 1) kn_putf(w->b, " %lld", (long long)s->piece);
}

/* How many of the copy's first loops its tasks are along: up to the second one that has more than one iteration. *tasks: their iterations. */
static int shared(const int64_t *count, int n, int64_t *tasks)
{
    int loops = 0;
    *tasks = 1;
    for (int several = 2; loops < n && several; loops++) *tasks *= count[loops], several -= count[loops] > 1;
    return loops;
}

static void share(kn_map_writer *w, const kn_map_source *s, const int *order, const int64_t *count, int n)
{
    int64_t tasks;
    int loops = s->led ? 0 : shared(count, n, &tasks);
    for (int i = 0; i < loops; i++) kn_putf(w->b, "parallel %s %s.0\n", s->name, copy_axis(w, s, order[i]));
}

/* Adds elements of the operand from one iteration of each of these loops to the next; false: not one number. */
static bool steps_of(const kn_map_writer *w, const kn_map_source *s, uint32_t loops, int64_t *step)
{
    int64_t stride = 1;
    const kn_tensor *t = &w->m->soft->tensors[s->op->soft];
    for (int k = s->op->nsoft - 1; k >= 0; k--) {
        kn_affine f;
        if (!kn_affine_in(s->op->soft_index[k], loops, &f)) return false;
        for (int l = 0; l < w->m->stmt->naxes; l++) step[l] += f.coef[l] * stride;
        stride *= t->shape[k];
    }
    return true;
}

bool kn_map_one_run(const kn_map_writer *w, const kn_map_source *s, int j, int64_t *step)
{
    int64_t coef[KILN_MAX_AXES] = {0}, want = 0;
    if (padded_load(w, s->op) && kn_map_several(w->x->loops[j])) return false;
    if (!steps_of(w, s, w->x->loops[j], coef)) return false;
    for (int l = w->m->stmt->naxes - 1; l >= 0; l--) {
        bool once = w->m->stmt->axes[l].extent == 1 && kn_map_extent(w->m, w->x, j) > 1;
        if (!(w->x->loops[j] >> l & 1) || once) continue;
        if (want && coef[l] != want) return false;
        if (!want) *step = coef[l];
        want = coef[l] * w->m->stmt->axes[l].extent;
    }
    return true;
}

bool kn_map_results_along(const kn_map_writer *w, int d)
{
    const kn_map_source s = {.op = &w->m->op[0], .hard = &w->m->it->operand[0]};
    int64_t step = 0;
    return d >= 0 && s.hard->lone[d] >= 0 && kn_map_one_run(w, &s, s.hard->lone[d], &step) && step == 1;
}

/* Groups of `few` rows lie interleaved in the tile, [R // few, J, R % few], of an operand that is not padded; *r, *j: its axes. */
static bool in_groups(const kn_map_writer *w, const kn_map_source *s, int64_t *few, int *r, int *j)
{
    const kn_intrin_operand *h = s->hard;
    const kn_intrin_digit *g = h->digit;
    if (h->plain || h->rank != 2 || h->ndigits != 3 || g[0].dim != g[2].dim || g[1].dim == g[0].dim || g[1].by != 1 || g[2].by != 1) return false;
    *few = g[2].count;
    if (g[0].by != *few || (*few != 2 && *few != 4) || h->lone[0] < 0 || h->lone[1] < 0 || s->padded) return false;
    int across = kn_map_dim_of(s, h->lone[g[0].dim]), along = kn_map_dim_of(s, h->lone[g[1].dim]);
    return across >= 0 && along >= 0 && dim_cut(w, s, across, r) && dim_cut(w, s, along, j);
}

/* The same, and memory follows J, whole rows of which are there. */
static bool grouped(const kn_map_writer *w, const kn_map_source *s, int64_t *few)
{
    int64_t step = 0;
    int j, r;
    if (!in_groups(w, s, few, &r, &j)) return false;
    bool whole = kn_map_extent(w->m, w->x, j) % w->m->intrin->axes[j].extent == 0 && kn_map_extent(w->m, w->x, r) % *few == 0;
    int64_t lanes = w->m->intrin->axes[j].extent;
    return whole && lanes >= 4 && !(lanes & (lanes - 1)) && kn_map_one_run(w, s, j, &step) && step == 1;
}

/* Dimensions of the copy that are taps of a window, all of which memory holds between two terms, where the tile holds groups of `few` terms of each
 * row, [R // few, J, R % few], and rows lie apart. 0: it is not so, the axes' ends are no tiles', or there are too many or too few for
 * lower/folded.c. */
static uint32_t taps_between(const kn_map_writer *w, const kn_map_source *s, int64_t *few, int *terms, int *rows)
{
    const kn_tensor *t = &w->m->soft->tensors[s->op->soft];
    int64_t term = 0, row = 0, taps = 1;
    uint32_t found = 0;
    if (t->constant || s->box) return 0; /* a constant is laid out once, which no copy may be a part of (`ahead`) */
    if (!in_groups(w, s, few, terms, rows) || *few * kn_dtype_bytes(t->dtype) != 4) return 0;
    int r = *terms, j = *rows;
    bool whole = w->extent[j] % w->m->intrin->axes[j].extent == 0 && kn_map_extent(w->m, w->x, r) % w->m->intrin->axes[r].extent == 0;
    if (!whole || !kn_map_one_run(w, s, j, &row) || !kn_map_one_run(w, s, r, &term) || term < 2 || row <= term) return 0;
    for (int d = s->ndims - 1; d >= 0; d--) {
        int loop = s->dim[d];
        int64_t step[KILN_MAX_AXES] = {0};
        if (loop >= KILN_MAX_AXES || dim_extent(w, loop) < 2 || !steps_of(w, s, 1u << loop, step) || step[loop] != taps) continue;
        taps *= dim_extent(w, loop);
        found |= 1u << d;
    }
    bool squares = term * w->m->intrin->axes[r].extent >= *few * w->m->intrin->axes[j].extent; /* a row has as much as the first of them takes */
    return taps == term && taps <= KN_INTRIN_TAPS && squares ? found : 0;
}

bool kn_map_taps_move(const kn_map_writer *w, const kn_map_source *s)
{
    int64_t few;
    int terms, rows;
    if (!taps_between(w, s, &few, &terms, &rows)) return false;
    return kn_map_extent(w->m, w->x, rows) % w->m->intrin->axes[rows].extent == 0; /* of rows that are not there none is read */
}

bool kn_map_zipped(const kn_map_writer *w, const kn_map_source *s)
{
    int64_t step = 0;
    int j, k, rank = s->hard->rank;
    if (grouped(w, s, &step)) return true;
    if (rank < 2 || !s->hard->plain || s->hard->lone[rank - 1] < 0 || s->hard->lone[rank - 2] < 0) return false;
    int before = kn_map_dim_of(s, s->hard->lone[rank - 2]), last = kn_map_dim_of(s, s->hard->lone[rank - 1]);
    if (before < 0 || last < 0 || !dim_cut(w, s, before, &j) || !dim_cut(w, s, last, &k) || s->padded) return false;
    int64_t few = w->m->intrin->axes[k].extent, lanes = w->m->intrin->axes[j].extent;
    bool whole = kn_map_extent(w->m, w->x, j) % lanes == 0 && kn_map_extent(w->m, w->x, k) % few == 0;
    return whole && (few == 2 || few == 4) && lanes >= 4 && kn_map_one_run(w, s, j, &step) && step == 1;
}

/* Every dimension goes on in even steps. */
static bool all_run(const kn_map_writer *w, const kn_map_source *s)
{
    bool yes = true;
    int64_t step;
    for (int d = 0, j; d < s->ndims; d++) yes = yes && (!dim_cut(w, s, d, &j) || kn_map_one_run(w, s, j, &step));
    return yes;
}

/* The loops of a copy tile by tile, outermost first, and their iterations; a box counts several for each. Gives how many. Tiles of loops that are no
 * run lead: where their elements come from is found once for all of the plain loops. */
static int tile_loops(const kn_map_writer *w, const kn_map_source *s, int *order, int64_t *count)
{
    int n = 0, j;
    for (int pass = 0; pass < 2; pass++)
        for (int d = 0; d < s->ndims; d++) {
            int64_t step;
            bool cut = dim_cut(w, s, d, &j), leads = cut && !kn_map_one_run(w, s, j, &step);
            if (leads != !pass) continue;
            count[n] = cut ? kn_ceil_div(w->extent[j], w->m->intrin->axes[j].extent) : s->box ? 2 : dim_extent(w, s->dim[d]);
            order[n++] = d;
        }
    return n;
}

/* Those of a copy of groups of rows: row by row, where the other loops are tasks enough: tiles along memory follow each other within a row, since
 * each line that is read holds some of several (3x3 windows of 256 channels in halves, channels last: 1.3 times as fast as tile by tile). */
static int group_loops(const kn_map_writer *w, const kn_map_source *s, int *order, int64_t *count)
{
    enum { TASKS = 8 };
    int along = kn_map_dim_of(s, s->hard->lone[s->hard->digit[1].dim]), all[KILN_MAX_RANK], n = tile_loops(w, s, all, count), others = 0;
    int64_t counts[KILN_MAX_RANK], tasks;
    for (int i = 0; i < n; i++) {
        order[i] = all[i];
        if (all[i] != along) counts[others] = count[i], all[others++] = all[i];
    }
    shared(counts, others, &tasks);
    if (tasks < TASKS || !all_run(w, s)) return n;
    for (int i = 0; i < others; i++) order[i] = all[i], count[i] = counts[i];
    return others;
}

/* Groups of rows, whose elements are interleaved in vectors. */
static void copy_groups(kn_map_writer *w, const kn_map_source *s, const int *order, const int64_t *count, int n)
{
    int across = kn_map_dim_of(s, s->hard->lone[s->hard->digit[0].dim]), along = kn_map_dim_of(s, s->hard->lone[s->hard->digit[1].dim]);
    put_order(w, s);
    for (int i = 0; i < n; i++) put_loop(w, s, order[i], 0);
    kn_put(w->b, " |");
    put_loop(w, s, across, 1);
    if (n < s->ndims) put_loop(w, s, along, 0);
    put_loop(w, s, across, 2);
    put_loop(w, s, along, 1);
    kn_put(w->b, "\n");
    share(w, s, order, count, n);
    kn_putf(w->b, "unroll %s", s->name);
    put_loop(w, s, across, 2);
    kn_putf(w->b, "\nvectorize %s", s->name);
    put_loop(w, s, along, 1);
    kn_put(w->b, "\n");
}

/* The loops of a copy in tiles, as it has them. */
static int copy_loops(const kn_map_writer *w, const kn_map_source *s, int *order, int64_t *count)
{
    int64_t few;
    return grouped(w, s, &few) ? group_loops(w, s, order, count) : tile_loops(w, s, order, count);
}

uint32_t kn_map_copy_leads(const kn_map_writer *w, const kn_map_source *s)
{
    int order[KILN_MAX_RANK], j;
    int64_t count[KILN_MAX_RANK];
    const kn_tensor *t = &w->m->soft->tensors[s->op->soft];
    if (s->box || !s->ndims) {
        for (int k = 0; k < s->op->nsoft; k++)
            if (t->shape[k] > 1 && k != kn_map_turned(w, s)) return kn_axes_in(s->op->soft_index[k]);
        return 0;
    }
    int n = copy_loops(w, s, order, count);
    for (int i = 0; i < n; i++) {
        if (count[i] < 2) continue;
        dim_cut(w, s, order[i], &j);
        return j >= 0 ? w->x->loops[j] : 1u << s->dim[order[i]];
    }
    return 0;
}

/* The loops of all taps of a tile in the order in which memory has them, the terms' axis being r and the rows' j. */
static void loops_of_taps(kn_map_writer *w, const kn_map_source *s, uint32_t taps, int r, int j)
{
    put_loop(w, s, kn_map_dim_of(s, r), 1);
    for (int d = 0; d < s->ndims; d++)
        if (taps >> d & 1) put_loop(w, s, d, 0);
    put_loop(w, s, kn_map_dim_of(s, j), 1);
    put_loop(w, s, kn_map_dim_of(s, r), 2);
}

/* All taps of a tile at once, from a copy in which they have changed places with terms and rows; true: so it is done. */
static bool copy_taps(kn_map_writer *w, const kn_map_source *s)
{
    int order[KILN_MAX_RANK];
    int64_t count[KILN_MAX_RANK], few;
    int r, j;
    uint32_t taps = taps_between(w, s, &few, &r, &j);
    if (!taps) return false;
    int n = tile_loops(w, s, order, count), outer = 0;
    for (int i = 0; i < n; i++)
        if (!(taps >> order[i] & 1)) count[outer] = count[i], order[outer++] = order[i];
    long long groups = w->m->intrin->axes[r].extent / few, lanes = w->m->intrin->axes[j].extent;
    put_split(w, s, kn_map_dim_of(s, r));
    kn_putf(w->b, " %lld %lld\n", groups, (long long)few);
    put_split(w, s, kn_map_dim_of(s, j));
    kn_putf(w->b, " %lld\n", lanes);
    put_order(w, s);
    for (int i = 0; i < outer; i++) put_loop(w, s, order[i], 0);
    kn_put(w->b, " |");
    loops_of_taps(w, s, taps, r, j);
    kn_put(w->b, "\n");
    share(w, s, order, count, outer);
    kn_putf(w->b, "cache_read %s 0 scratch", s->name);
    put_loop(w, s, order[outer - 1], 0);
    kn_put(w->b, " loops");
    loops_of_taps(w, s, taps, r, j);
    kn_put(w->b, "\n");
    return true;
}

/* The copy goes tile by tile, each written out as it lies. */
static void copy_tiles(kn_map_writer *w, const kn_map_source *s)
{
    int order[KILN_MAX_RANK], j;
    int64_t count[KILN_MAX_RANK], few = 0;
    if (copy_taps(w, s)) return;
    bool groups = grouped(w, s, &few);
    int across = groups ? kn_map_dim_of(s, s->hard->lone[s->hard->digit[0].dim]) : -1, n = copy_loops(w, s, order, count);
    for (int d = 0; d < s->ndims; d++) {
        bool cut = dim_cut(w, s, d, &j);
        int64_t e = cut ? w->m->intrin->axes[j].extent : 1;
        if (cut) put_split(w, s, d);
        if (d == across) kn_putf(w->b, " %lld %lld\n", (long long)(e / few), (long long)few);
        else if (cut) kn_putf(w->b, " %lld\n", (long long)e);
    }
    if (groups) {
        copy_groups(w, s, order, count, n);
        return;
    }
    put_order(w, s);
    for (int i = 0; i < n; i++) put_loop(w, s, order[i], 0);
    kn_put(w->b, " |");
    int last = -1, before = -1, inner[KILN_MAX_RANK], m = 0;
    for (int k = 0; k < s->hard->rank; k++)
        for (int d = 0; d < s->ndims; d++) {
            if (!dim_cut(w, s, d, &j) || j != s->hard->lone[k]) continue;
            inner[m++] = d;
            before = last, last = d;
        }
    if (kn_map_zipped(w, s)) { /* vectors of the runs, interleaved as they are stored */
        int d = last;
        last = inner[m - 1] = before, before = inner[m - 2] = d;
    }
    for (int k = 0; k < m; k++) put_loop(w, s, inner[k], 1);
    kn_put(w->b, "\n");
    share(w, s, order, count, n);
    for (int i = 0; i < 2 && s->hard->plain; i++) {
        int d = i ? last : before;
        if (d < 0 || !dim_cut(w, s, d, &j)) continue;
        int64_t e = w->m->intrin->axes[j].extent;
        if (e > (i ? 64 : 16) || (e & (e - 1))) continue;
        kn_putf(w->b, "%s %s", i ? "vectorize" : "unroll", s->name);
        put_loop(w, s, d, 1);
        kn_put(w->b, "\n");
    }
}

int kn_map_lines(const kn_map_writer *w, const kn_map_source *s, int64_t *few)
{
    const kn_intrin_operand *h = s->hard;
    if (!(s->slides >> (s->ndims - 1) & 1) || !h->rank) return -1;
    int last = h->plain ? h->rank - 1 : h->ndigits ? h->digit[h->ndigits - 1].dim : 0, d = h->lone[last] < 0 ? -1 : kn_map_dim_of(s, h->lone[last]);
    *few = h->plain ? h->shape[last] : h->ndigits ? h->digit[h->ndigits - 1].count : 0;
    return d >= 0 && d != s->ndims - 1 && (*few == 2 || *few == 4) && w->m->soft->tensors[s->op->soft].shape[s->ndims - 1] >= 4 ? d : -1;
}

/* Loops of a box's copy, outermost first. */
static const char *line_axis(const kn_map_writer *w, const kn_map_source *s, int i)
{
    return s->plane ? s->plane->axes[i].name : kn_format(w->b->a, "X%d", i);
}

int kn_map_turned(const kn_map_writer *w, const kn_map_source *s)
{
    const kn_intrin_operand *h = s->hard;
    int d = w->unit && h->plain && h->rank == 2 ? kn_map_dim_of(s, h->lone[1]) : -1, j;
    bool apart = d >= 0 && d < s->ndims - 1 && (s->slides >> (s->ndims - 1) & 1) && dim_cut(w, s, d, &j);
    return apart && w->m->soft->tensors[s->op->soft].shape[s->ndims - 1] >= 4 ? d : -1;
}

/* Lines of a box that are turned, in squares: all terms of a line of places before the next one, so that no two cores write into a line of the cache,
 * and each mostly reads what it has written itself (channels first, 28x28 of 128 and 14x14 of 256: 1.04 times as fast on two cores as where each has
 * terms of its own, 1.0 on one). */
static bool turned_lines(kn_map_writer *w, const kn_map_source *s, int n)
{
    int d = kn_map_turned(w, s), tasks = 0;
    if (d < 0) return false;
    const char *along = line_axis(w, s, n - 1), *terms = copy_axis(w, s, d);
    kn_putf(w->b, "split %s %s %d\nsplit %s %s %d\nreorder %s", s->name, terms, KN_MAP_SQUARE, s->name, along, KN_MAP_SQUARE, s->name);
    for (int i = 0; i < n - 1; i++)
        if (i != d) kn_putf(w->b, " %s.0", line_axis(w, s, i));
    kn_putf(w->b, " %s.0 %s.0 | %s.1 %s.1\n", terms, along, along, terms);
    for (int i = 0; i < n - 1 && tasks < 2; i++)
        if (i != d) kn_putf(w->b, "parallel %s %s.0\n", s->name, line_axis(w, s, i)), tasks++;
    kn_putf(w->b, "cache_read %s 0 scratch %s.0 region\n", s->name, terms);
    kn_putf(w->b, "unroll %s %s.1\nvectorize %s %s.1\n", s->name, along, s->name, terms);
    return true;
}

/* A box that windows slide along: its lines lie in the cache with their padding, where they are interleaved in vectors. */
static void copy_lines(kn_map_writer *w, const kn_map_source *s)
{
    const kn_tensor *t = &w->m->soft->tensors[s->op->soft];
    int n = s->plane ? s->plane->naxes : s->ndims;
    int64_t few, lanes = w->vector_bytes / kn_dtype_bytes(t->dtype) < 32 ? w->vector_bytes / kn_dtype_bytes(t->dtype) : 32;
    int64_t line = s->plane ? s->plane->axes[n - 1].extent : t->shape[n - 1];
    int group = kn_map_lines(w, s, &few);
    const char *along = line_axis(w, s, n - 1), *grouped = group >= 0 ? copy_axis(w, s, group) : "";
    while (lanes > line) lanes /= 2;
    if (group >= 0 && lanes > 1) {
        kn_putf(w->b, "split %s %s %lld\nsplit %s %s %lld\nreorder %s", s->name, grouped, (long long)few, s->name, along, (long long)lanes, s->name);
        for (int i = 0; i < n; i++) kn_putf(w->b, " %s.0", line_axis(w, s, i));
        kn_putf(w->b, " | %s.1 %s.1\n", grouped, along);
    }
    if (group < 0 && turned_lines(w, s, n)) return;
    for (int i = 0; i < 2 && i < n - 1; i++) kn_putf(w->b, "parallel %s %s.0\n", s->name, line_axis(w, s, i));
    if (group < 0 || lanes < 2) return;
    kn_putf(w->b, "cache_read %s 0 scratch %s.0 region\n", s->name, line_axis(w, s, n - 2));
    kn_putf(w->b, "unroll %s %s.1\nvectorize %s %s.1\n", s->name, grouped, s->name, along);
}

/* What is not laid out is copied as it is, a filled in tensor in vectors. */
static void copy_plainly(kn_map_writer *w, const kn_map_source *s)
{
    const kn_tensor *t = &w->m->soft->tensors[s->op->soft];
    int n = s->plane ? s->plane->naxes : s->ndims;
    int64_t lanes = w->vector_bytes / kn_dtype_bytes(t->dtype), line = s->box ? t->shape[s->ndims - 1] : 1, tasks = 1;
    if (lies_in_rows(w, s)) line = w->extent[s->hard->lone[1]]; /* grown to whole tiles */
    if (!s->plain || lanes < 16) lanes = 16;
    while (lanes > line || (s->plain && lanes > 1 && line % lanes)) lanes /= 2;
    bool vectors = s->box && w->tidy && n > 1 && lanes > 1;
    const char *last = s->box ? line_axis(w, s, n - 1) : NULL;
    if (vectors) kn_putf(w->b, "split %s %s %lld\n", s->name, last, (long long)lanes);
    for (int d = 0; d < n && tasks < 3; d++) {
        kn_putf(w->b, "parallel %s %s.0\n", s->name, s->box ? line_axis(w, s, d) : dim_axis(w, s->dim[d]));
        tasks += s->box || dim_extent(w, s->dim[d]) > 1;
    }
    if (!vectors) return;
    kn_putf(w->b, "vectorize %s %s.1\n", s->name, last);
    if (lies_in_rows(w, s) && n > 2 && line > lanes && line <= 8 * lanes) kn_putf(w->b, "unroll %s %s.0\n", s->name, last); /* lanes are known */
}

/* Does the operand lie where it is as one dense tile? Rows that a unit loads one by one may lie apart. */
static bool dense(const kn_map_writer *w, const kn_map_layout *y, const kn_intrin_operand *h)
{
    int64_t row = 1;
    if (!h->plain) return false;
    for (int k = h->rank - 1; k >= 0 && y->direct; k--) {
        int64_t step = h->lone[k] < 0 ? 0 : y->step[h->lone[k]];
        bool lies = step == row || (w->unit && k == 0 && h->rank == 2 && step > row);
        if (h->lone[k] < 0 || (kn_map_cut(w, h->lone[k]) && !lies)) return false;
        row *= h->shape[k];
    }
    return y->direct;
}

/* The result is written at the axis by itself, or at axes that are fused. */
static bool stands_alone(const kn_map_writer *w, int j)
{
    uint32_t loops = w->x->loops[j];
    for (int k = 0; k < w->m->op[0].nsoft && !kn_map_several(loops); k++)
        if (w->m->op[0].soft_index[k]->op == KN_OP_AXIS && 1u << w->m->op[0].soft_index[k]->u.axis == loops) return true;
    return false;
}

int64_t kn_map_whole(const kn_map_writer *w, int j, int64_t extent)
{
    enum { MANY = 9 }; /* of which one more is less than what register tiles of two save */
    int64_t e = w->m->intrin->axes[j].extent, tiles = kn_ceil_div(extent, e);
    return (tiles + (w->unit && j < w->m->it->nspatial && extent % e && tiles >= MANY && tiles % 2)) * e;
}

/* Axes grow to whole tiles. A spatial one needs a result in which it stands alone, which is then indexed by the axes. */
static void pad(kn_map_writer *w)
{
    bool own = false;
    for (int j = 0; j < w->m->it->nloops; j++) {
        int64_t whole = kn_map_whole(w, j, w->extent[j]);
        bool spatial = j < w->m->it->nspatial;
        if (!kn_map_cut(w, j) || w->extent[j] == whole) continue;
        if (spatial && !own && !stands_alone(w, j)) {
            const char *name = kn_format(w->b->a, "%s_%s", w->stmt, w->m->it->operand[0].name);
            kn_putf(w->b, "reindex %s out %s\n", w->stmt, name ? name : "");
            w->stmt = name;
            own = true;
        }
        kn_putf(w->b, "pad_einsum %s %s %lld\n", w->stmt, w->axis[j], (long long)whole);
        w->extent[j] = whole;
        if (spatial && !own && !w->crop && w->m->soft->tensors[w->m->op[0].soft].role != KN_TEMP) w->crop = w->stmt; /* else readers do it */
        if (spatial && !own) w->grown |= 1u << j;
        if (spatial) w->stmt = kn_format(w->b->a, "%s_pad_%s", w->stmt, w->axis[j]);
    }
}

/* The statement that copies the temporary which the operand alone reads; NULL: there is none. */
static const kn_stmt *plane_of(const kn_map_writer *w, const kn_map_operand *op)
{
    const kn_program *p = w->m->soft;
    const kn_stmt *found = NULL;
    const kn_expr *loads[KILN_MAX_TENSORS];
    int reads = 0;
    for (int i = 0; i < p->nstmts; i++) {
        int n = kn_loads(p->stmts[i]->body, loads, KILN_MAX_TENSORS);
        for (int l = 0; l < n && l < KILN_MAX_TENSORS; l++) reads += loads[l]->u.tensor == op->soft;
        if (p->stmts[i]->out == op->soft) found = p->stmts[i];
    }
    bool copies = found && reads == 1 && p->tensors[op->soft].role == KN_TEMP && found->red == KN_RED_NONE && !found->scatter;
    return copies && found->body->op == KN_OP_LOAD ? found : NULL;
}

bool kn_map_source_of(const kn_map_writer *w, const kn_map_plan *plan, int o, kn_map_source *s)
{
    *s = (kn_map_source){.op = &w->m->op[o], .hard = &w->m->it->operand[kn_intrin_operand_of(w->m->it, w->m->op[o].hard)]};
    s->padded = padded_load(w, s->op);
    s->plane = s->padded || !w->tidy ? NULL : plane_of(w, s->op);
    return !dense(w, &plan->operand[o], s->hard) && (is_box(w, s) || dimensions(w, s));
}

int kn_map_pack(kn_map_writer *w, const kn_map_plan *plan, kn_map_source *s)
{
    int n = 0;
    for (int o = 1; o < w->m->nops; o++) {
        kn_map_source *x = &s[n];
        if (!kn_map_source_of(w, plan, o, x)) continue;
        x->name = x->plane ? w->m->soft->tensors[x->op->soft].name : kn_format(w->b->a, "%s_%s", w->stmt, x->hard->name);
        if (!x->name) return 0;
        if (x->plane && ++n) continue;
        if (w->tidy && !x->box && x->padded) /* windows are cut out of the filled in tensor, which asks nothing */
            kn_putf(w->b, "decompose_padding %s %d %s_all\nparallel %s_all X0.0\nparallel %s_all X1.0\n", w->stmt, x->op->load, x->name, x->name,
                    x->name);
        kn_putf(w->b, "%s %s %d %s\n", !x->box ? "reindex" : x->padded ? "decompose_padding" : "copy", w->stmt, x->op->load, x->name);
        n++;
    }
    pad(w);
    return n;
}

bool kn_map_is_anew(const kn_map_writer *w, const kn_map_source *s)
{
    const kn_tensor *t = &w->m->soft->tensors[s->op->soft];
    return t->role == KN_INPUT && !t->constant && !s->box && !s->plane && !s->padded && !s->slides;
}

void kn_map_copies(kn_map_writer *w, const kn_map_source *s, int n)
{
    for (int i = 0; i < n && !kn_arena_dry(w->b->a); i++) {
        bool laid = lay_out(w, &s[i]) && w->tidy;
        if (laid && s[i].slides) copy_lines(w, &s[i]);
        else if (laid) copy_tiles(w, &s[i]);
        else copy_plainly(w, &s[i]);
    }
}
