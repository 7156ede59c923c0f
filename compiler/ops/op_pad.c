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

/* "(A1 - 3)": where output element Ai lies in the input. */
static const char *place(kn_op_call *c, const pads *p, int i)
{
    long long off = (long long)p->begin[i];
    const char *at = off > 0   ? kn_format(c->arena, "(A%d - %lld)", i, off)
                     : off < 0 ? kn_format(c->arena, "(A%d + %lld)", i, -off)
                               : kn_format(c->arena, "A%d", i);
    return at ? at : "";
}

/* Whether axis i is mirrored at most once at each end. */
static bool once(const kn_op_call *c, const pads *p, int i)
{
    return p->begin[i] < c->in[0].shape[i] && p->end[i] < c->in[0].shape[i];
}

/* Index of axis i of the input for output element Ai. */
static void index_of(kn_op_call *c, const pads *p, int i, const char *mode)
{
    long long n = (long long)c->in[0].shape[i];
    const char *at = place(c, p, i);
    bool outside = p->begin[i] > 0 || p->end[i] > 0;
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

/* x0, with `last` as the index of the last axis. */
static void element(kn_op_call *c, const pads *p, const char *mode, const char *last)
{
    kn_put(&c->text, "x0[");
    for (int i = 0; i + 1 < c->in[0].rank; i++) {
        index_of(c, p, i, mode);
        kn_put(&c->text, ",");
    }
    kn_putf(&c->text, "%s]", last ? last : "");
}

/* Whether the elements of a row are read from three ranges of it: those before it, itself and those behind it, so that all but the vectors
 * between two are read as they lie. */
static bool in_ranges(const kn_op_call *c, const pads *p, const char *mode)
{
    int i = c->in[0].rank - 1;
    if (i < 0 || (*mode != 'r' && *mode != 'e') || (p->begin[i] <= 0 && p->end[i] <= 0)) return false;
    return c->in[0].shape[i] > 1 && (*mode == 'e' || once(c, p, i));
}

static void ranges(kn_op_call *c, const pads *p, const char *mode)
{
    int i = c->in[0].rank - 1;
    long long n = (long long)c->in[0].shape[i], off = (long long)p->begin[i];
    const char *at = place(c, p, i);
    if (off > 0) {
        kn_putf(&c->text, "select(A%d < %lld, ", i, off);
        element(c, p, mode, *mode == 'e' ? "0" : kn_format(c->arena, "%lld - A%d", off, i));
        kn_put(&c->text, ", ");
    }
    if (p->end[i] > 0) kn_putf(&c->text, "select(A%d < %lld, ", i, n + off);
    element(c, p, mode, at);
    if (p->end[i] > 0) {
        kn_put(&c->text, ", ");
        element(c, p, mode, kn_format(c->arena, *mode == 'e' ? "%lld" : "%lld - A%d", *mode == 'e' ? n - 1 : 2 * n - 2 + off, i));
        kn_put(&c->text, ")");
    }
    if (off > 0) kn_put(&c->text, ")");
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
    } else if (!in_ranges(c, &p, mode)) {
        kn_put(&c->text, "x0");
    }
    if (in_ranges(c, &p, mode)) {
        ranges(c, &p, mode);
    } else {
        kn_put(&c->text, "[");
        for (int i = 0; i < rank; i++) {
            if (i) kn_put(&c->text, ",");
            index_of(c, &p, i, mode);
        }
        kn_put(&c->text, "]");
    }
    for (int i = 0; i < rank; i++) shape[i] = c->in[0].shape[i] + p.begin[i] + p.end[i];
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
