/* GraphProto and NodeProto: constants and inputs first, then what nodes give, then what they take, which may name any of these. */
#include "onnx/read.h"
#include <string.h>

/* ---- values ---- */

kiln_status kn_onnx_define(kn_onnx *r, kn_scope *s, const char *name, const char *place, int *out)
{
    *out = kn_scope_define(s, name);
    if (*out == KN_SCOPE_TWICE) return kn_fail_at(r->d, KILN_REQUEST, place, "\"%.64s\" is defined twice", name);
    if (*out < 0) return kn_onnx_dry(r);
    if (s->g->nvalues > KILN_MAX_GRAPH_VALUES) return kn_fail_at(r->d, KILN_LIMIT, place, "more than %d values", KILN_MAX_GRAPH_VALUES);
    s->g->values[*out].place = place;
    return KILN_OK;
}

kiln_status kn_onnx_resolve(kn_onnx *r, kn_scope *s, const char *name, const char *place, int *out)
{
    *out = kn_scope_find(s, name);
    if (*out >= 0) return KILN_OK;
    if (kn_arena_dry(r->a)) return kn_onnx_dry(r);
    kn_fail_at(r->d, KILN_REQUEST, place, "no value is named \"%.64s\"", name);
    kn_hint(r->d, "an input, an initializer, or an output of a node");
    return r->d->status;
}

static kiln_status read_dim(kn_onnx *r, const kn_field *f, const char *place, int64_t *extent, const char **name)
{
    kn_wire w = kn_onnx_open(f);
    kn_field x;
    enum kn_wire_state state;
    *extent = -1;
    while ((state = kn_wire_next(&w, &x)) == KN_WIRE_FIELD) {
        if (x.number == 2) {
            kiln_status s = kn_onnx_text(r, &x, place, name);
            if (s != KILN_OK) return s;
        }
        if (x.number != 1) continue;
        if (x.type != 0) return kn_onnx_wrong(r, place, "dim_value");
        memcpy(extent, &x.u, 8);
        if (*extent > KILN_MAX_EXTENT) return kn_fail_at(r->d, KILN_LIMIT, place, "an extent of %lld", (long long)*extent);
        if (*extent < 0) *extent = -1;
    }
    return state == KN_WIRE_BROKEN ? kn_onnx_broken(r, place) : KILN_OK;
}

static kiln_status read_shape(kn_onnx *r, const kn_field *f, const char *place, kn_value *v)
{
    kn_wire w = kn_onnx_open(f);
    kn_field x;
    enum kn_wire_state state;
    v->rank = 0;
    while ((state = kn_wire_next(&w, &x)) == KN_WIRE_FIELD) {
        if (x.number != 1) continue;
        if (v->rank == KILN_MAX_RANK) return kn_fail_at(r->d, KILN_LIMIT, place, "more than %d dimensions", KILN_MAX_RANK);
        kiln_status s = x.type != 2 ? kn_onnx_wrong(r, place, "dim")
                                    : read_dim(r, &x, kn_onnx_item(r, place, "dim", v->rank), &v->shape[v->rank], &v->dims[v->rank]);
        if (s != KILN_OK) return s;
        v->rank++;
    }
    v->shaped = true;
    return state == KN_WIRE_BROKEN ? kn_onnx_broken(r, place) : KILN_OK;
}

/* TypeProto.Tensor: elem_type 1, shape 2. */
static kiln_status read_tensor_type(kn_onnx *r, const kn_field *f, const char *place, kn_value *v)
{
    kn_wire w = kn_onnx_open(f);
    kn_field x;
    enum kn_wire_state state;
    while ((state = kn_wire_next(&w, &x)) == KN_WIRE_FIELD) {
        if (x.number == 1) {
            if (x.type != 0) return kn_onnx_wrong(r, place, "elem_type");
            v->typed = kn_onnx_dtype((int64_t)(x.u & 0xffff), &v->dtype);
            if (!v->typed && x.u)
                return kn_fail_at(r->d, KILN_DTYPE, place, "dtype %s (%d) is not supported", kn_onnx_dtype_name((int64_t)(x.u & 0xffff)),
                                  (int)(x.u & 0xffff));
        }
        if (x.number != 2) continue;
        kiln_status s = x.type == 2 ? read_shape(r, &x, kn_onnx_at(r, place, "shape"), v) : kn_onnx_wrong(r, place, "shape");
        if (s != KILN_OK) return s;
    }
    return state == KN_WIRE_BROKEN ? kn_onnx_broken(r, place) : KILN_OK;
}

static kiln_status read_type(kn_onnx *r, const kn_field *f, const char *place, kn_value *v)
{
    kn_wire w = kn_onnx_open(f);
    kn_field x;
    enum kn_wire_state state;
    while ((state = kn_wire_next(&w, &x)) == KN_WIRE_FIELD) {
        if (x.number == 4 || x.number == 5 || x.number == 8 || x.number == 9)
            return kn_fail_at(r->d, KILN_UNSUPPORTED, place, "only tensors are supported, no sequences, maps, optionals or sparse tensors");
        if (x.number != 1) continue;
        kiln_status s =
            x.type == 2 ? read_tensor_type(r, &x, kn_onnx_at(r, place, "tensor_type"), v) : kn_onnx_wrong(r, place, "tensor_type");
        if (s != KILN_OK) return s;
    }
    return state == KN_WIRE_BROKEN ? kn_onnx_broken(r, place) : KILN_OK;
}

/* ValueInfoProto: name 1, type 2. */
static kiln_status read_value(kn_onnx *r, const kn_field *f, const char *place, kn_value *v)
{
    kn_wire w = kn_onnx_open(f);
    kn_field x;
    enum kn_wire_state state;
    *v = (kn_value){.name = "", .place = place, .producer = -1, .outer = -1};
    while ((state = kn_wire_next(&w, &x)) == KN_WIRE_FIELD) {
        kiln_status s = x.number == 1 ? kn_onnx_text(r, &x, place, &v->name) : KILN_OK;
        if (x.number == 2) s = x.type == 2 ? read_type(r, &x, kn_onnx_at(r, place, "type"), v) : kn_onnx_wrong(r, place, "type");
        if (s != KILN_OK) return s;
    }
    if (state == KN_WIRE_BROKEN) return kn_onnx_broken(r, place);
    return *v->name ? KILN_OK : kn_fail_at(r->d, KILN_REQUEST, place, "a value without a name");
}

/* ---- nodes ---- */

typedef struct node {
    kn_node n;
    int ninputs, noutputs, nattrs;
} node; /* counted in the first pass */

static kiln_status count_node(kn_onnx *r, const kn_field *f, const char *place, kn_node *n)
{
    kn_wire w = kn_onnx_open(f);
    kn_field x;
    enum kn_wire_state state;
    *n = (kn_node){.op = "", .domain = "", .name = "", .place = place};
    while ((state = kn_wire_next(&w, &x)) == KN_WIRE_FIELD) {
        kiln_status s = KILN_OK;
        if (x.number == 1)
            n->ninputs++;
        else if (x.number == 2)
            n->noutputs++;
        else if (x.number == 3)
            s = kn_onnx_text(r, &x, place, &n->name);
        else if (x.number == 4)
            s = kn_onnx_text(r, &x, place, &n->op);
        else if (x.number == 5)
            n->nattrs++;
        else if (x.number == 7)
            s = kn_onnx_text(r, &x, place, &n->domain);
        else if (x.number == 8)
            s = kn_onnx_text(r, &x, place, &n->overload);
        if (s != KILN_OK) return s;
    }
    if (state == KN_WIRE_BROKEN) return kn_onnx_broken(r, place);
    if (!*n->op) return kn_fail_at(r->d, KILN_REQUEST, place, "a node without op_type");
    if (n->ninputs > KILN_MAX_GRAPH_ARGS || n->noutputs > KILN_MAX_GRAPH_ARGS || n->nattrs > KILN_MAX_GRAPH_ARGS)
        return kn_fail_at(r->d, KILN_LIMIT, place, "more than %d inputs, outputs or attributes", KILN_MAX_GRAPH_ARGS);
    if (!strcmp(n->domain, "ai.onnx")) n->domain = "";
    return KILN_OK;
}

kiln_status kn_onnx_open_node(kn_onnx *r, const kn_field *f, const char *place, kn_scope *s)
{
    kn_node n;
    kiln_status status = count_node(r, f, place, &n);
    if (status != KILN_OK) return status;
    if (++r->nodes > KILN_MAX_GRAPH_NODES) return kn_fail_at(r->d, KILN_LIMIT, place, "more than %d nodes", KILN_MAX_GRAPH_NODES);
    int *outputs = kn_array(r->a, int, n.noutputs + 1), i = 0;
    if (!outputs) return kn_onnx_dry(r);
    kn_wire w = kn_onnx_open(f);
    kn_field x;
    while (kn_wire_next(&w, &x) == KN_WIRE_FIELD) {
        const char *name;
        if (x.number != 2) continue;
        outputs[i] = -1;
        if ((status = kn_onnx_text(r, &x, place, &name)) != KILN_OK) return status;
        if (*name && (status = kn_onnx_define(r, s, name, kn_onnx_item(r, place, "output", i), &outputs[i])) != KILN_OK) return status;
        i++;
    }
    n.outputs = outputs;
    return kn_graph_node(r->a, s->g, &n) < 0 ? kn_onnx_dry(r) : KILN_OK;
}

kiln_status kn_onnx_close_node(kn_onnx *r, const kn_field *f, kn_scope *s, kn_node *n)
{
    int *inputs = kn_array(r->a, int, n->ninputs + 1), nin = 0, nattrs = 0;
    kn_gattr *attrs = kn_array(r->a, kn_gattr, n->nattrs + 1);
    if (!inputs || !attrs) return kn_onnx_dry(r);
    kn_wire w = kn_onnx_open(f);
    kn_field x;
    while (kn_wire_next(&w, &x) == KN_WIRE_FIELD) {
        const char *name;
        kiln_status status = KILN_OK;
        if (x.number == 1) {
            inputs[nin] = -1;
            if ((status = kn_onnx_text(r, &x, n->place, &name)) == KILN_OK && *name)
                status = kn_onnx_resolve(r, s, name, kn_onnx_item(r, n->place, "input", nin), &inputs[nin]);
            nin++;
        } else if (x.number == 5) {
            const char *place = kn_onnx_item(r, n->place, "attribute", nattrs);
            status = x.type == 2 ? kn_onnx_read_attribute(r, &x, place, s, &attrs[nattrs]) : kn_onnx_wrong(r, n->place, "attribute");
            for (int k = 0; status == KILN_OK && k < nattrs; k++)
                if (!strcmp(attrs[k].name, attrs[nattrs].name))
                    return kn_fail_at(r->d, KILN_REQUEST, place, "attribute \"%.64s\" is given twice", attrs[k].name);
            nattrs++;
        }
        if (status != KILN_OK) return status;
    }
    n->inputs = inputs;
    n->attrs = attrs;
    return KILN_OK;
}

/* ---- the graph ---- */

enum pass { CONSTANTS, INPUTS, NODES, USES, OUTPUTS, INFOS, PASSES };

typedef struct reading {
    kn_onnx *r;
    kn_scope scope;
    const char *place;
    int count[PASSES], nin, nout;
} reading;

static kiln_status read_initializer(reading *q, const kn_field *f)
{
    int v;
    kn_value t = {0};
    const char *place = kn_onnx_item(q->r, q->place, "initializer", q->count[CONSTANTS]++);
    kiln_status s = kn_onnx_read_tensor(q->r, f, place, &t);
    if (s == KILN_OK && !*t.name) s = kn_fail_at(q->r->d, KILN_REQUEST, place, "an initializer without a name");
    if (s == KILN_OK) s = kn_onnx_define(q->r, &q->scope, t.name, place, &v);
    if (s == KILN_OK) q->scope.g->values[v] = t;
    return s;
}

/* An input that is also an initializer has a default (IR version 3): it is taken as the constant that it is. */
static kiln_status read_input(reading *q, const kn_field *f)
{
    kn_value t;
    int v;
    const char *place = kn_onnx_item(q->r, q->place, "input", q->count[INPUTS]++);
    kiln_status s = read_value(q->r, f, place, &t);
    if (s != KILN_OK) return s;
    v = kn_scope_define(&q->scope, t.name);
    if (v == KN_SCOPE_TWICE) {
        v = kn_scope_find(&q->scope, t.name);
        if (q->scope.g->values[v].data) return KILN_OK;
        return kn_fail_at(q->r->d, KILN_REQUEST, place, "\"%.64s\" is defined twice", t.name);
    }
    if (v < 0) return kn_onnx_dry(q->r);
    q->scope.g->values[v] = t;
    q->scope.g->inputs[q->scope.g->ninputs++] = v;
    return KILN_OK;
}

static bool partial(const kn_onnx *r) { return r->o && r->o->partial; }

/* The type of a value that a node gives; one that cannot be a kernel's is none where the caller may keep it. */
static kiln_status read_declared(reading *q, const kn_field *f, const char *place, kn_value *v)
{
    kiln_status s = read_value(q->r, f, place, v);
    if (!partial(q->r) || (s != KILN_UNSUPPORTED && s != KILN_DTYPE)) return s;
    v->typed = v->shaped = false;
    return KILN_OK;
}

static void declare(reading *q, int v, const kn_value *type)
{
    kn_value *x = &q->scope.g->values[v];
    if (x->producer < 0 || x->data || x->outer >= 0) return;
    x->typed |= type->typed;
    if (type->typed) x->dtype = type->dtype;
    if (!type->shaped) return;
    x->shaped = true;
    x->rank = type->rank;
    memcpy(x->shape, type->shape, sizeof x->shape);
    memcpy(x->dims, type->dims, sizeof x->dims);
}

static kiln_status read_output(reading *q, const kn_field *f)
{
    kn_value t;
    const char *place = kn_onnx_item(q->r, q->place, "output", q->count[OUTPUTS]++);
    int *v = &q->scope.g->outputs[q->scope.g->noutputs++];
    kiln_status s = read_declared(q, f, place, &t);
    if (s == KILN_OK) s = kn_onnx_resolve(q->r, &q->scope, t.name, place, v);
    if (s == KILN_OK && partial(q->r)) declare(q, *v, &t);
    return s;
}

/* Types of values between nodes matter where a node is left to the caller: nothing else says what it gives. */
static kiln_status read_info(reading *q, const kn_field *f)
{
    kn_value t;
    const char *place = kn_onnx_item(q->r, q->place, "value_info", q->count[INFOS]++);
    if (!partial(q->r)) return KILN_OK;
    kiln_status s = read_declared(q, f, place, &t);
    int v = s == KILN_OK ? kn_scope_find(&q->scope, t.name) : -1;
    if (v >= 0) declare(q, v, &t);
    return s;
}

static kiln_status read_node(reading *q, const kn_field *f, enum pass pass)
{
    kn_graph *g = q->scope.g;
    int i = q->count[pass]++;
    if (pass == NODES) return kn_onnx_open_node(q->r, f, kn_onnx_item(q->r, q->place, "node", i), &q->scope);
    kn_node n = g->nodes[i];
    kiln_status s = kn_onnx_close_node(q->r, f, &q->scope, &n);
    g->nodes[i] = n;
    return s;
}

static kiln_status read_pass(reading *q, const kn_field *f, enum pass pass)
{
    static const uint32_t numbers[PASSES] = {5, 11, 1, 1, 12, 13};
    kn_wire w = kn_onnx_open(f);
    kn_field x;
    kiln_status s = KILN_OK;
    while (s == KILN_OK && kn_wire_next(&w, &x) == KN_WIRE_FIELD) {
        if (x.number != numbers[pass]) continue;
        if (x.type != 2)
            s = kn_onnx_broken(q->r, q->place);
        else if (pass == CONSTANTS)
            s = read_initializer(q, &x);
        else if (pass == INPUTS)
            s = read_input(q, &x);
        else if (pass == OUTPUTS)
            s = read_output(q, &x);
        else if (pass == INFOS)
            s = read_info(q, &x);
        else
            s = read_node(q, &x, pass);
    }
    return s;
}

/* Counts inputs and outputs, takes the name, and looks whether the message is whole. */
static kiln_status scan(reading *q, const kn_field *f)
{
    kn_wire w = kn_onnx_open(f);
    kn_field x;
    enum kn_wire_state state;
    while ((state = kn_wire_next(&w, &x)) == KN_WIRE_FIELD) {
        q->nin += x.number == 11;
        q->nout += x.number == 12;
        kiln_status s = x.number == 2 ? kn_onnx_text(q->r, &x, q->place, &q->scope.g->name) : KILN_OK;
        if (x.number == 15) s = kn_fail_at(q->r->d, KILN_UNSUPPORTED, q->place, "sparse initializers are not supported");
        if (s != KILN_OK) return s;
    }
    return state == KN_WIRE_BROKEN ? kn_onnx_broken(q->r, q->place) : KILN_OK;
}

kiln_status kn_onnx_read_graph(kn_onnx *r, const kn_field *f, const char *place, kn_scope *around, kn_graph **out)
{
    reading q = {.r = r, .place = place};
    kn_graph *g = kn_graph_new(r->a);
    if (!g) return kn_onnx_dry(r);
    if (++r->depth > KILN_MAX_GRAPH_DEPTH)
        return kn_fail_at(r->d, KILN_LIMIT, place, "more than %d graphs inside each other", KILN_MAX_GRAPH_DEPTH);
    g->opset = r->opset;
    kn_scope_open(&q.scope, r->a, g, around);
    kiln_status s = scan(&q, f);
    g->inputs = kn_array(r->a, int, q.nin + 1);
    g->outputs = kn_array(r->a, int, q.nout + 1);
    if (s == KILN_OK && (!g->inputs || !g->outputs)) s = kn_onnx_dry(r);
    for (int pass = 0; s == KILN_OK && pass < PASSES; pass++) s = read_pass(&q, f, (enum pass)pass);
    if (s == KILN_OK && !g->noutputs) s = kn_fail_at(r->d, KILN_REQUEST, place, "the graph has no output");
    if (s == KILN_OK) s = kn_graph_order(r->a, g, r->d);
    r->depth--;
    *out = g;
    return s;
}
