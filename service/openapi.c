/* The table of routes as OpenAPI 3.1, with the schemas of api/schemas inside. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "service/assets.h"
#include "service/service.h"

static const struct {
    const char *metric, *name, *schema, *meaning;
} params[] = {
#define X(metric, name, schema, meaning) {#metric, name, schema, meaning},
#include "service/params.def"
#undef X
};
static const struct {
    const char *word, *media[9]; /* the first is JSON by the schema when `schema` is given */
    const char *schema;
} medias[] = {
    {"kernel",
     {"application/json", "text/x-c", "text/x-cuda", "text/x-ptx", "application/x-cubin", "application/x-sharedlib", "application/zip"}, "Kernel"},
    {"bytes", {"application/octet-stream"}, NULL},
    {"metrics", {"text/plain"}, NULL},
    {"html", {"text/html"}, NULL},
    {"events", {"text/event-stream"}, NULL},
    {"bundle", {"application/vnd.kiln.export"}, NULL},
};
static const struct {
    int status;
    const char *text;
} texts[] = {
    {200, "the answer"}, {201, "made"}, {202, "under way"}, {204, "done"}, {206, "a part of the bytes"}, {304, "not modified"},
};

static cJSON *reference(const char *kind, const char *name)
{
    char text[96];
    cJSON *o = cJSON_CreateObject();
    snprintf(text, sizeof text, "#/components/%s/%s", kind, name);
    cJSON_AddStringToObject(o, "$ref", text);
    return o;
}

static void add_content(cJSON *content, const char *media, const char *schema)
{
    cJSON *m = cJSON_AddObjectToObject(content, media);
    cJSON_AddItemToObject(m, "schema", schema ? reference("schemas", schema) : cJSON_CreateObject());
}

static void add_answer(cJSON *answers, int status, const char *what)
{
    char code[8];
    snprintf(code, sizeof code, "%d", status);
    if (cJSON_GetObjectItemCaseSensitive(answers, code)) return;
    if (status >= 400) {
        cJSON_AddItemToObject(answers, code, reference("responses", status == 414 || status == 431 ? "HeadTooLong" : "Problem"));
        return;
    }
    cJSON *a = cJSON_AddObjectToObject(answers, code);
    const char *text = "";
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].status == status) text = texts[i].text;
    cJSON_AddStringToObject(a, "description", text);
    if (!*what) return;
    cJSON *content = cJSON_AddObjectToObject(a, "content");
    for (size_t i = 0; i < sizeof medias / sizeof *medias; i++) {
        if (strcmp(medias[i].word, what)) continue;
        for (int k = 0; medias[i].media[k]; k++) add_content(content, medias[i].media[k], k ? NULL : medias[i].schema);
        return;
    }
    add_content(content, "application/json", what);
}

static void add_answers(cJSON *op, const service_route *r)
{
    cJSON *answers = cJSON_AddObjectToObject(op, "responses");
    for (const char *p = r->answers; *p;) {
        char what[32] = "";
        size_t n = strcspn(p, " ");
        int status = atoi(p);
        if (p[3] == ':') snprintf(what, sizeof what, "%.*s", (int)n - 4, p + 4);
        add_answer(answers, status, what);
        p += n + (p[n] == ' ');
    }
    static const int always[] = {400, 414, 431, 500, 503}, keyed[] = {401, 403, 429}, with_body[] = {413, 415, 422};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++) add_answer(answers, always[i], "");
    for (int i = 0; r->scope != SERVICE_PUBLIC && i < 3; i++) add_answer(answers, keyed[i], "");
    for (int i = 0; *r->body && i < 3; i++) add_answer(answers, with_body[i], "");
    for (size_t i = 0; i < sizeof params / sizeof *params; i++)
        if (!strcmp(params[i].metric, r->metric)) add_answer(answers, 422, "");
}

static void add_params(cJSON *op, const service_route *r)
{
    cJSON *list = cJSON_AddArrayToObject(op, "parameters"), *item;
    for (const char *b = strchr(r->path, '{'); b; b = strchr(b + 1, '{')) {
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(b + 1, "}"), b + 1);
        cJSON_AddItemToArray(list, item = cJSON_CreateObject());
        cJSON_AddStringToObject(item, "name", name);
        cJSON_AddStringToObject(item, "in", "path");
        cJSON_AddBoolToObject(item, "required", 1);
        cJSON_AddStringToObject(cJSON_AddObjectToObject(item, "schema"), "type", "string");
    }
    for (size_t i = 0; i < sizeof params / sizeof *params; i++) {
        if (strcmp(params[i].metric, r->metric)) continue;
        cJSON_AddItemToArray(list, item = cJSON_CreateObject());
        cJSON_AddStringToObject(item, "name", params[i].name);
        cJSON_AddStringToObject(item, "in", "query");
        cJSON_AddStringToObject(item, "description", params[i].meaning);
        cJSON_AddItemToObject(item, "schema", cJSON_Parse(params[i].schema));
    }
}

static void describe(cJSON *paths, const service_route *r)
{
    cJSON *path = cJSON_GetObjectItemCaseSensitive(paths, r->path), *op = cJSON_CreateObject();
    char verb[8] = {0}, id[64];
    if (!path) path = cJSON_AddObjectToObject(paths, r->path);
    for (int i = 0; r->method[i] && i < 7; i++) verb[i] = (char)(r->method[i] + 32);
    cJSON_AddItemToObject(path, verb, op);
    snprintf(id, sizeof id, "%s%s", r->metric, strcmp(r->path, "/compile") ? "" : "_alias");
    cJSON_AddStringToObject(op, "operationId", id);
    cJSON_AddStringToObject(op, "summary", r->summary);
    cJSON *security = cJSON_AddArrayToObject(op, "security"), *need = cJSON_CreateObject();
    cJSON_AddItemToArray(security, need);
    if (r->scope != SERVICE_PUBLIC) {
        cJSON_AddItemToArray(cJSON_AddArrayToObject(need, "key"), cJSON_CreateString(service_scope_text(r->scope)));
        cJSON_AddItemToArray(security, cJSON_CreateObject()); /* a service without authentication asks for none */
    }
    add_params(op, r);
    if (*r->body) {
        cJSON *body = cJSON_AddObjectToObject(op, "requestBody"), *content = cJSON_AddObjectToObject(body, "content");
        cJSON_AddBoolToObject(body, "required", 1);
        if (!strcmp(r->body, "bundle"))
            add_content(content, "application/vnd.kiln.export", NULL);
        else
            add_content(content, "application/json", r->body);
        if (!strcmp(r->body, "Model")) add_content(content, "application/onnx", NULL);
        if (!strcmp(r->body, "Compile")) {
            cJSON *text = cJSON_AddObjectToObject(content, "text/x-kex");
            cJSON_AddStringToObject(cJSON_AddObjectToObject(text, "schema"), "type", "string");
        }
    }
    add_answers(op, r);
}

/* "#/$defs/x" of a schema of its own becomes "#/components/schemas/NAME/$defs/x". */
static void move_references(cJSON *o, const char *name)
{
    char text[128];
    for (cJSON *e = o ? o->child : NULL; e; e = e->next) {
        move_references(e, name);
        if (!e->string || strcmp(e->string, "$ref") || !cJSON_IsString(e) || strncmp(e->valuestring, "#/$defs/", 8)) continue;
        snprintf(text, sizeof text, "#/components/schemas/%s/%s", name, e->valuestring + 2);
        cJSON_SetValuestring(e, text);
    }
}

static void add_schema(cJSON *schemas, const char *name, const char *p, const char *end)
{
    cJSON *o = cJSON_ParseWithLength(p, (size_t)(end - p));
    move_references(o, name);
    cJSON_DeleteItemFromObjectCaseSensitive(o, "$schema");
    cJSON_DeleteItemFromObjectCaseSensitive(o, "$id");
    cJSON_AddItemToObject(schemas, name, o);
}

char *service_openapi(void)
{
    cJSON *o = cJSON_CreateObject(), *info = cJSON_AddObjectToObject(o, "info");
    cJSON_AddStringToObject(o, "openapi", "3.1.0");
    cJSON_AddStringToObject(info, "title", "Kiln");
    cJSON_AddStringToObject(info, "version", SERVICE_VERSION);
    cJSON *paths = cJSON_AddObjectToObject(o, "paths");
    for (int i = 0; i < service_nroutes; i++) describe(paths, &service_routes[i]);
    cJSON *components = cJSON_AddObjectToObject(o, "components");
    cJSON *schemas = cJSON_ParseWithLength(service_asset_answers, (size_t)(service_asset_answers_end - service_asset_answers));
    cJSON_AddItemToObject(components, "schemas", schemas);
    add_schema(schemas, "Compile", service_asset_compile, service_asset_compile_end);
    add_schema(schemas, "Hwspec", service_asset_hwspec, service_asset_hwspec_end);
    cJSON *responses = cJSON_AddObjectToObject(components, "responses"), *problem = cJSON_AddObjectToObject(responses, "Problem");
    cJSON_AddStringToObject(problem, "description", "a problem (RFC 9457)");
    cJSON_AddStringToObject(cJSON_AddObjectToObject(responses, "HeadTooLong"), "description",
                            "a problem (RFC 9457); of a head that is longer than the connection's memory, a line of the HTTP library");
    add_content(cJSON_AddObjectToObject(problem, "content"), "application/problem+json", "Problem");
    cJSON *key = cJSON_AddObjectToObject(cJSON_AddObjectToObject(components, "securitySchemes"), "key");
    cJSON_AddStringToObject(key, "type", "http");
    cJSON_AddStringToObject(key, "scheme", "bearer");
    char *text = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    return text;
}
