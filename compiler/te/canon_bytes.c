/* Canonical bytes: a canonical program as tag-length-value records. Tags are the table's words, so that the order of its rows is not
 * part of any key. A record is: length of the tag (1 byte), tag, number of int64 values (8 bytes), values (little-endian). */
#include "te/expr.h"
#include <string.h>

static void put_i64(kn_buf *b, int64_t x)
{
    char bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (char)((uint64_t)x >> (8 * i));
    kn_putn(b, bytes, 8);
}

static void record(kn_buf *b, const char *tag, int n, const int64_t *values)
{
    char length = (char)strlen(tag);
    kn_putn(b, &length, 1);
    kn_putn(b, tag, strlen(tag));
    put_i64(b, n);
    for (int i = 0; i < n; i++) put_i64(b, values[i]);
}

static int64_t bits(double x)
{
    int64_t u;
    if (x != x) return INT64_C(0x7ff8000000000000);
    memcpy(&u, &x, sizeof u);
    return u;
}

static void put_expr(kn_buf *b, const kn_expr *e)
{
    int64_t v[3] = {0};
    int n = 0;
    if (e->op == KN_OP_CONST_F) v[n++] = bits(e->u.f);
    if (e->op == KN_OP_CONST_I) v[n++] = e->u.i;
    if (e->op == KN_OP_AXIS) v[n++] = e->u.axis;
    if (e->op == KN_OP_LOAD) {
        v[n++] = e->u.tensor;
        v[n++] = e->padded;
        v[n++] = e->padded ? bits(e->pad_value) : 0;
    }
    record(b, kn_op_name(e->op), n, v);
    if (e->op == KN_OP_CONST_F || e->op == KN_OP_CONST_I || e->op == KN_OP_CAST) record(b, kn_dtype_text(e->dtype), 0, NULL);
    for (int i = 0; i < e->nargs; i++) put_expr(b, e->args[i]);
}

static void put_stmt(kn_buf *b, const kn_program *p, const kn_stmt *s)
{
    static const char *const reductions[] = {[KN_RED_NONE] = "map", [KN_RED_SUM] = "sum", [KN_RED_PROD] = "prod", [KN_RED_MAX] = "max",
                                             [KN_RED_MIN] = "min",  [KN_RED_ALL] = "all", [KN_RED_ANY] = "any"};
    int64_t extents[KILN_MAX_AXES];
    for (int i = 0; i < s->naxes; i++) extents[i] = s->axes[i].extent;
    record(b, "stmt", 3, (int64_t[]){s->out, s->nspatial, s->scatter});
    record(b, reductions[s->red], s->naxes, extents);
    for (int i = 0; i < p->tensors[s->out].rank; i++) put_expr(b, s->lhs[i]);
    put_expr(b, s->body);
}

kiln_status kn_canon_bytes(kiln_arena *a, const kn_program *p, kiln_bytes *out)
{
    kn_buf b;
    kn_buf_init(&b, a);
    record(&b, "te1", 4, (int64_t[]){p->ninputs, p->noutputs, p->ntensors, p->nstmts});
    for (int i = 0; i < p->ntensors; i++) record(&b, kn_dtype_text(p->tensors[i].dtype), p->tensors[i].rank, p->tensors[i].shape);
    for (int64_t i = 0; i < p->ninputs; i++)
        if (p->tensors[i].constant) record(&b, "constant", 1, &i);
    for (int i = 0; i < p->nstmts; i++) put_stmt(&b, p, p->stmts[i]);
    kiln_bytes t = kn_buf_take(&b);
    if (!t.p) return KILN_MEMORY;
    *out = t;
    return KILN_OK;
}
