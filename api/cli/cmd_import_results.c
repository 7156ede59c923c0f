/* kiln import-results FILE: the measurements that kiln-gpu-run made of a bundle, into the service as records. Of each kernel its fastest
 * candidate. */
#include "api/cli/cli.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 4 }; /* each is built there */

static double us_of(const cJSON *o)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(o, "us");
    return cJSON_IsNumber(x) ? x->valuedouble : 0;
}

/* Keeps the fastest of each key; counts what has no time. A last line that was cut is passed over. */
static cJSON *fastest(char *text, int *lines, int *failed)
{
    cJSON *best = cJSON_CreateObject();
    for (char *next, *l = text; l && *l; l = next) {
        next = strchr(l, '\n');
        if (next) *next++ = 0;
        cJSON *o = cJSON_Parse(l);
        const char *key = json_text(o, "key");
        if (*key) ++*lines;
        if (!*key || strcmp(json_text(o, "status"), "ok") || !(us_of(o) > 0)) {
            *failed += *key != 0;
            cJSON_Delete(o);
            continue;
        }
        const cJSON *old = cJSON_GetObjectItemCaseSensitive(best, key);
        if (!old)
            cJSON_AddItemToObject(best, key, o);
        else if (us_of(o) < us_of(old))
            cJSON_ReplaceItemInObjectCaseSensitive(best, key, o);
        else
            cJSON_Delete(o);
    }
    return best;
}

/* Posts some results; prints what became of each. */
static int post(struct cli *c, cJSON *batch, int count[3])
{
    static const char *const states[] = {"stored", "kept", "refused"};
    struct http_answer a;
    char *body = cJSON_PrintUnformatted(batch);
    int status = !body                                                             ? cli_fail(SOFTWARE, "out of memory")
                 : !http_call(c, "/v1/measurements", "application/json", body, &a) ? UNAVAILABLE
                                                                                   : OK;
    free(body);
    if (status != OK) return status;
    if (a.status != 200) status = http_problem(&a);
    cJSON *o = status == OK ? cJSON_ParseWithLength(a.body, a.n) : NULL;
    const cJSON *r, *list = cJSON_GetObjectItemCaseSensitive(o, "results");
    cJSON_ArrayForEach(r, list)
    {
        const char *state = json_text(r, "state"), *detail = json_text(cJSON_GetObjectItemCaseSensitive(r, "problem"), "detail");
        for (int i = 0; i < 3; i++) count[i] += !strcmp(states[i], state);
        printf("%-8s %s%s%s\n", state, json_text(r, "key"), *detail ? "  " : "", detail);
    }
    cJSON_Delete(o);
    free(a.body);
    return status;
}

int cmd_import_results(struct cli *c)
{
    int lines = 0, failed = 0, count[3] = {0}, status = OK;
    size_t n;
    if (c->nargs != 1) return cli_fail(USAGE, "import-results FILE: the JSON lines that kiln-gpu-run wrote");
    char *text = cli_read_file(c, c->args[0], &n);
    if (!text) return NO_INPUT;
    cJSON *best = fastest(text, &lines, &failed);
    free(text);
    if (!lines) status = cli_fail(DATA, "%s has no results of kernels", c->args[0]);
    while (status == OK && best->child) {
        cJSON *batch = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(batch, "results");
        for (int i = 0; i < AT_ONCE && best->child; i++) cJSON_AddItemToArray(list, cJSON_DetachItemViaPointer(best, best->child));
        status = post(c, batch, count);
        cJSON_Delete(batch);
    }
    cJSON_Delete(best);
    if (lines) printf("%d kernels, %d without a time; %d stored, %d kept, %d refused\n", lines, failed, count[0], count[1], count[2]);
    return status == OK && count[2] ? DATA : status;
}
