/* Rules of the fused operators of domain com.microsoft that onnxruntime's optimiser and exporters leave in models, in ai.onnx's words. */
#include "graph/settle.h"
#include <string.h>

static int scalar(kn_raw *r, double x) { return kn_emit_scalar_like(r->s, r->in[0], x); }

/* x (+ bias) through Gelu. */
static kiln_status gelu(kn_raw *r, const char *approximate)
{
    int x = r->in[0];
    if (kn_raw_in(r, 1)) x = kn_emit2(r->s, "Add", x, r->in[1]);
    kn_gattr how = kn_gattr_str("approximate", approximate);
    return kn_raw_out(r, 0, x < 0 ? -1 : kn_emit(r->s, "Gelu", 1, &x, 1, &how));
}

kiln_status kn_rule_ms_gelu(kn_raw *r) { return gelu(r, "none"); }

kiln_status kn_rule_ms_fastgelu(kn_raw *r) { return gelu(r, "tanh"); }

/* x * sigmoid(alpha * x) */
kiln_status kn_rule_ms_quickgelu(kn_raw *r)
{
    int inner = kn_emit2(r->s, "Mul", r->in[0], scalar(r, kn_raw_float(r, "alpha", 1.702)));
    return kn_raw_out(r, 0, kn_emit2(r->s, "Mul", r->in[0], kn_emit1(r->s, "Sigmoid", inner)));
}

/* The last two axes exchanged where the node says so. */
static int side(kn_raw *r, int i, const char *attr)
{
    int perm[KILN_MAX_RANK], rank = kn_raw_in(r, i)->rank;
    if (!kn_raw_int(r, attr, 0) || rank < 2) return r->in[i];
    for (int k = 0; k < rank; k++) perm[k] = k < rank - 2 ? k : 2 * rank - 3 - k;
    return kn_emit_transpose(r->s, r->in[i], perm);
}

kiln_status kn_rule_ms_fusedmatmul(kn_raw *r)
{
    if (!kn_raw_in(r, 0) || !kn_raw_in(r, 1)) return kn_raw_bad(r, KILN_REQUEST, "two inputs are right");
    if (kn_raw_int(r, "transBatchA", 0) || kn_raw_int(r, "transBatchB", 0)) return kn_raw_bad(r, KILN_UNSUPPORTED, "batches cannot be transposed");
    double alpha = kn_raw_float(r, "alpha", 1);
    int y = kn_emit2(r->s, "MatMul", side(r, 0, "transA"), side(r, 1, "transB"));
    return kn_raw_out(r, 0, y < 0 || alpha == 1 ? y : kn_emit2(r->s, "Mul", y, scalar(r, alpha)));
}

/* Over the last axis; with `mean` LayerNormalization, else RMSNormalization. bias < 0: none. */
static int normalised(kn_raw *r, int x, int scale, int bias, bool mean, double fallback)
{
    kn_gattr attrs[2] = {kn_gattr_int("axis", -1), kn_gattr_float("epsilon", kn_raw_float(r, "epsilon", fallback))};
    int in[3] = {x, scale, bias};
    if (x < 0) return -1;
    if (mean) return kn_emit(r->s, "LayerNormalization", bias < 0 ? 2 : 3, in, 2, attrs);
    int y = kn_emit(r->s, "RMSNormalization", 2, in, 2, attrs);
    return bias < 0 ? y : kn_emit2(r->s, "Add", y, bias);
}

static kiln_status skip(kn_raw *r, bool mean)
{
    int at = mean ? 4 : 3; /* input, skip, gamma, [beta,] bias of the sum */
    if (!kn_raw_in(r, 0) || !kn_raw_in(r, 1) || !kn_raw_in(r, 2)) return kn_raw_bad(r, KILN_REQUEST, "input, skip and gamma are right");
    int sum = kn_emit2(r->s, "Add", r->in[0], r->in[1]);
    if (kn_raw_in(r, at)) sum = kn_emit2(r->s, "Add", sum, r->in[at]);
    kiln_status s = kn_raw_out(r, 0, normalised(r, sum, r->in[2], mean && kn_raw_in(r, 3) ? r->in[3] : -1, mean, 1e-12));
    return s == KILN_OK && kn_raw_wants(r, 3) ? kn_raw_out(r, 3, sum) : s;
}

kiln_status kn_rule_ms_skiplayernorm(kn_raw *r) { return skip(r, true); }

kiln_status kn_rule_ms_skiprmsnorm(kn_raw *r) { return skip(r, false); }

/* Of ai.onnx by name, though it never was there: an RMSNormalization as onnxruntime's optimiser writes it. */
kiln_status kn_rule_simplifiedlayernorm(kn_raw *r)
{
    if (!kn_raw_in(r, 0) || !kn_raw_in(r, 1)) return kn_raw_bad(r, KILN_REQUEST, "two inputs are right");
    return kn_raw_out(r, 0, normalised(r, r->in[0], r->in[1], -1, false, 1e-5));
}

/* ---- products with what follows them ---- */

/* What may follow a fused product: its parameters' names in ai.onnx, and what they are where the node gives none. */
static const struct follower {
    const char *op, *param[2];
    double fallback[2];
} followers[] = {{"Relu", {NULL}, {0}},
                 {"Tanh", {NULL}, {0}},
                 {"Sigmoid", {NULL}, {0}},
                 {"LeakyRelu", {"alpha"}, {0.01}},
                 {"HardSigmoid", {"alpha", "beta"}, {0.2, 0.5}},
                 {"Clip", {"min", "max"}, {-3.402823466e38, 3.402823466e38}}};

/* The node's activation with up to two parameters. */
static kiln_status followed(kn_raw *r, int y, int n, const double *params)
{
    const char *op = kn_raw_str(r, "activation", "");
    if (!*op) return kn_raw_out(r, 0, y);
    for (size_t i = 0; i < sizeof followers / sizeof *followers; i++) {
        const struct follower *f = &followers[i];
        kn_gattr attrs[2];
        int count = 0;
        if (strcmp(f->op, op)) continue;
        for (; count < 2 && f->param[count]; count++)
            attrs[count] = kn_gattr_float(f->param[count], count < n ? params[count] : f->fallback[count]);
        return kn_raw_out(r, 0, y < 0 ? -1 : kn_emit(r->s, op, 1, &y, count, attrs));
    }
    return kn_raw_bad(r, KILN_UNSUPPORTED, "activation \"%.40s\" is none of Relu, Tanh, Sigmoid, LeakyRelu, HardSigmoid, Clip", op);
}

/* Attributes of the node whose name does not begin with "activation". */
static kn_gattr *rest(kn_raw *r, int *n)
{
    kn_gattr *attrs = kn_array(r->s->a, kn_gattr, r->n->nattrs + 1);
    *n = 0;
    for (int i = 0; attrs && i < r->n->nattrs; i++)
        if (strncmp(r->n->attrs[i].name, "activation", 10)) attrs[(*n)++] = r->n->attrs[i];
    return attrs;
}

/* activation(Conv(X, W, B) + Z) */
kiln_status kn_rule_ms_fusedconv(kn_raw *r)
{
    const double *params;
    int n, nparams;
    kn_gattr *attrs = rest(r, &n);
    if (!attrs) return kn_fail(r->s->d, KILN_MEMORY, "out of memory");
    if (!kn_raw_in(r, 0) || !kn_raw_in(r, 1)) return kn_raw_bad(r, KILN_REQUEST, "an input and filters are right");
    kiln_status s = kn_raw_floats(r, -1, "activation_params", &params, &nparams);
    if (s != KILN_OK) return s;
    int y = kn_emit(r->s, "Conv", kn_raw_in(r, 2) ? 3 : 2, r->in, n, attrs);
    if (y >= 0 && kn_raw_in(r, 3)) y = kn_emit2(r->s, "Add", y, r->in[3]);
    return followed(r, y, nparams, params);
}

kiln_status kn_rule_ms_fusedgemm(kn_raw *r)
{
    static const char *const names[2] = {"activation_alpha", "activation_beta"};
    double params[2];
    int n, nparams = 0;
    kn_gattr *attrs = rest(r, &n);
    if (!attrs) return kn_fail(r->s->d, KILN_MEMORY, "out of memory");
    if (!kn_raw_in(r, 0) || !kn_raw_in(r, 1)) return kn_raw_bad(r, KILN_REQUEST, "two matrices are right");
    while (nparams < 2 && kn_node_attr(r->n, names[nparams])) params[nparams] = kn_raw_float(r, names[nparams], 0), nparams++;
    return followed(r, kn_emit(r->s, "Gemm", kn_raw_in(r, 2) ? 3 : 2, r->in, n, attrs), nparams, params);
}

kiln_status kn_rule_ms_gemmfastgelu(kn_raw *r)
{
    if (!kn_raw_in(r, 0) || !kn_raw_in(r, 1)) return kn_raw_bad(r, KILN_REQUEST, "two inputs are right");
    kn_gattr how = kn_gattr_str("approximate", "tanh");
    int x = kn_emit2(r->s, "MatMul", r->in[0], r->in[1]);
    if (kn_raw_in(r, 2)) x = kn_emit2(r->s, "Add", x, r->in[2]);
    return kn_raw_out(r, 0, x < 0 ? -1 : kn_emit(r->s, "Gelu", 1, &x, 1, &how));
}

/* x + bias a channel + what goes past */
kiln_status kn_rule_ms_biasadd(kn_raw *r)
{
    for (int i = 0; i < 3; i++)
        if (!kn_raw_in(r, i)) return kn_raw_bad(r, KILN_REQUEST, "three inputs are right");
    return kn_raw_out(r, 0, kn_emit2(r->s, "Add", kn_emit2(r->s, "Add", r->in[0], r->in[1]), r->in[2]));
}

/* ---- weights of few bits ---- */

/* Elements of `bits` (4 or 8), the low ones first, of bytes [..., n] as 32-bit floats [..., n * 8 / bits]. */
static int unpacked(kn_settle *s, int v, int64_t bits)
{
    if (v < 0 || bits == 8) return kn_emit_cast(s, v, KN_F32);
    int wide = kn_emit_cast(s, v, KN_I32), base = kn_emit_fill(s, KN_I32, 0, NULL, 16);
    int parts[2] = {kn_emit2(s, "Mod", wide, base), kn_emit2(s, "Div", wide, base)};
    if (parts[0] < 0 || parts[1] < 0) return -1;
    const kn_value *x = &s->g->values[v];
    int64_t one[KILN_MAX_RANK + 1], both[KILN_MAX_RANK];
    int rank = x->rank;
    for (int i = 0; i < rank; i++) one[i] = both[i] = x->shape[i];
    one[rank] = 1, both[rank - 1] *= 2;
    for (int i = 0; i < 2; i++) parts[i] = kn_emit_reshape(s, parts[i], rank + 1, one);
    if (parts[0] < 0 || parts[1] < 0) return -1;
    return kn_emit_cast(s, kn_emit_reshape(s, kn_emit_concat(s, 2, parts, rank), rank, both), KN_F32);
}

/* A times the transposed weights B [N, blocks, bytes], (q - zero point) * scale by blocks of K, plus bias. */
kiln_status kn_rule_ms_matmulnbits(kn_raw *r)
{
    static const int swap[2] = {1, 0};
    int64_t k = kn_raw_int(r, "K", 0), n = kn_raw_int(r, "N", 0), bits = kn_raw_int(r, "bits", 4), size = kn_raw_int(r, "block_size", 0);
    if (!kn_raw_in(r, 0) || !kn_raw_in(r, 1) || !kn_raw_in(r, 2)) return kn_raw_bad(r, KILN_REQUEST, "A, B and scales are right");
    if (kn_raw_in(r, 4)) return kn_raw_bad(r, KILN_UNSUPPORTED, "an order of groups (g_idx) is not read here");
    int64_t all = 0;
    if ((bits != 4 && bits != 8) || k < 1 || n < 1 || size < 2 || size > KILN_MAX_EXTENT || !kn_mul_fits(k + size, n, &all) || all > INT64_MAX / 8)
        return kn_raw_bad(r, KILN_REQUEST, "\"K\" and \"N\" from 1 on, \"bits\" 4 or 8 and a \"block_size\" are right");
    int64_t blocks = (k + size - 1) / size, column[3] = {n, blocks, 1}, matrix[2] = {n, blocks * size}, line[2] = {n, (blocks * bits + 7) / 8};
    if (kn_value_elems(kn_raw_in(r, 1)) != n * blocks * size * bits / 8 || kn_value_elems(kn_raw_in(r, 2)) != n * blocks)
        return kn_raw_bad(r, KILN_SHAPE, "B of [%lld, %lld, %lld] and as many scales as blocks are right", (long long)n, (long long)blocks,
                          (long long)(size * bits / 8));
    kn_settle *s = r->s;
    int64_t packed[3] = {n, blocks, size * bits / 8};
    int q = unpacked(s, kn_emit_reshape(s, r->in[1], 3, packed), bits), zero = kn_emit_fill(s, KN_F32, 0, NULL, bits == 4 ? 8 : 128);
    if (kn_raw_in(r, 3) && kn_raw_in(r, 3)->dtype != KN_U8) zero = kn_emit_reshape(s, kn_emit_cast(s, r->in[3], KN_F32), 3, column);
    if (kn_raw_in(r, 3) && kn_raw_in(r, 3)->dtype == KN_U8) {
        if (kn_value_elems(kn_raw_in(r, 3)) != line[0] * line[1])
            return kn_raw_bad(r, KILN_SHAPE, "zero points of [%lld, %lld] are right", (long long)line[0], (long long)line[1]);
        int points = unpacked(s, kn_emit_reshape(s, r->in[3], 2, line), bits);
        zero = points < 0 ? -1 : kn_emit_reshape(s, kn_emit_slice(s, points, 1, 0, blocks, 1), 3, column);
    }
    int scale = kn_emit_reshape(s, kn_emit_cast(s, r->in[2], KN_F32), 3, column);
    int w = q < 0 || zero < 0 || scale < 0 ? -1 : kn_emit2(s, "Mul", kn_emit2(s, "Sub", q, zero), scale);
    if (w >= 0) w = kn_emit_slice(s, kn_emit_reshape(s, w, 2, matrix), 1, 0, k, 1);
    if (w >= 0) w = kn_emit_cast(s, w, kn_raw_in(r, 0)->dtype);
    int y = w < 0 ? -1 : kn_emit2(s, "MatMul", r->in[0], kn_emit_transpose(s, w, swap));
    return kn_raw_out(r, 0, y >= 0 && kn_raw_in(r, 5) ? kn_emit2(s, "Add", y, r->in[5]) : y);
}
