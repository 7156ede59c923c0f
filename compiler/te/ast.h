/* What the parser makes of a text before shapes and dtypes are known, shared by the parser's files only. */
#ifndef KN_TE_AST_H
#define KN_TE_AST_H
#include "te/expr.h"

enum kn_tok { KN_T_END, KN_T_LOWER, KN_T_UPPER, KN_T_INT, KN_T_FLOAT, KN_T_STRING, KN_T_PUNCT, KN_T_BAD };
typedef struct kn_token { enum kn_tok kind; const char *p; size_t n; int line, col; int64_t i; double f; } kn_token;

/* OP nodes carry a kn_op (arity as in exprs.def); the others are leaves or have the operands told here. */
enum kn_ast_kind {
    KN_A_INT, KN_A_FLOAT, KN_A_BOOL, KN_A_AXIS, KN_A_EXTENT,
    KN_A_LOAD,   /* args: indices; padded: pad */
    KN_A_OP,
    KN_A_CAST    /* args[0] to dtype */
};
typedef struct kn_ast {
    enum kn_ast_kind kind;
    enum kn_op op;
    enum kn_dtype dtype;
    const char *name; /* AXIS, EXTENT, LOAD */
    int64_t i;
    double f;         /* FLOAT; LOAD: pad value */
    bool padded;
    int nargs;
    struct kn_ast **args;
    int depth, size;  /* of the tree below, so that no later walk can run away */
    int line, col;
} kn_ast;

typedef struct kn_ast_range { const char *name; int64_t extent; int line, col; } kn_ast_range;
typedef struct kn_ast_stmt {
    const char *name;
    int line, col;
    int rank;
    kn_ast *lhs[KILN_MAX_RANK];
    enum kn_reduce red;
    bool scatter, typed;
    enum kn_dtype dtype;
    kn_ast *body;
    int nranges;
    kn_ast_range ranges[KILN_MAX_AXES];
} kn_ast_stmt;

typedef struct kn_parser {
    kiln_arena *a;
    kiln_diag *d;
    kn_program *p;
    const char *text, *end, *at; /* the lexer's window */
    int line;
    const char *line_start;
    kn_token t;                  /* the current token */
    int nesting;
    int ones;                    /* hidden axes made for a literal 0 on a left side */
    int nouts;                   /* `out` declarations */
    const char *outs[KILN_MAX_TENSORS];
} kn_parser;

/* Every parser function returns false or NULL after filling the diagnostic. */
void kn_lex_start(kn_parser *p, kiln_bytes text);
bool kn_next(kn_parser *p);                            /* false on a bad character or number */
bool kn_is(const kn_parser *p, const char *punct);     /* the current token is that punctuation or word */
bool kn_accept(kn_parser *p, const char *punct, bool *found);
bool kn_want(kn_parser *p, const char *punct);
bool kn_refuse(kn_parser *p, kiln_status s, const kn_token *at, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
const char *kn_token_name(kn_parser *p, const kn_token *t); /* copy of its text, NULL when too long */
kn_ast *kn_parse_expr(kn_parser *p);
bool kn_parse_int(kn_parser *p, int64_t *out);         /* constant integer expression */
bool kn_parse_dtype(kn_parser *p, enum kn_dtype *out); /* bare or quoted */
bool kn_parse_type(kn_parser *p, enum kn_dtype *t, int *rank, int64_t *shape);
bool kn_parse_decls(kn_parser *p, kiln_bytes inputs);  /* "a=f32:4x4&b=f32[2]" */
bool kn_parse_constant(kn_parser *p, bool *constant); /* "const" behind a type, with or without a colon; absent: false */
bool kn_declare_input(kn_parser *p, const kn_token *name, enum kn_dtype t, int rank, const int64_t *shape, bool constant);

/* parse_fn.c: fn(args) and the methods of Antares; args may contain NULL-free operands only. */
kn_ast *kn_ast_new(kn_parser *p, enum kn_ast_kind kind, const kn_token *at, int nargs, kn_ast *const *args);
kn_ast *kn_ast_op(kn_parser *p, enum kn_op op, const kn_token *at, kn_ast *x, kn_ast *y);
kn_ast *kn_ast_call(kn_parser *p, const kn_token *name, const char *fn, size_t n, int nargs, kn_ast **args);
kn_ast *kn_parse_primary(kn_parser *p);

int kn_find_tensor(const kn_program *p, const char *name);
/* infer.c: numbers the statement's axes and finds their extents. */
bool kn_infer(kn_parser *p, const kn_ast_stmt *src, kn_stmt *s);
/* elaborate.c: typed expressions. */
kn_expr *kn_elaborate_body(kn_parser *p, const kn_ast_stmt *src, kn_stmt *s);
int64_t kn_known_extent(kn_parser *p, const kn_stmt *s, const char *name); /* of this statement or an earlier one; 0: none */
#endif
