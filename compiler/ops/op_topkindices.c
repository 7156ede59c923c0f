/* TopKIndices: where the k largest (smallest) elements along an axis stand, in order, the first of equal ones first: the rank of every element is how
 * many precede it, n comparisons an element, all independent of each other. Models have it as TopK, with the elements beside. */
#include "ops/ops.h"

enum { MOST = 16384 };
static const kn_attr_spec attrs[] = {{"k", 'i', "mandatory", "how many"},
                                     {"axis", 'i', "-1", "axis along which elements are compared"},
                                     {"largest", 'i', "1", "0: the smallest"},
                                     {"sorted", 'i', "1", "they always are"},
                                     {NULL, 0, NULL, NULL}};

/* "A0,J,A2" */
static const char *along(kn_op_call *c, int rank, int axis, const char *name)
{
    kn_buf b;
    kn_buf_init(&b, c->arena);
    for (int i = 0; i < rank; i++) {
        if (i == axis) kn_putf(&b, "%s%s", i ? "," : "", name);
        else kn_putf(&b, "%sA%d", i ? "," : "", i);
    }
    kiln_bytes t = kn_buf_take(&b);
    return t.p ? t.p : "";
}

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *x = &c->in[0];
    int64_t k = kn_attr_int(c, "k", 0);
    int axis;
    if (!x->rank) return kn_op_bad_shape(c, 0, "a rank from 1 on is right");
    if (!kn_op_axis(c, "axis", kn_attr_int(c, "axis", -1), x->rank, &axis)) return c->d->status;
    int64_t n = x->shape[axis];
    if (k < 1 || k > n) return kn_op_bad_attr(c, "k", "%lld of %lld elements", (long long)k, (long long)n);
    if (n > MOST)
        return kn_op_bad_shape(c, 0, "%lld elements along the axis are compared with each other; at most %d are supported", (long long)n, MOST);
    const char *i = along(c, x->rank, axis, "I"), *j = along(c, x->rank, axis, "J");
    kn_putf(&c->text, "g[%s] +=! select(x0[%s] %s x0[%s] || x0[%s] == x0[%s] && J < I, 1, 0) where I in %lld, J in %lld; ", i, j,
            kn_attr_int(c, "largest", 1) ? ">" : "<", i, j, i, (long long)n, (long long)n);
    kn_putf(&c->text, "y[%s] +=! select(g[%s] == K, I, 0) where K in %lld, I in %lld : i64", along(c, x->rank, axis, "K"), i, (long long)k,
            (long long)n);
    return KILN_OK;
}

const kn_op_spec kn_op_topkindices = {.name = "TopKIndices", .min_inputs = 1, .max_inputs = 1, .input_names = {"X"}, .dtypes = "fiu",
                                      .about = "where the k largest elements along an axis stand", .attrs = attrs, .lower = lower};
