/* The constructor: rTiles grown level by level under alignment rules (ROLLER). One file policy_NAME.c and one row in policies.def each. */
#ifndef KN_CONSTRUCT_H
#define KN_CONSTRUCT_H
#include "cost/cost.h"

/* One rTile candidate of the published search, as the golden tables have it. Axes: the (fused) spatial axes, then the reduce axes. */
typedef struct kn_rtile {
    int nspatial, nreduce;
    int64_t block[KILN_MAX_AXES], thread[KILN_MAX_AXES], rstep[KILN_MAX_AXES];
    int64_t threads, grid, smem_bytes;
    double regs;
} kn_rtile;

typedef struct kn_policy {
    const char *name;
    int version;
    /* Traces in rank order, at most k; at least one or a refusal that says why. */
    kiln_status (*construct)(kiln_arena *a, const kn_program *canonical, const kn_hw *hw, int k, kiln_candidates **out, kiln_diag *d);
} kn_policy;
const kn_policy *kn_policy_find(const char *name);
int kn_policies_count(void);
const kn_policy *kn_policies_at(int i);

/* The published artifact's search on a program whose axes are already fused as the artifact does (see roller.c). */
kiln_status kn_roller_tiles(kiln_arena *a, const kn_program *p, const kn_hw *hw, int k, kn_rtile **tiles, int *ntiles,
                            const char **policy_used, double *last_eps, kiln_diag *d);
#endif
