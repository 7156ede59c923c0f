/* For importers: names of a graph and of those around it, and the order of its nodes. */
#ifndef KN_GRAPH_BUILD_H
#define KN_GRAPH_BUILD_H
#include "graph/graph.h"

/* Names of one graph; a name that it lacks is looked for in the graphs around it and then stands for that value (kn_value.outer). */
typedef struct kn_scope {
    kiln_arena *a;
    kn_graph *g;
    struct kn_scope *around;
    int *slots; /* hash table of values by name: value + 1, 0 is free */
    int nslots, used;
} kn_scope;

/* Room for every name of every input, constant and output is taken as they come. */
void kn_scope_open(kn_scope *s, kiln_arena *a, kn_graph *g, kn_scope *around);
enum { KN_SCOPE_DRY = -1, KN_SCOPE_TWICE = -2, KN_SCOPE_NONE = -1 };
int kn_scope_define(kn_scope *s, const char *name); /* the new value, KN_SCOPE_TWICE or KN_SCOPE_DRY */
int kn_scope_find(kn_scope *s, const char *name);   /* the value or KN_SCOPE_NONE; may be dry */

/* Puts the nodes in an order in which they can be run, the client's where it is one; a cycle is refused at one of its nodes. */
kiln_status kn_graph_order(kiln_arena *a, kn_graph *g, kiln_diag *d);
#endif
