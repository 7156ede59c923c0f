/* Registers of an instruction's own unit in C text: the unit's instructions where the compiler's target has them (Intel AMX), else arrays and the
 * emulated instruction, under the same macros. */
#include "codegen/gen.h"

enum { ROWS = 16, ROW_BYTES = 64, REGISTERS = 8 }; /* of palette 1, Intel's instruction set reference */

static int64_t bytes_of(const kn_buffer *r) { return (int64_t)r->lanes * kn_dtype_bytes(r->dtype); }

/* "16, 64": rows of a register and bytes of one. */
static void put_shape(kn_buf *b, const kn_buffer *r) { kn_putf(b, "%d, %lld", r->rows, (long long)bytes_of(r) / r->rows); }

static int number(const kn_buffer *r, int64_t element) { return r->unit - 1 + (int)element; }

void kn_put_unit(kn_gen *g, const kn_ls *s)
{
    static const char *const what[] = {"KN_UNIT_CLEAR(", "KN_UNIT_LOAD", "KN_UNIT_STORE("};
    const kn_unit_step *u = s->unit;
    const kn_buffer *r = &g->p->buffers[u->reg];
    kn_put(&g->out, what[u->what]);
    if (u->what == KN_UNIT_LOAD) kn_put(&g->out, u->passes ? "_ONCE(" : "(");
    kn_putf(&g->out, "%d, ", number(r, u->number));
    put_shape(&g->out, r);
    if (u->at) {
        kn_put(&g->out, ", ");
        kn_put_buffer(g, u->buffer);
        kn_put(&g->out, " + ");
        kn_put_index(g, u->at);
        kn_putf(&g->out, ", %lld", (long long)u->row * kn_dtype_bytes(r->dtype));
    }
    kn_put(&g->out, ");");
}

void kn_put_unit_call(kn_gen *g, const kn_call *c)
{
    kn_put(&g->out, "KN_UNIT_CALL_");
    kn_putf(&g->out, "%d(", c->fn);
    for (int o = 0; o < g->p->calls[c->fn].intrin->noperands; o++)
        kn_putf(&g->out, "%s%d", o ? ", " : "", number(&g->p->buffers[c->buffer[o]], c->at[o]->u.i));
    kn_put(&g->out, ");");
}

/* The function of number n uses such registers: which buffers they are. */
static bool used_by(const kn_gen *g, const kn_fn *f, bool *used)
{
    bool *stored = kn_array(g->a, bool, g->p->nbuffers + 1), any = false;
    if (!stored) return false;
    kn_mark_buffers(g->p, f, used, stored);
    for (int i = 0; i < g->p->nbuffers; i++) any |= used[i] &= g->p->buffers[i].unit > 0;
    return any;
}

static int64_t most_bytes(const kn_lprog *p)
{
    int64_t n = 0;
    for (int i = 0; i < p->nbuffers; i++)
        if (p->buffers[i].unit && bytes_of(&p->buffers[i]) > n) n = bytes_of(&p->buffers[i]);
    return kn_round_up(n, 64);
}

bool kn_unit_used(kn_gen *g, const kn_fn *f)
{
    bool *used = kn_array(g->a, bool, g->p->nbuffers + 1);
    return used && used_by(g, f, used);
}

/* The unit's registers as function n of this kind has them: 64 bytes that are loaded when it begins. */
static void put_shapes(kn_gen *g, const kn_fn *f, const char *kind, int n)
{
    bool *used = kn_array(g->a, bool, g->p->nbuffers + 1);
    int rows[REGISTERS] = {0};
    int64_t bytes[REGISTERS] = {0};
    if (!used || !used_by(g, f, used)) return;
    for (int i = 0; i < g->p->nbuffers; i++) {
        const kn_buffer *r = &g->p->buffers[i];
        for (int k = number(r, 0); used[i] && k < number(r, r->elems); k++) {
            int64_t row = bytes_of(r) / r->rows;
            if (k >= REGISTERS || r->rows > ROWS || row > ROW_BYTES || (rows[k] && (rows[k] != r->rows || bytes[k] != row))) {
                kn_gen_refuse(g, KILN_UNSUPPORTED, "registers of an instruction's unit that it has not, or in two shapes");
                return;
            }
            rows[k] = r->rows, bytes[k] = row;
        }
    }
    kn_putf(&g->out, "static const u8 k_unit_%s_%d[64] __attribute__((aligned(64))) = {1, [16] = ", kind, n);
    for (int k = 0; k < REGISTERS; k++) kn_putf(&g->out, "%lld, 0, ", (long long)bytes[k]);
    kn_put(&g->out, "[48] = ");
    for (int k = 0; k < REGISTERS; k++) kn_putf(&g->out, "%d%s", rows[k], k + 1 < REGISTERS ? ", " : "};\n");
}

/* Linux lets a process use the tiles once it has asked (arch_prctl, ARCH_REQ_XCOMP_PERM for state 18): when the object is loaded. */
static const char native_text[] =
    "KN_API i32 kiln_tiles = 1; /* 0: the system does not let this process use them */\n"
    "#ifdef __linux__\n__attribute__((constructor)) static void k_permit(void)\n{\n    i64 r = 158;\n"
    "    __asm__ volatile(\"syscall\" : \"+a\"(r) : \"D\"((i64)0x1023), \"S\"((i64)18) : \"rcx\", \"r11\", \"memory\");\n"
    "    kiln_tiles = r == 0;\n}\n#endif\n"
    "#define KN_UNIT_OPEN(n) __asm__ volatile(\"ldtilecfg %0\" :: \"m\"(k_unit_##n))\n"
    "#define KN_UNIT_CLOSE() __asm__ volatile(\"tilerelease\")\n"
    "#define KN_UNIT_CLEAR(r, rows, bytes) /* a float wakes the way to memory while products run, not when results are stored */ \\\n"
    "    do { f32 k_on = 0; __asm__ volatile(\"tilezero %%tmm\" #r \"\\n\\tvmulss %0, %0, %0\" : \"+x\"(k_on)); } while (0)\n"
    "#define KN_UNIT_LOAD(r, rows, bytes, p, row) \\\n"
    "    __asm__ volatile(\"tileloadd (%0,%1,1), %%tmm\" #r :: \"r\"(p), \"r\"((i64)(row)) : \"memory\")\n"
    "#define KN_UNIT_LOAD_ONCE(r, rows, bytes, p, row) /* not to take room in L1 */ \\\n"
    "    __asm__ volatile(\"tileloaddt1 (%0,%1,1), %%tmm\" #r :: \"r\"(p), \"r\"((i64)(row)) : \"memory\")\n"
    "#define KN_UNIT_STORE(r, rows, bytes, p, row) \\\n"
    "    __asm__ volatile(\"tilestored %%tmm\" #r \", (%0,%1,1)\" :: \"r\"(p), \"r\"((i64)(row)) : \"memory\")\n";

static const char arrays_text[] =
    "KN_FN void k_unit_load(u8 *r, i64 rows, i64 bytes, const void *p, i64 row)\n{\n"
    "    for (i64 i = 0; i < rows; i++) __builtin_memcpy(r + i * bytes, (const u8 *)p + i * row, (__SIZE_TYPE__)bytes);\n}\n"
    "KN_FN void k_unit_store(const u8 *r, i64 rows, i64 bytes, void *p, i64 row)\n{\n"
    "    for (i64 i = 0; i < rows; i++) __builtin_memcpy((u8 *)p + i * row, r + i * bytes, (__SIZE_TYPE__)bytes);\n}\n"
    "#define KN_UNIT_CLOSE() ((void)0)\n"
    "#define KN_UNIT_CLEAR(r, rows, bytes) __builtin_memset(k_unit[r], 0, (rows) * (bytes))\n"
    "#define KN_UNIT_LOAD(r, rows, bytes, p, row) k_unit_load(k_unit[r], rows, bytes, p, row)\n"
    "#define KN_UNIT_LOAD_ONCE KN_UNIT_LOAD\n"
    "#define KN_UNIT_STORE(r, rows, bytes, p, row) k_unit_store(k_unit[r], rows, bytes, p, row)\n";

static const char *const letters[] = {"d", "a", "b", "c", "e", "f", "g", "h"};

static void put_emulated_call(kn_gen *g, int fn)
{
    const kn_intrin *it = g->p->calls[fn].intrin;
    kn_putf(&g->out, "#define KN_UNIT_CALL_%d(", fn);
    for (int o = 0; o < it->noperands; o++) kn_putf(&g->out, "%s%s", o ? ", " : "", letters[o]);
    kn_put(&g->out, ") ");
    kn_put_call_name(g, fn);
    for (int o = 0; o < it->noperands; o++)
        kn_putf(&g->out, "%s(%s%s *)(void *)k_unit[%s]", o ? ", " : "(", o ? "const " : "", kn_storage_type(it->operand[o].dtype), letters[o]);
    kn_put(&g->out, ")\n");
}

/* All calls over such registers have a row of units.def, as they share them. */
static bool native(const kn_gen *g)
{
    bool any = false;
    for (int i = 0; i < g->p->ncalls; i++) {
        if (!g->p->calls[i].unit) continue;
        if (!kn_unit_of(g->p->calls[i].intrin->spec)) return false;
        any = true;
    }
    return any;
}

static void put_native(kn_gen *g)
{
    kn_put(&g->out, "#if defined(__x86_64__)");
    for (int i = 0; i < g->p->ncalls; i++) {
        if (!g->p->calls[i].unit) continue;
        const char *macro = kn_unit_of(g->p->calls[i].intrin->spec)->macro;
        kn_putf(&g->out, " && (defined(__AMX_%s__) || defined(__AMX%s__))", macro, macro);
    }
    kn_put(&g->out, "\n#define KN_UNIT 1\n");
    for (int i = 0; i < g->p->nfns; i++) put_shapes(g, &g->p->fns[i], "task", i);
    for (int i = 0; i < g->p->npacks; i++) put_shapes(g, &g->p->packs[i], "pack", i);
    kn_put(&g->out, native_text);
    for (int i = 0; i < g->p->ncalls; i++)
        if (g->p->calls[i].unit)
            kn_putf(&g->out,
                    "#define KN_UNIT_CALL_%d(d, a, b) \\\n    __asm__ volatile(\"%s %%%%tmm\" #b \", %%%%tmm\" #a \", %%%%tmm\" #d ::)\n",
                    i, kn_unit_of(g->p->calls[i].intrin->spec)->mnemonic);
    kn_put(&g->out, "#else\n");
}

void kn_put_unit_texts(kn_gen *g)
{
    bool any = false, real = native(g);
    for (int i = 0; i < g->p->ncalls; i++) any |= g->p->calls[i].unit;
    if (!any) return;
    kn_putf(&g->out, "\n/* Registers of the instruction's own unit%s. */\n",
            real ? ", emulated where the compiler's target has it not" : ", emulated");
    if (real) put_native(g);
    kn_put(&g->out, arrays_text);
    kn_putf(&g->out, "#define KN_UNIT_OPEN(n) u8 k_unit[%d][%lld] __attribute__((aligned(64)))\n", g->p->hw->tile_registers,
            (long long)most_bytes(g->p));
    for (int i = 0; i < g->p->ncalls; i++)
        if (g->p->calls[i].unit) put_emulated_call(g, i);
    if (real) kn_put(&g->out, "#endif\n");
}
