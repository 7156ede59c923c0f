/* Arguments of the command line -> the JSON request that any client would send. */
#include "api/cli/cli.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *json_text(const cJSON *o, const char *name)
{
    const cJSON *m = cJSON_GetObjectItemCaseSensitive(o, name);
    return cJSON_IsString(m) ? m->valuestring : "";
}

bool cli_is_key(const char *s) { return !strncmp(s, "kk1-", 4) && strlen(s) == 68; }

char *cli_read_file(struct cli *c, const char *path, size_t *n)
{
    (void)c;
    FILE *f = strcmp(path, "-") ? fopen(path, "rb") : stdin;
    if (!f) {
        cli_fail(NO_INPUT, "%s cannot be read", path);
        return NULL;
    }
    size_t cap = 1 << 16, used = 0, got;
    char *p = malloc(cap);
    while (p && (got = fread(p + used, 1, cap - used - 1, f)) > 0) {
        used += got;
        if (cap - used > 1) continue;
        char *q = realloc(p, cap *= 2);
        if (!q) free(p);
        p = q;
    }
    if (f != stdin) fclose(f);
    if (p) p[used] = 0;
    else cli_fail(SOFTWARE, "out of memory");
    *n = used;
    return p;
}

int cli_write(const struct cli *c, const void *p, size_t n)
{
    FILE *f = c->output ? fopen(c->output, "wb") : stdout;
    if (!f) return cli_fail(CANT_CREATE, "%s cannot be written", c->output);
    bool good = fwrite(p, 1, n, f) == n;
    good = (c->output ? fclose(f) : fflush(f)) == 0 && good;
    return good ? OK : cli_fail(CANT_CREATE, "writing %s failed", c->output ? c->output : "the output");
}

/* "f32:512x512" or "f32[512,512]", with :const behind it where it is a constant, as {"name","dtype","shape","constant"}. */
static cJSON *input(const char *arg)
{
    const char *eq = strchr(arg, '='), *type = eq ? eq + 1 : NULL;
    size_t n = type ? strcspn(type, ":[") : 0;
    if (!eq || !n) return NULL;
    cJSON *o = cJSON_CreateObject(), *shape = cJSON_AddArrayToObject(o, "shape");
    char name[128], dtype[32];
    snprintf(name, sizeof name, "%.*s", (int)(eq - arg), arg);
    snprintf(dtype, sizeof dtype, "%.*s", (int)n, type);
    cJSON_AddStringToObject(o, "name", name);
    cJSON_AddStringToObject(o, "dtype", dtype);
    const char *p = type + n;
    while (*p && *p != ']') {
        char *end;
        double x = strtod(++p, &end);
        if (end == p) break;
        cJSON_AddItemToArray(shape, cJSON_CreateNumber(x));
        p = end;
    }
    if (!strcmp(*p == ']' ? p + 1 + strspn(p + 1, ": ") : p, "const")) cJSON_AddTrueToObject(o, "constant");
    return o;
}

static cJSON *attr_value(const char *s)
{
    char *end;
    double x = strtod(s, &end);
    if (end != s && !*end) return cJSON_CreateNumber(x);
    if (end == s || *end != ',') return cJSON_CreateString(s);
    cJSON *list = cJSON_CreateArray();
    for (;;) {
        cJSON_AddItemToArray(list, cJSON_CreateNumber(x));
        if (*end != ',') return list;
        s = end + 1;
        x = strtod(s, &end);
        if (end == s) return list;
    }
}

static cJSON *from_arguments(struct cli *c, const char *what, int *status)
{
    bool expression = strchr(what, '[') && strchr(what, '=');
    cJSON *o = cJSON_CreateObject(), *list;
    if (expression) {
        cJSON_AddStringToObject(o, "expr", what);
    } else {
        cJSON *op = cJSON_AddObjectToObject(o, "op"), *attrs;
        cJSON_AddStringToObject(op, "name", what);
        attrs = cJSON_AddObjectToObject(op, "attrs");
        for (int i = 0; i < c->nattrs; i++) {
            const char *eq = strchr(c->attrs[i], '=');
            char name[64];
            snprintf(name, sizeof name, "%.*s", eq ? (int)(eq - c->attrs[i]) : 63, c->attrs[i]);
            cJSON_AddItemToObject(attrs, name, attr_value(eq ? eq + 1 : "1"));
        }
    }
    list = cJSON_AddArrayToObject(o, "inputs");
    for (int i = 1; i < c->nargs; i++) {
        cJSON *in = input(c->args[i]);
        if (in) {
            cJSON_AddItemToArray(list, in);
            continue;
        }
        *status = cli_fail(USAGE, "\"%s\" is no input; NAME=f32:512x512 is right", c->args[i]);
        cJSON_Delete(o);
        return NULL;
    }
    return o;
}

static void default_member(cJSON *o, const char *name, const char *value)
{
    if (!cJSON_GetObjectItemCaseSensitive(o, name)) cJSON_AddStringToObject(o, name, value);
}

static int add_trace(struct cli *c, cJSON *o)
{
    size_t n;
    char *text = cli_read_file(c, c->trace, &n);
    if (!text) return NO_INPUT;
    cJSON_AddStringToObject(o, "trace", text);
    free(text);
    return OK;
}

char *cli_request(struct cli *c, int *status)
{
    if (!c->nargs) {
        *status = cli_fail(USAGE, "which operator? For example: MatMul a=f32:512x512 b=f32:512x512");
        return NULL;
    }
    const char *what = c->args[0];
    FILE *f = strcmp(what, "-") && !strchr(what, '[') ? fopen(what, "rb") : NULL;
    cJSON *o = NULL;
    if (f || !strcmp(what, "-")) {
        size_t n;
        if (f) fclose(f);
        char *text = cli_read_file(c, what, &n);
        kiln_diag d = {0};
        *status = !text ? NO_INPUT : kiln_json_check((kiln_bytes){text, n}, &d) ? cli_diag(&d) : OK;
        if (*status == OK) o = cJSON_ParseWithLength(text, n);
        free(text);
        if (*status == OK && !cJSON_IsObject(o)) *status = cli_fail(DATA, "%s: a JSON object is right", what);
    } else {
        *status = OK;
        o = from_arguments(c, what, status);
    }
    char *text = NULL;
    if (*status == OK && o) {
        default_member(o, "target", c->target);
        cJSON *grads = c->ngrads ? cJSON_AddArrayToObject(o, "grad") : NULL;
        for (int i = 0; i < c->ngrads; i++) cJSON_AddItemToArray(grads, cJSON_CreateString(c->grads[i]));
        if (strcmp(c->policy, "default")) default_member(o, "policy", c->policy);
        if (c->trace && !cJSON_HasObjectItem(o, "trace")) *status = add_trace(c, o);
        if (strcmp(c->quality, "any")) default_member(o, "quality", c->quality);
        text = cJSON_PrintUnformatted(o);
    }
    cJSON_Delete(o);
    return text;
}

int cli_program(struct cli *c, kiln_request **r, kiln_hw **hw)
{
    int status = OK;
    kiln_diag d = {0};
    char *body = cli_request(c, &status);
    if (!body) return status;
    if (kiln_request_json(c->arena, (kiln_bytes){body, strlen(body)}, r, &d) != KILN_OK) status = cli_diag(&d);
    free(body);
    if (status != OK) return status;
    *hw = cli_hw(c, *(*r)->target ? (*r)->target : c->target);
    return *hw ? OK : DATA;
}
