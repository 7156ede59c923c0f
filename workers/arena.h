/* The memory of one request, build or check. */
#ifndef WORKERS_ARENA_H
#define WORKERS_ARENA_H
#include <stdint.h>
#include "kiln.h"

/* An empty arena on malloc; NULL when out of memory. The caller closes it. What works in it is told to stop once *deadline is past: milliseconds
   of the monotonic clock, read anew each time, borrowed as long as the arena lives; NULL: never. */
kiln_arena *worker_arena(const int64_t *deadline);
#endif
