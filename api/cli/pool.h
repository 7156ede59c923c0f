/* A fork-join pool that a kernel's parallel_for runs on (docs/abi.md). */
#ifndef KILN_CLI_POOL_H
#define KILN_CLI_POOL_H
#include <stdint.h>
struct kiln_pool {
    void *ctx;
    int32_t nthreads;
    void (*parallel_for)(void *ctx, int64_t ntasks, void (*task)(void *closure, int64_t index, int32_t worker), void *closure);
};
struct kiln_pool *pool_open(int threads); /* NULL when threads cannot be had: run serially */
void pool_close(struct kiln_pool *p);     /* NULL is fine */
#endif
