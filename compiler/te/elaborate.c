/* From the untyped tree to typed expressions. Literals and axes are weak: they take the dtype of what they meet. */
#include "te/ast.h"
#include <string.h>

typedef struct value { kn_expr *e; bool weak; } value;
typedef struct elab { kn_parser *p; kn_stmt *s; } elab;
static const value none = {NULL, false};

static value convert(elab *x, const kn_ast *e);

static value refuse(elab *x, const kn_ast *e, const char *hint, const char *what, enum kn_dtype t)
{
    kn_token at = {.line = e->line, .col = e->col};
    kn_refuse(x->p, KILN_DTYPE, &at, what, kn_dtype_text(t));
    if (hint) kn_hint(x->p->d, "%s", hint);
    return none;
}

/* Places a made expression in the text; nodes that were there before keep their own place. */
static value made(elab *x, const kn_ast *at, kn_expr *e, bool weak)
{
    kn_token t = {.line = at->line, .col = at->col};
    if (!e) {
        kn_refuse(x->p, KILN_MEMORY, &t, "out of memory");
        return none;
    }
    if (!e->line) {
        e->line = at->line;
        e->col = at->col;
    }
    return (value){e, weak};
}

/* Brings two operands to one dtype: the weak one follows; of two weak ones the integer follows the float. */
static bool unify(elab *x, const kn_ast *at, value *l, value *r)
{
    kiln_arena *a = x->p->a;
    enum kn_dtype tl = l->e->dtype, tr = r->e->dtype;
    if (tl != tr) {
        bool left_follows = l->weak && (!r->weak || kn_is_float(tr)), right_follows = !left_follows && r->weak;
        value *follower = left_follows ? l : r;
        enum kn_dtype to = left_follows ? tr : tl;
        bool possible = (left_follows || right_follows) && to != KN_BOOL && (kn_is_float(to) || !kn_is_float(follower->e->dtype));
        if (!possible) {
            kn_token t = {.line = at->line, .col = at->col};
            kn_refuse(x->p, KILN_DTYPE, &t, "operands of dtypes %s and %s", kn_dtype_text(tl), kn_dtype_text(tr));
            kn_hint(x->p->d, "convert one: cast(x, %s)", kn_dtype_text(kn_is_float(tr) && !kn_is_float(tl) ? tr : tl));
            return false;
        }
        *follower = made(x, at, kn_cast(a, to, follower->e), follower->weak);
        if (!follower->e) return false;
    }
    bool weak = l->weak && r->weak;
    l->weak = r->weak = weak;
    return true;
}

static value truth(elab *x, const kn_ast *at, value v)
{
    kiln_arena *a = x->p->a;
    if (!v.e || v.e->dtype == KN_BOOL) return v;
    return made(x, at, kn_bin(a, KN_OP_NE, v.e, kn_const_i(a, v.e->dtype, 0)), false);
}

/* Indices are I64. What data decides is clamped into the tensor, so that no data can make a kernel read elsewhere. */
static kn_expr *index_expr(elab *x, const kn_ast *e, int64_t dim, bool clamp)
{
    kiln_arena *a = x->p->a;
    const kn_expr *load[1];
    int64_t lo, hi;
    value v = convert(x, e);
    if (!v.e) return NULL;
    if (kn_is_float(v.e->dtype) || v.e->dtype == KN_BOOL) return refuse(x, e, "cast(x, i64)", "an index of dtype %s", v.e->dtype).e;
    kn_expr *i = kn_cast(a, KN_I64, v.e);
    if (i && clamp && kn_loads(i, load, 1) && (!kn_expr_range(i, kn_stmt_range, x->s, &lo, &hi) || lo < 0 || hi >= dim))
        i = kn_bin(a, KN_OP_MIN, kn_bin(a, KN_OP_MAX, i, kn_const_i(a, KN_I64, 0)), kn_const_i(a, KN_I64, dim - 1));
    return made(x, e, i, false).e;
}

static value load(elab *x, const kn_ast *e)
{
    kn_expr *idx[KILN_MAX_RANK];
    int t = kn_find_tensor(x->p->p, e->name);
    for (int i = 0; i < e->nargs; i++)
        if (!(idx[i] = index_expr(x, e->args[i], x->p->p->tensors[t].shape[i], !e->padded))) return none;
    kiln_arena *a = x->p->a;
    return made(x, e, e->padded ? kn_load_padded(a, x->p->p, t, idx, e->f) : kn_load(a, x->p->p, t, idx), false);
}

static value unary(elab *x, const kn_ast *e, value v)
{
    kiln_arena *a = x->p->a;
    if (e->op == KN_OP_NOT) {
        v = truth(x, e, v);
        return v.e ? made(x, e, kn_un(a, e->op, v.e), false) : none;
    }
    if (e->op == KN_OP_BITS) {
        if (v.e->dtype != KN_F32) return refuse(x, e, "bits(cast(x, f32))", "bits of dtype %s", v.e->dtype);
        return made(x, e, kn_bits(a, v.e), false);
    }
    if (v.e->dtype == KN_BOOL) return refuse(x, e, "cast(x, f32), or select(c, 1.0, 0.0)", "arithmetic on dtype %s", v.e->dtype);
    if (kn_op_class(e->op) == 'f' && !kn_is_float(v.e->dtype)) {
        if (!v.weak) return refuse(x, e, "cast(x, f32)", "a float function of dtype %s", v.e->dtype);
        v = made(x, e, kn_cast(a, KN_F32, v.e), true);
    }
    return v.e ? made(x, e, kn_un(a, e->op, v.e), v.weak) : none;
}

static value binary(elab *x, const kn_ast *e, value l, value r)
{
    kiln_arena *a = x->p->a;
    enum kn_op op = e->op;
    char class = kn_op_class(op);
    if (class == 'l') {
        l = truth(x, e, l);
        r = truth(x, e, r);
        return l.e && r.e ? made(x, e, kn_bin(a, op, l.e, r.e), false) : none;
    }
    if (!unify(x, e, &l, &r)) return none;
    if (class == 'c') return made(x, e, kn_bin(a, op, l.e, r.e), false);
    if (l.e->dtype == KN_BOOL) return refuse(x, e, "cast(x, f32), or && and ||", "arithmetic on dtype %s", KN_BOOL);
    bool integer = !kn_is_float(l.e->dtype);
    if (class == 'i' && !integer) return refuse(x, e, "cast(x, i32)", "bits of dtype %s", l.e->dtype);
    if (op == KN_OP_DIV && integer) op = KN_OP_FLOORDIV;
    else if (class == 'f' && integer) {
        if (!l.weak) return refuse(x, e, "cast(x, f32)", "a float function of dtype %s", l.e->dtype);
        l = made(x, e, kn_cast(a, KN_F32, l.e), true);
        r = made(x, e, kn_cast(a, KN_F32, r.e), true);
        if (!l.e || !r.e) return none;
    }
    return made(x, e, kn_bin(a, op, l.e, r.e), l.weak);
}

static value operation(elab *x, const kn_ast *e)
{
    value v[3];
    for (int i = 0; i < e->nargs; i++)
        if (!(v[i] = convert(x, e->args[i])).e) return none;
    if (e->nargs == 1) return unary(x, e, v[0]);
    if (e->nargs == 2) return binary(x, e, v[0], v[1]);
    v[0] = truth(x, e, v[0]);
    if (!v[0].e || !unify(x, e, &v[1], &v[2])) return none;
    return made(x, e, kn_select(x->p->a, v[0].e, v[1].e, v[2].e), v[1].weak);
}

static value convert(elab *x, const kn_ast *e)
{
    kiln_arena *a = x->p->a;
    kn_token at = {.line = e->line, .col = e->col};
    int64_t extent;
    value v;
    switch (e->kind) {
    case KN_A_INT: return made(x, e, kn_const_i(a, KN_I64, e->i), true);
    case KN_A_FLOAT: return made(x, e, kn_const_f(a, KN_F32, e->f), true);
    case KN_A_BOOL: return made(x, e, kn_const_i(a, KN_BOOL, e->i), false);
    case KN_A_AXIS:
        for (int i = 0; i < x->s->naxes; i++)
            if (!strcmp(x->s->axes[i].name, e->name)) return made(x, e, kn_axis_ref(a, i), true);
        break;
    case KN_A_EXTENT:
        if ((extent = kn_known_extent(x->p, x->s, e->name))) return made(x, e, kn_const_i(a, KN_I64, extent), true);
        break;
    case KN_A_LOAD: return load(x, e);
    case KN_A_CAST:
        v = convert(x, e->args[0]);
        return v.e ? made(x, e, kn_cast(a, e->dtype, v.e), false) : none;
    case KN_A_OP: return operation(x, e);
    }
    kn_refuse(x->p, KILN_SHAPE, &at, "the extent of axis %s is not known here", e->name);
    kn_hint(x->p->d, "use the axis in this statement or an earlier one");
    return none;
}

kn_expr *kn_elaborate_body(kn_parser *p, const kn_ast_stmt *src, kn_stmt *s)
{
    elab x = {p, s};
    for (int i = 0; i < src->rank && src->scatter; i++)
        if (!(s->lhs[i] = index_expr(&x, src->lhs[i], 0, false))) return NULL;
    value v = convert(&x, src->body);
    if (v.e && (s->red == KN_RED_ALL || s->red == KN_RED_ANY)) v = truth(&x, src->body, v);
    if (!v.e) return NULL;
    if (src->scatter) {
        enum kn_dtype t = p->p->tensors[s->out].dtype;
        if (v.weak) v = made(&x, src->body, kn_cast(p->a, t, v.e), false);
        else if (v.e->dtype != t) return refuse(&x, src->body, "cast(x, dtype)", "the tensor scattered into has another dtype than %s",
            v.e->dtype).e;
    } else if (v.e->dtype == KN_BOOL && s->red != KN_RED_NONE && s->red != KN_RED_ALL && s->red != KN_RED_ANY) {
        return refuse(&x, src->body, "cast(x, i32), or reduce with &=! or |=!", "an arithmetic reduction of dtype %s", KN_BOOL).e;
    }
    return v.e;
}
