/* The loops of one stage on a CPU as lines of a trace. */
#include "construct/nest.h"

static const char *name(const kn_nest *w, int axis) { return w->x->s->axes[axis].name; }

void kn_nest_begin(kn_nest *w, const kn_site *x, kiln_arena *a)
{
    w->x = x;
    kn_buf_init(&w->first, a);
    kn_buf_init(&w->order, a);
    kn_buf_init(&w->kinds, a);
    kn_buf_init(&w->copies, a);
    kn_putn(&w->first, x->before.p ? x->before.p : "", x->before.n);
}

void kn_nest_split(kn_nest *w, int axis, const int64_t sizes[KN_NEST_CUTS])
{
    bool begun = false;
    for (int i = 0; i < KN_NEST_CUTS; i++) {
        if (!sizes[i]) continue;
        if (!begun) kn_putf(&w->first, "split %s %s", w->x->name, name(w, axis));
        kn_putf(&w->first, " %lld", (long long)sizes[i]);
        begun = true;
    }
    if (begun) kn_put(&w->first, "\n");
}

void kn_nest_loop(kn_nest *w, int axis, int level) { kn_putf(&w->order, " %s.%d", name(w, axis), level); }

void kn_nest_task(kn_nest *w, int axis)
{
    kn_nest_loop(w, axis, 0);
    kn_nest_kind(w, "parallel", axis, 0);
}

void kn_nest_bar(kn_nest *w) { kn_put(&w->order, " |"); }

void kn_nest_kind(kn_nest *w, const char *kind, int axis, int level)
{
    kn_putf(&w->kinds, "%s %s %s.%d\n", kind, w->x->name, name(w, axis), level);
}

void kn_nest_try(kn_nest *w, kn_plans *p)
{
    kiln_bytes order = kn_buf_take(&w->order), kinds = kn_buf_take(&w->kinds), copies = kn_buf_take(&w->copies);
    if (!order.p || !kinds.p || !copies.p) return;
    kn_putf(&w->first, "reorder %s", w->x->name);
    kn_putn(&w->first, order.p, order.n);
    kn_put(&w->first, "\n");
    kn_putn(&w->first, kinds.p, kinds.n);
    kn_putn(&w->first, copies.p, copies.n);
    kn_plans_try(p, &w->first);
}
