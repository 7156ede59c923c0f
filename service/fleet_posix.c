/* The service as one of a fleet: leads or follows compiles by leases on jobs, and hears what others did to kernels that it keeps in memory. */
#include "service/fleet.h"
#include "jobs/room.h"
#include "service/auth.h"
#include "workers/arena.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HITS = 1024, HITS_MS = 5000, IDLE_MS = 60000, KERNEL_BYTES = 256 << 10, LOOK_MS = 1000, AGAIN_MS = 2000, EVENTS = 256 };
enum { SWEEP_MS = 600000, KEEP_MS = 86400000 };

typedef struct parked { struct parked *next; service_job *job; int64_t looked; bool touched; } parked;
struct service_fleet {
    service_app *app;
    jobs *jobs;
    keeper *keeper;
    char name[64], words[512];
    pthread_t thread;
    pthread_mutex_t lock;
    parked *first;
    atomic_bool stop;
    int64_t seen; /* of the log */
    pthread_mutex_t hits_lock;
    struct { char key[72]; int64_t n; } hits[HITS]; /* not yet told to the store; of two keys in one place the later counts */
};

jobs *service_fleet_jobs(service_fleet *f) { return f->jobs; }
keeper *service_fleet_keeper(service_fleet *f) { return f->keeper; }
const char *service_fleet_name(service_fleet *f) { return f->name; }

/* ---- leading ---- */
static char *payload_of(service_fleet *f, const service_job *job)
{
    kiln_arena *a = worker_arena(NULL);
    char *hw = service_target_json(f->app->targets, job->ask->target, NULL), *text = NULL;
    if (a && hw) text = build_payload(a, job->ask->request, hw, 0);
    free(hw);
    kiln_arena_close(a);
    return text;
}

/* o NULL: it is submitted alone. JOBS_NONE: somebody else has it. */
static enum jobs_status submit(service_fleet *f, service_job *job, const jobs_offer *o, jobs_lease *lease)
{
    bool fresh;
    jobs_job out;
    char needs[128], *payload = payload_of(f, job);
    int64_t left = job->deadline - (int64_t)service_now_ms();
    build_needs(job->ask->hw, true, needs);
    jobs_ask a = {.id = job->id, .kind = JOBS_COMPILE, .key = job->key, .tenant = job->tenant,
                 .class = JOBS_INTERACTIVE, .needs = needs, .payload = payload, .live_max = service_auth_jobs(f->app->auth, job->tenant),
                  .deadline_ms = left < 1 ? 1 : left};
    enum jobs_status st = !payload ? JOBS_ERROR : o ? jobs_lead(f->jobs, &a, o, lease, &out, &fresh) : jobs_submit(f->jobs, &a, &out, &fresh);
    free(payload);
    if (st != JOBS_OK && st != JOBS_NONE) return st;
    if (!fresh) service_jobs_rename(f->app->jobs, job, out.id);
    jobs_job_free(&out);
    return st;
}

enum service_lead service_fleet_lead(service_fleet *f, service_job *job, kept **lease)
{
    jobs_lease l;
    bool here = f->app->config.compile_here;
    /* Its own compiles it can always do: what cannot be run here is answered unverified, as without a fleet. */
    jobs_offer o = {.worker = f->name, .words = f->words, .kinds = 1u << JOBS_COMPILE, .any = true};
    *lease = NULL;
    enum jobs_status st = submit(f, job, here ? &o : NULL, &l);
    if (st == JOBS_FULL) return SERVICE_TOO_MANY;
    if (st == JOBS_NONE || (st == JOBS_OK && !here)) return SERVICE_FOLLOW;
    if (st != JOBS_OK) return SERVICE_ALONE;
    *lease = keeper_add(f->keeper, &l);
    return *lease ? SERVICE_LEAD : SERVICE_ALONE;
}

bool service_fleet_may_store(void *pair)
{
    service_hold *h = pair;
    return !h->lease || keeper_asks(h->fleet->keeper, h->lease);
}

bool service_fleet_unwanted(void *pair)
{
    service_hold *h = pair;
    enum jobs_todo todo = keeper_todo(h->lease);
    return !keeper_holds(h->fleet->keeper, h->lease) || todo == JOBS_STOP_CANCEL || todo == JOBS_STOP_PAUSE;
}

/* ---- room ---- */
static void gone(void *user, const char *key)
{
    service_fleet *f = user;
    cache_forget(f->app->cache, key);
    service_count(f->app->metrics, SERVICE_EVICTED);
}

bool service_fleet_room(service_fleet *f, const char *tenant)
{
    int own = service_auth_quota(f->app->auth, tenant).store_mib;
    room_limits l = {(int64_t)f->app->config.store_mib << 20, (int64_t)(own >= 0 ? own : f->app->config.tenant_mib) << 20, IDLE_MS};
    return (!l.bytes && !l.tenant_bytes) || room_make(f->jobs, tenant, &l, KERNEL_BYTES, gone, f) != JOBS_FULL;
}

void service_fleet_hit(service_fleet *f, const char *key)
{
    uint64_t h = 14695981039346656037u;
    for (const char *p = key; *p; p++) h = (h ^ (unsigned char)*p) * 1099511628211u;
    if (pthread_mutex_trylock(&f->hits_lock)) return; /* a count is not worth waiting for */
    if (strcmp(f->hits[h % HITS].key, key)) {
        snprintf(f->hits[h % HITS].key, sizeof f->hits[0].key, "%s", key);
        f->hits[h % HITS].n = 0;
    }
    f->hits[h % HITS].n++;
    pthread_mutex_unlock(&f->hits_lock);
}

static void tell_hits(service_fleet *f)
{
    for (int i = 0; i < HITS; i++) {
        char key[72];
        pthread_mutex_lock(&f->hits_lock);
        int64_t n = f->hits[i].n;
        memcpy(key, f->hits[i].key, sizeof key);
        f->hits[i].n = 0;
        pthread_mutex_unlock(&f->hits_lock);
        if (n && room_used(f->jobs, key, n, 0, "") != JOBS_OK) return;
    }
}

void service_fleet_end(service_fleet *f, const service_job *job, kept *lease, const build_result *r, const char *problem)
{
    char result[300];
    double cost = r->times.construct + r->times.codegen + r->times.toolchain + r->times.verify;
    if (r->end == BUILD_OK && cost > 0) room_used(f->jobs, job->key, 0, (int64_t)cost + 1, job->tenant);
    if (!lease) {
        jobs_tell(f->jobs);
        return;
    }
    jobs_lease l = *keeper_lease(lease);
    keeper_drop(f->keeper, lease);
    snprintf(result, sizeof result, "{\"version\":%lld,\"build\":\"%s\",\"verification\":\"%s\"}", (long long)r->version, r->build,
             cache_verification_text(r->verification));
    if (r->end == BUILD_OK) jobs_succeed(f->jobs, &l, result);
    else if (r->end == BUILD_LOST) jobs_release(f->jobs, &l, NULL);
    else jobs_fail(f->jobs, &l, problem ? problem : "", *r->detail ? r->detail : r->diag.message);
}

/* ---- following ---- */
void service_fleet_park(service_fleet *f, service_job *job)
{
    parked *p = calloc(1, sizeof *p);
    if (!p) { /* no memory: it is tried at once, by the pool */
        service_pool_job(f->app, job);
        return;
    }
    p->job = job;
    p->looked = (int64_t)service_now_ms();
    p->touched = true; /* it may have ended before it was parked */
    pthread_mutex_lock(&f->lock);
    p->next = f->first;
    f->first = p;
    pthread_mutex_unlock(&f->lock);
    jobs_tell(f->jobs);
}

static void give_up(service_fleet *f, service_job *job, service_reply *problem)
{
    service_jobs_done(f->app->jobs, job, problem, true);
    service_job_drop(f->app->jobs, job);
}

static service_reply *problem_of(const jobs_job *x)
{
    cJSON *o = x->result && *x->result ? cJSON_Parse(x->result) : NULL, *s = cJSON_GetObjectItemCaseSensitive(o, "status");
    int http = cJSON_IsNumber(s) && s->valueint >= 400 && s->valueint < 600 ? s->valueint : 0;
    cJSON_Delete(o);
    if (http) return service_reply_text(http, "application/problem+json", x->result);
    return service_problem(x->state == JOBS_EXPIRED ? 504 : 502, x->state == JOBS_EXPIRED ? "compile-timeout" : "worker-failed",
                           "the compile ended without a kernel", x->error, jobs_state_text(x->state));
}

/* True: nothing is to be done yet. */
static bool wait_on(service_fleet *f, service_job *job)
{
    jobs_job x;
    if ((int64_t)service_now_ms() > job->deadline) {
        give_up(f, job, service_problem(504, "compile-timeout", "the compile took too long", "another process works on it", NULL));
        return false;
    }
    enum jobs_status st = jobs_get(f->jobs, job->id, &x);
    bool stays = st == JOBS_OK && jobs_state_live(x.state) && (jobs_state_leased(x.state) || !f->app->config.compile_here || x.state == JOBS_PAUSED);
    bool ended = st == JOBS_OK && !jobs_state_live(x.state) && x.state != JOBS_SUCCEEDED;
    service_reply *problem = ended ? problem_of(&x) : NULL;
    bool built = st == JOBS_OK && x.state == JOBS_SUCCEEDED, early = built && job->answered && (int64_t)service_now_ms() < job->again_ms;
    if (built && !early) job->answered++, job->again_ms = (int64_t)service_now_ms() + AGAIN_MS;
    if (ended) job->cancelled = x.state == JOBS_CANCELLED;
    if (st == JOBS_OK) jobs_job_free(&x);
    if (stays || early) return true;
    if (ended) give_up(f, job, problem);
    else service_pool_job(f->app, job); /* it is there, it can be led, or the fleet is away and it is built alone */
    return false;
}

static void look_after_parked(service_fleet *f)
{
    int64_t now = (int64_t)service_now_ms();
    parked *due = NULL, *p;
    pthread_mutex_lock(&f->lock);
    for (parked **at = &f->first; (p = *at);) {
        if (!p->touched && now - p->looked < LOOK_MS) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        p->next = due;
        due = p;
    }
    pthread_mutex_unlock(&f->lock);
    while ((p = due)) {
        due = p->next;
        p->touched = false;
        p->looked = now;
        if (!wait_on(f, p->job)) {
            free(p);
            continue;
        }
        pthread_mutex_lock(&f->lock);
        p->next = f->first;
        f->first = p;
        pthread_mutex_unlock(&f->lock);
    }
}

static void touch(service_fleet *f, const char *id)
{
    pthread_mutex_lock(&f->lock);
    for (parked *p = f->first; p; p = p->next) p->touched |= !strcmp(p->job->id, id);
    pthread_mutex_unlock(&f->lock);
}

/* ---- news ---- */
/* What this process wrote itself it has forgotten already, and has filled again maybe. */
static void hear_of_kernel(service_fleet *f, const jobs_event *e)
{
    bool own = !strcmp(e->worker, cache_process(f->app->cache));
    service_count(f->app->metrics, own ? SERVICE_NEWS_OWN : SERVICE_NEWS_OTHER);
    if (!own) cache_changed(f->app->cache, e->key);
}

static void hear(service_fleet *f)
{
    static const char *const of_kernels[] = {"kernel", "verdict", "quarantine", "evicted"};
    jobs_event *e = malloc(sizeof *e * EVENTS);
    int n = 0;
    if (f->seen < 0) f->seen = jobs_last(f->jobs); /* nothing is in memory from before */
    while (e && f->seen >= 0 && (n = jobs_events(f->jobs, NULL, f->seen, EVENTS, e)) > 0) {
        for (int i = 0; i < n; i++) {
            for (size_t k = 0; k < sizeof of_kernels / sizeof *of_kernels; k++)
                if (!strcmp(e[i].kind, of_kernels[k])) hear_of_kernel(f, &e[i]);
            if (*e[i].job) touch(f, e[i].job);
            f->seen = e[i].seq;
            jobs_event_free(&e[i]);
        }
    }
    free(e);
}

static void *follow(void *arg)
{
    service_fleet *f = arg;
    int64_t swept = (int64_t)service_now_ms(), reaped = 0, told = 0;
    for (uint64_t turn = 0; !atomic_load(&f->stop);) {
        turn = jobs_turn(f->jobs);
        hear(f);
        look_after_parked(f);
        int64_t now = (int64_t)service_now_ms();
        if (now - reaped >= LOOK_MS) {
            jobs_reap(f->jobs);
            reaped = now;
        }
        if (now - told >= HITS_MS) {
            tell_hits(f);
            told = now;
        }
        if (now - swept >= SWEEP_MS) {
            jobs_sweep(f->jobs, KEEP_MS);
            cache_forget_docs(f->app->cache, "model", service_unix_ms() - KEEP_MS);
            swept = now;
        }
        jobs_wait(f->jobs, turn, LOOK_MS);
    }
    return NULL;
}

service_fleet *service_fleet_open(service_app *app, char *why, size_t size)
{
    char host[40] = "";
    jobs_config cfg = {.data_dir = app->config.data, .postgres_url = app->config.postgres, .lease_ms = app->config.lease_ms,
                       .beat_ms = app->config.lease_ms / 4};
    service_fleet *f = calloc(1, sizeof *f);
    snprintf(why, size, "out of memory or threads");
    if (!f) return NULL;
    f->app = app;
    pthread_mutex_init(&f->lock, NULL);
    pthread_mutex_init(&f->hits_lock, NULL);
    if (gethostname(host, sizeof host - 1)) snprintf(host, sizeof host, "host");
    snprintf(f->name, sizeof f->name, "kilnd-%s-%d", host, (int)getpid());
    build_words(&app->tools, f->words, sizeof f->words);
    f->jobs = jobs_open(&cfg, why, size);
    f->keeper = f->jobs ? keeper_open(f->jobs) : NULL;
    f->seen = -1;
    if (f->keeper && pthread_create(&f->thread, NULL, follow, f) == 0) return f;
    keeper_close(f->keeper);
    jobs_close(f->jobs);
    free(f);
    return NULL;
}

void service_fleet_close(service_fleet *f)
{
    if (!f) return;
    atomic_store(&f->stop, true);
    jobs_tell(f->jobs);
    pthread_join(f->thread, NULL);
    for (parked *p = f->first, *next; p; p = next) {
        next = p->next;
        service_job_drop(f->app->jobs, p->job);
        free(p);
    }
    keeper_close(f->keeper);
    jobs_close(f->jobs);
    pthread_mutex_destroy(&f->lock);
    pthread_mutex_destroy(&f->hits_lock);
    free(f);
}
