/* The graph IR: a whole model as values and nodes, in ONNX's words.
 *
 * The way of the data:
 *     ONNX bytes (compiler/onnx) or Graph JSON (graph/json.c)  ->  raw graph  ->  kn_graph_settle  ->  settled graph  ->  partition
 *
 * A RAW graph is what the client sent: operators of its opset, parameters as tensors or as attributes depending on the version, subgraphs,
 * shapes of inputs only. A SETTLED graph is what everything behind reads, and holds these promises (kn_graph_settle makes them, or refuses
 * with the place of the node that stands against it):
 *   - nodes stand in an order in which they can be run, each input is a graph input, a constant or the output of an earlier node;
 *   - every value has a dtype and a static shape; no value is empty (an extent of 0) unless it is a constant;
 *   - every node has one output, no subgraph, and an operator of compiler/ops (a row of ops.def): kn_node_program makes its tensor
 *     expression. What ONNX passes as a small tensor (axes, pads, sizes ...) is an attribute;
 *   - what depends on constants alone and is small is a constant (plumbing of shapes never reaches the partitioner), nodes that nobody
 *     reads are gone, branches that a constant chooses are inlined;
 *   - reinterpretations of the same bytes (Reshape, Flatten, Squeeze, Unsqueeze, Identity, Dropout) are "Reshape" nodes: kn_node_is_view.
 *     They move nothing: their output may share its input's memory.
 *
 * What cannot be compiled is refused, or, where the client says so (kiln_graph_options.partial), left to the caller: a node with `left` set, whose
 * inputs and outputs are values like any others, and may be several. A value that is `held` has no static shape or dtype; it has one element
 * here, which stands for it in the order of things, and only nodes that are left read it.
 *
 * How the partitioner uses it: walk nodes[] in order; users of a value are found with kn_graph_users; a group of nodes becomes one program
 * by joining the programs of its nodes (each has inputs x0, x1 ... for the node's present inputs, in order, and one output y); constants
 * are inputs of that program like any others, with their bytes in kn_value.data. A graph output may be a graph input or a constant.
 *
 * Everything lies in the caller's arena; names and constants may point into the client's bytes, which must live as long. */
#ifndef KN_GRAPH_H
#define KN_GRAPH_H
#include "ops/ops.h"

/* The bytes of a constant: row-major, little-endian, elements of the value's dtype. */
typedef struct kn_data {
    const uint8_t *bytes; /* n bytes; NULL: the client named a digest and the bytes are elsewhere, or they are made when the model is loaded */
    size_t n;
    bool splat; /* bytes hold ONE element, and all elements are equal to it (ConstantOfShape makes models of 500 MB in 4 KB) */
    bool by_digest;
    bool once; /* bytes NULL: what the steps that run once, when the model is loaded, make of constants (once.c) */
    uint8_t digest[32]; /* SHA-256 of the bytes in full; only where by_digest is set */
} kn_data;

typedef struct kn_value {
    const char *name;   /* unique in its graph; "" only for values that passes make */
    const char *place;  /* JSON pointer for errors, "/graph/inputs/0" */
    bool typed, shaped; /* of a raw graph: dtype known, rank and shape known */
    bool held;          /* known to the caller alone */
    enum kn_dtype dtype;
    int rank;                        /* <= KILN_MAX_RANK */
    int64_t shape[KILN_MAX_RANK];    /* >= 0; in raw graphs -1 is an unknown extent */
    const char *dims[KILN_MAX_RANK]; /* raw: the name of an unknown extent ("batch"), NULL without one */
    const kn_data *data;             /* constants; NULL: computed or fed */
    int producer;                    /* node index; -1 for inputs and constants */
    bool reordered;                  /* its dimensions lie in memory in another order than they are numbered (passes of the partitioner only): */
    uint8_t order[KILN_MAX_RANK];    /* outermost to innermost */
    int outer;                       /* in a subgraph: the value of the surrounding graph that it stands for; else -1 */
} kn_value;

/* kind: 'i' integer, 'f' float, 's' string, 'I' integers, 'F' floats, 'S' strings, 'T' tensor (tensor->data), 'G' subgraph. */
typedef struct kn_gattr {
    const char *name;
    char kind;
    int64_t i;
    double f;
    const char *s;
    int n; /* of the list */
    const int64_t *ints;
    const double *floats;
    const char *const *strings;
    const kn_value *tensor;
    struct kiln_graph *graph;
    const char *refers; /* in the body of a function: the function's attribute that gives the value; else NULL */
} kn_gattr;

/* Of a node that is left to the caller: what it is in the model, and the names there of all that it reads and gives, in the node's order here. */
typedef struct kn_left {
    const char *op, *domain, *why;
    const char *const *names;
} kn_left;

typedef struct kn_node {
    const char *op;     /* ONNX name: "Conv"; of a settled graph: a row of ops.def */
    const char *domain; /* "" is ai.onnx */
    const char *overload; /* of a function of the model; NULL: none */
    const char *name;   /* the client's, may be "" */
    const char *place;  /* JSON pointer for errors, "/graph/node/12" */
    int ninputs, noutputs, nattrs;
    const int *inputs;  /* values; -1: an optional input that is left out */
    const int *outputs; /* values; -1: an optional output that nobody wants */
    const kn_gattr *attrs;
    const kn_left *left; /* NULL: to be compiled */
} kn_node;

/* A function of the model's own (ONNX FunctionProto): what nodes of its name stand for. Its graph's inputs have no types. */
typedef struct kn_function {
    const char *domain, *name, *overload;
    const char *place;
    struct kiln_graph *graph;
    int nattrs;
    const kn_gattr *attrs; /* that it takes; kind 0: without a default */
} kn_function;

struct kiln_graph {
    const char *name;
    int opset; /* of ai.onnx; a settled graph has KN_GRAPH_OPSET */
    bool settled;
    int nvalues, nnodes, ninputs, noutputs;
    kn_value *values; /* graph inputs, constants and results of nodes */
    kn_node *nodes;
    int *inputs;               /* values to be fed, in the client's order */
    int *outputs;              /* values to be handed back, in the client's order */
    int nfunctions;
    const kn_function *functions; /* of a raw model; of its graph alone, not of those inside it */
    int values_cap, nodes_cap; /* of builders */
};
typedef struct kiln_graph kn_graph;

enum { KN_GRAPH_OPSET = 28, KN_GRAPH_OPSET_MIN = 7 };

/* ---- building (importers and passes). NULL or -1: the arena is dry ---- */
kn_graph *kn_graph_new(kiln_arena *a);
int kn_graph_value(kiln_arena *a, kn_graph *g, const char *name); /* a new value, untyped; its number */
int kn_graph_node(kiln_arena *a, kn_graph *g, const kn_node *n);  /* copies *n; its number; sets producer of its outputs */
/* A graph with g's values, inputs, outputs and names, and no nodes yet; NULL: out of memory. */
kn_graph *kn_graph_bare(kiln_arena *a, const kn_graph *g);
int64_t kn_value_elems(const kn_value *v);                        /* product of the shape */
kn_value *kn_value_constant(kiln_arena *a, enum kn_dtype t, int rank, const int64_t *shape, const void *bytes, size_t n, bool splat);

bool kn_data_named(kn_data *d, const char *hex); /* by the digest that 64 lower-case digits are; false: they are not */

/* ---- reading ---- */
const kn_gattr *kn_node_attr(const kn_node *n, const char *name); /* NULL when absent */
bool kn_node_is_view(const kn_node *n);
/* Nodes that read value v, in order; returns how many there are, at most cap are stored. A graph output counts as no node. */
int kn_graph_users(const kn_graph *g, int v, int *nodes, int cap);
bool kn_graph_is_output(const kn_graph *g, int v);
/* Element i of a constant as a double (integers exact to 2^53, saturating) or an integer (floats truncate). data must have bytes. */
double kn_value_double(const kn_value *v, int64_t i);
int64_t kn_value_int(const kn_value *v, int64_t i);
/* The one integer that all elements are; false: they differ, there are none, or the bytes are not here. */
bool kn_value_alike(const kn_value *v, int64_t *out);
void kn_element_store(enum kn_dtype t, uint8_t *at, double x); /* rounds as the dtype does; integers saturate */
void kn_element_compute(enum kn_dtype t, uint8_t *at, double x); /* what a kernel stores that computed x: integers wrap */

/* ---- settling ---- */
/* What the client tells beside the model (kiln.h): extents of unknown dimensions, inputs that are numbers, parts of external data. */
typedef struct kiln_graph_options kn_graph_options;
kiln_status kn_graph_settle(kiln_arena *a, const kn_graph *raw, const kn_graph_options *o, kn_graph **out, kiln_diag *d);
/* The tensor expression of one node of a settled graph: inputs x0.. (those present), output y. Errors: d->pointer is the node's place. */
kiln_status kn_node_program(kiln_arena *a, const kn_graph *g, const kn_node *n, kn_program **out, kiln_diag *d);
#endif
