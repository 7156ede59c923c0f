/* kiln ls: the kernels of the service, newest first. */
#include "api/cli/cli.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The statements of a program on one line, declarations left out. */
static void one_line(const char *text, char *out, size_t cap)
{
    size_t n = 0;
    for (const char *l = text; *l && n + 1 < cap; l += strcspn(l, "\n"), l += *l == '\n') {
        bool declaration = !strncmp(l, "in ", 3) || !strncmp(l, "out ", 4);
        if (!declaration) n += (size_t)snprintf(out + n, cap - n, "%s%.*s", n ? " " : "", (int)strcspn(l, "\n"), l);
    }
}

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
    printf("%-68s  %-15s %-9s %s\n", "key", "target", "checked", "program");
    cJSON_ArrayForEach(k, list)
    {
        char program[120];
        one_line(json_text(k, "name"), program, sizeof program);
        printf("%-68s  %-15s %-9s %s\n", json_text(k, "key"), json_text(k, "target"),
               json_text(cJSON_GetObjectItemCaseSensitive(k, "quality"), "verification"), program);
    }
    cJSON_Delete(o);
    free(a.body);
    return OK;
}
