/* Memory for checks, first come, first served. */
#include "workers/room_posix.h"
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>
#include "cache/clock_posix.h"

typedef struct room_waiter {
    struct room_waiter *next;
} room_waiter;

/* What the kernel lets this container have; 0: no bound. */
static int64_t container_bytes(void)
{
    static const char *const files[] = {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    long long bytes = 0;
    for (size_t i = 0; i < sizeof files / sizeof *files && bytes <= 0; i++) {
        FILE *f = fopen(files[i], "r");
        if (f && fscanf(f, "%lld", &bytes) != 1) { bytes = 0; } /* "max" */
        if (f) { fclose(f); }
    }
    return bytes;
}

static worker_room here = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};

static void measure(void)
{
    int64_t own = container_bytes(), all = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    here.most = (own > 0 && own < all ? own : all) / 2;
}

worker_room *worker_room_here(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, measure);
    return &here;
}

static bool fits(const worker_room *r, int64_t bytes) { return !r->taken || bytes <= r->most - r->taken; }

/* Under the lock: until this is the first in the queue and there is room for it, or it may not wait any longer. */
static bool wait_for(worker_room *r, const room_waiter *me, int64_t bytes, int patience_ms, bool (*stop)(void *user), void *user)
{
    enum { TICK_MS = 100 };
    for (int64_t until = cache_mono_ms() + patience_ms; r->first != me || !fits(r, bytes);) {
        if (cache_mono_ms() >= until || (stop && stop(user))) { return false; }
        struct timespec t = cache_after(TICK_MS);
        cache_cond_until(&r->moved, &r->lock, &t);
    }
    return true;
}

bool worker_room_take(worker_room *r, int64_t bytes, int patience_ms, bool (*stop)(void *user), void *user)
{
    room_waiter me = {0}, **at = &r->first;
    pthread_mutex_lock(&r->lock);
    while (*at) { at = &(*at)->next; }
    *at = &me;
    bool got = wait_for(r, &me, bytes, patience_ms, stop, user);
    for (at = &r->first; *at != &me;) { at = &(*at)->next; }
    *at = me.next;
    if (got) { r->taken += bytes; }
    pthread_cond_broadcast(&r->moved);
    pthread_mutex_unlock(&r->lock);
    return got;
}

void worker_room_give(worker_room *r, int64_t bytes)
{
    pthread_mutex_lock(&r->lock);
    r->taken -= bytes;
    pthread_cond_broadcast(&r->moved);
    pthread_mutex_unlock(&r->lock);
}

int worker_room_waiting(const worker_room *r)
{
    int n = 0;
    for (const room_waiter *w = r->first; w; w = w->next) { n++; }
    return n;
}
