/* How kernels are launched through the driver, as C text that needs no header: one description for a kernel's launcher and for a model's. */
#ifndef KN_LAUNCH_TEXT_H
#define KN_LAUNCH_TEXT_H
#include "te/te.h"

/* One kernel of those that a launcher knows. */
typedef struct kn_launched { const kn_program *program; const kiln_kernel *kernel; } kn_launched;

/* Types, then the tables k_steps (launches) and k_kernels, and the counts K_KERNELS, K_STEPS, K_ARGS (of a launch). False: a launch names a tensor
 * that is none of its kernel's. */
void kn_put_launch_types(kn_buf *b);
bool kn_put_launch_tables(kn_buf *b, const kn_launched *kernels, int n);
/* The driver (k_cu, k_open, k_fail), then k_load_image (a kernel's functions out of its image) and k_kernel_run (its launches, with the fallback
 * for addresses that are no multiples of 16). rows: further rows of the driver's table, each with " \\\n" before it; "": none. */
void kn_put_launch_code(kn_buf *b, const char *rows);
/* k_tensor_of, k_enter: a framework's device becomes current. Behind the types of codegen/tvm_ffi.h. */
void kn_put_launch_device(kn_buf *b);
/* A kernel's tensors, with the temporaries that it or its fallback has, whichever are more; and the device memory of those. */
int kn_launch_slots(const kn_launched *x);
int64_t kn_workspace_bytes(const kiln_kernel *k);
#endif
