/* Instructions that generated text can use as such: the tables natives.def and units.def (C) and warps.def (CUDA). */
#include "intrin/intrin.h"
#include <string.h>

static const kn_native natives[] = {
#define X(spelling, macro, compute, dtypes, registers, text) {spelling, macro, compute, dtypes, text, registers},
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

bool kn_intrin_unit(const kn_intrin *it, const kn_hw *hw)
{
    if (hw->gpu || it->red != KN_RED_SUM || it->noperands > hw->tile_registers) return false;
    for (int o = 0; o < it->noperands; o++)
        if (it->operand[o].scope != KN_SCOPE_TILE) return false;
    return true;
}

static const kn_unit units[] = {
#define X(spelling, macro, compute, dtypes, memory, mnemonic) {spelling, macro, compute, dtypes, memory, mnemonic},
#include "intrin/units.def"
#undef X
};

/* The text up to its extents. */
static bool computes(const char *text, const char *compute)
{
    size_t n = strlen(compute);
    return !strncmp(text, compute, n) && !strncmp(text + n, " where ", 7);
}

/* At most 16 rows of 64 bytes, whole groups of four bytes. */
static bool fits(const kn_intrin *it)
{
    for (int o = 0; it && o < it->noperands; o++) {
        const kn_intrin_operand *p = &it->operand[o];
        int64_t rows = p->plain ? p->shape[0] : p->place_shape[0], bytes = p->elems * kn_dtype_bytes(p->dtype);
        if (rows > 16 || bytes > rows * 64 || bytes % (rows * 4)) return false;
    }
    return it != NULL;
}

const kn_unit *kn_unit_of(const kn_hw_intrin *spec)
{
    for (size_t i = 0; i < sizeof units / sizeof *units && spec->spelling && spec->memory; i++)
        if (!strcmp(units[i].spelling, spec->spelling) && computes(spec->compute, units[i].compute) && !strcmp(units[i].dtypes, spec->dtypes) &&
            !strcmp(units[i].memory, spec->memory) && fits(spec->parsed))
            return &units[i];
    return NULL;
}

static const kn_warp warps[] = {
#define X(spelling, compute, dtypes, memory, ptx, ways, threads) {spelling, compute, dtypes, memory, ptx, ways, threads},
#include "intrin/warps.def"
#undef X
};

const kn_warp *kn_warp_find(const kn_hw_intrin *spec)
{
    for (size_t i = 0; i < sizeof warps / sizeof *warps && spec->spelling; i++)
        if (!strcmp(warps[i].spelling, spec->spelling) && !strcmp(warps[i].compute, spec->compute) && !strcmp(warps[i].dtypes, spec->dtypes) &&
            (!spec->memory || !strcmp(warps[i].memory, spec->memory)))
            return &warps[i];
    return NULL;
}

const kn_warp *kn_warp_of(const kn_hw_intrin *spec)
{
    return spec->parsed ? spec->parsed->warp : kn_warp_find(spec);
}
