/* The host side of a GPU kernel as C text: launches it from raw device pointers through the driver, and as a TVM-FFI function. */
#ifndef KN_LAUNCHER_H
#define KN_LAUNCHER_H
#include "hw/hw.h"
#include "te/te.h"
kiln_status kn_launcher(kiln_arena *a, const kn_program *canonical, const kn_hw *hw, const kiln_kernel *k, kiln_bytes *out);
/* Of device memory that launches may want: the kernel's or its fallback's temporaries, whichever are more. */
int64_t kn_workspace_bytes(const kiln_kernel *k);
#endif
