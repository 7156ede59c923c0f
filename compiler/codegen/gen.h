/* What the code generators share: the state of one printing, names, expressions, statements, the prelude. */
#ifndef KN_GEN_H
#define KN_GEN_H
#include "codegen/codegen.h"

#define KN_MAX_LANES 128
#define KN_LANE_CLASSES 8          /* lane counts 1, 2, 4 .. 128 */
#define KN_MAX_TEXT_NODES (1 << 18) /* printed expression nodes of one source; shared subtrees count each time they are printed */

/* Helper functions of the prelude: one row each in prelude.def. */
enum kn_snippet {
#define X(name, needs, scalar, vector) KN_SN_##name,
#include "codegen/prelude.def"
#undef X
    KN_SNIPPET_COUNT
};

/* Functions of warps.def. */
enum kn_warp_text {
#define X(name, text) KN_WT_##name,
#include "codegen/warps.def"
#undef X
    KN_WARP_TEXTS
};

typedef struct kn_gen {
    kiln_arena *a;
    const kn_lprog *p;
    kiln_diag *d;
    kiln_status status;    /* the first failure; printing goes on harmlessly after it */
    bool cuda;
    bool narrow;           /* CUDA: index arithmetic in int, all extents allow it */
    bool bits;             /* small floats are printed as they are stored */
    bool streams, streamed; /* C: the function, some function writes lines past the caches */
    bool in_index;         /* printing an index: variables keep their own type */
    int lane;              /* >= 0: vector nodes are printed as the scalar of this lane */
    int depth;             /* of statement nesting */
    int nodes;             /* printed so far, against KN_MAX_TEXT_NODES */
    kn_buf out;            /* functions; the prelude goes before them when what they need is known */
    bool *bound;           /* variable stands for a constant lane number */
    int64_t *value;
    bool *nonneg;          /* variable is never negative */
    const kn_expr **loads; /* CUDA: vector reads already loaded into locals k_r0 .. */
    int nloads;
    int copies;            /* CUDA: asynchronous copies with a condition so far */
    bool lanes[KN_LANE_CLASSES];
    bool warp[KN_WARP_TEXTS]; /* CUDA: functions of warps.c that are used */
    int64_t *factor;       /* CUDA: a power of two that divides the variable */
    bool need[KN_SNIPPET_COUNT][KN_DTYPE_COUNT][KN_LANE_CLASSES];
} kn_gen;

/* entry points, one a row of languages.def */
kiln_status kn_gen_c(kiln_arena *a, const kn_lprog *p, const char *entry, kiln_bytes *source, kiln_bytes *header, kiln_diag *d);
kiln_status kn_gen_cuda(kiln_arena *a, const kn_lprog *p, const char *entry, kiln_bytes *source, kiln_bytes *header, kiln_diag *d);

kiln_status kn_gen_open(kn_gen *g, kiln_arena *a, const kn_lprog *p, bool cuda, kiln_diag *d);
void kn_gen_refuse(kn_gen *g, kiln_status s, const char *what);
/* Comment lines at the top of every file: entry, target, program. */
void kn_gen_title(kn_buf *b, const kn_lprog *p, const char *entry);

/* names.c: text never clashes with a keyword, a type or a helper, whatever the program's names are. */
void kn_put_var(kn_gen *g, int var);
void kn_put_buffer(kn_gen *g, int buffer);
void kn_put_clean(kn_buf *b, const char *name); /* of letters, digits and '_', not led by a digit or '_' */
const char *kn_value_type(enum kn_dtype t);   /* what an expression of t is computed in: floats of 8 and 16 bits in f32 */
const char *kn_storage_type(enum kn_dtype t); /* what memory holds: f16 and bf16 as bits in u16, floats of 8 bits and BOOL as u8 */
const char *kn_mask_type(enum kn_dtype t);    /* signed integer as wide as the value type */
int kn_value_bits(enum kn_dtype t);
bool kn_is_small_float(enum kn_dtype t);      /* of 8 or 16 bits */
bool kn_is_float(enum kn_dtype t);
int kn_lane_class(int lanes);                 /* log2; -1 when no such vector exists */
void kn_put_vector_type(kn_gen *g, const char *element, int lanes);
void kn_put_helper(kn_gen *g, enum kn_snippet s, const char *name, enum kn_dtype t, int lanes); /* its name, and notes the need */

/* expr.c, vector.c: values. A value of 8 or 16 bits is printed as the f32 it equals. */
void kn_put_scalar(kn_gen *g, const kn_expr *e);
const char *kn_bits_sign(enum kn_op op); /* C operator of BITAND, BITOR, BITXOR, SHL or SHR */
void kn_put_index(kn_gen *g, const kn_expr *e);
void kn_put_condition(kn_gen *g, const kn_expr *e);
bool kn_nonneg(const kn_gen *g, const kn_expr *e); /* surely >= 0 */
void kn_put_number(kn_gen *g, enum kn_dtype t, double x);
void kn_put_integer(kn_gen *g, enum kn_dtype t, int64_t x);
void kn_put_vector(kn_gen *g, const kn_expr *e);
/* Parts of one (vector.c): {its lanes, one by one}, from memory, as an operand of so many lanes, two such with an operator between. */
void kn_put_lane_list(kn_gen *g, const kn_expr *e);
void kn_put_vector_read(kn_gen *g, const kn_expr *e);
void kn_put_operand(kn_gen *g, const kn_expr *e, int lanes);
void kn_put_infix(kn_gen *g, const kn_expr *e, const char *op, int lanes);
void kn_put_type_of(kn_gen *g, const kn_expr *e); /* of a vector */
/* shuffle.c */
void kn_put_zip(kn_gen *g, const kn_expr *e);
void kn_put_pick(kn_gen *g, const kn_expr *e);
void kn_put_spread(kn_gen *g, const kn_expr *e);
bool kn_put_strided(kn_gen *g, const kn_expr *e); /* every step-th element, by vectors that are shuffled; false: it is none, nothing was printed */
/* mask.c, vector.c */
void kn_put_mask(kn_gen *g, const kn_expr *e, int bits, int lanes); /* BOOL vector as lanes of 0 or -1 */
bool kn_guards(const kn_expr *e);             /* a select that evaluates one side a lane: a read may be out of bounds in the others */
void kn_put_hsum(kn_gen *g, const kn_expr *e);
void kn_put_register(kn_gen *g, int buffer, const kn_expr *index);
void kn_put_bits(kn_gen *g, const kn_expr *e); /* a read, as it is stored */
const char *kn_math_name(enum kn_op op);      /* libm name without its suffix; NULL */
/* e rounded later by the store into dtype t: the expression to print instead of a cast that the store does anyway. */
const kn_expr *kn_store_value(const kn_expr *e);

/* stmt.c */
void kn_put_body(kn_gen *g, const kn_ls *s);
void kn_put_registers(kn_gen *g, const kn_fn *f); /* declarations of the register elements that f uses */
void kn_ls_ranges(kn_gen *g, const kn_ls *s);     /* signs of the variables of a list */
void kn_mark_buffers(const kn_lprog *p, const kn_fn *f, bool *used, bool *stored);
void kn_fn_ranges(kn_gen *g, const kn_fn *f);     /* signs of the variables */
void kn_line(kn_gen *g);                          /* newline and indentation */

/* call.c: instructions */
void kn_put_call(kn_gen *g, const kn_ls *s);
void kn_put_instructions(kn_gen *g);              /* a function for each one that is called */
bool kn_instructions_flush(const kn_lprog *p);    /* some of them, products of halves, take denormals for zeros */

/* unit.c: registers of an instruction's own unit */
void kn_put_unit(kn_gen *g, const kn_ls *s);
void kn_put_unit_call(kn_gen *g, const kn_call *c);
void kn_put_unit_texts(kn_gen *g);                /* what such text needs, behind the instructions' functions */
bool kn_unit_used(kn_gen *g, const kn_fn *f);

/* warps.c: asynchronous copies, fragments and instructions of warps. */
void kn_put_async(kn_gen *g, const kn_ls *s);
void kn_put_fragment(kn_gen *g, const kn_ls *s);
void kn_put_commit(kn_gen *g, const kn_ls *s);
void kn_put_wait(kn_gen *g, const kn_ls *s);
void kn_put_group(kn_gen *g, const kn_ls *s);
void kn_put_pipe(kn_gen *g, const kn_ls *s);      /* bulk.c */
void kn_put_warp_call(kn_gen *g, const kn_ls *s);
void kn_put_warp_instruction(kn_gen *g, int fn);  /* the function that such calls name */
void kn_put_call_name(kn_gen *g, int fn);
void kn_put_warp_texts(const kn_gen *g, kn_buf *b);

/* prelude.c: prints the helpers that were needed, in table order. */
void kn_put_prelude(kn_gen *g, kn_buf *b);
#endif
