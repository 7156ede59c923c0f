/* Between the two files of the flow of models: what is known of each kernel, and the last step. */
#ifndef SERVICE_GRAPH_FLOW_H
#define SERVICE_GRAPH_FLOW_H
#include "service/graphs.h"

typedef struct graph_kernel {
    char key[72], cache_status[64], verification[16];
    double began_ms, ms, predicted_us;
    bool done;
} graph_kernel;
/* Compiles the function, stores the record. NULL: done; else the problem. */
service_reply *graph_link(service_app *app, const service_graph_ask *a, const kiln_plan *p, const kiln_hw *hw, const graph_kernel *kernels);
/* Of a GPU's model, in a: the launcher's text, and the manifest with what was built and how it is launched. NULL: done; else the problem. */
service_reply *graph_images(service_app *app, kiln_arena *a, const kiln_plan *p, const kiln_hw *hw, kiln_bytes *launcher, kiln_bytes *manifest);
#endif
