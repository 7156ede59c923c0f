/* One compile per key in flight: the first caller leads, the others wait for it, and take over when it ends with nothing stored. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "cache/tier.h"

enum { BUCKETS = 64 };

typedef struct flight {
    struct flight *next;
    char key[72];
    int waiters;
    bool led, stored, over; /* over: no longer in the table; the last waiter frees it */
    pthread_cond_t changed;
} flight;

typedef struct bucket { pthread_mutex_t lock; flight *first; } bucket;
struct cache_flights {
    bucket buckets[BUCKETS];
    atomic_llong leader, joined, takeover, timeout;
};

cache_flights *cache_flights_open(void)
{
    cache_flights *f = calloc(1, sizeof *f);
    for (int i = 0; f && i < BUCKETS; i++) pthread_mutex_init(&f->buckets[i].lock, NULL);
    return f;
}

static void flight_free(flight *e)
{
    pthread_cond_destroy(&e->changed);
    free(e);
}

void cache_flights_close(cache_flights *f)
{
    for (int i = 0; f && i < BUCKETS; i++) {
        for (flight *e = f->buckets[i].first, *next; e; e = next) {
            next = e->next;
            flight_free(e);
        }
        pthread_mutex_destroy(&f->buckets[i].lock);
    }
    free(f);
}

static bucket *bucket_of(cache_flights *f, const char *key)
{
    return &f->buckets[cache_hash(key) % BUCKETS];
}

static flight **find(bucket *b, const char *key)
{
    flight **at = &b->first;
    while (*at && strcmp((*at)->key, key)) at = &(*at)->next;
    return at;
}

static void flight_new(bucket *b, const char *key)
{
    flight *e = calloc(1, sizeof *e);
    if (!e) return;
    memcpy(e->key, key, strlen(key) + 1);
    pthread_cond_init(&e->changed, NULL);
    e->led = true;
    e->next = b->first;
    b->first = e;
}

/* Waits for the end of the flight, the lead, or the deadline. True: the caller leads now. */
static bool wait_turn(flight *e, bucket *b, int64_t deadline_ms, bool *timed_out)
{
    struct timespec at = cache_after(deadline_ms < 0 ? 0 : deadline_ms > 86400000 ? 86400000 : deadline_ms);
    int rc = 0;
    e->waiters++;
    while (!e->over && e->led && rc == 0) rc = cache_cond_until(&e->changed, &b->lock, &at);
    e->waiters--;
    bool lead = !e->over && !e->led;
    *timed_out = !e->over && !lead;
    if (lead) e->led = true;
    else if (e->over && e->waiters == 0) flight_free(e);
    return lead;
}

bool cache_flights_begin(cache_flights *f, const char *key, int64_t deadline_ms, bool *collapsed, bool *timed_out)
{
    bucket *b = bucket_of(f, key);
    *collapsed = *timed_out = false;
    pthread_mutex_lock(&b->lock);
    flight *e = *find(b, key);
    bool lead = true;
    if (!e) {
        if (strlen(key) < sizeof e->key) flight_new(b, key); /* out of memory: leads all the same, alone */
        atomic_fetch_add(&f->leader, 1);
    } else {
        *collapsed = true;
        lead = wait_turn(e, b, deadline_ms, timed_out);
        atomic_fetch_add(lead ? &f->takeover : *timed_out ? &f->timeout : &f->joined, 1);
    }
    pthread_mutex_unlock(&b->lock);
    return lead;
}

void cache_flights_stored(cache_flights *f, const char *key)
{
    bucket *b = bucket_of(f, key);
    pthread_mutex_lock(&b->lock);
    flight *e = *find(b, key);
    if (e) e->stored = true;
    pthread_mutex_unlock(&b->lock);
}

void cache_flights_end(cache_flights *f, const char *key)
{
    bucket *b = bucket_of(f, key);
    pthread_mutex_lock(&b->lock);
    flight **at = find(b, key), *e = *at;
    if (e && (e->stored || e->waiters == 0)) {
        *at = e->next;
        e->over = true;
        if (e->waiters) pthread_cond_broadcast(&e->changed);
        else flight_free(e);
    } else if (e) {
        e->led = false;
        pthread_cond_broadcast(&e->changed); /* all look, one takes it: a single signal could reach one whose deadline has just passed */
    }
    pthread_mutex_unlock(&b->lock);
}

void cache_flights_counters(cache_flights *f, void (*emit)(void *, const char *, const char *, const char *, int64_t), void *user)
{
    static const char name[] = "kiln_singleflight_total";
    emit(user, name, "", "leader", atomic_load(&f->leader));
    emit(user, name, "", "joined", atomic_load(&f->joined));
    emit(user, name, "", "takeover", atomic_load(&f->takeover));
    emit(user, name, "", "timeout", atomic_load(&f->timeout));
}
