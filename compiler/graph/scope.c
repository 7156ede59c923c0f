/* Names of a graph under construction, and the order of its nodes. */
#include "graph/build.h"
#include <string.h>

void kn_scope_open(kn_scope *s, kiln_arena *a, kn_graph *g, kn_scope *around) { *s = (kn_scope){.a = a, .g = g, .around = around}; }

static uint32_t hash_of(const char *name)
{
    uint32_t h = 2166136261u;
    for (; *name; name++) h = (h ^ (uint8_t)*name) * 16777619u;
    return h;
}

static int *slot_of(const kn_scope *s, int *slots, int n, const char *name)
{
    uint32_t i = hash_of(name) & (uint32_t)(n - 1);
    while (slots[i] && strcmp(s->g->values[slots[i] - 1].name, name)) i = (i + 1) & (uint32_t)(n - 1);
    return &slots[i];
}

static bool grow(kn_scope *s)
{
    if (2 * (s->used + 1) <= s->nslots) return true;
    int n = s->nslots ? 2 * s->nslots : 64, *slots = kn_array(s->a, int, n);
    if (!slots) return false;
    for (int i = 0; i < s->nslots; i++)
        if (s->slots[i]) *slot_of(s, slots, n, s->g->values[s->slots[i] - 1].name) = s->slots[i];
    s->slots = slots;
    s->nslots = n;
    return true;
}

int kn_scope_define(kn_scope *s, const char *name)
{
    if (!grow(s)) return KN_SCOPE_DRY;
    int *slot = slot_of(s, s->slots, s->nslots, name);
    if (*slot) return KN_SCOPE_TWICE;
    int v = kn_graph_value(s->a, s->g, name);
    if (v < 0) return KN_SCOPE_DRY;
    *slot = v + 1;
    s->used++;
    return v;
}

int kn_scope_find(kn_scope *s, const char *name)
{
    int *slot = s->nslots ? slot_of(s, s->slots, s->nslots, name) : NULL;
    if (slot && *slot) return *slot - 1;
    int outer = s->around ? kn_scope_find(s->around, name) : KN_SCOPE_NONE;
    if (outer < 0) return KN_SCOPE_NONE;
    int v = kn_scope_define(s, name);
    if (v >= 0) s->g->values[v].outer = outer;
    return v;
}

/* ---- order ---- */

typedef struct sorter {
    const kn_graph *g;
    int *waits, *head, *next, *to, nedges; /* waits[i]: producers that node i still waits for; edges producer -> users */
} sorter;

static bool produced(const kn_graph *g, int v) { return v >= 0 && g->values[v].producer >= 0; }

static int edges_of(const kn_node *n)
{
    int edges = n->ninputs;
    for (int i = 0; i < n->nattrs; i++)
        if (n->attrs[i].kind == 'G') edges += n->attrs[i].graph->nvalues;
    return edges;
}

static void edge(sorter *s, int v, int to)
{
    if (!produced(s->g, v)) return;
    int from = s->g->values[v].producer;
    s->to[s->nedges] = to;
    s->next[s->nedges] = s->head[from];
    s->head[from] = s->nedges++;
    s->waits[to]++;
}

static void connect(sorter *s, int i)
{
    const kn_node *n = &s->g->nodes[i];
    for (int k = 0; k < n->ninputs; k++) edge(s, n->inputs[k], i);
    for (int k = 0; k < n->nattrs; k++) {
        const kn_graph *sub = n->attrs[k].kind == 'G' ? n->attrs[k].graph : NULL;
        for (int v = 0; sub && v < sub->nvalues; v++) edge(s, sub->values[v].outer, i);
    }
}

/* A heap of node numbers: the smallest is taken first, so that a good order stays as it is. */
static void push(int *heap, int *n, int x)
{
    int i = (*n)++;
    for (; i && heap[(i - 1) / 2] > x; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = x;
}

static int pop(int *heap, int *n)
{
    int top = heap[0], x = heap[--*n], i = 0;
    for (int k; (k = 2 * i + 1) < *n; i = k) {
        if (k + 1 < *n && heap[k + 1] < heap[k]) k++;
        if (heap[k] >= x) break;
        heap[i] = heap[k];
    }
    heap[i] = x;
    return top;
}

static kiln_status cycle(const kn_graph *g, const int *waits, kiln_diag *d)
{
    int i = 0;
    while (!waits[i]) i++;
    const kn_node *n = &g->nodes[i];
    kn_fail_at(d, KILN_REQUEST, n->place, "node \"%.60s\" (%.60s) depends on its own result", n->name, n->op);
    kn_hint(d, "the nodes of a model must not form a cycle");
    return d->status;
}

kiln_status kn_graph_order(kiln_arena *a, kn_graph *g, kiln_diag *d)
{
    int64_t edges = 0;
    for (int i = 0; i < g->nnodes; i++) edges += edges_of(&g->nodes[i]);
    sorter s = {.g = g,
                .waits = kn_array(a, int, g->nnodes + 1),
                .head = kn_array(a, int, g->nnodes + 1),
                .next = kn_array(a, int, edges + 1),
                .to = kn_array(a, int, edges + 1)};
    int *heap = kn_array(a, int, g->nnodes + 1), nheap = 0, done = 0;
    kn_node *sorted = kn_array(a, kn_node, g->nnodes + 1);
    if (!s.waits || !s.head || !s.next || !s.to || !heap || !sorted) return kn_fail(d, KILN_MEMORY, "out of memory");
    for (int i = 0; i < g->nnodes; i++) s.head[i] = -1;
    for (int i = 0; i < g->nnodes; i++) connect(&s, i);
    for (int i = 0; i < g->nnodes; i++)
        if (!s.waits[i]) push(heap, &nheap, i);
    while (nheap) {
        int i = pop(heap, &nheap);
        sorted[done++] = g->nodes[i];
        for (int e = s.head[i]; e >= 0; e = s.next[e])
            if (!--s.waits[s.to[e]]) push(heap, &nheap, s.to[e]);
    }
    if (done < g->nnodes) return cycle(g, s.waits, d);
    if (g->nnodes) memcpy(g->nodes, sorted, (size_t)g->nnodes * sizeof *sorted);
    for (int i = 0; i < g->nnodes; i++)
        for (int k = 0; k < g->nodes[i].noutputs; k++)
            if (g->nodes[i].outputs[k] >= 0) g->values[g->nodes[i].outputs[k]].producer = i;
    return KILN_OK;
}
