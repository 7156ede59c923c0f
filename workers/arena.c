/* Arenas on malloc, with a deadline. */
#include "workers/arena.h"
#include <stdlib.h>
#include "workers/verify.h"

static void *mem(void *user, void *p, size_t old_size, size_t size)
{
    (void)user, (void)old_size;
    if (size) return realloc(p, size);
    free(p);
    return NULL;
}

static int past(void *user)
{
    const int64_t *deadline = user;
    return deadline && (int64_t)verify_now_ms() > *deadline;
}

kiln_arena *worker_arena(const int64_t *deadline)
{
    kiln_host host = {(void *)(uintptr_t)deadline, mem, past};
    return kiln_arena_open(&host);
}
