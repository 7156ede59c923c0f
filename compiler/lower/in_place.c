/* A map that reads, element by element, what was computed at one of its loops just before (the exponentials of a softmax) overwrites it: the
 * temporary lies in the output itself. The lines come while functions are computed, not while a pass does little but store; a pass over scratch has
 * them wait (softmax of 64x512 and 1536x512: 0.76 and 0.72 of the time, measured on a Zen 4). */
#include "lower/lower.h"

/* Iterations of the stage's loops over the axis, those behind loop `at` alone. */
static int64_t iterations(const kn_stage *g, int axis, int at)
{
    int64_t n = 1;
    for (int i = at + 1; i < g->nloops; i++)
        if (g->loops[i].axis == axis) n *= g->loops[i].extent;
    return n;
}

static int64_t own_iterations(const kn_stage *g, int axis)
{
    int64_t n = 1;
    for (int i = 0; i < g->nloops; i++)
        if (g->loops[i].axis == axis && g->loops[i].shared_with < 0) n *= g->loops[i].extent;
    return n;
}

/* No tile of it is moved back over elements that were written already: it covers the axis, or its loops end with it. */
static bool once(const kn_stage *g, int axis, int64_t extent)
{
    bool registers = false;
    for (int i = 0; i < g->nloops; i++) registers |= g->loops[i].axis == axis && kn_is_register(g->loops[i].kind);
    return !registers || iterations(g, axis, -1) == extent;
}

/* Long rows, whose last tile begins at a known place: of it only what was not written yet is stored (store.c). In shorter ones vectors are soon read
 * that were stored in two, as all are that are as long as a line (rows of 197: 1.2 to 1.3 times as long in place); those must not fit L1. Others are
 * worth it from some lines on (AVX2: 1021, 2053 and 4099 elements 0.75 to 0.93 of the time, 200 to 300 0.92 to 1.0, 70 to 130 1.0 to 1.03). */
static bool long_rows(const kn_lw *w, const kn_stage *map, int axis, int tensor)
{
    enum { PART = 32 };
    const kn_hw_level *l1 = kn_hw_level_named(w->hw, "l1");
    const kn_tensor *t = &w->p->program->tensors[tensor];
    int64_t row = kn_dtype_bytes(t->dtype) * w->box[tensor].size[t->rank - 1], all = row;
    bool parts = w->hw->vector_bytes < KN_LINE_BYTES;
    kn_short_tile last;
    for (int d = 0; d < t->rank - 1; d++) all *= w->box[tensor].size[d];
    if (!l1 || (parts ? row <= l1->capacity_bytes / PART : all <= l1->capacity_bytes)) return false;
    if (!kn_stage_last_tile(w->p->program->stmts[map->stmt], map, &last)) return false;
    return map->loops[last.loop].axis == axis;
}

static bool same_number(kn_lw *w, const kn_stmt *s, const kn_expr *load)
{
    kn_expr *to = kn_lw_flat(w, s, s->out, s->lhs), *from = kn_lw_flat(w, s, load->u.tensor, load->args);
    kn_affine x, y;
    bool same = to && from && kn_affine_of(to, &x) && kn_affine_of(from, &y) && x.offset == y.offset;
    for (int a = 0; same && a < s->naxes; a++) same = x.coef[a] == y.coef[a];
    return same;
}

/* Element for element: every load of the temporary is of that whose number is written, by axes. The load, or NULL. */
static const kn_expr *same_places(kn_lw *w, const kn_stmt *s, int tensor)
{
    const kn_expr *loads[KILN_MAX_TENSORS], *found = NULL;
    int n = kn_loads(s->body, loads, KILN_MAX_TENSORS);
    for (int l = 0; l < n && n <= KILN_MAX_TENSORS; l++) {
        if (loads[l]->u.tensor != tensor) continue;
        if (loads[l]->padded || !same_number(w, s, loads[l])) return NULL;
        for (int d = 0; d < loads[l]->nargs; d++)
            if (loads[l]->args[d]->op != KN_OP_AXIS) return NULL;
        found = loads[l];
    }
    return found;
}

/* Whoever else reads it is computed at that loop too, in front of the map; some sum does, so that it cannot stay in registers (forward.c). */
static bool read_before(const kn_lw *w, const kn_stage *g, const kn_stage *map, int tensor)
{
    const kn_program *p = w->p->program;
    bool summed = false;
    for (int k = 0; k < w->t->nstages; k++) {
        const kn_stage *r = w->t->stages[k];
        const kn_expr *loads[KILN_MAX_TENSORS];
        int n = kn_loads(p->stmts[r->stmt]->body, loads, KILN_MAX_TENSORS);
        bool reads = n > KILN_MAX_TENSORS || r->epilogue >= 0; /* an epilogue is not looked into */
        for (int l = 0; l < n && !reads; l++) reads = loads[l]->u.tensor == tensor;
        if (reads && r != map && (r->at_stage != g->at_stage || r->at_loop != g->at_loop)) return false;
        summed |= reads && r != map && p->stmts[r->stmt]->red != KN_RED_NONE;
    }
    return summed;
}

bool kn_lw_taken(const kn_lw *w, int out)
{
    bool yes = false;
    for (int t = 0; t < w->p->program->ntensors; t++) yes |= w->box[t].in_place && w->tensor_buffer[t] == w->tensor_buffer[out];
    return yes;
}

bool kn_lw_overwrites(const kn_lw *w, const kn_sg *sg)
{
    bool yes = false;
    for (int i = 0; i < sg->nloads; i++) {
        int t = sg->loads[i]->u.tensor;
        yes |= w->box[t].in_place && w->tensor_buffer[t] == w->tensor_buffer[sg->s->out];
    }
    return yes;
}

int kn_lw_in_place(kn_lw *w, const kn_stage *g)
{
    const kn_stage *map = w->t->stages[g->at_stage];
    const kn_program *p = w->p->program;
    const kn_stmt *s = p->stmts[map->stmt];
    int from = kn_stage_out(w->t, g);
    const kn_tensor *out = &p->tensors[s->out], *t = &p->tensors[from];
    if (w->hw->gpu || map->at_stage >= 0 || map->epilogue >= 0 || g->epilogue >= 0 || map->ncaches || s->red != KN_RED_NONE) return -1;
    if (s->scatter || p->stmts[g->stmt]->scatter || kn_lw_taken(w, s->out)) return -1;
    if (out->role != KN_OUTPUT || out->dtype != t->dtype || kn_lw_elems(out) != kn_lw_elems(t)) return -1;
    const kn_expr *load = same_places(w, s, from);
    bool lines = w->hw->vector_bytes >= KN_LINE_BYTES; /* softmax of 20000x512 in halves of lines: 1.2 times as long from scratch past the caches */
    if (!load || !read_before(w, g, map, from) || (lines && kn_lw_past_caches(w, s->out))) return -1;
    for (int d = 0; d < t->rank; d++) {
        int x = kn_stage_out_axis(w->t, g, d), y = load->args[d]->u.axis;
        if (x < 0 || s->axes[y].extent != t->shape[d]) return -1;
        if (d == t->rank - 1 && long_rows(w, map, y, from)) continue;
        if (own_iterations(g, x) != iterations(map, y, g->at_loop)) return -1;
        if (!once(map, y, t->shape[d]) || !once(g, x, t->shape[d])) return -1;
    }
    return s->out;
}

static bool uses(const kn_ls *s, int var)
{
    for (; s; s = s->next) {
        const kn_expr *all[] = {s->lo, s->hi, s->value, s->index};
        if (s->kind != KN_LS_STORE && s->kind != KN_LS_LET && s->kind != KN_LS_PREFETCH && s->kind != KN_LS_FOR && s->kind != KN_LS_IF) return true;
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            if (all[i] && kn_lw_uses(all[i], var)) return true;
        if (uses(s->body, var) || uses(s->other, var)) return true;
    }
    return false;
}

void kn_lw_behind(kn_lw *w, kn_ls **list)
{
    for (kn_ls *s = *list; s; s = s->next) {
        kn_ls *cond = s->kind == KN_LS_FOR ? s->body : NULL, *end;
        kn_lw_behind(w, &s->body);
        kn_lw_behind(w, &s->other);
        if (!cond || cond->kind != KN_LS_IF || !cond->last || cond->var != s->var || cond->next || !cond->other) continue;
        if (s->hi->op != KN_OP_CONST_I || uses(cond->other, s->var)) continue;
        s->hi = kn_lw_int(w, s->hi->u.i - 1);
        s->body = cond->body;
        for (end = cond->other; end->next; end = end->next) {}
        end->next = s->next;
        s->next = cond->other;
    }
}
