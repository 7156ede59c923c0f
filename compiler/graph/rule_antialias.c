/* Resize with antialias: where an axis shrinks, the kernel of the interpolation is as much wider (ONNX, Resize; as PIL does it). Along each axis that
 * is a product with a matrix of weights, known here; an input that is infinite or no number therefore reaches its whole row. */
#include "graph/settle.h"
#include <math.h>
#include <string.h>

typedef struct kernel {
    bool cubic, inside; /* inside: only elements of the input count */
    double a;           /* of the cubic kernel (Keys) */
    const char *where;  /* coordinate_transformation_mode */
} kernel;

static double at(const kernel *k, double x)
{
    x = fabs(x);
    if (!k->cubic) return x < 1 ? 1 - x : 0;
    if (x <= 1) return ((k->a + 2) * x - (k->a + 3)) * x * x + 1;
    return x < 2 ? ((k->a * x - 5 * k->a) * x + 8 * k->a) * x - 4 * k->a : 0;
}

/* Where output element i of n lies among m inputs. */
static double place(const kernel *k, int64_t i, int64_t m, int64_t n, double scale)
{
    if (!strcmp(k->where, "asymmetric")) return (double)i / scale;
    if (!strcmp(k->where, "align_corners")) return n > 1 ? (double)i * (double)(m - 1) / (double)(n - 1) : 0;
    if (!strcmp(k->where, "pytorch_half_pixel") && n == 1) return 0;
    return ((double)i + 0.5) / scale - 0.5;
}

/* One row: the weights of the elements around, from the left neighbour of x on; those beyond the ends count for the ends, or not at all. */
static void row(const kernel *k, double x, double scale, int64_t m, double *to)
{
    double narrow = scale < 1 ? scale : 1, left = ceil(x) - 1, ratio = x - left, sum = 0, reach = k->cubic ? 2 : 1;
    int64_t from = (int64_t)floor(-reach / narrow) + 1, end = 2 - from;
    for (int64_t i = 0; i < m; i++) to[i] = 0;
    for (int64_t i = from; i < end; i++) {
        double w = at(k, narrow * ((double)i - ratio));
        int64_t j = (int64_t)left + i;
        if (k->inside && (j < 0 || j >= m)) continue;
        to[j < 0 ? 0 : j >= m ? m - 1 : j] += w;
        sum += w;
    }
    for (int64_t i = 0; i < m && sum != 0; i++) to[i] /= sum;
}

/* [n, m], or turned. */
static int matrix(kn_raw *r, const kernel *k, enum kn_dtype t, int64_t m, int64_t n, double scale, bool turned)
{
    int64_t shape[2] = {turned ? m : n, turned ? n : m}, size = kn_dtype_bytes(t);
    uint8_t *bytes = kn_alloc(r->s->a, (size_t)(m * n * size));
    double *w = kn_array(r->s->a, double, m);
    if (!bytes || !w) return kn_raw_bad(r, KILN_MEMORY, "out of memory"), -1;
    for (int64_t i = 0; i < n; i++) {
        row(k, place(k, i, m, n, scale), scale, m, w);
        for (int64_t j = 0; j < m; j++) kn_element_store(t, bytes + (turned ? j * n + i : i * m + j) * size, w[j]);
    }
    return kn_emit_constant(r->s, t, 2, shape, bytes, (size_t)(m * n * size), false);
}

/* y along the axis, which changes places with the last one where it is none of the last two. */
static int along(kn_raw *r, const kernel *k, int y, int axis, int64_t n, double scale)
{
    kn_value x = r->s->g->values[y];
    int perm[KILN_MAX_RANK], last = x.rank - 1;
    for (int i = 0; i < x.rank; i++) perm[i] = i == axis ? last : i == last ? axis : i;
    bool second = axis == x.rank - 2;
    int w = matrix(r, k, x.dtype, x.shape[axis], n, scale, !second);
    if (w < 0) return -1;
    if (second) return kn_emit2(r->s, "MatMul", w, y);
    if (axis == last) return kn_emit2(r->s, "MatMul", y, w);
    return kn_emit_transpose(r->s, kn_emit2(r->s, "MatMul", kn_emit_transpose(r->s, y, perm), w), perm);
}

kiln_status kn_resize_smoothly(kn_raw *r, const int64_t *sizes, const double *scales)
{
    static const char *const known[] = {"half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"};
    kernel k = {.cubic = !strcmp(kn_raw_str(r, "mode", "nearest"), "cubic"), .inside = kn_raw_int(r, "exclude_outside", 0),
                .a = kn_raw_float(r, "cubic_coeff_a", -0.75), .where = kn_raw_str(r, "coordinate_transformation_mode", "half_pixel")};
    const kn_value *x = kn_raw_in(r, 0);
    bool found = false;
    int y = r->in[0], rank = x->rank;
    int64_t shape[KILN_MAX_RANK];
    for (int i = 0; i < 4; i++) found |= !strcmp(k.where, known[i]);
    if (!found) return kn_raw_bad(r, KILN_UNSUPPORTED, "antialias with coordinate_transformation_mode \"%.40s\" is not supported", k.where);
    if (kn_dtype_class(x->dtype) != 'f' || rank < 2)
        return kn_raw_bad(r, KILN_UNSUPPORTED, "antialias is supported for floats of two dimensions and more");
    memcpy(shape, x->shape, sizeof shape);
    for (int i = rank - 1; i >= 0 && y >= 0; i--) {
        if (sizes[i] == shape[i] && fabs(scales[i] - 1) < 1e-9) continue;
        if (shape[i] > KILN_MAX_GRAPH_FOLD / sizes[i]) return kn_raw_bad(r, KILN_LIMIT, "antialias of axis %d takes too many weights", i);
        y = along(r, &k, y, i, sizes[i], scales[i]);
    }
    return kn_raw_out(r, 0, y);
}
