/* oneDNN in four forms: plain (everything as the case has it), packed (weights in the library's own layout), nhwc and blocked (activations
 * too, for chains of operators that keep them so). What differs from the case's layout is reordered outside of the timed part. */
#include "load-tests/kernels/bench.h"
#include <dnnl.h>
#include <stdlib.h>

enum { ARGS = 5, PLAIN = 0, PACKED, BY_NHWC, BLOCKED };
typedef dnnl_memory_desc_t md;
typedef struct operand {
    int arg;
    md user;
    const void *data;
} operand; /* data NULL: the output */
typedef struct state {
    const bench_case *c;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    int n;
    operand operands[ARGS];
    dnnl_exec_arg_t args[ARGS];
} state;

static dnnl_data_type_t dtype(const char *name)
{
    static const struct {
        const char *name;
        dnnl_data_type_t type;
    } types[] = {{"f32", dnnl_f32}, {"bf16", dnnl_bf16}, {"f16", dnnl_f16}, {"i8", dnnl_s8}, {"u8", dnnl_u8}, {"i32", dnnl_s32}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (!strcmp(name, types[i].name)) { return types[i].type; }
    }
    return dnnl_data_type_undef;
}

static md tagged(const char *type, dnnl_format_tag_t tag, int n, const int64_t *dims)
{
    md m;
    if (dnnl_memory_desc_init_by_tag(&m, n, dims, dtype(type), tag)) { memset(&m, 0, sizeof m); }
    return m;
}

/* The same tensor in a layout of the library's choice, or as it is. */
static md any(const md *m, bool free_choice)
{
    md a = *m;
    if (free_choice) { dnnl_memory_desc_init_by_tag(&a, m->ndims, m->dims, m->data_type, dnnl_format_tag_any); }
    return a;
}

static md *give(state *s, int arg, md m, const void *data)
{
    s->operands[s->n] = (operand){arg, m, data};
    return &s->operands[s->n++].user;
}

static bool move(state *s, dnnl_memory_t from, const md *fm, dnnl_memory_t to, const md *tm)
{
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t p;
    if (dnnl_reorder_primitive_desc_create(&pd, fm, s->engine, tm, s->engine, NULL)) { return false; }
    bool ok = !dnnl_primitive_create(&p, pd);
    dnnl_primitive_desc_destroy(pd);
    if (!ok) { return false; }
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    ok = !dnnl_primitive_execute(p, s->stream, 2, args) && !dnnl_stream_wait(s->stream);
    dnnl_primitive_destroy(p);
    return ok;
}

/* Memory of the layout that the primitive wants, filled from the case's data where it differs. */
static bool place(state *s, const_dnnl_primitive_desc_t pd, int i)
{
    const operand *o = &s->operands[i];
    const md *want = dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, o->arg);
    dnnl_memory_t user;
    if (!want || !want->ndims) { want = &o->user; }
    bool same = o->data && dnnl_memory_desc_equal(want, &o->user);
    s->args[i].arg = o->arg;
    if (dnnl_memory_create(&s->args[i].memory, want, s->engine, same ? (void *)(uintptr_t)o->data : DNNL_MEMORY_ALLOCATE)) { return false; }
    if (same || !o->data) { return true; }
    if (dnnl_memory_create(&user, &o->user, s->engine, (void *)(uintptr_t)o->data)) { return false; }
    bool ok = move(s, user, &o->user, s->args[i].memory, want);
    dnnl_memory_destroy(user);
    return ok;
}

static void call(void *p)
{
    state *s = p;
    dnnl_primitive_execute(s->primitive, s->stream, s->n, s->args);
    dnnl_stream_wait(s->stream);
}

static void fetch(void *p, void *out)
{
    state *s = p;
    const operand *o = &s->operands[s->n - 1];
    const md *m;
    dnnl_memory_t user;
    memset(out, 0, (size_t)s->c->out_bytes);
    if (dnnl_memory_get_memory_desc(s->args[s->n - 1].memory, &m) || dnnl_memory_create(&user, &o->user, s->engine, out)) { return; }
    move(s, s->args[s->n - 1].memory, m, user, &o->user);
    dnnl_memory_destroy(user);
}

static void drop(void *p)
{
    state *s = p;
    for (int i = 0; i < s->n; i++) {
        if (s->args[i].memory) { dnnl_memory_destroy(s->args[i].memory); }
    }
    if (s->primitive) { dnnl_primitive_destroy(s->primitive); }
    dnnl_stream_destroy(s->stream);
    dnnl_engine_destroy(s->engine);
    free(s);
}

/* ---- operators: each gives its operands, the output last, and describes itself; false: not this one or not in this form ---------------
 */
typedef union describe {
    dnnl_matmul_desc_t matmul;
    dnnl_convolution_desc_t conv;
    dnnl_pooling_desc_t pool;
    dnnl_reduction_desc_t reduce;
    dnnl_eltwise_desc_t eltwise;
    dnnl_binary_desc_t binary;
    dnnl_softmax_desc_t softmax;
    dnnl_layer_normalization_desc_t norm;
} describe;

static bool matmul(state *s, int form, describe *d)
{
    const bench_case *c = s->c;
    int64_t b = bench_get(c, "B"), m = bench_get(c, "M"), n = bench_get(c, "N"), k = bench_get(c, "K");
    int rank = b ? 3 : 2, at = b ? 0 : 1;
    dnnl_format_tag_t tag = b ? dnnl_abc : dnnl_ab;
    if (form > PACKED) { return false; }
    md *x = give(s, DNNL_ARG_SRC, tagged(c->in_dtype[0], tag, rank, (int64_t[]){b, m, k} + at), c->in[0]);
    md *w = give(s, DNNL_ARG_WEIGHTS, tagged(c->in_dtype[1], tag, rank, (int64_t[]){b, k, n} + at), c->in[1]);
    md *y = give(s, DNNL_ARG_DST, tagged(c->out_dtype, tag, rank, (int64_t[]){b, m, n} + at), NULL), want = any(w, form == PACKED);
    return !dnnl_matmul_desc_init(&d->matmul, x, &want, NULL, y);
}

/* Activations as a form wants them; 0: this form is another one's twin here. */
static dnnl_format_tag_t activations(const bench_case *c, int form)
{
    bool last = !strcmp(c->layout, "NHWC");
    if (form == BLOCKED) { return dnnl_format_tag_any; }
    if (form == BY_NHWC) { return last ? dnnl_format_tag_undef : dnnl_nhwc; }
    return last ? dnnl_nhwc : dnnl_nchw;
}

static bool conv(state *s, int form, describe *d)
{
    const bench_case *c = s->c;
    dnnl_format_tag_t tag = activations(c, form);
    bool last = !strcmp(c->layout, "NHWC");
    int64_t n = bench_get(c, "N"), g = bench_get(c, "group"), f = bench_get(c, "F"), st = bench_get(c, "stride"),
            dil = bench_get(c, "dilation") - 1;
    int64_t x_dims[] = {n, bench_get(c, "C"), bench_get(c, "H"), bench_get(c, "W")},
            y_dims[] = {n, f, bench_get(c, "HO"), bench_get(c, "WO")};
    int64_t w_dims[] = {g, f / g, bench_get(c, "CG"), bench_get(c, "KH"), bench_get(c, "KW")};
    dnnl_dims_t low = {bench_get(c, "PT"), bench_get(c, "PL")}, high = {bench_get(c, "PB"), bench_get(c, "PR")};
    dnnl_format_tag_t own = last ? dnnl_nhwc : dnnl_nchw,
                      weights = g > 1 ? (last ? dnnl_hwigo : dnnl_goihw) : (last ? dnnl_hwio : dnnl_oihw);
    if (!tag) { return false; }
    give(s, DNNL_ARG_SRC, tagged(c->in_dtype[0], own, 4, x_dims), c->in[0]);
    md *w = give(s, DNNL_ARG_WEIGHTS, tagged(c->in_dtype[1], weights, g > 1 ? 5 : 4, g > 1 ? w_dims : w_dims + 1), c->in[1]);
    give(s, DNNL_ARG_DST, tagged(c->out_dtype, own, 4, y_dims), NULL);
    md x = tagged(c->in_dtype[0], tag, 4, x_dims), y = tagged(c->out_dtype, tag, 4, y_dims), packed = any(w, form != PLAIN);
    return !dnnl_dilated_convolution_forward_desc_init(&d->conv, dnnl_forward_inference, dnnl_convolution_auto, &x, &packed, NULL, &y,
                                                       (dnnl_dims_t){st, st}, (dnnl_dims_t){dil, dil}, low, high);
}

static bool pool(state *s, int form, describe *d)
{
    const bench_case *c = s->c;
    dnnl_format_tag_t own = strcmp(c->layout, "NHWC") ? dnnl_nchw : dnnl_nhwc, tag = form == BLOCKED ? dnnl_nChw16c : activations(c, form);
    int64_t n = bench_get(c, "N"), ch = bench_get(c, "C"), st = bench_get(c, "stride");
    int64_t x_dims[] = {n, ch, bench_get(c, "H"), bench_get(c, "W")}, y_dims[] = {n, ch, bench_get(c, "HO"), bench_get(c, "WO")};
    dnnl_dims_t low = {bench_get(c, "PT"), bench_get(c, "PL")}, high = {bench_get(c, "PB"), bench_get(c, "PR")};
    if (!tag || form == PACKED) { return false; }
    give(s, DNNL_ARG_SRC, tagged(c->in_dtype[0], own, 4, x_dims), c->in[0]);
    give(s, DNNL_ARG_DST, tagged(c->out_dtype, own, 4, y_dims), NULL);
    md x = tagged(c->in_dtype[0], tag, 4, x_dims), y = tagged(c->out_dtype, tag, 4, y_dims);
    return !dnnl_pooling_forward_desc_init(&d->pool, dnnl_forward_inference,
                                           strcmp(c->op, "max_pool2d") ? dnnl_pooling_avg_exclude_padding : dnnl_pooling_max, &x, &y,
                                           (dnnl_dims_t){st, st}, (dnnl_dims_t){bench_get(c, "KH"), bench_get(c, "KW")}, low, high);
}

static bool sums(state *s, int form, describe *d)
{
    const bench_case *c = s->c;
    int64_t m = bench_get(c, "outer"), n = bench_get(c, "inner"), axis = bench_get(c, "axis");
    if (form) { return false; }
    md *x = give(s, DNNL_ARG_SRC, tagged("f32", dnnl_ab, 2, (int64_t[]){m, n}), c->in[0]);
    md *y = give(s, DNNL_ARG_DST, tagged("f32", dnnl_ab, 2, (int64_t[]){axis ? m : 1, axis ? 1 : n}), NULL);
    return !dnnl_reduction_desc_init(&d->reduce, dnnl_reduction_sum, x, y, 0, 0);
}

static bool flat(state *s, int form, describe *d)
{
    const bench_case *c = s->c;
    md m = tagged("f32", dnnl_a, 1, (int64_t[]){bench_get(c, "flat")});
    bool add = !strcmp(c->op, "add");
    if (form) { return false; }
    give(s, add ? DNNL_ARG_SRC_0 : DNNL_ARG_SRC, m, c->in[0]);
    if (add) { give(s, DNNL_ARG_SRC_1, m, c->in[1]); }
    give(s, DNNL_ARG_DST, m, NULL);
    if (add) { return !dnnl_binary_desc_init(&d->binary, dnnl_binary_add, &m, &m, &m); }
    return !dnnl_eltwise_forward_desc_init(&d->eltwise, dnnl_forward_inference,
                                           strcmp(c->op, "gelu") ? dnnl_eltwise_relu : dnnl_eltwise_gelu_erf, &m, 0, 0);
}

static bool rows(state *s, int form, describe *d)
{
    const bench_case *c = s->c;
    int64_t dims[] = {bench_get(c, "outer"), bench_get(c, "inner")};
    md m = tagged("f32", dnnl_ab, 2, dims), row = tagged("f32", dnnl_a, 1, dims + 1);
    if (form) { return false; }
    give(s, DNNL_ARG_SRC, m, c->in[0]);
    bool norm = !strcmp(c->op, "layer_norm");
    if (norm) { give(s, DNNL_ARG_SCALE, row, c->in[1]), give(s, DNNL_ARG_SHIFT, row, c->in[2]); }
    give(s, DNNL_ARG_DST, m, NULL);
    if (!norm) { return !dnnl_softmax_forward_desc_init(&d->softmax, dnnl_forward_inference, &m, 1); }
    return !dnnl_layer_normalization_forward_desc_init(&d->norm, dnnl_forward_inference, &m, NULL, 1e-5f, dnnl_use_scale | dnnl_use_shift);
}

static bool transpose(state *s, int form, dnnl_primitive_desc_t *pd)
{
    const bench_case *c = s->c;
    int64_t dims[] = {bench_get(c, "M"), bench_get(c, "N")};
    if (form) { return false; }
    md *x = give(s, DNNL_ARG_FROM, tagged("f32", dnnl_ab, 2, dims), c->in[0]),
       *y = give(s, DNNL_ARG_TO, tagged("f32", dnnl_ba, 2, dims), NULL);
    return !dnnl_reorder_primitive_desc_create(pd, x, s->engine, y, s->engine, NULL);
}

static bool described(state *s, int form, dnnl_primitive_desc_t *pd)
{
    static const struct {
        const char *op;
        bool (*describe)(state *, int, describe *);
    } ops[] = {{"matmul", matmul},   {"batch_matmul", matmul}, {"conv2d", conv},     {"depthwise_conv2d", conv},
               {"grouped_conv2d", conv},
               {"max_pool2d", pool}, {"avg_pool2d", pool},     {"reduce_sum", sums}, {"relu", flat},
               {"add", flat},        {"gelu", flat},           {"softmax", rows},    {"layer_norm", rows}};
    describe d;
    bool halves = strcmp(s->c->dtype, "f32") != 0;
    memset(&d, 0, sizeof d);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        bool products = ops[i].describe == matmul || ops[i].describe == conv;
        if (strcmp(ops[i].op, s->c->op) || (halves && !products)) { continue; }
        return ops[i].describe(s, form, &d) && !dnnl_primitive_desc_create(pd, &d, NULL, s->engine, NULL);
    }
    return bench_is(s->c, "transpose", "f32") && transpose(s, form, pd);
}

static bool open_form(const bench_case *c, bench_run *run, int form)
{
    state *s = calloc(1, sizeof *s);
    dnnl_primitive_desc_t pd = NULL;
    s->c = c;
    bool ok = !dnnl_engine_create(&s->engine, dnnl_cpu, 0) && !dnnl_stream_create(&s->stream, s->engine, dnnl_stream_default_flags) &&
              described(s, form, &pd) && !dnnl_primitive_create(&s->primitive, pd);
    for (int i = 0; ok && i < s->n; i++) { ok = place(s, pd, i); }
    if (pd) { dnnl_primitive_desc_destroy(pd); }
    *run = (bench_run){s, call, fetch, drop};
    if (!ok) { drop(s); }
    return ok;
}

static bool open_plain(const bench_case *c, bench_run *run) { return open_form(c, run, PLAIN); }
static bool open_packed(const bench_case *c, bench_run *run) { return open_form(c, run, PACKED); }
static bool open_nhwc(const bench_case *c, bench_run *run) { return open_form(c, run, BY_NHWC); }
static bool open_blocked(const bench_case *c, bench_run *run) { return open_form(c, run, BLOCKED); }

const bench_form *bench_forms(void)
{
    static const bench_form forms[] = {
        {"plain", open_plain}, {"packed", open_packed}, {"nhwc", open_nhwc}, {"blocked", open_blocked}, {NULL, NULL}};
    return forms;
}
