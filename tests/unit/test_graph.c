/* Whole models: ONNX and Graph JSON read, settled, folded, refused; every refusal has its place. */
#include "tests/arena.h"
#include "tests/unit/onnx_bytes.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include "graph/graph.h"

static kiln_arena *arena;
static bytes model, graph, node;

static int set_up(void **state)
{
    (void)state;
    arena = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    graph.n = 0;
    return arena ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    kiln_arena_close(arena);
    return 0;
}

static kiln_status read_model(int opset, kiln_graph **g, kiln_diag *d)
{
    *d = (kiln_diag){0};
    put_model(&model, &graph, opset);
    return kiln_graph_onnx(arena, (kiln_bytes){(char *)model.p, model.n}, NULL, g, d);
}

static void accept(int opset, const char *want)
{
    kiln_graph *g;
    kiln_diag d;
    kiln_bytes text;
    if (read_model(opset, &g, &d) != KILN_OK) fail_msg("%s: %s", d.pointer, d.message);
    assert_int_equal(kiln_graph_text(arena, g, &text), KILN_OK);
    if (!strstr(text.p, want)) fail_msg("%s\nlacks: %s", text.p, want);
}

static void refuse(int opset, kiln_status status, const char *pointer, const char *word)
{
    kiln_graph *g;
    kiln_diag d;
    kiln_status s = read_model(opset, &g, &d);
    if (s != status || strcmp(d.pointer, pointer) || !strstr(d.message, word))
        fail_msg("status %d at %s: %s; %d at %s with \"%s\" expected", s, d.pointer, d.message, status, pointer, word);
}

#define D(...)                                                                                                                             \
    (int64_t[]) { __VA_ARGS__ }

static void small_model(void **state)
{
    (void)state;
    float w[6] = {1, 2, 3, 4, 5, 6};
    put_value(&graph, 11, "x", 1, 2, D(2, 3));
    put_tensor(&graph, 5, "w", 1, 2, D(3, 2), w, sizeof w);
    put_node(&graph, "MatMul", "x w", "t");
    put_node(&graph, "Relu", "t", "y");
    put_value(&graph, 12, "y", 1, 2, D(2, 2));
    accept(13, "t f32[2,2] = MatMul(x, w)\ny f32[2,2] = Relu(t)\nout y f32[2,2]");
}

/* x.reshape(shape(x)[0], -1): the plumbing of shapes goes, a view stays. */
static void shape_plumbing(void **state)
{
    (void)state;
    int64_t zero = 0, one = -1;
    put_value(&graph, 11, "x", 1, 3, D(2, 3, 4));
    put_tensor(&graph, 5, "zero", 7, 0, NULL, &zero, 8);
    put_tensor(&graph, 5, "rest", 7, 1, D(1), &one, 8);
    put_node(&graph, "Shape", "x", "s");
    put_node(&graph, "Gather", "s zero", "n");
    put_node_head(&node, "Unsqueeze", "n", "n1");
    put_ints_attr(&node, "axes", 1, D(0));
    put_message(&graph, 1, &node);
    put_node_head(&node, "Concat", "n1 rest", "to");
    put_int_attr(&node, "axis", 0);
    put_message(&graph, 1, &node);
    put_node(&graph, "Reshape", "x to", "v");
    put_node(&graph, "Relu", "v", "y");
    put_value(&graph, 12, "y", 1, 2, D(2, 12));
    accept(11, "0 constants of 0 bytes, 0 of them in the model\nv f32[2,12] = Reshape(x) shape=2,12\ny f32[2,12] = Relu(v)");
}

/* Axes are an attribute before opset 13 and an input from then on; both become one node. */
static void versions(void **state)
{
    (void)state;
    int64_t axis = 1;
    put_value(&graph, 11, "x", 1, 2, D(2, 3));
    put_node_head(&node, "ReduceSum", "x", "y");
    put_ints_attr(&node, "axes", 1, D(1));
    put_message(&graph, 1, &node);
    put_value(&graph, 12, "y", 1, 2, D(2, 1));
    accept(11, "y f32[2,1] = ReduceSum(x) axes=1");
    graph.n = 0;
    put_value(&graph, 11, "x", 1, 2, D(2, 3));
    put_tensor(&graph, 5, "axes", 7, 1, D(1), &axis, 8);
    put_node(&graph, "ReduceSum", "x axes", "y");
    put_value(&graph, 12, "y", 1, 2, D(2, 1));
    accept(13, "y f32[2,1] = ReduceSum(x) axes=1");
    graph.n = 0; /* before opset 13 softmax took the axes from 1 on as one */
    put_value(&graph, 11, "x", 1, 3, D(2, 3, 4));
    put_node(&graph, "Softmax", "x", "y");
    put_value(&graph, 12, "y", 1, 3, D(2, 3, 4));
    accept(9, "Softmax(%1)\ny f32[2,3,4] = Reshape");
}

/* Batch normalisation that trains takes the batch's own moments, and blends the running ones. */
static void training(void **state)
{
    (void)state;
    put_value(&graph, 11, "x", 1, 3, D(2, 3, 4));
    for (int i = 0; i < 4; i++) put_value(&graph, 11, (const char *[]){"scale", "b", "mean", "var"}[i], 1, 1, D(3));
    put_node_head(&node, "BatchNormalization", "x scale b mean var", "y m v");
    put_int_attr(&node, "training_mode", 1);
    put_message(&graph, 1, &node);
    put_value(&graph, 12, "y", 1, 3, D(2, 3, 4));
    put_value(&graph, 12, "v", 1, 1, D(3));
    accept(15, "%9 f32[3] = ReduceMean(%8) axes=0,2 keepdims=0\n%11 f32[3] = Mul(var, %10)\n%13 f32[3] = Mul(%9, %12)\nv f32[3] = Add(%11, %13)\n"
               "y f32[2,3,4] = BatchNormalization(x, scale, b, %5, %9) epsilon=1e-05\n");
}

/* Nodes in any order are put in one that runs. */
static void order(void **state)
{
    (void)state;
    put_node(&graph, "Relu", "a", "y");
    put_node(&graph, "Exp", "x", "a");
    put_value(&graph, 11, "x", 1, 1, D(4));
    put_value(&graph, 12, "y", 1, 1, D(4));
    accept(13, "a f32[4] = Exp(x)\ny f32[4] = Relu(a)");
}

static void branches(void **state)
{
    (void)state;
    static bytes yes, no, attr;
    uint8_t condition = 1;
    for (int known = 1; known >= 0; known--) {
        graph.n = yes.n = no.n = 0;
        put_node(&yes, "Exp", "x", "t1");
        put_value(&yes, 12, "t1", 1, 1, D(4));
        put_node(&no, "Neg", "x", "t2");
        put_value(&no, 12, "t2", 1, 1, D(4));
        put_value(&graph, 11, "x", 1, 1, D(4));
        if (known)
            put_tensor(&graph, 5, "c", 9, 0, NULL, &condition, 1);
        else
            put_value(&graph, 11, "c", 9, 0, NULL);
        put_node_head(&node, "If", "c", "y");
        for (int k = 0; k < 2; k++) {
            attr.n = 0;
            put_text(&attr, 1, k ? "else_branch" : "then_branch");
            put_message(&attr, 6, k ? &no : &yes);
            put_int(&attr, 20, 5);
            put_message(&node, 5, &attr);
        }
        put_message(&graph, 1, &node);
        put_value(&graph, 12, "y", 1, 1, D(4));
        accept(13, known ? "\ny f32[4] = Exp(x)\nout" : "y f32[4] = Where(c, ");
    }
}

/* ---- functions ---- */

/* FunctionProto up to its nodes: names divided by spaces; its own version of ai.onnx. */
static void open_function(bytes *f, const char *name, const char *inputs, const char *outputs, int opset)
{
    static bytes version;
    version.n = f->n = 0;
    put_text(f, 1, name);
    put_text(f, 10, "acme");
    for (int k = 4; k <= 5; k++)
        for (const char *p = k == 4 ? inputs : outputs; *p;) {
            size_t n = strcspn(p, " ");
            put_bytes(f, k, p, n);
            p += n + (p[n] == ' ');
        }
    put_int(&version, 2, opset);
    put_message(f, 9, &version);
}

/* A node of domain "acme", with a float attribute where `alpha` is not 0. */
static void put_call(bytes *to, int field, const char *op, const char *inputs, const char *outputs, float alpha)
{
    static bytes attr;
    put_node_head(&node, op, inputs, outputs);
    put_text(&node, 7, "acme");
    attr.n = 0;
    put_text(&attr, 1, "slope");
    attr.p[attr.n++] = 2 << 3 | 5;
    memcpy(attr.p + attr.n, &alpha, 4);
    attr.n += 4;
    put_int(&attr, 20, 1);
    if (alpha != 0) put_message(&node, 5, &attr);
    put_message(to, field, &node);
}

/* An attribute of a node in a function that the function's caller gives. */
static void put_reference(bytes *n, const char *name, const char *refers)
{
    static bytes attr;
    attr.n = 0;
    put_text(&attr, 1, name);
    put_text(&attr, 21, refers);
    put_int(&attr, 20, 1);
    put_message(n, 5, &attr);
}

static kiln_status read_with(const bytes *const *functions, int n, kiln_graph **g, kiln_diag *d)
{
    *d = (kiln_diag){0};
    put_model(&model, &graph, 17);
    for (int i = 0; i < n; i++) put_message(&model, 25, functions[i]);
    return kiln_graph_onnx(arena, (kiln_bytes){(char *)model.p, model.n}, NULL, g, d);
}

/* Bend(x, b) = leaky(sum(x x' + b)), its slope the node's, its sum that of opset 11, where axes were an attribute; b may be left out. */
static void put_bend(bytes *f)
{
    open_function(f, "Bend", "x b", "y", 11);
    put_text(f, 6, "slope");
    put_node_head(&node, "Gemm", "x x b", "t");
    put_int_attr(&node, "transB", 1);
    put_message(f, 7, &node);
    put_node_head(&node, "ReduceSum", "t", "u");
    put_ints_attr(&node, "axes", 1, D(1));
    put_message(f, 7, &node);
    put_node_head(&node, "LeakyRelu", "u", "y");
    put_reference(&node, "alpha", "slope");
    put_message(f, 7, &node);
}

static void functions(void **state)
{
    (void)state;
    static bytes bend, twice;
    const bytes *both[] = {&twice, &bend};
    kiln_graph *g;
    kiln_diag d;
    kiln_bytes text;
    put_bend(&bend);
    open_function(&twice, "Twice", "x", "y", 17);
    put_call(&twice, 7, "Bend", "x", "m", 0.25f);
    put_call(&twice, 7, "Bend", "m m", "y", 0);
    put_value(&graph, 11, "x", 1, 2, D(2, 3));
    put_call(&graph, 1, "Twice", "x", "z", 0);
    put_value(&graph, 12, "z", 1, 2, D(2, 1));
    if (read_with(both, 2, &g, &d) != KILN_OK) fail_msg("%s: %s", d.pointer, d.message);
    assert_int_equal(kiln_graph_text(arena, g, &text), KILN_OK);
    assert_non_null(strstr(text.p, "= LeakyRelu(%"));
    assert_non_null(strstr(text.p, "alpha=0.25\n"));           /* given by the node */
    assert_non_null(strstr(text.p, "\nz f32[2,1] = LeakyRelu(")); /* given by nobody: the operator's own */
    assert_non_null(strstr(text.p, "axes=1"));
    assert_int_equal(read_with(both, 1, &g, &d), KILN_UNKNOWN_OP);
    assert_non_null(strstr(d.message, "acme.Bend"));
    assert_string_equal(d.pointer, "/functions/0/node/0");
}

static void functions_refused(void **state)
{
    (void)state;
    static bytes one, other;
    const bytes *both[] = {&one, &other}, *same[] = {&one, &one};
    kiln_graph *g;
    kiln_diag d;
    open_function(&one, "One", "x", "y", 17);
    put_call(&one, 7, "Other", "x", "y", 0);
    open_function(&other, "Other", "x", "y", 17);
    put_call(&other, 7, "One", "x", "y", 0);
    put_value(&graph, 11, "x", 1, 1, D(4));
    put_call(&graph, 1, "One", "x", "z", 0);
    put_value(&graph, 12, "z", 1, 1, D(4));
    assert_int_equal(read_with(both, 2, &g, &d), KILN_REQUEST);
    assert_non_null(strstr(d.message, "calls itself"));
    assert_string_equal(d.pointer, "/functions/1/node/0");
    assert_int_equal(read_with(same, 2, &g, &d), KILN_REQUEST);
    assert_non_null(strstr(d.message, "is there twice"));
    open_function(&other, "Other", "x x", "y", 17); /* an input twice, a name that nobody defines */
    assert_int_equal(read_with(both, 2, &g, &d), KILN_REQUEST);
    assert_string_equal(d.pointer, "/functions/1/input/1");
    open_function(&other, "Other", "x", "y", 17);
    assert_int_equal(read_with(both, 2, &g, &d), KILN_REQUEST);
    assert_string_equal(d.pointer, "/functions/1/output/0");
    put_bend(&other);
    graph.n = 0;
    put_value(&graph, 11, "x", 1, 1, D(4));
    put_call(&graph, 1, "Bend", "x x x", "z", 0);
    put_value(&graph, 12, "z", 1, 1, D(4));
    assert_int_equal(read_with(both + 1, 1, &g, &d), KILN_REQUEST);
    assert_non_null(strstr(d.message, "3 inputs for a function of 2"));
}

static void malformed(void **state)
{
    (void)state;
    float w[6] = {1, 2, 3, 4, 5, 6};
    put_value(&graph, 11, "x", 1, 2, D(2, 3));
    put_node(&graph, "Relu", "nowhere", "y");
    put_value(&graph, 12, "y", 1, 2, D(2, 3));
    refuse(13, KILN_REQUEST, "/graph/node/0/input/0", "nowhere");
    refuse(99, KILN_UNSUPPORTED, "/opset_import/0", "opset 99");
    graph.n = 0;
    put_node(&graph, "Relu", "b", "a");
    put_node(&graph, "Relu", "a", "b");
    put_value(&graph, 12, "a", 1, 2, D(2, 3));
    refuse(13, KILN_REQUEST, "/graph/node/0", "own result");
    graph.n = 0;
    put_value(&graph, 11, "x", 1, 2, D(1 << 30, 1 << 30));
    put_value(&graph, 12, "x", 1, 2, D(2, 3));
    refuse(13, KILN_LIMIT, "/graph/input/0", "2^40");
    graph.n = 0;
    put_tensor(&graph, 5, "w", 1, 2, D(3, 3), w, sizeof w);
    refuse(13, KILN_REQUEST, "/graph/initializer/0", "36 are right");
    graph.n = 0;
    put_tensor(&graph, 5, "w", 1, 2, D(3, -3), w, sizeof w);
    refuse(13, KILN_LIMIT, "/graph/initializer/0/dims/1", "-3");
    graph.n = 0;
    put_tensor(&graph, 5, "w", 14, 2, D(3, 2), w, sizeof w);
    refuse(13, KILN_DTYPE, "/graph/initializer/0", "complex64");
    graph.n = 0;
    put_value(&graph, 11, "x", 1, 2, D(2, -1));
    put_node(&graph, "Relu", "x", "y");
    put_value(&graph, 12, "y", 1, 2, D(2, -1));
    refuse(13, KILN_SHAPE, "/graph/input/0", "\"N\"");
    graph.n = 0;
    put_value(&graph, 11, "x", 1, 2, D(2, 3));
    put_node(&graph, "NoSuchOperator", "x", "y");
    put_value(&graph, 12, "y", 1, 2, D(2, 3));
    refuse(13, KILN_UNKNOWN_OP, "/graph/node/0", "NoSuchOperator");
    graph.n = 0;
    put_value(&graph, 11, "x", 1, 2, D(2, 3));
    put_value(&graph, 11, "x", 1, 2, D(2, 3));
    refuse(13, KILN_REQUEST, "/graph/input/1", "twice");
    graph.n = 0;
    put_value(&graph, 11, "x", 1, 2, D(2, 3));
    put_node(&graph, "MatMul", "x x", "y");
    put_value(&graph, 12, "y", 1, 2, D(2, 3));
    refuse(13, KILN_SHAPE, "/graph/node/0", "MatMul");
    static char name[5000];
    memset(name, 'a', sizeof name - 1);
    graph.n = 0;
    put_value(&graph, 11, name, 1, 2, D(2, 3));
    refuse(13, KILN_LIMIT, "/graph/input/0", "4999 bytes");
    graph.n = 0;
    put_value(&graph, 11, "\xff\xfe", 1, 2, D(2, 3));
    refuse(13, KILN_REQUEST, "/graph/input/0", "UTF-8");
}

/* A model cut anywhere is refused, never read beyond. */
static void truncated(void **state)
{
    (void)state;
    float w[6] = {1, 2, 3, 4, 5, 6};
    put_value(&graph, 11, "x", 1, 2, D(2, 3));
    put_tensor(&graph, 5, "w", 1, 2, D(3, 2), w, sizeof w);
    put_node(&graph, "MatMul", "x w", "y");
    put_value(&graph, 12, "y", 1, 2, D(2, 2));
    put_model(&model, &graph, 13);
    for (size_t n = 0; n < model.n; n++) {
        kiln_graph *g;
        kiln_diag d = {0};
        char *copy = malloc(n + 1);
        memcpy(copy, model.p, n);
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kiln_status s = kiln_graph_onnx(a, (kiln_bytes){copy, n}, NULL, &g, &d);
        if (s == KILN_OK || kiln_status_http(s) >= 500 || !*d.message) fail_msg("%zu bytes: status %d, \"%s\"", n, s, d.message);
        kiln_arena_close(a);
        free(copy);
    }
}

static void external_data(void **state)
{
    (void)state;
    static bytes tensor, entry;
    tensor.n = 0;
    put_int(&tensor, 1, 2);
    put_int(&tensor, 2, 1);
    put_text(&tensor, 8, "w");
    const char *pairs[] = {"location", "weights.bin", "offset", "4", "length", "8"};
    for (int k = 0; k < 6; k += 2) {
        entry.n = 0;
        put_text(&entry, 1, pairs[k]);
        put_text(&entry, 2, pairs[k + 1]);
        put_message(&tensor, 13, &entry);
    }
    put_int(&tensor, 14, 1);
    put_message(&graph, 5, &tensor);
    put_value(&graph, 11, "x", 1, 1, D(2));
    put_node(&graph, "Add", "x w", "y");
    put_value(&graph, 12, "y", 1, 1, D(2));
    refuse(13, KILN_REQUEST, "/graph/initializer/0", "weights.bin");
    float data[3] = {7, 8, 9};
    kiln_graph_part part = {"weights.bin", {(char *)data, sizeof data}};
    kiln_graph_options o = {.nparts = 1, .parts = &part};
    kiln_graph *g;
    kiln_diag d = {0};
    assert_int_equal(kiln_graph_onnx(arena, (kiln_bytes){(char *)model.p, model.n}, &o, &g, &d), KILN_OK);
    const kn_value *w = &g->values[g->nodes[0].inputs[1]];
    assert_true(kn_value_double(w, 0) == 8 && kn_value_double(w, 1) == 9);
    part.bytes.n = 11;
    assert_int_equal(kiln_graph_onnx(arena, (kiln_bytes){(char *)model.p, model.n}, &o, &g, &d), KILN_REQUEST);
}

/* Constants of 4 bits, two a byte, become ones of 8; a model made slim keeps their bytes. */
static void constants_of_four_bits(void **state)
{
    (void)state;
    const uint8_t data[] = {0x7f, 0x81, 0x0a};
    put_tensor(&graph, 5, "w", 22, 1, D(5), data, sizeof data);
    put_tensor(&graph, 5, "u", 21, 1, D(5), data, sizeof data);
    put_value(&graph, 11, "x", 3, 1, D(5));
    put_value(&graph, 11, "v", 2, 1, D(5));
    put_node(&graph, "Add", "x w", "y");
    put_node(&graph, "Add", "v u", "z");
    put_value(&graph, 12, "y", 3, 1, D(5));
    put_value(&graph, 12, "z", 2, 1, D(5));
    put_model(&model, &graph, 14);
    kiln_graph *g;
    kiln_diag d = {0};
    kiln_bytes slim;
    const kiln_onnx_weight *weights;
    int n;
    assert_int_equal(kiln_onnx_slim(arena, (kiln_bytes){(char *)model.p, model.n}, 1, &slim, &weights, &n), KILN_OK);
    assert_int_equal(n, 0);
    if (kiln_graph_onnx(arena, slim, NULL, &g, &d) != KILN_OK) fail_msg("%s", d.message);
    const kn_value *w = &g->values[g->nodes[0].inputs[1]], *u = &g->values[g->nodes[1].inputs[1]];
    static const int want[2][5] = {{-1, 7, 1, -8, -6}, {15, 7, 1, 8, 10}};
    for (int i = 0; i < 5; i++) assert_true(kn_value_int(w, i) == want[0][i] && kn_value_int(u, i) == want[1][i]);
    graph.n = 0;
    put_tensor(&graph, 5, "w", 22, 1, D(5), data, 2);
    put_value(&graph, 11, "x", 3, 1, D(5));
    put_node(&graph, "Add", "x w", "y");
    put_value(&graph, 12, "y", 3, 1, D(5));
    refuse(14, KILN_REQUEST, "/graph/initializer/0", "3 are right");
}

static void dimensions_by_name(void **state)
{
    (void)state;
    put_value(&graph, 11, "x", 1, 2, D(-1, 3));
    put_node(&graph, "Relu", "x", "y");
    put_value(&graph, 12, "y", 1, 2, D(-1, 3));
    put_model(&model, &graph, 13);
    kiln_graph *g;
    kiln_diag d = {0};
    kiln_graph_options o = {.ndims = 1, .dims = (const char *[]){"N"}, .extents = D(5)};
    assert_int_equal(kiln_graph_onnx(arena, (kiln_bytes){(char *)model.p, model.n}, &o, &g, &d), KILN_OK);
    assert_int_equal(g->values[g->outputs[0]].shape[0], 5);
}

/* "batch" stands in both inputs: a whole shape given for one binds the other; what fits nowhere is refused. */
static void open_ends_as_text(void **state)
{
    (void)state;
    static const struct {
        const char *dims, *binds, *place;
        int64_t rows;
    } cases[] = {
        {"N:4", "", NULL, 4},
        {"x:4x3", "", NULL, 4},
        {"x:0:4", "", NULL, 4},
        {"x:0:4,x:1:3", "s:2.5", NULL, 4},
        {"N:4,", "", NULL, 4},
        {"x:4x5", "", "/graph/input/0", 0},
        {"M:4", "", "/graph/input/0", 0},
        {"", "", "/graph/input/0", 0},
        {"N:4,M:4", "", "?dims", 0},
        {"x:4x3x2", "", "?dims", 0},
        {"N:0", "", "?dims", 0},
        {"N:", "", "?dims", 0},
        {":4", "", "?dims", 0},
        {"x:4x", "", "?dims", 0},
        {"N:4", "t:1", "?bind", 0},
        {"N:4", "s:one", "?bind", 0},
    };
    put_value(&graph, 11, "x", 1, 2, D(-1, 3));
    put_value(&graph, 11, "z", 1, 2, D(-1, 3));
    put_value(&graph, 11, "s", 1, 0, D(0));
    put_node(&graph, "Add", "x z", "t");
    put_node(&graph, "Mul", "t s", "y");
    put_value(&graph, 12, "y", 1, 2, D(-1, 3));
    put_model(&model, &graph, 13);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kiln_graph_options o;
        kiln_graph *g;
        kiln_diag d = {0};
        kiln_status s = kiln_graph_options_read(arena, cases[i].dims, cases[i].binds, &o, &d);
        if (s == KILN_OK) s = kiln_graph_onnx(arena, (kiln_bytes){(char *)model.p, model.n}, &o, &g, &d);
        if (cases[i].place) assert_string_equal(d.pointer, cases[i].place);
        assert_int_equal(s == KILN_OK, !cases[i].place);
        if (s == KILN_OK) assert_int_equal(g->values[g->outputs[0]].shape[0], cases[i].rows);
        if (s == KILN_OK) assert_int_equal(g->ninputs, *cases[i].binds ? 2 : 3);
    }
}

/* ---- Graph JSON ---- */

static kiln_status read_json(const char *text, kiln_graph **g, kiln_diag *d)
{
    *d = (kiln_diag){0};
    return kiln_graph_json(arena, (kiln_bytes){text, strlen(text)}, NULL, g, d);
}

static void json(void **state)
{
    (void)state;
    kiln_graph *g;
    kiln_diag d;
    kiln_bytes text;
    const char *body =
        "{\"graph\":{\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[2,3]}],\"constants\":["
        "{\"name\":\"w\",\"dtype\":\"f32\",\"shape\":[3,1],\"base64\":\"AACAPwAAAEAAAEBA\"},{\"name\":\"b\",\"dtype\":\"f32\",\"shape\":[],"
        "\"fill\":0.5},"
        "{\"name\":\"v\",\"dtype\":\"f32\",\"shape\":[1],\"sha256\":\"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\"}],"
        "\"nodes\":[{\"op\":\"MatMul\",\"inputs\":[\"x\",\"w\"],\"outputs\":[\"t\"]},{\"op\":\"Add\",\"inputs\":[\"t\",\"b\"],\"outputs\":["
        "\"u\"]},"
        "{\"op\":\"Mul\",\"inputs\":[\"u\",\"v\"],\"outputs\":[\"z\"]},{\"op\":\"Clip\",\"attrs\":{\"min\":0,\"max\":6.5},\"inputs\":["
        "\"z\"],\"outputs\":[\"y\"]}],"
        "\"outputs\":[\"y\"]}}";
    if (read_json(body, &g, &d) != KILN_OK) fail_msg("%s: %s", d.pointer, d.message);
    assert_int_equal(kiln_graph_text(arena, g, &text), KILN_OK);
    assert_non_null(strstr(text.p, "y f32[2,1] = Clip(z) min=0 max=6.5"));
    const kn_value *w = &g->values[g->nodes[0].inputs[1]], *b = &g->values[g->nodes[1].inputs[1]], *v = &g->values[g->nodes[2].inputs[1]];
    assert_true(kn_value_double(w, 2) == 3 && b->data->splat && kn_value_double(b, 0) == 0.5);
    assert_true(v->data->by_digest && !v->data->bytes && v->data->digest[1] == 0x11);
}

/* Constants are computed as a kernel computes: whole numbers wrap. */
static void whole_numbers_wrap(void **state)
{
    (void)state;
    kiln_graph *g;
    kiln_diag d;
    const char *body =
        "{\"graph\":{\"inputs\":[{\"name\":\"x\",\"dtype\":\"u8\",\"shape\":[2]}],\"constants\":["
        "{\"name\":\"a\",\"dtype\":\"u8\",\"shape\":[2],\"values\":[3,200]},"
        "{\"name\":\"b\",\"dtype\":\"u8\",\"shape\":[2],\"values\":[5,100]}],"
        "\"nodes\":[{\"op\":\"Sub\",\"inputs\":[\"a\",\"b\"],\"outputs\":[\"c\"]},"
        "{\"op\":\"Add\",\"inputs\":[\"x\",\"c\"],\"outputs\":[\"y\"]}],"
        "\"outputs\":[\"y\"]}}";
    if (read_json(body, &g, &d) != KILN_OK) fail_msg("%s: %s", d.pointer, d.message);
    assert_int_equal(g->nnodes, 1);
    const kn_value *c = &g->values[g->nodes[0].inputs[1]];
    assert_true(kn_value_double(c, 0) == 254 && kn_value_double(c, 1) == 100);
}

/* All operators that are missing are named, each once; what is known, is not. */
static void missing_operators(void **state)
{
    (void)state;
    kiln_graph *g;
    kiln_diag d;
    char body[4096], *at = body;
    const char *const ops[] = {"Relu", "Nope", "Relu", "Never", "Nope", "Reshape"};
    at += sprintf(at, "{\"graph\":{\"inputs\":[{\"name\":\"v0\",\"dtype\":\"f32\",\"shape\":[2]}],\"nodes\":[");
    for (int i = 0; i < 6; i++) at += sprintf(at, "%s{\"op\":\"%s\",\"inputs\":[\"v%d\"],\"outputs\":[\"v%d\"]}", i ? "," : "", ops[i], i, i + 1);
    sprintf(at, "],\"outputs\":[\"v6\"]}}");
    assert_int_equal(read_json(body, &g, &d), KILN_UNKNOWN_OP);
    assert_string_equal(d.pointer, "/graph/nodes/1");
    assert_string_equal(d.message, "no operator \"Nope\"; nor \"Never\" (/graph/nodes/3)");
    at = body + sprintf(body, "{\"graph\":{\"inputs\":[{\"name\":\"v0\",\"dtype\":\"f32\",\"shape\":[2]}],\"nodes\":[");
    for (int i = 0; i < 20; i++) at += sprintf(at, "%s{\"op\":\"Nope%d\",\"inputs\":[\"v%d\"],\"outputs\":[\"v%d\"]}", i ? "," : "", i, i, i + 1);
    sprintf(at, "],\"outputs\":[\"v20\"]}}");
    assert_int_equal(read_json(body, &g, &d), KILN_UNKNOWN_OP);
    assert_non_null(strstr(d.message, "\"Nope7\" (/graph/nodes/7); nor others"));
}

static void json_refused(void **state)
{
    (void)state;
#define X "\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[2]}]"
    static const struct {
        const char *body, *pointer;
    } rows[] = {
        {"{}", "/graph"},
        {"[]", ""},
        {"{\"graph\":{},\"targets\":\"host\"}", "/targets"},
        {"{\"graph\":{},\"target\":3}", "/target"},
        {"{\"graph\":{},\"target\":\"\"}", "/target"},
        {"{\"graph\":{},\"target\":{}}", "/target/id"},
        {"{\"graph\":{},\"target\":{\"id\":[]}}", "/target/id"},
        {"{\"graph\":{},\"target\":{\"id\":\"host\",\"flops\":1}}", "/target/flops"},
        {"{\"graph\":{" X ",\"nodes\":[],\"outputs\":[]}}", "/graph/outputs"},
        {"{\"graph\":{" X ",\"nodes\":[],\"outputs\":[\"z\"]}}", "/graph/outputs/0"},
        {"{\"graph\":{" X ",\"nodes\":[{\"op\":\"Relu\",\"inputs\":[\"z\"],\"outputs\":[\"y\"]}],\"outputs\":[\"y\"]}}",
         "/graph/nodes/0/inputs/0"},
        {"{\"graph\":{" X ",\"nodes\":[{\"op\":\"Relu\",\"inputs\":[\"y\"],\"outputs\":[\"y\"]}],\"outputs\":[\"y\"]}}", "/graph/nodes/0"},
        {"{\"graph\":{" X ",\"nodes\":[{\"op\":\"Relu\",\"inputs\":[\"x\"],\"outputs\":[\"x\"]}],\"outputs\":[\"x\"]}}",
         "/graph/nodes/0/outputs/0"},
        {"{\"graph\":{" X ",\"nodes\":[{\"op\":\"Nope\",\"inputs\":[\"x\"],\"outputs\":[\"y\"]}],\"outputs\":[\"y\"]}}", "/graph/nodes/0"},
        {"{\"graph\":{" X ",\"nodes\":[],\"outputs\":[\"x\"],\"opset\":3}}", "/graph/opset"},
        {"{\"graph\":{" X ",\"nodes\":[],\"outputs\":[\"x\"],\"typo\":3}}", "/graph/typo"},
        {"{\"graph\":{\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[\"batch\"]}],\"nodes\":[],\"outputs\":[\"x\"]}}",
         "/graph/inputs/0"},
        {"{\"graph\":{" X
         ",\"constants\":[{\"name\":\"w\",\"dtype\":\"f32\",\"shape\":[2],\"base64\":\"AACAPwAAAE\"}],\"nodes\":[],\"outputs\":[\"x\"]}}",
         "/graph/constants/0/base64"},
        {"{\"graph\":{" X
         ",\"constants\":[{\"name\":\"w\",\"dtype\":\"f32\",\"shape\":[2],\"values\":[1]}],\"nodes\":[],\"outputs\":[\"x\"]}}",
         "/graph/constants/0/values"},
        {"{\"graph\":{" X ",\"constants\":[{\"name\":\"w\",\"dtype\":\"f32\",\"shape\":[2147483647,2147483647],\"fill\":1}],\"nodes\":[],"
         "\"outputs\":[\"x\"]}}",
         "/graph/constants/0/shape"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kiln_graph *g;
        kiln_diag d;
        kiln_status s = read_json(rows[i].body, &g, &d);
        if (s == KILN_OK || kiln_status_http(s) >= 500 || strcmp(d.pointer, rows[i].pointer))
            fail_msg("%s: status %d at %s (%s), %s expected", rows[i].body, s, d.pointer, d.message, rows[i].pointer);
    }
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {T(small_model), T(shape_plumbing), T(versions), T(training), T(order), T(branches), T(functions),
                                       T(functions_refused), T(malformed), T(whole_numbers_wrap),
                                       T(truncated), T(external_data), T(constants_of_four_bits),
                                       T(dimensions_by_name),
                                       T(open_ends_as_text), T(json), T(json_refused), T(missing_operators)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
