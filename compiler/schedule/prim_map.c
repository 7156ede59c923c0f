/* map S INTRIN MAPPING: S is computed by instruction INTRIN through a mapping of its loops, "I=S0,S2;J=S1;R=R0": the loops of every axis of the
 * instruction are fused and cut at its extent, those around it become tasks or blocks, and what is inside is tensorized. On a CPU the operands
 * are packed first, where the program has room for that. */
#include "intrin/map.h"
#include "schedule/sched.h"
#include <string.h>

kn_stage *kn_step_maps(kn_step *s, const char *name, const char *instruction, kn_maps **out)
{
    kiln_diag why = { 0 };
    kn_stage *g = kn_step_fresh(s, name);
    const kn_intrin *it = g ? kn_intrin_find(s->a, s->hw, instruction) : NULL;
    if (!g) return NULL;
    if (!it) return kn_step_refuse(s, "the target has no instruction '%s'", instruction), NULL;
    kiln_status bad = kn_maps_of(s->a, s->t->program, g->stmt, it, out, &why);
    if (bad == KILN_MEMORY || bad == KILN_STOPPED) return *s->d = why, NULL;
    if (bad) return kn_step_refuse(s, "%s", why.message), NULL;
    return g;
}

/* The mapping over the flattened places of a window, as steps; NULL: it has none. */
static const char *flattened(kn_step *s, const kn_maps *m, const kn_mapping *x)
{
    kn_map_window v;
    kn_buf b;
    if (s->hw->gpu || !kn_map_flattens(m, x, &v)) return NULL;
    const kn_axis *axes = m->stmt->axes;
    const char *flat = kn_format(s->a, "%s%s", axes[v.rows].name, axes[v.columns].name), *comma = "";
    if (!flat || strlen(flat) >= KILN_MAX_NAME_BYTES) return NULL;
    kn_buf_init(&b, s->a);
    kn_putf(&b, "flatten_window %s %d %s %s %s %s_plane %s_rows\nmap %s_rows %s ", s->args[0], v.load, axes[v.rows].name, axes[v.columns].name, flat,
            s->args[0], s->args[0], s->args[0], s->args[1]);
    for (int j = 0; j < m->intrin->naxes; j++, comma = ";") {
        if (!x->loops[j]) continue;
        kn_putf(&b, "%s%s=", comma, m->intrin->axes[j].name);
        bool window = x->loops[j] >> v.columns & 1;
        const char *next = "";
        for (int l = 0; l < m->stmt->naxes; l++) {
            if (!(x->loops[j] >> l & 1) || l == v.rows || (window && axes[l].extent == 1)) continue;
            kn_putf(&b, "%s%s", next, l == v.columns ? flat : axes[l].name);
            next = ",";
        }
    }
    kn_put(&b, "\n");
    return kn_buf_take(&b).p;
}

kiln_status kn_prim_map(kn_step *s)
{
    kn_maps *list;
    const kn_maps *m;
    kn_mapping x;
    kiln_diag why = { 0 };
    if (!kn_step_maps(s, s->args[0], s->args[1], &list)) return s->d->status;
    if (kn_map_find(list, s->args[2], &m, &x, &why)) return kn_step_refuse(s, "%s", why.message);
    kn_tree *t;
    const char *flat = flattened(s, m, &x);
    if (flat) {
        kiln_status bad = kn_trace_step(s->a, s->t, s->hw, (kiln_bytes){flat, strlen(flat)}, &t, &why);
        if (bad == KILN_MEMORY || bad == KILN_STOPPED) return *s->d = why, bad;
        if (!bad) return *s->t = *t, KILN_OK;
    }
    for (int how = s->hw->gpu ? KN_MAP_GATHERED : KN_MAP_TILED; how >= KN_MAP_GATHERED; how--) {
        kiln_bytes steps = kn_map_trace(s->a, m, &x, s->hw, (enum kn_map_packing)how);
        if (!steps.p) return kn_fail(s->d, KILN_MEMORY, "out of memory while mapping loops");
        if (how == KN_MAP_GATHERED) return kn_step_run(s, steps);
        kiln_status bad = kn_trace_step(s->a, s->t, s->hw, steps, &t, &why);
        if (bad == KILN_MEMORY || bad == KILN_STOPPED) return *s->d = why, bad;
        if (!bad) break;
    }
    *s->t = *t;
    return KILN_OK;
}
