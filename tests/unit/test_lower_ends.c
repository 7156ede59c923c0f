/* Where tasks and tiles end with their axis: what is known there is not asked for. */
#include "tests/unit/run_lowered.c"
#include "tests/unit/statements.h"

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
    return lowered_and_run_on(a, "x86-64-avx2", text, inputs, trace);
}

static bool moved_back(kiln_arena *a, const char *text, const char *inputs, const char *trace)
{
    const kn_lprog *l = lowered_and_run(a, text, inputs, trace);
    bool yes = false;
    for (int v = 0; v < l->nvars; v++) yes |= strstr(l->var_names[v], "from") != NULL;
    return yes;
}

/* An axis that ends where a turn of a task's loop does: the last task has fewer turns, and no turn asks where the axis ends. One that ends within a
 * vector has its last one moved back. */
static void whole_turns_ask_nothing(void **state)
{
    static const struct { const char *inputs, *trace; bool moved; } one[] = {
        {"x=f32:1000", "split y N 3 8\nreorder y N.0 N.1 N.2\nparallel y N.0\nvectorize y N.2\n", false},
        {"x=f32:1000", "split y N 3 2 4\nreorder y N.0 | N.1 | N.2 N.3\nparallel y N.0\nunroll y N.2\nvectorize y N.3\n", false},
        {"x=f32:1003", "split y N 3 8\nreorder y N.0 N.1 N.2\nparallel y N.0\nvectorize y N.2\n", true},
        {"x=f32:1000", "split y N 3 2 8\nreorder y N.0 | N.1 | N.2 N.3\nparallel y N.0\nunroll y N.2\nvectorize y N.3\n", true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        if (moved_back(a, "y[N] = x[N]*2.0", one[i].inputs, one[i].trace) != one[i].moved)
            fail_msg("%zu: the last vector is%s moved", i, one[i].moved ? " not" : "");
        kiln_arena_close(a);
    }
}

/* Where a tile is whole, what it reads lies in its tensor: nothing asks. */
/* A map as it is constructed: tasks are as many as keep the cores busy, which seldom divide the axis. */
static void maps_ask_nothing(void **state)
{
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kn_program *p;
    const kiln_candidates *c = constructed(a, "out0[S0] = in0[S0]*2.0", "in0=f32:20008", device(a, "x86-64-avx2"), 1, &p);
    if (moved_back(a, "out0[S0] = in0[S0]*2.0", "in0=f32:20008", c->c[0].trace.p)) fail_msg("%s", c->c[0].trace.p);
    kiln_arena_close(a);
}

static void whole_tiles_ask_nothing(void **state)
{
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kn_lprog *l = lowered_and_run(a, "y[M,N] +=! select(R <= M%16, pad(x,0.0)[R+M//16*16,N], 0.0) where M in 1000, R in 16", "x=f32:1000x16",
                                  "split y M 1 16\nsplit y N 8\nreorder y M.0 N.0 | M.1 R.0 | M.2 N.1\nparallel y M.0\nunroll y R.0\n"
                                  "unroll y M.2\nvectorize y N.1\n");
    assert_int_equal(counted_in(l, l->fns[0].body, choices_stored, 0), 0);
    kiln_arena_close(a);
}

/* A loop whose body, which no loop is in, adds to registers: the innermost one over sums. */
static bool innermost(const kn_lprog *l, const kn_ls *s)
{
    const kn_ls *first = s->body, *loop = s->body;
    while (first && first->kind == KN_LS_LET) first = first->next;
    while (loop && loop->kind != KN_LS_FOR) loop = loop->next;
    return !loop && s->kind == KN_LS_FOR && first && first->kind == KN_LS_STORE && l->buffers[first->buffer].scope == KN_REGISTER;
}

static int64_t steps_of(const kn_lprog *l, const kn_ls *s, int64_t with)
{
    (void)with;
    return innermost(l, s) && s->hi->op == KN_OP_CONST_I ? s->hi->u.i : 0;
}

static int64_t written_out(const kn_lprog *l, const kn_ls *s, int64_t with)
{
    (void)with;
    return innermost(l, s) && s->unroll == 4;
}

#define COLLAPSE(copies, first) first "split y F 2 8\nsplit y Q 4\nsplit y P 2\nreorder y P.0 | P.1 Q.0 F.0 R.0 S.0 C.0 | Q.1 F.1 F.2\n" \
    "parallel y P.0\nunroll y Q.1\nunroll y F.1\nvectorize y F.2\n" copies
#define COLLAPSED(by, at) "y[P,Q,F] +=! pad(x,0.0)[P+R-1,Q" by "+S" at "-1,C]*w[R,S,C,F] where P in 6, Q in 8"

/* The columns and the channels of a window over a copy that has its padding are one loop, of which some steps are written out where registers are
 * few; not where columns lie apart, nor where every tap asks what is padding. */
static void loops_of_a_sum_are_one(void **state)
{
    static const struct { const char *id, *text, *trace; int64_t steps; int written; } one[] = {
        {"x86-64-avx2", COLLAPSED("", ""), COLLAPSE("cache_read y 0 scratch P.0 region\n", ""), 60, 1},
        {"x86-64-avx2", COLLAPSED("*2", ""), COLLAPSE("cache_read y 0 scratch P.0 region\n", ""), 60, 1},
        {"x86-64-avx512", COLLAPSED("", ""), COLLAPSE("cache_read y 0 scratch P.0 region\n", ""), 60, 0},
        {"x86-64-avx2", COLLAPSED("", "*2"), COLLAPSE("cache_read y 0 scratch P.0 region\n", ""), 20, 1},
        {"x86-64-avx2", COLLAPSED("", ""), COLLAPSE("", "decompose_padding y 0 t\n"), 60, 1},
        {"x86-64-avx2", COLLAPSED("", ""), COLLAPSE("", ""), 20, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, one[i].id);
        kn_program *p = parsed(a, one[i].text, "x=f32:6x16x20&w=f32:3x3x20x32");
        kn_lprog *l = lowered(a, p, hw, text_of(one[i].trace), one[i].text);
        const kn_ls *body = l->fns[l->nfns - 1].body;
        int64_t steps = counted_in(l, body, steps_of, 0), written = counted_in(l, body, written_out, 0);
        if (steps != one[i].steps || written != one[i].written) fail_msg("%zu: %d steps, %d loops written out", i, (int)steps, (int)written);
        run_checked(a, p, hw, text_of(one[i].trace), one[i].text);
        kiln_arena_close(a);
    }
}

/* A large output is written past the caches, or its lines are asked for ahead, wherever it ends. */
static void ragged_runs_stream(void **state)
{
    static const struct { int64_t from; int stores; } one[] = {{2048, 2}, {1 << 20, 0}};
    static const char trace[] = "split y N 8 2 8\nreorder y N.0 | N.1 | N.2 N.3\nparallel y N.0\nunroll y N.2\nvectorize y N.3\n";
    static const char *const inputs[] = {"x=f32:1024", "x=f32:1003", "x=f32:1000"};
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one * 3; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-avx2");
        hw->streaming_store_bytes = one[i / 3].from;
        hw->levels[1].capacity_bytes = 1024;
        kn_program *p = parsed(a, "y[N] = x[N]*2.0", inputs[i % 3]);
        kn_lprog *l = lowered(a, p, hw, text_of(trace), inputs[i % 3]);
        int stores = (int)counted_in(l, l->fns[0].body, past_the_caches, 0);
        if (stores != one[i / 3].stores) fail_msg("%s: %d", inputs[i % 3], stores);
        run_checked(a, p, hw, text_of(trace), inputs[i % 3]);
        kiln_arena_close(a);
    }
}

static int64_t asks_to_write(const kn_lprog *l, const kn_ls *s, int64_t with)
{
    (void)l, (void)with;
    return s->kind == KN_LS_PREFETCH && s->writes;
}

/* Lines of a large output are asked for before they are written, wherever its rows end, unless a temporary that they overwrite lies there. */
static void lines_to_write_are_asked_for(void **state)
{
    static const char softmax[] = "m[I] >=! x[I,J]; e[I,J] = exp(x[I,J]-m[I]); s[I] +=! e[I,J]; y[I,J] = e[I,J]/s[I]";
    static const struct { const char *text, *inputs; bool asked; } one[] = {
        {"y[I,J] = x[I,J]/w[I]", "x=f32:3000x1003&w=f32:3000", true},
        {softmax, "x=f32:400x15003", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-avx2");
        kn_program *p;
        kiln_bytes trace = constructed(a, one[i].text, one[i].inputs, hw, 1, &p)->c[0].trace;
        kn_lprog *l = lowered(a, p, hw, trace, one[i].inputs);
        int asked = (int)counted(l, asks_to_write, 0);
        if ((asked > 0) != one[i].asked) fail_msg("%s: %d\n%s", one[i].inputs, asked, trace.p);
        kiln_arena_close(a);
    }
}

/* What a short row leaves over is a vector that ends with it, but where that is one vector half as long, or a quarter, or a single element. */
static void rests_are_vectors(void **state)
{
    static const struct { const char *inputs; int vectors, whole, parts; } one[] = {
        {"x=f32:40x13&w=f32:13", 2, 2, 0}, {"x=f32:40x12&w=f32:12", 2, 1, 1}, {"x=f32:40x9&w=f32:9", 2, 1, 1},
        {"x=f32:40x61&w=f32:61", 8, 8, 0}, {"x=f16:40x12&w=f16:12", 2, 2, 0}, {"x=f16:40x9&w=f16:9", 2, 1, 1},
        {"x=u8:40x12&w=u8:12", 2, 2, 0},   {"x=f32:40x3&w=f32:3", 1, 0, 2},   {"x=f32:40x13&w=f32:13", 4, 1, 2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        const char *trace = kn_format(a, "split y J %d 8\nreorder y I.0 | J.0 | J.1 J.2\nparallel y I.0\nunroll y J.1\nvectorize y J.2\n",
                                      one[i].vectors);
        const kn_lprog *l = lowered_and_run(a, "y[I,J] = x[I,J]+w[J]", one[i].inputs, trace);
        int whole = (int)counted(l, stores_in_tensors, 8), parts = 0;
        for (int lanes = 1; lanes < 8; lanes *= 2) parts += (int)counted(l, stores_in_tensors, lanes);
        if (whole != one[i].whole || parts != one[i].parts) fail_msg("%s: %d vectors and %d parts", one[i].inputs, whole, parts);
        kiln_arena_close(a);
    }
}

/* Rows whose last vectors come back to what was written lie in the output all the same where they are a few lines long, or, of vectors as long as
 * lines, where L1 does not hold them. */
static void ragged_rows_lie_in_the_output(void **state)
{
    static const char softmax[] = "m[I] >=! x[I,J]; e[I,J] = exp(x[I,J]-m[I]); s[I] +=! e[I,J]; y[I,J] = e[I,J]/s[I]";
    static const struct { const char *id, *inputs; bool in_place; } one[] = {
        {"x86-64-avx2", "x=f32:30x1021", true}, {"x86-64-avx2", "x=f32:30x301", true},    {"x86-64-avx2", "x=f32:30x201", false},
        {"x86-64-avx2", "x=f32:9x2050", true},  {"x86-64-avx512", "x=f32:9x2050", false}, {"x86-64-avx512", "x=f32:3x20011", true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, one[i].id);
        kn_program *p;
        kiln_bytes trace = constructed(a, softmax, one[i].inputs, hw, 1, &p)->c[0].trace;
        kn_lprog *l = lowered(a, p, hw, trace, one[i].inputs);
        bool in_place = true;
        for (int b = 0; b < l->nbuffers; b++) in_place &= l->buffers[b].scope != KN_SCRATCH || l->buffers[b].elems < 64;
        if (in_place != one[i].in_place) fail_msg("%s of %s\n%s", one[i].inputs, one[i].id, trace.p);
        run_checked(a, p, hw, trace, one[i].inputs);
        kiln_arena_close(a);
    }
}

/* Terms written out in a tile, of which loops around it leave fewer at the end, ask once whether all are there; what is left is a loop. */
static void terms_ask_once(void **state)
{
    static const struct { const char *text, *inputs, *trace; int sums; } one[] = {
        {"y[S] +=! x[R,S]", "x=f32:43x48", "split y S 2 8\nsplit y R 4\nreorder y R.0 S.0 R.1 | S.1 S.2\nunroll y R.1\nunroll y S.1\n"
                                           "vectorize y S.2\n", 2 + 2 * 4 + 2},
        {"y[S] >=! x[R,S]", "x=f32:43x48", "split y S 2 8\nsplit y R 4\nreorder y R.0 S.0 R.1 | S.1 S.2\nunroll y R.1\nunroll y S.1\n"
                                           "vectorize y S.2\n", 2 + 2 * 4 + 2},
        {"y[S] +=! x[R,S]", "x=f32:40x48", "split y S 2 8\nsplit y R 4\nreorder y R.0 S.0 R.1 | S.1 S.2\nunroll y R.1\nunroll y S.1\n"
                                           "vectorize y S.2\n", 2 + 2 * 4},
        {"y[S] +=! x[R,T,S]", "x=f32:7x43x48", "split y S 2 8\nsplit y T 4\nreorder y R.0 T.0 S.0 T.1 | S.1 S.2\nunroll y T.1\n"
                                               "unroll y S.1\nvectorize y S.2\n", 2 + 2 * 4 + 2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_lprog *l = lowered_and_run(a, one[i].text, one[i].inputs, one[i].trace);
        int sums = (int)counted(l, stores_in_registers, 0); /* what begins them, and their terms */
        if (sums != one[i].sums) fail_msg("%zu: %d sums", i, sums);
        kiln_arena_close(a);
    }
}

/* The digits of an axis that was made of three are the elements' numbers again where the operand is copied: nothing is divided, runs are vectors. */
static void copies_know_joined_digits(void **state)
{
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kn_hw *hw = device(a, "x86-64-avx2");
    const char *text = "y[F,D,P,Q] +=! x[C,D,P,Q]*w[F,C]";
    kiln_bytes trace = text_of("fuse y A D P\nfuse y B A Q\nsplit y B 4 2 8\nsplit y F 3\nreorder y F.0 B.0 | B.1 C.0 | F.1 B.2 B.3\n"
                               "parallel y F.0\nparallel y B.0\nunroll y F.1\nunroll y B.2\n"
                               "vectorize y B.3\ncache_read y 0 scratch B.0 loops B.1 C.0 B.2 B.3\n");
    kn_program *p = parsed(a, text, "x=f32:5x8x6x12&w=f32:6x5");
    kn_buf b;
    kn_buf_init(&b, a);
    kn_lprog_print(&b, lowered(a, p, hw, trace, text));
    kiln_bytes printed = kn_buf_take(&b);
    const char *copy = strstr(printed.p, "= in1["), *end = copy ? strchr(copy, '\n') : NULL;
    if (!end || memchr(copy, '%', (size_t)(end - copy)) || memcmp(end - 2, ":8", 2)) fail_msg("%s", printed.p);
    run_checked(a, p, hw, trace, text);
    kiln_arena_close(a);
}

/* Narrow lanes a few elements apart are picked from whole vectors, of the tensor or of a row whose beginning and end change from turn to turn. */
static void narrow_lanes_are_picked(void **state)
{
#define VECTORS "split y X 16\nvectorize y X.1\n"
#define ROW "split y X 16\nreorder y C.0 Z.0 | X.0 X.1\ncache_read y 0 scratch Z.0 region\nvectorize y X.1\n"
    static const struct { const char *text, *inputs, *trace; bool picked; } one[] = {
        {"y[C,X] = x[C,X*2+1] where X in 37", "x=bf16:3x75", VECTORS, true}, {"y[C,X] = x[C,X*3] where X in 32", "x=u8:5x94", VECTORS, true},
        {"y[C,X] = x[C,X*5] where X in 16", "x=i8:2x76", VECTORS, false},
        {"y[C,Z,X] = pad(x,0)[C,X*2+Z-1] where Z in 2, X in 23", "x=i8:3x40", ROW, true},
        {"y[C,Z,X] = pad(x,0)[C,X*3+Z-2] where Z in 3, X in 19", "x=bf16:3x50", ROW, true},
        {"y[C,Z,X] = pad(x,0)[C,X*2+Z-3] where Z in 4, X in 40", "x=bf16:2x5", ROW, true},
    };
#undef VECTORS
#undef ROW
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_lprog *l = lowered_and_run(a, one[i].text, one[i].inputs, one[i].trace);
        if ((counted(l, picks_of, 0) > 0) != one[i].picked) fail_msg("%zu", i);
        kiln_arena_close(a);
    }
}

static int64_t is_zip(const kn_lprog *l, const kn_expr *e, int64_t with)
{
    (void)l;
    (void)with;
    return e->op == KN_OP_ZIP;
}

static int64_t zips_of(const kn_lprog *l, const kn_ls *s, int64_t with) { return counted_of(l, s->value, is_zip, with); }

/* Narrow elements of two, three or four rows become one row: whole vectors, but for what is left over. */
static void narrow_rows_are_interleaved(void **state)
{
#define CHANNELS(n) "split y P 16\nreorder y P.0 | C.0 P.1\nunroll y C.0\nvectorize y P.1\n"
    static const struct { const char *text, *inputs; } one[] = {
        {"y[P,C] = x[C,P]", "x=u8:3x64"}, {"y[P,C] = x[C,P]", "x=i8:3x70"}, {"y[P,C] = x[C,P]", "x=bf16:3x53"}, {"y[P,C] = x[C,P]", "x=f16:2x64"},
        {"y[P,C] = x[C,P]", "x=u8:4x48"}, {"y[P,C] = cast(x[C,P],i32)+128", "x=i8:3x64"}, {"y[P,C] = cast(cast(x[C,P],i32)+128,u8)", "x=i8:3x40"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        if (!counted(lowered_and_run(a, one[i].text, one[i].inputs, CHANNELS(n)), zips_of, 0)) fail_msg("%zu", i);
        kiln_arena_close(a);
    }
#undef CHANNELS
}

/* A run whose elements lie beside each other in memory, but of which a choice takes some that end at a digit of an axis, is no last piece of that
 * axis, though as many elements as that has are there. */
static void runs_break_at_digits(void **state)
{
    static const char *const one[][2] = {
        {"y[M] +=! w[R]*select(R < 30, x[M,R//6,R%6], 0.0) where R in 34", "x=f32:3x5x6&w=f32:34"},
        {"y[M] +=! w[R]*select(R < 40, x[M,R//10,R%10], 0.0) where R in 50", "x=f32:2x4x10&w=f32:50"},
        {"y[M] +=! w[R]*select(R < 72, x[M,R//18,R%18], 0.0) where R in 84", "x=bf16:2x4x18&w=bf16:84"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        lowered_and_run(a, one[i][0], one[i][1], "split y R 16\nreorder y M.0 R.0 | R.1\ncache_read y 1 scratch R.0 loops R.1\n");
        kiln_arena_close(a);
    }
}

/* A copy in a layout of tiles is made for each part that a consumer's loop has, in scratch of that size: whole tiles of a part; all of it where parts
 * end within tiles, or the consumer's last turn is moved back into one. */
static void tiles_are_made_where_they_are_read(void **state)
{
#define PRODUCT "c[M,N] +=! a[M,K]*b[K,N]"
#define COPY(by) "copy c 1 t\ntransform_layout t 1/" by " 0 1%" by "\n"
#define NEST(part) "split t X1 " part "\nreorder t X1.0 X0.0 X1.1\nsplit c N " part "\nreorder c N.0 M.0 K.0 N.1\nparallel c N.0\n" \
    "compute_at t c N.0\n"
    static const struct { const char *inputs, *trace; int64_t elems; } one[] = {
        {"a=f32:5x7&b=f32:7x96", COPY("16") NEST("32"), 7 * 32}, {"a=f32:5x7&b=f32:7x96", COPY("8") NEST("48"), 7 * 48},
        {"a=f32:5x7&b=f32:7x96", COPY("16") "split t X1 2 16\nreorder t X1.0 X1.1 X0.0 X1.2\nsplit c N 2 16\n"
         "reorder c N.0 M.0 N.1 K.0 N.2\nparallel c N.0\ncompute_at t c N.0\n", 7 * 32},
        {"a=f32:5x7&b=f32:7x96", COPY("16") NEST("24"), 7 * 96}, {"a=f32:5x7&b=f32:7x80", COPY("16") "split c N 32\nreorder c N.0 M.0 K.0 N.1\n"
         "parallel c N.0\ncompute_at t c N.0\n", 7 * 80},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_lprog *l = lowered_and_run(a, PRODUCT, one[i].inputs, one[i].trace);
        int64_t elems = 0;
        for (int b = 0; b < l->nbuffers; b++)
            if (l->buffers[b].scope == KN_SCRATCH && !strncmp(l->buffers[b].name, "region", 6)) elems += l->buffers[b].elems;
        if (elems != one[i].elems) fail_msg("%zu: a region of %lld elements", i, (long long)elems);
        kiln_arena_close(a);
    }
#undef PRODUCT
#undef COPY
#undef NEST
}

static int64_t stores_to(const kn_lprog *l, const kn_ls *s, int64_t buffer)
{
    (void)l;
    return s->kind == KN_LS_STORE && s->buffer == buffer;
}

/* Vectors of results that an instruction leaves in registers go from there to where they belong: a register a store. Those go through memory that
 * the lanes' axis ends in; all of a tile, in loops, that another axis does. */
static void results_leave_registers(void **state)
{
#define TILE "split y J 2 8\nsplit y I 3\nsplit y K 2\nreorder y I.0 J.0 | K.0 I.1 J.1 | J.2 K.1\nparallel y I.0\nunroll y I.1\nunroll y J.1\n" \
    "tensorize y J.2 vpmaddwd_i8\ncache_read y 1 scratch J.0 loops K.0 J.1 J.2 K.1\n"
    static const struct { const char *inputs; int64_t direct, spilled; } one[] = {
        {"a=i16:12x8&b=i8:8x64", 6, 0},      {"a=i16:12x8&b=i8:8x56", 6, 0},      {"a=i16:12x8&b=i8:8x60", 6 + 1, 3},
        {"a=i16:13x8&b=i8:8x64", 6 + 1, 6},  {"a=i16:12x8&b=i8:8x12", 3 + 1, 3},  {"a=i16:12x40&b=i8:40x64", 1, 6},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_lprog *l = lowered_and_run(a, "y[I,J] +=! cast(a[I,K],i32)*cast(b[K,J],i32)", one[i].inputs, TILE);
        int64_t direct = 0, spilled = 0;
        for (int b = 0; b < l->nbuffers; b++) {
            if (!strncmp(l->buffers[b].name, "part", 4)) spilled += counted(l, stores_to, b);
            if (!strcmp(l->buffers[b].name, "y") || !strncmp(l->buffers[b].name, "out", 3)) direct += counted(l, stores_to, b);
        }
        if (direct != one[i].direct || spilled != one[i].spilled) fail_msg("%zu: %lld and %lld", i, (long long)direct, (long long)spilled);
        kiln_arena_close(a);
    }
#undef TILE
}

static int64_t asks_to_read(const kn_lprog *l, const kn_ls *s, int64_t with)
{
    (void)l, (void)with;
    return s->kind == KN_LS_PREFETCH && !s->writes;
}

/* A task that copies short runs of rows far away asks for those of the next task meanwhile. */
static void tasks_ask_for_the_next(void **state)
{
    static const struct { int64_t l2; bool asks; } one[] = {{1 << 16, true}, {1 << 22, false}};
    static const char trace[] = "split y P 2 16\nsplit y F 6\nreorder y P.0 | F.0 C.0 | F.1 P.1 P.2\nparallel y P.0\nunroll y F.1\n"
                                "unroll y P.1\nvectorize y P.2\ncache_read y 1 scratch P.0 loops C.0 P.1 P.2\n";
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-avx512");
        resize(hw, "l2", one[i].l2);
        kn_program *p = parsed(a, "y[F,P] +=! w[F,C]*x[C,P]", "w=f32:24x40&x=f32:40x800");
        kn_lprog *l = lowered(a, p, hw, text_of(trace), trace);
        if (one[i].asks != (counted(l, asks_to_read, 0) > 0)) fail_msg("an L2 of %lld bytes", (long long)one[i].l2);
        run_checked(a, p, hw, text_of(trace), trace);
        kiln_arena_close(a);
    }
}

/* Weights that take much longer to come than the products of few rows, and maps that stream: asked for ahead, unless the device's prefetchers follow
 * runs; many rows leave time to ask on either. */
static void runs_come_by_themselves(void **state)
{
    static const char product[] = "c[M,N] +=! a[M,K]*b[K,N]", map[] = "c[N] = a[N]*2.0";
    static const char packed[] = "split c N 2 16\nreorder c N.0 | M.0 K.0 | M.1 N.1 N.2\nunroll c M.1\nunroll c N.1\nvectorize c N.2\n"
                                 "prepack c 1 N.0 N.1 K.0 N.2\n";
    static const struct { const char *text, *inputs, *trace; int rows; bool by_itself; } one[] = {
        {product, "a=f32:4x200&b=f32:200x160:const", packed, 4, true}, {product, "a=f32:192x200&b=f32:200x160:const", packed, 8, false},
        {map, "a=f32:3200", "split c N 16\nreorder c N.0 N.1\nvectorize c N.1\n", 0, true},
        {"c[M] +=! a[M,K]", "a=f32:64x21", "split c M 16\nsplit c K 1 16\nreorder c M.0 | K.0 | M.1 K.1 K.2\nunroll c M.1\nunroll c K.0\n"
                                           "vectorize c K.2\n", 0, true}};
    (void)state;
    for (size_t i = 0; i < 2 * sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-bf16");
        bool follows = i % 2;
        hw->follows_runs = follows;
        for (int l = 1; l < hw->nlevels - 1; l++) hw->levels[l].capacity_bytes = 4096;
        hw->streaming_store_bytes = one[i / 2].rows ? 4096 : 1 << 30;
        kn_program *p = parsed(a, one[i / 2].text, one[i / 2].inputs);
        const char *split = one[i / 2].rows ? kn_format(a, "split c M %d\n", one[i / 2].rows) : "";
        kiln_bytes trace = text_of(kn_format(a, "%s%s", split, one[i / 2].trace));
        kn_lprog *l = lowered(a, p, hw, trace, one[i / 2].inputs);
        bool asks = counted(l, asks_to_read, 0) + counted(l, asks_to_write, 0) > 0;
        if (asks == (follows && one[i / 2].by_itself)) fail_msg("%s: asks %d, follows %d", one[i / 2].inputs, asks, follows);
        run_checked(a, p, hw, trace, one[i / 2].inputs);
        kiln_arena_close(a);
    }
}

/* Bands of rows that a window meets are asked for; not in steps from the last cache, where the device's prefetchers follow runs. */
static void bands_come_by_themselves(void **state)
{
    static const struct { int step; int64_t past; bool follows, asks; } one[] = {
        {2, 1 << 30, true, false}, {2, 1 << 30, false, true}, {2, 1 << 16, true, true}, {1, 1 << 30, true, true}};
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-bf16");
        hw->follows_runs = one[i].follows;
        hw->streaming_store_bytes = one[i].past;
        resize(hw, "l2", 1 << 18);
        int size = 10 * one[i].step + 2;
        const char *text = kn_format(a, "y[N,P,Q,C] >=! x[N,P*%d+R,Q*%d+S,C] where R in 3, S in 3, P in 10, Q in 10", one[i].step, one[i].step);
        const char *in = kn_format(a, "x=f32:1x%dx%dx1440", size, size);
        kiln_bytes trace = text_of("split y C 16\nsplit y P 2\nreorder y N.0 P.0 C.0 Q.0 | R.0 S.0 | P.1 C.1\nunroll y P.1\nvectorize y C.1\n");
        kn_lprog *l = lowered(a, parsed(a, text, in), hw, trace, in);
        if (one[i].asks != (counted(l, asks_to_read, 0) > 0)) fail_msg("%zu: %s", i, one[i].asks ? "not asked for" : "asked for");
        kiln_arena_close(a);
    }
}

/* Rows that several stages read are asked for by the last of them; not where they come by themselves, and it has little else to do. */
static void next_rows_come_by_themselves(void **state)
{
#define STAGE(s) "split " s " I 2\nsplit " s " K 16\nreorder " s " I.0 I.1 | K.0 | K.1\nvectorize " s " K.1\n"
    static const char trace[] = STAGE("y") STAGE("v") STAGE("t") "compute_at v y I.1\ncompute_at t y I.1\n";
    static const struct { const char *sum; int columns; bool follows, asks; } one[] = {
        {"x[I,K]*x[I,K]", 4096, true, false}, {"x[I,K]*x[I,K]", 4096, false, true}, {"x[I,K]*x[I,K]", 1024, true, true},
        {"exp(x[I,K])", 4096, true, true}};
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-bf16");
        hw->follows_runs = one[i].follows;
        const char *text = kn_format(a, "t[I] +=! x[I,K]; v[I] +=! %s; y[I,K] = x[I,K]*t[I]*v[I]", one[i].sum);
        const char *in = kn_format(a, "x=f32:8x%d", one[i].columns);
        kn_lprog *l = lowered(a, parsed(a, text, in), hw, text_of(trace), in);
        if (one[i].asks != (counted(l, asks_to_read, 0) > 0)) fail_msg("%zu: %s", i, one[i].asks ? "not asked for" : "asked for");
        kiln_arena_close(a);
    }
#undef STAGE
}

static int64_t asks_for_later(const kn_lprog *l, const kn_ls *s, int64_t with)
{
    (void)with;
    return s->kind == KN_LS_PREFETCH && s->to_l2 && l->buffers[s->buffer].scope == KN_GLOBAL;
}

/* Squares that leave a scratch box for rows far away ask for those of the next box, in L2, if it holds them with ease. */
static void boxes_ask_for_the_rows_behind(void **state)
{
    static const char trace[] =
        "reindex y out lanes\ntransform_layout lanes 0 2:3 1\nfuse y F0 P Q\nsplit y C 8\nsplit y F0 8\n"
        "reorder y N.0 C.0 | F0.0 | C.1 F0.1\nunroll y C.1\nvectorize y F0.1\nsplit lanes C 8\n"
        "reorder lanes N.0 C.0 | P.0 Q.0 R.0 S.0 | C.1\nvectorize lanes C.1\ncompute_at lanes y C.0\n";
    static const char text[] = "y[N,C,P,Q] >=! x[N,C,P*2+R,Q*2+S] where R in 3, S in 3, P in 5, Q in 5";
    (void)state;
    for (int large = 0; large < 2; large++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-avx2");
        resize(hw, "l2", large ? 4096 : 2048); /* a box has 800 bytes, all results 12800 */
        kn_lprog *l = lowered(a, parsed(a, text, "x=f32:4x32x11x11"), hw, text_of(trace), "x=f32:4x32x11x11");
        if ((counted(l, asks_for_later, 0) > 0) != large) fail_msg("an L2 of %d", large ? 4096 : 2048);
        run_checked(a, parsed(a, text, "x=f32:4x32x11x11"), hw, text_of(trace), "x=f32:4x32x11x11");
        kiln_arena_close(a);
    }
}

/* What is finished where it is made, and chosen there lane by lane, has no tensor in memory. */
static void chosen_sums_stay_in_registers(void **state)
{
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    lowered_and_run(a, "t[M,N] +=! a[M,K]*b[K,N]; y[M,N] = select(N < 19, t[M,N], 0.0)", "a=f32:5x6&b=f32:6x24",
                    "epilogue t\nsplit t N 8\nreorder t M.0 N.0 | K.0 | N.1\nvectorize t N.1\n");
    kiln_arena_close(a);
}

static int64_t begins_at_one(const kn_lprog *l, const kn_ls *s, int64_t with)
{
    (void)l, (void)with;
    return s->kind == KN_LS_FOR && s->lo->op == KN_OP_CONST_I && s->lo->u.i == 1;
}

static int64_t is_cleared(const kn_lprog *l, const kn_ls *s, int64_t with)
{
    (void)with;
    bool splat = s->kind == KN_LS_STORE && l->buffers[s->buffer].scope == KN_REGISTER && s->value->op == KN_OP_SPLAT;
    return splat && s->value->args[0]->op == KN_OP_CONST_F && s->value->args[0]->u.f == 0;
}

/* Many sums over a loop begin with its first terms, not with zeros; not few sums, nor those of many terms. Loops of one turn do not stand in the
 * way. */
static void sums_begin_with_terms(void **state)
{
#define TILE(rows, split, loops, unroll) "split c N 2 16\nsplit c M 1 " rows "\n" split "reorder c M.0 N.0 | M.1 " loops " | M.2 N.1 N.2\n" \
                                         "unroll c M.2\nunroll c N.1\n" unroll "vectorize c N.2\n"
    static const char product[] = "c[M,N] +=! a[M,K]*b[K,N]", window[] = "c[M,N] +=! a[M+R,K]*b[R,K,N] where M in 12";
    static const struct { const char *text, *inputs, *trace; bool opens; } one[] = {
        {product, "a=f32:12x7&b=f32:7x64", TILE("6", "", "K.0", ""), true},
        {product, "a=f32:12x7&b=f32:7x64", TILE("2", "", "K.0", ""), false},
        {product, "a=f32:12x300&b=f32:300x64", TILE("6", "", "K.0", ""), false},
        {product, "a=f32:12x8&b=f32:8x64", TILE("6", "split c K 2\n", "K.0 K.1", "unroll c K.1\n"), true},
        {window, "a=f32:12x7&b=f32:1x7x64", TILE("6", "", "R.0 K.0", ""), true},
        {window, "a=f32:14x7&b=f32:3x7x64", TILE("6", "", "R.0 K.0", ""), true}, /* as one loop */
        {"c[M,N] >=! a[M,K]*b[K,N]", "a=f32:12x7&b=f32:7x64", TILE("6", "", "K.0", ""), false},
    };
#undef TILE
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_lprog *l = lowered_and_run_on(a, "x86-64-avx512", one[i].text, one[i].inputs, one[i].trace);
        int64_t at_one = counted(l, begins_at_one, 0), cleared = counted(l, is_cleared, 0);
        if ((at_one > 0) != one[i].opens || (one[i].opens && cleared))
            fail_msg("%zu: %lld loops begin at 1, %lld registers are cleared", i, (long long)at_one, (long long)cleared);
        kiln_arena_close(a);
    }
}

static int64_t in_halves(const kn_lprog *l, const kn_ls *s, int64_t with)
{
    enum { BYTES = 32 };
    (void)with;
    bool sum = s->kind == KN_LS_STORE && l->buffers[s->buffer].scope == KN_REGISTER && s->value->op == KN_OP_ADD;
    return sum && s->value->lanes * kn_dtype_bytes(s->value->dtype) == BYTES;
}

/* The last vector along an axis is half a vector where that is enough: moved back, behind whole tiles, from a copy's panel, with an epilogue; not
 * where more than half is wanted. */
static void last_vectors_are_halves(void **state)
{
#define TILE(rows, wide, more) "split c N " wide " 16\nsplit c M 1 " rows "\nreorder c M.0 N.0 | M.1 K.0 | M.2 N.1 N.2\nunroll c M.2\n" \
                               "unroll c N.1\nvectorize c N.2\n" more
#define PACKED "cache_read c 1 scratch N.0 loops K.0 N.1 N.2\n"
    static const char product[] = "c[M,N] +=! a[M,K]*b[K,N]", bias[] = "c[M,N] +=! a[M,K]*b[K,N]; y[M,N] = max(c[M,N]+d[N],0.0)";
    static const struct { const char *text, *inputs, *trace; int halves; } one[] = {
        {product, "a=f32:6x20&b=f32:20x24", TILE("6", "2", ""), 6},       {product, "a=f32:6x20&b=f32:20x23", TILE("6", "2", ""), 6},
        {product, "a=f32:6x20&b=f32:20x25", TILE("6", "2", ""), 0},       {product, "a=f32:6x20&b=f32:20x40", TILE("6", "2", ""), 6},
        {product, "a=f32:6x20&b=f32:20x56", TILE("6", "2", ""), 6},       {product, "a=f32:6x20&b=f32:20x52", TILE("6", "2", ""), 6},
        {product, "a=f32:6x20&b=f32:20x40", TILE("6", "2", PACKED), 6},   {product, "a=f32:6x20&b=f32:20x56", TILE("6", "2", PACKED), 6},
        {product, "a=f32:7x20&b=f32:20x40", TILE("2", "2", ""), 2},       {product, "a=f32:7x20&b=f32:20x37", TILE("2", "2", PACKED), 2},
        {bias, "a=f32:6x20&b=f32:20x24&d=f32:24", "epilogue c\n" TILE("6", "2", ""), 6},
        {"y[P,F] +=! pad(x,0.0)[P+R-1,C]*w[R,C,F] where P in 7", "x=f32:7x8&w=f32:3x8x24",
         "split y F 2 16\nsplit y P 2 2\nreorder y P.0 F.0 | P.1 R.0 C.0 | P.2 F.1 F.2\nunroll y P.2\nunroll y F.1\nvectorize y F.2\n"
         "cache_read y 0 scratch P.0 region\n", 2},
    };
#undef PACKED
#undef TILE
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        for (int k = 0; k < 2; k++) { /* with units as wide as vectors, and half as wide */
            kn_lprog *l = lowered_and_run_on(a, k ? "x86-64-bf16" : "x86-64-avx512", one[i].text, one[i].inputs, one[i].trace);
            int64_t n = counted(l, in_halves, 0);
            if (n != (k ? one[i].halves : 0)) fail_msg("%zu: %lld halves of vectors", i, (long long)n);
        }
        kiln_arena_close(a);
    }
}

/* A tile without lanes that leaves its axis is walked element by element: what one load has all of in scratch, another may not be read past its end
 * for. */
static void single_elements_are_asked_for(void **state)
{
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    lowered_and_run(a, "t[I,J] = a[I,J]+b[J]; u[I,J] = max(t[I,J], 0.0); o[I,J] = u[I,J]*t[I,J]", "a=f32:6x8&b=f32:8",
                    "split u J 3\nreverse_compute_at o u J.0\nunroll o J.1\n");
    kiln_arena_close(a);
}

/* A stage that is computed inside of a register tile has all of the tile's rows in its scratch, though it shares their loop. */
static void regions_have_all_rows_of_a_tile(void **state)
{
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    lowered_and_run(a, "d[I,K] = a[I,K]+1.0; s[I] +=! d[I,K]", "a=f32:7x30", "compute_at d s K.0\nunroll s I.0\n");
    kiln_arena_close(a);
}

/* On a GPU, registers of a vector of sums have no single elements: such a trace is refused with what would be right, not found out later. */
static void sums_in_range_in_part_are_refused(void **state)
{
    static const char text[] = "o[F,P] +=! x[P,C]*w[F,C]";
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kn_hw *hw = device(a, "nvidia-v100");
    kn_tree *t;
    kn_lprog *l;
    kiln_diag d = {0};
    kn_program *p = parsed(a, text, "x=f32:9x3&w=f32:4x3");
    kiln_bytes trace = text_of("split o F 3\nreorder o P.0 F.1 | C.0 F.0\nbind o P.0 grid\nvectorize o F.0\n");
    assert_int_equal(kn_trace_apply(a, p, hw, trace, &t, &d), KILN_OK);
    assert_int_equal(kn_lower(a, t, hw, &l, &d), KILN_UNSUPPORTED);
    assert_non_null(strstr(d.message, "some lanes are out of range"));
    kiln_arena_close(a);
}

/* Rows that are turned as they are copied begin anywhere in a step of the loop that their axis cuts off, and end where that does. */
static void turned_rows_begin_inside_of_steps(void **state)
{
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    lowered_and_run(a, "o[I,J,K] = a[I*3+K, J] where I in 4, K in 3", "a=f32:12x8",
                    "fuse o FU1 J K I\ndivide o FU1 DO6 DI6 4\nsplit o DO6 8 2 3\nunroll o DI6.0\n"
                    "cache_read o 0 scratch DO6.0 loops DO6.1 DO6.2 DO6.3 DI6.0\n");
    kiln_arena_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_begin_with_terms), cmocka_unit_test(last_vectors_are_halves),
                                       cmocka_unit_test(single_elements_are_asked_for), cmocka_unit_test(turned_rows_begin_inside_of_steps),
                                       cmocka_unit_test(sums_in_range_in_part_are_refused),
                                       cmocka_unit_test(regions_have_all_rows_of_a_tile),
                                       cmocka_unit_test(tiles_are_made_where_they_are_read), cmocka_unit_test(results_leave_registers),
                                       cmocka_unit_test(runs_break_at_digits), cmocka_unit_test(narrow_lanes_are_picked),
                                                                               cmocka_unit_test(narrow_rows_are_interleaved),
                                       cmocka_unit_test(copies_know_joined_digits), cmocka_unit_test(whole_turns_ask_nothing),
                                       cmocka_unit_test(maps_ask_nothing), cmocka_unit_test(whole_tiles_ask_nothing),
                                       cmocka_unit_test(loops_of_a_sum_are_one), cmocka_unit_test(terms_ask_once),
                                       cmocka_unit_test(ragged_runs_stream), cmocka_unit_test(lines_to_write_are_asked_for),
                                       cmocka_unit_test(rests_are_vectors), cmocka_unit_test(ragged_rows_lie_in_the_output),
                                       cmocka_unit_test(chosen_sums_stay_in_registers), cmocka_unit_test(tasks_ask_for_the_next),
                                       cmocka_unit_test(runs_come_by_themselves), cmocka_unit_test(bands_come_by_themselves),
                                       cmocka_unit_test(boxes_ask_for_the_rows_behind), cmocka_unit_test(next_rows_come_by_themselves)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
