/* Programs of drawn shapes, as the default policy constructs them, run in the bounds-checked interpreter of loop programs: the reference's values,
 * and schedules of the kind that such shapes are to get. */
#include "tests/unit/run_lowered.c"

/* Small numbers, one after the other. */
static int drawn(uint32_t *seed, int lo, int hi)
{
    *seed = *seed * 1664525 + 1013904223;
    return lo + (int)((*seed >> 8) % (uint32_t)(hi - lo + 1));
}

/* A convolution of bytes or halves of few channels or of no multiple of an instruction's terms, with any layout, stride, padding. */
static void narrow_window(uint32_t *seed, char *text, size_t n, char *inputs, size_t m)
{
    static const char *const types[] = {"bf16", "f16", "i8", "u8"};
    int t = drawn(seed, 0, 3), c = drawn(seed, 0, 2) ? drawn(seed, 1, 9) : drawn(seed, 10, 37), f = drawn(seed, 3, 50), kh = drawn(seed, 1, 4);
    int kw = drawn(seed, 1, 4), step = drawn(seed, 1, 3), apart = drawn(seed, 1, 2), top = drawn(seed, 0, kh - 1), left = drawn(seed, 0, kw - 1);
    int p = drawn(seed, 5, 11), q = drawn(seed, 5, 17), images = drawn(seed, 1, 2), bytes = t >= 2, cast = bytes || drawn(seed, 0, 1);
    int h = (p - 1) * step + (kh - 1) * apart + 1 - top - drawn(seed, 0, 1);
    int w = (q - 1) * step + (kw - 1) * apart + 1 - left - drawn(seed, 0, 1);
    bool last = drawn(seed, 0, 2) > 0, constant = drawn(seed, 0, 3) > 0;
    const char *pad = t == 3 ? "3" : bytes ? "0" : "0.0", *open = cast ? "cast(" : "", *as = !cast ? "" : bytes ? ",i32)" : ",f32)";
    char at[80];
    snprintf(at, sizeof at, "P*%d+R*%d-%d,Q*%d+S*%d-%d", step, apart, top, step, apart, left);
    snprintf(text, n, last ? "y[N,P,Q,F] +=! %spad(x,%s)[N,%s,C]%s*%sw[R,S,C,F]%s where P in %d, Q in %d"
                           : "y[N,F,P,Q] +=! %spad(x,%s)[N,C,%s]%s*%sw[F,C,R,S]%s where P in %d, Q in %d", open, pad, at, as, open, as, p, q);
    int x[] = {h, w, c}, y[] = {kh, kw, c, f};
    if (!last) x[0] = c, x[1] = h, x[2] = w, y[0] = f, y[1] = c, y[2] = kh, y[3] = kw;
    snprintf(inputs, m, "x=%s:%dx%dx%dx%d&w=%s:%dx%dx%dx%d%s", types[t], images, x[0], x[1], x[2], t == 3 ? "i8" : types[t], y[0], y[1], y[2], y[3],
             constant ? ":const" : "");
}

/* A product of bytes or halves, of few rows or many, a vector, several beside each other; few of them are so small that no instruction takes them. */
static void narrow_product(uint32_t *seed, char *text, size_t n, char *inputs, size_t m)
{
    static const char *const types[] = {"bf16", "i8", "u8"};
    int t = drawn(seed, 0, 2), rows = drawn(seed, 0, 4) ? drawn(seed, 1, 20) : drawn(seed, 97, 110);
    int batch = drawn(seed, 0, 3) ? 0 : drawn(seed, 2, 3);
    int columns = drawn(seed, 18, 170), terms = drawn(seed, 0, 1) ? 4 * drawn(seed, 33, 70) : drawn(seed, 130, 290);
    bool constant = drawn(seed, 0, 5) == 0;
    const char *as = t ? "i32" : "f32", *lanes = t ? "i8" : "bf16";
    snprintf(text, n, batch ? "c[B,M,N] +=! cast(a[B,M,K],%s)*cast(b[B,K,N],%s)" : "c[M,N] +=! cast(a[M,K],%s)*cast(b[K,N],%s)", as, as);
    if (batch) snprintf(inputs, m, "a=%s:%dx%dx%d&b=%s:%dx%dx%d", types[t], batch, rows, terms, lanes, batch, terms, columns);
    else snprintf(inputs, m, "a=%s:%dx%d&b=%s:%dx%d%s", types[t], rows, terms, lanes, terms, columns, constant ? ":const" : "");
}

/* A product of channels that lie outside of their places, of any number of either, bytes of either sign or halves, with or without steps. */
static void channels_first(uint32_t *seed, char *text, size_t n, char *inputs, size_t m)
{
    static const char *const types[][2] = {{"bf16", "bf16"}, {"f16", "f16"}, {"i8", "i8"}, {"u8", "i8"}, {"i8", "u8"}, {"u8", "u8"}};
    int t = drawn(seed, 0, 5), c = drawn(seed, 33, 90), f = drawn(seed, 11, 60), p = drawn(seed, 6, 13), q = drawn(seed, 6, 15);
    int images = drawn(seed, 1, 2), step = drawn(seed, 0, 4) ? 1 : 2;
    bool constant = drawn(seed, 0, 1), cast = t > 1 || drawn(seed, 0, 1);
    const char *open = cast ? "cast(" : "", *as = !cast ? "" : t > 1 ? ",i32)" : ",f32)";
    snprintf(text, n, "y[N,F,P,Q] +=! %sx[N,C,P*%d,Q*%d]%s*%sw[F,C]%s where P in %d, Q in %d", open, step, step, as, open, as, p, q);
    snprintf(inputs, m, "x=%s:%dx%dx%dx%d&w=%s:%dx%d%s", types[t][0], images, c, p * step, q * step, types[t][1], f, c, constant ? ":const" : "");
}

/* The level of the cache holds so much only, of fewer ways, so that small operands are larger. */
static void shrink(kn_hw *hw, const char *name, int64_t bytes)
{
    for (int i = 0; i < hw->nlevels; i++) {
        kn_hw_level *l = &hw->levels[i];
        if (strcmp(l->name, name)) continue;
        l->ways = (int)(l->ways * bytes / l->capacity_bytes);
        if (l->ways < 1) l->ways = 1;
        l->capacity_bytes = bytes;
    }
}

/* The device's first candidate gives what the reference does; whether its trace says both. */
static bool runs_on(const char *target, const char *text, const char *inputs, bool small, const char *one, const char *other)
{
    char what[480];
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kn_hw *hw = device(a, target);
    kn_program *c;
    if (small) shrink(hw, "l1", 4096), shrink(hw, "l2", 32768);
    kiln_candidates *list = constructed(a, text, inputs, hw, 1, &c);
    snprintf(what, sizeof what, "%s %s%s", text, inputs, small ? " small caches" : "");
    run_checked(a, c, hw, list->c[0].trace, what);
    bool says = strstr(list->c[0].trace.p, one) && strstr(list->c[0].trace.p, other);
    kiln_arena_close(a);
    return says;
}

static bool runs_with(const char *text, const char *inputs, bool small, const char *one, const char *other)
{
    return runs_on("x86-64-bf16", text, inputs, small, one, other);
}

/* Such convolutions give what the reference does, and many go to a dot instruction from bands that are copied with whole runs of terms. */
static void narrow_windows_run(void **state)
{
#ifdef __SANITIZE_THREAD__
    skip();
#endif
    enum { COUNT = 60, LEAST = 15 };
    int boxed = 0;
    uint32_t seed = 20;
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        char text[300], inputs[120];
        narrow_window(&seed, text, sizeof text, inputs, sizeof inputs);
        boxed += runs_with(text, inputs, false, "tensorize ", " region\n");
    }
    if (boxed < LEAST) fail_msg("%d of %d have their bands copied", boxed, COUNT);
}

/* A convolution with the channels last, of few results. */
static void few_results(uint32_t *seed, char *text, size_t n, char *inputs, size_t m)
{
    int c = drawn(seed, 3, 20), f = drawn(seed, 2, 13), kh = drawn(seed, 1, 5), kw = drawn(seed, 2, 5);
    int step = drawn(seed, 1, 2), images = drawn(seed, 1, 2);
    int p = drawn(seed, 2, 9), q = drawn(seed, 9, 30), top = drawn(seed, 0, kh - 1), left = drawn(seed, 0, kw - 1);
    int h = (p - 1) * step + kh - top - drawn(seed, 0, 1), w = (q - 1) * step + kw - left - drawn(seed, 0, 1);
    snprintf(text, n, "y[N,P,Q,F] +=! pad(x,0.0)[N,P*%d+R-%d,Q*%d+S-%d,C]*w[R,S,C,F] where P in %d, Q in %d", step, top, step, left, p, q);
    snprintf(inputs, m, "x=f32:%dx%dx%dx%d&w=f32:%dx%dx%dx%d%s", images, h < 1 ? 1 : h, w, c, kh, kw, c, f, drawn(seed, 0, 1) ? ":const" : "");
}

/* Such convolutions give what the reference does, many of them with the channels turned in front of the planes. */
static void few_results_run(void **state)
{
#ifdef __SANITIZE_THREAD__
    skip();
#endif
    enum { COUNT = 40, LEAST = 7 };
    int planar = 0;
    uint32_t seed = 3;
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        char text[300], inputs[120];
        few_results(&seed, text, sizeof text, inputs, sizeof inputs);
        planar += runs_with(text, inputs, false, "transform_layout turned0 0 3 1 2\n", "");
    }
    if (planar < LEAST) fail_msg("%d of %d have the channels turned", planar, COUNT);
}

/* Products whose results have fewer columns than a vector has lanes, with an operand whose rows are read together with what follows them. */
static void short_rows_run(void **state)
{
    enum { COUNT = 60, LEAST = 20 };
    static const char *const texts[] = {"c[M,N] +=! a[M,K]*b[K,N]", "c[B,M,N] +=! a[B,M,K]*b[B,K,N]",
                                        "t[M,N] +=! a[M,K]*b[K,N]; c[M,N] = max(t[M,N]+v[N],0.0)",
                                        "c[M,N] +=! a[K,M]*b[K,N]", "c[M,N] >=! a[M,K]+b[K,N]",
                                        "c[M,N] +=! select(K<=M,b[K,N],0.0) where M in %d"};
    int full = 0;
    uint32_t seed = 11;
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        char text[200], inputs[160], lanes[40];
        int kind = i % 6, m = drawn(&seed, 1, 17), n = drawn(&seed, 9, 15), k = drawn(&seed, 1, 60), wide = drawn(&seed, 0, 3) == 0;
        const char *type = wide ? "f64" : "f32";
        if (wide) n = n / 2;
        if (kind == 1) snprintf(inputs, sizeof inputs, "a=%s:3x%dx%d&b=%s:3x%dx%d", type, m, k, type, k, n);
        else if (kind == 2) snprintf(inputs, sizeof inputs, "a=%s:%dx%d&b=%s:%dx%d&v=%s:%d", type, m, k, type, k, n, type, n);
        else if (kind == 3) snprintf(inputs, sizeof inputs, "a=%s:%dx%d&b=%s:%dx%d", type, k, m, type, k, n);
        else if (kind == 5) snprintf(inputs, sizeof inputs, "b=%s:%dx%d", type, k, n);
        else snprintf(inputs, sizeof inputs, "a=%s:%dx%d&b=%s:%dx%d", type, m, k, type, k, n);
        snprintf(text, sizeof text, texts[kind], m);
        snprintf(lanes, sizeof lanes, " S%d 1 %d\n", kind == 1 ? 2 : 1, wide ? 8 : 16);
        full += runs_with(text, inputs, false, lanes, "vectorize ");
    }
    if (full < LEAST) fail_msg("%d of %d in whole vectors", full, COUNT);
}

/* Such products give what the reference does, from blocks and panels that are packed as their turn comes, whose last ones are ragged, and with bytes
 * that become unsigned as they are read. */
static void narrow_products_run(void **state)
{
#ifdef __SANITIZE_THREAD__
    skip();
#endif
    enum { COUNT = 48, LEAST = 20, LEAST_FLIPPED = 6, TURNED = 16, LEAST_TURNED = 8 };
    static const char *const bytes[] = {"a=i8:1x260&b=i8:260x300", "a=i8:5x263&b=i8:263x130", "a=i8:17x201&b=i8:201x64", "a=i8:99x100&b=i8:100x77"};
    int packed = 0, flipped = 0, turned = 0;
    uint32_t seed = 7;
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        char text[300], inputs[120];
        narrow_product(&seed, text, sizeof text, inputs, sizeof inputs);
        packed += runs_with(text, inputs, i % 2, "tensorize ", "cache_read ");
    }
    for (size_t i = 0; i < 2 * sizeof bytes / sizeof *bytes; i++)
        flipped += runs_with("c[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32)", bytes[i / 2], i % 2, "vpdpbusd_flip", "inline more");
    for (int i = 0; i < TURNED; i++) { /* the factor with the lanes stored the other way round */
        char inputs[120];
        int rows = drawn(&seed, 2, 20), columns = drawn(&seed, 18, 170);
        int terms = drawn(&seed, 0, 1) ? 4 * drawn(&seed, 33, 70) : drawn(&seed, 130, 290);
        snprintf(inputs, sizeof inputs, i % 2 ? "a=u8:%dx%d&b=i8:%dx%d" : "a=bf16:%dx%d&b=bf16:%dx%d", rows, terms, columns, terms);
        const char *text = i % 2 ? "c[M,N] +=! cast(a[M,K],i32)*cast(b[N,K],i32)" : "c[M,N] +=! cast(a[M,K],f32)*cast(b[N,K],f32)";
        turned += runs_with(text, inputs, i & 2, "tensorize ", "cache_read ");
    }
    if (packed < LEAST || flipped < LEAST_FLIPPED || turned < LEAST_TURNED)
        fail_msg("%d of %d are packed, %d flipped, %d turned", packed, COUNT, flipped, turned);
}

/* Bytes of either sign meet bytes on an instruction that multiplies words by bytes: what it broadcasts becomes words before. */
static void words_and_bytes_run(void **state)
{
#ifdef __SANITIZE_THREAD__
    skip();
#endif
    enum { COUNT = 60, LEAST = 24 };
    static void (*const draw[])(uint32_t *, char *, size_t, char *, size_t) = {narrow_window, narrow_product, channels_first};
    int words = 0;
    uint32_t seed = 5;
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        char text[300], inputs[120];
        draw[i % 3](&seed, text, sizeof text, inputs, sizeof inputs);
        words += runs_on("x86-64-avx2", text, inputs, i % 2, " i16\n", "vpmaddwd_");
    }
    if (words < LEAST) fail_msg("%d of %d become words", words, COUNT);
}

/* Extrema of integers, and their sums and differences element by element, stay as narrow as they are: whole vectors of them. */
static void narrow_lanes_run(void **state)
{
    static const struct { const char *text, *inputs, *lanes; } one[] = {
        {"y[I] >=! x[I,J]", "x=u8:40x300", " 32\n"},
        {"y[I] <=! x[I,J]", "x=i8:40x301", " 32\n"},
        {"y[J] <=! x[I,J]", "x=i16:30x95", " 16\n"},
        {"y[N,P,Q,C] >=! pad(x,0)[N,P*2+R-1,Q*2+S-1,C] where P in 6, Q in 7, R in 3, S in 3", "x=u8:1x11x13x70", " 32\n"},
        {"y[I] = max(a[I]+b[I],a[I]-b[I])", "a=i8:1000&b=i8:1000", " 32\n"},
        {"y[I] = bitand(a[I],b[I])", "a=u8:999&b=u8:999", " 32\n"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++)
        if (!runs_on("x86-64-avx2", one[i].text, one[i].inputs, false, one[i].lanes, "vectorize ")) fail_msg("%s: fewer lanes", one[i].text);
}

/* Weights in narrow dtypes that few rows meet, larger than the caches: they become wide as they are read, not before, which many rows are worth;
 * lanes go along what both factors go along, not along the scales of runs of weights. */
static void narrow_weights_run(void **state)
{
#define HALVES "y[M,N] +=! a[M,K]*((cast(bitand(shr(b[N,K/2],cast(K%2*4,u8)),15),f32)-8.0)*s[N,K/32])"
    static const struct { const char *text, *inputs, *says; bool yes; } one[] = {
        {"y[M,N] +=! a[M,K]*cast(b[K,N],f32)", "a=f32:16x130&b=i8:130x200", "widen ", false},
        {"y[M,N] +=! a[M,K]*cast(b[N,K],f32)", "a=f32:9x130&b=i8:200x130", "widen ", false},
        {"y[M,N] +=! a[M,K]*cast(b[K,N],f32)", "a=f32:70x130&b=i8:130x200", "widen ", true},
        {"y[M,N] +=! a[M,K]*((cast(b[N,K],f32)-128.0)*s[N,K/32])", "a=f32:1x2048&b=u8:50x2048&s=f32:50x64", "vectorize out0 E0.2", true},
        {"y[M,N] +=! a[M,K]*((cast(b[N,K],f32)-128.0)*s[N,K/32])", "a=f32:3x320&b=u8:90x320&s=f32:90x10", "widen ", false},
        {"y[M,N] +=! cast(a[M,K],f32)*cast(b[K,N],f32)", "a=bf16:5x260&b=bf16:260x300", "tensorize ", false}, /* from far away */
        {"y[M,N] +=! cast(a[M,K],f32)*cast(b[K,N],f32)", "a=bf16:1x260&b=bf16:260x300", "tensorize ", false},
        {"y[M,N] +=! cast(a[M,K],f32)*cast(b[K,N],f32)", "a=bf16:9x260&b=bf16:260x300", "tensorize ", true},
        {HALVES, "a=f32:1x2048&b=u8:60x1024&s=f32:60x64", "unroll out0 E0.0\nvectorize out0 E1.2", true},
        {HALVES, "a=f32:3x256&b=u8:70x128&s=f32:70x8", "divide ", true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++)
        if (runs_with(one[i].text, one[i].inputs, true, one[i].says, "\n") != one[i].yes) fail_msg("%s %s", one[i].inputs, one[i].says);
}

/* Such products give what the reference does, and where terms have to be filled up the places are one axis all the same. */
static void channels_first_run(void **state)
{
#ifdef __SANITIZE_THREAD__
    skip();
#endif
    enum { COUNT = 40, LEAST = 10 };
    int joined = 0;
    uint32_t seed = 31;
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        char text[300], inputs[120];
        channels_first(&seed, text, sizeof text, inputs, sizeof inputs);
        joined += runs_with(text, inputs, i % 2, "pad_einsum ", "_pad_R0 J");
    }
    if (joined < LEAST) fail_msg("%d of %d have their places joined", joined, COUNT);
}

/* A convolution with the channels first whose weights are no constant, in order or with their channels last, of few places. */
static void few_places(uint32_t *seed, char *text, size_t n, char *inputs, size_t m)
{
    static const char *const types[][2] = {{"f32", "f32"}, {"bf16", "bf16"}, {"f64", "f64"}, {"u8", "i8"}, {"i8", "i8"}};
    int t = drawn(seed, 0, 4), c = drawn(seed, 8, 44), f = drawn(seed, 17, 100), k = drawn(seed, 0, 2) * 2 + 1, step = drawn(seed, 1, 2);
    int p = drawn(seed, 1, 6), q = drawn(seed, 2, 8), images = drawn(seed, 1, 3), last = drawn(seed, 0, 4) == 0;
    const char *open = t > 2 ? "cast(" : "", *as = t > 2 ? ",i32)" : "", *zero = t > 2 ? "0" : "0.0";
    if (drawn(seed, 0, 1)) c = c / 4 * 4;
    snprintf(text, n, "y[N,F,P,Q] +=! %spad(x,%s)[N,C,P*%d+R-%d,Q*%d+S-%d]%s*%sw[%s]%s where P in %d, Q in %d", open, zero, step, k / 2, step, k / 2,
             as, open, last ? "F,R,S,C" : "F,C,R,S", as, p, q);
    int at = snprintf(inputs, m, "x=%s:%dx%dx%dx%d&w=%s:%d", types[t][0], images, c, p * step, q * step, types[t][1], f);
    snprintf(inputs + at, m - (size_t)at, "x%dx%dx%d", last ? k : c, k, last ? c : k);
}

/* Such convolutions give what the reference does, many of them with their weights turned as they are packed. */
static void few_places_run(void **state)
{
#ifdef __SANITIZE_THREAD__
    skip();
#endif
    enum { COUNT = 40, LEAST = 6 };
    int turned = 0;
    uint32_t seed = 5;
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        char text[300], inputs[120];
        few_places(&seed, text, sizeof text, inputs, sizeof inputs);
        turned += runs_with(text, inputs, i % 2, "transform_layout lanes_last 0 2 3 1\n", "cache_read lanes_last ");
    }
    if (turned < LEAST) fail_msg("%d of %d have their weights turned", turned, COUNT);
}

/* Windows whose planes have taps of their own, a few columns at a time and with rows as long as the tile: what the traces have to say, and not. */
static void planes_have_taps(void **state)
{
#ifdef __SANITIZE_THREAD__
    skip();
#endif
#define TAPS(rows, columns) "y[N,C,P,Q] +=! pad(x,0.0)[N,C," rows "," columns "]*w[C,R,S] where "
    static const struct { const char *text, *inputs, *says, *never; int64_t l2; } one[] = {
        {TAPS("P+R-1", "Q+S-1") "P in 21, Q in 33", "x=f32:2x5x21x33&w=f32:5x3x3", "compute_at plane0", "region", 0},
        {TAPS("P+R-1", "Q+S-1") "P in 21, Q in 33", "x=f32:2x5x21x33&w=f32:5x3x3", "decompose_padding", "compute_at", 4096},
        {TAPS("P*2+R-1", "Q*2+S-1") "P in 7, Q in 150", "x=f32:1x5x13x299&w=f32:5x3x3", "unroll out0 R1.0", "plane0", 0},
        {TAPS("P+R-1", "Q+S-1") "P in 17, Q in 41", "x=f32:1x33x17x41&w=f32:33x3x3:const", "compute_at plane0", "region last", 0},
        {TAPS("P+R-2", "Q+S-2") "P in 19, Q in 23", "x=f32:1x3x19x23&w=f32:3x5x5", "compute_at plane0", "region", 0},
        {TAPS("P*2+R-1", "Q+S-1") "P in 10, Q in 29", "x=f32:1x6x19x29&w=f32:6x3x3", "compute_at plane0", "region", 0},
        {"y[N,C,P,Q] +=! x[N,C,P+R*2,Q+S]*w[C,R,S] where P in 15, Q in 30", "x=f32:1x4x19x34&w=f32:4x3x5", "vectorize", "region", 0},
        {TAPS("P*2+R-1", "Q*2+S-1") "P in 17, Q in 20", "x=f32:2x18x33x39&w=f32:18x3x3", "unroll out0 R1.0", "plane0", 0},
        {TAPS("P*2+R-1", "Q*2+S") "P in 17, Q in 64", "x=f32:1x3x33x128&w=f32:3x3x3", "unroll out0 R1.0", "plane0", 0},
        {TAPS("P*2+R-1", "Q*2+S-9") "P in 9, Q in 13", "x=f32:1x5x17x14&w=f32:5x3x7", "unroll out0 R1.0", "compute_at", 0},
        {TAPS("P*3+R-3", "Q*3+S*2-3") "P in 9, Q in 19", "x=f32:1x7x25x56&w=f32:7x7x3", "unroll out0 R1.0", "plane0", 0},
        {TAPS("P*4+R", "Q*4+S-2") "P in 5, Q in 17", "x=f32:1x2x19x67&w=f32:2x3x6", "unroll out0 R1.0", "plane0", 0},
        {"t[N,C,P,Q] +=! pad(x,0.0)[N,C,P*2+R-2,Q*2+S-2]*w[C,R,S] where P in 8, Q in 16; y[N,C,P,Q] = max(t[N,C,P,Q]+b[C]+z[N,C,P,Q], 0.0)",
         "x=f32:1x9x15x31&w=f32:9x5x5&b=f32:9&z=f32:1x9x8x16", "vectorize", "plane0", 0},
        {"t[N,C,P,Q] +=! pad(x,0.0)[N,C,P+R-1,Q+S-1]*w[C,R,S] where P in 12, Q in 31; y[N,C,P,Q] = max(t[N,C,P,Q]+b[C], 0.0)",
         "x=f32:1x9x12x31&w=f32:9x3x3&b=f32:9", "compute_at plane0", "region", 0},
    };
#undef TAPS
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-avx512");
        kn_program *c;
        if (one[i].l2) shrink(hw, "l2", one[i].l2);
        kiln_candidates *list = constructed(a, one[i].text, one[i].inputs, hw, 1, &c);
        run_checked(a, c, hw, list->c[0].trace, one[i].inputs);
        const char *trace = list->c[0].trace.p;
        if (!strstr(trace, one[i].says) || strstr(trace, one[i].never)) fail_msg("%s: %s", one[i].inputs, trace);
        kiln_arena_close(a);
    }
}

/* What takes every other row and column of planes is one run of places from a copy of those alone, and written where it belongs. */
static void thinned_planes_run(void **state)
{
#ifdef __SANITIZE_THREAD__
    skip();
#endif
    (void)state;
    static const struct { const char *text, *inputs; } one[] = {
        {"y[N,F,P,Q] +=! x[N,C,P*2,Q*2]*w[F,C] where P in 7, Q in 7", "x=f32:1x150x14x14&w=f32:70x150"},
        {"y[N,F,P,Q] +=! x[N,C,P*2,Q*2]*w[F,C] where P in 14, Q in 13", "x=f32:2x20x28x25&w=f32:24x20"},
        {"y[N,F,P,Q] +=! x[N,C,P*3+1,Q*2]*w[F,C] where P in 5, Q in 20", "x=f32:1x9x15x40&w=f32:33x9:const"},
    };
    for (size_t i = 0; i < sizeof one / sizeof *one; i++)
        if (!runs_with(one[i].text, one[i].inputs, i % 2, "reindex out0 ", " S2 S3\n")) fail_msg("%s: places are not one run", one[i].inputs);
}

/* Channels last: so do rows of places that tiles do not fill, and weights that L2 does not hold; whole tiles read their places where they lie. */
static void thinned_rows_run(void **state)
{
#ifdef __SANITIZE_THREAD__
    skip();
#endif
    (void)state;
#define WINDOW "y[N,P,Q,F] +=! pad(x,0.0)[N,P*2+R,Q*2+S,C]*w[R,S,C,F] where R in 1, S in 1, P in "
    static const struct { const char *text, *inputs; int64_t l2; bool joins; } one[] = {
        {WINDOW "7, Q in 7", "x=f32:1x14x14x24&w=f32:1x1x24x160:const", 524288, true},
        {WINDOW "16, Q in 16", "x=f32:1x32x32x24&w=f32:1x1x24x160:const", 524288, false},
        {WINDOW "16, Q in 16", "x=f32:1x32x32x24&w=f32:1x1x24x160:const", 16384, true},
        {WINDOW "16, Q in 16", "x=f32:1x32x32x24&w=f32:1x1x24x160", 16384, true},
    };
#undef WINDOW
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-avx2");
        kn_program *c;
        shrink(hw, "l2", one[i].l2);
        const char *trace = constructed(a, one[i].text, one[i].inputs, hw, 1, &c)->c[0].trace.p;
        run_checked(a, c, hw, (kiln_bytes){trace, strlen(trace)}, one[i].inputs);
        if (one[i].joins != (strstr(trace, "reindex out0 ") && strstr(trace, " S1 S2\n"))) fail_msg("%s: %s", one[i].inputs, trace);
        kiln_arena_close(a);
    }
}

/* Sums over planes for a few shifts of them (gradients of convolutions by their weights) have lanes along channels, and are what they are to be. */
static void shifts_have_channels_as_lanes(void **state)
{
#ifdef __SANITIZE_THREAD__
    skip();
#endif
    enum { COUNT = 24 };
    uint32_t seed = 5;
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        char text[300], inputs[160];
        int n = drawn(&seed, 1, 2), f = drawn(&seed, 16, 37), c = drawn(&seed, 1, 9), step = drawn(&seed, 1, 2);
        int kw = step == 1 ? drawn(&seed, 2, 3) : 3;
        int kh = drawn(&seed, 0, 1) ? 3 : 1, top = drawn(&seed, 0, kh - 1), p = drawn(&seed, 3, 9), q = drawn(&seed, 7, 15);
        int h = (p - 1) * step + kh - top, w = (q - 1) * step + kw - 1;
        snprintf(text, sizeof text, "y[F,C,R,S] +=! d[N,F,P,Q]*pad(x,0.0)[N,C,R+P*%d-%d,S+Q*%d-1] where R in %d, S in %d", step, top, step, kh, kw);
        snprintf(inputs, sizeof inputs, "d=f32:%dx%dx%dx%d&x=f32:%dx%dx%dx%d", n, f, p, q, n, c, h, w);
        if (!runs_with(text, inputs, i % 2, "copy out0 ", "cache_write out0 ")) fail_msg("%s %s: not turned", text, inputs);
    }
}

/* A product of bytes or halves with either factor, or both, across the terms, alone or in a batch. */
static void turned_product(uint32_t *seed, char *text, size_t n, char *inputs, size_t m)
{
    static const char *const types[] = {"bf16", "i8", "u8"};
    int t = drawn(seed, 0, 2), rows = drawn(seed, 5, 70), columns = drawn(seed, 3, 70), terms = drawn(seed, 16, 90), b = drawn(seed, 1, 3);
    bool across = drawn(seed, 0, 2) > 0;
    snprintf(text, n, t ? "y[B,M,N] +=! cast(a[B,K,M],i32)*cast(b[B,%s],i32)" : "y[B,M,N] +=! cast(a[B,K,M],f32)*cast(b[B,%s],f32)",
             across ? "K,N" : "N,K");
    snprintf(inputs, m, "a=%s:%dx%dx%d&b=%s:%dx%dx%d", types[t], b, terms, rows, t ? "i8" : types[t], b, across ? terms : columns,
             across ? columns : terms);
}

/* Such products give what the reference does, and most of them have a factor, or their results, turned for an instruction. */
static void turned_products_run(void **state)
{
#ifdef __SANITIZE_THREAD__
    skip();
#endif
    enum { COUNT = 24 };
    uint32_t seed = 11;
    int turned = 0;
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        char text[200], inputs[120];
        turned_product(&seed, text, sizeof text, inputs, sizeof inputs);
        turned += runs_with(text, inputs, false, "transform_layout ", "tensorize ");
    }
    assert_true(turned > COUNT / 2);
}

/* A function of what has a map's lanes and is met by many results is computed once for these, as its sum is finished; last columns are computed
 * together with what they need. */
static void functions_are_shared(void **state)
{
#define LOG "m[A,C] >=! x[A,B,C]; s[A,C] +=! exp(x[A,B,C]-m[A,C]); y[A,B,C] = x[A,B,C]-m[A,C]-log(s[A,C])"
    static const struct { const char *text, *inputs; bool shared, moved; } one[] = {
        {LOG, "x=f32:3x31x50", true, true}, {LOG, "x=f32:3x5x50", false, false}, /* few */
        {"m[A] >=! x[A,B]; s[A] +=! exp(x[A,B]-m[A]); y[A,B] = x[A,B]-m[A]-log(s[A])", "x=f32:30x50", false, false}, /* one number a row */
        {"m[N,P] +=! x[N,C,P]; v[N,P] +=! (x[N,C,P]-m[N,P]/37)*(x[N,C,P]-m[N,P]/37); y[N,C,P] = (x[N,C,P]-m[N,P]/37)/sqrt(v[N,P]/37+0.001)*g[C]",
         "x=f32:2x37x196&g=f32:37", true, true},
        {"y[N,P,C] = (x[N,P,C]-m[C])/sqrt(v[C]*v[C]+0.001)", "x=f32:2x50x33&m=f32:33&v=f32:33", true, false}};
#undef LOG
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        opened o = first_of("x86-64-avx512", one[i].text, one[i].inputs);
        const kn_lprog *l = lowered(o.a, o.p, o.hw, o.trace, one[i].text);
        bool moved = false;
        for (int v = 0; v < l->nvars && one[i].moved; v++) moved |= strstr(l->var_names[v], "from") != NULL;
        if (one[i].shared != (strstr(o.trace.p, " read\n") != NULL) || moved != one[i].moved) fail_msg("%s\n%s", one[i].text, o.trace.p);
        run_checked(o.a, o.p, o.hw, o.trace, one[i].text);
        kiln_arena_close(o.a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(narrow_windows_run), cmocka_unit_test(few_results_run), cmocka_unit_test(short_rows_run),
        cmocka_unit_test(words_and_bytes_run), cmocka_unit_test(narrow_lanes_run), cmocka_unit_test(narrow_products_run),
        cmocka_unit_test(narrow_weights_run), cmocka_unit_test(channels_first_run), cmocka_unit_test(few_places_run),
        cmocka_unit_test(planes_have_taps), cmocka_unit_test(thinned_planes_run), cmocka_unit_test(shifts_have_channels_as_lanes),
        cmocka_unit_test(thinned_rows_run), cmocka_unit_test(turned_products_run), cmocka_unit_test(functions_are_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
