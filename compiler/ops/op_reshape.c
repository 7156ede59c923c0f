/* Reshape: the same elements in the same order with other extents. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"shape", 'I', "mandatory", "extents; one may be -1 (the rest), 0 is that of the input"},
                                     {"allowzero", 'i', "0", "must be 0"},
                                     {NULL, 0, NULL, NULL}};

static kiln_status extents(kn_op_call *c, int64_t *shape, int *rank)
{
    const kn_operand *x = &c->in[0];
    const kn_attr *to = kn_attr_get(c, "shape");
    int64_t all = 1, some = 1;
    int rest = -1;
    if (!to || to->n > KILN_MAX_RANK) return kn_op_bad_attr(c, "shape", "up to %d extents are right", KILN_MAX_RANK);
    for (int i = 0; i < x->rank; i++) all *= x->shape[i]; /* at most 2^40 */
    for (int i = 0; i < to->n; i++) {
        int64_t n = to->list[i] == 0 && i < x->rank ? x->shape[i] : to->list[i];
        if (n == -1 && rest < 0) {
            rest = i;
            continue;
        }
        if (n < 1 || !kn_mul_fits(some, n, &some)) return kn_op_bad_attr(c, "shape", "extent %d is %lld", i, (long long)n);
        shape[i] = n;
    }
    if (rest >= 0) shape[rest] = all / some;
    if (rest >= 0 ? all % some != 0 : all != some) return kn_op_bad_attr(c, "shape", "%lld elements do not fill the shape", (long long)all);
    *rank = to->n;
    return KILN_OK;
}

/* Index text of input axes from..to-1, which hold the same elements as output axes ofrom..oto-1, row by row. */
static void group(kn_op_call *c, int from, int to, const int64_t *shape, int ofrom, int oto)
{
    const kn_operand *x = &c->in[0];
    int64_t step = 1, stride = 1;
    const char *at = NULL;
    for (int k = oto - 1; k >= ofrom; k--) {
        const char *term = step == 1 ? kn_format(c->arena, "A%d", k) : kn_format(c->arena, "A%d*%lld", k, (long long)step);
        if (shape[k] != 1) at = at ? kn_format(c->arena, "%s + %s", term, at) : term;
        step *= shape[k];
    }
    for (int i = from; i < to; i++) stride *= x->shape[i];
    for (int i = from; i < to; i++) {
        int64_t above = stride;
        stride /= x->shape[i];
        if (i) kn_put(&c->text, ",");
        if (x->shape[i] == 1)
            kn_put(&c->text, "0");
        else if (above == step && stride == 1)
            kn_put(&c->text, at);
        else if (stride == 1)
            kn_putf(&c->text, "(%s) %% %lld", at, (long long)x->shape[i]);
        else if (above == step)
            kn_putf(&c->text, "(%s) // %lld", at, (long long)stride);
        else
            kn_putf(&c->text, "(%s) // %lld %% %lld", at, (long long)stride, (long long)x->shape[i]);
    }
}

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *x = &c->in[0];
    int64_t shape[KILN_MAX_RANK];
    int rank = 0;
    if (kn_attr_int(c, "allowzero", 0)) return kn_op_bad_attr(c, "allowzero", "only 0 is supported");
    kiln_status s = extents(c, shape, &rank);
    if (s != KILN_OK) return s;
    kn_putf(&c->text, "y[%s] = x0[", kn_op_axes(c, "A", rank));
    for (int i = 0, k = 0, i0, k0; i < x->rank || k < rank;) { /* the least groups of axes with as many elements on both sides */
        int64_t a = 1, b = 1;
        i0 = i, k0 = k;
        do {
            if (a <= b && i < x->rank)
                a *= x->shape[i++];
            else if (k < rank)
                b *= shape[k++];
            else
                a *= x->shape[i++];
        } while (a != b);
        group(c, i0, i, shape, k0, k);
    }
    kn_put(&c->text, "]");
    kn_op_extents(c, "A", rank, shape);
    return KILN_OK;
}

const kn_op_spec kn_op_reshape = {.name = "Reshape",
                                  .min_inputs = 1,
                                  .max_inputs = 1,
                                  .input_names = {"data"},
                                  .dtypes = "fiub",
                                  .about = "the same elements in the same order with other extents",
                                  .attrs = attrs,
                                  .lower = lower};
