/* kiln mappings: every way to run an operator on an instruction of the target, with what was refused and why. */
#include "api/cli/cli.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double number(const cJSON *o, const char *name) { return cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(o, name)); }

static void put_result(const cJSON *o)
{
    const cJSON *e, *maps = cJSON_GetObjectItemCaseSensitive(o, "mappings");
    printf("%s on %s", json_text(o, "statement"), json_text(o, "instruction"));
    if (!maps) {
        printf(": %s\n", json_text(o, "unsupported"));
        return;
    }
    printf(": %.0f mappings of %.0f atoms\n", number(o, "count"), number(o, "atoms"));
    if (cJSON_GetArraySize(maps)) printf("%12s %10s %9s  %-10s %s\n", "predicted us", "packing us", "padding", "bound", "mapping");
    cJSON_ArrayForEach(e, maps) {
        const char *barred = json_text(e, "barred");
        if (*barred) printf("  not computed: %s: %s\n", json_text(e, "mapping"), barred);
        else
            printf("%12.3f %10.3f %8.2fx  %-10s %s\n", number(e, "predicted_us"), number(e, "pack_us"), number(e, "padding"), json_text(e, "bound"),
                   json_text(e, "mapping"));
        const cJSON *few = cJSON_GetObjectItemCaseSensitive(e, "fewer");
        if (few) printf("%12.3f %32s as %s\n", number(few, "predicted_us"), "", json_text(few, "instruction"));
    }
    printf("  refused:\n");
    cJSON_ArrayForEach(e, cJSON_GetObjectItemCaseSensitive(o, "refused")) printf("    %s: %s\n", json_text(e, "tried"), json_text(e, "why"));
}

int cmd_mappings(struct cli *c)
{
    kiln_diag d = {0};
    kiln_request *r = NULL;
    kiln_bytes text;
    kiln_hw *hw = NULL;
    int status = cli_program(c, &r, &hw);
    if (status != OK) return status;
    if (kiln_mappings(c->arena, r->program, hw, c->intrinsic ? c->intrinsic : "", &text, &d) != KILN_OK) return cli_diag(&d);
    if (c->json) {
        fwrite(text.p, 1, text.n, stdout);
        return OK;
    }
    cJSON *o = cJSON_ParseWithLength(text.p, text.n);
    const cJSON *e;
    cJSON_ArrayForEach(e, cJSON_GetObjectItemCaseSensitive(o, "results")) put_result(e);
    cJSON_Delete(o);
    return o ? OK : SOFTWARE;
}
