/* The memory of arenas in tests and benches. */
#ifndef TESTS_ARENA_H
#define TESTS_ARENA_H
#include <stdlib.h>

static inline void *mem(void *user, void *p, size_t old_size, size_t size)
{
    (void)user;
    (void)old_size;
    if (size) return realloc(p, size);
    free(p);
    return NULL;
}
#endif
