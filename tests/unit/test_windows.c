/* Plans of windows that networks seldom have: groups, one row or column of taps, many images. */
#include "tests/unit/run_lowered.c"

#define GROUPS "y[N,F,P,Q] +=! pad(x,0.0)[N,(F//6)*5+C,P*4+R-1,Q*4+S-1]*w[F,C,R,S] where P in 5, Q in 40"
#define STRIPS(S) "y[N,F,P,Q] +=! pad(x,0.0)[N,C,P*" #S "+R-2,Q*" #S "+T-2]*w[F,C,R,T] where P in 25, Q in 48"
#define FINISHED(N) "t[N,F,P,Q] +=! pad(x,0.0)[N,(F//6)*5+C,P+R-1,Q+S-1]*w[F,C,R,S] where P in " #N ", Q in " #N "; "
#define MAXIMA(K, S) "y[N,P,Q,C] >=! pad(x,-inf)[N,P*" #S "+R-1,Q*" #S "+T-1,C] where P in 7, Q in 7, R in " #K ", T in " #K
#define PLACES(P, Q) "y[N,P,Q,C] +=! pad(x,0.0)[N,P+R-1,Q+T-1,C]*w[R,T,C] where P in " #P ", Q in " #Q ", R in 3, T in 3"
#define BESIDE(K, S) "y[N,P,Q,C] +=! pad(x,0.0)[N,P*" #S "+R-1,Q*" #S "+T-1,C]*w[R,T,C] where P in 6, Q in 8, R in " #K ", T in " #K

#define GROUPED "y[N,F,P,Q] +=! pad(x,0.0)[N,(F//24)*24+C,P+R-1,Q+S-1]*w[F,C,R,S] where P in 7, Q in 7"
#define BYTES(G) "y[N,F,P,Q] +=! cast(pad(x,0)[N,(F//" #G ")*" #G "+C,P+R-1,Q+S-1],i32)*cast(w[F,C,R,S],i32) where P in 7, Q in 7"
#define AMONG "y[N,P,Q,G,F] +=! pad(x,0.0)[N,P+R-1,Q+S-1,G,C]*w[R,S,C,G,F] where P in 4, Q in 5"
#define AMONG_MANY "y[N,P,Q,G,F] +=! pad(x,0.0)[N,P+R-1,Q+S-1,G,C]*w[R,S,C,G,F] where P in 5, Q in 7"
#define BY_WEIGHTS(S) "y[F,C,R,T] +=! g[N,F,P,Q]*pad(x,0.0)[N,(F//16)*5+C,P*" #S "+R-1,Q*" #S "+T-1] where C in 5, R in 3, T in 3"
#define NARROW(S) \
    "y[N,C,P,Q] +=! cast(pad(x,0)[N,C,P*" #S "+R-1,Q*" #S "+T-1],i32)*cast(w[C,R,T],i32) where P in 9, Q in 18"
#define DILATED(K, D) \
    "y[N,P,Q,C] +=! pad(x,0.0)[N,P+R*" #D "-4,Q+T*" #D "-4,C]*w[R,T,C] where P in 9, Q in 12, R in " #K ", T in " #K

/* What a plan has, in this order from line to line, and has not. */
static void windows_are_planned(void **state)
{
    static const struct { const char *id, *text, *inputs, *has, *then, *never; } one[] = {
        /* groups are two axes before the window is looked at: its steps are taken apart, its places made one axis */
        {"x86-64-avx2", GROUPS, "x=f32:2x10x20x160&w=f32:12x5x3x3", "divide out0 S1 ", "unstride out0 1 S3 ", "cache_read"},
        /* of a strided window's plane only the remainders that its taps have are copied */
        {"x86-64-avx512", "y[N,F,P,Q] +=! pad(x,0.0)[N,C,P*2+R*2-1,Q*2+T*2-1]*w[F,C,R,T] where P in 10, Q in 40, R in 2, T in 2",
         "x=f32:1x27x19x80&w=f32:37x27x2x2", "flatten_window out0 1 S2 S3 ", "reorder plane0 X0.0 X1.0 X1.1 Y.0 ", " Z"},
        {"x86-64-avx512", GROUPS, "x=f32:2x10x20x160&w=f32:12x5x3x3", "divide out0 S1 ", "flatten_window out0 1 S2 S3 ", "cache_read"},
        {"x86-64-avx2", FINISHED(10) "u[N,F,P,Q] = t[N,F,P,Q]+b[F]; y[N,F,P,Q] = max(u[N,F,P,Q],0.0)", "x=f32:2x10x10x10&w=f32:12x5x3x3&b=f32:12",
         "divide t0 S1 ", "inline t0\n", "cache_read"},
        {"x86-64-avx2", FINISHED(20) "u[N,F,P,Q] = t[N,F,P,Q]+b[F]; y[N,F,P,Q] = max(u[N,F,P,Q],0.0)", "x=f32:2x10x20x20&w=f32:12x5x3x3&b=f32:12",
         "divide t0 S1 ", "epilogue t0\n", "cache_read"},
        /* groups of a constant's channels that fill vectors are lanes where places would leave many idle; short ones of bytes are not */
        {"x86-64-avx2", GROUPED, "x=f32:1x96x7x7&w=f32:96x24x3x3:const", "divide out0 S1 ", "cache_write out0 turned0", "flatten_window"},
        {"x86-64-avx2", BYTES(8), "x=u8:1x32x7x7&w=i8:32x8x3x3:const", "divide out0 S1 ", "cache_write out0 turned0", "flatten_window"},
        {"x86-64-avx2", BYTES(4), "x=u8:1x32x7x7&w=i8:32x4x3x3:const", "divide out0 S1 ", "split out0 ", "turned0"},
        {"x86-64-vnni", BYTES(16), "x=u8:1x32x7x7&w=i8:32x16x3x3:const", "divide out0 S1 ", "cache_write out0 turned0", "flatten_window"},
        {"x86-64-vnni", BYTES(8), "x=u8:1x32x7x7&w=i8:32x8x3x3:const", "divide out0 S1 ", "", "turned0"},
        /* narrow elements of depthwise windows that step, or have many taps, are widened for the channels to be lanes; so is the factor of what is
         * wide already */
        {"x86-64-avx2", NARROW(2), "x=u8:1x16x18x36&w=i8:16x3x3:const", "widen out0 0 ", " region last ", "R1.2"},
        {"x86-64-avx512", NARROW(2), "x=u8:1x16x18x36&w=i8:16x3x3:const", "widen out0 0 ", " region last ", "R1.2"},
        {"x86-64-avx2", NARROW(1), "x=u8:1x16x9x18&w=i8:16x3x3:const", "split out0 S3 ", "", "region last"},
        {"x86-64-avx2", NARROW(1), "x=u8:1x16x9x18&w=i8:16x5x5:const", "widen out0 0 ", " region last ", "R1.2"},
        {"x86-64-avx2", "y[N,C,P,Q] +=! pad(x,0.0)[N,C,P+R-2,Q+T-2]*w[C,R,T] where P in 7, Q in 9", "x=f16:1x24x7x9&w=f16:24x5x5:const",
         "widen out0 0 ", " region last ", "R1.2"},
        /* halves that many taps read, or that are picked for them, become floats before, and their padding is filled in on the way */
        {"x86-64-avx2", "y[N,C,P,Q] +=! pad(x,0.0)[N,C,P+R-2,Q+T-2]*w[C,R,T] where P in 28, Q in 28", "x=f16:1x4x28x28&w=f16:4x5x5",
         "decompose_padding out0 1 ", "inline plane", "R1.2"},
        {"x86-64-bf16", "y[N,C,P,Q] +=! pad(x,0.0)[N,C,P*2+R-2,Q*2+T-2]*w[C,R,T] where P in 14, Q in 14", "x=bf16:1x4x28x28&w=bf16:4x5x5",
         "widen out0 1 ", "split out0 S3 1 16\n", "R1.2"},
        {"x86-64-bf16", "y[N,P,Q,C] +=! pad(x,0.0)[N,P+R-1,Q+T-1,C]*w[R,T,C] where P in 12, Q in 12", "x=bf16:1x12x12x40&w=bf16:3x3x40",
         "widen out0 0 ", "vectorize out0 S3.", "decompose_padding"},
        {"x86-64-bf16", "y[N,P,Q,C] +=! pad(x,0.0)[N,P*2+R-1,Q*2+T-1,C]*w[R,T,C] where P in 12, Q in 12", "x=bf16:1x24x24x40&w=bf16:3x3x40",
         "vectorize out0 S3.", "", "widen out0 0 "},
        {"x86-64-avx2", "t[N,C,H,W] = cast(x[N,C,H,W],i32)-3; y[N,C,P,Q] +=! pad(t,0)[N,C,P*2+R-1,Q*2+T-1]*cast(w[C,R,T],i32) where P in 9, Q in 9",
         "x=u8:1x16x18x18&w=i8:16x3x3:const", "widen out0 1 ", " region last ", "R1.2"},
        /* layers of a constant's group are no shorter than what partial sums are worth */
        {"x86-64-avx2", AMONG, "x=f32:1x4x5x32x16&w=f32:3x3x16x32x16:const", "prepack out0 1 ", "", "transform_layout"},
        {"x86-64-avx2", AMONG, "x=f32:1x4x5x16x32&w=f32:3x3x32x16x32:const", "transform_layout plane0 ", "prepack out0 1 ", "cache_read"},
        /* groups' weights that are no constant are read as they lie; those of all that L2 does not hold are packed panel by panel, all terms at
         * once */
        {"x86-64-avx2", AMONG, "x=f32:2x4x5x4x8&w=f32:3x3x8x4x16", "| S1.1 S2.0 S3.0 S4.0 R0.0 R1.0 R2.0 |",
         "cache_read out0 0 scratch S1.0 region", "flatten"},
        {"x86-64-avx512", AMONG, "x=f32:2x4x5x4x8&w=f32:3x3x8x4x16", "| S1.1 S2.0 S3.0 S4.0 R0.0 R1.0 R2.0 |",
         "cache_read out0 0 scratch S1.0 region", "flatten"},
        {"x86-64-avx2", AMONG_MANY, "x=f32:1x5x7x16x24&w=f32:3x3x24x16x24", "reorder out0 S0.0 S3.0 S4.0 S1.0 | ",
         "cache_read out0 1 scratch S1.0 loops R0.0 R1.0 R2.0 S4.1 S4.2\n", "flatten"},
        /* so are those of one group where the image is read as it lies: L2 holds a panel of short vectors, or blocks of long ones */
        {"x86-64-avx2", "y[N,P,Q,F] +=! x[N,P+R,Q+S,C]*w[R,S,C,F] where P in 11, Q in 12", "x=f32:1x13x14x88&w=f32:3x3x88x88",
         "reorder out0 S0.0 S3.0 S1.0 | S1.1 ", "cache_read out0 1 scratch S1.0 loops R0.0 F0.0 S3.1 ", "turned0"},
        {"x86-64-avx512", "y[N,P,Q,F] +=! x[N,P+R,Q+S,C]*w[R,S,C,F] where P in 6, Q in 6", "x=f32:1x8x8x128&w=f32:3x3x128x256",
         "| R0.0 F0.0 S1.1 ", "cache_read out0 0 scratch F0.0 loops ", "turned0"},
        /* gradients by the weights of groups have lanes along a group's results, and no box holds the planes of several */
        {"x86-64-avx2", BY_WEIGHTS(1), "g=f32:2x32x14x14&x=f32:2x10x14x14", "divide out0 S0 ", "transform_layout turned0 1 2 3 0\n", "E0.1 R"},
        {"x86-64-avx512", BY_WEIGHTS(1), "g=f32:2x32x14x14&x=f32:2x10x14x14", "divide out0 S0 ", "transform_layout turned0 1 2 3 0\n", "E0.1 R"},
        {"x86-64-avx2", BY_WEIGHTS(2), "g=f32:2x32x14x14&x=f32:2x10x28x28", "transform_layout turned0 1 2 3 0\n", "reorder turned0 D0.0 S1.0 ",
         "E0.1 R"},
        /* three panels for two cores are cut into bands */
        {"x86-64-avx2", "y[N,P,Q,F] +=! x[N,P+R,Q+S,C]*w[R,S,C,F] where P in 11, Q in 12", "x=f32:1x13x14x102&w=f32:3x3x102x72",
         "split out0 S1 6\n", "cache_read out0 0 scratch S1.0 loops R0.0 F0.0 S3.1 ", "turned0"},
        /* few results stay beside each other where places step, which a second copy would take apart */
        {"x86-64-avx2", "y[N,P,Q,F] +=! x[N,P*2+R,Q*2+S,C]*w[R,S,C,F] where P in 18, Q in 18", "x=f32:1x39x39x40&w=f32:5x5x40x10", "split out0 ",
         "vectorize out0 S3.", "turned0"},
        {"x86-64-avx2", "y[N,P,Q,F] +=! x[N,P+R,Q+S,C]*w[R,S,C,F] where P in 18, Q in 18", "x=f32:1x22x22x40&w=f32:5x5x40x10",
         "transform_layout turned0 0 3 1 2", "", "unstride"},
        /* a window that goes backwards, as a transposed convolution's, reaches as far as another, and its innermost steps are the shortest, too */
        {"x86-64-avx2", "y[N,P,Q,F] +=! pad(x,0.0)[N,P-R+1,Q-S+1,C]*w[R,S,C,F] where P in 5, Q in 6", "x=f32:1x5x6x24&w=f32:3x3x24x16:const",
         "split out0 S3 ", " R0.0 R1.0 R2.0 | S", "turned"},
        /* one row of taps, whose columns step */
        {"x86-64-avx2", "y[N,F,P,Q] +=! x[N,C,P,Q*4+S]*w[F,C,S] where P in 7, Q in 32", "x=f32:2x5x7x131&w=f32:12x5x7", "unstride out0 1 S3 ",
         "split out0 S1 6\n", "flatten_window"},
        /* the same of a single row of places, in groups or not */
        {"x86-64-avx2", "y[N,F,Q] +=! pad(x,0.0)[N,(F//8)*4+C,Q*4+S-3]*w[F,C,S] where Q in 50", "x=f32:2x8x200&w=f32:16x4x7:const",
         "unstride out0 1 S2 ", "split out0 ", "cache_read out0 1"},
        {"x86-64-avx512", "y[N,F,Q] +=! pad(x,0.0)[N,C,Q*3+S-2]*w[F,C,S] where Q in 50", "x=f32:1x5x150&w=f32:10x5x7:const", "unstride out0 1 S2 ",
         "split out0 ", "cache_read out0 1"},
        /* strips of rows that vectors fill, though their sums are long, where these are parts of lines */
        {"x86-64-avx2", STRIPS(2), "x=f32:1x12x50x96&w=f32:18x12x5x5", "unstride out0 1 S3 ", "split out0 S1 6\n", "flatten_window"},
        {"x86-64-avx2", STRIPS(1), "x=f32:1x12x25x48&w=f32:18x12x5x5", "decompose_padding out0 1 ", "split out0 S1 6\n", "flatten_window"},
        {"x86-64-avx512", STRIPS(2), "x=f32:1x12x50x96&w=f32:18x12x5x5", "flatten_window out0 1 S2 S3 ", "split rows0 ", "unstride"},
        {"x86-64-avx2", STRIPS(1), "x=f32:1x30x25x48&w=f32:18x30x5x5", "flatten_window out0 1 S2 S3 ", "split rows0 ", "decompose_padding"},
        /* results fill vectors: they had better be the lanes than places that step; or they do not, and strips waste less */
        {"x86-64-avx2", "y[N,F,P,Q] +=! pad(x,0.0)[N,C,P*2+R-1,Q*2+S-1]*w[F,C,R,S] where P in 7, Q in 7", "x=f32:1x32x14x14&w=f32:256x32x3x3",
         "cache_write out0 lanes_last", "vectorize lanes_last S1.2", "flatten_window"},
        {"x86-64-avx2", "y[N,F,P,Q] +=! x[N,C,P*2+R,Q*2+S]*w[F,C,R,S] where P in 25, Q in 60", "x=f32:1x24x51x121&w=f32:12x24x3x3",
         "unstride out0 0 S3 ", "split out0 S1 6\n", "turned0"},
        {"x86-64-avx2", "y[N,F,P,Q] +=! x[N,C,P*2+R,Q*2+S]*w[F,C,R,S] where P in 7, Q in 28", "x=f32:1x24x15x57&w=f32:64x24x3x3:const",
         "cache_write out0 turned0", "vectorize turned0 S1.2", "unstride"},
        /* the image is padded as it is turned, line by line, and not once more as it is read */
        {"x86-64-avx512", "y[N,F,P,Q] +=! pad(x,0.0)[N,C,P*2+R-1,Q*2+S-1]*w[F,C,R,S] where P in 14, Q in 14", "x=f32:1x32x28x28&w=f32:64x32x3x3",
         "decompose_padding out0 1 plane0\n", "cache_read plane0 0 scratch X1.0 region last 1\n", "cache_read turned0"},
        {"x86-64-avx512", "y[N,F,P,Q] +=! pad(x,0.0)[N,C,P*2+R-1,Q*2+S-2]*w[F,C,R,S] where P in 7, Q in 28", "x=f32:2x32x14x57&w=f32:64x32x3x3:const",
         "decompose_padding out0 1 plane0\n", "cache_read plane0 0 scratch X1.0 region last 1\n", "cache_read turned0"},
        /* one column of taps, without padding: rows are one run as they lie */
        {"x86-64-avx2", "y[N,F,P,Q] +=! x[N,C,P+R,Q]*w[F,C,R] where P in 11, Q in 20", "x=f32:1x12x17x20&w=f32:40x12x7", "fuse out0 ", "split out0 F",
         "flatten_window"},
        /* also with padding, which a copy has; no panel of these is packed, whose elements are other taps' too, and the taps are written out */
        {"x86-64-avx2", "y[N,F,P,Q] +=! pad(x,0.0)[N,C,P+2*R-6,Q]*w[F,C,R] where P in 14, Q in 20", "x=f32:1x58x14x20&w=f32:20x58x7",
         "decompose_padding out0 1 ", "unroll out0 R1.0\n", "flatten_window"},
        {"x86-64-avx2", "y[N,F,P,Q] +=! x[N,C,P+R,Q]*w[F,C,R] where P in 34, Q in 60", "x=f32:1x16x40x60&w=f32:32x16x7", "fuse out0 ",
         "unroll out0 R1.0\n", "cache_read"},
        /* taps whose addresses are quotients of their numbers are written out, whatever else is in registers; those beside each other are not */
        {"x86-64-avx2", "y[N,F,P,Q] +=! pad(x,0.0)[N,C,P*2+R-3,Q*2+S-3]*w[F,C,R,S] where P in 20, Q in 20", "x=f32:1x5x40x40&w=f32:24x5x7x7",
         "flatten_window ", "unroll rows0 R2.0\n", "cache_read"},
        /* maxima of windows that step have little to share but their rows */
        {"x86-64-avx2", MAXIMA(5, 2), "x=f32:2x17x17x20", "separate out0 R0 ", "compute_at rows0 ", "region"},
        {"x86-64-avx512", MAXIMA(5, 2), "x=f32:2x17x17x20", "separate out0 R0 ", "compute_at rows0 ", "region"},
        {"x86-64-avx2", MAXIMA(3, 1), "x=f32:2x17x17x20", "split out0 ", "unroll ", "separate"},
        {"x86-64-avx2", MAXIMA(3, 2), "x=f32:2x17x17x20", "split out0 ", "unroll ", "separate"},
        /* columns that fall into few sets of L1 are copied, whole lines of their lanes; or squares are no larger than these sets hold */
        {"x86-64-avx2", BESIDE(3, 1), "x=f32:1x6x8x1024&w=f32:3x3x1024", "split out0 S3 2 8\nsplit out0 S2 4\n", "cache_read out0 1 scratch",
         "S1.1 S"},
        {"x86-64-avx512", BESIDE(5, 1), "x=f32:1x6x8x1024&w=f32:5x5x1024", "split out0 S3 1 16\nsplit out0 S2 8\n", "cache_read out0 1 scratch S",
         "S1.1 S"},
        /* where each is met by few, runs come as they lie, and what they are multiplied by is copied; so in a row that is too short for lines */
        {"x86-64-avx512", BESIDE(3, 1), "x=f32:1x6x8x1024&w=f32:3x3x1024", "split out0 S3 8 16\nsplit out0 S2 2\n", "cache_read out0 0 scratch S",
         "S1.1 S"},
        {"x86-64-avx512", BESIDE(3, 2), "x=f32:1x12x16x1024&w=f32:3x3x1024", "split out0 S3 8 16\nsplit out0 S2 2\n",
         "cache_read out0 0 scratch S", "S1.1 S"},
        {"x86-64-avx2", BESIDE(3, 2), "x=f32:1x12x16x1024&w=f32:3x3x1024", "split out0 S3 16 8\nsplit out0 S2 1\n", "cache_read out0 0 scratch S",
         "S1.1 S"},
        {"x86-64-avx512", "y[N,P,Q,C] +=! pad(x,0.0)[N,P+R-2,Q+T-2,C]*w[R,T,C] where P in 6, Q in 7, R in 5, T in 5",
         "x=f32:1x6x7x1024&w=f32:5x5x1024", "split out0 S3 8 16\nsplit out0 S2 2\n", "cache_read out0 0 scratch S", "unroll out0 R0.0"},
        {"x86-64-avx512", "y[N,P,Q,C] >=! pad(x,-inf)[N,P*2+R-1,Q*2+T-1,C] where P in 6, Q in 8, R in 3, T in 3", "x=f32:1x12x16x1024",
         "split out0 S3 8 16\nsplit out0 S2 2\n", "unroll out0 R0.0", "cache_read"},
        /* few taps by steps of one operand: a place at a time, whole, with all of its channels; not of few channels, more taps, or by one */
        {"x86-64-avx2", "y[N,P,Q,C] >=! pad(x,-inf)[N,P*2+R-1,Q*2+T-1,C] where P in 5, Q in 6, R in 3, T in 3", "x=f32:2x10x12x150",
         "split out0 S3 10 2 8\nreorder out0 S0.0 S1.0 S2.0 S3.0 | S3.1 R0.0 R1.0 | S3.2 S3.3\n", "unroll out0 R0.0\n", "split out0 S2"},
        {"x86-64-avx512", "y[N,P,Q,C] +=! x[N,P*3+R,Q*3+T,C] where P in 5, Q in 6, R in 3, T in 3", "x=f16:1x15x18x140",
         "split out0 S3 5 2 16\n", "unroll out0 R0.0\n", "split out0 S2"},
        {"x86-64-avx2", "y[N,P,Q,C] >=! pad(x,-inf)[N,P*2+R-1,Q*2+T-1,C] where P in 5, Q in 6, R in 3, T in 3", "x=f32:2x10x12x70",
         "split out0 S3 ", "unroll out0 R0.0\n", "| S3.1 R0.0"},
        {"x86-64-avx2", "y[N,P,Q,C] >=! pad(x,-inf)[N,P+R-1,Q+T-1,C] where P in 10, Q in 12, R in 3, T in 3", "x=f32:2x10x12x150",
         "split out0 S3 ", "unroll out0 R0.0\n", "| S3.1 R0.0"},
        {"x86-64-avx2", BESIDE(5, 1), "x=f32:1x6x8x256&w=f32:5x5x256", "split out0 S3 2 8\nsplit out0 S2 4\n", "cache_read out0 1 scratch",
         "S1.1 S"},
        {"x86-64-avx2", "y[N,P,Q,C] +=! pad(x,0.0)[N,P+R-1,Q+T-1,C]*w[R,T,C] where P in 6, Q in 7, R in 3, T in 3", "x=f32:1x6x7x1024&w=f32:3x3x1024",
         "split out0 S3 2 8\nsplit out0 S2 7\n", "cache_read out0 1 scratch", "S1.1 S"}, /* no tile of them reaches past a row */
        {"x86-64-avx2", BESIDE(3, 1), "x=f32:1x6x8x512&w=f32:3x3x512", "split out0 S3 2 8\n", "unroll out0 R0.0", "cache_read"},
        /* all that a square reads is more than these hold, and squares do not fill the image */
        {"x86-64-avx2", "y[N,P,Q,C] +=! pad(x,0.0)[N,P+R-1,Q+T-1,C]*w[R,T,C] where P in 7, Q in 7, R in 3, T in 3", "x=f32:1x7x7x512&w=f32:3x3x512",
         "split out0 S3 2 8\nsplit out0 S2 7\n", "cache_read out0 1 scratch", "S1.1 S"},
        {"x86-64-avx2", "y[N,P,Q,C] +=! pad(x,0.0)[N,P+R-1,Q+T-1,C]*w[R,T,C] where P in 7, Q in 7, R in 3, T in 3", "x=f32:1x7x7x520&w=f32:3x3x520",
         "split out0 S3 ", "", "cache_read"},
        {"x86-64-avx2", BESIDE(3, 1), "x=f32:1x6x8x1032&w=f32:3x3x1032", "split out0 S1 2\n", "unroll out0 R0.0", "cache_read"},
        /* where each place is almost a page of its own, tiles go along a row with a block of lanes that L1 holds what a tile reads of; not where L2
         * has the image, nor where tiles by 2 have little in common */
        {"x86-64-avx2", PLACES(9, 12), "x=f32:1x9x12x1032&w=f32:3x3x1032", "split out0 S3 12 1 8\n", "S2.0 S3.1 R0.0 R1.0 | S1.",
         "cache_read"},
        {"x86-64-avx512", PLACES(18, 22), "x=f32:1x18x22x696&w=f32:3x3x696", "split out0 S3 ", "S2.0 S3.1 R0.0 R1.0 | ", "cache_read"},
        {"x86-64-avx2", PLACES(5, 8), "x=f32:1x5x8x1032&w=f32:3x3x1032", "split out0 S3 1 8\n", "S3.0 | ", "S3.1 R0.0"},
        {"x86-64-avx2", PLACES(9, 24), "x=f32:1x9x24x600&w=f32:3x3x600", "split out0 S3 1 8\n", "S3.0 | ", "S3.1 R0.0"},
        {"x86-64-avx2", "y[N,P,Q,C] +=! pad(x,0.0)[N,P*2+R-1,Q*2+T-1,C]*w[R,T,C] where P in 5, Q in 6, R in 3, T in 3",
         "x=f32:2x10x12x1032&w=f32:3x3x1032", "split out0 S3 ", "S3.0 | ", "S3.1 R0.0"},
        /* places of a dilated window share its factors, and some of them elements; lines are copied where what these read falls into few sets */
        {"x86-64-avx2", DILATED(3, 2), "x=f32:1x9x12x48&w=f32:3x3x48", "split out0 S2 ", "unroll out0 S2.", "cache_read"},
        {"x86-64-avx512", DILATED(3, 2), "x=f32:1x9x12x48&w=f32:3x3x48", "split out0 S2 ", "unroll out0 S2.", "cache_read"},
        {"x86-64-avx2", DILATED(5, 2), "x=f32:1x9x12x40&w=f32:5x5x40", "split out0 S2 ", "unroll out0 S2.", "cache_read"},
        {"x86-64-avx2", DILATED(3, 4), "x=f32:1x9x12x512&w=f32:3x3x512", "split out0 S3 2 8\nsplit out0 S2 4\n", "cache_read out0 1 scratch",
         "S1.1 S"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        opened o = first_of(one[i].id, one[i].text, one[i].inputs);
        const char *trace = o.trace.p, *has = strstr(trace, one[i].has);
        if (!has || !strstr(has, one[i].then) || strstr(trace, one[i].never)) fail_msg("%zu: %s on %s:\n%s", i, one[i].text, one[i].id, trace);
        run_checked(o.a, o.p, o.hw, o.trace, one[i].inputs);
        kiln_arena_close(o.a);
    }
}

/* Elements of temporaries that are computed in every call, beside results that have grown. *attached: no pass of its own takes what is wanted of
 * these. */
static int64_t copied(const opened *o, bool *attached)
{
    kn_tree *t;
    kiln_diag d = {0};
    int64_t n = 0;
    if (kn_trace_apply(o->a, o->p, o->hw, o->trace, &t, &d)) fail_msg("%s", d.message);
    *attached = false;
    for (int i = 0; i < t->nstages; i++) {
        const kn_stmt *st = t->program->stmts[t->stages[i]->stmt];
        *attached |= t->stages[i]->at_stage >= 0 || kn_stage_wanted(o->a, t, t->stages[i]) != st;
        if (!t->stages[i]->ahead && st->red == KN_RED_NONE && t->program->tensors[st->out].role == KN_TEMP)
            n += elems_of(&t->program->tensors[st->out]);
    }
    return n;
}

/* On a unit of its own windows read one copy of the image, or the image itself: never one for each tap. What is cropped while it is near hangs on
 * the copy of the wanted part. */
static void windows_on_a_unit_share_a_copy(void **state)
{
#define LAST(S, P) "y[N,P,Q,F] +=! pad(x,0.0)[N,P*" #S "+R-" #P ",Q*" #S "+S-" #P ",C]*w[R,S,C,F] where P in 5, Q in 31, R in 3, S in 3"
#define FIRST(S, P) "y[N,F,P,Q] +=! pad(x,0.0)[N,C,P*" #S "+R-" #P ",Q*" #S "+S-" #P "]*w[F,C,R,S] where P in 5, Q in 30, R in 3, S in 3"
#define LAST_BYTES "y[N,P,Q,F] +=! cast(pad(x,0)[N,P+R-1,Q+S-1,C],i32)*cast(w[R,S,C,F],i32) where P in 5, Q in 31, R in 3, S in 3"
#define FIRST_BYTES "y[N,F,P,Q] +=! cast(pad(x,0)[N,C,P+R-1,Q+S-1],i32)*cast(w[F,C,R,S],i32) where P in 5, Q in 30, R in 3, S in 3"
#define STEM_LAST "y[N,P,Q,F] +=! pad(x,0.0)[N,P*2+R-3,Q*2+S-3,C]*w[R,S,C,F] where P in 10, Q in 32, R in 7, S in 7"
#define STEM_FIRST "y[N,F,P,Q] +=! pad(x,0.0)[N,C,P*2+R-3,Q*2+S-3]*w[F,C,R,S] where P in 10, Q in 32, R in 7, S in 7"
#define STEM_BYTES "y[N,P,Q,F] +=! cast(pad(x,0)[N,P*2+R-3,Q*2+S-3,C],i32)*cast(w[R,S,C,F],i32) where P in 10, Q in 32, R in 7, S in 7"
    static const struct { const char *text, *inputs; int64_t most; int attached; } one[] = { /* attached -1: either */
        {LAST(1, 1), "x=bf16:1x5x31x64&w=bf16:3x3x64x32:const", 7 * 34 * 64, 1},
        {LAST(1, 1), "x=bf16:2x5x31x40&w=bf16:3x3x40x24:const", 2 * 7 * 34 * 64, 1},
        {LAST(2, 1), "x=bf16:1x10x62x64&w=bf16:3x3x64x32:const", 4 * 8 * 32 * 64, -1},
        {LAST(1, 0), "x=bf16:1x7x33x64&w=bf16:3x3x64x32:const", 8 * 34 * 64, -1},
        {LAST(1, 1), "x=bf16:1x5x31x64&w=bf16:3x3x64x32", 7 * 34 * 64 + 9 * 64 * 32, 1},
        {"y[N,P,Q,F] +=! pad(x,0.0)[N,P+R-1,Q+S-1,C]*w[R,S,C,F] where P in 7, Q in 7, R in 3, S in 3", "x=bf16:1x7x7x64&w=bf16:3x3x64x32:const",
         11 * 9 * 64, 0},
        {"y[N,P,Q,F] +=! pad(x,0.0)[N,P+R-1,Q+S-1,C]*w[R,S,C,F] where P in 28, Q in 56, R in 3, S in 3", /* tiles of 14 places: none grows */
         "x=bf16:1x28x56x16&w=bf16:3x3x16x16:const", 30 * 58 * 16, 0},
        {LAST_BYTES, "x=u8:1x5x31x64&w=i8:3x3x64x32:const", 7 * 34 * 64, 1},
        {LAST_BYTES, "x=i8:1x5x31x100&w=i8:3x3x100x24:const", 7 * 34 * 128, 1},
        {FIRST(1, 1), "x=bf16:1x64x5x30&w=bf16:32x64x3x3:const", 64 * 8 * 34, -1},
        {FIRST(2, 1), "x=bf16:1x64x10x60&w=bf16:32x64x3x3:const", 64 * 4 * 8 * 32, -1},
        {FIRST_BYTES, "x=u8:1x64x5x30&w=i8:32x64x3x3:const", 64 * 8 * 34, -1},
        /* filters are dealt out to the cores, whole or with a part that is wanted */
        {"y[N,F,P,Q] +=! cast(pad(x,0)[N,C,P+R-1,Q+S-1],i32)*cast(w[F,C,R,S],i32) where P in 4, Q in 14, R in 3, S in 3",
         "x=u8:1x64x4x14&w=i8:128x64x3x3:const", 64 * 6 * 18, -1},
        {"y[N,F,P,Q] +=! cast(pad(x,0)[N,C,P+R-1,Q+S-1],i32)*cast(w[F,C,R,S],i32) where P in 4, Q in 16, R in 3, S in 3",
         "x=u8:1x64x4x16&w=i8:128x64x3x3:const", 64 * 6 * 18, -1},
        /* what finishes a sum takes the part itself */
        {"t[N,P,Q,F] +=! pad(x,0.0)[N,P+R-1,Q+S-1,C]*w[R,S,C,F] where P in 5, Q in 31, R in 3, S in 3; y[N,P,Q,F] = max(t[N,P,Q,F]+b[F],0.0)",
         "x=bf16:1x5x31x64&w=bf16:3x3x64x24:const&b=bf16:24:const", 7 * 34 * 64, 1},
        /* few channels: columns and channels are one axis of terms, which a copy has side by side for every window of a row */
        {STEM_LAST, "x=bf16:1x20x64x3&w=bf16:7x7x3x32:const", 25 * 32 * 32, -1},
        {STEM_FIRST, "x=bf16:1x3x20x64&w=bf16:32x3x7x7:const", 25 * 32 * 32, -1},
        {STEM_BYTES, "x=u8:1x20x64x3&w=i8:7x7x3x32:const", 25 * 32 * 64, -1},
        {STEM_LAST, "x=bf16:1x20x64x4&w=bf16:7x7x4x32:const", 25 * 32 * 32, -1},
        /* one tap: a product, of rows that go on from line to line, or of places apart */
        {"y[N,P,Q,F] +=! x[N,P,Q,C]*w[C,F]", "x=bf16:1x5x30x64&w=bf16:64x48:const", 0, 0},
        {"y[N,P,Q,F] +=! x[N,P,Q,C]*w[C,F] where P in 5, Q in 30", "x=bf16:2x5x30x64&w=bf16:64x48:const", 0, 0},
        {"y[N,F,P,Q] +=! x[N,C,P,Q]*w[F,C]", "x=bf16:1x64x5x30&w=bf16:48x64:const", 0, 0},
        {"t[N,P,Q,F] +=! x[N,P,Q,C]*w[C,F]; y[N,P,Q,F] = max(t[N,P,Q,F]+b[F],0.0)", "x=bf16:2x5x30x64&w=bf16:64x48:const&b=bf16:48:const", 0, 0},
        {"t[N,F,P,Q] +=! x[N,C,P,Q]*w[F,C]; y[N,F,P,Q] = max(t[N,F,P,Q]+b[F],0.0)", "x=bf16:1x64x5x30&w=bf16:48x64:const&b=bf16:48:const", 0, 0},
        {"y[N,P,Q,F] +=! x[N,P*2,Q*2,C]*w[C,F] where P in 5, Q in 30", "x=bf16:1x10x60x64&w=bf16:64x48:const", 5 * 30 * 64, -1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        bool attached;
        opened o = first_of("x86-64-amx", one[i].text, one[i].inputs);
        int64_t n = copied(&o, &attached);
        if (!strstr(o.trace.p, " amx_")) fail_msg("%zu: no unit:\n%s", i, o.trace.p);
        if (n > one[i].most) fail_msg("%zu: %lld elements are copied, more than %lld:\n%s", i, (long long)n, (long long)one[i].most, o.trace.p);
        if (one[i].attached >= 0 && attached != one[i].attached) fail_msg("%zu: %s:\n%s", i, attached ? "attached" : "not attached", o.trace.p);
        run_checked(o.a, o.p, o.hw, o.trace, one[i].inputs);
        kiln_arena_close(o.a);
    }
#undef STEM_LAST
#undef STEM_FIRST
#undef STEM_BYTES
#undef LAST
#undef FIRST
#undef LAST_BYTES
#undef FIRST_BYTES
}

static bool has_buffer(const kn_lprog *p, const char *name)
{
    bool has = false;
    for (int b = 0; b < p->nbuffers; b++) has = has || !strncmp(p->buffers[b].name, name, strlen(name));
    return has;
}

/* Weights with the taps nearest to each other, given anew for every call, become tiles of a unit in registers: rows, terms and taps change places
 * there, and what comes of it goes where the tiles are. */
static void taps_change_places_in_registers(void **state)
{
#define WINDOW(r, s) "y[N,F,P,Q] +=! cast(pad(x,0)[N,C,P+R-1,Q+S-1],i32)*cast(w[F,C,R,S],i32) where P in 5, Q in 14, R in " #r ", S in " #s
#define HALVES(r, s) "y[N,F,P,Q] +=! pad(x,0.0)[N,C,P+R-1,Q+S-1]*w[F,C,R,S] where P in 5, Q in 14, R in " #r ", S in " #s
    static const struct { const char *text, *inputs; bool taps; } one[] = {
        {WINDOW(3, 3), "x=u8:1x128x5x14&w=i8:32x128x3x3", true}, {WINDOW(3, 3), "x=i8:1x256x5x14&w=i8:48x256x3x3", true},
        {WINDOW(5, 5), "x=u8:1x128x5x14&w=i8:32x128x5x5", true},
        {HALVES(3, 3), "x=bf16:1x64x5x14&w=bf16:32x64x3x3", true}, {HALVES(3, 3), "x=bf16:1x128x5x14&w=bf16:64x128x3x3", true},
        {HALVES(1, 1), "x=bf16:1x64x5x14&w=bf16:32x64x1x1", false}, {WINDOW(3, 3), "x=u8:1x128x5x14&w=i8:24x128x3x3", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        opened o = first_of("x86-64-amx", one[i].text, one[i].inputs);
        bool taps = has_buffer(lowered(o.a, o.p, o.hw, o.trace, one[i].inputs), "taps");
        if (!strstr(o.trace.p, " amx_") || taps != one[i].taps) fail_msg("%zu: taps %d:\n%s", i, taps, o.trace.p);
        run_checked(o.a, o.p, o.hw, o.trace, one[i].inputs);
        kiln_arena_close(o.a);
    }
    /* more of them than registers hold, or too few for a square, are written one by one where they belong, and not beside it first */
    static const char *const others[][2] = {{WINDOW(7, 7), "x=u8:1x128x5x14&w=i8:32x128x7x7"}, {WINDOW(5, 6), "x=u8:1x128x5x14&w=i8:32x128x5x6"}};
    const char mapped[] = "sample_mapping mapping0 out0 amx_int8_us : I=S3;J=S1;R=R0\nmap out0 amx_int8_us $mapping0\n";
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        opened o = first_of("x86-64-amx", others[i][0], others[i][1]);
        const kn_lprog *p = lowered(o.a, o.p, o.hw, (kiln_bytes){mapped, sizeof mapped - 1}, others[i][1]);
        for (int b = 0; b < p->nbuffers; b++)
            if (p->buffers[b].dtype == KN_I8 && p->buffers[b].scope == KN_SCRATCH) fail_msg("%s: weights are copied twice", others[i][1]);
        kiln_arena_close(o.a);
    }
#undef WINDOW
#undef HALVES
}

/* Products since the unit last stored a tile, and the most there were, as the statements run. */
typedef struct asleep { const kn_lprog *p; int64_t *value; int64_t since, most, stores; } asleep;

static int64_t number(const asleep *x, const kn_expr *e)
{
    if (e->op == KN_OP_CONST_I) return e->u.i;
    if (e->op == KN_OP_VAR) return x->value[e->u.var];
    int64_t a = number(x, e->args[0]), b = number(x, e->args[1]);
    if (e->op == KN_OP_ADD) return a + b;
    if (e->op == KN_OP_SUB) return a - b;
    if (e->op == KN_OP_MUL) return a * b;
    if (e->op == KN_OP_MIN) return a < b ? a : b;
    if (e->op == KN_OP_MAX) return a > b ? a : b;
    if (e->op == KN_OP_LT) return a < b;
    if (e->op == KN_OP_AND) return a && b;
    if (e->op != KN_OP_MOD && e->op != KN_OP_FLOORDIV) fail_msg("the end of a loop is operation %d", (int)e->op);
    return e->op == KN_OP_MOD ? a % b : a / b;
}

static void runs(asleep *x, const kn_ls *list)
{
    for (const kn_ls *s = list; s; s = s->next) {
        if (s->kind == KN_LS_CALL && x->p->calls[s->call->fn].unit) x->since++;
        if (x->since > x->most) x->most = x->since;
        if (s->kind == KN_LS_UNIT && s->unit->what == KN_UNIT_STORE) x->since = 0, x->stores++;
        if (s->kind == KN_LS_LET && s->value->dtype == KN_I64) x->value[s->var] = number(x, s->value);
        if (s->kind != KN_LS_FOR) continue;
        for (int64_t v = number(x, s->lo), end = number(x, s->hi); v < end; v++) x->value[s->var] = v, runs(x, s->body);
    }
}

/* Loads of operands into the unit: of those from `buffer`'s kind, how many leave L1 alone. */
static void loads_of(const kn_lprog *p, const kn_ls *list, int *ahead, int *ahead_once, int *other_once)
{
    for (const kn_ls *s = list; s; s = s->next) {
        if (s->kind == KN_LS_UNIT && s->unit->what == KN_UNIT_LOAD) {
            bool packed = p->buffers[s->unit->buffer].scope == KN_PACKED;
            *ahead += packed;
            *ahead_once += packed && s->unit->passes;
            *other_once += !packed && s->unit->passes;
        }
        loads_of(p, s->body, ahead, ahead_once, other_once);
        loads_of(p, s->other, ahead, ahead_once, other_once);
    }
}

/* A unit's sums are interrupted by stores before it falls asleep, however long and nested they are; weights that pass by L1 once leave it to the
 * image, which is read again, and those that L1 holds stay there. */
static void units_are_kept_awake_and_fed(void **state)
{
#define SUMS "y[N,P,Q,F] +=! pad(x,0.0)[N,P+R-1,Q+S-1,C]*w[R,S,C,F] where P in 4, Q in 32, R in 3, S in 3"
    static const struct { const char *text, *inputs; int once; } one[] = {
        {SUMS, "x=bf16:1x4x32x128&w=bf16:3x3x128x64:const", 1}, {SUMS, "x=bf16:1x4x32x256&w=bf16:3x3x256x32:const", 1},
        {"c[M,N] +=! a[M,K]*b[K,N]", "a=bf16:64x4096&b=bf16:4096x64:const", 1}, {"c[M,N] +=! a[M,K]*b[K,N]", "a=bf16:128x160&b=bf16:160x32:const", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        opened o = first_of("x86-64-amx", one[i].text, one[i].inputs);
        const kn_lprog *p = lowered(o.a, o.p, o.hw, o.trace, one[i].inputs);
        int ahead = 0, once = 0, others = 0;
        asleep x = {.p = p, .value = kn_array(o.a, int64_t, p->nvars)};
        for (int f = 0; f < p->nfns; f++) runs(&x, p->fns[f].body), loads_of(p, p->fns[f].body, &ahead, &once, &others);
        bool sleeps = !x.stores || x.most * 16 > 2 * o.hw->tile_idle_cycles;
        if (sleeps) fail_msg("%zu: %lld products without a store:\n%s", i, (long long)x.most, o.trace.p);
        if (!ahead || once != (one[i].once ? ahead : 0)) fail_msg("%zu: %d of %d tiles of weights leave L1 alone:\n%s", i, once, ahead, o.trace.p);
        if (i < 2 && others) fail_msg("%zu: %d tiles of the image leave L1 alone:\n%s", i, others, o.trace.p);
        kiln_arena_close(o.a);
    }
#undef SUMS
}

/* Lines that have been asked for, by buffer; what a unit loaded as it lies, and what went to memory, without that. */
typedef struct awaited { asleep run; uint8_t **asked; int64_t *lines, loads, not_asked, stores, missed, parts, parts_missed; } awaited;

static bool came(awaited *x, int buffer, int64_t element)
{
    int64_t line = element * kn_dtype_bytes(x->run.p->buffers[buffer].dtype) / 64;
    if (line < 0 || line >= x->lines[buffer]) fail_msg("line %lld of %lld", (long long)line, (long long)x->lines[buffer]);
    return x->asked[buffer][line];
}

/* Two lines that lie beside each other come to L2 together. */
static void ask_for(awaited *x, const kn_ls *s)
{
    int64_t line = number(&x->run, s->index) * kn_dtype_bytes(x->run.p->buffers[s->buffer].dtype) / 64;
    for (int64_t l = s->to_l2 ? line / 2 * 2 : line; l <= (s->to_l2 ? line / 2 * 2 + 1 : line); l++)
        if (l >= 0 && l < x->lines[s->buffer]) x->asked[s->buffer][l] = 1;
}

static void unit_moves(awaited *x, const kn_unit_step *u)
{
    const kn_buffer *r = &x->run.p->buffers[u->reg];
    if (u->what == KN_UNIT_CLEAR || !x->lines[u->buffer]) return;
    bool part = x->run.p->buffers[u->buffer].scope == KN_SCRATCH, sums = kn_dtype_bytes(r->dtype) == 4;
    for (int row = 0; row < r->rows; row++) {
        bool there = came(x, u->buffer, number(&x->run, u->at) + row * u->row);
        if (part) x->parts += sums && u->what == KN_UNIT_LOAD, x->parts_missed += sums && u->what == KN_UNIT_LOAD && !there;
        else if (u->what == KN_UNIT_LOAD) x->loads++, x->not_asked += !there;
        else x->stores++, x->missed += !there;
    }
}

static void waits(awaited *x, const kn_ls *list)
{
    for (const kn_ls *s = list; s; s = s->next) {
        bool memory = (s->kind == KN_LS_STORE || s->kind == KN_LS_PREFETCH) && x->lines[s->buffer];
        bool out = memory && x->run.p->buffers[s->buffer].slot >= 0;
        if (s->kind == KN_LS_UNIT) unit_moves(x, s->unit);
        if (s->kind == KN_LS_LET && s->value->dtype == KN_I64) x->run.value[s->var] = number(&x->run, s->value);
        if (memory && s->kind == KN_LS_PREFETCH) ask_for(x, s);
        if (out && s->kind == KN_LS_STORE) x->stores++, x->missed += !came(x, s->buffer, number(&x->run, s->index));
        if (s->kind == KN_LS_IF) waits(x, number(&x->run, s->value) ? s->body : s->other);
        if (s->kind != KN_LS_FOR) continue;
        for (int64_t v = number(&x->run, s->lo), end = number(&x->run, s->hi); v < end; v++) x->run.value[s->var] = v, waits(x, s->body);
    }
}

/* Beyond what L2 holds a unit's sums ask for the lines that their results go to, as vectors or tile by tile, and where rows lie in pages of their own
 * for those of the next tiles: of the operand as it lies only the first tiles of a task wait. Within L2 nothing is asked for. Between slices of long
 * sums it is what the next tile has so far. */
static void units_ask_for_what_they_want_next(void **state)
{
#define OF_HALVES "c[M,N] +=! a[M,K]*b[K,N]"
#define OF_BYTES "c[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32)"
    static const struct { const char *text, *inputs, *unit; int64_t l2; bool asks, rows; int parts; } one[] = {
        {OF_HALVES, "a=bf16:512x2048&b=bf16:2048x128:const", "amx_bf16", 1 << 18, true, true, 0},
        {OF_HALVES, "a=bf16:96x512&b=bf16:512x128:const", "amx_bf16", 1 << 17, true, false, 0},
        {OF_BYTES, "a=i8:512x4096&b=i8:4096x128:const", "amx_int8", 1 << 18, true, true, 0},
        {OF_BYTES, "a=i8:96x4096&b=i8:4096x128:const", "amx_int8", 1 << 24, false, false, 0},
        {OF_HALVES, "a=bf16:544x4096&b=bf16:4096x512:const", "amx_bf16", 1 << 18, false, false, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        opened o = first_of("x86-64-amx", one[i].text, one[i].inputs);
        char mapped[128];
        const char *unit = one[i].unit;
        int n = snprintf(mapped, sizeof mapped, "sample_mapping mapping0 out0 %s : I=S0;J=S1;R=R0\nmap out0 %s $mapping0\n", unit, unit);
        kn_tree *t;
        kn_lprog *p = NULL;
        kiln_diag d = {0};
        if (kn_trace_apply(o.a, o.p, o.hw, (kiln_bytes){mapped, (size_t)n}, &t, &d)) fail_msg("%zu: %s", i, d.message);
        for (int l = 0; l < o.hw->nlevels; l++)
            if (!strcmp(o.hw->levels[l].name, "l2")) o.hw->levels[l].capacity_bytes = one[i].l2;
        if (kn_lower(o.a, t, o.hw, &p, &d) || kn_lprog_check(p, &d)) fail_msg("%zu: %s", i, d.message);
        awaited x = {.run = {.p = p, .value = kn_array(o.a, int64_t, p->nvars)}};
        x.asked = kn_array(o.a, uint8_t *, p->nbuffers);
        x.lines = kn_array(o.a, int64_t, p->nbuffers);
        for (int b = 0; b < p->nbuffers; b++) {
            if (p->buffers[b].scope != KN_GLOBAL && p->buffers[b].scope != KN_SCRATCH) continue;
            x.lines[b] = (p->buffers[b].elems * kn_dtype_bytes(p->buffers[b].dtype) + 63) / 64;
            x.asked[b] = kn_array(o.a, uint8_t, (size_t)x.lines[b]);
        }
        for (int f = 0; f < p->nfns; f++) waits(&x, p->fns[f].body);
        if ((!x.loads && !x.parts) || !x.stores) fail_msg("%zu: %lld loads, %lld stores", i, (long long)x.loads, (long long)x.stores);
        if (one[i].asks ? x.missed * 4 > x.stores : x.missed != x.stores) /* of a tile the first ones keep the unit awake */
            fail_msg("%zu: of %lld stores %lld go to lines that were not asked for", i, (long long)x.stores, (long long)x.missed);
        if (one[i].rows ? x.not_asked * 2 > x.loads : x.not_asked != x.loads)
            fail_msg("%zu: of %lld rows %lld were not asked for", i, (long long)x.loads, (long long)x.not_asked);
        if (!x.parts != !one[i].parts || x.parts_missed * 4 > x.parts)
            fail_msg("%zu: of %lld rows of results so far %lld were not asked for", i, (long long)x.parts, (long long)x.parts_missed);
        kiln_arena_close(o.a);
    }
#undef OF_HALVES
#undef OF_BYTES
}

/* A description may have other names for its levels, or fewer of them: what is told apart by one of these is planned some other way. */
static void levels_may_have_other_names(void **state)
{
    static const char *const one[][2] = {
        {"y[N,P,Q,C] >=! pad(x,-inf)[N,P+R-1,Q+T-1,C] where P in 10, Q in 12, R in 3, T in 3", "x=f32:1x10x12x1024"},
        {"y[N,P,Q,C] +=! pad(x,0.0)[N,P+R-1,Q+T-1,C]*w[R,T,C] where P in 10, Q in 12, R in 3, T in 3", "x=f32:1x10x12x1024&w=f32:3x3x1024"},
        {"y[N,P,Q,C] >=! x[N,P*2+R,Q*2+T,C] where P in 5, Q in 6, R in 3, T in 3", "x=f32:1x11x13x256"},
        {"y[N,C,P,Q] +=! pad(x,0.0)[N,C,P+R-1,Q+T-1]*w[C,R,T] where P in 11, Q in 11, R in 3, T in 3", "x=f32:2x32x11x11&w=f32:32x3x3"},
        {"y[M,N] +=! a[M,K]*b[K,N]", "a=f32:49x512&b=f32:512x256"}, {"y[N,M] = x[M,N]", "x=f32:512x512"},
        {"y[N,M] = x[M,N]", "x=f32:704x10025"}, {"y[J] +=! x[I,J]", "x=f32:33333x300"}, {"y[I] +=! x[I,J]", "x=f32:65536x200"},
        {"c[B,M,N] +=! a[B,M,K]*b[B,K,N]", "a=f32:59x12x429&b=f32:59x429x424"},
        {"y[N,P,Q,C] >=! pad(x,-inf)[N,P+R-1,Q+T-1,C] where P in 41, Q in 41, R in 3, T in 3", "x=f32:8x41x41x1072"}};
    static const char *const names[] = {"l1", "l2", "l3"};
    (void)state;
    for (size_t i = 0; i < 3 * sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-avx512");
        const char *text = one[i / 3][0], *inputs = one[i / 3][1];
        kn_program *p;
        kiln_candidates *c;
        kiln_kernel *k;
        kiln_diag d = {0};
        for (int l = 0; l < hw->nlevels; l++)
            if (!strcmp(hw->levels[l].name, names[i % 3])) hw->levels[l].name = "other";
        assert_int_equal(kn_parse(a, (kiln_bytes){text, strlen(text)}, (kiln_bytes){inputs, strlen(inputs)}, &p, &d), KILN_OK);
        if (kiln_construct(a, p, hw, "default", 4, &c, &d) || c->n < 1) fail_msg("%s without %s: %s", text, names[i % 3], d.message);
        if (kiln_generate(a, p, hw, c->c[0].trace, &k, &d)) fail_msg("%s without %s: %s", text, names[i % 3], d.message);
        kiln_arena_close(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(windows_are_planned), cmocka_unit_test(windows_on_a_unit_share_a_copy),
                                       cmocka_unit_test(levels_may_have_other_names),
                                       cmocka_unit_test(taps_change_places_in_registers),
                                       cmocka_unit_test(units_are_kept_awake_and_fed),
                                       cmocka_unit_test(units_ask_for_what_they_want_next)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
