/* Statement expressions become loop expressions: axes are substituted, loads become reads, lanes are made explicit. Lanes that number places are
 * 32 bits wide where these hold them; what is filled up past an axis' end takes a mask, where there is memory to read. */
#include "lower/tile.h"
#include "te/expr.h"
#include <string.h>

enum { KN_ENV_RUNS = 4 }; /* runs of a branch: more are a program of its own */

/* The lanes of an axis whose vectors are kept inside it are added when the rest of it is known. */
static bool held_back(const kn_sg *sg, int loop)
{
    return !sg->rolled && sg->inside[sg->g->loops[loop].axis] && sg->g->loops[loop].kind == KN_VECTOR;
}

static kn_expr *first_lane(kn_lw *w, const kn_sg *sg, int axis, kn_expr *at)
{
    at = kn_bin(w->a, KN_OP_MIN, at, sg->inside[axis]);
    return sg->by_lines == axis + 1 ? kn_bin(w->a, KN_OP_MAX, at, kn_lw_int(w, 0)) : at;
}

static kn_expr *kept_inside(kn_lw *w, const kn_sg *sg, int axis, kn_expr *at)
{
    if (sg->rolled || !sg->inside[axis]) return at;
    at = first_lane(w, sg, axis, at);
    for (int i = 0; i < sg->g->nloops; i++)
        if (sg->g->loops[i].axis == axis && held_back(sg, i) && sg->val[i]) at = kn_bin(w->a, KN_OP_ADD, at, sg->val[i]);
    if (at) return at;
    kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
    return &w->dry;
}

/* Values of the axes as the open loops make them, vectors that are kept inside without their lanes. */
static void open_axes(kn_lw *w, const kn_sg *sg, kn_expr **av)
{
    for (int x = 0; x < sg->s->naxes; x++) av[x] = sg->base[x] ? sg->base[x] : kn_lw_int(w, 0);
    for (int i = 0; i < sg->g->nloops; i++) {
        const kn_loop *l = &sg->g->loops[i];
        if (!sg->val[i] || (sg->base[l->axis] && i < sg->tile) || held_back(sg, i)) continue;
        kn_expr *v = kn_bin(w->a, KN_OP_MUL, sg->val[i], kn_lw_int(w, l->stride));
        v = kn_bin(w->a, KN_OP_ADD, av[l->axis], v);
        if (v) av[l->axis] = v;
        else kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
    }
}

void kn_env_axes(kn_lw *w, const kn_sg *sg, kn_expr **av)
{
    open_axes(w, sg, av);
    for (int x = 0; x < sg->s->naxes; x++) av[x] = kn_lw_simp(w, kept_inside(w, sg, x, av[x]));
}

kn_expr *kn_env_line(kn_lw *w, const kn_sg *sg)
{
    kn_expr *av[KILN_MAX_AXES];
    int x = sg->by_lines - 1;
    if (x < 0 || sg->rolled) return NULL;
    open_axes(w, sg, av);
    kn_expr *by = kn_bin(w->a, KN_OP_SUB, av[x], first_lane(w, sg, x, av[x]));
    return by ? kn_lw_simp(w, by) : &w->dry;
}

kn_expr *kn_lw_address(kn_lw *w, int tensor, kn_expr *const *idx)
{
    const kn_tensor *x = &w->p->program->tensors[tensor];
    const kn_box *box = &w->box[tensor];
    kn_expr *at = kn_lw_int(w, 0);
    for (int i = 0; i < x->rank; i++) {
        kn_expr *k = idx[i];
        if (box->on && box->base[i]) k = kn_bin(w->a, KN_OP_SUB, k, box->base[i]);
        at = kn_bin(w->a, KN_OP_MUL, at, kn_lw_int(w, box->on ? box->size[i] : x->shape[i]));
        at = kn_bin(w->a, KN_OP_ADD, at, k);
    }
    if (at) return kn_lw_simp(w, at);
    kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
    return &w->dry;
}

/* A load taken apart: element `at` of `buffer` where `cond` holds (NULL: always), else `other`. */
/* own: it is vector *at of a register array. */
/* inside: every index is in range, whatever guards the load. */
/* row: where lanes lie in a row, if their columns are known. */
typedef struct access { int buffer; kn_expr *at, *cond, *other; bool own, inside; kn_lane_row row; } access;

kn_expr *kn_lw_in_dim(kn_lw *w, kn_expr *i, int64_t n)
{
    kn_expr *neg = kn_bin(w->a, KN_OP_SUB, kn_lw_int(w, -1), i);
    kn_expr *low = neg ? kn_lw_below(w, kn_lw_simp(w, neg), 0) : NULL;
    if (low && !kn_lw_never(low)) low = kn_lw_node(w, KN_OP_LE, KN_BOOL, 1, kn_lw_int(w, 0), i, NULL);
    return kn_lw_and(w, low, kn_lw_below(w, i, n));
}

static access cache_access(kn_env *v, int load, int cache)
{
    kn_lw *w = v->w;
    const kn_sg *sg = v->sg;
    const kn_cache *c = &sg->g->caches[cache];
    const kn_expr *e = sg->loads[load];
    kn_expr *at = kn_lw_int(w, 0);
    int n = c->region ? e->nargs : c->nloops;
    for (int j = 0; j < n; j++) {
        int i = kn_cache_order(c, n, j);
        kn_expr *k = c->region ? kn_bin(w->a, KN_OP_SUB, kn_env_scalar(v, e->args[i]), sg->cache_base[cache][i]) : sg->val[c->loops[i]];
        int64_t size = c->region ? sg->cache_size[cache][i] : kn_cache_dim(sg->g, c, i);
        if (!c->region && c->by[i]) k = kn_bin(w->a, KN_OP_FLOORDIV, k, kn_lw_int(w, c->by[i]));
        if (!c->region && c->count[i]) k = kn_bin(w->a, KN_OP_MOD, k, kn_lw_int(w, c->count[i]));
        at = kn_bin(w->a, KN_OP_MUL, at, kn_lw_int(w, size + (j == n - 1 ? c->pad : 0)));
        at = kn_bin(w->a, KN_OP_ADD, at, k);
    }
    return (access){ .buffer = sg->cache_buffer[cache], .at = at ? kn_lw_half(w, sg, cache, kn_lw_simp(w, at)) : &w->dry };
}

/* What the thread has in registers; of a temporary that has no memory, read as it is not kept, something that cannot be printed. */
static bool own_access(kn_env *v, const kn_expr *e, kn_expr *const *idx, int lanes, access *r)
{
    kn_lw *w = v->w;
    int64_t c;
    *r = (access){.own = true};
    if (kn_lw_own_at(w, e->u.tensor, idx, v->lane_var, lanes, &r->buffer, &c)) return r->at = kn_lw_int(w, c), true;
    const kn_own *temp = kn_lw_own_of(w, e->u.tensor);
    if (!temp) return false;
    r->buffer = temp->buffer;
    r->at = kn_lw_node(w, KN_OP_ADD, KN_I64, 1, v->lane_var >= 0 ? kn_lw_ref(w, v->lane_var) : w->thread, kn_lw_int(w, temp->n), NULL);
    return true;
}

/* The index is of axes whose open loops end with them, and the tensor goes as far: the axis itself, or digits of several that were made one. */
static bool ends_with_axes(const kn_env *v, const kn_expr *index, int64_t n)
{
    int64_t lo, hi;
    uint32_t axes = kn_axes_in(index);
    if (!v->sg || kn_loads(index, NULL, 0)) return false;
    for (int x = 0; x < v->s->naxes; x++)
        if (axes >> x & 1 && !v->sg->clipped[x]) return false;
    return axes && kn_expr_range(index, kn_stmt_range, (void *)(uintptr_t)v->s, &lo, &hi) && lo >= 0 && hi < n;
}

/* The lanes run along the last dimension of a tensor, at columns that are known; `others`: the other dimensions are in range. */
static kn_lane_row row_of(kn_env *v, const kn_expr *e, const access *r, kn_expr *const *idx, kn_expr *others)
{
    kn_lw *w = v->w;
    int last = e->nargs - 1;
    kn_lane_row row = {.buffer = r->buffer, .extent = w->p->program->tensors[e->u.tensor].shape[last], .cond = others, .other = r->other};
    if (v->guard || v->guard_axes || w->box[e->u.tensor].on || !kn_lw_coefficient(idx[last], v->lane_var, &row.step)) return row;
    for (int i = 0; i < last; i++) if (kn_lw_uses(idx[i], v->lane_var)) return row;
    kn_expr *first = kn_lw_simp(w, kn_lw_at_lane(w, idx[last], v->lane_var, kn_lw_int(w, 0)));
    if (first->op != KN_OP_CONST_I || (others && kn_lw_uses(others, v->lane_var))) return row;
    row.column = first->u.i;
    kn_expr *at = kn_lw_at_lane(w, r->at, v->lane_var, kn_lw_int(w, 0));
    row.begin = kn_lw_simp(w, kn_bin(w->a, KN_OP_SUB, at, kn_lw_int(w, row.column)));
    return row;
}

static access load_access(kn_env *v, const kn_expr *e, int lanes)
{
    kn_lw *w = v->w;
    if (v->sg)
        for (int i = 0; i < v->sg->nloads; i++) {
            int cache = v->sg->loads[i] == e ? v->sg->cache_of[i] : -1;
            if (cache >= 0 && cache != v->sg->first_use) return cache_access(v, i, cache);
        }
    const kn_tensor *x = &w->p->program->tensors[e->u.tensor];
    kn_expr *idx[KILN_MAX_RANK] = { NULL }, *in = NULL, *others = NULL;
    for (int i = 0; i < e->nargs; i++) {
        idx[i] = kn_lw_simp(w, kn_env_scalar(v, e->args[i]));
        if (i == e->nargs - 1) others = in;
        bool inside = ends_with_axes(v, e->args[i], x->shape[i]) || (v->sg && kn_lw_drawn_in(v->sg, e->args[i], x->shape[i]));
        if (!inside) in = kn_lw_and(w, in, kn_lw_in_dim(w, idx[i], x->shape[i]));
    }
    access own;
    if (w->nowns && !e->padded && own_access(v, e, idx, lanes, &own)) return own;
    access r = { .buffer = kn_lw_tensor(w, e->u.tensor), .inside = !in };
    for (int i = 0; v->sg && i < v->sg->nloads && !w->box[e->u.tensor].on; i++)
        if (v->sg->loads[i] == e && v->sg->flat[i]) r.at = kn_lw_simp(w, kn_env_scalar(v, v->sg->flat[i]));
    if (!r.at) r.at = kn_lw_address(w, e->u.tensor, idx);
    if (in && v->guard) r.cond = v->guard;
    if (v->guard_axes)
        for (int k = 0; k < v->s->naxes; k++)
            if (kn_axes_in(e) >> k & 1) r.cond = kn_lw_and(w, r.cond, kn_lw_below(w, v->av[k], v->s->axes[k].extent));
    if (e->padded) r.cond = kn_lw_and(w, r.cond, in);
    r.other = kn_lw_zero(w, x->dtype, e->padded ? e->pad_value : 0);
    if (v->lane_var >= 0 && e->nargs > 0) r.row = row_of(v, e, &r, idx, e->padded ? others : NULL);
    return r;
}

bool kn_env_place(kn_env *v, const kn_expr *load, int *buffer, kn_expr **at)
{
    access r = load_access(v, load, 1);
    *buffer = r.buffer;
    *at = r.at;
    return !r.cond;
}

bool kn_env_lanes_alike(kn_env *v)
{
    for (int i = 0; i < v->sg->nloads; i++) {
        if (!v->sg->loads[i]->padded || v->sg->cache_of[i] >= 0) continue;
        access r = load_access(v, v->sg->loads[i], 1);
        if (r.cond && kn_lw_uses(r.cond, v->lane_var) && !kn_lw_row_lanes(v->w, &r.row, v->lanes)) return false;
    }
    return true;
}

static kn_expr *access_scalar(kn_lw *w, const access *r)
{
    if (kn_lw_never(r->cond)) return r->other;
    kn_expr *e = kn_lw_read(w, r->buffer, r->at, 1);
    return r->cond ? kn_lw_node(w, KN_OP_SELECT, e->dtype, 1, r->cond, e, r->other) : e;
}

/* The numbers of an axis in the lanes, as 32-bit integers where those hold them: vectors of these convert in one step. */
static kn_expr *axis_lanes(kn_env *v, kn_expr *at)
{
    kn_lw *w = v->w;
    kn_expr *zero = kn_lw_at_lane(w, at, v->lane_var, kn_lw_int(w, 0)), *last = kn_lw_at_lane(w, at, v->lane_var, kn_lw_int(w, v->lanes - 1));
    int64_t lo, hi, least, most;
    kn_lw_range(w, zero, &lo, &hi);
    kn_lw_range(w, last, &least, &most);
    if (!kn_lw_unit_stride(at, v->lane_var) || lo <= INT32_MIN || most >= INT32_MAX) return kn_lw_lanes(w, at, v->lane_var, v->lanes);
    kn_expr *lane = kn_lw_node(w, KN_OP_CAST, KN_I32, 1, kn_lw_ref(w, v->lane_var), NULL, NULL);
    kn_expr *from = kn_lw_splat(w, kn_lw_node(w, KN_OP_CAST, KN_I32, 1, zero, NULL, NULL), v->lanes);
    kn_expr *sum = kn_lw_node(w, KN_OP_ADD, KN_I32, v->lanes, from, kn_lw_lanes(w, lane, v->lane_var, v->lanes), NULL);
    return kn_lw_node(w, KN_OP_CAST, KN_I64, v->lanes, sum, NULL, NULL);
}

static kn_expr *remake(kn_env *v, const kn_expr *e, kn_expr **args, int lanes)
{
    kn_expr *r = kn_lw_node(v->w, e->op, e->dtype, lanes, e->nargs > 0 ? args[0] : NULL, e->nargs > 1 ? args[1] : NULL,
                            e->nargs > 2 ? args[2] : NULL);
    if (!v->w->status) r->u = e->u;
    return r;
}

kn_expr *kn_env_scalar(kn_env *v, const kn_expr *e)
{
    if (v->w->status) return &v->w->dry;
    if (e->op == KN_OP_AXIS) return v->av[e->u.axis];
    if (e->op == KN_OP_LOAD) {
        if (e->u.tensor == v->repl_tensor) return v->repl;
        access r = load_access(v, e, 1);
        return access_scalar(v->w, &r);
    }
    kn_expr *args[3];
    for (int i = 0; i < e->nargs; i++) args[i] = kn_env_scalar(v, e->args[i]);
    return remake(v, e, args, 1);
}

kn_expr *kn_lw_result(kn_lw *w, const kn_sg *sg)
{
    kn_expr *idx[KILN_MAX_RANK];
    kn_env v = { .w = w, .sg = sg, .s = sg->s, .lane_var = -1, .repl_tensor = -1 };
    kn_env_axes(w, sg, v.av);
    for (int i = 0; i < w->p->program->tensors[sg->s->out].rank; i++) idx[i] = kn_lw_simp(w, kn_env_scalar(&v, sg->s->lhs[i]));
    return kn_lw_address(w, sg->s->out, idx);
}

static bool reads_repl(const kn_env *v, const kn_expr *e)
{
    if (e->op == KN_OP_LOAD && e->u.tensor == v->repl_tensor) return true;
    for (int i = 0; i < e->nargs; i++)
        if (reads_repl(v, e->args[i])) return true;
    return false;
}

kn_memo *kn_memo_open(kn_lw *w, const kn_sg *sg, int64_t elements)
{
    kn_memo *m = elements > 1 && !sg->rolled ? kn_new(w->a, kn_memo) : NULL;
    for (int i = 0; m && i < sg->nloads; i++) {
        m->axes[i] = kn_axes_in(sg->loads[i]);
        m->made[i] = kn_array(w->a, kn_expr *, elements);
    }
    return m;
}

/* Where the memo keeps this load; NULL: nowhere. */
static kn_expr **remembered(kn_env *v, const kn_expr *e)
{
    int64_t at = 0;
    int load = 0;
    if (!v->memo || v->guard) return NULL;
    while (load < v->sg->nloads && v->sg->loads[load] != e) load++;
    if (load == v->sg->nloads || !v->memo->made[load]) return NULL;
    for (int i = v->sg->tile; i < v->sg->g->nloops; i++) {
        const kn_loop *l = &v->sg->g->loops[i];
        if (!(v->memo->axes[load] >> l->axis & 1) || v->s->axes[l->axis].reduce || !kn_is_register(l->kind) || l->kind == KN_VECTOR) continue;
        if (!v->sg->val[i] || v->sg->val[i]->op != KN_OP_CONST_I) return NULL;
        at = at * (v->sg->few[i] ? v->sg->few[i] : l->extent) + v->sg->val[i]->u.i;
    }
    return &v->memo->made[load][at];
}

/* Its lanes reach past the row that it reads, into the next one. */
static bool read_over(const kn_env *v, const kn_expr *e)
{
    for (int i = 0; v->sg && (v->sg->over & kn_axes_in(e)) && i < v->sg->nloads; i++)
        if (v->sg->loads[i] == e) return v->sg->cache_of[i] < 0 && e->args[e->nargs - 1]->op == KN_OP_AXIS;
    return false;
}

static void ask_next(kn_env *v, const kn_expr *e, int buffer, kn_expr *at)
{
    for (int i = 0; v->sg && v->sg->nexts && i < v->sg->nloads; i++)
        if (v->sg->loads[i] == e) kn_lw_next_row(v->w, v->sg, i, buffer, at);
}

/* Lanes follow each other in memory, some elements apart. */
static bool steps(const access *r, int lane_var)
{
    int64_t step;
    return kn_lw_coefficient(r->at, lane_var, &step) && step > 0;
}

/* Narrow lanes a few elements apart are picked from whole vectors (edge.c); NULL: they lie further apart, or are written one by one. */
static kn_expr *few_apart(kn_env *v, const access *r)
{
    enum { LEAST = 4 };
    kn_lw *w = v->w;
    const kn_buffer *b = &w->p->buffers[r->buffer];
    int64_t step;
    if (w->hw->gpu || v->guard || v->lanes < LEAST || b->lanes > 1 || b->dtype == KN_BOOL || kn_dtype_bytes(b->dtype) > 2) return NULL;
    if (!kn_lw_coefficient(r->at, v->lane_var, &step) || step < 2) return NULL;
    return kn_lw_few_apart(w, r->buffer, kn_lw_at_lane(w, r->at, v->lane_var, kn_lw_int(w, 0)), step, v->lanes);
}

static kn_expr *lane_run(kn_env *v, const access *r)
{
    kn_lw *w = v->w;
    kn_expr *apart = few_apart(v, r);
    if (apart) return apart;
    if (!kn_lw_unit_stride(r->at, v->lane_var)) return kn_lw_lanes(w, kn_lw_read(w, r->buffer, r->at, 1), v->lane_var, v->lanes);
    return kn_lw_read(w, r->buffer, kn_lw_at_lane(w, r->at, v->lane_var, kn_lw_int(w, 0)), v->lanes);
}

/* Lanes that go backwards through memory: a vector of them whose lanes change places; NULL: they do not, or are written one by one. */
static kn_expr *backwards(kn_env *v, const access *r)
{
    enum { LANES = 64 };
    kn_lw *w = v->w;
    const kn_buffer *b = &w->p->buffers[r->buffer];
    int number[LANES];
    int64_t step;
    if (w->hw->gpu || v->guard || v->lanes > LANES || b->lanes > 1 || b->dtype == KN_BOOL) return NULL;
    if (!kn_lw_coefficient(r->at, v->lane_var, &step) || step != -1) return NULL;
    for (int l = 0; l < v->lanes; l++) number[l] = v->lanes - 1 - l;
    kn_expr *run = kn_lw_read(w, r->buffer, kn_lw_at_lane(w, r->at, v->lane_var, kn_lw_int(w, v->lanes - 1)), v->lanes);
    return kn_lw_pick(w, v->lanes, 1, &run, number);
}

static kn_expr *new_load(kn_env *v, const kn_expr *e)
{
    kn_lw *w = v->w;
    for (int i = 0; v->sg && i < v->sg->nloads; i++)
        if (v->sg->loads[i] == e && v->sg->turned_of[i] >= 0) return kn_lw_read(w, v->sg->turned_of[i], v->sg->val[v->sg->turn_loop], v->lanes);
    access r = load_access(v, e, v->lanes);
    if (r.own && r.at->op == KN_OP_CONST_I) return kn_lw_read(w, r.buffer, r.at, v->lanes);
    if (w->nowns) r = load_access(v, e, 1);
    bool tested = r.cond && kn_lw_uses(r.cond, v->lane_var);
    if (kn_lw_never(r.cond)) return kn_lw_splat(w, r.other, v->lanes);
    if (!tested && !kn_lw_uses(r.at, v->lane_var)) return kn_lw_splat(w, access_scalar(w, &r), v->lanes);
    if (!tested && kn_lw_unit_stride(r.at, v->lane_var)) {
        kn_expr *at = kn_lw_at_lane(w, r.at, v->lane_var, kn_lw_int(w, 0));
        ask_next(v, e, r.buffer, at);
        kn_expr *run = read_over(v, e) ? kn_lw_read_over(w, r.buffer, e, at, v->lanes) : kn_lw_read(w, r.buffer, at, v->lanes);
        return r.cond ? kn_lw_node(w, KN_OP_SELECT, run->dtype, v->lanes, r.cond, run, kn_lw_splat(w, r.other, v->lanes)) : run;
    }
    kn_expr *back = tested ? NULL : backwards(v, &r);
    if (back) return r.cond ? kn_lw_node(w, KN_OP_SELECT, back->dtype, v->lanes, r.cond, back, kn_lw_splat(w, r.other, v->lanes)) : back;
    kn_expr *known = kn_lw_row_lanes(w, &r.row, v->lanes);
    if (known) return known;
    kn_expr *runs = r.cond || v->guard ? NULL : kn_lw_few_runs(w, r.buffer, r.at, v->lane_var, v->lanes); /* guarded lanes are written one by one */
    if (runs) return runs;
    if (!tested && r.cond && steps(&r, v->lane_var)) {
        kn_expr *run = lane_run(v, &r);
        return kn_lw_node(w, KN_OP_SELECT, run->dtype, v->lanes, r.cond, run, kn_lw_splat(w, r.other, v->lanes));
    }
    if (tested && v->s->red == KN_RED_NONE && steps(&r, v->lane_var)) { /* between two lanes in range all are */
        kn_expr *first = kn_lw_at_lane(w, r.cond, v->lane_var, kn_lw_int(w, 0));
        kn_expr *last = kn_lw_at_lane(w, r.cond, v->lane_var, kn_lw_int(w, v->lanes - 1));
        kn_expr *run = lane_run(v, &r);
        kn_expr *each = kn_lw_lanes(w, access_scalar(w, &r), v->lane_var, v->lanes);
        return kn_lw_node(w, KN_OP_SELECT, run->dtype, v->lanes, kn_lw_and(w, first, last), run, each);
    }
    kn_expr *apart = tested || r.cond ? NULL : few_apart(v, &r);
    return apart ? apart : kn_lw_lanes(w, access_scalar(w, &r), v->lane_var, v->lanes);
}

static kn_expr *vector_load(kn_env *v, const kn_expr *e)
{
    kn_expr **made = remembered(v, e);
    if (made && *made) return *made;
    kn_expr *r = new_load(v, e);
    if (made && !v->w->status) *made = r;
    return r;
}

static bool multiple_of(const kn_lw *w, const kn_expr *e, int64_t n)
{
    if (e->op == KN_OP_CONST_I) return e->u.i % n == 0;
    if (e->op == KN_OP_VAR) return w->var_value[e->u.var] && multiple_of(w, w->var_value[e->u.var], n);
    if (e->op == KN_OP_MUL) return multiple_of(w, e->args[0], n) || multiple_of(w, e->args[1], n);
    return (e->op == KN_OP_ADD || e->op == KN_OP_SUB || e->op == KN_OP_MIN) && multiple_of(w, e->args[0], n) && multiple_of(w, e->args[1], n);
}

/* What all lanes agree in: nothing follows them, or base + lane < limit, both multiples of the lanes, as the first one says. NULL: they may not. */
static kn_expr *all_lanes(kn_env *v, kn_expr *c)
{
    kn_lw *w = v->w;
    bool known = c->nargs == 2 && c->args[0]->op == KN_OP_CONST_I && c->args[1]->op == KN_OP_CONST_I; /* of loops that are written out */
    if (!kn_lw_uses(c, v->lane_var)) return known ? kn_lw_simp(w, c) : c;
    if (c->op != KN_OP_LT || c->args[0]->dtype != KN_I64 || !kn_lw_unit_stride(c->args[0], v->lane_var)) return NULL;
    kn_expr *base = kn_lw_simp(w, kn_lw_at_lane(w, c->args[0], v->lane_var, kn_lw_int(w, 0)));
    if (!multiple_of(w, base, v->lanes) || !multiple_of(w, c->args[1], v->lanes)) return NULL;
    return kn_lw_simp(w, kn_lw_node(w, KN_OP_LT, KN_BOOL, 1, base, c->args[1], NULL));
}

/* Where all that e reads as runs along the lanes is there, whatever the lanes are needed for, and *there holds; NULL: always. false: it reads
 * otherwise. */
static bool runs_there(kn_env *v, const kn_expr *e, kn_expr **there)
{
    kn_lw *w = v->w;
    const kn_expr *loads[KN_ENV_RUNS];
    int n = kn_loads(e, loads, KN_ENV_RUNS);
    if (w->hw->gpu || v->guard || n > KN_ENV_RUNS || kn_tile_traps(e)) return false;
    for (int i = 0; i < n; i++) {
        int64_t lo, hi;
        for (int d = 0; d < loads[i]->nargs; d++)
            if (kn_loads(loads[i]->args[d], NULL, 0)) return false;
        if (loads[i]->u.tensor == v->repl_tensor) return false; /* which is nowhere in memory */
        access r = load_access(v, loads[i], 1);
        if (r.own || r.cond) return false;
        if (!kn_lw_uses(r.at, v->lane_var)) continue;
        kn_expr *at = kn_lw_at_lane(w, r.at, v->lane_var, kn_lw_int(w, 0));
        if (!kn_lw_unit_stride(r.at, v->lane_var)) return false;
        if (r.inside) continue;
        kn_lw_range(w, at, &lo, &hi);
        kn_expr *inside = kn_lw_below(w, at, w->p->buffers[r.buffer].elems - v->lanes + 1);
        if (hi < 0 || kn_lw_never(inside)) return false;
        if (lo < 0) inside = kn_lw_and(w, kn_lw_node(w, KN_OP_LE, KN_BOOL, 1, kn_lw_int(w, 0), at, NULL), inside);
        *there = kn_lw_and(w, *there, inside);
    }
    return true;
}

/* A comparison of the lanes, which count up by one, with what all of them share: those below a limit, or (*others) all but those. */
static bool limit_of(kn_env *v, const kn_expr *c, kn_expr **first, kn_expr **limit, bool *others)
{
    kn_lw *w = v->w;
    bool strict = c->op == KN_OP_LT;
    if ((!strict && c->op != KN_OP_LE) || c->args[0]->dtype != KN_I64) return false;
    kn_expr *x = kn_lw_simp(w, c->args[0]), *y = kn_lw_simp(w, c->args[1]); /* the remainder of a place may be the lane */
    *others = !kn_lw_uses(x, v->lane_var);
    if (*others) {
        kn_expr *lanes = y;
        y = x;
        x = lanes;
    }
    if (!kn_lw_unit_stride(x, v->lane_var) || kn_lw_uses(y, v->lane_var)) return false;
    *first = kn_lw_simp(w, kn_lw_at_lane(w, x, v->lane_var, kn_lw_int(w, 0)));
    bool beyond = strict == *others; /* x <= y is x < y + 1; y < x is not x < y + 1 */
    *limit = beyond ? kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, y, kn_lw_int(w, 1))) : y;
    return true;
}

/* The lanes that condition c holds for (*others: does not), as a mask of bytes or of floats, which no reads hang on; NULL: it is another one. */
static kn_expr *lanes_below(kn_env *v, const kn_expr *c, enum kn_dtype t, bool *others)
{
    kn_lw *w = v->w;
    kn_expr *first, *limit;
    if (!limit_of(v, c, &first, &limit, others)) return NULL;
    enum kn_dtype number = kn_dtype_bytes(t) == 1 ? KN_U8 : KN_F32;
    kn_expr *lane = kn_lw_node(w, KN_OP_CAST, number, 1, kn_lw_ref(w, v->lane_var), NULL, NULL);
    kn_expr *n = kn_lw_node(w, KN_OP_SUB, KN_I64, 1, limit, first, NULL);
    n = kn_lw_node(w, KN_OP_MAX, KN_I64, 1, kn_lw_node(w, KN_OP_MIN, KN_I64, 1, n, kn_lw_int(w, v->lanes), NULL), kn_lw_int(w, 0), NULL);
    n = kn_lw_splat(w, kn_lw_node(w, KN_OP_CAST, number, 1, kn_lw_simp(w, n), NULL, NULL), v->lanes);
    return kn_lw_node(w, KN_OP_LT, KN_BOOL, v->lanes, kn_lw_lanes(w, lane, v->lane_var, v->lanes), n, NULL);
}

/* Both sides of a choice, where they are there to read (what is filled up past the end of an axis: of most vectors it is all there, and of those at
 * the end there is memory to read in front of the end of the tensor; only what follows that is read lane by lane), one picked by a mask. */
static kn_expr *blended(kn_env *v, const kn_expr *e, const kn_expr *c, kn_expr **there)
{
    kn_lw *w = v->w;
    bool others = false;
    *there = NULL;
    kn_expr *mask = runs_there(v, e->args[1], there) && runs_there(v, e->args[2], there) ? lanes_below(v, c, e->dtype, &others) : NULL;
    if (!mask) return NULL;
    kn_expr *x = kn_lw_splat(w, kn_env_vector(v, e->args[1]), v->lanes), *y = kn_lw_splat(w, kn_env_vector(v, e->args[2]), v->lanes);
    kn_expr *args[] = { mask, others ? y : x, others ? x : y };
    return remake(v, e, args, v->lanes);
}

/* Of lanes that count up, those below a limit are all of them with the last one, and none of them without the first: then the other side is not
 * evaluated. */
static kn_expr *split_choice(kn_env *v, const kn_expr *e, const kn_expr *c, kn_expr *mixed)
{
    kn_lw *w = v->w;
    kn_expr *first, *limit;
    bool others;
    bool reads = kn_loads(e->args[1], NULL, 0) && kn_loads(e->args[2], NULL, 0);
    if (w->hw->gpu || v->guard || !reads || !limit_of(v, c, &first, &limit, &others)) return mixed;
    kn_expr *last = kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, first, kn_lw_int(w, v->lanes - 1)));
    kn_expr *below = kn_lw_simp(w, kn_lw_node(w, KN_OP_LT, KN_BOOL, 1, last, limit, NULL));
    kn_expr *beyond = kn_lw_simp(w, kn_lw_node(w, KN_OP_LE, KN_BOOL, 1, limit, first, NULL));
    kn_expr *x = kn_env_vector(v, e->args[others ? 2 : 1]), *y = kn_env_vector(v, e->args[others ? 1 : 2]);
    mixed = kn_lw_node(w, KN_OP_SELECT, e->dtype, v->lanes, beyond, kn_lw_splat(w, y, v->lanes), mixed);
    return kn_lw_node(w, KN_OP_SELECT, e->dtype, v->lanes, below, kn_lw_splat(w, x, v->lanes), mixed);
}

/* A branch of SELECT is computed for every lane, so the reads in it that may leave their tensor carry the condition. */
static kn_expr *vector_select(kn_env *v, const kn_expr *e)
{
    kn_lw *w = v->w;
    kn_expr *args[3], *outer = v->guard;
    args[0] = kn_env_vector(v, e->args[0]);
    if (reads_repl(v, e->args[0])) {
        args[1] = kn_env_vector(v, e->args[1]);
        args[2] = kn_env_vector(v, e->args[2]);
        return remake(v, e, args, v->lanes);
    }
    kn_expr *c = kn_env_scalar(v, e->args[0]), *all = all_lanes(v, c);
    if (all && all->op == KN_OP_CONST_I) return kn_env_vector(v, e->args[all->u.i ? 1 : 2]);
    if (all) { /* a scalar condition: the other side is not evaluated */
        args[0] = all;
        args[1] = kn_env_vector(v, e->args[1]);
        args[2] = kn_env_vector(v, e->args[2]);
        return remake(v, e, args, v->lanes);
    }
    kn_expr *there, *both = blended(v, e, c, &there);
    if (both && !there) return both;
    v->guard = kn_lw_and(w, outer, c);
    args[1] = kn_env_vector(v, e->args[1]);
    v->guard = kn_lw_and(w, outer, kn_lw_node(w, KN_OP_NOT, KN_BOOL, 1, c, NULL, NULL));
    args[2] = kn_env_vector(v, e->args[2]);
    v->guard = outer;
    kn_expr *each = remake(v, e, args, v->lanes);
    return split_choice(v, e, c, both ? kn_lw_node(w, KN_OP_SELECT, e->dtype, v->lanes, there, both, each) : each);
}

static bool is_byte(const kn_expr *e) { return kn_dtype_bytes(e->dtype) == 1 && e->dtype != KN_BOOL && kn_dtype_class(e->dtype) != 'f'; }

/* A byte plus a constant, added in 32 bits and cast to a byte again, is the sum of bytes, which wrap around; NULL: it is something else. */
static kn_expr *sum_of_bytes(kn_lw *w, const kn_expr *cast)
{
    const kn_expr *sum = cast->args[0], *wide = sum->nargs == 2 ? sum->args[0] : NULL, *n = wide ? sum->args[1] : NULL;
    if (w->hw->gpu || cast->lanes < 2 || !is_byte(cast) || sum->op != KN_OP_ADD || sum->dtype != KN_I32) return NULL;
    if (wide->op != KN_OP_CAST || !is_byte(wide->args[0])) return NULL;
    if (n->op == KN_OP_SPLAT) n = n->args[0];
    if (n->op != KN_OP_CONST_I) return NULL;
    kn_expr *byte = wide->args[0]->dtype == KN_U8 ? wide->args[0] : kn_lw_node(w, KN_OP_CAST, KN_U8, cast->lanes, wide->args[0], NULL, NULL);
    kn_expr *more = kn_lw_node(w, KN_OP_CAST, KN_U8, 1, kn_lw_int(w, n->u.i & 255), NULL, NULL);
    byte = kn_lw_node(w, KN_OP_ADD, KN_U8, cast->lanes, byte, kn_lw_splat(w, more, cast->lanes), NULL);
    return cast->dtype == KN_U8 ? byte : kn_lw_node(w, KN_OP_CAST, cast->dtype, cast->lanes, byte, NULL, NULL);
}

/* The 32-bit integers that e's lanes of 64 bits are, where they are numbers of axes that fit these; NULL. */
static kn_expr *narrow(kn_lw *w, kn_expr *e, int64_t lanes)
{
    if (e->op == KN_OP_CAST && e->args[0]->dtype == KN_I32) return e->args[0];
    kn_expr *one = e->op == KN_OP_SPLAT ? e->args[0] : e;
    int64_t lo, hi;
    if (one->lanes > 1) return NULL;
    if (one->op == KN_OP_CONST_I && one->u.i == (int32_t)one->u.i) return kn_lw_splat(w, kn_lw_zero(w, KN_I32, (double)one->u.i), lanes);
    kn_lw_range(w, one, &lo, &hi);
    if (lo <= INT32_MIN || hi >= INT32_MAX) return NULL;
    return kn_lw_splat(w, kn_lw_node(w, KN_OP_CAST, KN_I32, 1, one, NULL, NULL), lanes);
}

/* Numbers of axes are compared as 32-bit integers: twice as many at a time, with a mask as wide as most of what it chooses between. */
static void narrow_numbers(kn_lw *w, const kn_expr *e, kn_expr **args)
{
    bool compares = e->nargs == 2 && e->dtype == KN_BOOL && e->args[0]->dtype == KN_I64 && args[0]->lanes > 1 && !w->hw->gpu;
    if (!compares || kn_loads(e, NULL, 0)) return;
    kn_expr *a = narrow(w, args[0], args[0]->lanes), *b = a ? narrow(w, args[1], args[0]->lanes) : NULL;
    if (b) args[0] = a, args[1] = b;
}

/* A digit of such a number, which has no more bits than that; NULL: e is something else. */
static kn_expr *narrow_digit(kn_env *v, const kn_expr *e, kn_expr **args)
{
    kn_lw *w = v->w;
    bool digit = (e->op == KN_OP_MOD || e->op == KN_OP_FLOORDIV) && e->args[1]->op == KN_OP_CONST_I && e->args[1]->u.i > 0;
    if (!digit || e->dtype != KN_I64 || args[0]->lanes < 2 || w->hw->gpu || kn_loads(e, NULL, 0)) return NULL;
    kn_expr *part[3] = {narrow(w, args[0], v->lanes), narrow(w, args[1], v->lanes)};
    if (!part[0] || !part[1]) return NULL;
    kn_expr *r = kn_lw_node(w, e->op, KN_I32, v->lanes, part[0], part[1], NULL);
    return kn_lw_node(w, KN_OP_CAST, KN_I64, v->lanes, r, NULL, NULL);
}

kn_expr *kn_env_vector(kn_env *v, const kn_expr *e)
{
    kn_lw *w = v->w;
    if (v->lane_var < 0) return kn_env_scalar(v, e);
    if (w->status) return &w->dry;
    if (e->op == KN_OP_LOAD && e->u.tensor == v->repl_tensor) return kn_lw_splat(w, v->repl, v->lanes);
    if (e->op == KN_OP_LOAD && kn_lw_is_made(v, e)) return kn_lw_made(v, e);
    if (e->op == KN_OP_LOAD) return vector_load(v, e);
    if (!reads_repl(v, e)) {
        kn_expr *s = kn_env_scalar(v, e);
        if (kn_lw_uses(s, v->lane_var) && !kn_loads(e, NULL, 0)) s = kn_lw_simp(w, s); /* numbers of axes, of which lanes may have the same digit */
        if (!kn_lw_uses(s, v->lane_var)) return kn_lw_splat(w, s, v->lanes);
        if (e->op == KN_OP_AXIS) return axis_lanes(v, s);
    }
    if (e->op == KN_OP_SELECT) return vector_select(v, e);
    kn_expr *args[3];
    for (int i = 0; i < e->nargs; i++) args[i] = kn_env_vector(v, e->args[i]);
    bool widened = e->op == KN_OP_CAST && args[0]->op == KN_OP_CAST && args[0]->dtype == KN_I64 && args[0]->args[0]->dtype == KN_I32;
    if (widened && e->dtype == KN_I32) return args[0]->args[0]; /* what is exact is not converted twice */
    if (widened && kn_dtype_class(e->dtype) == 'f') args[0] = args[0]->args[0];
    narrow_numbers(w, e, args);
    kn_expr *digit = narrow_digit(v, e, args);
    if (digit) return digit;
    kn_expr *r = remake(v, e, args, v->lanes), *bytes = e->op == KN_OP_CAST && !w->status ? sum_of_bytes(w, r) : NULL;
    return bytes ? bytes : r;
}
