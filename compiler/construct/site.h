/* What the default policy sees and makes: a statement's accesses as linear maps, and the list of stage plans that it tries. */
#ifndef KN_SITE_H
#define KN_SITE_H
#include "construct/construct.h"

enum { KN_SITE_LOADS = 16 };

/* An access as one linear map of the axes to an element number; linear is false where the address is not affine (padding alone does not matter).
 * Quotients and remainders of reduce axes may be added to it all the same: those axes are `bent` and have no coefficient. */
typedef struct kn_site_access {
    bool linear, padded;
    int bytes;
    uint32_t axes, bent;
    uint32_t straying;     /* axes of the indices that leave the tensor, of what is padded */
    int64_t coef[KILN_MAX_AXES];
} kn_site_access;

typedef struct kn_site {
    const kn_tree *t;
    const kn_stage *g;
    const kn_stmt *s;
    const kn_hw *hw;
    const char *name;      /* of the statement: the tensor it writes */
    int nloads;
    kn_site_access load[KN_SITE_LOADS], store;
    int n;                 /* innermost output axis (of extent above 1 if there is one), -1: scalar */
    int m;                 /* spatial axis to block beside it: the longest one that some load has without n, else one that a window slides along;
                            * -1: none */
    int r;                 /* reduce axis that is contiguous in a load, in the largest one, the longest such, -1: none */
    int64_t reduce_extent; /* of all reduce axes together */
    kiln_bytes before;     /* steps of the plan that made this site of the shaped program; none: p NULL */
    bool contraction;      /* some load has m and not n, some load n and not m, and they are multiplied over a reduction */
} kn_site;

void kn_site_of(kiln_arena *a, const kn_tree *t, const kn_stage *g, const kn_hw *hw, kn_site *out);
/* The linear view of one access of statement s. */
void kn_site_access_of(kiln_arena *a, const kn_program *p, const kn_stmt *s, int tensor, kn_expr *const *idx, bool padded, kn_site_access *out);

/* What is padded of this load is the same for all lanes along n, which has a dimension for itself: a condition a tap is cheaper than a copy. Not of
 * a contraction, whose rows would ask again. */
bool kn_site_lanes_agree(const kn_site *x, const kn_expr *load);
/* y (inside x) continues x in this access: one step of x is a whole row of y. Padding breaks the row unless both are absent, or stand beside each
 * other in memory and it is along others. */
bool kn_site_continues(const kn_site_access *c, int x, int y, int64_t extent);
/* joint.c: steps that make axes x and x + 1 of a stage one, and with them those of every statement that shares them through temporaries; NULL: they
 * cannot be, or no temporary is between. serial numbers the name of the new axis. */
const char *kn_joint_fuse(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int stage, int x, int serial);

/* Some load has the axis beside others in one index: taken apart there, it would leave no box to copy. */
bool kn_stands_beside(const kn_stmt *s, int axis);

/* The axis' own numbers decide which of two elements of memory e takes (the parts of a concatenation, a triangle): as a loop of its own it decides
 * for whole vectors, as a part of a longer axis for every lane. */
bool kn_decides(const kn_expr *e, int axis);

/* grouped.c: one factor of the sum goes by axis x, the other by its quotient by a constant. */
bool kn_numbers_groups(const kn_stmt *s, int x);

/* The stage has steps of its own already: its loops are no more one an axis, or they have kinds. */
bool kn_site_scheduled(const kn_tree *t, const kn_stage *g);

/* Trace lines for one stage. */
typedef struct kn_plan { kiln_bytes lines; double us; } kn_plan;
typedef struct kn_plans {
    kiln_arena *a;
    const kn_program *canonical;
    const kn_hw *hw;
    kiln_bytes head;       /* the shaping steps that come before */
    const kn_tree *t;      /* what they make of the program */
    kn_costs *costs;       /* of its stages, NULL */
    const char *note;      /* a comment on top of the lines, NULL */
    kiln_bytes first;      /* kn_plans_begin's; p NULL: none */
    const kn_tree *begun;
    int left;              /* evaluations that may still be made */
    int n;
    kn_plan best[KILN_MAX_CANDIDATES]; /* by predicted time */
    kiln_status stopped;
} kn_plans;
/* Applies the lines to the shaped program, asks the cost model, and keeps the plan at its rank; an illegal or repeated plan is passed over. */
void kn_plans_try(kn_plans *p, kn_buf *lines);

/* What the next plans all begin with, applied once; p NULL: nothing any more. False: a primitive refuses it. */
bool kn_plans_begin(kn_plans *p, kiln_bytes lines);

/* Shaping, common to all targets: inline, epilogue, fuse (ROLLER 3.4's axis fusion). start: steps that come first, NUL-terminated. */
kiln_status kn_shape(kiln_arena *a, const kn_program *p, const kn_hw *hw, kiln_bytes start, kiln_bytes *trace, kn_tree **t, kiln_diag *d);
/* parts.c: first steps that cut the program's largest reduction into parts, where its results alone leave a GPU idle; how many there are to try. */
enum { KN_PARTS = 2 };
int kn_part_steps(kiln_arena *a, const kn_program *p, const kn_hw *hw, kiln_bytes *start);
/* groups.c: steps that make one axis of a chain's rows and one of what lies along them, in the place of the shaping's own fusing in `head`; false:
 * there is no such chain. */
bool kn_group_steps(kiln_arena *a, const kn_program *p, const kn_hw *hw, kiln_bytes head, kiln_bytes *start);
#define KN_CHANNELS_IMAGE "image" /* the temporaries that channels.c's steps make */
#define KN_CHANNELS_WEIGHTS "weights"
#define KN_CHANNELS_PLACES "places"
/* channels.c: steps that copy a window's factors with the channels last, for a GPU's copy engine; NULL: it is no such window. */
const char *kn_channels_steps(kiln_arena *a, const kn_site *x);
/* padded.c: steps that fill up the rows of a product's factors, for a GPU's copies of 16 bytes; NULL: it is no such product. */
const char *kn_padded_steps(kiln_arena *a, const kn_site *x);
enum { KN_MAPPED = 8 };
/* Instructions that mapped.c looks at: all; those whose factors are narrower than a float; these, if of the fastest mapping, by prediction, the
 * instruction has registers of its own. */
typedef enum kn_mapped { KN_MAPPED_ALL, KN_MAPPED_NARROW, KN_MAPPED_UNIT } kn_mapped;
/* unfolded.c: steps that give a window over few channels the terms of its rows side by side; NULL: it is none. */
const char *kn_unfold_steps(kiln_arena *a, const kn_site *x, const char *copy, const char *taps);
double kn_mapped_us(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int stage); /* predicted, of KN_MAPPED_UNIT; infinite: has none */
bool kn_mapped_unit(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int stage); /* KN_MAPPED_UNIT has some */
/* Steps that give a stage to an instruction, one of its mappings each, by predicted time; at most KN_MAPPED. serial numbers the decision. */
int kn_mapped_steps(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int stage, kn_mapped what, int serial, const char **line, int most);
void kn_plan_cpu(const kn_site *x, kn_plans *p);
/* gpu_rows.c: plans for stage `last` together with the producers that become one kernel with it; the set of these stages, 0: none do. */
uint32_t kn_gpu_rows(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int last, kn_plans *p);
bool kn_plan_scatter(const kn_site *x, kn_plans *p); /* scatters.c, on any device; false: the stage does not scatter */
void kn_plan_gpu(const kn_site *x, kn_plans *p);
/* Products on instructions that warps compute together; why there are none of them, NULL: there are. */
const char *kn_plan_warps(const kn_site *x, kn_plans *p);
/* How many loads follow the axis. */
int kn_site_followers(const kn_site *x, int axis);
/* So many tasks are shared by `units` with no more than an eighth of the time waited for the last ones. */
bool kn_site_evenly(int64_t n, int64_t units);
/* The only read of the tensor in the program, if statement `stmt` has it and it is not padded; NULL. */
const kn_expr *kn_site_only_read(const kn_program *p, int stmt, int tensor);

#endif
