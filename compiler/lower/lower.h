/* The state of lowering and what its files share. Private to compiler/lower. */
#ifndef KN_LOWER_H
#define KN_LOWER_H
#include "lower/loop.h"

#define KN_LW_BUFFERS 256
enum {
    KN_LINE_BYTES = 64,    /* of x86-64's caches */
    KN_PAGE_BYTES = 4096,
    KN_ROWS_APART = 2048,  /* bytes: rows of which a short run is read so far from each other are no stream that a prefetcher follows */
    KN_LW_MANY = 32        /* registers with which borders.c and what belongs to it have not been measured, and are left out */
};

/* A temporary that lives in a scratch box: element idx of the tensor is at idx - base, row-major over size. base[d] NULL: 0. in_place: it has none,
 * but lies in the output that overwrites it (in_place.c). */
typedef struct kn_box { bool on, in_place; kn_expr *base[KILN_MAX_RANK]; int64_t size[KILN_MAX_RANK]; } kn_box;

/* What each thread has in registers of a tensor: vector number c of `buffer` is its element base + delta[c] (and those behind it in the last
 * dimension). Of a temporary there is nothing else. */
typedef struct kn_delta { int64_t by[KILN_MAX_RANK]; } kn_delta;
typedef struct kn_own { int tensor, buffer, lanes, n; bool temp; kn_expr *base[KILN_MAX_RANK]; kn_delta *delta; } kn_own;
enum { KN_LW_OWNS = 32 };

typedef struct kn_lw {
    kiln_arena *a;
    const kn_tree *t;
    const kn_hw *hw;
    kiln_diag *d;
    kn_lprog *p;
    kn_fn *fn;                               /* that is made now */
    kn_ls **tail;                            /* where the next statement is hung */
    int var_cap;
    int64_t *var_lo, *var_hi;                /* inclusive ranges of variables, for simplification */
    const kn_expr **var_value;               /* what a LET made them; NULL: they are loops' */
    int tensor_buffer[KILN_MAX_TENSORS];     /* -1: not made yet */
    int packed_buffer[KILN_MAX_TENSORS];     /* PACKED copies of inputs; -1: none */
    kn_box box[KILN_MAX_TENSORS];
    int nowns;
    kn_own own[KN_LW_OWNS];                  /* of the launch at hand */
    int64_t scratch, shared;
    int shared_align;                        /* of buffers in shared memory, 0: 16 bytes */
    kn_expr *thread;                         /* GPU: thread number */
    int threads;
    int streamed;                            /* GLOBAL buffer whose lines are written past the caches just now; -1: none */
    kn_expr dry;                             /* stands in for a node when memory has run out */
    kiln_status status;                      /* first failure; emission goes on harmlessly */
} kn_lw;

/* Terms of a reduction that lie in padding: those where by_reduce * axis `reduce` + by_spatial * axis `spatial` + from is not in [0, extent). Both
 * steps are positive; spatial -1: none. `loop` is the reduction's. */
typedef struct kn_skip { int loop, reduce, spatial; int64_t by_reduce, by_spatial, from, extent; } kn_skip;
/* An index of what padding is around: terms where it is not in [0, extent) add nothing. */
typedef struct kn_padded_dim { kn_affine at; int64_t extent; } kn_padded_dim;
enum { KN_LW_SKIPS = 4 };

/* One stage while it is lowered. */
typedef struct kn_sg {
    int index;                               /* in tree->stages */
    const kn_stage *g;
    const kn_stmt *s;
    kn_expr *val[KILN_MAX_LOOPS];            /* value of each open loop, NULL: not open */
    bool clipped[KILN_MAX_AXES];             /* loop bounds keep the axis in range */
    kn_expr *base[KILN_MAX_AXES];            /* first value of the axis in this register tile where the last tile is moved back, else NULL */
    int64_t few[KILN_MAX_LOOPS];             /* iterations of a register loop in this tile, fewer than it has; 0: all */
    kn_expr *inside[KILN_MAX_AXES];          /* where an axis shorter than its register tile has its last vector begin, or one by lines, else NULL */
    int kept_axis;                           /* 1 + the axis along which this tile was moved back over elements that stay as they are (in_place.c); */
    int had_axis;                            /* 1 + the one along which it was over elements that other tiles store; 0: none */
    int64_t kept;                            /* those below, of either */
    int by_lines;                            /* 1 + the axis whose vectors begin with lines of the output in this tile (lines.c); 0: none */
    int nloads;
    const kn_expr *loads[KILN_MAX_TENSORS];
    kn_expr *flat[KILN_MAX_TENSORS], *flat_out; /* element numbers of loads and output over the axes, where they are affine and their indices are
                                              * not (a row cut up and put together again); else NULL */
    int cache_of[KILN_MAX_TENSORS];          /* load -> cache or -1 */
    int turned_of[KILN_MAX_TENSORS];         /* load -> REGISTER buffer of its rows turned into lanes (turn.c), or -1 */
    int turn_loop;
    int cache_buffer[KN_CACHES];
    kn_expr *cache_base[KN_CACHES][KILN_MAX_RANK];  /* region caches */
    int64_t cache_size[KN_CACHES][KILN_MAX_RANK];
    int first_use;                           /* cache whose copy the tile at hand makes as it reads the tensor itself; -1: none (first_use.c) */
    int again;                               /* loop whose first iteration such tiles have been, -1: none; where it begins then */
    kn_expr *begun;
    kn_expr *filling[KN_CACHES];             /* value of its loop that a cache with copies is being filled for; NULL: not now */
    struct kn_sg *maker;                     /* of made.c: the map whose elements are made as this reduction reads them; NULL: none */
    const struct kn_sg *reader;              /* of a maker: that reduction */
    uint32_t nexts;                          /* loads behind which the next iteration's rows are asked for (next_rows.c) */
    int made, nmade;                         /* of a maker: REGISTER vectors made lately, -1: not yet; how many have been made */
    int part;                                /* SCRATCH partial results set to the identity at g->init_at, or before the reduce loops of an
                                              * instruction; -1: not made there */
    int sums;                                /* SCRATCH partial results of the tile, -1: not made yet */
    struct warp *warp;                       /* of warp.c */
    struct bulk *bulk;                       /* of bulk.c; NULL: no bulk copies */
    kn_expr *slot;                           /* bulk: number of the copy that is filled or read now */
    kn_expr *lane;                           /* number of the thread in its warp, where warps compute an instruction */
    int results;                             /* REGISTER vectors that an instruction's results stay in, -1: none */
    int unit[KN_INTRIN_OPERANDS];            /* where these are registers of its own unit: those of its sources; 0: they are not */
    bool unreduced[KILN_MAX_AXES];           /* what was clipped before those */
    int tile;                                /* first loop of the register tile */
    int nskips, npadded;
    kn_padded_dim padded[KN_LW_SKIPS];
    kn_skip skips[KN_LW_SKIPS];              /* one for an axis at most */
    int first_reduce;                        /* outermost reduce loop inside a task, or nloops */
    bool rolled;                             /* the register tile is walked by scalar loops */
    bool drawn_in;                           /* what its loops' bounds leave out is asked nowhere else (borders.c) */
    bool row;                                /* the register tile is a row of known place */
    bool moved;                              /* what the open loops' tiles would write is there already (folded.c) */
    bool guarded;                            /* loads are guarded by their axes' extents */
    uint32_t over;                           /* axes shorter than a vector, whose rows are read in whole vectors (over.c); 0: none */
    uint32_t past;                           /* axes whose ends rows of a map's tile may lie past, which is asked row by row; 0: none */
} kn_sg;

/* Vector loads of one step of a register tile, by the register loops of its axes: most of its elements read what another one has read. */
typedef struct kn_memo {
    uint32_t axes[KILN_MAX_TENSORS];         /* of each load */
    kn_expr **made[KILN_MAX_TENSORS];        /* by number of the element, counted over the load's own loops; NULL: none */
} kn_memo;

/* How expressions of a statement become loop expressions. */
typedef struct kn_env {
    kn_lw *w;
    const kn_sg *sg;                         /* caches; NULL: none */
    const kn_stmt *s;
    kn_expr *av[KILN_MAX_AXES];              /* value of each axis */
    int lane_var, lanes;                     /* lane_var -1: scalar */
    int repl_tensor;                         /* loads of it become repl; -1: none */
    kn_expr *repl;
    kn_expr *guard;                          /* scalar condition under which loads that may leave their tensor are done */
    bool guard_axes;                         /* loads are guarded by the extents of their axes */
    kn_memo *memo;                           /* NULL: every load is made anew */
} kn_env;

kiln_status kn_lw_fail(kn_lw *w, kiln_status s, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int kn_lw_var(kn_lw *w, const char *base, int64_t lo, int64_t hi);
kn_expr *kn_lw_ref(kn_lw *w, int var);
int kn_lw_buffer(kn_lw *w, const char *base, enum kn_dtype t, int lanes, int64_t elems, enum kn_scope scope);
int kn_lw_tensor(kn_lw *w, int tensor);
int64_t kn_lw_elems(const kn_tensor *x);
bool kn_lw_beyond_l2(const kn_lw *w, int tensor); /* all of it has more bytes */
kn_expr *kn_lw_node(kn_lw *w, enum kn_op op, enum kn_dtype t, int lanes, kn_expr *x, kn_expr *y, kn_expr *z);
kn_expr *kn_lw_int(kn_lw *w, int64_t x);
kn_expr *kn_lw_simp(kn_lw *w, kn_expr *e);
void kn_lw_range(kn_lw *w, const kn_expr *e, int64_t *lo, int64_t *hi); /* inclusive; all of int32 when unknown */
int64_t kn_lw_iterations(kn_lw *w, const kn_ls *loop); /* of a FOR, at most */
void kn_lw_share(kn_lw *w, kn_ls **list);                              /* see share.c */
void kn_lw_anew(kn_lw *w, kn_ls **list);                               /* see anew.c */
void kn_lw_held(kn_lw *w, kn_ls **at);                                 /* see held.c: of the run of stores that begins there */
void kn_lw_hoist(kn_lw *w, kn_ls **list);                              /* see hoist.c */
void kn_lw_unswitch(kn_lw *w, kn_ls **list);                           /* see unswitch.c */
void kn_lw_spread(kn_lw *w, kn_ls **list);                             /* see spread.c */
void kn_lw_collapse(kn_lw *w, kn_ls **list);                           /* see collapse.c */
void kn_lw_picked(kn_lw *w, kn_ls **list);                             /* see picked.c */
void kn_lw_passing(kn_lw *w, kn_ls **list);                            /* see passing.c */
void kn_lw_arriving(kn_lw *w, kn_ls **list);                           /* see arriving.c */
void kn_lw_awake(kn_lw *w, kn_ls **list);                              /* see awake.c */
/* reduce.c: of so many steps of a loop, which go on with so many sums in registers, those that the toolchain writes out: where registers are so few
 * that a step is short, what counts the loop, and where its text happens to begin in a line of instructions, take a tenth of the time (the mean of 90
 * products on a Zen 3; up to 1.5 times as long of the smallest tiles). 0: its own choice. */
int kn_lw_written_out(const kn_lw *w, int64_t steps, int64_t sums);
void kn_lw_forward(kn_lw *w, kn_ls **list);                            /* see forward.c */
kn_expr *kn_lw_and(kn_lw *w, kn_expr *x, kn_expr *y); /* NULL is true */
kn_expr *kn_lw_below(kn_lw *w, kn_expr *x, int64_t limit); /* x < limit, NULL when that is certain */
kn_expr *kn_lw_in_dim(kn_lw *w, kn_expr *i, int64_t n);    /* 0 <= i < n, NULL when that is certain */
kn_expr *kn_lw_read(kn_lw *w, int buffer, kn_expr *index, int lanes);
kn_expr *kn_lw_splat(kn_lw *w, kn_expr *x, int lanes);
kn_expr *kn_lw_lanes(kn_lw *w, kn_expr *x, int var, int lanes);
kn_expr *kn_lw_zero(kn_lw *w, enum kn_dtype t, double x);
kn_expr *kn_lw_at_lane(kn_lw *w, kn_expr *e, int var, kn_expr *with);
bool kn_lw_uses(const kn_expr *e, int var);
bool kn_lw_reads(const kn_expr *e, int buffer); /* something of it */
bool kn_lw_coefficient(const kn_expr *e, int var, int64_t *c); /* of var in e; false when e is not affine in it */
bool kn_lw_unit_stride(const kn_expr *e, int var); /* e is affine in var with coefficient 1 */
/* Vectors x, y, ... of `lanes` elements each become as many that hold x0 y0 .. x1 y1 ...: in rounds of two, the first half with the second. */
int kn_lw_zip_round(kn_lw *w, int from, enum kn_dtype t, int lanes, int q, int block);
kn_expr *kn_lw_zip(kn_lw *w, enum kn_op op, int n, kn_expr *const *args, int part); /* ZIP or UNZIP: vector `part` of those made of n vectors */
kn_expr *kn_lw_read_over(kn_lw *w, int buffer, const kn_expr *load, kn_expr *at, int lanes); /* over.c: a row, and what follows it */
/* Lanes along a row of a tensor: lane l is column `column` + l * step where that is in range, and `cond` holds (NULL: it does), else `other`. The row
 * begins at element `begin` of the buffer; NULL: which columns these are is not known. */
typedef struct kn_lane_row { int buffer; kn_expr *begin, *cond, *other; int64_t column, step, extent; } kn_lane_row;
bool kn_lw_picks_apart(int64_t step); /* lanes so many columns apart are known to it */
kn_expr *kn_lw_row_lanes(kn_lw *w, const kn_lane_row *r, int lanes); /* edge.c; NULL: no, or one run in range, which is read as such */
kn_expr *kn_lw_few_apart(kn_lw *w, int buffer, kn_expr *begin, int64_t step, int lanes); /* of lanes `step` apart from there on; NULL: too far */
/* runs.c: the lanes of a read whose distances are known and that fall into a few runs; NULL: they do not. */
kn_expr *kn_lw_few_runs(kn_lw *w, int buffer, kn_expr *at, int lane_var, int lanes);
kn_expr *kn_lw_pick(kn_lw *w, int lanes, int n, kn_expr *const *from, const int *number); /* so many lanes of n vectors, by their numbers */
/* middle.c: every other lane of two such vectors is a shuffle inside of halves and an exchange of the quarters in the middle; the exchange; the pass
 * that moves it behind sums. */
bool kn_lw_halves_apart(const kn_lw *w, enum kn_dtype t, int lanes);
kn_expr *kn_lw_exchange(kn_lw *w, kn_expr *e);
void kn_lw_middle(kn_lw *w, kn_ls **list);
void kn_lw_opened(kn_lw *w, kn_ls **list); /* opened.c */
/* halves.c: the pass; whether vectors of so many lanes may become halves. */
void kn_lw_halves(kn_lw *w, kn_ls **list);
bool kn_lw_takes_halves(const kn_lw *w, enum kn_dtype t, int64_t lanes);
/* Statements. for/if return the statement; the caller moves w->tail into its body and back. */
kn_ls *kn_lw_for(kn_lw *w, int var, kn_expr *lo, kn_expr *hi);
kn_ls *kn_lw_if(kn_lw *w, kn_expr *cond);
static inline bool kn_lw_never(const kn_expr *condition) { return condition && condition->op == KN_OP_CONST_I && !condition->u.i; }
kn_expr *kn_lw_let(kn_lw *w, const char *base, kn_expr *value);
void kn_lw_store(kn_lw *w, int buffer, kn_expr *index, kn_expr *value);
/* Of what is written past the caches the lanes in the line that begins `by` elements behind; NULL: all. The statement. */
kn_ls *kn_lw_store_line(kn_lw *w, int buffer, kn_expr *index, kn_expr *value, kn_expr *by);
/* The program touches so much that whole lines of this output are written past the caches. */
bool kn_lw_past_caches(const kn_lw *w, int out);
bool kn_lw_long_functions(const kn_expr *e); /* what is computed takes longer than writing it does */
int64_t kn_lw_touched(const kn_lw *w);    /* bytes of all that lies in memory */
void kn_lw_prefetch(kn_lw *w, int buffer, kn_expr *index, bool writes);
void kn_lw_prefetch_to_l2(kn_lw *w, int buffer, kn_expr *index); /* where L1 has no room for what is read later */
/* As many lines, `step` elements from one to the next. */
void kn_lw_prefetch_lines(kn_lw *w, int buffer, kn_expr *from, int64_t lines, int64_t step, bool writes);
void kn_lw_barrier(kn_lw *w);
void kn_lw_call(kn_lw *w, const kn_call *c);
void kn_lw_fragment(kn_lw *w, const kn_fragment *f);
void kn_lw_unit(kn_lw *w, const kn_unit_step *step);
void kn_lw_commit(kn_lw *w);
void kn_lw_wait(kn_lw *w, int groups);
void kn_lw_group(kn_lw *w, int step);
void kn_lw_group_end_of(kn_lw *w, int results); /* all have ended, and their results are what the registers hold */
void kn_lw_store_async(kn_lw *w, int buffer, kn_expr *index, kn_expr *value);
/* Expressions of a statement. */
void kn_env_axes(kn_lw *w, const kn_sg *sg, kn_expr **av);
kn_expr *kn_lw_result(kn_lw *w, const kn_sg *sg); /* element of the statement's result at the values of its loops; of loops not open the first one */
kn_memo *kn_memo_open(kn_lw *w, const kn_sg *sg, int64_t elements); /* for a tile of so many; NULL: without */
kn_expr *kn_env_scalar(kn_env *v, const kn_expr *e);
kn_expr *kn_env_vector(kn_env *v, const kn_expr *e);
/* Where a load is read: true when that needs no condition. */
bool kn_env_place(kn_env *v, const kn_expr *load, int *buffer, kn_expr **at);
/* Each padded load is in its tensor for all lanes or for none, or for known ones. */
bool kn_env_lanes_alike(kn_env *v);
kn_expr *kn_lw_address(kn_lw *w, int tensor, kn_expr *const *idx);
/* Stages. */
int64_t kn_sg_axis_cover(const kn_sg *sg, int axis);
bool kn_sg_cached(const kn_sg *sg, int load);
/* in_place.c: the output in which the temporary can lie that an attached stage computes, -1: none. Its box is on. */
int kn_lw_in_place(kn_lw *w, const kn_stage *g);
/* What the last turn of a loop does otherwise (kn_ls.last) stands behind the loop. */
void kn_lw_behind(kn_lw *w, kn_ls **list);
/* The map reads what lies in its output. */
bool kn_lw_overwrites(const kn_lw *w, const kn_sg *sg);
/* A temporary lies in the output. */
bool kn_lw_taken(const kn_lw *w, int out);
/* The element's number in the tensor, over the statement's axes; NULL: it is not affine in them. */
kn_expr *kn_lw_flat(kn_lw *w, const kn_stmt *s, int tensor, kn_expr *const *idx);
/* The load reads a scratch box that has room for all that the stage's loops inside of it make of the axis, past its end too. */
bool kn_sg_room(const kn_lw *w, const kn_sg *sg, const kn_expr *load, int axis);
void kn_lw_before(kn_lw *w, kn_sg *sg, int loop);   /* in front of a serial loop: first fills of caches that run ahead */
void kn_lw_open(kn_lw *w, kn_sg *sg, int loop, const kn_ls *of); /* in the body of loop statement `of`: producers, then caches */
void kn_lw_fill(kn_lw *w, kn_sg *sg, int cache);
/* first_use.c: the cache of loop `loop` whose copy its first tiles can make, -1: there is none; lowers these, or fills it where not all is there. */
int kn_lw_first_use(kn_lw *w, kn_sg *sg, int loop);
void kn_lw_fill_at_first_use(kn_lw *w, kn_sg *sg, int cache);
kn_expr *kn_lw_half(kn_lw *w, const kn_sg *sg, int cache, kn_expr *at); /* element `at` of the copy that is filled or read now */
kn_ls *kn_lw_loop(kn_lw *w, kn_sg *sg, int loop);   /* opens a serial FOR over a loop, clipped where that is allowed */
void kn_lw_tile(kn_lw *w, kn_sg *sg);
void kn_lw_scatter(kn_lw *w, kn_sg *sg);            /* scatter.c: all loops of a scatter but its tasks and threads, which have their values */
/* skip.c: what of the stage's reduction padding makes nothing of; bounds of a loop that is opened now, drawn in to what is left; the first or last
 * iteration of a reduction's open loop that is left for the place at hand. */
void kn_lw_find_skips(const kn_lw *w, kn_sg *sg);
void kn_lw_skip(kn_lw *w, const kn_sg *sg, int loop, kn_expr **lo, kn_expr **hi);
kn_expr *kn_lw_skip_end(kn_lw *w, const kn_sg *sg, int loop, bool last);
/* Wherever the tile of such a stage (sg->drawn_in) reads, the index is in [0, extent), as bounds of a loop that are drawn in see to it. */
bool kn_lw_drawn_in(const kn_sg *sg, const kn_expr *index, int64_t extent);
bool kn_lw_skipped(kn_lw *w, const kn_sg *sg, kn_expr *const *av); /* the term at these values of the axes lies in padding for certain */
/* instruction.c: before the outermost reduce loop, the tile, and behind that loop. */
void kn_lw_instruction_begin(kn_lw *w, kn_sg *sg);
/* The loop around which results that registers hold are brought from their place among the partial results and back, since serial loops over
 * results stand between it and the outermost reduction; -1: they stay in the registers. */
int kn_lw_blocked(const kn_lw *w, const kn_sg *sg);
/* next.c: in the body of loop i, the innermost around the tile: asks for what the next copies of its operands will read. */
void kn_lw_next_copies(kn_lw *w, kn_sg *sg, int i);
/* Around a tile: asks for rows of far images that the next iteration over rows adds (bands.c). */
void kn_lw_ask_bands(kn_lw *w, kn_sg *sg);
/* The same before loop i, for copies of which the tile asks for its share at once. */
void kn_lw_next_copies_at_once(kn_lw *w, kn_sg *sg, int i);
void kn_lw_block_begin(kn_lw *w, kn_sg *sg);
void kn_lw_block_end(kn_lw *w, kn_sg *sg);
void kn_lw_instruction_steps(const kn_lw *w, const kn_sg *sg, int loop, kn_ls *of); /* how many the toolchain is asked to write out */
void kn_lw_instruction(kn_lw *w, kn_sg *sg);
void kn_lw_instruction_end(kn_lw *w, kn_sg *sg);
/* warp.c: the same where warps compute the instruction together. */
void kn_lw_warp_begin(kn_lw *w, kn_sg *sg);
void kn_lw_warp(kn_lw *w, kn_sg *sg);
void kn_lw_warp_end(kn_lw *w, kn_sg *sg);
/* group.c: the same where 128 threads compute it and read their sources from shared memory. */
void kn_lw_group_begin(kn_lw *w, kn_sg *sg);
void kn_lw_group_tile(kn_lw *w, kn_sg *sg);
void kn_lw_group_end(kn_lw *w, kn_sg *sg);
/* own.c: registers for what the attached stage makes, whose shared and thread loops have their values; loads kept in registers are read; the register
 * that has what the load reads at idx, as `lanes` lanes along lane_var. */
void kn_lw_own(kn_lw *w, kn_sg *sg);
void kn_lw_keep(kn_lw *w, kn_sg *sg);
kn_own *kn_lw_own_of(kn_lw *w, int tensor); /* of a temporary that an attached stage makes; NULL: it is in memory */
bool kn_lw_own_at(kn_lw *w, int tensor, kn_expr *const *idx, int lane_var, int lanes, int *buffer, int64_t *c);
/* bulk.c: a stage whose caches the copy engine fills, from its barriers to its end; its last copies may be filled anew. */
void kn_lw_bulk(kn_lw *w, kn_sg *sg);
void kn_lw_bulk_done(kn_lw *w, kn_sg *sg);
/* Results on their way out: elements of a box's row; where the next box begins in buffer *stage, free to be written; the box, all of whose rows and
 * columns begin where the loops are, leaves. */
int64_t kn_lw_bulk_columns(kn_lw *w, const kn_sg *sg);
kn_expr *kn_lw_bulk_box(kn_lw *w, kn_sg *sg, int *stage);
void kn_lw_bulk_store(kn_lw *w, kn_sg *sg, kn_expr *box, int stage);
kiln_tensor_map *kn_lw_bulk_maps(kn_lw *w, const kn_stage *g, const kn_fn *f); /* of the arguments; NULL: out of memory */
void kn_lw_pipe(kn_lw *w, kn_pipe step);
void kn_lw_decode(kn_lw *w, kn_sg *sg, kn_expr *number, bool task);   /* loop values from a task or thread number */
kn_expr *kn_lw_swizzled(kn_lw *w, const kn_sg *sg, int cache, kn_expr *at); /* where element `at` of a copy lies in it */
kn_expr *kn_lw_copy_of(kn_lw *w, const kn_sg *sg, int cache, kn_expr *k);   /* where the copy begins that belongs to value k of its loop */
void kn_lw_init_part(kn_lw *w, kn_sg *sg);                            /* decompose_reduction */
void kn_lw_turn(kn_lw *w, kn_sg *sg, int vloop, int lanes);           /* see turn.c */
/* The map writes squares, to short rows that are no whole lines or to what the caches nearly hold. */
bool kn_lw_turns_near(const kn_lw *w, const kn_sg *sg, int vloop);
int kn_lw_transpose(kn_lw *w, int from, enum kn_dtype t, int rows, int unit); /* REGISTER vectors of units of so many lanes, a square, turned */
void kn_lw_stage(kn_lw *w, int stage, const kn_sg *consumer, int maker);
/* lines.c: the loop whose tiles begin with lines of the output, vectors of `vector` elements and tiles of `span`, -1: there is none; its iterations;
 * where the tile that would begin at `base` begins. */
int kn_lw_by_lines(const kn_lw *w, const kn_sg *sg, int64_t *vector, int64_t *span);
int64_t kn_lw_line_tiles(const kn_lw *w, const kn_sg *sg, int loop);
kn_expr *kn_lw_line_begin(kn_lw *w, kn_sg *sg, int axis, kn_expr *base);
kn_expr *kn_env_line(kn_lw *w, const kn_sg *sg); /* elements from the vector at hand to the line that it holds some lanes of; NULL: not by lines */
/* together.c: behind loop `loop`, the last outer one of its axis that stages attached from here on share and that does not end with a turn, the first
 * value of the axis in this turn becomes sg->base, so that the last turn ends with the axis; does nothing elsewhere. */
void kn_lw_move_back(kn_lw *w, kn_sg *sg, int loop);

/* next_rows.c: finds the loads that bring rows nearer that the next iteration reads; behind such a load of a vector, asks for its like there. */
void kn_lw_find_next_rows(const kn_lw *w, kn_sg *sg);
void kn_lw_next_row(kn_lw *w, const kn_sg *sg, int load, int buffer, kn_expr *at);
/* made.c: stage `reader`, which is lowered next, may make what `maker` does as it reads it; a load of that, whose vector of lanes is made. */
bool kn_lw_makes(const kn_lw *w, int maker, int reader);
bool kn_lw_is_made(const kn_env *v, const kn_expr *load);
kn_expr *kn_lw_made(kn_env *v, const kn_expr *load);
bool kn_lw_stage_init(kn_lw *w, kn_sg *sg, int stage, bool packs);    /* packs: only the copies made ahead of constants are wanted of it */
void kn_lw_fn(kn_lw *w, kn_fn *fn, int *count, int stage);            /* the stage as function number *count, which grows */
void kn_lw_finish_fn(kn_lw *w, kn_fn *fn, int *count);
/* packs.c: what is done before the first call. */
int kn_lw_packed(kn_lw *w, int tensor, int64_t elems);                /* PACKED copy of a constant input */
void kn_lw_ahead(kn_lw *w);                                           /* stages that are computed ahead, before any other */
void kn_lw_packs(kn_lw *w, int stage);                                /* the copies that the stage reads */
void kn_lw_place_packed(kn_lw *w);                                    /* at the end: where all of it lies */
#endif
