/* What lowering makes of a CPU's reductions and stores beyond what the trace says: padding that is left out, vectors that are held, lines past the
 * caches, what is asked for ahead; each program run too. */
#include "tests/unit/run_lowered.c"
#include "tests/unit/statements.h"

/* What the trace makes of the program, which computes the same. */
static kn_lprog *lowered_and_run_on(kiln_arena *a, const char *id, const char *text, const char *inputs, const char *trace)
{
    kn_hw *hw = device(a, id);
    kn_program *p = parsed(a, text, inputs);
    kn_lprog *l = lowered(a, p, hw, text_of(trace), text);
    run_checked(a, p, hw, text_of(trace), text);
    return l;
}

static kn_lprog *lowered_and_run(kiln_arena *a, const char *text, const char *inputs, const char *trace)
{
    return lowered_and_run_on(a, "x86-64-avx512", text, inputs, trace);
}

/* The last tile of an axis is moved back to end with it, but not to where another task computes the same elements of a padded sum at other places of
 * its tiles; along an axis without padding all tasks compute alike. Such a tile has a copy of its own with fewer rows, of whole vectors. */
static void padded_rows_are_of_one_task(void **state)
{
    static const char text[] = "y[P,C] +=! pad(x,0.0)[P+R-1,C]*w[R,C] where P in 20";
    static const struct { const char *inputs, *places, *task; bool moved; } one[] = {
        {"x=f32:20x16&w=f32:3x16", "1 14", "", true},
        {"x=f32:20x16&w=f32:3x16", "1 14", "parallel y P.0\n", false},
        {"x=f32:20x20&w=f32:3x20", "2 10", "parallel y P.0\nparallel y C.0\n", true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-avx512");
        kiln_bytes trace = text_of(kn_format(a, "split y P %s\nsplit y C 16\nreorder y P.0 C.0 | P.1 R.0 | P.2 C.1\n%sunroll y P.2\n"
                                                "vectorize y C.1\n", one[i].places, one[i].task));
        kn_program *p = parsed(a, text, one[i].inputs);
        kn_lprog *l = lowered(a, p, hw, trace, text);
        bool moved = false;
        for (int v = 0; v < l->nvars; v++) moved |= strstr(l->var_names[v], "from") != NULL;
        if (moved != one[i].moved) fail_msg("%zu: the last tile is%s moved", i, moved ? "" : " not");
        if (counted_in(l, l->fns[0].body, stores_of, 1)) fail_msg("%zu: some results are computed element by element", i);
        run_checked(a, p, hw, trace, text);
        kiln_arena_close(a);
    }
}

/* Loops whose bounds depend on others. */
static int64_t is_drawn(const kn_lprog *l, const kn_ls *s, int64_t with)
{
    (void)l, (void)with;
    return s->kind == KN_LS_FOR && s->lo->op != KN_OP_CONST_I;
}

/* Statements that hold what they read in registers. */
static int64_t holds(const kn_lprog *l, const kn_ls *s, int64_t with)
{
    (void)l, (void)with;
    return s->holds;
}

#define WINDOW "y[P,Q,F] +=! pad(x,0.0)[P*2+R-1,Q+S-1,C]*w[R,S,C,F] where P in 5, Q in 7"
#define WINDOW_IN "x=f32:9x7x8&w=f32:3x3x8x32"
#define INSIDE "split y F 16\nsplit y P 2\nreorder y P.0 | P.1 Q.0 F.0 R.0 S.0 C.0 | F.1\nparallel y P.0\nvectorize y F.1\n"
#define OUTSIDE "split y F 16\nsplit y P 2\nreorder y P.0 | R.0 S.0 P.1 Q.0 F.0 C.0 | F.1\nparallel y P.0\nvectorize y F.1\n"

/* Rows of a window in padding are left out, whether the window's loop is inside of the places' or outside, and read directly or by way of a copy; not
 * where a place would have nothing to sum, where padding is something, or where the window is written out. */
static void padding_is_left_out(void **state)
{
    static const struct { const char *text, *inputs, *trace; int drawn; } one[] = {
        {WINDOW, WINDOW_IN, INSIDE, 2},
        {WINDOW, WINDOW_IN, OUTSIDE, 2},
        {WINDOW, WINDOW_IN, "split y F 16\nreorder y P.0 | R.0 Q.0 F.0 S.0 C.0 | F.1\nparallel y P.0\nvectorize y F.1\n", 2},
        {WINDOW, WINDOW_IN, "split y F 16\nsplit y P 1 2\nreorder y P.0 S.0 | R.0 P.1 P.2 Q.0 F.0 C.0 | F.1\nvectorize y F.1\n", 2},
        {WINDOW, WINDOW_IN, "decompose_padding y 0 t\n" INSIDE, 2},
        {WINDOW, WINDOW_IN, "decompose_padding y 0 t\n" OUTSIDE, 2},
        {WINDOW, WINDOW_IN,
         "split y F 16\nreorder y P.0 | Q.0 F.0 C.0 R.0 S.0 | F.1\nunroll y R.0\nunroll y S.0\nparallel y P.0\nvectorize y F.1\n", 0},
        {WINDOW, WINDOW_IN, "split y F 16\nreorder y P.0 | F.0 R.0 S.0 C.0 | Q.0 F.1\nunroll y Q.0\nparallel y P.0\nvectorize y F.1\n", 1},
        {"y[P,F] +=! pad(x,0.0)[P+R*2-2,C]*w[R,C,F] where P in 6", "x=f32:6x20&w=f32:3x20x16",
         "reorder y P.0 | R.0 C.0 | F.0\nvectorize y F.0\n", 1},
        /* backwards, and weights of which phases have one or two */
        {"y[P,F] +=! pad(x,0.0)[P-R+1,C]*w[R,C,F] where P in 7", "x=f32:6x20&w=f32:3x20x16", "reorder y P.0 | R.0 C.0 | F.0\nvectorize y F.0\n", 1},
        {"y[P,F] +=! pad(x,0.0)[P*2-R*3+3,C]*w[R,C,F] where P in 3", "x=f32:6x20&w=f32:3x20x16",
         "reorder y P.0 | R.0 C.0 | F.0\nvectorize y F.0\n", 1},
        {"y[P,F] +=! pad(x,0.0)[P-R+1,C]*w[R,C,F] where P in 7", "x=f32:6x20&w=f32:3x20x16",
         "split y P 4\nreorder y P.0 | R.0 P.1 C.0 | F.0\nvectorize y F.0\n", 0}, /* a sum of one term both begins and ends */
        {"y[P,F] +=! pad(x,0.0)[P-R+1,C]*w[R,C,F] where P in 7", "x=f32:6x20&w=f32:3x20x16",
         "split y P 4\nsplit y C 10\nreorder y P.0 | R.0 C.0 P.1 C.1 | F.0\nvectorize y F.0\n", 1},
        {"y[P,F] +=! pad(x,0.0)[P-R+1,C]*w[R,C,F] where P in 6", "x=f32:6x20&w=f32:3x20x16",
         "split y P 4\nreorder y P.0 | R.0 P.1 C.0 | F.0\nvectorize y F.0\n", 1},
        {"y[G,P,F] +=! x[P+R,C]*pad(w,0.0)[G+R*2-1,C,F] where G in 2, P in 5", "x=f32:6x20&w=f32:3x20x16",
         "reorder y G.0 P.0 | R.0 C.0 | F.0\nvectorize y F.0\n", 1},
        {"y[P,F] +=! pad(x,0.0)[P+R-5,C]*w[R,C,F] where P in 8", "x=f32:6x20&w=f32:3x20x16",
         "reorder y P.0 | R.0 C.0 | F.0\nvectorize y F.0\n", 0},
        {"y[P,F] +=! pad(x,2.0)[P+R-1,C]*w[R,C,F] where P in 6", "x=f32:6x20&w=f32:3x20x16", "reorder y P.0 | R.0 C.0 | F.0\nvectorize y F.0\n", 0},
        {"y[P,F] +=! (pad(x,0.0)[P+R-1,C]+1.0)*w[R,C,F] where P in 6", "x=f32:6x20&w=f32:3x20x16",
         "reorder y P.0 | R.0 C.0 | F.0\nvectorize y F.0\n", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-avx512");
        kn_program *p = parsed(a, one[i].text, one[i].inputs);
        kn_lprog *l = lowered(a, p, hw, text_of(one[i].trace), one[i].text);
        int drawn = (int)counted(l, is_drawn, 0);
        if (drawn != one[i].drawn) fail_msg("%zu: %d loops are drawn in, not %d", i, drawn, one[i].drawn);
        run_checked(a, p, hw, text_of(one[i].trace), one[i].trace);
        kiln_arena_close(a);
    }
}

#define OWN "y[P,Q,C] +=! pad(x,0.0)[P+R-2,Q+S-2,C]*w[R,S,C] where P in 9, "
#define OWN_ORDER "reorder y C.0 | P.0 Q.0 R.0 S.0 | Q.1 C.1\nparallel y C.0\nunroll y S.0\nunroll y Q.1\nvectorize y C.1\n"

/* Tiles that reach into padding beside a written-out row of taps have texts of their own, the others between them one, and none of them asks what is
 * padding; not where another loop of the sum is no window's, taps are a loop, or all is written out. */
static void borders_are_known(void **state)
{
    static const struct { const char *text, *inputs, *trace; int conditions; bool vectors; } one[] = {
        {OWN "Q in 12", "x=f32:9x12x16&w=f32:5x5x16", "split y C 8\nsplit y Q 4\n" OWN_ORDER, 2, false},
        {OWN "Q in 21", "x=f32:9x21x16&w=f32:5x5x16", "split y C 8\nsplit y Q 4\n" OWN_ORDER, 3, false}, /* the last but one too */
        {OWN "Q in 4", "x=f32:9x4x16&w=f32:5x5x16", "split y C 8\nsplit y Q 4\n" OWN_ORDER, 0, false},
        {OWN "Q in 20", "x=f32:9x20x16&w=f32:5x5x16", "split y C 8\nsplit y Q 4\n" OWN_ORDER "cache_read y 0 scratch C.0 region\n", 3, false},
        {"y[P,Q,C] +=! pad(x,0.0)[P*2+R-2,Q*2-S+2,C]*w[R,S,C] where P in 5, Q in 8", "x=f32:9x16x16&w=f32:5x5x16",
         "split y C 8\nsplit y Q 4\n" OWN_ORDER, 1, false},
        {OWN "Q in 12", "x=f32:9x12x16&w=f32:5x5x16",
         "split y C 8\nsplit y Q 4\nreorder y C.0 | P.0 Q.0 R.0 S.0 | Q.1 C.1\nparallel y C.0\nunroll y Q.1\nvectorize y C.1\n", 0, true},
        {OWN "Q in 12", "x=f32:9x12x16&w=f32:5x5x16", "split y C 8\nsplit y Q 4\n" OWN_ORDER "unroll y R.0\n", 0, true},
        {"y[P,Q,C] +=! pad(x,0.0)[P+R-2,Q+S-2,C,T]*w[R,S,C,T] where P in 9, Q in 12", "x=f32:9x12x16x3&w=f32:5x5x16x3",
         "split y C 8\nsplit y Q 4\nreorder y C.0 | P.0 Q.0 T.0 R.0 S.0 | Q.1 C.1\nunroll y S.0\nunroll y Q.1\nvectorize y C.1\n", 0, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_lprog *l = lowered_and_run_on(a, "x86-64-avx2", one[i].text, one[i].inputs, one[i].trace);
        int conditions = (int)counted_in(l, l->fns[0].body, of_kind, KN_LS_IF), vectors = (int)counted_in(l, l->fns[0].body, choices_stored, 0);
        if (conditions != one[i].conditions || (vectors > 0) != one[i].vectors)
            fail_msg("%zu: %d conditions, %d vectors under one", i, conditions, vectors);
        kiln_arena_close(a);
    }
}

/* What two or three rows of a tile multiply is held in a register; gcc does so by itself for more of them. */
static void vectors_of_few_rows_are_held(void **state)
{
    (void)state;
    for (int rows = 1; rows <= 4; rows++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-avx512");
        kiln_bytes trace = text_of(kn_format(a, "split c N 2 16\nsplit c M %d\nreorder c M.0 N.0 | K.0 | M.1 N.1 N.2\nunroll c M.1\nunroll c N.1\n"
                                                "vectorize c N.2\n", rows));
        kn_lprog *l = lowered(a, parsed(a, "c[M,N] +=! a[M,K]*b[K,N]", "a=f32:12x33&b=f32:33x64"), hw, trace, "few rows");
        int held = (int)counted(l, holds, 0);
        if (held != (rows == 2 || rows == 3 ? 2 : 0)) fail_msg("%d vectors are held for %d rows", held, rows);
        kiln_arena_close(a);
    }
}

static int64_t made_anew(const kn_lprog *l, const kn_ls *s, int64_t with)
{
    (void)l, (void)with;
    return s->kind == KN_LS_LET && s->anew;
}

/* Rows' terms that are written out are many elements at distances from one address, which the loop over panels does not change; where another loop
 * goes along the terms, or rows and terms are few, registers hold what there is. */
static void addresses_are_made_anew(void **state)
{
    static const struct { int rows, terms, written, anew; } one[] = {{8, 16, 1, 1}, {4, 5, 1, 1}, {4, 4, 1, 0}, {8, 16, 0, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        const char *trace = kn_format(a, "split c N 1 8\nsplit c M %d\nreorder c M.0 N.0 | K.0 | M.1 N.1 N.2\nunroll c M.1\n%sunroll c N.1\n"
                                         "vectorize c N.2\n", one[i].rows, one[i].written ? "unroll c K.0\n" : "");
        const char *inputs = kn_format(a, "a=f32:16x%d&b=f32:%dx64", one[i].terms, one[i].terms);
        kn_lprog *l = lowered_and_run_on(a, "x86-64-avx2", "c[M,N] +=! a[M,K]*b[K,N]", inputs, trace);
        int64_t n = counted_in(l, l->fns[0].body, made_anew, 0);
        if (n != one[i].anew) fail_msg("%zu: %d addresses are made anew", i, (int)n);
        kiln_arena_close(a);
    }
}

/* Outputs of kernels that touch more than the description says are written past the caches: runs and turned squares, whole lines, and
 * products' lines where the output alone is so large; not what stays near. */
static void lines_go_past_the_caches(void **state)
{
    static const struct { const char *text, *inputs; int bytes; bool streams, halves; } one[] = { /* vectors of a line, of half a line */
        {"y[I] = max(x[I], 0.0)", "x=f32:4096", 16384, true, true},
        {"y[I] = max(x[I], 0.0)", "x=f32:4096", 65536, false, false},
        {"y[I] = max(x[I], 0.0)", "x=f32:4096", 0, false, false},
        {"y[J,I] = x[I,J]", "x=f32:64x64", 16384, true, false},
        {"y[J,I] = x[I,J]", "x=f32:72x64", 16384, false, false}, /* short rows that end within lines, of which squares write parts */
        {"y[I] = max(x[I], 0.0)", "x=f16:8192", 16384, false, false}, /* half lines */
        {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:64x2&b=f32:2x256", 16384, true, true},
        {"y[I,J] = max(x[I,J], 0.0)", "x=f32:64x128", 16384, true, true},
        {"y[I,J] = max(x[I,J], 0.0)", "x=f32:128x68", 16384, true, false}, /* rows end within vectors */
        {"y[I] = exp(x[I])", "x=f32:4096", 16384, true, false},
        {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:64x512&b=f32:512x256", 16384, true, false},
        {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:64x512&b=f32:512x256", 65536, false, false}, /* no more than that is written */
        {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:64x512&b=f32:512x250", 16384, false, false}, /* rows end within lines */
    };
    (void)state;
    for (size_t k = 0; k < 2 * sizeof one / sizeof *one; k++) {
        size_t i = k / 2;
        bool halves = k % 2; /* vectors of half a line */
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, halves ? "x86-64-avx2" : "x86-64-bf16");
        kn_program *c;
        hw->streaming_store_bytes = one[i].bytes;
        hw->levels[1].capacity_bytes = 4096;
        kiln_candidates *list = constructed(a, one[i].text, one[i].inputs, hw, 1, &c);
        kn_lprog *l = lowered(a, c, hw, list->c[0].trace, one[i].inputs);
        int64_t n = counted(l, past_the_caches, 0);
        if ((n > 0) != (halves ? one[i].halves : one[i].streams))
            fail_msg("%s of %s: %lld stores past the caches", one[i].text, one[i].inputs, (long long)n);
        kiln_arena_close(a);
    }
}

/* Two vectors that are half a line each go past the caches side by side, where rows are whole lines and nothing lies in the output beforehand. */
static void halves_of_lines_go_past_the_caches(void **state)
{
    static const struct { const char *text, *inputs; bool streams; } one[] = {
        {"y[I] = max(x[I], 0.0)", "x=f32:65536", true},
        {"y[I,J] = x[I,J] + b[J]", "x=f32:64x512&b=f32:512", true},
        {"y[I,J] = x[I,J] + b[J]", "x=f32:64x500&b=f32:500", false},
        {"y[J,I] = x[I,J]", "x=f32:64x64", false},
        {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:64x2&b=f32:2x256", true},
        {"m[I] >=! x[I,J]; e[I,J] = exp(x[I,J]-m[I]); s[I] +=! e[I,J]; y[I,J] = e[I,J]/s[I]", "x=f32:64x512", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-avx2");
        kn_program *c;
        hw->streaming_store_bytes = 16384;
        hw->levels[1].capacity_bytes = 4096;
        kiln_bytes trace = constructed(a, one[i].text, one[i].inputs, hw, 1, &c)->c[0].trace;
        kn_lprog *l = lowered(a, c, hw, trace, one[i].inputs);
        int64_t n = counted(l, past_the_caches, 0);
        if ((n > 0) != one[i].streams || n % 2) fail_msg("%s of %s: %lld stores past the caches", one[i].text, one[i].inputs, (long long)n);
        run_checked(a, c, hw, trace, one[i].inputs);
        kiln_arena_close(a);
    }
}

/* Vectors that are read of the tensor `slot`; with -1 - slot elements that are read one by one. */
static int64_t is_read(const kn_lprog *l, const kn_expr *e, int64_t with)
{
    int64_t slot = with < 0 ? -1 - with : with;
    bool it = e->op == KN_OP_READ && l->buffers[e->u.buffer].scope == KN_GLOBAL && l->buffers[e->u.buffer].slot == slot;
    return it && (e->lanes > 1) == (with >= 0);
}

static int64_t reads_in(const kn_lprog *l, const kn_ls *s, int64_t with) { return counted_of(l, s->value, is_read, with); }

/* Packed copies whose lanes are rows of the source are turned in squares: of words, and of narrow elements with their terms, which may lie behind all
 * taps of a window; not where a row has no square, or narrow terms are cut off. */
static void rows_are_turned(void **state)
{
    static const char window[] = "y[P,F] +=! x[C,P+R]*w[F,C,R] where P in 6", words[] = "y[M,F] +=! x[M,C]*w[F,C]";
#define WINDOW_TILE(terms, last) "split y F 16\nsplit y C " terms "\nreorder y F.0 C.0 P.0 R.0 C.1 F.1" last "\n" \
    "cache_read y 1 scratch C.0 loops C.1 R.0 F.1" last "\n"
#define WORDS_TILE(terms) "split y F 16\nsplit y C " terms "\nreorder y F.0 C.0 M.0 C.1 F.1\nvectorize y F.1\n" \
    "cache_read y 1 scratch C.0 loops C.1 F.1\n"
    static const struct { const char *text, *inputs, *trace; bool turned; } of[] = {
        {words, "x=f32:5x64&w=f32:32x64", WORDS_TILE("32"), true},
        {words, "x=f32:5x64&w=f32:37x64", WORDS_TILE("32"), true},
        {words, "x=f32:5x60&w=f32:32x60", WORDS_TILE("20"), true},
        {words, "x=f32:5x70&w=f32:32x70", WORDS_TILE("32"), false},
        {words, "x=f32:5x8&w=f32:32x8", WORDS_TILE("8"), false},
        {window, "x=f32:8x10&w=f32:32x8x5", WINDOW_TILE("4", ""), true},
        {window, "x=f32:8x10&w=f32:32x8x5", WINDOW_TILE("3", ""), false},
        {"y[P,F] +=! cast(x[C,P+R],i32)*cast(w[F,C,R],i32) where P in 6", "x=i8:16x10&w=i8:32x16x5", WINDOW_TILE("4 4", " C.2"), true},
        {"y[P,F] +=! cast(x[C,P+R],f32)*cast(w[F,C,R],f32) where P in 6", "x=bf16:16x10&w=bf16:32x16x5", WINDOW_TILE("8 2", " C.2"), true},
        {"y[P,F] +=! cast(x[C,P+R],i32)*cast(w[F,C,R],i32) where P in 6", "x=i8:15x10&w=i8:32x15x5", WINDOW_TILE("4 4", " C.2"), false},
    };
#undef WINDOW_TILE
#undef WORDS_TILE
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-avx512");
        kn_program *c = parsed(a, of[i].text, of[i].inputs);
        kiln_bytes trace = {of[i].trace, strlen(of[i].trace)};
        run_checked(a, c, hw, trace, of[i].inputs);
        kn_lprog *l = lowered(a, c, hw, trace, of[i].inputs);
        int64_t vectors = counted(l, reads_in, 1), elements = counted(l, reads_in, -2);
        if ((vectors >= 16 && !elements) != of[i].turned)
            fail_msg("%s of %s: %d elements and %d vectors are read", of[i].text, of[i].inputs, (int)elements, (int)vectors);
        kiln_arena_close(a);
    }
}

#define TILES_OF(n, of_sum) "split out0 S0 63 8\nsplit out0 S1 " n " 16\nsplit out0 R0 " of_sum "\n" \
    "reorder out0 S0.0 R0.0 S0.1 S1.0 R0.1 | S0.2 S1.1 S1.2\nunroll out0 S0.2\nunroll out0 S1.1\nvectorize out0 S1.2\n"

#define COPIED "split out0 S1 4 16\nsplit out0 S0 8\nsplit out0 R0 64\nreorder out0 S1.0 R0.0 S0.0 R0.1 | S0.1 S1.1 S1.2\n" \
    "unroll out0 S0.1\nunroll out0 S1.1\nvectorize out0 S1.2\ncache_read out0 0 scratch R0.0 loops R0.1 S1.1 S1.2\n"

/* An operand that is read where it lies has been asked for when its turn comes, but for what the tasks begin with: panels beside each other, rows
 * below, also where the last panel is a short one or moved back; rows that meet few columns, whole, a block of their sum at a time, for two panels
 * in turn, or have the lanes along the sum; blocks that are copied, by many rows and by fewer. What streams has been so long before. */
static void what_comes_is_asked_for(void **state)
{
    static const struct { const char *inputs, *trace; int64_t early; } of[] = {
        {"a=f16:1x601&b=f16:601x512", NULL, 60},
        {"a=f32:11x203&b=f32:203x1280", NULL, 0}, {"a=f32:11x203&b=f32:203x1283", NULL, 0}, {"a=f32:67x199&b=f32:199x803", NULL, 0},
        {"a=f32:3x601&b=f32:601x1601", NULL, 0}, {"a=f32:512x1037&b=f32:1037x6", NULL, 0},
        {"a=f32:504x768&b=f32:768x16", TILES_OF("1", "256"), 0}, {"a=f32:504x512&b=f32:512x64", TILES_OF("2", "512"), 0},
        {"a=f32:48x512&b=f32:512x384", COPIED, 0}, {"a=f32:152x512&b=f32:512x384", COPIED, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const char *inputs = of[i].inputs;
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-avx512");
        resize(hw, "l2", 262144);
        kn_program *c;
        double *x[KILN_MAX_TENSORS] = {0};
        lprog_lines lines[KILN_MAX_TENSORS] = {0};
        kiln_bytes trace = constructed(a, "c[M,N] +=! a[M,K]*b[K,N]", inputs, hw, 1, &c)->c[0].trace;
        if (of[i].trace) trace = (kiln_bytes){of[i].trace, strlen(of[i].trace)};
        kn_lprog *l = lowered(a, c, hw, trace, inputs);
        fresh(c, x);
        lines[0].early = lines[1].early = of[i].early;
        const char *bad = lprog_eval_lines(l, x, lines);
        if (bad) fail_msg("%s: %s", inputs, bad);
        int b = elems_of(&c->tensors[0]) > elems_of(&c->tensors[1]) ? 0 : 1; /* the larger one */
        if (lines[b].read * 9 > lines[b].asked * 10)
            fail_msg("%s: %lld of %lld lines\n%s", inputs, (long long)lines[b].asked, (long long)lines[b].read, trace.p);
        discard(x, c->ntensors);
        kiln_arena_close(a);
    }
}

static int64_t asks_for_packed(const kn_lprog *l, const kn_ls *s, int64_t with)
{
    (void)with;
    return s->kind == KN_LS_PREFETCH && l->buffers[s->buffer].scope == KN_PACKED;
}

/* Packed constants that L2 does not hold are asked for although they are used but once; those that it holds are not. Streams side by side, of which
 * a use asks for its share. */
static void streams_are_asked_for(void **state)
{
    static const struct { const char *inputs; bool asked; } of[] = {{"a=f32:9x601&b=f32:601x1201:const", true},
                                                                    {"a=f32:3x601&b=f32:601x1201:const", true},
                                                                    {"a=f32:30x601&b=f32:601x1201:const", true},
                                                                    {"a=f32:3x101&b=f32:101x301:const", false}};
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-avx512");
        resize(hw, "l2", 262144);
        kn_program *c;
        kiln_bytes trace = constructed(a, "c[M,N] +=! a[M,K]*b[K,N]", of[i].inputs, hw, 1, &c)->c[0].trace;
        kn_lprog *l = lowered(a, c, hw, trace, of[i].inputs);
        int n = (int)counted(l, asks_for_packed, 0);
        if ((n > 0) != of[i].asked) fail_msg("%s: %d lines\n%s", of[i].inputs, n, trace.p);
        kiln_arena_close(a);
    }
}

static int64_t reads_scratch(const kn_lprog *l, const kn_expr *e, int64_t with)
{
    (void)with;
    return e->op == KN_OP_READ && l->buffers[e->u.buffer].scope == KN_SCRATCH;
}

static int64_t uses_scratch(const kn_lprog *l, const kn_ls *s, int64_t with)
{
    return counted_of(l, s->value, reads_scratch, with) + (s->kind == KN_LS_STORE && l->buffers[s->buffer].scope == KN_SCRATCH);
}

#define MAXIMUM "y[C,P,Q] >=! pad(x,-inf)[C,P*2+R-1,Q*2+S-1] where P in 5, Q in 11, R in 3, S in 3"
#define ROWS "separate y R t inside\nsplit t X2 2 16\nreorder t X0.0 P.0 | X2.0 R.0 | X2.1 X2.2\nunroll t R.0\nunroll t X2.1\nvectorize t X2.2\n"

/* A row between the steps of a window stays in registers: with columns in padding, a stride, a last vector that is moved back; not where results go
 * column by column, or where rows of several places are made at once. */
static void rows_stay_in_registers(void **state)
{
    static const struct { const char *text, *inputs, *trace; bool held; } one[] = {
        {MAXIMUM, "x=f32:3x9x21", ROWS "split y Q 2 8\nreorder y C.0 P.0 | Q.0 S.0 | Q.1 Q.2\nunroll y S.0\nunroll y Q.1\nvectorize y Q.2\n"
         "parallel y C.0\ncompute_at t y P.0\n", true},
        {MAXIMUM, "x=f32:3x9x21", "separate y R t inside\nsplit t X0 2\nsplit t X2 2 16\nreorder t X0.0 X0.1 P.0 | X2.0 R.0 | X2.1 X2.2\n"
         "unroll t R.0\nunroll t X2.1\nvectorize t X2.2\n"
         "split y C 2\nsplit y Q 2 8\nreorder y C.0 C.1 P.0 | Q.0 S.0 | Q.1 Q.2\nunroll y S.0\nunroll y Q.1\n"
         "vectorize y Q.2\nparallel y C.0\ncompute_at t y P.0\n", true},
        {"y[C,P,Q] +=! pad(x,0.0)[C,P+R-2,Q+3*S-1] where P in 8, Q in 19, R in 5, S in 3", "x=f32:2x8x23",
         "separate y R t inside\nsplit t X2 2 16\nreorder t X0.0 P.0 | X2.0 R.0 | X2.1 X2.2\nunroll t X2.1\nvectorize t X2.2\n"
         "split y Q 2 16\nreorder y C.0 P.0 | Q.0 S.0 | Q.1 Q.2\nunroll y S.0\nunroll y Q.1\nvectorize y Q.2\ncompute_at t y P.0\n", true},
        {MAXIMUM, "x=f32:3x9x21", ROWS "split y Q 2 8\nreorder y C.0 P.0 | Q.0 S.0 | Q.1 Q.2\nunroll y Q.1\nvectorize y Q.2\n"
         "parallel y C.0\ncompute_at t y P.0\n", false},
        {MAXIMUM, "x=f32:3x9x21", ROWS "split y Q 2 8\nreorder y C.0 P.0 | Q.0 S.0 | Q.1 Q.2\nunroll y S.0\nunroll y Q.1\nvectorize y Q.2\n"
         "parallel y C.0\ncompute_at t y C.0\n", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_lprog *l = lowered_and_run(a, one[i].text, one[i].inputs, one[i].trace);
        int picks = (int)counted(l, picks_of, 0), scratch = (int)counted(l, uses_scratch, 0);
        if ((picks > 0) != one[i].held || (scratch == 0) != one[i].held) fail_msg("%zu: %d picks, scratch is used %d times", i, picks, scratch);
        kiln_arena_close(a);
    }
}

/* Vectors that lanes are picked from, at each pick. */
static int64_t sources_in(const kn_lprog *l, const kn_expr *e, int64_t with)
{
    (void)l, (void)with;
    return e->op == KN_OP_PICK ? e->u.i : 0;
}

static int64_t sources_of(const kn_lprog *l, const kn_ls *s, int64_t with)
{
    return s->kind == KN_LS_STORE ? counted_of(l, s->value, sources_in, with) : 0;
}

/* What two vectors of a row have, as its last one is moved back, is picked from the one with more of the lanes. */
static void lanes_come_from_few_vectors(void **state)
{
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kn_lprog *l = lowered_and_run_on(a, "x86-64-avx2", "y[C,P,Q] +=! pad(x,0.0)[C,P*2+R-1,Q*2+S-1] where P in 5, Q in 11, R in 3, S in 3",
        "x=f32:2x9x21", "separate y R t inside\nsplit t X2 3 8\nreorder t X0.0 P.0 | X2.0 R.0 | X2.1 X2.2\nunroll t R.0\nunroll t X2.1\n"
        "vectorize t X2.2\nsplit y Q 2 8\nreorder y C.0 P.0 | Q.0 S.0 | Q.1 Q.2\nunroll y S.0\nunroll y Q.1\nvectorize y Q.2\ncompute_at t y P.0\n");
    int sources = (int)counted(l, sources_of, 0);
    if (sources != 17) fail_msg("%d vectors at 6 picks, of which two have a zero too", sources);
    kiln_arena_close(a);
}

/* Lanes that are put together from phases are picked from a vector of each, at any offset, also where the last tile is moved back or rows end within
 * a vector; not those of more phases than a few, or of bytes. */
static void phases_are_picked(void **state)
{
#define ROW_OF(nv, lanes) "split y P " #nv " " #lanes "\nreorder y I.0 P.0 | | P.1 P.2\nunroll y P.1\nvectorize y P.2\n"
    static const struct { const char *text, *inputs, *trace; bool picked; } one[] = {
        {"y[I,P] = x[I,P%2,P//2] where P in 64", "x=f32:3x2x32", ROW_OF(4, 16), true},
        {"y[I,P] = x[I,(P+1)%2,(P+1)//2] where P in 61", "x=f32:3x2x31", ROW_OF(8, 8), true},
        {"y[I,P] = x[I,(P+1)%2,(P+1)//2] where P in 61", "x=f32:3x2x31", ROW_OF(1, 8), true},
        {"y[I,P] = x[I,(P+2)%3,(P+2)//3] where P in 43", "x=f64:2x3x15", ROW_OF(3, 8), true},
        {"y[I,P] = x[I,P%4,P//4] where P in 50", "x=i32:2x4x13", ROW_OF(2, 16), true},
        {"y[I,P] = x[P%2,P//2,I] where P in 50", "x=f32:2x25x30", ROW_OF(2, 16), false},
        {"y[I,P] = x[I,P%5,P//5] where P in 50", "x=f32:2x5x10", ROW_OF(2, 8), false},
        {"y[I,P] = x[I,P%2,P//2] where P in 64", "x=u8:3x2x32", ROW_OF(4, 16), false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_lprog *l = lowered_and_run(a, one[i].text, one[i].inputs, one[i].trace);
        if ((counted(l, picks_of, 0) > 0) != one[i].picked) fail_msg("%zu", i);
        kiln_arena_close(a);
    }
}

/* Rows that follow each other are read in vectors of all of them; not those that end with a vector, that lie apart, of which a part is summed, or a
 * tile whose rows end within a vector. */
static void rows_are_joined(void **state)
{
#define ROWS_OF(n, k) "split y I " #n "\nsplit y K " #k " 16\nreorder y I.0 K.0 | I.1 K.1 K.2\nunroll y I.1\nunroll y K.1\nvectorize y K.2\n"
    static const struct { const char *text, *inputs, *trace; bool joined; } one[] = {
        {"y[I] +=! x[I,K]", "x=f32:32x49", ROWS_OF(16, 4), true},
        {"y[I] +=! x[I,K]", "x=f32:37x17", ROWS_OF(16, 2), true},
        {"y[I] +=! x[I,K]", "x=f32:96x17", ROWS_OF(32, 2), true},
        {"y[I] >=! x[I,K]", "x=f32:32x23", ROWS_OF(16, 2), true},
        {"y[I] <=! x[I,K]", "x=f32:24x34", ROWS_OF(8, 3), true},
        {"y[I] +=! x[I,K]", "x=f32:32x48", ROWS_OF(16, 3), false},
        {"y[I] +=! x[I,K] where K in 49", "x=f32:32x50", ROWS_OF(16, 4), false},
        {"y[I] +=! x[I,K]", "x=f32:30x49", ROWS_OF(3, 4), false},
        {"y[I] +=! x[I,K]", "x=f32:32x81", ROWS_OF(16, 3), false},
        {"y[I] +=! x[I,K]*x[I,K]", "x=f32:32x49", ROWS_OF(16, 4), false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_lprog *l = lowered_and_run(a, one[i].text, one[i].inputs, one[i].trace);
        bool joined = false;
        for (int b = 0; b < l->nbuffers; b++) joined |= strstr(l->buffers[b].name, "meet") != NULL;
        if (joined != one[i].joined) fail_msg("%zu: rows are%s joined", i, joined ? "" : " not");
        bool ahead = counted_in(l, l->fns[0].body, of_kind, KN_LS_PREFETCH) > 0;
        if (joined != ahead) fail_msg("%zu: the next rows are%s asked for", i, joined ? " not" : "");
        kiln_arena_close(a);
    }
}

/* Rows shorter than a vector are read in whole ones; not those of less than half a vector, that lie apart, or of a tensor with no room for one. Then
 * the tile is walked element by element. */
static void short_rows_are_read_over(void **state)
{
#define SHORT(m) "split c N 1 16\nsplit c M " #m "\nreorder c M.0 N.0 | K.0 | M.1 N.1 N.2\nunroll c M.1\nunroll c N.1\nvectorize c N.2\n"
    static const struct { const char *text, *inputs, *trace; bool over; } one[] = {
        {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:7x18&b=f32:18x15", SHORT(7), true},
        {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:9x3&b=f32:3x8", SHORT(4), true},
        {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:5x2&b=f32:2x9", SHORT(1), true},
        {"c[M,N] >=! a[M,K]+b[K,N]", "a=f32:6x4&b=f32:4x11", SHORT(3), true},
        {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:7x18&b=f32:18x7", SHORT(7), false},
        {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:7x1&b=f32:1x15", SHORT(7), false},
        {"c[M,N] +=! a[M,K]*b[N,K]", "a=f32:7x18&b=f32:15x18", SHORT(7), false},
        {"c[M,N] +=! a[M,K]*b[K,N] where N in 13", "a=f32:7x18&b=f32:18x15", SHORT(7), true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_lprog *l = lowered_and_run(a, one[i].text, one[i].inputs, one[i].trace);
        bool scalar = false;
        for (int b = 0; b < l->nbuffers; b++) scalar |= strstr(l->buffers[b].name, "acc") && l->buffers[b].lanes == 1;
        if (scalar == one[i].over) fail_msg("%zu: rows are%s read in whole vectors", i, scalar ? " not" : "");
        kiln_arena_close(a);
    }
}

static bool has_buffer(const kn_lprog *l, const char *name)
{
    bool yes = false;
    for (int b = 0; b < l->nbuffers; b++) yes |= strstr(l->buffers[b].name, name) != NULL;
    return yes;
}

static bool has_variable(const kn_lprog *l, const char *name)
{
    bool yes = false;
    for (int v = 0; v < l->nvars; v++) yes |= strstr(l->var_names[v], name) != NULL;
    return yes;
}

#define SOFTMAX "m[I] >=! x[I,J]; e[I,J] = exp(x[I,J]-m[I]); s[I] +=! e[I,J]; y[I,J] = e[I,J]/s[I]"

/* What a map makes is summed as it is made, ragged rows too, and no iteration asks where they end; not by a sum that reads it twice. What a
 * second stage reads before the last one is asked for before its turn. */
static void sums_take_what_is_made(void **state)
{
    static const struct { const char *text, *inputs; bool made, asked; } one[] = {
        {SOFTMAX, "x=f32:48x128", true, true},
        {SOFTMAX, "x=f32:50x300", true, true},
        {SOFTMAX, "x=f32:7x2063", true, true},
        {SOFTMAX, "x=f32:64x11", true, true},
        {"e[I,J] = exp(x[I,J]); s[I] +=! e[I,J]*e[I,J]; y[I,J] = e[I,J]/s[I]", "x=f32:48x128", false, false},
        {"m[I] >=! x[I,J]; e[I,J] = exp(x[I,J]-m[I]); s[I] +=! abs(e[I,J]-w[J]); y[I,J] = e[I,J]/s[I]", "x=f32:48x100&w=f32:100", true, true},
        {"s[I] +=! x[I,J]; y[I,J] = x[I,J]*s[I]", "x=f32:48x128", false, false},
        {"s[I] +=! x[I,J]; v[I] +=! (x[I,J]-s[I])*(x[I,J]-s[I]); y[I,J] = x[I,J]*s[I]+v[I]", "x=f32:48x128", false, true},
        {"s[I] +=! x[I,J]; v[I] +=! x[I,J]*w[I,J]*s[I]; y[I,J] = x[I,J]*s[I]+v[I]", "x=f32:48x128&w=f32:48x128", false, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-avx512");
        kn_program *c;
        kiln_bytes trace = constructed(a, one[i].text, one[i].inputs, hw, 1, &c)->c[0].trace;
        kn_lprog *l = lowered(a, c, hw, trace, one[i].inputs);
        int64_t asked = counted(l, of_kind, KN_LS_PREFETCH), tests = counted(l, of_kind, KN_LS_IF);
        if (has_buffer(l, "made") != one[i].made) fail_msg("%s of %s is%s summed as it is made\n%s", one[i].text, one[i].inputs,
                                                            one[i].made ? " not" : "", trace.p);
        if ((asked > 0) != one[i].asked) fail_msg("%s of %s: %lld lines asked for", one[i].text, one[i].inputs, (long long)asked);
        if (one[i].made && !has_buffer(l, "held")) fail_msg("%s of %s: a row's sum is read anew by each vector", one[i].text, one[i].inputs);
        if (one[i].made && tests) fail_msg("%s of %s: %lld tests\n%s", one[i].text, one[i].inputs, (long long)tests, trace.p);
        run_checked(a, c, hw, trace, one[i].inputs);
        kiln_arena_close(a);
    }
}

/* What a map overwrites element by element lies in its output from the beginning; not where its tiles come back to elements, where they are another's
 * by then, or where the output is written past the caches. */
static void overwritten_in_place(void **state)
{
#define HALVES(with) "split y J 4 16\nreorder y I.0 J.0 | J.1 | J.2\nparallel y I.0\nvectorize y J.2\n" with
#define ALIKE "split e J 64\ncompute_at e y J.0\n"
#define OF(rest) "m[I] >=! x[I,J]; e[I,J] = exp(x[I,J]-m[I]); s[I] +=! e[I,J]; " rest
    static const struct { const char *text, *inputs, *trace; int64_t far; bool in_place; } one[] = {
        {SOFTMAX, "x=f32:48x128", "", 0, true},
        {SOFTMAX, "x=f32:50x128", "", 0, true},
        {SOFTMAX, "x=f32:7x256", "", 0, true},
        {"m[A,I] >=! x[A,I,J]; e[A,I,J] = exp(x[A,I,J]-m[A,I]); s[A,I] +=! e[A,I,J]; y[A,I,J] = e[A,I,J]/s[A,I]", "x=f32:3x48x64", "", 0, true},
        {SOFTMAX, "x=f32:48x128", "", 4096, false},
        {SOFTMAX, "x=f32:50x300", "", 0, false},
        {SOFTMAX, "x=f32:3x20011", "", 0, true}, /* longer than L1: the last tile leaves what was written */
        {SOFTMAX, "x=f32:2x20000", "", 0, true},
        {OF("y[I,J] = e[I,J]/s[I]+e[I,J]"), "x=f64:2x10003", "", 0, true},
        {SOFTMAX, "x=f32:48x128", HALVES("compute_at s y I.0\ncompute_at e y I.0\ncompute_at m y I.0\n"), 0, true},
        {"e[I,J] = exp(x[I,J]); y[I,J] = e[I,J]*e[I,J]", "x=f32:48x128", HALVES(ALIKE), 0, false},
        {OF("y[I,J] = e[I,J]/s[I]+e[I,J]"), "x=f32:48x128", "", 0, true},
        {"e[I,J] = exp(x[I,J]); f[I,J] = exp(w[I,J]); s[I] +=! e[I,J]*f[I,J]; y[I,J] = e[I,J]*f[I,J]/s[I]", "x=f32:48x128&w=f32:48x128",
         HALVES("compute_at s y I.0\ncompute_at e y I.0\ncompute_at f y I.0\n"), 0, false}, /* two of them: one at most */
        {OF("y[I,J] = e[I,J]/s[I]+e[I,3]"), "x=f32:48x128", "", 0, false},
        {OF("y[I,J] = e[I,127-J]/s[I] where J in 128"), "x=f32:48x128", "", 0, false},
        {OF("y[I,J] = cast(e[I,J]/s[I],bf16)"), "x=f32:48x128", "", 0, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-avx512");
        hw->streaming_store_bytes = one[i].far;
        const char *text = one[i].text;
        kn_program *c = parsed(a, text, one[i].inputs);
        kiln_bytes trace = *one[i].trace ? text_of(one[i].trace) : constructed(a, text, one[i].inputs, hw, 1, &c)->c[0].trace;
        kn_lprog *l = lowered(a, c, hw, trace, one[i].inputs);
        bool in_place = true;
        for (int b = 0; b < l->nbuffers; b++) in_place &= l->buffers[b].scope != KN_SCRATCH || l->buffers[b].elems < 64;
        if (in_place != one[i].in_place) fail_msg("%s of %s is%s overwritten in place\n%s", text, one[i].inputs, in_place ? "" : " not", trace.p);
        run_checked(a, c, hw, trace, one[i].inputs);
        kiln_arena_close(a);
    }
#undef HALVES
#undef ALIKE
#undef OF
}

/* Rows that are no whole lines, written past the caches: their tiles begin with lines. */
static void rows_begin_with_lines(void **state)
{
    static const struct { const char *inputs; int bytes; bool lines; } one[] = {
        {"x=f32:24x300", 16384, true},  {"x=f32:24x307", 16384, true},    {"x=f32:24x319", 16384, true},  {"x=f32:24x127", 16384, false},
        {"x=f32:24x320", 16384, false}, {"x=f32:24x300", 1 << 20, false}, {"x=f32:24x99", 16384, true},
        {"x=f32:72x63", 16384, false}, /* shorter than a tile */
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-avx512");
        kn_program *c;
        hw->streaming_store_bytes = one[i].bytes;
        hw->levels[1].capacity_bytes = 4096;
        static const char trace[] = "split y J 4 16\nreorder y I.0 | J.0 | J.1 J.2\nparallel y I.0\nunroll y J.1\nvectorize y J.2\n";
        c = parsed(a, "y[I,J] = x[I,J]*2.0+x[I,J]", one[i].inputs);
        kn_lprog *l = lowered(a, c, hw, text_of(trace), one[i].inputs);
        if (has_variable(l, "past") != one[i].lines) fail_msg("%s: tiles begin%s with lines", one[i].inputs, one[i].lines ? " not" : "");
        if (one[i].bytes == 16384 && (counted(l, past_the_caches, 0) > 0) != (one[i].lines || strstr(one[i].inputs, "x320")))
            fail_msg("%s: a line that two rows share, or two tiles, goes past the caches in parts", one[i].inputs);
        run_checked(a, c, hw, text_of(trace), one[i].inputs);
        kiln_arena_close(a);
    }
}

/* Planes that are turned as they are copied ask for the next ones, where those are near and nothing else is read; so is one window a plane. Of planes
 * from far away all do. */
static void turned_planes_ask_for_the_next(void **state)
{
    static const char weighted[] = "y[N,C,P,Q] +=! x[N,C,P+R,Q+S]*w[C,R,S] where P in 5, Q in 5";
    static const struct { const char *text, *inputs; int64_t l2; bool asked; } one[] = {
        {"y[N,C,P,Q] >=! x[N,C,P*2+R,Q*2+S] where P in 3, Q in 3, R in 3, S in 3", "x=f32:1x64x7x7", 1 << 20, true},
        {"y[N,C,P,Q] >=! x[N,C,P*2+R,Q*2+S] where P in 1, Q in 1, R in 5, S in 5", "x=f32:1x64x6x6", 1 << 20, true},
        {weighted, "x=f32:1x64x7x7&w=f32:64x3x3", 1 << 20, false}, {weighted, "x=f32:4x64x7x7&w=f32:64x3x3", 1 << 15, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-avx512");
        kn_program *c;
        kiln_bytes trace = constructed(a, one[i].text, one[i].inputs, hw, 1, &c)->c[0].trace;
        resize(hw, "l2", one[i].l2);
        kn_lprog *l = lowered(a, c, hw, trace, one[i].inputs);
        int64_t asked = counted(l, of_kind, KN_LS_PREFETCH);
        if (!strstr(trace.p, "region last")) fail_msg("%s is not turned\n%s", one[i].text, trace.p);
        if ((asked > 0) != one[i].asked) fail_msg("%s: %lld lines asked for", one[i].text, (long long)asked);
        run_checked(a, c, hw, trace, one[i].inputs);
        kiln_arena_close(a);
    }
}

/* Lines of the next block are asked for by many iterations again, but where L2 does not hold two blocks: there by a burst before each tile, once. */
static void large_blocks_are_asked_for_once(void **state)
{
    static const struct { int64_t l2; bool once; } one[] = {{1 << 18, false}, {1 << 17, true}};
    static const char trace[] = "split c N 4 2 16\nsplit c M 4\nsplit c K 128\nreorder c N.0 | K.0 M.0 N.1 K.1 | M.1 N.2 N.3\nunroll c M.1\n"
                                "unroll c N.2\nvectorize c N.3\ncache_read c 1 scratch K.0 loops N.1 K.1 N.2 N.3\n";
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-avx512");
        resize(hw, "l2", one[i].l2);
        kn_program *p = parsed(a, "c[M,N] +=! a[M,K]*b[K,N]", "a=f32:16x512&b=f32:512x256");
        kn_lprog *l = lowered(a, p, hw, text_of(trace), trace);
        bool burst = false;
        for (int v = 0; v < l->nvars; v++) burst |= strstr(l->var_names[v], "line") != NULL;
        if (burst != one[i].once || !counted(l, of_kind, KN_LS_PREFETCH)) fail_msg("an L2 of %lld bytes", (long long)one[i].l2);
        run_checked(a, p, hw, text_of(trace), trace);
        kiln_arena_close(a);
    }
}

/* Rows of far images that a window's next rows of results need are asked for where a row of vectors meets more pages than a prefetcher follows. */
static void rows_of_images_are_asked_for(void **state)
{
    static const struct { const char *channels; int64_t l2; bool asked; } one[] = {
        {"480", 1 << 18, true}, {"480", 1 << 21, false}, {"96", 1 << 18, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-avx512");
        kn_program *c;
        const char *text = "y[N,P,Q,C] +=! pad(x,0.0)[N,P*2+R-2,Q*2+S-2,C]*w[R,S,C] where P in 11, Q in 11, R in 5, S in 5";
        const char *inputs = kn_format(a, "x=f32:1x21x21x%s&w=f32:5x5x%s", one[i].channels, one[i].channels);
        resize(hw, "l2", one[i].l2);
        kiln_bytes trace = constructed(a, text, inputs, hw, 1, &c)->c[0].trace;
        kn_lprog *l = lowered(a, c, hw, trace, inputs);
        bool asked = counted(l, of_kind, KN_LS_PREFETCH) > 0;
        if (asked != one[i].asked) fail_msg("%s channels, an L2 of %lld bytes", one[i].channels, (long long)one[i].l2);
        run_checked(a, c, hw, trace, inputs);
        kiln_arena_close(a);
    }
}

/* Lanes that lie rows apart change places in registers with the dimension that goes along the rows, terms of an instruction together; not where the
 * run is shorter than a square, or lanes are terms of the sum, which have to be zero past their end. */
static void rows_change_places(void **state)
{
#define PANELS(k, n, m) "split c N " #n " 16\nsplit c M " #m "\nreorder c N.0 | M.0 " k " | M.1 N.1 N.2\n" \
                        "unroll c M.1\nunroll c N.1\nvectorize c N.2\n"
#define DOTS(name, terms) "split c N 2 16\nsplit c K " #terms "\nreorder c N.0 | M.0 K.0 N.1 | N.2 K.1\nunroll c N.1\ntensorize c N.2 " name "\n" \
                          "cache_read c 1 scratch N.0 loops K.0 N.1 N.2 K.1\n"
    static const struct { const char *device, *text, *inputs, *trace; bool square; } one[] = {
        {"avx512", "c[M,N] +=! a[M,K]*b[N,K]", "a=f32:4x64&b=f32:64x64", PANELS("K.0", 2, 4) "cache_read c 1 scratch N.0 loops K.0 N.1 N.2\n", true},
        {"avx512", "c[M,N] +=! a[M,K]*b[N,K]", "a=f32:5x37&b=f32:45x37", PANELS("K.0", 2, 2) "cache_read c 1 scratch N.0 loops K.0 N.1 N.2\n", true},
        {"avx512", "c[M,N] +=! a[M,K]*cast(b[N,K],f32)", "a=f32:5x37&b=i8:45x37",
         PANELS("K.0", 1, 2) "cache_read c 1 scratch N.0 loops K.0 N.1 N.2\n", true},
        {"avx512", "c[M,N] +=! cast(a[M,K],f32)*cast(b[N,K],f32)", "a=f16:3x41&b=f16:70x41",
         PANELS("K.0", 3, 3) "cache_read c 1 scratch N.0 loops N.1 K.0 N.2\n", true},
        {"avx512", "c[M,N] +=! a[M,K]*b[N,K]", "a=f32:4x15&b=f32:64x15", PANELS("K.0", 2, 4) "cache_read c 1 scratch N.0 loops K.0 N.1 N.2\n", false},
        {"vnni", "c[M,N] +=! cast(a[M,K],i32)*cast(b[N,K],i32)", "a=u8:3x128&b=i8:64x128", DOTS("vpdpbusd", 4), true},
        {"vnni", "c[M,N] +=! cast(a[M,K],i32)*cast(b[N,K],i32)", "a=u8:3x88&b=i8:45x88", DOTS("vpdpbusd", 4), true},
        {"bf16", "c[M,N] +=! cast(a[M,K],f32)*cast(b[N,K],f32)", "a=bf16:3x66&b=bf16:45x66", DOTS("vdpbf16ps", 2), true},
        {"bf16", "c[M,N] +=! cast(a[M,K],f32)*cast(b[N,K],f32)", "a=bf16:3x67&b=bf16:45x67",
         "pad_einsum c K 2\ninline b_pad_K\n" DOTS("vdpbf16ps", 2), true},
        {"vnni", "c[M,N] +=! cast(a[M,K],i32)*cast(b[N,K],i32)", "a=u8:3x131&b=i8:96x131",
         "pad_einsum c K 4\ninline b_pad_K\n" DOTS("vpdpbusd", 4), true},
        {"vnni", "c[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32)", "a=u8:3x88&b=i8:88x64", DOTS("vpdpbusd", 4), false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        char id[32];
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        snprintf(id, sizeof id, "x86-64-%s", one[i].device);
        kn_lprog *l = lowered_and_run_on(a, id, one[i].text, one[i].inputs, one[i].trace);
        bool square = false;
        for (int b = 0; b < l->nbuffers; b++) square |= strstr(l->buffers[b].name, "turn") != NULL;
        if (square != one[i].square) fail_msg("%zu: there are%s squares", i, square ? "" : " no");
        kiln_arena_close(a);
    }
#undef PANELS
#undef DOTS
}

/* What lanes have in common of the numbers of axes is no vector: which half of a byte they take. */
static void digits_are_common(void **state)
{
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kn_lprog *l = lowered_and_run(a, "y[N] +=! x[K]*cast(bitand(shr(b[N,K/2],cast(K%2*4,u8)),15),f32)", "x=f32:128&b=u8:24x64",
                                  "divide y K D E 2\nsplit y N 4\nsplit y D 16\nreorder y N.0 D.0 | N.1 E.0 D.1\n"
                                  "unroll y N.1\nunroll y E.0\nvectorize y D.1\n");
    kn_buf b;
    kn_buf_init(&b, a);
    kn_lprog_print(&b, l);
    kiln_bytes text = kn_buf_take(&b);
    const char *shift = strstr(text.p, "shr");
    if (!shift || strstr(text.p, "shr(lanes") || strstr(text.p, "%")) fail_msg("%s", text.p);
    kiln_arena_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lines_go_past_the_caches), cmocka_unit_test(halves_of_lines_go_past_the_caches),
                                       cmocka_unit_test(padding_is_left_out),
                                       cmocka_unit_test(borders_are_known),
                                       cmocka_unit_test(vectors_of_few_rows_are_held), cmocka_unit_test(padded_rows_are_of_one_task),
                                       cmocka_unit_test(what_comes_is_asked_for), cmocka_unit_test(streams_are_asked_for),
                                       cmocka_unit_test(rows_are_turned), cmocka_unit_test(rows_stay_in_registers),
                                       cmocka_unit_test(phases_are_picked), cmocka_unit_test(lanes_come_from_few_vectors),
                                       cmocka_unit_test(rows_are_joined), cmocka_unit_test(addresses_are_made_anew),
                                       cmocka_unit_test(short_rows_are_read_over), cmocka_unit_test(sums_take_what_is_made),
                                       cmocka_unit_test(overwritten_in_place), cmocka_unit_test(rows_begin_with_lines),
                                       cmocka_unit_test(turned_planes_ask_for_the_next), cmocka_unit_test(large_blocks_are_asked_for_once),
                                       cmocka_unit_test(rows_of_images_are_asked_for),
                                       cmocka_unit_test(rows_change_places),
                                       cmocka_unit_test(digits_are_common)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
