/* An interpreter of loop programs for tests: every access is bounds-checked, every read of memory that was not written is an error. */
#ifndef LPROG_EVAL_H
#define LPROG_EVAL_H
#include "lower/loop.h"

/* tensors[slot] are row-major doubles. Inputs are read; outputs and temporaries are written, unless NULL (temporaries of a trace).
 * Returns NULL or what went wrong. */
const char *lprog_eval(const kn_lprog *p, double *const *tensors);
#endif
