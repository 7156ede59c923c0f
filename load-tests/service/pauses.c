/* What the machine takes from threads that only read the clock, one a processor: the floor under every delay that is measured on it.
 * usage: pauses THREADS SECONDS. Prints, of the thread that lost most, the share of its time in pauses of more than 0.2 ms, in percent, and the
 * longest pause, in ms. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 64, PAUSE_NS = 200000 };
static long long until;
static struct { pthread_t thread; long long lost, longest; } seen[MOST];

static long long now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void *watch(void *arg)
{
    int i = *(int *)arg;
    for (long long last = now_ns(), t; last < until; last = t) {
        t = now_ns();
        if (t - last <= PAUSE_NS) continue;
        seen[i].lost += t - last;
        if (t - last > seen[i].longest) seen[i].longest = t - last;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static int number[MOST];
    int n = argc == 3 ? atoi(argv[1]) : 0, worst = 0;
    double seconds = argc == 3 ? atof(argv[2]) : 0;
    if (n < 1 || n > MOST || seconds <= 0) return fprintf(stderr, "usage: pauses THREADS SECONDS\n"), 2;
    until = now_ns() + (long long)(seconds * 1e9);
    for (int i = 0; i < n; i++) {
        number[i] = i;
        if (pthread_create(&seen[i].thread, NULL, watch, &number[i])) return perror("pauses"), 2;
    }
    for (int i = 0; i < n; i++) {
        pthread_join(seen[i].thread, NULL);
        if (seen[i].lost > seen[worst].lost) worst = i;
    }
    printf("%.2f %.2f\n", (double)seen[worst].lost / (seconds * 1e7), (double)seen[worst].longest / 1e6);
    return 0;
}
