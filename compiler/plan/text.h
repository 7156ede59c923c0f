/* The plan of a whole model as texts: the C function that runs it on a CPU, the launcher for a GPU, and its manifest. */
#ifndef KN_PLAN_TEXT_H
#define KN_PLAN_TEXT_H
#include "hw/hw.h"
kiln_status kn_plan_source(kiln_arena *a, const kiln_plan *p, kiln_bytes *out);
/* images: of a GPU's kernels as they were built, with all that launching them takes; NULL: not known (yet). */
kiln_status kn_plan_manifest(kiln_arena *a, const kiln_plan *p, const kn_hw *hw, const kiln_image *images, kiln_bytes *out);
kiln_status kn_plan_launcher(kiln_arena *a, const kiln_plan *p, const kn_hw *hw, const kiln_image *images, kiln_bytes *out);
int64_t kn_plan_temporaries(const kiln_plan *p, const kiln_image *images); /* bytes: the largest of the kernels */
#endif
