/* Rules of RNN, GRU and LSTM: unrolled over the steps of the sequence. The products of all inputs with W are one matrix product; every step
 * adds that of the state with R and applies the cell (formulas of the ONNX operator documents). */
#include "graph/settle.h"
#include <string.h>

enum { MOST_STEPS = 512 };

typedef struct rnn {
    kn_raw *r;
    int gates; /* 1 RNN, 3 GRU (z, r, h), 4 LSTM (i, o, f, c) */
    int64_t steps, batch, hidden;
    int dirs;
    bool swapped;       /* layout 1: the batch comes first */
    const char *act[3]; /* of one direction */
    double clip;
    int w, rt, wb, rb, p; /* of one direction: [in, G*h], [h, G*h], [G*h] or -1, [3h] or -1 */
    int h, c;             /* state: [batch, h] */
} rnn;

/* ---- pieces ---- */

static int add(rnn *n, int x, int y) { return y < 0 && x >= 0 ? x : kn_emit2(n->r->s, "Add", x, y); }
static int mul(rnn *n, int x, int y) { return kn_emit2(n->r->s, "Mul", x, y); }

static int columns(rnn *n, int x, int gate, int count)
{
    return x < 0 ? -1 : kn_emit_slice(n->r->s, x, n->r->s->g->values[x].rank - 1, gate * n->hidden, (gate + count) * n->hidden, 1);
}

/* Direction d of input i with its first axis gone; -1: left out. */
static int direction(rnn *n, int i, int d)
{
    const kn_value *v = kn_raw_in(n->r, i);
    int64_t shape[KILN_MAX_RANK];
    if (!v) return -1;
    int rank = v->rank;
    memcpy(shape, v->shape + 1, (size_t)(rank - 1) * sizeof *shape);
    return kn_emit_reshape(n->r->s, kn_emit_slice(n->r->s, n->r->in[i], 0, d, d + 1, 1), rank - 1, shape);
}

/* An activation after the clip. */
static int activate(rnn *n, int which, int x)
{
    static const char *const known[] = {"Sigmoid", "Tanh",     "Relu",     "HardSigmoid",    "LeakyRelu",
                                        "Elu",     "Softsign", "Softplus", "ThresholdedRelu"};
    kn_gattr bounds[] = {kn_gattr_float("min", -n->clip), kn_gattr_float("max", n->clip)};
    if (x >= 0 && n->clip > 0) x = kn_emit(n->r->s, "Clip", 1, &x, 2, bounds);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *a = known[i], *b = n->act[which];
        while (*a && (*a | 32) == (*b | 32)) a++, b++; /* letters in any case, as ONNX has it */
        if (!*a && !*b) return kn_emit1(n->r->s, known[i], x);
    }
    kn_raw_bad(n->r, KILN_UNSUPPORTED, "activation \"%.40s\" is not supported", n->act[which]);
    return -1;
}

/* ---- cells: xw is [batch, G*h] of this step; the new state goes to n->h and n->c ---- */

static int rnn_cell(rnn *n, int xw)
{
    int t = add(n, xw, kn_emit2(n->r->s, "MatMul", n->h, n->rt));
    return n->h = activate(n, 0, add(n, t, n->rb));
}

static int gru_cell(rnn *n, int xw)
{
    kn_settle *s = n->r->s;
    bool before = kn_raw_int(n->r, "linear_before_reset", 0) != 0;
    int rzr = columns(n, n->rt, 0, 2), rh = columns(n, n->rt, 2, 1), bzr = n->rb < 0 ? -1 : columns(n, n->rb, 0, 2),
        bh = n->rb < 0 ? -1 : columns(n, n->rb, 2, 1);
    int zr = activate(n, 0, add(n, add(n, columns(n, xw, 0, 2), kn_emit2(s, "MatMul", n->h, rzr)), bzr));
    int z = columns(n, zr, 0, 1), r = columns(n, zr, 1, 1), t;
    if (before)
        t = mul(n, r, add(n, kn_emit2(s, "MatMul", n->h, rh), bh));
    else
        t = add(n, kn_emit2(s, "MatMul", mul(n, r, n->h), rh), bh);
    int g = activate(n, 1, add(n, columns(n, xw, 2, 1), t));
    int rest = kn_emit2(s, "Sub", kn_emit_scalar_like(s, g, 1), z);
    return n->h = add(n, mul(n, rest, g), mul(n, z, n->h));
}

static int lstm_cell(rnn *n, int xw)
{
    int g = add(n, add(n, xw, kn_emit2(n->r->s, "MatMul", n->h, n->rt)), n->rb);
    int i = columns(n, g, 0, 1), o = columns(n, g, 1, 1), f = columns(n, g, 2, 1), c = columns(n, g, 3, 1);
    if (n->p >= 0) { /* peepholes: i, o, f */
        i = add(n, i, mul(n, columns(n, n->p, 0, 1), n->c));
        f = add(n, f, mul(n, columns(n, n->p, 2, 1), n->c));
    }
    i = activate(n, 0, i);
    f = kn_raw_int(n->r, "input_forget", 0) ? kn_emit2(n->r->s, "Sub", kn_emit_scalar_like(n->r->s, i, 1), i) : activate(n, 0, f);
    n->c = add(n, mul(n, f, n->c), mul(n, i, activate(n, 1, c)));
    if (n->p >= 0) o = add(n, o, mul(n, columns(n, n->p, 1, 1), n->c));
    return n->h = mul(n, activate(n, 0, o), activate(n, 2, n->c));
}

/* ---- one direction ---- */

static int zeros(rnn *n) { return kn_emit_fill(n->r->s, n->r->s->g->values[n->r->in[0]].dtype, 2, (int64_t[]){n->batch, n->hidden}, 0); }

static int initial(rnn *n, int input, int d)
{
    if (!kn_raw_in(n->r, input)) return zeros(n);
    if (!n->swapped) return direction(n, input, d);
    int64_t shape[2] = {n->batch, n->hidden};
    return kn_emit_reshape(n->r->s, kn_emit_slice(n->r->s, n->r->in[input], 1, d, d + 1, 1), 2, shape);
}

static void activations(rnn *n, int d)
{
    static const char *const usual[5][3] = {{0}, {"Tanh"}, {0}, {"Sigmoid", "Tanh"}, {"Sigmoid", "Tanh", "Tanh"}};
    const kn_gattr *a = kn_node_attr(n->r->n, "activations");
    int each = n->gates == 1 ? 1 : n->gates - 1;
    for (int k = 0; k < each; k++)
        n->act[k] = a && a->kind == 'S' && a->n == each * n->dirs ? a->strings[d * each + k] : usual[n->gates][k];
}

/* Weights of direction d; the biases of input and state go together but for the GRU, whose state's bias may be under the reset gate. */
static bool weights(rnn *n, int d)
{
    static const int swap[2] = {1, 0};
    kn_settle *s = n->r->s;
    int wide = (int)(n->gates * n->hidden), b = direction(n, 3, d);
    n->w = kn_emit_transpose(s, direction(n, 1, d), swap);
    n->rt = kn_emit_transpose(s, direction(n, 2, d), swap);
    n->wb = b < 0 ? -1 : kn_emit_slice(s, b, 0, 0, wide, 1);
    n->rb = b < 0 ? -1 : kn_emit_slice(s, b, 0, wide, 2 * wide, 1);
    n->p = n->gates == 4 ? direction(n, 7, d) : -1;
    n->h = initial(n, 5, d);
    n->c = n->gates == 4 ? initial(n, 6, d) : n->h;
    return n->w >= 0 && n->rt >= 0 && n->h >= 0 && n->c >= 0;
}

/* hs[t]: the state after step t, [batch, h]. */
static kiln_status one_direction(rnn *n, int d, bool reverse, int *hs)
{
    kn_settle *s = n->r->s;
    activations(n, d);
    if (!weights(n, d)) return s->d->status;
    int xw = add(n, kn_emit2(s, "MatMul", n->r->in[0], n->w), n->wb), axis = n->swapped;
    int64_t shape[2] = {n->batch, n->gates * n->hidden};
    for (int64_t k = 0; k < n->steps; k++) {
        int64_t t = reverse ? n->steps - 1 - k : k;
        int x = xw < 0 ? -1 : kn_emit_reshape(s, kn_emit_slice(s, xw, axis, t, t + 1, 1), 2, shape);
        hs[t] = x < 0 ? -1 : n->gates == 1 ? rnn_cell(n, x) : n->gates == 3 ? gru_cell(n, x) : lstm_cell(n, x);
        if (hs[t] < 0) return s->d->status;
    }
    return KILN_OK;
}

/* ---- the node ---- */

static kiln_status check(rnn *n)
{
    kn_raw *r = n->r;
    const kn_value *x = kn_raw_in(r, 0), *w = kn_raw_in(r, 1), *m = kn_raw_in(r, 2), *b = kn_raw_in(r, 3);
    const char *way = kn_raw_str(r, "direction", "forward");
    if (!x || !w || !m || x->rank != 3 || w->rank != 3 || m->rank != 3) return kn_raw_bad(r, KILN_SHAPE, "X, W and R of rank 3 are right");
    n->swapped = kn_raw_int(r, "layout", 0) != 0;
    n->steps = x->shape[n->swapped];
    n->batch = x->shape[!n->swapped];
    n->hidden = m->shape[2];
    n->dirs = strcmp(way, "bidirectional") ? 1 : 2;
    int64_t wide = n->gates * n->hidden;
    if (w->shape[0] != n->dirs || m->shape[0] != n->dirs || w->shape[1] != wide || m->shape[1] != wide || w->shape[2] != x->shape[2])
        return kn_raw_bad(r, KILN_SHAPE, "W must be [%d, %lld, %lld] and R [%d, %lld, %lld]", n->dirs, (long long)wide,
                          (long long)x->shape[2], n->dirs, (long long)wide, (long long)n->hidden);
    if (b && (b->rank != 2 || b->shape[0] != n->dirs || b->shape[1] != 2 * wide))
        return kn_raw_bad(r, KILN_SHAPE, "B must be [%d, %lld]", n->dirs, (long long)(2 * wide));
    for (int i = 5; i < (n->gates == 4 ? 7 : 6); i++) {
        const kn_value *v = kn_raw_in(r, i);
        if (v && (v->rank != 3 || kn_value_elems(v) != n->dirs * n->batch * n->hidden || v->shape[n->swapped] != n->dirs))
            return kn_raw_bad(r, KILN_SHAPE, "the initial state (input %d) has another shape", i);
    }
    const kn_value *p = n->gates == 4 ? kn_raw_in(r, 7) : NULL;
    if (p && (p->rank != 2 || p->shape[0] != n->dirs || p->shape[1] != 3 * n->hidden))
        return kn_raw_bad(r, KILN_SHAPE, "P must be [%d, %lld]", n->dirs, (long long)(3 * n->hidden));
    if (n->steps > MOST_STEPS) return kn_raw_bad(r, KILN_LIMIT, "%lld steps; at most %d are unrolled", (long long)n->steps, MOST_STEPS);
    return KILN_OK;
}

static kiln_status whole_sequences(rnn *n)
{
    const int64_t *lengths;
    int count;
    kiln_status s = kn_raw_ints(n->r, 4, NULL, &lengths, &count);
    for (int i = 0; s == KILN_OK && i < count; i++)
        if (lengths[i] != n->steps) return kn_raw_bad(n->r, KILN_UNSUPPORTED, "sequences of different lengths are not supported");
    return s;
}

/* States of all directions as one output: [dirs, batch, h], or with layout 1 [batch, dirs, h]. */
static int joined(rnn *n, const int *states)
{
    int parts[2], axis = n->swapped;
    int64_t one[2][3] = {{1, n->batch, n->hidden}, {n->batch, 1, n->hidden}};
    for (int d = 0; d < n->dirs; d++)
        if ((parts[d] = kn_emit_reshape(n->r->s, states[d], 3, one[n->swapped])) < 0) return -1;
    return kn_emit_concat(n->r->s, n->dirs, parts, axis);
}

static kiln_status every_step(rnn *n, int *hs)
{
    int *steps = kn_array(n->r->s->a, int, n->steps + 1);
    if (!steps) return kn_fail(n->r->s->d, KILN_MEMORY, "out of memory");
    for (int64_t t = 0; t < n->steps; t++) {
        int states[2] = {hs[t], n->dirs == 2 ? hs[n->steps + t] : -1}, v = joined(n, states);
        const kn_value *x = v < 0 ? NULL : &n->r->s->g->values[v];
        if (!x) return n->r->s->d->status;
        int64_t shape[2][4] = {{1, x->shape[0], x->shape[1], x->shape[2]}, {x->shape[0], 1, x->shape[1], x->shape[2]}};
        if ((steps[t] = kn_emit_reshape(n->r->s, v, 4, shape[n->swapped])) < 0) return n->r->s->d->status;
    }
    return kn_raw_out(n->r, 0, kn_emit_concat(n->r->s, (int)n->steps, steps, n->swapped));
}

static kiln_status recurrent(kn_raw *r, int gates)
{
    rnn n = {.r = r, .gates = gates, .clip = kn_raw_float(r, "clip", 0)};
    kiln_status s = check(&n);
    if (s == KILN_OK) s = whole_sequences(&n);
    int *hs = s == KILN_OK ? kn_array(r->s->a, int, 2 * n.steps + 1) : NULL, h[2], c[2];
    if (s == KILN_OK && !hs) s = kn_fail(r->s->d, KILN_MEMORY, "out of memory");
    for (int d = 0; s == KILN_OK && d < n.dirs; d++) {
        bool reverse = d == 1 || !strcmp(kn_raw_str(r, "direction", "forward"), "reverse");
        s = one_direction(&n, d, reverse, hs + d * n.steps);
        h[d] = n.h;
        c[d] = n.c;
    }
    if (s == KILN_OK && kn_raw_wants(r, 0)) s = every_step(&n, hs);
    if (s == KILN_OK && kn_raw_wants(r, 1)) s = kn_raw_out(r, 1, joined(&n, h));
    if (s == KILN_OK && gates == 4 && kn_raw_wants(r, 2)) s = kn_raw_out(r, 2, joined(&n, c));
    return s;
}

kiln_status kn_rule_rnn(kn_raw *r) { return recurrent(r, 1); }
kiln_status kn_rule_gru(kn_raw *r) { return recurrent(r, 3); }
kiln_status kn_rule_lstm(kn_raw *r) { return recurrent(r, 4); }
