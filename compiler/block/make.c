/* Tile tree to blocks: what stages, epilogues and cache fills have in common. */
#include "block/make.h"
#include <stdio.h>
#include <string.h>

kn_expr *kn_mk_int(kn_mk *m, int64_t x) { return kn_const_i(m->a, KN_I64, x); }

void kn_mk_fail(kn_mk *m, kiln_status s, const char *what, const char *name)
{
    if (m->status) return;
    m->status = kn_fail(m->d, s, "block form of '%s': %s", name, what);
}

static bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

static bool digit(char c) { return c >= '0' && c <= '9'; }

const char *kn_mk_loop_name(kn_mk *m, const char *name)
{
    char *s = letter(name[0]) ? kn_strdup(m->a, name) : kn_format(m->a, "l%s", name);
    for (char *p = s; p && *p; p++)
        if (!letter(*p) && !digit(*p) && *p != '.' && *p != '_') *p = '_';
    return s;
}

static bool taken(const kn_blocks *b, const char *name)
{
    for (int i = 0; i < b->tensors->ntensors; i++)
        if (!strcmp(b->tensors->tensors[i].name, name)) return true;
    return false;
}

int kn_mk_buffer(kn_mk *m, const char *name, enum kn_dtype t, enum kn_scope scope, int rank, const int64_t *shape)
{
    static const char *const keywords[] = { "where", "true", "false", "inf", "nan" };
    char *s = kn_format(m->a, name[0] >= 'a' && name[0] <= 'z' ? "%.40s" : "b%.40s", name);
    if (!s) {
        kn_mk_fail(m, KILN_MEMORY, "out of memory", name);
        return 0;
    }
    for (char *p = s; *p; p++)
        if (!letter(*p) && !digit(*p)) *p = '_';
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (!strcmp(s, keywords[i])) s = kn_format(m->a, "%s_", keywords[i]);
    for (int n = 1; s && taken(m->b, s); n++) s = kn_format(m->a, "%.40s_%d", name[0] >= 'a' && name[0] <= 'z' ? name : "b", n);
    int i = s ? kn_blocks_buffer(m->b, s, t, KN_TEMP, scope, rank, shape) : -1;
    if (i < 0) kn_mk_fail(m, KILN_LIMIT, "too many buffers", name);
    return i < 0 ? 0 : i;
}

int kn_mk_iter(kn_mk *m, kn_block *k, const char *name, int64_t extent, bool reduce, kn_expr *bind)
{
    int n = k->s.naxes;
    if (n == KILN_MAX_AXES) {
        kn_mk_fail(m, KILN_LIMIT, "a block would have too many iterators", k->name);
        return -1;
    }
    char *s = kn_strdup(m->a, name);
    bool fine = s && s[0] >= 'A' && s[0] <= 'Z' && strlen(s) < KILN_MAX_NAME_BYTES;
    for (char *p = s; p && *p; p++) {
        if (*p == '.') *p = '_';
        fine &= letter(*p) || digit(*p) || *p == '_';
    }
    for (int i = 0; i < n && fine; i++) fine = strcmp(s, k->s.axes[i].name) != 0;
    k->s.axes[n] = (kn_axis){ fine ? s : kn_format(m->a, "Kn_axis%d", n), extent, reduce };
    k->s.nspatial += !reduce;
    k->bind[n] = bind;
    if (!bind || !k->s.axes[n].name) kn_mk_fail(m, KILN_MEMORY, "out of memory", k->name);
    return k->s.naxes++;
}

void kn_mk_where(kn_mk *m, kn_block *k, int iter, int64_t below)
{
    kn_expr *c = kn_bin(m->a, KN_OP_LT, kn_axis_ref(m->a, iter), kn_mk_int(m, below));
    k->where = k->where ? kn_bin(m->a, KN_OP_AND, k->where, c) : c;
}

static bool same_region(const kn_region *x, const kn_region *y, int rank)
{
    for (int i = 0; i < rank; i++)
        if (x->extent[i] != y->extent[i] || !kn_expr_equal(x->lo[i], y->lo[i])) return false;
    return x->buffer == y->buffer;
}

/* A load as a region: its own element; the whole dimension where data decides; clipped where it may stray. */
static void declare(kn_mk *m, kn_block *k, const kn_expr *e)
{
    const kn_tensor *t = &m->b->tensors->tensors[e->u.tensor];
    kn_region r = { .buffer = e->u.tensor, .clipped = e->padded };
    for (int i = 0; i < t->rank; i++) {
        const kn_expr *inner[1];
        int64_t lo, hi;
        bool data = kn_loads(e->args[i], inner, 1) > 0;
        r.lo[i] = data ? kn_mk_int(m, 0) : e->args[i];
        r.extent[i] = data ? t->shape[i] : 1;
        if (!data && (!kn_expr_range(e->args[i], kn_block_iter_range, k, &lo, &hi) || lo < 0 || hi >= t->shape[i])) r.clipped = true;
    }
    for (int i = 0; i < k->nreads; i++) {
        if (!same_region(&k->reads[i], &r, t->rank)) continue;
        k->reads[i].clipped |= r.clipped;
        return;
    }
    if (k->nreads == KN_BLOCK_REGIONS) kn_mk_fail(m, KILN_LIMIT, "a block would read too many regions", k->name);
    else k->reads[k->nreads++] = r;
}

void kn_mk_regions(kn_mk *m, kn_block *k)
{
    const kn_expr *loads[KN_BLOCK_REGIONS * 4];
    if (!k->s.body || m->status || kn_arena_dry(m->a)) {
        kn_mk_fail(m, KILN_MEMORY, "out of memory", k->name);
        return;
    }
    int n = kn_loads(k->s.body, loads, KN_BLOCK_REGIONS * 4);
    for (int i = 0; i < n && i < KN_BLOCK_REGIONS * 4; i++) declare(m, k, loads[i]);
    kn_region *w = &k->writes[k->nwrites++];
    w->buffer = k->s.out;
    for (int i = 0; i < m->b->tensors->tensors[k->s.out].rank; i++) {
        w->lo[i] = k->s.lhs[i];
        w->extent[i] = 1;
        if (!w->lo[i]) kn_mk_fail(m, KILN_MEMORY, "out of memory", k->name);
    }
}

kn_bnode *kn_mk_block(kn_mk *m, kn_bnode *parent, kn_block *k)
{
    kn_bnode *n = kn_blocks_node(m->b, parent, KN_BN_BLOCK);
    if (n) n->block = k;
    else kn_mk_fail(m, KILN_MEMORY, "out of memory", k->name);
    return n;
}

static bool top(const kn_stage *g, int l)
{
    for (int i = 0; i < g->nloops; i++)
        if (g->loops[i].axis == g->loops[l].axis && g->loops[i].extent > 1 && g->loops[i].stride > g->loops[l].stride) return false;
    return true;
}

static kn_expr *simp(kn_mk *m, const kn_ms *s, kn_expr *e) { return e ? kn_simplify(m->a, e, kn_block_iter_range, s->proto) : NULL; }

kn_expr *kn_mk_digit(kn_mk *m, const kn_ms *s, int l)
{
    const kn_loop *p = &s->g->loops[l];
    kn_expr *e = kn_axis_ref(m->a, p->axis);
    if (p->extent == 1) return kn_mk_int(m, 0);
    if (p->stride > 1) e = kn_bin(m->a, KN_OP_FLOORDIV, e, kn_mk_int(m, p->stride));
    if (!top(s->g, l)) e = kn_bin(m->a, KN_OP_MOD, e, kn_mk_int(m, p->extent));
    return simp(m, s, e);
}

kn_expr *kn_mk_part(kn_mk *m, const kn_ms *s, int axis, uint64_t inside)
{
    int64_t least_out = INT64_MAX, most_in = 0;
    kn_expr *sum = kn_mk_int(m, 0);
    for (int i = 0; i < s->g->nloops; i++) {
        const kn_loop *l = &s->g->loops[i];
        if (l->axis != axis || l->extent == 1) continue;
        if (!(inside >> i & 1)) least_out = l->stride < least_out ? l->stride : least_out;
        else most_in = l->stride > most_in ? l->stride : most_in;
    }
    if (!most_in) return sum;
    if (least_out == INT64_MAX) return kn_axis_ref(m->a, axis);
    if (most_in < least_out) return simp(m, s, kn_bin(m->a, KN_OP_MOD, kn_axis_ref(m->a, axis), kn_mk_int(m, least_out)));
    for (int i = 0; i < s->g->nloops; i++) {
        const kn_loop *l = &s->g->loops[i];
        if (l->axis != axis || l->extent == 1 || !(inside >> i & 1)) continue;
        sum = kn_bin(m->a, KN_OP_ADD, sum, kn_bin(m->a, KN_OP_MUL, kn_mk_digit(m, s, i), kn_mk_int(m, l->stride)));
    }
    return simp(m, s, sum);
}

int64_t kn_mk_span(const kn_ms *s, int axis, uint64_t inside)
{
    int64_t n = 1;
    for (int i = 0; i < s->g->nloops; i++)
        if (s->g->loops[i].axis == axis && inside >> i & 1) n += (s->g->loops[i].extent - 1) * s->g->loops[i].stride;
    return n;
}

uint64_t kn_mk_inside(const kn_stage *g, const kn_cache *c)
{
    uint64_t set = 0;
    for (int i = 0; i < g->nloops; i++)
        if (i > c->at || (c->scope == KN_SHARED && g->loops[i].kind == KN_THREAD)) set |= 1ull << i;
    return set;
}
