/* Memory for the arrays of checks that run at once in this process: many large kernels asked for together must not fill the machine. */
#ifndef WORKERS_ROOM_POSIX_H
#define WORKERS_ROOM_POSIX_H
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct worker_room {
    pthread_mutex_t lock;
    pthread_cond_t moved; /* something was given back, or the first in the queue has gone */
    int64_t most, taken;  /* bytes */
    struct room_waiter *first;
} worker_room;

/* The process's own: half of the memory that it may have (the machine's, or its container's). */
worker_room *worker_room_here(void);
/* Takes bytes, in the order of asking, so that a large check is not passed by small ones for ever; one alone always gets in, however large. Waits at
 * most patience_ms (0: not at all) and while stop, asked ten times a second, says false (NULL: never). Each true wants a worker_room_give. */
bool worker_room_take(worker_room *r, int64_t bytes, int patience_ms, bool (*stop)(void *user), void *user);
void worker_room_give(worker_room *r, int64_t bytes);
int worker_room_waiting(const worker_room *r); /* how many; under the lock */
#endif
