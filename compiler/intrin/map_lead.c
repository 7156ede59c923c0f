/* Copies that a task makes of what it alone reads: where the cores share the loop that moves an operand which is laid out anew, weights, and nothing
 * else, each task lays out its own part in its own scratch, of which a cache still has all when it is read, instead of all of it having been laid out
 * before, by whichever core (3x3 windows of 14x14x256 in halves, weights given anew, on a Sapphire Rapids: channels first 1.3 times as fast on one
 * core, 1.1 on two; channels last 1.17 on both; of bytes, half as many, 1.05 on one core and 1.04 to 1.2 on two). */
#include "intrin/trace.h"

/* The first loop of the nest with several iterations; -1: a reduction's, or none. */
static int leading(const kn_map_writer *w)
{
    for (int i = 0; i < w->nouter && !w->outer[i].reduce; i++)
        if (kn_map_tiles(&w->outer[i]) > 1) return i;
    return -1;
}

void kn_map_lead(const kn_map_writer *w, const kn_hw *hw, kn_map_source *s, int n, int shared)
{
    int first = leading(w), axis = first < 0 ? -1 : w->outer[first].axis;
    if (!w->unit || !w->tidy || hw->gpu || axis < 0 || !kn_map_cut(w, axis) || !kn_map_forks(w, hw) || (shared && first >= shared)) return;
    const kn_map_outer *l = &w->outer[first];
    int64_t piece = l->piece * w->m->intrin->axes[axis].extent;
    for (int i = 0; i < w->nouter; i++)
        if (w->outer[i].own) return;
    if (!kn_map_tasks_enough(kn_map_tiles(l), hw) || w->extent[axis] % piece || (w->grown >> axis & 1)) return;
    for (int i = 0; i < n; i++) {
        int d = kn_map_dim_of(&s[i], axis);
        if (d < 0 || !kn_map_is_anew(w, &s[i]) || kn_map_several(w->x->loops[axis])) continue;
        s[i].led = d + 1;
        s[i].piece = l->piece;
    }
}

void kn_map_lead_attach(const kn_map_writer *w, const kn_map_source *s, int n, int shared)
{
    int first = leading(w);
    const kn_map_outer *l = first < 0 ? NULL : &w->outer[first];
    for (int i = 0; i < n; i++) {
        if (!s[i].led || !l) continue;
        if (shared) kn_putf(w->b, "compute_at %s %s W%d.0\n", s[i].name, w->crop, kn_map_result_dim(w, l));
        else kn_putf(w->b, "compute_at %s %s %s.0\n", s[i].name, w->stmt, l->name);
    }
}
