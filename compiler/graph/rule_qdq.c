/* Products of what DequantizeLinear gives: where the target has instructions for it, the bytes themselves are multiplied, and the scales come
 * behind. sx (x - p) times sw (w - q), summed, is sx sw times the sum of products of bytes, which is exact: the same operators as a model in
 * QLinearConv and QLinearMatMul has. */
#include "graph/settle.h"

enum { FEW = 32 }; /* products of a sum: fewer gain nothing (a filter of one channel, or 3x3 of three) */

bool kn_remember_bytes(kn_raw *r, int y, int64_t axis)
{
    kn_dequantised *q = kn_new(r->s->a, kn_dequantised);
    if (!q) return false;
    *q = (kn_dequantised){y, r->in[0], r->in[1], r->nin > 2 ? r->in[2] : -1, axis, r->s->dequantised};
    r->s->dequantised = q;
    return true;
}

static const kn_dequantised *bytes_of(const kn_raw *r, int i)
{
    const kn_dequantised *q = i < r->nin && r->in[i] >= 0 ? r->s->dequantised : NULL;
    while (q && q->y != r->in[i]) q = q->next;
    return q;
}

static const kn_value *value(const kn_raw *r, int v) { return &r->s->g->values[v]; }

static bool is_byte(const kn_value *v) { return v->dtype == KN_U8 || v->dtype == KN_I8; }

static bool known(const kn_value *v) { return v->data && v->data->bytes; }

/* Bytes around one middle: weights that dot-product instructions take once it is subtracted. */
static bool centred(const kn_raw *r, const kn_dequantised *w)
{
    int64_t point = 0;
    return (w->point < 0 || kn_value_alike(value(r, w->point), &point)) && (!point || (value(r, w->x)->dtype == KN_U8 && point == 128));
}

/* One scale and one known zero point for what flows; for the weights known bytes around one middle, with a scale for each result at most. */
static bool fits(const kn_raw *r, const kn_dequantised *x, const kn_dequantised *w, int rank, int results)
{
    if (!x || !w || !r->s->o || !r->s->o->bytes) return false;
    const kn_value *vx = value(r, x->x), *vw = value(r, w->x), *sx = value(r, x->scale), *sw = value(r, w->scale);
    if (!is_byte(vx) || !is_byte(vw) || vx->data || !known(vw) || vw->rank != rank || sx->dtype != KN_F32 || sw->dtype != KN_F32) return false;
    if (kn_value_elems(sx) != 1 || (x->point >= 0 && (kn_value_elems(value(r, x->point)) != 1 || !known(value(r, x->point))))) return false;
    if (kn_value_elems(vw) < FEW * vw->shape[results]) return false;
    int64_t axis = w->axis < 0 ? w->axis + rank : w->axis;
    if (kn_value_elems(sw) != 1 && (axis != results || kn_value_elems(sw) != vw->shape[results])) return false;
    return centred(r, w);
}

static int scaled(kn_raw *r, int product, const kn_dequantised *x, const kn_dequantised *w, bool filters)
{
    kn_settle *s = r->s;
    int64_t n = kn_value_elems(value(r, w->scale)), channels[4] = {1, n, 1, 1};
    int each = filters && n > 1 ? kn_emit_reshape(s, w->scale, 4, channels) : w->scale;
    return product < 0 ? -1 : kn_emit2(s, "Mul", kn_emit_cast(s, product, KN_F32), kn_emit2(s, "Mul", x->scale, each));
}

/* A bias that Conv would refuse is left to it. */
static bool bias_fits(const kn_raw *r, const kn_dequantised *w)
{
    const kn_value *b = kn_raw_in(r, 2);
    return !b || (b->dtype == KN_F32 && b->rank == 1 && b->shape[0] == value(r, w->x)->shape[0]);
}

kiln_status kn_rule_conv(kn_raw *r)
{
    const kn_dequantised *x = bytes_of(r, 0), *w = bytes_of(r, 1);
    if (!fits(r, x, w, 4, 0) || !bias_fits(r, w)) return kn_raw_plain(r, r->n->op, 0, NULL);
    int y = kn_emit_integer_product(r->s, "ConvInteger", (const int[4]){x->x, w->x, x->point, w->point}, r->n->nattrs, r->n->attrs);
    y = scaled(r, y, x, w, true);
    if (y < 0 || !kn_raw_in(r, 2)) return kn_raw_out(r, 0, y);
    int64_t channels[4] = {1, kn_value_elems(kn_raw_in(r, 2)), 1, 1};
    return kn_raw_out(r, 0, kn_emit2(r->s, "Add", y, kn_emit_reshape(r->s, r->in[2], 4, channels)));
}

kiln_status kn_rule_matmul(kn_raw *r)
{
    const kn_dequantised *x = bytes_of(r, 0), *w = bytes_of(r, 1);
    if (!fits(r, x, w, 2, 1)) return kn_raw_plain(r, r->n->op, 0, NULL);
    int y = kn_emit_integer_product(r->s, "MatMulInteger", (const int[4]){x->x, w->x, x->point, w->point}, 0, NULL);
    return kn_raw_out(r, 0, scaled(r, y, x, w, false));
}
