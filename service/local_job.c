/* A compile that this process knows, as a job: it tells more than the log of the fleet does. */
#include <stdio.h>
#include "service/auth.h"

static service_reply *describe(service_job *job)
{
    static const char *const states[] = {"queued", "running", "succeeded", "failed"};
    cJSON *o = cJSON_CreateObject();
    service_standing at = service_jobs_standing(job->app->jobs, job); /* the pool may be at it */
    enum service_state s = at.state;
    cJSON_AddStringToObject(o, "id", job->id);
    cJSON_AddStringToObject(o, "kind", "compile");
    cJSON_AddStringToObject(o, "state", s == SERVICE_FAILED && at.cancelled ? "cancelled" : states[s]);
    cJSON_AddStringToObject(o, "key", job->key);
    cJSON_AddNumberToObject(o, "created_ms", (double)job->created_ms);
    if (s >= SERVICE_SUCCEEDED) cJSON_AddNumberToObject(o, "finished_ms", (double)at.finished_ms);
    if (s == SERVICE_SUCCEEDED) {
        char href[100];
        snprintf(href, sizeof href, "/v1/kernels/%s", job->key);
        cJSON_AddStringToObject(o, "kernel", href);
        cJSON_AddBoolToObject(o, "verification_over", at.settled);
    }
    if (s == SERVICE_FAILED && at.problem) cJSON_AddItemToObject(o, "problem", cJSON_Parse(at.problem->body));
    service_reply_drop(at.problem);
    service_reply *r = service_reply_json(200, o);
    service_reply_header(r, "ETag", "\"c%d%d\"", (int)s, at.settled);
    service_reply_header(r, "Cache-Control", "no-store");
    if (s < SERVICE_SUCCEEDED) service_reply_header(r, "Retry-After", "1");
    return r;
}

static service_reply *again(service_call *c) { return describe(c->job); }

bool service_local_job(service_call *c, service_reply **reply)
{
    service_job *job = service_jobs_find(c->app->jobs, c->param);
    *reply = NULL;
    if (!job) return false;
    if (!service_may_see(c, job->key)) {
        service_job_drop(c->app->jobs, job);
        *reply = service_problem(404, "not-found", "no such job", c->param, "results are remembered for a day");
        return true;
    }
    if (c->wait_until) {
        c->resume = again;
        if (service_jobs_attach(c->app->jobs, c, job)) return true;
        c->resume = NULL;
    }
    *reply = describe(job);
    service_job_drop(c->app->jobs, job);
    return true;
}
