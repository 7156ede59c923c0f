/* A compile request as a part of a larger body, and what its key is made of. */
#ifndef KILN_SPEC_H
#define KILN_SPEC_H
#include "service/service.h"

/* The request of one item; NULL with *problem. Drop with service_ask_drop. */
service_ask *service_spec_ask(service_app *app, const cJSON *item, service_reply **problem);

/* What a kernel key is made of, as text, one member a component. */
typedef struct service_parts {
    char *text[8]; /* by SPEC_*; never NULL in a filled structure */
} service_parts;
enum { SPEC_INPUTS, SPEC_OUTPUTS, SPEC_STATEMENTS, SPEC_TARGET, SPEC_DESCRIPTION, SPEC_POLICY, SPEC_NUMERICS, SPEC_PARTS };
bool service_parts_of(const char *program, size_t n, kiln_bytes canon, const char *target, service_parts *out);
bool service_parts_ask(service_ask *a, service_parts *out);
bool service_parts_record(const cache_record *r, service_parts *out);
void service_parts_free(service_parts *p);
cJSON *service_parts_json(const service_parts *p); /* component: {value, sha256} */
cJSON *service_parts_diff(const service_parts *a, const service_parts *b); /* [{component, a, b}] of those that differ */
int service_parts_distance(const service_parts *a, const service_parts *b); /* 0: the same; smaller is nearer */
#endif
