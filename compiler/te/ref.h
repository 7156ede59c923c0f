/* The reference interpreter lives behind kiln_ref_* in kiln.h; this header only adds what tests inside the library want. */
#ifndef KN_REF_H
#define KN_REF_H
#include "te/te.h"
/* Evaluates the whole program into caller-supplied arrays of doubles (row-major), one a tensor; inputs are read from theirs. */
kiln_status kn_ref_all(kiln_arena *a, const kn_program *p, double *const *tensors, kiln_diag *d);
#endif
