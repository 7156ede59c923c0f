/* A directory of a test's own: made before it, removed with all that is in it behind it. */
#ifndef FRESH_DIR_H
#define FRESH_DIR_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char dir[64];

static inline int fresh_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/kiln-test-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static inline int drop_dir(void **state)
{
    (void)state;
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    return system(cmd);
}
#endif
