/* The kernel manifest: enough to launch the kernel from any language with no Kiln code (design section 4). */
#ifndef KN_MANIFEST_H
#define KN_MANIFEST_H
#include "hw/hw.h"
kiln_status kn_manifest(kiln_arena *a, const kn_program *p, const kn_hw *hw, const kiln_kernel *k, kiln_bytes *out);
/* Members "launch" to "fallback" of a GPU kernel's. */
void kn_put_launch_data(kn_buf *b, const kn_program *p, const kn_hw *hw, const kiln_kernel *k);
#endif
