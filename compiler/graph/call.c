/* Functions of a model's own: a node that has the name of one stands for its nodes, which are settled in its place, with the node's inputs and
 * attributes for those of the function, and with the function's own versions of operators. */
#include "graph/settle.h"
#include <string.h>

const kn_function *kn_function_of(const kn_graph *model, const kn_node *n)
{
    for (int i = 0; i < model->nfunctions; i++) {
        const kn_function *f = &model->functions[i];
        if (!strcmp(f->name, n->op) && !strcmp(f->domain, n->domain) && !strcmp(f->overload, n->overload ? n->overload : "")) return f;
    }
    return NULL;
}

static const kn_gattr *find(const kn_gattr *list, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i].name, name)) return &list[i];
    return NULL;
}

/* What the function's attribute is in the body that f is, or is inside of: the calling node's, else the default; NULL: neither. */
static const kn_gattr *given(const kn_frame *f, const char *name)
{
    while (f && !f->function) f = f->around;
    if (!f) return NULL;
    const kn_gattr *a = find(f->call->attrs, f->call->nattrs, name);
    if (!a) a = find(f->function->attrs, f->function->nattrs, name);
    return a && a->kind ? a : NULL;
}

const kn_node *kn_settle_referred(kn_settle *s, const kn_frame *f, const kn_node *n)
{
    bool refers = false;
    for (int i = 0; i < n->nattrs; i++) refers |= n->attrs[i].refers != NULL;
    if (!refers) return n;
    kn_node *copy = kn_new(s->a, kn_node);
    kn_gattr *attrs = kn_array(s->a, kn_gattr, n->nattrs + 1);
    if (!copy || !attrs) return NULL;
    *copy = *n;
    copy->attrs = attrs;
    copy->nattrs = 0;
    for (int i = 0; i < n->nattrs; i++) {
        const kn_gattr *a = n->attrs[i].refers ? given(f, n->attrs[i].refers) : &n->attrs[i];
        if (!a) continue; /* as if the node did not have it */
        attrs[copy->nattrs] = *a;
        attrs[copy->nattrs++].name = n->attrs[i].name;
    }
    return copy;
}

kiln_status kn_settle_function(kn_raw *r, const kn_function *function)
{
    kn_settle *s = r->s;
    const kn_graph *g = function->graph;
    int calls = 0;
    for (const kn_frame *f = r->f; f; calls += f->function != NULL, f = f->around)
        if (f->function == function) return kn_raw_bad(r, KILN_REQUEST, "the function calls itself (%.100s)", function->place);
    if (r->nin > g->ninputs) return kn_raw_bad(r, KILN_REQUEST, "%d inputs for a function of %d", r->nin, g->ninputs);
    if (r->n->noutputs > g->noutputs) return kn_raw_bad(r, KILN_REQUEST, "%d outputs of a function of %d", r->n->noutputs, g->noutputs);
    kn_frame *f = kn_settle_frame(s, g, r->f);
    int *results = kn_array(s->a, int, g->noutputs + 1);
    if (!f || !results) return kn_fail(s->d, KILN_MEMORY, "out of memory");
    f->function = function;
    f->call = r->n;
    if (calls >= KILN_MAX_GRAPH_CALLS) return kn_raw_bad(r, KILN_LIMIT, "more than %d functions inside each other", KILN_MAX_GRAPH_CALLS);
    for (int i = 0; i < g->ninputs; i++) f->map[g->inputs[i]] = i < r->nin && r->in[i] >= 0 ? r->in[i] : KN_OMITTED;
    kiln_status status = kn_settle_body(s, f, r->n->place, results);
    for (int i = 0; status == KILN_OK && i < r->n->noutputs; i++) r->out[i] = results[i];
    return status;
}
