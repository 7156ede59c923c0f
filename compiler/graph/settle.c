/* Settling: the nodes of a raw graph one after the other, each by its rule; then what nobody reads is dropped. */
#include "graph/settle.h"
#include <stdio.h>
#include <string.h>

#define X(op, rule) kiln_status kn_rule_##rule(kn_raw *r);
#include "graph/rules.def"
#undef X
static const struct {
    const char *op;
    kn_rule rule;
} rules[] = {
#define X(op, rule) {op, kn_rule_##rule},
#include "graph/rules.def"
#undef X
};

enum { MOST_SETTLED = 1 << 19 };

static kn_rule rule_of(const kn_node *n)
{
    size_t domain = strlen(n->domain);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const char *name = rules[i].op;
        if (domain && (strncmp(name, n->domain, domain) || name[domain] != '.')) continue;
        if (!strcmp(name + (domain ? domain + 1 : 0), n->op)) return rules[i].rule;
    }
    return NULL;
}

/* A constant of the raw graph becomes one of the settled graph when it is first read. */
static kiln_status settle_constant(kn_settle *s, kn_frame *f, int v)
{
    int to = kn_graph_value(s->a, s->g, f->g->values[v].name);
    if (to < 0) return kn_fail(s->d, KILN_MEMORY, "out of memory");
    s->g->values[to] = f->g->values[v];
    s->g->values[to].producer = s->g->values[to].outer = -1;
    f->map[v] = to;
    return KILN_OK;
}

kiln_status kn_settle_value(kn_settle *s, kn_frame *f, int v, const char *place, int *out)
{
    const kn_value *x = &f->g->values[v];
    kiln_status status = KILN_OK;
    if (f->map[v] == KN_UNSEEN && x->outer >= 0)
        status = kn_settle_value(s, f->around, x->outer, place, &f->map[v]);
    else if (f->map[v] == KN_UNSEEN && x->data)
        status = settle_constant(s, f, v);
    if (status != KILN_OK) return status;
    if (f->map[v] == KN_ABSENT)
        return kn_fail_at(s->d, KILN_UNSUPPORTED, place, "\"%.64s\" is an output that is not computed (%s, %s)", x->name,
                          f->g->nodes[x->producer].op, f->g->nodes[x->producer].place);
    if (f->map[v] < 0) return kn_fail_at(s->d, KILN_REQUEST, place, "\"%.64s\" has no value here", x->name);
    *out = f->map[v];
    if (!s->g->values[*out].held || s->takes_held) return KILN_OK;
    return kn_fail_at(s->d, KILN_UNSUPPORTED, place, "\"%.64s\" has no static shape: it comes from a node that is left to the caller (%.100s)",
                      x->name, s->g->values[*out].place);
}

static kiln_status settle_node(kn_settle *s, kn_frame *f, const kn_node *n)
{
    n = kn_settle_referred(s, f, n);
    int *io = n ? kn_array(s->a, int, n->ninputs + n->noutputs + 1) : NULL;
    if (!io) return kn_fail(s->d, KILN_MEMORY, "out of memory");
    const kn_function *function = kn_function_of(s->model, n);
    kn_rule rule = rule_of(n);
    kn_raw r = {.s = s, .f = f, .n = n, .opset = f->g->opset, .nin = n->ninputs, .in = io, .out = io + n->ninputs};
    kiln_status status = KILN_OK;
    s->now = n;
    if (s->nodes_left-- <= 0) return kn_raw_bad(&r, KILN_LIMIT, "the model unrolls to more than %d nodes", MOST_SETTLED);
    if (s->nodes_left % 256 == 0 && kn_stopped(s->a)) return kn_fail(s->d, KILN_STOPPED, "stopped");
    for (int i = 0; i < n->ninputs; i++) {
        io[i] = -1;
        if (n->inputs[i] < 0 || f->map[n->inputs[i]] == KN_OMITTED) continue;
        if ((status = kn_settle_value(s, f, n->inputs[i], n->place, &io[i])) != KILN_OK) return status;
    }
    for (int i = 0; i < n->noutputs; i++) r.out[i] = KN_ABSENT;
    status = function ? kn_settle_function(&r, function) : rule ? rule(&r) : kn_raw_plain(&r, n->op, 0, NULL);
    for (int i = 0; status == KILN_OK && i < n->noutputs; i++) {
        if (n->outputs[i] < 0) continue;
        f->map[n->outputs[i]] = r.out[i];
        kn_value *v = r.out[i] < 0 ? NULL : &s->g->values[r.out[i]];
        if (v && !*v->name && !f->around) v->name = f->g->values[n->outputs[i]].name;
    }
    return status;
}

kn_frame *kn_settle_frame(kn_settle *s, const kn_graph *g, kn_frame *around)
{
    kn_frame *f = kn_new(s->a, kn_frame);
    int *map = kn_array(s->a, int, g->nvalues + 1);
    if (!f || !map) {
        kn_fail(s->d, KILN_MEMORY, "out of memory");
        return NULL;
    }
    for (int i = 0; i < g->nvalues; i++) map[i] = KN_UNSEEN;
    *f = (kn_frame){.g = g, .map = map, .around = around};
    return f;
}

static kiln_status settle_nodes(kn_settle *s, kn_frame *f)
{
    const kn_node *before = s->now;
    kiln_status status = KILN_OK;
    for (int i = 0; status == KILN_OK && i < f->g->nnodes; i++) {
        status = settle_node(s, f, &f->g->nodes[i]);
        bool may_leave = status == KILN_UNKNOWN_OP || status == KILN_UNSUPPORTED || status == KILN_DTYPE;
        if (may_leave && !f->around && s->o && s->o->partial) status = kn_settle_leave(s, f, &f->g->nodes[i]);
    }
    if (status == KILN_OK) s->now = before;
    return status;
}

kiln_status kn_settle_body(kn_settle *s, kn_frame *f, const char *place, int *results)
{
    kiln_status status = settle_nodes(s, f);
    for (int i = 0; status == KILN_OK && i < f->g->noutputs; i++)
        if (f->map[f->g->outputs[i]] == KN_OMITTED) results[i] = KN_ABSENT;
        else status = kn_settle_value(s, f, f->g->outputs[i], place, &results[i]);
    return status;
}

kiln_status kn_settle_inline(kn_raw *r, const kn_graph *sub, int nin, const int *in, int *results)
{
    kn_settle *s = r->s;
    kn_frame *f = kn_settle_frame(s, sub, r->f);
    if (!f) return s->d->status;
    if (sub->ninputs != nin) return kn_raw_bad(r, KILN_REQUEST, "the subgraph takes %d inputs, not %d", sub->ninputs, nin);
    if (++s->depth > KILN_MAX_GRAPH_DEPTH) return kn_raw_bad(r, KILN_LIMIT, "more than %d graphs inside each other", KILN_MAX_GRAPH_DEPTH);
    for (int i = 0; i < nin; i++) f->map[sub->inputs[i]] = in[i];
    kiln_status status = kn_settle_body(s, f, r->n->place, results);
    s->depth--;
    return status;
}

/* ---- the whole ---- */

/* The extent that the client gives under that name; -1: none. */
static int64_t given(kn_settle *s, const char *name)
{
    for (int i = 0; s->o && i < s->o->ndims; i++) {
        if (strcmp(s->o->dims[i], name)) continue;
        s->used[i] = true;
        return s->o->extents[i];
    }
    return -1;
}

/* A name that says that two extents are one; converters write "?" where they know nothing. */
static bool is_name(const char *t) { return t && *t && strcmp(t, "?"); }

/* The extent of a name by another place where it stands: given for "x:0", it holds for every dimension that has that name. */
static int64_t given_elsewhere(kn_settle *s, const kn_graph *raw, const char *name)
{
    for (int i = 0; i < raw->ninputs && is_name(name); i++) {
        const kn_value *v = &raw->values[raw->inputs[i]];
        for (int k = 0; v->shaped && k < v->rank; k++) {
            const char *place = v->shape[k] < 0 && is_name(v->dims[k]) && !strcmp(v->dims[k], name) ? kn_format(s->a, "%s:%d", v->name, k) : NULL;
            int64_t extent = place ? given(s, place) : -1;
            if (extent >= 0) return extent;
        }
    }
    return -1;
}

int64_t kn_settle_extent(kn_settle *s, const kn_graph *raw, const kn_value *v, int k)
{
    const char *place = kn_format(s->a, "%s:%d", v->name, k), *name = is_name(v->dims[k]) ? v->dims[k] : place;
    int64_t here = place ? given(s, place) : -1;
    if (v->shape[k] >= 0) return v->shape[k];
    if (here < 0 && name) here = given(s, name);
    return here < 0 && name ? given_elsewhere(s, raw, name) : here;
}

/* An unknown extent goes by its input and number or by its name: "x:0", "batch". */
static kiln_status settle_extent(kn_settle *s, const kn_graph *raw, const kn_value *v, int k, int64_t *out)
{
    const char *place = kn_format(s->a, "%s:%d", v->name, k), *name = is_name(v->dims[k]) ? v->dims[k] : place;
    if (!place) return kn_fail(s->d, KILN_MEMORY, "out of memory");
    int64_t here = given(s, place);
    if (here >= 0 && *out >= 0 && here != *out)
        return kn_fail_at(s->d, KILN_SHAPE, v->place, "dimension %d of input \"%.64s\" is %lld in the model, not %lld", k, v->name,
                          (long long)*out, (long long)here);
    *out = kn_settle_extent(s, raw, v, k);
    if (*out >= 1 && *out <= KILN_MAX_EXTENT) return KILN_OK;
    if (*out >= 0)
        return kn_fail_at(s->d, KILN_UNSUPPORTED, v->place, "dimension %d of input \"%.64s\" is %lld", k, v->name, (long long)*out);
    kn_fail_at(s->d, KILN_SHAPE, v->place, "dimension %d (\"%.40s\") of input \"%.64s\" is not known", k, name, v->name);
    kn_hint(s->d, "shapes are static: give it an extent (\"dims\": {\"%.40s\": 1}; --dim %.40s=1)", name, name);
    return s->d->status;
}

/* An input that the client binds is a constant; any other is to be fed. */
static kiln_status bind_input(kn_settle *s, int v)
{
    kn_value *x = &s->g->values[v];
    for (int i = 0; s->o && i < s->o->nbinds; i++) {
        if (strcmp(s->o->binds[i], x->name)) continue;
        s->bound[i] = true;
        uint8_t *one = kn_alloc(s->a, 8);
        kn_data *data = kn_new(s->a, kn_data);
        if (!one || !data) return kn_fail(s->d, KILN_MEMORY, "out of memory");
        kn_element_store(x->dtype, one, s->o->values[i]);
        *data = (kn_data){.bytes = one, .n = (size_t)kn_dtype_bytes(x->dtype), .splat = true};
        x->data = data;
        return KILN_OK;
    }
    s->g->inputs[s->g->ninputs++] = v;
    return KILN_OK;
}

static kiln_status settle_input(kn_settle *s, kn_frame *f, int i)
{
    const kn_value *from = &f->g->values[f->g->inputs[i]];
    if (!from->typed || !from->shaped) {
        kn_fail_at(s->d, KILN_SHAPE, from->place, "input \"%.64s\" has no %s", from->name, from->typed ? "shape" : "dtype");
        return s->d->status;
    }
    int v = kn_graph_value(s->a, s->g, from->name);
    if (v < 0) return kn_fail(s->d, KILN_MEMORY, "out of memory");
    kn_value x = *from;
    x.producer = x.outer = -1;
    int64_t elems = 1;
    for (int k = 0; k < x.rank; k++) {
        kiln_status status = settle_extent(s, f->g, from, k, &x.shape[k]);
        if (status != KILN_OK) return status;
        if (!kn_mul_fits(elems, x.shape[k], &elems) || elems > KILN_MAX_ELEMENTS)
            return kn_fail_at(s->d, KILN_LIMIT, from->place, "input \"%.64s\" has more than 2^40 elements", from->name);
    }
    s->g->values[v] = x;
    f->map[f->g->inputs[i]] = v;
    return bind_input(s, v);
}

/* What the client gives and the model has no place for is a mistake of spelling. */
static kiln_status all_used(kn_settle *s)
{
    for (int i = 0; s->o && i < s->o->ndims; i++) {
        if (s->used[i]) continue;
        kn_fail_at(s->d, KILN_REQUEST, "?dims", "no input of the model has a dimension \"%.80s\"", s->o->dims[i]);
        kn_hint(s->d, "the name of a dimension (batch), an input and the number of its dimension (x:0), or an input with its whole shape");
        return s->d->status;
    }
    for (int i = 0; s->o && i < s->o->nbinds; i++)
        if (!s->bound[i]) return kn_fail_at(s->d, KILN_REQUEST, "?bind", "the model has no input \"%.80s\"", s->o->binds[i]);
    return KILN_OK;
}

static bool wanted(const kn_node *n, const bool *live)
{
    for (int k = 0; k < n->noutputs; k++)
        if (live[n->outputs[k]]) return true;
    return false;
}

/* What the outputs need, inputs kept; values and nodes get new numbers. */
static kiln_status prune(kn_settle *s, kn_graph **out)
{
    const kn_graph *g = s->g;
    kn_graph *h = kn_graph_new(s->a);
    bool *live = kn_array(s->a, bool, g->nvalues + 1);
    int *map = kn_array(s->a, int, g->nvalues + 1);
    if (!h || !live || !map) return kn_fail(s->d, KILN_MEMORY, "out of memory");
    for (int i = 0; i < g->noutputs; i++) live[g->outputs[i]] = true;
    for (int i = 0; i < g->ninputs; i++) live[g->inputs[i]] = true;
    for (int i = g->nnodes - 1; i >= 0; i--)
        for (int k = 0; wanted(&g->nodes[i], live) && k < g->nodes[i].ninputs; k++)
            if (g->nodes[i].inputs[k] >= 0) live[g->nodes[i].inputs[k]] = true;
    for (int i = 0; i < g->nnodes; i++) /* a call writes all that it gives */
        for (int k = 0; wanted(&g->nodes[i], live) && k < g->nodes[i].noutputs; k++) live[g->nodes[i].outputs[k]] = true;
    for (int i = 0; i < g->nvalues; i++) {
        if (!live[i]) continue;
        map[i] = kn_graph_value(s->a, h, "");
        if (map[i] < 0) return kn_fail(s->d, KILN_MEMORY, "out of memory");
        h->values[map[i]] = g->values[i];
        h->values[map[i]].producer = -1;
    }
    for (int i = 0; i < g->nnodes; i++) {
        const kn_node *n = &g->nodes[i];
        if (!wanted(n, live)) continue;
        int *inputs = (int *)n->inputs, *outputs = (int *)n->outputs; /* add_node's own copies */
        for (int k = 0; k < n->ninputs; k++)
            if (inputs[k] >= 0) inputs[k] = map[inputs[k]];
        for (int k = 0; k < n->noutputs; k++) outputs[k] = map[outputs[k]];
        if (kn_graph_node(s->a, h, n) < 0) return kn_fail(s->d, KILN_MEMORY, "out of memory");
    }
    for (int i = 0; i < g->ninputs; i++) g->inputs[i] = map[g->inputs[i]];
    for (int i = 0; i < g->noutputs; i++) g->outputs[i] = map[g->outputs[i]];
    h->name = g->name;
    h->opset = KN_GRAPH_OPSET;
    h->settled = true;
    h->ninputs = g->ninputs;
    h->inputs = g->inputs;
    h->noutputs = g->noutputs;
    h->outputs = g->outputs;
    *out = h;
    return KILN_OK;
}

static bool has_no_operator(const kn_graph *model, const kn_node *n)
{
    return !kn_function_of(model, n) && !rule_of(n) && (*n->domain || !kn_ops_find(n->op));
}

/* Behind the first operator that is missing, the others of the model with their first places: who brings a model learns of all at once. */
static void tell_missing(kn_settle *s, const kn_graph *raw)
{
    enum { MOST_TOLD = 8 };
    const kn_node *told[MOST_TOLD];
    int ntold = 0, i = 0;
    while (i < raw->nnodes && &raw->nodes[i] != s->now) i++;
    if (i == raw->nnodes) return; /* in a subgraph: its message stands */
    told[ntold++] = s->now;
    for (i++; i < raw->nnodes; i++) {
        const kn_node *n = &raw->nodes[i];
        bool known = !has_no_operator(raw, n);
        for (int k = 0; k < ntold && !known; k++) known = !strcmp(told[k]->op, n->op) && !strcmp(told[k]->domain, n->domain);
        if (known) continue;
        size_t at = strlen(s->d->message), room = sizeof s->d->message - at;
        const char *more = kn_format(s->a, "; nor \"%s%s%.60s\" (%s)", n->domain, *n->domain ? "." : "", n->op, n->place);
        if (!more || ntold == MOST_TOLD || strlen(more) + 24 > room) {
            snprintf(s->d->message + at, room, "; nor others");
            return;
        }
        snprintf(s->d->message + at, room, "%s", more);
        told[ntold++] = n;
    }
}

kiln_status kn_graph_settle(kiln_arena *a, const kn_graph *raw, const kiln_graph_options *o, kn_graph **out, kiln_diag *d)
{
    kn_graph *g = kn_graph_new(a);
    if (!g) return kn_fail(d, KILN_MEMORY, "out of memory");
    kn_settle s = {.a = a, .g = g, .d = d, .o = o, .fold_left = 1 << 24, .bytes_left = 64 << 20, .nodes_left = MOST_SETTLED, .model = raw};
    kn_frame *f = kn_settle_frame(&s, raw, NULL);
    if (!f) return d->status;
    g->name = raw->name;
    g->noutputs = raw->noutputs;
    g->inputs = kn_array(a, int, raw->ninputs + 1);
    g->outputs = kn_array(a, int, raw->noutputs + 1);
    s.used = kn_array(a, bool, (o ? o->ndims : 0) + 1);
    s.bound = kn_array(a, bool, (o ? o->nbinds : 0) + 1);
    if (!g->inputs || !g->outputs || !s.used || !s.bound) return kn_fail(d, KILN_MEMORY, "out of memory");
    kiln_status status = KILN_OK;
    for (int i = 0; status == KILN_OK && i < raw->ninputs; i++) status = settle_input(&s, f, i);
    bool partial = o && o->partial; /* then values between nodes may be given their shapes, too */
    if (status == KILN_OK && !partial) status = all_used(&s);
    if (status == KILN_OK) status = settle_nodes(&s, f);
    if (status == KILN_OK && partial) status = all_used(&s);
    if (status == KILN_UNKNOWN_OP) tell_missing(&s, raw);
    s.takes_held = true;
    for (int i = 0; status == KILN_OK && i < raw->noutputs; i++) {
        const kn_value *v = &raw->values[raw->outputs[i]];
        status = kn_settle_value(&s, f, raw->outputs[i], v->place, &g->outputs[i]);
    }
    if (status == KILN_OK) status = prune(&s, out);
    if (status == KILN_OK && kn_arena_dry(a)) status = kn_fail(d, KILN_MEMORY, "out of memory");
    return status;
}
