/* A sum reads a copy of one of its loads: wide, in another order, or of what is read alone. */
#include "construct/shape.h"
#include "te/expr.h"


static bool is_cast(const kn_expr *e, const kn_expr *load)
{
    if (e->op == KN_OP_CAST && e->args[0] == load) return e->args[0]->dtype != e->dtype;
    for (int i = 0; i < e->nargs; i++)
        if (is_cast(e->args[i], load)) return true;
    return false;
}

/* Two loads of a dtype that the sum of their products does not accumulate in. */
static bool is_half_product(const kn_stmt *st)
{
    const kn_expr *e = st->body;
    if (e->op != KN_OP_MUL || kn_dtype_class(e->dtype) != 'f' || kn_dtype_acc(e->dtype) == e->dtype) return false;
    return e->args[0]->op == KN_OP_LOAD && e->args[1]->op == KN_OP_LOAD;
}

/* A matrix whose rows lie along the sum, times a vector, which all of its rows meet. */
static bool meets_vector(const kn_site *v, int load)
{
    uint32_t spatial = 0;
    for (int i = 0; i < v->s->nspatial && i < KILN_MAX_AXES; i++) spatial |= (uint32_t)(v->s->axes[i].extent > 1) << i;
    bool sum = v->s->red == KN_RED_SUM && v->nloads == 2 && v->s->naxes == v->s->nspatial + 1 && kn_bare(v->s->body)->op == KN_OP_MUL;
    return sum && v->m < 0 && v->n >= 0 && kn_cpu_only_along_r(v) && !(v->load[load].axes & spatial);
}

/* A window that each channel has for itself: nothing but its taps reads an element again. Not bytes along which it slides: four of them fit where one
 * would be (56x56 by 3x3 0.82, 5x5 0.93). */
static bool slides_alone(const kn_site *v, int load, const kn_expr *e)
{
    if (kn_dtype_bytes(e->dtype) == 1 && kn_shaper_slides(v, e)) return false;
    bool all = load < v->nloads && v->s->red == KN_RED_SUM && v->nloads == 2 && v->s->naxes > v->s->nspatial + 1;
    for (int i = 0; i < v->s->nspatial && i < KILN_MAX_AXES; i++) all &= v->s->axes[i].extent == 1 || v->load[load].axes >> i & 1;
    return all;
}

/* Times that its elements are read which are worth a copy: lanes with steps between them are picked from halves for each tap. */
static double often_alone(const kn_site *v, int load, bool far)
{
    enum { OFTEN = 4, PICKED = 2 };
    bool picked = v->load[load].linear && v->load[load].coef[v->n] > 1;
    return picked && (far || !kn_cpu_short_vectors(v)) ? PICKED : OFTEN;
}

/* Its taps go along the lanes, one by one, and into padding. */
static bool slides_by_one(const kn_site *v, int load, const kn_expr *e)
{
    return kn_shaper_slides(v, e) && v->load[load].padded && v->load[load].linear && v->load[load].coef[v->n] == 1;
}

/* Steps that fill its padding in on the way. */
static const char *filled_in(kn_shaper *s, const kn_site *v, int load, const char *wide)
{
    const char *plane = kn_shaper_name(s, "plane"), *name = v->name;
    return plane ? kn_format(s->a, "decompose_padding %s %d %s\nwiden %s %d %s\ninline %s", name, load, plane, name, load, wide, plane) : NULL;
}

/* Narrow operands of a contraction are widened once, before it: where each is read so often, that takes less than doing so as it is read. A copy that
 * L2 does not hold goes out to memory and comes back several times as large. Windows that each channel has for itself (depthwise) are computed as
 * those of floats are (halves on a Zen 4: 3x3 1.1 to 1.4 times as fast, by 2 1.1 to 1.5, 5x5 1.3 to 2, channels first 1.2 to 6, with AVX2 to 10). */
kn_shaped kn_shape_widened(kn_shaper *s, int stage)
{
    enum { OFTEN = 8, FAR = 64 };
    const kn_hw_level *l2 = kn_hw_level_named(s->hw, "l2");
    kn_site v;
    kn_shaper_site(s, stage, &v);
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(v.s->body, loads, KN_SITE_LOADS);
    const char *wide = kn_shaper_name(s, "wide");
    double outer = 1;
    if (s->hw->gpu || v.s->scatter || !wide) return KN_SHAPED_NOT;
    for (int i = 0; i < v.s->nspatial; i++) outer *= (double)v.s->axes[i].extent;
    for (int i = 0; i < n && i < KN_SITE_LOADS; i++) {
        double elems = 1, reads = outer * (double)v.reduce_extent;
        bool alone = n == 2 && v.n >= 0 && (slides_alone(&v, i, loads[i]) || slides_alone(&v, 1 - i, loads[1 - i]));
        if (!v.contraction && !meets_vector(&v, i) && !alone) continue;
        for (int d = 0; d < loads[i]->nargs; d++) elems *= (double)s->t->program->tensors[loads[i]->u.tensor].shape[d];
        bool far = l2 && elems * kn_cpu_acc_bytes(&v) > (double)l2->capacity_bytes;
        double often = alone ? often_alone(&v, i, far) : far ? FAR : OFTEN;
        if (!(is_cast(v.s->body, loads[i]) || is_half_product(v.s)) || reads < often * elems) continue;
        const char *filled = alone && slides_by_one(&v, i, loads[i]) ? filled_in(s, &v, i, wide) : NULL;
        if (!kn_shaper_try(s, filled) && !kn_shaper_try(s, kn_format(s->a, "widen %s %d %s", v.name, i, wide))) continue;
        kn_shaper_keep(s, wide);
        return KN_SHAPED_AGAIN;
    }
    return KN_SHAPED_NOT;
}

/* Halves whose lanes go along the sum become floats as they are read, the few that all rows meet before. */
kn_shaped kn_shape_narrow(kn_shaper *s, int stage)
{
    kn_site v;
    kn_shaper_site(s, stage, &v);
    int load = kn_cpu_narrow_load(&v);
    const char *wide = kn_shaper_name(s, "wide");
    if (load < 0 || v.load[load].bytes == kn_cpu_acc_bytes(&v)) return KN_SHAPED_NOT;
    if (wide && kn_shaper_try(s, kn_format(s->a, "widen %s %d %s", v.name, load, wide))) kn_shaper_keep(s, wide);
    return KN_SHAPED_DONE;
}

/* A load is copied as the sum wants it, by these steps if they are wanted. */
static kn_shaped copied(kn_shaper *s, int stage, const char *stem, const char *steps(kiln_arena *a, const kn_site *x, const char *copy))
{
    kn_site v;
    kn_shaper_site(s, stage, &v);
    const char *copy = kn_shaper_name(s, stem);
    if (!copy || !kn_shaper_try(s, steps(s->a, &v, copy))) return KN_SHAPED_NOT;
    kn_shaper_keep(s, copy);
    return KN_SHAPED_AGAIN;
}

/* Weights that are numbered in digits, which no window is, in order. */
kn_shaped kn_shape_digits(kn_shaper *s, int stage) { return copied(s, stage, "weights", kn_cpu_digits); }
/* What a window's steps along the lanes meet. */
kn_shaped kn_shape_spread(kn_shaper *s, int stage) { return copied(s, stage, "plane", kn_cpu_spread); }

/* Steps that have the sum read a copy of its taps along the lanes, made ahead; NULL: it is no depthwise window. */
static const char *taps_last(kiln_arena *a, const kn_site *x, const char *copy)
{
    kn_buf b;
    int load = kn_cpu_taps(x);
    kn_buf_init(&b, a);
    if (load < 0) return NULL;
    kn_cpu_put_lanes_last(&b, x, load, copy);
    kn_putf(&b, "ahead %s", copy);
    return kn_buf_take(&b).p;
}

kn_shaped kn_shape_taps(kn_shaper *s, int stage) { return copied(s, stage, "taps", taps_last); }

/* So is it, and the results are computed under another name, in another order, by steps that make both temporaries. */
static kn_shaped copied_and_turned(kn_shaper *s, int stage, const char *stem,
                                   const char *steps(kiln_arena *a, const kn_site *x, const char *copy, const char *results))
{
    kn_site v;
    kn_shaper_site(s, stage, &v);
    const char *copy = kn_shaper_name(s, stem), *results = kn_shaper_name(s, "turned");
    if (!copy || !results || !kn_shaper_try(s, steps(s->a, &v, copy, results))) return KN_SHAPED_NOT;
    kn_shaper_keep(s, copy);
    kn_shaper_keep(s, results);
    return KN_SHAPED_AGAIN;
}

/* Sums for a few shifts of planes have lanes along the other factor's channels. */
kn_shaped kn_shape_shifts(kn_shaper *s, int stage) { return copied_and_turned(s, stage, "factor", kn_cpu_shifts); }
/* Results that lie along too few elements for lanes are computed with these outside of the planes. */
kn_shaped kn_shape_planar(kn_shaper *s, int stage) { return copied_and_turned(s, stage, "plane", kn_cpu_planar); }
