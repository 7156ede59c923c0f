/* Fuzz target: the JSON request, end to end through the library: scan, parse, lower, canonicalise, key. */
#include "tests/arena.h"
#include "kiln.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kiln_request *r;
    kiln_diag d;
    kiln_bytes text;
    if (kiln_request_json(a, (kiln_bytes){(const char *)data, size}, &r, &d) == KILN_OK) {
        if (kiln_program_text(a, r->program, &text) != KILN_OK) abort();
    } else if (!d.message[0]) {
        abort();
    }
    kiln_arena_close(a);
    return 0;
}
