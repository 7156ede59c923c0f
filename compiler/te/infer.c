/* Axes of a statement and their extents: ranges after `where` first, then axes that stand bare as an index (of plain
 * reads, then of padded ones), then affine indices with one unknown axis (a window P+R over H elements gives P = H - R + 1). */
#include "te/ast.h"
#include <string.h>

typedef struct infer {
    kn_parser *p;
    const kn_ast_stmt *src;
    kn_stmt *s;
    struct { const char *tensor; int dim; int line, col; } from[KILN_MAX_AXES];
    bool fixed[KILN_MAX_AXES], padded, progress; /* padded: only reads through pad() are looked at */
} infer;

static int axis_of(const kn_stmt *s, const char *name)
{
    for (int i = 0; i < s->naxes; i++)
        if (!strcmp(s->axes[i].name, name)) return i;
    return -1;
}

static bool add_axis(infer *f, const char *name, int line, int col, bool reduce)
{
    kn_token at = {.line = line, .col = col};
    if (axis_of(f->s, name) >= 0) return true;
    if (f->s->naxes == KILN_MAX_AXES) return kn_refuse(f->p, KILN_LIMIT, &at, "more than %d axes in one statement", KILN_MAX_AXES);
    f->from[f->s->naxes].line = line;
    f->from[f->s->naxes].col = col;
    f->s->axes[f->s->naxes++] = (kn_axis){name, 0, reduce};
    return true;
}

static bool add_axes(infer *f, const kn_ast *e, bool reduce)
{
    if (e->kind == KN_A_AXIS) return add_axis(f, e->name, e->line, e->col, reduce);
    for (int i = 0; i < e->nargs; i++)
        if (!add_axes(f, e->args[i], reduce)) return false;
    return true;
}

static bool left_axes(infer *f)
{
    for (int i = 0; i < f->src->rank; i++) {
        kn_ast *e = f->src->lhs[i];
        kn_token at = {.line = e->line, .col = e->col};
        if (f->src->scatter) {
            if (!add_axes(f, e, false)) return false;
            continue;
        }
        if (e->kind == KN_A_INT && e->i == 0) { /* a dimension of one element */
            const char *name = kn_format(f->p->a, "ONE_%d", f->p->ones++);
            if (!name) return kn_refuse(f->p, KILN_MEMORY, &at, "out of memory");
            if (!add_axis(f, name, e->line, e->col, false)) return false;
            f->s->axes[i].extent = 1;
            f->fixed[i] = true;
            continue;
        }
        if (e->kind != KN_A_AXIS) {
            kn_refuse(f->p, KILN_SYNTAX, &at, "indices on the left side are plain axes");
            kn_hint(f->p->d, "c[M,N]; for computed indices use a scatter: acc[idx[I],C] +=. upd[I,C]");
            return false;
        }
        if (axis_of(f->s, e->name) >= 0) return kn_refuse(f->p, KILN_SYNTAX, &at, "axis %s is twice on the left side", e->name);
        if (!add_axis(f, e->name, e->line, e->col, false)) return false;
    }
    f->s->nspatial = f->s->naxes;
    return true;
}

static bool bare(infer *f, const kn_ast *e, const kn_tensor *t, int dim)
{
    int x = axis_of(f->s, e->name);
    kn_token at = {.line = e->line, .col = e->col};
    if (f->fixed[x]) return true;
    if (!f->s->axes[x].extent) {
        f->s->axes[x].extent = t->shape[dim];
        f->from[x].tensor = t->name;
        f->from[x].dim = dim;
        return true;
    }
    if (f->s->axes[x].extent == t->shape[dim]) return true;
    kn_refuse(f->p, KILN_SHAPE, &at, "axis %s has two different extents: %lld (%s dim %d) and %lld (%s dim %d)", e->name,
              (long long)f->s->axes[x].extent, f->from[x].tensor, f->from[x].dim, (long long)t->shape[dim], t->name, dim);
    kn_hint(f->p->d, "make the shapes agree, or state the range: where %s in %lld", e->name, (long long)f->s->axes[x].extent);
    return false;
}

static bool find_load(infer *f, const kn_ast *e, const kn_tensor **out)
{
    kn_token at = {.line = e->line, .col = e->col};
    int t = kn_find_tensor(f->p->p, e->name);
    if (t < 0) {
        kn_refuse(f->p, KILN_SYNTAX, &at, "no tensor named %s", e->name);
        kn_hint(f->p->d, "declare it as an input (in %s: f32[4,4];) or write it in an earlier statement", e->name);
        return false;
    }
    *out = &f->p->p->tensors[t];
    if ((*out)->rank == e->nargs) return true;
    return kn_refuse(f->p, KILN_SHAPE, &at, "%s has %d dimension%s, %d ind%s given", e->name, (*out)->rank, (*out)->rank == 1 ? "" : "s",
        e->nargs,
                     e->nargs == 1 ? "ex" : "ices");
}

/* Visits every load; `solve` uses affine indices, else bare ones. */
static bool visit(infer *f, const kn_ast *e, bool (*use)(infer *, const kn_ast *, const kn_tensor *, int))
{
    const kn_tensor *t = NULL;
    if (e->kind == KN_A_LOAD && !find_load(f, e, &t)) return false;
    for (int i = 0; i < e->nargs; i++) {
        if (t && e->padded == f->padded && !use(f, e->args[i], t, i)) return false;
        if (!visit(f, e->args[i], use)) return false;
    }
    return true;
}

static bool use_bare(infer *f, const kn_ast *e, const kn_tensor *t, int dim) { return e->kind != KN_A_AXIS || bare(f, e, t, dim); }

static bool affine(const infer *f, const kn_ast *e, int64_t scale, kn_affine *out)
{
    int64_t v;
    if (e->kind == KN_A_INT) return !__builtin_mul_overflow(e->i, scale, &v) && !__builtin_add_overflow(out->offset, v, &out->offset);
    if (e->kind == KN_A_AXIS) {
        int64_t *c = &out->coef[axis_of(f->s, e->name)];
        return !__builtin_add_overflow(*c, scale, c);
    }
    if (e->kind != KN_A_OP || scale == INT64_MIN) return false;
    switch (e->op) {
    case KN_OP_NEG: return affine(f, e->args[0], -scale, out);
    case KN_OP_ADD: return affine(f, e->args[0], scale, out) && affine(f, e->args[1], scale, out);
    case KN_OP_SUB: return affine(f, e->args[0], scale, out) && affine(f, e->args[1], -scale, out);
    case KN_OP_MUL:
        for (int i = 0; i < 2; i++)
            if (e->args[i]->kind == KN_A_INT && !__builtin_mul_overflow(e->args[i]->i, scale, &v)) return affine(f, e->args[1 - i], v, out);
        return false;
    default: return false;
    }
}

static bool use_affine(infer *f, const kn_ast *e, const kn_tensor *t, int dim)
{
    kn_affine x = {0};
    int unknown = -1;
    kn_token at = {.line = e->line, .col = e->col};
    if (!affine(f, e, 1, &x)) return true;
    int64_t room = t->shape[dim] - 1, part;
    if (__builtin_sub_overflow(room, x.offset, &room)) return true;
    for (int i = 0; i < f->s->naxes; i++) {
        if (x.coef[i] == 0) continue;
        if (!f->s->axes[i].extent) {
            if (unknown >= 0 || x.coef[i] < 0) return true;
            unknown = i;
        } else if (x.coef[i] > 0) {
            if (__builtin_mul_overflow(x.coef[i], f->s->axes[i].extent - 1, &part) || __builtin_sub_overflow(room, part, &room))
                return true;
        }
    }
    if (unknown < 0) return true;
    if (room < 0)
        return kn_refuse(f->p, KILN_SHAPE, &at, "no extent of axis %s keeps this index within the %lld elements of %s dim %d",
                         f->s->axes[unknown].name, (long long)t->shape[dim], t->name, dim);
    if (room / x.coef[unknown] >= KILN_MAX_EXTENT) return true;
    f->s->axes[unknown].extent = room / x.coef[unknown] + 1;
    f->progress = true;
    return true;
}

static bool start(infer *f)
{
    kn_stmt *s = f->s;
    if (!left_axes(f) || !add_axes(f, f->src->body, true)) return false;
    for (int i = 0; i < f->src->nranges; i++) {
        const kn_ast_range *r = &f->src->ranges[i];
        if (!add_axis(f, r->name, r->line, r->col, true)) return false;
        int x = axis_of(s, r->name);
        s->axes[x].extent = r->extent;
        f->fixed[x] = true;
    }
    return true;
}

bool kn_infer(kn_parser *p, const kn_ast_stmt *src, kn_stmt *s)
{
    infer f = {.p = p, .src = src, .s = s};
    if (!start(&f)) return false;
    for (int i = 0; i < src->rank && src->scatter; i++) {
        const kn_ast *e = src->lhs[i];
        if (!visit(&f, e, use_bare) || (e->kind == KN_A_AXIS && !bare(&f, e, &p->p->tensors[s->out], i))) return false;
    }
    if (!visit(&f, src->body, use_bare)) return false;
    for (int i = 0; i < s->naxes; i++) f.fixed[i] = s->axes[i].extent != 0;
    f.padded = true;
    if (!visit(&f, src->body, use_bare)) return false;
    f.padded = false;
    do {
        f.progress = false;
        if (!visit(&f, src->body, use_affine)) return false;
    } while (f.progress);
    for (int i = 0; i < s->naxes; i++) {
        if (s->axes[i].extent) continue;
        kn_token at = {.line = f.from[i].line, .col = f.from[i].col};
        kn_refuse(p, KILN_SHAPE, &at, "the extent of axis %s cannot be found", s->axes[i].name);
        kn_hint(p->d, "add: where %s in 128", s->axes[i].name);
        return false;
    }
    return true;
}

int64_t kn_known_extent(kn_parser *p, const kn_stmt *s, const char *name)
{
    int x = axis_of(s, name);
    for (int i = p->p->nstmts - 1; x < 0 && i >= 0; i--) x = axis_of(s = p->p->stmts[i], name);
    return x < 0 ? 0 : s->axes[x].extent;
}
