/* Between the files of the flow of models: what is known of each kernel, the model's own function, and the last step. */
#ifndef SERVICE_GRAPH_FLOW_H
#define SERVICE_GRAPH_FLOW_H
#include "service/graphs.h"
#include "workers/build.h"

typedef struct graph_kernel {
    char key[72], cache_status[64], verification[16];
    double began_ms, ms, predicted_us;
    bool done;
} graph_kernel;
/* The model's function on its way to a shared object. */
typedef struct graph_entry graph_entry;
graph_entry *graph_entry_begin(service_app *app, kiln_bytes text); /* returns at once; text is borrowed. NULL: no memory. graph_entry_drop() */
/* Waits. so: free(so->p); p NULL: there is no compiler here, or false: error. */
bool graph_entry_end(graph_entry *e, worker_blob *so, worker_error *error);
void graph_entry_drop(graph_entry *e); /* ends what still runs; e may be NULL */
/* Waits for entry; NULL: its text is only known now (a GPU's launcher). Stores the record. NULL: done; else the problem. */
service_reply *graph_link(service_app *app, const service_graph_ask *a, const kiln_plan *p, const kiln_hw *hw, const graph_kernel *kernels,
                          graph_entry *entry);
/* Of a GPU's model, in a: the launcher's text, and the manifest with what was built and how it is launched. NULL: done; else the problem. */
service_reply *graph_images(service_app *app, kiln_arena *a, const kiln_plan *p, const kiln_hw *hw, kiln_bytes *launcher, kiln_bytes *manifest);
#endif
