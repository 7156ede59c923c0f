/* kiln get: a kernel that the service already has, by key. */
#include "api/cli/cli.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cmd_get(struct cli *c)
{
    struct http_answer a;
    char path[128];
    const char *media = cli_media(c->as);
    if (!media) return USAGE;
    if (c->nargs != 1 || !cli_is_key(c->args[0])) return cli_fail(USAGE, "which key? kk1- and 64 hex digits are right (kiln ls lists them)");
    snprintf(path, sizeof path, "/v1/kernels/%.80s", c->args[0]);
    if (!http_call(c, path, media, NULL, &a)) return UNAVAILABLE;
    int status = OK;
    if (a.status != 200) status = http_problem(&a);
    else if (!strcmp(c->as, "json") && !c->json && !c->output) cli_summary(a.body, a.n, a.cache);
    else status = cli_write(c, a.body, a.n);
    free(a.body);
    return status;
}
