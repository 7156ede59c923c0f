/* The loops that drive libmicrohttpd: one thread each, epoll inside of the library, waiting and accepting outside of it.
 *
 * The library's own epoll thread (0.9.75) asks again, and blocks, whenever exactly 128 events were ready at once: 128 busy clients stall it. Its
 * poll thread looks at every connection at every turn and accepts one a turn: 10,000 clients need minutes. Here the wait is ours, and
 * MHD_run() only takes what is ready, without blocking; who resumes a connection wakes its loop. The first loop accepts for all and gives
 * each connection to the loop that has the fewest. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include "service/http.h"

enum { BATCH = 64, PAUSE_MS = 20, LONGEST_MS = 60000 };
typedef struct guest {
    int fd;
    socklen_t n;
    struct sockaddr_storage from;
} guest;
typedef struct loop {
    struct http_loops *all;
    struct MHD_Daemon *daemon;
    int set, wake; /* the library's epoll, an eventfd of ours */
    pthread_t thread;
    bool runs;
    atomic_int open; /* connections it has, as of its last turn, and those it is given */
    pthread_mutex_t lock;
    int nguests;
    guest guests[BATCH];
} loop;
struct http_loops {
    int n, most, listens; /* most: connections of one loop */
    atomic_bool quiet, ending;
    bool pause; /* no descriptor is left: not asked again before PAUSE_MS */
    loop loops[];
};

static void wake(loop *l)
{
    uint64_t one = 1;
    if (write(l->wake, &one, sizeof one) < 0) return; /* full: it is awake */
}

static void admit(loop *l, const guest *g)
{
    MHD_add_connection(l->daemon, g->fd, (const struct sockaddr *)&g->from, g->n); /* closes the socket when it fails */
}

static void admit_guests(loop *l)
{
    guest list[BATCH];
    uint64_t count;
    if (read(l->wake, &count, sizeof count) < 0) return;
    pthread_mutex_lock(&l->lock);
    int n = l->nguests;
    for (int i = 0; i < n; i++) list[i] = l->guests[i];
    l->nguests = 0;
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < n; i++) admit(l, &list[i]);
}

static bool give(loop *l, const guest *g)
{
    pthread_mutex_lock(&l->lock);
    bool room = l->nguests < BATCH;
    if (room) l->guests[l->nguests++] = *g;
    pthread_mutex_unlock(&l->lock);
    if (room) wake(l);
    return room;
}

static loop *emptiest(http_loops *h)
{
    loop *best = h->loops;
    for (int i = 1; i < h->n; i++)
        if (atomic_load(&h->loops[i].open) < atomic_load(&best->open)) best = &h->loops[i];
    return atomic_load(&best->open) < h->most ? best : NULL;
}

static void accept_some(http_loops *h)
{
    for (int i = 0; i < BATCH; i++) {
        loop *l = emptiest(h);
        guest g = {.n = sizeof g.from};
        g.fd = l ? accept4(h->listens, (struct sockaddr *)&g.from, &g.n, SOCK_NONBLOCK | SOCK_CLOEXEC) : -1;
        if (g.fd < 0) {
            h->pause = l && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM);
            if (l && (errno == ECONNABORTED || errno == EINTR)) continue;
            return;
        }
        atomic_fetch_add(&l->open, 1);
        if (l == h->loops || !give(l, &g)) admit(h->loops, &g);
    }
}

/* How long the library may be left alone, -1: for ever. */
static int rest_of(loop *l, bool blocked)
{
    MHD_UNSIGNED_LONG_LONG left = 0;
    int ms = MHD_get_timeout(l->daemon, &left) != MHD_YES ? -1 : left > LONGEST_MS ? LONGEST_MS : (int)left;
    return blocked && (ms < 0 || ms > PAUSE_MS) ? PAUSE_MS : ms;
}

static void *turn(void *arg)
{
    loop *l = arg;
    http_loops *h = l->all;
    bool first = l == h->loops;
    while (!atomic_load(&h->ending)) {
        if (first && h->listens >= 0 && atomic_load(&h->quiet)) {
            close(h->listens);
            h->listens = -1;
        }
        bool door = first && h->listens >= 0, blocked = door && (!emptiest(h) || h->pause);
        struct pollfd p[] = {{l->set, POLLIN, 0}, {l->wake, POLLIN, 0}, {door && !blocked ? h->listens : -1, POLLIN, 0}};
        if (first) h->pause = false;
        if (poll(p, 3, rest_of(l, blocked)) < 0) continue;
        if (p[1].revents) admit_guests(l);
        if (p[2].revents) accept_some(h);
        MHD_run(l->daemon);
        const union MHD_DaemonInfo *count = MHD_get_daemon_info(l->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);
        pthread_mutex_lock(&l->lock);
        atomic_store(&l->open, (int)count->num_connections + l->nguests);
        pthread_mutex_unlock(&l->lock);
    }
    return NULL;
}

void http_loop_seen(void *cls, struct MHD_Connection *con, void **context, enum MHD_ConnectionNotificationCode what)
{
    (void)con;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) *context = cls;
}

/* The loop is asked for first: once resumed, the connection may end at any moment. */
void http_resume(struct MHD_Connection *con)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(con, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    loop *l = info->socket_context;
    MHD_resume_connection(con);
    wake(l);
}

http_loops *http_loops_start(int n, int connections, int listens, http_make make, void *user)
{
    http_loops *h = calloc(1, sizeof *h + (size_t)n * sizeof *h->loops);
    bool ok = h != NULL;
    if (!h) return NULL;
    h->listens = listens;
    h->most = (connections + n - 1) / n;
    for (int i = 0; ok && i < n; i++) {
        loop *l = &h->loops[h->n++];
        *l = (loop){.all = h, .wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
        l->daemon = make(user, (unsigned)h->most, l);
        pthread_mutex_init(&l->lock, NULL);
        const union MHD_DaemonInfo *set = l->daemon ? MHD_get_daemon_info(l->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
        ok = set && l->wake >= 0;
        if (ok) l->set = set->epoll_fd;
    }
    for (int i = 0; ok && i < n; i++) ok = h->loops[i].runs = !pthread_create(&h->loops[i].thread, NULL, turn, &h->loops[i]);
    if (ok) return h;
    h->listens = -1; /* the caller's still */
    http_loops_stop(h);
    return NULL;
}

void http_loops_quiesce(http_loops *h)
{
    if (!h) return;
    atomic_store(&h->quiet, true);
    wake(h->loops);
}

void http_loops_stop(http_loops *h)
{
    if (!h) return;
    atomic_store(&h->ending, true);
    for (int i = 0; i < h->n; i++) wake(&h->loops[i]);
    for (int i = 0; i < h->n; i++)
        if (h->loops[i].runs) pthread_join(h->loops[i].thread, NULL);
    for (int i = 0; i < h->n; i++) {
        loop *l = &h->loops[i];
        for (int k = 0; k < l->nguests; k++) close(l->guests[k].fd);
        if (l->daemon) MHD_stop_daemon(l->daemon);
        if (l->wake >= 0) close(l->wake);
        pthread_mutex_destroy(&l->lock);
    }
    if (h->listens >= 0) close(h->listens);
    free(h);
}
