/* What the toolchains share: refusing open source text, and how a child's end becomes a worker_error. Internal to workers/. */
#ifndef WORKERS_TOOLCHAIN_H
#define WORKERS_TOOLCHAIN_H
#include "workers/child.h"

bool toolchain_fail(worker_error *e, kiln_status s, const char *slug, const char *fmt, ...)
    __attribute__((format(printf, 4, 5))); /* false */
/* A private directory with the source as `name`; e says why not. Leaves dir "" on failure. */
bool toolchain_open(const worker_tools *t, kiln_bytes source, const char *name, char dir[CHILD_DIR_BYTES], worker_error *e);
/* Judges a child that ran: false and *e when it did not exit with 0. what: "the C compiler". log: its messages. */
bool toolchain_judge(const child_result *r, const char *what, const char *log, int deadline_ms, worker_error *e);
#endif
