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

/* Calls f for each axis around the instruction of one kind, in the order of the statement; j: the instruction's axis that it feeds, -1: none. */
static void each_outer(kn_map_writer *w, bool reduce, void (*f)(kn_map_writer *w, const char *axis, int loop, int j))
{
    uint32_t taken = 0;
    for (int j = 0; j < w->m->intrin->naxes; j++) taken |= w->x->loops[j];
    for (int l = 0; l < w->m->stmt->naxes; l++) {
        if (w->m->stmt->axes[l].reduce != reduce) continue;
        if (!(taken >> l & 1)) f(w, w->m->stmt->axes[l].name, l, -1);
        for (int j = 0; j < w->m->intrin->naxes; j++)
            if (w->x->loops[j] && __builtin_ctz(w->x->loops[j]) == l) f(w, w->axis[j], l, j);
    }
}

/* The innermost loop around the instruction gives up to eight tiles of results that take turns, so that none waits for its own last result. */
static void choose_inner(kn_map_writer *w, const char *axis, int loop, int j)
{
    int64_t extent = w->m->stmt->axes[loop].extent;
    (void)axis;
    for (int64_t n = 8; n > 1 && j < 0; n--) {
        if (extent % n) continue;
        w->inner = loop, w->pieces = n;
        return;
    }
}

static void put_loop(kn_map_writer *w, const char *axis, int loop, int j)
{
    (void)loop, (void)j;
    kn_putf(w->b, " %s.0", axis);
}

static void put_grid(kn_map_writer *w, const char *axis, int loop, int j)
{
    (void)loop, (void)j;
    kn_putf(w->b, "bind %s %s.0 grid\n", w->stmt, axis);
}

static void put_parallel(kn_map_writer *w, const char *axis, int loop, int j)
{
    int64_t n = j < 0 ? w->m->stmt->axes[loop].extent : kn_ceil_div(w->extent[j], w->m->intrin->axes[j].extent);
    if (!w->tasks) return;
    kn_putf(w->b, "parallel %s %s.0\n", w->stmt, axis);
    if (n > 1) w->tasks--;
}

static void tensorize(const kn_map_writer *w)
{
    const kn_intrin *it = w->m->it;
    kn_putf(w->b, "tensorize %s", w->stmt);
    for (int j = 0, n = 0; j < it->nloops; j++)
        if (kn_map_cut(w, j) && !n++) kn_putf(w->b, " %s.1", w->axis[j]);
    kn_putf(w->b, " %s", it->name);
    for (int j = 0; j < it->nloops; j++)
        if (kn_map_cut(w, j)) kn_putf(w->b, " %s=%s.1", it->s->axes[j].name, w->axis[j]);
    kn_put(w->b, "\n");
}

static void nest(kn_map_writer *w, const kn_hw *hw)
{
    const kn_stmt *s = w->m->stmt;
    for (int j = 0; j < w->m->intrin->naxes; j++)
        if (kn_map_cut(w, j)) kn_putf(w->b, "split %s %s %lld\n", w->stmt, w->axis[j], (long long)w->m->intrin->axes[j].extent);
    if (w->inner >= 0) kn_putf(w->b, "split %s %s %lld\n", w->stmt, s->axes[w->inner].name, (long long)w->pieces);
    kn_putf(w->b, "reorder %s", w->stmt);
    each_outer(w, false, put_loop);
    each_outer(w, true, put_loop);
    if (w->inner >= 0) kn_putf(w->b, " %s.1", s->axes[w->inner].name);
    kn_put(w->b, " |");
    for (int j = 0; j < w->m->intrin->naxes; j++)
        if (kn_map_cut(w, j)) kn_putf(w->b, " %s.1", w->axis[j]);
    kn_put(w->b, "\n");
    w->tasks = 2;
    each_outer(w, false, hw->gpu ? put_grid : put_parallel);
    tensorize(w);
}

kiln_bytes kn_map_trace(kiln_arena *a, const kn_maps *m, const kn_mapping *x, const kn_hw *hw, bool packed)
{
    kn_buf b;
    kn_map_plan plan;
    kiln_diag d;
    kn_buf_init(&b, a);
    kn_map_writer w = {.b = &b, .m = m, .x = x, .stmt = m->soft->tensors[m->stmt->out].name, .inner = -1};
    fuse(&w);
    if (packed && !kn_arena_dry(a) && !kn_map_plan_of(m, x, &plan, &d)) {
        kn_map_pack(&w, &plan);
        each_outer(&w, false, choose_inner);
    }
    if (kn_arena_dry(a)) return (kiln_bytes){0};
    nest(&w, hw);
    return kn_buf_take(&b);
}
