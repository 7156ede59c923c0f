/* Packing before a mapped statement: operands laid out in the instruction's tiles by statements of their own, reduce axes padded with zeros. */
#include "intrin/trace.h"

typedef struct source {
    const kn_map_operand *op;
    const kn_intrin_operand *hard;
    const char *name;         /* of the copy */
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
static bool dimensions(const kn_map_writer *w, source *s)
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
static int lone_axis(const kn_map_writer *w, const source *s, int k)
{
    const kn_expr *index = s->op->soft_index[k];
    for (int j = 0; j < w->m->intrin->naxes && index->op == KN_OP_AXIS; j++)
        if ((s->hard->loops >> j & 1) && w->x->loops[j] == 1u << index->u.axis) return j;
    return -1;
}

/* A padded load of which every axis of the instruction is an index by itself needs no dimension for each loop: the tensor with its padding filled in
 * has what all windows share only once. */
static bool is_box(const kn_map_writer *w, source *s)
{
    const kn_expr *loads[KILN_MAX_TENSORS];
    int n = kn_loads(w->m->stmt->body, loads, KILN_MAX_TENSORS), left = 0;
    if (s->op->load < 0 || s->op->load >= n || !loads[s->op->load]->padded) return false;
    for (int j = 0; j < w->m->intrin->naxes; j++) left += w->x->loops[j] && (s->hard->loops >> j & 1);
    for (int k = 0; k < s->op->nsoft; k++) {
        int j = lone_axis(w, s, k);
        s->dim[k] = j < 0 ? -1 : KILN_MAX_AXES + j;
        left -= j >= 0;
    }
    s->box = left == 0;
    s->ndims = s->box ? s->op->nsoft : 0;
    return s->box;
}

/* Outer loops and tiles in front, then the instruction's own dimensions, row-major. Only whole tiles can be laid out. */
static void lay_out(kn_map_writer *w, const source *s)
{
    int rank = s->ndims;
    for (int k = 0; k < s->hard->rank; k++) {
        int j = s->hard->lone[k];
        if (j < 0 || (kn_map_cut(w, j) && w->extent[j] % w->m->intrin->axes[j].extent)) return;
        rank += kn_map_cut(w, j);
    }
    if (rank > KILN_MAX_RANK || !s->hard->rank) return;
    kn_putf(w->b, "transform_layout %s", s->name);
    for (int d = 0; d < s->ndims; d++) {
        int j = s->dim[d] - KILN_MAX_AXES;
        if (j < 0 || !kn_map_cut(w, j)) kn_putf(w->b, " %d", d);
        else if (w->extent[j] > w->m->intrin->axes[j].extent) kn_putf(w->b, " %d/%lld", d, (long long)w->m->intrin->axes[j].extent);
    }
    for (int k = 0; k < s->hard->rank; k++)
        for (int d = 0; d < s->ndims; d++) {
            int j = s->dim[d] - KILN_MAX_AXES;
            if (j < 0 || j != s->hard->lone[k] || !kn_map_cut(w, j)) continue;
            if (w->extent[j] > w->m->intrin->axes[j].extent) kn_putf(w->b, " %d%%%lld", d, (long long)w->m->intrin->axes[j].extent);
            else kn_putf(w->b, " %d", d);
        }
    kn_put(w->b, "\n");
}

static const char *dim_axis(const kn_map_writer *w, int d) { return d < KILN_MAX_AXES ? w->m->stmt->axes[d].name : w->axis[d - KILN_MAX_AXES]; }
static int64_t dim_extent(const kn_map_writer *w, int d) { return d < KILN_MAX_AXES ? w->m->stmt->axes[d].extent : w->extent[d - KILN_MAX_AXES]; }

/* Tasks for the copying: along its first dimension that has more than one element. */
static void share(kn_map_writer *w, const source *s)
{
    if (s->box) kn_putf(w->b, "parallel %s X0.0\nparallel %s X1.0\n", s->name, s->name);
    for (int d = 0; d < s->ndims && !s->box; d++) {
        kn_putf(w->b, "parallel %s %s.0\n", s->name, dim_axis(w, s->dim[d]));
        if (dim_extent(w, s->dim[d]) > 1) return;
    }
}

/* Does the operand lie where it is as one dense tile? (A unit that takes a stride between rows would need less.) */
static bool dense(const kn_map_writer *w, const kn_map_layout *y, const kn_intrin_operand *h)
{
    int64_t row = 1;
    for (int k = h->rank - 1; k >= 0 && y->direct; k--) {
        if (h->lone[k] < 0 || (kn_map_cut(w, h->lone[k]) && y->step[h->lone[k]] != row)) return false;
        row *= h->shape[k];
    }
    return y->direct;
}

/* Axes grow to whole tiles. A spatial one needs a result of its own to grow in, which is then indexed by the axes. */
static void pad(kn_map_writer *w)
{
    for (int j = 0, results = 0; j < w->m->it->nloops; j++) {
        int64_t e = w->m->intrin->axes[j].extent;
        bool spatial = j < w->m->it->nspatial;
        if (!kn_map_cut(w, j) || w->extent[j] % e == 0) continue;
        if (spatial && !results++) {
            const char *own = kn_format(w->b->a, "%s_%s", w->stmt, w->m->it->operand[0].name);
            kn_putf(w->b, "reindex %s out %s\n", w->stmt, own ? own : "");
            w->stmt = own;
        }
        kn_putf(w->b, "pad_einsum %s %s %lld\n", w->stmt, w->axis[j], (long long)e);
        w->extent[j] = kn_round_up(w->extent[j], e);
        if (spatial) w->stmt = kn_format(w->b->a, "%s_pad_%s", w->stmt, w->axis[j]);
    }
}

void kn_map_pack(kn_map_writer *w, const kn_map_plan *plan)
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
        n++;
    }
    pad(w);
    for (int i = 0; i < n && !kn_arena_dry(w->b->a); i++) {
        lay_out(w, &s[i]);
        share(w, &s[i]);
    }
}
