/* What the primitives share: the step being applied and small queries on the tree. Private to compiler/schedule. */
#ifndef KN_SCHED_H
#define KN_SCHED_H
#include "schedule/schedule.h"

#define KN_STEP_ARGS (KILN_MAX_LOOPS * 2 + 16)

/* One line of a trace while it is applied. The tree is the caller's own copy: a refused step leaves nothing behind. */
typedef struct kn_step {
    kiln_arena *a;
    kn_tree *t;
    const kn_hw *hw;
    kiln_diag *d;
    int number;            /* 1-based, over the steps that are not empty or comments */
    int line;              /* 1-based line of the trace text */
    const char *prim;
    int nargs;
    const char *args[KN_STEP_ARGS];
    const char *decision;  /* what a sampling primitive decided, as it would stand behind ':'; NULL: the step is no such primitive */
    kn_buf *complete;      /* the trace is written here again, with every decision; NULL: not wanted */
} kn_step;

typedef struct kn_prim {
    const char *name;
    int min_args, max_args;  /* max < 0: any number */
    const char *usage;
    kiln_status (*apply)(kn_step *s);
} kn_prim;
#define X(name, min, max, usage) kiln_status kn_prim_##name(kn_step *s);
#include "schedule/prims.def"
#undef X

/* Refuses the step: "step 3 (split out0): ...". */
kiln_status kn_step_refuse(kn_step *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The stage whose statement writes tensor `name`; NULL after refusing. */
kn_stage *kn_step_stage(kn_step *s, const char *name);
/* Loop or axis of the stage by name; -1 after refusing. */
int kn_step_loop(kn_step *s, const kn_stage *g, const char *name);
int kn_step_axis(kn_step *s, const kn_stage *g, const char *name);
bool kn_step_int(kn_step *s, const char *text, int64_t lo, int64_t hi, int64_t *out);

/* Lines of a trace as a part of this step; a line that does not fit refuses the step. */
kiln_status kn_step_run(kn_step *s, kiln_bytes lines);
/* prim_map.c: the fresh stage, and the mappings of its loops onto an instruction of the target; NULL after refusing. */
struct kn_maps;
kn_stage *kn_step_maps(kn_step *s, const char *name, const char *instruction, struct kn_maps **out);

/* sample.c: $NAME, or $NAME.part where part >= 0, stands for value in later steps; false after refusing. */
bool kn_step_define(kn_step *s, const char *name, int part, const char *value);
bool kn_step_substitute(kn_step *s);
int kn_step_decision(const kn_step *s); /* where ':' stands among the arguments; nargs: it does not */

/* rewrite.c: for primitives that add statements. NULL or -1 after refusing. */
int kn_step_temp(kn_step *s, const char *name, enum kn_dtype t, int rank, const int64_t *shape); /* a new temporary: its tensor */
/* A copy of statement st and its stage, right before or behind stage `at`. */
kn_stage *kn_step_insert(kn_step *s, kn_stage *at, const kn_stmt *st, bool behind);
/* Statement *t for each element of the tensor that the load reads, to the new temporary `name` of its shape, without a body: what it reads there.
 * NULL: refused, or out of memory. */
kn_expr *kn_step_each(kn_step *s, const kn_expr *load, const char *name, enum kn_dtype dtype, kn_stmt *t);
/* The stage writes a new temporary of that shape; a copy behind it writes what it wrote before, from the temporary's first elements. */
kiln_status kn_step_divert(kn_step *s, kn_stage *g, const char *name, const int64_t *shape);
kn_stage *kn_step_fresh(kn_step *s, const char *name);           /* the stage, which no other step may have touched yet */
bool kn_step_nest_free(kn_step *s, const kn_stage *g);           /* no cache, attachment or initialisation holds on to its loops */
bool kn_step_own_loop(kn_step *s, const kn_stage *g, int loop);  /* the loop is not its consumer's */
const kn_expr *kn_step_load(kn_step *s, const kn_stage *g, const char *number); /* load of the body by its number */
void kn_stmt_replace(kiln_arena *a, kn_stmt *s, const kn_expr *load, kn_expr *with); /* that node, by identity */
bool kn_inside(const kn_program *p, const kn_stmt *s, const kn_expr *load); /* its indices are in range for all values of the axes */

/* prim_cache_read.c: the loops from argument *arg on become c's dimensions; whether the load can be read from such a cache. */
kiln_status kn_cache_loops(kn_step *s, const kn_stage *g, kn_cache *c, int *arg);
kiln_status kn_cache_fits(kn_step *s, const kn_stage *g, const kn_cache *c, const kn_expr *load);

/* tensor.c: loops for x->loop, x->intrin and x->at being given, such that the body is the instruction's; false, and why. */
bool kn_tensor_find(const kn_tree *t, const kn_stage *g, kn_tensor_tile *x, char *why, size_t cap);
/* Nothing stands between the instruction and the loops it computes. */
bool kn_tensor_nest(const kn_tree *t, const kn_stage *g, const kn_tensor_tile *x, char *why, size_t cap);
bool kn_tensor_registers(const kn_tree *t, const kn_stage *g, const kn_hw *hw, char *why, size_t cap); /* at the end */
bool kn_warp_fits(const kn_tree *t, const kn_stage *g, const kn_hw *hw, char *why, size_t cap);  /* warp.c, at the end, of a stage of warps */
/* bulk.c: address of a load over the axes, NULL: not affine, or padded; and, at the end, what must hold of a stage with bulk copies. */
kn_affine *kn_bulk_address(kiln_arena *a, const kn_tree *t, const kn_stage *g, int load);
kn_window *kn_bulk_window(kiln_arena *a, const kn_tree *t, const kn_stage *g, int load); /* NULL: it is none */
bool kn_bulk_fits(const kn_tree *t, const kn_stage *g, const kn_hw *hw, char *why, size_t cap);

kn_stmt *kn_stage_stmt(const kn_tree *t, const kn_stage *g);
const char *kn_stage_name(const kn_tree *t, const kn_stage *g);
int kn_stage_find(const kn_tree *t, const kn_stage *g); /* its position */
kn_tree *kn_tree_new(kiln_arena *a, const kn_program *p);
kn_tree *kn_tree_clone(kiln_arena *a, const kn_tree *t);
void kn_stage_loops_init(kn_stage *g, const kn_stmt *s);  /* one loop an axis, axis order */
bool kn_stage_untouched(const kn_stage *g);               /* no split, order, kind, cache or attachment yet */
void kn_tree_drop_stage(kn_tree *t, int stage);
void kn_program_drop_stmt(kn_tree *t, int stmt);          /* and renumbers what the stages hold */
bool kn_is_reduce(const kn_tree *t, const kn_stage *g, int loop);
/* The load number i of the stage's body, or NULL. */
const kn_expr *kn_stage_load(const kn_tree *t, const kn_stage *g, int i);
/* How often body reads tensor; *one is a load of it. */
int kn_reads_of(const kn_expr *body, int tensor, const kn_expr **one);
/* Ranges of a statement's axes for kn_simplify; user is the kn_stmt. */
void kn_sched_range(void *user, const kn_expr *leaf, int64_t *lo, int64_t *hi);
/* Simplifies the indices of a statement's output (of `rank` dimensions) and loads by the ranges of its axes. */
void kn_stmt_simplify(kiln_arena *a, kn_stmt *s, int rank);
/* Everything that must hold at the end of a trace. */
kiln_status kn_tree_check(kn_tree *t, const kn_hw *hw, kiln_diag *d);
const char *kn_loop_kind_text(enum kn_loop_kind k);
const char *kn_scope_text(enum kn_scope s);
#endif
