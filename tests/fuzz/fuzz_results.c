/* Fuzz target: the lines of results that kiln import-results reads. */
#include "api/cli/cmd_import_results.c"

int cli_fail(int status, const char *fmt, ...)
{
    (void)fmt;
    return status;
}

char *cli_read_file(struct cli *c, const char *path, size_t *n)
{
    (void)c, (void)path, (void)n;
    return NULL;
}

bool http_call(const struct cli *c, const char *path, const char *type, const char *body, struct http_answer *a)
{
    (void)c, (void)path, (void)type, (void)body, (void)a;
    return false;
}

int http_problem(const struct http_answer *a)
{
    (void)a;
    return UNAVAILABLE;
}

const char *json_text(const cJSON *o, const char *name)
{
    const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, name));
    return s ? s : "";
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = calloc(1, size + 1);
    int lines = 0, failed = 0;
    memcpy(text, data, size);
    cJSON *best = fastest(text, &lines, &failed);
    for (const cJSON *e = best->child; e; e = e->next)
        if (!(us_of(e) > 0)) abort();
    if (failed > lines) abort();
    cJSON_Delete(best);
    free(text);
    return 0;
}
