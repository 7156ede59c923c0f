/* Listening: addresses, TLS, the unix socket, and the end. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "service/http.h"

typedef struct http {
    service_app *app;
    http_loops *tcp, *local;
    char path[108], *cert, *key;
} http;

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
             "listen: %s is not a loopback address; anyone who reaches it could compile here. --auth asks everyone for a key; --allow-public "
             "says that open doors are meant",
             listen);
    return false;
}

static char *read_file(const char *path, char *why, size_t size)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = fopen(path, "r");
    if (!f || getdelim(&text, &n, 0, f) <= 0) {
        snprintf(why, size, "cannot read %.300s: %s", path, strerror(errno));
        free(text);
        text = NULL;
    }
    if (f) fclose(f);
    return text;
}

/* As many descriptors as connections and prepared answers need, where the system lets us. */
static void raise_files(int connections)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l)) return;
    rlim_t want = (rlim_t)connections + SERVICE_SENT_FILES + 512;
    if (l.rlim_cur >= want) return;
    l.rlim_cur = l.rlim_max == RLIM_INFINITY || l.rlim_max >= want ? want : l.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &l) || l.rlim_cur < want)
        service_log("warning", "few-files", "%llu files at a time", (unsigned long long)l.rlim_cur);
}

/* Of a service that was killed, a child that had not yet become another program may hold the sockets a moment longer: an address
 * in use is asked for again, a second in all, before it counts as another service's. */
enum { LISTEN_TRIES = 50, LISTEN_PAUSE_NS = 20000000 };

static bool again(int tries)
{
    return tries < LISTEN_TRIES && !nanosleep(&(struct timespec){.tv_nsec = LISTEN_PAUSE_NS}, NULL);
}

/* Does somebody listen there? A queue that is full says so too, at once. */
static bool answers(const struct sockaddr_un *at)
{
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool taken = probe >= 0 && (!connect(probe, (const struct sockaddr *)at, sizeof *at) || errno == EAGAIN);
    if (probe >= 0) close(probe);
    return taken;
}

/* A socket file that nobody answers at is one of a process that was killed. */
static int listen_local(const char *path, char *why, size_t size)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof at.sun_path) {
        snprintf(why, size, "socket: the path has more than %zu bytes", sizeof at.sun_path - 1);
        return -1;
    }
    memcpy(at.sun_path, path, strlen(path));
    bool taken = answers(&at);
    for (int i = 0; taken && again(i); i++) taken = answers(&at);
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (!taken) unlink(path);
    mode_t mask = umask(0177);
    bool ok = !taken && s >= 0 && !bind(s, (struct sockaddr *)&at, sizeof at) && !listen(s, 128);
    umask(mask);
    if (ok) return s;
    snprintf(why, size, "cannot listen at %s: %s", path, taken ? "another service answers there" : strerror(errno));
    if (s >= 0) close(s);
    return -1;
}

/* main ignores SIGPIPE; unless the library is told so, it sends no files by sendfile. */
static struct MHD_Daemon *make(const http *h, unsigned most, void *loop, bool tls)
{
    struct MHD_OptionItem keys[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, h->cert}, {MHD_OPTION_HTTPS_MEM_KEY, 0, h->key}, {MHD_OPTION_END, 0, NULL}};
    return MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME | (tls ? MHD_USE_TLS : 0), 0, NULL, NULL,
                            service_http_handle, h->app, MHD_OPTION_URI_LOG_CALLBACK, service_http_begin, h->app,
                            MHD_OPTION_NOTIFY_COMPLETED, service_http_ended, NULL, MHD_OPTION_NOTIFY_CONNECTION, http_loop_seen, loop,
                            MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_CONNECTION_LIMIT, most,
                            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)h->app->config.idle_seconds,
                            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)SERVICE_CONNECTION_BYTES, MHD_OPTION_ARRAY, tls ? keys : keys + 2,
                            MHD_OPTION_END);
}

static struct MHD_Daemon *make_local(void *user, unsigned most, void *loop) { return make(user, most, loop, false); }
static struct MHD_Daemon *make_tcp(void *user, unsigned most, void *loop) { return make(user, most, loop, ((const http *)user)->cert != NULL); }

static bool start_local(http *h, char *why, size_t size)
{
    const service_config *cfg = &h->app->config;
    if (!strcmp(cfg->socket, "none")) return true;
    int fd = listen_local(cfg->socket, why, size);
    if (fd < 0) return false;
    snprintf(h->path, sizeof h->path, "%s", cfg->socket);
    h->local = http_loops_start(1, cfg->connections, fd, make_local, h);
    if (!h->local) close(fd);
    return h->local != NULL;
}

/* A socket that listens at the address; *port: the one it got. */
static int listen_tcp(const struct sockaddr_storage *at, socklen_t n, int *port)
{
    struct sockaddr_storage own = *at;
    socklen_t k = sizeof own;
    int one = 1, fd = socket(at->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool ok = fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) &&
              (at->ss_family != AF_INET6 || !setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one)) &&
              !bind(fd, (const struct sockaddr *)at, n) && !listen(fd, 1024) && !getsockname(fd, (struct sockaddr *)&own, &k);
    *port = ntohs(own.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&own)->sin6_port : ((struct sockaddr_in *)&own)->sin_port);
    if (ok) return fd;
    int failed = errno;
    if (fd >= 0) close(fd);
    errno = failed;
    return -1;
}

static bool start_tcp(http *h, const struct sockaddr_storage *at, socklen_t n, char *why, size_t size)
{
    const service_config *cfg = &h->app->config;
    int port, fd = listen_tcp(at, n, &port);
    for (int i = 0; fd < 0 && errno == EADDRINUSE && again(i); i++) fd = listen_tcp(at, n, &port);
    int threads = cfg->http_threads ? cfg->http_threads : (h->app->cpus + 1) / 2;
    if (fd < 0) snprintf(why, size, "cannot listen at %s: %s", cfg->listen, strerror(errno));
    if (fd < 0) return false;
    h->tcp = http_loops_start(threads < 16 || cfg->http_threads ? threads : 16, cfg->connections, fd, make_tcp, h);
    if (!h->tcp) snprintf(why, size, "cannot serve at %s: %s", cfg->listen, h->cert ? "the certificate does not fit its key" : strerror(errno));
    if (!h->tcp) close(fd);
    else service_log("info", "listening", "%.*s:%d", (int)(strrchr(cfg->listen, ':') - cfg->listen), cfg->listen, port);
    return h->tcp != NULL;
}

void *service_http_start(service_app *app, char *why, size_t size)
{
    struct sockaddr_storage at;
    size_t len;
    const service_config *cfg = &app->config;
    http *h = calloc(1, sizeof *h);
    if (!h || !service_http_address(cfg->listen, cfg->allow_public || cfg->auth, &at, &len, why, size)) {
        free(h);
        return NULL;
    }
    h->app = app;
    raise_files(cfg->connections);
    bool ok = !*cfg->tls_cert || ((h->cert = read_file(cfg->tls_cert, why, size)) && (h->key = read_file(cfg->tls_key, why, size)));
    if (!ok || !start_tcp(h, &at, (socklen_t)len, why, size) || !start_local(h, why, size)) {
        service_http_stop(h);
        return NULL;
    }
    if (h->local) service_log("info", "listening", "%s", h->path);
    return h;
}

void service_http_quiesce(void *server)
{
    http *h = server;
    http_loops_quiesce(h->tcp);
    http_loops_quiesce(h->local);
}

void service_http_stop(void *server)
{
    http *h = server;
    http_loops_stop(h->tcp);
    http_loops_stop(h->local);
    if (*h->path) unlink(h->path);
    free(h->cert);
    free(h->key);
    free(h);
}
