/* Named operators in ONNX's words: one file op_NAME.c and one row in ops.def each, which lowers to a TE program. */
#ifndef KN_OPS_H
#define KN_OPS_H
#include "te/te.h"

/* An attribute as the request gave it. kind: 'i' integer, 'f' float, 's' string, 'I' list of integers. */
typedef struct kn_attr { const char *name; char kind; int64_t i; double f; const char *s; int n; const int64_t *list; } kn_attr;

/* What an operator's lowering is given: a program that already has the inputs (in ONNX order, tensors 0..ninputs-1; an omitted optional
 * input is tensor -1 in inputs[]) and the attributes, checked by name and kind against the operator's table. */
typedef struct kn_op_call {
    kiln_arena *arena;
    kn_program *p;
    int ninputs;
    int inputs[KILN_MAX_TENSORS];
    int nattrs;
    const kn_attr *attrs;
    kiln_diag *d;
    int noutputs;
    const char *output_names[8]; /* the client's, or NULL */
} kn_op_call;

typedef struct kn_attr_spec { const char *name; char kind; const char *fallback; const char *about; } kn_attr_spec;
typedef struct kn_op_spec {
    const char *name;              /* "MatMul" */
    int min_inputs, max_inputs, noutputs;
    const char *input_names[6];    /* ONNX formal names */
    const char *about;
    const kn_attr_spec *attrs;     /* ends with a NULL name */
    kiln_status (*lower)(kn_op_call *c); /* adds outputs, temporaries and statements; refuses with a pointer and a hint */
} kn_op_spec;

int kn_ops_count(void);
const kn_op_spec *kn_ops_at(int i);
const kn_op_spec *kn_ops_find(const char *name); /* exact; case-insensitive match is offered as a hint by the caller */

int64_t kn_attr_int(const kn_op_call *c, const char *name, int64_t fallback);
double kn_attr_float(const kn_op_call *c, const char *name, double fallback);
const char *kn_attr_str(const kn_op_call *c, const char *name, const char *fallback);
int kn_attr_ints(const kn_op_call *c, const char *name, const int64_t **list); /* count, 0 when absent */
#endif
