/* Fuzz target: ONNX files, from the bytes to a settled graph and its text; and tensors by themselves. Whatever comes is a graph or a
 * refusal. */
#include "onnx/onnx.h"
#include <stdlib.h>

static void *mem(void *user, void *p, size_t old_size, size_t size)
{
    size_t *left = user; /* a model of some kilobytes must not take hundreds of megabytes */
    *left += old_size;
    if (size > *left) return NULL;
    *left -= size;
    if (size) return realloc(p, size);
    free(p);
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t left = 512u << 20;
    kiln_arena *a = kiln_arena_open(&(kiln_host){&left, mem, NULL});
    static const char *const dims[] = {"N", "batch"};
    static const int64_t extents[] = {2, 1};
    const kiln_graph_options plain = {.bytes = true}; /* as for the targets that multiply bytes: all that the service may do */
    kiln_graph_options n = plain, batch;
    n.ndims = 1, n.dims = dims, n.extents = extents;
    batch = n, batch.dims = dims + 1, batch.extents = extents + 1;
    kiln_bytes bytes = {(const char *)data, size}, text;
    kiln_diag d = {0};
    kiln_graph *g = NULL;
    kn_value v;
    kiln_status s = kiln_graph_onnx(a, bytes, &plain, &g, &d);
    if (s == KILN_SHAPE) s = kiln_graph_onnx(a, bytes, &n, &g, &d); /* an extent that the model only names */
    if (s == KILN_REQUEST || s == KILN_SHAPE) s = kiln_graph_onnx(a, bytes, &batch, &g, &d);
    kiln_graph_options rest = batch;
    rest.partial = true;
    if (s == KILN_UNSUPPORTED || s == KILN_UNKNOWN_OP || s == KILN_DTYPE) s = kiln_graph_onnx(a, bytes, &rest, &g, &d);
    if (s == KILN_OK) {
        for (int i = 0; i < g->nvalues; i++)
            if (!g->values[i].typed || !g->values[i].shaped) abort();
        for (int i = 0; i < g->nnodes; i++)
            for (int k = 0; k < g->nodes[i].ninputs; k++) {
                int x = g->nodes[i].inputs[k];
                if (x >= 0 && g->values[x].producer >= i) abort(); /* an order in which they can be run */
            }
        kiln_graph_text(a, g, &text);
    } else if (!*d.message || s == KILN_INTERNAL) {
        abort();
    }
    kn_onnx_tensor(a, bytes, &v, &d);
    kiln_arena_close(a);
    return 0;
}
