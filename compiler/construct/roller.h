/* The published ROLLER artifact's search, exactly: for policy "roller" and for comparison with its golden values. The default policy takes
 * its tiles of contractions as candidates too. Sources: ROLLER (OSDI'22) section 3 and its artifact's policies RT and PlainRT. */
#ifndef KN_ROLLER_H
#define KN_ROLLER_H
#include "construct/construct.h"

enum { KN_ROLLER_OPERANDS = 16 };

/* One rTile candidate of the published search, as the golden tables have it. Axes: the (fused) spatial axes, then the reduce axes. */
typedef struct kn_rtile {
    int nspatial, nreduce;
    int64_t block[KILN_MAX_AXES], thread[KILN_MAX_AXES], rstep[KILN_MAX_AXES];
    int64_t threads, grid, smem_bytes;
    double regs;
} kn_rtile;
typedef struct kn_roller_operand { int rank, bytes; kn_affine index[KILN_MAX_RANK]; } kn_roller_operand;

/* A statement as the artifact sees it. Tile vectors t[] have one size an axis: spatial axes, then reduce axes. */
typedef struct kn_roller_view {
    int nspatial, nreduce, nin, out_bytes;
    int64_t full[KILN_MAX_AXES];
    kn_roller_operand in[KN_ROLLER_OPERANDS];
    bool clip_padding;
} kn_roller_view;

/* The artifact's view of statement `stmt`: as a GEMM out[F, P] over K where it is a contraction of two operands (the authors wrote
 * convolutions so), else with axes fused where the paper's rule allows it (section 3.4). group[axis] = number of the fused axis. Refuses
 * quasi-affine indices. */
kiln_status kn_roller_view_of(const kn_program *p, int stmt, kn_roller_view *v, int *group, kiln_diag *d);
/* At most k tiles in the artifact's order, from at most `calls` tiles looked at (KN_ROLLER_ALL: the artifact's own bound). policy_used: "RT" or
 * "PlainRT". last_eps: tolerance of the last round. tiles in the arena. */
enum { KN_ROLLER_ALL = 1 << 24 };
kiln_status kn_roller_tiles(kiln_arena *a, const kn_roller_view *v, const kn_hw *hw, int k, int calls, kn_rtile **tiles, int *ntiles,
                            const char **policy_used, double *last_eps, kiln_diag *d);

int64_t kn_roller_dim(const kn_roller_view *v, const kn_roller_operand *o, int k, const int64_t *t);
double kn_roller_compute(const kn_roller_view *v, const int64_t *t);   /* operations of one output tile over the whole reduction */
double kn_roller_in_bytes(const kn_roller_view *v, const int64_t *t);  /* input bytes of the same */
double kn_roller_traffic(const kn_roller_view *v, const int64_t *t);   /* input and output bytes of the same */
double kn_roller_footprint(const kn_roller_view *v, const int64_t *t); /* bytes of the input tiles of one step */
double kn_roller_regs(const kn_roller_view *v, const int64_t *t);      /* 32-bit registers of one thread */
bool kn_roller_io_dependent(const kn_roller_view *v);

/* group[axis]: 0 = F, 1 = P (has the innermost output axis), 2 = K; false when the statement is no contraction without batch axes. */
bool kn_roller_gemm_groups(const kn_stmt *s, int *group);
/* Axes fused where they are adjacent in every access; returns how many are left. */
int kn_roller_fuse_groups(const kn_stmt *s, int *fused);
/* Candidates as policy "roller" makes them, where its reuse search applies to every reduction; else KILN_NO_SCHEDULE. */
kiln_status kn_roller_contractions(kiln_arena *a, const kn_program *p, const kn_hw *hw, int k, kiln_candidates **out, kiln_diag *d);
#endif
