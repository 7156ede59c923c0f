/* Prints the helper functions that a source needs, out of the table prelude.def. */
#include "codegen/gen.h"
#include <string.h>

static const struct {
    const char *name, *needs, *scalar, *vector;
} rows[] = {
#define X(name, needs, scalar, vector) {#name, needs, scalar, vector},
#include "codegen/prelude.def"
#undef X
};

static bool is_horizontal(int s) { return s >= KN_SN_HSUM && s <= KN_SN_HIMAX; }
static const char *text_of(int s, int k)
{
    return k == 0 ? (is_horizontal(s) ? "" : rows[s].scalar) : k == 1 && is_horizontal(s) ? rows[s].scalar : rows[s].vector;
}

/* Rows only need rows that stand before them, or themselves with fewer lanes: one pass from the end finds all. */
static void close_needs(kn_gen *g, int s, int t, int k)
{
    for (const char *n = rows[s].needs; *n;) {
        size_t len = strcspn(n, " ./");
        bool half = n[len] == '/', one = n[len] == '.';
        for (int r = 0; r <= s; r++) {
            if (strlen(rows[r].name) != len || memcmp(rows[r].name, n, len)) continue;
            int lanes = one ? 0 : half && k ? k - 1 : k;
            if (*text_of(r, lanes)) g->need[r][t][lanes] = true;
        }
        n += len;
        n += strspn(n, " ./");
    }
}

static void put_tail(kn_buf *b, int t, int k)
{
    kn_put(b, kn_dtype_text((enum kn_dtype)t));
    if (k) kn_putf(b, "x%d", 1 << k);
}

static void put_type(kn_buf *b, const char *element, int k)
{
    kn_put(b, element);
    if (k) kn_putf(b, "x%d", 1 << k);
}

#define KN_NARROW_8(T) "    u16 r;\n    asm(\"cvt.rn.satfinite." T "x2.f32 %0, %1, %2;\" : \"=h\"(r) : \"f\"(0.0f), \"f\"(f));\n    return (u8)r;\n"
#define KN_WIDEN_8(T) \
    "    f32 r;\n    asm(\"{ .reg .b32 p; .reg .b16 low, high; cvt.rn.f16x2." T "x2 p, %1; mov.b32 {low, high}, p; cvt.f32.f16 %0, low; }\"\n" \
    "        : \"=f\"(r) : \"h\"((u16)h));\n    return r;\n"
#define KN_CUDA(least, text) true, 0, 0, "defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= " #least, text
#define KN_WIDENED(to, from) "    __asm__(\"vcvtph2ps %1, %0\" : \"=v\"(" to ") : \"v\"(" from "));\n"
#define KN_NARROWED(to, from) "    __asm__(\"vcvtps2ph %2, %1, %0\" : \"=v\"(" to ") : \"v\"(" from "), \"i\"(0));\n"
#define KN_TWICE(each, type, from) \
    "    __typeof__(__builtin_shufflevector((" type "){0}, (" type "){0}, $A)) a, b;\n" \
    each("a", "__builtin_shufflevector(" from ", " from ", $A)") each("b", "__builtin_shufflevector(" from ", " from ", $B)") \
    "    return __builtin_shufflevector(a, b, $A, $B);\n"
#define KN_UPPER(from) "    $h upper;\n    __asm__(\"vpmovdw %1, %0\" : \"=v\"(upper) : \"v\"(" from " >> 16));\n    return upper;\n"
#define KN_ROUNDED(how) "    $V r;\n    __asm__(\"vround$P %2, %1, %0\" : \"=x\"(r) : \"x\"(x), \"i\"(" how "));\n    return r;\n"
/* Of 8 lanes, which compilers take apart both ways. */
#define KN_UPPER_8(from) \
    "    $h upper;\n    $U w = " from " >> 16;\n" \
    "    __asm__(\"vextracti128 %2, %1, %0\\n\\tvpackusdw %0, %x1, %0\" : \"=&x\"(upper) : \"x\"(w), \"i\"(1));\n    return upper;\n"
/* Conversions that a device has an instruction for, under the compiler's condition for it: of texts for a GPU (cuda) or for a CPU, and for 2^from to
 * 2^to lanes; in pieces where the whole vector has none. Which NaN comes out is the device's. */
static const struct native { enum kn_snippet s; bool cuda; int from, to; const char *when, *text; } natives[] = {
    {KN_SN_NARROW, KN_CUDA(530, "    u16 r;\n    asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(r) : \"f\"(f));\n    return r;\n")},
    {KN_SN_NARROW_BF, KN_CUDA(800, "    u16 r;\n    asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(r) : \"f\"(f));\n    return r;\n")},
    {KN_SN_PAIR, KN_CUDA(800, "    u32 r;\n    asm(\"cvt.rn.f16x2.f32 %0, %1, %2;\" : \"=r\"(r) : \"f\"(b), \"f\"(a));\n    return r;\n")},
    {KN_SN_PAIR_BF, KN_CUDA(800, "    u32 r;\n    asm(\"cvt.rn.bf16x2.f32 %0, %1, %2;\" : \"=r\"(r) : \"f\"(b), \"f\"(a));\n    return r;\n")},
    {KN_SN_WIDEN, KN_CUDA(530, "    f32 r;\n    asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(r) : \"h\"(h));\n    return r;\n")},
    {KN_SN_NARROW_E4, KN_CUDA(890, KN_NARROW_8("e4m3"))},
    {KN_SN_NARROW_E5, KN_CUDA(890, KN_NARROW_8("e5m2"))},
    {KN_SN_WIDEN_E4, KN_CUDA(890, KN_WIDEN_8("e4m3"))},
    {KN_SN_WIDEN_E5, KN_CUDA(890, KN_WIDEN_8("e5m2"))},
    {KN_SN_WIDEN, false, 0, 0, "defined(__F16C__)",
     "    f32 r;\n    __asm__(\"vmovd %1, %0\\n\\tvcvtph2ps %0, %0\" : \"=x\"(r) : \"r\"((u32)h));\n    return r;\n"},
    {KN_SN_WIDEN, false, 2, 2, "defined(__F16C__)",
     "    $V r;\n    __asm__(\"vmovq %1, %0\\n\\tvcvtph2ps %0, %0\" : \"=x\"(r) : \"rm\"((u64)h));\n    return r;\n"},
    {KN_SN_WIDEN, false, 3, 4, "defined(__F16C__) && defined($X)", "    $V r;\n" KN_WIDENED("r", "h") "    return r;\n"},
    {KN_SN_WIDEN, false, 4, 5, "defined(__F16C__) && defined($Y)", KN_TWICE(KN_WIDENED, "$V", "h")},
    {KN_SN_NARROW, false, 0, 0, "defined(__F16C__)",
     "    u32 r;\n    __asm__(\"vcvtps2ph %2, %1, %1\\n\\tvmovd %1, %0\" : \"=r\"(r), \"+x\"(f) : \"i\"(0));\n    return (u16)r;\n"},
    {KN_SN_NARROW, false, 2, 2, "defined(__F16C__)",
     "    u64 r;\n    __asm__(\"vcvtps2ph %2, %1, %1\\n\\tvmovq %1, %0\" : \"=r\"(r), \"+x\"(f) : \"i\"(0));\n    return ($h)r;\n"},
    {KN_SN_NARROW, false, 3, 4, "defined(__F16C__) && defined($X)", "    $h r;\n" KN_NARROWED("r", "f") "    return r;\n"},
    {KN_SN_NARROW, false, 4, 5, "defined(__F16C__) && defined($Y)", KN_TWICE(KN_NARROWED, "$h", "f")},
    {KN_SN_WIDEN_BF, false, 4, 4, "defined($X)", "    $U u;\n    __asm__(\"vpmovzxwd %1, %0\" : \"=v\"(u) : \"v\"(h));\n    return ($V)(u << 16);\n"},
    {KN_SN_RINT, false, 2, 3, "defined(__AVX__)", KN_ROUNDED("8")},
    {KN_SN_FLOOR, false, 2, 3, "defined(__AVX__)", KN_ROUNDED("9")},
    {KN_SN_RINT64, false, 1, 2, "defined(__AVX__)", KN_ROUNDED("8")},
    {KN_SN_FLOOR64, false, 1, 2, "defined(__AVX__)", KN_ROUNDED("9")},
    {KN_SN_WIDEN_BF, false, 3, 3, "defined(__AVX2__)",
     "    $U u;\n    __asm__(\"vpmovzxwd %1, %0\" : \"=x\"(u) : \"x\"(h));\n    return ($V)(u << 16);\n"},
    {KN_SN_WIDE, false, 3, 3, "defined(__AVX2__)",
     "    union { $V x; f64 d; } b;\n    $I r;\n    b.x = x;\n    __asm__(\"vpmov$Zxbd %1, %0\" : \"=x\"(r) : \"x\"(b.d));\n    return r;\n"},
    {KN_SN_CUT, false, 3, 3, "defined(__AVX2__)", KN_UPPER_8("($U)f")},
    {KN_SN_NARROW_BF, false, 3, 3, "defined(__AVX2__)",
     "    $U u = ($U)f, nan = ($U)(f != f), r = u + 0x7fffu + ((u >> 16) & 1u);\n    u = (nan & (u | 0x400000u)) | (~nan & r);\n" KN_UPPER_8("u")},
    {KN_SN_WIDE, false, 4, 4, "defined(__AVX512F__)", "    $I r;\n    __asm__(\"vpmov$Zxbd %1, %0\" : \"=v\"(r) : \"v\"(x));\n    return r;\n"},
    {KN_SN_CUT, false, 4, 4, "defined($X)", KN_UPPER("($U)f")},
    /* This instruction takes denormals for zeros, as those of products of bf16 do, which alone set KN_FLUSHES. */
    {KN_SN_NARROW_BF, false, 4, 4, "defined(KN_FLUSHES) && defined(__AVX512BF16__)",
     "    $h r;\n    __asm__(\"vcvtneps2bf16 %1, %0\" : \"=v\"(r) : \"v\"(f));\n    return r;\n"},
    {KN_SN_NARROW_BF, false, 4, 4, "defined($X)",
     "    $U u = ($U)f, quiet = u | 0x400000u;\n    u += 0x7fffu + ((u >> 16) & 1u);\n"
     "    __asm__(\"vcmpunordps %1, %1, %%k1\\n\\tvmovdqa32 %2, %0%{%%k1%}\" : \"+v\"(u) : \"v\"(f), \"v\"(quiet) : \"k1\");\n" KN_UPPER("u")},
};

#undef KN_NARROW_8
#undef KN_WIDEN_8
#undef KN_CUDA
#undef KN_WIDENED
#undef KN_NARROWED
#undef KN_TWICE
#undef KN_UPPER
#undef KN_UPPER_8
#undef KN_ROUNDED

static bool is_native(const struct native *n, int s, int k, bool cuda)
{
    return n->s == (enum kn_snippet)s && n->cuda == cuda && n->from <= k && k <= n->to;
}

static const char *native_macro(int bytes) { return bytes == 64 ? "__AVX512F__" : bytes == 32 || bytes == 16 ? "__AVX__" : "KN_NEVER"; }

/* What stands for `c` in a helper's text. */
static void put_placeholder(kn_buf *b, char c, int t, int k)
{
    enum kn_dtype d = (enum kn_dtype)t;
    const char *wide = kn_value_bits(d) == 64 ? "u64" : kn_value_bits(d) == 32 ? "u32" : kn_value_bits(d) == 16 ? "u16" : "u8";
    int lanes = 1 << k;
    switch (c) {
    case 'N': put_tail(b, t, k); break;
    case 'H': put_tail(b, t, k - 1); break;
    case 'D': put_tail(b, t, 0); break;
    case 'V': put_type(b, kn_value_type(d), k); break;
    case 'S': kn_put(b, kn_value_type(d)); break;
    case 'M': put_type(b, kn_mask_type(d), k); break;
    case 'W': kn_put(b, wide); break;
    case 'I': put_type(b, "i32", k); break;
    case 'U': put_type(b, "u32", k); break;
    case 'h': put_type(b, "u16", k); break;
    case 'b': put_type(b, "u8", k); break;
    case 'L': kn_putf(b, "%d", lanes); break;
    case 'F': kn_put(b, d == KN_F64 ? "" : "f"); break;
    case 'P': kn_put(b, d == KN_F64 ? "pd" : "ps"); break;
    case 'E':
        for (int i = 0; i < lanes; i++) kn_putf(b, "%s%d", i ? ", " : "", 2 * i);
        break;
    case 'Q':
        for (int i = 0; i < lanes; i++) kn_putf(b, "%s%d", i ? ", " : "", 4 * i);
        break;
    case 'Z': kn_put(b, kn_dtype_class(d) == 'u' ? "z" : "s"); break;
    case 'X': kn_put(b, native_macro(lanes * kn_value_bits(d) / 8)); break;
    case 'Y': kn_put(b, native_macro(lanes / 2 * kn_value_bits(d) / 8)); break;
    default:
        for (int i = 0; i < lanes / 2; i++) kn_putf(b, "%s%d", i ? ", " : "", i + (c == 'B' ? lanes / 2 : 0));
    }
}

static void put_text(kn_buf *b, const char *text, const char *end, int t, int k)
{
    for (const char *c = text; c < end; c++) {
        if (*c == '$') put_placeholder(b, *++c, t, k);
        else kn_putn(b, c, 1);
    }
}

/* A function's text; the device's own ways of doing it stand first in its body. */
static void put_row(kn_buf *b, int s, int t, int k, bool cuda)
{
    const char *text = text_of(s, k), *body = strstr(text, "\n{\n"), *end = text + strlen(text);
    bool own = false;
    for (size_t i = 0; body && i < sizeof natives / sizeof *natives; i++) {
        const struct native *n = &natives[i];
        if (!is_native(n, s, k, cuda)) continue;
        if (!own) put_text(b, text, body + 3, t, k);
        kn_put(b, own ? "#elif " : "#if ");
        put_text(b, n->when, n->when + strlen(n->when), t, k);
        kn_put(b, "\n");
        put_text(b, n->text, n->text + strlen(n->text), t, k);
        own = true;
    }
    if (own) kn_put(b, "#else\n");
    put_text(b, own ? body + 3 : text, own ? end - 2 : end, t, k);
    if (own) kn_put(b, "#endif\n}\n");
}

void kn_put_prelude(kn_gen *g, kn_buf *b)
{
    for (int s = KN_SNIPPET_COUNT - 1; s >= 0; s--)
        for (int t = 0; t < KN_DTYPE_COUNT; t++)
            for (int k = KN_LANE_CLASSES - 1; k >= 0; k--)
                if (g->need[s][t][k]) {
                    g->lanes[k] = true;
                    close_needs(g, s, t, k);
                }
    for (int s = 0; s < KN_SNIPPET_COUNT; s++)
        for (int t = 0; t < KN_DTYPE_COUNT; t++)
            for (int k = 0; k < KN_LANE_CLASSES; k++)
                if (g->need[s][t][k]) put_row(b, s, t, k, g->cuda);
}
