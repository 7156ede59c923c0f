/* The table of routes: dispatch, 405 with Allow, and the OpenAPI text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "service/service.h"

const service_route service_routes[] = {
#define X(handler, method, path, metric, body, summary) {rt_##handler, #method, path, metric, body, summary},
#include "service/routes.def"
#undef X
};
const int service_nroutes = sizeof service_routes / sizeof *service_routes;

static bool matches(const char *pattern, const char *path, char *param, size_t size)
{
    const char *brace = strchr(pattern, '{');
    if (!brace) return !strcmp(pattern, path);
    size_t n = (size_t)(brace - pattern);
    if (strncmp(pattern, path, n) || !path[n] || strlen(path + n) >= size) return false;
    if (param) snprintf(param, size, "%s", path + n);
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

static void describe(cJSON *paths, const service_route *r)
{
    cJSON *path = cJSON_GetObjectItemCaseSensitive(paths, r->path), *op = cJSON_CreateObject(), *item;
    char verb[8] = {0}, id[64], name[32] = "";
    if (!path) path = cJSON_AddObjectToObject(paths, r->path);
    for (int i = 0; r->method[i] && i < 7; i++) verb[i] = (char)(r->method[i] + 32);
    cJSON_AddItemToObject(path, verb, op);
    snprintf(id, sizeof id, "%s%s", r->metric, strcmp(r->path, "/compile") ? "" : "_alias");
    cJSON_AddStringToObject(op, "operationId", id);
    cJSON_AddStringToObject(op, "summary", r->summary);
    const char *brace = strchr(r->path, '{');
    if (brace) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(brace + 1, "}"), brace + 1);
        cJSON_AddItemToArray(cJSON_AddArrayToObject(op, "parameters"), item = cJSON_CreateObject());
        cJSON_AddStringToObject(item, "name", name);
        cJSON_AddStringToObject(item, "in", "path");
        cJSON_AddBoolToObject(item, "required", 1);
        cJSON_AddStringToObject(cJSON_AddObjectToObject(item, "schema"), "type", "string");
    }
    if (r->body) {
        cJSON *body = cJSON_AddObjectToObject(op, "requestBody"), *content = cJSON_AddObjectToObject(body, "content");
        cJSON_AddBoolToObject(body, "required", 1);
        cJSON *schema = cJSON_AddObjectToObject(cJSON_AddObjectToObject(content, "application/json"), "schema");
        cJSON_AddStringToObject(schema, "$ref", strcmp(r->method, "PUT") ? "/schemas/compile.json" : "/schemas/hwspec.json");
        if (strcmp(r->method, "PUT"))
            cJSON_AddStringToObject(cJSON_AddObjectToObject(cJSON_AddObjectToObject(content, "text/x-kex"), "schema"), "type", "string");
    }
    cJSON *answers = cJSON_AddObjectToObject(op, "responses");
    cJSON_AddStringToObject(cJSON_AddObjectToObject(answers, "200"), "description", "the answer");
    item = cJSON_AddObjectToObject(answers, "default");
    cJSON_AddStringToObject(item, "description", "a problem (RFC 9457)");
    item = cJSON_AddObjectToObject(cJSON_AddObjectToObject(item, "content"), "application/problem+json");
    cJSON_AddStringToObject(cJSON_AddObjectToObject(item, "schema"), "$ref", "#/components/schemas/Problem");
}

char *service_openapi(void)
{
    cJSON *o = cJSON_CreateObject(), *info = cJSON_AddObjectToObject(o, "info");
    cJSON_AddStringToObject(o, "openapi", "3.1.0");
    cJSON_AddStringToObject(info, "title", "Kiln");
    cJSON_AddStringToObject(info, "version", SERVICE_VERSION);
    cJSON *paths = cJSON_AddObjectToObject(o, "paths");
    for (int i = 0; i < service_nroutes; i++) describe(paths, &service_routes[i]);
    cJSON *schema = cJSON_AddObjectToObject(cJSON_AddObjectToObject(cJSON_AddObjectToObject(o, "components"), "schemas"), "Problem");
    cJSON_AddStringToObject(schema, "type", "object");
    cJSON *members = cJSON_AddObjectToObject(schema, "properties");
    const char *const texts[] = {"type", "title", "detail", "pointer", "hint", "limit"};
    for (int i = 0; i < 6; i++) cJSON_AddStringToObject(cJSON_AddObjectToObject(members, texts[i]), "type", "string");
    cJSON_AddStringToObject(cJSON_AddObjectToObject(members, "status"), "type", "integer");
    char *text = cJSON_Print(o);
    cJSON_Delete(o);
    return text;
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool service_unescape(const char *p, size_t n, char *out, size_t size)
{
    size_t k = 0;
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
