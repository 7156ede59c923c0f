/* Loops that an instruction computes whose operands the threads of a warp hold together (mma.sync): fragments are loaded from the caches in shared
 * memory, results stay in registers until the reduction ends, and each thread stores what it holds. Where what lies is said in intrin/warps.def. */
#include "lower/tile.h"
#include <string.h>

enum { ROWS_A = 16, ROWS_B = 8, R_BYTES = 32, LETS = 32 };

/* A source of the instruction: its elements in the cache, over the values of the loops that index it. */
typedef struct source {
    int load, cache, buffer, bytes, rows;
    int64_t step_row, step_r;     /* elements from one row of the operand to the next, and along R */
    int64_t loop[KILN_MAX_LOOPS]; /* elements a loop steps by, 0: it is not cached */
    kn_expr *base, *copy;         /* of this warp, without the lane; where the copy begins that is read now, NULL: there is one */
    int registers;                /* REGISTER vectors: one of 4 a tile of a, of 2 of b */
    int nlets;
    struct { int64_t rest; int at; kn_expr *e; } let[LETS]; /* lane addresses, by number of the address and what of a tile's place they hold */
} source;

typedef struct warp {
    kn_lw *w;
    kn_sg *sg;
    const kn_intrin *it;
    int first;                    /* loop: the unrolled ones are from here to sg->tile */
    int64_t tiles;                /* of the destination */
    source src[3];                /* [1] a, [2] b */
    int odd;                      /* of split factors: REGISTER that says of each source whether it has to be taken apart in full */
} warp;

static kn_expr *plus(kn_lw *w, kn_expr *x, kn_expr *y)
{
    kn_expr *e = kn_bin(w->a, KN_OP_ADD, x, y);
    return e ? kn_lw_simp(w, e) : &w->dry;
}

static kn_expr *times(kn_lw *w, kn_expr *x, int64_t n)
{
    kn_expr *e = kn_bin(w->a, KN_OP_MUL, x, kn_lw_int(w, n));
    return e ? kn_lw_simp(w, e) : &w->dry;
}

static kn_expr *part(kn_lw *w, const kn_expr *lane, int64_t by, int64_t of) /* lane / by % of */
{
    kn_expr *e = kn_bin(w->a, KN_OP_MOD, kn_bin(w->a, KN_OP_FLOORDIV, (kn_expr *)lane, kn_lw_int(w, by)), kn_lw_int(w, of));
    return e ? kn_lw_simp(w, e) : &w->dry;
}

static bool unrolled(const warp *x, int loop) { return x->sg->g->loops[loop].kind == KN_UNROLL; }

/* Unrolled loops of the destination (reduce false) or of the reduction, as one number and back. */
static int64_t iterations(const warp *x, bool reduce)
{
    int64_t n = 1;
    for (int i = x->first; i < x->sg->tile; i++)
        if (unrolled(x, i) && kn_tile_reduces(x->sg, i) == reduce) n *= x->sg->g->loops[i].extent;
    return n;
}

/* Elements from the first tile of a source to the one of iterations c of the destination's loops and k of the reduction's. */
static int64_t place(const warp *x, const source *s, int64_t c, int64_t k)
{
    int64_t at = 0;
    for (int i = x->sg->tile - 1; i >= x->first; i--) {
        const kn_loop *l = &x->sg->g->loops[i];
        if (!unrolled(x, i)) continue;
        int64_t *n = kn_tile_reduces(x->sg, i) ? &k : &c;
        at += *n % l->extent * s->loop[i];
        *n /= l->extent;
    }
    return at;
}

/* ---- sources ---- */

static void source_of(warp *x, int o, const kn_expr *load)
{
    const kn_sg *sg = x->sg;
    source *s = &x->src[o];
    *s = (source){ .load = -1, .rows = o == 1 ? ROWS_A : ROWS_B, .bytes = kn_dtype_bytes(load->dtype) };
    for (int i = 0; i < sg->nloads; i++)
        if (sg->loads[i] == load && sg->cache_of[i] >= 0) s->load = i;
    if (s->load < 0) {
        kn_lw_fail(x->w, KILN_INTERNAL, "operand %s of '%s' has no cache", x->it->operand[o].name, x->it->name);
        return;
    }
    s->cache = sg->cache_of[s->load];
    s->buffer = sg->cache_buffer[s->cache];
    const kn_cache *c = &sg->g->caches[s->cache];
    int64_t step = 1;
    for (int i = c->nloops - 1; i >= 0; i--) {
        s->loop[c->loops[i]] = step;
        step *= sg->g->loops[c->loops[i]].extent + (i == c->nloops - 1 ? c->pad : 0);
    }
    s->step_row = s->loop[sg->g->tensor.loop[o == 1 ? 0 : 1]];
    s->step_r = s->loop[sg->g->tensor.loop[2]];
    s->base = kn_lw_int(x->w, 0);
    for (int i = 0; i < sg->tile; i++)
        if (sg->g->loops[i].kind == KN_THREAD && s->loop[i]) s->base = plus(x->w, s->base, times(x->w, sg->val[i], s->loop[i]));
}

/* Rows of 16 bytes lie together: ldmatrix takes them, along R as they are, along rows of two bytes an element transposed. */
static enum kn_fragment_form form_of(const source *s)
{
    int64_t across = s->step_r == 1 ? s->step_row : s->step_r;
    if (across * s->bytes % 16) return KN_FRAGMENT_EACH;
    if (s->step_r == 1) return KN_FRAGMENT_ROWS;
    return s->step_row == 1 && s->bytes == 2 ? KN_FRAGMENT_TURNED : KN_FRAGMENT_EACH;
}

/* Element of a source's first tile that address number `at` of this thread's fragment means. */
static kn_expr *lane_element(const warp *x, const source *s, enum kn_fragment_form form, int at)
{
    kn_lw *w = x->w;
    const kn_expr *lane = x->sg->lane;
    int half = R_BYTES / 2 / s->bytes; /* of R, in elements */
    kn_expr *low = part(w, lane, 1, 8), *eight = part(w, lane, 8, 2), *sixteen = part(w, lane, 16, 2), *row, *r;
    if (form == KN_FRAGMENT_EACH) { /* byte by byte of register by register */
        int per = 4 / s->bytes, reg = at / per, e = at % per;
        int64_t down = s->rows == ROWS_A ? 8 * (reg % 2) : 0, along = s->rows == ROWS_A ? reg / 2 : reg;
        row = plus(w, part(w, lane, 4, 8), kn_lw_int(w, down));
        r = plus(w, times(w, part(w, lane, 1, 4), per), kn_lw_int(w, along * half + e));
    } else if (s->rows == ROWS_A) { /* matrices: rows, rows + 8, and the same again along R */
        row = plus(w, form == KN_FRAGMENT_ROWS ? low : kn_lw_int(w, 0), times(w, eight, 8));
        r = plus(w, form == KN_FRAGMENT_ROWS ? kn_lw_int(w, 0) : low, times(w, sixteen, half));
    } else { /* along R, and the same again for the next tile */
        row = plus(w, form == KN_FRAGMENT_ROWS ? low : kn_lw_int(w, 0), times(w, sixteen, 8));
        r = plus(w, form == KN_FRAGMENT_ROWS ? kn_lw_int(w, 0) : low, times(w, eight, half));
    }
    return plus(w, times(w, row, s->step_row), times(w, r, s->step_r));
}

/* In front of the reduction: addresses that tiles share, each the place of a lane's element, swizzled, for what of a tile's place swizzling may
 * mix up with it. What is a multiple of whole periods is added later. */
static int64_t rest_of(const warp *x, const source *s, int64_t at)
{
    kn_swizzle z;
    const kn_cache *c = &x->sg->g->caches[s->cache];
    return c->swizzle && kn_swizzle_of(x->w->t, x->sg->g, c, &z) ? at % (z.unit * z.runs) : 0;
}

static kn_expr *lane_let(warp *x, source *s, int at, int64_t rest)
{
    for (int i = 0; i < s->nlets; i++)
        if (s->let[i].rest == rest && s->let[i].at == at) return s->let[i].e;
    kn_expr *e = plus(x->w, plus(x->w, s->base, lane_element(x, s, form_of(s), at)), kn_lw_int(x->w, rest));
    if (x->sg->g->caches[s->cache].swizzle) e = kn_lw_swizzled(x->w, x->sg, s->cache, e);
    if (s->nlets == LETS) return e;
    e = kn_lw_let(x->w, "at", e);
    s->let[s->nlets].rest = rest;
    s->let[s->nlets].at = at;
    s->let[s->nlets++].e = e;
    return e;
}

static int addresses(const source *s) { return form_of(s) != KN_FRAGMENT_EACH ? 1 : (s->rows == ROWS_A ? KN_WARP_A : KN_WARP_B) * 4 / s->bytes; }

/* Iterations of the destination's loops that have tiles of this source of their own, by number: the first with that place. */
static int64_t tile_number(const warp *x, const source *s, int64_t c)
{
    int64_t n = 0, scale = 1;
    for (int i = x->sg->tile - 1; i >= x->first; i--) {
        const kn_loop *l = &x->sg->g->loops[i];
        if (!unrolled(x, i) || kn_tile_reduces(x->sg, i)) continue;
        if (s->loop[i]) {
            n += c % l->extent * scale;
            scale *= l->extent;
        }
        c /= l->extent;
    }
    return n;
}

static int64_t tile_count(const warp *x, const source *s)
{
    int64_t n = 1;
    for (int i = x->first; i < x->sg->tile; i++)
        if (unrolled(x, i) && !kn_tile_reduces(x->sg, i) && s->loop[i]) n *= x->sg->g->loops[i].extent;
    return n;
}

/* ---- the instruction ---- */

/* All fragments of a source for iteration k of the reduction, into set k % 2 of its registers; two tiles of b at once where they lie side by side.
 * In front of the reduction only the addresses that they share are made. */
static void fragments(warp *x, int o, int64_t k, bool ahead)
{
    kn_lw *w = x->w;
    source *s = &x->src[o];
    int64_t n = tile_count(x, s), place_of[64], done = 0;
    int regs = o == 1 ? KN_WARP_A : KN_WARP_B;
    for (int64_t c = 0; c < x->tiles; c++)
        if (tile_number(x, s, c) < 64) place_of[tile_number(x, s, c)] = place(x, s, c, k);
    while (done < n && !w->status) {
        bool pair = o == 2 && form_of(s) != KN_FRAGMENT_EACH && done + 1 < n && place_of[done + 1] == place_of[done] + ROWS_B * s->step_row &&
                    rest_of(x, s, place_of[done]) + ROWS_B * s->step_row == rest_of(x, s, place_of[done + 1]);
        int64_t rest = rest_of(x, s, place_of[done]), from = done;
        done += pair ? 2 : 1;
        for (int a = 0; a < addresses(s) && ahead; a++) lane_let(x, s, a, rest);
        if (ahead) continue;
        kn_fragment *f = kn_new(w->a, kn_fragment);
        kn_expr **at = kn_array(w->a, kn_expr *, 16);
        if (!f || !at) {
            kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
            return;
        }
        *f = (kn_fragment){ .form = form_of(s), .buffer = s->buffer, .to = s->registers, .first = (int)(k % 2 * n + from), .regs = regs,
                            .n = pair ? 2 * regs : regs, .nat = addresses(s), .at = at };
        for (int a = 0; a < f->nat; a++) {
            at[a] = plus(w, lane_let(x, s, a, rest), kn_lw_int(w, place_of[from] - rest));
            if (s->copy) at[a] = plus(w, s->copy, at[a]);
        }
        kn_lw_fragment(w, f);
    }
}

static int instruction(warp *x, bool halves)
{
    kn_lprog *p = x->w->p;
    for (int i = 0; i < p->ncalls; i++)
        if (p->calls[i].intrin == x->it && p->calls[i].warp && p->calls[i].halves == halves) return i;
    kn_emulated *f = &p->calls[p->ncalls];
    *f = (kn_emulated){ .intrin = x->it, .warp = kn_warp_of(x->it->spec), .halves = halves };
    return p->ncalls++;
}

/* The factors of iteration k in parts, once for all products that they are in. */
static void split(warp *x, int o, int64_t k, enum kn_fragment_form form)
{
    source *s = &x->src[o];
    int64_t n = tile_count(x, s);
    int regs = o == 1 ? KN_WARP_A : KN_WARP_B;
    kn_fragment *f = kn_new(x->w->a, kn_fragment);
    if (!f) {
        kn_lw_fail(x->w, KILN_MEMORY, "out of memory in lowering");
        return;
    }
    *f = (kn_fragment){ .form = form, .buffer = s->buffer, .to = s->registers, .first = (int)(k % 2 * n), .regs = regs, .n = (int)n * regs,
                        .odd = x->odd, .odd_at = o - 1 };
    kn_lw_fragment(x->w, f);
}

static void products(warp *x, int64_t k, bool halves)
{
    kn_lw *w = x->w;
    int fn = instruction(x, halves);
    for (int64_t c = 0; c < x->tiles && !w->status; c++) {
        kn_call *call = kn_new(w->a, kn_call);
        if (!call) {
            kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
            return;
        }
        call->fn = fn;
        call->buffer[0] = x->sg->results;
        call->at[0] = kn_lw_int(w, c * KN_WARP_D);
        for (int o = 1; o < 3; o++) {
            call->buffer[o] = x->src[o].registers;
            call->at[o] = kn_lw_int(w, k % 2 * tile_count(x, &x->src[o]) + tile_number(x, &x->src[o], c));
        }
        kn_lw_call(w, call);
    }
}

/* Factors in parts: what is true of all but a few of them is taken for granted, and where it was not, which the warp's threads tell each other, they
 * are read again and taken apart in full. */
static void calls(warp *x, int64_t k)
{
    kn_lw *w = x->w;
    if (kn_warp_of(x->it->spec)->ways == 1) {
        products(x, k, false);
        return;
    }
    for (int o = 1; o < 3; o++) split(x, o, k, KN_FRAGMENT_HALVE);
    kn_expr *any = kn_lw_node(w, KN_OP_ADD, KN_I32, 1, kn_lw_read(w, x->odd, kn_lw_int(w, 0), 1), kn_lw_read(w, x->odd, kn_lw_int(w, 1), 1), NULL);
    kn_ls *odd = kn_lw_if(w, kn_lw_node(w, KN_OP_LT, KN_BOOL, 1, kn_const_i(w->a, KN_I32, 0), any, NULL)), **after = w->tail;
    if (!odd) return;
    w->tail = &odd->body;
    for (int o = 1; o < 3; o++) fragments(x, o, k, false);
    for (int o = 1; o < 3; o++) split(x, o, k, KN_FRAGMENT_SPLIT);
    products(x, k, false);
    w->tail = &odd->other;
    products(x, k, true);
    w->tail = after;
}

static warp *warp_of(kn_lw *w, kn_sg *sg)
{
    if (sg->warp) return sg->warp;
    warp *x = kn_new(w->a, warp);
    const kn_expr *load[KN_INTRIN_OPERANDS] = { NULL };
    char why[300];
    if (!x) {
        kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
        return NULL;
    }
    *x = (warp){ .w = w, .sg = sg, .it = sg->g->tensor.intrin, .first = sg->first_reduce };
    x->tiles = iterations(x, false);
    if (!kn_tensor_sources(w->t, sg->g, &sg->g->tensor, load, why, sizeof why)) {
        kn_lw_fail(w, KILN_TRACE, "statement '%s': %s", w->p->program->tensors[sg->s->out].name, why);
        return NULL;
    }
    for (int o = 1; o < 3; o++) source_of(x, o, load[o]);
    if (x->tiles > 64 && !w->status) kn_lw_fail(w, KILN_TRACE, "a warp keeps at most 64 tiles of results, not %lld", (long long)x->tiles);
    sg->warp = x;
    return w->status ? NULL : x;
}

void kn_lw_warp_begin(kn_lw *w, kn_sg *sg)
{
    warp *x = warp_of(w, sg);
    if (!x) return;
    enum kn_dtype acc = x->it->operand[0].dtype;
    memcpy(sg->unreduced, sg->clipped, sizeof sg->clipped);
    sg->results = kn_lw_buffer(w, "result", acc, 1, x->tiles * KN_WARP_D, KN_REGISTER);
    for (int64_t c = 0; c < x->tiles * KN_WARP_D && !w->status; c++)
        kn_lw_store(w, sg->results, kn_lw_int(w, c), kn_tile_identity(w, x->it->red, acc));
    for (int o = 1; o < 3; o++) {
        source *s = &x->src[o];
        int sets = iterations(x, true) > 1 ? 2 : 1;
        int lanes = (o == 1 ? KN_WARP_A : KN_WARP_B) * (kn_warp_of(x->it->spec)->ways > 1 ? KN_FRAGMENT_PARTS : 1);
        s->registers = kn_lw_buffer(w, x->it->operand[o].name, KN_I32, lanes, sets * tile_count(x, s), KN_REGISTER);
        for (int64_t k = 0; k < iterations(x, true); k++) fragments(x, o, k, true);
    }
    if (kn_warp_of(x->it->spec)->ways == 1) return;
    x->odd = kn_lw_buffer(w, "odd", KN_I32, 1, 2, KN_REGISTER);
    w->p->buffers[x->odd].alike = true;
}

/* The fragments of the next step of the reduction are asked for before the products of this one. */
void kn_lw_warp(kn_lw *w, kn_sg *sg)
{
    warp *x = warp_of(w, sg);
    if (!x) return;
    for (int o = 1; o < 3; o++) {
        source *s = &x->src[o];
        const kn_cache *c = &sg->g->caches[s->cache];
        s->copy = c->copies ? kn_lw_let(w, "copy", kn_lw_copy_of(w, sg, s->cache, sg->val[c->at])) : NULL;
    }
    int64_t steps = iterations(x, true);
    for (int64_t k = 0; k < steps && !w->status; k++) {
        for (int64_t n = k ? k + 1 : 0; n < steps && n <= k + 1; n++)
            for (int o = 1; o < 3; o++) fragments(x, o, n, false);
        calls(x, k);
    }
}

/* ---- results ---- */

static kn_tile tile_of(kn_lw *w, kn_sg *sg, int lane_var)
{
    return (kn_tile){ .w = w, .sg = sg, .lane_var = lane_var, .lanes = lane_var < 0 ? 1 : 2, .vloop = -1, .acc = -1, .part = -1, .spill = -1 };
}

/* Element e of a thread's pair in a row, where it is in range. */
static void store_one(kn_lw *w, kn_sg *sg, kn_expr *column, int64_t element, int e)
{
    kn_tile t = tile_of(w, sg, -1);
    sg->val[sg->g->tensor.loop[1]] = plus(w, column, kn_lw_int(w, e));
    kn_expr *in = kn_tile_in_range(&t);
    kn_ls *cond = in ? kn_lw_if(w, in) : NULL, **after = w->tail;
    if (cond) w->tail = &cond->body;
    kn_tile_store_value(&t, kn_lw_read(w, sg->results, kn_lw_int(w, element + e), 1));
    if (cond) w->tail = after;
}

void kn_tile_store_pair(kn_lw *w, kn_sg *sg, kn_expr *column, int64_t element)
{
    int j = sg->g->tensor.loop[1], lane = kn_lw_var(w, "pair", 0, 1);
    enum kn_dtype acc = w->p->buffers[sg->results].dtype;
    kn_tile t = tile_of(w, sg, lane);
    sg->val[j] = plus(w, column, kn_lw_ref(w, lane));
    if (!kn_tile_consecutive(&t, acc, lane)) {
        for (int e = 0; e < 2; e++) store_one(w, sg, column, element, e);
        return;
    }
    kn_expr *in = kn_tile_in_range(&t);
    if (in) in = kn_lw_at_lane(w, in, lane, kn_lw_int(w, 1));
    kn_ls *cond = in ? kn_lw_if(w, in) : NULL, **after = w->tail;
    if (cond) w->tail = &cond->body;
    kn_tile_store_lanes(&t, kn_lw_lanes(w, kn_lw_read(w, sg->results, plus(w, kn_lw_ref(w, lane), kn_lw_int(w, element)), 1), lane, 2), lane);
    if (!cond) return;
    w->tail = &cond->other;
    if (sg->s->axes[sg->g->loops[j].axis].extent % 2) store_one(w, sg, column, element, 0);
    w->tail = after;
}

void kn_tile_stage_pair(kn_lw *w, kn_sg *sg, kn_expr *column, int64_t element, int stage, kn_expr *at)
{
    int j = sg->g->tensor.loop[1], lane = kn_lw_var(w, "pair", 0, 1);
    enum kn_dtype acc = w->p->buffers[sg->results].dtype;
    kn_tile t = tile_of(w, sg, lane);
    sg->val[j] = plus(w, column, kn_lw_ref(w, lane));
    t.staged = true, t.stage = stage, t.stage_at = at;
    if (kn_tile_safe(&t, acc)) {
        kn_tile_store_lanes(&t, kn_lw_lanes(w, kn_lw_read(w, sg->results, plus(w, kn_lw_ref(w, lane), kn_lw_int(w, element)), 1), lane, 2), lane);
        return;
    }
    for (int e = 0; e < 2 && !w->status; e++) {
        kn_tile one = tile_of(w, sg, -1);
        one.staged = true, one.stage = stage, one.stage_at = plus(w, at, kn_lw_int(w, e));
        sg->val[j] = plus(w, column, kn_lw_int(w, e));
        kn_expr *in = kn_tile_in_range(&one);
        kn_ls *cond = in ? kn_lw_if(w, in) : NULL, **after = w->tail;
        if (cond) w->tail = &cond->body;
        kn_tile_store_value(&one, kn_lw_read(w, sg->results, kn_lw_int(w, element + e), 1));
        if (cond) w->tail = after;
    }
}

void kn_lw_warp_end(kn_lw *w, kn_sg *sg)
{
    warp *x = warp_of(w, sg);
    if (!x) return;
    memcpy(sg->clipped, sg->unreduced, sizeof sg->clipped);
    for (int i = sg->first_reduce; i < sg->g->nloops; i++) sg->val[i] = NULL;
    for (int64_t c = 0; c < x->tiles; c++) {
        int64_t rest = c;
        for (int i = sg->tile - 1; i >= x->first; i--) {
            if (!unrolled(x, i) || kn_tile_reduces(sg, i)) continue;
            sg->val[i] = kn_lw_int(w, rest % sg->g->loops[i].extent);
            rest /= sg->g->loops[i].extent;
        }
        for (int half = 0; half < 2 && !w->status; half++) {
            sg->val[sg->g->tensor.loop[0]] = plus(w, part(w, sg->lane, 4, 8), kn_lw_int(w, 8 * half));
            kn_tile_store_pair(w, sg, times(w, part(w, sg->lane, 1, 4), 2), c * KN_WARP_D + 2 * half);
        }
    }
    for (int i = sg->first_reduce; i < sg->g->nloops; i++) sg->val[i] = NULL;
}
