/* The TVM-FFI symbol of an artifact (docs/abi.md): one text for kernels that run here and for launchers of those that run on a GPU. */
#include "codegen/tvm_ffi.h"

static const char types[] =
    "\n/* TVM-FFI: DLPack's tensor and the calling convention's argument, as that library lays them out. */\n"
    "typedef struct k_tensor {\n    void *data;\n    i32 device, device_id, ndim;\n    u8 code, bits;\n    u16 lanes;\n    i64 *shape, "
    "*strides;\n"
    "    u64 byte_offset;\n} k_tensor;\n"
    "typedef struct k_any {\n    i32 type_index;\n    u32 zero;\n    union { i64 i; void *p; } v;\n} k_any;\n"
    "typedef struct k_want {\n    i32 ndim;\n    u8 code, bits;\n    i64 shape[8];\n    const char *text;\n} k_want;\n"
    "__attribute__((weak, visibility(\"default\"))) extern void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message);\n"
    "/* Called once a kernel launch: not worth a seventh of the compiler's time. */\n"
    "#ifdef __clang__\n#define KN_PLAIN __attribute__((optnone, noinline))\n"
    "#else\n#define KN_PLAIN __attribute__((optimize(\"O0\"), noinline))\n#endif\n"
    "KN_PLAIN static int k_raise(const char *kind, const char *message)\n{\n"
    "    if (TVMFFIErrorSetRaisedFromCStr) TVMFFIErrorSetRaisedFromCStr(kind, message);\n    return -1;\n}\n"
    "KN_PLAIN static void *k_data(const k_any *a, const k_want *w)\n{\n"
    "    const k_tensor *t = a->type_index == 7 ? (const k_tensor *)a->v.p : a->type_index == 70 && a->v.p ? (const k_tensor *)((const u8 "
    "*)a->v.p + 24) : 0;\n"
    "    if (!t || !K_HERE(t->device) || t->ndim != w->ndim || t->code != w->code || t->bits != w->bits || t->lanes != 1 || !t->data) "
    "return "
    "0;\n"
    "    i64 step = 1;\n    for (i32 i = w->ndim - 1; i >= 0; i--) {\n        if (t->shape[i] != w->shape[i]) return 0;\n"
    "        if (t->strides && t->shape[i] != 1 && t->strides[i] != step) return 0;\n        step *= t->shape[i];\n    }\n"
    "    u8 *data = (u8 *)t->data + t->byte_offset;\n"
    "    return (u64)(__UINTPTR_TYPE__)data % K_ALIGN(w->bits) ? 0 : data;\n}\n";

void kn_put_tensor_type(kn_buf *b, const kn_tensor *t)
{
    kn_putf(b, "%s[", kn_dtype_text(t->dtype));
    for (int i = 0; i < t->rank; i++) kn_putf(b, "%s%lld", i ? "," : "", (long long)t->shape[i]);
    kn_put(b, "]");
}

static int dlpack_code(enum kn_dtype t)
{
    char c = kn_dtype_class(t);
    if (kn_is_f8(t)) return t == KN_F8E4M3 ? 10 : 12; /* DLPack 1.1: kDLFloat8_e4m3fn, kDLFloat8_e5m2 */
    return t == KN_BF16 ? 4 : c == 'f' ? 2 : c == 'u' ? 1 : c == 'b' ? 6 : 0;
}

/* DLPack's devices: 1 CPU, 2 CUDA, 13 CUDA's managed memory. */
void kn_put_tvm_types(kn_buf *b, bool gpu)
{
    kn_put(b, gpu ? "\n#define K_HERE(device) ((device) == 2 || (device) == 13)\n#define K_ALIGN(bits) ((bits) / 8u)"
                  : "\n#define K_HERE(device) ((device) == 1)\n#define K_ALIGN(bits) ((bits) / 8u)");
    kn_put(b, types);
}

void kn_put_tvm_wants(kn_buf *b, const kn_program *p, const char *where)
{
    int nin = p->ninputs, n = nin + p->noutputs;
    kn_put(b, "static const k_want k_wants[] = {\n");
    for (int i = 0; i < n; i++) {
        const kn_tensor *t = &p->tensors[i];
        kn_putf(b, "    {%d, %d, %d, {", t->rank, dlpack_code(t->dtype), 8 * kn_dtype_bytes(t->dtype));
        for (int j = 0; j < t->rank; j++) kn_putf(b, "%s%lld", j ? ", " : "", (long long)t->shape[j]);
        kn_putf(b, "%s}, \"argument %d (%s %d): a contiguous, aligned ", t->rank ? "" : "0", i, i < nin ? "input" : "output",
                i < nin ? i : i - nin);
        kn_put_tensor_type(b, t);
        kn_putf(b, " %s is expected\"},\n", where);
    }
    kn_put(b, "};\n");
}

void kn_put_tvm_open(kn_buf *b, const kn_program *p, const char *entry)
{
    int n = p->ninputs + p->noutputs;
    kn_putf(b, "KN_PLAIN KN_API int __tvm_ffi_%s(void *self, const k_any *args, i32 n, k_any *result)\n{\n    (void)self;\n", entry);
    kn_putf(b, "    if (n != %d) return k_raise(\"TypeError\", \"%d arguments are expected: inputs, then outputs\");\n", n, n);
    kn_putf(b,
            "    void *data[%d];\n    for (i32 i = 0; i < %d; i++)\n        if (!(data[i] = k_data(&args[i], &k_wants[i]))) return "
            "k_raise(\"TypeError\", k_wants[i].text);\n",
            n, n);
}

void kn_put_tvm_close(kn_buf *b)
{
    kn_put(b, "    if (result) {\n        result->type_index = 0;\n        result->zero = 0;\n        result->v.i = 0;\n    }\n    return "
              "0;\n}\n");
}
