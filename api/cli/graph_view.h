/* A plan for people: its steps with their times, what flows between them, as a table and as a picture. */
#ifndef KILN_CLI_GRAPH_VIEW_H
#define KILN_CLI_GRAPH_VIEW_H
#include "api/cli/cli.h"

struct graph_view {
    const char *title;
    const kiln_plan *plan;
    const kiln_edge *edges;
    int nedges;
    bool measured;      /* else predicted */
    const double *us;   /* of every step */
    const char **bound; /* what bounds its kernel, by the model; "" for a copy */
};
char *graph_svg(const struct graph_view *v, size_t *n); /* free; NULL: out of memory */
char *graph_dot(const struct graph_view *v, size_t *n); /* for Graphviz */
double graph_total(const struct graph_view *v);
#endif
