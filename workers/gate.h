/* Static gate of CUDA kernels: what the assembler says of a binary decides whether it is offered. Internal to workers/. */
#ifndef WORKERS_GATE_H
#define WORKERS_GATE_H
#include "workers/workers.h"

/* The worst of a kernel's functions, and why it is refused ("": it is not). */
typedef struct gate_report {
    int functions, registers;
    int64_t stack_bytes, spill_bytes, static_shared_bytes;
    char why[240];
} gate_report;

/* What the driver's rules for tensor maps say against this one, NULL: nothing (CUDA driver API, cuTensorMapEncodeTiled). */
const char *gate_map(const kiln_tensor_map *m);
/* The same of a launch: its maps, its cluster, and the registers that its roles move between them. */
const char *gate_launch(const kiln_launch *l);
/* Reads the report of ptxas -v in a log. Refused: registers that are spilled to memory, tensor instructions that were serialised or setmaxnreg that
 * was ignored (C75xx), more static shared memory than the launch says, a launch of which the report has no function or against which gate_launch
 * speaks; all of it for the launches of the fallback too. */
void gate_read(const char *log, const kiln_kernel *k, gate_report *g);
/* {"how":"","assembler":{...}} */
void gate_text(const gate_report *g, char *json, size_t size);
#endif
