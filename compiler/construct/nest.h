/* The loops of one stage on a CPU as lines of a trace. A planner goes through them once: what cuts axes, their order, their kinds and what is copied
 * are texts of their own, which follow each other in the trace. Private to compiler/construct. */
#ifndef KN_NEST_H
#define KN_NEST_H
#include "construct/site.h"

typedef struct kn_nest {
    const kn_site *x;
    kn_buf first;  /* the steps that made the site, then splits */
    kn_buf order;  /* loops and bars, as `reorder` has them */
    kn_buf kinds;  /* lines; so are: */
    kn_buf copies;
} kn_nest;

void kn_nest_begin(kn_nest *w, const kn_site *x, kiln_arena *a);
/* Cuts the axis by these sizes, the outermost first; those that are 0 are left out, and with all of them the cut. */
enum { KN_NEST_CUTS = 4 };
void kn_nest_split(kn_nest *w, int axis, const int64_t sizes[KN_NEST_CUTS]);
/* The next loop inwards: a part of the axis; one that is shared by cores, which is the axis' outermost part. */
void kn_nest_loop(kn_nest *w, int axis, int level);
void kn_nest_task(kn_nest *w, int axis);
/* Behind tasks, and before the register tile. */
void kn_nest_bar(kn_nest *w);
/* What is done with a part's loop: a primitive's name. */
void kn_nest_kind(kn_nest *w, const char *kind, int axis, int level);
/* The plan is tried. */
void kn_nest_try(kn_nest *w, kn_plans *p);
#endif
