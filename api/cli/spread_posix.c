/* Where threads that fork and join together run: a struct spread of spread_posix.h. */
#include "api/cli/spread_posix.h"

enum { AGAIN_NS = 1000000 }; /* where other programs keep processors busy the scheduler knows better: it has the last word for so long */

void spread_begin(struct spread *a)
{
    if (sched_getaffinity(0, sizeof a->may, &a->may)) CPU_ZERO(&a->may);
    a->moved_ns = 0;
    for (int i = 0; i < SPREAD_MOST; i++) {
        atomic_init(&a->at[i], -1);
        atomic_init(&a->sent[i], false);
    }
}

void spread_seen(struct spread *a, int i)
{
    int cpu = sched_getcpu();
    if (atomic_load_explicit(&a->at[i], memory_order_relaxed) != cpu) atomic_store_explicit(&a->at[i], cpu, memory_order_relaxed);
    if (!atomic_load_explicit(&a->sent[i], memory_order_relaxed)) return;
    atomic_store_explicit(&a->sent[i], false, memory_order_relaxed);
    pthread_setaffinity_np(pthread_self(), sizeof a->may, &a->may);
}

static bool is_taken(const cpu_set_t *taken, int cpu) { return cpu >= 0 && cpu < CPU_SETSIZE && CPU_ISSET(cpu, taken); }

static void take(cpu_set_t *taken, int cpu)
{
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, taken);
}

static int a_free_one(const struct spread *a, const cpu_set_t *taken)
{
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &a->may) && !CPU_ISSET(cpu, taken)) return cpu;
    return -1;
}

static void send(struct spread *a, pthread_t thread, int i, int cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    atomic_store_explicit(&a->at[i], cpu, memory_order_relaxed);
    atomic_store_explicit(&a->sent[i], true, memory_order_relaxed);
    pthread_setaffinity_np(thread, sizeof one, &one);
}

void spread_out(struct spread *a, const pthread_t *threads, int n, int64_t (*now_ns)(void))
{
    cpu_set_t taken;
    int at[SPREAD_MOST], together = 0, cpu;
    int64_t now;
    if (n > SPREAD_MOST) n = SPREAD_MOST;
    CPU_ZERO(&taken);
    take(&taken, sched_getcpu());
    for (int i = 0; i < n; i++) {
        at[i] = atomic_load_explicit(&a->at[i], memory_order_relaxed);
        if (at[i] < 0 || is_taken(&taken, at[i])) at[i] = -1, together++;
        take(&taken, at[i]);
    }
    if (!together || (now = now_ns()) - a->moved_ns < AGAIN_NS) return;
    a->moved_ns = now;
    for (int i = 0; i < n && (cpu = a_free_one(a, &taken)) >= 0; i++) {
        if (at[i] >= 0) continue;
        send(a, threads[i], i, cpu);
        take(&taken, cpu);
    }
}
