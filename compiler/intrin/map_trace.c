/* From a mapping to a schedule: the loops of every axis fused, cut at the instruction's extent, and the inner pieces tensorized. */
#include "intrin/trace.h"
#include <string.h>

static bool named(const kn_stmt *s, const char *name)
{
    for (int i = 0; i < s->naxes; i++)
        if (!strcmp(s->axes[i].name, name)) return true;
    return false;
}

/* The names of the loops run together, made unlike every axis. */
static const char *fused_name(const kn_map_writer *w, int j)
{
    char name[KILN_MAX_NAME_BYTES - 4] = "";
    size_t n = 0;
    for (int l = 0; l < w->m->stmt->naxes; l++) {
        size_t more = strlen(w->m->stmt->axes[l].name);
        if (!(w->x->loops[j] >> l & 1) || n + more + 1 >= sizeof name - 4) continue;
        memcpy(name + n, w->m->stmt->axes[l].name, more + 1);
        n += more;
    }
    while (kn_map_several(w->x->loops[j]) && named(w->m->stmt, name) && n + 1 < sizeof name) name[n++] = '_', name[n] = 0;
    return kn_strdup(w->b->a, name);
}

/* The operand steps forward along one index with the axis, and along no other; *others: what else moves there. */
static bool steps(const kn_maps *m, const kn_map_operand *o, int axis, int *dim, uint32_t *others, bool *window)
{
    *dim = -1;
    for (int k = 0; k < o->nsoft; k++) {
        kn_affine f;
        uint32_t in = kn_axes_in(o->soft_index[k]);
        if (!(in >> axis & 1)) continue;
        if (*dim >= 0 || !kn_affine_of(o->soft_index[k], &f) || f.coef[axis] < 1) return false;
        *dim = k;
        for (int l = 0; l < m->stmt->naxes; l++)
            if (l != axis && (in >> l & 1) && m->stmt->axes[l].extent > 1) *others |= 1u << l, *window = true;
        *window = *window || f.coef[axis] > 1;
    }
    return *dim >= 0;
}

bool kn_map_flattens(const kn_maps *m, const kn_mapping *x, kn_map_window *out)
{
    const kn_expr *loads[KILN_MAX_TENSORS];
    uint32_t fed = 0;
    for (int j = 0; j < m->intrin->naxes; j++) fed |= x->loops[j];
    if (kn_loads(m->stmt->body, loads, KILN_MAX_TENSORS) > KILN_MAX_TENSORS) return false;
    for (int j = 0; j < m->it->nspatial; j++) {
        int pair[2] = {-1, -1}, n = 0;
        for (int l = 0; l < m->stmt->naxes; l++)
            if ((x->loops[j] >> l & 1) && m->stmt->axes[l].extent > 1 && n++ < 2) pair[n - 1] = l;
        if (n != 2) continue;
        for (int o = 1; o < m->nops; o++) {
            const kn_map_operand *op = &m->op[o];
            int a, b;
            uint32_t others = 0;
            bool window = false;
            if (op->load < 0 || !steps(m, op, pair[0], &a, &others, &window) || !steps(m, op, pair[1], &b, &others, &window) || a == b) continue;
            window = window || loads[op->load]->padded;
            if (!window || (others & fed)) continue;
            *out = (kn_map_window){op->load, pair[0], pair[1]};
            return true;
        }
    }
    return false;
}

static void fuse(kn_map_writer *w)
{
    for (int j = 0; j < w->m->intrin->naxes; j++) {
        w->axis[j] = fused_name(w, j);
        w->extent[j] = kn_map_extent(w->m, w->x, j);
        if (!kn_map_several(w->x->loops[j])) continue;
        kn_putf(w->b, "fuse %s %s", w->stmt, w->axis[j] ? w->axis[j] : "");
        for (int l = 0; l < w->m->stmt->naxes; l++)
            if (w->x->loops[j] >> l & 1) kn_putf(w->b, " %s", w->m->stmt->axes[l].name);
        kn_put(w->b, "\n");
    }
}

/* The loop of axis j that the instruction computes: inside the tiles, and inside the piece of them where there is one. */
static int innermost(const kn_map_writer *w, int j)
{
    for (int i = 0; i < w->nouter; i++)
        if (w->outer[i].axis == j) return 1 + kn_map_level(&w->outer[i]) + (w->outer[i].piece > 1);
    return 1;
}

static void tensorize(const kn_map_writer *w)
{
    const kn_intrin *it = w->m->it;
    kn_putf(w->b, "tensorize %s", w->stmt);
    for (int j = 0, n = 0; j < it->nloops; j++)
        if (kn_map_cut(w, j) && !n++) kn_putf(w->b, " %s.%d", w->axis[j], innermost(w, j));
    kn_putf(w->b, " %s", it->name);
    for (int j = 0; j < it->nloops; j++)
        if (kn_map_cut(w, j)) kn_putf(w->b, " %s=%s.%d", it->s->axes[j].name, w->axis[j], innermost(w, j));
    kn_put(w->b, "\n");
}

static void split(const kn_map_writer *w)
{
    for (int i = 0; i < w->nouter; i++) {
        const kn_map_outer *l = &w->outer[i];
        bool cut = l->axis >= 0 && kn_map_cut(w, l->axis);
        if (!cut && l->piece == 1 && !l->own) continue;
        kn_putf(w->b, "split %s %s", w->stmt, l->name);
        if (l->own) kn_putf(w->b, " %lld", (long long)l->own);
        if (l->piece > 1) kn_putf(w->b, " %lld", (long long)l->piece);
        if (cut) kn_putf(w->b, " %lld", (long long)w->m->intrin->axes[l->axis].extent);
        kn_put(w->b, "\n");
    }
}

bool kn_map_forks(const kn_map_writer *w, const kn_hw *hw)
{
    enum { SLOWER = 3 }; /* than the calls alone */
    double calls = 1, interval = w->m->it->spec->interval;
    for (int l = 0; l < w->m->stmt->naxes; l++) calls *= (double)w->m->stmt->axes[l].extent;
    calls /= (double)w->m->it->points;
    return !w->unit || interval <= 0 || SLOWER * calls * interval > hw->launch_us * hw->clock_ghz * 1e3;
}

/* The tasks' loops: two that have several iterations, or, of a unit, as many as are tasks enough. */
static void share_out(const kn_map_writer *w, const kn_hw *hw)
{
    int64_t all = 1;
    int left = 2;
    for (int i = 0; i < w->nouter; i++)
        if (w->outer[i].own) kn_putf(w->b, "parallel %s %s.0\n", w->stmt, w->outer[i].name), all *= hw->units;
    for (int i = 0; i < w->nouter && !w->outer[i].reduce && (hw->gpu || left); i++) {
        const kn_map_outer *l = &w->outer[i];
        int64_t n = kn_map_shared(l);
        kn_putf(w->b, hw->gpu ? "bind %s %s.%d grid\n" : "parallel %s %s.%d\n", w->stmt, l->name, kn_map_level(l));
        left -= n > 1;
        if (w->unit && kn_map_tasks_enough(all *= n, hw)) break;
    }
}

static void nest(kn_map_writer *w, const kn_hw *hw, bool finishes, int shared)
{
    bool forks = hw->gpu || kn_map_forks(w, hw);
    split(w);
    kn_putf(w->b, "reorder %s", w->stmt);
    for (int i = 0; i < w->nouter; i++)
        if (w->outer[i].own) kn_putf(w->b, " %s.0", w->outer[i].name);
    for (int i = 0; i < w->nouter; i++) kn_putf(w->b, " %s.%d", w->outer[i].name, kn_map_level(&w->outer[i]));
    for (int i = 0; i < w->nouter; i++)
        if (w->outer[i].piece > 1) kn_putf(w->b, " %s.%d", w->outer[i].name, kn_map_level(&w->outer[i]) + 1);
    kn_put(w->b, " |");
    for (int j = 0; j < w->m->intrin->naxes; j++)
        if (kn_map_cut(w, j)) kn_putf(w->b, " %s.%d", w->axis[j], innermost(w, j));
    kn_put(w->b, "\n");
    if (!shared && forks) share_out(w, hw);
    for (int i = 0; i < w->nouter && w->unrolls; i++)
        if (w->outer[i].piece > 1) kn_putf(w->b, "unroll %s %s.%d\n", w->stmt, w->outer[i].name, kn_map_level(&w->outer[i]) + 1);
    tensorize(w);
    if (finishes) kn_putf(w->b, "epilogue %s\n", w->stmt);
    else if (shared) kn_map_crop_attach(w, hw, shared);
    else kn_map_crop_alone(w);
}

kiln_bytes kn_map_trace(kiln_arena *a, const kn_maps *m, const kn_mapping *x, const kn_hw *hw, enum kn_map_packing how)
{
    kn_buf b;
    kn_map_plan plan;
    kiln_diag d;
    kn_buf_init(&b, a);
    kn_map_writer w = {.b = &b, .m = m, .x = x, .stmt = m->soft->tensors[m->stmt->out].name,
                       .tidy = how == KN_MAP_TILED, .vector_bytes = hw->vector_bytes, .unit = kn_intrin_unit(m->it, hw)};
    fuse(&w);
    bool packs = how != KN_MAP_GATHERED && !kn_arena_dry(a) && !kn_map_plan_of(m, x, &plan, &d);
    if (packs && w.tidy && w.unit) {
        kn_map_writer tile = w;
        kn_map_outer_loops(&tile);
        if (kn_map_blocked(&tile, hw)) return kn_buf_take(&b);
    }
    kn_map_source s[KN_MAP_OPERANDS];
    int n = packs ? kn_map_pack(&w, &plan, s) : 0;
    if (kn_arena_dry(a)) return (kiln_bytes){0};
    kn_map_outer_loops(&w);
    if (packs) kn_map_choose_tile(&w, hw, &plan);
    bool finishes = kn_map_crop_finishes(&w);
    int shared = finishes ? 0 : kn_map_crop_shares(&w);
    kn_map_deal_out(&w, hw);
    kn_map_lead(&w, hw, s, n, shared);
    kn_map_copies(&w, s, n);
    nest(&w, hw, finishes, shared);
    kn_map_lead_attach(&w, s, n, shared);
    return kn_buf_take(&b);
}
