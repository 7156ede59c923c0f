/* What lowerings share: attributes, refusals with their pointer, axis lists, broadcasting, and the families with one text. */
#include "ops/ops.h"
#include <stdio.h>
#include <string.h>

const kn_attr *kn_attr_get(const kn_op_call *c, const char *name)
{
    for (int i = 0; i < c->nattrs; i++)
        if (!strcmp(c->attrs[i].name, name)) return &c->attrs[i];
    return NULL;
}

int64_t kn_attr_int(const kn_op_call *c, const char *name, int64_t fallback)
{
    const kn_attr *a = kn_attr_get(c, name);
    return a ? a->i : fallback;
}

double kn_attr_float(const kn_op_call *c, const char *name, double fallback)
{
    const kn_attr *a = kn_attr_get(c, name);
    return !a ? fallback : a->kind == 'i' ? (double)a->i : a->f;
}

const char *kn_attr_str(const kn_op_call *c, const char *name, const char *fallback)
{
    const kn_attr *a = kn_attr_get(c, name);
    return a ? a->s : fallback;
}

static kiln_status refuse(kn_op_call *c, kiln_status s, const char *pointer, const char *fmt, va_list ap)
{
    char text[400];
    vsnprintf(text, sizeof text, fmt, ap);
    return kn_fail_at(c->d, s, pointer, "%s", text);
}

kiln_status kn_op_bad_shape(kn_op_call *c, int input, const char *fmt, ...)
{
    char pointer[64];
    snprintf(pointer, sizeof pointer, "/inputs/%d/shape", input);
    va_list ap;
    va_start(ap, fmt);
    kiln_status s = refuse(c, KILN_SHAPE, pointer, fmt, ap);
    va_end(ap);
    return s;
}

kiln_status kn_op_bad_attr(kn_op_call *c, const char *name, const char *fmt, ...)
{
    char pointer[160];
    snprintf(pointer, sizeof pointer, "/op/attrs/%s", name);
    va_list ap;
    va_start(ap, fmt);
    kiln_status s = refuse(c, KILN_REQUEST, pointer, fmt, ap);
    va_end(ap);
    return s;
}

static bool half(enum kn_dtype t) { return kn_dtype_acc(t) != t && kn_dtype_class(t) == 'f'; }

void kn_op_load(kn_op_call *c, int input, const char *index)
{
    if (half(c->in[input].dtype)) kn_putf(&c->text, "cast(x%d[%s],f32)", input, index);
    else kn_putf(&c->text, "x%d[%s]", input, index);
}

const char *kn_op_wide(const kn_op_call *c) { return half(c->in[0].dtype) ? " : f32" : ""; }

void kn_op_end(kn_op_call *c)
{
    if (half(c->in[0].dtype)) kn_putf(&c->text, " : %s", kn_dtype_text(c->in[0].dtype));
}

const char *kn_op_axes(kn_op_call *c, const char *prefix, int n)
{
    kn_buf b;
    kn_buf_init(&b, c->arena);
    for (int i = 0; i < n; i++) kn_putf(&b, "%s%s%d", i ? "," : "", prefix, i);
    const char *t = kn_buf_take(&b).p;
    return t ? t : "";
}

bool kn_op_axis(kn_op_call *c, const char *attr, int64_t axis, int rank, int *out)
{
    if (axis < -rank || axis >= rank) {
        kn_op_bad_attr(c, attr, "axis %lld is outside of a tensor of rank %d", (long long)axis, rank);
        kn_hint(c->d, "from %d to %d", -rank, rank - 1);
        return false;
    }
    *out = (int)(axis < 0 ? axis + rank : axis);
    return true;
}

const char *kn_op_broadcast(kn_op_call *c, int input, const char *prefix, int rank)
{
    kn_buf b;
    kn_buf_init(&b, c->arena);
    const kn_operand *x = &c->in[input];
    for (int i = 0; i < x->rank; i++) {
        int axis = rank - x->rank + i;
        if (i) kn_put(&b, ",");
        if (x->shape[i] == 1) kn_put(&b, "0");
        else kn_putf(&b, "%s%d", prefix, axis);
    }
    kiln_bytes t = kn_buf_take(&b);
    return t.p ? t.p : "";
}

/* " where A0 in 3, ..." for output axes that no operand carries bare (extent 1). */
static void ones(kn_op_call *c, const int64_t *shape, int rank)
{
    const char *word = " where ";
    for (int i = 0; i < rank; i++) {
        if (shape[i] != 1) continue;
        kn_putf(&c->text, "%sA%d in 1", word, i);
        word = ", ";
    }
}

/* body with every %s replaced by input 0 at its own axes. */
static void element(kn_op_call *c, const char *body)
{
    const char *axes = kn_op_axes(c, "A", c->in[0].rank), *hole;
    for (; (hole = strstr(body, "%s")); body = hole + 2) {
        kn_putn(&c->text, body, (size_t)(hole - body));
        kn_op_load(c, 0, axes);
    }
    kn_put(&c->text, body);
}

kiln_status kn_op_unary(kn_op_call *c, const char *body)
{
    kn_putf(&c->text, "y[%s] = ", kn_op_axes(c, "A", c->in[0].rank));
    element(c, body);
    kn_op_end(c);
    return KILN_OK;
}

kiln_status kn_op_binary(kn_op_call *c, const char *op)
{
    int rank = c->in[0].rank > c->in[1].rank ? c->in[0].rank : c->in[1].rank;
    int64_t shape[KILN_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        int64_t d[2];
        for (int k = 0; k < 2; k++) {
            int at = i - (rank - c->in[k].rank);
            d[k] = at < 0 ? 1 : c->in[k].shape[at];
        }
        if (d[0] != d[1] && d[0] != 1 && d[1] != 1)
            return kn_op_bad_shape(c, 1, "dimensions %lld and %lld (axis %d of the result) do not broadcast", (long long)d[0],
                                   (long long)d[1], i);
        shape[i] = d[0] == 1 ? d[1] : d[0];
    }
    kn_putf(&c->text, "y[%s] = ", kn_op_axes(c, "A", rank));
    kn_op_load(c, 0, kn_op_broadcast(c, 0, "A", rank));
    kn_putf(&c->text, " %s ", op);
    kn_op_load(c, 1, kn_op_broadcast(c, 1, "A", rank));
    ones(c, shape, rank);
    kn_op_end(c);
    return KILN_OK;
}

const kn_attr_spec kn_reduce_attrs[] = {{"axes", 'I', "all axes", "axes to reduce; negative counts from the end"},
                                        {"keepdims", 'i', "1", "1 keeps reduced dimensions with size 1"},
                                        {"noop_with_empty_axes", 'i', "0", "1: no axes means no reduction"},
                                        {NULL, 0, NULL, NULL}};

kiln_status kn_op_reduce_axes(kn_op_call *c, kn_reduction *r)
{
    int rank = c->in[0].rank;
    const kn_attr *axes = kn_attr_get(c, "axes");
    *r = (kn_reduction){.keepdims = kn_attr_int(c, "keepdims", 1) != 0};
    for (int i = 0; axes && i < axes->n; i++) {
        int at;
        if (!kn_op_axis(c, "axes", axes->list[i], rank, &at)) return c->d->status;
        if (r->gone >> at & 1) return kn_op_bad_attr(c, "axes", "axis %d is named twice", at);
        r->gone |= 1u << at;
    }
    if (!r->gone && !kn_attr_int(c, "noop_with_empty_axes", 0)) r->gone = (1u << rank) - 1;
    return KILN_OK;
}

double kn_op_reduce_count(const kn_op_call *c, const kn_reduction *r)
{
    double count = 1;
    for (int i = 0; i < c->in[0].rank; i++) count *= r->gone >> i & 1 ? (double)c->in[0].shape[i] : 1;
    return count;
}

void kn_op_reduce_left(kn_op_call *c, const char *name, const kn_reduction *r, bool keepdims)
{
    const char *comma = "";
    kn_putf(&c->text, "%s[", name);
    for (int i = 0; i < c->in[0].rank; i++) {
        bool reduced = r->gone >> i & 1;
        if (reduced && !keepdims) continue;
        kn_putf(&c->text, "%s%c%d", comma, reduced ? 'Z' : 'A', i);
        comma = ",";
    }
    kn_put(&c->text, "]");
}

void kn_op_reduce_where(kn_op_call *c, const kn_reduction *r, bool keepdims)
{
    const char *word = " where ";
    for (int i = 0; keepdims && i < c->in[0].rank; i++) {
        if (!(r->gone >> i & 1)) continue;
        kn_putf(&c->text, "%sZ%d in 1", word, i);
        word = ", ";
    }
}

/* What t becomes: of whole numbers it is computed in f64 and cut off, of booleans t counts. */
static void finished(kn_op_call *c, const kn_reduction *r, enum kn_op_finish finish)
{
    static const char *const before[] = {[KN_FINISH_NONE] = "(", [KN_FINISH_MEAN] = "(", [KN_FINISH_SQRT] = "sqrt(", [KN_FINISH_LOG] = "log("};
    char class = kn_dtype_class(c->in[0].dtype);
    kn_putf(&c->text, class == 'i' ? " = cast(%scast(" : " = %s", before[finish]);
    kn_op_reduce_left(c, "t", r, false);
    kn_put(&c->text, class == 'i' ? ",f64)" : class == 'b' ? " != 0" : "");
    if (finish == KN_FINISH_MEAN) {
        kn_put(&c->text, " / ");
        kn_put_double(&c->text, kn_op_reduce_count(c, r));
    }
    if (class == 'i') kn_putf(&c->text, "),%s", kn_dtype_text(c->in[0].dtype));
    kn_put(&c->text, ")");
}

void kn_op_reduce_over(kn_op_call *c, const kn_reduction *r, const char *assign, const char *body, enum kn_op_finish finish)
{
    bool truth = c->in[0].dtype == KN_BOOL, last = finish == KN_FINISH_NONE && !truth;
    kn_op_reduce_left(c, last ? "y" : "t", r, last && r->keepdims);
    kn_putf(&c->text, " %s ", assign);
    element(c, truth ? "cast(%s,u8)" : body);
    kn_op_reduce_where(c, r, last && r->keepdims);
    if (last) {
        kn_op_end(c);
        return;
    }
    kn_putf(&c->text, "%s; ", kn_op_wide(c));
    kn_op_reduce_left(c, "y", r, r->keepdims);
    finished(c, r, finish);
    kn_op_reduce_where(c, r, r->keepdims);
    kn_op_end(c);
}

kiln_status kn_op_reduce(kn_op_call *c, const char *assign, const char *body, enum kn_op_finish finish)
{
    kn_reduction r;
    kiln_status s = kn_op_reduce_axes(c, &r);
    if (s != KILN_OK) return s;
    if (!r.gone) return kn_op_unary(c, "%s");
    kn_op_reduce_over(c, &r, assign, body, finish);
    return KILN_OK;
}
