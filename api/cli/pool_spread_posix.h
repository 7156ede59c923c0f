/* Threads that fork and join together, kept on processors of their own. A scheduler may leave a thread that was woken behind the one that woke it for
 * tens of milliseconds, other processors idle, and short kernels then run one task after another. Wishes only: without the calls, nothing happens. */
#ifndef KILN_CLI_SPREAD_H
#define KILN_CLI_SPREAD_H
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { SPREAD_MOST = 256 };

struct spread {
    cpu_set_t may;                  /* where the process may run */
    int64_t moved_ns;               /* when a thread was last sent elsewhere */
    _Atomic int at[SPREAD_MOST];    /* the processor that thread i was last seen on, or sent to; -1: not known */
    _Atomic bool sent[SPREAD_MOST]; /* thread i may only run where it was sent, until it says that it is there */
};

void spread_begin(struct spread *s); /* none has been seen yet */
void spread_seen(struct spread *s, int i); /* thread i says where it is, and may be moved again */
/* Sends threads that share a processor with the caller or with each other, and those that have not begun, to one that none is on, if there is one. */
void spread_out(struct spread *s, const pthread_t *threads, int n, int64_t (*now_ns)(void));
#endif
