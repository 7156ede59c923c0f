/* A reduction along what the map in front of it makes: both are computed at one loop of a third stage, go over the same elements once, and nothing
 * stands between them. The map's vectors are then made as the reduction comes to them, go to their place in scratch for whoever else reads them, and
 * are combined while a register has them: a pass over the rows less, whose additions find room beside functions that take a dozen multiplications. */
#include "lower/lower.h"

enum { SLOTS = 16 }; /* vectors made lately that have registers of their own */

static const kn_stmt *stmt_of(const kn_lw *w, const kn_stage *g) { return w->p->program->stmts[g->stmt]; }

static bool plain(const kn_stage *g) { return !g->tensor.intrin && !g->ncaches && !g->ahead && g->init_at < 0 && !g->kept; }

static bool has_attached(const kn_tree *t, int stage)
{
    bool yes = false;
    for (int k = 0; k < t->nstages; k++) yes |= t->stages[k]->at_stage == stage;
    return yes;
}

/* The only load of what p makes, which names axes of q and nothing else; NULL: there is another, or it does. */
static const kn_expr *only_load(const kn_stmt *q, int tensor)
{
    const kn_expr *loads[KILN_MAX_TENSORS], *found = NULL;
    int n = kn_loads(q->body, loads, KILN_MAX_TENSORS), times = 0;
    for (int i = 0; i < n && i < KILN_MAX_TENSORS; i++) {
        if (loads[i]->padded) return NULL;
        if (loads[i]->u.tensor == tensor) found = loads[i], times++;
    }
    for (int d = 0; found && d < found->nargs; d++)
        if (found->args[d]->op != KN_OP_AXIS) return NULL;
    return n <= KILN_MAX_TENSORS && times == 1 ? found : NULL;
}

/* Every axis of q is one of p, of the same extent. */
static bool same_elements(const kn_lw *w, const kn_stage *p, const kn_stmt *ps, const kn_stmt *qs, const kn_expr *load)
{
    uint32_t seen = 0;
    for (int d = 0; d < load->nargs; d++) {
        int x = kn_stage_out_axis(w->t, p, d), y = load->args[d]->u.axis;
        if (x < 0 || seen >> y & 1 || ps->axes[x].extent != qs->axes[y].extent) return false;
        seen |= 1u << y;
    }
    return load->nargs == ps->naxes && load->nargs == qs->naxes;
}

/* Lanes lie along the reduction and along p's rows, which fill a vector; the loops over the other axes end with them, or are drawn in to do so. */
static bool by_vectors(const kn_stage *q, const kn_stmt *qs, const kn_expr *load)
{
    int along = load->nargs ? load->args[load->nargs - 1]->u.axis : -1, lanes = 0;
    int64_t cover[KILN_MAX_AXES];
    uint32_t registers = 0;
    for (int a = 0; a < qs->naxes; a++) cover[a] = 1;
    for (int i = 0; i < q->nloops; i++) {
        cover[q->loops[i].axis] *= q->loops[i].extent;
        if (kn_is_register(q->loops[i].kind)) registers |= 1u << q->loops[i].axis;
        if (q->loops[i].kind == KN_VECTOR && q->loops[i].axis == along) lanes = (int)q->loops[i].extent;
    }
    for (int a = 0; a < qs->naxes; a++)
        if (a != along && cover[a] != qs->axes[a].extent && (registers >> a & 1 || qs->axes[a].reduce)) return false;
    return lanes && qs->axes[along].reduce && qs->axes[along].extent >= lanes;
}

bool kn_lw_makes(const kn_lw *w, int maker, int reader)
{
    const kn_stage *p = w->t->stages[maker], *q = w->t->stages[reader];
    const kn_stmt *ps = stmt_of(w, p), *qs = stmt_of(w, q);
    if (w->hw->gpu || ps->red != KN_RED_NONE || qs->red == KN_RED_NONE || ps->scatter || qs->scatter || p->epilogue >= 0) return false;
    if (!plain(p) || !plain(q) || has_attached(w->t, maker) || has_attached(w->t, reader)) return false;
    if (kn_dtype_bytes(ps->body->dtype) < 4) return false;
    const kn_expr *load = only_load(qs, ps->out);
    return load && same_elements(w, p, ps, qs, load) && by_vectors(q, qs, load);
}

bool kn_lw_is_made(const kn_env *v, const kn_expr *load)
{
    return v->sg && v->sg->maker && v->lane_var >= 0 && load->u.tensor == v->sg->maker->s->out;
}

kn_expr *kn_lw_made(kn_env *v, const kn_expr *load)
{
    kn_lw *w = v->w;
    kn_sg *p = v->sg->maker;
    kn_env made = {.w = w, .sg = p, .s = p->s, .lane_var = v->lane_var, .lanes = v->lanes, .repl_tensor = -1};
    kn_expr *idx[KILN_MAX_RANK];
    for (int d = 0; d < load->nargs; d++) {
        idx[d] = v->av[load->args[d]->u.axis];
        made.av[kn_stage_out_axis(w->t, p->g, d)] = idx[d];
    }
    if (p->made < 0) p->made = kn_lw_buffer(w, "made", p->s->body->dtype, v->lanes, SLOTS, KN_REGISTER);
    kn_expr *slot = kn_lw_int(w, p->nmade++ % SLOTS);
    kn_expr *at = kn_lw_at_lane(w, kn_lw_address(w, load->u.tensor, idx), v->lane_var, kn_lw_int(w, 0));
    kn_lw_store(w, p->made, slot, kn_lw_splat(w, kn_env_vector(&made, p->s->body), v->lanes));
    kn_lw_store(w, kn_lw_tensor(w, load->u.tensor), at, kn_lw_read(w, p->made, slot, v->lanes));
    return kn_lw_read(w, p->made, slot, v->lanes);
}
