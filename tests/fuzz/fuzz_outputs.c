/* Fuzz target: what comes back from elsewhere: payloads of jobs (from the database), logs of the assembler, and source text on its way to a
 * toolchain. The first byte chooses. */
#include "tests/arena.h"
#include "workers/build.h"
#include "workers/child.h"
#include "workers/gate.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    char *text = calloc(1, size), json[600];
    memcpy(text, data + 1, size - 1);
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kiln_diag d = {0};
    if (*data % 3 == 0) {
        build_asked x = {0};
        if (build_payload_read(a, text, &x, &d) != KILN_OK && !*d.message) abort();
        build_asked_free(&x);
    } else if (*data % 3 == 1) {
        const kiln_launch launch = {.entry = "kiln_kernel", .shared_bytes = 1024, .dynamic_shared_bytes = 512};
        kiln_kernel k = {.entry = "kiln_kernel", .nlaunches = 1, .launches = &launch};
        gate_report g = {0};
        gate_read(text, &k, &g);
        gate_text(&g, json, sizeof json);
    } else {
        int line = 0;
        if (!workers_source_is_closed(text, size - 1, &line) && line < 1) abort();
    }
    kiln_arena_close(a);
    free(text);
    return 0;
}
