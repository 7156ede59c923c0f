/* From a mapping to a schedule: the loops of every axis fused, cut at the instruction's extent, and the inner pieces tensorized. */
#include "intrin/map.h"
#include <string.h>

typedef struct writer {
    kn_buf *b;
    const kn_maps *m;
    const kn_mapping *x;
    const char *stmt;
    const char *axis[KILN_MAX_AXES]; /* the statement's axis that stands for axis j of the instruction, once fused */
} writer;

static bool several(uint32_t set) { return (set & (set - 1)) != 0; }

static bool named(const kn_stmt *s, const char *name)
{
    for (int i = 0; i < s->naxes; i++)
        if (!strcmp(s->axes[i].name, name)) return true;
    return false;
}

/* The names of the loops run together, made unlike every axis. */
static const char *fused_name(const writer *w, int j)
{
    char name[KILN_MAX_NAME_BYTES - 4] = "";
    size_t n = 0;
    for (int l = 0; l < w->m->stmt->naxes; l++) {
        size_t more = strlen(w->m->stmt->axes[l].name);
        if (!(w->x->loops[j] >> l & 1) || n + more + 1 >= sizeof name - 4) continue;
        memcpy(name + n, w->m->stmt->axes[l].name, more + 1);
        n += more;
    }
    while (several(w->x->loops[j]) && named(w->m->stmt, name) && n + 1 < sizeof name) name[n++] = '_', name[n] = 0;
    return kn_strdup(w->b->a, name);
}

static bool cut(const writer *w, int j) { return w->x->loops[j] && w->m->intrin->axes[j].extent > 1; }

static void fuse_and_split(writer *w)
{
    for (int j = 0; j < w->m->intrin->naxes; j++) {
        w->axis[j] = fused_name(w, j);
        if (!w->axis[j]) return;
        if (!several(w->x->loops[j])) continue;
        kn_putf(w->b, "fuse %s %s", w->stmt, w->axis[j]);
        for (int l = 0; l < w->m->stmt->naxes; l++)
            if (w->x->loops[j] >> l & 1) kn_putf(w->b, " %s", w->m->stmt->axes[l].name);
        kn_put(w->b, "\n");
    }
    for (int j = 0; j < w->m->intrin->naxes; j++)
        if (cut(w, j)) kn_putf(w->b, "split %s %s %lld\n", w->stmt, w->axis[j], (long long)w->m->intrin->axes[j].extent);
}

/* The loops around the instruction of one kind, in the order of the statement: calls f for each. */
static void each_outer(const writer *w, bool reduce, void (*f)(const writer *w, const char *loop))
{
    uint32_t taken = 0;
    for (int j = 0; j < w->m->intrin->naxes; j++) taken |= w->x->loops[j];
    for (int l = 0; l < w->m->stmt->naxes; l++) {
        if (w->m->stmt->axes[l].reduce != reduce) continue;
        if (!(taken >> l & 1)) f(w, w->m->stmt->axes[l].name);
        for (int j = 0; j < w->m->intrin->naxes; j++)
            if (w->x->loops[j] && __builtin_ctz(w->x->loops[j]) == l) f(w, w->axis[j]);
    }
}

static void put_loop(const writer *w, const char *axis) { kn_putf(w->b, " %s.0", axis); }
static void put_parallel(const writer *w, const char *axis) { kn_putf(w->b, "parallel %s %s.0\n", w->stmt, axis); }
static void put_grid(const writer *w, const char *axis) { kn_putf(w->b, "bind %s %s.0 grid\n", w->stmt, axis); }

static void tensorize(const writer *w, const kn_intrin *it)
{
    kn_putf(w->b, "tensorize %s", w->stmt);
    for (int j = 0, n = 0; j < it->nloops; j++)
        if (cut(w, j) && !n++) kn_putf(w->b, " %s.1", w->axis[j]);
    kn_putf(w->b, " %s", it->name);
    for (int j = 0; j < it->nloops; j++)
        if (cut(w, j)) kn_putf(w->b, " %s=%s.1", it->s->axes[j].name, w->axis[j]);
    kn_put(w->b, "\n");
}

kiln_bytes kn_map_trace(kiln_arena *a, const kn_maps *m, const kn_mapping *x, const kn_hw *hw)
{
    kn_buf b;
    kn_buf_init(&b, a);
    writer w = {.b = &b, .m = m, .x = x, .stmt = m->soft->tensors[m->stmt->out].name};
    fuse_and_split(&w);
    if (kn_arena_dry(a)) return (kiln_bytes){0};
    kn_putf(&b, "reorder %s", w.stmt);
    each_outer(&w, false, put_loop);
    each_outer(&w, true, put_loop);
    kn_put(&b, " |");
    for (int j = 0; j < m->intrin->naxes; j++)
        if (cut(&w, j)) kn_putf(&b, " %s.1", w.axis[j]);
    kn_put(&b, "\n");
    each_outer(&w, false, hw->gpu ? put_grid : put_parallel);
    tensorize(&w, m->it);
    return kn_buf_take(&b);
}
