/* The loops that drive libmicrohttpd: one thread each, epoll inside of the library; and the thread that accepts for all of them.
 *
 * The library's own epoll thread (0.9.75) asks again, and blocks, whenever exactly 128 events were ready at once: 128 busy clients stall it. Its
 * poll thread looks at every connection at every turn and accepts one a turn: 10,000 clients need minutes. Here a loop with so many
 * connections waits by itself, and the library only takes what is ready; one with fewer may wait in the library, which saves a system call.
 * Who gives a loop a connection, or resumes one of its, writes to an eventfd in the library's set: edge-triggered, never read, without data,
 * which the library passes over. */
#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include "service/http.h"

enum { QUEUE = 64, PAUSE_MS = 5, FEW = 120, MANY = 32 };
typedef struct guest {
    int fd;
    socklen_t n;
    struct sockaddr_storage from;
} guest;
typedef struct loop {
    struct http_loops *all;
    struct MHD_Daemon *daemon;
    int set, wake; /* the library's epoll; the eventfd */
    pthread_t thread;
    bool runs;
    int peak; /* most connections since memory was last given back, which happens at a quarter of them, and again at a quarter of those */
    pthread_mutex_t lock;
    atomic_int open, nguests; /* connections it has, as of its last turn, and those it is given */
    guest guests[QUEUE];
} loop;
struct http_loops {
    int n, most, listens, quiet; /* most: connections of one loop; quiet: an eventfd that ends accepting */
    pthread_t door;
    bool accepts;
    atomic_bool ending;
    loop loops[];
};

static void wake(int fd)
{
    uint64_t one = 1;
    if (write(fd, &one, sizeof one) < 0) return; /* full after 2^64 times */
}

/* ---- a loop ---- */
static void admit_guests(loop *l)
{
    guest list[QUEUE];
    pthread_mutex_lock(&l->lock);
    int n = atomic_exchange(&l->nguests, 0);
    for (int i = 0; i < n; i++) list[i] = l->guests[i];
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < n; i++) /* closes the socket when it fails */
        MHD_add_connection(l->daemon, list[i].fd, (const struct sockaddr *)&list[i].from, list[i].n);
}

static void count(loop *l)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(l->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);
    if (info->num_connections == (unsigned)atomic_load(&l->open)) return;
    pthread_mutex_lock(&l->lock);
    atomic_store(&l->open, (int)info->num_connections + atomic_load(&l->nguests));
    pthread_mutex_unlock(&l->lock);
    int open = atomic_load(&l->open);
    if (open > l->peak) l->peak = open;
    if (l->peak < MANY || open > l->peak / 4) return;
    l->peak = open;
    malloc_trim(0);
}

static void wait_here(loop *l)
{
    MHD_UNSIGNED_LONG_LONG left = 0;
    bool bounded = MHD_get_timeout(l->daemon, &left) == MHD_YES;
    struct pollfd p = {l->set, POLLIN, 0};
    if (!bounded || left) poll(&p, 1, !bounded ? -1 : left > 60000 ? 60000 : (int)left);
    MHD_run(l->daemon);
}

static void *turn(void *arg)
{
    loop *l = arg;
    while (!atomic_load(&l->all->ending)) {
        if (atomic_load(&l->nguests)) admit_guests(l);
        if (atomic_load(&l->open) < FEW) MHD_run_wait(l->daemon, -1);
        else wait_here(l);
        count(l);
    }
    return NULL;
}

/* ---- the door ---- */
static loop *emptiest(http_loops *h)
{
    loop *best = NULL;
    for (int i = 0; i < h->n; i++) {
        loop *l = &h->loops[i];
        if (atomic_load(&l->nguests) == QUEUE || atomic_load(&l->open) >= h->most) continue;
        if (!best || atomic_load(&l->open) < atomic_load(&best->open)) best = l;
    }
    return best;
}

static void give(loop *l, const guest *g)
{
    pthread_mutex_lock(&l->lock);
    int n = atomic_load(&l->nguests);
    l->guests[n] = *g;
    atomic_store(&l->nguests, n + 1);
    atomic_fetch_add(&l->open, 1);
    pthread_mutex_unlock(&l->lock);
    if (!n) wake(l->wake);
}

/* False: there is no room, or no descriptor; not at once again. */
static bool accept_all(http_loops *h)
{
    for (loop *l; (l = emptiest(h));) {
        guest g = {.n = sizeof g.from};
        g.fd = accept4(h->listens, (struct sockaddr *)&g.from, &g.n, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (g.fd >= 0) give(l, &g);
        else if (errno != ECONNABORTED && errno != EINTR) return errno == EAGAIN;
    }
    return false;
}

static void *stand_at_door(void *arg)
{
    http_loops *h = arg;
    bool room = true;
    for (;;) {
        struct pollfd p[] = {{h->quiet, POLLIN, 0}, {room ? h->listens : -1, POLLIN, 0}};
        if (poll(p, 2, room ? -1 : PAUSE_MS) < 0) continue;
        if (p[0].revents) break;
        room = accept_all(h);
    }
    close(h->listens);
    h->listens = -1;
    return NULL;
}

/* ---- from outside ---- */
void http_loop_seen(void *cls, struct MHD_Connection *con, void **context, enum MHD_ConnectionNotificationCode what)
{
    (void)con;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) *context = cls;
}

/* The loop is asked for first: once resumed, the connection may end at any moment. */
void http_resume(struct MHD_Connection *con)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(con, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    const loop *l = info->socket_context;
    MHD_resume_connection(con);
    wake(l->wake);
}

static bool open_loop(http_loops *h, loop *l, http_make make, void *user)
{
    *l = (loop){.all = h, .wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    pthread_mutex_init(&l->lock, NULL);
    l->daemon = make(user, (unsigned)h->most, l);
    const union MHD_DaemonInfo *set = l->daemon ? MHD_get_daemon_info(l->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (!set || l->wake < 0) return false;
    l->set = set->epoll_fd;
    return !epoll_ctl(l->set, EPOLL_CTL_ADD, l->wake, &(struct epoll_event){.events = EPOLLIN | EPOLLET});
}

http_loops *http_loops_start(int n, int connections, int listens, http_make make, void *user)
{
    http_loops *h = calloc(1, sizeof *h + (size_t)n * sizeof *h->loops);
    if (!h) return NULL;
    h->most = (connections + n - 1) / n;
    h->quiet = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    bool ok = h->quiet >= 0;
    for (int i = 0; ok && i < n; i++) ok = open_loop(h, &h->loops[h->n++], make, user);
    for (int i = 0; ok && i < n; i++) ok = h->loops[i].runs = !pthread_create(&h->loops[i].thread, NULL, turn, &h->loops[i]);
    h->listens = listens;
    if (ok) ok = h->accepts = !pthread_create(&h->door, NULL, stand_at_door, h);
    if (ok) return h;
    http_loops_stop(h);
    return NULL;
}

void http_loops_quiesce(http_loops *h)
{
    if (!h || !h->accepts) return;
    wake(h->quiet);
    pthread_join(h->door, NULL);
    h->accepts = false;
}

void http_loops_stop(http_loops *h)
{
    if (!h) return;
    http_loops_quiesce(h);
    atomic_store(&h->ending, true);
    for (int i = 0; i < h->n; i++) wake(h->loops[i].wake);
    for (int i = 0; i < h->n; i++)
        if (h->loops[i].runs) pthread_join(h->loops[i].thread, NULL);
    for (int i = 0; i < h->n; i++) {
        loop *l = &h->loops[i];
        for (int k = 0; k < l->nguests; k++) close(l->guests[k].fd);
        if (l->daemon) MHD_stop_daemon(l->daemon);
        if (l->wake >= 0) close(l->wake);
        pthread_mutex_destroy(&l->lock);
    }
    if (h->quiet >= 0) close(h->quiet);
    free(h);
}
