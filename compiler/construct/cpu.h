/* One schedule of a statement for a CPU core, as a few numbers, and what the planners of maps and of sums share. Private to compiler/construct. */
#ifndef KN_CPU_H
#define KN_CPU_H
#include "construct/site.h"

/* n is cut into n.0 | panels of a task | unrolled vectors | lanes, m into tasks, rows of a task, unrolled rows. */
typedef struct kn_cpu_tile {
    int64_t lanes, nv, mr, mc;  /* vector width, vectors, rows in registers, row groups of a task */
    int64_t grain;              /* iterations of the outermost other axis in one task */
    int64_t nc;                 /* panels of n that a task goes through for every block of the reduction, 1: one panel is one task */
    int64_t group;              /* as many of these are packed beside each other, in longer runs of memory; 0: cpu_blocks.c chose none */
    int64_t kb;                 /* of reduce axis `blocked` that are summed before the next rows are begun, 1: all */
    int blocked;
    int64_t rlanes, runroll;    /* reduce axis r as vector and accumulators, 1: not */
    int64_t chains;             /* terms of reduce axis `blocked` beside each other, of which each has sums of its own; 0: none */
    bool pack;
    bool written;               /* the block of the reduction is written out */
    bool apart;                 /* and has terms as far apart as they can be */
    bool terms;                 /* so is all of it, for all rows */
    bool lies;                  /* what is packed has its rows along the lanes */
    bool along;                 /* the task's panels are packed beside each other, and rows go along all of them */
    bool wide;                  /* blocks of the reduction are packed for all of the task's panels at once */
    bool upright;               /* lanes along the reduction, which is written out, and as many rows */
    bool pack_rows;             /* so are the rows' operands: their segments of the block, beside each other */
    int64_t mo;                 /* places of spatial axis `o` in registers, beside those of m; at most 1: one */
    int o;
} kn_cpu_tile;

enum {
    KN_CPU_UNROLLED = 128, /* operations of a register tile whose sum is written out term by term */
    KN_CPU_SQUARE = 160,   /* the same of one of places in two directions */
    KN_CPU_DIGITS = 4,     /* iterations of a reduce axis beside that of the lanes that are written out */
    KN_CPU_LINE = 64,      /* bytes of a cache line */
    KN_CPU_PAGE = 4096,    /* of a page, within which prefetchers follow */
    KN_CPU_APART = 2048,   /* rows so far from each other fall into few sets of the caches and many pages */
    KN_CPU_NARROW = 32,    /* bytes of a vector that straddles two cache lines less often than one of a whole line does */
    KN_CPU_ROW = 16,       /* vectors of a map's row that is written out as a whole */
    KN_CPU_FORKED = 16384  /* iterations below which a core is done before another one has started */
};
#define KN_CPU_SQUARES_IN "terms_last" /* the temporaries that cpu_squares.c's steps make */
#define KN_CPU_SQUARES_OUT "lanes_last"
#define KN_CPU_LANES "lanes" /* the temporary that cpu_lanes.c's steps make */
#define KN_CPU_WIDE_LANES "wide_lanes" /* those of narrow factors, numbered */

static inline const char *kn_cpu_axis(const kn_site *x, int i) { return x->s->axes[i].name; }
static inline int64_t kn_cpu_extent(const kn_site *x, int i) { return i < 0 ? 1 : x->s->axes[i].extent; }
/* Registers for the sums of mr rows of nv vectors, the vectors and one element at a time, where there are so few that none is left idle. */
static inline bool kn_cpu_fills_registers(const kn_site *x, int64_t mr, int64_t nv)
{
    return kn_hw_few_registers(x->hw) && mr * nv + nv + 1 <= x->hw->vector_registers;
}
/* Vectors are parts of L1's lines: rows that begin anywhere cost them more accesses, panels end inside of lines, and more lines make up a panel. */
static inline bool kn_cpu_short_vectors(const kn_site *x)
{
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1");
    return l1 && x->hw->vector_bytes < l1->transaction_bytes;
}
/* The greatest power of two that is at most n and at most `most`. */
int64_t kn_cpu_pow2(int64_t n, int64_t most);
/* How many vectors, of a row of so many, are written out one after the other: as few as possible are computed twice, as the last move back. */
int64_t kn_cpu_written_out(int64_t vectors);
int kn_cpu_acc_bytes(const kn_site *x);
double kn_cpu_bytes(const kn_tensor *t); /* all of the tensor's */
double kn_cpu_touched(const kn_site *x); /* of all tensors that the statement reads and writes */
double kn_cpu_vectors(const kn_site *x, int64_t n, int64_t lanes); /* of the sum's elements, that n of them take: kn_hw_vectors */
double kn_cpu_idle(const kn_site *x, int64_t n, int64_t lanes);    /* lanes of these that are idle, by those that are not */
double kn_cpu_groups(const kn_site *x); /* iterations of the spatial axes that both of two factors have */
/* The spatial axis that tasks are cut from, neither n nor m: the first with something to iterate, of a map the one with which there are enough of
 * them. -1: none. */
int kn_cpu_other(const kn_site *x);
/* Spatial axis k of a map as its results lie, the outermost first, if that one is the statement's too: who reads them is then likely to share work in
 * the same way (of one image turned, whose rows cores share: 1.1 to 1.4 times as long by channels). Of everything else as the statement has them. On
 * a Zen 4 1x1 windows by 2 and 3 over several images channels first: 0.65 to 1.03 of the time, where the image is far and the filters are few. */
int kn_cpu_in_order(const kn_site *x, int k);
/* Iterations of that axis in one task: about 1/64 of the work of a core, since fewer cost balance and more cost forks. */
int64_t kn_cpu_grain(const kn_site *x, int other);
/* A load that no rows read again and whose lanes are near each other: packing would not pay. */
bool kn_cpu_read_once(const kn_site *x, const kn_site_access *a);
/* No load runs along n, those without n run along the reduction, or do not follow it, and one that has n runs along a reduction that is as long as
 * half a vector: lanes along n would be gathered one by one. */
bool kn_cpu_only_along_r(const kn_site *x);
/* Short sums along memory: as many rows as a vector has lanes are combined together. */
bool kn_cpu_stands_up(const kn_site *x);
/* Rows of the operand without n lie so far apart that all of a tile's fall into one set of L1, which has 8 to 12 lines: KN_CPU_OF_ONE_SET of them are
 * a tile's at the most. */
enum { KN_CPU_OF_ONE_SET = 8 };
bool kn_cpu_in_one_set(const kn_site *x);
int kn_cpu_longest_reduce(const kn_site *x);
/* Multiply-adds of all tiles of mr rows by nv vectors, and what goes on beside them and competes for the same slots, for each row and each vector of
 * a term, in the time of a multiply-add; the last tile of a row has no more vectors than it needs. kn_cpu_time_of_rows: of rows that are n long. */
double kn_cpu_time_of_rows(const kn_site *x, int64_t n, int64_t mr, int64_t nv, int64_t lanes, double row, double vector);
double kn_cpu_time_of_tiles(const kn_site *x, int64_t mr, int64_t nv, int64_t lanes, double row, double vector);
/* How many times as long `chains` multiply-adds take with so many loads of vectors, or broadcasts, from L1 beside them: neither hides the other whole
 * (an Ice Lake that loads 1.1 vectors a cycle: 14 rows by 2 vectors 1.14 times as long as 6 by 4, for each multiply-add). 1: L1's rate is unknown. */
double kn_cpu_slowed_by_loads(const kn_site *x, int64_t lanes, double loads, double chains);
/* cpu_along.c: plans of rows that go along panels side by side, of operands without padding or windows; strided: what has n does not lie along it. */
bool kn_cpu_along(const kn_site *x, kn_plans *p, int64_t lanes, bool strided);
bool kn_cpu_few_along(const kn_site *x, kn_plans *p); /* of those that kn_cpu_packs_few names */
/* For t->lanes, and t->blocked of the sum's axes, the other numbers of rows that go along a few panels in blocks of a long sum; false: it is none
 * of these. */
bool kn_cpu_blocks_along(const kn_site *x, kn_cpu_tile *t);
/* Few tasks, of which one core has more than the others: bands of the rows for each, or other numbers of panels, at most so many, where what the core
 * with most to do has is so much less. */
void kn_cpu_even(const kn_site *x, kn_cpu_tile *t, int64_t most);
/* cpu_sums.c: at most so many terms of all, near a divisor; rows of a task, in groups of t->mr, that half of L2 holds; L1 holds what has n whole. */
int64_t kn_cpu_block_of(int64_t all, int64_t most);
int64_t kn_cpu_row_groups(const kn_site *x, const kn_cpu_tile *t, int other);
bool kn_cpu_in_l1(const kn_site *x);
/* cpu_deep.c: for t->lanes the other numbers of rows that go along panels of long sums; false: the sum is none of these. */
bool kn_cpu_deep(const kn_site *x, kn_cpu_tile *t);
/* cpu_blocks.c: many rows that meet blocks of a large operand, of so few registers that tiles are small; false: it is no such product. */
bool kn_cpu_blocks(const kn_site *x, kn_plans *p);
bool kn_cpu_turned_blocks(const kn_site *x, kn_plans *p); /* the same of one whose rows run along the sum */
/* Load l is of a constant, or of what a stage makes of one before the first call: packed ahead it is better than what is turned in each. */
bool kn_cpu_rests(const kn_site *x, int l);
bool kn_cpu_outweighed(const kn_site *x, kn_plans *p); /* cpu_outweighed.c: short sums whose results go past the caches; false: they do not */
bool kn_cpu_blocks_of(const kn_site *x, kn_cpu_tile *t); /* the numbers, however the operand lies */
/* The rows that load l has lie across the blocked axis of the sum. */
bool kn_cpu_rows_across(const kn_site *x, int l, int blocked);
/* It is one of a few panels, which rows enough meet and which are better not read as they lie. */
bool kn_cpu_packs_few(const kn_site *x);
/* Rows of what does not follow n lie so far apart that few sets of the caches, or pages, hold what a block needs of them. */
bool kn_cpu_rows_apart(const kn_site *x);
bool kn_cpu_in_panels(const kn_site *x); /* panels of all terms fit there, or rows are enough for blocks of them */
/* cpu_vector.c: a vector by a constant matrix, which is packed; false: the sum is no such product. */
bool kn_cpu_vector(const kn_site *x, kn_plans *p);
bool kn_cpu_is_vector(const kn_site *x);
/* cpu_few.c: the tile of few rows that meet a large operand, which is read where it lies; false: the sum is no such product. */
bool kn_cpu_few_rows(const kn_site *x, kn_plans *p);
/* Of so few rows, and an operand so far away, that becomes wide as it is read in less time than it is interleaved for an instruction. */
bool kn_cpu_streams_narrow(const kn_site *x);
/* cpu_few.c: rows `step` bytes apart, at most so many, of which L1's sets hold two lines each. */
int64_t kn_cpu_rows_of_step(const kn_site *x, int64_t step, int64_t most);
/* cpu_few.c: products of so few rows that a large operand is best read in whole rows, however wide these are. */
bool kn_cpu_wide_rows(const kn_site *x);
/* cpu_runs.c: sums along rows from beyond the caches, a few at a time that lie far apart; false: they are none, or that does not divide the rows. */
bool kn_cpu_runs(const kn_site *x, kn_plans *p);
bool kn_cpu_in_runs(const kn_site *x); /* they are such */
/* cpu_narrow.c: lanes along the sum of a product of a few columns; false: none. The load of its narrow factor; -1. */
bool kn_cpu_narrow(const kn_site *x, kn_plans *p);
int kn_cpu_narrow_load(const kn_site *x);
/* Rows across the sum that L1 does not hold beside a panel, and that are better copied once. */
bool kn_cpu_copies_across(const kn_site *x);
bool kn_cpu_near_operand(const kn_site *x, kn_plans *p); /* the same of an operand that L2 holds, and any rows */
/* Where the tile says so, a line of a trace that copies the rows' segments of a block beside each other. */
void kn_cpu_put_row_caches(kn_buf *b, const kn_site *x, const kn_cpu_tile *t);
/* A line that has all of an uncut axis written out; none if that is too long for it. */
void kn_cpu_put_unrolled(kn_buf *b, const kn_site *x, int axis);
/* Writes the tile as a trace and tries it. */
void kn_cpu_try(const kn_site *x, kn_plans *p, const kn_cpu_tile *t);

/* A sum of products of bytes as an instruction of the device computes it: load `a` is broadcast, load `b` has the lanes; the terms run along
 * `run`. */
typedef struct kn_cpu_dot {
    const struct kn_intrin *it;
    int a, b, run;
    bool recast;                /* load `a` has to become what the instruction takes first: unsigned, or `wide` */
    bool wide;
    bool flip;                  /* load `b` is signed and becomes unsigned where it is read: not by a step of its own */
    int turn;                   /* and dimension `turn` of it the last one, since its terms do not follow each other; -1: they do */
} kn_cpu_dot;
bool kn_cpu_dot_of(const kn_site *x, kn_cpu_dot *d);
/* Register tiles of mr rows by nv vectors fit the registers, with the vectors that have the lanes, one that is broadcast and what the text needs. */
bool kn_cpu_dot_fits(const kn_site *x, const kn_cpu_dot *d, int64_t mr, int64_t nv);
/* The reduce axis is the load's last dimension, from end to end. */
bool kn_cpu_whole_dim(const kn_site *x, const kn_expr *load, int axis);
/* cpu_packed.c: the sum's rows are copied in bands, where runs of few terms, or of no multiple of the instruction's, get what they lack. */
bool kn_cpu_boxes_run(const kn_site *x, const kn_cpu_dot *d);
/* What a register tile of mr rows by nv vectors takes for each of its vectors and terms, in the time of one of the instructions: beside it the loads,
 * which mostly hide, a panel that comes from L2 (blocks of it do not), chains too short, sums that leave the registers. */
double kn_cpu_time_of_dots(const kn_site *x, const kn_cpu_dot *d, int64_t mr, int64_t nv, bool blocks);
bool kn_cpu_dots(const kn_site *x, kn_plans *p); /* cpu_dots.c; false: it is no such sum */
/* cpu_zipped.c: the plan where the operand with the lanes is no constant and its rows lie along these; false: it does not. */
bool kn_cpu_zips(const kn_site *x, int load, int run); /* rows of the load lie along the results */
bool kn_cpu_zipped(const kn_site *x, kn_plans *p, const kn_cpu_dot *d);

/* cpu_squares.c: load w, which has the lanes, is packed in squares that are turned in registers: its rows run along all of the sum, whose
 * outermost axis there is `blocked`. How much of it a panel's block has that stays in L1 beside the rows, in lines of so many bytes a term; the
 * copy's dimensions along the rows. */
bool kn_cpu_turns_squares(const kn_site *x, int w, int blocked, int64_t lanes, int64_t terms);
int64_t kn_cpu_squares_block(const kn_site *x, int w, int blocked, int64_t line, int64_t lanes, int64_t terms);
void kn_cpu_put_run(kn_buf *b, const kn_site *x, int w, int blocked, int part);
/* First steps after which a sum of products has its lanes along such a load, or along a constant that is packed; ahead: that, or a constant is packed
 * without them, too. false: none does. */
bool kn_cpu_squares_steps(kiln_arena *a, const kn_program *p, const kn_hw *hw, kiln_bytes *start, bool *ahead);
/* cpu_turned.c: steps after which the statement, then named `results`, computes them with the axis last that lanes are to run along, from a copy
 * `plane` of the other factor whose terms lie beside each other, and a copy `weights` of what is no constant, whose lanes do. Where that is
 * NULL it is to be turned as it is packed, which competes, and so does a constant that had not been found worth it. NULL: nothing to turn. */
const char *kn_cpu_turned(kiln_arena *a, const kn_site *x, const char *plane, const char *results, const char *weights);
/* The results alone, of a constant: the other factor, which a window steps over, is read as it lies. NULL: nothing to turn. */
const char *kn_cpu_turned_alone(kiln_arena *a, const kn_site *x);
/* The results alone of a dot whose broadcast factor would have to be turned, as it lies along the rows: it has the lanes then, and the other factor
 * takes its part. NULL: it is not such, or turning that factor takes less than turning the results. */
const char *kn_cpu_exchanged(kiln_arena *a, const kn_site *x, const kn_cpu_dot *d, const char *results);
/* Nanoseconds that all cores take to turn tensors of so many bytes. */
double kn_cpu_time_of_turning(const kn_site *x, double bytes);
/* A line of a trace that puts dimension `d` of a tensor of this rank behind the others. */
void kn_cpu_put_last(kn_buf *b, const char *tensor, int rank, int d);
/* cpu_shifts.c: dimension d of the load is much longer than the axis that shifts it; steps after which a sum over such planes, then named `results`,
 * has lanes along the channels of a copy `factor` of the other factor; NULL: it is no such sum. */
bool kn_cpu_few_shifts(const kn_site *x, const kn_expr *load, int d, int axis);
const char *kn_cpu_shifts(kiln_arena *a, const kn_site *x, const char *factor, const char *results);
/* cpu_planar.c: steps after which the statement, then named `results`, computes them in front of their places, from a copy `plane` of what the window
 * goes over, with its terms in front of the places too; NULL: lanes along the results are worth having, or it is no such window. */
const char *kn_cpu_planar(kiln_arena *a, const kn_site *x, const char *plane, const char *results);

/* cpu_strips.c: the load whose window slides over planes where strips of their rows had better be met by all results at once, -1: none; the step
 * after which it is read without padding and strides, "": as it is. kn_cpu_strips: the plan for what these leave; false: it is no such sum. */
int kn_cpu_strip(const kn_site *x);
const char *kn_cpu_strip_steps(kiln_arena *a, const kn_site *x, int load, const char *plane);
bool kn_cpu_strips(const kn_site *x, kn_plans *p);

/* digits.c: the index numbers elements by this axis and by steps of reductions that are longer than all of it. The axes, spatial and reduced, of
 * indices of which enough lies in padding that its terms had better be left out; *share: of the terms, those that are left. */
bool kn_cpu_is_digit(const kn_site *x, const kn_affine *f, int axis);
uint32_t kn_cpu_uneven(const kn_site *x, double *share);
/* The step after which such weights are read from `copy`; NULL: there are none, or too few places meet them. */
const char *kn_cpu_digits(kiln_arena *a, const kn_site *x, const char *copy);

/* cpu_taps.c: a window over planes each of which has taps of its own is computed plane by plane; the load whose padding a copy is to fill in for
 * that, -1: none; its lanes lie apart, and it is read with its padding. The plan; false: it is no such window. */
bool kn_cpu_is_taps(const kn_site *x);
int kn_cpu_taps_pads(const kn_site *x);
bool kn_cpu_taps_apart(const kn_site *x);
bool kn_cpu_taps_plan(const kn_site *x, kn_plans *p);

/* cpu_thin.c: steps after which a load that takes some of the rows and columns alone reads a copy of these, NULL: it does not. Sums whose constant is
 * packed want that only where joins_rows says so. */
const char *kn_cpu_thinned(kiln_arena *a, const kn_site *v, int l, const kn_expr *load, const char *plane);
bool kn_cpu_joins_rows(const kn_site *x);

/* plan_cpu.c: steps that have the sum read a copy of the load by its axes, of which the lanes' is the last. */
void kn_cpu_put_lanes_last(kn_buf *b, const kn_site *x, int load, const char *copy);
/* cpu_separate.c: combining the window's rows along the reduce axis first is worth it; held: registers hold them. */
bool kn_cpu_separates(const kn_site *x, const kn_expr *read, int axis, bool held);
/* cpu_spread.c: steps after which a short sum over a window that steps along the lanes reads `copy` of it, term by term beside the places, those
 * of patches as one axis; NULL: it is none, or few rows of results meet it. */
const char *kn_cpu_spread(kiln_arena *a, const kn_site *x, const char *copy);

/* cpu_passing.c: windows of few places that large weights go by, which are no constant and lie in rows of results; the load whose padding is to be
 * filled in ahead, -1: none. */
bool kn_cpu_passing(const kn_site *x, kn_plans *p);
bool kn_cpu_is_passing(const kn_site *x);
int kn_cpu_passing_pads(const kn_site *x);
/* cpu_packed.c: tiles of a sum of products with a constant factor along n, which is packed ahead; false: it is no such sum. */
bool kn_cpu_packed(const kn_site *x, kn_plans *p);
int kn_cpu_layered(const kn_site *x); /* the reduce axis that layers of the other factor's copy cut, -1: none */
bool kn_cpu_is_packed(const kn_site *x);
/* The rows of its tiles, which are places along axis q in each row p of an image without padding; 0: they are not. */
int64_t kn_cpu_packed_rows(const kn_site *x, int *q, int *p);
bool kn_cpu_is_squares(const kn_site *x); /* and the factor with the lanes is turned as it is packed */
bool kn_cpu_is_boxed(const kn_site *x); /* and bands of the other factor are copied */
/* The load of a padded depthwise window's constant taps, which had better be turned ahead to lie along the lanes; -1: none. */
int kn_cpu_taps(const kn_site *x);
int kn_cpu_written_taps(const kn_site *x); /* the reduce axis of it that is written out on its own, -1: none */
int kn_cpu_packed_pads(const kn_site *x); /* the load of it whose padding is to be filled in ahead, -1: none */

/* cpu_steps.c: pooling by steps beside the lanes, a place at a time. */
bool kn_cpu_steps(const kn_site *x, kn_plans *p);
/* cpu_beside.c: tiles of the places of a window that slides beside the lanes, in both directions; false: there are none. */
bool kn_cpu_beside(const kn_site *x, kn_plans *p);
bool kn_cpu_is_beside(const kn_site *x); /* there are */
bool kn_cpu_places_alone(const kn_site *x); /* places share too little of such a window to be taken together */
/* Lanes of a map that lie at places which only its whole row knows: written out, they are picked from few vectors (lower/runs.c) instead of read one
 * by one. */
/* Bytes of the widest element that a map computes with, its result included: as many of these are in a vector as its lanes should be. */
int64_t kn_cpu_computed_bytes(const kn_site *x);
bool kn_cpu_picked(const kn_site *x);
bool kn_cpu_maps(const kn_site *x, kn_plans *p); /* cpu_maps.c; false: it is none */
/* cpu_sums.c: several short rows at once; columns of bytes; rows of a few results as columns; all terms written out. False: the sum is not such. */
bool kn_cpu_stood_up(const kn_site *x, kn_plans *p);
bool kn_cpu_byte_columns(const kn_site *x, kn_plans *p);
bool kn_cpu_upright(const kn_site *x, kn_plans *p);
bool kn_cpu_written(const kn_site *x, kn_plans *p);
bool kn_cpu_sums(const kn_site *x, kn_plans *p); /* any other: true */
int kn_cpu_places(const kn_site *x, kiln_arena *a); /* the axis of the places of such a sum, -1: it is none */
bool kn_cpu_is_running(const kn_site *x, kiln_arena *a);
bool kn_cpu_running(const kn_site *x, kn_plans *p); /* cpu_running.c: sums up to each place of a block; false: they are others */
bool kn_cpu_chained(const kn_site *x, kn_plans *p); /* cpu_sums.c: few results, several terms at a time; false: they are not so few */
/* cpu_scan.c: a plan for the stages of sums up to each place in blocks, for a few columns at a time; the set of these stages, 0: there are none. */
uint32_t kn_cpu_scan(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int last, kn_plans *p);
/* cpu_rows.c: a plan for stage `last` together with the producers that go under its outer loops; the set of these stages, 0: none do. */
uint32_t kn_cpu_rows(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int last, kn_plans *p);
/* cpu_windows.c: a plan for a window's columns with its rows, and the padded copy that these read, under their loops; the set of these stages,
 * 0: y is no such window. kn_cpu_window_fits: it is one, and what stands between fits the caches;
 * kn_cpu_window_held: registers. */
uint32_t kn_cpu_window(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int y, kn_plans *p);
bool kn_cpu_window_held(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int y);
bool kn_cpu_window_fits(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int y);
/* cpu_planes.c: a window, no product's, reads padded copies of several tensors at axes a and b alone, whose loops it is to share with what makes
 * them. */
bool kn_cpu_shares_planes(const kn_site *x, int a, int b);
/* cpu_crops.c: a plan for map y and the sum of products over few inputs whose results it takes from a temporary; the set of the two, 0: none. */
uint32_t kn_cpu_crop(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int y, kn_plans *p);
/* cpu_widened.c: a plan for product y and the map that makes its rows' operand, a group of rows at a time; the set of the two, 0: none. */
bool kn_cpu_is_widened(kiln_arena *a, const kn_tree *t, const kn_hw *hw, const kn_stage *g); /* the map is to go there */
uint32_t kn_cpu_widened(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int y, kn_plans *p);
/* cpu_lanes.c: steps by which the results of a window over planes are written with the channels last, and turned back by a map; false: there is no
 * such window. The plan for that map y with the window under its loops; the set of the two, 0: it is none, or does not fit the caches. */
bool kn_cpu_lanes_steps(kiln_arena *a, const kn_program *p, const kn_hw *hw, kiln_bytes *start);
/* A reduction whose one place is a window inside of each of many planes: these are to be the lanes, turned as they are copied. Its plan;
 * false: it is not. */
bool kn_cpu_is_alone(const kn_site *x);
bool kn_cpu_lanes_alone(const kn_site *x, kn_plans *p);
int kn_cpu_walked(const kn_expr *load, int axis); /* the dimension of the load that the axis walks, and walks alone; -1 */
uint32_t kn_cpu_lanes(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int y, kn_plans *p);
/* cpu_planes.c: the plans of a window with the padded copy that it reads under their outer loops; false: it has to be made before. */
bool kn_cpu_plane(kiln_arena *a, const kn_tree *t, int window, int copy, kn_plans *p);
#endif
