/* What rules share: reading the attributes and constant inputs of a raw node, refusals at it, and the node that needs no rule. */
#include "graph/settle.h"
#include <stdio.h>
#include <string.h>

const kn_value *kn_raw_in(const kn_raw *r, int i) { return i < r->nin && r->in[i] >= 0 ? &r->s->g->values[r->in[i]] : NULL; }

bool kn_raw_known(const kn_raw *r, int i)
{
    const kn_value *v = kn_raw_in(r, i);
    return v && v->data && (v->data->bytes || kn_value_elems(v) == 0);
}

int64_t kn_raw_int(const kn_raw *r, const char *attr, int64_t fallback)
{
    const kn_gattr *a = kn_node_attr(r->n, attr);
    return a && a->kind == 'i' ? a->i : fallback;
}

double kn_raw_float(const kn_raw *r, const char *attr, double fallback)
{
    const kn_gattr *a = kn_node_attr(r->n, attr);
    return !a ? fallback : a->kind == 'i' ? (double)a->i : a->kind == 'f' ? a->f : fallback;
}

const char *kn_raw_str(const kn_raw *r, const char *attr, const char *fallback)
{
    const kn_gattr *a = kn_node_attr(r->n, attr);
    return a && a->kind == 's' ? a->s : fallback;
}

kiln_status kn_raw_bad(kn_raw *r, kiln_status s, const char *fmt, ...)
{
    char text[360];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return kn_fail_at(r->s->d, s, r->n->place, "%.60s%s%.60s%s: %s", r->n->op, *r->n->name ? " \"" : "", r->n->name,
                      *r->n->name ? "\"" : "", text);
}

static kiln_status must_be_known(kn_raw *r, int i)
{
    if (kn_raw_known(r, i)) return KILN_OK;
    kn_raw_bad(r, KILN_UNSUPPORTED, "input %d shapes the result and must be a constant", i);
    kn_hint(r->s->d, "shapes are static: what they depend on must be known when the model is compiled");
    return r->s->d->status;
}

kiln_status kn_raw_ints(kn_raw *r, int i, const char *attr, const int64_t **list, int *n)
{
    const kn_gattr *a = attr ? kn_node_attr(r->n, attr) : NULL;
    const kn_value *v = i < 0 ? NULL : kn_raw_in(r, i);
    *n = -1;
    *list = NULL;
    if (!v && a) {
        if (a->kind != 'I' && a->kind != 'i') return kn_raw_bad(r, KILN_REQUEST, "attribute \"%s\" must be a list of integers", attr);
        *n = a->kind == 'i' ? 1 : a->n;
        *list = a->kind == 'i' ? &a->i : a->ints;
    }
    if (!v) return KILN_OK;
    kiln_status s = must_be_known(r, i);
    if (s != KILN_OK) return s;
    if (kn_dtype_class(v->dtype) == 'f' || v->rank > 1) return kn_raw_bad(r, KILN_REQUEST, "input %d must be a list of integers", i);
    int64_t count = kn_value_elems(v), *copy = count > KILN_MAX_GRAPH_FOLD ? NULL : kn_array(r->s->a, int64_t, count + 1);
    if (!copy) return kn_raw_bad(r, KILN_LIMIT, "input %d has too many elements", i);
    for (int64_t k = 0; k < count; k++) copy[k] = kn_value_int(v, k);
    *list = copy;
    *n = (int)count;
    return KILN_OK;
}

kiln_status kn_raw_floats(kn_raw *r, int i, const char *attr, const double **list, int *n)
{
    const kn_gattr *a = attr ? kn_node_attr(r->n, attr) : NULL;
    const kn_value *v = i < 0 ? NULL : kn_raw_in(r, i);
    *n = -1;
    *list = NULL;
    if (!v && !a) return KILN_OK;
    kiln_status s = v ? must_be_known(r, i) : KILN_OK;
    if (s != KILN_OK) return s;
    int64_t count = v ? kn_value_elems(v) : a->kind == 'f' || a->kind == 'i' ? 1 : a->n;
    double *copy = count > KILN_MAX_GRAPH_FOLD ? NULL : kn_array(r->s->a, double, count + 1);
    if (!copy) return kn_raw_bad(r, KILN_LIMIT, "too many numbers");
    if (!v && !strchr("fiFI", a->kind)) return kn_raw_bad(r, KILN_REQUEST, "attribute \"%s\" must be a list of numbers", attr);
    for (int64_t k = 0; k < count; k++)
        copy[k] = v ? kn_value_double(v, k) : a->kind == 'F' ? a->floats[k] : a->kind == 'I' ? (double)a->ints[k] : a->f;
    *list = copy;
    *n = (int)count;
    return KILN_OK;
}

kiln_status kn_raw_axis(kn_raw *r, int64_t axis, int rank, int *out)
{
    if (axis < -rank || axis >= rank) {
        kn_raw_bad(r, KILN_REQUEST, "axis %lld is outside of a tensor of rank %d", (long long)axis, rank);
        kn_hint(r->s->d, "from %d to %d", -rank, rank - 1);
        return r->s->d->status;
    }
    *out = (int)(axis < 0 ? axis + rank : axis);
    return KILN_OK;
}

kiln_status kn_raw_out(kn_raw *r, int k, int value)
{
    if (value < 0) return r->s->d->status;
    if (k < r->n->noutputs) r->out[k] = value;
    return KILN_OK;
}

bool kn_raw_wants(const kn_raw *r, int k) { return k < r->n->noutputs && r->n->outputs[k] >= 0; }

/* ---- the node that needs no rule ---- */

static const struct param {
    const char *op;
    int input;
    const char *attr;
    char kind;
} params[] = {
#define X(op, input, attr, kind) {op, input, attr, kind},
#include "graph/params.def"
#undef X
};

static const struct param *param_of(const char *op, int input)
{
    for (size_t i = 0; i < sizeof params / sizeof *params; i++)
        if (params[i].input == input && !strcmp(params[i].op, op)) return &params[i];
    return NULL;
}

static kiln_status to_attr(kn_raw *r, const struct param *p, kn_gattr *out)
{
    const int64_t *ints;
    const double *floats;
    int n;
    bool real = p->kind == 'F' || p->kind == 'f';
    kiln_status s = real ? kn_raw_floats(r, p->input, NULL, &floats, &n) : kn_raw_ints(r, p->input, NULL, &ints, &n);
    if (s != KILN_OK) return s;
    if ((p->kind == 'i' || p->kind == 'f') && n != 1)
        return kn_raw_bad(r, KILN_REQUEST, "\"%s\" (input %d) must be one number", p->attr, p->input);
    if (p->kind == 'i')
        *out = kn_gattr_int(p->attr, ints[0]);
    else if (p->kind == 'f')
        *out = kn_gattr_float(p->attr, floats[0]);
    else
        *out = real ? kn_gattr_floats(r->s->a, p->attr, n, floats) : kn_gattr_ints(r->s->a, p->attr, n, ints);
    return KILN_OK;
}

kiln_status kn_raw_plain(kn_raw *r, const char *op, int nmore, const kn_gattr *more)
{
    kn_gattr *attrs = kn_array(r->s->a, kn_gattr, r->n->nattrs + r->nin + nmore + 1);
    int *in = kn_array(r->s->a, int, r->nin + 1), nattrs = 0, nin = 0;
    if (!attrs || !in) return kn_fail(r->s->d, KILN_MEMORY, "out of memory");
    if (*r->n->domain) op = kn_format(r->s->a, "%s.%s", r->n->domain, op);
    if (!op) return kn_fail(r->s->d, KILN_MEMORY, "out of memory");
    for (int i = 0; i < r->n->nattrs; i++) attrs[nattrs++] = r->n->attrs[i];
    for (int i = 0; i < nmore; i++) attrs[nattrs++] = more[i];
    for (int i = 0; i < r->nin; i++) {
        const struct param *p = param_of(r->n->op, i);
        kiln_status s = p && r->in[i] >= 0 ? to_attr(r, p, &attrs[nattrs++]) : KILN_OK;
        if (s != KILN_OK) return s;
        if (!p) in[nin++] = r->in[i];
    }
    return kn_raw_out(r, 0, kn_emit(r->s, op, nin, in, nattrs, attrs));
}
