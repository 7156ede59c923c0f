/* Replies as the HTTP library sends them.
 *
 * A large reply that the memo keeps becomes a sealed file in memory: the kernel then sends the file's own pages (sendfile) to every client, where a
 * buffer is copied anew for each. With 128 clients of 24 KB that is 3 MB under way at a time, more than the caches of a core hold. */
#include <fcntl.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "service/http.h"

static atomic_int files; /* of all replies that live */

/* The library's response takes over the body, or the file, and outlives the reply while it is being sent; until then the reply holds it. */
void service_reply_drop(service_reply *r)
{
    if (!r || atomic_fetch_sub(&r->refs, 1) != 1) return;
    struct MHD_Response *sent = atomic_load(&r->sent);
    if (sent)
        MHD_destroy_response(sent);
    else
        free(r->body);
    if (r->file) atomic_fetch_sub(&files, 1);
    for (int i = 0; i < r->nheaders; i++) free(r->headers[i].value);
    free(r);
}

/* A descriptor of the reply's bytes, or -1. The library reads the file whatever becomes of the reply; sealed, nobody can change it. */
static int file_of(const service_reply *r)
{
    size_t at = 0;
    int fd = memfd_create("kiln-reply", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    for (ssize_t k; fd >= 0 && at < r->n; at += (size_t)k)
        if ((k = write(fd, r->body + at, r->n - at)) <= 0) break;
    if (fd >= 0 && at == r->n && !fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

static struct MHD_Response *response_of_file(service_reply *r)
{
    if (atomic_fetch_add(&files, 1) >= SERVICE_SENT_FILES) {
        atomic_fetch_sub(&files, 1);
        return NULL;
    }
    int fd = file_of(r);
    struct MHD_Response *m = fd >= 0 ? MHD_create_response_from_fd(r->n, fd) : NULL;
    if (!m) {
        if (fd >= 0) close(fd);
        atomic_fetch_sub(&files, 1);
        return NULL;
    }
    free(r->body);
    r->body = NULL;
    r->file = fd;
    return m;
}

static void add_headers(struct MHD_Response *m, const service_reply *r)
{
    for (int i = 0; i < r->nheaders; i++) MHD_add_response_header(m, r->headers[i].name, r->headers[i].value);
}

struct MHD_Response *service_sent_of(service_reply *r, bool in_pages)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct MHD_Response *m = atomic_load(&r->sent);
    if (m) return m;
    pthread_mutex_lock(&lock);
    m = atomic_load(&r->sent);
    if (!m) {
        if (in_pages && r->n >= SERVICE_SENT_FILE_FROM) m = response_of_file(r);
        if (!m) m = MHD_create_response_from_buffer(r->n, r->body, MHD_RESPMEM_MUST_FREE);
        if (m) add_headers(m, r);
        atomic_store(&r->sent, m);
    }
    pthread_mutex_unlock(&lock);
    return m;
}

static void drop_reply(void *reply) { service_reply_drop(reply); }

struct MHD_Response *service_sent_apart(service_reply *r)
{
    struct MHD_Response *m = NULL;
    if (r->file) {
        int fd = fcntl(r->file, F_DUPFD_CLOEXEC, 1);
        m = fd >= 0 ? MHD_create_response_from_fd(r->n, fd) : NULL;
        if (!m && fd >= 0) close(fd);
    } else {
        m = MHD_create_response_from_buffer_with_free_callback_cls(r->n, r->body, drop_reply, service_reply_ref(r));
        if (!m) service_reply_drop(r);
    }
    if (m) add_headers(m, r);
    return m;
}
