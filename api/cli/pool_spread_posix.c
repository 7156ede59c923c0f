/* Where the threads of a pool run: apart from who forks, and from each other (pool_spread_posix.h). */
#include "api/cli/pool_spread_posix.h"

enum { AGAIN_NS = 1000000 }; /* where other programs keep processors busy the scheduler knows better: it has the last word for so long */

void spread_begin(struct spread *s)
{
    if (sched_getaffinity(0, sizeof s->may, &s->may)) CPU_ZERO(&s->may);
    s->moved_ns = 0;
    for (int i = 0; i < SPREAD_MOST; i++) {
        atomic_init(&s->at[i], -1);
        atomic_init(&s->sent[i], false);
    }
}

void spread_seen(struct spread *s, int i)
{
    int cpu = sched_getcpu();
    if (atomic_load_explicit(&s->at[i], memory_order_relaxed) != cpu) atomic_store_explicit(&s->at[i], cpu, memory_order_relaxed);
    if (!atomic_load_explicit(&s->sent[i], memory_order_relaxed)) return;
    atomic_store_explicit(&s->sent[i], false, memory_order_relaxed);
    pthread_setaffinity_np(pthread_self(), sizeof s->may, &s->may);
}

static bool is_taken(const cpu_set_t *taken, int cpu) { return cpu >= 0 && cpu < CPU_SETSIZE && CPU_ISSET(cpu, taken); }

static void take(cpu_set_t *taken, int cpu)
{
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, taken);
}

static int a_free_one(const struct spread *s, const cpu_set_t *taken)
{
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &s->may) && !CPU_ISSET(cpu, taken)) return cpu;
    return -1;
}

static void send(struct spread *s, pthread_t thread, int i, int cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    atomic_store_explicit(&s->at[i], cpu, memory_order_relaxed);
    atomic_store_explicit(&s->sent[i], true, memory_order_relaxed);
    pthread_setaffinity_np(thread, sizeof one, &one);
}

void spread_out(struct spread *s, const pthread_t *threads, int n, int64_t (*now_ns)(void))
{
    cpu_set_t taken;
    int at[SPREAD_MOST], together = 0, cpu;
    int64_t now;
    if (n > SPREAD_MOST) n = SPREAD_MOST;
    CPU_ZERO(&taken);
    take(&taken, sched_getcpu());
    for (int i = 0; i < n; i++) {
        at[i] = atomic_load_explicit(&s->at[i], memory_order_relaxed);
        if (at[i] < 0 || is_taken(&taken, at[i])) at[i] = -1, together++;
        take(&taken, at[i]);
    }
    if (!together || (now = now_ns()) - s->moved_ns < AGAIN_NS) return;
    s->moved_ns = now;
    for (int i = 0; i < n && (cpu = a_free_one(s, &taken)) >= 0; i++) {
        if (at[i] >= 0) continue;
        send(s, threads[i], i, cpu);
        take(&taken, cpu);
    }
}
