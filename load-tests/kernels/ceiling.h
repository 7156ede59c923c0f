/* What this machine can do at best, measured between the contestants of the same round. */
#ifndef BENCH_CEILING_H
#define BENCH_CEILING_H
#include "api/cli/pool.h"
#include <stdint.h>
#include <time.h>
typedef struct ceiling {
    char *from, *to;
    int64_t read, written;
    struct kiln_pool *pool;
} ceiling;
void ceiling_open(ceiling *c, int64_t read, int64_t written, struct kiln_pool *pool); /* pool NULL: one thread */
void ceiling_close(ceiling *c);
/* Microseconds to read and write as many bytes once, side by side and in the caches that repetition leaves them in; the better of plain
 * and streaming stores. */
double ceiling_memory_us(ceiling *c);
/* Giga-operations a second (a multiply-add is two) of the widest instructions that multiply this dtype. */
double ceiling_compute(const char *dtype, struct kiln_pool *pool);
const char *ceiling_isa(const char *dtype);
void ceiling_permit(void); /* asks for what instructions need leave for; once a process */
/* With one thread the processor's time counts, so that what else the machine does in between does not; else the time on the wall. */
void clock_for(int threads);
double now_us(void);
double us_of(clockid_t clock); /* what it says */
#endif
