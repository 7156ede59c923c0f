/* Tables of operators and small helpers on expressions, shared by the files of this folder only. */
#ifndef KN_TE_EXPR_H
#define KN_TE_EXPR_H
#include "te/te.h"

const char *kn_op_name(enum kn_op op); /* "FLOORDIV" */
const char *kn_op_text(enum kn_op op); /* "//" */
int kn_op_arity(enum kn_op op); /* -1: LOAD, whose arity is the tensor's rank */
char kn_op_class(enum kn_op op);
bool kn_op_commutes(enum kn_op op);
static inline bool kn_is_const(const kn_expr *e) { return e->op == KN_OP_CONST_F || e->op == KN_OP_CONST_I; }
static inline bool kn_is_int_const(const kn_expr *e) { return e->op == KN_OP_CONST_I; }
static inline bool kn_is_float(enum kn_dtype t) { return kn_dtype_class(t) == 'f'; }
/* An operation that takes some dozen instructions: exponentials, roots, powers. */
static inline bool kn_is_function(enum kn_op op) { return op >= KN_OP_EXP && op <= KN_OP_POW; }
bool kn_has_function(const kn_expr *e); /* e computes one, other than to index what it loads */
/* Inclusive range of an integer dtype; false for floats. */
bool kn_dtype_range(enum kn_dtype t, int64_t *lo, int64_t *hi);
int64_t kn_floor_div(int64_t a, int64_t b); /* b != 0, not INT64_MIN / -1 */
int64_t kn_floor_mod(int64_t a, int64_t b);
/* A node of the same kind and payload with other operands; builders fold it again. */
kn_expr *kn_rebuild(kiln_arena *a, const kn_expr *e, kn_expr **args);
/* Elements of a shape by checked multiplication; false beyond the limit of elements. */
bool kn_elems(const kn_tensor *t, int64_t *out);
/* Ranges of a statement's axes, for kn_simplify and kn_expr_range; user is the statement. */
void kn_stmt_range(void *user, const kn_expr *leaf, int64_t *lo, int64_t *hi);
/* kn_fail at a place of the text. */
kiln_status kn_fail_text(kiln_diag *d, kiln_status s, int line, int col, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Moves tensors into the order inputs, outputs, temporaries; place[i] is the number that tensor i has among the outputs, or -1. */
void kn_order_tensors(kiln_arena *a, kn_program *p, const int *place);
/* Outputs of a program that names none: the last statement's tensor and all that is written but never read, in order of writing. */
void kn_default_outputs(const kn_program *p, int *place);
#endif
