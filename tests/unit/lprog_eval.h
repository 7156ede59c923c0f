/* An interpreter of loop programs for tests: every access is bounds-checked, every read of memory that was not written is an error. */
#ifndef LPROG_EVAL_H
#define LPROG_EVAL_H
#include "lower/loop.h"

/* tensors[slot] are row-major doubles. Inputs are read; outputs and temporaries are written, unless NULL (temporaries of a trace).
 * Returns NULL or what went wrong. */
const char *lprog_eval(const kn_lprog *p, double *const *tensors);
/* The same; of every input the lines of 64 bytes that were read, and how many of these had been asked for before, and before more than `early` others
 * of it were read. NULL: not counted. */
typedef struct lprog_lines { int64_t read, asked, early; } lprog_lines;
const char *lprog_eval_lines(const kn_lprog *p, double *const *tensors, lprog_lines *lines);
#endif
