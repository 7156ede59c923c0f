/* The child that runs a kernel: guarded arrays, crash reports, the scrambling thread pool and the CUDA fibers. Internal to workers/. */
#ifndef WORKERS_HARNESS_H
#define WORKERS_HARNESS_H
#include "workers/verify.h"

/* An array between two guard regions. mid: its first page; data: where the array starts in its pages. */
typedef struct harness_region { char *map, *mid, *data; int64_t bytes, pages; char what[24]; } harness_region;
/* fd < 0: private memory. False: no memory; a fail line has been written. */
bool harness_map(harness_region *r, int64_t bytes, int fd, int64_t offset, const char *what, int number);
void harness_unmap(harness_region *r);
void harness_place(harness_region *r, int64_t start, unsigned char poison); /* start: of data in the pages; the rest gets the canary */
bool harness_canary_ok(const harness_region *r);
void harness_protect(harness_region *r, bool writable);

/* Everything a run needs. */
typedef struct harness {
    const verify_job *job;
    void *so;
    harness_region in[VERIFY_MAX_ARGS], a[VERIFY_MAX_ARGS], b[VERIFY_MAX_ARGS];
    int64_t blocks_run;
} harness;

void harness_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));  /* one line to the parent */
void harness_at(const char *phase, int kind);                                  /* what is going on, for crashes and hangs */
bool harness_open(harness *h, int kind); /* maps and fills inputs (ends at guards), poisons outputs of run A */
bool harness_second(harness *h);         /* maps and poisons outputs of run B */
void harness_move(harness *h);           /* moves inputs to their first page, for run B */
bool harness_compare(const harness *h, const char *other, bool sparse);        /* A against B: written, and bitwise equal */
void harness_close(harness *h);
bool harness_load(harness *h);           /* the shared object */
void harness_catch(void);                                                      /* crashes become fail lines */

/* The ABI's pool (docs/abi.md). */
typedef struct kiln_pool {
    void *ctx;
    int32_t nthreads;
    void (*parallel_for)(void *ctx, int64_t ntasks, void (*task)(void *closure, int64_t index, int32_t worker), void *closure);
} kiln_pool;
typedef struct harness_pool harness_pool;
harness_pool *harness_pool_open(int threads, bool scramble, bool pin, kiln_pool *out);
void harness_pool_close(harness_pool *p);

bool harness_cpu(harness *h);    /* VERIFY_RUN */
bool harness_time(harness *h);   /* VERIFY_TIME */
bool harness_blocks(harness *h); /* VERIFY_BLOCKS */
#endif
