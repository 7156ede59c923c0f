/* Instructions that generated text can use as such: the tables natives.def (C) and warps.def (CUDA). */
#include "intrin/intrin.h"
#include <string.h>

static const kn_native natives[] = {
#define X(spelling, macro, compute, dtypes, text) {spelling, macro, compute, dtypes, text},
#include "intrin/natives.def"
#undef X
};

/* The tables' functions have all operands as they are where a hwspec says nothing of them. */
static bool plain(const kn_hw_intrin *spec)
{
    for (int o = 0; spec->parsed && o < spec->parsed->noperands; o++)
        if (!spec->parsed->operand[o].plain) return false;
    return true;
}

const kn_native *kn_native_of(const kn_hw_intrin *spec)
{
    for (size_t i = 0; i < sizeof natives / sizeof *natives && spec->spelling && plain(spec); i++)
        if (!strcmp(natives[i].spelling, spec->spelling) && !strcmp(natives[i].compute, spec->compute) && !strcmp(natives[i].dtypes, spec->dtypes))
            return &natives[i];
    return NULL;
}

static const kn_warp warps[] = {
#define X(spelling, compute, dtypes, memory, ptx, ways, threads) {spelling, compute, dtypes, memory, ptx, ways, threads},
#include "intrin/warps.def"
#undef X
};

const kn_warp *kn_warp_of(const kn_hw_intrin *spec)
{
    for (size_t i = 0; i < sizeof warps / sizeof *warps && spec->spelling; i++)
        if (!strcmp(warps[i].spelling, spec->spelling) && !strcmp(warps[i].compute, spec->compute) && !strcmp(warps[i].dtypes, spec->dtypes) &&
            (!spec->memory || !strcmp(warps[i].memory, spec->memory)))
            return &warps[i];
    return NULL;
}
