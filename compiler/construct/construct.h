/* The constructor: rTiles grown level by level under alignment rules (ROLLER). One file policy_NAME.c and one row in policies.def each. */
#ifndef KN_CONSTRUCT_H
#define KN_CONSTRUCT_H
#include "cost/cost.h"

typedef struct kn_policy {
    const char *name;
    int version;
    /* Traces in rank order, at most k; at least one or a refusal that says why. */
    kiln_status (*construct)(kiln_arena *a, const kn_program *canonical, const kn_hw *hw, int k, kiln_candidates **out, kiln_diag *d);
} kn_policy;
/* candidate.c: the trace applied, with its predicted time and summary. */
kiln_status kn_candidate_of(kiln_arena *a, const kn_program *p, const kn_hw *hw, kiln_bytes trace, int rank, kiln_candidate *out,
                            kiln_diag *d);
const kn_policy *kn_policy_find(const char *name);
int kn_policies_count(void);
const kn_policy *kn_policies_at(int i);
#endif
