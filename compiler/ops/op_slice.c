/* Slice: a range of every axis, with a step that may be negative. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"starts", 'I', "mandatory", "first element; negative counts from the end, beyond the ends is cut"},
                                     {"ends", 'I', "mandatory", "element behind the last"},
                                     {"axes", 'I', "0, 1, ...", "axes that starts and ends are of"},
                                     {"steps", 'I', "1...", "step, not 0"},
                                     {NULL, 0, NULL, NULL}};

static int64_t cut(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

/* Elements of the range, normalised as NumPy does. */
static int64_t range(int64_t n, int64_t *start, int64_t end, int64_t step)
{
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    *start = cut(*start < 0 ? *start + n : *start, step < 0 ? -1 : 0, high);
    end = cut(end < 0 ? end + n : end, low, high);
    int64_t span = step > 0 ? end - *start : *start - end, by = step > 0 ? step : -step;
    return span <= 0 ? 0 : (span - 1) / by + 1;
}

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *x = &c->in[0];
    const kn_attr *starts = kn_attr_get(c, "starts"), *ends = kn_attr_get(c, "ends"), *axes = kn_attr_get(c, "axes"),
                  *steps = kn_attr_get(c, "steps");
    int64_t start[KILN_MAX_RANK] = {0}, step[KILN_MAX_RANK], shape[KILN_MAX_RANK];
    uint32_t seen = 0;
    for (int i = 0; i < x->rank; i++) step[i] = 1, shape[i] = x->shape[i];
    if (!starts || !ends || ends->n != starts->n)
        return kn_op_bad_attr(c, starts ? "ends" : "starts", "\"starts\" and \"ends\" must have equal length");
    if (axes && axes->n != starts->n) return kn_op_bad_attr(c, "axes", "%d axes for %d starts", axes->n, starts->n);
    if (steps && steps->n != starts->n) return kn_op_bad_attr(c, "steps", "%d steps for %d starts", steps->n, starts->n);
    for (int k = 0; k < starts->n; k++) {
        int i;
        if (!kn_op_axis(c, "axes", axes ? axes->list[k] : k, x->rank, &i)) return c->d->status;
        if (seen >> i & 1) return kn_op_bad_attr(c, "axes", "axis %d is named twice", i);
        seen |= 1u << i;
        step[i] = steps ? steps->list[k] : 1;
        if (!step[i] || step[i] < -KILN_MAX_EXTENT) return kn_op_bad_attr(c, "steps", "a step of %lld", (long long)step[i]);
        start[i] = starts->list[k];
        shape[i] = range(x->shape[i], &start[i], ends->list[k], step[i]);
        if (!shape[i]) return kn_op_bad_attr(c, "starts", "no element of axis %d is left", i);
    }
    kn_putf(&c->text, "y[%s] = x0[", kn_op_axes(c, "A", x->rank));
    for (int i = 0; i < x->rank; i++) {
        kn_putf(&c->text, "%sA%d", i ? "," : "", i);
        if (step[i] != 1) kn_putf(&c->text, "*%lld", (long long)step[i]);
        if (start[i]) kn_putf(&c->text, "+%lld", (long long)start[i]);
    }
    kn_put(&c->text, "]");
    kn_op_extents(c, "A", x->rank, shape);
    return KILN_OK;
}

const kn_op_spec kn_op_slice = {.name = "Slice",
                                .min_inputs = 1,
                                .max_inputs = 1,
                                .input_names = {"data"},
                                .dtypes = "fiub",
                                .about = "a range of every axis",
                                .attrs = attrs,
                                .lower = lower};
