/* kiln graph: a model as the compiler sees it, with the shape of every value (no service needed). */
#include "api/cli/cli.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DIMS = 32 };

/* --dim NAME=EXTENT */
static bool dims(const struct cli *c, const char **names, int64_t *extents)
{
    for (int i = 0; i < c->ndims; i++) {
        const char *eq = strchr(c->dims[i], '=');
        char *end;
        extents[i] = eq ? strtoll(eq + 1, &end, 10) : 0;
        if (!eq || *end || extents[i] < 1) {
            cli_fail(USAGE, "--dim %s: NAME=EXTENT is right", c->dims[i]);
            return false;
        }
        names[i] = strndup(c->dims[i], (size_t)(eq - c->dims[i]));
    }
    return true;
}

int cmd_graph(struct cli *c)
{
    const char *names[MOST_DIMS];
    int64_t extents[MOST_DIMS];
    size_t n;
    kiln_diag d = {0};
    kiln_graph *g;
    kiln_bytes text;
    if (c->nargs != 1) return cli_fail(USAGE, "which model? FILE.onnx, or FILE.json with a member \"graph\"");
    if (!dims(c, names, extents)) return USAGE;
    char *file = cli_read_file(c, c->args[0], &n);
    if (!file) return NO_INPUT;
    kiln_graph_options o = {.ndims = c->ndims, .dims = names, .extents = extents};
    kiln_bytes model = {file, n};
    kiln_status s = n && (*file == '{' || *file == '\n' || *file == ' ') ? kiln_graph_json(c->arena, model, &o, &g, &d)
                                                                         : kiln_graph_onnx(c->arena, model, &o, &g, &d);
    if (s == KILN_OK && kiln_graph_text(c->arena, g, &text) != KILN_OK) s = KILN_MEMORY;
    int status = s == KILN_OK ? cli_write(c, text.p, text.n) : cli_diag(&d);
    free(file);
    for (int i = 0; i < c->ndims; i++) free((char *)names[i]);
    return status;
}
