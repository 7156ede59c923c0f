/* Answers written past the HTTP library, where it could give none: it builds the head of an answer in the connection's memory, and closes
 * without a word when the request has filled that; and it takes no answer while a body is coming in. The connection ends with such an answer. */
#include <errno.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "service/http.h"

enum { ENTRY = 64, ANSWER = 1536, DRAIN = 1 << 18 }; /* ENTRY: bytes the library takes to list a header; ANSWER: for the head of any answer of ours */

bool http_cramped(struct MHD_Connection *con, int entries, size_t cookies)
{
    const union MHD_ConnectionInfo *head = MHD_get_connection_info(con, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    size_t used = (head ? head->header_size : 0) + (size_t)entries * ENTRY + cookies;
    return used > SERVICE_CONNECTION_BYTES - ANSWER;
}

/* As much as goes at once: the socket does not block, and a short answer on a connection that has sent nothing yet fits its buffer. */
static void put(struct MHD_Connection *con, int fd, const char *p, size_t n)
{
    const union MHD_ConnectionInfo *tls = MHD_get_connection_info(con, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    for (ssize_t k; n; p += k, n -= (size_t)k) {
        k = tls ? gnutls_record_send(tls->tls_session, p, n) : send(fd, p, n, MSG_NOSIGNAL);
        if (k < 0 && !tls && errno == EINTR) k = 0;
        else if (k <= 0) return;
    }
}

/* What the client has sent and nobody read would make the system throw the answer away with the connection. */
static void drain(int fd)
{
    char buffer[16384];
    ssize_t k = 1;
    for (int all = 0; k > 0 && all < DRAIN; all += (int)k) k = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
}

void http_send_raw(struct MHD_Connection *con, const service_reply *r, bool body, bool ends)
{
    const union MHD_ConnectionInfo *at = MHD_get_connection_info(con, MHD_CONNECTION_INFO_CONNECTION_FD);
    char *head = NULL;
    if (!at || !r || !r->body) return;
    int fd = at->connect_fd;
    int n = asprintf(&head, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nCache-Control: no-store\r\nContent-Length: %zu\r\n"
                     "Connection: close\r\n\r\n%.*s", r->status, MHD_get_reason_phrase_for((unsigned)r->status),
                     service_reply_value(r, "Content-Type"), r->n, body ? (int)r->n : 0, r->body);
    if (n < 0) return;
    if (ends) drain(fd);
    put(con, fd, head, (size_t)n);
    shutdown(fd, SHUT_WR);
    if (ends) drain(fd);
    free(head);
}
