/* The JSON request: one operator by ONNX name, or an expression with typed inputs. */
#include "grad/grad.h"
#include "ops/ops.h"
#include "request/contract.h"
#include "request/request.h"
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct reader {
    kiln_arena *a;
    kiln_diag *d;
    const cJSON *root;
    kiln_request *r;
    const char *input_names[KN_OP_INPUTS + KILN_MAX_TENSORS];
    const char *formal[KN_OP_INPUTS], *numbered[KN_OP_INPUTS]; /* of the program's inputs, for operators: "A", "x0" */
    const char *output_name;
    enum kn_dtype output_dtype;
    bool output_typed;
} reader;

/* Members this library reads, and those it leaves to the service. Anything else is refused: a typo must not be ignored in silence. */
static const char *const known[] = {"kiln", "name", "op", "attrs", "expr", "inputs", "outputs", "target", "policy", "quality",
                                    "top_k", "trace", "emit", "wait_ms", "numerics", "accumulate", "epilogue",
                                    "symbols", "pin", "grad", NULL};

static const cJSON *get(const cJSON *o, const char *name) { return cJSON_GetObjectItemCaseSensitive(o, name); }

static kiln_status bad(reader *q, const char *pointer, const char *want)
{
    return kn_fail_at(q->d, KILN_REQUEST, pointer, "%s must be %s", pointer, want);
}

static kiln_status check_members(reader *q)
{
    for (const cJSON *m = q->root->child; m; m = m->next) {
        bool found = false;
        for (int i = 0; known[i] && !found; i++) found = !strcmp(known[i], m->string);
        if (found) continue;
        char pointer[96];
        snprintf(pointer, sizeof pointer, "/%.80s", m->string);
        kn_fail_at(q->d, KILN_REQUEST, pointer, "no such member \"%.80s\"", m->string);
        kn_hint(q->d, "op or expr, inputs, outputs, attrs, grad, target, policy, quality, top_k, trace, numerics, accumulate, emit, wait_ms, name");
        return q->d->status;
    }
    static const char *const later[] = {"epilogue", "symbols", "pin", NULL};
    for (int i = 0; later[i]; i++) {
        char pointer[32];
        snprintf(pointer, sizeof pointer, "/%s", later[i]);
        const cJSON *m = get(q->root, later[i]);
        if (m && !cJSON_IsNull(m)) return kn_fail_at(q->d, KILN_UNSUPPORTED, pointer, "\"%s\" is not supported yet", later[i]);
    }
    return KILN_OK;
}

static const char *copy(reader *q, const char *s)
{
    const char *t = kn_strdup(q->a, s);
    return t ? t : "";
}

/* A string member, or an object whose `inner` member is that string. */
static kiln_status read_word(reader *q, const char *name, const char *inner, const char *fallback, const char **out)
{
    char pointer[64];
    snprintf(pointer, sizeof pointer, "/%s", name);
    const cJSON *m = get(q->root, name);
    *out = fallback;
    if (!m) return KILN_OK;
    if (cJSON_IsObject(m) && inner) {
        snprintf(pointer, sizeof pointer, "/%s/%s", name, inner);
        m = get(m, inner);
    }
    if (!m || !cJSON_IsString(m)) return bad(q, pointer, "a string");
    *out = copy(q, m->valuestring);
    return KILN_OK;
}

static kiln_status read_choice(reader *q, const char *name, const char *inner, const char *const *choices, const char **out)
{
    kiln_status s = read_word(q, name, inner, choices[0], out);
    if (s != KILN_OK) return s;
    char list[128] = "";
    for (int i = 0; choices[i]; i++) {
        if (!strcmp(choices[i], *out)) return KILN_OK;
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", choices[i]);
    }
    char pointer[64];
    snprintf(pointer, sizeof pointer, "/%s", name);
    kn_fail_at(q->d, KILN_REQUEST, pointer, "\"%.60s\" is not a %s", *out, name);
    kn_hint(q->d, "one of %s", list);
    return q->d->status;
}

static kiln_status read_int(reader *q, const cJSON *m, const char *pointer, int64_t low, int64_t high, int64_t *out)
{
    double x = cJSON_IsNumber(m) ? m->valuedouble : 0.5;
    if (fabs(x) < 0x1p53 && x != (double)(int64_t)x) return bad(q, pointer, "an integer");
    if (!(x >= (double)low && x <= (double)high)) { /* beyond 2^53, too, where no cast may be tried first */
        kn_fail_at(q->d, KILN_REQUEST, pointer, "%s is %.17g", pointer, x);
        kn_hint(q->d, "from %lld to %lld", (long long)low, (long long)high);
        return q->d->status;
    }
    *out = (int64_t)x;
    return KILN_OK;
}

static kiln_status read_dtype(reader *q, const cJSON *m, const char *pointer, enum kn_dtype *out)
{
    if (!m || !cJSON_IsString(m)) return bad(q, pointer, "a dtype such as \"f32\"");
    if (kn_dtype_find(m->valuestring, strlen(m->valuestring), out)) return KILN_OK;
    kn_fail_at(q->d, KILN_DTYPE, pointer, "no dtype \"%.40s\"", m->valuestring);
    kn_hint(q->d, "f32, f64, f16, bf16, i64, i32, i16, i8, u8, bool");
    return q->d->status;
}

static kiln_status read_shape(reader *q, const cJSON *m, const char *pointer, kn_operand *out)
{
    if (!m || !cJSON_IsArray(m)) return bad(q, pointer, "a list of extents");
    int n = cJSON_GetArraySize(m);
    if (n > KILN_MAX_RANK) return kn_fail_at(q->d, KILN_SHAPE, pointer, "rank %d; at most %d is supported", n, KILN_MAX_RANK);
    out->rank = n;
    int64_t elems = 1;
    int i = 0;
    for (const cJSON *e = m->child; e; e = e->next, i++) {
        char at[96];
        snprintf(at, sizeof at, "%s/%d", pointer, i);
        if (cJSON_IsString(e)) return kn_fail_at(q->d, KILN_UNSUPPORTED, at, "symbolic dimensions are not supported yet");
        kiln_status s = read_int(q, e, at, 1, KILN_MAX_EXTENT, &out->shape[i]);
        if (s != KILN_OK) return s;
        if (!kn_mul_fits(elems, out->shape[i], &elems) || elems > KILN_MAX_ELEMENTS)
            return kn_fail_at(q->d, KILN_LIMIT, at, "the tensor has more than 2^40 elements");
    }
    return KILN_OK;
}

/* Only plain row-major operands for now; anything else must not be taken for that. */
static kiln_status check_layout(reader *q, const cJSON *m, const char *pointer)
{
    if (!m || cJSON_IsNull(m)) return KILN_OK;
    if (cJSON_IsString(m) && !strcmp(m->valuestring, "row_major")) return KILN_OK;
    return kn_fail_at(q->d, KILN_UNSUPPORTED, pointer, "only \"row_major\" layouts are supported");
}

/* One element of "inputs": an object, or null for an optional input that is left out. */
static kiln_status read_operand(reader *q, const cJSON *m, int i, kn_operand *out)
{
    char pointer[64];
    snprintf(pointer, sizeof pointer, "/inputs/%d", i);
    if (cJSON_IsNull(m)) return KILN_OK;
    if (!cJSON_IsObject(m)) return bad(q, pointer, "an object with name, dtype and shape, or null");
    out->present = true;
    const cJSON *name = get(m, "name");
    snprintf(pointer, sizeof pointer, "/inputs/%d/name", i);
    if (name && (!cJSON_IsString(name) || !*name->valuestring)) return bad(q, pointer, "a string");
    q->input_names[i] = name ? copy(q, name->valuestring) : kn_format(q->a, "in%d", i);
    for (int k = 0; k < i && name; k++)
        if (q->input_names[k] && !strcmp(q->input_names[k], q->input_names[i]))
            return kn_fail_at(q->d, KILN_REQUEST, pointer, "two inputs are named \"%.64s\"", q->input_names[i]);
    snprintf(pointer, sizeof pointer, "/inputs/%d/dtype", i);
    kiln_status s = read_dtype(q, get(m, "dtype"), pointer, &out->dtype);
    if (s != KILN_OK) return s;
    snprintf(pointer, sizeof pointer, "/inputs/%d/shape", i);
    if ((s = read_shape(q, get(m, "shape"), pointer, out)) != KILN_OK) return s;
    snprintf(pointer, sizeof pointer, "/inputs/%d/constant", i);
    const cJSON *constant = get(m, "constant");
    if (constant && !cJSON_IsBool(constant)) return bad(q, pointer, "true or false");
    out->constant = constant && cJSON_IsTrue(constant);
    snprintf(pointer, sizeof pointer, "/inputs/%d/layout", i);
    return check_layout(q, get(m, "layout"), pointer);
}

static kiln_status read_outputs(reader *q)
{
    const cJSON *m = get(q->root, "outputs");
    if (!m) return KILN_OK;
    if (!cJSON_IsArray(m) || cJSON_GetArraySize(m) != 1) return bad(q, "/outputs", "a list with the one output");
    const cJSON *name = cJSON_IsString(m->child) ? m->child : get(m->child, "name"), *dtype = get(m->child, "dtype");
    if (name && !cJSON_IsString(name)) return bad(q, "/outputs/0/name", "a string");
    if (name) q->output_name = copy(q, name->valuestring);
    if (!dtype) return KILN_OK;
    q->output_typed = true;
    return read_dtype(q, dtype, "/outputs/0/dtype", &q->output_dtype);
}

static kiln_status read_attr(reader *q, const cJSON *m, kn_attr *out)
{
    char pointer[160];
    snprintf(pointer, sizeof pointer, "/op/attrs/%.100s", m->string);
    out->name = copy(q, m->string);
    if (cJSON_IsBool(m)) {
        out->kind = 'i';
        out->i = cJSON_IsTrue(m);
    } else if (cJSON_IsNumber(m)) {
        bool whole = m->valuedouble >= -9e15 && m->valuedouble <= 9e15 && m->valuedouble == (double)(int64_t)m->valuedouble;
        out->kind = whole ? 'i' : 'f';
        out->f = m->valuedouble;
        out->i = whole ? (int64_t)m->valuedouble : 0;
        if (whole && out->i >= -KILN_MAX_EXTENT && out->i <= KILN_MAX_EXTENT) { /* where a list is wanted */
            out->floats[0] = out->f;
            out->list[out->n++] = out->i;
        }
    } else if (cJSON_IsString(m)) {
        out->kind = 's';
        out->s = copy(q, m->valuestring);
    } else if (cJSON_IsArray(m)) {
        out->kind = 'I';
        for (const cJSON *e = m->child; e; e = e->next) {
            if (out->n == KN_OP_ATTR_INTS) return kn_fail_at(q->d, KILN_REQUEST, pointer, "more than %d numbers", KN_OP_ATTR_INTS);
            bool fraction = cJSON_IsNumber(e) && e->valuedouble != floor(e->valuedouble);
            if (fraction) out->kind = 'F';
            else if (read_int(q, e, pointer, -KILN_MAX_EXTENT, KILN_MAX_EXTENT, &out->list[out->n]) != KILN_OK) return q->d->status;
            out->floats[out->n++] = e->valuedouble;
        }
    } else {
        return bad(q, pointer, "a number, a string or a list of integers");
    }
    return KILN_OK;
}

static kiln_status read_attrs(reader *q, kn_op_call *c)
{
    const cJSON *op = get(q->root, "op"), *m = cJSON_IsObject(op) ? get(op, "attrs") : NULL;
    if (!m) m = get(q->root, "attrs");
    if (!m) return KILN_OK;
    if (!cJSON_IsObject(m)) return bad(q, "/op/attrs", "an object");
    kn_attr *list = kn_array(q->a, kn_attr, cJSON_GetArraySize(m) + 1);
    if (!list) return kn_fail(q->d, KILN_MEMORY, "out of memory");
    for (const cJSON *e = m->child; e; e = e->next) {
        kiln_status s = read_attr(q, e, &list[c->nattrs++]);
        if (s != KILN_OK) return s;
    }
    c->attrs = list;
    return KILN_OK;
}

static kiln_status find_op(reader *q, const kn_op_spec **out)
{
    const cJSON *op = get(q->root, "op"), *name = cJSON_IsObject(op) ? get(op, "name") : op;
    if (!name || !cJSON_IsString(name)) return bad(q, cJSON_IsObject(op) ? "/op/name" : "/op", "an operator's name");
    if ((*out = kn_ops_find(name->valuestring))) return KILN_OK;
    const kn_op_spec *near = kn_ops_near(name->valuestring);
    kn_fail_at(q->d, KILN_UNKNOWN_OP, cJSON_IsObject(op) ? "/op/name" : "/op", "no operator \"%.64s\"", name->valuestring);
    if (near) kn_hint(q->d, "did you mean %s?", near->name);
    else kn_hint(q->d, "GET /v1/operators lists what there is; anything else can be written as \"expr\"");
    return q->d->status;
}

static kiln_status op_program(reader *q, kn_program **out)
{
    const kn_op_spec *op;
    kn_op_call *c = kn_new(q->a, kn_op_call);
    if (!c) return kn_fail(q->d, KILN_MEMORY, "out of memory");
    kiln_status s = find_op(q, &op);
    if (s != KILN_OK) return s;
    c->arena = q->a;
    c->d = q->d;
    const cJSON *inputs = get(q->root, "inputs");
    if (!inputs || !cJSON_IsArray(inputs)) return bad(q, "/inputs", "a list of inputs");
    for (const cJSON *m = inputs->child; m; m = m->next) {
        if (c->ninputs == KN_OP_INPUTS)
            return kn_fail_at(q->d, KILN_REQUEST, "/inputs", "%s takes at most %d inputs", op->name, op->max_inputs);
        if ((s = read_operand(q, m, c->ninputs, &c->in[c->ninputs])) != KILN_OK) return s;
        c->ninputs++;
    }
    if ((s = read_attrs(q, c)) != KILN_OK || (s = kn_op_program(op, c, out)) != KILN_OK) return s;
    int n = 0; /* the program has only the inputs that are present */
    for (int i = 0; i < c->ninputs; i++) {
        if (!c->in[i].present) continue;
        q->formal[n] = kn_op_input_name(op, i);
        q->numbered[n] = kn_format(q->a, "x%d", i);
        (*out)->tensors[n].constant = c->in[i].constant;
        q->input_names[n++] = q->input_names[i];
    }
    return KILN_OK;
}

/* "inputs" of an expression: a list as for operators, or an object name -> "f32[512,512]". */
static kiln_status declare(reader *q, kiln_bytes *out)
{
    const cJSON *inputs = get(q->root, "inputs");
    kn_buf b;
    kn_buf_init(&b, q->a);
    if (inputs && !cJSON_IsArray(inputs) && !cJSON_IsObject(inputs)) return bad(q, "/inputs", "a list or an object of inputs");
    int i = 0;
    for (const cJSON *m = inputs ? inputs->child : NULL; m; m = m->next, i++) {
        if (i == KILN_MAX_TENSORS) return kn_fail_at(q->d, KILN_LIMIT, "/inputs", "more than %d inputs", KILN_MAX_TENSORS);
        if (cJSON_IsObject(inputs)) {
            char pointer[128];
            snprintf(pointer, sizeof pointer, "/inputs/%.100s", m->string);
            if (!cJSON_IsString(m)) return bad(q, pointer, "a type such as \"f32[512,512]\"");
            kn_putf(&b, "%s%s=%s", i ? "&" : "", m->string, m->valuestring);
            continue;
        }
        kn_operand x = {0};
        kiln_status s = read_operand(q, m, i, &x);
        if (s != KILN_OK) return s;
        if (!x.present || !get(m, "name")) {
            char pointer[64];
            snprintf(pointer, sizeof pointer, "/inputs/%d/name", i);
            return bad(q, pointer, "the name that the expression uses");
        }
        kn_putf(&b, "%s%s=%s", i ? "&" : "", q->input_names[i], kn_dtype_text(x.dtype));
        for (int k = 0; k < x.rank; k++) kn_putf(&b, "%c%lld", k ? 'x' : ':', (long long)x.shape[k]);
        if (x.constant) kn_put(&b, ":const");
    }
    *out = kn_buf_take(&b);
    return out->p ? KILN_OK : kn_fail(q->d, KILN_MEMORY, "out of memory");
}

static kiln_status expr_program(reader *q, kn_program **out)
{
    const cJSON *m = get(q->root, "expr");
    if (!cJSON_IsString(m)) return bad(q, "/expr", "an expression");
    kiln_bytes inputs;
    kiln_status s = declare(q, &inputs);
    if (s != KILN_OK) return s;
    const char *text = copy(q, m->valuestring);
    s = kn_parse(q->a, (kiln_bytes){text, strlen(text)}, inputs, out, q->d);
    if (s != KILN_OK && !*q->d->pointer) snprintf(q->d->pointer, sizeof q->d->pointer, "/expr");
    return s;
}

static kiln_status check_output(reader *q, const kn_program *p)
{
    if (!q->output_typed || p->tensors[p->ninputs].dtype == q->output_dtype) return KILN_OK;
    return kn_fail_at(q->d, KILN_DTYPE, "/outputs/0/dtype", "the output is %s, not %s", kn_dtype_text(p->tensors[p->ninputs].dtype),
                      kn_dtype_text(q->output_dtype));
}

/* The client's own schedule: text, or a list of steps, one a line. */
static kiln_status read_trace(reader *q)
{
    const cJSON *m = get(q->root, "trace");
    kn_buf b;
    if (!m || cJSON_IsNull(m)) return KILN_OK;
    if (get(q->root, "policy")) return kn_fail_at(q->d, KILN_REQUEST, "/trace", "\"trace\" and \"policy\" exclude each other");
    kn_buf_init(&b, q->a);
    if (cJSON_IsString(m)) kn_put(&b, m->valuestring);
    int i = 0;
    for (const cJSON *e = cJSON_IsArray(m) ? m->child : NULL; e; e = e->next, i++) {
        char pointer[32];
        snprintf(pointer, sizeof pointer, "/trace/%d", i);
        if (!cJSON_IsString(e) || strchr(e->valuestring, '\n')) return bad(q, pointer, "a string, one step");
        kn_putf(&b, "%s\n", e->valuestring);
    }
    if (!cJSON_IsString(m) && !cJSON_IsArray(m)) return bad(q, "/trace", "text, one step a line, or a list of steps");
    q->r->trace = kn_buf_take(&b);
    if (q->r->trace.p && !q->r->trace.n) return bad(q, "/trace", "at least one step; \"# as written\" is the program without any");
    return q->r->trace.p ? KILN_OK : kn_fail(q->d, KILN_MEMORY, "out of memory");
}

/* An input by the client's name, else by the operator's formal name or x0, x1, ...; -1: none. */
static int find_input(const reader *q, const kn_program *p, const char *name, bool op)
{
    for (int i = 0; i < p->ninputs; i++)
        if (!strcmp(p->tensors[i].name, name)) return i;
    for (int i = 0; op && i < p->ninputs; i++)
        if (!strcmp(q->formal[i], name) || (q->numbered[i] && !strcmp(q->numbered[i], name))) return i;
    return -1;
}

static kiln_status no_input(reader *q, const kn_program *p, const char *pointer, const char *name)
{
    char list[280] = "";
    size_t used = 0;
    for (int i = 0; i < p->ninputs && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", p->tensors[i].name);
    kn_fail_at(q->d, KILN_REQUEST, pointer, "no input \"%.64s\" to differentiate by", name);
    kn_hint(q->d, "one of %s", list);
    return q->d->status;
}

/* "grad": the program becomes that of its gradients by the inputs named. Its tensors have the client's names already. */
static kiln_status read_grad(reader *q, bool op, kn_program **p)
{
    const cJSON *m = get(q->root, "grad");
    int inputs[KILN_MAX_TENSORS], n = 0;
    if (!m || cJSON_IsNull(m)) return KILN_OK;
    if (!cJSON_IsArray(m) || !m->child) return bad(q, "/grad", "a list of inputs' names");
    for (const cJSON *e = m->child; e; e = e->next) {
        char pointer[32];
        snprintf(pointer, sizeof pointer, "/grad/%d", n);
        if (!cJSON_IsString(e)) return bad(q, pointer, "an input's name");
        int i = find_input(q, *p, e->valuestring, op);
        if (i < 0) return no_input(q, *p, pointer, e->valuestring);
        for (int k = 0; k < n; k++)
            if (inputs[k] == i) return kn_fail_at(q->d, KILN_REQUEST, pointer, "input \"%.64s\" is named twice", e->valuestring);
        inputs[n++] = i;
    }
    kiln_status s = kn_grad(q->a, *p, inputs, n, p, q->d);
    if (s != KILN_OK && !*q->d->pointer) snprintf(q->d->pointer, sizeof q->d->pointer, "/grad");
    if (s != KILN_OK && op) q->d->line = q->d->col = 0; /* places in the operator's own text mean nothing to the client */
    return s;
}

/* The client's names for an operator's inputs and output. */
static void rename_tensors(const reader *q, kn_program *p)
{
    for (int i = 0; i < p->ninputs; i++) p->tensors[i].name = q->input_names[i];
    p->tensors[p->ninputs].name = q->output_name ? q->output_name : "y";
}

static kiln_status read_request(reader *q)
{
    static const char *const policies[] = {"default", "roller", NULL}, *const qualities[] = {"any", "constructed", "verified", "tuned", NULL};
    if (!cJSON_IsObject(q->root)) return bad(q, "", "an object");
    kiln_status s = check_members(q);
    if (s == KILN_OK) s = read_word(q, "target", "id", "", &q->r->target);
    if (s == KILN_OK) s = read_choice(q, "policy", NULL, policies, &q->r->policy);
    if (s == KILN_OK) s = read_choice(q, "quality", "tier", qualities, &q->r->quality);
    int64_t k = 10;
    if (s == KILN_OK && get(q->root, "top_k")) s = read_int(q, get(q->root, "top_k"), "/top_k", 1, KILN_MAX_CANDIDATES, &k);
    if (s == KILN_OK) s = read_trace(q);
    if (s == KILN_OK) s = read_outputs(q);
    if (s != KILN_OK) return s;
    q->r->top_k = (int)k;
    bool op = get(q->root, "op") != NULL, expr = get(q->root, "expr") != NULL;
    if (op == expr) {
        kn_fail_at(q->d, KILN_REQUEST, "", op ? "\"op\" and \"expr\" exclude each other" : "neither \"op\" nor \"expr\" is given");
        kn_hint(q->d, "{\"op\":\"MatMul\",\"inputs\":[...],\"target\":\"host\"} or {\"expr\":\"c[M,N] +=! a[M,K]*b[K,N]\",\"inputs\":[...]}");
        return q->d->status;
    }
    kn_program *p = NULL;
    s = op ? op_program(q, &p) : expr_program(q, &p);
    if (s == KILN_OK) s = check_output(q, p);
    if (s != KILN_OK) return s;
    if (op) rename_tensors(q, p);
    if ((s = read_grad(q, op, &p)) != KILN_OK) return s;
    if ((s = kn_request_contract(q->root, p, q->d)) != KILN_OK) return s;
    return kn_request_finish(q->a, p, q->r, q->d);
}

kiln_status kiln_request_json(kiln_arena *a, kiln_bytes body, kiln_request **out, kiln_diag *d)
{
    kiln_status s = kiln_json_check(body, d);
    if (s != KILN_OK) return s;
    reader *q = kn_new(a, reader);
    kiln_request *r = kn_new(a, kiln_request);
    if (!q || !r) return kn_fail(d, KILN_MEMORY, "out of memory");
    cJSON *root = cJSON_ParseWithLength(body.p, body.n);
    if (!root) return kn_fail(d, KILN_MEMORY, "out of memory");
    *q = (reader){.a = a, .d = d, .root = root, .r = r};
    s = read_request(q);
    cJSON_Delete(root);
    if (s == KILN_OK && kn_arena_dry(a)) s = kn_fail(d, KILN_MEMORY, "out of memory");
    if (s == KILN_OK) *out = r;
    return s;
}
