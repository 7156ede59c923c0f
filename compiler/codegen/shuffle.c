/* Vectors whose lanes come from other places than their own: shuffles of several vectors, and every step-th element of memory. */
#include "codegen/gen.h"

/* index = rest + step * lane variable; false when it is not of that form. */
static bool lane_step(const kn_expr *e, int var, int64_t *step)
{
    int64_t x = 0, y = 0;
    *step = 0;
    if (e->op == KN_OP_VAR) {
        *step = e->u.var == var;
        return true;
    }
    if (e->op == KN_OP_CONST_I) return true;
    bool sum = e->op == KN_OP_ADD || e->op == KN_OP_SUB, product = e->op == KN_OP_MUL;
    if (!sum && !product) {
        for (int i = 0; i < e->nargs; i++)
            if (!lane_step(e->args[i], var, &x) || x) return false;
        return e->op != KN_OP_READ;
    }
    if (!lane_step(e->args[0], var, &x) || !lane_step(e->args[1], var, &y)) return false;
    if (sum) *step = e->op == KN_OP_ADD ? x + y : x - y;
    else if (x && e->args[1]->op == KN_OP_CONST_I) *step = x * e->args[1]->u.i;
    else if (y && e->args[0]->op == KN_OP_CONST_I) *step = y * e->args[0]->u.i;
    else return !x && !y;
    return true;
}

static kn_expr *lane_zero(void *user, kiln_arena *a, kn_expr *e)
{
    const int *var = user;
    return e->op == KN_OP_VAR && e->u.var == *var ? kn_const_i(a, KN_I64, 0) : e;
}

/* Lane l of the result is lane pick[l] of operand from[l]: a chain of shuffles of two, each adding the lanes of one more operand. `put`
 * prints operand number k; operands may have more lanes than the result. */
typedef struct shuffle { int n, lanes, width; int from[KN_MAX_LANES], pick[KN_MAX_LANES]; } shuffle;

/* Every other lane of one vector and then of another, of 8 words: what each half of a vector has of both is one shuffle inside of halves, and another
 * one exchanges its middle. gcc 12 takes three, two of which bring every lane from anywhere and wait for their numbers. */
static bool every_other(const shuffle *s, const kn_expr *e)
{
    enum { LANES = 8 };
    if (s->n != 2 || s->lanes != LANES || (s->width && s->width != LANES) || kn_dtype_bytes(e->dtype) != 4) return false;
    for (int l = 0; l < LANES; l++) {
        int first = l / (LANES / 2) * (LANES / 2);
        if (s->from[l] != first / (LANES / 2) || s->pick[first] > 1 || s->pick[l] != s->pick[first] + (l - first) * 2) return false;
    }
    return true;
}

static void put_every_other(kn_gen *g, const shuffle *s, void (*put)(kn_gen *, const kn_expr *, int), const kn_expr *e)
{
    enum { LANES = KN_LS_MIDDLE_LANES };
    kn_put_helper(g, KN_SN_MIDDLE, "middle", e->dtype, LANES);
    kn_put(&g->out, "(__builtin_shufflevector(");
    put(g, e, 0);
    kn_put(&g->out, ", ");
    put(g, e, 1);
    for (int l = 0; l < LANES; l++) { /* quarters 0 and 1 of the result, those in the middle exchanged, are in its first half */
        int to = kn_ls_middle(l);
        kn_putf(&g->out, ", %d", s->from[to] * LANES + s->pick[to]);
    }
    kn_put(&g->out, "))");
}

static void put_shuffle(kn_gen *g, const shuffle *s, void (*put)(kn_gen *, const kn_expr *, int), const kn_expr *e)
{
    if (every_other(s, e)) {
        put_every_other(g, s, put, e);
        return;
    }
    for (int k = 1; k < s->n; k++) kn_put(&g->out, "__builtin_shufflevector(");
    put(g, e, 0);
    for (int k = 1; k < s->n; k++) {
        kn_put(&g->out, ", ");
        put(g, e, k);
        int width = s->width ? s->width : s->lanes;
        for (int l = 0; l < (k == s->n - 1 ? s->lanes : width); l++) { /* lanes that come later may hold anything */
            int pick = s->from[l] == k ? width + s->pick[l] : k == 1 && s->from[l] == 0 ? s->pick[l] : l;
            kn_putf(&g->out, ", %d", pick);
        }
        kn_put(&g->out, ")");
    }
}

/* Operand k; of one picked vector it is a shuffle with itself. */
static const kn_expr *mixed(const kn_expr *e, int k) { return e->args[e->op == KN_OP_PICK && k >= e->u.i ? 0 : k]; }

static void put_arg(kn_gen *g, const kn_expr *e, int k) { kn_put_vector(g, mixed(e, k)); }

/* The same as a vector of words. */
static void put_words(kn_gen *g, const kn_expr *e, int k)
{
    const kn_expr *x = mixed(e, k);
    kn_put(&g->out, "(");
    kn_put_vector_type(g, "u32", x->lanes * kn_dtype_bytes(x->dtype) / 4);
    kn_put(&g->out, ")(");
    kn_put_vector(g, x);
    kn_put(&g->out, ")");
}

/* Narrow lanes that move as whole words: toolchains have more instructions for these (for pairs of 16 bits gcc has a table and no shuffle inside of
 * blocks). The lanes of a word, 1: they do not. */
static int lanes_of_word(const kn_gen *g, const kn_expr *e, const shuffle *s)
{
    int word = 4 / kn_dtype_bytes(e->dtype), width = s->width ? s->width : s->lanes;
    if (word < 2 || e->dtype == KN_BOOL || (kn_is_small_float(e->dtype) && !g->bits) || e->lanes % word || width % word) return 1;
    for (int l = 0; l < e->lanes; l++) {
        int first = l / word * word;
        if (s->pick[first] % word || s->pick[l] != s->pick[first] + l % word || s->from[l] != s->from[first]) return 1;
    }
    return word;
}

static void put_lanes(kn_gen *g, shuffle *s, const kn_expr *e)
{
    int word = lanes_of_word(g, e, s);
    if (word == 1) {
        put_shuffle(g, s, put_arg, e);
        return;
    }
    s->lanes /= word;
    s->width /= word;
    for (int l = 0; l < s->lanes; l++) s->from[l] = s->from[l * word], s->pick[l] = s->pick[l * word] / word;
    kn_put(&g->out, "((");
    kn_put_type_of(g, e);
    kn_put(&g->out, ")");
    put_shuffle(g, s, put_words, e);
    kn_put(&g->out, ")");
}

void kn_put_zip(kn_gen *g, const kn_expr *e)
{
    shuffle s = {.n = e->nargs, .lanes = e->lanes};
    bool zip = e->op == KN_OP_ZIP;
    int block = zip && e->var ? e->var : e->lanes, unit = !zip && e->var ? e->var : e->unit ? e->unit : 1;
    for (int l = 0; l < e->lanes; l++) {
        int at = zip ? ((int)e->u.i * block + l % block) / unit : (l / unit * e->nargs + (int)e->u.i) * unit + l % unit;
        s.from[l] = zip ? at % e->nargs : at / e->lanes;
        s.pick[l] = zip ? l / block * block + at / e->nargs * unit + l % unit : at % e->lanes;
    }
    put_lanes(g, &s, e);
}

void kn_put_pick(kn_gen *g, const kn_expr *e)
{
    int n = (int)e->u.i;
    if (kn_dtype_bytes(e->dtype) == 4 && kn_ls_exchanges_middle(e)) {
        kn_put_helper(g, KN_SN_MIDDLE, "middle", e->dtype, e->lanes);
        kn_put(&g->out, "(");
        kn_put_vector(g, e->args[0]);
        kn_put(&g->out, ")");
        return;
    }
    shuffle s = {.n = n > 1 ? n : 2, .lanes = e->lanes, .width = e->args[0]->lanes};
    for (int l = 0; l < e->lanes; l++) {
        s.from[l] = (int)(e->args[n + l]->u.i / s.width);
        s.pick[l] = (int)(e->args[n + l]->u.i % s.width);
    }
    put_lanes(g, &s, e);
}

static void put_spread(kn_gen *g, const kn_expr *e, int k) { kn_put_operand(g, e->args[k], e->lanes); }

void kn_put_spread(kn_gen *g, const kn_expr *e)
{
    shuffle s = {.n = 2, .lanes = e->lanes};
    for (int l = 0; l < e->lanes; l++) {
        s.from[l] = l % e->var >= e->u.i;
        s.pick[l] = s.from[l] ? l : (int)(l / e->var * e->u.i + l % e->var);
    }
    put_shuffle(g, &s, put_spread, e);
}

/* Vector number k of the run that holds all lanes of a strided read; the last one ends where the last lane's element is. */
static int strided_offset(int k, int64_t step, int lanes)
{
    int at = k * lanes, last = (int)(step - 1) * (lanes - 1);
    return at < last ? at : last;
}

static void put_run(kn_gen *g, const kn_expr *e, int k)
{
    const kn_expr *r = e->args[0];
    int64_t step;
    int var = e->var;
    if (!lane_step(r->args[0], var, &step)) return;
    kn_expr *zero = kn_rewrite(g->a, r->args[0], lane_zero, &var);
    kn_expr *index = kn_bin(g->a, KN_OP_ADD, zero, kn_const_i(g->a, KN_I64, strided_offset(k, step, e->lanes))), read = *r;
    if (!index) {
        kn_gen_refuse(g, KILN_MEMORY, "out of memory");
        return;
    }
    read.lanes = e->lanes;
    read.args = &index;
    kn_put_vector_read(g, &read);
}

/* Every step-th element: `step` vector loads and shuffles instead of a load a lane. */
bool kn_put_strided(kn_gen *g, const kn_expr *e)
{
    const kn_expr *r = e->args[0];
    int64_t step;
    if (g->cuda || g->lane >= 0 || r->op != KN_OP_READ || g->p->buffers[r->u.buffer].scope == KN_REGISTER || e->lanes < 4) return false;
    if (kn_is_small_float(r->dtype) || r->dtype == KN_BOOL || !lane_step(r->args[0], e->var, &step) || step < 2 || step > 4) return false;
    shuffle s = {.n = (int)step, .lanes = e->lanes};
    for (int l = 0; l < e->lanes; l++)
        for (int k = s.n - 1; k >= 0; k--) {
            int at = l * s.n - strided_offset(k, step, e->lanes);
            if (at < 0 || at >= e->lanes) continue;
            s.from[l] = k;
            s.pick[l] = at;
        }
    put_shuffle(g, &s, put_run, e);
    return true;
}
