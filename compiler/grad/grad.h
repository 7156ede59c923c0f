/* Gradients of tensor-expression programs: from a program to the program that computes the gradients of chosen inputs.
 *
 * Source: automatic differentiation of a tensor expression with quasi-affine indices (FlexTensor, ASPLOS 2020, and its extended account):
 * the indices of a read are a system of integer equations in the axes of the statement; its solution turns the scatter of a gradient
 * into a gather. Statements follow each other by the chain rule; what of the forward program is needed is computed again. */
#ifndef KN_GRAD_H
#define KN_GRAD_H
#include "te/te.h"

/* inputs: numbers of the n (at least 1) distinct inputs of p to differentiate by. *out takes the inputs of p that the gradient reads, in p's
 * order, then for every output `y` that is needed the incoming gradient `dy` (of y's dtype and shape); its outputs are `da`, `db`, ... in the
 * order of `inputs`. The result is checked (kn_check). A refusal about inputs[i] has the JSON pointer /grad/i; one about a place of the
 * program has its line and column. */
kiln_status kn_grad(kiln_arena *a, const kn_program *p, const int *inputs, int n, kn_program **out, kiln_diag *d);
#endif
