/* Whole models under compile: a thread each, which asks for every kernel as a client would. */
#ifndef SERVICE_GRAPHS_H
#define SERVICE_GRAPHS_H
#include "service/service.h"

enum service_graph_state {
    SERVICE_GRAPH_PLANNING,
    SERVICE_GRAPH_COMPILING,
    SERVICE_GRAPH_LINKING,
    SERVICE_GRAPH_SUCCEEDED,
    SERVICE_GRAPH_FAILED,
    SERVICE_GRAPH_CANCELLED
};
/* What is to be compiled. Owned by the graph once it is made. */
typedef struct service_graph_ask {
    char key[72], canon[256]; /* kk1-...: of the model's bytes, the target's description, the extents and the compiler's fingerprint; that text */
    char target[KILN_MAX_NAME_BYTES], dims[1024], binds[512];
    char *body, *target_json;
    size_t n;
    bool onnx, partial;
    service_who who;
} service_graph_ask;

service_graphs *service_graphs_open(service_app *app);
void service_graphs_close(service_graphs *g); /* cancels what runs, and waits for it */
/* Starts it, or joins the one of that key that runs; takes body and target_json. false: too many run. */
bool service_graphs_start(service_graphs *g, service_graph_ask *ask);
cJSON *service_graphs_json(service_graphs *g, const char *key); /* how far it is; NULL: unknown */
/* Suspends c until that compile is over or c->wait_until has passed, which is looked at once a second; c->resume then answers. false: nothing
 * runs here under that key. */
bool service_graphs_wait(service_graphs *g, service_call *c, const char *key);
void service_graphs_wake_all(service_graphs *g); /* nobody waits for the end of a compile that outlives the service */
bool service_graphs_asker(service_graphs *g, const char *key, char tenant[64]); /* who asked first; false: unknown */
bool service_graphs_cancel(service_graphs *g, const char *key);
#endif
