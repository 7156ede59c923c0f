/* Fuzz target: graphs as JSON, from the bytes to a settled graph and its plan for a CPU. Whatever comes is a plan or a refusal. */
#include "graph/graph.h"
#include "kiln.h"
#include <stdio.h>
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

static const char device[] = "{\"schema\":\"kiln.hw/1\",\"id\":\"fuzz\",\"kind\":\"cpu\"}";

/* A description that lies beside the service, read once; without it graphs are settled only. */
static kiln_bytes description(void)
{
    static char text[65536];
    static size_t n;
    FILE *f = n ? NULL : fopen("hwspecs/x86-64-avx2.json", "rb");
    if (f) {
        n = fread(text, 1, sizeof text - 1, f);
        fclose(f);
    }
    return n ? (kiln_bytes){text, n} : (kiln_bytes){device, sizeof device - 1};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t left = 512u << 20;
    kiln_arena *a = kiln_arena_open(&(kiln_host){&left, mem, NULL});
    kiln_bytes hw_text = description();
    kiln_diag d = {0};
    kiln_graph *g = NULL;
    kiln_plan *p;
    kiln_hw *hw;
    const char *target;
    kiln_status s = kiln_graph_target(a, (kiln_bytes){(const char *)data, size}, &target, &d);
    if (s == KILN_OK) s = kiln_graph_json(a, (kiln_bytes){(const char *)data, size}, &(kiln_graph_options){.bytes = true}, &g, &d);
    if (s == KILN_UNSUPPORTED || s == KILN_UNKNOWN_OP)
        s = kiln_graph_json(a, (kiln_bytes){(const char *)data, size}, &(kiln_graph_options){.partial = true, .bytes = true}, &g, &d);
    if (s == KILN_OK && kiln_hw_parse(a, hw_text, &hw, &d) == KILN_OK) s = kiln_graph_plan(a, g, hw, &p, &d);
    if (s != KILN_OK && (!*d.message || s == KILN_INTERNAL)) abort();
    kiln_arena_close(a);
    return 0;
}
