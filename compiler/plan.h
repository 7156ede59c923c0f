/* The plan of a whole model as texts: the C function that runs it, and its manifest. */
#ifndef KN_PLAN_TEXT_H
#define KN_PLAN_TEXT_H
#include "hw/hw.h"
kiln_status kn_plan_source(kiln_arena *a, const kiln_plan *p, kiln_bytes *out);
kiln_status kn_plan_manifest(kiln_arena *a, const kiln_plan *p, const kn_hw *hw, kiln_bytes *out);
#endif
