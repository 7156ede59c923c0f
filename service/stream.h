/* News for clients: what the log of jobs says, read once for all of them. */
#ifndef KILN_STREAM_H
#define KILN_STREAM_H
#include "service/fleet.h"

service_stream *service_stream_open(service_app *app);
void service_stream_start(service_stream *s); /* the fleet is there */
void service_stream_end(service_stream *s);   /* every stream and wait ends now */
void service_stream_close(service_stream *s);
/* Events as SSE: of one job, or all that the caller may see (job ""); after the event `since`, -1: from now on; for so many seconds, -1: without
 * an end. */
service_reply *service_stream_reply(service_call *c, const char *job, int64_t since, int seconds);
/* Suspends c until the job has an event after `since` or c->wait_until has passed; c->resume answers then. false: it cannot wait. */
bool service_stream_wait(service_stream *s, service_call *c, const char *job, int64_t since);
/* Best times of a job in the order they were found: [[ms since its start, microseconds], ...]; NULL: none known. */
cJSON *service_stream_curve(service_stream *s, const char *job);
int64_t service_stream_last(service_stream *s); /* number of the last event that was heard */
#endif
