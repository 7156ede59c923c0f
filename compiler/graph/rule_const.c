/* Rules of operators whose result is known when the model is compiled: constants, and shapes of values. */
#include "graph/settle.h"
#include <math.h>
#include <string.h>

static kiln_status from_tensor(kn_raw *r, const kn_value *t)
{
    int v = kn_graph_value(r->s->a, r->s->g, "");
    if (v < 0) return kn_fail(r->s->d, KILN_MEMORY, "out of memory");
    r->s->g->values[v] = *t;
    r->s->g->values[v].name = "";
    return kn_raw_out(r, 0, v);
}

kiln_status kn_rule_constant(kn_raw *r)
{
    const kn_gattr *a;
    int64_t n;
    if ((a = kn_node_attr(r->n, "value")) && a->kind == 'T') return from_tensor(r, a->tensor);
    if ((a = kn_node_attr(r->n, "value_int")) && a->kind == 'i') {
        int64_t *x = kn_new(r->s->a, int64_t);
        if (x) *x = a->i;
        return kn_raw_out(r, 0, kn_emit_constant(r->s, KN_I64, 0, NULL, x, sizeof *x, false));
    }
    if ((a = kn_node_attr(r->n, "value_float")))
        return kn_raw_out(r, 0, kn_emit_fill(r->s, KN_F32, 0, NULL, kn_raw_float(r, "value_float", 0)));
    if ((a = kn_node_attr(r->n, "value_ints")) && a->kind == 'I') return kn_raw_out(r, 0, kn_emit_ints(r->s, a->n, a->ints));
    if ((a = kn_node_attr(r->n, "value_floats")) && (a->kind == 'F' || a->kind == 'I')) {
        float *x = kn_array(r->s->a, float, a->n + 1);
        for (int i = 0; x && i < a->n; i++) x[i] = a->kind == 'F' ? (float)a->floats[i] : (float)a->ints[i];
        n = a->n;
        return kn_raw_out(r, 0, kn_emit_constant(r->s, KN_F32, 1, &n, x, (size_t)n * sizeof *x, false));
    }
    return kn_raw_bad(r, KILN_UNSUPPORTED, "one of value, value_int, value_ints, value_float, value_floats is right");
}

kiln_status kn_rule_shape(kn_raw *r)
{
    const kn_value *x = kn_raw_in(r, 0);
    if (!x) return kn_raw_bad(r, KILN_REQUEST, "input 0 is mandatory");
    int64_t from = kn_raw_int(r, "start", 0), to = kn_raw_int(r, "end", x->rank);
    from = from < 0 ? from + x->rank : from;
    to = to < 0 ? to + x->rank : to;
    from = from < 0 ? 0 : from > x->rank ? x->rank : from;
    to = to < from ? from : to > x->rank ? x->rank : to;
    int64_t shape[KILN_MAX_RANK];
    memcpy(shape, x->shape, sizeof shape);
    return kn_raw_out(r, 0, kn_emit_ints(r->s, (int)(to - from), shape + from));
}

kiln_status kn_rule_size(kn_raw *r)
{
    const kn_value *x = kn_raw_in(r, 0);
    if (!x) return kn_raw_bad(r, KILN_REQUEST, "input 0 is mandatory");
    return kn_raw_out(r, 0, kn_emit_fill(r->s, KN_I64, 0, NULL, (double)kn_value_elems(x)));
}

kiln_status kn_rule_constantofshape(kn_raw *r)
{
    const int64_t *shape;
    int n;
    int64_t elems = 1;
    const kn_gattr *value = kn_node_attr(r->n, "value");
    kiln_status s = kn_raw_ints(r, 0, NULL, &shape, &n);
    if (s != KILN_OK) return s;
    if (n < 0 || n > KILN_MAX_RANK) return kn_raw_bad(r, KILN_LIMIT, "up to %d extents are right", KILN_MAX_RANK);
    for (int i = 0; i < n; i++)
        if (shape[i] < 0 || shape[i] > KILN_MAX_EXTENT || !kn_mul_fits(elems, shape[i], &elems) || elems > KILN_MAX_ELEMENTS)
            return kn_raw_bad(r, KILN_LIMIT, "extent %d is %lld", i, (long long)shape[i]);
    if (!value) return kn_raw_out(r, 0, kn_emit_fill(r->s, KN_F32, n, shape, 0));
    if (value->kind != 'T' || !value->tensor->data || !value->tensor->data->bytes || kn_value_elems(value->tensor) != 1)
        return kn_raw_bad(r, KILN_REQUEST, "attribute \"value\" must be a tensor of one element");
    return kn_raw_out(r, 0,
                      kn_emit_constant(r->s, value->tensor->dtype, n, shape, value->tensor->data->bytes,
                                       (size_t)kn_dtype_bytes(value->tensor->dtype), true));
}

kiln_status kn_rule_range(kn_raw *r)
{
    double x[3];
    for (int i = 0; i < 3; i++) {
        if (!kn_raw_known(r, i) || kn_value_elems(kn_raw_in(r, i)) != 1)
            return kn_raw_bad(r, KILN_UNSUPPORTED, "input %d must be a constant of one element", i);
        x[i] = kn_value_double(kn_raw_in(r, i), 0);
    }
    enum kn_dtype t = kn_raw_in(r, 0)->dtype;
    double count = ceil((x[1] - x[0]) / x[2]);
    if (!(count <= KILN_MAX_GRAPH_FOLD)) return kn_raw_bad(r, KILN_LIMIT, "more than %d elements", KILN_MAX_GRAPH_FOLD);
    int64_t n = count > 0 ? (int64_t)count : 0;
    size_t size = (size_t)kn_dtype_bytes(t);
    uint8_t *bytes = kn_alloc(r->s->a, (size_t)n * size + 1);
    for (int64_t i = 0; bytes && i < n; i++) kn_element_store(t, bytes + (size_t)i * size, x[0] + (double)i * x[2]);
    return kn_raw_out(r, 0, kn_emit_constant(r->s, t, 1, &n, bytes, (size_t)n * size, false));
}

kiln_status kn_rule_eyelike(kn_raw *r)
{
    const kn_value *x = kn_raw_in(r, 0);
    if (!x || x->rank != 2) return kn_raw_bad(r, KILN_SHAPE, "a matrix is right");
    enum kn_dtype t = x->dtype;
    int64_t k = kn_raw_int(r, "k", 0), shape[2] = {x->shape[0], x->shape[1]}, n = kn_value_elems(x);
    if (kn_node_attr(r->n, "dtype") && !kn_onnx_dtype(kn_raw_int(r, "dtype", 1), &t)) return kn_raw_bad(r, KILN_DTYPE, "no such dtype");
    if (n > KILN_MAX_GRAPH_FOLD) return kn_raw_bad(r, KILN_LIMIT, "more than %d elements", KILN_MAX_GRAPH_FOLD);
    size_t size = (size_t)kn_dtype_bytes(t);
    uint8_t *bytes = kn_alloc(r->s->a, (size_t)n * size + 1);
    for (int64_t i = 0; bytes && i < n; i++) kn_element_store(t, bytes + (size_t)i * size, i % shape[1] - i / shape[1] == k);
    return kn_raw_out(r, 0, kn_emit_constant(r->s, t, 2, shape, bytes, (size_t)n * size, false));
}
