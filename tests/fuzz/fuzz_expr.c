/* Fuzz target: expression text. What parses must print, parse back, and have the same canonical bytes both times. Input: the declared
 * inputs, a newline, the text. */
#include "te/te.h"
#include <stdlib.h>
#include <string.h>

typedef struct budget { size_t left; } budget;

static void *mem(void *user, void *p, size_t old_size, size_t size)
{
    budget *b = user;
    if (!size) {
        free(p);
        b->left += old_size;
        return NULL;
    }
    if (size > b->left) return NULL;
    b->left -= size;
    return realloc(p, size);
}

static bool canonical(kiln_arena *a, const kn_program *p, kiln_bytes *bytes)
{
    int in[KILN_MAX_TENSORS], out[KILN_MAX_TENSORS];
    kiln_diag d;
    kn_program *q;
    return kn_canon(a, p, &q, in, out, &d) == KILN_OK && kn_canon_bytes(a, q, bytes) == KILN_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    budget b = {(size_t)256 << 20};
    if (size > 8192) return 0;
    kiln_arena *a = kiln_arena_open(&(kiln_host){&b, mem, NULL});
    const char *text = (const char *)data, *line = size ? memchr(text, '\n', size) : NULL;
    size_t head = line ? (size_t)(line - text) : 0;
    kiln_bytes inputs = {text, head}, body = {text + head, size - head}, printed, first, second;
    kiln_diag d;
    kn_program *p, *q;
    if (kn_parse(a, body, inputs, &p, &d) != KILN_OK) {
        if (!d.message[0]) abort();
    } else if (kn_check(p, &d) != KILN_OK) {
        abort();
    } else if (canonical(a, p, &first) && kiln_program_text(a, p, &printed) == KILN_OK) {
        kiln_status s = kn_parse(a, printed, (kiln_bytes){NULL, 0}, &q, &d);
        if (s == KILN_OK && canonical(a, q, &second)) {
            if (first.n != second.n || memcmp(first.p, second.p, first.n)) abort();
        } else if (!kn_arena_dry(a) && s != KILN_LIMIT) {
            abort();
        }
    }
    kiln_arena_close(a);
    return 0;
}
