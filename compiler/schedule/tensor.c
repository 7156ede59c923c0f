/* Instructions in the place of inner loops: does the body of a statement, over the loops of a tile, compute what an instruction computes?
 * Loops are matched by kind and extent; an operand of the instruction may stand for any part of the body that has its dtype and varies,
 * inside the tile, with the loops that index the operand only (AMOS, ISCA'22, section 5; TensorIR, ASPLOS'23, section 4.1). */
#include "schedule/sched.h"
#include "te/expr.h"
#include <stdio.h>

enum { TURNS_MOST = 6 };                  /* commutative nodes of a pattern that are tried both ways */
enum { MISS_LOOPS = 1, MISS_BODY, MISS_DTYPE, MISS_ACCESS, MISS_TAIL };

typedef struct match {
    const kn_tree *t;
    const kn_stage *g;
    const kn_stmt *s;
    kn_tensor_tile *x;                    /* the loops as they are assigned now */
    const kn_expr *source[KN_INTRIN_OPERANDS];
    unsigned turned;                      /* bit n: operands of the pattern's n-th commutative node are met the other way round */
    int nodes;
    int level;                            /* of the reason in `why`: the one that came furthest is told */
    char *why;
    size_t cap;
} match;

__attribute__((format(printf, 3, 4))) static bool miss(match *m, int level, const char *fmt, ...)
{
    va_list ap;
    if (level <= m->level) return false;
    m->level = level;
    va_start(ap, fmt);
    vsnprintf(m->why, m->cap, fmt, ap);
    va_end(ap);
    return false;
}

static const char *kind(bool reduce) { return reduce ? "reduce" : "spatial"; }
static const kn_axis *axis_of(const match *m, int loop) { return &m->s->axes[m->g->loops[loop].axis]; }

/* Operand o, which `e` is to stand for, must be indexed by every loop of the tile that e varies with. */
static bool follows(match *m, int o, const kn_expr *e)
{
    const kn_intrin *it = m->x->intrin;
    const kn_intrin_operand *op = &it->operand[o];
    for (int l = 0; l < it->nloops; l++) {
        int i = m->x->loop[l];
        if (i < 0 || op->loops >> l & 1 || !(kn_axes_in(e) >> m->g->loops[i].axis & 1)) continue;
        const char *what = e->op == KN_OP_LOAD ? m->t->program->tensors[e->u.tensor].name : "what stands for it";
        return miss(m, MISS_ACCESS, "operand %s of '%s' is not indexed by %s, but %s varies with loop '%s'", op->name, it->name,
                    it->s->axes[l].name, what, m->g->loops[i].name);
    }
    for (int d = 0; d < op->rank; d++)
        if (op->lone[d] < 0) return miss(m, MISS_ACCESS, "index %d of operand %s of '%s' is a sum of loops", d, op->name, it->name);
    return true;
}

/* e, or what it casts without loss, stands for the operand that the pattern loads. */
static bool takes(match *m, const kn_expr *pattern, const kn_expr *e)
{
    const kn_intrin *it = m->x->intrin;
    int o = kn_intrin_operand_of(it, pattern->u.tensor), bits = it->spec->significand_bits;
    const kn_expr *bare = kn_bare(e);
    if (o < 1) return miss(m, MISS_BODY, "'%s' reads what it writes", it->name);
    while (e != bare && e->dtype != it->operand[o].dtype) e = e->args[0];
    if (e->dtype != it->operand[o].dtype)
        return miss(m, MISS_DTYPE, "operand %s of '%s' is %s, what stands for it is %s", it->operand[o].name, it->name,
                    kn_dtype_text(it->operand[o].dtype), kn_dtype_text(e->dtype));
    if (bits && bits < kn_dtype_significand(e->dtype))
        return miss(m, MISS_DTYPE, "operand %s of '%s' keeps %d of the %d significant bits of %s", it->operand[o].name, it->name, bits,
                    kn_dtype_significand(e->dtype), kn_dtype_text(e->dtype));
    if (m->source[o] && !kn_expr_equal(m->source[o], e))
        return miss(m, MISS_BODY, "operand %s of '%s' occurs twice and stands for two things", it->operand[o].name, it->name);
    m->source[o] = e;
    return follows(m, o, e);
}

/* Casts that lose nothing are seen through: the instruction may compute in a wider float than the statement, since it then loses less. */
static bool meets(match *m, const kn_expr *pattern, const kn_expr *e)
{
    pattern = kn_bare(pattern);
    if (pattern->op == KN_OP_LOAD) return takes(m, pattern, e);
    e = kn_bare(e);
    bool turn = pattern->nargs == 2 && kn_op_commutes(pattern->op) && (m->turned >> m->nodes++ & 1);
    bool wide = pattern->dtype == e->dtype || (kn_is_float(e->dtype) && kn_dtype_holds(pattern->dtype, e->dtype));
    bool same = pattern->op == e->op && wide && pattern->nargs == e->nargs && pattern->op != KN_OP_AXIS;
    if (!same || (!pattern->nargs && !kn_expr_equal(pattern, e)))
        return miss(m, MISS_BODY, "the body does not compute what '%s' does: %s", m->x->intrin->name, m->x->intrin->spec->compute);
    for (int i = 0; i < pattern->nargs; i++)
        if (!meets(m, pattern->args[i], e->args[turn ? 1 - i : i])) return false;
    return true;
}

/* A product of loads, casts allowed. */
static bool product(const kn_expr *e)
{
    while (e->op == KN_OP_CAST) e = e->args[0];
    return e->op == KN_OP_LOAD || (e->op == KN_OP_MUL && product(e->args[0]) && product(e->args[1]));
}

/* Iterations of reduce loop l that are not there must add nothing: operands are filled with zeros there, in every factor of a sum of products. One
 * factor is enough among integers, whatever the other is computed of; of floats the other might be infinite. */
static bool zeros_do(const kn_intrin *it, int l)
{
    bool all = true, some = false;
    const kn_expr *body = kn_bare(it->s->body);
    for (int o = 1; o < it->noperands; o++) {
        bool has = it->operand[o].loops >> l & 1;
        all &= has, some |= has;
    }
    if (it->red != KN_RED_SUM) return false;
    if (product(body)) return all || (some && !kn_is_float(it->operand[0].dtype));
    for (int i = 0; i < 2 && body->op == KN_OP_MUL && !kn_is_float(it->operand[0].dtype); i++) {
        const kn_expr *x = kn_bare(body->args[i]);
        int o = x->op == KN_OP_LOAD ? kn_intrin_operand_of(it, x->u.tensor) : 0;
        if (o > 0 && (it->operand[o].loops >> l & 1)) return true;
    }
    return false;
}

static bool tails(match *m)
{
    const kn_intrin *it = m->x->intrin;
    for (int l = it->nspatial; l < it->nloops; l++) {
        int i = m->x->loop[l];
        int64_t cover = 1;
        for (int k = 0; i >= 0 && k < m->g->nloops; k++)
            if (m->g->loops[k].axis == m->g->loops[i].axis) cover *= m->g->loops[k].extent;
        if ((i < 0 ? it->s->axes[l].extent == 1 : cover == axis_of(m, i)->extent) || zeros_do(it, l)) continue;
        if (i < 0) return miss(m, MISS_TAIL, "loop %s of '%s' has no loop here, and zeros cannot fill it", it->s->axes[l].name, it->name);
        return miss(m, MISS_TAIL, "loop '%s' reaches past the end of axis '%s', and zeros cannot stand there for '%s'", m->g->loops[i].name,
                    axis_of(m, i)->name, it->name);
    }
    return true;
}

static int turns_in(const kn_expr *pattern)
{
    int n = pattern->op != KN_OP_LOAD && pattern->nargs == 2 && kn_op_commutes(pattern->op);
    for (int i = 0; i < pattern->nargs && pattern->op != KN_OP_LOAD; i++) n += turns_in(pattern->args[i]);
    return n;
}

static bool body(match *m)
{
    int n = turns_in(m->x->intrin->s->body);
    for (m->turned = 0; m->turned < 1u << (n < TURNS_MOST ? n : TURNS_MOST); m->turned++) {
        for (int o = 0; o < KN_INTRIN_OPERANDS; o++) m->source[o] = NULL;
        m->nodes = 0;
        if (meets(m, m->x->intrin->s->body, m->s->body)) return tails(m);
    }
    return false;
}

/* Loops of the tile from number i on get loops of the instruction, in order where that leads to a match; loops of one iteration need none. */
static bool assign(match *m, int i)
{
    const kn_intrin *it = m->x->intrin;
    while (i < m->g->nloops && m->g->loops[i].extent == 1) i++;
    if (i == m->g->nloops) {
        for (int l = 0; l < it->nloops; l++)
            if (m->x->loop[l] < 0 && it->s->axes[l].extent > 1)
                return miss(m, MISS_LOOPS, "no loop inside '%s' is %s of '%s' (%s, %lld iterations)", m->g->loops[m->x->at].name,
                            it->s->axes[l].name, it->name, kind(it->s->axes[l].reduce), (long long)it->s->axes[l].extent);
        return body(m);
    }
    bool found = false;
    for (int l = 0; l < it->nloops; l++) {
        if (m->x->loop[l] >= 0 || it->s->axes[l].extent != m->g->loops[i].extent || it->s->axes[l].reduce != axis_of(m, i)->reduce) continue;
        found = true;
        m->x->loop[l] = i;
        if (assign(m, i + 1)) return true;
        m->x->loop[l] = -1;
    }
    if (!found) miss(m, MISS_LOOPS, "loop '%s' (%s, %lld iterations) is none of the loops of '%s'", m->g->loops[i].name,
                     kind(axis_of(m, i)->reduce), (long long)m->g->loops[i].extent, it->name);
    return false;
}

/* How results come together: the statement's and the instruction's reductions, and the dtype they are kept in. */
static bool joins(match *m)
{
    const kn_intrin *it = m->x->intrin;
    const kn_stmt *s = m->s;
    enum kn_dtype held = s->red == KN_RED_NONE ? s->body->dtype : kn_stmt_acc(s);
    if (s->red != KN_RED_NONE && s->red != it->red) return miss(m, MISS_BODY, "'%s' does not reduce as the statement does", it->name);
    if (held == it->operand[0].dtype || (kn_is_float(held) && kn_dtype_holds(it->operand[0].dtype, held))) return true;
    return miss(m, MISS_DTYPE, "'%s' keeps results in %s, the statement in %s", it->name, kn_dtype_text(it->operand[0].dtype), kn_dtype_text(held));
}

bool kn_tensor_find(const kn_tree *t, const kn_stage *g, kn_tensor_tile *x, char *why, size_t cap)
{
    match m = { .t = t, .g = g, .s = t->program->stmts[g->stmt], .x = x, .why = why, .cap = cap };
    for (int l = 0; l < KN_INTRIN_LOOPS; l++) x->loop[l] = -1;
    return joins(&m) && assign(&m, x->at);
}

bool kn_tensor_sources(const kn_tree *t, const kn_stage *g, const kn_tensor_tile *x, const kn_expr **source, char *why, size_t cap)
{
    kn_tensor_tile same = *x;
    match m = { .t = t, .g = g, .s = t->program->stmts[g->stmt], .x = &same, .why = why, .cap = cap };
    for (int i = x->at; i < g->nloops; i++) {
        int l = 0;
        while (l < x->intrin->nloops && x->loop[l] != i) l++;
        if (l == x->intrin->nloops && g->loops[i].extent > 1)
            return miss(&m, MISS_LOOPS, "loop '%s' is inside the tile and none of the loops of '%s'", g->loops[i].name, x->intrin->name);
    }
    if (!joins(&m) || !body(&m)) return false;
    for (int o = 0; source && o < KN_INTRIN_OPERANDS; o++) source[o] = m.source[o];
    return true;
}

int64_t kn_stage_unit(const kn_tree *t, const kn_stage *g, const kn_hw *hw)
{
    const kn_intrin *it = g->tensor.intrin;
    const kn_stmt *s = t->program->stmts[g->stmt];
    int64_t n = 1;
    if (!it || !kn_intrin_unit(it, hw)) return 0;
    for (int i = 0; i < g->tensor.at; i++)
        if (g->loops[i].kind == KN_UNROLL && !kn_mul_fits(n, g->loops[i].extent, &n)) return 0;
    return kn_stage_inner_reduce(s, g) < g->tensor.at && n + it->noperands - 1 <= hw->tile_registers ? n : 0;
}

int kn_stage_inner_reduce(const kn_stmt *s, const kn_stage *g)
{
    int inner = g->tensor.at;
    for (int i = g->tensor.at - 1; i >= 0; i--) {
        const kn_loop *l = &g->loops[i];
        bool reduces = s->axes[l->axis].reduce;
        if (!reduces && l->kind != KN_UNROLL && l->extent > 1) break;
        if (reduces) inner = i;
    }
    return inner;
}

/* Unrolled loops around the tile keep its results in registers: of the CPU, a vector each, or of the instruction's own unit. Where serial loops stand
 * between reduce loops the results go to memory and back; unrolled ones stand inside of all of these. */
bool kn_tensor_registers(const kn_tree *t, const kn_stage *g, const kn_hw *hw, char *why, size_t cap)
{
    match m = { .t = t, .g = g, .s = t->program->stmts[g->stmt], .why = why, .cap = cap };
    const kn_intrin *it = g->tensor.intrin;
    int64_t n = it->operand[0].elems, all = 1;
    int first = g->tensor.at, inner = kn_stage_inner_reduce(m.s, g), serial = 0;
    for (int i = 0; i < g->tensor.at; i++) {
        const kn_loop *l = &g->loops[i];
        if (l->kind == KN_UNROLL) all *= l->extent;
        if (l->kind == KN_UNROLL && i < first) first = i;
        if (l->kind != KN_UNROLL && !m.s->axes[l->axis].reduce && i < inner) serial = i;
    }
    if (first == g->tensor.at || kn_stage_warps(g)) return true;
    if (kn_stage_unit(t, g, hw)) first = inner;
    else if (hw->gpu || n < 2 || n > 64 || n & (n - 1) || all > 64)
        return miss(&m, MISS_LOOPS, "unrolled loops keep results in registers: of a CPU, at most 64, each a vector of 2, 4, ... 64");
    if (first < inner) return miss(&m, MISS_LOOPS, "loop '%s' is serial inside the reduction while '%s' is unrolled", g->loops[serial].name,
                                   g->loops[first].name);
    for (int k = 0; k < g->ncaches; k++)
        if (g->caches[k].at >= first) return miss(&m, MISS_LOOPS, "load %d is cached inside loop '%s'", g->caches[k].load, g->loops[first].name);
    for (int k = 0; k < t->nstages; k++)
        if (t->stages[k]->at_stage == kn_stage_find(t, g) && t->stages[k]->at_loop >= first)
            return miss(&m, MISS_LOOPS, "'%s' is computed inside loop '%s'", kn_stage_name(t, t->stages[k]), g->loops[first].name);
    return true;
}

bool kn_tensor_nest(const kn_tree *t, const kn_stage *g, const kn_tensor_tile *x, char *why, size_t cap)
{
    match m = { .t = t, .g = g, .s = t->program->stmts[g->stmt], .why = why, .cap = cap };
    bool reduced = false;
    for (int i = 0; i < g->nloops; i++) {
        const kn_loop *l = &g->loops[i];
        bool inside = i >= x->at;
        if (inside && (l->kind != KN_SERIAL || l->unroll || l->rfactor || l->shared_with >= 0))
            return miss(&m, MISS_LOOPS, "loop '%s' inside the tile is %s", l->name,
                        l->kind != KN_SERIAL ? kn_loop_kind_text(l->kind) : l->shared_with >= 0 ? "another stage's" : "annotated");
        reduced |= m.s->axes[l->axis].reduce;
        if (!inside && ((kn_is_register(l->kind) && l->kind != KN_UNROLL) || l->rfactor))
            return miss(&m, MISS_LOOPS, "loop '%s' outside the tile is %s", l->name, l->rfactor ? "rfactor" : kn_loop_kind_text(l->kind));
        if (!inside && l->kind == KN_UNROLL && !kn_stage_warps(g) && (!reduced || m.s->axes[l->axis].reduce))
            return miss(&m, MISS_LOOPS, "loop '%s' is unrolled, but no spatial loop inside the reduction", l->name);
    }
    for (int k = 0; k < g->ncaches; k++)
        if (g->caches[k].at >= x->at) return miss(&m, MISS_LOOPS, "load %d is cached inside the tile", g->caches[k].load);
    if (g->init_at >= x->at) return miss(&m, MISS_LOOPS, "the reduction is initialised inside the tile");
    for (int k = 0; k < t->nstages; k++)
        if (t->stages[k]->at_stage == kn_stage_find(t, g) && t->stages[k]->at_loop >= x->at)
            return miss(&m, MISS_LOOPS, "'%s' is computed inside the tile", kn_stage_name(t, t->stages[k]));
    return true;
}
