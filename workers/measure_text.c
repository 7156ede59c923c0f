/* The text of the loops that measure a machine: chains of its multiplying instructions, a reader, a pointer chaser. */
#include "workers/measure.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const measure_row measure_rows[] = {
#define X(...) {__VA_ARGS__},
#include "workers/measure.def"
#undef X
};
const int measure_nrows = sizeof measure_rows / sizeof *measure_rows;

enum { LINE = 64 };

typedef struct text {
    char *p;
    size_t n, used;
} text;

static void put(text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(text *t, const char *fmt, ...)
{
    va_list args;
    size_t room = t->used < t->n ? t->n - t->used : 0;
    va_start(args, fmt);
    int more = vsnprintf(room ? t->p + t->used : NULL, room, fmt, args);
    va_end(args);
    t->used += more > 0 ? (size_t)more : 0;
}

static bool has(const char *const *features, int n, const char *name)
{
    for (int i = 0; i < n; i++) {
        if (!strcmp(features[i], name)) { return true; }
    }
    return false;
}

/* One step of the loop, for one accumulator, as a line of an assembly string. */
static void step(text *t, const measure_row *r, int chain)
{
    put(t, "        \"");
    for (const char *p = r->step; *p; p++) {
        bool name = p[0] == 'r' && (p[1] == 'I' || (p[1] >= '0' && p[1] <= '9'));
        if (!name) {
            put(t, *p == '{' || *p == '}' ? "%%%c" : "%c", *p); /* braces mean dialects there */
        } else if (*++p == 'I') {
            put(t, "%%%%%s%d", r->registers, chain);
        } else {
            put(t, "%%%%%s%c", r->registers, *p);
        }
    }
    put(t, "\\n\\t\"\n");
}

/* Registers are cleared; tiles have eight of them and a configuration (palette 1, 16 rows of 64 bytes each). */
static void begin(text *t, bool tiles)
{
    if (tiles) {
        put(t, "    unsigned char shape[64] __attribute__((aligned(64))) = {1};\n"
               "    for (int i = 0; i < 8; i++) { shape[16 + 2 * i] = 64; shape[48 + i] = 16; }\n"
               "    __asm__ volatile(\"ldtilecfg %%0\" : : \"m\"(shape));\n");
    }
    put(t, "    __asm__ volatile(\n");
    for (int i = 0; i < (tiles ? 8 : 16); i++) {
        put(t, tiles ? "        \"tilezero %%%%tmm%d\\n\\t\"\n" : "        \"vpxor %%%%xmm%d, %%%%xmm%d, %%%%xmm%d\\n\\t\"\n", i, i, i);
    }
    put(t, "        \"1:\\n\\t\"\n");
}

static void end(text *t, bool tiles)
{
    put(t, "        \"decq %%0\\n\\tjnz 1b%s\"\n        : \"+r\"(turns) : : \"cc\", \"memory\"", tiles ? "\\n\\ttilerelease" : "");
    for (int i = 0; i < 16 && !tiles; i++) { put(t, ", \"xmm%d\"", i); }
    put(t, ");\n}\n");
}

/* More chains than latency times throughput, so that nothing but the multipliers is waited for. As assembly, since compilers put moves
 * between chained instructions. */
static void peak(text *t, int row)
{
    const measure_row *r = &measure_rows[row];
    bool tiles = !strcmp(r->registers, "tmm");
    put(t, "PUBLIC void kiln_peak_%d(long turns)\n{\n", row);
    begin(t, tiles);
    for (int i = 0; i < (tiles ? MEASURE_TILE_CHAINS : MEASURE_CHAINS); i++) { step(t, r, tiles ? i : i + 4); }
    end(t, tiles);
}

/* One accumulator, each step of which waits for the one before. */
static void chain(text *t, int row)
{
    const measure_row *r = &measure_rows[row];
    bool tiles = !strcmp(r->registers, "tmm");
    put(t, "PUBLIC void kiln_chain_%d(long turns)\n{\n", row);
    begin(t, tiles);
    for (int i = 0; i < MEASURE_LINKS; i++) { step(t, r, tiles ? 0 : 4); }
    end(t, tiles);
}

/* The two ways in which kernels write what no cache holds: lines asked for ahead, and lines written past the caches, by vectors that fill them. */
static void copies(text *t, int vector)
{
    put(t, "PUBLIC void kiln_copy(char *to, const char *from, long bytes)\n{\n    for (long i = 0; i < bytes; i += %d) {\n"
           "        __builtin_prefetch(to + i + 2048, 1);\n", LINE);
    for (int k = 0; k < LINE; k += vector) { put(t, "        *(vector *)(to + i + %d) = *(const vector *)(from + i + %d);\n", k, k); }
    put(t, "    }\n}\nPUBLIC void kiln_stream(char *to, const char *from, long bytes)\n{\n    for (long i = 0; i < bytes; i += %d) {\n"
           "        vector v;\n", LINE);
    for (int k = 0; k < LINE; k += vector) {
        put(t, "        v = *(const vector *)(from + i + %d);\n"
               "        __asm__ volatile(\"vmovntps %%1, %%0\" : \"=m\"(*(vector *)(to + i + %d)) : \"v\"(v));\n", k, k);
    }
    put(t, "    }\n    __asm__ volatile(\"sfence\" ::: \"memory\");\n}\n");
}

/* An add a cycle. Of registers: what is known when it is decoded, some CPUs (Intel's since Golden Cove) add several a cycle as they rename. */
static void adds(text *t)
{
    put(t, "PUBLIC void kiln_add(long turns)\n{\n    long x = 0, y = 1;\n    __asm__ volatile(\"1:\\n\\t\"\n");
    for (int i = 0; i < 16; i++) { put(t, "        \"addq %%2, %%1\\n\\t\"\n"); }
    put(t, "        \"decq %%0\\n\\tjnz 1b\" : \"+r\"(turns), \"+r\"(x) : \"r\"(y) : \"cc\");\n}\n");
}

size_t measure_text(const char *const *features, int nfeatures, char *out, size_t n)
{
    text t = {out, n, 0};
    int vector = has(features, nfeatures, "avx512f") ? 64 : has(features, nfeatures, "avx") ? 32 : 16;
    put(&t,
        "/* What this machine can do. */\n#define PUBLIC __attribute__((visibility(\"default\"), noinline))\n"
        "typedef float vector __attribute__((vector_size(%d), may_alias));\n"
        "__attribute__((visibility(\"default\"))) extern const int kiln_vector_bytes;\nconst int kiln_vector_bytes = %d;\n",
        vector, vector);
    for (int row = 0; row < measure_nrows; row++) {
        if (has(features, nfeatures, measure_rows[row].feature)) { peak(&t, row), chain(&t, row); }
    }
    adds(&t);
    put(&t, "PUBLIC float kiln_read(const void *p, long bytes)\n{\n    const vector *v = p;\n    vector s[8] = {{0}};\n"
            "    for (long i = 0; i + 8 <= bytes / (long)sizeof *v; i += 8) {\n"
            "#pragma GCC unroll 8\n        for (int k = 0; k < 8; k++) { s[k] += v[i + k]; }\n    }\n"
            "    for (int k = 1; k < 8; k++) { s[0] += s[k]; }\n    return s[0][0];\n}\n"
            "PUBLIC void *kiln_chase(void *p, long steps)\n{\n    for (; steps; steps--) { p = *(void **)p; }\n    return p;\n}\n");
    if (2 * vector >= LINE) {
        put(&t, vector == LINE ? "#ifdef __AVX512F__\n" : "#ifdef __AVX__\n");
        copies(&t, vector);
        put(&t, "#endif\n");
    }
    return t.used < n ? t.used : 0;
}
