/* Rules of operators that move no byte: each becomes a reshape to its result's shape, or nothing. */
#include "graph/settle.h"

kiln_status kn_rule_reshape(kn_raw *r)
{
    const kn_value *x = kn_raw_in(r, 0);
    const int64_t *to;
    int64_t shape[KILN_MAX_RANK], all, some = 1;
    int n, rest = -1;
    if (!x) return kn_raw_bad(r, KILN_REQUEST, "input 0 is mandatory");
    kiln_status s = kn_raw_ints(r, 1, "shape", &to, &n);
    if (s != KILN_OK) return s;
    if (n < 0) return kn_raw_bad(r, KILN_REQUEST, "no shape is given");
    if (n > KILN_MAX_RANK) return kn_raw_bad(r, KILN_LIMIT, "%d dimensions; at most %d are supported", n, KILN_MAX_RANK);
    all = kn_value_elems(x);
    bool literal = kn_raw_int(r, "allowzero", 0) != 0;
    for (int i = 0; i < n; i++) {
        shape[i] = to[i] == 0 && !literal && i < x->rank ? x->shape[i] : to[i];
        if (shape[i] == -1 && rest < 0)
            rest = i;
        else if (shape[i] < 0 || !kn_mul_fits(some, shape[i], &some))
            return kn_raw_bad(r, KILN_SHAPE, "extent %d is %lld", i, (long long)shape[i]);
    }
    if (rest >= 0 && some > 0) shape[rest] = all / some;
    if (rest >= 0 ? some == 0 || all % some != 0 : all != some)
        return kn_raw_bad(r, KILN_SHAPE, "%lld elements do not fill the shape", (long long)all);
    return kn_raw_out(r, 0, kn_emit_reshape(r->s, r->in[0], n, shape));
}

kiln_status kn_rule_flatten(kn_raw *r)
{
    const kn_value *x = kn_raw_in(r, 0);
    int64_t axis = kn_raw_int(r, "axis", 1), shape[2] = {1, 1};
    if (!x) return kn_raw_bad(r, KILN_REQUEST, "input 0 is mandatory");
    if (axis < -x->rank || axis > x->rank)
        return kn_raw_bad(r, KILN_REQUEST, "axis %lld is outside of a tensor of rank %d", (long long)axis, x->rank);
    if (axis < 0) axis += x->rank;
    for (int i = 0; i < x->rank; i++) shape[i >= axis] *= x->shape[i];
    return kn_raw_out(r, 0, kn_emit_reshape(r->s, r->in[0], 2, shape));
}

/* Bits of the axes that a list names. */
static kiln_status axes_of(kn_raw *r, int rank, uint32_t *out, bool *given)
{
    const int64_t *list;
    int n, at;
    *out = 0;
    kiln_status s = kn_raw_ints(r, 1, "axes", &list, &n);
    *given = n >= 0;
    for (int i = 0; s == KILN_OK && i < n; i++) {
        if ((s = kn_raw_axis(r, list[i], rank, &at)) != KILN_OK) return s;
        if (*out >> at & 1) return kn_raw_bad(r, KILN_REQUEST, "axis %d is named twice", at);
        *out |= 1u << at;
    }
    return s;
}

kiln_status kn_rule_squeeze(kn_raw *r)
{
    const kn_value *x = kn_raw_in(r, 0);
    uint32_t gone;
    bool given;
    int64_t shape[KILN_MAX_RANK];
    int n = 0;
    if (!x) return kn_raw_bad(r, KILN_REQUEST, "input 0 is mandatory");
    kiln_status s = axes_of(r, x->rank, &gone, &given);
    if (s != KILN_OK) return s;
    for (int i = 0; i < x->rank; i++) {
        bool drop = given ? gone >> i & 1 : x->shape[i] == 1;
        if (drop && x->shape[i] != 1) return kn_raw_bad(r, KILN_SHAPE, "axis %d has %lld elements, not one", i, (long long)x->shape[i]);
        if (!drop) shape[n++] = x->shape[i];
    }
    return kn_raw_out(r, 0, kn_emit_reshape(r->s, r->in[0], n, shape));
}

kiln_status kn_rule_unsqueeze(kn_raw *r)
{
    const kn_value *x = kn_raw_in(r, 0);
    const int64_t *list;
    int n, from = 0;
    uint32_t new;
    bool given;
    int64_t shape[KILN_MAX_RANK];
    if (!x) return kn_raw_bad(r, KILN_REQUEST, "input 0 is mandatory");
    kiln_status s = kn_raw_ints(r, 1, "axes", &list, &n);
    if (s != KILN_OK) return s;
    if (n < 0) return kn_raw_bad(r, KILN_REQUEST, "no axes are given");
    if (x->rank + n > KILN_MAX_RANK)
        return kn_raw_bad(r, KILN_LIMIT, "%d dimensions; at most %d are supported", x->rank + n, KILN_MAX_RANK);
    if ((s = axes_of(r, x->rank + n, &new, &given)) != KILN_OK) return s;
    for (int i = 0; i < x->rank + n; i++) shape[i] = new >> i & 1 ? 1 : x->shape[from++];
    return kn_raw_out(r, 0, kn_emit_reshape(r->s, r->in[0], x->rank + n, shape));
}

kiln_status kn_rule_identity(kn_raw *r)
{
    if (!kn_raw_in(r, 0)) return kn_raw_bad(r, KILN_REQUEST, "input 0 is mandatory");
    return kn_raw_out(r, 0, r->in[0]);
}

kiln_status kn_rule_dropout(kn_raw *r)
{
    if (!kn_raw_in(r, 0)) return kn_raw_bad(r, KILN_REQUEST, "input 0 is mandatory");
    if (kn_raw_in(r, 2)) {
        const int64_t *training;
        int n;
        kiln_status s = kn_raw_ints(r, 2, NULL, &training, &n);
        if (s != KILN_OK) return s;
        if (n == 1 && training[0]) return kn_raw_bad(r, KILN_UNSUPPORTED, "training mode is random; only inference is supported");
    }
    const kn_value *x = kn_raw_in(r, 0);
    if (kn_raw_wants(r, 1)) {
        kiln_status s = kn_raw_out(r, 1, kn_emit_fill(r->s, KN_BOOL, x->rank, x->shape, 1));
        if (s != KILN_OK) return s;
    }
    return kn_raw_out(r, 0, r->in[0]);
}

kiln_status kn_rule_transpose(kn_raw *r)
{
    const kn_value *x = kn_raw_in(r, 0);
    const int64_t *list;
    int n, perm[KILN_MAX_RANK];
    uint32_t seen = 0;
    if (!x) return kn_raw_bad(r, KILN_REQUEST, "input 0 is mandatory");
    kiln_status s = kn_raw_ints(r, -1, "perm", &list, &n);
    if (s != KILN_OK) return s;
    if (n >= 0 && n != x->rank) return kn_raw_bad(r, KILN_REQUEST, "\"perm\" has %d numbers but the tensor has rank %d", n, x->rank);
    for (int i = 0; i < x->rank; i++) {
        if (n < 0)
            perm[i] = x->rank - 1 - i;
        else if ((s = kn_raw_axis(r, list[i], x->rank, &perm[i])) != KILN_OK)
            return s;
        if (seen >> perm[i] & 1) return kn_raw_bad(r, KILN_REQUEST, "axis %d stands twice in \"perm\"", perm[i]);
        seen |= 1u << perm[i];
    }
    return kn_raw_out(r, 0, kn_emit_transpose(r->s, r->in[0], perm));
}
