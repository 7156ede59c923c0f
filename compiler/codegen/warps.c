/* CUDA text of what warps do together: asynchronous copies, fragments of operands, and instructions whose operands are registers of 32 threads. */
#include "codegen/gen.h"

static const char *const texts[] = {
#define X(name, text) [KN_WT_##name] = text,
#include "codegen/warps.def"
#undef X
};

void kn_put_warp_texts(const kn_gen *g, kn_buf *b)
{
    for (int i = 0; i < KN_WARP_TEXTS; i++)
        if (g->warp[i]) kn_put(b, texts[i]);
}

/* A copy of 4, 8 or 16 bytes; where its condition does not hold nothing is read, and zeros arrive. */
void kn_put_async(kn_gen *g, const kn_ls *s)
{
    const kn_expr *cond = s->value->op == KN_OP_SELECT ? s->value->args[0] : NULL, *read = cond ? s->value->args[1] : s->value;
    int bytes = (read->lanes > 1 ? read->lanes : 1) * kn_dtype_bytes(read->dtype);
    if (read->op != KN_OP_READ || (bytes != 4 && bytes != 8 && bytes != 16)) {
        kn_gen_refuse(g, KILN_INTERNAL, "an asynchronous store that is no copy of 4, 8 or 16 bytes");
        return;
    }
    g->warp[bytes == 4 ? KN_WT_COPY_4 : bytes == 8 ? KN_WT_COPY_8 : KN_WT_COPY_16] = true;
    if (cond) {
        kn_putf(&g->out, "const int k_n%d = ", ++g->copies);
        kn_put_condition(g, cond);
        kn_put(&g->out, ";");
        kn_line(g);
    }
    kn_putf(&g->out, "k_copy_%d(", bytes);
    kn_put_buffer(g, s->buffer);
    kn_put(&g->out, " + ");
    kn_put_index(g, s->index);
    kn_put(&g->out, ", ");
    kn_put_buffer(g, read->u.buffer);
    kn_put(&g->out, " + ");
    if (cond) kn_putf(&g->out, "(k_n%d ? ", g->copies);
    kn_put_index(g, read->args[0]);
    if (cond) kn_putf(&g->out, " : 0), k_n%d ? %d : 0);", g->copies, bytes);
    else kn_putf(&g->out, ", %d);", bytes);
}

void kn_put_commit(kn_gen *g, const kn_ls *s)
{
    (void)s;
    g->warp[KN_WT_GROUPS] = true;
    kn_put(&g->out, "KN_COMMIT();");
}

void kn_put_wait(kn_gen *g, const kn_ls *s)
{
    g->warp[KN_WT_GROUPS] = true;
    kn_putf(&g->out, "KN_WAIT(%d);", s->groups);
}

static void put_register(kn_gen *g, const kn_fragment *f, int r)
{
    kn_put_buffer(g, f->to);
    kn_putf(&g->out, "_%d.v[%d]", f->first + r / f->regs, r % f->regs);
}

/* A word put together from the elements that it holds, the first in its low bits. */
static void put_word(kn_gen *g, const kn_fragment *f, int r)
{
    const kn_buffer *b = &g->p->buffers[f->buffer];
    int bytes = kn_dtype_bytes(b->dtype), per = 4 / bytes;
    if (b->dtype == KN_F32) g->warp[KN_WT_BITS] = true;
    put_register(g, f, r);
    kn_put(&g->out, " = ");
    for (int e = 0; e < per; e++) {
        kn_put(&g->out, b->dtype == KN_F32 ? "k_bits(" : bytes == 2 ? "(int)((u32)" : bytes == 1 ? "(int)((u32)(u8)" : "(");
        kn_put_buffer(g, f->buffer);
        kn_put(&g->out, "[");
        kn_put_index(g, f->at[r * per + e]);
        kn_put(&g->out, "]");
        if (e) kn_putf(&g->out, " << %d", 8 * bytes * e);
        kn_put(&g->out, e + 1 < per ? ") | " : ");");
    }
}

void kn_put_fragment(kn_gen *g, const kn_ls *s)
{
    const kn_fragment *f = s->fragment;
    if (f->form == KN_FRAGMENT_EACH) {
        for (int r = 0; r < f->n; r++) {
            if (r) kn_line(g);
            put_word(g, f, r);
        }
        return;
    }
    if (f->form == KN_FRAGMENT_SPLIT) {
        for (int r = 0; r < f->n; r++) {
            if (r) kn_line(g);
            kn_put(&g->out, "k_split(&");
            put_register(g, f, r);
            kn_putf(&g->out, ", %d);", f->regs);
        }
        return;
    }
    if (f->form == KN_FRAGMENT_HALVE) {
        kn_put_buffer(g, f->odd);
        kn_putf(&g->out, "_%d = k_odd(", f->odd_at);
        for (int r = 0; r < f->n; r++) {
            kn_put(&g->out, r % f->regs ? " + " : r ? ") + (" : "(");
            kn_put(&g->out, "k_halve(&");
            put_register(g, f, r);
            kn_putf(&g->out, ", %d)", f->regs);
        }
        kn_put(&g->out, "));");
        return;
    }
    bool rows = f->form == KN_FRAGMENT_ROWS;
    g->warp[f->n == 2 ? (rows ? KN_WT_ROWS_2 : KN_WT_TURNED_2) : rows ? KN_WT_ROWS_4 : KN_WT_TURNED_4] = true;
    kn_putf(&g->out, "k_%s_%d(", rows ? "rows" : "turned", f->n);
    for (int r = 0; r < f->n; r++) {
        kn_put(&g->out, "&");
        put_register(g, f, r);
        kn_put(&g->out, ", ");
    }
    kn_put_buffer(g, f->buffer);
    kn_put(&g->out, " + ");
    kn_put_index(g, f->at[0]);
    kn_put(&g->out, ");");
}

void kn_put_group(kn_gen *g, const kn_ls *s)
{
    static const char *const steps[] = {"KN_SEEN();", "KN_READY();", "KN_START();"};
    g->warp[KN_WT_GROUP_STEPS] = true;
    if (s->groups < 0) kn_put(&g->out, steps[s->groups - KN_GROUP_SEEN]);
    else kn_putf(&g->out, "KN_DONE(%d);", s->groups);
    if (!s->writes) return;
    const kn_buffer *b = &g->p->buffers[s->buffer];
    for (int64_t i = 0; i < b->elems; i++) {
        kn_line(g);
        kn_putf(&g->out, "KN_HELD(\"%s\", ", b->dtype == KN_F32 ? "f" : "r");
        kn_put_buffer(g, s->buffer);
        kn_putf(&g->out, "_%lld);", (long long)i);
    }
}

static int group_registers(const kn_emulated *f) { return (int)(f->intrin->operand[0].elems / f->warp->threads); }

static void put_group_call(kn_gen *g, const kn_call *c)
{
    kn_put_call_name(g, c->fn);
    kn_put(&g->out, "(");
    for (int r = 0; r < group_registers(&g->p->calls[c->fn]); r++) {
        kn_put(&g->out, r ? ", &" : "&");
        kn_put_buffer(g, c->buffer[0]);
        kn_putf(&g->out, "_%lld", (long long)c->at[0]->u.i + r);
    }
    g->warp[KN_WT_MATRIX] = true;
    for (int o = 1; o < 3; o++) {
        kn_put(&g->out, ", k_matrix(");
        kn_put_buffer(g, c->buffer[o]);
        kn_put(&g->out, " + ");
        kn_put_index(g, c->at[o]);
        kn_putf(&g->out, ", %lld, %lld)", (long long)c->lead[o], (long long)c->stride[o]);
    }
    kn_put(&g->out, ");");
}

/* The instruction over a thread's registers and two descriptors of matrices in shared memory. */
static void put_group_instruction(kn_gen *g, int fn)
{
    const kn_emulated *f = &g->p->calls[fn];
    const char *type = kn_storage_type(f->intrin->operand[0].dtype);
    int n = group_registers(f);
    enum kn_dtype of = f->intrin->operand[1].dtype;
    kn_put(&g->out, "KN_FN void ");
    kn_put_call_name(g, fn);
    for (int i = 0; i < n; i++) kn_putf(&g->out, "%s%s *d%d", i ? ", " : "(", type, i);
    kn_putf(&g->out, ", u64 a, u64 b)\n{\n#ifdef __CUDACC__\n    asm volatile(\"{ .reg .pred p; setp.eq.u32 p, 0, 0; %s {", f->warp->ptx);
    for (int i = 0; i < n; i++) kn_putf(&g->out, "%s%%%d", i ? ", " : "", i);
    kn_putf(&g->out, "}, %%%d, %%%d, p", n, n + 1);
    if (kn_is_float(of)) kn_put(&g->out, ", 1, 1");
    if (kn_dtype_bytes(of) == 2) kn_putf(&g->out, ", %d, %d", f->turned[1], f->turned[2]);
    kn_put(&g->out, "; }\"\n        : ");
    for (int i = 0; i < n; i++) kn_putf(&g->out, "%s\"+%c\"(*d%d)", i ? ", " : "", type[0] == 'f' ? 'f' : 'r', i);
    kn_put(&g->out, "\n        : \"l\"(a), \"l\"(b) : \"memory\");\n#else\n    void *d[] = {");
    for (int i = 0; i < n; i++) kn_putf(&g->out, "%sd%d", i ? ", " : "", i);
    kn_putf(&g->out, "};\n    emu_wgmma(\"%s\", d, a, b, %d, %d);\n#endif\n}\n", f->warp->ptx, f->turned[1], f->turned[2]);
}

void kn_put_warp_call(kn_gen *g, const kn_ls *s)
{
    if (g->p->calls[s->call->fn].warp->threads > 32) {
        put_group_call(g, s->call);
        return;
    }
    static const int registers[] = {KN_WARP_D, KN_WARP_A, KN_WARP_B};
    bool parts = g->p->calls[s->call->fn].warp->ways > 1;
    kn_put_call_name(g, s->call->fn);
    kn_put(&g->out, "(");
    for (int o = 0; o < 3; o++) {
        for (int r = 0; r < registers[o]; r++) {
            kn_put(&g->out, o || r ? ", " : "");
            if (!o) kn_put(&g->out, "&");
            kn_put_buffer(g, s->call->buffer[o]);
            if (o && parts) {
                kn_putf(&g->out, "_%lld.v", (long long)s->call->at[o]->u.i);
                break;
            }
            if (o) kn_putf(&g->out, "_%lld.v[%d]", (long long)s->call->at[o]->u.i, r);
            else kn_putf(&g->out, "_%lld", (long long)s->call->at[o]->u.i + r);
        }
    }
    kn_put(&g->out, ");");
}

static const char head_text[] = "(%s *d0, %s *d1, %s *d2, %s *d3, int a0, int a1, int a2, int a3, int b0, int b1)\n{\n";

/* One instruction over named registers; in C the emulator's, which reads from the instruction's own name what it computes. */
static void put_one(kn_gen *g, const kn_warp *w, const char *type)
{
    char c = type[0] == 'f' ? 'f' : 'r';
    kn_putf(&g->out, "#ifdef __CUDACC__\n    asm volatile(\"%s {%%0, %%1, %%2, %%3}, {%%4, %%5, %%6, %%7}, {%%8, %%9}, {%%0, %%1, %%2, %%3};\"\n",
            w->ptx);
    kn_putf(&g->out, "        : \"+%c\"(*d0), \"+%c\"(*d1), \"+%c\"(*d2), \"+%c\"(*d3)\n", c, c, c, c);
    kn_put(&g->out, "        : \"r\"(a0), \"r\"(a1), \"r\"(a2), \"r\"(a3), \"r\"(b0), \"r\"(b1));\n");
    kn_putf(&g->out, "#else\n    %s d[4] = {*d0, *d1, *d2, *d3};\n    const int a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};\n", type);
    kn_putf(&g->out, "    emu_mma(\"%s\", d, a, b);\n    *d0 = d[0];\n    *d1 = d[1];\n    *d2 = d[2];\n    *d3 = d[3];\n#endif\n}\n", w->ptx);
}

/* x = big + small, both rounded to the 11 bits that the instruction keeps, so that 2^-24 of x is lost. What would round to infinity is cut off; what
 * would round to 0 becomes the least number of 11 bits, as infinity times it is no NaN. NaN stays NaN without its low bits. Infinities and NaN are
 * in the product of big parts alone: their small part is 0, and 0 (the third part) stands for their big one where a small part is multiplied by
 * it, as inf * 0 and inf - inf would make NaN of what is infinite. Finite factors whose product is beyond 2^139 may give NaN where infinity is
 * right. In assembly, of which a compiler is done in half the time that it takes for the same in C; tests/unit/test_split.c holds one against the
 * other. */
static const char split_text[] =
    "KN_FN void k_split(int *x, int n)\n{\n#ifdef __CUDACC__\n"
    "    asm(\"{\\n.reg .pred p, q, r;\\n.reg .b32 m, t, k;\\nand.b32 m, %3, 0x7fffffff;\\nadd.u32 t, %3, 0x1000;\\nsub.u32 k, m, 1;\\n\"\n"
    "        \"setp.lt.u32 p, k, 0xfff;\\n@p or.b32 t, %3, 0x2000;\\nsetp.gt.u32 q, m, 0x7f7fefff;\\n@q mov.b32 t, %3;\\n\"\n"
    "        \"setp.gt.u32 r, m, 0x7f800000;\\n@r or.b32 t, t, 0x400000;\\nand.b32 %0, t, 0xffffe000;\\nsub.f32 t, %3, %0;\\n\"\n"
    "        \"add.u32 t, t, 0x1000;\\nand.b32 t, t, 0xffffe000;\\nsetp.gt.u32 p, m, 0x7f7fffff;\\nselp.b32 %1, 0, t, p;\\n\"\n"
    "        \"selp.b32 %2, 0, %0, p;\\n}\" : \"=&r\"(x[0]), \"=&r\"(x[n]), \"=&r\"(x[2 * n]) : \"r\"(x[0]));\n#else\n"
    "    u32 u = (u32)x[0], m = u & 0x7fffffffu;\n"
    "    int h = (int)((m > 0x7f7fefffu ? u | (m > 0x7f800000u ? 0x400000u : 0u) : m - 1u < 0xfffu ? u | 0x2000u : u + 0x1000u) & ~0x1fffu);\n"
    "    x[n] = m > 0x7f7fffffu ? 0 : (int)(((u32)k_bits(k_float(x[0]) - k_float(h)) + 0x1000u) & ~0x1fffu);\n"
    "    x[2 * n] = m > 0x7f7fffffu ? 0 : h;\n    x[0] = h;\n#endif\n}\n";

/* The same where x is finite and stays so: x + half of the last place that the instruction looks at stands for big, as it looks no further; small
 * has 12 bits, of which it cuts the last one off. Returns small, which is infinite or NaN for any other x, as is then what it is added to. Four
 * operations instead of sixteen, most of which go to a unit of half the rate and would keep it busy for longer than the products do theirs. */
static const char halves_text[] =
    "KN_FN f32 k_halve(int *x, int n)\n{\n    int big = (int)((u32)x[0] + 0x1000u);\n    f32 small = k_float(x[0]) - k_float(big & ~0x1fff);\n"
    "    x[0] = big;\n    x[n] = k_bits(small);\n    return small;\n}\n"
    "KN_FN int k_odd(f32 x)\n{\n#ifdef __CUDACC__\n    int odd;\n"
    "    asm volatile(\"{ .reg .pred p; .reg .f32 m; abs.f32 m, %1; setp.gtu.f32 p, m, 0f7f7fffff; vote.sync.any.pred p, p, 0xffffffff; \"\n"
    "        \"selp.b32 %0, 1, 0, p; }\" : \"=r\"(odd) : \"f\"(x));\n#else\n    u32 odd = (k_bits(x) & 0x7f800000) == 0x7f800000;\n"
    "    for (int m = 1; m < 32; m *= 2) odd |= emu_peer(odd, m);\n#endif\n    return (int)odd;\n}\n";

void kn_put_warp_instruction(kn_gen *g, int fn)
{
    const kn_emulated *f = &g->p->calls[fn];
    const char *type = kn_storage_type(f->intrin->operand[0].dtype);
    if (f->warp->threads > 32) {
        put_group_instruction(g, fn);
        return;
    }
    if (f->warp->ways == 3) {
        static const char *const product[][3] = {
            {"a[4], a[5], a[6], a[7], b[4], b[5]", "a[8], a[9], a[10], a[11], b[2], b[3]", "a[0], a[1], a[2], a[3], b[0], b[1]"},
            {"a[4], a[5], a[6], a[7], b[0], b[1]", "a[0], a[1], a[2], a[3], b[2], b[3]", "a[0], a[1], a[2], a[3], b[0], b[1]"}};
        g->warp[KN_WT_BITS] = g->warp[KN_WT_FLOAT] = true;
        if (!f->halves) {
            kn_put(&g->out, split_text);
            kn_put(&g->out, halves_text);
            kn_put(&g->out, "KN_FN void k_one");
            kn_putf(&g->out, head_text, type, type, type, type);
            put_one(g, f->warp, type);
        }
        kn_put(&g->out, "KN_FN void ");
        kn_put_call_name(g, fn);
        kn_putf(&g->out, "(%s *d0, %s *d1, %s *d2, %s *d3, const int *a, const int *b)\n{\n", type, type, type, type);
        for (int i = 0; i < 3; i++) kn_putf(&g->out, "    k_one(d0, d1, d2, d3, %s);\n", product[f->halves][i]);
        kn_put(&g->out, "}\n");
        return;
    }
    kn_put(&g->out, "KN_FN void ");
    kn_put_call_name(g, fn);
    kn_putf(&g->out, head_text, type, type, type, type);
    put_one(g, f->warp, type);
}
