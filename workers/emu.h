/* The CUDA emulator's text side: the runtime put before a kernel's text. Internal to workers/. */
#ifndef WORKERS_EMU_H
#define WORKERS_EMU_H
#include "workers/verify.h"

extern const char emu_cuda_text[];
/* Runtime (traffic: and calls around accesses) + the kernel's text (without C++ linkage marks) + one call wrapper a launch,
 * emu_call_N(void **args). malloc'ed. */
char *emu_text(const kiln_kernel *k, bool traffic, size_t *n);
/* order[i]: which job argument (inputs, then outputs, of launches[launch].program) argument i of the launch is. A slot beyond the inputs
 * is written by the first launch that names it and read by later ones. False: it does not add up. */
bool emu_order(const kiln_kernel *k, int nin, int launch, int32_t *order);
#endif
