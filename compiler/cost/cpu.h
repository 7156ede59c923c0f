/* What the parts of a CPU's cost share. Private to compiler/cost. */
#ifndef KN_COST_CPU_H
#define KN_COST_CPU_H
#include "cost/model.h"

/* cpu_traffic.c */
void kn_cpu_level(const kn_stage_view *v, int i, kn_cost *c); /* bytes out of level `i`: what level i + 1 is filled with */
double kn_run_bytes(const kn_stage_view *v, const kn_access *x, int from); /* of the box of the loops from `from` on, that follow each other */
double kn_read_of(const kn_stage_view *v, const kn_access *x, int from);   /* elements that a core reads while these loops run */

/* cpu_copies.c: a statement whose result a copy is filled into (lower/folded.c); microseconds that copies take; `share` of all cores work. */
bool kn_stage_moves(const kn_stage_view *v);
double kn_copy_us(const kn_stage_view *v, double share);

/* cpu_reads.c */
bool kn_handed_over(const kn_tree *t, const kn_stage *p);             /* the reader of what the stage makes has it in registers */
bool kn_in_registers(const kn_stage_view *v, const kn_access *x);     /* the access reads what another stage left there */
bool kn_lanes_apart(const kn_stage_view *v, const kn_access *x);      /* lanes along a sum, put together one by one */
bool kn_collides(const kn_stage_view *v, const kn_access *x);         /* rows side by side throw each other out of L1 */
bool kn_across_lines(const kn_stage_view *v, const kn_access *x);     /* vectors begin anywhere in a line */
double kn_lines_lost(const kn_stage_view *v, const kn_access *x);     /* factor for vectors whose lines L1 loses before the next use */
double kn_lanes_share(const kn_stage_view *v, double lanes, double full); /* share of its pace, by how vectors of `lanes` come to their elements */

/* cpu_tile.c. `lanes` of a vector, of which `full` fill a register. */
double kn_sum_share(const kn_stage_view *v, double lanes, double full); /* of the multiply-adds' peak, that the register tile reaches */
double kn_summing(const kn_stage_view *v);                              /* share of the operations that are the sum's */
double kn_instructions(const kn_stage_view *v);                         /* for a term */
double kn_bare_terms(const kn_stage_view *v);                           /* instructions for a term that is but loaded */
double kn_spilled(const kn_stage_view *v);                              /* factor, 1: all is in registers */
double kn_turn_cycles(const kn_stage_view *v, double turns);            /* cycles for a turn of a loop of so many */

/* Instructions over vectors of so many lanes that start while one over a whole one does: two products over half of one, or one. */
double kn_starts(const kn_stage_view *v, double lanes);
/* Share of what goes on beside multiply-adds that takes time: 1 where two of them start in a cycle, half where one does, as slots are left idle. */
double kn_beside(const kn_hw *hw);

/* Slots of an instruction's start that reading one vector or broadcast of a register tile takes beside those that are free; with kn_beside. */
#define KN_READ_SLOT 0.225
#endif
