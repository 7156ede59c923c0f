/* Keys and their holders: loaded from the store, compared in constant time, counted against limits. */
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "cache/clock_posix.h"
#include "service/auth.h"
#include "service/fleet.h"

enum { KEYS = 16384, TENANTS = 4096, PAGE = 128, SECRET_BYTES = 32, SEEN = 1 << 14 };
enum { SHARE_MS = 1000, REFRESH = 5, MINUTE_MS = 60000, DAY_MS = 86400000 };
typedef struct key {
    char id[24], tenant[64];
    unsigned scopes;
    int64_t expires_ms;
    uint8_t hash[32];
} key;
typedef struct tenant {
    char name[64];
    bool open;
    service_quota quota;
    double tokens;
    int64_t filled_ms, day, used;
    int64_t fresh, told; /* calls not yet told to the fleet; what the fleet had spent of this minute when last told */
} tenant;
struct service_auth {
    service_app *app;
    pthread_mutex_t lock;
    pthread_cond_t stop;
    pthread_t refresher;
    bool stopping, running, has_admin;
    int nkeys, ntenants;
    key *keys;
    tenant *tenants;
    uint8_t admin[32];
    uint8_t seen[SEEN][16]; /* what may be seen for certain: hashes of tenant and subject; zero: none */
    uint8_t seed[32];
    atomic_ullong failures;
};
static const char *const scope_texts[] = {
#define X(name, text, meaning) text,
#include "service/scopes.def"
#undef X
};
const char *service_scope_text(enum service_scope s) { return scope_texts[s]; }

bool service_scopes_parse(const cJSON *list, unsigned *scopes)
{
    *scopes = 0;
    if (!cJSON_IsArray(list)) return false;
    for (const cJSON *e = list->child; e; e = e->next) {
        int found = 0;
        for (int s = SERVICE_READ; s < SERVICE_SCOPES; s++)
            if (cJSON_IsString(e) && !strcmp(e->valuestring, scope_texts[s])) found = s;
        if (!found) return false;
        *scopes |= 1u << found;
    }
    return *scopes != 0;
}

bool service_name_ok(const char *name)
{
    size_t n = strlen(name);
    return n >= 1 && n <= 62 && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == n && *name != '.' && *name != '-';
}

static void hash_of(const char *secret, size_t n, uint8_t out[32])
{
    crypto_generichash(out, 32, (const uint8_t *)secret, n, (const uint8_t *)"kiln api key 1..", 16);
}

static bool number_of(const cJSON *o, const char *name, int64_t *out)
{
    const cJSON *e = cJSON_GetObjectItemCaseSensitive(o, name);
    *out = cJSON_IsNumber(e) ? (int64_t)e->valuedouble : 0;
    return cJSON_IsNumber(e);
}

static bool read_key(const cache_doc *d, key *k)
{
    cJSON *o = cJSON_Parse(d->json);
    const char *t = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "tenant"));
    const char *h = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "hash"));
    size_t n = 0;
    bool ok = t && h && service_scopes_parse(cJSON_GetObjectItemCaseSensitive(o, "scopes"), &k->scopes) &&
              sodium_hex2bin(k->hash, 32, h, strlen(h), NULL, &n, NULL) == 0 && n == 32;
    number_of(o, "expires_ms", &k->expires_ms);
    snprintf(k->id, sizeof k->id, "%.23s", d->id);
    snprintf(k->tenant, sizeof k->tenant, "%.63s", ok ? t : "");
    cJSON_Delete(o);
    return ok;
}

static void read_tenant(const cache_doc *d, tenant *t)
{
    cJSON *o = cJSON_Parse(d->json);
    const char *v = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "visibility"));
    int64_t n;
    snprintf(t->name, sizeof t->name, "%.63s", d->id);
    t->open = v && !strcmp(v, "public");
    int *const to[] = {&t->quota.rate, &t->quota.compiles_per_day, &t->quota.store_mib, &t->quota.jobs};
    static const char *const names[] = {"rate", "compiles_per_day", "store_mib", "jobs"};
    for (int i = 0; i < 4; i++) *to[i] = number_of(o, names[i], &n) && n >= 0 && n <= INT32_MAX ? (int)n : -1;
    cJSON_Delete(o);
}

static tenant *tenant_of(service_auth *a, const char *name)
{
    for (int i = 0; i < a->ntenants; i++)
        if (!strcmp(a->tenants[i].name, name)) return &a->tenants[i];
    return NULL;
}

/* The counters of a tenant outlive a new description of it. */
static void merge_tenant(service_auth *a, const tenant *fresh)
{
    tenant *t = tenant_of(a, fresh->name);
    if (!t && a->ntenants == TENANTS) return;
    if (!t) {
        t = &a->tenants[a->ntenants++];
        *t = *fresh;
    }
    t->open = fresh->open;
    t->quota = fresh->quota;
}

bool service_auth_load(service_auth *a)
{
    cache_doc *page = calloc(PAGE, sizeof *page);
    key *keys = calloc(KEYS, sizeof *keys);
    int n = page && keys ? PAGE : -1, count = 0;
    for (char after[160] = ""; n == PAGE;) {
        n = cache_list_docs(a->app->cache, "key", after, PAGE, page);
        for (int i = 0; i < n; i++) {
            count += count < KEYS && read_key(&page[i], &keys[count]);
            memcpy(after, page[i].id, sizeof after);
            free(page[i].json);
        }
    }
    bool ok = n >= 0;
    if (ok) n = PAGE;
    pthread_mutex_lock(&a->lock);
    if (ok) {
        key *old = a->keys;
        a->keys = keys;
        a->nkeys = count;
        keys = old;
    }
    pthread_mutex_unlock(&a->lock);
    for (char after[160] = ""; ok && n == PAGE;) {
        n = cache_list_docs(a->app->cache, "tenant", after, PAGE, page);
        for (int i = 0; i < n; i++) {
            tenant t = {0};
            read_tenant(&page[i], &t);
            pthread_mutex_lock(&a->lock);
            merge_tenant(a, &t);
            pthread_mutex_unlock(&a->lock);
            memcpy(after, page[i].id, sizeof after);
            free(page[i].json);
        }
    }
    free(keys);
    free(page);
    return ok;
}

/* Other services of the fleet make and expire keys too. */
static void share_rates(service_auth *a);

static void *refresh(void *arg)
{
    service_auth *a = arg;
    pthread_mutex_lock(&a->lock);
    for (int turn = 1; !a->stopping; turn++) {
        struct timespec t = cache_after(SHARE_MS);
        cache_cond_until(&a->stop, &a->lock, &t);
        bool go = !a->stopping && atomic_load(&a->app->ready);
        pthread_mutex_unlock(&a->lock);
        if (go) share_rates(a);
        if (go && turn % REFRESH == 0) {
            cache_learn_clock(a->app->cache);
            service_auth_load(a);
        }
        pthread_mutex_lock(&a->lock);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

static bool read_admin(service_auth *a, const char *path, char *why, size_t size)
{
    char line[256] = "";
    FILE *f = fopen(path, "r");
    if (f && fgets(line, sizeof line, f)) line[strcspn(line, "\r\n")] = 0;
    if (f) fclose(f);
    a->has_admin = strlen(line) >= 24;
    if (!a->has_admin) snprintf(why, size, "admin_key_file: %.300s has no key of at least 24 characters in its first line", path);
    hash_of(line, strlen(line), a->admin);
    sodium_memzero(line, sizeof line);
    return a->has_admin;
}

service_auth *service_auth_open(service_app *app, char *why, size_t size)
{
    service_auth *a = sodium_init() < 0 ? NULL : calloc(1, sizeof *a);
    if (!a) return NULL;
    a->app = app;
    a->tenants = calloc(TENANTS, sizeof *a->tenants);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->stop, NULL);
    randombytes_buf(a->seed, sizeof a->seed);
    bool ok = a->tenants && (!*app->config.admin_key_file || read_admin(a, app->config.admin_key_file, why, size));
    if (ok && app->config.auth) ok = a->running = pthread_create(&a->refresher, NULL, refresh, a) == 0;
    if (ok) return a;
    service_auth_close(a);
    return NULL;
}

void service_auth_close(service_auth *a)
{
    if (!a) return;
    pthread_mutex_lock(&a->lock);
    a->stopping = true;
    pthread_cond_signal(&a->stop);
    pthread_mutex_unlock(&a->lock);
    if (a->running) pthread_join(a->refresher, NULL);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->stop);
    free(a->keys);
    free(a->tenants);
    free(a);
}

cache *service_auth_cache(service_auth *a) { return a->app->cache; }

unsigned long long service_auth_failures(const service_auth *a) { return atomic_load(&((service_auth *)(uintptr_t)a)->failures); }

/* ---- judging a call ---- */
enum { ALL = (1 << SERVICE_SCOPES) - 1, GUEST = 1 << SERVICE_PUBLIC | 1 << SERVICE_READ | 1 << SERVICE_COMPILE | 1 << SERVICE_TUNE };

/* The same work whether the key exists or not: one hash, one comparison with every key of that id or with nothing. */
static bool find_key(service_auth *a, const char *token, service_who *who)
{
    uint8_t hash[32], nothing[32] = {0};
    size_t n = strlen(token);
    hash_of(token, n, hash);
    if (a->has_admin && sodium_memcmp(hash, a->admin, 32) == 0) {
        *who = (service_who){.scopes = ALL, .sees_all = true, .open = true};
        snprintf(who->key, sizeof who->key, "admin-key-file");
        return true;
    }
    char id[24] = "";
    if (n > 18 && !strncmp(token, "kiln_", 5)) snprintf(id, sizeof id, "%.12s", token + 5);
    const key *found = NULL;
    pthread_mutex_lock(&a->lock);
    for (int i = 0; i < a->nkeys && !found; i++)
        if (!strcmp(a->keys[i].id, id)) found = &a->keys[i];
    bool ok = sodium_memcmp(hash, found ? found->hash : nothing, 32) == 0 && found;
    if (ok && found->expires_ms && found->expires_ms <= cache_store_ms(a->app->cache)) ok = false;
    if (ok) {
        const tenant *t = tenant_of(a, found->tenant);
        bool admin = found->scopes >> SERVICE_ADMIN & 1;
        *who = (service_who){.scopes = admin ? ALL : found->scopes | 1, .sees_all = admin, .open = t && t->open};
        snprintf(who->tenant, sizeof who->tenant, "%s", found->tenant);
        snprintf(who->key, sizeof who->key, "%s", found->id);
    }
    pthread_mutex_unlock(&a->lock);
    return ok;
}

/* A bucket of `rate` calls, filled at rate/60 a second. */
static service_reply *limit(service_call *c, int rate)
{
    service_auth *a = c->app->auth;
    int64_t now = (int64_t)service_now_ms();
    pthread_mutex_lock(&a->lock);
    tenant *t = tenant_of(a, c->who.tenant);
    if (!t && a->ntenants < TENANTS) {
        t = &a->tenants[a->ntenants++];
        *t = (tenant){.quota = {-1, -1, -1, -1}};
        snprintf(t->name, sizeof t->name, "%s", c->who.tenant);
    }
    if (t && t->quota.rate >= 0) rate = t->quota.rate;
    if (!t || !rate) {
        pthread_mutex_unlock(&a->lock);
        return NULL;
    }
    if (!t->filled_ms) t->tokens = rate;
    else t->tokens += (double)(now - t->filled_ms) * rate / 60000;
    if (t->tokens > rate) t->tokens = rate;
    t->filled_ms = now ? now : 1;
    bool ok = t->tokens >= 1;
    if (ok) t->tokens -= 1;
    t->fresh += ok;
    double left = t->tokens;
    pthread_mutex_unlock(&a->lock);
    int seconds = left >= 1 ? 0 : (int)((1 - left) * 60 / rate) + 1;
    snprintf(c->policy, sizeof c->policy, "\"minute\";q=%d;w=60", rate);
    snprintf(c->limits, sizeof c->limits, "\"minute\";r=%d;t=%d", (int)left, seconds);
    if (ok) return NULL;
    service_reply *r = service_problem(429, "quota-exceeded", "too many requests in a minute", c->policy, "wait as long as Retry-After says");
    service_reply_set(r, "Retry-After", "%d", seconds);
    return r;
}

static service_reply *unknown(service_call *c, bool given)
{
    service_reply *r = service_problem(401, "unauthenticated", given ? "the key is not valid" : "this needs a key", NULL,
                                       "Authorization: Bearer kiln_..., as an administrator gives it out");
    service_reply_header(r, "WWW-Authenticate", "Bearer realm=\"kiln\"%s", given ? ", error=\"invalid_token\"" : "");
    if (given) {
        atomic_fetch_add(&c->app->auth->failures, 1);
        service_log("warning", "key-refused", "%s %s", c->method, c->path);
    }
    return r;
}

service_reply *service_auth_judge(service_call *c, const char *authorization, bool owner)
{
    service_auth *a = c->app->auth;
    const service_config *cfg = &c->app->config;
    enum service_scope need = c->route->scope;
    bool bearer = !strncasecmp(authorization, "Bearer ", 7);
    c->who = (service_who){.scopes = 1 << SERVICE_PUBLIC};
    if (bearer && (cfg->auth || a->has_admin || a->nkeys)) {
        if (!find_key(a, authorization + 7 + strspn(authorization + 7, " "), &c->who)) return unknown(c, true);
    } else if (owner || !cfg->auth) {
        c->who = (service_who){.scopes = owner || !cfg->allow_public ? ALL : GUEST, .sees_all = true, .open = true};
    } else if (*authorization) {
        return unknown(c, true);
    }
    if (need == SERVICE_PUBLIC) return NULL;
    if (!(c->who.scopes & ~(1u << SERVICE_PUBLIC))) return unknown(c, false);
    if (!(c->who.scopes >> need & 1)) {
        service_reply *r = service_problem(403, "forbidden", "the key may not do this", c->path, scope_texts[need]);
        service_reply_header(r, "WWW-Authenticate", "Bearer realm=\"kiln\", error=\"insufficient_scope\", scope=\"%s\"", scope_texts[need]);
        return r;
    }
    return owner ? NULL : limit(c, cfg->rate);
}

/* The database counts for the whole fleet; while it is away every service counts for itself. */
static bool spend_alone(service_auth *a, const char *name, int64_t day, int most)
{
    pthread_mutex_lock(&a->lock);
    tenant *t = tenant_of(a, name);
    if (t && t->day != day) {
        t->day = day;
        t->used = 0;
    }
    bool ok = !t || t->used++ < most;
    pthread_mutex_unlock(&a->lock);
    return ok;
}

service_quota service_auth_quota(service_auth *a, const char *name)
{
    pthread_mutex_lock(&a->lock);
    const tenant *t = tenant_of(a, name);
    service_quota q = t ? t->quota : (service_quota){-1, -1, -1, -1};
    pthread_mutex_unlock(&a->lock);
    return q;
}

int service_auth_jobs(service_auth *a, const char *name)
{
    int most = service_auth_quota(a, name).jobs;
    return most > 0 ? most : most == 0 ? INT32_MAX : 0;
}

service_reply *service_auth_compile(service_call *c)
{
    service_auth *a = c->app->auth;
    int64_t now = cache_store_ms(a->app->cache), spent;
    int most = c->who.sees_all ? 0 : service_auth_quota(a, c->who.tenant).compiles_per_day;
    if (most <= 0) return NULL;
    enum jobs_status st = jobs_spend(service_fleet_jobs(c->app->fleet), c->who.tenant, "compiles", DAY_MS, 1, most, &spent);
    if (st == JOBS_OK || (st == JOBS_ERROR && spend_alone(a, c->who.tenant, now / DAY_MS, most))) return NULL;
    service_reply *r = service_problem_limit(429, "compiles_per_day", most, "the tenant's compiles of this day are used up");
    service_reply_set(r, "Retry-After", "%lld", (long long)((DAY_MS - now % DAY_MS) / 1000 + 1));
    return r;
}

/* Tells the fleet what was let through here since the last time, and takes off what other services let through. */
static void share_rates(service_auth *a)
{
    for (int i = 0; *a->app->config.postgres; i++) {
        char name[64];
        int64_t spent, n;
        pthread_mutex_lock(&a->lock);
        bool more = i < a->ntenants;
        tenant *t = more ? &a->tenants[i] : NULL;
        if (t) memcpy(name, t->name, sizeof name);
        n = t ? t->fresh : 0;
        bool lately = t && (n || (t->filled_ms && (int64_t)service_now_ms() - t->filled_ms < MINUTE_MS)); /* others may go on where it paused here */
        if (t) t->fresh = 0;
        pthread_mutex_unlock(&a->lock);
        if (!more) return;
        if (!lately || jobs_spend(service_fleet_jobs(a->app->fleet), name, "calls", MINUTE_MS, n, 0, &spent) != JOBS_OK) continue;
        pthread_mutex_lock(&a->lock); /* tenants are never removed */
        int64_t others = (spent >= t->told + n ? spent - t->told : spent) - n;
        t->told = spent;
        t->tokens -= (double)others;
        if (t->quota.rate > 0 && t->tokens < -t->quota.rate) t->tokens = -t->quota.rate;
        pthread_mutex_unlock(&a->lock);
    }
}

/* ---- what may be seen ---- */
static uint8_t *slot_of(service_auth *a, const char *tenant, const char *subject, uint8_t hash[16])
{
    char text[200];
    int n = snprintf(text, sizeof text, "%s/%s", tenant, subject);
    crypto_generichash(hash, 16, (const uint8_t *)text, (size_t)n, a->seed, sizeof a->seed);
    return a->seen[(hash[0] | hash[1] << 8) % SEEN];
}

static bool granted(service_auth *a, const char *tenant, const char *subject)
{
    uint8_t hash[16], *slot = slot_of(a, tenant, subject, hash);
    char id[160], *json = NULL;
    pthread_mutex_lock(&a->lock);
    bool known = !memcmp(slot, hash, 16);
    pthread_mutex_unlock(&a->lock);
    if (known) return true;
    snprintf(id, sizeof id, "%s/%s", tenant, subject);
    if (strlen(subject) > 72 || cache_get_doc(a->app->cache, "grant", id, &json) != CACHE_OK) return false;
    free(json);
    pthread_mutex_lock(&a->lock);
    memcpy(slot, hash, 16);
    pthread_mutex_unlock(&a->lock);
    return true;
}

bool service_may_see(service_call *c, const char *subject)
{
    return c->who.sees_all || granted(c->app->auth, "*", subject) || granted(c->app->auth, c->who.tenant, subject);
}

service_reply *service_refuse_stranger(const service_call *c, const char *tenant)
{
    if (c->who.sees_all || !strcmp(c->who.tenant, tenant)) return NULL;
    return service_problem(403, "forbidden", "another tenant asked for this", c->path, "who asked for it, or an administrator, may change it");
}

void service_grant(service_call *c, const char *subject)
{
    service_auth *a = c->app->auth;
    const char *tenant = c->who.open ? "*" : c->who.tenant;
    uint8_t hash[16], *slot = slot_of(a, tenant, subject, hash);
    char id[160];
    if (!c->app->config.auth || (c->who.sees_all && !*c->who.tenant)) return;
    pthread_mutex_lock(&a->lock);
    bool known = !memcmp(slot, hash, 16);
    memcpy(slot, hash, 16);
    pthread_mutex_unlock(&a->lock);
    snprintf(id, sizeof id, "%s/%s", tenant, subject);
    if (!known) cache_put_doc(a->app->cache, "grant", id, (kiln_bytes){"{}", 2});
}

void service_grant_record(service_call *c, const cache_record *r)
{
    service_grant(c, r->key);
    for (int i = 0; i < r->nartifacts; i++) service_grant(c, r->artifacts[i].digest);
}

/* Newest first: the id counts down. */
static void write_down(service_app *app, const service_who *who, const char *action, const char *subject, const char *detail)
{
    char id[40];
    int64_t at = cache_store_ms(app->cache);
    cJSON *o = cJSON_CreateObject();
    snprintf(id, sizeof id, "%016llx-%08x", (unsigned long long)(INT64_MAX - at), randombytes_random());
    cJSON_AddNumberToObject(o, "at_ms", (double)at);
    cJSON_AddStringToObject(o, "action", action);
    cJSON_AddStringToObject(o, "subject", subject);
    if (detail && *detail) cJSON_AddStringToObject(o, "detail", detail);
    cJSON_AddStringToObject(o, "tenant", who->tenant);
    cJSON_AddStringToObject(o, "key", who->key);
    char *text = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    if (!text) return;
    if (cache_put_doc(app->cache, "audit", id, (kiln_bytes){text, strlen(text)}) != CACHE_OK)
        service_log("error", "audit-not-stored", "%s", text);
    service_log("info", "audit", "%s", text);
    free(text);
}

void service_audit(service_call *c, const char *action, const char *subject, const char *detail)
{
    write_down(c->app, &c->who, action, subject, detail);
}

void service_audit_own(service_app *app, const char *action, const char *subject, const char *detail)
{
    write_down(app, &(service_who){.key = "kilnd"}, action, subject, detail);
}
