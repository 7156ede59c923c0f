/* Program shaping: map producers go into their readers, map consumers become epilogues, axes that are adjacent everywhere become one (ROLLER 3.4).
 * Every step is tried on the program so far; one that a primitive refuses is left out. */
#include "construct/shape.h"
#include <string.h>

bool kn_shaper_try(kn_shaper *s, const char *lines)
{
    kiln_diag d;
    kn_tree *t;
    kn_mark before = kn_mark_of(s->a);
    const char *text = lines ? kn_format(s->a, "%s%s\n", s->text.p, lines) : NULL;
    if (!text) return false;
    if (kn_trace_step(s->a, s->t, s->hw, (kiln_bytes){lines, strlen(lines)}, &t, &d) || kn_trace_end(t, s->hw, &d)) {
        kn_release(s->a, before);
        return false;
    }
    s->text = (kiln_bytes){text, strlen(text)};
    s->t = t;
    return true;
}

void kn_shaper_site(const kn_shaper *s, int stage, kn_site *v) { kn_site_of(s->a, s->t, s->t->stages[stage], s->hw, v); }

const char *kn_shaper_name(const kn_shaper *s, const char *stem)
{
    return s->nplanes + 3 > KILN_MAX_STMTS ? NULL : kn_format(s->a, "%s%d", stem, s->nplanes);
}

void kn_shaper_keep(kn_shaper *s, const char *name)
{
    if (s->nplanes < KILN_MAX_STMTS) s->plane[s->nplanes++] = name;
}

bool kn_shaper_stores(const kn_shaper *s, const char *name)
{
    for (int i = 0; i < s->nplanes; i++)
        if (!strcmp(s->plane[i], name)) return true;
    return false;
}

int kn_shaper_reads(const kn_expr *e, int tensor, const kn_expr **one)
{
    int n = e->op == KN_OP_LOAD && e->u.tensor == tensor;
    if (n) *one = e;
    for (int i = 0; i < e->nargs; i++) n += kn_shaper_reads(e->args[i], tensor, one);
    return n;
}

/* The results are written with the channels last, by the statement itself or by what finishes them (cpu_lanes.c). */
static bool turned_back(const kn_shaper *s, int tensor)
{
    const kn_program *p = s->t->program;
    const kn_expr *one;
    bool yes = !strcmp(p->tensors[tensor].name, KN_CPU_LANES);
    for (int i = 0; i < p->nstmts && !yes; i++)
        yes = !strcmp(p->tensors[p->stmts[i]->out].name, KN_CPU_LANES) && kn_shaper_reads(p->stmts[i]->body, tensor, &one);
    return yes;
}

/* Temporaries of the steps that came before. */
static void keep_those_before(kn_shaper *s)
{
    static const char *const made[] = {KN_CPU_LANES, KN_CPU_WIDE_LANES "0", KN_CPU_WIDE_LANES "1", KN_CPU_SQUARES_IN, KN_CPU_SQUARES_OUT,
                                       KN_CHANNELS_IMAGE, KN_CHANNELS_WEIGHTS, KN_CHANNELS_PLACES};
    for (int i = 0; i < s->t->program->ntensors; i++)
        for (size_t k = 0; k < sizeof made / sizeof made[0]; k++)
            if (!strcmp(s->t->program->tensors[i].name, made[k])) kn_shaper_keep(s, made[k]);
    for (int i = 0; i < s->t->program->ntensors && s->hw->gpu; i++) /* padded.c's */
        if (strstr(s->t->program->tensors[i].name, "_pad_")) kn_shaper_keep(s, s->t->program->tensors[i].name);
}

static void (*const before_stages[])(kn_shaper *) = {
#define BEFORE(name) kn_shape_##name,
#include "construct/shapings.def"
};

static kn_shaped (*const of_stage[])(kn_shaper *, int) = {
#define STAGE(name) kn_shape_##name,
#include "construct/shapings.def"
};

static void (*const after_stages[])(kn_shaper *) = {
#define AFTER(name) kn_shape_##name,
#include "construct/shapings.def"
};

kiln_status kn_shape(kiln_arena *a, const kn_program *p, const kn_hw *hw, kiln_bytes start, kiln_bytes *trace, kn_tree **t, kiln_diag *d)
{
    kn_shaper s = {.a = a, .hw = hw, .text = start};
    kiln_status st = kn_trace_apply(a, p, hw, s.text, &s.t, d);
    if (st) return st;
    keep_those_before(&s);
    for (size_t i = 0; i < sizeof before_stages / sizeof before_stages[0]; i++) before_stages[i](&s);
    for (int k = 0; k < s.t->nstages; k++) {
        int before = s.t->nstages;
        kn_shaped is = KN_SHAPED_NOT;
        if (kn_site_scheduled(s.t, s.t->stages[k]) || turned_back(&s, s.t->program->stmts[s.t->stages[k]->stmt]->out)) continue;
        for (size_t i = 0; i < sizeof of_stage / sizeof of_stage[0] && is == KN_SHAPED_NOT; i++) is = of_stage[i](&s, k);
        if (is == KN_SHAPED_AGAIN) k--;
        if (is == KN_SHAPED_DONE) k += s.t->nstages - before;
    }
    for (size_t i = 0; i < sizeof after_stages / sizeof after_stages[0]; i++) after_stages[i](&s);
    *trace = s.text;
    *t = s.t;
    if (kn_stopped(a)) return kn_fail(d, KILN_STOPPED, "stopped while shaping the program");
    return kn_arena_dry(a) ? kn_fail(d, KILN_MEMORY, "out of memory") : KILN_OK;
}
