/* The breaker of a remote tier: after three errors in a row it is left alone for a second, then one call tries; each failed try doubles the pause. */
#include "cache/remote.h"

enum { THRESHOLD = 3, FIRST_PAUSE_MS = 1000, LAST_PAUSE_MS = 30000, TRY_MS = 3000 };

enum cache_leave cache_breaker_ask(cache_breaker *b)
{
    if (atomic_load(&b->errors) < THRESHOLD) return LEAVE_GIVEN;
    long long until = atomic_load(&b->until), now = cache_mono_ms();
    if (now < until) return LEAVE_REFUSED;
    /* One caller tries; the others stay refused for as long as a try can take. */
    return atomic_compare_exchange_strong(&b->until, &until, now + TRY_MS) ? LEAVE_TO_TRY : LEAVE_REFUSED;
}

bool cache_breaker_open(const cache_breaker *b)
{
    return atomic_load(&((cache_breaker *)(uintptr_t)b)->errors) >= THRESHOLD;
}

void cache_breaker_good(cache_breaker *b)
{
    if (atomic_load_explicit(&b->errors, memory_order_relaxed)) atomic_store(&b->errors, 0);
}

void cache_breaker_bad(cache_breaker *b, enum cache_leave leave, bool dear)
{
    int weight = dear ? THRESHOLD : 1, before = atomic_fetch_add(&b->errors, weight);
    long long pause = FIRST_PAUSE_MS;
    if (leave == LEAVE_TO_TRY) {
        pause = atomic_load(&b->pause) * 2;
        if (pause > LAST_PAUSE_MS) pause = LAST_PAUSE_MS;
    } else if (before >= THRESHOLD || before + weight < THRESHOLD) return; /* calls already under way when it opened do not lengthen the pause */
    atomic_store(&b->pause, pause);
    atomic_store(&b->until, cache_mono_ms() + pause);
}
