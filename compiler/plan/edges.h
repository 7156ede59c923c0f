/* What flows between the steps of a plan. */
#ifndef KN_PLAN_EDGES_H
#define KN_PLAN_EDGES_H
#include "graph/plan.h"
kiln_status kn_plan_edges(kn_partition *p, const kiln_plan *plan, const kiln_edge **out, int *n, kiln_diag *d);
#endif
