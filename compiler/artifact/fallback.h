/* The kernels of a GPU artifact for tensors whose addresses are no multiples of 16 bytes, or for a driver without tensor maps. */
#ifndef KN_FALLBACK_H
#define KN_FALLBACK_H
#include "lower/loop.h"

/* Some launch moves more than an element of an input or output at once. */
bool kn_wants_alignment(const kn_lprog *p);
/* The plainest schedule: a thread a result, elements one by one; warps: for long sums over one tensor a warp a result. */
kiln_bytes kn_fallback_trace(kiln_arena *a, const kn_program *p, bool warps);
#endif
