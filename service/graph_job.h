/* The compile of a model as a job of the fleet: a row that outlives its process, the model's bytes beside it, progress with every kernel. */
#ifndef SERVICE_GRAPH_JOB_H
#define SERVICE_GRAPH_JOB_H
#include "service/fleet.h"
#include "service/graphs.h"

typedef struct graph_job {
    char id[40];
    kept *lease; /* NULL: the fleet could not be asked, it is compiled without a row */
} graph_job;

/* Notes the model, submits its job and claims it. LEAD: to be compiled here; FOLLOW: another has it; ALONE: compiled here, without a row. */
enum service_lead graph_job_lead(service_app *app, const service_graph_ask *a, graph_job *j);
/* A job that nobody leads, of a process that ended: claimed, and what was asked read back. false: there is none. */
bool graph_job_next(service_app *app, service_graph_ask *a, graph_job *j);
void graph_job_note(service_app *app, graph_job *j, const cJSON *progress);
enum graph_stop { GRAPH_GO_ON, GRAPH_CANCELLED, GRAPH_LOST };
enum graph_stop graph_job_stop(service_app *app, graph_job *j);
/* How it ended: the state that GET /v1/graphs/{key} shows. handed_back: this process ends, another is to go on. Drops the lease. */
void graph_job_end(service_app *app, graph_job *j, const char *key, cJSON *last, bool handed_back);
/* The newest row of that key as that state; NULL: none. */
cJSON *graph_job_json(service_app *app, const char *key);
bool graph_job_asker(service_app *app, const char *key, char tenant[64]); /* these two: false: no live row */
bool graph_job_cancel(service_app *app, const char *key);
#endif
