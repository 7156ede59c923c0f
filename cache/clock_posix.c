/* Clocks: unix time for records, monotonic time for deadlines. */
#include "cache/clock_posix.h"

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

/* The clock is named here and not by the condition: libraries that fake a wall clock (tests) know only the older call, and let it end at once. */
int cache_cond_until(pthread_cond_t *c, pthread_mutex_t *lock, const struct timespec *until)
{
    return pthread_cond_clockwait(c, lock, CLOCK_MONOTONIC, until);
}

struct timespec cache_after(int64_t ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t ns = t.tv_nsec + ms % 1000 * 1000000;
    return (struct timespec){t.tv_sec + (time_t)(ms / 1000 + ns / 1000000000), (long)(ns % 1000000000)};
}
