/* What the parts of the cost model share: the view of one stage as loops, accesses and footprints. Private to compiler/cost. */
#ifndef KN_COST_MODEL_H
#define KN_COST_MODEL_H
#include "cost/cost.h"

enum { KN_COST_ACCESSES = 24 };

/* One tensor access of a stage: its loads, then its store (last). */
typedef struct kn_access {
    int tensor, bytes, rank;
    bool store;
    int load;              /* its number in the body, -1 */
    bool near;             /* a region of scratch, or read before under the same loops by another stage: it is in L2 */
    bool own;              /* GPU: in the threads' registers, made or read there before (schedule/own.c): no traffic */
    int cache;             /* number of the stage's cache that holds it, -1: none */
    uint32_t axes;
    const kn_expr *index[KILN_MAX_RANK];
    uint32_t in[KILN_MAX_RANK]; /* axes of each index */
    int unit_axis;         /* axis whose step moves by one element, -1: none */
    int64_t shape[KILN_MAX_RANK];
} kn_access;

typedef struct kn_stage_view {
    const kn_tree *t;
    const kn_stage *g;
    const kn_stmt *s;
    const kn_hw *hw;
    int naccesses;
    kn_access access[KN_COST_ACCESSES];
    double iterations;     /* padded: product of all loops, and of the consumer's loops that repeat the stage */
    double flops;          /* of one iteration */
    double epilogue_flops; /* of one output element */
    double tasks, threads;
    int first_inner;       /* first loop that is neither task, grid nor thread */
    int first_reg;         /* first loop of the register tile: it and all inside are unrolled, vectors or vthreads */
    int first_point;       /* the same, but behind terms that are written out one after the other, each of which reads its own */
} kn_stage_view;

static inline double kn_at_least(double x, double lo) { return x < lo ? lo : x; }
static inline double kn_at_most(double x, double hi) { return x > hi ? hi : x; }

void kn_stage_view_of(const kn_tree *t, const kn_stage *g, const kn_hw *hw, kn_stage_view *v);
/* Elements of the access's bounding box over the loops at position `from` and inside, threads included when `threads`; clipped to the tensor. */
double kn_footprint(const kn_stage_view *v, const kn_access *x, int from, bool threads);
/* The same with what steps between these elements leave out, as a copy of the box has it. */
double kn_whole_box(const kn_stage_view *v, const kn_access *x, int from);
/* From the first element of the box to the last one, as they lie in memory. */
double kn_stretch(const kn_stage_view *v, const kn_access *x, int from);
/* Bytes of the box that follow each other, and the largest power of two, up to the bytes of a cache's way, that steps from one such run to another
 * are multiples of. */
double kn_apart(const kn_stage_view *v, const kn_access *x, int from, double way, double *run);
/* How often that box changes: iterations of the loops outside `from` down to the innermost one the access depends on. */
double kn_fills(const kn_stage_view *v, const kn_access *x, int from, bool threads);
/* Bytes really moved for a byte wanted, when contiguous runs of the box are rounded up to transactions. */
double kn_rounding(const kn_stage_view *v, const kn_access *x, int from, bool threads, double transaction);
/* The same of a core's cache lines, which runs that lie near each other have in common. */
double kn_line_rounding(const kn_stage_view *v, const kn_access *x, int from, double line);
/* Accumulators (or values) of one thread's register tile, and its register need: vector registers (cpu), 32-bit ones (gpu). */
double kn_register_values(const kn_stage_view *v);
double kn_kept_bytes(const kn_stage_view *v); /* of a thread, in registers for all stages of its block */
bool kn_stage_bare(const kn_stage_view *v); /* terms of a reduction that are but loaded: one operation each */
double kn_register_need(const kn_stage_view *v);
bool kn_slides(const kn_stage_view *v, const kn_access *x); /* the access is read by a window where it lies */
double kn_access_bytes(const kn_access *x); /* of its whole tensor */
/* Share of the slots of all waves that have work: a last partial wave costs a whole one. */
double kn_wave_share(double tasks, double slots, double *waves);
/* Rate of the stage's instruction on all units: one is started every `interval` cycles of a unit. */
double kn_instruction_gflops(const kn_stage_view *v);
void kn_cost_cpu(const kn_stage_view *v, kn_cost *c);
/* cost.c: of stage k by itself. */
kiln_status kn_cost_stage(const kn_tree *t, int k, const kn_hw *hw, kn_cost *c, kiln_diag *d);
void kn_cost_bulk(const kn_stage_view *v, kn_cost *c); /* a GPU's stage of bulk copies */
void kn_cost_gpu(const kn_stage_view *v, kn_cost *c);
void kn_cost_finish(const kn_stage_view *v, kn_cost *c, double compute_eff, double memory_eff); /* us and bottleneck of one stage */
#endif
