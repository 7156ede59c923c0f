/* News between the processes that share a database: something was written; look. Thread-safe. */
#ifndef CACHE_NEWS_H
#define CACHE_NEWS_H
#include <stdint.h>

typedef struct cache_news cache_news;
/* url: of PostgreSQL, NULL or "": path is the embedded database. NULL: no memory or no thread. */
cache_news *cache_news_open(const char *url, const char *path);
void cache_news_close(cache_news *n); /* nobody may wait any more */
void cache_news_tell(cache_news *n);  /* after a commit; wakes this process at once, others within 50 ms */
uint64_t cache_news_turn(cache_news *n);
/* Until the turn is another one than `turn`, or ms have passed: the turn now. */
uint64_t cache_news_wait(cache_news *n, uint64_t turn, int ms);
#endif
