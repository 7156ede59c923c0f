/* Rule of Attention (opset 23 on): softmax(Q K^T * scale + bias) V by heads, with a cache of keys and values, groups of heads that share
 * them, masks that are causal, windowed, given, or lengths of the cache. A row that is masked in full gives zeros. */
#include "graph/settle.h"
#include <math.h>
#include <string.h>

enum { Q, K, V, MASK, PAST_KEY, PAST_VALUE, LENGTHS };

typedef struct attention {
    kn_raw *r;
    kn_settle *s;
    enum kn_dtype t;
    int64_t batch, heads, shared, steps, keys, past; /* shared: heads of K and V; keys: with those of the past */
    bool flat;                                       /* 3D inputs, heads side by side */
    int q, k, v;                                     /* [batch, heads, steps, size] */
} attention;

static const kn_value *value(const attention *a, int v) { return &a->s->g->values[v]; }

/* [batch, steps, heads*size] as [batch, heads, steps, size]. */
static int by_heads(attention *a, int v, int64_t heads)
{
    static const int swap[4] = {0, 2, 1, 3};
    const kn_value *x = value(a, v);
    int64_t shape[4] = {x->shape[0], x->shape[1], heads, x->shape[2] / heads};
    return kn_emit_transpose(a->s, kn_emit_reshape(a->s, v, 4, shape), swap);
}

static kiln_status check(attention *a)
{
    kn_raw *r = a->r;
    for (int i = Q; i <= V; i++) {
        const kn_value *x = kn_raw_in(r, i);
        if (!x || x->rank != kn_raw_in(r, Q)->rank || (x->rank != 3 && x->rank != 4))
            return kn_raw_bad(r, KILN_SHAPE, "Q, K and V of rank 3 or 4 are right");
    }
    const kn_value *q = kn_raw_in(r, Q), *k = kn_raw_in(r, K), *v = kn_raw_in(r, V);
    a->flat = q->rank == 3;
    a->t = q->dtype;
    a->batch = q->shape[0];
    a->heads = a->flat ? kn_raw_int(r, "q_num_heads", 0) : q->shape[1];
    a->shared = a->flat ? kn_raw_int(r, "kv_num_heads", 0) : k->shape[1];
    if (a->heads < 1 || a->shared < 1 || a->heads % a->shared)
        return kn_raw_bad(r, KILN_REQUEST, "%lld heads and %lld of keys", (long long)a->heads, (long long)a->shared);
    bool whole = !a->flat || (q->shape[2] % a->heads == 0 && k->shape[2] % a->shared == 0 && v->shape[2] % a->shared == 0);
    if (!whole || k->shape[0] != a->batch || v->shape[0] != a->batch || (!a->flat && v->shape[1] != a->shared))
        return kn_raw_bad(r, KILN_SHAPE, "Q, K and V do not fit together");
    if (!kn_raw_in(r, PAST_KEY) != !kn_raw_in(r, PAST_VALUE)) return kn_raw_bad(r, KILN_REQUEST, "past_key and past_value go together");
    return KILN_OK;
}

/* Heads, the cache, and K and V once for every head of Q. */
static int repeated(attention *a, int v)
{
    int64_t n = a->heads / a->shared;
    const kn_value *x = v < 0 ? NULL : value(a, v);
    if (!x || n == 1) return v;
    int64_t one[5] = {a->batch, a->shared, 1, x->shape[2], x->shape[3]}, all[5] = {a->batch, a->shared, n, x->shape[2], x->shape[3]};
    int64_t flat[4] = {a->batch, a->heads, x->shape[2], x->shape[3]};
    kn_gattr shape = kn_gattr_ints(a->s->a, "shape", 5, all);
    int y = kn_emit_reshape(a->s, v, 5, one);
    return y < 0 ? -1 : kn_emit_reshape(a->s, kn_emit(a->s, "Expand", 1, &y, 1, &shape), 4, flat);
}

static kiln_status operands(attention *a)
{
    kn_raw *r = a->r;
    a->q = a->flat ? by_heads(a, r->in[Q], a->heads) : r->in[Q];
    a->k = a->flat ? by_heads(a, r->in[K], a->shared) : r->in[K];
    a->v = a->flat ? by_heads(a, r->in[V], a->shared) : r->in[V];
    if (a->q < 0 || a->k < 0 || a->v < 0) return a->s->d->status;
    if (kn_raw_in(r, PAST_KEY)) {
        a->past = kn_raw_in(r, PAST_KEY)->rank == 4 ? kn_raw_in(r, PAST_KEY)->shape[2] : 0;
        if (a->past) { /* an empty cache is none */
            a->k = kn_emit_concat(a->s, 2, (int[]){r->in[PAST_KEY], a->k}, 2);
            a->v = a->k < 0 ? -1 : kn_emit_concat(a->s, 2, (int[]){r->in[PAST_VALUE], a->v}, 2);
        }
    }
    if (a->k < 0 || a->v < 0) return a->s->d->status;
    kiln_status s = kn_raw_out(r, 1, a->k);
    if (s == KILN_OK) s = kn_raw_out(r, 2, a->v);
    a->steps = value(a, a->q)->shape[2];
    a->keys = value(a, a->k)->shape[2];
    a->k = repeated(a, a->k);
    a->v = repeated(a, a->v);
    return a->k < 0 || a->v < 0 ? a->s->d->status : s;
}

/* ---- the bias: 0 where a query may look, minus infinity where not ---- */

static int sum(attention *a, int x, int y) { return x < 0 ? y : y < 0 ? x : kn_emit2(a->s, "Add", x, y); }

static int chosen(attention *a, int condition)
{
    int in[3] = {condition, kn_emit_fill(a->s, a->t, 0, NULL, 0), kn_emit_fill(a->s, a->t, 0, NULL, -INFINITY)};
    return condition < 0 || in[1] < 0 || in[2] < 0 ? -1 : kn_emit(a->s, "Where", 3, in, 0, NULL);
}

/* Which keys stand not further behind than right and not further before than left of query i + past; -1: as far as they go. */
static int band(attention *a, int64_t left, int64_t right)
{
    int64_t shape[2] = {a->steps, a->keys}, n;
    size_t size = (size_t)kn_dtype_bytes(a->t);
    if (!kn_mul_fits(a->steps, a->keys, &n) || n > KILN_MAX_GRAPH_FOLD) {
        kn_raw_bad(a->r, KILN_LIMIT, "a mask of %lld by %lld", (long long)a->steps, (long long)a->keys);
        return -1;
    }
    uint8_t *p = kn_alloc(a->s->a, (size_t)n * size);
    for (int64_t i = 0; p && i < n; i++) {
        int64_t away = i % a->keys - (i / a->keys + a->past);
        bool sees = (left < 0 || -away <= left) && (right < 0 || away <= right);
        kn_element_store(a->t, p + (size_t)i * size, sees ? 0 : -INFINITY);
    }
    return kn_emit_constant(a->s, a->t, 2, shape, p, (size_t)n * size, false);
}

/* The same where the queries end at lengths[b]: compares key - query with lengths[b] - steps + right. -1 with s->d filled. */
static int moving_band(attention *a, int lengths, int64_t left, int64_t right)
{
    int64_t shape[4] = {1, 1, a->steps, a->keys}, n = a->steps * a->keys;
    int64_t *p = n > KILN_MAX_GRAPH_FOLD ? NULL : kn_array(a->s->a, int64_t, n);
    for (int64_t i = 0; p && i < n; i++) p[i] = i % a->keys - i / a->keys;
    int away = kn_emit_constant(a->s, KN_I64, 4, shape, p, (size_t)n * 8, false), bias = -1;
    for (int side = 0; away >= 0 && side < 2; side++) {
        int64_t most = side ? left : right;
        if (most < 0) continue;
        int edge = kn_emit2(a->s, "Add", lengths, kn_emit_fill(a->s, KN_I64, 0, NULL, (double)(side ? -a->steps - most : most - a->steps)));
        int good = kn_emit2(a->s, side ? "GreaterOrEqual" : "LessOrEqual", away, edge), part = chosen(a, good);
        if (part < 0) return -1;
        bias = sum(a, bias, part);
    }
    return bias;
}

static int given_mask(attention *a)
{
    int v = a->r->in[MASK];
    const kn_value *m = value(a, v);
    bool flags = m->dtype == KN_BOOL;
    int64_t short_by = m->rank ? a->keys - m->shape[m->rank - 1] : 0, pads[2] = {0, short_by}, axis = m->rank - 1;
    if (short_by > 0) {
        kn_gattr attrs[] = {kn_gattr_ints(a->s->a, "pads", 2, pads), kn_gattr_ints(a->s->a, "axes", 1, &axis),
                            kn_gattr_float("value", flags ? 0 : -INFINITY)};
        v = kn_emit(a->s, "Pad", 1, &v, 3, attrs);
    }
    return flags ? chosen(a, v) : v;
}

/* *out -1: none. */
static kiln_status bias_of(attention *a, int *out)
{
    kn_raw *r = a->r;
    int64_t left = kn_raw_int(r, "left_window_size", -1), right = kn_raw_int(r, "right_window_size", -1);
    if (kn_raw_int(r, "is_causal", 0)) right = 0;
    *out = -1;
    if (kn_raw_in(r, MASK) && (*out = given_mask(a)) < 0) return a->s->d->status;
    int lengths = -1;
    if (kn_raw_in(r, LENGTHS)) {
        int64_t column[4] = {a->batch, 1, 1, 1}, row[4] = {1, 1, 1, a->keys}, *keys = kn_array(a->s->a, int64_t, a->keys + 1);
        for (int64_t i = 0; keys && i < a->keys; i++) keys[i] = i;
        lengths = kn_emit_reshape(a->s, kn_emit_cast(a->s, r->in[LENGTHS], KN_I64), 4, column);
        int index = kn_emit_constant(a->s, KN_I64, 4, row, keys, (size_t)a->keys * 8, false);
        int part = chosen(a, kn_emit2(a->s, "Less", index, lengths));
        if (part < 0) return a->s->d->status;
        *out = sum(a, *out, part);
    }
    if (left < 0 && right < 0) return *out < 0 || value(a, *out)->typed ? KILN_OK : a->s->d->status;
    int part = lengths >= 0 && !a->past ? moving_band(a, lengths, left, right) : band(a, left, right);
    if (part < 0) return a->s->d->status;
    *out = sum(a, *out, part);
    return *out < 0 ? a->s->d->status : KILN_OK;
}

/* Whether some row of the bias may be minus infinity in full: always, where it depends on data. */
static bool masks_rows(const attention *a, int bias)
{
    const kn_value *b = value(a, bias);
    if (!b->data || !b->data->bytes) return true;
    int64_t n = kn_value_elems(b), row = b->rank ? b->shape[b->rank - 1] : 1;
    for (int64_t i = 0; i < n; i += row) {
        bool any = false;
        for (int64_t k = 0; k < row && !any; k++) any = kn_value_double(b, i + k) > -INFINITY;
        if (!any) return true;
    }
    return false;
}

/* Probabilities; rows without a key to look at are zeros. */
static int probabilities(attention *a, int scores, int bias)
{
    enum kn_dtype precise = a->t;
    const kn_gattr *p = kn_node_attr(a->r->n, "softmax_precision");
    if (p && !kn_onnx_dtype(p->i, &precise)) precise = a->t;
    kn_gattr axis = kn_gattr_int("axis", -1);
    int x = kn_emit_cast(a->s, scores, precise);
    int y = x < 0 ? -1 : kn_emit_cast(a->s, kn_emit(a->s, "Softmax", 1, &x, 1, &axis), a->t);
    if (bias < 0 || y < 0 || !masks_rows(a, bias)) return y;
    kn_gattr last = kn_gattr_ints(a->s->a, "axes", 1, (int64_t[]){-1});
    int most = value(a, bias)->rank ? kn_emit(a->s, "ReduceMax", 1, &bias, 1, &last) : bias;
    int in[3] = {kn_emit2(a->s, "Equal", most, kn_emit_fill(a->s, a->t, 0, NULL, -INFINITY)), kn_emit_fill(a->s, a->t, 0, NULL, 0), y};
    return in[0] < 0 || in[1] < 0 ? -1 : kn_emit(a->s, "Where", 3, in, 0, NULL);
}

kiln_status kn_rule_attention(kn_raw *r)
{
    attention a = {.r = r, .s = r->s};
    static const int turn[4] = {0, 1, 3, 2}, back[4] = {0, 2, 1, 3};
    int bias;
    kiln_status s = kn_raw_in(r, Q) ? check(&a) : kn_raw_bad(r, KILN_REQUEST, "input 0 is mandatory");
    if (s == KILN_OK) s = operands(&a);
    if (s == KILN_OK) s = bias_of(&a, &bias);
    if (s != KILN_OK) return s;
    double scale = kn_raw_float(r, "scale", 1 / sqrt((double)value(&a, a.q)->shape[3])), cap = kn_raw_float(r, "softcap", 0);
    int64_t mode = kn_raw_int(r, "qk_matmul_output_mode", 0);
    int q = kn_emit2(a.s, "Mul", a.q, kn_emit_fill(a.s, a.t, 0, NULL, scale));
    int x = kn_emit2(a.s, "MatMul", q, kn_emit_transpose(a.s, a.k, turn)), shown = x;
    if (cap > 0 && x >= 0) {
        int c = kn_emit_fill(a.s, a.t, 0, NULL, cap);
        x = kn_emit2(a.s, "Mul", kn_emit1(a.s, "Tanh", kn_emit2(a.s, "Div", x, c)), c);
        if (mode == 1) shown = x;
    }
    if (bias >= 0 && x >= 0) x = kn_emit2(a.s, "Add", x, bias);
    if (mode == 2) shown = x;
    x = x < 0 ? -1 : probabilities(&a, x, bias);
    if (mode == 3) shown = x;
    if (kn_raw_wants(r, 3) && (s = kn_raw_out(r, 3, shown)) != KILN_OK) return s;
    int y = kn_emit2(a.s, "MatMul", x, a.v);
    if (y < 0 || !a.flat) return kn_raw_out(r, 0, y);
    int64_t shape[3] = {a.batch, a.steps, a.heads * value(&a, y)->shape[3]};
    return kn_raw_out(r, 0, kn_emit_reshape(a.s, kn_emit_transpose(a.s, y, back), 3, shape));
}
