/* kiln plan: which nodes of a model become one kernel for a target, what that is predicted to save, and where values lie (no service needed). */
#include "api/cli/cli.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_slot(const kiln_slot *s)
{
    static const char *const places[] = {"input", "weight", "arena", "output"};
    if (s->place == KILN_ARENA) printf(" arena+%lld", (long long)s->offset);
    else printf(" %s%d%s", places[s->place], s->index, s->offset ? "+" : "");
    if (s->place != KILN_ARENA && s->offset) printf("%lld", (long long)s->offset);
}

static void put_plan(const kiln_plan *p)
{
    double gain = 0;
    printf("%5s %6s %9s %9s %9s  nodes\n", "step", "kernel", "MFLOP", "KiB", "saves us");
    for (int i = 0; i < p->nsteps; i++) {
        const kiln_step *s = &p->steps[i];
        gain += s->gain_us;
        if (s->kernel < -1) printf("%5d %6s %9s %9s %9s  %s", i + 1, "yours", "", "", "", s->nodes);
        else if (s->kernel < 0) printf("%5d %6s %9s %9.1f %9s  %s", i + 1, "-", "", (double)s->bytes / 1024, "", s->nodes);
        else printf("%5d %6d %9.3f %9.1f %9.2f  %s", i + 1, s->kernel, s->flops / 1e6, s->traffic / 1024, s->gain_us, s->nodes);
        printf("  ->");
        put_slot(&s->args[s->nargs - 1]);
        printf("\n");
    }
    printf("%d steps, %d distinct kernels, %d weights, arena %.1f KiB; fusion is predicted to save %.1f us (equation 4.10 of the thesis)\n",
           p->nsteps, p->nkernels, p->nweights, (double)p->arena_bytes / 1024, gain);
    for (int i = 0; i < p->nonce; i++)
        printf("%5s %6d %9.3f %9.1f %9.2f  %s\n", "once", p->once[i].kernel, p->once[i].flops / 1e6, p->once[i].traffic / 1024,
               p->once[i].gain_us, p->once[i].nodes);
    for (int i = 0; i < p->ncalls; i++) {
        const kiln_call *x = &p->calls[i];
        printf("left to you: %s%s%s (%s): %s\n", x->domain, *x->domain ? "." : "", x->op, x->place, x->why);
    }
}

int cmd_plan(struct cli *c)
{
    kiln_graph *g;
    kiln_plan *p;
    kiln_diag d = {0};
    char *file = NULL;
    int status = cli_graph(c, &g, &file);
    kiln_hw *hw = status == OK ? cli_hw(c, c->target) : NULL;
    if (status == OK && !hw) status = DATA;
    if (status == OK && kiln_graph_plan(c->arena, g, hw, &p, &d) != KILN_OK) status = cli_diag(&d);
    if (status == OK && (c->json || c->output)) status = cli_write(c, p->manifest.p, p->manifest.n);
    else if (status == OK) put_plan(p);
    free(file);
    return status;
}
