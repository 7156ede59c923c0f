/* Clocks and the log: one JSON object a line on stderr. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "service/service.h"

double service_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

int64_t service_unix_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

enum { SLOW_MS = 1000 };

static cJSON *open_line(const char *level)
{
    char when[40];
    struct tm tm;
    int64_t ms = service_unix_ms();
    time_t s = (time_t)(ms / 1000);
    gmtime_r(&s, &tm);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(when + strlen(when), sizeof when - strlen(when), ".%03dZ", (int)(ms % 1000));
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "time", when);
    cJSON_AddStringToObject(o, "level", level);
    return o;
}

static void print_line(cJSON *o)
{
    char *line = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    if (!line) return;
    size_t n = strlen(line);
    line[n] = '\n'; /* over the NUL: one write a line, so that lines of threads do not mix */
    if (write(2, line, n + 1) < 0) n = 0;
    free(line);
}

void service_log(const char *level, const char *event, const char *format, ...)
{
    char text[1024], clean[1024];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    cJSON *o = open_line(level);
    cJSON_AddStringToObject(o, "event", event);
    if (*text) cJSON_AddStringToObject(o, "message", service_clean(text, clean, sizeof clean));
    print_line(o);
}

/* 00-TRACE-PARENT-FLAGS of W3C Trace Context; flag 1: the caller records this trace. */
static bool traced(const char *p)
{
    size_t n = strlen(p);
    return n >= 55 && p[2] == '-' && p[35] == '-' && p[52] == '-' && strspn(p, "0123456789abcdef-") >= 55;
}

void service_log_call(const service_call *c, int status)
{
    double ms = service_now_ms() - c->began_ms;
    bool trace = *c->traceparent && traced(c->traceparent);
    bool missed = status == 504 && c->cache_control && strstr(c->cache_control, "only-if-cached"); /* and no wish for more */
    bool probed = status == 503 && c->route && !strcmp(c->route->path, "/readyz"); /* not yet, or no longer: other lines say which */
    bool error = status >= 500 && !missed && !probed;
    if (!error && ms < SLOW_MS && !(trace && (c->traceparent[54] - '0') & 1)) return;
    cJSON *o = open_line(error ? "error" : "info");
    cJSON_AddStringToObject(o, "event", "call");
    cJSON_AddStringToObject(o, "method", c->method);
    cJSON_AddStringToObject(o, "route", c->route ? c->route->path : "none");
    cJSON_AddNumberToObject(o, "status", status);
    cJSON_AddNumberToObject(o, "ms", (double)(int64_t)(ms * 1000) / 1000);
    if (*c->who.tenant) cJSON_AddStringToObject(o, "tenant", c->who.tenant);
    if (trace) {
        char id[33], parent[17];
        snprintf(id, sizeof id, "%.32s", c->traceparent + 3);
        snprintf(parent, sizeof parent, "%.16s", c->traceparent + 36);
        cJSON_AddStringToObject(o, "trace_id", id);
        cJSON_AddStringToObject(o, "parent_id", parent);
    }
    print_line(o);
}
