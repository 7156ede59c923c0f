/* Loop programs as CUDA C without headers; the same text is C for a compiler that is told what the CUDA keywords mean. */
#include "codegen/gen.h"

#define NARROW_ELEMS (INT64_C(1) << 30) /* leaves a factor of two for tiles that reach past an extent */

static const char head[] =
    "typedef float f32;\ntypedef double f64;\ntypedef signed char i8;\ntypedef short i16;\ntypedef int i32;\ntypedef long long i64;\n"
    "typedef unsigned char u8;\ntypedef unsigned short u16;\ntypedef unsigned int u32;\ntypedef unsigned long long u64;\n"
    "#ifdef __CUDACC__\n#define KN_FN static __device__ __forceinline__\n#define KN_ALIGN(n) __align__(n)\n#define KN_WIDE(n) __align__(n)\n#else\n"
    "#define KN_FN static inline\n#define KN_ALIGN(n) __attribute__((aligned(n), may_alias))\n"
    "#define KN_WIDE(n) __attribute__((packed, may_alias))\n#endif\n"
    "#ifdef __CUDACC__\n#define KN_DYNAMIC(name, n) extern __shared__ __align__(1024) u8 name[]\n#else\n"
    "#define KN_DYNAMIC(name, n) __shared__ KN_ALIGN(1024) u8 name[n]\n#endif\n"
    "#ifdef __cplusplus\n#define KN_ENTRY extern \"C\" __global__ void\n#else\n#define KN_ENTRY __global__ void\n#endif\n"
    "typedef struct KN_WIDE(4) i32x1 { i32 v[1]; } i32x1;\n";

static void vector_types(const kn_gen *g, kn_buf *b)
{
    static const struct {
        const char *name;
        int bytes;
    } t[] = {{"f32", 4}, {"f64", 8}, {"i8", 1}, {"u8", 1}, {"i16", 2}, {"u16", 2}, {"i32", 4}, {"i64", 8}};
    for (int k = 1; k < KN_LANE_CLASSES; k++) {
        if (!g->lanes[k]) continue;
        for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
            int bytes = t[i].bytes << k;
            kn_putf(b, "typedef struct KN_WIDE(%d) %sx%d { %s v[%d]; } %sx%d;\n", bytes > 16 ? 16 : bytes, t[i].name, 1 << k, t[i].name,
                    1 << k, t[i].name, 1 << k);
        }
    }
}

static bool is_narrow(const kn_lprog *p)
{
    for (int i = 0; i < p->nbuffers; i++)
        if (p->buffers[i].elems > NARROW_ELEMS) return false;
    for (int i = 0; i < p->nfns; i++)
        if (p->fns[i].grid > NARROW_ELEMS) return false;
    return true;
}

/* The buffer of tensor `slot`; -1. */
static int buffer_of(const kn_lprog *p, int slot)
{
    for (int i = 0; i < p->nbuffers; i++)
        if (p->buffers[i].scope == KN_GLOBAL && p->buffers[i].slot == slot) return i;
    return -1;
}

static void parameters(kn_gen *g, const kn_fn *f, const bool *stored)
{
    kn_put(&g->out, "(");
    for (int i = 0; i < f->nargs; i++) {
        int b = buffer_of(g->p, f->args[i]);
        if (b < 0) {
            kn_gen_refuse(g, KILN_INTERNAL, "an argument that has no buffer");
            return;
        }
        if (f->maps && f->maps[i].rank) {
            g->warp[KN_WT_MAP] = true;
            kn_put(&g->out, i ? ", const __grid_constant__ k_map " : "const __grid_constant__ k_map ");
            kn_put_buffer(g, b);
            continue;
        }
        kn_putf(&g->out, "%s%s%s *__restrict__ ", i ? ", " : "", stored[b] ? "" : "const ", kn_storage_type(g->p->buffers[b].dtype));
        kn_put_buffer(g, b);
    }
    kn_put(&g->out, ")\n{");
}

/* Arrays of the block; more of them than static declarations may have lie in one that is sized at the launch. */
static void shared(kn_gen *g, const kn_fn *f, const bool *used)
{
    bool dynamic = f->shared_bytes > KN_STATIC_SHARED;
    int64_t bytes = 0;
    if (dynamic) {
        kn_line(g);
        kn_putf(&g->out, "KN_DYNAMIC(k_shared, %lld);", (long long)f->shared_bytes);
    }
    for (int i = 0; i < g->p->nbuffers; i++) {
        const kn_buffer *b = &g->p->buffers[i];
        const char *type = kn_storage_type(b->dtype);
        if (b->scope != KN_SHARED || !used[i]) continue;
        if ((bytes += kn_round_up(b->elems * kn_dtype_bytes(b->dtype), 16)) > KN_STATIC_SHARED && !dynamic) {
            kn_gen_refuse(g, KILN_INTERNAL, "more shared memory than the launch says");
            return;
        }
        kn_line(g);
        if (dynamic) kn_putf(&g->out, "%s *const ", type);
        else kn_putf(&g->out, "__shared__ KN_ALIGN(%d) %s ", b->align ? b->align : 16, type);
        kn_put_buffer(g, i);
        if (dynamic) kn_putf(&g->out, " = (%s *)(k_shared + %lld);", type, (long long)b->offset);
        else kn_putf(&g->out, "[%lld];", (long long)b->elems);
    }
}

/* Tiles of a thread: operands of instructions, and their partial results. */
static void local(kn_gen *g, const bool *used)
{
    for (int i = 0; i < g->p->nbuffers; i++) {
        const kn_buffer *b = &g->p->buffers[i];
        if (b->scope != KN_SCRATCH || !used[i]) continue;
        kn_line(g);
        kn_putf(&g->out, "KN_ALIGN(16) %s ", kn_storage_type(b->dtype));
        kn_put_buffer(g, i);
        kn_putf(&g->out, "[%lld];", (long long)b->elems);
    }
}

static void index_variable(kn_gen *g, int var, const char *what)
{
    if (var < 0) return;
    kn_line(g);
    kn_putf(&g->out, "const %s ", g->narrow ? "int" : "i64");
    kn_put_var(g, var);
    kn_putf(&g->out, " = (%s)%s;", g->narrow ? "int" : "i64", what);
}

static void function(kn_gen *g, int i, const char *entry)
{
    const kn_fn *f = &g->p->fns[i];
    bool *used = kn_array(g->a, bool, g->p->nbuffers + 1), *stored = kn_array(g->a, bool, g->p->nbuffers + 1);
    if (!used || !stored) return;
    kn_mark_buffers(g->p, f, used, stored);
    kn_fn_ranges(g, f);
    kn_putf(&g->out, f->warps ? "\nKN_ENTRY __launch_bounds__(%d, 1) " : "\nKN_ENTRY __launch_bounds__(%d) ", f->threads);
    if (f->cluster > 1) kn_putf(&g->out, "__cluster_dims__(%d, 1, 1) ", f->cluster);
    kn_putf(&g->out, "%s_%d", entry, i);
    parameters(g, f, stored);
    g->depth = 1;
    shared(g, f, used);
    local(g, used);
    index_variable(g, f->var_grid, "blockIdx.x");
    index_variable(g, f->var_thread, "threadIdx.x");
    kn_put_registers(g, f);
    kn_put_body(g, f->body);
    g->depth = 0;
    kn_put(&g->out, "\n}\n");
}

/* Functions of another loop program, which has variables and buffers of its own. */
static void second(kn_gen *g, const kn_lprog *p, const char *entry)
{
    kn_gen of;
    const char *name = kn_format(g->a, "%s_any", entry);
    if (!name || kn_gen_open(&of, g->a, p->fallback, true, g->d) != KILN_OK) {
        kn_gen_refuse(g, KILN_MEMORY, "out of memory");
        return;
    }
    kn_gen first = *g;
    g->p = of.p, g->bound = of.bound, g->nonneg = of.nonneg, g->value = of.value, g->factor = of.factor;
    g->narrow = is_narrow(p->fallback);
    for (int i = 0; i < p->fallback->nfns; i++) function(g, i, name);
    g->p = first.p, g->bound = first.bound, g->nonneg = first.nonneg, g->value = first.value, g->factor = first.factor;
    g->narrow = first.narrow;
}

kiln_status kn_gen_cuda(kiln_arena *a, const kn_lprog *p, const char *entry, kiln_bytes *source, kiln_bytes *header, kiln_diag *d)
{
    kn_gen *g = kn_new(a, kn_gen);
    kn_buf b, prelude;
    if (!g || kn_gen_open(g, a, p, true, d) != KILN_OK) return kn_fail(d, KILN_MEMORY, "out of memory");
    g->narrow = is_narrow(p);
    kn_put_instructions(g);
    for (int i = 0; i < p->nfns; i++) function(g, i, entry);
    if (p->fallback) second(g, p, entry);
    if (g->status != KILN_OK) return g->status;
    kn_buf_init(&prelude, a);
    kn_put_prelude(g, &prelude);
    kn_buf_init(&b, a);
    kn_gen_title(&b, p, entry);
    kn_put(&b, head);
    vector_types(g, &b);
    kn_put_warp_texts(g, &b);
    kn_putn(&b, prelude.p ? prelude.p : "", prelude.n);
    kn_putn(&b, g->out.p ? g->out.p : "", g->out.n);
    kiln_bytes text = kn_buf_take(&b);
    if (!text.p || g->out.failed || prelude.failed) return kn_fail(d, KILN_MEMORY, "out of memory");
    *source = text;
    *header = (kiln_bytes){"", 0};
    return KILN_OK;
}
