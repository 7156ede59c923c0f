/* Rules of the fused operators of domain com.microsoft that onnxruntime's optimiser and exporters leave in models, in ai.onnx's words; of TopK. */
#include "graph/settle.h"

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

/* Values and places; k is an input from opset 10 on. */
kiln_status kn_rule_topk(kn_raw *r)
{
    const int64_t *list;
    int n;
    if (!kn_raw_in(r, 0)) return kn_raw_bad(r, KILN_REQUEST, "an input is right");
    kiln_status s = kn_raw_ints(r, 1, "k", &list, &n);
    if (s != KILN_OK) return s;
    if (n != 1) return kn_raw_bad(r, KILN_REQUEST, "\"k\" must be one number");
    kn_gattr attrs[3] = {kn_gattr_int("k", list[0]), kn_gattr_int("axis", kn_raw_int(r, "axis", -1)),
                         kn_gattr_int("largest", kn_raw_int(r, "largest", 1))};
    int places = kn_emit(r->s, "TopKIndices", 1, r->in, 3, attrs), in[2] = {r->in[0], places};
    if (places < 0) return r->s->d->status;
    s = kn_raw_wants(r, 0) ? kn_raw_out(r, 0, kn_emit(r->s, "GatherElements", 2, in, 1, &attrs[1])) : KILN_OK;
    return s == KILN_OK && kn_raw_wants(r, 1) ? kn_raw_out(r, 1, places) : s;
}

/* The older name of ScatterElements. */
kiln_status kn_rule_scatter(kn_raw *r) { return kn_raw_plain(r, "ScatterElements", 0, NULL); }
