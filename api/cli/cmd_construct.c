/* kiln construct: candidates in rank order, straight from the library. */
#include "api/cli/cli.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_json(const kiln_candidates *list)
{
    cJSON *o = cJSON_CreateObject(), *a = cJSON_AddArrayToObject(o, "candidates");
    for (int i = 0; i < list->n; i++) {
        const kiln_candidate *x = &list->c[i];
        cJSON *e = cJSON_CreateObject();
        cJSON_AddNumberToObject(e, "rank", x->rank);
        cJSON_AddNumberToObject(e, "predicted_us", x->predicted_us);
        cJSON_AddStringToObject(e, "bottleneck", x->bottleneck);
        cJSON_AddItemToObject(e, "summary", cJSON_ParseWithLength(x->summary.p, x->summary.n));
        cJSON_AddStringToObject(e, "trace", x->trace.p);
        cJSON_AddItemToArray(a, e);
    }
    char *t = cJSON_Print(o);
    if (t) puts(t);
    free(t);
    cJSON_Delete(o);
}

int cmd_construct(struct cli *c)
{
    kiln_diag d = {0};
    kiln_request *r = NULL;
    kiln_candidates *list = NULL;
    kiln_hw *hw = NULL;
    int status = cli_program(c, &r, &hw);
    if (status != OK) return status;
    if (kiln_construct_request(c->arena, r, hw, c->k, &list, &d) != KILN_OK) return cli_diag(&d);
    if (c->json) {
        put_json(list);
        return OK;
    }
    printf("%d candidates for %s, best first\n", list->n, kiln_hw_id(hw));
    printf("%4s %12s  %-10s %s\n", "rank", "predicted us", "bottleneck", "tiles");
    for (int i = 0; i < list->n; i++)
        printf("%4d %12.3f  %-10s %s\n", list->c[i].rank, list->c[i].predicted_us, list->c[i].bottleneck, list->c[i].summary.p);
    return OK;
}
