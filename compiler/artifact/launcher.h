/* The host side of a GPU kernel as C text: launches it from raw device pointers through the driver, and as a TVM-FFI function. */
#ifndef KN_LAUNCHER_H
#define KN_LAUNCHER_H
#include "hw/hw.h"
#include "te/te.h"
kiln_status kn_launcher(kiln_arena *a, const kn_program *canonical, const kn_hw *hw, const kiln_kernel *k, kiln_bytes *out);
#endif
