/* Loop programs as C with the vector types of gcc and clang, and the ABI around them (docs/abi.md). */
#include "codegen/gen.h"

#define TVM_STACK (16 * 1024) /* workspace that the TVM-FFI entry brings along itself, docs/abi.md */

static const char head[] =
    "typedef float f32;\ntypedef double f64;\ntypedef __INT8_TYPE__ i8;\ntypedef __INT16_TYPE__ i16;\ntypedef __INT32_TYPE__ i32;\n"
    "typedef __INT64_TYPE__ i64;\ntypedef __UINT8_TYPE__ u8;\ntypedef __UINT16_TYPE__ u16;\ntypedef __UINT32_TYPE__ u32;\n"
    "typedef __UINT64_TYPE__ u64;\n"
    "#pragma GCC diagnostic ignored \"-Wpsabi\"\n#pragma GCC diagnostic ignored \"-Wunused-variable\"\n"
    "#pragma GCC diagnostic ignored \"-Wunused-but-set-variable\"\n"
    "#define KN_FN static inline __attribute__((always_inline))\n#define KN_API __attribute__((visibility(\"default\")))\n";

static const char vector_head[] =
    "#define KN_VEC(T, L) typedef T T##x##L __attribute__((vector_size(sizeof(T) * L))); \\\n"
    "    typedef T T##x##L##u __attribute__((vector_size(sizeof(T) * L), aligned(sizeof(T)), may_alias))\n"
    "#define KN_VECS(L) KN_VEC(f32, L); KN_VEC(f64, L); KN_VEC(i8, L); KN_VEC(i16, L); KN_VEC(i32, L); KN_VEC(i64, L); \\\n"
    "    KN_VEC(u8, L); KN_VEC(u16, L); KN_VEC(u32, L); KN_VEC(u64, L)\n";

static const char runtime[] =
    "\ntypedef struct kiln_pool {\n    void *ctx;\n    i32 nthreads;\n"
    "    void (*parallel_for)(void *ctx, i64 ntasks, void (*task)(void *closure, i64 index, i32 worker), void *closure);\n} kiln_pool;\n"
    "typedef struct k_args {\n    const void *const *in;\n    void *const *out;\n    u8 *temps, *scratch;\n} k_args;\n";

static const char run_text[] =
    "\nstatic void k_run(void (*task)(void *, i64, i32), i64 n, k_args *k, const kiln_pool *pool)\n{\n"
    "    if (pool && n > 1) pool->parallel_for(pool->ctx, n, task, k);\n    else for (i64 i = 0; i < n; i++) task(k, i, 0);\n}\n";

static const char tvm_types[] =
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
    "    if (!t || t->device != 1 || t->ndim != w->ndim || t->code != w->code || t->bits != w->bits || t->lanes != 1 || !t->data) return "
    "0;\n"
    "    i64 step = 1;\n    for (i32 i = w->ndim - 1; i >= 0; i--) {\n        if (t->shape[i] != w->shape[i]) return 0;\n"
    "        if (t->strides && t->shape[i] != 1 && t->strides[i] != step) return 0;\n        step *= t->shape[i];\n    }\n"
    "    u8 *data = (u8 *)t->data + t->byte_offset;\n"
    "    return (u64)(__UINTPTR_TYPE__)data % (w->bits / 8u) ? 0 : data;\n}\n";

static int64_t tensor_bytes(const kn_tensor *t)
{
    int64_t n = kn_dtype_bytes(t->dtype);
    for (int i = 0; i < t->rank; i++)
        if (!kn_mul_fits(n, t->shape[i], &n)) return -1;
    return n;
}

/* Byte offset of the temporary in the workspace, or of the end of all when slot is -1; -1: overflow or no such temporary. */
static int64_t temp_offset(const kn_lprog *p, int slot)
{
    int64_t at = 0;
    for (int i = 0; i < p->ntemps; i++) {
        if (p->temp_slot[i] == slot) return at;
        int64_t n = tensor_bytes(&p->program->tensors[p->temp_slot[i]]);
        if (n < 0 || n > KILN_MAX_ELEMENTS * 8) return -1;
        at += kn_round_up(n, 64);
    }
    return slot < 0 ? at : -1;
}

static bool slot_twice(const kn_lprog *p, int buffer)
{
    for (int i = 0; i < p->nbuffers; i++)
        if (i != buffer && p->buffers[i].scope == KN_GLOBAL && p->buffers[i].slot == p->buffers[buffer].slot) return true;
    return false;
}

static void pointer(kn_gen *g, int i, bool stored)
{
    const kn_lprog *p = g->p;
    const kn_buffer *b = &p->buffers[i];
    const char *type = kn_storage_type(b->dtype), *constant = stored || b->scope == KN_SCRATCH ? "" : "const ";
    bool alias = b->scope == KN_GLOBAL && slot_twice(p, i);
    kn_line(g);
    kn_putf(&g->out, "%s%s *%s", constant, type, alias ? "" : "restrict ");
    kn_put_buffer(g, i);
    kn_putf(&g->out, " = (%s%s *)", constant, type);
    if (b->scope == KN_SCRATCH) {
        kn_putf(&g->out, "(k->scratch + (i64)k_worker * %lld + %lld);", (long long)kn_round_up(p->scratch_bytes, 64), (long long)b->offset);
    } else if (b->slot < p->program->ninputs) {
        kn_putf(&g->out, "k->in[%d];", b->slot);
    } else if (b->slot < p->program->ninputs + p->program->noutputs) {
        kn_putf(&g->out, "k->out[%d];", b->slot - p->program->ninputs);
    } else {
        int64_t at = temp_offset(p, b->slot);
        if (at < 0) kn_gen_refuse(g, KILN_INTERNAL, "a temporary that has no place in the workspace");
        kn_putf(&g->out, "(k->temps + %lld);", (long long)at);
    }
}

static void task(kn_gen *g, int n)
{
    const kn_lprog *p = g->p;
    const kn_fn *f = &p->fns[n];
    bool *used = kn_array(g->a, bool, p->nbuffers + 1), *stored = kn_array(g->a, bool, p->nbuffers + 1);
    if (!used || !stored) return;
    kn_mark_buffers(p, f, used, stored);
    kn_fn_ranges(g, f);
    kn_putf(&g->out, "\nstatic void task_%d(void *closure, i64 k_index, i32 k_worker)\n{", n);
    g->depth = 1;
    kn_line(g);
    kn_put(&g->out, "const k_args *k = (const k_args *)closure;");
    for (int i = 0; i < p->nbuffers; i++) {
        if (!used[i] || p->buffers[i].scope == KN_REGISTER) continue;
        if (p->buffers[i].scope == KN_SHARED)
            kn_gen_refuse(g, KILN_INTERNAL, "shared memory in a CPU program");
        else
            pointer(g, i, stored[i]);
    }
    if (f->var_grid >= 0) {
        kn_line(g);
        kn_put(&g->out, "const i64 ");
        kn_put_var(g, f->var_grid);
        kn_put(&g->out, " = k_index;");
    }
    kn_put_registers(g, f);
    kn_put_body(g, f->body);
    g->depth = 0;
    kn_put(&g->out, "\n}\n");
}

/* Some launch has more than one task. */
static bool forks(const kn_lprog *p)
{
    for (int i = 0; i < p->nfns; i++)
        if (p->fns[i].grid > 1) return true;
    return false;
}

static void entry_functions(kn_buf *b, const kn_lprog *p, const char *entry, int64_t temps)
{
    int64_t scratch = kn_round_up(p->scratch_bytes, 64);
    kn_putf(b, "\nKN_API const char kiln_entry[] = \"%s\";\nKN_API i32 kiln_abi_version(void) { return 1; }\n", entry);
    kn_putf(b, "KN_API i64 %s_workspace(i32 nthreads) { return %lld + (i64)(nthreads < 1 ? 1 : nthreads) * %lld; }\n", entry,
            (long long)temps, (long long)scratch);
    kn_putf(b, "KN_API i32 %s(const void *const *inputs, void *const *outputs, void *workspace, const kiln_pool *pool)\n{\n", entry);
    if (temps || scratch)
        kn_put(b, "    if (!workspace) return 1;\n");
    else
        kn_put(b, "    (void)workspace;\n");
    if (temps || scratch)
        kn_putf(b, "    k_args k = {inputs, outputs, (u8 *)workspace, (u8 *)workspace + %lld};\n", (long long)temps);
    else
        kn_put(b, "    k_args k = {inputs, outputs, 0, 0};\n");
    if (!forks(p)) kn_put(b, "    (void)pool;\n");
    for (int i = 0; i < p->nfns; i++) {
        if (p->fns[i].grid > 1) kn_putf(b, "    k_run(task_%d, %lld, &k, pool);\n", i, (long long)p->fns[i].grid);
        else kn_putf(b, "    task_%d(&k, 0, 0);\n", i);
    }
    kn_put(b, "    return 0;\n}\n");
}

static void put_shape(kn_buf *b, const kn_tensor *t)
{
    kn_putf(b, "%s[", kn_dtype_text(t->dtype));
    for (int i = 0; i < t->rank; i++) kn_putf(b, "%s%lld", i ? "," : "", (long long)t->shape[i]);
    kn_put(b, "]");
}

static int dlpack_code(enum kn_dtype t)
{
    char c = kn_dtype_class(t);
    return t == KN_BF16 ? 4 : c == 'f' ? 2 : c == 'u' ? 1 : c == 'b' ? 6 : 0;
}

static void tvm_entry(kn_buf *b, const kn_lprog *p, const char *entry, int64_t workspace)
{
    int nin = p->program->ninputs, n = nin + p->program->noutputs;
    kn_put(b, tvm_types);
    kn_put(b, "static const k_want k_wants[] = {\n");
    for (int i = 0; i < n; i++) {
        const kn_tensor *t = &p->program->tensors[i];
        kn_putf(b, "    {%d, %d, %d, {", t->rank, dlpack_code(t->dtype), 8 * kn_dtype_bytes(t->dtype));
        for (int j = 0; j < t->rank; j++) kn_putf(b, "%s%lld", j ? ", " : "", (long long)t->shape[j]);
        kn_putf(b, "%s}, \"argument %d (%s %d): a contiguous, aligned ", t->rank ? "" : "0", i, i < nin ? "input" : "output",
                i < nin ? i : i - nin);
        put_shape(b, t);
        kn_put(b, " on the CPU is expected\"},\n");
    }
    kn_putf(b, "};\nKN_PLAIN KN_API int __tvm_ffi_%s(void *self, const k_any *args, i32 n, k_any *result)\n{\n    (void)self;\n", entry);
    kn_putf(b, "    if (n != %d) return k_raise(\"TypeError\", \"%d arguments are expected: inputs, then outputs\");\n", n, n);
    kn_putf(b,
            "    void *data[%d];\n    for (i32 i = 0; i < %d; i++)\n        if (!(data[i] = k_data(&args[i], &k_wants[i]))) return "
            "k_raise(\"TypeError\", k_wants[i].text);\n",
            n, n);
    if (workspace > TVM_STACK) {
        kn_putf(b, "    return k_raise(\"RuntimeError\", \"this kernel needs a workspace of %lld bytes: call %s\");\n}\n",
                (long long)workspace, entry);
        return;
    }
    if (workspace) kn_putf(b, "    u8 workspace[%lld] __attribute__((aligned(64)));\n", (long long)workspace);
    kn_putf(b, "    %s((const void *const *)data, data + %d, %s, 0);\n", entry, nin, workspace ? "workspace" : "0");
    kn_put(b, "    if (result) {\n        result->type_index = 0;\n        result->zero = 0;\n        result->v.i = 0;\n    }\n    return "
              "0;\n}\n");
}

static void put_header(kn_buf *b, const kn_lprog *p, const char *e)
{
    int nin = p->program->ninputs, n = nin + p->program->noutputs;
    kn_gen_title(b, p, e);
    kn_putf(b, "#ifndef %s_H\n#define %s_H\n#include <stdint.h>\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n", e, e);
    kn_put(
        b,
        "#ifndef KILN_POOL_DEFINED\n#define KILN_POOL_DEFINED\ntypedef struct kiln_pool {\n    void *ctx;\n"
        "    int32_t nthreads; /* >= 1; the worker number passed to a task is below it */\n"
        "    void (*parallel_for)(void *ctx, int64_t ntasks, void (*task)(void *closure, int64_t index, int32_t worker), void *closure);\n"
        "} kiln_pool;\n#endif\n");
    kn_put(b, "/* Contiguous, row-major, aligned to their elements; outputs overlap nothing. pool NULL: serial.\n");
    for (int i = 0; i < n; i++) {
        kn_putf(b, " *   %s[%d]: ", i < nin ? "inputs" : "outputs", i < nin ? i : i - nin);
        put_shape(b, &p->program->tensors[i]);
        kn_put(b, "\n");
    }
    kn_putf(b, " */\nint64_t %s_workspace(int32_t nthreads); /* bytes, to be aligned to 64; 0: none */\n", e);
    kn_putf(b, "int32_t %s(const void *const *inputs, void *const *outputs, void *workspace, const kiln_pool *pool); /* 0: done */\n", e);
    kn_put(b, "#ifdef __cplusplus\n}\n#endif\n#endif\n");
}

static void vector_types(const kn_gen *g, kn_buf *b)
{
    bool any = false;
    for (int k = 1; k < KN_LANE_CLASSES; k++) {
        if (!g->lanes[k]) continue;
        if (!any) kn_put(b, vector_head);
        any = true;
        kn_putf(b, "KN_VECS(%d);\n", 1 << k);
    }
}

kiln_status kn_gen_c(kiln_arena *a, const kn_lprog *p, const char *entry, kiln_bytes *source, kiln_bytes *header, kiln_diag *d)
{
    kn_gen *g = kn_new(a, kn_gen);
    kn_buf b, prelude, h;
    if (!g || kn_gen_open(g, a, p, false, d) != KILN_OK) return kn_fail(d, KILN_MEMORY, "out of memory");
    int64_t temps = temp_offset(p, -1);
    if (temps < 0) return kn_fail(d, KILN_LIMIT, "the temporaries are too large");
    kn_put_instructions(g);
    for (int i = 0; i < p->nfns; i++) task(g, i);
    if (g->status != KILN_OK) return g->status;
    kn_buf_init(&prelude, a);
    kn_put_prelude(g, &prelude);
    kn_buf_init(&b, a);
    kn_gen_title(&b, p, entry);
    kn_put(&b, head);
    vector_types(g, &b);
    kn_putn(&b, prelude.p ? prelude.p : "", prelude.n);
    kn_put(&b, runtime);
    kn_putn(&b, g->out.p ? g->out.p : "", g->out.n);
    if (forks(p)) kn_put(&b, run_text);
    entry_functions(&b, p, entry, temps);
    tvm_entry(&b, p, entry, temps + kn_round_up(p->scratch_bytes, 64));
    kn_buf_init(&h, a);
    put_header(&h, p, entry);
    kiln_bytes text = kn_buf_take(&b), declarations = kn_buf_take(&h);
    if (!text.p || !declarations.p || g->out.failed || prelude.failed) return kn_fail(d, KILN_MEMORY, "out of memory");
    *source = text;
    *header = declarations;
    return KILN_OK;
}
