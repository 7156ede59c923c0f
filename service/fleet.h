/* The service as one of a fleet: who builds a key, who waits for whom, and news of what others did. */
#ifndef SERVICE_FLEET_H
#define SERVICE_FLEET_H
#include "service/service.h"
#include "jobs/jobs.h"
#include "workers/build.h"
#include "workers/keeper.h"

service_fleet *service_fleet_open(service_app *app, char *why, size_t size);
void service_fleet_close(service_fleet *f);
jobs *service_fleet_jobs(service_fleet *f);
keeper *service_fleet_keeper(service_fleet *f);
const char *service_fleet_name(service_fleet *f);
/* LEAD: this service builds it, under *lease. FOLLOW: somebody else does, or will: service_fleet_park. ALONE: the fleet could not be asked; it is
 * built here without a lease, as it would be without a fleet. TOO_MANY: the tenant has as many live jobs as it may. */
enum service_lead { SERVICE_LEAD, SERVICE_FOLLOW, SERVICE_ALONE, SERVICE_TOO_MANY };
enum service_lead service_fleet_lead(service_fleet *f, service_job *job, kept **lease);
/* Takes the pool's reference: the job goes to the pool again when it can be answered or led, or ends with a problem. */
void service_fleet_park(service_fleet *f, service_job *job);
/* Room for one more kernel of the tenant; false: the store is full. A fleet that cannot be asked has room. */
bool service_fleet_room(service_fleet *f, const char *tenant);
void service_fleet_hit(service_fleet *f, const char *key); /* counted, and told to the store now and then */
bool service_fleet_may_store(void *pair); /* of a service_hold */
bool service_fleet_unwanted(void *pair);  /* the same: somebody cancelled or paused the job, or the lease is lost */
typedef struct service_hold { service_fleet *fleet; kept *lease; } service_hold;
/* How it ended, for the others; BUILD_LOST: the job goes where it was wished. problem: the body of the answer when it failed. Drops the lease. */
void service_fleet_end(service_fleet *f, const service_job *job, kept *lease, const build_result *r, const char *problem);
#endif
