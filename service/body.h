/* JSON bodies of requests. */
#ifndef KILN_BODY_H
#define KILN_BODY_H
#include "service/service.h"

cJSON *service_body_json(service_call *c, service_reply **problem); /* an object, or NULL with *problem */
service_reply *service_body_wrong(const char *pointer, const char *message, const char *hint);
/* The getters leave *problem alone when it is set already, so that they can be asked in a row. names end with NULL. */
bool service_body_only(const cJSON *o, const char *const *names, service_reply **problem);
/* absent NULL: must be there */
const char *service_body_text(const cJSON *o, const char *name, const char *absent, size_t most, service_reply **problem);
int64_t service_body_int(const cJSON *o, const char *name, int64_t absent, int64_t low, int64_t high, service_reply **problem);
#endif
