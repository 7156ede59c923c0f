/* kiln explain: a kernel's tiles, bottleneck, traffic, occupancy and roofline as a picture in text. */
#include "api/cli/cli.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int picture(struct cli *c, const kiln_program *p, const kiln_hw *hw, kiln_bytes trace)
{
    kiln_diag d = {0};
    kiln_bytes text;
    if (kiln_explain(c->arena, p, hw, trace, &text, &d) != KILN_OK) return cli_diag(&d);
    fwrite(text.p, 1, text.n, stdout);
    printf("\ntrace\n");
    for (const char *l = trace.p; l && *l; l = strchr(l, '\n') ? strchr(l, '\n') + 1 : NULL) printf("  %.*s\n", (int)strcspn(l, "\n"), l);
    return OK;
}

/* A stored kernel: its program, target and trace are in the manifest. */
static int stored(struct cli *c)
{
    int status = OK;
    cJSON *o = cli_kernel(c, &status);
    if (!o) return status;
    const cJSON *m = cJSON_GetObjectItemCaseSensitive(o, "manifest"), *t = cJSON_GetObjectItemCaseSensitive(m, "target");
    const char *program = json_text(m, "program"), *trace = json_text(m, "trace"), *target = json_text(t, "id");
    kiln_request *r = NULL;
    kiln_diag d = {0};
    kiln_hw *hw = cli_hw(c, target);
    if (!hw) status = DATA;
    else if (kiln_request_text(c->arena, (kiln_bytes){program, strlen(program)}, (kiln_bytes){"", 0}, NULL, &r, &d) != KILN_OK)
        status = cli_diag(&d);
    else status = picture(c, r->program, hw, (kiln_bytes){trace, strlen(trace)});
    cJSON_Delete(o);
    return status;
}

int cmd_explain(struct cli *c)
{
    if (c->nargs && cli_is_key(c->args[0])) return stored(c);
    kiln_diag d = {0};
    kiln_request *r = NULL;
    kiln_candidates *list = NULL;
    kiln_hw *hw = NULL;
    int status = cli_program(c, &r, &hw);
    if (status != OK) return status;
    if (kiln_construct_request(c->arena, r, hw, 1, &list, &d) != KILN_OK) return cli_diag(&d);
    return picture(c, r->program, hw, list->c[0].trace);
}
