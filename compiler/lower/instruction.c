/* Loops that an instruction computes: its operands are packed into tiles where they do not lie as it wants them, one call stands for the
 * loops, and the finished tile is stored (called_store.c). What a call does is written down once, from the compute text, so that every target can
 * run it. */
#include "lower/called.h"
#include <string.h>

enum { THREAD_BYTES = 64 * 1024 }; /* operands of one thread of a GPU: they lie in its local memory */

static kn_expr *add(kn_lw *w, kn_expr *x, kn_expr *y) { return kn_bin(w->a, KN_OP_ADD, x, y); }
static kn_expr *times(kn_lw *w, kn_expr *x, int64_t n) { return kn_bin(w->a, KN_OP_MUL, x, kn_lw_int(w, n)); }

static kn_expr *sum(kn_lw *w, kn_expr *x, kn_expr *y)
{
    kn_expr *e = add(w, x, y);
    return e ? kn_lw_simp(w, e) : &w->dry;
}

/* An index of the place of an element, over the indices of the element. */
static kn_expr *place(kn_lw *w, const kn_expr *e, kn_expr *const *idx)
{
    if (e->op == KN_OP_AXIS) return idx[e->u.axis];
    if (e->op == KN_OP_CONST_I) return kn_lw_int(w, e->u.i);
    kn_expr *x = place(w, e->args[0], idx), *y = place(w, e->args[1], idx);
    return x && y ? kn_bin(w->a, e->op, x, y) : &w->dry;
}

/* Number of an operand's element in its tile: row-major over its indices, or over its place. */
static kn_expr *element(kn_lw *w, const kn_intrin_operand *o, kn_expr *const *idx)
{
    kn_expr *at = kn_lw_int(w, 0);
    for (int d = 0; d < o->rank && o->plain; d++) at = add(w, times(w, at, o->shape[d]), idx[d]);
    for (int k = 0; k < o->nplace && !o->plain; k++) at = add(w, times(w, at, o->place_shape[k]), place(w, o->place[k], idx));
    return at ? kn_lw_simp(w, at) : &w->dry;
}

/* ---- the instruction itself, emulated ---- */

/* Index expressions of the compute text over the variables of its loops. */
static kn_expr *over_loops(kn_lw *w, const kn_affine *f, int n, kn_expr *const *loop)
{
    kn_expr *e = kn_lw_int(w, f->offset);
    for (int l = 0; l < n; l++)
        if (f->coef[l]) e = add(w, e, times(w, loop[l], f->coef[l]));
    return e ? e : &w->dry;
}

typedef struct writer { kn_lw *w; const kn_intrin *it; const int *param; kn_expr *const *loop; } writer;

static kn_expr *operand_read(const writer *r, int o)
{
    kn_expr *idx[KILN_MAX_RANK] = { NULL };
    const kn_intrin_operand *op = &r->it->operand[o];
    for (int d = 0; d < op->rank; d++) idx[d] = over_loops(r->w, &op->index[d], r->it->nloops, r->loop);
    return kn_lw_read(r->w, r->param[o], element(r->w, op, idx), 1);
}

static kn_expr *body_of(const writer *r, const kn_expr *e)
{
    kn_expr *args[3] = { NULL };
    if (e->op == KN_OP_LOAD) return operand_read(r, kn_intrin_operand_of(r->it, e->u.tensor));
    for (int i = 0; i < e->nargs && i < 3; i++) args[i] = body_of(r, e->args[i]);
    kn_expr *c = kn_lw_node(r->w, e->op, e->dtype, 1, args[0], args[1], args[2]);
    if (!r->w->status) c->u = e->u;
    return c;
}

/* The instruction as a function over its operands; made once a program. The last spatial loop is the innermost: its elements are independent of
 * each other. */
static int emulated(kn_lw *w, const kn_intrin *it)
{
    kn_lprog *p = w->p;
    for (int i = 0; i < p->ncalls; i++)
        if (p->calls[i].intrin == it) return i;
    kn_emulated *f = &p->calls[p->ncalls];
    kn_expr *loop[KN_INTRIN_LOOPS];
    kn_ls **after = w->tail;
    *f = (kn_emulated){ .intrin = it };
    for (int o = 0; o < it->noperands; o++)
        f->param[o] = kn_lw_buffer(w, it->operand[o].name, it->operand[o].dtype, 1, it->operand[o].elems, KN_PARAM);
    w->tail = &f->body;
    for (int k = 0; k < it->nloops; k++) {
        int inner = it->nspatial - 1, l = it->nspatial && k >= inner ? (k + 1 < it->nloops ? k + 1 : inner) : k;
        int var = kn_lw_var(w, it->s->axes[l].name, 0, it->s->axes[l].extent - 1);
        kn_ls *s = kn_lw_for(w, var, kn_lw_int(w, 0), kn_lw_int(w, it->s->axes[l].extent));
        if (!s) return 0;
        loop[l] = kn_lw_ref(w, var);
        w->tail = &s->body;
    }
    writer r = { w, it, f->param, loop };
    kn_expr *value = kn_tile_cast(w, body_of(&r, it->s->body), it->operand[0].dtype), *old = operand_read(&r, 0);
    if (it->red != KN_RED_NONE) value = kn_lw_node(w, kn_combines(it->red), old->dtype, 1, old, value, NULL);
    kn_lw_store(w, f->param[0], old->nargs ? old->args[0] : old, value);
    w->tail = after;
    return p->ncalls++;
}

/* ---- operands ---- */

/* Variables for the dimensions of operand o, which the loops of the tile that index it take for values; with `emit` in loops over them. Gives
 * the end of the list that the loops stand in, where the caller goes on. */
static kn_ls **open_dims(kn_called *x, int o, kn_expr **idx, bool emit)
{
    kn_lw *w = x->w;
    const kn_intrin_operand *op = &x->it->operand[o];
    kn_ls **after = NULL;
    for (int i = x->sg->tile; i < x->sg->g->nloops; i++) x->sg->val[i] = NULL;
    for (int d = 0; d < op->rank; d++) {
        int var = kn_lw_var(w, "t", 0, op->shape[d] - 1);
        kn_ls *s = emit ? kn_lw_for(w, var, kn_lw_int(w, 0), kn_lw_int(w, op->shape[d])) : NULL;
        if (s && !after) after = w->tail;
        if (s) w->tail = &s->body;
        idx[d] = kn_lw_ref(w, var);
        if (x->x->loop[op->lone[d]] >= 0) x->sg->val[x->x->loop[op->lone[d]]] = idx[d];
    }
    return after;
}

static void close_dims(kn_called *x)
{
    for (int i = x->sg->tile; i < x->sg->g->nloops; i++) x->sg->val[i] = NULL;
}

/* A cache has zeros where its axes have ended: what is read from it need not be asked for. */
static bool zero_filled(const kn_sg *sg, const kn_expr *source)
{
    for (int i = 0; i < sg->nloads; i++)
        if (sg->loads[i] == source && sg->cache_of[i] >= 0) return !source->padded || source->pad_value == 0;
    return false;
}

/* Past the end of the axis operand o is zero, or, among integers, a copy of something that a zero is multiplied by. */
static bool ends_harmless(const kn_called *x, int o, int axis)
{
    const kn_intrin *it = x->it;
    bool copy = false;
    if (zero_filled(x->sg, x->source[o])) return true;
    for (int i = 0; i < x->sg->nloads; i++) copy |= x->sg->loads[i] == x->source[o] && x->sg->cache_of[i] >= 0;
    if (!copy || !x->sg->s->axes[axis].reduce || it->red != KN_RED_SUM || kn_dtype_class(it->operand[0].dtype) == 'f') return false;
    const kn_expr *body = kn_bare(it->s->body);
    if (body->op != KN_OP_MUL || it->noperands != 3) return false;
    for (int i = 0; i < 2; i++)
        if (kn_bare(body->args[i])->op != KN_OP_LOAD) return false; /* zeros of the other factor are none of what it is computed of them */
    return (kn_axes_in(x->source[3 - o]) >> axis & 1) && zero_filled(x->sg, x->source[3 - o]);
}

/* Axes that loops of the tile run along. Others must be in range for there to be anything to do (outer_in_range). */
static uint32_t axes_inside(const kn_called *x)
{
    uint32_t inside = 0;
    for (int i = x->sg->tile; i < x->sg->g->nloops; i++)
        if (x->sg->g->loops[i].extent > 1) inside |= 1u << x->sg->g->loops[i].axis;
    return inside;
}

/* Axes that operand o's own dimensions run along. Not all are in what stands for it: an axis of one element leaves no trace there. */
static uint32_t axes_of_dims(const kn_called *x, int o)
{
    uint32_t axes = 0;
    for (int d = 0; d < x->it->operand[o].rank; d++) {
        int i = x->x->loop[x->it->operand[o].lone[d]];
        if (i >= 0) axes |= 1u << x->sg->g->loops[i].axis;
    }
    return axes;
}

/* Where the element of operand o is there at all; NULL: always. */
static kn_expr *present(kn_called *x, int o, kn_expr *const *idx, kn_env *v)
{
    kn_lw *w = x->w;
    const kn_stmt *s = x->sg->s;
    const kn_intrin_operand *op = &x->it->operand[o];
    uint32_t axes = (kn_axes_in(x->source[o]) & axes_inside(x)) | axes_of_dims(x, o);
    kn_expr *in = NULL;
    for (int d = 0; d < op->rank; d++)
        if (x->x->loop[op->lone[d]] < 0) in = kn_lw_and(w, in, kn_lw_below(w, idx[d], 1));
    for (int a = 0; a < s->naxes && !x->full; a++)
        if ((axes >> a & 1) && !x->sg->clipped[a] && !ends_harmless(x, o, a)) in = kn_lw_and(w, in, kn_lw_below(w, v->av[a], s->axes[a].extent));
    return in;
}

/* Memory that is not near a unit: an operand whose scope is shared is copied from there. */
static bool far(enum kn_scope s) { return s == KN_GLOBAL || s == KN_PARAM || s == KN_PACKED; }

/* A unit loads its registers row by row: rows may lie further apart than they are long. */
static kn_expr *strided(kn_called *x, int o, const kn_expr *at, kn_expr *tile, kn_expr *const *idx)
{
    kn_lw *w = x->w;
    const kn_intrin_operand *op = &x->it->operand[o];
    if (op->rank < 2 || (!op->plain && (op->ndigits < 2 || op->nplace != op->ndigits))) return tile;
    int d = op->plain ? 0 : op->digit[0].dim; /* of the operand, whose element `next` begins the second row */
    int64_t next = op->plain ? 1 : op->digit[0].by;
    kn_expr *from = (kn_expr *)at, *to = (kn_expr *)at;
    for (int i = 0; i < op->rank; i++) {
        from = kn_lw_at_lane(w, from, idx[i]->u.var, kn_lw_int(w, 0));
        to = kn_lw_at_lane(w, to, idx[i]->u.var, kn_lw_int(w, i == d ? next : 0));
    }
    kn_expr *apart = kn_bin(w->a, KN_OP_SUB, to, from), *row = op->plain ? idx[0] : place(w, op->place[0], idx);
    apart = apart ? kn_lw_simp(w, apart) : &w->dry;
    if (apart->op != KN_OP_CONST_I || apart->u.i <= x->row[o]) return tile;
    tile = sum(w, tile, times(w, row, apart->u.i - x->row[o]));
    x->row[o] = apart->u.i;
    return tile;
}

/* True when operand o lies in memory as the instruction wants it: x->buffer and x->at are set. */
static bool lies_there(kn_called *x, int o)
{
    kn_lw *w = x->w;
    kn_expr *idx[KILN_MAX_RANK] = { NULL }, *at;
    kn_env v = { .w = w, .sg = x->sg, .s = x->sg->s, .lane_var = -1, .repl_tensor = -1 };
    if (x->source[o]->op != KN_OP_LOAD) return false;
    open_dims(x, o, idx, false);
    kn_env_axes(w, x->sg, v.av);
    bool there = !present(x, o, idx, &v) && kn_env_place(&v, x->source[o], &x->buffer[o], &at);
    close_dims(x);
    if (!there || (x->it->operand[o].scope == KN_SCOPE_SHARED && far(w->p->buffers[x->buffer[o]].scope))) return false;
    kn_expr *base = at;
    for (int d = 0; d < x->it->operand[o].rank; d++) base = kn_lw_at_lane(w, base, idx[d]->u.var, kn_lw_int(w, 0));
    kn_expr *tile = element(w, &x->it->operand[o], idx);
    x->row[o] = x->it->operand[o].elems / kn_unit_rows(&x->it->operand[o]);
    if (x->sg->unit[o]) tile = strided(x, o, at, tile, idx);
    kn_expr *rest = kn_bin(w->a, KN_OP_SUB, at, sum(w, base, tile));
    rest = rest ? kn_lw_simp(w, rest) : &w->dry;
    x->at[o] = base;
    return rest->op == KN_OP_CONST_I && rest->u.i == 0;
}

static void pack(kn_called *x, int o)
{
    kn_lw *w = x->w;
    const kn_intrin_operand *op = &x->it->operand[o];
    kn_expr *idx[KILN_MAX_RANK] = { NULL };
    kn_env v = { .w = w, .sg = x->sg, .s = x->sg->s, .lane_var = -1, .repl_tensor = -1 };
    if (x->packed[o] < 0) x->packed[o] = kn_lw_buffer(w, op->name, op->dtype, 1, op->elems, KN_SCRATCH);
    x->buffer[o] = x->packed[o];
    x->at[o] = kn_lw_int(w, 0);
    x->row[o] = op->elems / kn_unit_rows(op);
    kn_ls **after = open_dims(x, o, idx, true);
    kn_env_axes(w, x->sg, v.av);
    kn_expr *in = present(x, o, idx, &v), *value = kn_env_scalar(&v, x->source[o]);
    if (in) value = kn_lw_node(w, KN_OP_SELECT, op->dtype, 1, in, value, kn_lw_zero(w, op->dtype, 0));
    kn_lw_store(w, x->buffer[o], element(w, op, idx), value);
    close_dims(x);
    if (after) w->tail = after;
}

/* ---- the tile ---- */

/* Axes that no loop of the tile belongs to must be in range for there to be anything to do; NULL: they are. */
static kn_expr *outer_in_range(kn_called *x)
{
    kn_lw *w = x->w;
    kn_expr *av[KILN_MAX_AXES], *in = NULL;
    uint32_t inside = axes_inside(x);
    if (x->full) return NULL;
    kn_env_axes(w, x->sg, av);
    for (int a = 0; a < x->sg->s->naxes; a++)
        if (!(inside >> a & 1) && !x->sg->clipped[a]) in = kn_lw_and(w, in, kn_lw_below(w, av[a], x->sg->s->axes[a].extent));
    return in;
}

/* The tile is known to begin past the end of an axis of the results, of which none is stored. */
static bool past_the_end(kn_called *x)
{
    kn_expr *av[KILN_MAX_AXES];
    if (x->full) return false;
    kn_env_axes(x->w, x->sg, av);
    for (int a = 0; a < x->sg->s->nspatial; a++)
        if (!x->sg->clipped[a] && kn_lw_never(kn_lw_below(x->w, av[a], x->sg->s->axes[a].extent))) return true;
    return false;
}

kn_expr *kn_called_part(kn_called *x)
{
    kn_lw *w = x->w;
    kn_expr *at = kn_lw_int(w, 0);
    for (int i = x->sg->first_reduce; i < x->sg->tile; i++)
        if (!kn_tile_reduces(x->sg, i) && x->sg->g->loops[i].extent > 1) at = add(w, times(w, at, x->sg->g->loops[i].extent), x->sg->val[i]);
    at = times(w, at, x->it->operand[0].elems);
    return at ? kn_lw_simp(w, at) : &w->dry;
}

/* n elements of the destination's dtype, all set to what joins results without changing them. */
static int fresh_tiles(kn_called *x, const char *name, int64_t n)
{
    kn_lw *w = x->w;
    int buffer = kn_lw_buffer(w, name, x->it->operand[0].dtype, 1, n, KN_SCRATCH), var = kn_lw_var(w, "i", 0, n - 1);
    kn_ls *loop = x->it->red == KN_RED_NONE ? NULL : kn_lw_for(w, var, kn_lw_int(w, 0), kn_lw_int(w, n)), **after = w->tail;
    if (!loop) return buffer;
    w->tail = &loop->body;
    kn_lw_store(w, buffer, kn_lw_ref(w, var), kn_tile_identity(w, x->it->red, x->it->operand[0].dtype));
    w->tail = after;
    return buffer;
}

/* Operand o where the call takes it from. */
static void bring(kn_called *x, int o)
{
    if (x->sg->unit[o] && kn_lw_unit_holds(x, o)) return;
    if (!lies_there(x, o)) pack(x, o);
    if (x->sg->unit[o] && !x->w->status) kn_lw_unit_load(x, o);
}

static void call(kn_called *x)
{
    kn_lw *w = x->w;
    kn_call *c = kn_new(w->a, kn_call);
    kn_expr *in = outer_in_range(x);
    if (kn_lw_never(in) || past_the_end(x)) return;
    kn_ls *cond = in ? kn_lw_if(w, in) : NULL, **after = w->tail;
    if (cond) w->tail = &cond->body;
    for (int o = 1; o < x->it->noperands && !w->status; o++) bring(x, o);
    if (!c) kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
    if (w->status) return;
    c->fn = emulated(w, x->it);
    w->p->calls[c->fn].unit |= w->p->buffers[x->buffer[0]].unit > 0;
    w->p->calls[c->fn].vector |= w->p->buffers[x->buffer[0]].scope == KN_REGISTER && !w->p->buffers[x->buffer[0]].unit;
    for (int o = 0; o < x->it->noperands; o++) {
        c->buffer[o] = x->sg->unit[o] ? x->sg->unit[o] : x->buffer[o];
        c->at[o] = x->sg->unit[o] ? kn_lw_unit_at(x, o) : x->at[o];
    }
    kn_lw_call(w, c);
    if (cond) w->tail = after;
}

kn_expr *kn_called_result(kn_called *x)
{
    kn_lw *w = x->w;
    const kn_intrin_operand *o = &x->it->operand[0];
    kn_expr *idx[KILN_MAX_RANK] = { NULL }, *base = x->sg->part >= 0 ? kn_called_part(x) : kn_lw_int(w, 0);
    for (int d = 0; d < o->rank; d++) {
        int i = x->x->loop[o->lone[d]];
        idx[d] = i < 0 ? kn_lw_int(w, 0) : x->sg->val[i];
    }
    return sum(w, base, element(w, o, idx));
}

static kn_called called_of(kn_lw *w, kn_sg *sg)
{
    kn_called x = { .w = w, .sg = sg, .x = &sg->g->tensor, .it = sg->g->tensor.intrin };
    for (int o = 0; o < KN_INTRIN_OPERANDS; o++) x.packed[o] = -1;
    return x;
}

/* What stands for the instruction's operands. */
static bool sources(kn_called *x)
{
    char why[300];
    if (kn_tensor_sources(x->w->t, x->sg->g, x->x, x->source, why, sizeof why)) return true;
    kn_lw_fail(x->w, KILN_TRACE, "statement '%s': %s", x->w->p->program->tensors[x->sg->s->out].name, why);
    return false;
}

/* Results that stay in registers: one for every iteration of the unrolled loops inside the reduction. 0: none is unrolled, and they stay in none. */
static int64_t in_registers(const kn_lw *w, const kn_sg *sg)
{
    int64_t n = 0, unit = kn_stage_unit(w->t, sg->g, w->hw);
    if (unit) return unit;
    for (int i = sg->first_reduce; i < sg->tile; i++)
        if (sg->g->loops[i].kind == KN_UNROLL) n = (n ? n : 1) * sg->g->loops[i].extent;
    return n;
}

void kn_called_register(kn_called *x, int64_t c)
{
    for (int i = x->sg->tile - 1; i >= x->sg->first_reduce; i--) {
        const kn_loop *l = &x->sg->g->loops[i];
        if (l->kind != KN_UNROLL) continue;
        x->sg->val[i] = c < 0 ? NULL : kn_lw_int(x->w, c % l->extent);
        if (c > 0) c /= l->extent;
    }
}

/* Elements of all results between the outermost reduction and the tile. */
static int64_t parts_of(const kn_called *x)
{
    const kn_sg *sg = x->sg;
    int64_t elems = x->it->operand[0].elems;
    for (int i = sg->first_reduce; i < sg->tile; i++)
        if (!kn_tile_reduces(sg, i) && (!kn_mul_fits(elems, sg->g->loops[i].extent, &elems) || elems > KILN_MAX_EXTENT)) {
            kn_lw_fail(x->w, KILN_LIMIT, "statement '%s': too many partial results between its reduce loops and '%s'",
                       x->w->p->program->tensors[sg->s->out].name, x->it->name);
            return 0;
        }
    return elems;
}

static void clear_registers(kn_called *x)
{
    kn_lw *w = x->w;
    const kn_buffer *r = &w->p->buffers[x->sg->results];
    int64_t n = r->elems;
    int lanes = r->lanes;
    for (int64_t c = 0; c < n && !w->status; c++)
        kn_lw_store(w, x->sg->results, kn_lw_int(w, c), kn_lw_splat(w, kn_tile_identity(w, x->it->red, x->it->operand[0].dtype), lanes));
}

/* Registers of the CPU from where their partial results lie, or to there. */
static void move_registers(kn_called *x, bool load)
{
    kn_lw *w = x->w;
    int64_t n = w->p->buffers[x->sg->results].elems;
    int lanes = w->p->buffers[x->sg->results].lanes;
    for (int64_t c = 0; c < n && !w->status; c++) {
        kn_called_register(x, c);
        kn_expr *at = kn_called_part(x), *reg = kn_lw_int(w, c);
        if (load) kn_lw_store(w, x->sg->results, reg, kn_lw_read(w, x->sg->part, at, lanes));
        else kn_lw_store(w, x->sg->part, at, kn_lw_read(w, x->sg->results, reg, lanes));
    }
    kn_called_register(x, -1);
}

void kn_lw_instruction_begin(kn_lw *w, kn_sg *sg)
{
    if (kn_stage_warps(sg->g)) {
        if (kn_stage_lanes(sg->g, w->hw) > w->hw->lanes) kn_lw_group_begin(w, sg);
        else kn_lw_warp_begin(w, sg);
        return;
    }
    kn_called x = called_of(w, sg);
    int64_t elems = x.it->operand[0].elems, registers = in_registers(w, sg);
    memcpy(sg->unreduced, sg->clipped, sizeof sg->clipped);
    if (kn_stage_unit(w->t, sg->g, w->hw)) {
        if (!sources(&x)) return;
        kn_lw_unit_begin(&x, registers);
        if (kn_lw_blocked(w, sg) >= 0) sg->part = kn_lw_buffer(w, "part", x.it->operand[0].dtype, 1, parts_of(&x), KN_SCRATCH);
        else kn_lw_unit_clear(&x);
        return;
    }
    if (registers) sg->results = kn_lw_buffer(w, "result", x.it->operand[0].dtype, (int)elems, registers, KN_REGISTER);
    if (registers && kn_lw_blocked(w, sg) < 0) clear_registers(&x);
    else if (registers) sg->part = kn_lw_buffer(w, "part", x.it->operand[0].dtype, 1, parts_of(&x), KN_SCRATCH);
    if (!registers) sg->part = fresh_tiles(&x, "part", parts_of(&x));
}

int kn_lw_blocked(const kn_lw *w, const kn_sg *sg)
{
    if (!sg->g->tensor.intrin || kn_stage_warps(sg->g) || !in_registers(w, sg)) return -1;
    int inner = kn_stage_inner_reduce(sg->s, sg->g);
    for (int i = sg->first_reduce; i < inner; i++)
        if (sg->g->loops[i].extent > 1 && !kn_tile_reduces(sg, i)) return inner;
    return -1;
}

void kn_lw_block_begin(kn_lw *w, kn_sg *sg)
{
    kn_called x = called_of(w, sg);
    bool unit = kn_stage_unit(w->t, sg->g, w->hw);
    kn_expr *first = NULL; /* iteration of the reduction */
    for (int i = sg->first_reduce; i < kn_lw_blocked(w, sg); i++)
        if (kn_tile_reduces(sg, i)) first = kn_lw_and(w, first, kn_lw_below(w, sg->val[i], 1));
    kn_ls *cond = first ? kn_lw_if(w, first) : NULL, **after = w->tail;
    if (cond) w->tail = &cond->body;
    if (unit) kn_lw_unit_clear(&x);
    else clear_registers(&x);
    if (!cond) return;
    w->tail = &cond->other;
    if (unit) kn_lw_unit_move(&x, true);
    else move_registers(&x, true);
    w->tail = after;
}

void kn_lw_block_end(kn_lw *w, kn_sg *sg)
{
    kn_called x = called_of(w, sg);
    if (kn_stage_unit(w->t, sg->g, w->hw)) kn_lw_unit_move(&x, false);
    else move_registers(&x, false);
}

/* What some operand has past the end of the axis counts: results past the end of theirs are stored nowhere, unless they are read from there. */
static bool ends_matter(const kn_called *x, int axis)
{
    bool reduce = x->sg->s->axes[axis].reduce;
    for (int o = 1; o < x->it->noperands; o++)
        if (((kn_axes_in(x->source[o]) | (reduce ? axes_of_dims(x, o) : 0)) >> axis & 1) && !ends_harmless(x, o, axis)) return true;
    return false;
}

/* The loop is a part of the tile, or one whose iterations are registers beside each other. */
static bool inside(const kn_sg *sg, int loop) { return loop >= sg->tile || sg->g->loops[loop].kind == KN_UNROLL; }

/* Condition that every axis goes on to the last iteration of the tile and of the unrolled loops around it; NULL: certain. *ends: the axes of which
 * that is not. */
static kn_expr *tile_full(kn_called *x, uint32_t *ends)
{
    kn_lw *w = x->w;
    kn_sg *sg = x->sg;
    kn_expr *av[KILN_MAX_AXES], *full = NULL;
    *ends = 0;
    for (int i = 0; i < sg->g->nloops; i++)
        if (inside(sg, i)) sg->val[i] = kn_lw_int(w, sg->g->loops[i].extent - 1);
    kn_env_axes(w, sg, av);
    for (int a = 0; a < sg->s->naxes; a++) {
        kn_expr *in = !sg->clipped[a] && ends_matter(x, a) ? kn_lw_below(w, av[a], sg->s->axes[a].extent) : NULL;
        if (in) *ends |= 1u << a;
        full = kn_lw_and(w, full, in);
    }
    close_dims(x);
    kn_called_register(x, -1);
    return full ? kn_lw_simp(w, full) : NULL;
}

/* A copy was made of operand o, which is near. */
static bool copied(const kn_called *x, int o)
{
    for (int i = 0; i < x->sg->nloads; i++)
        if (x->sg->loads[i] == x->source[o] && x->sg->cache_of[i] >= 0) return true;
    return false;
}

/* Every tile of a unit's operands before the first of the calls, where each has a register and one is read where it lies, with rows far apart: no
 * load then waits behind products that wait for another. The operand that changes faster comes first. Copies come soon enough between products. */
static void loads_first(kn_called *x, int64_t results)
{
    bool near = true;
    for (int o = 1; o < x->it->noperands; o++) near = near && copied(x, o);
    if (near) return;
    kn_called_register(x, results - 1);
    if (!kn_lw_unit_roomy(x) || outer_in_range(x)) return;
    for (int pass = 0; pass < 2; pass++)
        for (int o = 1; o < x->it->noperands; o++)
            for (int64_t c = 0; c < results && kn_lw_unit_slow(x, o) == pass && !x->w->status; c++) {
                kn_called_register(x, c);
                if (!past_the_end(x)) bring(x, o);
            }
}

/* One call, or one for each register. */
static void calls(kn_called *x)
{
    kn_sg *sg = x->sg;
    int64_t results = sg->results >= 0 ? in_registers(x->w, sg) : 1;
    memset(x->held, 0, sizeof x->held);
    loads_first(x, results);
    for (int64_t c = 0; c < results && !x->w->status; c++) {
        if (sg->results >= 0) kn_called_register(x, c);
        x->at[0] = sg->results >= 0 ? kn_lw_int(x->w, c) : sg->part >= 0 ? kn_called_part(x) : kn_lw_int(x->w, 0);
        call(x);
    }
    kn_called_register(x, -1);
}

/* The only tile that the axis ends in, if that is where the loops are: their values become its constants, so that which of its registers are wanted
 * is known. `was` gets what they were. Condition that they are there, NULL: certain; false: the loops leave gaps. */
static bool pin_last(kn_called *x, int axis, kn_expr **was, kn_expr **there)
{
    kn_sg *sg = x->sg;
    kn_expr *av[KILN_MAX_AXES], *pinned[KILN_MAX_LOOPS];
    int64_t span = 1, extent = sg->s->axes[axis].extent;
    for (int i = 0; i < sg->g->nloops; i++)
        if (sg->g->loops[i].axis == axis && inside(sg, i)) span *= sg->g->loops[i].extent;
    int64_t left = extent / span * span;
    for (int i = 0; i < sg->g->nloops; i++) {
        const kn_loop *l = &sg->g->loops[i];
        was[i] = pinned[i] = sg->val[i];
        if (l->axis != axis || inside(sg, i)) continue;
        if (l->stride % span || left / l->stride >= l->extent) return false;
        pinned[i] = kn_lw_int(x->w, left / l->stride);
        left %= l->stride;
    }
    if (left || sg->base[axis]) return false;
    kn_env_axes(x->w, sg, av);
    *there = kn_lw_below(x->w, av[axis], extent);
    memcpy(sg->val, pinned, sizeof pinned[0] * (size_t)sg->g->nloops);
    return true;
}

/* Tiles that an axis ends in. Where it is one axis, on a CPU, they are one tile. */
static void partial(kn_called *x, uint32_t ends)
{
    kn_lw *w = x->w;
    kn_expr *was[KILN_MAX_LOOPS], *there = NULL;
    int axis = 0;
    while (axis < x->sg->s->naxes && ends != 1u << axis) axis++;
    bool last = axis < x->sg->s->naxes && !w->hw->gpu && !x->sg->s->axes[axis].reduce && pin_last(x, axis, was, &there);
    kn_ls *cond = there ? kn_lw_if(w, there) : NULL, **after = w->tail;
    if (cond) w->tail = &cond->body;
    calls(x);
    if (cond) w->tail = after;
    if (last) memcpy(x->sg->val, was, sizeof was[0] * (size_t)x->sg->g->nloops);
}

/* Tiles that are whole ask nothing of their elements; the others fill their operands with zeros where an axis has ended. */
static void whole_or_not(kn_called *x)
{
    kn_lw *w = x->w;
    uint32_t ends;
    kn_expr *full = tile_full(x, &ends);
    bool never = full && full->op == KN_OP_CONST_I && !full->u.i;
    kn_ls *cond = full && !never ? kn_lw_if(w, full) : NULL, **after = w->tail;
    x->full = !never;
    if (cond) w->tail = &cond->body;
    calls(x);
    if (!cond) return;
    x->full = false;
    w->tail = &cond->other;
    partial(x, ends);
    w->tail = after;
}

/* From here on axes have only the results that the epilogue wants of those that have grown to whole tiles. */
static void end_with_epilogue(kn_lw *w, kn_sg *sg)
{
    const kn_stmt *wanted = kn_stage_wanted(w->a, w->t, sg->g);
    for (int a = 0; wanted && a < sg->s->naxes; a++)
        if (wanted->axes[a].extent < sg->s->axes[a].extent) sg->clipped[a] = sg->unreduced[a] = false;
    if (wanted) sg->s = wanted;
    else kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
}

void kn_lw_instruction(kn_lw *w, kn_sg *sg)
{
    if (kn_stage_warps(sg->g)) {
        if (kn_stage_lanes(sg->g, w->hw) > w->hw->lanes) kn_lw_group_tile(w, sg);
        else kn_lw_warp(w, sg);
        return;
    }
    kn_called x = called_of(w, sg);
    bool was[KILN_MAX_AXES];
    if (!sources(&x)) return;
    memcpy(was, sg->clipped, sizeof was);
    if (sg->results >= 0) x.buffer[0] = sg->results;
    else x.buffer[0] = sg->part >= 0 ? sg->part : fresh_tiles(&x, x.it->operand[0].name, x.it->operand[0].elems);
    whole_or_not(&x);
    if (w->hw->gpu && w->scratch > THREAD_BYTES)
        kn_lw_fail(w, KILN_UNSUPPORTED, "statement '%s': the operands of '%s' take %lld bytes a thread",
                   w->p->program->tensors[sg->s->out].name, x.it->name, (long long)w->scratch);
    const kn_stmt *all = sg->s;
    bool ends = sg->part < 0 && sg->results < 0;
    if (ends) end_with_epilogue(w, sg);
    if (ends && !w->status) kn_called_store(&x, sg->tile);
    sg->s = all;
    memcpy(sg->clipped, was, sizeof was);
    close_dims(&x);
}

/* Steps that are written out at a time so that none is left over; 0: all numbers leave some. */
static int steps_without_rest(int64_t steps)
{
    static const int at_a_time[] = {KN_HW_WRITTEN_STEPS, 5, 3, 6, 2};
    for (size_t i = 0; i < sizeof at_a_time / sizeof *at_a_time; i++)
        if (steps % at_a_time[i] == 0) return at_a_time[i];
    return 0;
}

/* Beside few registers' worth of products, counting a sum's steps and the places of its rows shows: several steps are written out. With a rest, which
 * gcc keeps the results in memory for, that would be worse than none (6 by 2 vectors of bytes with AVX2, 257 and 501 steps: 1.13 times as long). */
void kn_lw_instruction_steps(const kn_lw *w, const kn_sg *sg, int loop, kn_ls *of)
{
    bool in_vectors = sg->g->tensor.intrin && sg->results >= 0 && !w->p->buffers[sg->results].unit;
    int64_t steps = sg->g->loops[loop].extent;
    bool few = kn_hw_few_registers(w->hw) && steps >= 2 * KN_HW_WRITTEN_STEPS;
    if (in_vectors && few && kn_tile_reduces(sg, loop) && !of->unroll) of->unroll = steps_without_rest(steps);
}

void kn_called_parts(kn_called *x)
{
    const kn_intrin_operand *o = &x->it->operand[0];
    if (x->sg->part < 0) x->sg->part = kn_lw_buffer(x->w, "part", o->dtype, 1, in_registers(x->w, x->sg) * o->elems, KN_SCRATCH);
}

/* Results of a sum that are left in registers, so many of them, go through memory of their own. */
static void to_memory(kn_called *x, int64_t registers, bool unit)
{
    kn_lw *w = x->w;
    kn_sg *sg = x->sg;
    int64_t elems = x->it->operand[0].elems;
    if (registers) kn_called_parts(x);
    if (unit) kn_lw_unit_move(x, false);
    for (int64_t c = 0; c < registers && !unit && !w->status; c++)
        kn_lw_store(w, sg->part, kn_lw_int(w, c * elems), kn_lw_read(w, sg->results, kn_lw_int(w, c), (int)elems));
}

void kn_lw_instruction_end(kn_lw *w, kn_sg *sg)
{
    if (kn_stage_warps(sg->g)) {
        if (kn_stage_lanes(sg->g, w->hw) > w->hw->lanes) kn_lw_group_end(w, sg);
        else kn_lw_warp_end(w, sg);
        return;
    }
    end_with_epilogue(w, sg);
    kn_called x = called_of(w, sg);
    int64_t registers = in_registers(w, sg);
    bool left = kn_lw_blocked(w, sg) < 0, unit = sg->results >= 0 && w->p->buffers[sg->results].unit, reduced[KILN_MAX_AXES];
    kn_ls **rest = NULL, **after = NULL;
    memcpy(reduced, sg->clipped, sizeof reduced);
    memcpy(sg->clipped, sg->unreduced, sizeof sg->clipped);
    bool in_vectors = registers && !unit;
    if (left && ((unit && kn_called_store_tiles(&x, &rest)) || (in_vectors && kn_called_store_registers(&x, &rest)))) {
        if (!rest) return;
        after = w->tail, w->tail = rest;
    }
    memcpy(sg->clipped, reduced, sizeof reduced);
    if (left) to_memory(&x, registers, unit);
    x.buffer[0] = sg->part;
    memcpy(sg->clipped, sg->unreduced, sizeof sg->clipped);
    kn_called_store(&x, sg->first_reduce);
    if (after) w->tail = after;
}
