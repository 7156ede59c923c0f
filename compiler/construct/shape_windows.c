/* Windows: their places become one axis, their padding is filled in, their rows are combined first. */
#include "construct/shape.h"
#include "te/expr.h"

bool kn_shaper_slides(const kn_site *v, const kn_expr *load)
{
    uint32_t reduced = (1u << v->s->naxes) - (1u << v->s->nspatial);
    for (int d = 0; d < load->nargs; d++)
        if ((kn_axes_in(load->args[d]) >> v->n & 1) && (kn_axes_in(load->args[d]) & reduced)) return true;
    return false;
}

/* Dimension of the load along which the axis alone of the two steps, -1: none; *window is set where it meets others there, steps by more than one
 * or may meet padding. */
static int window_dim(const kn_site *v, int l, const kn_expr *load, int axis, bool *window)
{
    int dim = -1;
    uint32_t moving = 0;
    for (int i = 0; i < v->s->naxes && i < KILN_MAX_AXES; i++) moving |= (uint32_t)(v->s->axes[i].extent > 1) << i;
    for (int i = 0; i < load->nargs; i++) {
        kn_affine f;
        uint32_t in = kn_axes_in(load->args[i]);
        if (!(in >> axis & 1)) continue;
        if (dim >= 0 || !kn_affine_of(load->args[i], &f) || f.coef[axis] < 1) return -1;
        if (!kn_shaper_slides(v, load) && kn_cpu_is_digit(v, &f, axis)) return -1;
        dim = i;
        *window |= v->load[l].padded || (in & moving & ~(1u << axis)) || f.coef[axis] > 1;
    }
    return dim;
}

/* A window whose rows fill vectors (cpu_strips.c) is read without its padding and stride. */
kn_shaped kn_shape_strips(kn_shaper *s, int stage)
{
    kn_site v;
    kn_shaper_site(s, stage, &v);
    const char *plane = kn_shaper_name(s, "plane");
    int load = plane && !kn_cpu_is_packed(&v) ? kn_cpu_strip(&v) : -1;
    const char *lines = load < 0 ? NULL : kn_cpu_strip_steps(s->a, &v, load, plane);
    if (!lines || (*lines && !kn_shaper_try(s, lines))) return KN_SHAPED_NOT;
    if (*lines) kn_shaper_keep(s, plane);
    return KN_SHAPED_DONE;
}

/* Axis b continues a wherever they stand, as they lie: columns that the window takes one of, of whole rows. */
static bool one_axis(const kn_site *v, int a, int b)
{
    bool yes = kn_site_continues(&v->store, a, b, v->s->axes[b].extent);
    for (int l = 0; l < v->nloads && yes; l++) yes = kn_site_continues(&v->load[l], a, b, v->s->axes[b].extent);
    return yes;
}

/* The same but for rows in padding: of a copy that has these its places are one axis, and so are those of the results, which need no other one. */
static bool rows_alone(const kn_site *v, int l, const kn_expr *load, int row, int a, int b)
{
    kn_affine f;
    bool column = load->args[row + 1]->op == KN_OP_AXIS && load->args[row + 1]->u.axis == b;
    bool steps = !kn_affine_of(load->args[row], &f) || f.coef[a] != 1;
    return v->load[l].padded && column && !steps && kn_site_continues(&v->store, a, b, v->s->axes[b].extent);
}

/* Makes one axis of the places along spatial axis b and the one outside of it, if load i of a sum slides over these, in a copy of what they meet. */
static bool flatten(kn_shaper *s, const kn_site *v, int i, const kn_expr *load, int b, const char *plane)
{
    bool window = false, packed = kn_cpu_is_packed(v); /* whose window stays as it is, but not rows and columns read alone */
    int a = b - 1, row = window_dim(v, i, load, a, &window), column = window_dim(v, i, load, b, &window), n = s->nplanes;
    if (row < 0 || column != row + 1 || !window || v->s->axes[a].extent < 2 || kn_cpu_few_shifts(v, load, column, b)) return false;
    if (one_axis(v, a, b)) return false;
    const char *thin = kn_dtype_bytes(load->dtype) < 4 ? NULL : kn_cpu_thinned(s->a, v, i, load, plane); /* dots want narrow ones in whole vectors */
    if (!packed && rows_alone(v, i, load, row, a, b)) thin = kn_format(s->a, "decompose_padding %s %d %s", v->name, i, plane);
    if (kn_shaper_try(s, thin)) return true;
    const char *y = v->s->axes[a].name, *x = v->s->axes[b].name;
    return !packed && kn_shaper_try(s, kn_format(s->a, "flatten_window %s %d %s %s V%d %s rows%d", v->name, i, y, x, n, plane, n));
}

bool kn_shaper_flatten(kn_shaper *s, int stage)
{
    kn_site v;
    kn_shaper_site(s, stage, &v);
    const char *plane = kn_shaper_name(s, "plane");
    if (!plane || s->hw->gpu || !v.contraction || v.s->scatter || (kn_cpu_is_packed(&v) && !kn_cpu_joins_rows(&v))) return false;
    if (kn_cpu_is_passing(&v)) return false;
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(v.s->body, loads, KN_SITE_LOADS);
    for (int i = 0; i < n && i < KN_SITE_LOADS; i++)
        for (int b = v.s->nspatial - 1; b > 0; b--) {
            if (!flatten(s, &v, i, loads[i], b, plane)) continue;
            kn_shaper_keep(s, plane);
            return true;
        }
    return false;
}

/* A window that slides over two dimensions, side by side, of one factor of a sum of products (a convolution): its places become one axis. */
kn_shaped kn_shape_flat(kn_shaper *s, int stage) { return kn_shaper_flatten(s, stage) ? KN_SHAPED_ON : KN_SHAPED_NOT; }

/* The load's padding is worth filling in: not where rows could be held, and the filled in copy would have to go out to memory and come back. Beside
 * other tensors no row is held, but one that is the only padded one is picked from by its steps. */
static bool fills(const kn_shaper *s, const kn_site *v, int i, const kn_expr *load)
{
    const kn_hw_level *l2 = kn_hw_level_named(s->hw, "l2");
    double bytes = kn_dtype_bytes(load->dtype);
    int padded = 0;
    for (int l = 0; l < v->nloads; l++) padded += v->load[l].padded;
    for (int d = 0; d < load->nargs; d++) bytes *= (double)s->t->program->tensors[load->u.tensor].shape[d];
    bool held = v->n >= 0 && (v->nloads == 1 || (padded == 1 && v->load[i].coef[v->n] > 1));
    bool rows = held && v->load[i].linear && kn_shaper_slides(v, load);
    if (!l2 || (rows && bytes > 2 * (double)l2->capacity_bytes)) return false;
    return v->load[i].padded && !kn_site_lanes_agree(v, load);
}

/* Padding of a window that is no product's (pooling, depthwise) is filled in once, instead of asked for or copied at every place of the window. */
bool kn_shaper_pad(kn_shaper *s, int stage)
{
    kn_site v;
    kn_shaper_site(s, stage, &v);
    const kn_expr *loads[KN_SITE_LOADS];
    const char *plane = kn_shaper_name(s, "plane");
    int n = kn_loads(v.s->body, loads, KN_SITE_LOADS), ahead = kn_cpu_packed_pads(&v);
    if (!plane || kn_cpu_taps_apart(&v)) return false;
    if (ahead < 0) ahead = kn_cpu_taps_pads(&v);
    if (ahead < 0) ahead = kn_cpu_passing_pads(&v);
    bool no_window = s->hw->gpu || v.contraction || v.s->scatter || v.s->naxes == v.s->nspatial;
    for (int i = 0; i < n && i < KN_SITE_LOADS; i++) {
        if (ahead >= 0 ? i != ahead : no_window || !fills(s, &v, i, loads[i])) continue;
        if (!kn_shaper_try(s, kn_format(s->a, "decompose_padding %s %d %s", v.name, i, plane))) continue;
        kn_shaper_keep(s, plane);
        return true;
    }
    return false;
}

/* A window of one tensor's elements over several dimensions: its rows are combined first, for all places that share them. `held`: where registers
 * hold them, so that columns in padding need not be filled in. */
static bool separate_one(kn_shaper *s, int stage, bool held)
{
    kn_site v;
    kn_shaper_site(s, stage, &v);
    const kn_expr *loads[2];
    const char *rows = kn_shaper_name(s, "rows");
    if (!rows || s->hw->gpu || v.s->scatter || v.s->naxes < v.s->nspatial + 2 || kn_loads(v.s->body, loads, 2) != 1) return false;
    kn_tree *before = s->t;
    kiln_bytes text = s->text;
    const char *inside = held && loads[0]->padded ? " inside" : "";
    for (int a = v.s->nspatial; a < v.s->naxes; a++) {
        if (v.s->axes[a].extent < 2 || v.reduce_extent == v.s->axes[a].extent || !kn_cpu_separates(&v, loads[0], a, held)) continue;
        if (!kn_shaper_try(s, kn_format(s->a, "separate %s %s %s%s", v.name, v.s->axes[a].name, rows, inside))) continue;
        if ((held ? kn_cpu_window_held : kn_cpu_window_fits)(s->a, s->t, s->hw, stage + 1)) {
            kn_shaper_keep(s, rows);
            return true;
        }
        s->t = before;
        s->text = text;
    }
    return false;
}

kn_shaped kn_shape_held_rows(kn_shaper *s, int stage) { return separate_one(s, stage, true) ? KN_SHAPED_DONE : KN_SHAPED_NOT; }

/* All padding is filled in, a load a step, each in front of the window. */
kn_shaped kn_shape_rows(kn_shaper *s, int stage)
{
    while (kn_shaper_pad(s, stage)) stage++;
    separate_one(s, stage, false);
    return KN_SHAPED_DONE;
}
