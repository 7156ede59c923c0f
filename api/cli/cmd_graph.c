/* kiln graph: a model as the compiler sees it, with the shape of every value (no service needed). */
#include "api/cli/cli.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 32 };

/* NAME=NUMBER of an option, the name to be freed. */
static bool pair(const char *option, const char *text, const char **name, double *value)
{
    const char *eq = strrchr(text, '=');
    char *end;
    *value = eq ? strtod(eq + 1, &end) : 0;
    if (!eq || end == eq + 1 || *end || (!strcmp(option, "--dim") && (*value < 1 || *value != (double)(int64_t)*value))) {
        cli_fail(USAGE, "%s %s: NAME=%s is right", option, text, strcmp(option, "--dim") ? "NUMBER" : "EXTENT");
        return false;
    }
    *name = strndup(text, (size_t)(eq - text));
    return true;
}

int cli_graph(struct cli *c, kiln_graph **g, char **file)
{
    const char *dims[MOST] = {NULL}, *binds[MOST] = {NULL};
    int64_t extents[MOST];
    double values[MOST], extent;
    size_t n;
    kiln_diag d = {0};
    if (c->nargs != 1) return cli_fail(USAGE, "which model? FILE.onnx, or FILE.json with a member \"graph\"");
    bool good = true;
    for (int i = 0; good && i < c->ndims; i++) {
        good = pair("--dim", c->dims[i], &dims[i], &extent);
        extents[i] = (int64_t)extent;
    }
    for (int i = 0; good && i < c->nbinds; i++) good = pair("--bind", c->binds[i], &binds[i], &values[i]);
    if (!good) return USAGE;
    *file = cli_read_file(c, c->args[0], &n);
    if (!*file) return NO_INPUT;
    kiln_graph_options o = {.ndims = c->ndims, .dims = dims, .extents = extents, .nbinds = c->nbinds, .binds = binds, .values = values};
    kiln_bytes model = {*file, n};
    kiln_status s = n && strchr("{ \n", **file) ? kiln_graph_json(c->arena, model, &o, g, &d) : kiln_graph_onnx(c->arena, model, &o, g, &d);
    int status = s == KILN_OK ? OK : cli_diag(&d);
    for (int i = 0; i < MOST; i++) {
        free((char *)dims[i]);
        free((char *)binds[i]);
    }
    return status;
}

int cmd_graph(struct cli *c)
{
    kiln_graph *g;
    kiln_bytes text;
    char *file = NULL;
    int status = cli_graph(c, &g, &file);
    if (status == OK) status = kiln_graph_text(c->arena, g, &text) == KILN_OK ? cli_write(c, text.p, text.n) : cli_fail(SOFTWARE, "out of memory");
    free(file);
    return status;
}
