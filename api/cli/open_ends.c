/* The model that a verb is given: its file, its open ends (--dim, --bind), read and settled here. */
#include "api/cli/cli.h"
#include "api/cli/weights.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The options of one name as the list that kiln_graph_options_read takes: --dim a=1 --dim x=2x3 is "a:1,x:2x3". */
static bool join(const char *option, const char *right, int n, const char *const *items, char *out, size_t size)
{
    size_t at = 0;
    *out = 0;
    for (int i = 0; i < n; i++) {
        const char *eq = strrchr(items[i], '=');
        if (!eq || eq == items[i] || !eq[1]) {
            cli_fail(USAGE, "%s %s: %s is right", option, items[i], right);
            return false;
        }
        at += (size_t)snprintf(out + at, size - at, "%s%.*s:%s", i ? "," : "", (int)(eq - items[i]), items[i], eq + 1);
        if (at >= size) {
            cli_fail(USAGE, "too many %s", option);
            return false;
        }
    }
    return true;
}

bool cli_open_ends(const struct cli *c, struct cli_open *out)
{
    return join("--dim", "NAME=EXTENT or INPUT=1x3x224x224", c->ndims, c->dims, out->dims, sizeof out->dims) &&
           join("--bind", "INPUT=NUMBER", c->nbinds, c->binds, out->binds, sizeof out->binds);
}

int cli_graph(struct cli *c, kiln_graph **g, char **file)
{
    struct cli_open open;
    kiln_graph_options o;
    size_t n;
    kiln_diag d = {0};
    if (c->nargs != 1) return cli_fail(USAGE, "which model? FILE.onnx, or FILE.json with a member \"graph\"");
    if (!cli_open_ends(c, &open)) return USAGE;
    if (kiln_graph_options_read(c->arena, open.dims, open.binds, &o, &d) != KILN_OK) {
        cli_diag(&d);
        return USAGE;
    }
    kiln_hw *hw = cli_hw(c, c->target);
    if (!hw) return DATA;
    o.partial = c->partial;
    o.bytes = kiln_hw_multiplies_bytes(hw);
    *file = cli_read_file(c, c->args[0], &n);
    if (!*file) return NO_INPUT;
    if (n && strchr("{ \n", **file)) return kiln_graph_json(c->arena, (kiln_bytes){*file, n}, &o, g, &d) == KILN_OK ? OK : cli_diag(&d);
    struct weights w = {.body = {*file, n}};
    int status = weights_apart(c->args[0], WEIGHT_FROM, &w);
    if (status == OK && kiln_graph_onnx(c->arena, w.body, &o, g, &d) != KILN_OK) status = cli_diag(&d);
    if (w.rewritten) { /* the graph reads its constants there */
        free(*file);
        *file = w.rewritten;
        w.rewritten = NULL;
    }
    weights_close(&w);
    return status;
}
