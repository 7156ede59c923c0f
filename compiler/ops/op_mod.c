/* Mod: remainder of a division, with the sign of the divisor, or with fmod that of the dividend. By zero integers are 0. */
#include "ops/ops.h"
#include <string.h>

static const kn_attr_spec attrs[] = {{"fmod", 'i', "0", "1: sign of the dividend, as C's fmod"}, {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    int rank;
    int64_t shape[KILN_MAX_RANK];
    kiln_status s = kn_op_common_shape(c, 0, 2, shape, &rank);
    if (s != KILN_OK) return s;
    bool fmod = kn_attr_int(c, "fmod", 0) != 0, real = kn_dtype_class(c->in[0].dtype) == 'f';
    const char *all = kn_op_axes(c, "A", rank), *x = kn_op_read(c, 0, kn_op_broadcast(c, 0, "A", rank)),
               *y = kn_op_read(c, 1, kn_op_broadcast(c, 1, "A", rank));
    if (real) {
        kn_putf(&c->text, "q[%s] = %s / %s", all, x, y);
        kn_op_extents(c, "A", rank, shape);
        const char *whole = fmod ? "select(q[%s] < 0.0, ceil(q[%s]), floor(q[%s]))" : "floor(q[%s])";
        const char *far = fmod ? x : kn_format(c->arena, "select((%s < 0.0) != (%s < 0.0) && %s != 0.0, %s, %s)", x, y, x, y, x);
        kn_putf(&c->text, "%s; y[%s] = select(abs(%s) == inf && abs(%s) != inf, %s, %s - %s * ", kn_op_wide(c), all, y, x, far ? far : "",
                x, y);
        for (const char *hole; (hole = strstr(whole, "%s")); whole = hole + 2) {
            kn_putn(&c->text, whole, (size_t)(hole - whole));
            kn_put(&c->text, all);
        }
        kn_putf(&c->text, "%s)", whole);
        kn_op_extents(c, "A", rank, shape);
        kn_op_end(c);
        return KILN_OK;
    }
    if (kn_dtype_class(c->in[0].dtype) == 'u') {
        kn_putf(&c->text, "y[%s] = %s %% max(%s, 1)", all, x, y);
        kn_op_extents(c, "A", rank, shape);
        return KILN_OK;
    }
    kn_putf(&c->text, "%s[%s] = select(%s < 0, -(abs(%s) %% max(abs(%s), 1)), abs(%s) %% max(abs(%s), 1))", fmod ? "y" : "r", all, x, x, y,
            x, y);
    kn_op_extents(c, "A", rank, shape);
    if (fmod) return KILN_OK;
    kn_putf(&c->text, "; y[%s] = select(r[%s] != 0 && (r[%s] < 0) != (%s < 0), r[%s] + %s, r[%s])", all, all, all, y, all, y, all);
    kn_op_extents(c, "A", rank, shape);
    return KILN_OK;
}

const kn_op_spec kn_op_mod = {.name = "Mod",
                              .min_inputs = 2,
                              .max_inputs = 2,
                              .input_names = {"A", "B"},
                              .dtypes = "fiu",
                              .about = "remainder of a division, with NumPy broadcasting",
                              .attrs = attrs,
                              .lower = lower};
