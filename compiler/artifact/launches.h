/* The launch list of a kernel: what each launch runs, with which arguments, and what it computes on its own. */
#ifndef KN_LAUNCHES_H
#define KN_LAUNCHES_H
#include "lower/loop.h"
kiln_status kn_launches(kiln_arena *a, const kn_program *canonical, const kn_hw *hw, const kn_tree *tree, const kn_lprog *l,
                        kiln_kernel *k, kiln_diag *d);
#endif
