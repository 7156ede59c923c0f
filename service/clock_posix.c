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

void service_log(const char *level, const char *event, const char *format, ...)
{
    char text[1024], when[40];
    struct tm tm;
    int64_t ms = service_unix_ms();
    time_t s = (time_t)(ms / 1000);
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    gmtime_r(&s, &tm);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(when + strlen(when), sizeof when - strlen(when), ".%03dZ", (int)(ms % 1000));
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "time", when);
    cJSON_AddStringToObject(o, "level", level);
    cJSON_AddStringToObject(o, "event", event);
    if (*text) cJSON_AddStringToObject(o, "message", text);
    char *line = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    if (line) {
        size_t n = strlen(line);
        line[n] = '\n'; /* over the NUL: one write a line, so that lines of threads do not mix */
        if (write(2, line, n + 1) < 0) n = 0;
    }
    free(line);
}
