/* Fuzz target: models as JSON, from the bytes to a settled graph and its text. Whatever comes is a graph or a refusal that says why. */
#include "graph/graph.h"
#include <stdlib.h>

static void *mem(void *user, void *p, size_t old_size, size_t size)
{
    size_t *left = user;
    *left += old_size;
    if (size > *left) return NULL;
    *left -= size;
    if (size) return realloc(p, size);
    free(p);
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const dims[] = {"N"};
    static const int64_t extents[] = {2};
    size_t left = 512u << 20;
    kiln_arena *a = kiln_arena_open(&(kiln_host){&left, mem, NULL});
    kiln_graph_options o = {.ndims = 1, .dims = dims, .extents = extents};
    kiln_diag d = {0};
    kiln_graph *g = NULL;
    kiln_bytes text;
    kiln_status s = kiln_graph_json(a, (kiln_bytes){(const char *)data, size}, &o, &g, &d);
    if (s == KILN_OK) kiln_graph_text(a, g, &text);
    else if (!*d.message || s == KILN_INTERNAL) abort();
    kiln_arena_close(a);
    return 0;
}
