/* GridSample: images read at computed points, the nearest pixel or four of them weighed; outside there is nothing, or the border. */
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

/* What all channels of a point share: of column u and row v, or those beside them, the pixel's index, whether there is one, and what it weighs. */
static void put_cells(kn_op_call *c, const char *at, int cells)
{
    static const struct { char point, index, inside, weight; } axis[2] = {{'u', 'c', 'h', 'a'}, {'v', 'r', 'l', 'b'}};
    for (int k = 0; k < 2; k++) {
        long long last = c->in[0].shape[3 - k] - 1;
        char u = axis[k].point;
        for (int d = 0; d < cells; d++) {
            const char *cell = kn_format(c->arena, "(%s(%c[N,P,Q]) + %d.0)", at, u, d);
            if (!cell) return;
            kn_putf(&c->text, "%c%d[N,P,Q] = cast(max(0.0, min(%s, %lld.0)), i64) : i64; ", axis[k].index, d, cell, last);
            kn_putf(&c->text, "%c%d[N,P,Q] = %s >= 0.0 && %s <= %lld.0 : bool; ", axis[k].inside, d, cell, cell, last);
            if (cells < 2) continue;
            kn_putf(&c->text, "%c%d[N,P,Q] = %s%c[N,P,Q] - floor(%c[N,P,Q])%s%s; ", axis[k].weight, d, d ? "" : "1.0 - (", u, u, d ? "" : ")",
                    kn_op_wide(c));
        }
    }
}

/* The pixel dx and dy beside the point's; nothing outside. */
static void put_pixel(kn_op_call *c, int dx, int dy)
{
    const char *index = kn_format(c->arena, "N,C,r%d[N,P,Q],c%d[N,P,Q]", dy, dx);
    kn_putf(&c->text, "select(h%d[N,P,Q] && l%d[N,P,Q], %s, 0.0)", dx, dy, kn_op_read(c, 0, index ? index : ""));
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
    put_points(c, *pad == 'b');
    put_cells(c, nearest ? "round" : "floor", nearest ? 1 : 2);
    kn_put(&c->text, "y[N,C,P,Q] = ");
    if (nearest) put_pixel(c, 0, 0);
    for (int k = 0; !nearest && k < 4; k++) {
        kn_putf(&c->text, "%sa%d[N,P,Q] * b%d[N,P,Q] * ", k ? " + " : "", k & 1, k >> 1);
        put_pixel(c, k & 1, k >> 1);
    }
    kn_putf(&c->text, " where N in %lld, C in %lld, P in %lld, Q in %lld", (long long)x->shape[0], (long long)x->shape[1], (long long)g->shape[1],
            (long long)g->shape[2]);
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_gridsample = {.name = "GridSample", .min_inputs = 2, .max_inputs = 2, .input_names = {"X", "grid"}, .dtypes = "f",
                                     .input_dtypes = {NULL, "f"}, .about = "images read at computed points", .attrs = attrs, .lower = lower};
