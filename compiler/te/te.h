/* Tensor expressions: the first of the three structures that carry everything (design section 1).
 *
 * A program is a list of statements over tensors:  out[axes] op body.  Language: docs/expressions.md. */
#ifndef KN_TE_H
#define KN_TE_H
#include "base/base.h"

enum kn_dtype {
#define X(name, text, alias, bytes, class, acc) KN_##name,
#include "te/dtypes.def"
#undef X
    KN_DTYPE_COUNT
};
enum kn_op {
#define X(name, text, arity, class) KN_OP_##name,
#include "te/exprs.def"
#undef X
    KN_OP_COUNT
};
enum kn_reduce { KN_RED_NONE, KN_RED_SUM, KN_RED_PROD, KN_RED_MAX, KN_RED_MIN, KN_RED_ALL, KN_RED_ANY };
enum kn_role { KN_INPUT, KN_TEMP, KN_OUTPUT };

const char *kn_dtype_text(enum kn_dtype t);
int kn_dtype_bytes(enum kn_dtype t);
char kn_dtype_class(enum kn_dtype t);
enum kn_dtype kn_dtype_acc(enum kn_dtype t);
bool kn_dtype_holds(enum kn_dtype x, enum kn_dtype y); /* every value of y is one of x */
int kn_dtype_significand(enum kn_dtype t);            /* significant bits of a float, the hidden one among them; else 0 */
bool kn_dtype_find(const char *s, size_t n, enum kn_dtype *out); /* text or alias */
/* f8.c: floats of 8 bits, as bits and as numbers; rounding to them saturates. */
bool kn_is_f8(enum kn_dtype t);
double kn_f8_value(enum kn_dtype t, uint8_t bits);
double kn_f8_round(enum kn_dtype t, double x);
uint8_t kn_f8_bits(enum kn_dtype t, double x);

/* Expressions are immutable once built and may be shared (a DAG). lanes is 0 or 1 for scalars; >1 in loop programs only. */
typedef struct kn_expr {
    enum kn_op op;
    enum kn_dtype dtype;
    int lanes;
    int nargs;
    struct kn_expr **args;
    union { double f; int64_t i; int axis, tensor, var, buffer; } u;
    int var;            /* LANES: the lane variable; ZIP: lanes of a block, which is interleaved for itself, UNZIP: lanes that stay together; 0: no;
                         * SPREAD: lanes of a run */
    int unit;           /* ZIP: lanes that stay together, of a block with `var`; 0: each goes alone */
    bool padded;        /* LOAD */
    double pad_value;   /* LOAD */
    int line, col;      /* where it came from; 0 when made by the compiler; never part of a key */
} kn_expr;

typedef struct kn_axis { const char *name; int64_t extent; bool reduce; } kn_axis;

/* Statement: tensor `out` [ lhs[0..rank-1] ] red= body. Axes: spatial first (in the order of the left side), then reduce (order of first
 * use on the right). In programs from outside every lhs[i] is a distinct plain AXIS whose extent is the dimension; after the `fuse`
 * primitive it may be quasi-affine, e.g. PQ // 56. red == NONE: no reduce axes. The result is cast to the tensor's dtype on store;
 * reductions accumulate in kn_stmt_acc. scatter statements ("=." and "+=.") set scatter. */
typedef struct kn_stmt {
    int out;
    kn_expr *lhs[KILN_MAX_RANK];
    enum kn_reduce red;
    bool scatter;
    kn_expr *body;
    int naxes, nspatial;
    kn_axis axes[KILN_MAX_AXES];
} kn_stmt;
/* What a statement's reduction accumulates in: kn_dtype_acc of its body's dtype, but extrema of integers in what they are. */
enum kn_dtype kn_stmt_acc(const kn_stmt *s);
enum kn_op kn_combines(enum kn_reduce r); /* what a reduction does with two values; NONE: as SUM */

typedef struct kn_tensor {
    const char *name;
    enum kn_dtype dtype;
    enum kn_role role;
    int rank;           /* 0 is a scalar */
    int64_t shape[KILN_MAX_RANK];
    bool constant;      /* INPUT: the same bytes at every call, so that a kernel may ask for them in an order of its own (docs/abi.md) */
} kn_tensor;

/* Inputs come first in tensors[] in argument order (0..ninputs-1), then outputs (ninputs..ninputs+noutputs-1), then temporaries. */
struct kiln_program {
    int ntensors, ninputs, noutputs, nstmts;
    kn_tensor tensors[KILN_MAX_TENSORS];
    kn_stmt *stmts[KILN_MAX_STMTS]; /* in execution order; every tensor but inputs is written by exactly one (scatter: after one) */
};
typedef kiln_program kn_program;

/* ---- build (all in arena a; NULL operands give NULL, so chains need one check at the end) ---- */
kn_expr *kn_const_f(kiln_arena *a, enum kn_dtype t, double x);
kn_expr *kn_const_i(kiln_arena *a, enum kn_dtype t, int64_t x);
kn_expr *kn_axis_ref(kiln_arena *a, int axis);
kn_expr *kn_load(kiln_arena *a, const kn_program *p, int tensor, kn_expr **idx);              /* copies idx[0..rank-1] */
kn_expr *kn_load_padded(kiln_arena *a, const kn_program *p, int tensor, kn_expr **idx, double pad);
kn_expr *kn_un(kiln_arena *a, enum kn_op op, kn_expr *x);
kn_expr *kn_bin(kiln_arena *a, enum kn_op op, kn_expr *x, kn_expr *y); /* folds constants; same dtype on both sides required */
kn_expr *kn_select(kiln_arena *a, kn_expr *c, kn_expr *x, kn_expr *y);
kn_expr *kn_cast(kiln_arena *a, enum kn_dtype t, kn_expr *x);          /* no node when it is that dtype already */
kn_expr *kn_bits(kiln_arena *a, kn_expr *x);                            /* of an F32 */
/* Rewrites bottom-up: f sees each node once and returns the replacement or the node itself. Shares unchanged subtrees. */
typedef kn_expr *(*kn_rewrite_fn)(void *user, kiln_arena *a, kn_expr *e);
kn_expr *kn_rewrite(kiln_arena *a, kn_expr *e, kn_rewrite_fn f, void *user);
const kn_expr *kn_bare(const kn_expr *e); /* what stands under casts that lose nothing */
bool kn_expr_equal(const kn_expr *x, const kn_expr *y); /* structural; ignores line, col */
/* Integer simplification of index expressions, given inclusive ranges of the leaves: constants, distribution, (x//c)*c + x%c -> x,
 * (c*x+r)//c -> x, x%c -> x where 0 <= x < c ... `range(user, leaf, lo, hi)` tells an AXIS's or VAR's range. */
typedef void (*kn_range_fn)(void *user, const kn_expr *leaf, int64_t *lo, int64_t *hi);
kn_expr *kn_simplify(kiln_arena *a, kn_expr *e, kn_range_fn range, void *user);
bool kn_expr_range(const kn_expr *e, kn_range_fn range, void *user, int64_t *lo, int64_t *hi); /* false: not an integer expression */

kn_program *kn_program_new(kiln_arena *a);
int kn_add_tensor(kn_program *p, const char *name, enum kn_dtype t, enum kn_role role, int rank, const int64_t *shape); /* <0: limit */
kn_program *kn_program_clone(kiln_arena *a, const kn_program *p);  /* statements copied one level deep; expressions shared */
int kn_writer(const kn_program *p, int tensor); /* statement index or -1 */
bool kn_scattered(const kn_program *p, int tensor); /* some statement scatters into it: it is not finished when its writer is done */
bool kn_scatters(const kn_program *p);              /* some statement scatters */
bool kn_pinned(const kn_program *p, int tensor);    /* or some scatter reads it to know where its values go */
/* Axes of a scatter that each value of which has a place of its own: some index on the left is one of them alone, and no data. What has other
 * values of them never meets, so that they may be walked in any order, at once, or by different threads. */
uint32_t kn_scatter_owned(const kn_program *p, const kn_stmt *s);

/* ---- affine view of an index: sum coef[axis]*axis + offset; false when not affine (div, mod, data-dependent) ---- */
typedef struct kn_affine { int64_t coef[KILN_MAX_AXES]; int64_t offset; } kn_affine;
bool kn_affine_of(const kn_expr *index, kn_affine *out);
/* The same with all other axes held: their parts may be anything, and are left out, of the offset, too. */
bool kn_affine_in(const kn_expr *index, uint32_t axes, kn_affine *out);
/* The one statement that fills the tensor with a padded copy of another; NULL: it is filled otherwise. */
const kn_stmt *kn_padded_copy(const kn_program *p, int tensor);
/* Index d of what a padded load reads, over the axes of its statement, or (copy: kn_padded_copy of the tensor that it reads) of what the copy reads
 * for it. False: not affine, or steps so large that sums of them may not fit. */
bool kn_padded_index(const kn_expr *load, const kn_stmt *copy, int d, kn_affine *out);
/* All LOADs of the body in first-use order (left to right, depth first); returns how many, at most cap are stored. */
int kn_loads(const kn_expr *body, const kn_expr **out, int cap);
/* Bit i set: axis i of the statement occurs in e. */
uint32_t kn_axes_in(const kn_expr *e);

/* ---- text ---- */
/* Parses the expression language (research notes 4.5) and the Antares spelling. `inputs` declares tensors ("a=f32:4x4&b=f32") or is
 * empty when the text does so itself. Errors carry line and column. The result is checked (kn_check). */
kiln_status kn_parse(kiln_arena *a, kiln_bytes text, kiln_bytes inputs, kn_program **out, kiln_diag *d);
/* One expression over the axes of `axes` (by name) and the tensors of `tensors`; text starts at line, col of its source, and the bytes of
 * that line before it must be readable. An unknown name is KILN_SHAPE, "no ..."; nothing else is checked. */
kiln_status kn_parse_part(kiln_arena *a, kiln_bytes text, int line, int col, const kn_program *tensors, const kn_stmt *axes, kn_expr **out,
                          kiln_diag *d);
void kn_print_expr(kn_buf *b, const kn_program *p, const kn_stmt *s, const kn_expr *e);
void kn_print_stmt(kn_buf *b, const kn_program *p, const kn_stmt *s);
void kn_print_program(kn_buf *b, const kn_program *p); /* parses back to an equal program */

/* ---- checks and canonical form ---- */
/* Shapes, extents, dtypes, single assignment, order, out-of-range reads (refused unless padded or guarded by select), limits. */
kiln_status kn_check(const kn_program *p, kiln_diag *d);
/* Canonical program: tensors renamed in0.., out0.., t0.. in first-use order, axes by position, commutative operands sorted by structure,
 * constants folded, unused inputs kept last. in_perm[i] = index in p of canonical input i; out_perm likewise. */
kiln_status kn_canon(kiln_arena *a, const kn_program *p, kn_program **out, int *in_perm, int *out_perm, kiln_diag *d);
/* Canonical bytes of a canonical program: tag-length-value, integers int64 little-endian, no text but tags. */
kiln_status kn_canon_bytes(kiln_arena *a, const kn_program *canonical, kiln_bytes *out);
#endif
