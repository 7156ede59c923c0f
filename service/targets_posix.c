/* Hardware descriptions by id: those of the hwspecs folder, those put by clients, and "host", chosen by what this CPU has. */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "service/service.h"
#include "workers/arena.h"
#include "workers/build.h"

typedef struct target {
    char id[KILN_MAX_NAME_BYTES];
    char *json;
    bool builtin;
} target;
struct service_targets {
    pthread_mutex_t lock;
    target *list;
    int n, put;
    char *host; /* JSON with the units of this machine; NULL: no description fits it */
};

bool service_target_id_ok(const char *id)
{
    size_t n = strlen(id);
    return n >= 1 && n <= 63 && *id != '.' && *id != '_' && *id != '-' && strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789._-") == n;
}

static target *find(service_targets *t, const char *id)
{
    for (int i = 0; i < t->n; i++)
        if (!strcmp(t->list[i].id, id)) return &t->list[i];
    return NULL;
}

static bool add(service_targets *t, const char *id, char *json, bool builtin)
{
    target *list = json ? realloc(t->list, (size_t)(t->n + 1) * sizeof *list) : NULL;
    if (!list) {
        free(json);
        return false;
    }
    t->list = list;
    snprintf(list[t->n].id, sizeof list[t->n].id, "%s", id);
    list[t->n].json = json;
    list[t->n++].builtin = builtin;
    return true;
}

bool service_runs_here(const kiln_hw *hw)
{
    const char *const *want, *const *have;
    int nwant = kiln_hw_features(hw, &want), nhave = worker_host_features(&have);
    if (strcmp(kiln_hw_kind(hw), "cpu")) return false;
    for (int i = 0; i < nwant; i++) {
        bool found = false;
        for (int k = 0; k < nhave && !found; k++) found = !strcmp(want[i], have[k]);
        if (!found) return false;
    }
    return true;
}

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *p = f ? malloc(SERVICE_BODY_BYTES + 1) : NULL;
    size_t n = p ? fread(p, 1, SERVICE_BODY_BYTES, f) : 0;
    if (f) fclose(f);
    if (p) p[n] = 0;
    return p;
}

static bool load_folder(service_targets *t, const char *folder, char *why, size_t size)
{
    DIR *d = opendir(folder);
    struct dirent *e;
    bool ok = d != NULL;
    if (!d) snprintf(why, size, "no hardware descriptions in %s", folder);
    while (ok && (e = readdir(d))) {
        char path[1024];
        size_t n = strlen(e->d_name);
        kiln_hw *hw;
        kiln_diag diag = {0};
        if (n < 6 || strcmp(e->d_name + n - 5, ".json")) continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        kiln_arena *a = worker_arena(NULL);
        char *json = read_file(path);
        if (!a || !json || kiln_hw_parse(a, (kiln_bytes){json, strlen(json)}, &hw, &diag) != KILN_OK) {
            snprintf(why, size, "%s: %s %s", path, diag.pointer, diag.message);
            free(json);
            ok = false;
        } else {
            ok = add(t, kiln_hw_id(hw), json, true);
        }
        kiln_arena_close(a);
    }
    if (d) closedir(d);
    return ok;
}

/* The description with the most features that this CPU all has; its units become the CPUs online. */
static void choose_host(service_targets *t, int cpus)
{
    int best = -1;
    const char *chosen = NULL;
    for (int i = 0; i < t->n; i++) {
        kiln_arena *a = worker_arena(NULL);
        kiln_hw *hw;
        kiln_diag d;
        const char *const *f;
        if (a && !strncmp(t->list[i].id, "x86-64-", 7) &&
            kiln_hw_parse(a, (kiln_bytes){t->list[i].json, strlen(t->list[i].json)}, &hw, &d) == KILN_OK && service_runs_here(hw) &&
            kiln_hw_features(hw, &f) > best) {
            best = kiln_hw_features(hw, &f);
            chosen = t->list[i].json;
        }
        kiln_arena_close(a);
    }
    cJSON *o = chosen ? cJSON_Parse(chosen) : NULL;
    if (!o) return;
    cJSON *units = cJSON_GetObjectItemCaseSensitive(o, "units");
    if (units) {
        if (!cJSON_GetObjectItemCaseSensitive(o, "rates_for_units")) cJSON_AddNumberToObject(o, "rates_for_units", units->valuedouble);
        cJSON_SetNumberValue(units, cpus);
    }
    t->host = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
}

service_targets *service_targets_open(service_app *app, char *why, size_t size)
{
    service_targets *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    pthread_mutex_init(&t->lock, NULL);
    if (!load_folder(t, app->config.hwspecs, why, size)) {
        service_targets_close(t);
        return NULL;
    }
    choose_host(t, app->cpus);
    char **ids, **jsons;
    int n = cache_list_targets(app->cache, &ids, &jsons);
    for (int i = 0; i < n; i++) {
        if (find(t, ids[i]))
            free(jsons[i]);
        else if (add(t, ids[i], jsons[i], false))
            t->put++;
        free(ids[i]);
    }
    free(ids);
    free(jsons);
    return t;
}

void service_targets_close(service_targets *t)
{
    if (!t) return;
    for (int i = 0; i < t->n; i++) free(t->list[i].json);
    free(t->list);
    free(t->host);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

char *service_target_json(service_targets *t, const char *id, bool *builtin)
{
    char *out = NULL;
    pthread_mutex_lock(&t->lock);
    const target *f = find(t, id);
    bool host = !strcmp(id, "host") && t->host;
    if (f || host) out = strdup(host ? t->host : f->json);
    if (builtin) *builtin = host || (f && f->builtin);
    pthread_mutex_unlock(&t->lock);
    return out;
}

/* What can be had for a target here: "binary", "source" (no toolchain for it), or "construct" (no code generator). */
static const char *compilable(const cJSON *e, const worker_tools *tools)
{
    const char *language = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(e, "language"));
    const char *arch = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(e, "arch"));
    if (language && !strcmp(language, "c")) return *tools->cc ? "binary" : "source";
    if (language && !strcmp(language, "cuda")) return arch && build_nvrtc_knows(tools, arch) ? "binary" : "source";
    return "construct";
}

char *service_targets_list(service_targets *t, const worker_tools *tools)
{
    cJSON *o = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(o, "targets");
    pthread_mutex_lock(&t->lock);
    cJSON *host = t->host ? cJSON_Parse(t->host) : NULL;
    if (host) {
        cJSON_AddStringToObject(o, "host", cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(host, "id")));
        cJSON_Delete(host);
    }
    for (int i = 0; i < t->n; i++) {
        cJSON *e = cJSON_Parse(t->list[i].json);
        if (!e) continue;
        cJSON_AddBoolToObject(e, "builtin", t->list[i].builtin);
        cJSON_AddStringToObject(e, "compilable", compilable(e, tools));
        cJSON_AddItemToArray(list, e);
    }
    pthread_mutex_unlock(&t->lock);
    char *text = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    return text;
}

enum service_put service_target_put(service_targets *t, cache *c, const char *id, kiln_bytes json)
{
    enum service_put result = SERVICE_PUT_NEW;
    enum cache_status stored = CACHE_ERROR;
    char *copy = malloc(json.n + 1);
    pthread_mutex_lock(&t->lock);
    target *f = find(t, id);
    if ((f && f->builtin) || !strcmp(id, "host"))
        result = SERVICE_PUT_BUILTIN;
    else if (!f && t->put >= SERVICE_TARGETS)
        result = SERVICE_PUT_FULL;
    else if (!copy || (stored = cache_put_target(c, id, json)) != CACHE_OK)
        result = stored == CACHE_FULL ? SERVICE_PUT_NO_ROOM : SERVICE_PUT_STORE;
    else {
        memcpy(copy, json.p, json.n);
        copy[json.n] = 0;
        if (f) {
            free(f->json);
            f->json = copy;
            result = SERVICE_PUT_SAME;
        } else if (add(t, id, copy, false)) {
            t->put++;
        } else {
            result = SERVICE_PUT_STORE;
        }
        copy = NULL;
    }
    pthread_mutex_unlock(&t->lock);
    free(copy);
    return result;
}
