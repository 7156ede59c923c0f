/* Replies: counted bodies with headers, and problems as RFC 9457 has them. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "service/service.h"

service_reply *service_reply_new(int status, const char *media, char *body, size_t n)
{
    service_reply *r = body ? calloc(1, sizeof *r) : NULL;
    if (!r) {
        free(body);
        return NULL;
    }
    atomic_init(&r->refs, 1);
    r->status = status;
    r->body = body;
    r->n = n;
    service_reply_header(r, "Content-Type", "%s", media);
    return r;
}

service_reply *service_reply_text(int status, const char *media, const char *text)
{
    return service_reply_new(status, media, strdup(text), strlen(text));
}

service_reply *service_reply_json(int status, cJSON *o)
{
    char *text = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    return text ? service_reply_new(status, "application/json", text, strlen(text)) : NULL;
}

void service_reply_header(service_reply *r, const char *name, const char *format, ...)
{
    if (!r || r->nheaders == (int)(sizeof r->headers / sizeof *r->headers)) return;
    service_header *h = &r->headers[r->nheaders];
    va_list ap;
    va_start(ap, format);
    int n = vasprintf(&h->value, format, ap);
    va_end(ap);
    if (n < 0) return;
    snprintf(h->name, sizeof h->name, "%s", name);
    r->nheaders++;
}

void service_reply_set(service_reply *r, const char *name, const char *format, ...)
{
    char *text;
    va_list ap;
    va_start(ap, format);
    int n = vasprintf(&text, format, ap);
    va_end(ap);
    if (n < 0) return;
    for (int i = 0; r && i < r->nheaders; i++) {
        if (strcmp(r->headers[i].name, name)) continue;
        free(r->headers[i].value);
        r->headers[i].value = text;
        return;
    }
    service_reply_header(r, name, "%s", text);
    free(text);
}

service_reply *service_reply_ref(service_reply *r)
{
    if (r) atomic_fetch_add(&r->refs, 1);
    return r;
}

const char *service_reply_value(const service_reply *r, const char *name)
{
    for (int i = 0; r && i < r->nheaders; i++)
        if (!strcmp(r->headers[i].name, name)) return r->headers[i].value;
    return NULL;
}

void service_reply_digest(service_reply *r)
{
    if (r) r->digest = true;
}

static cJSON *problem_object(int http, const char *slug, const char *title, const char *detail, const char *hint)
{
    char type[96];
    cJSON *o = cJSON_CreateObject();
    snprintf(type, sizeof type, "/problems/%s", slug);
    cJSON_AddStringToObject(o, "type", type);
    cJSON_AddStringToObject(o, "title", title);
    cJSON_AddNumberToObject(o, "status", http);
    if (detail && *detail) cJSON_AddStringToObject(o, "detail", detail);
    if (hint && *hint) cJSON_AddStringToObject(o, "hint", hint);
    return o;
}

static service_reply *problem_reply(int http, cJSON *o)
{
    char *text = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    service_reply *r = text ? service_reply_new(http, "application/problem+json", text, strlen(text)) : NULL;
    service_reply_header(r, "Cache-Control", "no-store");
    if (http == 503 || http == 429) service_reply_header(r, "Retry-After", "1");
    return r;
}

service_reply *service_problem(int http, const char *slug, const char *title, const char *detail, const char *hint)
{
    return problem_reply(http, problem_object(http, slug, title, detail, hint));
}

service_reply *service_problem_limit(int http, const char *limit, long long value, const char *detail)
{
    cJSON *o = problem_object(http, "limit-exceeded", kiln_status_text(KILN_LIMIT), detail, NULL);
    cJSON_AddStringToObject(o, "limit", limit);
    cJSON_AddNumberToObject(o, "value", (double)value);
    return problem_reply(http, o);
}

service_reply *service_problem_diag(const kiln_diag *d)
{
    int http = kiln_status_http(d->status);
    cJSON *o = problem_object(http, kiln_status_slug(d->status), kiln_status_text(d->status), d->message, d->hint);
    cJSON_AddStringToObject(o, "pointer", d->pointer);
    cJSON *list = cJSON_AddArrayToObject(o, "errors"), *e = cJSON_CreateObject();
    cJSON_AddItemToArray(list, e);
    cJSON_AddStringToObject(e, "detail", d->message);
    cJSON_AddStringToObject(e, "pointer", d->pointer);
    if (d->line) {
        cJSON_AddNumberToObject(e, "line", d->line);
        cJSON_AddNumberToObject(e, "col", d->col);
    }
    return problem_reply(http, o);
}
