/* One call through libmicrohttpd: head, body, handler, wait, reply. */
#include <microhttpd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>
#include "service/auth.h"
#include "service/http.h"

enum {
    FORGET_MOST = 16 * SERVICE_FORGET_BYTES,
    PATIENCE_MS = 500 /* of a thread that many connections share; what takes longer is asked for again by the pool */
};

void service_suspend(service_call *c)
{
    if (!c->woken) MHD_suspend_connection(c->connection);
}

void service_resume(service_call *c)
{
    if (c->woken) c->woken(c);
    else http_resume(c->connection);
}

/* The same bytes with headers of this call alone: a reply may be shared, its headers are everyone's. */
static struct MHD_Response *with_limits(const service_call *c, service_reply *r)
{
    struct MHD_Response *m = service_sent_apart(r);
    if (!m) return NULL;
    MHD_add_response_header(m, "RateLimit", c->limits);
    MHD_add_response_header(m, "RateLimit-Policy", c->policy);
    return m;
}

/* The library sends the head of a file by itself; corked, head and pages leave as one. On a unix socket the option fails, and there is no need. */
static void cork(service_call *c, struct MHD_Connection *con, int on)
{
    const union MHD_ConnectionInfo *at = MHD_get_connection_info(con, MHD_CONNECTION_INFO_CONNECTION_FD);
    c->corked = at && !setsockopt(at->connect_fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on) && on;
}

static enum MHD_Result send_reply(service_call *c, service_reply *r)
{
    bool own = r && *c->limits && (r->body || r->file); /* kept ones too: their bytes live as long as they do */
    struct MHD_Response *m = !r ? NULL : own ? with_limits(c, r) : service_sent_of(r, false);
    if (!m) {
        service_reply_drop(r);
        return MHD_NO;
    }
    service_log_call(c, r->status);
    service_count_request(c->app->metrics, c->route, r->status, service_now_ms() - c->began_ms);
    if (r->file) cork(c, c->connection, 1);
    enum MHD_Result done = MHD_queue_response(c->connection, (unsigned)r->status, m);
    if (own) MHD_destroy_response(m);
    service_reply_drop(r);
    return done;
}

/* ---- the head of a request ---- */
typedef struct head {
    service_call *c;
    const char *authorization, *accept_encoding, *length, *coded, *expect;
    int entries;
    size_t cookies;
} head;
static const struct {
    const char *name;
    size_t n, at; /* at: of the pointer in service_call */
} headers[] = {
#define H(name, member) {name, sizeof name - 1, offsetof(service_call, member)}
    H("Accept", accept), H("Content-Type", content_type), H("If-None-Match", if_none_match), H("Prefer", prefer),
    H("Cache-Control", cache_control), H("Range", range), H("If-Range", if_range), H("If-Match", if_match),
    H("Last-Event-ID", last_event), H("traceparent", traceparent),
#undef H
};
enum { HEADERS = sizeof headers / sizeof *headers };

static const char **place(head *h, int i) { return (const char **)((char *)h->c + headers[i].at); }

static bool is(const char *name, size_t n, const char *other, size_t k)
{
    return n == k && (*name | 0x20) == (*other | 0x20) && !strncasecmp(name, other, n);
}

/* Of a header that comes twice, the first. */
static enum MHD_Result one_header(void *cls, enum MHD_ValueKind kind, const char *name, size_t n, const char *value, size_t k)
{
    head *h = cls;
    h->entries++;
    if (!value || kind != MHD_HEADER_KIND) return MHD_YES;
    if (is(name, n, "Cookie", 6)) h->cookies += k + 1;
    for (int i = 0; i < HEADERS; i++)
        if (is(name, n, headers[i].name, headers[i].n)) {
            if (!*place(h, i)) *place(h, i) = value;
            return MHD_YES;
        }
    const char **other = is(name, n, "Content-Length", 14) ? &h->length : is(name, n, "Accept-Encoding", 15) ? &h->accept_encoding :
                         is(name, n, "Authorization", 13) ? &h->authorization : is(name, n, "Transfer-Encoding", 17) ? &h->coded :
                         is(name, n, "Expect", 6) ? &h->expect : NULL;
    if (other && !*other) *other = value;
    return MHD_YES;
}

static head read_head(service_call *c, struct MHD_Connection *con)
{
    head h = {.c = c};
    MHD_get_connection_values_n(con, MHD_HEADER_KIND | MHD_COOKIE_KIND, one_header, &h);
    for (int i = 0; i < HEADERS; i++)
        if (!*place(&h, i)) *place(&h, i) = "";
    if (!h.authorization) h.authorization = "";
    if (!h.accept_encoding) h.accept_encoding = "";
    if (!h.length) h.length = "";
    if (!h.coded) h.coded = "";
    if (!h.expect) h.expect = "";
    return h;
}

/* Whether the caller is the user that the service runs as, or root: only a unix socket says so. */
static bool is_owner(struct MHD_Connection *con)
{
    const union MHD_ConnectionInfo *from = MHD_get_connection_info(con, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (from && from->client_addr && from->client_addr->sa_family != AF_UNIX && from->client_addr->sa_family != AF_UNSPEC) return false;
    const union MHD_ConnectionInfo *at = MHD_get_connection_info(con, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct sockaddr_storage own;
    struct ucred peer;
    socklen_t n = sizeof own, k = sizeof peer;
    if (!at || getsockname(at->connect_fd, (struct sockaddr *)&own, &n) || own.ss_family != AF_UNIX) return false;
    return !getsockopt(at->connect_fd, SOL_SOCKET, SO_PEERCRED, &peer, &k) && (peer.uid == geteuid() || peer.uid == 0);
}

/* Queries are read here, from a copy (service_query). The library would make a structure of every member, in the connection's memory; where
 * that ends it leaves the client without an answer until the idle timeout. So it sees an empty query: the bytes are its own buffer, before it
 * parses them. */
void *service_http_begin(void *cls, const char *uri, struct MHD_Connection *con)
{
    service_call *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->app = cls;
    c->connection = con;
    c->uri = strdup(uri);
    char *query = strchr((char *)(uintptr_t)uri, '?');
    if (query && query[1]) query[1] = 0;
    return c;
}

static size_t body_limit(const service_call *c)
{
    return c->route->handler == rt_import ? SERVICE_BUNDLE_BYTES : c->route->handler == rt_graphs ? SERVICE_MODEL_BYTES : SERVICE_BODY_BYTES;
}

static service_reply *too_long(const service_call *c)
{
    const char *limit = c->route->handler == rt_import ? "bundle_bytes" : c->route->handler == rt_graphs ? "model_bytes" : "body_bytes";
    static const char model[] = "the body is too long. A model's large weights may stay where they are: an initializer whose external data has "
                                "the location sha256:DIGEST is known by that name alone (docs/graphs.md, \"Models of gigabytes\"); `kiln compile` "
                                "and the Python client post such models";
    return service_problem_limit(413, limit, (long long)body_limit(c), c->route->handler == rt_graphs ? model : "the body is too long");
}

/* What can be refused from the head of a request alone. */
static service_reply *judge_head(service_call *c, struct MHD_Connection *con, const head *h, const char *method)
{
    service_reply *problem = NULL;
    const union MHD_ConnectionInfo *head = MHD_get_connection_info(con, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    size_t n = strcspn(c->uri, "?");
    const char *length = h->length;
    bool always = !strcmp(c->uri, "/livez") || !strcmp(c->uri, "/readyz");
    c->query = c->uri + n + (c->uri[n] == '?');
    if (strlen(c->uri) > SERVICE_URI_BYTES)
        return service_problem_limit(414, "uri_bytes", SERVICE_URI_BYTES, "path and query are too long");
    if (head && head->header_size > SERVICE_HEADER_BYTES)
        return service_problem_limit(431, "header_bytes", SERVICE_HEADER_BYTES, "the headers are too long");
    if (http_cramped(con, h->entries, h->cookies))
        return service_problem_limit(431, "connection_bytes", SERVICE_CONNECTION_BYTES, "the headers are too many");
    if (!service_unescape(c->uri, n, c->path, sizeof c->path))
        return service_problem(400, "invalid-path", "the path cannot be decoded", NULL, NULL);
    if (!service_is_clean(c->path))
        return service_problem(400, "invalid-path", "the path is no text in UTF-8", NULL, NULL);
    c->route = service_route_find(method, c->path, c->param, sizeof c->param, &problem);
    if (!c->route) return problem;
    if (c->app->auth) problem = service_auth_judge(c, h->authorization, is_owner(con));
    if (problem) return problem;
    if (!atomic_load(&c->app->ready) && !always) return service_problem(503, "starting", "the service is starting", NULL, NULL);
    if (strspn(length, "0123456789") > 9 || (size_t)atol(length) > body_limit(c)) return too_long(c);
    return NULL;
}

/* An answer that the library cannot give; the connection ends with it. */
static enum MHD_Result send_raw(service_call *c, service_reply *r)
{
    http_send_raw(c->connection, r, strcmp(c->method, "HEAD") != 0, !c->told);
    if (r) service_log_call(c, r->status);
    if (r) service_count_request(c->app->metrics, c->route, r->status, service_now_ms() - c->began_ms);
    service_reply_drop(r);
    return MHD_NO;
}

/* Whether a refused request has a body to wait for: closed while the client still sends, the connection would take the answer with it. Who
 * asks first (Expect) sends none; one that is longer than any we read is not waited for. */
static bool body_comes(const head *h)
{
    if (*h->expect) return false;
    return *h->coded || (strspn(h->length, "0123456789") <= 9 && atol(h->length) > 0 && atol(h->length) <= SERVICE_FORGET_BYTES);
}

static enum MHD_Result begin(service_call *c, struct MHD_Connection *con, const char *method)
{
    c->started = true;
    c->began_ms = service_now_ms();
    snprintf(c->method, sizeof c->method, "%s", method);
    head h = read_head(c, con);
    c->coding = service_coding_of(h.accept_encoding);
    service_reply *problem = judge_head(c, con, &h, method);
    if (problem && http_cramped(con, h.entries, h.cookies)) return send_raw(c, problem);
    if (!problem || !body_comes(&h)) return problem ? send_reply(c, problem) : MHD_YES;
    c->early = problem;
    return MHD_YES;
}

/* Without a Content-Length the end is not known: what is over the limit is read and forgotten up to a bound, then the connection is closed. */
static enum MHD_Result upload(service_call *c, const char *data, size_t *n)
{
    size_t size = *n, limit = c->early ? 0 : body_limit(c);
    *n = 0;
    c->seen += size;
    if (c->seen > limit + SERVICE_FORGET_BYTES && !c->told) { /* what comes until the client has read it is forgotten too */
        c->told = true;
        send_raw(c, c->early ? service_reply_ref(c->early) : too_long(c));
    }
    if (c->seen > limit) return c->seen > limit + FORGET_MOST ? MHD_NO : MHD_YES;
    if (c->n + size > c->cap) {
        size_t cap = (c->n + size) * 2;
        char *p = realloc(c->body, cap);
        if (!p) return MHD_NO;
        c->body = p;
        c->cap = cap;
    }
    memcpy(c->body + c->n, data, size);
    c->n += size;
    return MHD_YES;
}

/* Answers of compiles hang on the state of the cache; bytes of an artifact are what they are, until something is quarantined. */
static bool prepared(const service_call *c, uint64_t *generation)
{
    const service_app *app = c->app;
    bool blob = c->route->handler == rt_blob, get = !strcmp(c->method, "GET");
    if (!atomic_load(&app->ready) || !app->config.memo_mib || *c->if_none_match || *c->cache_control || *c->range) return false;
    *generation = blob ? atomic_load(&app->quarantine_serial) : cache_generation(app->cache) + atomic_load(&app->target_serial);
    return c->route->handler == rt_compile || (get && (blob || c->route->handler == rt_kernel));
}

static enum MHD_Result dispatch(service_call *c)
{
    service_app *app = c->app;
    if (c->told) return MHD_NO;
    if (c->early) return send_reply(c, service_reply_ref(c->early));
    if (c->seen > body_limit(c)) return send_reply(c, too_long(c));
    uint64_t generation = 0;
    bool memo = prepared(c, &generation);
    if (memo) {
        service_reply *kept = service_memo_get(app->memo, c, generation);
        if (kept) {
            service_count(app->metrics, SERVICE_MEMO_HITS);
            return send_reply(c, kept);
        }
    }
    service_reply *r = c->route->handler(c);
    if (!r && (c->job || c->resume)) return MHD_YES; /* suspended */
    if (!r) r = service_problem(503, "out-of-memory", "out of memory", NULL, NULL);
    r = service_finish(c, r);
    if (memo && r && r->keep && service_sent_of(r, !*app->config.tls_cert)) service_memo_put(app->memo, c, generation, r);
    return send_reply(c, r);
}

static enum MHD_Result woken(service_call *c)
{
    if (c->waiting) return MHD_YES;
    service_reply *r = c->resume ? c->resume(c) : service_compile_resume(c);
    if (!r && c->resume) return MHD_YES; /* it waits again, and may have been woken already */
    return send_reply(c, service_finish(c, r));
}

enum MHD_Result service_http_handle(void *cls, struct MHD_Connection *con, const char *url, const char *method, const char *version,
                              const char *data, size_t *n, void **con_cls)
{
    service_call *c = *con_cls;
    (void)cls, (void)url, (void)version;
    cache_patience(PATIENCE_MS);
    if (!c || !c->uri) return MHD_NO;
    if (!c->started) return begin(c, con, method);
    if (*n) return upload(c, data, n);
    if (c->job || c->resume) return woken(c);
    return dispatch(c);
}

void service_http_ended(void *cls, struct MHD_Connection *con, void **con_cls, enum MHD_RequestTerminationCode why)
{
    service_call *c = *con_cls;
    (void)cls, (void)why;
    *con_cls = NULL;
    if (!c) return;
    if (c->corked) cork(c, con, 0);
    service_job_drop(c->app->jobs, c->job);
    service_reply_drop(c->early);
    service_ask_drop(c->ask);
    free(c->body);
    free(c->uri);
    free(c);
}

service_reply *service_reply_stream(const char *media, MHD_ContentReaderCallback read, void *state, void (*release)(void *state))
{
    service_reply *r = calloc(1, sizeof *r);
    struct MHD_Response *m = r ? MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, read, state, release) : NULL;
    if (!m) {
        release(state);
        free(r);
        return NULL;
    }
    atomic_init(&r->refs, 1);
    r->status = 200;
    MHD_add_response_header(m, "Content-Type", media);
    MHD_add_response_header(m, "Cache-Control", "no-store");
    atomic_store(&r->sent, m);
    return r;
}
