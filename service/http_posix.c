/* The HTTP side: libmicrohttpd with poll threads (its epoll mode loses requests), suspended connections, and a drain at the end. */
#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "service/service.h"

/* The library's response takes over the body and outlives the reply while it is being sent; until then the reply holds it. */
void service_reply_drop(service_reply *r)
{
    if (!r || atomic_fetch_sub(&r->refs, 1) != 1) return;
    struct MHD_Response *sent = atomic_load(&r->sent);
    if (sent)
        MHD_destroy_response(sent);
    else
        free(r->body);
    for (int i = 0; i < r->nheaders; i++) free(r->headers[i].value);
    free(r);
}

static struct MHD_Response *response_of(service_reply *r)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct MHD_Response *m = atomic_load(&r->sent);
    if (m) return m;
    pthread_mutex_lock(&lock);
    m = atomic_load(&r->sent);
    if (!m) m = MHD_create_response_from_buffer(r->n, r->body, MHD_RESPMEM_MUST_FREE);
    if (m && !atomic_load(&r->sent)) {
        for (int i = 0; i < r->nheaders; i++) MHD_add_response_header(m, r->headers[i].name, r->headers[i].value);
        atomic_store(&r->sent, m);
    }
    pthread_mutex_unlock(&lock);
    return m;
}

void service_suspend(service_call *c) { MHD_suspend_connection(c->connection); }

void service_resume(service_call *c) { MHD_resume_connection(c->connection); }

static enum MHD_Result send_reply(service_call *c, service_reply *r)
{
    struct MHD_Response *m = r ? response_of(r) : NULL;
    if (!m) {
        service_reply_drop(r);
        return MHD_NO;
    }
    service_count_request(c->app->metrics, c->route, r->status, service_now_ms() - c->began_ms);
    enum MHD_Result done = MHD_queue_response(c->connection, (unsigned)r->status, m);
    service_reply_drop(r);
    return done;
}

static const char *header(struct MHD_Connection *con, const char *name)
{
    const char *v = MHD_lookup_connection_value(con, MHD_HEADER_KIND, name);
    return v ? v : "";
}

static void *begin_uri(void *cls, const char *uri, struct MHD_Connection *con)
{
    service_call *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->app = cls;
    c->connection = con;
    c->uri = strdup(uri);
    return c;
}

/* What can be refused from the head of a request alone. */
static service_reply *judge_head(service_call *c, struct MHD_Connection *con, const char *method)
{
    service_reply *problem = NULL;
    size_t n = strcspn(c->uri, "?");
    const char *length = header(con, "Content-Length");
    bool always = !strcmp(c->uri, "/livez") || !strcmp(c->uri, "/readyz");
    c->query = c->uri + n + (c->uri[n] == '?');
    if (strlen(c->uri) > SERVICE_URI_BYTES)
        return service_problem_limit(414, "uri_bytes", SERVICE_URI_BYTES, "path and query are too long");
    if (!service_unescape(c->uri, n, c->path, sizeof c->path))
        return service_problem(400, "invalid-path", "the path cannot be decoded", NULL, NULL);
    c->route = service_route_find(method, c->path, c->param, sizeof c->param, &problem);
    if (!c->route) return problem;
    if (!atomic_load(&c->app->ready) && !always) return service_problem(503, "starting", "the service is starting", NULL, NULL);
    if (strspn(length, "0123456789") > 9 || atol(length) > SERVICE_BODY_BYTES)
        return service_problem_limit(413, "body_bytes", SERVICE_BODY_BYTES, "the body is too long");
    return NULL;
}

static enum MHD_Result begin(service_call *c, struct MHD_Connection *con, const char *method)
{
    c->started = true;
    c->began_ms = service_now_ms();
    snprintf(c->method, sizeof c->method, "%s", method);
    c->accept = header(con, "Accept");
    c->content_type = header(con, "Content-Type");
    c->if_none_match = header(con, "If-None-Match");
    c->prefer = header(con, "Prefer");
    c->cache_control = header(con, "Cache-Control");
    c->range = header(con, "Range");
    service_reply *problem = judge_head(c, con, method);
    return problem ? send_reply(c, problem) : MHD_YES;
}

/* Without a Content-Length the end is not known: what is over the limit is read and forgotten up to a bound, then the connection is closed.
 */
static enum MHD_Result upload(service_call *c, const char *data, size_t *n)
{
    size_t size = *n;
    *n = 0;
    c->seen += size;
    if (c->seen > 4 * (size_t)SERVICE_BODY_BYTES) return MHD_NO;
    if (c->seen > SERVICE_BODY_BYTES) return MHD_YES;
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

static enum MHD_Result dispatch(service_call *c)
{
    service_app *app = c->app;
    if (c->seen > SERVICE_BODY_BYTES)
        return send_reply(c, service_problem_limit(413, "body_bytes", SERVICE_BODY_BYTES, "the body is too long"));
    bool memo = c->route->handler == rt_compile && app->config.memo_mib && !*c->if_none_match && !*c->cache_control;
    uint64_t generation = 0;
    if (memo) {
        generation = cache_generation(app->cache) + atomic_load(&app->target_serial);
        service_reply *kept = service_memo_get(app->memo, c, generation);
        if (kept) {
            service_count(app->metrics, SERVICE_MEMO_HITS);
            return send_reply(c, kept);
        }
    }
    service_reply *r = c->route->handler(c);
    if (!r && c->job) return MHD_YES; /* suspended */
    if (!r) r = service_problem(503, "out-of-memory", "out of memory", NULL, NULL);
    if (memo && r && r->keep && response_of(r)) service_memo_put(app->memo, c, generation, r);
    return send_reply(c, r);
}

static enum MHD_Result handle(void *cls, struct MHD_Connection *con, const char *url, const char *method, const char *version,
                              const char *data, size_t *n, void **con_cls)
{
    service_call *c = *con_cls;
    (void)cls, (void)url, (void)version;
    if (!c || !c->uri) return MHD_NO;
    if (!c->started) return begin(c, con, method);
    if (*n) return upload(c, data, n);
    if (c->job) return c->waiting ? MHD_YES : send_reply(c, service_compile_resume(c));
    return dispatch(c);
}

static void ended(void *cls, struct MHD_Connection *con, void **con_cls, enum MHD_RequestTerminationCode why)
{
    service_call *c = *con_cls;
    (void)cls, (void)con, (void)why;
    *con_cls = NULL;
    if (!c) return;
    service_job_drop(c->app->jobs, c->job);
    service_ask_drop(c->ask);
    free(c->body);
    free(c->uri);
    free(c);
}

bool service_http_address(const char *listen, bool allow_public, void *sockaddr, size_t *len, char *why, size_t size)
{
    char host[80];
    const char *colon = strrchr(listen, ':');
    struct sockaddr_in *v4 = sockaddr;
    struct sockaddr_in6 *v6 = sockaddr;
    char *end;
    long port = colon ? strtol(colon + 1, &end, 10) : -1;
    if (!colon || end == colon + 1 || *end || port < 0 || port > 65535 || colon - listen > 70) {
        snprintf(why, size, "listen: \"%s\" is not ADDR:PORT", listen);
        return false;
    }
    bool six = *listen == '[' && colon[-1] == ']', loop;
    snprintf(host, sizeof host, "%.*s", (int)(colon - listen) - 2 * six, listen + six);
    memset(sockaddr, 0, sizeof(struct sockaddr_in6));
    if (six) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        *len = sizeof *v6;
    } else {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        *len = sizeof *v4;
    }
    if (!strcmp(host, "localhost")) snprintf(host, sizeof host, "127.0.0.1");
    if (inet_pton(six ? AF_INET6 : AF_INET, host, six ? (void *)&v6->sin6_addr : (void *)&v4->sin_addr) != 1) {
        snprintf(why, size, "listen: \"%s\" is not an address of this machine; numbers are right", host);
        return false;
    }
    loop = six ? IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) : ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    if (loop || allow_public) return true;
    snprintf(why, size,
             "listen: %s is not a loopback address; anyone who reaches it can compile here. --allow-public says that this is meant",
             listen);
    return false;
}

void *service_http_start(service_app *app, char *why, size_t size)
{
    struct sockaddr_storage at;
    size_t len;
    if (!service_http_address(app->config.listen, app->config.allow_public, &at, &len, why, size)) return NULL;
    unsigned flags = MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | (at.ss_family == AF_INET6 ? MHD_USE_IPv6 : 0);
    int pool = app->config.http_threads > 1 ? app->config.http_threads : 0;
    struct MHD_Daemon *d =
        MHD_start_daemon(flags, 0, NULL, NULL, handle, app, MHD_OPTION_SOCK_ADDR, &at, MHD_OPTION_URI_LOG_CALLBACK, begin_uri, app,
                         MHD_OPTION_NOTIFY_COMPLETED, ended, NULL, MHD_OPTION_CONNECTION_LIMIT, (unsigned)SERVICE_CONNECTIONS,
                         MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)SERVICE_CONNECTION_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                         (size_t)SERVICE_HEADER_BYTES, MHD_OPTION_THREAD_POOL_SIZE, (unsigned)pool, MHD_OPTION_END);
    if (!d) {
        snprintf(why, size, "cannot listen at %s: %s", app->config.listen, strerror(errno));
        return NULL;
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(d, MHD_DAEMON_INFO_BIND_PORT);
    service_log("info", "listening", "%.*s:%d", (int)(strrchr(app->config.listen, ':') - app->config.listen), app->config.listen,
                info ? info->port : 0);
    return d;
}

void service_http_quiesce(void *http)
{
    MHD_socket s = MHD_quiesce_daemon(http);
    if (s != MHD_INVALID_SOCKET) close(s);
}

void service_http_stop(void *http) { MHD_stop_daemon(http); }
