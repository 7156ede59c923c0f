/* Copies that the first tiles to read an operand make: where they are, and where the copy is made ahead; the results either way. */
#include "tests/unit/run_lowered.c"
#include "tests/unit/statements.h"

static int64_t is_aside(const kn_lprog *l, const kn_ls *s, int64_t unused)
{
    (void)l;
    (void)unused;
    return s->kind == KN_LS_STORE && s->aside;
}

#define PRODUCT "c[M,N] +=! a[M,K]*b[K,N]"
#define IMAGES "y[B,F,P] +=! x[B,C,P]*w[F,C]"
#define TILE "unroll c M.1\nunroll c N.1\nvectorize c N.2\n"
#define ROWS(m) "split c N 2 16\nsplit c M " #m "\nreorder c N.0 | M.0 K.0 | M.1 N.1 N.2\n" TILE
#define PLANES(f) "split y P 2 2 16\nsplit y F " #f "\nreorder y B.0 P.0 | F.0 P.1 C.0 | F.1 P.2 P.3\nunroll y F.1\nunroll y P.2\nvectorize y P.3\n" \
                  "parallel y B.0\nparallel y P.0\ncache_read y 0 scratch P.0 loops P.1 C.0 P.2 P.3\n"
#define COPY "cache_read c 1 scratch N.0 loops K.0 N.1 N.2\n"

static void first_tiles_make_copies(void **state)
{
    static const struct { const char *device, *text, *inputs, *trace; int stores; } one[] = {
        {"bf16", PRODUCT, "a=f32:12x9&b=f32:9x64", ROWS(4) COPY, 2},       /* all of it is there */
        {"bf16", PRODUCT, "a=f32:12x9&b=f32:9x70", ROWS(4) COPY, 2},       /* the last panel is copied ahead, as a part of it is there */
        {"bf16", PRODUCT, "a=f32:13x9&b=f32:9x70", ROWS(4) COPY, 2},       /* rows that are no whole tiles follow */
        {"avx2", PRODUCT, "a=f32:12x9&b=f32:9x70", "split c N 2 8\nsplit c M 4\nreorder c N.0 | M.0 K.0 | M.1 N.1 N.2\n" TILE COPY, 2},
        {"bf16", PRODUCT, "a=f32:3x9&b=f32:9x64", ROWS(4) COPY, 0},        /* nothing reads it again */
        {"bf16", PRODUCT, "a=f32:9x9&b=f32:9x64", "split c N 2 16\nsplit c M 2 4\nreorder c M.0 N.0 | M.1 K.0 | M.2 N.1 N.2\nparallel c M.0\n"
         "unroll c M.2\nunroll c N.1\nvectorize c N.2\n" COPY, 0},         /* the last task's first tile is no whole one */
        {"bf16", PRODUCT, "a=f32:12x9&b=f32:9x64", ROWS(4) "cache_read c 0 scratch M.0 loops K.0 M.1\n" COPY, 0}, /* something is filled between */
        {"bf16", "c[M,N] +=! a[M,K]*b[N,K]", "a=f32:12x40&b=f32:64x40", ROWS(4) COPY, 0},                         /* lanes lie rows apart */
        {"bf16", "c[M,N] +=! a[M,K]*pad(b,0.0)[K-1,N]", "a=f32:12x9&b=f32:9x64", ROWS(4) COPY, 0},
        {"bf16", "c[M,N] +=! cast(a[M,K],f32)*cast(b[K,N],f32)", "a=f16:12x9&b=f16:9x70", ROWS(4) COPY, 2},
        {"bf16", PRODUCT, "a=f32:12x100&b=f32:100x70", "split c N 2 16\nsplit c M 4\nsplit c K 32\nreorder c N.0 K.0 | M.0 K.1 | M.1 N.1 N.2\n" TILE
         "cache_read c 1 scratch K.0 loops K.1 N.1 N.2\n", 2},             /* block after block, the last of which is shorter */
        {"bf16", IMAGES, "x=f32:2x7x147&w=f32:12x7", PLANES(4), 0},        /* runs of two lines */
        {"avx512", IMAGES, "x=f32:2x7x147&w=f32:12x7", "split y P 2 4 16\nsplit y F 4\nreorder y B.0 P.0 | F.0 P.1 C.0 | F.1 P.2 P.3\nunroll y F.1\n"
         "unroll y P.2\nvectorize y P.3\nparallel y B.0\nparallel y P.0\ncache_read y 0 scratch P.0 loops P.1 C.0 P.2 P.3\n", 4},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, kn_format(a, "x86-64-%s", one[i].device));
        kn_program *p = parsed(a, one[i].text, one[i].inputs);
        int64_t stores = counted(lowered(a, p, hw, text_of(one[i].trace), one[i].text), is_aside, 0);
        if (stores != one[i].stores) fail_msg("%zu, %s of %s: %lld stores beside sums", i, one[i].text, one[i].inputs, (long long)stores);
        run_checked(a, p, hw, text_of(one[i].trace), one[i].text);
        kiln_arena_close(a);
    }
}

/* Rows that lie far apart, and beyond L2, are asked for as the first tiles go over them. */
static void far_rows_are_asked_for(void **state)
{
    static const struct { int64_t l2; bool asked; } one[] = {{1 << 14, true}, {1 << 20, false}};
    static const char trace[] = ROWS(4) COPY;
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-avx512");
        resize(hw, "l2", one[i].l2);
        kn_program *p = parsed(a, PRODUCT, "a=f32:12x20&b=f32:20x1024");
        kn_lprog *l = lowered(a, p, hw, text_of(trace), trace);
        bool ahead = false;
        for (int v = 0; v < l->nvars; v++) ahead |= strstr(l->var_names[v], "ahead") != NULL;
        if (!counted(l, is_aside, 0) || ahead != one[i].asked) fail_msg("an L2 of %lld bytes", (long long)one[i].l2);
        run_checked(a, p, hw, text_of(trace), trace);
        kiln_arena_close(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(first_tiles_make_copies), cmocka_unit_test(far_rows_are_asked_for)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
