/* The driver of whole models: a file or a request body as a settled graph. */
#include "onnx/onnx.h"

kiln_status kiln_graph_onnx(kiln_arena *a, kiln_bytes model, const kiln_graph_options *o, kiln_graph **out, kiln_diag *d)
{
    kn_graph *raw = NULL;
    kiln_status s = kn_onnx_read(a, model, o, &raw, d);
    if (s == KILN_OK) s = kn_graph_settle(a, raw, o, out, d);
    return s;
}
