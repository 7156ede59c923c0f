/* kiln ls: the kernels of the service, newest first. */
#include "api/cli/cli.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cmd_ls(struct cli *c)
{
    struct http_answer a;
    char path[200] = "/v1/kernels";
    if (strcmp(c->target, "host")) snprintf(path, sizeof path, "/v1/kernels?target=%.100s", c->target);
    if (!http_call(c, path, "application/json", NULL, &a)) return UNAVAILABLE;
    if (a.status != 200 || c->json) {
        int status = a.status != 200 ? http_problem(&a) : cli_write(c, a.body, a.n);
        free(a.body);
        return status;
    }
    cJSON *o = cJSON_ParseWithLength(a.body, a.n), *k;
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(o, "kernels");
    printf("%-68s %-18s %-11s %s\n", "key", "target", "checked", "program");
    cJSON_ArrayForEach(k, list)
        printf("%-68s %-18s %-11s %.70s\n", json_text(k, "key"), json_text(k, "target"), json_text(k, "verification"), json_text(k, "name"));
    cJSON_Delete(o);
    free(a.body);
    return OK;
}
