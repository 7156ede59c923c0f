/* POST /v1/compile, and /compile. */
#include "service/service.h"

service_reply *rt_compile(service_call *c) { return service_compile(c); }
