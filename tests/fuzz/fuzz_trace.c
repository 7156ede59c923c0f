/* Fuzz target: traces, as a request's `trace` hands them to the library: applied, lowered, checked, printed as C or CUDA. The first byte chooses
 * the program and, by its highest bit, the target, so that seeds say the same when programs are added. */
#include "tests/arena.h"
#include "tests/unit/instructions.h"
#include "block/block.h"
#include "codegen/codegen.h"
#include <stdlib.h>
#include <string.h>

static const struct { const char *inputs, *text; } programs[] = {
#define P(inputs, text) {inputs, text},
#include "tests/unit/prop_programs.def"
#undef P
};
enum { PROGRAMS = sizeof programs / sizeof *programs };

static kiln_bytes bytes(const char *s) { return (kiln_bytes){s, strlen(s)}; }

static void through(kiln_arena *a, const kn_tree *t, const kn_hw *hw)
{
    kiln_diag d = {0};
    kn_lprog *l;
    kn_blocks *b;
    kiln_bytes source, header;
    if (kn_blocks_of_tree(a, t, hw, &b, &d) == KILN_OK) kn_blocks_check(b, hw, &d);
    if (kn_lower(a, t, hw, &l, &d)) return;
    d = (kiln_diag){0};
    if (kn_lprog_check(l, &d)) abort();
    const kn_language *language = kn_language_find(hw->language);
    if (language) language->print(a, l, "kiln_fuzz", &source, &header, &d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const kn_hw targets[] = {
        {.id = "cpu", .language = "c", .max_threads_per_block = 1, .vector_bytes = 64, .lanes = 1},
        {.id = "gpu", .language = "cuda", .gpu = true, .lanes = 32, .max_threads_per_block = 1024, .max_shared_per_block = 49152},
    };
    if (!size) return 0;
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kn_hw with = targets[data[0] >> 7], *hw = &with;
    add_instructions(a, hw);
    kiln_diag d = {0};
    kn_program *p;
    kn_tree *t = NULL;
    int which = (data[0] & 127) % PROGRAMS;
    kiln_bytes trace = {(const char *)data + 1, size - 1}, full;
    if (kn_parse(a, bytes(programs[which].text), bytes(programs[which].inputs), &p, &d)) abort();
    for (int i = 0; i < p->ninputs; i++) p->tensors[i].constant = true; /* so that they may be packed, and what is made of them computed, ahead */
    kiln_status s = kn_trace_apply(a, p, hw, trace, &t, &d);
    if (s && (t || !d.message[0])) abort();
    if (!s) {
        if (kn_trace_complete(a, p, hw, trace, &full, &d)) abort();
        through(a, t, hw);
    }
    kiln_arena_close(a);
    return 0;
}
