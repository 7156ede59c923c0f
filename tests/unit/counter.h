/* The value of one of a cache's counters. */
#ifndef COUNTER_H
#define COUNTER_H
#include <string.h>
#include "cache/cache.h"

typedef struct wanted_counter { const char *name, *tier, *result; int64_t sum; } wanted_counter;

static inline void add_counter(void *user, const char *name, const char *tier, const char *result, int64_t value)
{
    wanted_counter *w = user;
    if (!strcmp(name, w->name) && !strcmp(tier, w->tier) && !strcmp(result, w->result)) w->sum += value;
}

static inline int64_t counter(cache *c, const char *name, const char *tier, const char *result)
{
    wanted_counter w = {name, tier, result, 0};
    cache_counters(c, add_counter, &w);
    return w.sum;
}
#endif
