/* A TCP proxy that hurts: usage: proxy LISTEN_PORT=HOST:PORT ...; commands on stdin, a line each: "ROUTE pass", "ROUTE delay MS", "ROUTE hole"
 * (takes connections and bytes, gives nothing on), "ROUTE refuse" (cuts and takes no more), "ROUTE cut" (resets what is open, then passes).
 * ROUTE: its number from 0. Says "ready" when it listens; ends at the end of stdin. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ROUTES = 16, CHUNK = 65536, LOOK_MS = 50 };
enum mode { PASS, DELAY, HOLE, REFUSE };
typedef struct route {
    int listener;
    struct sockaddr_in to;
    atomic_int mode, delay_ms;
    atomic_uint cuts; /* connections older than the last cut end */
} route;
typedef struct link { route *r; int fd; } link_;
static route routes[ROUTES];
static int nroutes;

static void rest(int ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL); }

static void reset(int fd)
{
    struct linger now = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(fd);
}

static int send_all(int fd, const char *p, ssize_t n)
{
    while (n > 0) {
        ssize_t k = send(fd, p, (size_t)n, MSG_NOSIGNAL);
        if (k <= 0) return 0;
        p += k;
        n -= k;
    }
    return 1;
}

/* One connection: both directions, until an end, a cut or a refusal. */
static void *carry(void *arg)
{
    link_ l = *(link_ *)arg;
    free(arg);
    unsigned cuts = atomic_load(&l.r->cuts);
    int one = 1, out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), open = 0;
    char *buffer = malloc(CHUNK);
    if (out >= 0 && buffer && connect(out, (struct sockaddr *)&l.r->to, sizeof l.r->to) == 0) open = 1;
    setsockopt(out, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(l.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct pollfd p[2] = {{l.fd, POLLIN, 0}, {out, POLLIN, 0}};
    while (open && atomic_load(&l.r->cuts) == cuts && atomic_load(&l.r->mode) != REFUSE) {
        if (atomic_load(&l.r->mode) == HOLE) {
            rest(LOOK_MS); /* neither read nor ended: bytes pile up, as behind a dead router */
            continue;
        }
        if (poll(p, 2, LOOK_MS) <= 0) continue;
        for (int i = 0; i < 2 && open; i++) {
            if (!p[i].revents) continue;
            ssize_t n = recv(p[i].fd, buffer, CHUNK, 0);
            if (n > 0 && atomic_load(&l.r->mode) == DELAY) rest(atomic_load(&l.r->delay_ms));
            open = n > 0 && send_all(p[1 - i].fd, buffer, n);
        }
    }
    reset(l.fd);
    if (out >= 0) reset(out);
    free(buffer);
    return NULL;
}

static void *accept_all(void *arg)
{
    route *r = arg;
    for (;;) {
        int fd = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) continue;
        link_ *l = malloc(sizeof *l);
        pthread_t t;
        if (!l || atomic_load(&r->mode) == REFUSE) {
            reset(fd);
            free(l);
            continue;
        }
        *l = (link_){r, fd};
        if (pthread_create(&t, NULL, carry, l) == 0) pthread_detach(t);
        else reset(fd), free(l);
    }
    return NULL;
}

static int open_route(route *r, const char *text)
{
    int port, to, one = 1;
    char host[64];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (sscanf(text, "%d=%63[^:]:%d", &port, host, &to) != 3) return 0;
    r->to = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)to)};
    if (inet_pton(AF_INET, host, &r->to.sin_addr) != 1) return 0;
    at.sin_port = htons((uint16_t)port);
    r->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(r->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    return bind(r->listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(r->listener, 256) == 0;
}

static void obey(const char *line)
{
    static const char *const names[] = {"pass", "delay", "hole", "refuse"};
    int which, ms = 0;
    char word[16];
    if (sscanf(line, "%d %15s %d", &which, word, &ms) < 2 || which < 0 || which >= nroutes) return;
    route *r = &routes[which];
    if (!strcmp(word, "cut")) atomic_fetch_add(&r->cuts, 1);
    atomic_store(&r->delay_ms, ms);
    for (int i = 0; i < 4; i++)
        if (!strcmp(word, names[i])) atomic_store(&r->mode, i);
    if (!strcmp(word, "cut")) atomic_store(&r->mode, PASS);
}

int main(int argc, char **argv)
{
    char line[128];
    pthread_t t;
    signal(SIGPIPE, SIG_IGN);
    for (int i = 1; i < argc && nroutes < ROUTES; i++, nroutes++)
        if (!open_route(&routes[nroutes], argv[i])) {
            fprintf(stderr, "proxy: cannot listen for %s\n", argv[i]);
            return 2;
        }
    for (int i = 0; i < nroutes; i++)
        if (pthread_create(&t, NULL, accept_all, &routes[i])) return 2;
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) obey(line);
    return 0;
}
