/* Sums of products go to an instruction of the device, their results turned where its lanes want that; what it takes in another dtype becomes that
 * as it is copied. */
#include "construct/shape.h"
#include "intrin/intrin.h"
#include "te/expr.h"
#include <string.h>

/* What the instruction takes is made of a copy that the shaping has made of an input: of the input then, while it is copied, so that it goes through
 * the caches once (4x288x56x56 to 16, 2x2 by 2, channels first: 0.8 of the time). */
static void recast_while_copied(kn_shaper *s, const char *copy)
{
    const kn_program *p = s->t->program;
    for (int i = 0; i < p->nstmts && kn_shaper_stores(s, copy); i++) {
        const kn_stmt *made = p->stmts[i];
        if (strcmp(p->tensors[made->out].name, copy) || made->red != KN_RED_NONE || made->body->op != KN_OP_LOAD) continue;
        kn_shaper_try(s, kn_format(s->a, "inline %s", copy));
        return;
    }
}

/* What a window of one tap skips need not become what its instruction takes: the places that it meets are copied beside each other first, runs of
 * terms (8x16x176x176 bytes by 2, channels last, to 16: 1.5 times as fast; single bytes, channels first, 0.5 to 1.3). */
static bool thins(kn_shaper *s, const kn_site *v, int l, const kn_expr *load)
{
    bool skips = false;
    for (int d = 0; d < load->nargs; d++) {
        kn_affine f;
        if (!kn_affine_of(load->args[d], &f)) continue;
        for (int i = 0; i < v->s->nspatial; i++) skips |= f.coef[i] > 1 && v->s->axes[i].extent > 1;
    }
    const char *plane = kn_shaper_name(s, "plane");
    if (!skips || !plane || !kn_shaper_try(s, kn_cpu_thinned(s->a, v, l, load, plane))) return false;
    kn_shaper_keep(s, plane);
    return true;
}

/* The terms that a dot instruction broadcasts are put beside each other, in a copy whose last dimension theirs is; false: a primitive refuses it. */
static bool turn(kn_shaper *s, const kn_cpu_dot *d, const kn_expr *load, const char *copy)
{
    kn_buf b;
    kn_buf_init(&b, s->a);
    kn_cpu_put_last(&b, copy, load->nargs, d->turn);
    return kn_shaper_try(s, kn_buf_take(&b).p);
}

/* The same of what the instruction takes as it is. */
static bool turn_alone(kn_shaper *s, const kn_site *v, const kn_cpu_dot *d, const kn_expr *load, const char *copy)
{
    if (!copy || !kn_shaper_try(s, kn_format(s->a, "copy %s %d %s", v->name, d->a, copy)) || !turn(s, d, load, copy)) return false;
    kn_shaper_keep(s, copy);
    return true;
}

/* The operand that a dot instruction broadcasts becomes unsigned, or wide, where that is what it takes; false: a primitive refuses it. */
static bool recast(kn_shaper *s, const kn_site *v, const kn_cpu_dot *d, const kn_expr *load)
{
    if (!d->flip && d->turn < 0 && thins(s, v, d->a, load)) return true;
    const char *copy = s->t->program->tensors[load->u.tensor].name;
    int n = s->nplanes, broadcast = d->it->operand[1].rank == 1 ? 1 : 2;
    const char *more = kn_shaper_name(s, "more");
    if (d->turn >= 0 && load->dtype == d->it->operand[broadcast].dtype) return turn_alone(s, v, d, load, more);
    const char *step = kn_format(s->a, "unsign %s %d %s sum%d less%d", v->name, d->flip ? d->b : d->a, more, n, n);
    if (d->wide) step = kn_format(s->a, "widen %s %d %s %s", v->name, d->a, more, kn_dtype_text(d->it->operand[broadcast].dtype));
    if (!more || !kn_shaper_try(s, step)) return false;
    if (d->flip) { /* the instruction does it */
        kn_shaper_try(s, kn_format(s->a, "inline %s", more));
        return true;
    }
    if (!d->wide) kn_shaper_try(s, kn_format(s->a, "ahead sum%d", n)); /* now, so that the constant counts as read once */
    kn_shaper_keep(s, more);
    if (d->turn >= 0) turn(s, d, load, more);
    else recast_while_copied(s, copy);
    return true;
}

/* The factor that is broadcast lies as the one with the lanes should. */
static bool exchange(kn_shaper *s, const kn_site *v, const kn_cpu_dot *d)
{
    const char *results = kn_shaper_name(s, "turned");
    if (!results || !kn_shaper_try(s, kn_cpu_exchanged(s->a, v, d, results))) return false;
    kn_shaper_keep(s, results);
    return true;
}

/* The sum's terms become a multiple of the instruction's: the operand that is broadcast has to lie there with zeros behind it, before it is turned in
 * squares, too; a constant one with the lanes gets them as it is packed. */
static bool fill_up(kn_shaper *s, const kn_site *v, const kn_cpu_dot *d, const kn_expr *load)
{
    const char *axis = v->s->axes[d->run].name, *pad = kn_format(s->a, "%s_pad_%s", s->t->program->tensors[load->u.tensor].name, axis);
    const char *step = kn_format(s->a, "pad_einsum %s %s %lld", v->name, axis, (long long)d->it->s->axes[1].extent);
    if (!pad || kn_cpu_is_packed(v) || !kn_shaper_try(s, step)) return false;
    kn_shaper_keep(s, pad);
    return true;
}

/* Prepares a sum of products of bytes for the device's dot instruction: what it broadcasts, and terms that are a multiple of its own; once it is
 * ready, its places become one axis, or its padding is filled in. */
kn_shaped kn_shape_dot(kn_shaper *s, int stage)
{
    kn_site v;
    kn_cpu_dot d;
    kn_shaper_site(s, stage, &v);
    if (!kn_cpu_dot_of(&v, &d)) return KN_SHAPED_NOT;
    const kn_expr *loads[KN_SITE_LOADS];
    kn_loads(v.s->body, loads, KN_SITE_LOADS);
    bool divides = v.s->axes[d.run].extent % d.it->s->axes[1].extent == 0, turns = d.turn >= 0;
    if (turns && (exchange(s, &v, &d) || (!divides && fill_up(s, &v, &d, loads[d.a])))) return KN_SHAPED_AGAIN;
    if (d.recast && (!d.flip || divides || turns)) return recast(s, &v, &d, loads[d.a]) ? KN_SHAPED_AGAIN : KN_SHAPED_NOT;
    if (!divides && fill_up(s, &v, &d, loads[d.a])) return KN_SHAPED_AGAIN;
    if (kn_shaper_flatten(s, stage)) return KN_SHAPED_ON;
    kn_shaper_pad(s, stage);
    return KN_SHAPED_DONE;
}

/* Results that do not lie along what lanes had better run along are turned as they are written out. */
kn_shaped kn_shape_turned(kn_shaper *s, int stage)
{
    kn_site v;
    kn_cpu_dot d;
    kn_tree *before = s->t;
    kiln_bytes text = s->text;
    kn_shaper_site(s, stage, &v);
    const char *plane = kn_shaper_name(s, "plane"), *results = kn_shaper_name(s, "turned"), *weights = kn_shaper_name(s, "weights");
    const char *lines = plane && results && weights ? kn_cpu_turned(s->a, &v, plane, results, weights) : NULL;
    if (!kn_shaper_try(s, lines)) return KN_SHAPED_NOT;
    kn_shaper_site(s, stage + s->t->nstages - before->nstages - 1, &v); /* a map that turns them is behind it */
    if (kn_cpu_dot_of(&v, &d) || kn_cpu_is_packed(&v)) {
        kn_shaper_keep(s, plane);
        kn_shaper_keep(s, results);
        if (strstr(lines, weights)) kn_shaper_keep(s, weights);
        return KN_SHAPED_AGAIN;
    }
    s->t = before;
    s->text = text;
    return KN_SHAPED_NOT;
}

/* A window of halves whose places would be gathered term by term for few results each, or with steps between the lanes: as wide floats, of which
 * a vector takes half as many products, it is faster (measured). */
static bool gathers(const kn_site *v)
{
    enum { FEW = 32 };
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(v->s->body, loads, KN_SITE_LOADS);
    uint32_t spatial = (1u << v->s->nspatial) - 1;
    for (int l = 0; l < n && l < KN_SITE_LOADS && kn_dtype_class(v->s->body->dtype) == 'f'; l++) {
        bool window = false, steps = false;
        int64_t results = 1;
        for (int d = 0; d < loads[l]->nargs; d++) {
            kn_affine f;
            uint32_t in = kn_axes_in(loads[l]->args[d]);
            window |= (in & spatial) && (in & ~spatial);
            steps |= v->n >= 0 && (in >> v->n & 1) && kn_affine_of(loads[l]->args[d], &f) && f.coef[v->n] > 1;
        }
        for (int i = 0; i < v->s->nspatial; i++) if (!(kn_axes_in(loads[l]) >> i & 1)) results *= v->s->axes[i].extent;
        if (window && (results <= FEW || steps)) return true;
    }
    return false;
}

/* A step that schedules the statement, and the layouts that it wants: the mapping predicted to be the fastest that its primitives take. */
static kn_shaped to_instruction(kn_shaper *s, int stage, kn_mapped what)
{
    const char *line[KN_MAPPED];
    int n = kn_mapped_steps(s->a, s->t, s->hw, stage, what, s->nfused, line, KN_MAPPED);
    for (int i = 0; i < n; i++) {
        if (!kn_shaper_try(s, line[i])) continue;
        s->nfused++;
        return KN_SHAPED_DONE;
    }
    return KN_SHAPED_NOT;
}

/* A product of narrow factors goes to the instruction of the device that multiplies them. */
kn_shaped kn_shape_mapped(kn_shaper *s, int stage)
{
    kn_site v;
    kn_shaper_site(s, stage, &v);
    return to_instruction(s, stage, gathers(&v) || kn_cpu_streams_narrow(&v) ? KN_MAPPED_UNIT : KN_MAPPED_NARROW);
}

/* To fill the copy that stage writes, in runs of few elements. */
static double unfolding_us(const kn_shaper *s, int stage)
{
    const kn_stmt *st = s->t->program->stmts[s->t->stages[stage]->stmt];
    double elems = 1;
    for (int i = 0; i < st->naxes; i++) elems *= (double)st->axes[i].extent;
    return elems * s->hw->costs.read_lane / (s->hw->clock_ghz * 1e3 * s->hw->units);
}

/* A window over few channels has its terms side by side first, where its instruction is the faster for it. */
kn_shaped kn_shape_unfolded(kn_shaper *s, int stage)
{
    kn_site v;
    kn_tree *before = s->t;
    kiln_bytes text = s->text;
    kn_shaper_site(s, stage, &v);
    const char *copy = kn_shaper_name(s, "unfolded"), *taps = kn_shaper_name(s, "taps");
    if (!copy || !taps || !kn_shaper_try(s, kn_unfold_steps(s->a, &v, copy, taps))) return KN_SHAPED_NOT;
    double us = kn_mapped_us(s->a, s->t, s->hw, stage + s->t->nstages - before->nstages) + unfolding_us(s, stage);
    if (us < kn_mapped_us(s->a, before, s->hw, stage)) {
        kn_shaper_keep(s, copy);
        kn_shaper_keep(s, taps);
        return KN_SHAPED_AGAIN;
    }
    s->t = before;
    s->text = text;
    return KN_SHAPED_NOT;
}

/* The same, before all else, where the instruction has registers of its own. */
kn_shaped kn_shape_unit(kn_shaper *s, int stage) { return to_instruction(s, stage, KN_MAPPED_UNIT); }
