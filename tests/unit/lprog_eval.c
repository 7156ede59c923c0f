/* The interpreter behind lprog_eval.h. Threads of a block are fibers that stop at barriers. */
#include "tests/unit/lprog_eval.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { STACK = 256 * 1024 };
typedef struct vec { double x[64]; int n; } vec;
typedef struct cells { double *v; char *set; int64_t n, *when; } cells; /* when: of a line, how many had been read as it was asked for */
typedef struct thread {
    struct machine *m;
    ucontext_t at;
    void *stack;
    int64_t *vars;
    cells *regs;      /* registers, and a GPU's scratch */
    bool done;
    double brought;   /* to the threads of its warp */
    const kn_call *call; /* of the instruction that runs; operand o begins at element base[o] */
    int64_t base[KN_INTRIN_OPERANDS];
} thread;
typedef struct machine {
    const kn_lprog *p;
    const kn_fn *f;
    cells *mem;       /* a buffer each; SCRATCH is checked by buffer, its overlap in bytes apart */
    ucontext_t home;
    thread *t;
    lprog_lines *lines;
    char error[256];
} machine;

static _Thread_local thread *starting; /* makecontext passes only ints */

static void stop(machine *m, const char *what, const char *name, int64_t at)
{
    if (!m->error[0]) snprintf(m->error, sizeof m->error, "%s: %s at %lld", what, name, (long long)at);
}

static double round_to(enum kn_dtype t, double x)
{
    switch (t) {
    case KN_F32: return (float)x;
    case KN_I32: return (double)(int32_t)(int64_t)x;
    case KN_I16: return (double)(int16_t)(int64_t)x;
    case KN_I8: return (double)(int8_t)(int64_t)x;
    case KN_U8: return (double)(uint8_t)(int64_t)x;
    case KN_BOOL: return x != 0;
    default: return x;
    }
}

static double combine(int r, double a, double b)
{
    switch (r) {
    case KN_RED_PROD: return a * b;
    case KN_RED_MAX: return a > b ? a : b;
    case KN_RED_MIN: return a < b ? a : b;
    case KN_RED_ALL: return a != 0 && b != 0;
    case KN_RED_ANY: return a != 0 || b != 0;
    default: return a + b;
    }
}

static double apply(enum kn_op op, enum kn_dtype t, double a, double b)
{
    switch (op) {
    case KN_OP_ADD: return a + b;
    case KN_OP_SUB: return a - b;
    case KN_OP_MUL: return a * b;
    case KN_OP_DIV: return a / b;
    case KN_OP_FLOORDIV: return b == 0 ? NAN : floor(a / b);
    case KN_OP_MOD: return b == 0 ? NAN : a - floor(a / b) * b;
    case KN_OP_MIN: return a < b ? a : b;
    case KN_OP_MAX: return a > b ? a : b;
    case KN_OP_NEG: return -a;
    case KN_OP_ABS: return fabs(a);
    case KN_OP_EXP: return exp(a);
    case KN_OP_LOG: return log(a);
    case KN_OP_SQRT: return sqrt(a);
    case KN_OP_TANH: return tanh(a);
    case KN_OP_LT: return a < b;
    case KN_OP_LE: return a <= b;
    case KN_OP_EQ: return a == b;
    case KN_OP_NE: return a != b;
    case KN_OP_AND: return a != 0 && b != 0;
    case KN_OP_OR: return a != 0 || b != 0;
    case KN_OP_NOT: return a == 0;
    case KN_OP_BITAND: return (double)((int64_t)a & (int64_t)b);
    case KN_OP_SHR: return floor(a / exp2(b));
    case KN_OP_BITOR: return (double)((int64_t)a | (int64_t)b);
    case KN_OP_BITXOR:
    case KN_OP_XOR: return (double)((int64_t)a ^ (int64_t)b);
    case KN_OP_BITS: return (double)(union { float f; int32_t i; }){(float)a}.i;
    case KN_OP_CAST: return kn_dtype_class(t) == 'f' ? a : round_to(t, trunc(a));
    default: return NAN;
    }
}

static bool of_thread(const kn_lprog *p, int buffer)
{
    return p->buffers[buffer].scope == KN_REGISTER || (p->hw->gpu && p->buffers[buffer].scope == KN_SCRATCH);
}

/* Where a buffer's elements are; an operand's, moved by *at, lie in the buffer that the call names. */
static cells *cells_of(thread *t, int buffer, int64_t *at)
{
    const kn_lprog *p = t->m->p;
    if (p->buffers[buffer].scope == KN_PARAM) {
        const kn_emulated *f = &p->calls[t->call->fn];
        int o = 0;
        while (f->param[o] != buffer) o++;
        if (*at < 0 || *at >= p->buffers[buffer].elems) stop(t->m, "outside of the operand", p->buffers[buffer].name, *at);
        *at += t->base[o];
        buffer = t->call->buffer[o];
    }
    return of_thread(p, buffer) ? &t->regs[buffer] : &t->m->mem[buffer];
}

enum { SET = 1, ASKED = 2, READ = 4 }; /* of an element, and of the line that it begins */

static int64_t line_of(const kn_buffer *b, int64_t at)
{
    int64_t elems = 64 / kn_dtype_bytes(b->dtype);
    return at / elems * elems;
}

static void note_read(machine *m, const kn_buffer *b, cells *c, int64_t at)
{
    char *line = m->lines && b->scope == KN_GLOBAL && m->p->program->tensors[b->slot].role == KN_INPUT ? &c->set[line_of(b, at)] : NULL;
    if (!line || *line & READ) return;
    m->lines[b->slot].read++;
    m->lines[b->slot].asked += (*line & ASKED) && m->lines[b->slot].read - c->when[line_of(b, at)] > m->lines[b->slot].early;
    *line |= READ;
}

static double scalar(thread *t, const kn_expr *e);
static void vector(thread *t, const kn_expr *e, vec *r);

static bool wide(const kn_expr *e) { return e->lanes > 1; }

static void read_at(thread *t, const kn_expr *e, double *x, int n)
{
    const kn_buffer *b = &t->m->p->buffers[e->u.buffer];
    int64_t at = (int64_t)scalar(t, e->args[0]);
    cells *c = cells_of(t, e->u.buffer, &at);
    if (b->scope == KN_REGISTER) at *= b->lanes;
    for (int i = 0; i < n; i++) {
        if (at < 0 || at + i >= c->n) stop(t->m, "read out of bounds", b->name, at + i);
        else if (!c->set[at + i]) stop(t->m, "read of what was not written", b->name, at + i);
        else x[i] = c->v[at + i], note_read(t->m, b, c, at + i);
    }
}

static void prefetch(thread *t, const kn_ls *s)
{
    int64_t at = (int64_t)scalar(t, s->index);
    cells *c = cells_of(t, s->buffer, &at);
    const kn_buffer *b = &t->m->p->buffers[s->buffer];
    if (!t->m->lines || b->scope != KN_GLOBAL || at < 0 || at >= c->n || !c->set[at] || c->set[line_of(b, at)] & ASKED) return;
    if (!c->when) c->when = calloc((size_t)c->n + 1, sizeof *c->when);
    c->set[line_of(b, at)] |= ASKED;
    c->when[line_of(b, at)] = t->m->lines[b->slot].read;
}

/* Of another thread of the warp: all of them come by here, then all go on. */
static double peer(thread *t, const kn_expr *e)
{
    double x = 0;
    t->brought = scalar(t, e->args[0]);
    swapcontext(&t->at, &t->m->home);
    if ((int64_t)(t - t->m->t) / 32 * 32 + 32 > t->m->f->threads) stop(t->m, "a part of a warp", "peer", t - t->m->t);
    else x = t->m->t[(t - t->m->t) ^ e->u.i].brought;
    swapcontext(&t->at, &t->m->home);
    return x;
}

static double across(thread *t, const kn_expr *e)
{
    vec a;
    vector(t, e->args[0], &a);
    for (int i = 1; i < a.n; i++) a.x[0] = combine((int)e->u.i, a.x[0], a.x[i]);
    return a.x[0];
}

/* Apart from vectors, since most of a program is scalars and a vector is half a kilobyte. */
static double scalar(thread *t, const kn_expr *e)
{
    double a, x = 0;
    if (t->m->error[0]) return 0;
    switch (e->op) {
    case KN_OP_CONST_F: return e->u.f;
    case KN_OP_CONST_I: return (double)e->u.i;
    case KN_OP_VAR: return (double)t->vars[e->u.var];
    case KN_OP_READ: read_at(t, e, &x, 1); return x;
    case KN_OP_HSUM: return across(t, e);
    case KN_OP_PEER: return peer(t, e);
    case KN_OP_SELECT: return scalar(t, e->args[scalar(t, e->args[0]) != 0 ? 1 : 2]);
    case KN_OP_LANES: t->vars[e->u.var] = 0; /* of one lane: its only element */ return scalar(t, e->args[0]);
    case KN_OP_SPLAT: return scalar(t, e->args[0]);
    default: break;
    }
    a = scalar(t, e->args[0]);
    return round_to(e->dtype, apply(e->op, e->dtype, a, e->nargs > 1 ? scalar(t, e->args[1]) : a));
}

/* Lanes of several vectors in turn: ZIP takes part u.i of all lanes interleaved (of every block of `var` lanes, in runs of `unit`), UNZIP every
 * nargs-th one (every nargs-th run of `var`) from u.i on. */
static void mixed(thread *t, const kn_expr *e, vec *r)
{
    vec a;
    int64_t block = e->op == KN_OP_ZIP && e->var ? e->var : r->n, run = e->op == KN_OP_UNZIP && e->var ? e->var : e->unit ? e->unit : 1;
    for (int k = 0; k < e->nargs; k++) {
        vector(t, e->args[k], &a);
        for (int i = 0; i < r->n; i++) {
            int64_t zip = (e->u.i * block + i % block) / run, unzip = (i / run * e->nargs + e->u.i) * run + i % run;
            if (e->op == KN_OP_ZIP && zip % e->nargs == k) r->x[i] = a.x[i / block * block + zip / e->nargs * run + i % run];
            if (e->op == KN_OP_UNZIP && unzip / r->n == k) r->x[i] = a.x[unzip % r->n];
        }
    }
}

static void chosen(thread *t, const kn_expr *e, vec *r)
{
    vec a, b;
    if (!wide(e->args[0])) {
        vector(t, e->args[scalar(t, e->args[0]) != 0 ? 1 : 2], r);
        return;
    }
    vector(t, e->args[0], &a);
    vector(t, e->args[1], r);
    vector(t, e->args[2], &b);
    for (int i = 0; i < r->n; i++)
        if (a.x[i] == 0) r->x[i] = b.x[i];
}

/* A scalar is a vector of one lane. */
static void vector(thread *t, const kn_expr *e, vec *r)
{
    vec b;
    int n = r->n = wide(e) ? e->lanes : 1;
    for (int i = 0; i < n; i++) r->x[i] = 0; /* what an error leaves */
    if (t->m->error[0]) return;
    if (n == 1) {
        r->x[0] = scalar(t, e);
        return;
    }
    switch (e->op) {
    case KN_OP_READ: read_at(t, e, r->x, r->n); return;
    case KN_OP_LANES:
        for (int i = 0; i < r->n; i++) {
            t->vars[e->u.var] = i;
            r->x[i] = scalar(t, e->args[0]);
        }
        return;
    case KN_OP_SPLAT:
        r->x[0] = scalar(t, e->args[0]);
        for (int i = 1; i < r->n; i++) r->x[i] = r->x[0];
        return;
    case KN_OP_ZIP:
    case KN_OP_UNZIP: mixed(t, e, r); return;
    case KN_OP_PICK:
        for (int i = 0; i < r->n; i++) {
            int64_t at = e->args[e->u.i + i]->u.i, width = e->args[0]->lanes;
            vector(t, e->args[at / width], &b);
            r->x[i] = b.x[at % width];
        }
        return;
    case KN_OP_SPREAD:
        vector(t, e->args[0], &b);
        vector(t, e->args[1], r);
        for (int i = 0; i < r->n; i++)
            if (i % e->var < e->u.i) r->x[i] = b.x[i / e->var * e->u.i + i % e->var];
        return;
    case KN_OP_SELECT: chosen(t, e, r); return;
    default: break;
    }
    vector(t, e->args[0], r);
    if (e->nargs > 1) vector(t, e->args[1], &b);
    if (r->n != n || (e->nargs > 1 && b.n != n)) stop(t->m, "operands of other lanes", "vector", n);
    for (int i = 0; i < n; i++) r->x[i] = round_to(e->dtype, apply(e->op, e->dtype, r->x[i], e->nargs > 1 ? b.x[i] : r->x[i]));
}

static void store(thread *t, const kn_ls *s)
{
    const kn_buffer *b = &t->m->p->buffers[s->buffer];
    vec v;
    vector(t, s->value, &v);
    int64_t at = (int64_t)scalar(t, s->index);
    cells *c = cells_of(t, s->buffer, &at);
    if (b->scope == KN_REGISTER) at *= b->lanes;
    int64_t by = s->streams && s->lo ? (int64_t)scalar(t, s->lo) : 0;
    for (int i = 0; i < v.n; i++) {
        if (i < by || i >= by + v.n) continue;
        if (at < 0 || at + i >= c->n) {
            stop(t->m, "store out of bounds", b->name, at + i);
            return;
        }
        c->v[at + i] = round_to(b->dtype, v.x[i]);
        c->set[at + i] = 1;
    }
}

static void run(thread *t, const kn_ls *s);

static void call(thread *t, const kn_call *c)
{
    const kn_emulated *f = &t->m->p->calls[c->fn];
    if (f->warp) {
        stop(t->m, "warps are not interpreted", f->intrin->name, 0);
        return;
    }
    for (int o = 0; o < f->intrin->noperands; o++)
        t->base[o] = (int64_t)scalar(t, c->at[o]) * t->m->p->buffers[c->buffer[o]].lanes; /* lanes: 1 but for registers */
    t->call = c;
    run(t, f->body);
    t->call = NULL;
}

/* A register of a unit: its elements one row after the other, in memory every row by itself. */
static void unit(thread *t, const kn_unit_step *u)
{
    const kn_buffer *r = &t->m->p->buffers[u->reg];
    int64_t at = u->at ? (int64_t)scalar(t, u->at) : 0, line = r->lanes / r->rows;
    cells *held = &t->regs[u->reg], *c = u->at ? &t->m->mem[u->buffer] : NULL;
    for (int64_t i = 0; i < r->lanes; i++) {
        int64_t k = u->number * r->lanes + i, m = at + i / line * u->row + i % line;
        cells *from = u->what == KN_UNIT_STORE ? held : c, *to = u->what == KN_UNIT_STORE ? c : held;
        int64_t x = u->what == KN_UNIT_STORE ? k : m, y = u->what == KN_UNIT_STORE ? m : k;
        if (from && (m < 0 || m >= c->n)) stop(t->m, "a unit's row is out of bounds", r->name, m);
        else if (from && !from->set[x]) stop(t->m, "a unit takes what was not written", r->name, x);
        else to->v[y] = from ? from->v[x] : 0, to->set[y] = 1;
    }
}

static void run(thread *t, const kn_ls *s)
{
    for (; s && !t->m->error[0]; s = s->next) {
        if (s->kind == KN_LS_STORE) store(t, s);
        else if (s->kind == KN_LS_LET) t->vars[s->var] = (int64_t)scalar(t, s->value);
        else if (s->kind == KN_LS_IF) run(t, scalar(t, s->value) != 0 ? s->body : s->other);
        else if (s->kind == KN_LS_PREFETCH) prefetch(t, s);
        else if (s->kind == KN_LS_CALL) call(t, s->call);
        else if (s->kind == KN_LS_UNIT) unit(t, s->unit);
        else if (s->kind == KN_LS_BARRIER) swapcontext(&t->at, &t->m->home);
        else if (s->kind == KN_LS_COMMIT || s->kind == KN_LS_WAIT) continue; /* asynchronous stores are made at once */
        else if (s->kind == KN_LS_GROUP) continue;
        else if (s->kind == KN_LS_FRAGMENT) stop(t->m, "warps are not interpreted", "fragment", 0);
        else {
            int64_t lo = (int64_t)scalar(t, s->lo), hi = (int64_t)scalar(t, s->hi);
            for (int64_t i = lo; i < hi && !t->m->error[0]; i++) {
                t->vars[s->var] = i;
                run(t, s->body);
            }
        }
    }
}

static void fiber(void)
{
    thread *t = starting;
    run(t, t->m->f->body);
    t->done = true;
    swapcontext(&t->at, &t->m->home);
}

static void clear(machine *m, cells *c, enum kn_scope scope)
{
    for (int i = 0; i < m->p->nbuffers; i++)
        if (m->p->buffers[i].scope == scope) memset(c[i].set, 0, (size_t)c[i].n);
}

static void block(machine *m, int64_t number)
{
    clear(m, m->mem, KN_SHARED);
    if (!m->p->hw->gpu) clear(m, m->mem, KN_SCRATCH);
    int n = m->f->threads;
    for (int k = 0; k < n; k++) {
        thread *t = &m->t[k];
        t->done = false;
        clear(m, t->regs, KN_REGISTER);
        if (m->p->hw->gpu) clear(m, t->regs, KN_SCRATCH);
        t->vars[m->f->var_grid] = number;
        if (m->f->var_thread >= 0) t->vars[m->f->var_thread] = k;
        getcontext(&t->at);
        t->at.uc_stack.ss_sp = t->stack;
        t->at.uc_stack.ss_size = STACK;
        t->at.uc_link = NULL;
        makecontext(&t->at, fiber, 0);
    }
    for (int left = n; left && !m->error[0];) {
        int done = 0;
        for (int k = 0; k < n; k++) {
            if (m->t[k].done) continue;
            starting = &m->t[k];
            swapcontext(&m->home, &m->t[k].at);
            done += m->t[k].done;
        }
        if (done && done != left) stop(m, "barrier not met by all threads", "block", number);
        left -= done;
    }
}

static cells make_cells(int64_t n)
{
    cells c = { calloc((size_t)n + 1, sizeof(double)), calloc((size_t)n + 1, 1), n, NULL };
    return c;
}

static void run_fn(machine *m)
{
    const kn_lprog *p = m->p;
    m->t = calloc((size_t)m->f->threads, sizeof *m->t);
    for (int k = 0; k < m->f->threads; k++) {
        thread *t = &m->t[k];
        t->m = m;
        t->stack = malloc(STACK);
        t->vars = calloc((size_t)p->nvars + 1, sizeof *t->vars);
        t->regs = calloc((size_t)p->nbuffers + 1, sizeof *t->regs);
        for (int i = 0; i < p->nbuffers; i++)
            if (of_thread(p, i)) t->regs[i] = make_cells(p->buffers[i].elems * p->buffers[i].lanes);
    }
    for (int64_t g = m->f->grid; g-- > 0 && !m->error[0];) block(m, g);
    for (int k = 0; k < m->f->threads; k++) {
        for (int i = 0; i < p->nbuffers; i++) {
            free(m->t[k].regs[i].v);
            free(m->t[k].regs[i].set);
        }
        free(m->t[k].regs);
        free(m->t[k].vars);
        free(m->t[k].stack);
    }
    free(m->t);
}

const char *lprog_eval(const kn_lprog *p, double *const *tensors) { return lprog_eval_lines(p, tensors, NULL); }

const char *lprog_eval_lines(const kn_lprog *p, double *const *tensors, lprog_lines *lines)
{
    static char error[256];
    machine m = { .p = p, .lines = lines };
    m.mem = calloc((size_t)p->nbuffers + 1, sizeof *m.mem);
    for (int i = 0; i < p->nbuffers; i++) {
        m.mem[i] = make_cells(of_thread(p, i) ? 0 : p->buffers[i].elems);
        if (p->buffers[i].slot < 0 || p->buffers[i].scope == KN_PACKED || p->program->tensors[p->buffers[i].slot].role != KN_INPUT) continue;
        memcpy(m.mem[i].v, tensors[p->buffers[i].slot], sizeof(double) * (size_t)p->buffers[i].elems);
        memset(m.mem[i].set, 1, (size_t)p->buffers[i].elems);
    }
    for (int i = 0; i < p->npacks + p->nfns && !m.error[0]; i++) {
        m.f = i < p->npacks ? &p->packs[i] : &p->fns[i - p->npacks];
        run_fn(&m);
    }
    for (int i = 0; i < p->nbuffers; i++) {
        int slot = p->buffers[i].slot;
        for (int64_t k = 0; slot >= 0 && k < p->buffers[i].elems && !m.error[0]; k++) {
            if (!m.mem[i].set[k]) stop(&m, "element never written", p->buffers[i].name, k);
            if (tensors[slot] && p->buffers[i].scope == KN_GLOBAL) tensors[slot][k] = m.mem[i].v[k];
        }
        free(m.mem[i].v);
        free(m.mem[i].set);
        free(m.mem[i].when);
    }
    free(m.mem);
    memcpy(error, m.error, sizeof error);
    return error[0] ? error : NULL;
}
