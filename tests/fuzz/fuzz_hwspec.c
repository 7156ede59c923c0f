/* Fuzz target: hardware descriptions, as PUT /v1/targets/{id} hands them to the library. */
#include "tests/arena.h"
#include "kiln.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kiln_hw *hw = NULL;
    kiln_diag d = {0};
    if (kiln_hw_parse(a, (kiln_bytes){(const char *)data, size}, &hw, &d) == KILN_OK) {
        if (!kiln_hw_id(hw)[0] || !kiln_hw_arch(hw)[0]) abort();
    } else if (!d.message[0] || hw) {
        abort();
    }
    kiln_arena_close(a);
    return 0;
}
