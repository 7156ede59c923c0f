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

bool cache_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t attr;
    if (pthread_condattr_init(&attr)) return false;
    bool ok = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0 && pthread_cond_init(c, &attr) == 0;
    pthread_condattr_destroy(&attr);
    return ok;
}

struct timespec cache_after(int64_t ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t ns = t.tv_nsec + ms % 1000 * 1000000;
    return (struct timespec){t.tv_sec + (time_t)(ms / 1000 + ns / 1000000000), (long)(ns % 1000000000)};
}
