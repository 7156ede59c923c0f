/* kiln targets: the devices that the service knows, and what it can make for them. */
#include "api/cli/cli.h"
#include <stdio.h>
#include <stdlib.h>

int cmd_targets(struct cli *c)
{
    struct http_answer a;
    if (!http_call(c, "/v1/targets", "application/json", NULL, &a)) return UNAVAILABLE;
    if (a.status != 200 || c->json) {
        int status = a.status != 200 ? http_problem(&a) : cli_write(c, a.body, a.n);
        free(a.body);
        return status;
    }
    cJSON *o = cJSON_ParseWithLength(a.body, a.n), *t;
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(o, "targets");
    printf("%-20s %-5s %-10s %-12s %s\n", "id", "kind", "language", "arch", "binary");
    cJSON_ArrayForEach(t, list) printf("%-20s %-5s %-10s %-12s %s\n", json_text(t, "id"), json_text(t, "kind"), json_text(t, "language"),
                                       json_text(t, "arch"), json_text(t, "compilable"));
    cJSON_Delete(o);
    free(a.body);
    return OK;
}
