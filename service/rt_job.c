/* GET /v1/jobs/{id}. */
#include <stdio.h>
#include "service/auth.h"

service_reply *rt_job(service_call *c)
{
    static const char *const states[] = {"queued", "running", "succeeded", "failed"};
    service_job *job = service_jobs_find(c->app->jobs, c->param);
    if (job && !service_may_see(c, job->key)) {
        service_job_drop(c->app->jobs, job);
        job = NULL;
    }
    if (!job) return service_problem(404, "not-found", "no such job", c->param, "results are remembered for an hour");
    cJSON *o = cJSON_CreateObject();
    enum service_state s = job->state;
    cJSON_AddStringToObject(o, "id", job->id);
    cJSON_AddStringToObject(o, "state", states[s]);
    cJSON_AddStringToObject(o, "key", job->key);
    cJSON_AddNumberToObject(o, "created_ms", (double)job->created_ms);
    if (s >= SERVICE_SUCCEEDED) cJSON_AddNumberToObject(o, "finished_ms", (double)job->finished_ms);
    if (s == SERVICE_SUCCEEDED) {
        char href[100];
        snprintf(href, sizeof href, "/v1/kernels/%s", job->key);
        cJSON_AddStringToObject(o, "kernel", href);
        cJSON_AddBoolToObject(o, "verification_over", job->settled);
    }
    if (s == SERVICE_FAILED && job->problem) cJSON_AddItemToObject(o, "problem", cJSON_Parse(job->problem->body));
    service_job_drop(c->app->jobs, job);
    service_reply *r = service_reply_json(200, o);
    service_reply_header(r, "Cache-Control", "no-store");
    if (s < SERVICE_SUCCEEDED) service_reply_header(r, "Retry-After", "1");
    return r;
}
