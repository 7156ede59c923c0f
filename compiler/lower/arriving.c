/* What an instruction's own unit (AMX) wants from memory next is asked for while products run, a line or a few in every step of a sum: the lines that
 * its results go to, each some bytes of a row in a page of its own; of an operand as it lies the rows that the next tiles take when these have met
 * all columns; and where slices of a long sum go outside, what the next tile has so far. No hardware prefetcher sees these come. (Halves, weights
 * packed ahead, on a Xeon with AMX: 2048x2048x2048 1.05 to 1.12 times as fast with the results' lines, 1.15 with the rows as well; 512x4096x4096,
 * 3000x1000x3000 in slices 1.06 and 1.11, bytes of 1024x4096x8192 1.13.) */
#include "lower/lower.h"
#include <stdlib.h>

enum {
    DEEP = 32,
    ROWS = 2,   /* lines in a step: what is waited for holds places that tiles from L2 want meanwhile */
    PARTS = 4,
    BESIDE = 2, /* lines that come to L2 together when one of them is asked for */
    RESULTS = 2 /* 1500x1536x384, bytes: 0.93 with 3, 1.0 with 2; 3000x256x1024, halves: 1.06 */
};

typedef struct arriving {
    kn_lw *w;
    const kn_ls *loop[DEEP]; /* around the present statement, outermost first */
    int depth;
} arriving;

/* The loops of a sum in one another, and the number of the step that they are at. */
typedef struct sum {
    const kn_ls *loop[DEEP];
    int n;
    kn_ls *inner;
    kn_expr *step;
    int64_t steps;
} sum;

/* Lines in runs that lie somewhere in memory: `run` elements from `at` on, and as many `by` further, `times` times; these again by the next. */
typedef struct lines {
    int buffer, n;
    kn_expr *at;
    int64_t run, by[DEEP], times[DEEP];
} lines;

static bool from_zero(const kn_ls *loop) { return loop->lo->op == KN_OP_CONST_I && loop->lo->u.i == 0; }

/* The steps load operands and call the instruction, and do nothing else. */
static bool of_products(const arriving *x, const kn_ls *body)
{
    bool calls = false;
    for (const kn_ls *s = body; s; s = s->next) {
        if (s->kind != KN_LS_UNIT && s->kind != KN_LS_CALL && s->kind != KN_LS_LET) return false;
        calls |= s->kind == KN_LS_CALL && x->w->p->calls[s->call->fn].unit;
    }
    return calls;
}

static bool find_sum(const arriving *x, kn_ls *s, sum *f)
{
    kn_lw *w = x->w;
    *f = (sum){.steps = 1, .step = kn_lw_int(w, 0)};
    for (; s && s->kind == KN_LS_FOR && f->n < DEEP && from_zero(s); s = s->body->next ? NULL : s->body) {
        int64_t n = kn_lw_iterations(w, s);
        if (!s->body || n < 1 || !kn_mul_fits(f->steps, n, &f->steps)) return false;
        f->step = kn_bin(w->a, KN_OP_ADD, kn_bin(w->a, KN_OP_MUL, f->step, kn_lw_int(w, n)), kn_lw_ref(w, s->var));
        f->loop[f->n++] = f->inner = s;
    }
    return f->inner && of_products(x, f->inner->body);
}

/* With all that statements have named looked into. */
static kn_expr *spelt_out(kn_lw *w, kn_expr *e)
{
    enum { NAMES = 8 };
    for (int i = 0; i < NAMES && e; i++) {
        int last = -1;
        for (int v = 0; v < w->p->nvars; v++)
            if (w->var_value[v] && kn_lw_uses(e, v)) last = v;
        if (last < 0) return e;
        e = kn_lw_at_lane(w, e, last, (kn_expr *)(uintptr_t)w->var_value[last]);
    }
    return NULL;
}

/* All of `l` again, each time so much further; false: too often. */
static bool again(lines *l, int64_t by, int64_t times)
{
    if (l->n == DEEP) return false;
    int i = l->n++;
    for (; i > 0 && l->by[i - 1] > by; i--) l->by[i] = l->by[i - 1], l->times[i] = l->times[i - 1];
    l->by[i] = by;
    l->times[i] = times;
    return true;
}

/* A loop further out moves what `l` is by as much, times its iterations. */
static bool moved_by(kn_lw *w, lines *l, const kn_ls *loop)
{
    int64_t by, n = kn_lw_iterations(w, loop);
    if (!from_zero(loop) || !kn_lw_coefficient(l->at, loop->var, &by) || by < 0) return false;
    l->at = kn_lw_at_lane(w, l->at, loop->var, kn_lw_int(w, 0));
    return l->at && (n < 2 || !by || again(l, by, n));
}

/* Runs that follow each other are one. */
static void join(lines *l)
{
    int n = 0;
    for (int i = 0; i < l->n; i++) {
        if (!n && l->by[i] == l->run) {
            l->run *= l->times[i];
            continue;
        }
        bool goes_on = n && l->by[i] == l->by[n - 1] * l->times[n - 1];
        if (goes_on) l->times[n - 1] *= l->times[i];
        else l->by[n] = l->by[i], l->times[n++] = l->times[i];
    }
    l->n = n;
}

static kn_expr *whole_part(kn_lw *w, kn_expr *e, int64_t n) { return kn_bin(w->a, KN_OP_FLOORDIV, e, kn_lw_int(w, n)); }

enum where { TO_WRITE, TO_READ, TO_L2 };

static void ask_for(kn_lw *w, int buffer, kn_expr *at, enum where to)
{
    at = at ? kn_lw_simp(w, at) : &w->dry;
    if (to == TO_L2) kn_lw_prefetch_to_l2(w, buffer, at);
    else kn_lw_prefetch(w, buffer, at, to == TO_WRITE);
}

/* At step `step` of so many the lines that are shared out to one, or the next one when it is time; where there are more, `most` of them. */
static void ask(kn_lw *w, kn_ls *inner, lines *l, kn_expr *step, int64_t steps, int64_t most, enum where to)
{
    join(l);
    int64_t line = (to == TO_L2 ? BESIDE : 1) * KN_LINE_BYTES / kn_dtype_bytes(w->p->buffers[l->buffer].dtype);
    int64_t in_run = kn_ceil_div(l->run, line), all = in_run;
    for (int i = 0; i < l->n; i++)
        if (!kn_mul_fits(all, l->times[i], &all)) return;
    int64_t each = kn_ceil_div(all, steps);
    if (each > most) each = most;
    kn_ls *body = inner->body;
    inner->body = NULL;
    w->tail = &inner->body;
    for (int64_t k = 0; k < each; k++) {
        kn_expr *number = kn_bin(w->a, KN_OP_MUL, step, kn_lw_int(w, each > 1 ? each : all));
        number = each > 1 ? kn_bin(w->a, KN_OP_ADD, number, kn_lw_int(w, k)) : whole_part(w, number, steps);
        kn_expr *at = kn_bin(w->a, KN_OP_MUL, kn_bin(w->a, KN_OP_MOD, number, kn_lw_int(w, in_run)), kn_lw_int(w, line));
        number = whole_part(w, number, in_run);
        for (int i = 0; i < l->n; i++) {
            kn_expr *turn = i < l->n - 1 ? kn_bin(w->a, KN_OP_MOD, number, kn_lw_int(w, l->times[i])) : number;
            at = kn_bin(w->a, KN_OP_ADD, at, kn_bin(w->a, KN_OP_MUL, turn, kn_lw_int(w, l->by[i])));
            number = whole_part(w, number, l->times[i]);
        }
        ask_for(w, l->buffer, kn_bin(w->a, KN_OP_ADD, l->at, at), to);
    }
    *w->tail = body;
}

/* What is written past the caches is not to be there. */
static bool streams(const kn_ls *list)
{
    for (const kn_ls *s = list; s; s = s->next)
        if (s->streams || streams(s->body) || streams(s->other)) return true;
    return false;
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Tiles that begin `from` elements behind the first one: some at even distances, these again at even distances, and so on. */
static bool at_even_distances(lines *l, const int64_t *from, int n)
{
    for (int block = 1, times; block < n; block *= times) {
        int64_t by = from[block];
        for (times = 2; block * times < n && from[block * times] == by * times;) times++;
        if (n % (block * times)) return false;
        for (int i = 0; i < block * times; i++)
            if (from[i] != from[i % block] + by * (i / block)) return false;
        if (!again(l, by, times)) return false;
    }
    return true;
}

/* All registers that are stored to where this one is. */
static bool registers(arriving *x, const kn_ls *s, lines *l)
{
    enum { STORES = 8 };
    kn_lw *w = x->w;
    const kn_unit_step *u = s->unit;
    const kn_buffer *r = &w->p->buffers[u->reg];
    int64_t from[STORES];
    int n = 0;
    *l = (lines){.buffer = u->buffer, .at = spelt_out(w, u->at), .run = r->lanes / r->rows, .n = 1, .by = {u->row}, .times = {r->rows}};
    for (; s && s->kind == KN_LS_UNIT && s->unit->what == KN_UNIT_STORE && n < STORES; s = s->next) {
        kn_expr *at = s->unit->buffer == u->buffer && s->unit->row == u->row ? spelt_out(w, s->unit->at) : NULL;
        if (!at || !l->at) return false;
        at = kn_lw_simp(w, kn_lw_node(w, KN_OP_SUB, KN_I64, 1, at, l->at, NULL));
        if (at->op != KN_OP_CONST_I || at->u.i < 0) return false;
        from[n++] = at->u.i;
    }
    qsort(from, (size_t)n, sizeof *from, ascending);
    return at_even_distances(l, from, n);
}

/* What is stored behind a sum to memory: registers of the unit, or else the first vector, wherever loops move it. */
static bool find_results(arriving *x, const kn_ls *list, lines *l)
{
    kn_lw *w = x->w;
    for (const kn_ls *s = list; s; s = s->next) {
        if (s->kind == KN_LS_STORE && w->p->buffers[s->buffer].scope == KN_GLOBAL) {
            *l = (lines){.buffer = s->buffer, .at = spelt_out(w, s->index), .run = s->value->lanes};
            return l->at;
        }
        if (s->kind == KN_LS_UNIT && s->unit->what == KN_UNIT_STORE && w->p->buffers[s->unit->buffer].scope == KN_GLOBAL) return registers(x, s, l);
        if (find_results(x, s->body, l)) return s->kind != KN_LS_FOR || moved_by(w, l, s);
        if (find_results(x, s->other, l)) return true;
    }
    return false;
}

/* The rows that the next iteration of a loop takes, of those around the sum the innermost one that moves them: loops within it take these again. */
static void ask_rows(arriving *x, sum *f, const kn_unit_step *u)
{
    kn_lw *w = x->w;
    const kn_buffer *reg = &w->p->buffers[u->reg];
    lines l = {.buffer = u->buffer, .at = spelt_out(w, u->at), .run = reg->lanes / reg->rows, .n = 1, .by = {u->row}, .times = {reg->rows}};
    kn_expr *use = f->step;
    int64_t uses = f->steps, next = 0;
    if (!kn_lw_beyond_l2(w, w->p->buffers[u->buffer].slot) || u->row * kn_dtype_bytes(reg->dtype) < KN_PAGE_BYTES) return;
    for (int i = f->n - 1; i >= 0 && l.at; i--)
        if (!moved_by(w, &l, f->loop[i])) return;
    if (!l.at) return;
    for (int i = x->depth - 1; i >= 0 && !next; i--) {
        int64_t n = kn_lw_iterations(w, x->loop[i]);
        if (!from_zero(x->loop[i]) || !kn_lw_coefficient(l.at, x->loop[i]->var, &next) || next < 0) return;
        if (next) break;
        use = kn_bin(w->a, KN_OP_ADD, use, kn_bin(w->a, KN_OP_MUL, kn_lw_ref(w, x->loop[i]->var), kn_lw_int(w, uses)));
        if (!kn_mul_fits(uses, n, &uses)) return;
    }
    l.at = next && uses > f->steps ? kn_bin(w->a, KN_OP_ADD, l.at, kn_lw_int(w, next)) : NULL;
    if (l.at) ask(w, f->inner, &l, use, uses, ROWS, TO_L2);
}

/* Results so far that go to memory between two slices of a sum, more than L2 has room for: those of the next tile, which is to begin with them. */
static bool find_next_parts(arriving *x, const kn_ls *behind, lines *l)
{
    kn_lw *w = x->w;
    const kn_hw_level *l2 = kn_hw_level_named(w->hw, "l2");
    int64_t next = 0;
    if (!behind || behind->kind != KN_LS_UNIT || behind->unit->what != KN_UNIT_STORE) return false;
    const kn_buffer *to = &w->p->buffers[behind->unit->buffer];
    if (to->scope != KN_SCRATCH || to->elems * kn_dtype_bytes(to->dtype) <= l2->capacity_bytes / 4 || !registers(x, behind, l)) return false;
    for (int i = x->depth - 1; i >= 0 && !next; i--)
        if (!kn_lw_coefficient(l->at, x->loop[i]->var, &next) || next < 0) return false;
    l->at = kn_bin(w->a, KN_OP_ADD, l->at, kn_lw_int(w, next));
    return next && l->at;
}

/* In front of all that a sum's step does. `behind`: the statements that follow the sum. */
static void ask_in(arriving *x, sum *f, const kn_ls *behind)
{
    lines l;
    const kn_ls *step = f->inner->body; /* what is asked for goes in front of it */
    if (streams(behind)) return; /* 4096x1024x4096, bytes: 0.93 with the rows */
    if (find_results(x, behind, &l)) ask(x->w, f->inner, &l, f->step, f->steps, RESULTS, TO_WRITE);
    else if (find_next_parts(x, behind, &l)) ask(x->w, f->inner, &l, f->step, f->steps, PARTS, TO_READ);
    for (const kn_ls *s = step; s; s = s->next)
        if (s->kind == KN_LS_UNIT && s->unit->what == KN_UNIT_LOAD && x->w->p->buffers[s->unit->buffer].scope == KN_GLOBAL) ask_rows(x, f, s->unit);
}

static void over(arriving *x, kn_ls *list)
{
    sum f;
    for (kn_ls *s = list; s && !x->w->status; s = s->next) {
        if (find_sum(x, s, &f)) {
            ask_in(x, &f, s->next);
            continue;
        }
        bool in = s->kind == KN_LS_FOR && x->depth < DEEP;
        if (in) x->loop[x->depth++] = s;
        over(x, s->body);
        if (in) x->depth--;
        over(x, s->other);
    }
}

void kn_lw_arriving(kn_lw *w, kn_ls **list)
{
    const kn_hw_level *l2 = kn_hw_level_named(w->hw, "l2");
    if (!l2 || !w->hw->tile_registers || kn_lw_touched(w) <= l2->capacity_bytes) return;
    arriving x = {.w = w};
    over(&x, *list);
}
