/* Rules of com.microsoft's attention, which onnxruntime's optimiser makes of a transformer's nodes: softmax(Q K^T * scale + mask) V by heads,
 * the products before it, the embeddings of a sentence. */
#include "graph/settle.h"
#include <math.h>

typedef struct heads {
    kn_raw *r;
    kn_settle *s;
    int64_t batch, heads, steps, keys; /* keys: with those of the past */
    int q, k, v;                       /* [batch, heads, steps, size] */
    int mask, bias;                    /* inputs of the node; the mask of the keys as integers, what is added to the scores */
} heads;

static const kn_value *value(const heads *h, int v) { return &h->s->g->values[v]; }

/* [batch, steps, heads*size] as [batch, heads, steps, size]. -1 with s->d filled. */
static int split(heads *h, int v)
{
    static const int swap[4] = {0, 2, 1, 3};
    if (v < 0) return -1;
    const kn_value *x = value(h, v);
    if (x->rank != 3 || x->shape[2] % h->heads) {
        kn_raw_bad(h->r, KILN_SHAPE, "[batch, steps, %lld * size] is right", (long long)h->heads);
        return -1;
    }
    int64_t shape[4] = {x->shape[0], x->shape[1], h->heads, x->shape[2] / h->heads};
    return kn_emit_transpose(h->s, kn_emit_reshape(h->s, v, 4, shape), swap);
}

static kiln_status refuse(kn_raw *r, int first, int last)
{
    for (int i = first; i <= last; i++)
        if (kn_raw_in(r, i)) return kn_raw_bad(r, KILN_UNSUPPORTED, "input %d is not read here", i);
    return KILN_OK;
}

/* ---- what is added to the scores ---- */

/* 0 where `condition` holds, else `filter`. */
static int chosen(heads *h, int condition, double filter)
{
    int in[3] = {condition, kn_emit_scalar_like(h->s, h->q, 0), kn_emit_scalar_like(h->s, h->q, filter)};
    return in[0] < 0 || in[1] < 0 || in[2] < 0 ? -1 : kn_emit(h->s, "Where", 3, in, 0, NULL);
}

/* Keys that stand at or before query i + (keys - steps). */
static int causal(heads *h)
{
    int64_t shape[2] = {h->steps, h->keys}, n;
    if (!kn_mul_fits(h->steps, h->keys, &n) || n > KILN_MAX_GRAPH_FOLD) {
        kn_raw_bad(h->r, KILN_LIMIT, "a mask of %lld by %lld", (long long)h->steps, (long long)h->keys);
        return -1;
    }
    uint8_t *sees = kn_alloc(h->s->a, (size_t)n);
    for (int64_t i = 0; sees && i < n; i++) sees[i] = i % h->keys <= i / h->keys + h->keys - h->steps;
    return chosen(h, kn_emit_constant(h->s, KN_BOOL, 2, shape, sees, (size_t)n, false), -INFINITY);
}

/* The mask's forms: [batch] how many keys there are; [batch, keys], [batch, steps, keys] or [batch, 1, steps, keys] not 0 where one may look. */
static int masked(heads *h)
{
    const kn_value *m = kn_raw_in(h->r, h->mask);
    int64_t shape[4] = {h->batch, 1, 1, h->keys}, keys = m->rank ? m->shape[m->rank - 1] : 0;
    int v = h->r->in[h->mask];
    double filter = kn_raw_float(h->r, "mask_filter_value", -10000);
    if (m->rank == 1 && keys == h->batch) {
        int64_t column[4] = {h->batch, 1, 1, 1}, row[4] = {1, 1, 1, h->keys}, *places = kn_array(h->s->a, int64_t, h->keys + 1);
        for (int64_t i = 0; places && i < h->keys; i++) places[i] = i;
        int lengths = kn_emit_reshape(h->s, kn_emit_cast(h->s, v, KN_I64), 4, column);
        int place = kn_emit_constant(h->s, KN_I64, 4, row, places, (size_t)h->keys * 8, false);
        return chosen(h, kn_emit2(h->s, "Less", place, lengths), filter);
    }
    if (m->rank < 2 || m->rank > 4 || m->shape[0] != h->batch || keys != h->keys || (m->rank > 2 && m->shape[m->rank - 2] != h->steps) ||
        (m->rank == 4 && m->shape[1] != 1)) {
        kn_raw_bad(h->r, KILN_SHAPE, "a mask of [%lld], [%lld, %lld] or [%lld, %lld, %lld] is right", (long long)h->batch, (long long)h->batch,
                   (long long)h->keys, (long long)h->batch, (long long)h->steps, (long long)h->keys);
        return -1;
    }
    if (m->rank > 2) shape[2] = h->steps;
    int zero = kn_emit_scalar_like(h->s, v, 0);
    int there = zero < 0 ? -1 : kn_emit1(h->s, "Not", kn_emit2(h->s, "Equal", v, zero));
    return chosen(h, kn_emit_reshape(h->s, there, 4, shape), filter);
}

static kiln_status scores(heads *h, int *out)
{
    static const int turn[4] = {0, 1, 3, 2};
    double scale = kn_raw_float(h->r, "scale", 0);
    if (scale == 0) scale = 1 / sqrt((double)value(h, h->q)->shape[3]);
    int q = kn_emit2(h->s, "Mul", h->q, kn_emit_scalar_like(h->s, h->q, scale));
    int x = kn_emit2(h->s, "MatMul", q, kn_emit_transpose(h->s, h->k, turn));
    if (kn_raw_in(h->r, h->bias)) x = kn_emit2(h->s, "Add", x, h->r->in[h->bias]);
    if (x >= 0 && kn_raw_in(h->r, h->mask)) x = kn_emit2(h->s, "Add", x, masked(h));
    if (x >= 0 && kn_raw_int(h->r, "unidirectional", 0)) x = kn_emit2(h->s, "Add", x, causal(h));
    *out = x;
    return x < 0 ? h->s->d->status : KILN_OK;
}

/* Output 0: [batch, steps, heads*size]. */
static kiln_status attend(heads *h)
{
    static const int back[4] = {0, 2, 1, 3};
    kn_gattr axis = kn_gattr_int("axis", -1);
    int x;
    h->steps = value(h, h->q)->shape[2];
    h->keys = value(h, h->k)->shape[2];
    kiln_status s = scores(h, &x);
    if (s != KILN_OK) return s;
    int y = kn_emit2(h->s, "MatMul", kn_emit(h->s, "Softmax", 1, &x, 1, &axis), h->v);
    if (y < 0) return h->s->d->status;
    int64_t shape[3] = {h->batch, h->steps, h->heads * value(h, y)->shape[3]};
    return kn_raw_out(h->r, 0, kn_emit_reshape(h->s, kn_emit_transpose(h->s, y, back), 3, shape));
}

/* Keys and values behind those of the past, if there are any. */
static int behind(heads *h, int past, int v)
{
    if (v < 0 || !kn_raw_in(h->r, past) || (kn_raw_in(h->r, past)->rank == 4 && !kn_raw_in(h->r, past)->shape[2])) return v;
    return kn_emit_concat(h->s, 2, (int[]){h->r->in[past], v}, 2);
}

/* Inputs: x [batch, steps, width], weights [width, q + k + v], bias of them, mask, past, what is added to the scores. */
kiln_status kn_rule_ms_attention(kn_raw *r)
{
    heads h = {.r = r, .s = r->s, .heads = kn_raw_int(r, "num_heads", 0), .mask = 3, .bias = 5};
    const int64_t *sizes;
    int n, part[3];
    if (!kn_raw_in(r, 0) || !kn_raw_in(r, 1)) return kn_raw_bad(r, KILN_REQUEST, "an input and its weights are right");
    if (kn_raw_in(r, 0)->rank != 3 || kn_raw_in(r, 1)->rank != 2 || h.heads < 1)
        return kn_raw_bad(r, KILN_SHAPE, "[batch, steps, width], [width, columns] and at least one head are right");
    kiln_status s = refuse(r, 4, 4);
    if (s == KILN_OK) s = refuse(r, 6, r->nin - 1);
    if (s == KILN_OK) s = kn_raw_ints(r, -1, "qkv_hidden_sizes", &sizes, &n);
    if (s != KILN_OK) return s;
    int64_t columns = kn_raw_in(r, 1)->shape[1], third[3] = {columns / 3, columns / 3, columns / 3};
    if (n < 0) sizes = third, n = 3;
    if (n != 3 || sizes[0] < 1 || sizes[0] != sizes[1] || sizes[2] < 1 || sizes[0] + sizes[1] + sizes[2] != columns)
        return kn_raw_bad(r, KILN_SHAPE, "%lld columns are not those of queries, keys and values", (long long)columns);
    h.batch = kn_raw_in(r, 0)->shape[0];
    int x = kn_emit2(r->s, "MatMul", r->in[0], r->in[1]);
    if (kn_raw_in(r, 2)) x = kn_emit2(r->s, "Add", x, r->in[2]);
    for (int i = 0, from = 0; i < 3; from += (int)sizes[i++]) {
        part[i] = x < 0 ? -1 : split(&h, kn_emit_slice(r->s, x, 2, from, from + sizes[i], 1));
        if (part[i] < 0) return r->s->d->status;
    }
    h.q = part[0], h.k = part[1], h.v = part[2];
    return attend(&h);
}

/* Inputs: query, key, value (each [batch, steps, width]; keys and values of another sentence also [batch, heads, steps, size]), bias of all
 * three, mask, what is added to the scores, keys and values of the past. Outputs: the result, keys and values with those of the past. */
kiln_status kn_rule_ms_multiheadattention(kn_raw *r)
{
    heads h = {.r = r, .s = r->s, .heads = kn_raw_int(r, "num_heads", 0), .mask = 4, .bias = 5};
    int part[3];
    int64_t from = 0;
    for (int i = 0; i < 3; i++)
        if (!kn_raw_in(r, i)) return kn_raw_bad(r, KILN_UNSUPPORTED, "query, key and value apart are right");
    if (kn_raw_in(r, 0)->rank != 3 || h.heads < 1) return kn_raw_bad(r, KILN_SHAPE, "[batch, steps, width] and at least one head are right");
    kiln_status s = refuse(r, 8, r->nin - 1);
    if (s != KILN_OK) return s;
    h.batch = kn_raw_in(r, 0)->shape[0];
    for (int i = 0; i < 3; i++) {
        const kn_value *x = kn_raw_in(r, i);
        bool done = i && x->rank == 4;
        int64_t width = done ? x->shape[1] * x->shape[3] : x->shape[2];
        part[i] = r->in[i];
        if (kn_raw_in(r, 3) && !done) part[i] = kn_emit2(r->s, "Add", part[i], kn_emit_slice(r->s, r->in[3], 0, from, from + width, 1));
        if (!done) part[i] = split(&h, part[i]);
        if (part[i] < 0) return r->s->d->status;
        from += width;
    }
    h.q = part[0], h.k = behind(&h, 6, part[1]), h.v = behind(&h, 7, part[2]);
    if (h.k < 0 || h.v < 0) return r->s->d->status;
    s = kn_raw_wants(r, 1) ? kn_raw_out(r, 1, h.k) : KILN_OK;
    if (s == KILN_OK && kn_raw_wants(r, 2)) s = kn_raw_out(r, 2, h.v);
    return s == KILN_OK ? attend(&h) : s;
}

/* One row of a table for each id. */
static int rows(kn_raw *r, int table, int ids)
{
    kn_gattr axis = kn_gattr_int("axis", 0);
    return ids < 0 ? -1 : kn_emit(r->s, "Gather", 2, (int[]){r->in[table], kn_emit_cast(r->s, ids, KN_I64)}, 1, &axis);
}

/* Inputs: ids, segment ids, tables of words, positions and segments, gamma, beta, mask, position ids. Outputs: the normalised sum, how many
 * words the mask has, the sum. */
kiln_status kn_rule_ms_embedlayernorm(kn_raw *r)
{
    static const int mandatory[] = {0, 2, 3, 5, 6};
    for (int i = 0; i < 5; i++)
        if (!kn_raw_in(r, mandatory[i])) return kn_raw_bad(r, KILN_REQUEST, "input %d is mandatory", mandatory[i]);
    const kn_value *ids = kn_raw_in(r, 0), *places = kn_raw_in(r, 3);
    if (ids->rank != 2 || places->rank != 2 || ids->shape[1] > places->shape[0]) return kn_raw_bad(r, KILN_SHAPE, "ids of [batch, steps] are right");
    int sum = rows(r, 2, r->in[0]);
    int where = kn_raw_in(r, 8) ? rows(r, 3, r->in[8]) : kn_emit_slice(r->s, r->in[3], 0, 0, ids->shape[1], 1);
    sum = sum < 0 || where < 0 ? -1 : kn_emit2(r->s, "Add", sum, where);
    if (sum >= 0 && kn_raw_in(r, 1) && kn_raw_in(r, 4)) sum = kn_emit2(r->s, "Add", sum, rows(r, 4, r->in[1]));
    if (sum < 0) return r->s->d->status;
    kn_gattr attrs[] = {kn_gattr_int("axis", -1), kn_gattr_float("epsilon", kn_raw_float(r, "epsilon", 1e-12))};
    kn_gattr over[] = {kn_gattr_ints(r->s->a, "axes", 1, (int64_t[]){1}), kn_gattr_int("keepdims", 0)};
    kiln_status s = KILN_OK;
    if (kn_raw_wants(r, 1) && kn_raw_in(r, 7)) s = kn_raw_out(r, 1, kn_emit(r->s, "ReduceSum", 1, &r->in[7], 2, over));
    if (kn_raw_wants(r, 1) && !kn_raw_in(r, 7)) s = kn_raw_out(r, 1, kn_emit_fill(r->s, KN_I32, 1, &ids->shape[0], 0));
    if (s == KILN_OK && kn_raw_wants(r, 2)) s = kn_raw_out(r, 2, sum);
    return s == KILN_OK ? kn_raw_out(r, 0, kn_emit(r->s, "LayerNormalization", 3, (int[]){sum, r->in[5], r->in[6]}, 2, attrs)) : s;
}
