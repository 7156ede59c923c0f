/* Constants computed by what an operator does and not by its tensor expression, where that moves bytes alone and there may be many. */
#include "graph/settle.h"
#include <string.h>

static const kn_value *input(const kn_graph *g, const kn_node *n, int i) { return &g->values[n->inputs[i]]; }

/* ScatterND that puts: the operator, and how many elements an index names a slice of; 0: another node. */
static int64_t slice_of(const kn_graph *g, const kn_node *n)
{
    const kn_gattr *how = kn_node_attr(n, "reduction");
    if (strcmp(n->op, "ScatterND") || *n->domain || n->ninputs != 3 || (how && (how->kind != 's' || strcmp(how->s, "none")))) return 0;
    const kn_value *x = input(g, n, 0), *at = input(g, n, 1);
    int64_t depth = at->rank ? at->shape[at->rank - 1] : 0, slice = 1;
    if (depth < 1 || depth > x->rank) return 0;
    for (int i = (int)depth; i < x->rank; i++) slice *= x->shape[i];
    return slice;
}

bool kn_direct_cost(const kn_graph *g, const kn_node *n, double *cost)
{
    if (!slice_of(g, n)) return false;
    *cost = (double)kn_value_elems(input(g, n, 0)) + (double)kn_value_elems(input(g, n, 1)) + (double)kn_value_elems(input(g, n, 2));
    return true;
}

static const uint8_t *element(const kn_value *v, int64_t i)
{
    return v->data->bytes + (v->data->splat ? 0 : (size_t)(i * kn_dtype_bytes(v->dtype)));
}

/* Of updates of one place the last stays; an index beyond the data puts nothing, as in the tensor expression. */
bool kn_direct(const kn_graph *g, const kn_node *n, uint8_t *to)
{
    int64_t slice = slice_of(g, n);
    if (!slice) return false;
    const kn_value *x = input(g, n, 0), *at = input(g, n, 1), *updates = input(g, n, 2);
    size_t size = (size_t)kn_dtype_bytes(x->dtype);
    int64_t depth = at->shape[at->rank - 1], count = kn_value_elems(at) / depth;
    if (updates->dtype != x->dtype || kn_value_elems(updates) != count * slice) return false;
    for (int64_t i = 0; i < kn_value_elems(x); i++) memcpy(to + (size_t)i * size, element(x, i), size);
    for (int64_t i = 0; i < count; i++) {
        int64_t place = 0;
        bool inside = true;
        for (int64_t d = 0; d < depth; d++) {
            int64_t k = kn_value_int(at, i * depth + d), extent = x->shape[d];
            if (k < 0) k += extent;
            inside &= k >= 0 && k < extent;
            place = inside ? place * extent + k : 0;
        }
        for (int64_t e = 0; inside && e < slice; e++) memcpy(to + (size_t)(place * slice + e) * size, element(updates, i * slice + e), size);
    }
    return true;
}
