/* Reads of artifacts from the Redis tier, as many at a time as its pool has connections, digests checked as the cache checks them.
 * usage: redis URL BYTES SECONDS THREADS. Prints reads a second, and how many got no answer. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "cache/tier.h"

enum { BLOBS = 64, MAX_THREADS = 64 };
static cache_tier *tier;
static char digests[BLOBS][65];
static double until;
static atomic_llong reads, wrong, late; /* late: no answer in time, or not asked for a while after such */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void *reader(void *arg)
{
    unsigned i = *(unsigned *)arg;
    for (; now() < until; i++) {
        char *bytes, hex[65];
        size_t n;
        if (cache_tier_redis.get_blob(tier, digests[i % BLOBS], &bytes, &n) != CACHE_OK) {
            atomic_fetch_add(&late, 1);
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
            continue;
        }
        cache_digest(bytes, n, hex);
        atomic_fetch_add(strcmp(hex, digests[i % BLOBS]) ? &wrong : &reads, 1);
        free(bytes);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static unsigned first[MAX_THREADS];
    pthread_t threads[MAX_THREADS];
    cache_error e = {""};
    size_t n = argc == 5 ? (size_t)atol(argv[2]) : 0;
    double seconds = argc == 5 ? atof(argv[3]) : 0;
    int count = argc == 5 ? atoi(argv[4]) : 0;
    char *bytes = malloc(n + 1);
    if (!bytes || n < 8 || count < 1 || count > MAX_THREADS) return fprintf(stderr, "usage: redis URL BYTES SECONDS THREADS\n"), 2;
    if (cache_tier_redis.open(&(cache_config){.redis_url = argv[1]}, &tier, &e) != CACHE_OK) return fprintf(stderr, "%s\n", e.message), 2;
    unsigned x = 1;
    for (int b = 0; b < BLOBS; b++) {
        for (size_t i = 0; i < n; i++) bytes[i] = (char)((x = x * 1664525 + 1013904223) >> 24); /* noise: nothing to pack */
        cache_blob blob = {"", {bytes, n}};
        cache_digest(bytes, n, digests[b]);
        memcpy(blob.digest, digests[b], sizeof blob.digest);
        int tries = 100; /* on a busy machine a command may take longer than the tier waits, which then leaves the server alone for a second */
        for (; cache_tier_redis.put_blob(tier, &blob) != CACHE_OK; nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL))
            if (!tries--) return fprintf(stderr, "a put failed\n"), 1;
    }
    double began = now();
    until = began + seconds;
    for (int i = 0; i < count; i++) {
        first[i] = (unsigned)i * 7;
        pthread_create(&threads[i], NULL, reader, &first[i]);
    }
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    printf("%.0f %lld\n", (double)atomic_load(&reads) / (now() - began), (long long)atomic_load(&late));
    cache_tier_redis.close(tier);
    free(bytes);
    return atomic_load(&wrong) != 0;
}
