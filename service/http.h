/* The callbacks of libmicrohttpd, between the listener and the calls. */
#ifndef KILN_SERVICE_HTTP_H
#define KILN_SERVICE_HTTP_H
#include <microhttpd.h>
#include "service/service.h"

/* Threads that drive daemons made by `make` (MHD_USE_EPOLL, no listening socket, no thread of their own, http_loop_seen with `loop` as
 * MHD_OPTION_NOTIFY_CONNECTION); the socket `listens` becomes theirs. At most `connections` are open, the others wait to be accepted. NULL: nothing
 * runs, the socket stays the caller's. */
typedef struct http_loops http_loops;
typedef struct MHD_Daemon *(*http_make)(void *user, unsigned most, void *loop);
http_loops *http_loops_start(int n, int connections, int listens, http_make make, void *user);
void http_loop_seen(void *loop, struct MHD_Connection *con, void **context, enum MHD_ConnectionNotificationCode what);
void http_resume(struct MHD_Connection *con); /* of any thread: the connection's loop goes on with it */
void http_loops_quiesce(http_loops *h); /* closes the socket; what is open goes on */
void http_loops_stop(http_loops *h);

void *service_http_begin(void *app, const char *uri, struct MHD_Connection *con);
enum MHD_Result service_http_handle(void *cls, struct MHD_Connection *con, const char *url, const char *method, const char *version,
                                    const char *data, size_t *n, void **con_cls);
void service_http_ended(void *cls, struct MHD_Connection *con, void **con_cls, enum MHD_RequestTerminationCode why);
/* Whether the request's head leaves the library too little memory for the head of an answer. entries: headers and cookies; cookies: bytes of the
 * header of that name. */
bool http_cramped(struct MHD_Connection *con, int entries, size_t cookies);
/* A short one. ends: the caller ends the connection (MHD_NO); else the library goes on reading what comes. */
void http_send_raw(struct MHD_Connection *con, const service_reply *r, bool body, bool ends);
/* The library's form of a reply, made once; in_pages: a large one may become a file whose pages the kernel sends. The reply keeps it. */
struct MHD_Response *service_sent_of(service_reply *r, bool in_pages);
struct MHD_Response *service_sent_apart(service_reply *r); /* one more, for headers of its own; the caller destroys it */
/* A reply whose body is made while it is sent, until `read` answers -1; free is called with state at the end. */
service_reply *service_reply_stream(const char *media, MHD_ContentReaderCallback read, void *state, void (*free)(void *state));
#endif
