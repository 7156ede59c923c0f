/* The micro performance model: predicts a tile tree's time from traffic, compute and occupancy (research: ROLLER 3.3, Welder's waves). */
#ifndef KN_COST_H
#define KN_COST_H
#include "schedule/schedule.h"

/* Results of an element up to which reading a large operand is all of a sum's time: cores share its rows then, not its columns. */
enum { KN_COST_PARTED = 10 };

typedef struct kn_cost_level { const char *name; double bytes, us; int64_t tile_bytes; } kn_cost_level; /* traffic into the level below */
typedef struct kn_cost {
    double us;                 /* whole program: sum over stages of max(compute, levels) / efficiency + launches */
    double compute_us, flops;  /* padded flops */
    int nlevels;
    kn_cost_level levels[KILN_MAX_LEVELS];
    double waves, occupancy;   /* grid quantisation; active threads or busy cores / capacity */
    int threads, registers;    /* per block; per thread (GPU) or vector registers (CPU) */
    int64_t grid, shared_bytes;
    const char *bottleneck;    /* "compute" or a level's name */
} kn_cost;
kiln_status kn_cost_of(const kn_tree *t, const kn_hw *hw, kn_cost *out, kiln_diag *d);
/* What the stages of a tree take each by itself, as far as it is known. */
typedef struct kn_costs {
    const kn_tree *of;
    double us[KILN_MAX_STMTS];
    bool known[KILN_MAX_STMTS];
} kn_costs;
/* kn_cost_of's us for a tree that steps have made of base->of (base NULL: of any): on a CPU stages that these left alone are not predicted again. */
kiln_status kn_cost_since(const kn_tree *t, const kn_hw *hw, kn_costs *base, double *us, kiln_diag *d);
/* The picture for people behind kiln_explain. */
void kn_cost_print(kn_buf *b, const kn_tree *t, const kn_hw *hw, const kn_cost *c);
#endif
