/* Who may do what: keys, tenants, what a tenant may see, limits, and the book of what administrators did. */
#ifndef KILN_AUTH_H
#define KILN_AUTH_H
#include "service/service.h"

service_auth *service_auth_open(service_app *app, char *why, size_t size); /* before the store is open */
void service_auth_close(service_auth *a);
bool service_auth_load(service_auth *a); /* keys and tenants anew from the store; false: it could not be asked */
/* Fills c->who from the value of Authorization ("" none); owner: the caller runs as the user of the service, over the unix socket. Takes one call
 * off the tenant's limit. NULL: go on. */
service_reply *service_auth_judge(service_call *c, const char *authorization, bool owner);
service_reply *service_auth_compile(service_call *c); /* takes one compile off the tenant's quota; NULL: go on */

service_quota service_auth_quota(service_auth *a, const char *tenant);
int service_auth_jobs(service_auth *a, const char *tenant); /* its bound of live jobs, as jobs_ask wants it */

/* subject: a kernel key, a digest, a job. What a tenant was told about it may read. */
bool service_may_see(service_call *c, const char *subject);
/* 403 when the caller is neither of that tenant nor an administrator; NULL when it may change what the tenant asked for. */
service_reply *service_refuse_stranger(const service_call *c, const char *tenant);
void service_grant(service_call *c, const char *subject);
void service_grant_record(service_call *c, const cache_record *r); /* its key and its artifacts */

void service_audit(service_call *c, const char *action, const char *subject, const char *detail);
void service_audit_own(service_app *app, const char *action, const char *subject, const char *detail); /* of the service itself */
cache *service_auth_cache(service_auth *a);
unsigned long long service_auth_failures(const service_auth *a);
/* Administration; JSON of one is what the API answers. */
bool service_scopes_parse(const cJSON *list, unsigned *scopes); /* ["read", ...] */
cJSON *service_keys_json(service_auth *a);
cJSON *service_tenants_json(service_auth *a);
/* Makes a key; *secret (malloc) is shown once. expires_ms 0: never. CACHE_ERROR: not stored. */
enum cache_status service_key_new(service_auth *a, const char *tenant, unsigned scopes, int64_t expires_ms, const char *label,
                                  char id[24], char **secret);
enum cache_status service_key_expire(service_auth *a, const char *id, int64_t at_ms);          /* CACHE_MISS: no such key */
enum cache_status service_key_rotate(service_auth *a, const char *id, int64_t grace_ms, char fresh[24], char **secret);
bool service_name_ok(const char *name); /* of a tenant */
#endif
