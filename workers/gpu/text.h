/* Writing a bundle: the library's side of workers/gpu, for those who make bundles; the runner does not need it. */
#ifndef WORKERS_GPU_TEXT_H
#define WORKERS_GPU_TEXT_H
#include "kiln.h"
#include <stdio.h>

/* A group's line and its buffers; text: the program's. Kernels follow, then the checks. */
void gpu_put_group(FILE *f, const char *id, const char *key, const char *target, const kiln_program *p, kiln_bytes text);
/* module: of the module's line, and the kernel's id. */
void gpu_put_kernel(FILE *f, const kiln_program *p, const kiln_kernel *k, int rank, double predicted_us, const char *module);
/* Random inputs, before them small integers where those are exact. False: the reference failed. */
bool gpu_put_checks(FILE *f, kiln_arena *a, const kiln_program *p, kiln_bytes text, kiln_diag *d);
#endif
