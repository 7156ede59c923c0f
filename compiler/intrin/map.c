/* Mappings as a whole: operand orders, unions of atoms, the check of one mapping, and their text. */
#include "intrin/map.h"
#include <string.h>

static uint32_t hash(const kn_mapping *x, int axes)
{
    uint64_t h = 1469598103934665603u;
    for (int j = 0; j < axes; j++) h = (h ^ x->loops[j]) * 1099511628211u;
    return (uint32_t)(h ^ h >> 32);
}

/* A set of mappings in order of arrival: slot[] holds their numbers plus one, hashed. */
typedef struct table { kiln_arena *a; int32_t *slot; int slots; kn_mapping *maps; int n, cap, axes; } table;

static void place(table *t, int number)
{
    uint32_t mask = (uint32_t)t->slots - 1, i = hash(&t->maps[number], t->axes) & mask;
    while (t->slot[i]) i = (i + 1) & mask;
    t->slot[i] = number + 1;
}

static bool room(table *t)
{
    if (t->n < t->cap) return true;
    int cap = t->cap ? 2 * t->cap : 64;
    kn_mapping *maps = kn_array(t->a, kn_mapping, cap);
    t->slot = kn_array(t->a, int32_t, 4 * cap);
    if (!maps || !t->slot) return false;
    if (t->n) memcpy(maps, t->maps, sizeof *maps * (size_t)t->n);
    t->maps = maps, t->cap = cap, t->slots = 4 * cap;
    for (int i = 0; i < t->n; i++) place(t, i);
    return true;
}

/* False: out of memory. */
static bool add(table *t, const kn_mapping *x)
{
    if (!room(t)) return false;
    uint32_t mask = (uint32_t)t->slots - 1;
    for (uint32_t i = hash(x, t->axes) & mask; t->slot[i]; i = (i + 1) & mask)
        if (!memcmp(&t->maps[t->slot[i] - 1], x, sizeof *x)) return true;
    t->maps[t->n] = *x;
    place(t, t->n++);
    return true;
}

static kn_mapping joined(const kn_mapping *x, const kn_mapping *y, int axes)
{
    kn_mapping u = *x;
    for (int j = 0; j < axes; j++) u.loops[j] |= y->loops[j];
    return u;
}

/* Distinct unions, in the order in which atom after atom brings them. */
kiln_status kn_map_unions(kiln_arena *a, kn_maps *m, kiln_diag *d)
{
    bool all = m->natoms <= KN_MAP_UNIONS, fits = true;
    table t = {.a = a, .axes = m->intrin->naxes};
    kn_mapping whole = {0};
    for (int i = 0; i < m->natoms && fits; i++) {
        int before = t.n;
        for (int k = 0; k < before && all && fits; k++) {
            kn_mapping u = joined(&t.maps[k], &m->atoms[i], t.axes);
            fits = add(&t, &u);
        }
        fits = fits && add(&t, &m->atoms[i]);
        whole = joined(&whole, &m->atoms[i], t.axes);
    }
    if (m->natoms && fits) fits = add(&t, &whole);
    if (!fits) return kn_fail(d, KILN_MEMORY, "out of memory while joining %d atoms", m->natoms);
    m->maps = t.maps, m->nmaps = t.n;
    return KILN_OK;
}

static int bits(uint32_t x)
{
    int n = 0;
    for (; x; x &= x - 1) n++;
    return n;
}

/* Of two orders of the operands: the one that maps at all, then the one that leaves fewer axes idle. */
static bool better(const kn_maps *x, const kn_maps *y)
{
    if (!x->natoms || !y->natoms) return x->natoms > y->natoms;
    return bits(x->idle) < bits(y->idle);
}

/* Do both orders give every load an operand of the same address? Then they are one. */
static bool alike(const kn_maps *x, const kn_maps *y)
{
    for (int o = 0; o < x->nops; o++) {
        const kn_map_operand *p = &x->op[o], *q = &y->op[o];
        if (p->nhard != q->nhard) return false;
        for (int k = 0; k < p->nhard; k++)
            if (!kn_expr_equal(p->hard_index[k], q->hard_index[k])) return false;
    }
    return true;
}

/* Puts m into the list, before those it is better than; orders that are there already, or that leave more idle than the best, are left out. */
static void enlist(kn_maps **list, kn_maps *m)
{
    for (const kn_maps *x = *list; x; x = x->turned)
        if (alike(x, m)) return;
    kn_maps **at = list;
    while (*at && !better(m, *at)) at = &(*at)->turned;
    m->turned = *at;
    *at = m;
    for (kn_maps *x = *list; x; x = x->turned)
        while (x->turned && better(x, x->turned)) x->turned = x->turned->turned;
}

kiln_status kn_maps_of(kiln_arena *a, const kn_program *p, int stmt, const kn_intrin *intrin, kn_maps **out, kiln_diag *d)
{
    kiln_status first = KILN_OK;
    kiln_diag why = {0};
    kn_maps *list = NULL;
    for (int i = 0; i < kn_map_flips(intrin->s); i++) {
        kn_maps *m = kn_new(a, kn_maps);
        if (!m) return kn_fail(d, KILN_MEMORY, "out of memory while mapping");
        kiln_diag local = {0};
        kiln_status s = kn_map_operands(p, p->stmts[stmt], intrin, (uint32_t)i, m, &local);
        if (!s) s = kn_map_atoms(a, m, &local);
        if (s && !first) first = s, why = local;
        if (!s) enlist(&list, m);
    }
    if (!list) {
        *d = why;
        return first;
    }
    for (kn_maps *m = list; m; m = m->turned) {
        kiln_status s = kn_map_unions(a, m, d);
        if (s) return s;
    }
    *out = list;
    return KILN_OK;
}

kiln_status kn_map_find(const kn_maps *list, const char *text, const kn_maps **m, kn_mapping *x, kiln_diag *d)
{
    kiln_diag other;
    kiln_status first = KILN_OK;
    for (const kn_maps *y = list; y; y = y->turned) {
        *m = y;
        kiln_status s = kn_map_parse(y, text, x, y == list ? d : &other);
        if (!s) s = kn_map_check(y, x, y == list ? d : &other);
        if (!s) return KILN_OK;
        if (y == list) first = s;
    }
    return first;
}

static bool within(const kn_maps *m, const kn_mapping *x, const kn_mapping *whole)
{
    for (int j = 0; j < m->intrin->naxes; j++)
        if (x->loops[j] & ~whole->loops[j]) return false;
    return true;
}

/* Is the pair part of an atom that lies inside x? */
static bool covered(const kn_maps *m, const kn_mapping *x, int axis, int loop)
{
    for (int i = 0; i < m->natoms; i++)
        if ((m->atoms[i].loops[axis] >> loop & 1) && within(m, &m->atoms[i], x)) return true;
    return false;
}

static kiln_status cannot_feed(const kn_maps *m, int axis, int loop, const char *why, kiln_diag *d)
{
    return kn_fail(d, KILN_UNSUPPORTED, "%s cannot feed %s: %s", m->stmt->axes[loop].name, m->intrin->axes[axis].name, why);
}

/* The pair is in no atom of x: a candidate of x that was refused with it says why. */
static kiln_status explain(const kn_maps *m, const kn_mapping *x, int axis, int loop, kiln_diag *d)
{
    for (int i = 0; i < m->nrefused; i++) {
        const kn_map_refusal *r = &m->refused[i];
        if (r->axis < 0 && (r->tried.loops[axis] >> loop & 1) && within(m, &r->tried, x)) return cannot_feed(m, axis, loop, r->why, d);
    }
    return cannot_feed(m, axis, loop, "no candidate within this mapping has both", d);
}

kiln_status kn_map_check(const kn_maps *m, const kn_mapping *x, kiln_diag *d)
{
    for (int i = 0; i < m->nrefused; i++) {
        const kn_map_refusal *r = &m->refused[i];
        if (r->axis >= 0 && (x->loops[r->axis] >> r->loop & 1)) return cannot_feed(m, r->axis, r->loop, r->why, d);
    }
    for (int j = 0; j < m->intrin->naxes; j++)
        if (!x->loops[j] && !(m->idle >> j & 1)) return kn_fail(d, KILN_UNSUPPORTED, "no loop feeds %s", m->intrin->axes[j].name);
    uint32_t seen = 0;
    bool several = false;
    for (int j = 0; j < m->intrin->naxes; j++) several |= x->loops[j] && m->intrin->axes[j].extent > 1;
    if (!several) return kn_fail(d, KILN_UNSUPPORTED, "no axis of more than one iteration is fed: a call would compute one term");
    for (int j = 0; j < m->intrin->naxes; j++) {
        for (int l = 0; l < m->stmt->naxes; l++) {
            if (!(x->loops[j] >> l & 1)) continue;
            if (!covered(m, x, j, l)) return explain(m, x, j, l, d);
            if (seen >> l & 1)
                return kn_fail(d, KILN_UNSUPPORTED, "%s feeds %s and an axis before it: only their diagonal would be computed",
                               m->stmt->axes[l].name, m->intrin->axes[j].name);
        }
        seen |= x->loops[j];
    }
    return KILN_OK;
}

const char *kn_map_text(kiln_arena *a, const kn_maps *m, const kn_mapping *x)
{
    kn_buf b;
    kn_buf_init(&b, a);
    for (int j = 0; j < m->intrin->naxes; j++) {
        if (!x->loops[j]) continue;
        kn_putf(&b, "%s%s=", b.n ? " " : "", m->intrin->axes[j].name);
        const char *comma = "";
        for (int l = 0; l < m->stmt->naxes; l++) {
            if (!(x->loops[j] >> l & 1)) continue;
            kn_putf(&b, "%s%s", comma, m->stmt->axes[l].name);
            comma = ",";
        }
    }
    return kn_buf_take(&b).p;
}

const char *kn_map_word(kiln_arena *a, const kn_maps *m, const kn_mapping *x)
{
    const char *text = kn_map_text(a, m, x);
    char *word = text ? kn_strdup(a, text) : NULL;
    for (char *p = word; p && *p; p++)
        if (*p == ' ') *p = ';';
    return word;
}

kiln_status kn_map_parse(const kn_maps *m, const char *text, kn_mapping *out, kiln_diag *d)
{
    kn_mapping x = {0};
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, "= ;");
        int axis = kn_intrin_axis(m->intrin, p, n);
        if (axis < 0 || p[n] != '=') return kn_fail(d, KILN_REQUEST, "'%.*s' is no axis of the instruction", n < 64 ? (int)n : 64, p);
        for (p += n + 1; *p && *p != ' ' && *p != ';'; p += *p == ',') {
            n = strcspn(p, ", ;");
            int loop = kn_intrin_axis(m->stmt, p, n);
            if (loop < 0) return kn_fail(d, KILN_REQUEST, "'%.*s' is no loop of the statement", n < 64 ? (int)n : 64, p);
            x.loops[axis] |= 1u << loop;
            p += n;
        }
        p += strspn(p, " ;");
    }
    *out = x;
    return KILN_OK;
}

int64_t kn_map_extent(const kn_maps *m, const kn_mapping *x, int axis)
{
    int64_t n = 1;
    for (int l = 0; l < m->stmt->naxes; l++)
        if ((x->loops[axis] >> l & 1) && !kn_mul_fits(n, m->stmt->axes[l].extent, &n)) return 0;
    return n;
}

bool kn_map_fills(const kn_maps *m, const kn_mapping *x)
{
    for (int j = 0; j < m->intrin->naxes; j++)
        if (!(m->idle >> j & 1) && kn_map_extent(m, x, j) < m->intrin->axes[j].extent) return false;
    return true;
}
