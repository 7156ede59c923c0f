/* Schedules: a trace (list of primitives with their decisions) applied to a TE program gives a tile tree.
 *
 * The text of a trace has one step a line, `primitive arg...`; names are those of the program it applies to: statements are named by
 * the tensor they write. Axis names come from the canonical program; split makes loops NAME.0 (outermost) .. NAME.k (innermost).
 *
 *   inline T                     compute_inline: map statement T into its readers (T must be a temporary)
 *   epilogue T                   reverse_compute_inline: map statement that reads T, at identity index alone, becomes T's epilogue: it is
 *                                evaluated when T's finished value is stored; T itself is then never stored
 *   fuse S NAME A B [C ...]      axes A, B, ... of statement S (all spatial or all reduce, given outer to inner) become one axis NAME
 *   cache_write S T              S writes the new temporary T, a copy statement behind it writes what S wrote; S is named T from then on
 *   reindex S I T                load I of S goes through the new temporary T, indexed by exactly the axes the load uses
 *   reindex S out T              S writes the new temporary T at its spatial axes, a copy behind it writes what S wrote; S is named T from then on
 *   copy S I T                   load I of S reads T, a new temporary copy of the whole tensor that it read
 *   widen S I T                  what S's body casts load I to is made once, in the new temporary T of the shape of the tensor read
 *   tabulate S T [read]          a part of map S that reads nothing and follows some of S's axes alone is computed once in the new temporary T of
 *                                these axes; `read`: one that reads tensors and calls a function
 *   unsign S I T U W             the i8 load I of a sum of products of integers reads T, which is u8 and 128 more; U sums the other factor, S writes
 *                                W, a copy behind it W - 128*U; S is named W from then on
 *   decompose_padding S I T      the padded load I reads the new temporary T, the box it touches with the padding filled in
 *   flatten_window S I A B V T W axes A and B, along which load I slides a window, become one axis V over whole rows; T holds the plane with its
 *                                padding and strides resolved, W the result with the columns between rows, from which a copy takes what S wrote
 *   unfold S I B R C V T         load I, along a dimension of which spatial axis B and reduce axis R slide, reads T, where every window along B has
 *                                its elements side by side; R and reduce axis C, which is another dimension, become one axis V
 *   unstride S I B T             load I, over a dimension of which spatial axis B steps by a stride, reads T, where that dimension is two: the
 *                                remainder by the stride, and the columns of one remainder side by side; padding filled in
 *   pad_einsum S A n             axis A of a sum of products grows to a multiple of n; operands and result through padded temporaries
 *   transform_layout T TERM ...  temporary T gets dimensions TERM: d, or d/N and d%N (N divides), or d:e, dimensions d to e as one
 *   divide S A OUTER INNER f     axis A becomes axes OUTER and INNER of extent f, which must divide it: the inverse of fuse
 *   part S A K n T               the reduction along A is cut into n parts: temporary T has their results at K and S's spatial axes, in the dtype
 *                                that S accumulates in; S combines them over K, and with them what n parts leave over of a sum along A alone
 *   separate S A T [inside]      S's reduction along A, of one load, is made first, in the new temporary T over the axes of that load; S reduces T;
 *                                `inside`: T has no places in padding, S reads them as padding of T
 *   sample_perfect_tile NAME S A n most [: f1 ... fn] | sample_categorical NAME c0 c1 ... [: k] | sample_compute_location NAME P S [: L]
 *                                a decision that a search may change; $NAME (or $NAME.k) stands for it in later steps
 *   split S A f1 [f2 ...] [exact] axis A becomes loops A.0 .. A.n; A.i has extent fi for i >= 1, A.0 = ceil(extent / prod f). Strides are
 *                                those of the nest in name order: stride(A.n) = 1, stride(A.i) = stride(A.i+1) * f(i+1). An axis that is
 *                                never split is the single loop A.0.
 *   reorder S L1 L2 | L3 | ...   the order of ALL loops of S, outer to inner; '|' ends one tile (memory level) and starts the next
 *   blockize S L                 loop L and those inside become a tile of their own
 *   parallel S L                 CPU task loop; all parallel loops must come first in the order
 *   bind S L grid|thread|warp|vthread GPU; grid loops come first, then thread loops; vthread loops are unrolled into registers. An iteration of
 *                                a warp loop is a warp's: its threads compute an instruction together
 *   vectorize S L                innermost loop; of a GPU's only maps. On a reduce axis: partial sums per lane, combined at the end (implies rfactor)
 *   unroll S L                   fully unrolled into registers
 *   annotate S L unroll N        the toolchain is asked to unroll N iterations of serial loop L
 *   decompose_reduction S L      CPU; partial results are set to the identity at L, by a nest of their own
 *   rfactor S L                  reduce loop whose every iteration keeps its own accumulator, combined at the end; on a GPU thread loop:
 *                                combined across threads through shared memory
 *   tensorize S L INTRIN [I=LOOP ...]
 *                                loop L and those inside it are computed by instruction INTRIN of the target. Its loops are matched with these
 *                                by kind and extent, or as named; a loop of the instruction left out of the names runs over zeros
 *   sample_mapping NAME S INTRIN [: MAPPING] | map S INTRIN MAPPING
 *                                MAPPING, as I=S0,S2;J=S1;R=R0, says which axes of S feed which loop of INTRIN (intrin/map.h): map fuses them,
 *                                cuts them at the instruction's extents and tensorizes; sampled, the fastest predicted unless one is given
 *   cache_read S I SCOPE L loops L1 L2 ... [pad N]
 *                                load number I of S's body (kn_loads order) is read from a buffer filled at the start of loop L's body; the
 *                                buffer is indexed by the named loops (outer to inner, all inside L; every loop inside L that the load
 *                                depends on must be named); SCOPE is scratch (CPU, per thread) or shared (GPU); elements whose axis value
 *                                is out of range are filled with zero; pad N appends N elements to the innermost row
 *                                a loop may stand there as L/N and L%N, its quotient and remainder: groups of N interleaved with another loop
 *   cache_read S I SCOPE L region [pad N]
 *                                the same, but the buffer holds the load's bounding box (footprint: sum |c|*(t-1)+1 a dimension) in the
 *                                tensor's own dimension order; out-of-range elements are filled with the pad value
 *   cache_read S I scratch L region last D [pad N]
 *                                the same with dimension D innermost, of which a vector's 4, 8 or 16 elements are held: rows of the tensor are
 *                                turned in registers; what is held beyond the end of D is any of its elements
 *   prepack S I L1 L2 ...        CPU; load I, the only one of an input that is constant but for those of stages that are ahead, is read from a copy
 *                                indexed by the named loops (outer to inner, every loop that the load depends on must be named), which is made
 *                                once, before the first call, and given in the input's place (docs/abi.md); elements whose axis value is out of
 *                                range are zero
 *   ahead S                      CPU; S, which writes a temporary and reads nothing but one constant input, is computed once, before the first call:
 *                                its result lies behind what the kernel is given in that input's place (docs/abi.md); of what S reads, other
 *                                statements may prepack. From then on its loops alone may change
 *   keep S I L                   GPU; what load I reads is read once, at the start of grid or thread loop L, into registers of the threads;
 *                                S, and what is computed at L, take from there what they read of it in the same thread
 *   storage_align S I f o        rows of the cache of load I start o elements behind a multiple of f
 *   double_buffer S I [N [async|bulk]]
 *                                GPU; the cache of load I has N copies, 2 unless said: while one is read the others are filled for the next N - 1
 *                                iterations, a pipeline of N stages; async: by the device's asynchronous copies where addresses allow it; bulk: by
 *                                its copy engine, which threads of their own ask for whole tiles (bulk.c says what must hold)
 *   persist S N                  GPU, caches filled by bulk copies; no more blocks than run at once walk over the tiles, N rows of them at a time
 *   cluster S L N                GPU, the same; blocks that N neighbours of grid loop L become share what does not depend on L: each fetches a part
 *                                of it for all of them
 *   store S bulk                 GPU, the same; results leave through shared memory, by the copy engine
 *   swizzle S I [panels]         GPU; in the cache of load I, runs of 16 bytes change places inside their rows, by the number of the row; panels:
 *                                rows are cut at 128 bytes first, and what lies above each other becomes a panel
 *   set_scope S I SCOPE          the memory of the cache of load I
 *   reverse_compute_at C P L     the map C that reads P at its own axes is computed behind the part of P that L's body makes
 *   compute_at P S L             statement P (producer of a temporary read by S, or by what is attached to S at L or inside it) is computed at the
 *                                start of loop L's body of S. P's leading loops must mirror S's loops up to L (same axis through the
 *                                reads of P, of identity or at indices that lay out one axis as P does, //16 and %16; same extents, for the latter
 *                                no turn cut off); they become S's. P's tensor, or its epilogue's, becomes a scratch buffer of the
 *                                region needed there. On a GPU L is a grid or thread loop, P's own thread loops are those of S inside L, and
 *                                each thread keeps in registers what it makes: its elements of P are those that it reads (own.c)
 *
 * One primitive = one file prim_NAME.c + one row in prims.def. A step that does not fit is refused with the step number, the statement, and
 * the loop or axis named; the program stays untouched. */
#ifndef KN_SCHEDULE_H
#define KN_SCHEDULE_H
#include "intrin/intrin.h"

enum kn_loop_kind { KN_SERIAL, KN_PARALLEL, KN_GRID, KN_THREAD, KN_VTHREAD, KN_UNROLL, KN_VECTOR };
static inline bool kn_is_register(enum kn_loop_kind k) { return k == KN_UNROLL || k == KN_VTHREAD || k == KN_VECTOR; }
enum kn_scope { KN_GLOBAL, KN_SCRATCH, KN_SHARED, KN_REGISTER, KN_FRAGMENTS, KN_PARAM, KN_PACKED };
/* FRAGMENTS: a tile that lies in the registers of a warp's threads; of blocks only. PACKED: a constant input as prepack orders it,
 * or what a stage that is ahead makes of it */

/* axis value = sum over its loops of loop variable * stride (may reach past the axis's extent in tail tiles) */
typedef struct kn_loop {
    char name[KILN_MAX_NAME_BYTES + 8];
    int axis;              /* of the statement */
    int64_t extent, stride;
    enum kn_loop_kind kind;
    bool rfactor;
    bool warp;             /* THREAD: one iteration is a warp's, not a thread's */
    int unroll;            /* annotate: iterations that the toolchain is asked to unroll, 0: its own choice */
    int tile;              /* index of the tile (group between '|') it stands in, 0 = outermost */
    int shared_with;       /* compute_at: loop index of the consumer stage this loop coincides with, else -1 */
} kn_loop;

typedef struct kn_cache {
    int load;              /* number of the load in the body */
    enum kn_scope scope;
    int at;                /* loop index: filled at the start of its body; -1: before the first call (PACKED) */
    bool region;
    int last;              /* region: 1 + the dimension that lies innermost, in the place of the tensor's last one; 0: that one */
    int nloops;
    int loops[KILN_MAX_LOOPS];
    int64_t by[KILN_MAX_LOOPS], count[KILN_MAX_LOOPS]; /* dimension i is loop / by % count; 0: by 1, and all that is left */
    int64_t pad;
    bool swizzle;          /* runs of 16 bytes are permuted, see kn_swizzle_of */
    bool panels;           /* rows longer than 128 bytes are cut into panels of that width, one after the other */
    bool async;            /* copies are filled asynchronously */
    bool bulk;             /* by the copy engine, see kn_bulk_of */
    const kn_affine *address; /* bulk: element number over the axes; NULL: it is not affine */
    const struct kn_window *window; /* bulk: where the address is not affine, the load as one of a window; NULL: it is none */
    int copies;            /* double_buffer: filled copies - 1 iterations ahead of the one that computes; 0: one copy */
} kn_cache;

/* The loops that an instruction computes: those from `at` on. loop[l] is the one that is the instruction's loop l; -1: none, only its first
 * iteration is wanted. */
typedef struct kn_tensor_tile { const kn_intrin *intrin; int at, loop[KN_INTRIN_LOOPS]; } kn_tensor_tile;

/* A scheduled statement: loops in order (outer to inner) and what hangs on them. */
typedef struct kn_stage {
    int stmt;              /* in tree->program */
    int epilogue;          /* statement evaluated at store, -1: none (then tree->program's statement `stmt` stores itself) */
    int nloops;
    kn_loop loops[KILN_MAX_LOOPS];
    int ncaches;
    kn_cache *caches;      /* ncaches of them, kn_stage_add_cache */
    int init_at;           /* decompose_reduction: loop at whose start the partial results are set to the identity; -1: by the first tile */
    kn_tensor_tile tensor; /* intrin NULL: none */
    uint32_t kept;         /* loads whose elements the threads read once, at the start of loop kept_at, and hold in registers */
    int kept_at;
    int at_stage, at_loop; /* compute_at: consumer stage and its loop index; -1: a kernel (parallel region) of its own */
    int persist;           /* rows of tiles that blocks walk over at a time; 0: a block a tile */
    int cluster, cluster_loop; /* blocks of a cluster, neighbours in that grid loop; 0: none */
    bool ahead;            /* computed before the first call */
    bool bulk_store;       /* results leave by bulk copies, of KN_BULK_ROWS rows of 128 bytes */
    const char *name;      /* of a scatter, TENSOR.1 for the first into it; NULL: that of the tensor */
} kn_stage;

enum { KN_SAMPLED = 128, KN_MOST_UNROLLED = 64 /* iterations of a loop that is written out */ };

/* The tile tree: tile n of a stage is its loops with tile == n; the innermost tile holds the block (the statement). */
typedef struct kn_tree {
    kn_program *program;   /* after inline, epilogue and fuse */
    int nstages;
    kn_stage *stages[KILN_MAX_STMTS]; /* execution order */
    int nsampled;          /* what sampling primitives decided: $NAME or $NAME.k in later steps */
    struct { const char *name, *value; } sampled[KN_SAMPLED];
} kn_tree;

/* Applies a trace. Lines that are empty or start with '#' are ignored. hw gives the limits that primitives check (threads, shared). */
kiln_status kn_trace_apply(kiln_arena *a, const kn_program *canonical, const kn_hw *hw, kiln_bytes trace, kn_tree **out, kiln_diag *d);
/* The same trace with every sampled decision written out behind ':', so that it says the same when defaults change. */
kiln_status kn_trace_complete(kiln_arena *a, const kn_program *canonical, const kn_hw *hw, kiln_bytes trace, kiln_bytes *out, kiln_diag *d);
/* The sampling steps of a trace, for a search to change: at most cap are listed, in order; returns how many there are. */
typedef struct kn_decision { int line; const char *prim, *name, *decision; } kn_decision; /* line: 1-based; decision "" where none is written */
int kn_trace_decisions(kiln_arena *a, kiln_bytes trace, kn_decision *out, int cap);
/* The trace with another decision in that line, which must hold a sampling step; p NULL: out of memory or no such step. */
kiln_bytes kn_trace_decide(kiln_arena *a, kiln_bytes trace, int line, const char *decision);
/* One step, a line of a trace, on a copy of t; refused or not, t stays as it was. The end checks (order of loop kinds, coverage, limits of the
 * target) are kn_trace_end's: a trace may pass through states that they refuse. */
kiln_status kn_trace_start(kiln_arena *a, const kn_program *canonical, kn_tree **out, kiln_diag *d);
kiln_status kn_trace_step(kiln_arena *a, const kn_tree *t, const kn_hw *hw, kiln_bytes line, kn_tree **out, kiln_diag *d);
kiln_status kn_trace_end(kn_tree *t, const kn_hw *hw, kiln_diag *d);
/* Divides the axes of a statement that its indices take apart (A//c, A%c with c dividing A): *tree becomes another, the steps go to `lines`. */
kiln_status kn_trace_cut_axes(kiln_arena *a, const kn_hw *hw, int stmt, kn_tree **tree, kn_buf *lines, kiln_diag *d);
/* The tree as indented text, a line a tile, for explain and golden tests. */
void kn_tree_print(kn_buf *b, const kn_tree *t);
/* Bytes of a cache's buffer, its elements a row and rows; 0 on overflow. */
int64_t kn_cache_bytes(const kn_tree *t, const kn_stage *s, const kn_cache *c);
/* First loop of an instruction's tile; else of the register tile: everything behind the last serial spatial loop and behind the task and thread
 * prefix. Its unrolled, vthread and vector loops are registers and lanes, whatever reduce loops stand between them. */
/* One more cache, at most KN_CACHES; false: out of memory. A list of its own: most stages have none or two, and every step copies the stages. */
enum { KN_CACHES = 16 };
bool kn_stage_add_cache(kiln_arena *a, kn_stage *g, const kn_cache *c);
int kn_stage_register_tile(const kn_stmt *s, const kn_stage *g);
/* A sum whose vector axis does not end with a whole register tile: the unrolled loop of its vectors, how many of them the last tile needs, which
 * begins at element `from` of the axis. false: it needs all, the axis is cut otherwise, or the terms are few. */
typedef struct kn_short_tile { int loop; int64_t vectors, from; } kn_short_tile;
bool kn_stage_last_tile(const kn_stmt *s, const kn_stage *g, kn_short_tile *out);
bool kn_stage_short_tile(const kn_stmt *s, const kn_stage *g, kn_short_tile *out);
/* The constant input that the stage's statement reads, and nothing else (prim_ahead.c); -1: there is none such. */
int kn_stage_constant(const kn_tree *t, const kn_stage *g);
/* Loads of a tensor by statements that are not computed ahead. */
int kn_loads_in_calls(const kn_tree *t, int tensor);
/* What stands for the sources of an instruction in the stage's body, source[1] .. (NULL: not wanted); false, and why, where the body over these
 * loops does not compute what the instruction does. */
bool kn_tensor_sources(const kn_tree *t, const kn_stage *g, const kn_tensor_tile *x, const kn_expr **source, char *why, size_t cap);
/* The tensor that the stage stores: its statement's, or its epilogue's. The stage's axis for axis `axis` of `stmt`, its statement or its
 * epilogue, and for dimension `dim` of that tensor; -1: it is none alone. */
int kn_stage_out(const kn_tree *t, const kn_stage *g);
int kn_stage_axis_of(const kn_tree *t, const kn_stage *g, int stmt, int axis);
/* The stage's statement as its epilogue sees it: of axes that have grown to an instruction's whole tiles as much as is wanted. NULL: out of
 * memory. */
const kn_stmt *kn_stage_wanted(kiln_arena *a, const kn_tree *t, const kn_stage *g);
int kn_stage_out_axis(const kn_tree *t, const kn_stage *g, int dim);
int kn_stage_out_part(const kn_tree *t, const kn_stage *g, int dim, int64_t *by); /* the same where it is the axis // by, as in a layout of tiles */
int64_t kn_cache_row(const kn_tree *t, const kn_stage *s, const kn_cache *c); /* elements of its innermost row, without pad */
/* Element e of a swizzled cache lies at e ^ (e / unit % runs * run): rows of 128 bytes or more have 8 runs of 16 bytes to place anew, rows of
 * 64 bytes 4; eight neighbouring rows then hold one column in eight different sixteenths of 128 bytes. False: the rows are of no such length. */
typedef struct kn_swizzle { int64_t unit, runs, run, row, rows; } kn_swizzle; /* elements; row, rows: of the cache as its loops say */
bool kn_swizzle_of(const kn_tree *t, const kn_stage *s, const kn_cache *c, kn_swizzle *out);
int kn_stage_lanes(const kn_stage *s, const kn_hw *hw); /* threads that compute an instruction together */
/* Iterations that a cache with copies is filled ahead: one less where the instruction still reads the copy of the last iteration. */
int kn_cache_ahead(const kn_stage *s, const kn_cache *c);
/* Results of the stage's instruction that stay in registers of its own unit over the whole reduction; 0: they do not. */
/* The reduce loop of a tensorized stage, or the first of several, inside of which every spatial loop is unrolled; g->tensor.at: there is none. */
int kn_stage_inner_reduce(const kn_stmt *s, const kn_stage *g);
int kn_cache_order(const kn_cache *c, int n, int i); /* which of its n dimensions stands i-th in the buffer, outermost first */
int64_t kn_cache_dim(const kn_stage *g, const kn_cache *c, int i); /* extent of dimension i of a copy that is indexed by loops */
int64_t kn_stage_unit(const kn_tree *t, const kn_stage *g, const kn_hw *hw);
bool kn_stage_warps(const kn_stage *s);                /* its threads are warps that compute an instruction together */
int kn_stage_threads(const kn_stage *s, const kn_hw *hw); /* of a block, those that ask for bulk copies with them */
/* bulk.c: tiles that the copy engine brings. A stage has bulk caches only or none; 128 threads more than compute ask for them. */
enum { KN_BULK_ROWS = 64, KN_BULK_STAGED = 2 * KN_BULK_ROWS * 128 }; /* bytes of results that a group has on their way: two boxes */
enum { KN_BULK_RANK = 5, KN_BULK_THREADS = 128, KN_BULK_BARRIERS = 1024 /* bytes of shared memory for them */ };
/* A load as a tensor of the axes that it depends on, fastest first: dimension d is `axis[d]`, `stride[d]` bytes a step. A box of it is copied at
 * once, 128 bytes of the fastest dimension (the swizzle's) by box[rows] of dimension `rows`. `boxes` of them, neighbours along the fastest one, by
 * `parts` of them, neighbours along `rows`, are a tile; the parts come from the blocks of a cluster. */
/* A load [image, row, column, channel] as the copy engine walks over it (window.c): axis[0] counts pixels of the output, axis[1] the places of the
 * window and channels. Columns come first, then rows: pixel p begins at lower + p * step, tap k is k * apart further. */
typedef struct kn_window {
    int axis[2];
    int64_t channels, pixels[2], taps[2], step[2], apart[2], lower[2], upper[2];
} kn_window;
typedef struct kn_bulk {
    const kn_window *window; /* NULL: a box; else rank 4, rows 1, box[1] pixels of 128 bytes of channels */
    int rank, axis[KN_BULK_RANK], box[KN_BULK_RANK], rows, boxes, parts;
    int64_t extent[KN_BULK_RANK], stride[KN_BULK_RANK];
} kn_bulk;
bool kn_stage_bulk(const kn_stage *s);
/* own.c: on a GPU, what is computed in another stage's blocks is each thread's own. */
kiln_status kn_own_check(const kn_tree *t, const kn_stage *g, const kn_hw *hw, kiln_diag *d);
/* The loop of the consumer whose thread numbers thread loop i of an attached stage takes over, -1: i is not bound to threads, or there is none. */
int kn_own_thread(const kn_tree *t, const kn_stage *g, int i);
bool kn_bulk_of(const kn_tree *t, const kn_stage *s, const kn_cache *c, kn_bulk *out, char *why, size_t cap);
/* The same of what a stage with bulk stores stores: boxes of KN_BULK_ROWS rows. */
bool kn_bulk_out(const kn_tree *t, const kn_stage *s, kn_bulk *out, char *why, size_t cap);
int64_t kn_stage_bulk_bytes(const kn_stage *s, const kn_hw *hw); /* of shared memory, beside the caches */
/* The cluster's blocks want the same of this cache: it does not depend on the loop that they are neighbours in. */
bool kn_cache_multicast(const kn_tree *t, const kn_stage *s, const kn_cache *c);
int64_t kn_stage_blocks(const kn_stage *s, const kn_hw *hw); /* of the launch */
int kn_stage_registers(const kn_stage *s, const kn_hw *hw, bool asks); /* a thread's, of those that compute or that ask; 0: as launched */
#endif
