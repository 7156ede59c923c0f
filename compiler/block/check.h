/* What the checks of blocks share. Private to compiler/block. */
#ifndef KN_BLOCK_CHECK_H
#define KN_BLOCK_CHECK_H
#include "block/itermap.h"

typedef struct kn_ck {
    const kn_blocks *b;
    const kn_hw *hw;
    kiln_diag *d;
    int nblocks;
    const kn_bnode *blocks[512];             /* in order */
    const kn_bnode *writer[KILN_MAX_TENSORS];
} kn_ck;

/* "WORD: ..." at the node; always false. */
bool kn_ck_fail(kn_ck *c, enum kn_fault f, const kn_bnode *n, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
const char *kn_ck_buffer(const kn_ck *c, int buffer);
bool kn_ck_uses(const kn_expr *e, enum kn_op op, int leaf);      /* AXIS or VAR number occurs */
bool kn_ck_bound_by(const kn_block *k, int var, bool reduce);    /* some iterator of that kind uses the loop */
int64_t kn_ck_limit(const kn_block *k, int iter);                /* values below it pass the condition; the extent when it has none */
const kn_bnode *kn_ck_common(const kn_bnode *x, const kn_bnode *y);
bool kn_ck_loops(kn_ck *c, const kn_bnode *n);                   /* check_loops.c: a loop by itself */
bool kn_ck_bindings(kn_ck *c, const kn_bnode *n);                /* check_bind.c */
bool kn_ck_body(kn_ck *c, const kn_bnode *n);                    /* check_body.c */
bool kn_ck_threads(kn_ck *c, const kn_bnode *n);                 /* check_loops.c: a block under its loops */
bool kn_ck_reads(kn_ck *c, const kn_bnode *n);                   /* check_cover.c */
bool kn_ck_writes(kn_ck *c, const kn_bnode *n);
#endif
