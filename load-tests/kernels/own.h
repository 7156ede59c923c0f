/* Kiln's own kernel for a case, the same program as plain loops, and the reference that judges every output. */
#ifndef BENCH_OWN_H
#define BENCH_OWN_H
#include "api/cli/pool.h"
#include "kiln.h"
#include "load-tests/kernels/bench.h"

typedef struct own {
    kiln_arena *a;
    kiln_request *r;
    double flops;
} own;

/* Parses the request, fills in what the case does not know yet (dtypes, sizes) and its data. false: why says what is refused. */
bool own_open(own *o, bench_case *c, const char *request, char *why, size_t n);
/* The same request with its weights constant, for contestants that pack them ahead; it shares the case's data. false: it has none. */
bool own_constant(own *o, const char *request);
void own_close(own *o, bench_case *c);
/* Kiln's first kernel (constructed) or the same program as plain loops, through gcc with these flags, "" for those of the service. */
bool own_kernel(own *o, const bench_case *c, kiln_hw *hw, bool constructed, const char *flags, struct kiln_pool *pool, bench_run *run,
                char *why, size_t n);
/* A kernel that has a pool, without it: it reads the other's inputs and code, and ends before it. */
void own_alone(const bench_run *shared, bench_run *run);
/* The kernel of a trace of the same request, "": plain loops. */
bool own_traced(own *o, const bench_case *c, kiln_hw *hw, kiln_bytes trace, const char *flags, struct kiln_pool *pool, bench_run *run, char *why,
                size_t n);
/* How many of a sample of elements of `out` differ from the reference interpreter. */
int own_judge(own *o, const bench_case *c, const void *out);
/* How many elements of two outputs differ by more than reordering sums may make them. */
int64_t own_differ(const own *o, const bench_case *c, const void *x, const void *y);
#endif
