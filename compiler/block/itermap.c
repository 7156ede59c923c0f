/* Quasi-affine maps from loops to iterators as sums of digits (TensorIR, ASPLOS'23, section 3.3: loop nest validation). */
#include "block/itermap.h"
#include <string.h>

static int line_of_var(kn_im *m, int var)
{
    for (int i = 0; i < m->nlines; i++)
        if (m->line[i].var == var) return i;
    if (m->nlines == KN_IM_LINES) return -1;
    m->line[m->nlines].var = var;
    m->line[m->nlines].extent = m->b->vars[var]->extent;
    return m->nlines++;
}

static bool same_term(const kn_im_term *x, const kn_im_term *y)
{
    return x->line == y->line && x->lower == y->lower && x->extent == y->extent;
}

static int line_of_sum(kn_im *m, const kn_im_sum *s, int64_t extent)
{
    for (int i = 0; i < m->nlines; i++) {
        const kn_im_sum *o = &m->line[i].parts;
        bool same = m->line[i].var < 0 && o->n == s->n;
        for (int k = 0; k < s->n && same; k++) same = same_term(&o->t[k], &s->t[k]) && o->t[k].scale == s->t[k].scale;
        if (same) return i;
    }
    if (m->nlines == KN_IM_LINES) return -1;
    m->line[m->nlines].var = -1;
    m->line[m->nlines].extent = extent;
    m->line[m->nlines].parts = *s;
    return m->nlines++;
}

static bool add(kn_im_sum *s, const kn_im_sum *o, int64_t scale)
{
    int64_t x;
    if (__builtin_mul_overflow(o->constant, scale, &x) || __builtin_add_overflow(s->constant, x, &s->constant)) return false;
    for (int i = 0; i < o->n; i++) {
        int k = 0;
        if (__builtin_mul_overflow(o->t[i].scale, scale, &x)) return false;
        while (k < s->n && !same_term(&s->t[k], &o->t[i])) k++;
        if (k == KN_IM_TERMS) return false;
        if (k == s->n) {
            s->t[s->n] = o->t[i];
            s->t[s->n++].scale = 0;
        }
        if (__builtin_add_overflow(s->t[k].scale, x, &s->t[k].scale)) return false;
        if (!s->t[k].scale) s->t[k] = s->t[--s->n];
    }
    return true;
}

int kn_im_dense(kn_im_sum *s, int64_t *extent)
{
    for (int i = 0; i < s->n; i++)
        for (int k = i; k > 0 && s->t[k].scale < s->t[k - 1].scale; k--) {
            kn_im_term t = s->t[k];
            s->t[k] = s->t[k - 1];
            s->t[k - 1] = t;
        }
    *extent = 1;
    for (int i = 0; i < s->n; i++) {
        if (s->t[i].scale > *extent || s->t[i].scale < 0) return 0;
        if (s->t[i].scale < *extent) return -1;
        if (!kn_mul_fits(*extent, s->t[i].extent, extent)) return 0;
    }
    return 1;
}

/* (sum // c) or (sum % c): of one digit, or of a dense sum, which becomes a line of its own. */
static bool divide(kn_im *m, kn_im_sum *s, int64_t c, bool rest)
{
    int64_t extent;
    if (c < 1 || s->constant) return false;
    if (!s->n) return true;
    if (kn_im_dense(s, &extent) != 1) return false;
    if (extent <= c) {
        if (!rest) *s = (kn_im_sum){ 0 };
        return true;
    }
    kn_im_term t = s->t[0];
    bool whole = s->n == 1 && (t.extent % c == 0 || t.lower * t.extent >= m->line[t.line].extent);
    if (!whole) {
        int line = line_of_sum(m, s, extent);
        if (line < 0) return false;
        t = (kn_im_term){ line, 1, extent, 1 };
    }
    s->n = 1;
    s->t[0] = rest ? (kn_im_term){ t.line, t.lower, c, 1 } : (kn_im_term){ t.line, t.lower * c, kn_ceil_div(t.extent, c), 1 };
    return true;
}

bool kn_im_sum_of(kn_im *m, const kn_expr *e, kn_im_sum *out)
{
    kn_im_sum x, y;
    *out = (kn_im_sum){ 0 };
    if (e->op == KN_OP_CONST_I) {
        out->constant = e->u.i;
        return true;
    }
    if (e->op == KN_OP_VAR) {
        int line = line_of_var(m, e->u.var);
        if (line < 0) return false;
        if (m->line[line].extent > 1) out->t[out->n++] = (kn_im_term){ line, 1, m->line[line].extent, 1 };
        return true;
    }
    if (e->nargs != 2 || !kn_im_sum_of(m, e->args[0], &x) || !kn_im_sum_of(m, e->args[1], &y)) return false;
    if (e->op == KN_OP_ADD || e->op == KN_OP_SUB) return add(out, &x, 1) && add(out, &y, e->op == KN_OP_ADD ? 1 : -1);
    if (e->op == KN_OP_MUL) return !y.n ? add(out, &x, y.constant) : !x.n && add(out, &y, x.constant);
    if ((e->op != KN_OP_FLOORDIV && e->op != KN_OP_MOD) || y.n) return false;
    if (!divide(m, &x, y.constant, e->op == KN_OP_MOD)) return false;
    *out = x;
    return true;
}

typedef struct pool { int n; kn_im_term t[KN_IM_TERMS * 32]; } pool;

static bool collect(const kn_im *m, pool *p, const kn_im_sum *s, bool *seen)
{
    for (int i = 0; i < s->n; i++) {
        if (p->n == (int)(sizeof p->t / sizeof *p->t)) return false;
        p->t[p->n++] = s->t[i];
        int line = s->t[i].line;
        if (m->line[line].var >= 0 || seen[line]) continue;
        seen[line] = true;
        if (!collect(m, p, &m->line[line].parts, seen)) return false;
    }
    return true;
}

bool kn_im_independent(const kn_im *m, const kn_im_sum *sums, int n, int *line)
{
    pool p = { 0 };
    bool seen[KN_IM_LINES] = { false };
    *line = 0;
    for (int i = 0; i < n; i++)
        if (!collect(m, &p, &sums[i], seen)) return false;
    for (int i = 0; i < p.n; i++)
        for (int k = 0; k < i; k++) {
            const kn_im_term *x = &p.t[i], *y = &p.t[k];
            if (x->line != y->line) continue;
            const kn_im_term *low = x->lower <= y->lower ? x : y, *high = low == x ? y : x;
            *line = x->line;
            if (high->lower < low->lower * low->extent) return false;
        }
    return true;
}

int64_t kn_im_full(const kn_im *m, const kn_im_sum *sums, int n, const kn_im_term *t)
{
    int64_t whole = m->line[t->line].extent, below = 1;
    if (t->lower * t->extent <= whole) return t->extent;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < sums[i].n; k++) {
            const kn_im_term *o = &sums[i].t[k];
            if (o->line == t->line && o->lower < t->lower && o->lower * o->extent > below) below = o->lower * o->extent;
        }
    return whole - (t->extent - 1) * t->lower >= below ? t->extent : t->extent - 1;
}
