/* POST /v1/mappings: the body of a compile; which loops may feed which loop of the target's instructions, by predicted time. */
#include <stdlib.h>
#include <string.h>
#include "service/service.h"

service_reply *rt_mappings(service_call *c)
{
    service_reply *r = NULL;
    char intrinsic[64] = "";
    if (service_query(c->query, "intrinsic", intrinsic, sizeof intrinsic) < 0)
        return service_problem(422, "invalid-request", "the query member intrinsic has a value that cannot be used", NULL,
                               "the name of one of the target's instructions, once");
    service_ask *a = service_ask_parse(c, &r);
    if (!a) return r;
    kiln_diag d = {0};
    kiln_bytes b;
    d.status = kiln_mappings(a->arena, a->request->program, a->hw, intrinsic, &b, &d);
    if (d.status == KILN_OK) {
        char *text = malloc(b.n + 1);
        if (text) memcpy(text, b.p, b.n);
        r = service_reply_new(200, "application/json", text, b.n);
    } else {
        r = service_problem_diag(&d);
    }
    service_ask_drop(a);
    return r;
}
