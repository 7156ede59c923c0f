/* Nodes of a settled graph: their programs, shapes from those programs, and constants computed beforehand by the reference interpreter. */
#include "graph/settle.h"
#include <stdio.h>
#include <string.h>

/* ---- the program of a node ---- */

static void to_attr(const kn_gattr *g, kn_attr *out)
{
    *out = (kn_attr){.name = g->name, .kind = g->kind, .i = g->i, .f = g->f, .s = g->s, .n = g->n};
    for (int i = 0; i < g->n && i < KN_OP_ATTR_INTS; i++) {
        if (g->ints) out->list[i] = g->ints[i];
        out->floats[i] = g->floats ? g->floats[i] : (double)out->list[i];
    }
    if (g->kind == 'i') {
        out->n = 1;
        out->list[0] = g->i;
        out->f = out->floats[0] = (double)g->i;
    }
}

static void to_operand(const kn_value *v, kn_operand *out)
{
    *out = (kn_operand){.present = true, .dtype = v->dtype, .rank = v->rank};
    memcpy(out->shape, v->shape, sizeof out->shape);
}

/* A refusal of the operator, said of the node: "Conv \"stem\": ...", at the node's place. */
static kiln_status said_of(const kn_node *n, kiln_diag *d)
{
    char why[sizeof d->message], where[sizeof d->pointer], hint[sizeof d->hint];
    kiln_status s = d->status;
    snprintf(why, sizeof why, "%s", d->message);
    snprintf(where, sizeof where, "%s", d->pointer);
    snprintf(hint, sizeof hint, "%s", d->hint);
    const char *attr = strncmp(where, "/op/attrs/", 10) ? "" : where + 10;
    kn_fail_at(d, s, n->place, "%.60s%s%.80s%s%s%.40s: %.300s", n->op, *n->name ? " \"" : "", n->name, *n->name ? "\"" : "",
               *attr ? ", attribute " : "", attr, why);
    snprintf(d->hint, sizeof d->hint, "%s", hint);
    return s;
}

static kiln_status no_operator(const kn_node *n, kiln_diag *d)
{
    const kn_op_spec *near = kn_ops_near(n->op);
    kn_fail_at(d, KILN_UNKNOWN_OP, n->place, "no operator \"%s%s%.60s\"%s%.80s%s", n->domain, *n->domain ? "." : "", n->op,
               *n->name ? ", node \"" : "", n->name, *n->name ? "\"" : "");
    if (near)
        kn_hint(d, "did you mean %s?", near->name);
    else
        kn_hint(d, "docs/onnx.md lists what is supported");
    return d->status;
}

kiln_status kn_node_program(kiln_arena *a, const kn_graph *g, const kn_node *n, kn_program **out, kiln_diag *d)
{
    const kn_op_spec *op = *n->domain ? NULL : kn_ops_find(n->op);
    if (!op) return no_operator(n, d);
    kn_op_call *c = kn_new(a, kn_op_call);
    kn_attr *attrs = kn_array(a, kn_attr, n->nattrs + 1);
    if (!c || !attrs) return kn_fail(d, KILN_MEMORY, "out of memory");
    if (n->ninputs > KN_OP_INPUTS)
        return kn_fail_at(d, KILN_LIMIT, n->place, "%s has %d inputs; at most %d are supported", n->op, n->ninputs, KN_OP_INPUTS);
    c->arena = a;
    c->d = d;
    c->ninputs = n->ninputs;
    for (int i = 0; i < n->ninputs; i++) {
        const kn_value *v = n->inputs[i] < 0 ? NULL : &g->values[n->inputs[i]];
        if (!v) continue;
        if (kn_value_elems(v) == 0)
            return kn_fail_at(d, KILN_UNSUPPORTED, n->place, "input %d of %s is empty; no kernel can be made of it", i, n->op);
        to_operand(v, &c->in[i]);
    }
    for (int i = 0; i < n->nattrs; i++) {
        if (n->attrs[i].n > KN_OP_ATTR_INTS || strchr("STG", n->attrs[i].kind))
            return kn_fail_at(d, KILN_UNSUPPORTED, n->place, "attribute \"%.60s\" of %s has no use here", n->attrs[i].name, n->op);
        to_attr(&n->attrs[i], &attrs[i]);
    }
    c->nattrs = n->nattrs;
    c->attrs = attrs;
    kiln_status s = kn_op_program(op, c, out);
    return s == KILN_OK || s == KILN_MEMORY ? s : said_of(n, d);
}

/* ---- folding ---- */

typedef struct fold {
    const kn_graph *g;
    int in[KN_OP_INPUTS];
} fold;

static double read_constant(void *user, int input, int64_t index)
{
    const fold *f = user;
    return kn_value_double(&f->g->values[f->in[input]], index);
}

static bool known(const kn_value *v) { return v->data && v->data->bytes; }

static bool foldable(kn_settle *s, const kn_node *n, const kn_program *p, double *cost)
{
    double bytes;
    int64_t elems = 1;
    for (int i = 0; i < n->ninputs; i++)
        if (n->inputs[i] >= 0 && !known(&s->g->values[n->inputs[i]])) return false;
    const kn_tensor *y = &p->tensors[p->ninputs];
    for (int i = 0; i < y->rank; i++)
        if (!kn_mul_fits(elems, y->shape[i], &elems)) return false;
    if (!kn_direct_cost(s->g, n, cost)) kiln_work(p, cost, &bytes);
    *cost += (double)elems * (1 + p->nstmts);
    return elems <= KILN_MAX_GRAPH_FOLD && *cost <= s->fold_left && elems * 8 <= s->bytes_left;
}

static const kn_data *fold_node(kn_settle *s, const kn_node *n, const kn_program *p)
{
    fold f = {.g = s->g};
    int k = 0;
    for (int i = 0; i < n->ninputs; i++)
        if (n->inputs[i] >= 0) f.in[k++] = n->inputs[i];
    const kn_tensor *y = &p->tensors[p->ninputs];
    int64_t elems = 1, size = kn_dtype_bytes(y->dtype);
    for (int i = 0; i < y->rank; i++) elems *= y->shape[i];
    kn_data *data = kn_new(s->a, kn_data);
    uint8_t *bytes = kn_alloc(s->a, (size_t)(elems * size));
    kiln_ref *ref;
    kiln_diag d = {0};
    if (!data || !bytes) return NULL;
    bool direct = kn_direct(s->g, n, bytes);
    if (!direct && kiln_ref_open(s->a, p, read_constant, &f, &ref, &d) != KILN_OK) return NULL;
    for (int64_t i = 0; !direct && i < elems; i++) {
        double x, scale;
        if (kiln_ref_at(ref, 0, i, &x, &scale) != KILN_OK) return NULL;
        kn_element_compute(y->dtype, bytes + i * size, x);
    }
    s->bytes_left -= elems * size;
    *data = (kn_data){.bytes = bytes, .n = (size_t)(elems * size)};
    return data;
}

/* ---- emitting ---- */

static int dry(kn_settle *s)
{
    kn_fail(s->d, KILN_MEMORY, "out of memory");
    return -1;
}

static int new_value(kn_settle *s, enum kn_dtype t, int rank, const int64_t *shape)
{
    int v = kn_graph_value(s->a, s->g, "");
    if (v < 0) return dry(s);
    if (s->g->nvalues > 2 * KILN_MAX_GRAPH_VALUES) {
        kn_fail_at(s->d, KILN_LIMIT, s->now ? s->now->place : "", "the model grows beyond %d values", 2 * KILN_MAX_GRAPH_VALUES);
        return -1;
    }
    kn_value *x = &s->g->values[v];
    x->typed = x->shaped = true;
    x->dtype = t;
    x->rank = rank;
    x->place = s->now ? s->now->place : "";
    for (int i = 0; i < rank; i++) x->shape[i] = shape[i];
    return v;
}

static int add_node(kn_settle *s, const kn_node *n, int v)
{
    kn_node copy = *n;
    int *io = kn_array(s->a, int, n->ninputs + 1);
    kn_gattr *attrs = kn_array(s->a, kn_gattr, n->nattrs + 1);
    if (!io || !attrs) return dry(s);
    if (n->ninputs) memcpy(io, n->inputs, (size_t)n->ninputs * sizeof *io);
    if (n->nattrs) memcpy(attrs, n->attrs, (size_t)n->nattrs * sizeof *attrs);
    io[n->ninputs] = v;
    copy.inputs = io;
    copy.outputs = io + n->ninputs;
    copy.noutputs = 1;
    copy.attrs = attrs;
    return kn_graph_node(s->a, s->g, &copy) < 0 ? dry(s) : v;
}

static kn_node describe(kn_settle *s, const char *op, int nin, const int *in, int nattrs, const kn_gattr *attrs)
{
    while (nin && in[nin - 1] < 0) nin--;
    return (kn_node){.op = op,
                     .domain = "",
                     .name = s->now ? s->now->name : "",
                     .place = s->now ? s->now->place : "",
                     .ninputs = nin,
                     .inputs = in,
                     .nattrs = nattrs,
                     .attrs = attrs};
}

int kn_emit(kn_settle *s, const char *op, int nin, const int *in, int nattrs, const kn_gattr *attrs)
{
    kn_program *p = NULL;
    kn_node n = describe(s, op, nin, in, nattrs, attrs);
    double cost;
    if (kn_stopped(s->a)) {
        kn_fail(s->d, KILN_STOPPED, "stopped");
        return -1;
    }
    if (kn_node_program(s->a, s->g, &n, &p, s->d) != KILN_OK) return -1;
    const kn_tensor *y = &p->tensors[p->ninputs];
    const kn_data *data = NULL;
    bool fold = foldable(s, &n, p, &cost);
    if (fold) {
        s->fold_left -= cost;
        data = fold_node(s, &n, p);
    }
    int v = new_value(s, y->dtype, y->rank, y->shape);
    if (v < 0) return -1;
    s->g->values[v].data = data;
    return data ? v : add_node(s, &n, v);
}

int kn_emit1(kn_settle *s, const char *op, int x) { return x < 0 ? -1 : kn_emit(s, op, 1, &x, 0, NULL); }

int kn_emit2(kn_settle *s, const char *op, int x, int y)
{
    int in[2] = {x, y};
    return x < 0 || y < 0 ? -1 : kn_emit(s, op, 2, in, 0, NULL);
}

static bool same_shape(const kn_value *v, int rank, const int64_t *shape)
{
    return v->rank == rank && (!rank || !memcmp(v->shape, shape, (size_t)rank * sizeof *shape));
}

/* Of a constant: the same bytes. Of a view: one of what that views. To the same shape: nothing. */
int kn_emit_reshape(kn_settle *s, int x, int rank, const int64_t *shape)
{
    if (x < 0) return -1;
    kn_value from = s->g->values[x];
    if (same_shape(&from, rank, shape)) return x;
    if (!from.data && from.producer >= 0 && kn_node_is_view(&s->g->nodes[from.producer])) {
        x = s->g->nodes[from.producer].inputs[0];
        from = s->g->values[x];
        if (same_shape(&from, rank, shape)) return x;
    }
    int v = new_value(s, from.dtype, rank, shape);
    if (v < 0) return -1;
    s->g->values[v].data = from.data;
    if (from.data) return v;
    kn_gattr to = kn_gattr_ints(s->a, "shape", rank, shape);
    kn_node n = describe(s, "Reshape", 1, &x, 1, &to);
    return add_node(s, &n, v);
}

int kn_emit_transpose(kn_settle *s, int x, const int *perm)
{
    if (x < 0) return -1;
    const kn_value *v = &s->g->values[x];
    int64_t list[KILN_MAX_RANK], shape[KILN_MAX_RANK];
    bool moves = false, long_moved = false;
    int last = -1;
    for (int i = 0; i < v->rank; i++) {
        list[i] = perm[i];
        shape[i] = v->shape[perm[i]];
        moves |= perm[i] != i;
        if (shape[i] == 1) continue;
        long_moved |= perm[i] < last;
        last = perm[i];
    }
    if (!moves) return x;
    if (!long_moved) return kn_emit_reshape(s, x, v->rank, shape); /* only axes of one element change places */
    if (v->data && v->data->splat) {
        const kn_data *data = v->data;
        int y = new_value(s, v->dtype, v->rank, shape);
        if (y >= 0) s->g->values[y].data = data;
        return y;
    }
    kn_gattr a = kn_gattr_ints(s->a, "perm", v->rank, list);
    return kn_emit(s, "Transpose", 1, &x, 1, &a);
}

int kn_emit_slice(kn_settle *s, int x, int axis, int64_t start, int64_t end, int64_t step)
{
    if (x < 0) return -1;
    int64_t at = axis;
    kn_gattr a[] = {kn_gattr_ints(s->a, "starts", 1, &start), kn_gattr_ints(s->a, "ends", 1, &end), kn_gattr_ints(s->a, "axes", 1, &at),
                    kn_gattr_ints(s->a, "steps", 1, &step)};
    if (start == 0 && step == 1 && end == s->g->values[x].shape[axis]) return x;
    return kn_emit(s, "Slice", 1, &x, 4, a);
}

/* More operands than a row takes go in groups. */
int kn_emit_concat(kn_settle *s, int n, const int *in, int axis)
{
    int some[KN_OP_INPUTS];
    kn_gattr a = kn_gattr_int("axis", axis);
    if (n == 1) return in[0];
    if (n <= KN_OP_INPUTS) return kn_emit(s, "Concat", n, in, 1, &a);
    int groups = 0, each = (n + KN_OP_INPUTS - 1) / KN_OP_INPUTS;
    for (int i = 0; i < n; i += each)
        if ((some[groups++] = kn_emit_concat(s, n - i < each ? n - i : each, in + i, axis)) < 0) return -1;
    return kn_emit_concat(s, groups, some, axis);
}

int kn_emit_cast(kn_settle *s, int x, enum kn_dtype t)
{
    if (x < 0) return -1;
    kn_gattr to = kn_gattr_str("to", kn_dtype_text(t));
    return s->g->values[x].dtype == t ? x : kn_emit(s, "Cast", 1, &x, 1, &to);
}

int kn_emit_constant(kn_settle *s, enum kn_dtype t, int rank, const int64_t *shape, const void *bytes, size_t n, bool splat)
{
    kn_data *data = kn_new(s->a, kn_data);
    if (!data || !bytes) return dry(s);
    int v = new_value(s, t, rank, shape);
    if (v < 0) return -1;
    *data = (kn_data){.bytes = bytes, .n = n, .splat = splat};
    s->g->values[v].data = data;
    return v;
}

int kn_emit_ints(kn_settle *s, int n, const int64_t *list)
{
    int64_t *copy = kn_array(s->a, int64_t, n + 1), shape = n;
    if (!copy) return dry(s);
    if (n) memcpy(copy, list, (size_t)n * sizeof *copy);
    return kn_emit_constant(s, KN_I64, 1, &shape, copy, (size_t)n * sizeof *copy, false);
}

int kn_emit_fill(kn_settle *s, enum kn_dtype t, int rank, const int64_t *shape, double x)
{
    uint8_t *one = kn_alloc(s->a, 8);
    if (!one) return dry(s);
    kn_element_store(t, one, x);
    return kn_emit_constant(s, t, rank, shape, one, (size_t)kn_dtype_bytes(t), true);
}

int kn_emit_scalar_like(kn_settle *s, int x, double value) { return x < 0 ? -1 : kn_emit_fill(s, s->g->values[x].dtype, 0, NULL, value); }

/* ---- attributes ---- */

kn_gattr kn_gattr_int(const char *name, int64_t i) { return (kn_gattr){.name = name, .kind = 'i', .i = i, .f = (double)i}; }
kn_gattr kn_gattr_float(const char *name, double f) { return (kn_gattr){.name = name, .kind = 'f', .f = f}; }
kn_gattr kn_gattr_str(const char *name, const char *t) { return (kn_gattr){.name = name, .kind = 's', .s = t}; }

kn_gattr kn_gattr_ints(kiln_arena *a, const char *name, int n, const int64_t *list)
{
    int64_t *copy = kn_array(a, int64_t, n + 1);
    if (copy && n) memcpy(copy, list, (size_t)n * sizeof *copy);
    return (kn_gattr){.name = name, .kind = 'I', .n = copy ? n : 0, .ints = copy};
}

kn_gattr kn_gattr_floats(kiln_arena *a, const char *name, int n, const double *list)
{
    double *copy = kn_array(a, double, n + 1);
    if (copy && n) memcpy(copy, list, (size_t)n * sizeof *copy);
    return (kn_gattr){.name = name, .kind = 'F', .n = copy ? n : 0, .floats = copy};
}
