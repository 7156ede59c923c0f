/* Rules of operators that move elements: joining, cutting, padding, broadcasting, resizing, choosing. */
#include "graph/settle.h"
#include <math.h>
#include <string.h>

/* Empty parts are left out: they have no kernel, and shape plumbing is full of them. */
kiln_status kn_rule_concat(kn_raw *r)
{
    int *in = kn_array(r->s->a, int, r->nin + 1), n = 0, axis;
    const kn_value *first = kn_raw_in(r, 0);
    if (!in) return kn_fail(r->s->d, KILN_MEMORY, "out of memory");
    if (!first) return kn_raw_bad(r, KILN_REQUEST, "input 0 is mandatory");
    if (!kn_node_attr(r->n, "axis")) return kn_raw_bad(r, KILN_REQUEST, "\"axis\" is mandatory");
    kiln_status s = kn_raw_axis(r, kn_raw_int(r, "axis", 0), first->rank, &axis);
    if (s != KILN_OK) return s;
    for (int i = 0; i < r->nin; i++) {
        if (!kn_raw_in(r, i)) return kn_raw_bad(r, KILN_REQUEST, "input %d is left out", i);
        if (kn_raw_in(r, i)->rank != first->rank)
            return kn_raw_bad(r, KILN_SHAPE, "input %d has rank %d, the first %d", i, kn_raw_in(r, i)->rank, first->rank);
        if (kn_value_elems(kn_raw_in(r, i))) in[n++] = r->in[i];
    }
    if (!n) return kn_raw_out(r, 0, r->in[0]);
    return kn_raw_out(r, 0, kn_emit_concat(r->s, n, in, axis));
}

static int64_t cut(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

/* A range that holds no element is an empty constant; everything else goes to the row. */
kiln_status kn_rule_slice(kn_raw *r)
{
    static const char *const names[] = {"starts", "ends", "axes", "steps"};
    const kn_value *x = kn_raw_in(r, 0);
    const int64_t *list[4];
    int n[4], axis;
    kiln_status s = KILN_OK;
    if (!x) return kn_raw_bad(r, KILN_REQUEST, "input 0 is mandatory");
    for (int k = 0; s == KILN_OK && k < 4; k++) s = kn_raw_ints(r, k + 1, names[k], &list[k], &n[k]);
    if (s != KILN_OK) return s;
    if (n[0] < 0 || n[1] != n[0] || (n[2] >= 0 && n[2] != n[0]) || (n[3] >= 0 && n[3] != n[0]))
        return kn_raw_bad(r, KILN_REQUEST, "starts, ends, axes and steps must have one length");
    int64_t shape[KILN_MAX_RANK];
    bool empty = kn_value_elems(x) == 0, all = true;
    memcpy(shape, x->shape, sizeof shape);
    for (int k = 0; k < n[0]; k++) {
        int64_t step = n[3] < 0 ? 1 : list[3][k];
        if ((s = kn_raw_axis(r, n[2] < 0 ? k : list[2][k], x->rank, &axis)) != KILN_OK) return s;
        int64_t extent = x->shape[axis], from = list[0][k], to = list[1][k];
        if (!step) return kn_raw_bad(r, KILN_REQUEST, "a step of 0");
        from = cut(from < 0 ? from + extent : from, step < 0 ? -1 : 0, step < 0 ? extent - 1 : extent);
        to = cut(to < 0 ? to + extent : to, step < 0 ? -1 : 0, step < 0 ? extent - 1 : extent);
        if (step > 0 ? from >= to : from <= to) shape[axis] = 0, empty = true;
        all &= from == 0 && to == extent && step == 1;
    }
    if (empty) return kn_raw_out(r, 0, kn_emit_fill(r->s, x->dtype, x->rank, shape, 0));
    if (all) return kn_raw_out(r, 0, r->in[0]);
    kn_gattr attrs[4];
    int nattrs = 0;
    for (int k = 0; k < 4; k++)
        if (n[k] >= 0) attrs[nattrs++] = kn_gattr_ints(r->s->a, names[k], n[k], list[k]);
    return kn_raw_out(r, 0, kn_emit(r->s, "Slice", 1, r->in, nattrs, attrs));
}

kiln_status kn_rule_split(kn_raw *r)
{
    const kn_value *x = kn_raw_in(r, 0);
    const int64_t *parts;
    int n, axis, outs = r->n->noutputs;
    if (!x) return kn_raw_bad(r, KILN_REQUEST, "input 0 is mandatory");
    kiln_status s = kn_raw_axis(r, kn_raw_int(r, "axis", 0), x->rank, &axis);
    if (s == KILN_OK) s = kn_raw_ints(r, 1, "split", &parts, &n);
    if (s != KILN_OK) return s;
    int64_t extent = x->shape[axis], count = kn_raw_int(r, "num_outputs", outs), each = count > 0 ? kn_ceil_div(extent, count) : 0, at = 0;
    if (n >= 0 ? n != outs : count != outs) return kn_raw_bad(r, KILN_REQUEST, "%d parts for %d outputs", n >= 0 ? n : (int)count, outs);
    for (int k = 0; k < outs; k++) {
        int64_t part = n >= 0 ? parts[k] : k == outs - 1 ? extent - at : each;
        if (part < 0 || part > extent - at)
            return kn_raw_bad(r, KILN_SHAPE, "part %d has %lld of %lld elements left", k, (long long)part, (long long)(extent - at));
        int64_t shape[KILN_MAX_RANK];
        memcpy(shape, r->s->g->values[r->in[0]].shape, sizeof shape);
        shape[axis] = part;
        enum kn_dtype t = r->s->g->values[r->in[0]].dtype;
        int v =
            part ? kn_emit_slice(r->s, r->in[0], axis, at, at + part, 1) : kn_emit_fill(r->s, t, r->s->g->values[r->in[0]].rank, shape, 0);
        if ((s = kn_raw_out(r, k, v)) != KILN_OK) return s;
        at += part;
    }
    return at == extent ? KILN_OK : kn_raw_bad(r, KILN_SHAPE, "the parts have %lld of %lld elements", (long long)at, (long long)extent);
}

kiln_status kn_rule_pad(kn_raw *r)
{
    const int64_t *pads, *axes;
    const double *value;
    int n, naxes, nvalue, nattrs = 0;
    kn_gattr attrs[4];
    kiln_status s = kn_raw_ints(r, 1, "pads", &pads, &n);
    if (s == KILN_OK) s = kn_raw_floats(r, 2, "value", &value, &nvalue);
    if (s == KILN_OK) s = kn_raw_ints(r, 3, NULL, &axes, &naxes);
    if (s != KILN_OK) return s;
    if (n < 0 || !kn_raw_in(r, 0)) return kn_raw_bad(r, KILN_REQUEST, "no pads are given");
    bool any = false;
    for (int i = 0; i < n; i++) any |= pads[i] != 0;
    if (!any) return kn_raw_out(r, 0, r->in[0]);
    attrs[nattrs++] = kn_gattr_ints(r->s->a, "pads", n, pads);
    attrs[nattrs++] = kn_gattr_str("mode", kn_raw_str(r, "mode", "constant"));
    if (nvalue == 1) attrs[nattrs++] = kn_gattr_float("value", value[0]);
    if (naxes >= 0) attrs[nattrs++] = kn_gattr_ints(r->s->a, "axes", naxes, axes);
    return kn_raw_out(r, 0, kn_emit(r->s, "Pad", 1, r->in, nattrs, attrs));
}

kiln_status kn_rule_expand(kn_raw *r)
{
    const kn_value *x = kn_raw_in(r, 0);
    const int64_t *to;
    int n;
    bool ones = true;
    kiln_status s = kn_raw_ints(r, 1, "shape", &to, &n);
    if (s != KILN_OK) return s;
    if (!x || n < 0) return kn_raw_bad(r, KILN_REQUEST, "an input and a shape are right");
    for (int i = 0; i < n; i++) {
        int at = i - (n - x->rank);
        ones &= to[i] == 1 || (at >= 0 && at < x->rank && to[i] == x->shape[at]);
    }
    if (ones && n <= x->rank) return kn_raw_out(r, 0, r->in[0]);
    kn_gattr shape = kn_gattr_ints(r->s->a, "shape", n, to);
    return kn_raw_out(r, 0, kn_emit(r->s, "Expand", 1, r->in, 1, &shape));
}

/* ---- Resize and Upsample ---- */

/* Extents of the output from sizes or scales (of `axes`, or of all). */
static kiln_status resize_extents(kn_raw *r, const kn_value *x, int64_t *sizes, double *scales)
{
    const int64_t *list, *axes;
    const double *factors;
    int n, m, naxes, at;
    bool up = !strcmp(r->n->op, "Upsample") || r->opset < 11;
    kiln_status s = up ? KILN_OK : kn_raw_ints(r, 3, "sizes", &list, &n);
    if (s == KILN_OK) s = kn_raw_floats(r, up ? 1 : 2, "scales", &factors, &m);
    if (s == KILN_OK) s = kn_raw_ints(r, -1, "axes", &axes, &naxes);
    if (s != KILN_OK) return s;
    n = up || n == 0 ? -1 : n;
    int count = n >= 0 ? n : m;
    if (count != (naxes < 0 ? x->rank : naxes))
        return kn_raw_bad(r, KILN_REQUEST, "%d scales or sizes for %d axes", count, naxes < 0 ? x->rank : naxes);
    for (int i = 0; i < x->rank; i++) sizes[i] = x->shape[i], scales[i] = 1;
    for (int k = 0; k < count; k++) {
        if ((s = kn_raw_axis(r, naxes < 0 ? k : axes[k], x->rank, &at)) != KILN_OK) return s;
        if (n < 0 && !(factors[k] > 0 && factors[k] < 1e6)) return kn_raw_bad(r, KILN_REQUEST, "scale %d is not from 0 to 10^6", k);
        scales[at] = n < 0 ? factors[k] : (double)list[k] / (double)x->shape[at];
        sizes[at] = n < 0 ? (int64_t)floor((double)x->shape[at] * factors[k] + 1e-9) : list[k];
        if (sizes[at] < 1 || sizes[at] > KILN_MAX_EXTENT)
            return kn_raw_bad(r, KILN_SHAPE, "%lld elements along axis %d", (long long)sizes[at], at);
    }
    const char *policy = kn_raw_str(r, "keep_aspect_ratio_policy", "stretch");
    if (n < 0 || !strcmp(policy, "stretch")) return KILN_OK;
    double one = -1; /* one scale for all the axes named: the least that is not larger, or the greatest that is not smaller */
    for (int k = 0; k < count; k++) {
        if ((s = kn_raw_axis(r, naxes < 0 ? k : axes[k], x->rank, &at)) != KILN_OK) return s;
        one = one < 0 || (!strcmp(policy, "not_larger") ? scales[at] < one : scales[at] > one) ? scales[at] : one;
    }
    for (int k = 0; k < count; k++) {
        if ((s = kn_raw_axis(r, naxes < 0 ? k : axes[k], x->rank, &at)) != KILN_OK) return s;
        scales[at] = one;
        sizes[at] = (int64_t)floor(one * (double)x->shape[at] + 0.5);
    }
    return KILN_OK;
}

kiln_status kn_rule_resize(kn_raw *r)
{
    const kn_value *x = kn_raw_in(r, 0);
    int64_t sizes[KILN_MAX_RANK];
    double scales[KILN_MAX_RANK];
    bool same = true, up = !strcmp(r->n->op, "Upsample") || r->opset < 11;
    if (!x) return kn_raw_bad(r, KILN_REQUEST, "input 0 is mandatory");
    kiln_status s = resize_extents(r, x, sizes, scales);
    if (s != KILN_OK) return s;
    for (int i = 0; i < x->rank; i++) same &= sizes[i] == x->shape[i] && fabs(scales[i] - 1) < 1e-9;
    if (same) return kn_raw_out(r, 0, r->in[0]);
    const char *mode = kn_raw_str(r, "mode", "nearest");
    if (!strcmp(mode, "bilinear")) mode = "linear"; /* Upsample of opset 7 */
    if (kn_raw_int(r, "antialias", 0) && strcmp(mode, "nearest")) return kn_resize_smoothly(r, sizes, scales);
    kn_gattr attrs[8] = {
        kn_gattr_ints(r->s->a, "sizes", x->rank, sizes), kn_gattr_str("mode", mode),
        kn_gattr_str("coordinate_transformation_mode", kn_raw_str(r, "coordinate_transformation_mode", up ? "asymmetric" : "half_pixel")),
        kn_gattr_str("nearest_mode", kn_raw_str(r, "nearest_mode", up ? "floor" : "round_prefer_floor")),
        kn_gattr_floats(r->s->a, "scales", x->rank, scales)};
    int nattrs = 5;
    static const char *const passed[] = {"cubic_coeff_a", "exclude_outside"};
    for (int i = 0; i < 2; i++)
        if (kn_node_attr(r->n, passed[i])) attrs[nattrs++] = *kn_node_attr(r->n, passed[i]);
    return kn_raw_out(r, 0, kn_emit(r->s, "Resize", 1, r->in, nattrs, attrs));
}

kiln_status kn_rule_onehot(kn_raw *r)
{
    if (r->nin != 3 || !kn_raw_known(r, 1) || kn_value_elems(kn_raw_in(r, 1)) != 1)
        return kn_raw_bad(r, KILN_UNSUPPORTED, "depth (input 1) must be a constant");
    kn_gattr attrs[] = {kn_gattr_int("depth", kn_value_int(kn_raw_in(r, 1), 0)), kn_gattr_int("axis", kn_raw_int(r, "axis", -1))};
    int in[2] = {r->in[0], r->in[2]};
    return kn_raw_out(r, 0, kn_emit(r->s, "OneHot", 2, in, 2, attrs));
}

/* Values and places; k is an input from opset 10 on. */
kiln_status kn_rule_topk(kn_raw *r)
{
    const int64_t *list;
    int n;
    if (!kn_raw_in(r, 0)) return kn_raw_bad(r, KILN_REQUEST, "an input is right");
    kiln_status s = kn_raw_ints(r, 1, "k", &list, &n);
    if (s != KILN_OK) return s;
    if (n != 1) return kn_raw_bad(r, KILN_REQUEST, "\"k\" must be one number");
    kn_gattr attrs[3] = {kn_gattr_int("k", list[0]), kn_gattr_int("axis", kn_raw_int(r, "axis", -1)),
                         kn_gattr_int("largest", kn_raw_int(r, "largest", 1))};
    int places = kn_emit(r->s, "TopKIndices", 1, r->in, 3, attrs), in[2] = {r->in[0], places};
    if (places < 0) return r->s->d->status;
    s = kn_raw_wants(r, 0) ? kn_raw_out(r, 0, kn_emit(r->s, "GatherElements", 2, in, 1, &attrs[1])) : KILN_OK;
    return s == KILN_OK && kn_raw_wants(r, 1) ? kn_raw_out(r, 1, places) : s;
}

/* The older name of ScatterElements. */
kiln_status kn_rule_scatter(kn_raw *r) { return kn_raw_plain(r, "ScatterElements", 0, NULL); }
