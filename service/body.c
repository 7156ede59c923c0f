/* JSON bodies: read strictly, members taken with their bounds, refusals that name the member. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "service/body.h"

cJSON *service_body_json(service_call *c, service_reply **problem)
{
    kiln_diag d = {0};
    *problem = NULL;
    if (!service_media_is(c->content_type, "application/json")) {
        *problem = service_problem(415, "unsupported-media-type", "the body must be JSON", c->content_type, "Content-Type: application/json");
        return NULL;
    }
    d.status = kiln_json_check((kiln_bytes){c->body, c->n}, &d);
    if (d.status != KILN_OK) {
        *problem = service_problem_diag(&d);
        return NULL;
    }
    cJSON *o = cJSON_ParseWithLength(c->body, c->n);
    if (cJSON_IsObject(o)) return o;
    cJSON_Delete(o);
    *problem = service_body_wrong("", "the body is not an object", "a JSON object");
    return NULL;
}

service_reply *service_body_wrong(const char *pointer, const char *message, const char *hint)
{
    kiln_diag d = {.status = KILN_REQUEST};
    snprintf(d.pointer, sizeof d.pointer, "%s", pointer);
    snprintf(d.message, sizeof d.message, "%s", message);
    snprintf(d.hint, sizeof d.hint, "%s", hint);
    return service_problem_diag(&d);
}

static service_reply *wrong(const char *name, const char *message, const char *hint)
{
    char pointer[80];
    snprintf(pointer, sizeof pointer, "/%s", name);
    return service_body_wrong(pointer, message, hint);
}

bool service_body_only(const cJSON *o, const char *const *names, service_reply **problem)
{
    for (const cJSON *e = o->child; e; e = e->next) {
        bool known = false;
        char list[240] = "", name[48];
        for (int i = 0; names[i]; i++) {
            size_t n = strlen(list);
            known |= !strcmp(names[i], e->string);
            snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", names[i]);
        }
        snprintf(name, sizeof name, "%.40s", e->string);
        if (!known) *problem = wrong(name, "no such member", list);
        if (!known) return false;
    }
    return true;
}

const char *service_body_text(const cJSON *o, const char *name, const char *absent, size_t most, service_reply **problem)
{
    const cJSON *e = cJSON_GetObjectItemCaseSensitive(o, name);
    char hint[60];
    if (!e && absent) return absent;
    if (cJSON_IsString(e) && strlen(e->valuestring) <= most) return e->valuestring;
    snprintf(hint, sizeof hint, "text of at most %zu bytes", most);
    if (!*problem) *problem = wrong(name, e ? "this member has the wrong type or is too long" : "this member is missing", hint);
    return "";
}

int64_t service_body_int(const cJSON *o, const char *name, int64_t absent, int64_t low, int64_t high, service_reply **problem)
{
    const cJSON *e = cJSON_GetObjectItemCaseSensitive(o, name);
    char hint[80];
    if (!e) return absent;
    double v = cJSON_IsNumber(e) ? e->valuedouble : 0.5;
    if (v == floor(v) && v >= (double)low && v <= (double)high) return (int64_t)v;
    snprintf(hint, sizeof hint, "an integer from %lld to %lld", (long long)low, (long long)high);
    if (!*problem) *problem = wrong(name, "this member is not such a number", hint);
    return absent;
}
