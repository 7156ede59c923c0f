/* A cursor over the lines of a block program. Private to compiler/block. */
#ifndef KN_BLOCK_PARSE_H
#define KN_BLOCK_PARSE_H
#include "block/block.h"

typedef struct kn_bp {
    kiln_arena *a;
    kn_blocks *b;
    kiln_diag *d;
    const char *end;         /* of the text */
    const char *line_start, *line_end, *at;
    int line, depth;         /* depth: two spaces each */
    bool done;
} kn_bp;

bool kn_bp_fail(kn_bp *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool kn_bp_line(kn_bp *p, const char *from);         /* the next line with something on it; false: bad depth; done: none left */
bool kn_bp_word(kn_bp *p, const char *word);         /* takes it when it stands here */
bool kn_bp_want(kn_bp *p, const char *mark);
bool kn_bp_mark(kn_bp *p, const char *mark);         /* takes it when it stands here */
const char *kn_bp_name(kn_bp *p, bool dots, const char *what); /* NULL after failing */
bool kn_bp_int(kn_bp *p, int64_t *out);
bool kn_bp_end(kn_bp *p);                            /* nothing may follow on the line */
/* The text up to the first of `stops` outside of brackets, or the end of the line. */
kiln_bytes kn_bp_span(kn_bp *p, const char *stops);
kn_expr *kn_bp_expr(kn_bp *p, const kn_stmt *iters, const char *stops);
/* Over the loops around `at`: + - * // % of loops and whole numbers. */
kn_expr *kn_bp_binding(kn_bp *p, const kn_bnode *at);
/* block.c of the parser: the line with the cursor behind "block", and the lines below it. */
bool kn_bp_block(kn_bp *p, kn_bnode *parent, int depth);
#endif
