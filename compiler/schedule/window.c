/* Loads of convolutions as the copy engine's windows (im2col tensor maps, cuTensorMapEncodeIm2col in CUDA's driver API): one axis counts pixels of
 * the output, row by row and image by image, another the window's places and channels, as `fuse` leaves them. */
#include "schedule/sched.h"
#include <string.h>

/* coef * ((axis // div) % mod); mod 0: none. */
typedef struct digit { int axis; int64_t div, mod, coef; } digit;
typedef struct digits { digit d[4]; int n; int64_t offset; } digits;

static bool is_const(const kn_expr *e) { return e->op == KN_OP_CONST_I && e->u.i > 0; }

static bool one_digit(const kn_expr *e, digit *d)
{
    if (e->op == KN_OP_AXIS) {
        *d = (digit){e->u.axis, 1, 0, 1};
        return true;
    }
    if (e->nargs != 2 || !is_const(e->args[1]) || !one_digit(e->args[0], d)) return false;
    int64_t c = e->args[1]->u.i;
    if (e->op == KN_OP_FLOORDIV) {
        if (d->mod && d->mod % c) return false;
        d->mod /= c;
        return kn_mul_fits(d->div, c, &d->div);
    }
    if (e->op != KN_OP_MOD || (d->mod && d->mod % c)) return false;
    d->mod = c;
    return true;
}

static bool sum_of(const kn_expr *e, int64_t scale, digits *x)
{
    if (e->op == KN_OP_CONST_I) {
        x->offset += e->u.i * scale;
        return e->u.i > -KILN_MAX_EXTENT && e->u.i < KILN_MAX_EXTENT;
    }
    if (e->op == KN_OP_ADD || e->op == KN_OP_SUB)
        return sum_of(e->args[0], scale, x) && sum_of(e->args[1], e->op == KN_OP_SUB ? -scale : scale, x);
    if (e->op == KN_OP_MUL) {
        int k = is_const(e->args[0]) ? 0 : is_const(e->args[1]) ? 1 : -1;
        return k >= 0 && e->args[k]->u.i < KILN_MAX_EXTENT && scale > -KILN_MAX_EXTENT && scale < KILN_MAX_EXTENT &&
               sum_of(e->args[1 - k], scale * e->args[k]->u.i, x);
    }
    if (x->n == 4 || !one_digit(e, &x->d[x->n])) return false;
    x->d[x->n++].coef = scale;
    return true;
}

/* The digit of an axis; NULL: none, or several. */
static const digit *of_axis(const digits *x, int axis, bool *bad)
{
    const digit *found = NULL;
    for (int i = 0; i < x->n; i++) {
        if (x->d[i].axis != axis) continue;
        *bad |= found != NULL;
        found = &x->d[i];
    }
    return found;
}

/* Extent of the digit above `div` of an axis, and whether it is what `d` says; no digit: an extent of 1. */
static bool follows(const kn_stmt *s, const digit *d, int64_t div, int64_t *extent)
{
    *extent = 1;
    if (!d) return true;
    *extent = d->mod ? d->mod : s->axes[d->axis].extent / d->div;
    return d->div == div && d->coef > 0 && (d->mod || s->axes[d->axis].extent % d->div == 0);
}

/* Rows and columns, the columns first. */
static bool plane(const kn_stmt *s, const kn_tensor *x, const kn_expr *load, kn_window *w)
{
    int64_t pixel = 1, tap = w->channels;
    for (int d = 0; d < 2; d++) {
        digits at = {.n = 0};
        bool bad = !sum_of(load->args[2 - d], 1, &at);
        const digit *p = of_axis(&at, w->axis[0], &bad), *r = of_axis(&at, w->axis[1], &bad);
        if (bad || at.n != (p != NULL) + (r != NULL) || !follows(s, p, pixel, &w->pixels[d]) || !follows(s, r, tap, &w->taps[d])) return false;
        w->step[d] = p ? p->coef : 1;
        w->apart[d] = r ? r->coef : 1;
        w->lower[d] = at.offset;
        w->upper[d] = at.offset + (w->pixels[d] - 1) * w->step[d] - (x->shape[2 - d] - 1);
        if (w->lower[d] < -128 || w->lower[d] > 127 || w->upper[d] < -128 || w->upper[d] > 127 || w->step[d] > 8) return false;
        if ((w->taps[d] - 1) * w->apart[d] > 255) return false;
        pixel *= w->pixels[d];
        tap *= w->taps[d];
    }
    return s->axes[w->axis[1]].extent == tap && s->axes[w->axis[0]].extent == pixel * x->shape[0];
}

kn_window *kn_bulk_window(kiln_arena *a, const kn_tree *t, const kn_stage *g, int number)
{
    const kn_expr *load = kn_stage_load(t, g, number);
    const kn_stmt *s = kn_stage_stmt(t, g);
    kn_window *w = kn_new(a, kn_window);
    if (!w || !load || (load->padded && load->pad_value != 0)) return NULL;
    const kn_tensor *x = &t->program->tensors[load->u.tensor];
    digits c = {.n = 0}, n = {.n = 0};
    if (x->rank != 4 || !sum_of(load->args[3], 1, &c) || c.n != 1 || c.offset || c.d[0].div != 1 || c.d[0].coef != 1) return NULL;
    w->channels = x->shape[3];
    w->axis[1] = c.d[0].axis;
    if ((c.d[0].mod ? c.d[0].mod : s->axes[w->axis[1]].extent) != w->channels || !s->axes[w->axis[1]].reduce) return NULL;
    w->axis[0] = -1;
    for (int i = 0; i < s->nspatial; i++) /* of the axes of the output, the only one that the load has */
        if (kn_axes_in(load) >> i & 1) {
            if (w->axis[0] >= 0) return NULL;
            w->axis[0] = i;
        }
    if (w->axis[0] < 0 || !plane(s, x, load, w)) return NULL;
    int64_t images;
    if (!sum_of(load->args[0], 1, &n) || n.offset || n.n > 1 || (n.n && (n.d[0].axis != w->axis[0] || n.d[0].coef != 1))) return NULL;
    return follows(s, n.n ? &n.d[0] : NULL, w->pixels[0] * w->pixels[1], &images) && images == x->shape[0] ? w : NULL;
}
