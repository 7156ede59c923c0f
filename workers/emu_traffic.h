/* How well the threads of a warp address memory together, counted while a CUDA kernel is emulated. Internal to workers/.
 *
 * The kernel's text is compiled with a call before every access (-fsanitize=kernel-address asks for one and links nothing); what the threads of a
 * warp do for the k-th time at one place of the text is one access of the warp. */
#ifndef WORKERS_EMU_TRAFFIC_H
#define WORKERS_EMU_TRAFFIC_H
#include "workers/workers.h"
#include <stdint.h>

/* One access of a thread. site: where in the text. */
typedef struct emu_access { uintptr_t site, at; int32_t size; uint8_t write, shared; uint16_t lane; uint32_t turn; } emu_access;
typedef struct emu_warp_log { emu_access *list; int n, cap; } emu_warp_log;

/* What is counted now: accesses of shared memory and of these arrays (which begin at multiples of a sector on a device); the rest is registers, the
 * emulator's own, or local memory, which the gate refuses. One in the process, as the machine that it watches. */
typedef struct emu_array { const char *at; int64_t bytes; } emu_array;
typedef struct emu_counter {
    bool on;
    worker_traffic traffic;
    emu_warp_log log;
    int narrays;
    emu_array arrays[KILN_MAX_TENSORS];
} emu_counter;
extern emu_counter emu_counted;
void emu_touch(const void *site, unsigned long at, long size, int write); /* by the running thread */

void emu_traffic_add(emu_warp_log *log, const emu_access *a); /* beyond a bound they are not kept */
/* Adds what the warp's threads have done since the last time, and empties the log. */
void emu_traffic_count(emu_warp_log *log, worker_traffic *t);

/* Stands before the text, which then calls emu_touch through emu_on_access. */
extern const char emu_traffic_text[];
#endif
