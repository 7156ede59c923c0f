/* Jobs of kind "model": what was asked as documents of the store, so that any process of the fleet can go on with it. */
#include "service/graph_job.h"
#include "workers/arena.h"
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 3 << 20, TEXT = sodium_base64_VARIANT_ORIGINAL }; /* bytes of a model in one document: a multiple of 3 */
static const char DOC[] = "model";

static int pieces_of(size_t n) { return (int)((n + PIECE - 1) / PIECE); }

static void name_piece(char id[160], const char *key, int i) { snprintf(id, 160, "%s/%05d", key, i); }

/* ---- what was asked ---- */
static bool keep_body(service_app *app, const service_graph_ask *a)
{
    char id[160], *text = malloc(sodium_base64_encoded_len(PIECE, TEXT));
    bool ok = text != NULL;
    for (int i = 0; ok && i < pieces_of(a->n); i++) {
        size_t at = (size_t)i * PIECE, n = a->n - at < PIECE ? a->n - at : PIECE;
        sodium_bin2base64(text, sodium_base64_encoded_len(PIECE, TEXT), (const unsigned char *)a->body + at, n, TEXT);
        name_piece(id, a->key, i);
        ok = cache_put_doc(app->cache, DOC, id, (kiln_bytes){text, strlen(text)}) == CACHE_OK;
    }
    free(text);
    return ok;
}

static bool read_body(service_app *app, service_graph_ask *a)
{
    char id[160];
    a->body = malloc(a->n + 1);
    bool ok = a->body != NULL;
    for (int i = 0; ok && i < pieces_of(a->n); i++) {
        size_t at = (size_t)i * PIECE, n = 0, want = a->n - at < PIECE ? a->n - at : PIECE;
        char *text = NULL;
        name_piece(id, a->key, i);
        ok = cache_get_doc(app->cache, DOC, id, &text) == CACHE_OK && text &&
             !sodium_base642bin((unsigned char *)a->body + at, want, text, strlen(text), NULL, &n, NULL, TEXT) && n == want;
        free(text);
    }
    if (ok) a->body[a->n] = 0;
    return ok;
}

static bool has_body(service_app *app, const service_graph_ask *a)
{
    char id[160], *text = NULL;
    name_piece(id, a->key, pieces_of(a->n) - 1);
    bool has = !a->n || cache_get_doc(app->cache, DOC, id, &text) == CACHE_OK;
    free(text);
    return has;
}

static void drop_body(service_app *app, const char *key, size_t n)
{
    char id[160];
    for (int i = 0; i < pieces_of(n); i++) {
        name_piece(id, key, i);
        cache_put_doc(app->cache, DOC, id, (kiln_bytes){0});
    }
}

static char *payload_of(const service_graph_ask *a)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddBoolToObject(o, "onnx", a->onnx);
    cJSON_AddNumberToObject(o, "bytes", (double)a->n);
    cJSON_AddStringToObject(o, "target", a->target);
    cJSON_AddStringToObject(o, "dims", a->dims);
    cJSON_AddStringToObject(o, "bind", a->binds);
    cJSON_AddBoolToObject(o, "partial", a->partial);
    cJSON_AddStringToObject(o, "canon", a->canon);
    cJSON_AddStringToObject(o, "asker", a->who.key);
    cJSON_AddNumberToObject(o, "scopes", a->who.scopes);
    cJSON_AddBoolToObject(o, "sees_all", a->who.sees_all);
    cJSON_AddBoolToObject(o, "open", a->who.open);
    char *text = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    return text;
}

static void take(const cJSON *o, const char *name, char *to, size_t size)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, name));
    snprintf(to, size, "%s", text ? text : "");
}

static bool read_payload(service_app *app, const jobs_job *x, service_graph_ask *a)
{
    cJSON *o = cJSON_Parse(x->payload);
    const cJSON *n = cJSON_GetObjectItemCaseSensitive(o, "bytes"), *scopes = cJSON_GetObjectItemCaseSensitive(o, "scopes");
    bool ok = cJSON_IsNumber(n) && n->valuedouble >= 0 && n->valuedouble <= KILN_MAX_GRAPH_BYTES;
    *a = (service_graph_ask){.n = ok ? (size_t)n->valuedouble : 0, .onnx = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(o, "onnx"))};
    snprintf(a->key, sizeof a->key, "%s", x->key);
    snprintf(a->who.tenant, sizeof a->who.tenant, "%s", x->tenant);
    a->partial = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(o, "partial"));
    take(o, "target", a->target, sizeof a->target);
    take(o, "dims", a->dims, sizeof a->dims);
    take(o, "bind", a->binds, sizeof a->binds);
    take(o, "canon", a->canon, sizeof a->canon);
    take(o, "asker", a->who.key, sizeof a->who.key);
    a->who.scopes = cJSON_IsNumber(scopes) ? (unsigned)scopes->valuedouble : 0;
    a->who.sees_all = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(o, "sees_all"));
    a->who.open = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(o, "open"));
    cJSON_Delete(o);
    a->target_json = ok ? service_target_json(app->targets, a->target, NULL) : NULL;
    return a->target_json && read_body(app, a);
}

/* ---- the row ---- */
/* The word that services with this host's description offer: a model for "host" is compiled where that is the same machine. */
static void host_word(service_app *app, char word[24])
{
    uint8_t digest[32];
    char hex[65], *text = service_target_json(app->targets, "host", NULL);
    kiln_sha256(text ? text : "", text ? strlen(text) : 0, digest);
    kiln_hex(digest, 32, hex);
    snprintf(word, 24, "host-%.16s", hex);
    free(text);
}

static enum service_lead claim(service_app *app, const char *id, graph_job *j, jobs_job *out)
{
    char words[560], host[24];
    jobs_lease l;
    host_word(app, host);
    snprintf(words, sizeof words, "model %s", host);
    jobs_offer o = {.worker = service_fleet_name(app->fleet), .words = words, .kinds = 1u << JOBS_MODEL, .id = id, .background = true};
    enum jobs_status s = jobs_claim(service_fleet_jobs(app->fleet), &o, &l, out);
    if (s != JOBS_OK) return s == JOBS_NONE ? SERVICE_FOLLOW : SERVICE_ALONE;
    snprintf(j->id, sizeof j->id, "%s", l.id);
    j->lease = keeper_add(service_fleet_keeper(app->fleet), &l);
    if (j->lease) {
        enum jobs_todo todo;
        jobs_heartbeat(service_fleet_jobs(app->fleet), &l, NULL, &todo); /* from "leased" to "running" */
        return SERVICE_LEAD;
    }
    jobs_job_free(out);
    return SERVICE_ALONE;
}

enum service_lead graph_job_lead(service_app *app, const service_graph_ask *a, graph_job *j)
{
    char host[24], needs[64];
    bool fresh;
    jobs_job out, claimed;
    *j = (graph_job){0};
    if (!keep_body(app, a)) return SERVICE_ALONE;
    host_word(app, host);
    snprintf(needs, sizeof needs, "model%s%s", strcmp(a->target, "host") ? "" : " ", strcmp(a->target, "host") ? "" : host);
    char *payload = payload_of(a);
    jobs_ask ask = {.kind = JOBS_MODEL, .key = a->key, .tenant = a->who.tenant, .class = -1, .needs = needs, .payload = payload};
    enum jobs_status s = payload ? jobs_submit(service_fleet_jobs(app->fleet), &ask, &out, &fresh) : JOBS_ERROR;
    free(payload);
    if (s != JOBS_OK) return SERVICE_ALONE;
    snprintf(j->id, sizeof j->id, "%s", out.id);
    jobs_job_free(&out);
    enum service_lead lead = claim(app, j->id, j, &claimed);
    if (lead == SERVICE_LEAD) jobs_job_free(&claimed);
    if (lead == SERVICE_LEAD && !has_body(app, a)) keep_body(app, a); /* an earlier job of that key ended meanwhile and took it along */
    return lead;
}

/* A row that waits to be claimed; looked for without a write. */
static bool waiting(service_app *app, char id[40])
{
    enum { MOST = 16 };
    jobs_filter f = {.state = -1, .kind = JOBS_MODEL, .live = true, .limit = MOST};
    jobs_job *x = calloc(MOST, sizeof *x);
    int n = x ? jobs_list(service_fleet_jobs(app->fleet), &f, x) : 0;
    *id = 0;
    for (int i = 0; i < n; i++) {
        if (x[i].state == JOBS_QUEUED || x[i].state == JOBS_RETRY) snprintf(id, 40, "%s", x[i].id);
        jobs_job_free(&x[i]);
    }
    free(x);
    return *id;
}

bool graph_job_next(service_app *app, service_graph_ask *a, graph_job *j)
{
    char id[40];
    jobs_job x;
    *j = (graph_job){0};
    if (!waiting(app, id) || claim(app, id, j, &x) != SERVICE_LEAD) return false;
    bool ok = read_payload(app, &x, a);
    jobs_job_free(&x);
    if (ok) return true;
    jobs_lease l = *keeper_lease(j->lease);
    keeper_drop(service_fleet_keeper(app->fleet), j->lease);
    jobs_fail(service_fleet_jobs(app->fleet), &l, "", "what was asked is not in the store any more: post the model again");
    free(a->body);
    free(a->target_json);
    return false;
}

void graph_job_note(service_app *app, graph_job *j, const cJSON *progress)
{
    char *text = j->lease ? cJSON_PrintUnformatted(progress) : NULL;
    if (text) keeper_note(service_fleet_keeper(app->fleet), j->lease, text, NULL, 0);
    free(text);
}

enum graph_stop graph_job_stop(service_app *app, graph_job *j)
{
    if (!j->lease) return GRAPH_GO_ON;
    if (!keeper_holds(service_fleet_keeper(app->fleet), j->lease)) return GRAPH_LOST;
    enum jobs_todo todo = keeper_todo(j->lease);
    return todo == JOBS_STOP_CANCEL || todo == JOBS_STOP_PAUSE ? GRAPH_CANCELLED : GRAPH_GO_ON;
}

/* The database may be away for less than a lease. */
static void tell_end(service_app *app, const jobs_lease *l, const char *state, const char *text, const cJSON *last)
{
    jobs *q = service_fleet_jobs(app->fleet);
    const cJSON *problem = cJSON_GetObjectItemCaseSensitive(last, "problem"), *detail = cJSON_GetObjectItemCaseSensitive(problem, "detail");
    if (!strcmp(state, "succeeded")) {
        jobs_succeed(q, l, text);
    } else if (!strcmp(state, "failed")) {
        char *why = cJSON_PrintUnformatted(problem);
        jobs_fail(q, l, why ? why : "", cJSON_GetStringValue(detail) ? cJSON_GetStringValue(detail) : "");
        free(why);
    } else {
        jobs_beat b = {.progress = text};
        jobs_release(q, l, &b);
    }
}

void graph_job_end(service_app *app, graph_job *j, const char *key, cJSON *last, bool handed_back)
{
    char state[24];
    if (handed_back) {
        cJSON_ReplaceItemInObjectCaseSensitive(last, "state", cJSON_CreateString("queued"));
        cJSON_DeleteItemFromObjectCaseSensitive(last, "finished_ms");
    }
    char *text = cJSON_PrintUnformatted(last);
    jobs_job x;
    if (!j->lease) {
        free(text);
        return;
    }
    jobs_lease l = *keeper_lease(j->lease);
    bool ours = keeper_asks(service_fleet_keeper(app->fleet), j->lease);
    keeper_drop(service_fleet_keeper(app->fleet), j->lease);
    j->lease = NULL;
    take(last, "state", state, sizeof state);
    if (ours) tell_end(app, &l, state, text, last);
    free(text);
    if (!ours || handed_back || jobs_get(service_fleet_jobs(app->fleet), l.id, &x) != JOBS_OK) return;
    cJSON *o = jobs_state_live(x.state) ? NULL : cJSON_Parse(x.payload); /* paused: it is still wanted */
    const cJSON *n = cJSON_GetObjectItemCaseSensitive(o, "bytes");
    if (cJSON_IsNumber(n)) drop_body(app, key, (size_t)n->valuedouble);
    cJSON_Delete(o);
    jobs_job_free(&x);
}

/* ---- for those who ask ---- */
static bool newest(service_app *app, const char *key, bool live, jobs_job *out)
{
    jobs_filter f = {.state = -1, .kind = JOBS_MODEL, .key = key, .live = live, .limit = 1};
    return jobs_list(service_fleet_jobs(app->fleet), &f, out) == 1;
}

static const char *state_of(enum jobs_state s)
{
    return s == JOBS_SUCCEEDED ? "succeeded" : s == JOBS_CANCELLED ? "cancelled" : jobs_state_live(s) ? "queued" : "failed";
}

cJSON *graph_job_json(service_app *app, const char *key)
{
    jobs_job x;
    char href[100];
    if (!newest(app, key, false, &x)) return NULL;
    cJSON *o = cJSON_Parse(x.state == JOBS_SUCCEEDED && *x.result ? x.result : x.progress);
    if (!cJSON_IsObject(o)) {
        cJSON_Delete(o);
        o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "key", key);
        cJSON_AddNumberToObject(o, "total", 0);
        cJSON_AddNumberToObject(o, "done", 0);
        cJSON_AddArrayToObject(o, "kernels");
        snprintf(href, sizeof href, "/v1/graphs/%s", key);
        cJSON_AddStringToObject(o, "href", href);
        cJSON_AddNumberToObject(o, "created_ms", (double)x.created_ms);
    }
    bool told = x.state == JOBS_SUCCEEDED || jobs_state_leased(x.state); /* what its process says stands */
    if (!told || !cJSON_GetObjectItemCaseSensitive(o, "state")) {
        cJSON_DeleteItemFromObjectCaseSensitive(o, "state");
        cJSON_AddStringToObject(o, "state", state_of(x.state));
    }
    cJSON_DeleteItemFromObjectCaseSensitive(o, "job");
    cJSON_AddStringToObject(o, "job", x.id);
    cJSON *problem = jobs_state_live(x.state) || x.state == JOBS_SUCCEEDED || !*x.result ? NULL : cJSON_Parse(x.result);
    if (!problem && !jobs_state_live(x.state) && *x.error) {
        service_reply *r = service_problem(502, "worker-failed", "the compile of the model ended without a result", x.error,
                                           jobs_state_text(x.state));
        problem = cJSON_Parse(r->body);
        service_reply_drop(r);
    }
    if (problem) cJSON_AddItemToObject(o, "problem", problem);
    jobs_job_free(&x);
    return o;
}

bool graph_job_asker(service_app *app, const char *key, char tenant[64])
{
    jobs_job x;
    if (!newest(app, key, true, &x)) return false;
    snprintf(tenant, 64, "%s", x.tenant);
    jobs_job_free(&x);
    return true;
}

bool graph_job_cancel(service_app *app, const char *key)
{
    jobs_job x;
    if (!newest(app, key, true, &x)) return false;
    enum jobs_status s = jobs_cancel(service_fleet_jobs(app->fleet), x.id);
    jobs_job_free(&x);
    return s == JOBS_OK;
}
