/* From a mapping to a schedule: the loops of every axis fused, cut at the instruction's extent, and the inner pieces tensorized. Packed, the operands
 * that do not lie as the instruction wants them are first laid out in its tiles, reduce axes padded with zeros, by statements of their own. */
#include "intrin/map.h"
#include <string.h>

typedef struct writer {
    kn_buf *b;
    const kn_maps *m;
    const kn_mapping *x;
    const char *stmt;
    const char *axis[KILN_MAX_AXES]; /* the statement's axis that stands for axis j of the instruction, once fused */
    int64_t extent[KILN_MAX_AXES];   /* of that axis */
    int inner;                       /* loop around the instruction that is cut once more, to stand inside the reduction; -1: none */
    int64_t pieces;
    int tasks;                       /* parallel loops still wanted */
} writer;

static bool several(uint32_t set) { return (set & (set - 1)) != 0; }

static bool named(const kn_stmt *s, const char *name)
{
    for (int i = 0; i < s->naxes; i++)
        if (!strcmp(s->axes[i].name, name)) return true;
    return false;
}

/* The names of the loops run together, made unlike every axis. */
static const char *fused_name(const writer *w, int j)
{
    char name[KILN_MAX_NAME_BYTES - 4] = "";
    size_t n = 0;
    for (int l = 0; l < w->m->stmt->naxes; l++) {
        size_t more = strlen(w->m->stmt->axes[l].name);
        if (!(w->x->loops[j] >> l & 1) || n + more + 1 >= sizeof name - 4) continue;
        memcpy(name + n, w->m->stmt->axes[l].name, more + 1);
        n += more;
    }
    while (several(w->x->loops[j]) && named(w->m->stmt, name) && n + 1 < sizeof name) name[n++] = '_', name[n] = 0;
    return kn_strdup(w->b->a, name);
}

static bool cut(const writer *w, int j) { return w->x->loops[j] && w->m->intrin->axes[j].extent > 1; }

static void fuse(writer *w)
{
    for (int j = 0; j < w->m->intrin->naxes; j++) {
        w->axis[j] = fused_name(w, j);
        w->extent[j] = kn_map_extent(w->m, w->x, j);
        if (!several(w->x->loops[j])) continue;
        kn_putf(w->b, "fuse %s %s", w->stmt, w->axis[j] ? w->axis[j] : "");
        for (int l = 0; l < w->m->stmt->naxes; l++)
            if (w->x->loops[j] >> l & 1) kn_putf(w->b, " %s", w->m->stmt->axes[l].name);
        kn_put(w->b, "\n");
    }
}

/* Calls f for each axis around the instruction of one kind, in the order of the statement; j: the instruction's axis that it feeds, -1: none. */
static void each_outer(writer *w, bool reduce, void (*f)(writer *w, const char *axis, int loop, int j))
{
    uint32_t taken = 0;
    for (int j = 0; j < w->m->intrin->naxes; j++) taken |= w->x->loops[j];
    for (int l = 0; l < w->m->stmt->naxes; l++) {
        if (w->m->stmt->axes[l].reduce != reduce) continue;
        if (!(taken >> l & 1)) f(w, w->m->stmt->axes[l].name, l, -1);
        for (int j = 0; j < w->m->intrin->naxes; j++)
            if (w->x->loops[j] && __builtin_ctz(w->x->loops[j]) == l) f(w, w->axis[j], l, j);
    }
}

/* ---- packing ---- */

typedef struct source {
    const kn_map_operand *op;
    const kn_intrin_operand *hard;
    const char *name;         /* of the copy as it is now */
    bool box;                 /* the copy is the padded tensor; else it has one dimension for every loop that the load uses */
    int ndims, dim[KILN_MAX_RANK]; /* its dimensions: KILN_MAX_AXES + j for axis j of the instruction, else the loop, in a box -1 */
} source;

static bool moves(const kn_map_operand *x, int loop)
{
    for (int k = 0; k < x->nsoft; k++)
        if (kn_axes_in(x->soft_index[k]) >> loop & 1) return true;
    return false;
}

/* The dimensions that `reindex` gives the copy: the axes that the load uses, in the statement's order. False: too many. */
static bool dimensions(const writer *w, source *s)
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

/* A padded load in which every axis of the instruction is one loop and that loop alone one dimension needs no dimension for each loop: the tensor with
 * its padding filled in has what all windows share only once. */
static bool is_box(const writer *w, source *s)
{
    const kn_expr *loads[KILN_MAX_TENSORS];
    int n = kn_loads(w->m->stmt->body, loads, KILN_MAX_TENSORS), found = 0;
    if (s->op->load < 0 || s->op->load >= n || !loads[s->op->load]->padded) return false;
    for (int j = 0; j < w->m->intrin->naxes; j++) {
        if (!w->x->loops[j] || !(s->hard->loops >> j & 1)) continue;
        int loop = __builtin_ctz(w->x->loops[j]);
        if (several(w->x->loops[j])) return false;
        for (int k = 0; k < s->op->nsoft; k++)
            if (s->op->soft_index[k]->op == KN_OP_AXIS && s->op->soft_index[k]->u.axis == loop) found++;
    }
    for (int j = 0; j < w->m->intrin->naxes; j++) found -= w->x->loops[j] && (s->hard->loops >> j & 1);
    s->box = found == 0;
    for (int k = 0; k < s->op->nsoft && s->box; k++) {
        s->dim[k] = -1;
        for (int j = 0; j < w->m->intrin->naxes; j++)
            if (w->x->loops[j] && (s->hard->loops >> j & 1) && s->op->soft_index[k]->op == KN_OP_AXIS &&
                s->op->soft_index[k]->u.axis == __builtin_ctz(w->x->loops[j]))
                s->dim[k] = KILN_MAX_AXES + j;
    }
    if (s->box) s->ndims = s->op->nsoft;
    return s->box;
}

/* Outer loops and tiles in front, then the instruction's own dimensions, row-major. Only whole tiles can be laid out. */
static void lay_out(writer *w, const source *s)
{
    int rank = s->ndims;
    for (int k = 0; k < s->hard->rank; k++) {
        int j = s->hard->lone[k];
        if (j < 0 || (cut(w, j) && w->extent[j] % w->m->intrin->axes[j].extent)) return;
        rank += cut(w, j);
    }
    if (rank > KILN_MAX_RANK || !s->hard->rank) return;
    kn_putf(w->b, "transform_layout %s", s->name);
    for (int d = 0; d < s->ndims; d++) {
        int j = s->dim[d] - KILN_MAX_AXES;
        if (j < 0 || !cut(w, j)) kn_putf(w->b, " %d", d);
        else if (w->extent[j] > w->m->intrin->axes[j].extent) kn_putf(w->b, " %d/%lld", d, (long long)w->m->intrin->axes[j].extent);
    }
    for (int k = 0; k < s->hard->rank; k++)
        for (int d = 0; d < s->ndims; d++) {
            int j = s->dim[d] - KILN_MAX_AXES;
            if (j < 0 || j != s->hard->lone[k] || !cut(w, j)) continue;
            if (w->extent[j] > w->m->intrin->axes[j].extent) kn_putf(w->b, " %d%%%lld", d, (long long)w->m->intrin->axes[j].extent);
            else kn_putf(w->b, " %d", d);
        }
    kn_put(w->b, "\n");
}

static const char *dim_axis(const writer *w, int d) { return d < KILN_MAX_AXES ? w->m->stmt->axes[d].name : w->axis[d - KILN_MAX_AXES]; }
static int64_t dim_extent(const writer *w, int d) { return d < KILN_MAX_AXES ? w->m->stmt->axes[d].extent : w->extent[d - KILN_MAX_AXES]; }

/* Tasks for the copying: along its first dimension that has more than one element. */
static void share(writer *w, const source *s)
{
    if (s->box) kn_putf(w->b, "parallel %s X0.0\nparallel %s X1.0\n", s->name, s->name);
    for (int d = 0; d < s->ndims && !s->box; d++) {
        kn_putf(w->b, "parallel %s %s.0\n", s->name, dim_axis(w, s->dim[d]));
        if (dim_extent(w, s->dim[d]) > 1) return;
    }
}

/* Does the operand lie where it is as one dense tile? (A unit that takes a stride between rows would need less.) */
static bool dense(const writer *w, const kn_map_layout *y, const kn_intrin_operand *h)
{
    int64_t row = 1;
    for (int k = h->rank - 1; k >= 0 && y->direct; k--) {
        if (h->lone[k] < 0 || (cut(w, h->lone[k]) && y->step[h->lone[k]] != row)) return false;
        row *= h->shape[k];
    }
    return y->direct;
}

static void pack(writer *w, const kn_map_plan *plan)
{
    source s[KN_MAP_OPERANDS] = {{0}};
    int n = 0;
    for (int o = 1; o < w->m->nops; o++) {
        source *x = &s[n];
        *x = (source){.op = &w->m->op[o], .hard = &w->m->it->operand[kn_intrin_operand_of(w->m->it, w->m->op[o].hard)]};
        if (dense(w, &plan->operand[o], x->hard)) continue;
        x->name = kn_format(w->b->a, "%s_%s", w->stmt, x->hard->name);
        if (!x->name || (!is_box(w, x) && !dimensions(w, x))) continue;
        kn_putf(w->b, "%s %s %d %s\n", x->box ? "decompose_padding" : "reindex", w->stmt, x->op->load, x->name);
        share(w, x);
        n++;
    }
    for (int j = w->m->it->nspatial; j < w->m->it->nloops; j++) {
        int64_t e = w->m->intrin->axes[j].extent;
        if (!cut(w, j) || w->extent[j] % e == 0) continue;
        kn_putf(w->b, "pad_einsum %s %s %lld\n", w->stmt, w->axis[j], (long long)e);
        w->extent[j] = kn_round_up(w->extent[j], e);
        for (int i = 0; i < n; i++)
            if (s[i].hard->loops >> j & 1) s[i].name = kn_format(w->b->a, "%s_pad_%s", s[i].name, w->axis[j]);
    }
    for (int i = 0; i < n && !kn_arena_dry(w->b->a); i++) lay_out(w, &s[i]);
}

/* The innermost loop around the instruction gives up to eight tiles of results that take turns, so that none waits for its own last result. */
static void choose_inner(writer *w, const char *axis, int loop, int j)
{
    int64_t extent = w->m->stmt->axes[loop].extent;
    (void)axis;
    for (int64_t n = 8; n > 1 && j < 0; n--) {
        if (extent % n) continue;
        w->inner = loop, w->pieces = n;
        return;
    }
}

/* ---- the nest ---- */

static void put_loop(writer *w, const char *axis, int loop, int j)
{
    (void)loop, (void)j;
    kn_putf(w->b, " %s.0", axis);
}

static void put_grid(writer *w, const char *axis, int loop, int j)
{
    (void)loop, (void)j;
    kn_putf(w->b, "bind %s %s.0 grid\n", w->stmt, axis);
}

static void put_parallel(writer *w, const char *axis, int loop, int j)
{
    int64_t n = j < 0 ? w->m->stmt->axes[loop].extent : kn_ceil_div(w->extent[j], w->m->intrin->axes[j].extent);
    if (!w->tasks) return;
    kn_putf(w->b, "parallel %s %s.0\n", w->stmt, axis);
    if (n > 1) w->tasks--;
}

static void tensorize(const writer *w)
{
    const kn_intrin *it = w->m->it;
    kn_putf(w->b, "tensorize %s", w->stmt);
    for (int j = 0, n = 0; j < it->nloops; j++)
        if (cut(w, j) && !n++) kn_putf(w->b, " %s.1", w->axis[j]);
    kn_putf(w->b, " %s", it->name);
    for (int j = 0; j < it->nloops; j++)
        if (cut(w, j)) kn_putf(w->b, " %s=%s.1", it->s->axes[j].name, w->axis[j]);
    kn_put(w->b, "\n");
}

static void nest(writer *w, const kn_hw *hw)
{
    const kn_stmt *s = w->m->stmt;
    for (int j = 0; j < w->m->intrin->naxes; j++)
        if (cut(w, j)) kn_putf(w->b, "split %s %s %lld\n", w->stmt, w->axis[j], (long long)w->m->intrin->axes[j].extent);
    if (w->inner >= 0) kn_putf(w->b, "split %s %s %lld\n", w->stmt, s->axes[w->inner].name, (long long)w->pieces);
    kn_putf(w->b, "reorder %s", w->stmt);
    each_outer(w, false, put_loop);
    each_outer(w, true, put_loop);
    if (w->inner >= 0) kn_putf(w->b, " %s.1", s->axes[w->inner].name);
    kn_put(w->b, " |");
    for (int j = 0; j < w->m->intrin->naxes; j++)
        if (cut(w, j)) kn_putf(w->b, " %s.1", w->axis[j]);
    kn_put(w->b, "\n");
    w->tasks = 2;
    each_outer(w, false, hw->gpu ? put_grid : put_parallel);
    tensorize(w);
}

kiln_bytes kn_map_trace(kiln_arena *a, const kn_maps *m, const kn_mapping *x, const kn_hw *hw, bool packed)
{
    kn_buf b;
    kn_map_plan plan;
    kiln_diag d;
    kn_buf_init(&b, a);
    writer w = {.b = &b, .m = m, .x = x, .stmt = m->soft->tensors[m->stmt->out].name, .inner = -1};
    fuse(&w);
    if (packed && !kn_arena_dry(a) && !kn_map_plan_of(m, x, &plan, &d)) {
        pack(&w, &plan);
        each_outer(&w, false, choose_inner);
    }
    if (kn_arena_dry(a)) return (kiln_bytes){0};
    nest(&w, hw);
    return kn_buf_take(&b);
}
