/* Loop programs as C with the vector types of gcc and clang, and the ABI around them (docs/abi.md). */
#include "codegen/gen.h"
#include "codegen/tvm_ffi.h"

enum { TVM_STACK = 16 * 1024 }; /* workspace on the stack of the TVM-FFI entry, docs/abi.md */

/* Predictive commoning hands what a window's next tap reads again from iteration to iteration in registers: instead of a broadcast from memory, which
 * the loads' ports do beside the multiply-adds, a move, a shuffle and, with 16 registers, a spill (a 7x7 window, AVX2: 1.5 times the time).
 * KN_TASK: gcc 12 writes a store as an offset from no pointer at all where loops of two tensors share an induction variable, finds that a function of
 * such stores has no effect, and leaves its calls out; told nothing of a task's inside, it cannot. */
static const char head[] =
    "typedef float f32;\ntypedef double f64;\ntypedef __INT8_TYPE__ i8;\ntypedef __INT16_TYPE__ i16;\ntypedef __INT32_TYPE__ i32;\n"
    "typedef __INT64_TYPE__ i64;\ntypedef __UINT8_TYPE__ u8;\ntypedef __UINT16_TYPE__ u16;\ntypedef __UINT32_TYPE__ u32;\n"
    "typedef __UINT64_TYPE__ u64;\n"
    "#pragma GCC diagnostic ignored \"-Wpsabi\"\n#pragma GCC diagnostic ignored \"-Wunused-variable\"\n"
    "#pragma GCC diagnostic ignored \"-Wunused-but-set-variable\"\n"
    "#ifdef __clang__\n#define KN_TASK static\n#else\n#pragma GCC optimize (\"no-predictive-commoning\")\n"
    "#define KN_TASK static __attribute__((noipa))\n#endif\n"
    "#define KN_FN static inline __attribute__((always_inline, unused))\n#define KN_API __attribute__((visibility(\"default\")))\n";

static const char vector_head[] =
    "#define KN_VEC(T, L) typedef T T##x##L __attribute__((vector_size(sizeof(T) * L))); \\\n"
    "    typedef T T##x##L##u __attribute__((vector_size(sizeof(T) * L), aligned(sizeof(T)), may_alias))\n"
    "#define KN_VECS(L) KN_VEC(f32, L); KN_VEC(f64, L); KN_VEC(i8, L); KN_VEC(i16, L); KN_VEC(i32, L); KN_VEC(i64, L); \\\n"
    "    KN_VEC(u8, L); KN_VEC(u16, L); KN_VEC(u32, L); KN_VEC(u64, L)\n";

static const char runtime[] =
    "\ntypedef struct kiln_pool {\n    void *ctx;\n    i32 nthreads;\n"
    "    void (*parallel_for)(void *ctx, i64 ntasks, void (*task)(void *closure, i64 index, i32 worker), void *closure);\n} kiln_pool;\n"
    "typedef struct k_args {\n    const void *const *in;\n    void *const *out;\n    u8 *temps, *scratch;\n%s} k_args;\n";

static const char run_text[] =
    "\nstatic void k_run(void (*task)(void *, i64, i32), i64 n, k_args *k, const kiln_pool *pool)\n{\n%s"
    "    if (pool && n > 1) pool->parallel_for(pool->ctx, n, task, k);\n    else for (i64 i = 0; i < n; i++) task(k, i, 0);\n}\n";

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
    if (b->scope == KN_PACKED && b->offset) {
        kn_putf(&g->out, "((%su8 *)%s[%d] + %lld);", constant, stored ? "k->out" : "k->in", stored ? 0 : b->slot, (long long)b->offset);
        return;
    }
    if (b->scope == KN_SCRATCH) {
        kn_putf(&g->out, "(k->scratch + (i64)k_worker * %lld + %lld);", (long long)kn_round_up(p->scratch_bytes, 64), (long long)b->offset);
    } else if (b->scope == KN_PACKED && stored) {
        kn_put(&g->out, "k->out[0];");
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

static void task(kn_gen *g, const kn_fn *f, const char *name, int n)
{
    const kn_lprog *p = g->p;
    bool *used = kn_array(g->a, bool, p->nbuffers + 1), *stored = kn_array(g->a, bool, p->nbuffers + 1);
    if (!used || !stored) return;
    kn_mark_buffers(p, f, used, stored);
    kn_fn_ranges(g, f);
    kn_putf(&g->out, "\nKN_TASK void %s_%d(void *closure, i64 k_index, i32 k_worker)\n{", name, n);
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
    bool unit = kn_unit_used(g, f);
    if (unit) kn_line(g), kn_putf(&g->out, "KN_UNIT_OPEN(%s_%d);", name, n);
    g->streams = false;
    kn_put_body(g, f->body);
    if (g->streams) kn_line(g), kn_put(&g->out, "if (k->pooled) KN_STREAMED();"); /* waiting takes longer than a short task does */
    g->streamed |= g->streams;
    if (unit) kn_line(g), kn_put(&g->out, "KN_UNIT_CLOSE();");
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

static void entry_functions(kn_buf *b, const kn_gen *g, const char *entry, int64_t temps)
{
    const kn_lprog *p = g->p;
    const char *more = g->streamed ? ", 0" : "";
    int64_t scratch = kn_round_up(p->scratch_bytes, 64);
    kn_putf(b, "\nKN_API const char kiln_entry[] = \"%s\";\nKN_API i32 kiln_abi_version(void) { return 1; }\n", entry);
    kn_putf(b, "KN_API i64 %s_workspace(i32 nthreads) { return %lld + (i64)(nthreads < 1 ? 1 : nthreads) * %lld; }\n", entry,
            (long long)temps, (long long)scratch);
    kn_putf(b, "KN_API i32 %s(const void *const *inputs, void *const *outputs, void *workspace, const kiln_pool *pool)\n{\n", entry);
    if (temps || scratch)
        kn_put(b, "    if (!workspace) return 1;\n");
    else
        kn_put(b, "    (void)workspace;\n");
    for (int i = 0, units = 0; i < p->ncalls; i++)
        if (p->calls[i].unit && !units++) kn_put(b, "#ifdef KN_UNIT\n    if (!kiln_tiles) return 2;\n#endif\n");
    if (temps || scratch)
        kn_putf(b, "    k_args k = {inputs, outputs, (u8 *)workspace, (u8 *)workspace + %lld%s};\n", (long long)temps, more);
    else
        kn_putf(b, "    k_args k = {inputs, outputs, 0, 0%s};\n", more);
    if (!forks(p)) kn_put(b, "    (void)pool;\n");
    for (int i = 0; i < p->nfns; i++) {
        if (p->fns[i].grid > 1) kn_putf(b, "    k_run(task_%d, %lld, &k, pool);\n", i, (long long)p->fns[i].grid);
        else kn_putf(b, "    task_%d(&k, 0, 0);\n", i);
    }
    if (g->streamed) kn_put(b, "    KN_STREAMED();\n");
    kn_put(b, "    return 0;\n}\n");
}

/* The program as its caller sees it: inputs that are packed ahead are rows of elements. */
static const kn_program *as_given(kiln_arena *a, const kn_lprog *p)
{
    if (!p->npacks) return p->program;
    kn_program *q = kn_program_clone(a, p->program);
    for (int i = 0; q && i < p->npacks; i++) {
        kn_tensor *x = &q->tensors[kn_pack_slot(p, i)];
        x->rank = 1;
        x->shape[0] = kn_pack_bytes(p, kn_pack_slot(p, i)) / kn_dtype_bytes(x->dtype);
    }
    return q;
}

static void pack_calls(kn_buf *b, const kn_lprog *p, int slot)
{
    for (int i = 0; i < p->npacks; i++) {
        const kn_fn *f = &p->packs[i];
        if (kn_pack_slot(p, i) != slot) continue;
        if (f->scratch_bytes) kn_putf(b, "    k.scratch = (u8 *)packed + %lld;\n", (long long)f->scratch_at);
        if (f->grid > 1) kn_putf(b, "    for (i64 i = 0; i < %lld; i++) pack_%d(&k, i, 0);\n", (long long)f->grid, i);
        else kn_putf(b, "    pack_%d(&k, 0, 0);\n", i);
    }
}

/* One a constant input: makes of it what is given in its place. */
static void pack_functions(kn_buf *b, const kn_gen *g, const char *entry)
{
    const kn_lprog *p = g->p;
    for (int i = 0; i < p->npacks; i++) {
        int slot = kn_pack_slot(p, i);
        if (!kn_pack_first(p, i)) continue;
        kn_putf(b, "KN_API i64 %s_prepack_%d(const void *input, void *packed)\n{\n    if (!packed) return %lld;\n", entry, slot,
                (long long)kn_pack_bytes(p, slot));
        kn_putf(b, "    const void *in[%d] = {0};\n    in[%d] = input;\n", slot + 1, slot);
        kn_put(b, "    k_args k = {.in = in, .out = &packed};\n");
        pack_calls(b, p, slot);
        if (g->streamed) kn_put(b, "    KN_STREAMED();\n");
        kn_putf(b, "    return %lld;\n}\n", (long long)kn_pack_bytes(p, slot));
    }
}

/* Serial; the workspace comes from the stack where it is small, else from the C library for the length of the call. */
static void tvm_entry(kn_buf *b, const kn_lprog *p, const char *entry, int64_t workspace)
{
    int nin = p->program->ninputs;
    bool stack = workspace <= TVM_STACK;
    if (!stack) kn_put(b, "extern void *aligned_alloc(__SIZE_TYPE__, __SIZE_TYPE__);\nextern void free(void *);\n");
    kn_put_tvm_open(b, p->program, entry);
    if (workspace && stack) kn_putf(b, "    u8 workspace[%lld] __attribute__((aligned(64)));\n", (long long)workspace);
    if (!stack) {
        kn_putf(b, "    void *workspace = aligned_alloc(64, %lld);\n", (long long)kn_round_up(workspace, 64));
        kn_putf(b, "    if (!workspace) return k_raise(\"RuntimeError\", \"no memory for a workspace of %lld bytes\");\n", (long long)workspace);
    }
    kn_putf(b, "    %s((const void *const *)data, data + %d, %s, 0);\n", entry, nin, workspace ? "workspace" : "0");
    if (!stack) kn_put(b, "    free(workspace);\n");
    kn_put_tvm_close(b);
}

static void put_header(kn_buf *b, const kn_lprog *p, const kn_program *given, const char *e)
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
        kn_put_tensor_type(b, &given->tensors[i]);
        kn_put(b, "\n");
    }
    kn_putf(b, " */\nint64_t %s_workspace(int32_t nthreads); /* bytes, to be aligned to 64; 0: none */\n", e);
    kn_putf(b, "int32_t %s(const void *const *inputs, void *const *outputs, void *workspace, const kiln_pool *pool); /* 0: done */\n", e);
    for (int i = 0; i < p->npacks; i++)
        if (kn_pack_first(p, i))
            kn_putf(b, "int64_t %s_prepack_%d(const void *input, void *packed); /* makes what is given as inputs[%d], aligned to 64; its bytes */\n",
                    e, kn_pack_slot(p, i), kn_pack_slot(p, i));
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
    for (int i = 0; i < p->nfns; i++) task(g, &p->fns[i], "task", i);
    for (int i = 0; i < p->npacks; i++) task(g, &p->packs[i], "pack", i);
    if (g->status != KILN_OK) return g->status;
    kn_buf_init(&prelude, a);
    kn_put_prelude(g, &prelude);
    kn_buf_init(&b, a);
    kn_gen_title(&b, p, entry);
    kn_put(&b, head);
    vector_types(g, &b);
    if (kn_instructions_flush(p)) kn_put(&b, "#define KN_FLUSHES 1\n");
    kn_putn(&b, prelude.p ? prelude.p : "", prelude.n);
    kn_putf(&b, runtime, g->streamed ? "    i32 pooled;\n" : "");
    kn_putn(&b, g->out.p ? g->out.p : "", g->out.n);
    if (forks(p)) kn_putf(&b, run_text, g->streamed ? "    k->pooled = pool && n > 1;\n" : "");
    entry_functions(&b, g, entry, temps);
    pack_functions(&b, g, entry);
    kn_put_tvm_types(&b, false);
    const kn_program *given = as_given(a, p);
    if (!given) return kn_fail(d, KILN_MEMORY, "out of memory");
    kn_put_tvm_wants(&b, given, "on the CPU");
    tvm_entry(&b, p, entry, temps + kn_round_up(p->scratch_bytes, 64));
    kn_buf_init(&h, a);
    put_header(&h, p, given, entry);
    kiln_bytes text = kn_buf_take(&b), declarations = kn_buf_take(&h);
    if (!text.p || !declarations.p || g->out.failed || prelude.failed) return kn_fail(d, KILN_MEMORY, "out of memory");
    *source = text;
    *header = declarations;
    return KILN_OK;
}
