/* Instructions that C text can use as such: the table natives.def. */
#include "intrin/intrin.h"
#include <string.h>

static const kn_native natives[] = {
#define X(spelling, macro, compute, dtypes, text) {spelling, macro, compute, dtypes, text},
#include "intrin/natives.def"
#undef X
};

const kn_native *kn_native_of(const kn_hw_intrin *spec)
{
    for (size_t i = 0; i < sizeof natives / sizeof *natives && spec->spelling; i++)
        if (!strcmp(natives[i].spelling, spec->spelling) && !strcmp(natives[i].compute, spec->compute) && !strcmp(natives[i].dtypes, spec->dtypes))
            return &natives[i];
    return NULL;
}
