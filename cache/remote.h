/* What the tiers behind a network share: the breaker that leaves a server alone while it is down. */
#ifndef CACHE_REMOTE_H
#define CACHE_REMOTE_H
#include "cache/tier.h"

/* Places (connections) lent one caller at a time. */
typedef struct cache_lender { pthread_mutex_t lock; pthread_cond_t freed; unsigned busy, turn; int n; } cache_lender;
bool cache_lender_open(cache_lender *l, int n); /* n <= 32 */
void cache_lender_close(cache_lender *l);
int cache_lender_take(cache_lender *l, int ms); /* a place from 0, in turns; -1: none became free in that time */
void cache_lender_give(cache_lender *l, int place);

/* Zeroed: closed. Thread-safe. */
typedef struct cache_breaker { atomic_int errors; atomic_llong until, pause; } cache_breaker;
enum cache_leave { LEAVE_REFUSED, LEAVE_GIVEN, LEAVE_TO_TRY };

enum cache_leave cache_breaker_ask(cache_breaker *b);
bool cache_breaker_open(const cache_breaker *b);
/* Every call that got leave reports one of these. */
void cache_breaker_good(cache_breaker *b);
/* dear: it took so long that two more would be too many; opens at once. */
void cache_breaker_bad(cache_breaker *b, enum cache_leave leave, bool dear);
#endif
