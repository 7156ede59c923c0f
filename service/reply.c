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

/* Length of the UTF-8 character at p (RFC 3629), 0: none. */
static size_t utf8(const unsigned char *p)
{
    static const struct {
        unsigned char low, high, second_low, second_high, n;
    } rows[] = {{0x20, 0x7e, 0, 0, 1},          {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
                {0xed, 0xed, 0x80, 0x9f, 3},    {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4},
                {0xf4, 0xf4, 0x80, 0x8f, 4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (p[0] < rows[i].low || p[0] > rows[i].high) continue;
        if (rows[i].n > 1 && (p[1] < rows[i].second_low || p[1] > rows[i].second_high)) return 0;
        for (size_t k = 2; k < rows[i].n; k++)
            if (p[k] < 0x80 || p[k] > 0xbf) return 0;
        return rows[i].n;
    }
    return 0;
}

char *service_clean(const char *s, char *out, size_t size)
{
    size_t at = 0;
    while (*s) {
        size_t n = utf8((const unsigned char *)s), k = n ? n : 1;
        if (at + k >= size) break;
        if (n) memcpy(out + at, s, n);
        else out[at] = *s == '\n' ? '\n' : '?';
        at += k;
        s += k;
    }
    out[at] = 0;
    return out;
}

bool service_is_clean(const char *s)
{
    while (*s) {
        size_t n = *s >= 0x20 && *s < 0x7f ? 1 : utf8((const unsigned char *)s);
        if (!n) return false;
        s += n;
    }
    return true;
}

static cJSON *problem_object(int http, const char *slug, const char *title, const char *detail, const char *hint)
{
    char type[96], text[2048];
    cJSON *o = cJSON_CreateObject();
    snprintf(type, sizeof type, "/problems/%s", slug);
    cJSON_AddStringToObject(o, "type", type);
    cJSON_AddStringToObject(o, "title", title);
    cJSON_AddNumberToObject(o, "status", http);
    if (detail && *detail) cJSON_AddStringToObject(o, "detail", service_clean(detail, text, sizeof text));
    if (hint && *hint) cJSON_AddStringToObject(o, "hint", service_clean(hint, text, sizeof text));
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

service_reply *service_problem_json(int http, cJSON *o) { return problem_reply(http, o); }

service_reply *service_problem(int http, const char *slug, const char *title, const char *detail, const char *hint)
{
    return problem_reply(http, problem_object(http, slug, title, detail, hint));
}

service_reply *service_store_away(enum cache_status s)
{
    if (s == CACHE_FULL) return service_problem(507, "store-full", "the store is full", "its disk has no room", NULL);
    return service_problem(503, "store-unavailable", "the store cannot be asked", NULL, NULL);
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
    char pointer[sizeof d->pointer + 1], text[sizeof d->message + 1]; /* either may be cut within a character */
    service_clean(d->pointer, pointer, sizeof pointer);
    cJSON_AddStringToObject(o, "pointer", pointer);
    cJSON *list = cJSON_AddArrayToObject(o, "errors"), *e = cJSON_CreateObject();
    cJSON_AddItemToArray(list, e);
    cJSON_AddStringToObject(e, "detail", service_clean(d->message, text, sizeof text));
    cJSON_AddStringToObject(e, "pointer", pointer);
    if (d->line) {
        cJSON_AddNumberToObject(e, "line", d->line);
        cJSON_AddNumberToObject(e, "col", d->col);
    }
    return problem_reply(http, o);
}
