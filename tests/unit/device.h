/* A shipped hwspec, for tests of the compiler. */
#ifndef DEVICE_H
#define DEVICE_H
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "hw/hw.h"
#include "kiln.h"

/* hwspecs/ID.json as parsed, in a; the test fails where it cannot be. */
static inline kiln_hw *device(kiln_arena *a, const char *id)
{
    char path[128], text[1 << 16];
    snprintf(path, sizeof path, "hwspecs/%s.json", id);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot open %s", path);
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    kiln_hw *hw = NULL;
    kiln_diag d = {0};
    if (n == sizeof text || kiln_hw_parse(a, (kiln_bytes){text, n}, &hw, &d)) fail_msg("%s: %s", id, d.message);
    return hw;
}

/* The level of the memory hierarchy holds so much instead, so that a small operand is a large one. */
static inline void resize(kiln_hw *hw, const char *level, int64_t bytes)
{
    for (int i = 0; i < hw->nlevels; i++)
        if (!strcmp(hw->levels[i].name, level)) hw->levels[i].capacity_bytes = bytes;
}
#endif
