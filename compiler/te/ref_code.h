/* Bytecode of the reference interpreter, shared by its compiler (ref_compile.c) and its machine (ref.c) only. */
#ifndef KN_REF_CODE_H
#define KN_REF_CODE_H
#include "te/expr.h"

enum { KN_R_SLOT = KN_OP_COUNT, KN_R_LINEAR, KN_R_INPUT, KN_R_JUMP_FALSE, KN_R_JUMP, KN_R_OPS };

/* One instruction: register dst from registers dst and dst+1 (operands are evaluated there), or as told:
 * CONST: k; SLOT: slot a; LINEAR, INPUT: element at slot a of tensor b (INPUT: an input); LOAD: element of tensor b at the indices
 * dims[a ..]; JUMPs: to instruction a, JUMP_FALSE when register dst is 0; CAST: to dtype a. */
typedef struct kn_instr { int op, dst, a, b; double k; bool integer; const kn_expr *e; } kn_instr;

/* An affine index: its value moves with the axes. dim: slot >= 0, or -1 - register. */
typedef struct kn_slot { int64_t coef[KILN_MAX_AXES], offset; } kn_slot;

typedef struct kn_code {
    const kn_stmt *s;
    int n, cap;
    kn_instr *code;
    int nslots, slot_cap;
    kn_slot *slots;
    int64_t *at;        /* present values of the slots */
    int ndims, dim_cap;
    int *dims;
    int nregs;
    double *value, *scale;
    int lhs_end[KILN_MAX_RANK]; /* scatter: code[0 .. lhs_end[i]) gives index i in register 0; the body follows the last */
    int body;
} kn_code;

bool kn_ref_compile(kiln_arena *a, const kn_program *p, const kn_stmt *s, kn_code *c); /* false: out of memory */
#endif
