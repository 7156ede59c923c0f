/* Pad: more elements before and behind every axis: a number, mirrored, the edge, or from the other end; negative pads cut. */
#include "ops/ops.h"
#include <string.h>

static const kn_attr_spec attrs[] = {{"pads", 'I', "mandatory", "elements more: all begins, then all ends"},
                                     {"axes", 'I', "all axes", "axes that pads are of"},
                                     {"mode", 's', "constant", "constant, reflect, edge or wrap"},
                                     {"value", 'f', "0", "of constant"},
                                     {NULL, 0, NULL, NULL}};

typedef struct pads {
    int64_t begin[KILN_MAX_RANK], end[KILN_MAX_RANK];
} pads;

static kiln_status read(kn_op_call *c, pads *p)
{
    const kn_attr *list = kn_attr_get(c, "pads"), *axes = kn_attr_get(c, "axes");
    int n = axes ? axes->n : c->in[0].rank;
    uint32_t seen = 0;
    *p = (pads){{0}, {0}};
    if (!list || list->n != 2 * n) return kn_op_bad_attr(c, "pads", "\"pads\" must have %d numbers, two an axis", 2 * n);
    for (int k = 0; k < n; k++) {
        int i;
        if (!kn_op_axis(c, "axes", axes ? axes->list[k] : k, c->in[0].rank, &i)) return c->d->status;
        if (seen >> i & 1) return kn_op_bad_attr(c, "axes", "axis %d is named twice", i);
        seen |= 1u << i;
        p->begin[i] = list->list[k];
        p->end[i] = list->list[k + n];
        if (p->begin[i] > KILN_MAX_EXTENT || p->end[i] > KILN_MAX_EXTENT || c->in[0].shape[i] + p->begin[i] + p->end[i] < 1)
            return kn_op_bad_attr(c, "pads", "no element of axis %d is left, or too many", i);
    }
    return KILN_OK;
}

/* Index of axis i of the input for output element Ai. */
static void index_of(kn_op_call *c, const pads *p, int i, const char *mode)
{
    long long n = (long long)c->in[0].shape[i], off = (long long)p->begin[i];
    const char *at = off > 0   ? kn_format(c->arena, "(A%d - %lld)", i, off)
                     : off < 0 ? kn_format(c->arena, "(A%d + %lld)", i, -off)
                               : kn_format(c->arena, "A%d", i);
    bool outside = off > 0 || p->end[i] > 0;
    if (!outside || *mode == 'c')
        kn_put(&c->text, at);
    else if (*mode == 'e')
        kn_putf(&c->text, "min(max(%s, 0), %lld)", at, n - 1);
    else if (*mode == 'w')
        kn_putf(&c->text, "%s %% %lld", at, n);
    else if (n == 1)
        kn_put(&c->text, "0");
    else
        kn_putf(&c->text, "min(%s %% %lld, %lld - %s %% %lld, %lld)", at, 2 * n - 2, 2 * n - 2, at, 2 * n - 2, n - 1); /* there and back */
}

static kiln_status lower(kn_op_call *c)
{
    pads p;
    int rank = c->in[0].rank;
    int64_t shape[KILN_MAX_RANK];
    const char *mode = kn_attr_str(c, "mode", "constant");
    kiln_status s = read(c, &p);
    if (s != KILN_OK) return s;
    if (strcmp(mode, "constant") && strcmp(mode, "reflect") && strcmp(mode, "edge") && strcmp(mode, "wrap"))
        return kn_op_bad_attr(c, "mode", "\"%.40s\" is none of constant, reflect, edge, wrap", mode);
    kn_putf(&c->text, "y[%s] = ", kn_op_axes(c, "A", rank));
    if (*mode == 'c') {
        kn_put(&c->text, "pad(x0,");
        if (kn_dtype_class(c->in[0].dtype) == 'f')
            kn_put_double(&c->text, kn_attr_float(c, "value", 0));
        else
            kn_putf(&c->text, "%lld", (long long)kn_attr_float(c, "value", 0));
        kn_put(&c->text, ")");
    } else {
        kn_put(&c->text, "x0");
    }
    for (int i = 0; i < rank; i++) {
        kn_put(&c->text, i ? "," : "[");
        index_of(c, &p, i, mode);
        shape[i] = c->in[0].shape[i] + p.begin[i] + p.end[i];
    }
    kn_put(&c->text, rank ? "]" : "[]");
    kn_op_extents(c, "A", rank, shape);
    return KILN_OK;
}

const kn_op_spec kn_op_pad = {.name = "Pad",
                              .min_inputs = 1,
                              .max_inputs = 1,
                              .input_names = {"data"},
                              .dtypes = "fiub",
                              .about = "more elements before and behind every axis",
                              .attrs = attrs,
                              .lower = lower};
