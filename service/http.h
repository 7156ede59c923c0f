/* The callbacks of libmicrohttpd, between the listener and the calls. */
#ifndef KILN_SERVICE_HTTP_H
#define KILN_SERVICE_HTTP_H
#include <microhttpd.h>
#include "service/service.h"

void *service_http_begin(void *app, const char *uri, struct MHD_Connection *con);
enum MHD_Result service_http_handle(void *cls, struct MHD_Connection *con, const char *url, const char *method, const char *version,
                                    const char *data, size_t *n, void **con_cls);
void service_http_ended(void *cls, struct MHD_Connection *con, void **con_cls, enum MHD_RequestTerminationCode why);
/* A reply whose body is made while it is sent, until `read` answers -1; free is called with state at the end. */
service_reply *service_reply_stream(const char *media, MHD_ContentReaderCallback read, void *state, void (*free)(void *state));
#endif
