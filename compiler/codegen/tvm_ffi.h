/* The TVM-FFI symbol of an artifact as C text: the ABI's types, the tensors that are wanted, and the function around a call. The text
 * stands behind typedefs u8, u16, i32, u32, i64, u64 and KN_API. */
#ifndef KN_TVM_FFI_H
#define KN_TVM_FFI_H
#include "te/te.h"

void kn_put_tensor_type(kn_buf *b, const kn_tensor *t); /* "f32[512,512]" */
void kn_put_tvm_types(kn_buf *b, bool gpu); /* k_tensor, k_any, k_want, k_raise, k_data; gpu: device memory */
void kn_put_tvm_wants(kn_buf *b, const kn_program *p, const char *where); /* k_wants: inputs, then outputs; where: "on the CPU" */
/* __tvm_ffi_ENTRY up to `data`: pointers to what each argument holds; then what the caller prints; then the end, which gives None. */
void kn_put_tvm_open(kn_buf *b, const kn_program *p, const char *entry);
void kn_put_tvm_close(kn_buf *b);
#endif
