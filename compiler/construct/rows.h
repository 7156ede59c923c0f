/* Stages that share the loops over rows, for the planners of CPUs (cpu_rows.c) and GPUs (gpu_rows.c). Private to compiler/construct. */
#ifndef KN_ROWS_H
#define KN_ROWS_H
#include "construct/site.h"

/* Stages stage[0] > stage[1] > ..., the last of the program first, whose loops over the row axes become everybody's. */
typedef struct kn_rows {
    kiln_arena *a;
    const kn_tree *t;
    const kn_hw *hw;
    int n, last, stage[KILN_MAX_STMTS];
    int of[KILN_MAX_STMTS][KILN_MAX_AXES]; /* of[k][x]: axis of the last stage that axis x of stage k is, -1: none */
    uint32_t shared;                       /* row axes, as axes of the last stage */
    bool slide;                            /* windows may slide along other axes than those */
} kn_rows;

const kn_stmt *kn_rows_stmt(const kn_rows *r, int k);
const char *kn_rows_tensor(const kn_rows *r, int k);
bool kn_rows_slides(const kn_stmt *s);
/* All that read stage k are here already, and k is one of those that can stand inside a loop: its row axes are left in r->shared. */
bool kn_rows_join(kn_rows *r, int k);
#endif
