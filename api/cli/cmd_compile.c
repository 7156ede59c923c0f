/* kiln compile: asks the service for a kernel and writes what was asked for. */
#include "api/cli/cli.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct { const char *as, *media; } kinds[] = {
    {"json", "application/json"}, {"source", "text/x-c, text/x-cuda;q=0.9, text/plain;q=0.8"}, {"so", "application/x-sharedlib"},
    {"ptx", "text/x-ptx"},        {"cubin", "application/x-cubin"},             {"bundle", "application/zip"},
};

const char *cli_media(const char *as)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].as, as)) return kinds[i].media;
    cli_fail(USAGE, "--as %s: json, source, so, ptx, cubin or bundle is right", as);
    return NULL;
}

/* The short answer for people: what was built, how good, how checked, how long. */
void cli_summary(const char *body, size_t n, const char *cache)
{
    cJSON *o = cJSON_ParseWithLength(body, n);
    const cJSON *quality = cJSON_GetObjectItemCaseSensitive(o, "quality"), *a, *list = cJSON_GetObjectItemCaseSensitive(o, "artifacts");
    const cJSON *us = cJSON_GetObjectItemCaseSensitive(o, "predicted_us"), *notes = cJSON_GetObjectItemCaseSensitive(o, "notes"), *note;
    const cJSON *target = cJSON_GetObjectItemCaseSensitive(o, "target");
    printf("key           %s\n", json_text(o, "key"));
    printf("target        %s\n", cJSON_IsString(target) ? target->valuestring : json_text(target, "id"));
    printf("origin        %s\nverification  %s\n", json_text(quality, "origin"), json_text(quality, "verification"));
    if (cJSON_IsNumber(us)) printf("predicted     %.3f us\n", us->valuedouble);
    printf("cache         %s\n", *cache ? cache : "-");
    cJSON_ArrayForEach(a, list)
    {
        const cJSON *bytes = cJSON_GetObjectItemCaseSensitive(a, "bytes");
        printf("artifact      %-8s %9.0f bytes  %s\n", json_text(a, "kind"), cJSON_IsNumber(bytes) ? bytes->valuedouble : 0, json_text(a, "href"));
    }
    cJSON_ArrayForEach(note, notes) if (cJSON_IsString(note)) printf("note          %s\n", note->valuestring);
    cJSON_Delete(o);
}

int cmd_compile(struct cli *c)
{
    if (c->nargs == 1 && cli_is_model(c->args[0])) return cli_model_compile(c);
    struct http_answer a;
    int status = OK;
    const char *media = cli_media(c->as);
    char *body = media ? cli_request(c, &status) : NULL;
    if (!body) return media ? status : USAGE;
    bool reached = http_call(c, "/v1/compile", media, body, &a);
    free(body);
    if (!reached) return UNAVAILABLE;
    if (a.status != 200) status = http_problem(&a);
    else if (!strcmp(c->as, "json") && !c->json && !c->output) cli_summary(a.body, a.n, a.cache);
    else status = cli_write(c, a.body, a.n);
    free(a.body);
    return status;
}
