/* What the tests of workers/ share: tools with this test binary as the worker, and a folder for private directories that must be empty at
 * the end. */
#ifndef WORKERS_FIXTURE_H
#define WORKERS_FIXTURE_H
#include "workers/child.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static worker_tools tools;

static inline double fixture_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static inline int fixture_open(void **state)
{
    char dir[512], self[600];
    (void)state;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 1 || !workers_exe_dir(dir, sizeof dir)) { return -1; }
    self[n] = 0;
    setenv("KILN_WORKER", self, 1);
    workers_find_tools(dir, &tools);
    snprintf(tools.tmp, sizeof tools.tmp, "/tmp/kiln-test-XXXXXX");
    return mkdtemp(tools.tmp) ? 0 : -1;
}

static inline int fixture_close(void **state)
{
    (void)state;
    return rmdir(tools.tmp); /* fails when a private directory was left */
}

static inline kiln_bytes fixture_text(const char *s) { return (kiln_bytes){s, strlen(s)}; }
#endif
