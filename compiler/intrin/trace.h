/* What the files share that write a mapping's schedule. Private to them. */
#ifndef KN_INTRIN_TRACE_H
#define KN_INTRIN_TRACE_H
#include "intrin/map.h"

/* A loop around the instruction: the tiles along one of its axes, or an axis of the statement that feeds none. */
typedef struct kn_map_outer {
    const char *name;
    int axis;         /* of the instruction; -1: none */
    bool reduce;
    int64_t count, piece; /* piece: iterations that stand inside the reduction */
    uint32_t moves;   /* bit o: operand o moves with it */
    int64_t own;      /* tiles, or pieces of them, that each core has for itself, in a loop inside of one over the cores; 0: there is none */
} kn_map_outer;

enum { KN_MAP_SQUARE = 16, KN_MAP_LINE = 64 }; /* elements of a side of a square that is turned in registers; bytes of a line of the cache */

typedef struct kn_map_writer {
    kn_buf *b;
    const kn_maps *m;
    const kn_mapping *x;
    const char *stmt;
    const char *axis[KILN_MAX_AXES]; /* the statement's axis that stands for axis j of the instruction, once fused */
    int64_t extent[KILN_MAX_AXES];   /* of that axis */
    int nouter;                      /* spatial loops first */
    kn_map_outer outer[2 * KILN_MAX_AXES];
    bool tidy;                       /* copies are written out, tile by tile */
    int vector_bytes;                /* of the device */
    bool unit;                       /* operands and results are in registers of the instruction's own unit, which are loaded row by row */
    bool unrolls;                    /* the pieces are written out, their results in registers */
    double held[KN_MAP_OPERANDS];    /* bytes of each operand that are read: windows that meet share theirs */
    const char *crop;                /* what takes the wanted part of a result that has grown to whole tiles; NULL: it has not */
    uint32_t grown;                  /* along these axes of the instruction */
} kn_map_writer;

static inline int64_t kn_map_tiles(const kn_map_outer *l) { return kn_ceil_div(l->count, l->piece); }
static inline int64_t kn_map_shared(const kn_map_outer *l) { return l->own ? l->own : kn_map_tiles(l); } /* of the loop around the pieces */
static inline int kn_map_level(const kn_map_outer *l) { return l->own > 0; } /* number of the loop around the pieces, behind that over the cores */
static inline bool kn_map_several(uint32_t set) { return (set & (set - 1)) != 0; }
static inline bool kn_map_cut(const kn_map_writer *w, int j) { return w->x->loops[j] && w->m->intrin->axes[j].extent > 1; }
/* A task configures its unit: no more tasks than keep the cores busy, which as many for each do. */
static inline bool kn_map_tasks_enough(int64_t tasks, const kn_hw *hw)
{
    return tasks >= 8 * hw->units || (tasks >= 2 * hw->units && tasks % hw->units == 0);
}
/* The calls of a unit take so long that a core is not done with them before another one has started. */
bool kn_map_forks(const kn_map_writer *w, const kn_hw *hw);
/* An operand that does not lie as the instruction wants it, and the copy that does. */
typedef struct kn_map_source {
    const kn_map_operand *op;
    const kn_intrin_operand *hard;
    const char *name;         /* of the copy */
    bool padded;
    const kn_stmt *plane;     /* a temporary that this statement copies, box as it is: it is laid out itself */
    bool box;                 /* the copy is the padded tensor; else it has one dimension for every loop that the load uses */
    bool plain;               /* a box that keeps its order */
    uint32_t slides;          /* bit k: along dimension k of the box, uncut, an axis of the instruction steps forward beside other loops */
    int led;                  /* 1 + the dimension whose loop outside of `piece` elements is the task's in which the copy is made; 0: made before */
    int64_t piece;
    int ndims, dim[KILN_MAX_RANK]; /* its dimensions: KILN_MAX_AXES + j for axis j of the instruction, else the loop, in a box -1 */
} kn_map_source;
/* False: operand o lies so already, or no copy can. */
bool kn_map_source_of(const kn_map_writer *w, const kn_map_plan *plan, int o, kn_map_source *s);
/* Loops of the statement with which the loop moves that the cores share first as they make the copy; 0: none. */
uint32_t kn_map_copy_leads(const kn_map_writer *w, const kn_map_source *s);
/* The copy is laid out tile by tile before it is read, of an input that differs from call to call. */
bool kn_map_is_anew(const kn_map_writer *w, const kn_map_source *s);
/* Dimension of the copy that loop j of the instruction is, -1: none. */
int kn_map_dim_of(const kn_map_source *s, int j);
/* The loops that feed axis j are one run through the operand: fused, they are an index with a constant step. */
bool kn_map_one_run(const kn_map_writer *w, const kn_map_source *s, int j, int64_t *step);
/* Results follow each other in memory along dimension d of their tile; there is none before the first. */
bool kn_map_results_along(const kn_map_writer *w, int d);
/* The last dimension of the operand's tile is a pair or four of elements, while memory follows the one before it, whole vectors of which are there:
 * copies interleave them. */
bool kn_map_zipped(const kn_map_writer *w, const kn_map_source *s);
/* Taps lie between the terms of a window's operand: they change places with these in registers. */
bool kn_map_taps_move(const kn_map_writer *w, const kn_map_source *s);
/* Dimension of the box that tiles hold in groups of *few, 2 or 4, beside each other, while windows slide along its lines, which are vectors:
 * these are interleaved. -1: it is none such. */
int kn_map_lines(const kn_map_writer *w, const kn_map_source *s, int64_t *few);
/* Dimension of the box whose elements are the terms in a unit's rows, while windows slide along its lines: these are turned. -1: it is none such. */
int kn_map_turned(const kn_map_writer *w, const kn_map_source *s);
/* Predicts us, pack_us and bound on a CPU, whose mappings are scheduled as kn_map_trace does. */
void kn_map_predict_cpu(const kn_maps *m, const kn_mapping *x, const kn_hw *hw, kn_map_plan *plan);

/* Cycles of the nest of loops as `outer` has it, on one core: the slower of computing and of reading; above `most` any number that
 * is so too. */
double kn_map_nest_cycles(const kn_map_writer *w, const kn_hw *hw, const kn_map_plan *plan, double most);

/* Cycles, of all cores together, that go by as each reads what another one's cache has of the operands' copies: all of those that do not move with
 * the loop that the cores share, and of those that do, but whose copy was shared along another one, its part. Lines that another core wrote come no
 * faster than from memory. */
double kn_map_apart_cycles(const kn_map_writer *w, const kn_hw *hw, const kn_map_plan *plan);
/* Fills held. */
void kn_map_holds(kn_map_writer *w, const kn_hw *hw, const kn_map_plan *plan);
/* map_deal.c: the result's dimension at which the loop is written by itself, -1: none; sets `own` of one of the loops, where that keeps the cores
 * apart. */
int kn_map_result_dim(const kn_map_writer *w, const kn_map_outer *l);
void kn_map_deal_out(kn_map_writer *w, const kn_hw *hw);
/* Fills outer: the loops in the order of the statement, each in one piece. */
void kn_map_outer_loops(kn_map_writer *w);
/* Pieces of them for a register tile, and their order. */
void kn_map_choose_tile(kn_map_writer *w, const kn_hw *hw, const kn_map_plan *plan);
/* map_block.c: the whole schedule of a plain product on an instruction with registers of its own; false: it is none, and nothing is written. */
bool kn_map_blocked(kn_map_writer *w, const kn_hw *hw);
/* Writes nothing: whether it is one. */
bool kn_map_is_block(const kn_map_writer *w, const kn_hw *hw);
/* Bytes that go between it and memory, where all of them do but a block; false: it is none, or caches hold more. */
bool kn_map_block_bytes(const kn_map_writer *w, const kn_hw *hw, double *bytes);
/* Iterations along axis j of the instruction in whole tiles; of a unit whose tiles are many, in pairs of them. */
int64_t kn_map_whole(const kn_map_writer *w, int j, int64_t extent);
/* map_crop.c: a unit's results lie in memory as in their tiles, so that what is not wanted of a grown one need not be stored at all. */
bool kn_map_crop_finishes(const kn_map_writer *w);
/* What copies the wanted part of a grown result, later and by itself. */
void kn_map_crop_alone(const kn_map_writer *w);
/* The loops along which the result has grown go inside the others; so many of these, from the first on, may be loops of what copies the wanted part.
 * 0: it goes over all of the result later. */
int kn_map_crop_shares(kn_map_writer *w);
/* It does so behind each iteration of these loops. */
void kn_map_crop_attach(kn_map_writer *w, const kn_hw *hw, int shared);
/* Steps that give the operands which do not lie as the instruction wants them copies, so many as it says, at most KN_MAP_OPERANDS; and those that lay
 * these out. */
int kn_map_pack(kn_map_writer *w, const kn_map_plan *plan, kn_map_source *s);
void kn_map_copies(kn_map_writer *w, const kn_map_source *s, int n);
/* map_lead.c: which of the copies each task makes of what it alone reads, once the nest is known, of which so many loops are the crop's; and the step
 * that says so. */
void kn_map_lead(const kn_map_writer *w, const kn_hw *hw, kn_map_source *s, int n, int shared);
void kn_map_lead_attach(const kn_map_writer *w, const kn_map_source *s, int n, int shared);
#endif
