/* GridSample: images read at computed points, the nearest pixel or four of them weighed; outside there is nothing, or the border. A pixel's
 * channels are read together where they are many: of the image with the channels last, t, to points with the channels last, z. */
#include "ops/ops.h"
#include <string.h>

static const kn_attr_spec attrs[] = {{"mode", 's', "linear", "linear (bilinear) or nearest"},
                                     {"padding_mode", 's', "zeros", "zeros or border"},
                                     {"align_corners", 'i', "0", "1: -1 and 1 are the centres of the outermost pixels, else their edges"},
                                     {NULL, 0, NULL, NULL}};

/* u, v: the point in pixels; half pixels of the grid's [-1, 1] or corners on corners. */
static void put_points(kn_op_call *c, bool border)
{
    static const char axis[2] = {'u', 'v'};
    bool corners = kn_attr_int(c, "align_corners", 0) != 0;
    for (int k = 0; k < 2; k++) {
        double n = (double)c->in[0].shape[3 - k];
        const char *g = kn_op_read_fraction(c, 1, k ? "N,P,Q,1" : "N,P,Q,0");
        kn_putf(&c->text, "%c[N,P,Q] = %s((%s + 1.0) * ", axis[k], border ? "max(0.0, min(" : "", g);
        kn_put_double(&c->text, corners ? (n - 1) / 2 : n / 2);
        kn_put(&c->text, corners ? ")" : " - 0.5)");
        if (border) {
            kn_put(&c->text, ", ");
            kn_put_double(&c->text, n - 1);
            kn_put(&c->text, "))");
        }
        kn_putf(&c->text, "%s; ", kn_op_wide(c));
    }
}

/* "floor(u[N,P,Q]) + 1.0": the column (k = 0) or row that lies d beside the point's. */
static const char *cell(kn_op_call *c, const char *at, int k, int d)
{
    const char *text = kn_format(c->arena, d ? "(%s(%c[N,P,Q]) + 1.0)" : "%s(%c[N,P,Q])", at, k ? 'v' : 'u');
    return text ? text : "";
}

/* What all channels of a point share, once for all of them: the columns c and rows r. */
static void put_cells(kn_op_call *c, const char *at, int cells)
{
    for (int k = 0; k < 2; k++)
        for (int d = 0; d < cells; d++)
            kn_putf(&c->text, "%c%d[N,P,Q] = cast(max(0.0, min(%s, %lld.0)), i32) : i32; ", k ? 'r' : 'c', d, cell(c, at, k, d),
                    (long long)c->in[0].shape[3 - k] - 1);
}

/* "u >= 0.0 && u <= 63.0": there is such a column or row. */
static const char *inside(kn_op_call *c, const char *at, int k, int d)
{
    const char *x = cell(c, at, k, d), *text = kn_format(c->arena, "%s >= 0.0 && %s <= %lld.0", x, x, (long long)c->in[0].shape[3 - k] - 1);
    return text ? text : "";
}

/* What the pixel dx and dy beside the point's weighs: nothing where there is none. */
static void put_weight(kn_op_call *c, int dx, int dy, bool border)
{
    kn_putf(&c->text, "w%d%d[N,P,Q] = ", dx, dy);
    if (!border) kn_putf(&c->text, "select(%s && %s, ", inside(c, "floor", 0, dx), inside(c, "floor", 1, dy));
    for (int k = 0; k < 2; k++) {
        char u = k ? 'v' : 'u';
        bool far = k ? dy : dx;
        kn_putf(&c->text, "%s(%s%c[N,P,Q] - floor(%c[N,P,Q])%s)", k ? " * " : "", far ? "" : "1.0 - (", u, u, far ? "" : ")");
    }
    kn_putf(&c->text, "%s%s; ", border ? "" : ", 0.0)", kn_op_wide(c));
}

static const char *pixel(kn_op_call *c, int dx, int dy)
{
    const char *text = kn_format(c->arena, *kn_op_wide(c) ? "cast(t[N,r%d[N,P,Q],c%d[N,P,Q],C],f32)" : "t[N,r%d[N,P,Q],c%d[N,P,Q],C]", dy, dx);
    return text ? text : "";
}

static kiln_status lower(kn_op_call *c)
{
    const kn_operand *x = &c->in[0], *g = &c->in[1];
    const char *mode = kn_attr_str(c, "mode", "linear"), *pad = kn_attr_str(c, "padding_mode", "zeros");
    bool nearest = !strcmp(mode, "nearest");
    if (x->rank != 4) return kn_op_bad_shape(c, 0, "rank %d; [N, C, H, W] is right", x->rank);
    if (g->rank != 4 || g->shape[0] != x->shape[0] || g->shape[3] != 2)
        return kn_op_bad_shape(c, 1, "[%lld, height, width, 2] is right", (long long)x->shape[0]);
    if (!nearest && strcmp(mode, "linear") && strcmp(mode, "bilinear"))
        return kn_op_bad_attr(c, "mode", "\"%.40s\" is neither linear nor nearest", mode);
    if (strcmp(pad, "zeros") && strcmp(pad, "border"))
        return kn_op_bad_attr(c, "padding_mode", "\"%.40s\" is neither zeros nor border", pad);
    bool border = *pad == 'b', real = kn_dtype_class(x->dtype) == 'f';
    if (!real && !nearest) return kn_op_bad_attr(c, "mode", "pixels that are no floats are weighed by nothing; nearest is right");
    const char *none = real ? "0.0" : kn_dtype_class(x->dtype) == 'b' ? "false" : "0";
    put_points(c, border);
    put_cells(c, nearest ? "round" : "floor", nearest ? 1 : 2);
    if (nearest && !border) kn_putf(&c->text, "m[N,P,Q] = %s && %s : bool; ", inside(c, "round", 0, 0), inside(c, "round", 1, 0));
    for (int k = 0; !nearest && k < 4; k++) put_weight(c, k & 1, k >> 1, border);
    kn_put(&c->text, "t[N,H,W,C] = x0[N,C,H,W]; z[N,P,Q,C] = ");
    if (nearest) kn_putf(&c->text, border ? "%s" : "select(m[N,P,Q], %s, %s)", pixel(c, 0, 0), none);
    for (int k = 0; !nearest && k < 4; k++) { /* what weighs nothing is not looked at, it may be infinite */
        const char *plus = k ? " + " : "", *x = pixel(c, k & 1, k >> 1);
        if (border) kn_putf(&c->text, "%sw%d%d[N,P,Q] * %s", plus, k & 1, k >> 1, x);
        else kn_putf(&c->text, "%sselect(w%d%d[N,P,Q] == 0.0, 0.0, w%d%d[N,P,Q] * %s)", plus, k & 1, k >> 1, k & 1, k >> 1, x);
    }
    kn_putf(&c->text, " where N in %lld, C in %lld, P in %lld, Q in %lld", (long long)x->shape[0], (long long)x->shape[1], (long long)g->shape[1],
            (long long)g->shape[2]);
    kn_putf(&c->text, "%s; y[N,C,P,Q] = z[N,P,Q,C]", kn_op_wide(c));
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_gridsample = {.name = "GridSample", .min_inputs = 2, .max_inputs = 2, .input_names = {"X", "grid"}, .dtypes = "fiub",
                                     .input_dtypes = {NULL, "f"}, .about = "images read at computed points", .attrs = attrs, .lower = lower};
