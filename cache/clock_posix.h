/* Clocks. Whoever waits or counts a deadline uses the monotonic one: the wall clock of a machine may be set, by hours, at any moment. */
#ifndef CACHE_CLOCK_POSIX_H
#define CACHE_CLOCK_POSIX_H
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

int64_t cache_unix_ms(void); /* for people: when something was made */
int64_t cache_mono_ms(void);
struct timespec cache_after(int64_t ms); /* from now, by the monotonic clock */
/* Until it is told, or until that time, which is one of cache_after; 0, or ETIMEDOUT. */
int cache_cond_until(pthread_cond_t *c, pthread_mutex_t *lock, const struct timespec *until);
#endif
