/* Named operators in ONNX's words: one file op_NAME.c and one row in ops.def each. An operator's lowering writes index-expression text
 * (docs/expressions.md) and the parser makes the program of it: what a named operator means can be read, and has one meaning with its text. */
#ifndef KN_OPS_H
#define KN_OPS_H
#include "te/te.h"

enum { KN_OP_INPUTS = 32, KN_OP_NAMED = 7, KN_OP_ATTR_INTS = 16 };

/* An attribute as the request gave it. kind: 'i' integer, 'f' float, 's' string, 'I' list of integers, 'F' list of floats. A list of whole
 * numbers is 'I' and has floats as well. */
typedef struct kn_attr {
    const char *name;
    char kind;
    int64_t i;
    double f;
    const char *s;
    int n;
    int64_t list[KN_OP_ATTR_INTS];
    double floats[KN_OP_ATTR_INTS];
} kn_attr;

/* One input of the call; present == false: an optional input that was left out (rank and shape are then unset). */
typedef struct kn_operand { bool present, constant; enum kn_dtype dtype; int rank; int64_t shape[KILN_MAX_RANK]; } kn_operand;

/* What a lowering is given. It writes statements to `text`: input i is tensor "xi", the output is tensor "y", temporaries may have any
 * other lower-case name; axes any upper-case name. The number of inputs and the names and kinds of attributes are already checked. */
typedef struct kn_op_call {
    kiln_arena *arena;
    int ninputs;
    kn_operand in[KN_OP_INPUTS];
    int nattrs;
    const kn_attr *attrs;
    kn_buf text;
    kiln_diag *d;
} kn_op_call;

typedef struct kn_attr_spec { const char *name; char kind; const char *fallback; const char *about; } kn_attr_spec;
typedef struct kn_op_spec {
    const char *name;                       /* "MatMul" */
    int min_inputs, max_inputs;
    const char *input_names[KN_OP_NAMED];   /* ONNX formal names; inputs behind the last one named share its name and dtypes (variadic) */
    const char *dtypes;                     /* classes accepted: "f" floats, "i" signed, "u" unsigned, "b" bool */
    const char *input_dtypes[KN_OP_NAMED];  /* classes of inputs that need not have input 0's dtype; else NULL */
    const char *about;
    const kn_attr_spec *attrs;              /* ends with a NULL name; may be NULL */
    kiln_status (*lower)(kn_op_call *c);
} kn_op_spec;

const char *kn_op_input_name(const kn_op_spec *op, int i);
const char *kn_op_input_dtypes(const kn_op_spec *op, int i); /* NULL: input 0's dtype */
int kn_ops_count(void);
const kn_op_spec *kn_ops_at(int i);
const kn_op_spec *kn_ops_find(const char *name);  /* exact; NULL */
const kn_op_spec *kn_ops_near(const char *name);  /* same letters in another case, for a hint; NULL */
/* Checks the call against the operator's row, lowers and parses it. Out: a program with inputs x0.. (those present) and output y. */
kiln_status kn_op_program(const kn_op_spec *op, kn_op_call *c, kn_program **out);

/* ---- for lowerings ---- */
int64_t kn_attr_int(const kn_op_call *c, const char *name, int64_t fallback);
double kn_attr_float(const kn_op_call *c, const char *name, double fallback);
const char *kn_attr_str(const kn_op_call *c, const char *name, const char *fallback);
const kn_attr *kn_attr_get(const kn_op_call *c, const char *name); /* NULL when absent */
/* "/inputs/i/shape" and "/op/attrs/name" refusals. */
kiln_status kn_op_bad_shape(kn_op_call *c, int input, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
kiln_status kn_op_bad_attr(kn_op_call *c, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* A load in the dtype of computation: halves are widened to f32. index: text between the brackets. */
void kn_op_load(kn_op_call *c, int input, const char *index);
/* Ends the statement that writes y: narrows to input 0's dtype where the computation was wider. */
void kn_op_end(kn_op_call *c);
/* ":f32" behind a temporary's statement where input 0 is a half float. */
const char *kn_op_wide(const kn_op_call *c);
/* "A0,A1,...,A(n-1)" with a prefix letter. */
const char *kn_op_axes(kn_op_call *c, const char *prefix, int n);
/* Normalises an axis attribute (-rank..rank-1); false: refused in c->d. */
bool kn_op_axis(kn_op_call *c, const char *attr, int64_t axis, int rank, int *out);
/* Index text of operand i broadcast (NumPy rules) to axes P0..P(rank-1) of an output. */
const char *kn_op_broadcast(kn_op_call *c, int input, const char *prefix, int rank);

/* The dtype in which fractions of input 0's elements are computed, and input i in it, as text; "" when the arena is dry. */
const char *kn_op_fraction(const kn_op_call *c);
const char *kn_op_read_fraction(kn_op_call *c, int input, const char *index);
/* ", LEAST), MOST)" behind "min(max(VALUE": what t, whole numbers, holds; of 64 bits the last double that is no larger. */
void kn_op_put_range(kn_op_call *c, enum kn_dtype t);
/* The load of kn_op_load as text; "" when the arena is dry. */
const char *kn_op_read(kn_op_call *c, int input, const char *index);
/* "A0,A2": all axes of a prefix but one. */
const char *kn_op_axes_but(kn_op_call *c, const char *prefix, int n, int but);
/* "A0,A1," or ",A2,A3": axes from..to-1 as they stand before another one, or behind it. */
const char *kn_op_others(kn_op_call *c, int from, int to, bool before);
/* The shape to which inputs from..to-1 broadcast; refused where they do not. */
kiln_status kn_op_common_shape(kn_op_call *c, int from, int to, int64_t *shape, int *rank);
/* " where A0 in 3, A1 in 4": the extents of an output whose axes need not stand bare anywhere. */
void kn_op_extents(kn_op_call *c, const char *prefix, int rank, const int64_t *shape);

/* Where the scale (and zero point) of element A0,A1.. of input x stands: one for all, by "axis", or by blocks of "block_size" along it. */
kiln_status kn_op_scale_index(kn_op_call *c, int x, int scale, const char **out);

/* Families that share their text. */
kiln_status kn_op_compare(kn_op_call *c, const char *op);                 /* broadcasting, the result is bool */
kiln_status kn_op_bits(kn_op_call *c, const char *body);                  /* broadcasting; body with # and @ for the operands */
kiln_status kn_op_test(kn_op_call *c, const char *body);                  /* as kn_op_unary, the result is bool */
kiln_status kn_op_variadic(kn_op_call *c, const char *fn, bool mean);     /* fn(a, b) of all inputs broadcast; NULL: sum */
kiln_status kn_op_arg(kn_op_call *c, const char *assign);                 /* where the maximum (">=!") or minimum stands */
/* "(x - mean) * rsqrt(variance + epsilon) * x1[scale] + x2[bias]" for axes `all`; mean and variance over what `rows` lacks, read at `at`. The
 * second form starts from u (means) and q (sums of squared differences) that are written already. */
kiln_status kn_op_normalise(kn_op_call *c, const char *all, const char *rows, const char *at, double count, const char *scale, const char *bias);
kiln_status kn_op_normalised(kn_op_call *c, const char *all, const char *rows, const char *at, double count, const char *scale, const char *bias);
kiln_status kn_op_arc(kn_op_call *c, const char *argument, double factor); /* factor * arctan of it, written as for kn_op_unary */
kiln_status kn_op_unary(kn_op_call *c, const char *body);                 /* body with %s for the operand */
kiln_status kn_op_binary(kn_op_call *c, const char *op);                  /* broadcasting element-wise */
enum kn_op_finish { KN_FINISH_NONE, KN_FINISH_MEAN, KN_FINISH_SQRT, KN_FINISH_LOG };
kiln_status kn_op_reduce(kn_op_call *c, const char *assign, const char *body, enum kn_op_finish finish); /* body as for kn_op_unary */

/* A reduction's axes, from "axes", "keepdims" and "noop_with_empty_axes". gone: bit i is set where input 0's axis Ai is reduced. */
typedef struct kn_reduction { uint32_t gone; bool keepdims; } kn_reduction;
kiln_status kn_op_reduce_axes(kn_op_call *c, kn_reduction *r);
double kn_op_reduce_count(const kn_op_call *c, const kn_reduction *r); /* elements that become one */
/* "name[A0,Z1,A2]": kept axes, and with keepdims a one-sized axis Zi for every reduced one; " where Z1 in 1" says so. */
void kn_op_reduce_left(kn_op_call *c, const char *name, const kn_reduction *r, bool keepdims);
void kn_op_reduce_where(kn_op_call *c, const kn_reduction *r, bool keepdims);
void kn_op_reduce_over(kn_op_call *c, const kn_reduction *r, const char *assign, const char *body, enum kn_op_finish finish);
/* A scatter, by "reduction": the update at x2[from] goes to y[to], where `to` has data in it; extents: " where ..." of the axes of both. */
kiln_status kn_op_scatter(kn_op_call *c, const char *to, const char *from, const char *extents);
const char *kn_op_scatter_index(kn_op_call *c, const char *at, int64_t extent); /* at, counted from the end where it is negative */
kiln_status kn_op_scan(kn_op_call *c, bool product); /* sums or products of all elements up to each, along "axis" */
/* Where the k largest (smallest) elements along an axis stand, for dtypes that 32 bits hold; work: how many comparisons it amounts to. */
bool kn_op_selects(enum kn_dtype t);
double kn_op_selection_work(enum kn_dtype t, int64_t n, int64_t k);
void kn_op_select(kn_op_call *c, int axis, int64_t k, bool largest);
extern const kn_attr_spec kn_scan_attrs[], kn_scatter_attrs[], kn_arg_attrs[], kn_reduce_attrs[], kn_window_attrs[], kn_pool_attrs[];

/* MatMul's one statement: operand i is written as before[i] x after[i], in axes M, N and K. */
kiln_status kn_op_matmul_product(kn_op_call *c, const char *const before[2], const char *const after[2]);

/* Attributes of every window, for an operator that adds its own. */
#define KN_WINDOW_ATTRS                                                                                                           \
    {"kernel_shape", 'I', "from W", "extent of the window"}, {"strides", 'I', "1...", "step of the window"},                      \
        {"pads", 'I', "0...", "padding: all begins, then all ends"}, {"dilations", 'I', "1...", "step inside the window"},        \
    {                                                                                                                             \
        "auto_pad", 's', "NOTSET", "NOTSET, SAME_UPPER, SAME_LOWER or VALID"                                                      \
    }

/* The window of a convolution or pooling: ONNX's kernel_shape, strides, pads, dilations, auto_pad, ceil_mode. */
typedef struct kn_window {
    int n;                                 /* spatial dimensions */
    int64_t kernel[3], stride[3], dilation[3], pad[3], pad_end[3], in[3], out[3];
    int64_t first[3];                      /* the kernel's first element that meets the input; `kernel` counts from there */
    bool reaches_out;                      /* some window reads outside the input */
    int64_t outside;                       /* what it reads there */
    bool pool;                             /* no weights: a window of one element is still a reduction */
    const char *from, *as, *less;          /* tensor the window reads ("x0"), dtype of computation or "", term taken off weights or "" */
} kn_window;
/* n: spatial dimensions of input 0, from its third on. kernel: extents of the weights, NULL without weights. */
kiln_status kn_op_window(kn_op_call *c, int n, const int64_t *kernel, kn_window *w);
/* ",P0*s+R0*d-p,..." : the spatial part of the windowed index. */
void kn_op_window_index(kn_op_call *c, const kn_window *w);
/* " where P0 in 56, P1 in 56[, R0 in 3, ...]" */
void kn_op_window_where(kn_op_call *c, const kn_window *w, bool with_kernel);
/* Channel read by output channel F and reduce axis C: group number times channels a group, plus C. cg, fg: channels a group, in and out. */
void kn_op_channel(kn_buf *b, int64_t group, int64_t cg, int64_t fg);
/* "x0[lead,P0*s+R0*d-p,...tail]", zero outside of x0, and "x1[lead,R0,...tail]"; both in the dtype of computation w->as. */
void kn_op_window_load(kn_op_call *c, const kn_window *w, const char *lead, const char *tail);
void kn_op_kernel_load(kn_op_call *c, const kn_window *w, const char *lead, const char *tail);
/* "to[N,F,P0,...] +=! " the convolution of X by W with attributes kn_window_attrs, checked. w: from, as and less are taken where set. */
kiln_status kn_op_convolve(kn_op_call *c, const char *to, kn_window *w);
/* Input b, where present, must have one number an output channel. */
kiln_status kn_op_per_channel(kn_op_call *c, int b, int64_t channels);
/* The lists of a window for files that have another rule for the extent of the output: n numbers, or `fallback` each. */
kiln_status kn_op_numbers(kn_op_call *c, const char *name, int n, int64_t least, int64_t fallback, int64_t *out);
#endif
