/* The snapshot behind the status page and the gauges of /metrics. */
#ifndef KILN_STATUS_H
#define KILN_STATUS_H
#include "service/fleet.h"

service_status *service_status_open(void);
void service_status_close(service_status *s);
void service_status_refresh(service_app *app); /* by one thread */
char *service_status_text(service_app *app);   /* JSON; free(); NULL: none yet */
void service_status_gauges(service_app *app, void (*emit)(void *user, const char *name, const char *labels, double value), void *user);
long long service_status_bytes(service_app *app); /* of the kernels in the store, as of the last change of them */
cJSON *service_job_json(service_app *app, const jobs_job *j);
#endif
