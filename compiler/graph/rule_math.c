/* Rules of operators that compute: forms that versions of ONNX changed, and outputs beside the first. */
#include "graph/settle.h"
#include <string.h>

static const struct {
    int64_t number;
    const char *name;
    int dtype;
} onnx_dtypes[] = {
    {1, "float", KN_F32},      {2, "uint8", KN_U8},      {3, "int8", KN_I8},         {4, "uint16", -1},      {5, "int16", KN_I16},
    {6, "int32", KN_I32},      {7, "int64", KN_I64},     {8, "string", -1},          {9, "bool", KN_BOOL},   {10, "float16", KN_F16},
    {11, "double", KN_F64},    {12, "uint32", -1},       {13, "uint64", -1},         {14, "complex64", -1},  {15, "complex128", -1},
    {16, "bfloat16", KN_BF16}, {17, "float8e4m3fn", KN_F8E4M3}, {18, "float8e4m3fnuz", -1}, {19, "float8e5m2", KN_F8E5M2}, {20, "float8e5m2fnuz", -1},
    {21, "uint4", -1},         {22, "int4", -1},         {23, "float4e2m1", -1},     {24, "float8e8m0", -1}, {25, "uint2", -1},
    {26, "int2", -1}};

bool kn_onnx_dtype(int64_t number, enum kn_dtype *out)
{
    for (size_t i = 0; i < sizeof onnx_dtypes / sizeof *onnx_dtypes; i++)
        if (onnx_dtypes[i].number == number && onnx_dtypes[i].dtype >= 0) {
            *out = (enum kn_dtype)onnx_dtypes[i].dtype;
            return true;
        }
    return false;
}

const char *kn_onnx_dtype_name(int64_t number)
{
    for (size_t i = 0; i < sizeof onnx_dtypes / sizeof *onnx_dtypes; i++)
        if (onnx_dtypes[i].number == number) return onnx_dtypes[i].name;
    return "an unknown dtype";
}

/* Floats of 8 bits saturate here; with "saturate" 0 ONNX wants infinity, or NaN where there is none, for what rounds beyond the largest value. */
static kiln_status cast_to(kn_raw *r, enum kn_dtype t)
{
    int x = r->in[0], y = kn_emit_cast(r->s, x, t);
    if (y < 0 || !kn_is_f8(t) || kn_raw_int(r, "saturate", 1) || kn_dtype_class(kn_raw_in(r, 0)->dtype) != 'f') return kn_raw_out(r, 0, y);
    static const uint8_t nan = 0x7f, infinity = 0x7c, minus = 0xfc;
    bool e4m3 = t == KN_F8E4M3;
    double beyond = e4m3 ? 464 : 61440; /* a tie, which goes to the even neighbour: for e4m3 that is the largest value */
    int size = kn_emit1(r->s, "Abs", x), limit = kn_emit_scalar_like(r->s, x, beyond), wild;
    int over = size < 0 || limit < 0 ? -1 : kn_emit2(r->s, e4m3 ? "Greater" : "GreaterOrEqual", size, limit);
    if (e4m3) {
        wild = kn_emit_constant(r->s, t, 0, NULL, &nan, 1, false);
    } else {
        int in[3] = {kn_emit2(r->s, "Less", x, kn_emit_scalar_like(r->s, x, 0)), kn_emit_constant(r->s, t, 0, NULL, &minus, 1, false),
                     kn_emit_constant(r->s, t, 0, NULL, &infinity, 1, false)};
        wild = in[0] < 0 || in[1] < 0 || in[2] < 0 ? -1 : kn_emit(r->s, "Where", 3, in, 0, NULL);
    }
    if (over < 0 || wild < 0) return r->s->d->status;
    return kn_raw_out(r, 0, kn_emit(r->s, "Where", 3, (int[]){over, wild, y}, 0, NULL));
}

/* "to": ONNX's number, or in Graph JSON the dtype's name. */
kiln_status kn_rule_cast(kn_raw *r)
{
    enum kn_dtype t;
    const kn_gattr *to = kn_node_attr(r->n, "to");
    if (!to || !kn_raw_in(r, 0)) return kn_raw_bad(r, KILN_REQUEST, "an input and attribute \"to\" are mandatory");
    if (to->kind == 'i' && !kn_onnx_dtype(to->i, &t)) return kn_raw_bad(r, KILN_DTYPE, "there is no %s here", kn_onnx_dtype_name(to->i));
    if (to->kind == 's' && !kn_dtype_find(to->s, strlen(to->s), &t)) return kn_raw_bad(r, KILN_DTYPE, "no dtype \"%.40s\"", to->s);
    if (!strchr("is", to->kind)) return kn_raw_bad(r, KILN_REQUEST, "attribute \"to\" must be a dtype");
    return cast_to(r, t);
}

kiln_status kn_rule_castlike(kn_raw *r)
{
    if (!kn_raw_in(r, 0) || !kn_raw_in(r, 1)) return kn_raw_bad(r, KILN_REQUEST, "two inputs are right");
    return cast_to(r, kn_raw_in(r, 1)->dtype);
}

/* Bounds that are constants become attributes (as they were before opset 11): no kernel then reads them from memory. */
kiln_status kn_rule_clip(kn_raw *r)
{
    static const char *const names[] = {NULL, "min", "max"};
    kn_gattr attrs[2];
    int nattrs = 0, in[3] = {r->nin ? r->in[0] : -1, -1, -1}, nin = 1;
    for (int k = 1; k < 3; k++) {
        if (kn_raw_known(r, k) && kn_value_elems(kn_raw_in(r, k)) == 1)
            attrs[nattrs++] = kn_gattr_float(names[k], kn_value_double(kn_raw_in(r, k), 0));
        else if (kn_raw_in(r, k))
            in[k] = r->in[k], nin = k + 1;
        else if (kn_node_attr(r->n, names[k]))
            attrs[nattrs++] = *kn_node_attr(r->n, names[k]);
    }
    return kn_raw_out(r, 0, kn_emit(r->s, "Clip", nin, in, nattrs, attrs));
}

/* Small whole powers are products, one half is a root. */
kiln_status kn_rule_pow(kn_raw *r)
{
    const kn_value *x = kn_raw_in(r, 0), *y = kn_raw_in(r, 1);
    if (x && y && kn_raw_known(r, 1) && (kn_value_elems(y) == 1 || y->data->splat) && y->rank <= x->rank &&
        kn_dtype_class(x->dtype) == 'f') {
        bool grows = kn_value_elems(y) != 1;
        double p = kn_value_double(y, 0);
        if (p == 1 && !grows) return kn_raw_out(r, 0, r->in[0]);
        if (p == 2 && !grows) return kn_raw_out(r, 0, kn_emit2(r->s, "Mul", r->in[0], r->in[0]));
        if (p == 3 && !grows) return kn_raw_out(r, 0, kn_emit2(r->s, "Mul", kn_emit2(r->s, "Mul", r->in[0], r->in[0]), r->in[0]));
        if (p == 0.5 && !grows) return kn_raw_out(r, 0, kn_emit1(r->s, "Sqrt", r->in[0]));
        if (p == -1 && !grows) return kn_raw_out(r, 0, kn_emit1(r->s, "Reciprocal", r->in[0]));
    }
    return kn_raw_plain(r, "Pow", 0, NULL);
}

/* More operands than a row takes go in groups; one alone is itself. */
static int variadic(kn_settle *s, const char *op, int n, const int *in)
{
    int some[KN_OP_INPUTS], groups = 0, each = (n + KN_OP_INPUTS - 1) / KN_OP_INPUTS;
    if (n == 1) return in[0];
    if (n <= KN_OP_INPUTS) return kn_emit(s, op, n, in, 0, NULL);
    for (int i = 0; i < n; i += each)
        if ((some[groups++] = variadic(s, op, n - i < each ? n - i : each, in + i)) < 0) return -1;
    return variadic(s, op, groups, some);
}

static kiln_status all_present(kn_raw *r)
{
    for (int i = 0; i < r->nin; i++)
        if (r->in[i] < 0) return kn_raw_bad(r, KILN_REQUEST, "input %d is left out", i);
    return r->nin ? KILN_OK : kn_raw_bad(r, KILN_REQUEST, "one input or more is right");
}

kiln_status kn_rule_variadic(kn_raw *r)
{
    kiln_status s = all_present(r);
    return s == KILN_OK ? kn_raw_out(r, 0, variadic(r->s, r->n->op, r->nin, r->in)) : s;
}

kiln_status kn_rule_mean(kn_raw *r)
{
    kiln_status s = all_present(r);
    if (s != KILN_OK || r->nin <= KN_OP_INPUTS) return s == KILN_OK ? kn_raw_out(r, 0, kn_emit(r->s, "Mean", r->nin, r->in, 0, NULL)) : s;
    int sum = variadic(r->s, "Sum", r->nin, r->in);
    return kn_raw_out(r, 0, kn_emit2(r->s, "Div", sum, kn_emit_scalar_like(r->s, sum, r->nin)));
}

/* Before opset 13 the axes from `axis` on (default 1) were taken as one. */
kiln_status kn_rule_softmax(kn_raw *r)
{
    const kn_value *x = kn_raw_in(r, 0);
    int axis;
    if (!x) return kn_raw_bad(r, KILN_REQUEST, "input 0 is mandatory");
    kiln_status s = kn_raw_axis(r, kn_raw_int(r, "axis", r->opset < 13 ? 1 : -1), x->rank, &axis);
    if (s != KILN_OK) return s;
    if (r->opset >= 13 || axis == x->rank - 1) {
        kn_gattr a = kn_gattr_int("axis", axis);
        return kn_raw_out(r, 0, kn_emit(r->s, r->n->op, 1, r->in, 1, &a));
    }
    int64_t shape[KILN_MAX_RANK], flat[2] = {1, 1};
    int rank = x->rank;
    memcpy(shape, x->shape, sizeof shape);
    for (int i = 0; i < rank; i++) flat[i >= axis] *= shape[i];
    int y = kn_emit1(r->s, r->n->op, kn_emit_reshape(r->s, r->in[0], 2, flat));
    return kn_raw_out(r, 0, kn_emit_reshape(r->s, y, rank, shape));
}

/* was * momentum + now * (1 - momentum), as output k. */
static kiln_status running(kn_raw *r, int k, int was, int now)
{
    double momentum = kn_raw_float(r, "momentum", 0.9);
    if (!kn_raw_wants(r, k)) return KILN_OK;
    int kept = kn_emit2(r->s, "Mul", was, kn_emit_scalar_like(r->s, was, momentum));
    int added = kn_emit2(r->s, "Mul", now, kn_emit_scalar_like(r->s, now, 1 - momentum));
    return kn_raw_out(r, k, kn_emit2(r->s, "Add", kept, added));
}

/* Training: mean and variance (of the population) are the batch's own, in place of the given ones. */
static kiln_status batch_moments(kn_raw *r, int in[5])
{
    const kn_value *x = kn_raw_in(r, 0);
    int rank = x->rank;
    int64_t list[KILN_MAX_RANK], each[KILN_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        each[i] = i == 1 ? x->shape[1] : 1;
        if (i != 1) list[i ? i - 1 : 0] = i;
    }
    kn_gattr drop[] = {kn_gattr_ints(r->s->a, "axes", rank - 1, list), kn_gattr_int("keepdims", 0)};
    in[3] = kn_emit(r->s, "ReduceMean", 1, in, 2, drop);
    int away = in[3] < 0 ? -1 : kn_emit2(r->s, "Sub", in[0], kn_emit_reshape(r->s, in[3], rank, each)), square = kn_emit2(r->s, "Mul", away, away);
    in[4] = square < 0 ? -1 : kn_emit(r->s, "ReduceMean", 1, &square, 2, drop);
    kiln_status s = running(r, 1, r->in[3], in[3]);
    return s == KILN_OK ? running(r, 2, r->in[4], in[4]) : s;
}

kiln_status kn_rule_batchnormalization(kn_raw *r)
{
    int in[5];
    for (int i = 0; i < 5; i++) {
        if (!kn_raw_in(r, i)) return kn_raw_bad(r, KILN_REQUEST, "input %d is mandatory", i);
        in[i] = r->in[i];
    }
    if (!kn_raw_int(r, "spatial", 1)) return kn_raw_bad(r, KILN_UNSUPPORTED, "spatial 0 is not supported");
    if (kn_raw_in(r, 0)->rank < 2) return kn_raw_bad(r, KILN_REQUEST, "input 0 has no channels; [N, C, ...] is right");
    kiln_status s = kn_raw_int(r, "training_mode", 0) ? batch_moments(r, in) : KILN_OK;
    kn_gattr a = kn_gattr_float("epsilon", kn_raw_float(r, "epsilon", 1e-5));
    return s == KILN_OK ? kn_raw_out(r, 0, kn_emit(r->s, "BatchNormalization", 5, in, 1, &a)) : s;
}

/* Before opset 21 scale and bias were one number a group: each stands for its channels. */
static int each_channel(kn_settle *s, int v, int64_t groups, int64_t channels)
{
    int64_t column[2] = {groups, 1}, wide[2] = {groups, channels / groups};
    kn_gattr shape = kn_gattr_ints(s->a, "shape", 2, wide);
    int x = kn_emit_reshape(s, v, 2, column);
    if (x < 0) return -1;
    return kn_emit_reshape(s, wide[1] == 1 ? x : kn_emit(s, "Expand", 1, &x, 1, &shape), 1, &channels);
}

kiln_status kn_rule_groupnormalization(kn_raw *r)
{
    const kn_value *x = kn_raw_in(r, 0);
    int64_t groups = kn_raw_int(r, "num_groups", 0);
    if (!x || !kn_raw_in(r, 1) || !kn_raw_in(r, 2) || x->rank < 2 || groups < 1 || x->shape[1] % groups)
        return kn_raw_bad(r, KILN_REQUEST, "three inputs and \"num_groups\", which divides the channels, are right");
    int64_t channels = x->shape[1];
    int in[3] = {r->in[0], r->in[1], r->in[2]};
    for (int k = 1; k < 3; k++) {
        const kn_value *v = kn_raw_in(r, k);
        if (v->rank == 1 && v->shape[0] == groups && groups != channels && (in[k] = each_channel(r->s, in[k], groups, channels)) < 0)
            return r->s->d->status;
    }
    kn_gattr attrs[] = {kn_gattr_int("num_groups", groups), kn_gattr_float("epsilon", kn_raw_float(r, "epsilon", 1e-5))};
    return kn_raw_out(r, 0, kn_emit(r->s, "GroupNormalization", 3, in, 2, attrs));
}

/* Mean and 1 / deviation are computed apart where they are wanted. */
static kiln_status layer_moments(kn_raw *r)
{
    const kn_value *x = kn_raw_in(r, 0);
    int axis;
    int64_t list[KILN_MAX_RANK];
    kiln_status s = kn_raw_axis(r, kn_raw_int(r, "axis", -1), x->rank, &axis);
    if (s != KILN_OK) return s;
    for (int i = axis; i < x->rank; i++) list[i - axis] = i;
    kn_gattr axes = kn_gattr_ints(r->s->a, "axes", x->rank - axis, list);
    int mean = kn_emit(r->s, "ReduceMean", 1, r->in, 1, &axes);
    if (kn_raw_wants(r, 2)) {
        int away = kn_emit2(r->s, "Sub", r->in[0], mean), square = kn_emit2(r->s, "Mul", away, away);
        int variance = square < 0 ? -1 : kn_emit(r->s, "ReduceMean", 1, &square, 1, &axes);
        int moved = kn_emit2(r->s, "Add", variance, kn_emit_scalar_like(r->s, variance, kn_raw_float(r, "epsilon", 1e-5)));
        if ((s = kn_raw_out(r, 2, kn_emit1(r->s, "Reciprocal", kn_emit1(r->s, "Sqrt", moved)))) != KILN_OK) return s;
    }
    return kn_raw_out(r, 1, mean);
}

kiln_status kn_rule_layernormalization(kn_raw *r)
{
    if (!kn_raw_in(r, 0)) return kn_raw_bad(r, KILN_REQUEST, "input 0 is mandatory");
    kiln_status s = kn_raw_plain(r, "LayerNormalization", 0, NULL);
    if (s == KILN_OK && (kn_raw_wants(r, 1) || kn_raw_wants(r, 2))) s = layer_moments(r);
    return s;
}

/* storage_order orders the second output, which is not computed. */
kiln_status kn_rule_maxpool(kn_raw *r)
{
    kn_gattr *attrs = kn_array(r->s->a, kn_gattr, r->n->nattrs + 1);
    int n = 0;
    if (!attrs) return kn_fail(r->s->d, KILN_MEMORY, "out of memory");
    for (int i = 0; i < r->n->nattrs; i++)
        if (strcmp(r->n->attrs[i].name, "storage_order")) attrs[n++] = r->n->attrs[i];
    return kn_raw_out(r, 0, kn_emit(r->s, "MaxPool", r->nin, r->in, n, attrs));
}
