/* Settling a raw graph: what the rules (rule_*.c, one an operator that does not go straight to its row of compiler/ops) are given. */
#ifndef KN_GRAPH_SETTLE_H
#define KN_GRAPH_SETTLE_H
#include "graph/graph.h"

/* What a DequantizeLinear is of: value y is (x - point) * scale along `axis`; point -1: none. */
typedef struct kn_dequantised {
    int y, x, scale, point;
    int64_t axis;
    struct kn_dequantised *next;
} kn_dequantised;

typedef struct kn_settle {
    kiln_arena *a;
    kn_graph *g; /* the settled graph as far as it is */
    kiln_diag *d;
    const kiln_graph_options *o;
    bool *used, *bound; /* of the client's extents and numbers: which the model has a place for */
    const kn_node *now; /* the raw node being settled; names the place of errors */
    double fold_left;   /* operations that may still be spent on constants */
    int64_t bytes_left; /* bytes of constants that may still be computed */
    int depth;           /* graphs inside each other */
    int nodes_left;      /* nodes that may still be settled: loops are unrolled */
    const kn_graph *model; /* the raw graph: it has the functions */
    kn_dequantised *dequantised; /* so far */
    bool takes_held;     /* values that only the caller knows may be read: by what is left to the caller */
} kn_settle;

/* A raw graph being settled: its values as values of the settled graph. */
typedef struct kn_frame {
    const kn_graph *g;
    int *map; /* settled value; KN_UNSEEN; KN_ABSENT: an output that its rule does not compute; KN_OMITTED: an input that a call leaves out */
    struct kn_frame *around;
    const kn_function *function; /* that it is the body of, with the attributes of the node that calls it */
    const kn_node *call;
} kn_frame;
enum { KN_UNSEEN = -1, KN_ABSENT = -2, KN_OMITTED = -3 };

/* A raw node whose inputs are settled. in[i] is -1 where input i is left out; a rule fills out[]. */
typedef struct kn_raw {
    kn_settle *s;
    kn_frame *f;
    const kn_node *n;
    int opset, nin, *in, *out;
} kn_raw;
typedef kiln_status (*kn_rule)(kn_raw *r);

/* ---- for rules. Values are numbers of the settled graph; -1 means refused, with s->d filled ---- */
/* One node, its shape from its program: folded where it can be, a view or nothing at all where it moves no byte. */
int kn_emit(kn_settle *s, const char *op, int nin, const int *in, int nattrs, const kn_gattr *attrs);
int kn_emit1(kn_settle *s, const char *op, int x);
int kn_emit2(kn_settle *s, const char *op, int x, int y);
int kn_emit_reshape(kn_settle *s, int x, int rank, const int64_t *shape);
int kn_emit_transpose(kn_settle *s, int x, const int *perm);
int kn_emit_slice(kn_settle *s, int x, int axis, int64_t start, int64_t end, int64_t step);
int kn_emit_concat(kn_settle *s, int n, const int *in, int axis);
int kn_emit_cast(kn_settle *s, int x, enum kn_dtype t);
int kn_emit_constant(kn_settle *s, enum kn_dtype t, int rank, const int64_t *shape, const void *bytes, size_t n, bool splat);
int kn_emit_ints(kn_settle *s, int n, const int64_t *list); /* i64[n] */
int kn_emit_fill(kn_settle *s, enum kn_dtype t, int rank, const int64_t *shape, double x);
int kn_emit_scalar_like(kn_settle *s, int x, double value); /* a scalar of x's dtype */
/* What a node of constants costs, and its elements, where its tensor expression is the slow way (direct.c); false: it is not. */
bool kn_direct_cost(const kn_graph *g, const kn_node *n, double *cost);
bool kn_direct(const kn_graph *g, const kn_node *n, uint8_t *to);
kiln_status kn_resize_smoothly(kn_raw *r, const int64_t *sizes, const double *scales); /* Resize with antialias */
/* x in u8 with the scale and zero point that its least and largest element give, as DynamicQuantizeLinear's outputs; false: refused. */
bool kn_emit_quantized(kn_settle *s, int x, int out[3]);
bool kn_remember_bytes(kn_raw *r, int y, int64_t axis); /* y: what this DequantizeLinear gives; false: out of memory */
/* MatMulInteger or ConvInteger of {x, w, zero point of x, of w} (-1: none), without zero points where the weights are constants. */
int kn_emit_integer_product(kn_settle *s, const char *op, const int in[4], int nattrs, const kn_gattr *attrs);

kn_gattr kn_gattr_int(const char *name, int64_t i);
kn_gattr kn_gattr_float(const char *name, double f);
kn_gattr kn_gattr_str(const char *name, const char *t);
kn_gattr kn_gattr_ints(kiln_arena *a, const char *name, int n, const int64_t *list);
kn_gattr kn_gattr_floats(kiln_arena *a, const char *name, int n, const double *list);

const kn_value *kn_raw_in(const kn_raw *r, int i); /* NULL: left out */
bool kn_raw_known(const kn_raw *r, int i);         /* a constant whose bytes are here */
int64_t kn_raw_int(const kn_raw *r, const char *attr, int64_t fallback);
double kn_raw_float(const kn_raw *r, const char *attr, double fallback);
const char *kn_raw_str(const kn_raw *r, const char *attr, const char *fallback);
/* Refusals at the node. */
kiln_status kn_raw_bad(kn_raw *r, kiln_status s, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Integers that shape the result: of input `i` (a constant, else refused), or of attribute `attr`; *n -1: neither. */
kiln_status kn_raw_ints(kn_raw *r, int i, const char *attr, const int64_t **list, int *n);
kiln_status kn_raw_floats(kn_raw *r, int i, const char *attr, const double **list, int *n);
kiln_status kn_raw_axis(kn_raw *r, int64_t axis, int rank, int *out);
/* The node as it is: inputs that params.def names become attributes, the rest operands of the row of the same name (or of `op`). */
kiln_status kn_raw_plain(kn_raw *r, const char *op, int nmore, const kn_gattr *more);
kiln_status kn_raw_out(kn_raw *r, int k, int value); /* -1: what s->d says */
bool kn_raw_wants(const kn_raw *r, int k);           /* output k has a name */
kiln_status kn_settle_body(kn_settle *s, kn_frame *f, const char *place, int *results);
kn_frame *kn_settle_frame(kn_settle *s, const kn_graph *g, kn_frame *around);
/* The function of the model that a node calls; NULL: none. And that node settled. */
const kn_function *kn_function_of(const kn_graph *model, const kn_node *n);
kiln_status kn_settle_function(kn_raw *r, const kn_function *f);
/* The node with attributes of its function for those that refer to them; NULL: out of memory. */
const kn_node *kn_settle_referred(kn_settle *s, const kn_frame *f, const kn_node *n);
/* The settled value of value v of a frame, for a reader at `place`. */
kiln_status kn_settle_value(kn_settle *s, kn_frame *f, int v, const char *place, int *out);
/* The extent that dimension k of a raw value has or is given; -1: nobody knows it. */
int64_t kn_settle_extent(kn_settle *s, const kn_graph *raw, const kn_value *v, int k);
/* A node of the model itself that cannot be compiled (s->d says why) becomes one that is left to the caller. */
kiln_status kn_settle_leave(kn_settle *s, kn_frame *f, const kn_node *n);
/* A subgraph with its inputs given: nodes are settled in place. results: of its outputs. */
kiln_status kn_settle_inline(kn_raw *r, const kn_graph *sub, int nin, const int *in, int *results);

/* ONNX's numbers of dtypes (TensorProto.DataType); false: one that Kiln lacks. */
bool kn_onnx_dtype(int64_t number, enum kn_dtype *out);
const char *kn_onnx_dtype_name(int64_t number);
#endif
