/* Clocks: unix time for records, monotonic time for deadlines. */
#include <time.h>
#include "cache/tier.h"

static int64_t clock_ms(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t cache_unix_ms(void)
{
    return clock_ms(CLOCK_REALTIME);
}

int64_t cache_mono_ms(void)
{
    return clock_ms(CLOCK_MONOTONIC);
}
