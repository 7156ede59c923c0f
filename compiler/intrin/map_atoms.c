/* Atoms: candidates for one software loop a loop of the instruction, each accepted or refused with the operand and the index. */
#include "intrin/map.h"
#include "te/expr.h"
#include <string.h>

enum { TRIES = 1 << 16 }; /* candidates looked at before giving up */

typedef struct finder {
    kiln_arena *a;
    kn_maps *m;
    int choice[KILN_MAX_AXES];             /* loop chosen for every axis so far */
    uint32_t fits[KILN_MAX_AXES];          /* loops that may feed the axis by themselves */
    int atoms_cap, refused_cap, tries;
} finder;

static void *grown(kiln_arena *a, void *old, int n, int *cap, size_t size)
{
    if (n < *cap) return old;
    int more = *cap ? *cap * 2 : 16;
    void *p = kn_alloc(a, (size_t)more * size);
    if (p && n) memcpy(p, old, (size_t)n * size);
    *cap = p ? more : *cap;
    return p;
}

/* Index k of an operand as text, by the names of its statement. */
static const char *index_text(finder *f, int op, int k)
{
    kn_buf b;
    kn_buf_init(&b, f->a);
    kn_print_expr(&b, f->m->soft, f->m->stmt, f->m->op[op].soft_index[k]);
    kiln_bytes t = kn_buf_take(&b);
    return t.p ? t.p : "";
}

static const char *soft_name(const finder *f, int op) { return f->m->soft->tensors[f->m->op[op].soft].name; }
static const char *hard_name(const finder *f, int op) { return f->m->hard->tensors[f->m->op[op].hard].name; }

static bool refuse(finder *f, kn_map_refusal r)
{
    kn_maps *m = f->m;
    m->refused = grown(f->a, m->refused, m->nrefused, &f->refused_cap, sizeof *m->refused);
    if (m->refused && r.why) m->refused[m->nrefused++] = r;
    return false;
}

/* First index of n that holds the axis, from `from` on; -1: none. */
static int index_with(kn_expr *const *index, int n, int axis, int from)
{
    for (int k = from; k < n; k++)
        if (kn_axes_in(index[k]) >> axis & 1) return k;
    return -1;
}

/* May loop l feed axis j as far as operand o is concerned? The index at fault goes to *k, the reason to *why. */
static bool operand_fits(finder *f, int o, int j, int l, int *k, const char **why)
{
    const kn_map_operand *x = &f->m->op[o];
    const char *axis = f->m->intrin->axes[j].name, *loop = f->m->stmt->axes[l].name;
    bool wanted = index_with(x->hard_index, x->nhard, j, 0) >= 0;
    *k = index_with(x->soft_index, x->nsoft, l, 0);
    if (!wanted && *k < 0) return true;
    if (wanted && *k < 0) {
        *why = kn_format(f->a, "%s moves operand %s, but %s has no index with %s", axis, hard_name(f, o), soft_name(f, o), loop);
        return false;
    }
    if (!wanted) {
        *why = kn_format(f->a, "index %d of %s, %s, moves with %s, but operand %s is the same for all of %s", *k, soft_name(f, o),
                         index_text(f, o, *k), loop, hard_name(f, o), axis);
        return false;
    }
    kn_affine form;
    int second = index_with(x->soft_index, x->nsoft, l, *k + 1);
    if (second >= 0) {
        *why = kn_format(f->a, "%s stands in two indices of %s, %d and %d", loop, soft_name(f, o), *k, second);
        return false;
    }
    if (!kn_affine_in(x->soft_index[*k], 1u << l, &form)) {
        *why = kn_format(f->a, "index %d of %s, %s, is not affine", *k, soft_name(f, o), index_text(f, o, *k));
        return false;
    }
    if (form.coef[l] > 0) return true;
    *why = kn_format(f->a, "index %d of %s, %s, runs against %s", *k, soft_name(f, o), index_text(f, o, *k), loop);
    return false;
}

static bool pair_fits(finder *f, int j, int l)
{
    const kn_axis *axis = &f->m->intrin->axes[j], *loop = &f->m->stmt->axes[l];
    kn_map_refusal r = {.axis = j, .loop = l, .operand = -1, .index = -1};
    r.tried.loops[j] = 1u << l;
    if (axis->reduce != loop->reduce) {
        r.why = kn_format(f->a, "%s is a %s loop, %s a %s one", loop->name, loop->reduce ? "reduce" : "spatial", axis->name,
                          axis->reduce ? "reduce" : "spatial");
        return refuse(f, r);
    }
    for (int o = 0; o < f->m->nops; o++) {
        if (operand_fits(f, o, j, l, &r.index, &r.why)) continue;
        r.operand = o;
        return refuse(f, r);
    }
    return true;
}

/* Is software index k of operand o, other loops held, index q of the instruction times a positive constant? */
static bool index_is(const finder *f, int o, int k, int q)
{
    kn_affine s, h;
    const kn_map_operand *x = &f->m->op[o];
    uint32_t chosen = 0;
    for (int j = 0; j < f->m->intrin->naxes; j++)
        if (f->choice[j] >= 0) chosen |= 1u << f->choice[j];
    if (!kn_affine_in(x->soft_index[k], chosen, &s) || !kn_affine_of(x->hard_index[q], &h)) return false;
    int64_t num = 0, den = 0; /* the factor, from the first axis that the instruction's index holds */
    for (int j = 0; j < f->m->intrin->naxes; j++) {
        if (f->choice[j] < 0) continue;
        int64_t have = s.coef[f->choice[j]], want = h.coef[j];
        if ((have == 0) != (want == 0)) return false;
        if (!want) continue;
        if (!den) num = have, den = want;
        int64_t l, r;
        if (__builtin_mul_overflow(have, den, &l) || __builtin_mul_overflow(num, want, &r) || l != r || have < 0) return false;
    }
    return den != 0;
}

static bool moves(const finder *f, const kn_expr *index)
{
    for (int j = 0; j < f->m->intrin->naxes; j++)
        if (f->choice[j] >= 0 && kn_axes_in(index) >> f->choice[j] & 1) return true;
    return false;
}

/* Every moving index of operand o must be an index of the instruction's; returns the first that is not, or -1. */
static int stray_index(const finder *f, int o)
{
    const kn_map_operand *x = &f->m->op[o];
    for (int k = 0; k < x->nsoft; k++) {
        if (!moves(f, x->soft_index[k])) continue;
        bool found = false;
        for (int q = 0; q < x->nhard && !found; q++) found = index_is(f, o, k, q);
        if (!found) return k;
    }
    return -1;
}

/* Indices that the instruction adds up in one dimension must not be apart in the software. */
static int unmet_index(const finder *f, int o)
{
    const kn_map_operand *x = &f->m->op[o];
    for (int q = 0; q < x->nhard; q++) {
        if (!(kn_axes_in(x->hard_index[q]) & ~f->m->idle)) continue;
        bool found = false;
        for (int k = 0; k < x->nsoft && !found; k++) found = index_is(f, o, k, q);
        if (!found) return q;
    }
    return -1;
}

static uint32_t choice_bit(const finder *f, int j) { return f->choice[j] < 0 ? 0 : 1u << f->choice[j]; }

static bool candidate_fits(finder *f)
{
    kn_map_refusal r = {.axis = -1, .loop = -1};
    for (int j = 0; j < f->m->intrin->naxes; j++) r.tried.loops[j] = choice_bit(f, j);
    const char *text = kn_map_text(f->a, f->m, &r.tried);
    for (int o = 0; o < f->m->nops; o++) {
        r.operand = o;
        r.index = stray_index(f, o);
        if (r.index >= 0) {
            r.why = kn_format(f->a, "with %s, index %d of %s, %s, is no single index of operand %s", text ? text : "", r.index, soft_name(f, o),
                              index_text(f, o, r.index), hard_name(f, o));
            return refuse(f, r);
        }
        int q = unmet_index(f, o);
        if (q < 0) continue;
        r.why = kn_format(f->a, "with %s, no index of %s is index %d of operand %s", text ? text : "", soft_name(f, o), q, hard_name(f, o));
        return refuse(f, r);
    }
    return true;
}

static bool search(finder *f, int j)
{
    kn_maps *m = f->m;
    if (j == m->intrin->naxes) {
        if (++f->tries > TRIES) return false;
        if (!candidate_fits(f)) return true;
        m->atoms = grown(f->a, m->atoms, m->natoms, &f->atoms_cap, sizeof *m->atoms);
        if (!m->atoms) return false;
        kn_mapping *x = &m->atoms[m->natoms++];
        memset(x, 0, sizeof *x);
        for (int i = 0; i < j; i++) x->loops[i] = choice_bit(f, i);
        return true;
    }
    if (m->idle >> j & 1) {
        f->choice[j] = -1;
        return search(f, j + 1);
    }
    for (int l = 0; l < m->stmt->naxes; l++) {
        bool taken = false;
        for (int i = 0; i < j; i++) taken = taken || f->choice[i] == l;
        if (taken || !(f->fits[j] >> l & 1)) continue;
        f->choice[j] = l;
        if (!search(f, j + 1)) return false;
    }
    return true;
}

kiln_status kn_map_atoms(kiln_arena *a, kn_maps *m, kiln_diag *d)
{
    finder f = {.a = a, .m = m};
    for (int j = 0; j < m->intrin->naxes; j++)
        for (int l = 0; l < m->stmt->naxes; l++)
            if (pair_fits(&f, j, l)) f.fits[j] |= 1u << l;
    for (int j = 0; j < m->intrin->naxes; j++)
        if (!f.fits[j]) m->idle |= 1u << j;
    bool done = m->idle + 1 == 1u << m->intrin->naxes || search(&f, 0);
    if (kn_arena_dry(a)) return kn_fail(d, KILN_MEMORY, "out of memory while mapping");
    return done ? KILN_OK : kn_fail(d, KILN_LIMIT, "more than %d candidates", TRIES);
}
