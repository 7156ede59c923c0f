/* What a machine can do, measured: the numbers of a hardware description that no table gives. A small generated C text holds the loops, the
 * host's compiler makes them, and a child runs them on as many threads as the machine has units. */
#ifndef WORKERS_MEASURE_H
#define WORKERS_MEASURE_H
#include "workers/workers.h"

enum { MEASURE_ROWS = 32, MEASURE_LEVELS = 8, MEASURE_CHAINS = 12, MEASURE_TILE_CHAINS = 4, MEASURE_LINKS = 8 };

typedef struct measure_row {
    const char *dtype, *feature, *registers;
    int operations;
    const char *step, *spelling;
} measure_row;
extern const measure_row measure_rows[];
extern const int measure_nrows;

typedef struct measure_level {
    char name[8];           /* "l1", "l2", "l3", "dram" */
    int64_t capacity_bytes; /* l3: what acts as a cache, which can be less than is there; dram: of the machine */
    double bandwidth_gbs;   /* reads, all units together */
    double latency_ns;
    int ways;               /* of l1 and l2; 0: the machine does not say */
} measure_level;

typedef struct worker_machine {
    int units;   /* threads that were measured together */
    int nlevels; /* near to far */
    measure_level levels[MEASURE_LEVELS];
    int npeaks;
    struct {
        char dtype[8];
        double gflops;
    } peaks[MEASURE_ROWS]; /* all units; the fastest row of each dtype */
    struct {
        double interval, latency; /* cycles on one unit that has nothing else to do; 0: not measured */
    } rows[MEASURE_ROWS];
    int64_t streaming_store_bytes; /* what all units touch above which copies past the caches are faster; 0: never */
    double clock_ghz;      /* while one unit multiplies in f32 */
    int fma_per_cycle, fma_latency;
    int vector_bytes;
    double noise; /* how much slower the median round was than the best but one: above 1.1 something else was running */
} worker_machine;

/* Text with the loops for a machine of these features; 0: longer than n. */
size_t measure_text(const char *const *features, int nfeatures, char *out, size_t n);
/* Takes a minute at most. flags: machine options for the compiler, as in a hardware description. */
bool worker_measure(const worker_tools *t, const char *const *flags, int nflags, int units, worker_machine *out, worker_error *e);
#endif
