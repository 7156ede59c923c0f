/* Places lent one caller at a time; who waits for one does so by the monotonic clock. */
#include "cache/remote.h"

bool cache_lender_open(cache_lender *l, int n)
{
    *l = (cache_lender){.n = n};
    return pthread_mutex_init(&l->lock, NULL) == 0 && pthread_cond_init(&l->freed, NULL) == 0;
}

void cache_lender_close(cache_lender *l)
{
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->freed);
}

static int any(cache_lender *l)
{
    unsigned first = l->turn++;
    for (unsigned i = 0; i < (unsigned)l->n; i++) {
        unsigned place = (first + i) % (unsigned)l->n;
        if (l->busy & 1u << place) continue;
        l->busy |= 1u << place;
        return (int)place;
    }
    return -1;
}

int cache_lender_take(cache_lender *l, int ms)
{
    struct timespec until = cache_after(ms);
    int place, rc = 0;
    pthread_mutex_lock(&l->lock);
    while ((place = any(l)) < 0 && rc == 0) rc = cache_cond_until(&l->freed, &l->lock, &until);
    pthread_mutex_unlock(&l->lock);
    return place;
}

void cache_lender_give(cache_lender *l, int place)
{
    pthread_mutex_lock(&l->lock);
    l->busy &= ~(1u << place);
    pthread_mutex_unlock(&l->lock);
    pthread_cond_signal(&l->freed);
}
