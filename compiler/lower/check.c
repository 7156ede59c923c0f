/* Structure check of loop programs: what every code generator may rely on. */
#include "lower/loop.h"
#include <string.h>

/* Of a value: the same for all threads of a block, for each 128 of them that compute together, or not even that. */
enum sameness { BLOCK_SAME, GROUP_SAME, THREADS_DIFFER };

typedef struct checker {
    const kn_lprog *p;
    const kn_fn *fn;
    bool *defined;     /* variables in scope */
    int lane;          /* variable of the lanes around, -1 */
    unsigned char *divergent; /* variables: enum sameness */
    kiln_diag *d;
} checker;

static kiln_status wrong(checker *c, const char *what, const char *name)
{
    return kn_fail(c->d, KILN_INTERNAL, "loop program, stage %d: %s (%s)", c->fn->stage, what, name);
}

static int lanes_of(const kn_expr *e) { return e->lanes > 1 ? e->lanes : 1; }

static kiln_status check_expr(checker *c, const kn_expr *e);

/* Also an index that differs from lane to lane of a vector that is written out lane by lane. */
static bool constant(const checker *c, const kn_expr *e)
{
    if (e->op == KN_OP_VAR) return c->lane >= 0 && e->u.var == c->lane;
    for (int i = 0; i < e->nargs; i++)
        if (!constant(c, e->args[i])) return false;
    return e->op == KN_OP_CONST_I || e->op == KN_OP_ADD || e->op == KN_OP_MUL;
}

static kiln_status check_read(checker *c, const kn_expr *e)
{
    if (e->u.buffer < 0 || e->u.buffer >= c->p->nbuffers) return wrong(c, "read of no buffer", "");
    const kn_buffer *b = &c->p->buffers[e->u.buffer];
    if (e->dtype != b->dtype) return wrong(c, "read in another dtype", b->name);
    if (e->args[0]->dtype != KN_I64 || lanes_of(e->args[0]) != 1) return wrong(c, "index is not a scalar i64", b->name);
    if (b->scope == KN_REGISTER && !constant(c, e->args[0])) return wrong(c, "register index is not constant", b->name);
    if (b->scope == KN_REGISTER && lanes_of(e) != b->lanes) return wrong(c, "register read with other lanes", b->name);
    return KILN_OK;
}

static kiln_status check_lanes(checker *c, const kn_expr *e)
{
    int v = e->u.var;
    if (v < 0 || v >= c->p->nvars) return wrong(c, "lanes over no variable", "");
    if (lanes_of(e->args[0]) != 1 || lanes_of(e) < 2) return wrong(c, "lanes of a vector", c->p->var_names[v]);
    bool was = c->defined[v];
    int outer = c->lane;
    c->defined[v] = true;
    c->lane = v;
    kiln_status st = check_expr(c, e->args[0]);
    c->defined[v] = was;
    c->lane = outer;
    return st;
}

/* Vectors of one length and the dtype, and as many numbers of lanes of theirs as there are lanes. */
static kiln_status check_pick(checker *c, const kn_expr *e)
{
    int64_t n = e->u.i;
    const char *name = kn_dtype_text(e->dtype);
    if (n < 1 || n + lanes_of(e) != e->nargs || lanes_of(e) > lanes_of(e->args[0])) return wrong(c, "lanes picked out of order", name);
    for (int i = 0; i < e->nargs; i++) {
        const kn_expr *x = e->args[i];
        bool fits = i < n ? lanes_of(x) == lanes_of(e->args[0]) && x->dtype == e->dtype
                          : x->op == KN_OP_CONST_I && x->u.i >= 0 && x->u.i < n * lanes_of(e->args[0]);
        if (!fits) return wrong(c, "a picked lane that is not there", name);
        kiln_status st = check_expr(c, x);
        if (st) return st;
    }
    return KILN_OK;
}

static kiln_status check_expr(checker *c, const kn_expr *e)
{
    const char *name = kn_dtype_text(e->dtype);
    if (e->op == KN_OP_AXIS || e->op == KN_OP_LOAD) return wrong(c, "axis or load left over", name);
    if (e->op == KN_OP_VAR && (e->u.var < 0 || e->u.var >= c->p->nvars || !c->defined[e->u.var]))
        return wrong(c, "variable out of scope", e->u.var >= 0 && e->u.var < c->p->nvars ? c->p->var_names[e->u.var] : "?");
    if (e->op == KN_OP_LANES) return check_lanes(c, e);
    if (e->op == KN_OP_PICK) return check_pick(c, e);
    for (int i = 0; i < e->nargs; i++) {
        kiln_status st = check_expr(c, e->args[i]);
        if (st) return st;
    }
    if (e->op == KN_OP_READ) return check_read(c, e);
    if (e->op == KN_OP_SPLAT) return lanes_of(e->args[0]) == 1 && lanes_of(e) > 1 ? KILN_OK : wrong(c, "splat of a vector", name);
    if (e->op == KN_OP_HSUM) return lanes_of(e->args[0]) > 1 && lanes_of(e) == 1 ? KILN_OK : wrong(c, "horizontal sum of a scalar", name);
    bool branch = e->op == KN_OP_SELECT && lanes_of(e->args[0]) == 1; /* one side for all lanes: the other is not evaluated */
    for (int i = branch; i < e->nargs; i++)
        if (lanes_of(e->args[i]) != lanes_of(e)) return wrong(c, "operands of different lanes", name);
    int first = e->op == KN_OP_SELECT ? 1 : 0;
    if (e->op == KN_OP_SELECT && e->args[0]->dtype != KN_BOOL) return wrong(c, "select without a condition", name);
    if (e->nargs > first + 1 && e->args[first]->dtype != e->args[first + 1]->dtype) return wrong(c, "operands of different dtypes", name);
    return KILN_OK;
}

static enum sameness differs(const checker *c, const kn_expr *e)
{
    enum sameness most = BLOCK_SAME;
    if (e->op == KN_OP_VAR) return (enum sameness)c->divergent[e->u.var];
    if (e->op == KN_OP_READ && c->p->buffers[e->u.buffer].scope == KN_REGISTER) return c->p->buffers[e->u.buffer].alike ? GROUP_SAME : THREADS_DIFFER;
    for (int i = 0; i < e->nargs; i++) {
        enum sameness x = differs(c, e->args[i]);
        if (x > most) most = x;
    }
    bool group = e->op == KN_OP_FLOORDIV && e->args[0]->op == KN_OP_VAR && e->args[0]->u.var == c->fn->var_thread &&
                 e->args[1]->op == KN_OP_CONST_I && e->args[1]->u.i > 0 && e->args[1]->u.i % 128 == 0;
    return group ? GROUP_SAME : most;
}

/* Steps that all threads of a group, or of the block, take together. */
static kiln_status check_pipe(checker *c, const kn_pipe *p, enum sameness where)
{
    const kn_expr *all[6 + KN_BULK_RANK] = { p->slot, p->parity, p->peer, p->at, p->offset[0], p->offset[1] };
    bool copy = p->step == KN_PIPE_LOAD || p->step == KN_PIPE_STORE;
    if (!c->p->hw->gpu) return wrong(c, "bulk copies on a CPU", "");
    if ((p->step == KN_PIPE_REGISTERS || p->step == KN_PIPE_MEET) && where > GROUP_SAME)
        return wrong(c, "a step that not every thread of a group takes", "");
    if (p->step == KN_PIPE_CLUSTER && where > BLOCK_SAME) return wrong(c, "a meeting of the cluster that not every thread comes to", "");
    for (int i = 0; i < p->rank; i++) all[6 + i] = p->coord[i];
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        kiln_status st = all[i] ? check_expr(c, all[i]) : KILN_OK;
        if (st) return st;
    }
    if (p->slot && (c->p->buffers[p->bars].scope != KN_SHARED || c->p->buffers[p->bars].dtype != KN_I64))
        return wrong(c, "a barrier outside of shared memory", c->p->buffers[p->bars].name);
    if (copy && c->p->buffers[p->buffer].scope != KN_SHARED) return wrong(c, "a bulk copy outside of shared memory", c->p->buffers[p->buffer].name);
    return KILN_OK;
}

static bool asks_peers(const kn_expr *e)
{
    bool yes = e->op == KN_OP_PEER;
    for (int i = 0; i < e->nargs && !yes; i++) yes = asks_peers(e->args[i]);
    return yes;
}

static kiln_status check_store(checker *c, const kn_ls *s, enum sameness where)
{
    if (asks_peers(s->value) && (where != BLOCK_SAME || !c->p->hw->gpu || c->fn->threads % c->p->hw->lanes))
        return wrong(c, "a value of other threads that not all of a warp bring", "");
    if (s->buffer < 0 || s->buffer >= c->p->nbuffers) return wrong(c, "store to no buffer", "");
    const kn_buffer *b = &c->p->buffers[s->buffer];
    kiln_status st = check_expr(c, s->index);
    if (!st) st = check_expr(c, s->value);
    if (!st && s->lo) st = check_expr(c, s->lo);
    if (st) return st;
    if (s->lo && (!s->streams || s->lo->dtype != KN_I64)) return wrong(c, "part of a line that is not written past the caches", b->name);
    if (s->value->dtype != b->dtype) return wrong(c, "store in another dtype", b->name);
    if (s->index->dtype != KN_I64 || lanes_of(s->index) != 1) return wrong(c, "index is not a scalar i64", b->name);
    if (b->scope == KN_REGISTER && s->index->op != KN_OP_CONST_I) return wrong(c, "register index is not constant", b->name);
    if (b->scope == KN_REGISTER && lanes_of(s->value) != b->lanes) return wrong(c, "register store with other lanes", b->name);
    if (b->scope == KN_GLOBAL && c->p->program->tensors[b->slot].role == KN_INPUT) return wrong(c, "store to an input", b->name);
    return KILN_OK;
}

static kiln_status check_call(checker *c, const kn_call *call)
{
    if (!call || call->fn < 0 || call->fn >= c->p->ncalls) return wrong(c, "call of nothing", "");
    const kn_intrin *it = c->p->calls[call->fn].intrin;
    for (int o = 0; o < it->noperands; o++) {
        if (call->buffer[o] < 0 || call->buffer[o] >= c->p->nbuffers) return wrong(c, "operand in no buffer", it->name);
        const kn_buffer *b = &c->p->buffers[call->buffer[o]];
        kiln_status st = check_expr(c, call->at[o]);
        if (st) return st;
        if (c->p->calls[call->fn].warp && c->p->calls[call->fn].warp->threads > 32 && o) {
            if (b->scope != KN_SHARED || b->dtype != it->operand[o].dtype)
                return wrong(c, "source of a group's instruction outside of shared memory", b->name);
            continue;
        }
        if (c->p->calls[call->fn].warp) {
            if (b->scope != KN_REGISTER || call->at[o]->op != KN_OP_CONST_I || b->dtype != (o ? KN_I32 : it->operand[o].dtype))
                return wrong(c, "operand of a warp's instruction outside of registers", b->name);
            continue;
        }
        bool vector = (b->unit || !o) && b->scope == KN_REGISTER && b->lanes == it->operand[o].elems && call->at[o]->op == KN_OP_CONST_I;
        if (b->dtype != it->operand[o].dtype || (!vector && (b->scope == KN_REGISTER || b->elems < it->operand[o].elems)))
            return wrong(c, "operand of another dtype or size, or in registers", b->name);
        if (!o && b->scope == KN_GLOBAL) return wrong(c, "result of an instruction outside of its tile", b->name);
    }
    return KILN_OK;
}

static kiln_status check_fragment(checker *c, const kn_fragment *f, enum sameness where)
{
    const kn_buffer *from = &c->p->buffers[f->buffer], *to = &c->p->buffers[f->to];
    if (from->scope != KN_SHARED || to->scope != KN_REGISTER || to->dtype != KN_I32)
        return wrong(c, "a fragment that is not from shared memory", from->name);
    if (f->first < 0 || f->regs > to->lanes || (int64_t)f->first * f->regs + f->n > to->elems * f->regs)
        return wrong(c, "a fragment outside of its registers", to->name);
    if (where > GROUP_SAME && f->form != KN_FRAGMENT_EACH) return wrong(c, "a fragment that not every thread loads", from->name);
    if (f->form == KN_FRAGMENT_HALVE && (!c->p->buffers[f->odd].alike || f->odd_at >= c->p->buffers[f->odd].elems))
        return wrong(c, "halves that do not say whether they are right", to->name);
    for (int i = 0; i < f->nat; i++) {
        kiln_status st = check_expr(c, f->at[i]);
        if (st) return st;
    }
    return KILN_OK;
}

static kiln_status check_unit(checker *c, const kn_unit_step *u)
{
    if (!u || u->reg < 0 || u->reg >= c->p->nbuffers) return wrong(c, "a step of a unit without a register", "");
    const kn_buffer *r = &c->p->buffers[u->reg];
    if (c->p->hw->gpu || r->scope != KN_REGISTER || !r->unit || r->rows < 1 || r->lanes % r->rows || u->number < 0 || u->number >= r->elems ||
        r->unit + r->elems > c->p->hw->tile_registers + 1)
        return wrong(c, "a register that the unit has not", r->name);
    if (u->what == KN_UNIT_CLEAR) return KILN_OK;
    if (!u->at || u->buffer < 0 || u->buffer >= c->p->nbuffers) return wrong(c, "a register of a unit that meets no memory", r->name);
    const kn_buffer *m = &c->p->buffers[u->buffer];
    if (m->scope == KN_REGISTER || m->dtype != r->dtype || m->elems < (r->rows - 1) * u->row + r->lanes / r->rows)
        return wrong(c, "memory of another dtype or size than the unit's register", m->name);
    return check_expr(c, u->at);
}

static kiln_status check_list(checker *c, const kn_ls *s, enum sameness where);

static kiln_status check_one(checker *c, const kn_ls *s, enum sameness where)
{
    kiln_status st = KILN_OK;
    if (s->kind == KN_LS_STORE) return check_store(c, s, where);
    if (s->kind == KN_LS_CALL) return check_call(c, s->call);
    if (s->kind == KN_LS_FRAGMENT) return check_fragment(c, s->fragment, where);
    if (s->kind == KN_LS_UNIT) return check_unit(c, s->unit);
    if (s->kind == KN_LS_PIPE) return check_pipe(c, s->pipe, where);
    if (s->kind == KN_LS_GROUP) return where <= GROUP_SAME && c->p->hw->gpu ? KILN_OK : wrong(c, "a step of groups that not every thread takes", "");
    if (s->kind == KN_LS_COMMIT || s->kind == KN_LS_WAIT)
        return c->p->hw->gpu && s->groups >= 0 ? KILN_OK : wrong(c, "asynchronous copies on a CPU", "");
    if (s->kind == KN_LS_PREFETCH)
        return c->p->hw->gpu || c->p->buffers[s->buffer].scope == KN_REGISTER ? wrong(c, "prefetch of what is not in memory", "")
                                                                             : check_expr(c, s->index);
    if (s->kind == KN_LS_BARRIER)
        return !c->p->hw->gpu ? wrong(c, "barrier on a CPU", "") : where == BLOCK_SAME ? KILN_OK
                              : wrong(c, "barrier that not every thread meets", "");
    if (s->kind == KN_LS_IF) {
        st = check_expr(c, s->value);
        if (!st && s->value->dtype != KN_BOOL) st = wrong(c, "condition is not bool", "if");
        enum sameness inside = st ? where : differs(c, s->value);
        if (inside < where) inside = where;
        if (!st) st = check_list(c, s->body, inside);
        return st ? st : check_list(c, s->other, inside);
    }
    if (s->var < 0 || s->var >= c->p->nvars) return wrong(c, "no such variable", "");
    if (c->defined[s->var]) return wrong(c, "variable defined twice", c->p->var_names[s->var]);
    if (s->kind == KN_LS_LET) {
        st = check_expr(c, s->value);
        if (st) return st;
        c->defined[s->var] = true;
        c->divergent[s->var] = (unsigned char)differs(c, s->value);
        return KILN_OK;
    }
    st = check_expr(c, s->lo);
    if (!st) st = check_expr(c, s->hi);
    if (st) return st;
    enum sameness lo = differs(c, s->lo), hi = differs(c, s->hi), loop = lo > hi ? lo : hi;
    c->divergent[s->var] = (unsigned char)loop;
    c->defined[s->var] = true;
    st = check_list(c, s->body, loop > where ? loop : where);
    c->defined[s->var] = false;
    return st;
}

static kiln_status check_list(checker *c, const kn_ls *list, enum sameness where)
{
    kiln_status st = KILN_OK;
    for (const kn_ls *s = list; s && !st; s = s->next) st = check_one(c, s, where);
    for (const kn_ls *s = list; s; s = s->next)
        if (s->kind == KN_LS_LET && s->var >= 0 && s->var < c->p->nvars) c->defined[s->var] = false;
    return st;
}

int kn_pack_slot(const kn_lprog *p, int pack) { return p->packs[pack].args[0]; }

bool kn_pack_first(const kn_lprog *p, int pack)
{
    for (int i = 0; i < pack; i++)
        if (kn_pack_slot(p, i) == kn_pack_slot(p, pack)) return false;
    return true;
}

int64_t kn_pack_bytes(const kn_lprog *p, int slot)
{
    int64_t most = 0;
    for (int i = 0; i < p->nbuffers; i++) {
        const kn_buffer *b = &p->buffers[i];
        int64_t end = b->offset + b->elems * kn_dtype_bytes(b->dtype);
        if (b->scope == KN_PACKED && b->slot == slot && end > most) most = end;
    }
    for (int i = 0; i < p->npacks; i++) {
        int64_t end = p->packs[i].scratch_bytes ? p->packs[i].scratch_at + p->packs[i].scratch_bytes : 0;
        if (kn_pack_slot(p, i) == slot && end > most) most = end;
    }
    return kn_round_up(most, kn_dtype_bytes(p->program->tensors[slot].dtype));
}

/* Parts of what is given in place of an input lie beside each other. */
static kiln_status check_packed(const kn_lprog *p, kiln_diag *d)
{
    for (int i = 0; i < p->nbuffers; i++) {
        const kn_buffer *x = &p->buffers[i];
        for (int k = 0; k < i && x->scope == KN_PACKED; k++) {
            const kn_buffer *y = &p->buffers[k];
            bool apart = x->offset >= y->offset + y->elems * kn_dtype_bytes(y->dtype) || y->offset >= x->offset + x->elems * kn_dtype_bytes(x->dtype);
            if (y->scope == KN_PACKED && y->slot == x->slot && (!apart || x->offset % 64 || y->offset % 64))
                return kn_fail(d, KILN_INTERNAL, "loop program: %s and %s lie upon each other", x->name, y->name);
        }
    }
    return KILN_OK;
}

kiln_status kn_lprog_check(const kn_lprog *p, kiln_diag *d)
{
    enum { VARS = 16384 };
    bool defined[VARS];
    unsigned char divergent[VARS];
    if (p->nvars > VARS) return kn_fail(d, KILN_LIMIT, "a loop program has at most %d variables", VARS);
    kiln_status packed = check_packed(p, d);
    if (packed) return packed;
    for (int i = 0; i < p->ncalls; i++) {
        memset(defined, 0, sizeof defined);
        memset(divergent, 0, sizeof divergent);
        checker c = { .p = p, .fn = &p->fns[0], .defined = defined, .lane = -1, .divergent = divergent, .d = d };
        kiln_status st = check_list(&c, p->calls[i].body, BLOCK_SAME);
        if (st) return st;
    }
    for (int i = 0; i < p->npacks + p->nfns; i++) {
        const kn_fn *f = i < p->npacks ? &p->packs[i] : &p->fns[i - p->npacks];
        memset(defined, 0, sizeof defined);
        memset(divergent, 0, sizeof divergent);
        checker c = { .p = p, .fn = f, .defined = defined, .lane = -1, .divergent = divergent, .d = d };
        defined[f->var_grid] = true;
        if (f->var_thread >= 0) {
            defined[f->var_thread] = true;
            divergent[f->var_thread] = THREADS_DIFFER;
        }
        kiln_status st = check_list(&c, f->body, BLOCK_SAME);
        if (st) return st;
    }
    return KILN_OK;
}
