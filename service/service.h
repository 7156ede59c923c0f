/* What the files of service/ share: configuration, calls, replies, targets, jobs. Nothing outside service/ includes this. */
#ifndef KILN_SERVICE_H
#define KILN_SERVICE_H
#include <cjson/cJSON.h>
#include <stdatomic.h>
#include "cache/cache.h"
#include "kiln.h"
#include "workers/workers.h"

#define SERVICE_VERSION "0.1.0"
enum service_limit {
#define X(name, value, meaning) SERVICE_##name = value,
#include "service/limits.def"
#undef X
};

typedef char *service_kind_S;
typedef int service_kind_I;
typedef int service_kind_B;
typedef struct service_config {
#define X(name, kind, def, low, high, meaning) service_kind_##kind name;
#include "service/config.def"
#undef X
    bool check, help, version;
} service_config;
/* Order of weight: flag, variable, file, default. false: *why says what was wrong. */
bool service_config_load(service_config *c, int argc, char **argv, char *why, size_t size);
void service_config_free(service_config *c);
void service_config_help(void (*line)(const char *text));

enum service_coding { SERVICE_IDENTITY, SERVICE_GZIP, SERVICE_ZSTD };

/* ---- replies: counted, immutable once sent ---- */
typedef struct service_header {
    char name[24];
    char *value;
} service_header;
typedef struct service_reply {
    atomic_int refs;
    int status, nheaders;
    char *body; /* NULL: of a stream, or in `file` */
    size_t n;
    int file; /* a sealed file that has the body, of the library's form; 0: none */
    service_header headers[20];
    bool digest, ranges;  /* wants a Repr-Digest; parts of it may be asked for */
    bool keep;            /* may be kept by the memo while the cache does not change */
    _Atomic(void *) sent; /* the HTTP library's form of it, made on first use */
} service_reply;
service_reply *service_reply_new(int status, const char *media, char *body, size_t n); /* takes body (malloc); NULL when out of memory */
service_reply *service_reply_text(int status, const char *media, const char *text);
service_reply *service_reply_json(int status, cJSON *o); /* deletes o */
void service_reply_header(service_reply *r, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));
service_reply *service_reply_ref(service_reply *r);
void service_reply_drop(service_reply *r);
void service_reply_set(service_reply *r, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4))); /* replaces */
const char *service_reply_value(const service_reply *r, const char *name); /* of a header; NULL: none */
void service_reply_digest(service_reply *r); /* Repr-Digest over the body, once it has its final form */
const char *service_coding_text(enum service_coding c);
enum service_coding service_coding_of(const char *accept_encoding); /* the best that is made here: zstd, gzip, identity */
bool service_etag_matches(const char *header, const char *etag);     /* of If-None-Match, whatever the coding */
struct service_call;
service_reply *service_finish(struct service_call *c, service_reply *r); /* 304, coding, digest, range; r may become another */
/* s as UTF-8 without control characters: any other byte becomes '?'. out has room for size bytes, cut at a character. */
char *service_clean(const char *s, char *out, size_t size);
bool service_is_clean(const char *s); /* UTF-8 without control characters */
/* application/problem+json (RFC 9457) */
service_reply *service_problem(int http, const char *slug, const char *title, const char *detail, const char *hint);
service_reply *service_problem_diag(const kiln_diag *d);
service_reply *service_store_away(enum cache_status s); /* 507 when it has no room, else 503 */
service_reply *service_problem_json(int http, cJSON *o); /* deletes o, a whole problem */
service_reply *service_problem_limit(int http, const char *limit, long long value, const char *detail);

/* ---- who calls (auth_posix.c) ---- */
enum service_scope {
#define X(name, text, meaning) SERVICE_##name,
#include "service/scopes.def"
#undef X
    SERVICE_SCOPES
};
const char *service_scope_text(enum service_scope s);
/* What a tenant may have; -1: not said of it, the service's own setting counts; 0: no bound. */
typedef struct service_quota { int rate, compiles_per_day, store_mib, jobs; } service_quota;
typedef struct service_who {
    char tenant[64], key[24]; /* "": none */
    unsigned scopes;          /* 1 << service_scope */
    bool sees_all;            /* no visibility is looked at: a service without authentication, or an administrator */
    bool open;                /* what it makes is for everybody */
} service_who;
typedef struct service_auth service_auth;

/* ---- the service ---- */
typedef struct service_targets service_targets;
typedef struct service_jobs service_jobs;
typedef struct service_memo service_memo;
typedef struct service_metrics service_metrics;
typedef struct service_signer service_signer;
typedef struct service_stream service_stream;
typedef struct service_status service_status;
typedef struct service_fleet service_fleet;
typedef struct service_graphs service_graphs;
typedef struct service_app {
    service_config config;
    worker_tools tools;
    cache *cache;
    worker_pool *pool;
    service_targets *targets;
    service_jobs *jobs;
    service_fleet *fleet;
    service_memo *memo;
    service_metrics *metrics;
    service_graphs *graphs;
    service_auth *auth;
    service_signer *signer;
    service_stream *stream;
    service_status *status;
    atomic_bool ready, draining;
    atomic_ullong quarantine_serial; /* grows with every artifact or version found wrong */
    atomic_ullong target_serial; /* with the cache's generation: what prepared answers hang on */
    int64_t started_ms;
    double started; /* service_now_ms */
    int cpus;
} service_app;

typedef struct service_job service_job;
typedef struct service_ask service_ask;
struct service_route;
/* One request. Strings of headers are "" when absent. */
typedef struct service_call {
    service_app *app;
    const struct service_route *route;
    char *uri;         /* as received, owned */
    char path[512];    /* decoded, without query */
    const char *query; /* inside uri, not decoded */
    char param[256];   /* the {name} of the route */
    char method[12];
    const char *content_type, *accept, *if_none_match, *prefer, *cache_control, *range, *if_range, *if_match, *last_event, *traceparent;
    enum service_coding coding; /* that the client takes */
    service_who who;
    char limits[96], policy[64]; /* values of RateLimit and RateLimit-Policy; "": no limit */
    char *body;
    size_t n, cap, seen;
    void *connection;     /* of the HTTP library */
    service_reply *early; /* decided before the body was read */
    bool started, told, corked; /* told: past the library; corked: what it sends waits for the end */
    double began_ms;
    service_ask *ask; /* of a compile */
    service_job *job; /* waited for */
    bool collapsed, verified, timed_out;
    _Atomic bool waiting; /* cleared by who wakes it, after all else of the call */
    void (*woken)(struct service_call *c); /* of a call that the service makes itself: told instead of a connection, under the lock of the jobs */
    service_reply *(*resume)(struct service_call *c); /* answers after the wait */
    int64_t wait_until;
    struct service_call *next_waiter;
} service_call;
typedef service_reply *(*service_handler)(service_call *c); /* NULL: the call waits for c->job, see service_compile_resume */

typedef struct service_route {
    service_handler handler;
    const char *method, *path, *metric, *body, *answers, *summary;
    enum service_scope scope;
} service_route;
extern const service_route service_routes[];
extern const int service_nroutes;
/* Finds the route and fills param; NULL: *problem is a 404 or a 405 with Allow. */
const service_route *service_route_find(const char *method, const char *path, char *param, size_t size, service_reply **problem);
char *service_openapi(void); /* free() */

bool service_unescape(const char *p, size_t n, char *out, size_t size); /* %XX; false: malformed, NUL, or too long */
/* Value of a query member, decoded. 1: there, 0: absent, -1: malformed or twice. */
int service_query(const char *query, const char *name, char *out, size_t size);
/* The same of a whole number in decimal digits, into *out, which stays where the query has none; false: anything else, or out of least to most. */
bool service_query_whole(const char *query, const char *name, int least, int most, int *out);
double service_now_ms(void);
int64_t service_unix_ms(void);
void service_notify(const char *text); /* "READY=1" to systemd, when it started this */
void service_log_call(const service_call *c, int status); /* one line for a call that was slow, failed, or is traced */
void service_log(const char *level, const char *event, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- negotiation ---- */
enum service_form { SERVICE_JSON, SERVICE_C, SERVICE_CUDA, SERVICE_PTX, SERVICE_CUBIN, SERVICE_SO, SERVICE_ZIP, SERVICE_FORMS };
const char *service_form_media(enum service_form f);
const char *service_form_kind(enum service_form f); /* kind of artifact, "" for JSON and ZIP */
/* Best form of `have` (a bit a form) by quality, then by order of the header; -1: none. */
int service_negotiate(const char *accept, unsigned have);
/* Prefer: respond-async, and wait in milliseconds, a minute at most; -1: not said. */
typedef struct service_prefer { bool async; int wait_ms; } service_prefer;
service_prefer service_prefer_of(const char *header);
int64_t service_last_event(const char *header); /* Last-Event-ID; -1: none of ours */
/* Whether a media type header names `type`, whatever its parameters. */
bool service_media_is(const char *header, const char *type);

/* ---- bundle ---- */
typedef struct service_file {
    char name[40];
    const char *p;
    size_t n;
} service_file;
bool service_bundle(const service_file *files, int n, char **out, size_t *size); /* STORED, fixed times: same input, same bytes */

/* ---- targets ---- */
service_targets *service_targets_open(service_app *app, char *why, size_t size);
void service_targets_close(service_targets *t);
char *service_target_json(service_targets *t, const char *id, bool *builtin); /* "host" too; free(); NULL: none */
char *service_targets_list(service_targets *t, const worker_tools *tools);
enum service_put { SERVICE_PUT_NEW, SERVICE_PUT_SAME, SERVICE_PUT_BUILTIN, SERVICE_PUT_FULL, SERVICE_PUT_NO_ROOM, SERVICE_PUT_STORE };
enum service_put service_target_put(service_targets *t, cache *c, const char *id, kiln_bytes json);
bool service_target_id_ok(const char *id);
bool service_runs_here(const kiln_hw *hw); /* a CPU target all of whose features this host has */

/* ---- jobs: compiles under way and their results ---- */
enum service_state { SERVICE_QUEUED, SERVICE_RUNNING, SERVICE_SUCCEEDED, SERVICE_FAILED };
typedef struct service_times {
    double canon, lookup, construct, codegen, toolchain, verify;
} service_times;
struct service_job {
    service_app *app;
    int refs;
    char id[40], key[72];
    service_ask *ask;
    enum service_state state;
    char tenant[64]; /* of the one who asked first */
    bool followed; /* another process led, or leads */
    int answered;  /* times that one said it was built */
    int64_t again_ms; /* when that counts again: this process may not see yet what is in the store, which it leaves alone for a while after errors */
    bool cancelled; /* of one that failed: somebody wished so */
    bool settled, emulating; /* nothing more will be known about the kernel; an emulation is queued or runs */
    service_reply *problem;  /* of a failed job */
    service_times times;
    int64_t created_ms, finished_ms;
    int64_t deadline, ended; /* service_now_ms */
    service_call *waiters;
    service_job *next;
};
service_jobs *service_jobs_open(service_app *app);
void service_jobs_close(service_jobs *j);
/* Joins the live job of c->ask's key, or makes one (*fresh) which the caller must submit; c waits (suspended) until it is woken. NULL:
 * table full. */
service_job *service_jobs_join(service_jobs *j, service_call *c, bool *fresh);
void service_jobs_rename(service_jobs *j, service_job *job, const char *id); /* the fleet has one of that key already */
void service_jobs_running(service_jobs *j, service_job *job);
/* The kernel can be served, or cannot (problem, taken). settled: verification is over as well. Wakes whom it concerns. */
void service_jobs_done(service_jobs *j, service_job *job, service_reply *problem, bool settled);
service_job *service_jobs_find(service_jobs *j, const char *id); /* drop it */
/* How a job stands, taken at one moment; problem: a reference, or NULL. */
typedef struct service_standing { enum service_state state; bool settled, cancelled; int64_t finished_ms; service_reply *problem; } service_standing;
service_standing service_jobs_standing(service_jobs *j, const service_job *job);
void service_job_drop(service_jobs *j, service_job *job);
/* c waits for a job that has not ended, whose reference it takes; c->resume answers. false: it has ended. */
bool service_jobs_attach(service_jobs *j, service_call *c, service_job *job);
/* GET of a job that this process runs or ran; true: *reply is the answer, NULL: it waits. */
bool service_local_job(service_call *c, service_reply **reply);
bool service_jobs_live(service_jobs *j, const char *key); /* a compile of it is queued or runs here */
/* A job that nobody waits for, with two references: the table's, and the caller's, who runs it. NULL: one lives already, or the table is full. */
service_job *service_jobs_start(service_jobs *j, service_ask *ask);
void service_jobs_wake_all(service_jobs *j);
int service_jobs_count(service_jobs *j, enum service_state s);
/* Given by the HTTP side. */
void service_suspend(service_call *c);
void service_resume(service_call *c);

/* ---- compile flow ---- */
/* A request as understood: parsed program, resolved target, keys. Counted; read-only once made. */
struct service_ask {
    atomic_int refs;
    kiln_arena *arena;
    kiln_request *request;
    kiln_hw *hw;
    kiln_keys keys;
    char target[KILN_MAX_NAME_BYTES]; /* as asked */
    service_times times;
};
service_ask *service_ask_parse(service_call *c, service_reply **problem);
void service_ask_drop(service_ask *a);
service_reply *service_compile(service_call *c);        /* NULL: waits */
service_reply *service_compile_resume(service_call *c); /* after the wait */
/* Builds the kernel of ask on this thread; true: it can be served, else *problem (own) or NULL when another builds it and did not succeed. */
bool service_compile_now(service_app *app, service_ask *ask, service_reply **problem);
void service_pool_job(service_app *app, service_job *job); /* takes the pool's reference; refused: the job ends */
/* Steps that run on the pool. */
void service_compile_job(void *job);
void service_emulate_job(void *job);

/* ---- answers about a kernel ---- */
typedef struct service_answer {
    const service_ask *ask; /* NULL: asked by key */
    const char *cache_status;
    const service_times *times;
} service_answer;
service_reply *service_answer_kernel(service_call *c, const cache_record *r, const service_answer *how);
cJSON *service_kernel_summary(const cache_record *r);

/* ---- prepared answers ---- */
service_memo *service_memo_open(int64_t bytes);
void service_memo_close(service_memo *m);
service_reply *service_memo_get(service_memo *m, const service_call *c, uint64_t generation); /* counted */
void service_memo_put(service_memo *m, const service_call *c, uint64_t generation, service_reply *r);

/* ---- metrics ---- */
enum service_counter {
#define COUNTER(name, metric, labels, help) SERVICE_##name,
#include "service/metrics.def"
    SERVICE_COUNTERS
};
enum service_timer {
#define TIMER(name, metric, labels, help) SERVICE_##name,
#include "service/metrics.def"
    SERVICE_TIMERS
};
service_metrics *service_metrics_open(void);
void service_metrics_close(service_metrics *m);
const char *service_counter_text(enum service_counter k);
double service_counter_value(const service_metrics *m, enum service_counter k);
void service_count(service_metrics *m, enum service_counter k);
void service_observe(service_metrics *m, enum service_timer t, double value); /* seconds, or a ratio */
void service_count_request(service_metrics *m, const service_route *r, int status, double ms);
char *service_metrics_text(service_app *app, const service_who *who); /* free(); what is of other tenants is for those who see all */

/* ADDR:PORT that may be listened at; sockaddr: room of a sockaddr_storage. */
bool service_http_address(const char *listen, bool allow_public, void *sockaddr, size_t *len, char *why, size_t size);
void *service_http_start(service_app *app, char *why, size_t size); /* listens; NULL: *why */
void service_http_quiesce(void *http);                              /* takes no more connections */
void service_http_stop(void *http);

#define X(handler, method, path, metric, body, scope, answers, summary) service_reply *rt_##handler(service_call *c);
#include "service/routes.def"
#undef X
#endif
