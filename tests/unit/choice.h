/* What is constructed first for a request: tests name what it says, and what not. */
#ifndef TEST_CHOICE_H
#define TEST_CHOICE_H
#include "tests/arena.h"
#include "tests/unit/device.h"
#include <string.h>

/* Of the first candidate the trace, or the text that is generated for it. */
static const char *first(kiln_arena *a, const char *body, const char *spec, bool text)
{
    kiln_request *r;
    kiln_candidates *list;
    kiln_kernel *k;
    kiln_diag d = {0};
    const kiln_hw *hw = device(a, spec);
    if (kiln_request_json(a, (kiln_bytes){body, strlen(body)}, &r, &d) || kiln_construct_request(a, r, hw, 1, &list, &d) ||
        (text && kiln_generate(a, r->program, hw, list->c[0].trace, &k, &d)))
        fail_msg("%s: %s %s", body, d.pointer, d.message);
    return text ? k->source.p : list->c[0].trace.p;
}

/* What it says for a request, both, and what it never does; NULL: no such thing. */
typedef struct choice { const char *body, *has, *never, *also; } choice;

static void choose(const char *spec, bool text, const choice *one, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        const char *said = first(a, one[i].body, spec, text);
        bool right = (!one[i].has || strstr(said, one[i].has)) && (!one[i].also || strstr(said, one[i].also));
        if (!right || (one[i].never && strstr(said, one[i].never))) fail_msg("%s\n%s", one[i].body, said);
        kiln_arena_close(a);
    }
}
#define CHOOSE(spec, text, one) choose(spec, text, one, sizeof one / sizeof *one)
#define INPUT(type, shape) "{\"dtype\":\"" type "\",\"shape\":[" shape "]}"
#define NAMED(name, type, shape) "{\"name\":\"" name "\",\"dtype\":\"" type "\",\"shape\":[" shape "]}"
#define PRODUCT(type, a, b) "{\"op\":{\"name\":\"MatMul\"},\"inputs\":[" INPUT(type, a) "," INPUT(type, b) "]}"
#endif
