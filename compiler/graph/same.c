/* Constants with the same bytes become one, and so does what nodes make of the same constants in the same way, so that it is stored, computed and
 * packed once: the weights of a layer that is unrolled over its steps are one operand, which then stays in the caches from step to step. What is
 * computed at each run is left alone: each of two equal maps may be a part of its own reader's kernel. */
#include "graph/plan.h"
#include <string.h>

typedef struct same {
    const kn_graph *g;
    int *of;           /* of a value: the one that stands for it */
    bool *fixed;       /* of a value: a constant, or made of constants alone */
    int *nodes;        /* of a slot of the second table: node + 1 */
    int *values;       /* of a slot of the first table: value + 1 */
    uint64_t mask;     /* slots of either table less one */
} same;

static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static uint64_t mix_bytes(uint64_t h, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    uint64_t word;
    for (; n >= sizeof word; p += sizeof word, n -= sizeof word) {
        memcpy(&word, p, sizeof word);
        h = mix(h, word);
    }
    word = n;
    if (n) memcpy(&word, p, n);
    return mix(h, word);
}

static uint64_t mix_text(uint64_t h, const char *t) { return mix_bytes(h, t, strlen(t)); }

static bool readable(const kn_value *v) { return v->data && (v->data->bytes || v->data->by_digest); }

static uint64_t hash_of_value(const kn_value *v)
{
    uint64_t h = mix(mix((uint64_t)v->dtype, (uint64_t)v->rank), v->data->splat);
    for (int i = 0; i < v->rank; i++) h = mix(h, (uint64_t)v->shape[i]);
    return v->data->by_digest ? mix_bytes(h, v->data->digest, sizeof v->data->digest) : mix_bytes(h, v->data->bytes, v->data->n);
}

static bool equal_values(const kn_value *v, const kn_value *w)
{
    const kn_data *x = v->data, *y = w->data;
    if (v->dtype != w->dtype || v->rank != w->rank || (v->rank && memcmp(v->shape, w->shape, sizeof *v->shape * (size_t)v->rank))) return false;
    if (x->splat != y->splat || x->by_digest != y->by_digest) return false;
    if (x->by_digest) return !memcmp(x->digest, y->digest, sizeof x->digest);
    return x->n == y->n && (x->bytes == y->bytes || !memcmp(x->bytes, y->bytes, x->n));
}

static void look_at_value(same *s, int v)
{
    s->of[v] = v;
    s->fixed[v] = s->g->values[v].data != NULL;
    if (!readable(&s->g->values[v])) return;
    uint64_t at = hash_of_value(&s->g->values[v]) & s->mask;
    for (; s->values[at]; at = (at + 1) & s->mask)
        if (equal_values(&s->g->values[v], &s->g->values[s->values[at] - 1])) {
            s->of[v] = s->values[at] - 1;
            return;
        }
    s->values[at] = v + 1;
}

static uint64_t hash_of_node(const same *s, const kn_node *n)
{
    uint64_t h = mix_text(mix_text(0, n->op), n->domain);
    for (int i = 0; i < n->ninputs; i++) h = mix(h, n->inputs[i] < 0 ? UINT64_MAX : (uint64_t)s->of[n->inputs[i]]);
    for (int i = 0; i < n->nattrs; i++) {
        const kn_gattr *a = &n->attrs[i];
        h = mix(mix_text(h, a->name), (uint64_t)a->i);
        if (a->ints) h = mix_bytes(h, a->ints, sizeof *a->ints * (size_t)a->n);
    }
    return h;
}

static bool equal_attrs(const kn_gattr *a, const kn_gattr *b)
{
    if (strcmp(a->name, b->name) || a->kind != b->kind || a->n != b->n) return false;
    switch (a->kind) {
    case 'i': return a->i == b->i;
    case 'f': return !memcmp(&a->f, &b->f, sizeof a->f);
    case 's': return !strcmp(a->s, b->s);
    case 'I': return !a->n || !memcmp(a->ints, b->ints, sizeof *a->ints * (size_t)a->n);
    case 'F': return !a->n || !memcmp(a->floats, b->floats, sizeof *a->floats * (size_t)a->n);
    default: return false;
    }
}

static bool equal_nodes(const same *s, const kn_node *n, const kn_node *m)
{
    if (strcmp(n->op, m->op) || strcmp(n->domain, m->domain) || n->ninputs != m->ninputs || n->nattrs != m->nattrs) return false;
    for (int i = 0; i < n->ninputs; i++)
        if ((n->inputs[i] < 0 ? -1 : s->of[n->inputs[i]]) != (m->inputs[i] < 0 ? -1 : s->of[m->inputs[i]])) return false;
    for (int i = 0; i < n->nattrs; i++)
        if (!equal_attrs(&n->attrs[i], &m->attrs[i])) return false;
    return true;
}

/* Whether node i makes of constants what an earlier one makes; what it gives is then that one's. */
static bool made_before(same *s, int i)
{
    const kn_node *n = &s->g->nodes[i];
    int y = n->outputs[0];
    bool fixed = !n->left && n->ninputs > 0 && n->noutputs == 1;
    for (int k = 0; k < n->ninputs; k++) fixed &= n->inputs[k] < 0 || s->fixed[n->inputs[k]];
    if (!fixed) return false;
    s->fixed[y] = true;
    if (kn_graph_is_output(s->g, y)) return false;
    uint64_t at = hash_of_node(s, n) & s->mask;
    for (; s->nodes[at]; at = (at + 1) & s->mask)
        if (equal_nodes(s, n, &s->g->nodes[s->nodes[at] - 1])) {
            s->of[y] = s->g->nodes[s->nodes[at] - 1].outputs[0];
            return true;
        }
    s->nodes[at] = i + 1;
    return false;
}

static bool emit(kiln_arena *a, const same *s, kn_graph *q, const kn_node *n)
{
    kn_node copy = *n;
    int *in = kn_array(a, int, n->ninputs + 1);
    if (!in) return false;
    for (int i = 0; i < n->ninputs; i++) in[i] = n->inputs[i] < 0 ? -1 : s->of[n->inputs[i]];
    copy.inputs = in;
    return kn_graph_node(a, q, &copy) >= 0;
}

kiln_status kn_graph_same(kiln_arena *a, const kn_graph *g, kn_graph **out, kiln_diag *d)
{
    same s = {.g = g, .mask = 1};
    kn_graph *q = kn_graph_bare(a, g);
    while (s.mask < 2 * ((uint64_t)g->nvalues + (uint64_t)g->nnodes)) s.mask = 2 * s.mask + 1;
    s.of = kn_array(a, int, g->nvalues + 1);
    s.fixed = kn_array(a, bool, g->nvalues + 1);
    s.values = kn_array(a, int, s.mask + 1);
    s.nodes = kn_array(a, int, s.mask + 1);
    if (!q || !s.of || !s.fixed || !s.values || !s.nodes) return kn_fail(d, KILN_MEMORY, "out of memory");
    for (int v = 0; v < g->nvalues; v++) look_at_value(&s, v);
    for (int i = 0; i < g->nnodes; i++)
        if (!made_before(&s, i) && !emit(a, &s, q, &g->nodes[i])) return kn_fail(d, KILN_MEMORY, "out of memory");
    *out = q;
    return KILN_OK;
}
