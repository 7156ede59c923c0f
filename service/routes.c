/* The table of routes: dispatch, 405 with Allow; paths and queries decoded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "service/service.h"

const service_route service_routes[] = {
#define X(handler, method, path, metric, body, scope, answers, summary) \
    {rt_##handler, #method, path, metric, body, answers, summary, SERVICE_##scope},
#include "service/routes.def"
#undef X
};
const int service_nroutes = sizeof service_routes / sizeof *service_routes;

/* {name} stands for one segment that is not empty; there is at most one a path. */
static bool matches(const char *pattern, const char *path, char *param, size_t size)
{
    while (*pattern && *pattern == *path) pattern++, path++;
    if (*pattern != '{') return !*pattern && !*path;
    const char *tail = strchr(pattern, '}') + 1;
    size_t k = strcspn(path, "/");
    if (!k || k >= size || strcmp(tail, path + k)) return false;
    if (param) memcpy(param, path, k);
    if (param) param[k] = 0;
    return true;
}

const service_route *service_route_find(const char *method, const char *path, char *param, size_t size, service_reply **problem)
{
    char allow[64] = "";
    bool head = !strcmp(method, "HEAD");
    for (int i = 0; i < service_nroutes; i++) {
        const service_route *r = &service_routes[i];
        if (!matches(r->path, path, param, size)) continue;
        if (!strcmp(r->method, head ? "GET" : method)) return r;
        size_t n = strlen(allow);
        snprintf(allow + n, sizeof allow - n, "%s%s%s", n ? ", " : "", r->method, !strcmp(r->method, "GET") ? ", HEAD" : "");
    }
    if (*allow) {
        *problem = service_problem(405, "method-not-allowed", "this method is not for this path", NULL, allow);
        service_reply_header(*problem, "Allow", "%s", allow);
    } else {
        *problem = service_problem(404, "not-found", "nothing is at this path", path, "GET /openapi.json lists the paths");
    }
    return NULL;
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool service_unescape(const char *p, size_t n, char *out, size_t size)
{
    size_t k = 0;
    if (n < size && !memchr(p, '%', n) && !memchr(p, 0, n)) {
        memcpy(out, p, n);
        out[n] = 0;
        return true;
    }
    for (size_t i = 0; i < n; i++) {
        int v = (unsigned char)p[i];
        if (p[i] == '%') {
            if (n - i < 3) return false;
            int hi = hex(p[i + 1]), lo = hex(p[i + 2]);
            if (hi < 0 || lo < 0) return false;
            v = hi * 16 + lo;
            i += 2;
        }
        if (!v || k + 1 >= size) return false;
        out[k++] = (char)v;
    }
    out[k] = 0;
    return true;
}

int service_query(const char *query, const char *name, char *out, size_t size)
{
    int found = 0;
    for (const char *p = query; *p;) {
        size_t n = strcspn(p, "&"), eq = 0;
        char member[128];
        while (eq < n && p[eq] != '=') eq++;
        if (!service_unescape(p, eq, member, sizeof member)) return -1;
        if (!strcmp(member, name)) {
            if (found++ || !service_unescape(p + eq + (eq < n), n - eq - (eq < n), out, size)) return -1;
        }
        p += n + (p[n] == '&');
    }
    return found;
}

bool service_query_whole(const char *query, const char *name, int least, int most, int *out)
{
    char text[8];
    int found = service_query(query, name, text, sizeof text);
    if (!found) return true;
    size_t n = found > 0 ? strlen(text) : 0;
    if (!n || n > 6 || strspn(text, "0123456789") < n || atoi(text) < least || atoi(text) > most) return false;
    *out = atoi(text);
    return true;
}
