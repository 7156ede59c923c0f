/* One register tile while it is lowered, and what tile.c, reduce.c and store.c share. Private to compiler/lower. */
#ifndef KN_LOWER_TILE_H
#define KN_LOWER_TILE_H
#include "lower/lower.h"

typedef struct kn_tile {
    kn_lw *w;
    kn_sg *sg;
    int lanes, lane_var;      /* vector loop of the tile; 0, -1: none */
    int vloop;                /* its loop, -1 */
    bool reduce_lanes;        /* the vector loop reduces */
    int64_t ncombo, nparts;   /* spatial register elements; accumulators of each (rfactor) */
    int acc;                  /* REGISTER buffer, -1 when nothing is reduced */
    enum kn_dtype acc_type;
    bool written_out;         /* every term has its own statement: the first one of an accumulator begins it */
    uint64_t begun;           /* accumulators of each element that have one */
    bool looped;              /* the last terms, where fewer are left than the tile writes out: its reduce loops are loops */
    int part;                 /* SCRATCH partial sums, -1 */
    kn_expr *first, *last;    /* of the outer reduce loops */
    int spill;                /* SCRATCH copy of the tile for guarded stores, -1 */
    kn_expr *full;            /* whole tile in range; NULL: certain */
    bool store_full;          /* under `full` already */
    bool staged;              /* stored to `stage` at `stage_at`, to be brought to memory later, whatever of it is in range */
    int stage;
    kn_expr *stage_at;
    const int *turned;        /* by row: the lane in which its first element is, where joined.c has summed it; NULL: all in lane 0 */
    int idle;                 /* lanes of the vector that is stored just now, as of a store (loop.h) */
    bool row;                 /* a map's tile of which it is known what is in range, wherever the outer loops are */
} kn_tile;

static inline bool kn_tile_reduces(const kn_sg *sg, int i) { return sg->s->axes[sg->g->loops[i].axis].reduce; }
static inline bool kn_tile_has(const kn_sg *sg, int i) { return i >= sg->tile && sg->g->loops[i].kind != KN_THREAD; }
static inline bool kn_tile_spatial(const kn_sg *sg, int i)
{
    return kn_tile_has(sg, i) && !kn_tile_reduces(sg, i) && kn_is_register(sg->g->loops[i].kind);
}

/* Iterations of a register loop in this tile. */
static inline int64_t kn_tile_extent(const kn_sg *sg, int i) { return sg->few[i] ? sg->few[i] : sg->g->loops[i].extent; }

/* The tile as if it had not been moved back to end with its axes, until kn_tile_moved; *was keeps where it begins (KILN_MAX_AXES). */
static inline void kn_tile_unmoved(kn_sg *sg, kn_expr **was)
{
    for (int a = 0; a < KILN_MAX_AXES; a++) was[a] = sg->base[a], sg->base[a] = NULL;
}

static inline void kn_tile_moved(kn_sg *sg, kn_expr *const *was)
{
    for (int a = 0; a < KILN_MAX_AXES; a++) sg->base[a] = was[a];
}

/* tile.c */
void kn_tile_set(kn_tile *x, int64_t c); /* gives the spatial register loops the values of element c (mixed radix, innermost fastest) */
kn_env kn_tile_env(kn_tile *x);
kn_expr *kn_tile_cast(kn_lw *w, kn_expr *e, enum kn_dtype t);

/* reduce.c */
bool kn_tile_written_out(const kn_tile *x);
/* The innermost spatial loop of the tile, if it has as many iterations as a vector of the reduction has lanes; -1. */
int kn_tile_rows_of_lanes(const kn_tile *x);
void kn_tile_stand_up(kn_tile *x); /* lanes along the reduction become lanes along the rows, where there are as many of these */
kn_expr *kn_tile_identity(kn_lw *w, enum kn_reduce r, enum kn_dtype t);
void kn_tile_terms(kn_tile *x); /* the tile's reduce loops, accumulating */
/* Across the threads of rfactor loops; *owner: the threads that hold the result, NULL: all. */
void kn_tile_combine_threads(kn_tile *x, kn_expr **owner);
kn_expr *kn_tile_value(kn_tile *x, int64_t c); /* finished element c; without a reduction the body itself */
void kn_tile_store_part(kn_tile *x, bool first);
void kn_tile_prefetch_part(kn_tile *x);
/* Partial results between outer reduce iterations, -1: none; *first is NULL where they are set before. */
int kn_tile_part(kn_lw *w, kn_sg *sg, kn_expr **first, kn_expr **last);

/* borders.c: the tile by where it reaches into padding, each in a text of its own; false: that is not known, and nothing has been done. */
typedef void (*kn_tile_fn)(kn_lw *w, kn_sg *sg);
bool kn_tile_borders(kn_lw *w, kn_sg *sg, kn_tile_fn tile);

/* joined.c: the tile's rows lie one behind the other and have been summed so; false: they do not, and nothing has been done. */
bool kn_tile_joined(kn_tile *x);

/* over.c: the axis of a sum's lanes, as a set, where it is shorter than a vector and every operand that has it can be read past its rows; 0: none. */
uint32_t kn_lw_over(const kn_lw *w, const kn_sg *sg);
bool kn_lw_has_rows(const kn_lw *w, const kn_expr *load, int axis, int64_t lanes); /* the load can be read past its rows along the axis */

/* ahead.c: in the body of the tile's reduce loop i, the innermost one that is not unrolled: asks for the constants that come next; before it,
 * for what a tile asks for at once. */
void kn_tile_ahead(kn_tile *x, int i);
void kn_tile_ahead_at_once(kn_tile *x, int i);

/* first_use.c: the vectors of a step go to the copy that the tile makes; in loop i, asks for those of a few steps further on. */
void kn_tile_leave_copy(kn_tile *x);
void kn_tile_first_use_ahead(kn_tile *x, int i);

/* store.c */
bool kn_tile_traps(const kn_expr *e); /* must not be computed out of range */
void kn_tile_store(kn_tile *x);
/* Lanes of the present vector of a sum whose place along its axis is known that nobody wants of it, as of a store (loop.h): it was moved back over
 * what others store, or ends past the axis. */
int kn_tile_idle(kn_tile *x);
/* The value that the stage's statement, or its epilogue, stores for the finished `value`, in the dtype it is stored in; where it goes: tensor *out at
 * idx (KILN_MAX_RANK). *safe: computing it reads nothing out of range, even for elements that are. */
kn_expr *kn_tile_final(kn_tile *x, kn_expr *value, int lane_var, int *out, kn_expr **idx, bool *safe);
/* Stores the present element, or vector of lane_var; is_final: value is what kn_tile_final made of it already. */
void kn_tile_store_output(kn_tile *x, kn_expr *value, int lane_var, bool is_final);
kn_expr *kn_tile_place(kn_tile *x, int64_t c); /* the element of the output where lane 0 of element c goes; NULL: its lanes do not lie together */
/* Where the elements are stored that lane_var = 0, 1, ... names is one after the other; and storing them there. */
bool kn_tile_consecutive(kn_tile *x, enum kn_dtype t, int lane_var);
/* Where a result of dtype t goes as it is; NULL: something finishes it, or it becomes another dtype. */
kn_expr *kn_tile_unchanged(kn_tile *x, enum kn_dtype t, int *buffer);
bool kn_tile_safe(kn_tile *x, enum kn_dtype t); /* finishing a value reads nothing out of range, wherever the element is */
void kn_tile_store_lanes(kn_tile *x, kn_expr *value, int lane_var);
void kn_tile_store_value(kn_tile *x, kn_expr *value); /* the present element, a scalar */

/* ends.c */
kn_expr *kn_tile_in_range(kn_tile *x); /* the condition that the present element is, on every spatial axis; NULL: always */
bool kn_tile_whole_vectors(const kn_tile *x); /* none of the tile's vectors is in range in part */
bool kn_tile_fixed(kn_tile *x); /* what of the tile is in range is known now, wherever the outer loops are */
bool kn_tile_store_known(kn_tile *x, int lane_var); /* stores such a tile; false: it is none, and nothing has been done */
enum { KN_TILE_ROWS = 32 }; /* that are stored one by one, each if it is in range: more are spilled */
bool kn_tile_leaves_by_rows(kn_tile *x); /* rows are in range whole or not at all: kn_tile_store_rows stores those that are */
void kn_tile_store_rows(kn_tile *x, int lane_var);
void kn_tile_spill(kn_tile *x, int lane_var); /* by way of scratch, whatever of it is in range */

/* far.c */
void kn_tile_write_far(kn_tile *x); /* before the tile is stored: says whether it goes past the caches (w->streamed), or asks for lines */
/* The same of vectors of so many lanes that an instruction computed, which are lines of an output that alone is so large, in rows of whole lines. */
void kn_tile_write_lines(kn_tile *x, int64_t lanes);
void kn_tile_prefetch_out(kn_tile *x); /* before it is summed: asks for lines that its sums go to */

/* warp.c: results `element` and the next of a thread, neighbours of a row from `column` on: together where they lie together and both are in range,
 * else each for itself. */
void kn_tile_store_pair(kn_lw *w, kn_sg *sg, kn_expr *column, int64_t element);
/* The same, to element `at` of SHARED buffer `stage`; what is out of range is stored too, where computing it reads nothing there. */
void kn_tile_stage_pair(kn_lw *w, kn_sg *sg, kn_expr *column, int64_t element, int stage, kn_expr *at);
#endif
