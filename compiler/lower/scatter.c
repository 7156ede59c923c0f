/* Scatters: each value goes to an element that the data name, together with what is there or in its place; what falls outside is dropped. The loops
 * are walked in the order of the tree, which the check of the tree has found to be that of the statement where two values may meet. */
#include "lower/tile.h"

typedef struct put {
    kn_lw *w;
    kn_sg *sg;
    int rank;
    uint32_t ready;                /* axes that have their value, and are in range */
    kn_expr *idx[KILN_MAX_RANK];   /* indices that are known, and in range */
} put;

static void under(put *x, kn_expr *condition)
{
    kn_ls *s = condition ? kn_lw_if(x->w, condition) : NULL;
    if (s) x->w->tail = &s->body;
}

static kn_env env_of(put *x, int lane_var, int lanes)
{
    kn_env v = {.w = x->w, .s = x->sg->s, .lane_var = lane_var, .lanes = lanes, .repl_tensor = -1};
    kn_env_axes(x->w, x->sg, v.av);
    return v;
}

/* Asks of each axis whether it is in range as soon as all its loops have values, and of each index as soon as all its axes have: once for all
 * that the loops inside do. */
static void settle(put *x)
{
    const kn_sg *sg = x->sg;
    kn_env v = env_of(x, -1, 0);
    for (int a = 0; a < sg->s->naxes; a++) {
        bool open = !(x->ready >> a & 1);
        for (int i = 0; i < sg->g->nloops; i++) open &= sg->g->loops[i].axis != a || sg->val[i];
        if (!open) continue;
        under(x, sg->clipped[a] ? NULL : kn_lw_below(x->w, v.av[a], sg->s->axes[a].extent));
        x->ready |= 1u << a;
    }
    for (int d = 0; d < x->rank; d++) {
        if (x->idx[d] || (kn_axes_in(sg->s->lhs[d]) & ~x->ready)) continue;
        kn_expr *at = kn_lw_simp(x->w, kn_env_scalar(&v, sg->s->lhs[d]));
        int64_t extent = x->w->p->program->tensors[sg->s->out].shape[d];
        bool bare = sg->s->lhs[d]->op == KN_OP_AXIS;
        if (!bare) at = kn_lw_let(x->w, "to", at);
        if (!bare || sg->s->axes[sg->s->lhs[d]->u.axis].extent > extent) under(x, kn_lw_in_dim(x->w, at, extent));
        x->idx[d] = at;
    }
}

static void store(put *x, int lane_var, int lanes)
{
    kn_lw *w = x->w;
    const kn_stmt *s = x->sg->s;
    kn_env v = env_of(x, lane_var, lanes);
    int buffer = kn_lw_tensor(w, s->out);
    kn_expr *value = kn_tile_cast(w, lanes > 1 ? kn_env_vector(&v, s->body) : kn_env_scalar(&v, s->body), w->p->program->tensors[s->out].dtype);
    kn_expr *at = kn_lw_address(w, s->out, x->idx);
    if (lanes > 1) at = kn_lw_at_lane(w, at, lane_var, kn_lw_int(w, 0));
    if (s->red != KN_RED_NONE) {
        kn_expr *old = kn_lw_read(w, buffer, at, lanes);
        value = kn_lw_node(w, kn_combines(s->red), old->dtype, lanes, old, value, NULL);
    }
    kn_lw_store(w, buffer, at, value);
}

/* The innermost loop as lanes, where all of them are in range, else one by one. */
static void lanes(put *x, int loop)
{
    kn_lw *w = x->w;
    kn_sg *sg = x->sg;
    const kn_loop *l = &sg->g->loops[loop];
    int64_t extent = sg->s->axes[l->axis].extent;
    int last = x->rank - 1, var = kn_lw_var(w, "lane", 0, l->extent - 1);
    sg->val[loop] = kn_lw_int(w, l->extent - 1);
    kn_env v = env_of(x, -1, 0);
    kn_expr *whole = kn_lw_below(w, v.av[l->axis], extent);
    kn_ls *cond = whole ? kn_lw_if(w, whole) : NULL;
    if (cond) w->tail = &cond->body;
    sg->val[loop] = kn_lw_ref(w, var);
    v = env_of(x, var, (int)l->extent);
    x->idx[last] = v.av[l->axis];
    store(x, var, (int)l->extent);
    if (!cond) return;
    w->tail = &cond->other;
    int one = kn_lw_var(w, l->name, 0, l->extent - 1);
    kn_ls *rest = kn_lw_for(w, one, kn_lw_int(w, 0), kn_lw_int(w, l->extent));
    if (!rest) return;
    w->tail = &rest->body;
    sg->val[loop] = kn_lw_ref(w, one);
    x->idx[last] = NULL;
    settle(x);
    store(x, -1, 1);
}

void kn_lw_scatter(kn_lw *w, kn_sg *sg)
{
    put x = {.w = w, .sg = sg, .rank = w->p->program->tensors[sg->s->out].rank};
    kn_ls **after = w->tail;
    int n = sg->g->nloops;
    bool vector = n && sg->g->loops[n - 1].kind == KN_VECTOR;
    settle(&x);
    for (int i = 0; i < n - vector && !w->status; i++) {
        kn_ls *loop = sg->val[i] ? NULL : kn_lw_loop(w, sg, i);
        if (!loop) continue;
        w->tail = &loop->body;
        settle(&x);
    }
    if (w->status) return;
    if (vector) lanes(&x, n - 1);
    else store(&x, -1, 1);
    while (*after) after = &(*after)->next;
    w->tail = after;
}
