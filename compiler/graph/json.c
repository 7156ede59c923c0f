/* Graph JSON: {"graph": {"inputs", "constants", "nodes", "outputs"}} as a raw graph, in the words of ONNX (schema:
 * api/schemas/graph.json). Weights come inline (base64, a list of numbers, one number for all) or by digest. */
#include "graph/build.h"
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

typedef struct reader {
    kiln_arena *a;
    kiln_diag *d;
    int nodes, depth;
} reader;

static const cJSON *get(const cJSON *o, const char *name) { return cJSON_GetObjectItemCaseSensitive(o, name); }
static kiln_status dry(reader *r) { return kn_fail(r->d, KILN_MEMORY, "out of memory"); }

static const char *at(reader *r, const char *place, const char *member)
{
    const char *t = kn_format(r->a, "%s/%s", place, member);
    return t ? t : "";
}

static const char *item(reader *r, const char *place, int i)
{
    const char *t = kn_format(r->a, "%s/%d", place, i);
    return t ? t : "";
}

static kiln_status bad(reader *r, const char *place, const char *want)
{
    return kn_fail_at(r->d, KILN_REQUEST, place, "%.100s must be %s", place, want);
}

static kiln_status only(reader *r, const cJSON *o, const char *place, const char *const *known)
{
    for (const cJSON *m = o->child; m; m = m->next) {
        bool found = false;
        for (int i = 0; known[i] && !found; i++) found = !strcmp(known[i], m->string);
        if (!found) return kn_fail_at(r->d, KILN_REQUEST, at(r, place, m->string), "no such member \"%.80s\"", m->string);
    }
    return KILN_OK;
}

static const char *word(reader *r, const cJSON *m)
{
    const char *t = cJSON_IsString(m) ? kn_strdup(r->a, m->valuestring) : "";
    return t ? t : "";
}

static bool whole(const cJSON *m, int64_t *out)
{
    if (!cJSON_IsNumber(m) || m->valuedouble < -9.1e18 || m->valuedouble > 9.1e18) return false;
    *out = (int64_t)m->valuedouble;
    return (double)*out == m->valuedouble;
}

/* ---- types and constants ---- */

static kiln_status read_shape(reader *r, const cJSON *m, const char *place, bool names, kn_value *v)
{
    if (!cJSON_IsArray(m)) return bad(r, place, "a list of extents");
    v->rank = 0;
    for (const cJSON *e = m->child; e; e = e->next) {
        if (v->rank == KILN_MAX_RANK) return kn_fail_at(r->d, KILN_LIMIT, place, "more than %d dimensions", KILN_MAX_RANK);
        const char *here = item(r, place, v->rank);
        int64_t x = -1;
        if (names && cJSON_IsString(e))
            v->dims[v->rank] = word(r, e);
        else if (!whole(e, &x) || x < 0 || x > KILN_MAX_EXTENT)
            return bad(r, here, names ? "an extent or the name of one" : "an extent");
        v->shape[v->rank++] = x;
    }
    v->shaped = true;
    return KILN_OK;
}

static kiln_status read_type(reader *r, const cJSON *o, const char *place, bool names, kn_value *v)
{
    const cJSON *t = get(o, "dtype");
    if (!cJSON_IsString(t)) return bad(r, at(r, place, "dtype"), "a dtype such as \"f32\"");
    if (!kn_dtype_find(t->valuestring, strlen(t->valuestring), &v->dtype)) {
        kn_fail_at(r->d, KILN_DTYPE, at(r, place, "dtype"), "no dtype \"%.40s\"", t->valuestring);
        kn_hint(r->d, "f32, f64, f16, bf16, i64, i32, i16, i8, u8, bool");
        return r->d->status;
    }
    v->typed = true;
    kiln_status s = read_shape(r, get(o, "shape"), at(r, place, "shape"), names, v);
    int64_t n = 1;
    for (int i = 0; s == KILN_OK && i < v->rank; i++)
        if (v->shape[i] > 0 && (!kn_mul_fits(n, v->shape[i], &n) || n > KILN_MAX_ELEMENTS))
            return kn_fail_at(r->d, KILN_LIMIT, at(r, place, "shape"), "the tensor has more than 2^40 elements");
    return s;
}

static int sextet(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *p = c ? strchr(digits, c) : NULL;
    return p ? (int)(p - digits) : -1;
}

static kiln_status read_base64(reader *r, const char *text, const char *place, size_t want, kn_data *out)
{
    size_t n = strlen(text), used = 0, end = n;
    while (end && n - end < 2 && text[end - 1] == '=') end--;
    if (n % 4 || end / 4 * 3 + (end % 4 ? end % 4 - 1 : 0) != want || end % 4 == 1)
        return kn_fail_at(r->d, KILN_REQUEST, place, "%zu characters of base64; %zu bytes are right for dtype and shape", n, want);
    uint8_t *p = kn_alloc(r->a, want + 4);
    if (!p) return dry(r);
    for (size_t i = 0; i < end; i += 4) {
        uint32_t bits = 0;
        for (size_t k = 0; k < 4; k++) {
            int x = i + k < end ? sextet(text[i + k]) : 0;
            if (x < 0) return kn_fail_at(r->d, KILN_REQUEST, place, "character %zu is not base64", i + k);
            bits = bits << 6 | (uint32_t)x;
        }
        for (int k = 2; k >= 0 && used < want; k--) p[used++] = (uint8_t)(bits >> 8 * k);
    }
    out->bytes = p;
    out->n = want;
    return KILN_OK;
}

static kiln_status read_values(reader *r, const cJSON *m, const char *place, const kn_value *v, kn_data *out)
{
    int64_t n = kn_value_elems(v);
    size_t size = (size_t)kn_dtype_bytes(v->dtype);
    if (!cJSON_IsArray(m) || cJSON_GetArraySize(m) != n)
        return kn_fail_at(r->d, KILN_REQUEST, place, "%lld numbers are right for this shape", (long long)n);
    uint8_t *p = kn_alloc(r->a, (size_t)n * size + 1);
    if (!p) return dry(r);
    int64_t i = 0;
    for (const cJSON *e = m->child; e; e = e->next, i++) {
        if (!cJSON_IsNumber(e) && !cJSON_IsBool(e)) return bad(r, item(r, place, (int)i), "a number");
        kn_element_store(v->dtype, p + (size_t)i * size, cJSON_IsBool(e) ? cJSON_IsTrue(e) : e->valuedouble);
    }
    *out = (kn_data){.bytes = p, .n = (size_t)n * size};
    return KILN_OK;
}

static kiln_status read_fill(reader *r, const cJSON *m, const char *place, const kn_value *v, kn_data *out)
{
    if (!cJSON_IsNumber(m) && !cJSON_IsBool(m)) return bad(r, place, "the number that every element is");
    uint8_t *p = kn_alloc(r->a, 8);
    if (!p) return dry(r);
    kn_element_store(v->dtype, p, cJSON_IsBool(m) ? cJSON_IsTrue(m) : m->valuedouble);
    *out = (kn_data){.bytes = p, .n = (size_t)kn_dtype_bytes(v->dtype), .splat = true};
    return KILN_OK;
}

static kiln_status read_digest(reader *r, const cJSON *m, const char *place, kn_data *out)
{
    const char *hex = cJSON_IsString(m) ? m->valuestring : "";
    return kn_data_named(out, hex) ? KILN_OK : bad(r, place, "64 lower-case hexadecimal digits");
}

/* Type, shape and one of base64, values, fill, sha256. */
static kiln_status read_constant(reader *r, const cJSON *o, const char *place, kn_value *v)
{
    static const char *const known[] = {"name", "dtype", "shape", "base64", "values", "fill", "sha256", NULL};
    kiln_status s = only(r, o, place, known);
    if (s == KILN_OK) s = read_type(r, o, place, false, v);
    if (s != KILN_OK) return s;
    kn_data *data = kn_new(r->a, kn_data);
    if (!data) return dry(r);
    v->data = data;
    int64_t bytes;
    const cJSON *base64 = get(o, "base64"), *values = get(o, "values"), *fill = get(o, "fill"), *sha = get(o, "sha256");
    if (!kn_mul_fits(kn_value_elems(v), kn_dtype_bytes(v->dtype), &bytes)) return kn_fail_at(r->d, KILN_LIMIT, place, "too many bytes");
    if (!!base64 + !!values + !!fill + !!sha != 1) return bad(r, place, "given by exactly one of base64, values, fill and sha256");
    if (values) return read_values(r, values, at(r, place, "values"), v, data);
    if (fill) return read_fill(r, fill, at(r, place, "fill"), v, data);
    if (sha) return read_digest(r, sha, at(r, place, "sha256"), data);
    if (!cJSON_IsString(base64)) return bad(r, at(r, place, "base64"), "a string");
    return read_base64(r, base64->valuestring, at(r, place, "base64"), (size_t)bytes, data);
}

/* ---- nodes ---- */

static kiln_status read_graph(reader *r, const cJSON *o, const char *place, kn_scope *around, kn_graph **out);

static kiln_status read_list(reader *r, const cJSON *m, const char *place, kn_gattr *x)
{
    int n = cJSON_GetArraySize(m), i = 0;
    int64_t *ints = kn_array(r->a, int64_t, n + 1);
    double *floats = kn_array(r->a, double, n + 1);
    const char **strings = kn_array(r->a, const char *, n + 1);
    if (!ints || !floats || !strings) return dry(r);
    bool text = n > 0 && cJSON_IsString(m->child), fraction = false;
    for (const cJSON *e = m->child; e; e = e->next, i++) {
        if (text != cJSON_IsString(e) || (!text && !cJSON_IsNumber(e))) return bad(r, item(r, place, i), text ? "a string" : "a number");
        strings[i] = text ? word(r, e) : "";
        floats[i] = text ? 0 : e->valuedouble;
        fraction |= !text && !whole(e, &ints[i]);
    }
    x->kind = text ? 'S' : fraction ? 'F' : 'I';
    x->n = n;
    x->ints = ints;
    x->floats = floats;
    x->strings = strings;
    return KILN_OK;
}

static kiln_status read_attr(reader *r, const cJSON *m, const char *place, kn_scope *s, kn_gattr *x)
{
    x->name = kn_strdup(r->a, m->string);
    if (!x->name) return dry(r);
    const cJSON *tensor = cJSON_IsObject(m) ? get(m, "tensor") : NULL, *graph = cJSON_IsObject(m) ? get(m, "graph") : NULL;
    if (cJSON_IsString(m)) {
        x->kind = 's';
        x->s = word(r, m);
    } else if (cJSON_IsBool(m)) {
        x->kind = 'i';
        x->i = cJSON_IsTrue(m);
        x->f = (double)x->i;
    } else if (cJSON_IsNumber(m)) {
        x->kind = whole(m, &x->i) ? 'i' : 'f';
        x->f = m->valuedouble;
    } else if (cJSON_IsArray(m)) {
        return read_list(r, m, place, x);
    } else if (tensor && cJSON_IsObject(tensor)) {
        kn_value *v = kn_new(r->a, kn_value);
        if (!v) return dry(r);
        *v = (kn_value){.name = "", .place = place, .producer = -1, .outer = -1};
        x->kind = 'T';
        x->tensor = v;
        return read_constant(r, tensor, at(r, place, "tensor"), v);
    } else if (graph && cJSON_IsObject(graph)) {
        x->kind = 'G';
        return read_graph(r, graph, at(r, place, "graph"), s, &x->graph);
    } else {
        return bad(r, place, "a number, a string, a list of them, {\"tensor\": ...} or {\"graph\": ...}");
    }
    return KILN_OK;
}

static kiln_status read_attrs(reader *r, const cJSON *m, const char *place, kn_scope *s, kn_node *n)
{
    if (m && !cJSON_IsObject(m)) return bad(r, place, "an object");
    kn_gattr *list = kn_array(r->a, kn_gattr, cJSON_GetArraySize(m) + 1);
    if (!list) return dry(r);
    n->attrs = list;
    for (const cJSON *e = m ? m->child : NULL; e; e = e->next) {
        kiln_status status = read_attr(r, e, at(r, place, e->string), s, &list[n->nattrs++]);
        if (status != KILN_OK) return status;
    }
    return KILN_OK;
}

static kiln_status read_names(reader *r, const cJSON *m, const char *place, const cJSON **first, int *count)
{
    if (!cJSON_IsArray(m)) return bad(r, place, "a list of names");
    *first = m->child;
    *count = cJSON_GetArraySize(m);
    if (*count > KILN_MAX_GRAPH_ARGS) return kn_fail_at(r->d, KILN_LIMIT, place, "more than %d names", KILN_MAX_GRAPH_ARGS);
    int i = 0;
    for (const cJSON *e = m->child; e; e = e->next, i++)
        if (!cJSON_IsNull(e) && !cJSON_IsString(e)) return bad(r, item(r, place, i), "a name, or null where it is left out");
    return KILN_OK;
}

static bool left_out(const cJSON *e) { return cJSON_IsNull(e) || !*e->valuestring; }

static kiln_status define(reader *r, kn_scope *s, const char *name, const char *place, int *out)
{
    *out = kn_scope_define(s, name);
    if (*out == KN_SCOPE_TWICE) return kn_fail_at(r->d, KILN_REQUEST, place, "\"%.64s\" is defined twice", name);
    if (*out < 0) return dry(r);
    if (s->g->nvalues > KILN_MAX_GRAPH_VALUES) return kn_fail_at(r->d, KILN_LIMIT, place, "more than %d values", KILN_MAX_GRAPH_VALUES);
    s->g->values[*out].place = place;
    return KILN_OK;
}

static kiln_status resolve(reader *r, kn_scope *s, const char *name, const char *place, int *out)
{
    *out = kn_scope_find(s, name);
    if (*out >= 0) return KILN_OK;
    if (kn_arena_dry(r->a)) return dry(r);
    kn_fail_at(r->d, KILN_REQUEST, place, "no value is named \"%.64s\"", name);
    kn_hint(r->d, "an input, a constant, or an output of a node");
    return r->d->status;
}

/* The node but for its inputs and attributes, which may name what comes later. */
static kiln_status open_node(reader *r, const cJSON *o, const char *place, kn_scope *s)
{
    static const char *const known[] = {"op", "domain", "name", "inputs", "outputs", "attrs", NULL};
    if (!cJSON_IsObject(o)) return bad(r, place, "an object with op, inputs and outputs");
    kiln_status status = only(r, o, place, known);
    const cJSON *first = NULL;
    kn_node n = {.op = word(r, get(o, "op")), .domain = word(r, get(o, "domain")), .name = word(r, get(o, "name")), .place = place};
    if (status == KILN_OK && !*n.op) status = bad(r, at(r, place, "op"), "an operator's name");
    if (status == KILN_OK) status = read_names(r, get(o, "outputs"), at(r, place, "outputs"), &first, &n.noutputs);
    if (status != KILN_OK) return status;
    if (++r->nodes > KILN_MAX_GRAPH_NODES) return kn_fail_at(r->d, KILN_LIMIT, place, "more than %d nodes", KILN_MAX_GRAPH_NODES);
    int *outputs = kn_array(r->a, int, n.noutputs + 1), i = 0;
    if (!outputs) return dry(r);
    for (const cJSON *e = first; e; e = e->next, i++) {
        outputs[i] = -1;
        if (left_out(e)) continue;
        if ((status = define(r, s, word(r, e), item(r, at(r, place, "outputs"), i), &outputs[i])) != KILN_OK) return status;
    }
    n.outputs = outputs;
    return kn_graph_node(r->a, s->g, &n) < 0 ? dry(r) : KILN_OK;
}

static kiln_status close_node(reader *r, const cJSON *o, kn_scope *s, kn_node *n)
{
    const char *place = at(r, n->place, "inputs");
    const cJSON *first = NULL;
    kiln_status status = read_names(r, get(o, "inputs"), place, &first, &n->ninputs);
    if (status != KILN_OK) return status;
    int *inputs = kn_array(r->a, int, n->ninputs + 1), i = 0;
    if (!inputs) return dry(r);
    for (const cJSON *e = first; e; e = e->next, i++) {
        inputs[i] = -1;
        if (!left_out(e) && (status = resolve(r, s, word(r, e), item(r, place, i), &inputs[i])) != KILN_OK) return status;
    }
    n->inputs = inputs;
    return read_attrs(r, get(o, "attrs"), at(r, n->place, "attrs"), s, n);
}

static kiln_status read_nodes(reader *r, const cJSON *m, const char *place, kn_scope *s)
{
    int i = 0;
    kiln_status status = KILN_OK;
    if (!cJSON_IsArray(m)) return bad(r, place, "a list of nodes");
    for (const cJSON *o = m->child; o && status == KILN_OK; o = o->next) status = open_node(r, o, item(r, place, i++), s);
    i = 0;
    for (const cJSON *o = m->child; o && status == KILN_OK; o = o->next, i++) {
        kn_node n = s->g->nodes[i];
        status = close_node(r, o, s, &n);
        s->g->nodes[i] = n;
    }
    return status;
}

/* ---- the graph ---- */

/* Inputs or constants: a list of objects with a name and a type. */
static kiln_status read_declared(reader *r, const cJSON *m, const char *place, bool constants, kn_scope *s)
{
    static const char *const known[] = {"name", "dtype", "shape", NULL};
    if (!m && constants) return KILN_OK;
    if (!cJSON_IsArray(m)) return bad(r, place, "a list");
    int n = cJSON_GetArraySize(m), i = 0;
    int *list = kn_array(r->a, int, n + 1);
    if (!list) return dry(r);
    for (const cJSON *o = m->child; o; o = o->next, i++) {
        const char *here = item(r, place, i), *name = word(r, get(o, "name"));
        if (!cJSON_IsObject(o) || !*name) return bad(r, here, "an object with name, dtype and shape");
        kn_value type = {0};
        kiln_status status = constants ? read_constant(r, o, here, &type) : only(r, o, here, known);
        if (status == KILN_OK && !constants) status = read_type(r, o, here, true, &type);
        if (status == KILN_OK) status = define(r, s, name, here, &list[i]);
        if (status != KILN_OK) return status;
        kn_value *v = &s->g->values[list[i]];
        type.name = v->name;
        type.place = v->place;
        type.producer = type.outer = -1;
        *v = type;
    }
    if (!constants) {
        s->g->inputs = list;
        s->g->ninputs = n;
    }
    return KILN_OK;
}

static kiln_status read_outputs(reader *r, const cJSON *m, const char *place, kn_scope *s)
{
    int n = cJSON_IsArray(m) ? cJSON_GetArraySize(m) : 0, i = 0;
    if (!n) return bad(r, place, "a list of names");
    int *list = kn_array(r->a, int, n);
    if (!list) return dry(r);
    for (const cJSON *o = m->child; o; o = o->next, i++) {
        const char *name = word(r, cJSON_IsObject(o) ? get(o, "name") : o);
        if (!*name) return bad(r, item(r, place, i), "a name");
        kiln_status status = resolve(r, s, name, item(r, place, i), &list[i]);
        if (status != KILN_OK) return status;
    }
    s->g->outputs = list;
    s->g->noutputs = n;
    return KILN_OK;
}

static kiln_status read_graph(reader *r, const cJSON *o, const char *place, kn_scope *around, kn_graph **out)
{
    static const char *const known[] = {"name", "opset", "inputs", "constants", "nodes", "outputs", NULL};
    kn_scope s;
    kn_graph *g = kn_graph_new(r->a);
    if (!g) return dry(r);
    if (++r->depth > KILN_MAX_GRAPH_DEPTH)
        return kn_fail_at(r->d, KILN_LIMIT, place, "more than %d graphs inside each other", KILN_MAX_GRAPH_DEPTH);
    kn_scope_open(&s, r->a, g, around);
    g->name = word(r, get(o, "name"));
    int64_t opset = around ? around->g->opset : KN_GRAPH_OPSET;
    if (get(o, "opset") && (!whole(get(o, "opset"), &opset) || opset < KN_GRAPH_OPSET_MIN || opset > KN_GRAPH_OPSET)) {
        bad(r, at(r, place, "opset"), "an opset that is known");
        kn_hint(r->d, "from %d to %d", KN_GRAPH_OPSET_MIN, KN_GRAPH_OPSET);
        return r->d->status;
    }
    g->opset = (int)opset;
    kiln_status status = only(r, o, place, known);
    if (status == KILN_OK) status = read_declared(r, get(o, "inputs"), at(r, place, "inputs"), false, &s);
    if (status == KILN_OK) status = read_declared(r, get(o, "constants"), at(r, place, "constants"), true, &s);
    if (status == KILN_OK) status = read_nodes(r, get(o, "nodes"), at(r, place, "nodes"), &s);
    if (status == KILN_OK) status = read_outputs(r, get(o, "outputs"), at(r, place, "outputs"), &s);
    if (status == KILN_OK) status = kn_graph_order(r->a, g, r->d);
    r->depth--;
    *out = g;
    return status;
}

/* The body around the graph: nothing but "graph" and "target" stands there. cJSON_Delete(*root) after KILN_OK. */
static kiln_status open_body(reader *r, kiln_bytes body, cJSON **root)
{
    static const char *const known[] = {"graph", "target", NULL};
    kiln_status s = kn_json_check(body, KILN_MAX_GRAPH_JSON, r->d);
    if (s != KILN_OK) return s;
    *root = cJSON_ParseWithLength(body.p, body.n);
    if (!*root) return dry(r);
    s = cJSON_IsObject(*root) ? only(r, *root, "", known) : kn_fail_at(r->d, KILN_REQUEST, "", "the body must be an object");
    if (s == KILN_REQUEST) kn_hint(r->d, "{\"graph\":{\"inputs\":[...],\"nodes\":[...],\"outputs\":[...]},\"target\":\"host\"}");
    if (s == KILN_OK && !cJSON_IsObject(get(*root, "graph"))) s = bad(r, "/graph", "an object with inputs, nodes and outputs");
    if (s != KILN_OK) cJSON_Delete(*root);
    return s;
}

/* An id, or an object with that id alone. */
static kiln_status read_target(reader *r, const cJSON *m, const char **out)
{
    static const char *const known[] = {"id", NULL};
    const char *place = "/target";
    kiln_status s = KILN_OK;
    *out = "";
    if (!m) return KILN_OK;
    if (cJSON_IsObject(m)) {
        s = only(r, m, place, known);
        m = get(m, "id");
        place = "/target/id";
    }
    if (s == KILN_OK && (!cJSON_IsString(m) || !*m->valuestring)) s = bad(r, place, "the id of a target");
    if (s == KILN_REQUEST) kn_hint(r->d, "\"host\", or {\"id\": \"host\"}; a description of a device has a route of its own");
    if (s == KILN_OK) *out = word(r, m);
    return s;
}

kiln_status kiln_graph_target(kiln_arena *a, kiln_bytes body, const char **out, kiln_diag *d)
{
    reader r = {.a = a, .d = d};
    cJSON *root;
    kiln_status s = open_body(&r, body, &root);
    if (s != KILN_OK) return s;
    s = read_target(&r, get(root, "target"), out);
    cJSON_Delete(root);
    return s == KILN_OK && kn_arena_dry(a) ? dry(&r) : s;
}

kiln_status kiln_graph_json(kiln_arena *a, kiln_bytes body, const kiln_graph_options *o, kiln_graph **out, kiln_diag *d)
{
    reader r = {.a = a, .d = d};
    kn_graph *raw = NULL;
    cJSON *root;
    const char *target;
    kiln_status s = open_body(&r, body, &root);
    if (s != KILN_OK) return s;
    s = read_target(&r, get(root, "target"), &target);
    if (s == KILN_OK) s = read_graph(&r, get(root, "graph"), "/graph", NULL, &raw);
    cJSON_Delete(root);
    if (s == KILN_OK && kn_arena_dry(a)) s = dry(&r);
    return s == KILN_OK ? kn_graph_settle(a, raw, o, out, d) : s;
}
