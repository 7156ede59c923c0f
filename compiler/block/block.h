/* Blocks: a schedule as text that can be read, changed and checked (TensorIR, ASPLOS'23, section 3).
 *
 * A nest of loops ends in blocks. A block has iterators, each bound to an expression over the loops around it, and its body speaks of
 * nothing but its iterators and buffers: the loops may change as long as the bindings hold. Language: README.md. */
#ifndef KN_BLOCK_H
#define KN_BLOCK_H
#include "schedule/schedule.h"

#define KN_BLOCK_REGIONS 64
#define KN_BLOCK_VARS 4096
#define KN_BLOCK_DEPTH 256

/* buffer[lo : lo + extent, ...]; clipped: it may reach out of the buffer, and what lies there is not read (padding or a select). */
typedef struct kn_region {
    int buffer;
    bool clipped;
    kn_expr *lo[KILN_MAX_RANK]; /* over the iterators (AXIS) */
    int64_t extent[KILN_MAX_RANK];
    int line, col;
} kn_region;

/* s: its axes are the iterators, s.out, s.lhs, s.red and s.body the statement; tensor numbers are buffer numbers. */
typedef struct kn_block {
    const char *name;
    kn_stmt s;
    kn_expr *bind[KILN_MAX_AXES]; /* over the loop variables (VAR) */
    kn_expr *where;               /* over the iterators, BOOL; NULL: always */
    int nreads, nwrites;
    kn_region reads[KN_BLOCK_REGIONS], writes[4];
    kn_expr *init;                /* reductions: what the written element starts from; NULL: none */
    bool warp;                    /* done by all lanes of a warp together */
    const char *call;             /* an instruction instead of a statement: the regions are all that is known; else NULL */
} kn_block;

enum kn_bnode_kind { KN_BN_LOOP, KN_BN_IF, KN_BN_BLOCK };
typedef struct kn_bnode {
    enum kn_bnode_kind kind;
    struct kn_bnode *parent, *child, *next;
    int line, col;                /* 0: not from a text */
    /* loop */
    const char *name;
    int64_t extent;
    enum kn_loop_kind loop;
    bool rfactor;
    const char *by;               /* the instruction that computes this loop and what is inside; NULL: none */
    int var;                      /* thread loops of one name in one nest are one variable */
    kn_expr *lhs, *rhs;           /* if: lhs < rhs, over the loop variables */
    kn_block *block;
} kn_bnode;

/* tensors->tensors[i] is buffer i: role KN_INPUT and KN_OUTPUT are arguments, KN_TEMP everything else. */
typedef struct kn_blocks {
    kiln_arena *a;
    kn_program *tensors;
    enum kn_scope scope[KILN_MAX_TENSORS];
    int64_t pad[KILN_MAX_TENSORS];   /* elements appended to the innermost row */
    int64_t align[KILN_MAX_TENSORS]; /* bytes at which every row starts; 0: any */
    int line[KILN_MAX_TENSORS];
    kn_bnode *nests;                 /* launches, in order */
    int nvars;
    kn_bnode *vars[KN_BLOCK_VARS];   /* the first loop that has this variable */
} kn_blocks;

enum kn_fault {
#define X(name, word, meaning) KN_FAULT_##name,
#include "block/faults.def"
#undef X
    KN_FAULT_COUNT
};
const char *kn_fault_word(enum kn_fault f);

/* ---- build ---- */
kn_blocks *kn_blocks_new(kiln_arena *a);
int kn_blocks_buffer(kn_blocks *b, const char *name, enum kn_dtype t, enum kn_role role, enum kn_scope scope, int rank, const int64_t *shape);
/* Appends a node under parent (NULL: a new nest); NULL when out of memory or variables. */
kn_bnode *kn_blocks_loop(kn_blocks *b, kn_bnode *parent, const char *name, int64_t extent, enum kn_loop_kind kind);
kn_bnode *kn_blocks_node(kn_blocks *b, kn_bnode *parent, enum kn_bnode_kind kind);
kn_expr *kn_var_ref(kiln_arena *a, int var);
void kn_block_iter_range(void *user, const kn_expr *leaf, int64_t *lo, int64_t *hi); /* user: kn_block; its iterators' domains */
void kn_block_var_range(void *user, const kn_expr *leaf, int64_t *lo, int64_t *hi);  /* user: kn_blocks; its loops */
/* The expression with every iterator replaced by its binding; simplified over the loops, or as it stands. */
kn_expr *kn_block_bound(const kn_blocks *b, const kn_block *k, const kn_expr *e);
kn_expr *kn_block_bound_raw(const kn_blocks *b, const kn_block *k, const kn_expr *e);

/* ---- text ---- */
void kn_blocks_print(kn_buf *out, const kn_blocks *b);
/* Reads what kn_blocks_print writes; printing the result gives the same bytes again. Errors carry line and column. */
kiln_status kn_blocks_parse(kiln_arena *a, kiln_bytes text, kn_blocks **out, kiln_diag *d);

/* ---- from a schedule, and checks ---- */
/* The block form of a tile tree: stages, epilogues, cache fills and attached producers are blocks of their own. */
kiln_status kn_blocks_of_tree(kiln_arena *a, const kn_tree *t, const kn_hw *hw, kn_blocks **out, kiln_diag *d);
/* Everything a program of blocks must hold on this device. Refused with KILN_TRACE and "WORD: block c, iterator N: why". */
kiln_status kn_blocks_check(const kn_blocks *b, const kn_hw *hw, kiln_diag *d);
#endif
