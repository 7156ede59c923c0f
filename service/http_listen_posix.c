/* Listening: addresses, TLS, the unix socket, and the end. libmicrohttpd runs with poll threads: its epoll mode loses requests. */
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
#include <unistd.h>
#include "service/http.h"

typedef struct http {
    struct MHD_Daemon *tcp, *local;
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

/* As many descriptors as connections need, where the system lets us. */
static void raise_files(int connections)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l)) return;
    rlim_t want = (rlim_t)connections + 512;
    if (l.rlim_cur >= want) return;
    l.rlim_cur = l.rlim_max == RLIM_INFINITY || l.rlim_max >= want ? want : l.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &l) || l.rlim_cur < want)
        service_log("warning", "few-files", "%llu files at a time", (unsigned long long)l.rlim_cur);
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
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool taken = probe >= 0 && !connect(probe, (struct sockaddr *)&at, sizeof at);
    if (probe >= 0) close(probe);
    if (!taken) unlink(path);
    mode_t mask = umask(0177);
    bool ok = !taken && s >= 0 && !bind(s, (struct sockaddr *)&at, sizeof at) && !listen(s, 128);
    umask(mask);
    if (ok) return s;
    snprintf(why, size, "cannot listen at %s: %s", path, taken ? "another service answers there" : strerror(errno));
    if (s >= 0) close(s);
    return -1;
}

static struct MHD_Daemon *start(service_app *app, const struct sockaddr_storage *at, int fd, const http *h)
{
    const service_config *cfg = &app->config;
    int threads = cfg->http_threads > 1 && at ? cfg->http_threads : 0, n = 0;
    unsigned flags = MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | (at && at->ss_family == AF_INET6 ? MHD_USE_IPv6 : 0);
    struct MHD_OptionItem o[16];
    o[n++] = (struct MHD_OptionItem){MHD_OPTION_CONNECTION_LIMIT, cfg->connections, NULL};
    o[n++] = (struct MHD_OptionItem){MHD_OPTION_CONNECTION_TIMEOUT, cfg->idle_seconds, NULL};
    o[n++] = (struct MHD_OptionItem){MHD_OPTION_CONNECTION_MEMORY_LIMIT, SERVICE_HEADER_BYTES + SERVICE_HEADER_BYTES / 2, NULL};
    o[n++] = (struct MHD_OptionItem){MHD_OPTION_LISTEN_BACKLOG_SIZE, 1024, NULL};
    if (threads) o[n++] = (struct MHD_OptionItem){MHD_OPTION_THREAD_POOL_SIZE, threads, NULL};
    if (at)
        o[n++] = (struct MHD_OptionItem){MHD_OPTION_SOCK_ADDR, 0, (void *)(uintptr_t)at};
    else
        o[n++] = (struct MHD_OptionItem){MHD_OPTION_LISTEN_SOCKET, fd, NULL};
    if (at && h->cert) {
        flags |= MHD_USE_TLS;
        o[n++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_CERT, 0, h->cert};
        o[n++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_KEY, 0, h->key};
    }
    o[n] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
    return MHD_start_daemon(flags, 0, NULL, NULL, service_http_handle, app, MHD_OPTION_URI_LOG_CALLBACK, service_http_begin, app,
                            MHD_OPTION_NOTIFY_COMPLETED, service_http_ended, NULL, MHD_OPTION_ARRAY, o, MHD_OPTION_END);
}

static bool start_local(service_app *app, http *h, char *why, size_t size)
{
    if (!strcmp(app->config.socket, "none")) return true;
    int fd = listen_local(app->config.socket, why, size);
    if (fd < 0) return false;
    snprintf(h->path, sizeof h->path, "%s", app->config.socket);
    h->local = start(app, NULL, fd, h);
    if (!h->local) close(fd);
    return h->local != NULL;
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
    raise_files(cfg->connections);
    bool ok = true;
    if (*cfg->tls_cert) ok = (h->cert = read_file(cfg->tls_cert, why, size)) && (h->key = read_file(cfg->tls_key, why, size));
    if (ok && !(h->tcp = start(app, &at, -1, h))) {
        ok = false;
        snprintf(why, size, "cannot listen at %s: %s%s", cfg->listen, strerror(errno), h->cert ? "; or the certificate does not fit its key" : "");
    }
    if (!ok || !start_local(app, h, why, size)) {
        service_http_stop(h);
        return NULL;
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->tcp, MHD_DAEMON_INFO_BIND_PORT);
    service_log("info", "listening", "%.*s:%d", (int)(strrchr(cfg->listen, ':') - cfg->listen), cfg->listen, info ? info->port : 0);
    if (h->local) service_log("info", "listening", "%s", h->path);
    return h;
}

void service_http_quiesce(void *server)
{
    http *h = server;
    MHD_socket s = h->tcp ? MHD_quiesce_daemon(h->tcp) : MHD_INVALID_SOCKET, t = h->local ? MHD_quiesce_daemon(h->local) : MHD_INVALID_SOCKET;
    if (s != MHD_INVALID_SOCKET) close(s);
    if (t != MHD_INVALID_SOCKET) close(t);
}

void service_http_stop(void *server)
{
    http *h = server;
    if (h->tcp) MHD_stop_daemon(h->tcp);
    if (h->local) MHD_stop_daemon(h->local);
    if (*h->path) unlink(h->path);
    free(h->cert);
    free(h->key);
    free(h);
}
