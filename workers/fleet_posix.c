/* kiln-worker run: claims jobs of the fleet and does them in sandboxed children, until SIGTERM; then it drains. */
#include "workers/arena.h"
#include "workers/fleet.h"
#include <cjson/cJSON.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>
#include "workers/child.h"
#include "workers/seal.h"
#include "workers/task.h"

enum { POLL_MS = 1000, BRAKE_AFTER = 4, BRAKE_FIRST_MS = 1000, BRAKE_LAST_MS = 30000, CANDIDATES = 3, ATTEMPTS = 64, SLOTS_MAX = 256 };

/* Every setting: X(name, flag, kind, default, meaning). */
#define SETTINGS(X) \
    X(data, "--data", S, "", "folder of the store, the service's own when there is no PostgreSQL") \
    X(postgres, "--postgres", S, "", "URL of the fleet's database") \
    X(redis, "--redis", S, "", "redis://HOST:PORT of the fleet's cache") \
    X(name, "--name", S, "", "name of this worker, unique in the fleet; default: host and process") \
    X(kinds, "--kinds", S, "compile,verify,measure,retune", "kinds of jobs it takes") \
    X(slots, "--slots", I, "0", "jobs at a time; 0: one a core, less the one for measuring") \
    X(deadline_ms, "--deadline-ms", I, "60000", "milliseconds one build may take") \
    X(verify_ms, "--verify-ms", I, "8", "milliseconds of reference computation spent on one verification") \
    X(builder_keys, "--builder-keys", S, "", "file with the services' public keys, 64 hex digits a line: they count, and may enrol builders") \
    X(sealed, "--sealed", I, "0", "1: use nothing from PostgreSQL or Redis that no enrolled builder has signed") \
    X(lease_ms, "--lease-ms", I, "20000", "milliseconds a lease lasts without a heartbeat; the same in the whole fleet")
typedef const char *setting_S;
typedef int setting_I;
typedef struct settings {
#define X(name, flag, kind, def, meaning) setting_##kind name;
    SETTINGS(X)
#undef X
} settings;

typedef struct worker {
    settings s;
    worker_tools tools;
    cache *cache;
    jobs *jobs;
    keeper *keeper;
    seals *seals;
    jobs_worker card;
    unsigned kinds;
    int measure_cpu;
    atomic_llong done, failed;
    atomic_int troubles; /* in a row */
    atomic_bool stranger;
} worker;
static atomic_bool ending;

static bool is_ending(void) { return atomic_load(&ending); }

static int64_t fleet_unix_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void say(const char *event, const char *format, ...)
{
    char text[700], *json;
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "unix_ms", (double)fleet_unix_ms());
    cJSON_AddStringToObject(o, "event", event);
    cJSON_AddStringToObject(o, "message", text);
    json = cJSON_PrintUnformatted(o);
    if (json) fprintf(stderr, "%s\n", json);
    cJSON_free(json);
    cJSON_Delete(o);
}

static const struct { enum task_end (*run)(task *t); bool runs; } tasks[JOBS_KINDS] = {
#define X(KIND, function, runs) [JOBS_##KIND] = {function, runs},
#include "workers/tasks.def"
#undef X
};

static bool features_here(const worker_tools *t, const kiln_hw *hw)
{
    const char *const *want, *const *have;
    int nwant = kiln_hw_features(hw, &want), nhave = worker_host_features(&have);
    if (strcmp(kiln_hw_kind(hw), "cpu")) return !strcmp(kiln_hw_language(hw), "cuda") && worker_gpu_runs(t, kiln_hw_arch(hw));
    for (int i = 0; i < nwant; i++) {
        bool found = false;
        for (int k = 0; k < nhave && !found; k++) found = !strcmp(want[i], have[k]);
        if (!found) return false;
    }
    return true;
}

static bool still_ours(void *arg)
{
    task *t = arg;
    return keeper_asks(t->keeper, t->lease);
}

static enum task_end perform(worker *w, task *t)
{
    kiln_diag d;
    if (!t->arena) return task_says(t, TASK_RETRY, "out of memory");
    if (build_payload_read(t->arena, t->job->payload, &t->asked, &d) != KILN_OK) return task_says(t, TASK_FAILED, "%.400s", d.message);
    if (strcmp(t->asked.keys.kernel, t->job->key)) return task_says(t, TASK_FAILED, "the payload is of another kernel than the job's key says");
    t->order = (build_order){.tools = t->tools, .cache = t->cache, .request = t->asked.request, .hw = t->asked.hw, .keys = &t->asked.keys,
                             .candidates = CANDIDATES, .attempts = ATTEMPTS, .verify_ms = w->s.verify_ms,
                             .runs_here = features_here(t->tools, t->asked.hw),
                             .job = t->job->id, .epoch = t->job->epoch,
                             .deadline = build_now_ms() + w->s.deadline_ms, .may_store = still_ours, .user = t};
    if (t->job->class == JOBS_BACKGROUND) t->order.deadline = INT64_MAX / 2; /* its budget bounds it, and each child its own deadline */
    return tasks[t->job->kind].run(t);
}

/* Troubles in a row mean that this machine is at fault: it stops taking jobs for a while, so that it does not use up their tries. */
static void count(worker *w, enum task_end end)
{
    if (end == TASK_RETRY) atomic_fetch_add(&w->troubles, 1);
    else if (end == TASK_DONE || end == TASK_FAILED) atomic_store(&w->troubles, 0);
    if (end == TASK_DONE) atomic_fetch_add(&w->done, 1);
    if (end == TASK_RETRY || end == TASK_FAILED) atomic_fetch_add(&w->failed, 1);
}

/* A child is not worth waiting for when nobody wants its work any more. */
static bool unwanted(void *arg)
{
    task *t = arg;
    enum jobs_todo todo = keeper_todo(t->lease);
    return !keeper_holds(t->keeper, t->lease) || todo == JOBS_STOP_CANCEL || todo == JOBS_STOP_PAUSE;
}

static void do_job(worker *w, const jobs_lease *l, const jobs_job *job)
{
    static const char *const ends[] = {"done", "failed", "retry", "stopped", "lost"};
    worker_tools tools = w->tools;
    task t = {.tools = &tools, .cache = w->cache, .seals = w->seals, .keeper = w->keeper, .job = job,
              .measure_cpu = w->measure_cpu, .draining = is_ending};
    int64_t began = build_now_ms();
    t.lease = keeper_add(w->keeper, l);
    if (!t.lease) {
        jobs_retry(w->jobs, l, "out of memory");
        return;
    }
    tools.stop = unwanted;
    tools.stop_user = &t;
    enum jobs_todo todo;
    jobs_heartbeat(w->jobs, l, NULL, &todo); /* from "leased" to "running" */
    t.arena = worker_arena(NULL);
    enum task_end end = perform(w, &t), why;
    if (end != TASK_DONE && end != TASK_LOST && unwanted(&t) && task_must_stop(&t, &why)) end = why; /* its child was ended, that is no failure */
    build_asked_free(&t.asked);
    kiln_arena_close(t.arena);
    if (end == TASK_STOPPED) keeper_asks(w->keeper, t.lease); /* the last checkpoint */
    keeper_drop(w->keeper, t.lease);
    enum jobs_status st = JOBS_LOST;
    for (int i = 0; end != TASK_LOST && i < 40; i++) { /* a database that is away for less than a lease costs no work */
        st = end == TASK_DONE ? jobs_succeed(w->jobs, l, t.result) : end == TASK_FAILED ? jobs_fail(w->jobs, l, t.result, t.error)
             : end == TASK_RETRY ? jobs_retry(w->jobs, l, t.error) : jobs_release(w->jobs, l, NULL);
        if (st != JOBS_ERROR) break;
        usleep(500000);
    }
    count(w, end);
    say("job", "%s %s %s: %s%s%s in %lld ms", job->id, jobs_kind_text(job->kind), job->key, st == JOBS_OK ? ends[end] : "lost", *t.error ? ": " : "",
        t.error, (long long)(build_now_ms() - began));
}

static int brake_ms(worker *w)
{
    int n = atomic_load(&w->troubles) - BRAKE_AFTER, ms = BRAKE_FIRST_MS;
    for (int i = 0; i < n && ms < BRAKE_LAST_MS; i++) ms *= 2;
    return n < 0 ? 0 : ms < BRAKE_LAST_MS ? ms : BRAKE_LAST_MS;
}

/* Where signatures are looked at, nobody would take what a stranger builds. */
static bool may_work(worker *w)
{
    bool ok = !w->s.sealed || seals_enrolled(w->seals);
    if (!ok && !atomic_exchange(&w->stranger, true))
        say("not-enrolled", "%s takes no jobs: POST what `kiln-worker card` prints to /v1/builders", w->card.name);
    if (ok && atomic_exchange(&w->stranger, false)) say("enrolled", "%s", w->card.name);
    return ok;
}

static void *slot(void *arg)
{
    worker *w = arg;
    while (!is_ending()) {
        if (!may_work(w)) {
            usleep(200000);
            continue;
        }
        jobs_lease l;
        jobs_job job;
        uint64_t turn = jobs_turn(w->jobs);
        int brake = brake_ms(w);
        for (int i = 0; i < brake && !is_ending(); i += 100) usleep(100000);
        if (is_ending()) break;
        jobs_offer o = {.worker = w->card.name, .words = w->card.words, .kinds = w->kinds, .background = true};
        if (jobs_claim(w->jobs, &o, &l, &job) == JOBS_OK) {
            do_job(w, &l, &job);
            jobs_job_free(&job);
        } else jobs_wait(w->jobs, turn, POLL_MS - 100 + (int)(build_now_ms() % 200)); /* jitter: workers do not all ask at once */
    }
    return NULL;
}

/* ---- start ---- */
static bool parse(int argc, char **argv, settings *s)
{
#define X(name, flag, kind, def, meaning) set_##kind(&s->name, def);
#define set_S(at, v) (*(at) = (v))
#define set_I(at, v) (*(at) = atoi(v))
    SETTINGS(X)
#undef X
    for (int i = 0; i + 1 < argc; i += 2) {
        bool known = false;
#define X(name, flag, kind, def, meaning) if (!strcmp(argv[i], flag)) { set_##kind(&s->name, argv[i + 1]); known = true; }
        SETTINGS(X)
#undef X
        if (!known) return false;
    }
    return argc % 2 == 0 && (*s->data || *s->postgres) && s->slots >= 0 && s->slots <= SLOTS_MAX && s->deadline_ms >= 100 && s->verify_ms > 0 &&
           s->lease_ms >= 400;
}

static bool find_kinds(worker *w)
{
    char list[200];
    snprintf(list, sizeof list, "%s", w->s.kinds);
    for (char *at = list, *word; (word = strtok_r(at, ",", &at));) {
        enum jobs_kind k;
        if (!jobs_kind_find(word, &k) || !tasks[k].run) return false;
        w->kinds |= 1u << k;
    }
    return w->kinds != 0;
}

/* With two cores or more, the last one is left to measuring: threads and their children stay off it. */
static int reserve_core(const worker *w)
{
    cpu_set_t set;
    int last = -1;
    if (!(w->kinds & (1u << JOBS_MEASURE | 1u << JOBS_RETUNE)) || sched_getaffinity(0, sizeof set, &set) || CPU_COUNT(&set) < 2) return -1;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set)) last = i;
    CPU_CLR(last, &set);
    return sched_setaffinity(0, sizeof set, &set) == 0 ? last : -1;
}

static void name_it(worker *w)
{
    char host[40] = "host";
    if (gethostname(host, sizeof host - 1)) strcpy(host, "host");
    snprintf(w->card.host, sizeof w->card.host, "%s", host);
    if (*w->s.name) snprintf(w->card.name, sizeof w->card.name, "%s", w->s.name);
    else snprintf(w->card.name, sizeof w->card.name, "worker-%s-%d", host, (int)getpid());
}

static void describe(worker *w)
{
    cpu_set_t set;
    char line[300], model[200] = "";
    uint8_t digest[32];
    char hex[65];
    build_words(&w->tools, w->card.words, sizeof w->card.words);
    size_t n = strlen(w->card.words); /* its word as a builder, so that it is not asked to check itself */
    snprintf(w->card.words + n, sizeof w->card.words - n, " by:%.16s", seals_public(w->seals));
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && fgets(line, sizeof line, f))
        if (!*model && sscanf(line, "model name : %199[^\n\"\\]", model) == 1) break;
    if (f) fclose(f);
    int cores = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    snprintf(line, sizeof line, "%s|%.80s", model, w->card.words);
    kiln_sha256(line, strlen(line), digest);
    kiln_hex(digest, 8, hex);
    snprintf(w->card.device, sizeof w->card.device,
             "{\"cpu\":\"%.150s\",\"cores\":%d,\"cc\":\"%.80s\",\"nvrtc\":\"%.20s\",\"fingerprint\":\"%s\"}", model,
             cores, strpbrk(w->tools.cc_version, "\"\\") ? "" : w->tools.cc_version, w->tools.nvrtc_version, hex);
    w->card.slots = w->s.slots ? w->s.slots : cores;
    w->card.started_ms = fleet_unix_ms();
}

/* What PostgreSQL cannot take is kept here, and sent at the next start at the latest; and the worker's key. */
static bool own_folder(worker *w)
{
    static char own[600];
    const char *home = getenv("XDG_STATE_HOME");
    if (*w->s.data) return mkdir(w->s.data, 0700) == 0 || errno == EEXIST;
    snprintf(own, sizeof own, "%.400s/kiln-worker-%.100s", home && *home ? home : w->tools.tmp, *w->s.name ? w->s.name : "default");
    w->s.data = own;
    return mkdir(own, 0700) == 0 || errno == EEXIST;
}

static void refused(void *user, const char *key, const cache_record *r, const char *why)
{
    (void)user;
    if (r) say("refused", "%s: version %lld of %s is %s", key, (long long)r->version, *r->signer ? r->signer : "nobody", why);
    else say("refused", "%s: %s", key, why);
}

static bool leased(void *user, const char *job, int64_t epoch, const char *key)
{
    const worker *w = user;
    return !w->jobs || jobs_had_lease(w->jobs, job, epoch, key);
}

/* Several workers may share a folder with the service: each has a key of its own. */
static bool open_seals(worker *w, char *why, size_t size)
{
    char path[800];
    snprintf(path, sizeof path, "%.600s/signing-%.100s.key", w->s.data, *w->s.name ? w->s.name : "worker");
    w->seals = seals_open(&(seals_config){.key_file = path, .roots = w->s.builder_keys, .name = w->card.name, .program = "kiln-worker",
                                          .required = w->s.sealed != 0, .user = w, .refused = refused, .leased = leased}, why, size);
    return w->seals != NULL;
}

static bool open_all(worker *w, char *why, size_t size)
{
    char dir[512];
    cache_error e = {""};
    jobs_config jc = {.data_dir = w->s.data, .postgres_url = w->s.postgres, .lease_ms = w->s.lease_ms, .beat_ms = w->s.lease_ms / 4};
    snprintf(why, size, "cannot tell where this program lies");
    if (!workers_exe_dir(dir, sizeof dir)) return false;
    workers_find_tools(dir, &w->tools);
    workers_find_namespaces(&w->tools);
    snprintf(why, size, "cannot make a folder for what is kept between starts");
    if (!own_folder(w) || !open_seals(w, why, size)) return false;
    cache_config cc = {.data_dir = w->s.data, .memory_bytes = 32 << 20, .redis_url = w->s.redis, .postgres_url = w->s.postgres};
    w->cache = cache_open(&cc, &e);
    if (!w->cache) snprintf(why, size, "%s", e.message);
    else seals_watch(w->seals, w->cache);
    jc.data_dir = w->s.data;
    w->jobs = w->cache ? jobs_open(&jc, why, size) : NULL;
    w->keeper = w->jobs ? keeper_open(w->jobs) : NULL;
    return w->keeper != NULL;
}

/* Shows itself every beat until a signal; then the slots end their jobs. */
static void attend(worker *w, sigset_t *set)
{
    pthread_t threads[SLOTS_MAX];
    int n = 0, beat = jobs_beat_ms(w->jobs);
    while (n < w->card.slots && pthread_create(&threads[n], NULL, slot, w) == 0) n++;
    struct timespec every = {beat / 1000, beat % 1000 * 1000000L};
    do {
        snprintf(w->card.state, sizeof w->card.state, "%s", brake_ms(w) ? "braked" : "working");
        w->card.done = atomic_load(&w->done);
        w->card.failed = atomic_load(&w->failed);
        jobs_worker_put(w->jobs, &w->card);
    } while (sigtimedwait(set, NULL, &every) < 0);
    atomic_store(&ending, true);
    say("draining", "%d slots", n);
    pthread_sigmask(SIG_UNBLOCK, set, NULL); /* a second signal ends it at once; its jobs are done by others when their leases lapse */
    strcpy(w->card.state, "draining");
    jobs_worker_put(w->jobs, &w->card);
    jobs_tell(w->jobs);
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
    jobs_worker_drop(w->jobs, w->card.name);
}

static bool usable(worker *w, int argc, char **argv)
{
    if (parse(argc, argv, &w->s) && find_kinds(w)) return true;
    fprintf(stderr, "usage: kiln-worker run|card --data DIR | --postgres URL [options]\n");
#define X(name, flag, kind, def, meaning) fprintf(stderr, "  %-14s %s [%s]\n", flag, meaning, def);
    SETTINGS(X)
#undef X
    return false;
}

int fleet_card(int argc, char **argv)
{
    static worker w;
    char why[400] = "cannot make a folder for the key", dir[512];
    if (!usable(&w, argc, argv)) return EX_USAGE;
    if (workers_exe_dir(dir, sizeof dir)) workers_find_tools(dir, &w.tools);
    name_it(&w);
    bool ok = own_folder(&w) && open_seals(&w, why, sizeof why);
    char *text = ok ? seals_card(w.seals) : NULL;
    if (text) puts(text);
    else fprintf(stderr, "kiln-worker: %s\n", why);
    free(text);
    seals_close(w.seals);
    return text ? EX_OK : EX_CANTCREAT;
}

int fleet_main(int argc, char **argv)
{
    static worker w;
    char why[400] = "";
    sigset_t set;
    if (!usable(&w, argc, argv)) return EX_USAGE;
    name_it(&w);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    w.measure_cpu = reserve_core(&w);
    bool ok = open_all(&w, why, sizeof why);
    if (ok) {
        describe(&w);
        say("ready", "%s: %s, %d slots, core %d for measuring, signs as %s, %s", w.card.name, w.card.words, w.card.slots, w.measure_cpu,
            seals_public(w.seals),
            *w.tools.bwrap ? "namespaces" : "no namespaces: bubblewrap is not here, or may not");
        attend(&w, &set);
        say("ended", "%lld done, %lld failed", (long long)atomic_load(&w.done), (long long)atomic_load(&w.failed));
    } else say("error", "%s", why);
    keeper_close(w.keeper);
    jobs_close(w.jobs);
    if (w.cache) cache_close(w.cache);
    seals_close(w.seals);
    return ok ? EX_OK : EX_UNAVAILABLE;
}
