/* The reader of ONNX against protobuf-c: of every model named, both must find the same nodes, names, attributes, inputs and constants; and
 * of every shortened or damaged copy that protobuf-c refuses, Kiln must refuse too. usage: onnx-oracle FILE... */
#include "onnx/onnx.h"
#include "onnx_subset.pb-c.h"
#include "tests/arena.h"
#include <stdio.h>
#include <string.h>

static char why[400];

static bool differ(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    return false;
}

static const char *name_of(const kn_graph *g, int v) { return v < 0 ? "" : g->values[v].name; }

static bool same_names(const kn_graph *g, const int *ours, int n, char **theirs, size_t m, const char *op)
{
    if ((size_t)n != m) return differ("%s: %d names, protobuf-c has %zu", op, n, m);
    for (int i = 0; i < n; i++)
        if (strcmp(name_of(g, ours[i]), theirs[i])) return differ("%s: \"%s\", protobuf-c has \"%s\"", op, name_of(g, ours[i]), theirs[i]);
    return true;
}

static bool same_tensor(const kn_value *v, const Tensor *t)
{
    if (!v->data || (size_t)v->rank != t->n_dims) return differ("%s: rank %d, protobuf-c has %zu", t->name, v->rank, t->n_dims);
    for (int i = 0; i < v->rank; i++)
        if (v->shape[i] != t->dims[i]) return differ("%s: extent %d", t->name, i);
    if (t->has_raw_data)
        return (v->data->n == t->raw_data.len && !memcmp(v->data->bytes, t->raw_data.data, v->data->n)) || differ("%s: raw data", t->name);
    for (size_t i = 0; i < t->n_float_data; i++)
        if (memcmp(v->data->bytes + 4 * i, &t->float_data[i], 4)) return differ("%s: float %zu", t->name, i);
    for (size_t i = 0; i < t->n_int64_data; i++)
        if (kn_value_int(v, (int64_t)i) != t->int64_data[i]) return differ("%s: integer %zu", t->name, i);
    for (size_t i = 0; i < t->n_double_data; i++)
        if (memcmp(v->data->bytes + 8 * i, &t->double_data[i], 8)) return differ("%s: double %zu", t->name, i);
    return true;
}

static bool same_graph(const kn_graph *g, const Graph *t);

static bool same_attribute(const kn_gattr *a, const Attribute *t)
{
    if (strcmp(a->name, t->name)) return differ("attribute \"%s\", protobuf-c has \"%s\"", a->name, t->name);
    if (a->kind == 'i' && a->i != t->i) return differ("%s: integer", a->name);
    if (a->kind == 'f' && a->f != t->f) return differ("%s: float", a->name);
    if (a->kind == 's' && (strlen(a->s) != t->s.len || memcmp(a->s, t->s.data, t->s.len))) return differ("%s: string", a->name);
    if (a->kind == 'I' && (size_t)a->n != t->n_ints) return differ("%s: %d integers", a->name, a->n);
    if (a->kind == 'F' && (size_t)a->n != t->n_floats) return differ("%s: %d floats", a->name, a->n);
    if (a->kind == 'S' && (size_t)a->n != t->n_strings) return differ("%s: %d strings", a->name, a->n);
    for (int i = 0; a->kind == 'I' && i < a->n; i++)
        if (a->ints[i] != t->ints[i]) return differ("%s: integer %d", a->name, i);
    for (int i = 0; a->kind == 'F' && i < a->n; i++)
        if (a->floats[i] != t->floats[i]) return differ("%s: float %d", a->name, i);
    if (a->kind == 'T') return t->t && same_tensor(a->tensor, t->t);
    return a->kind != 'G' || (t->g && same_graph(a->graph, t->g));
}

static bool same_node(const kn_graph *g, const kn_node *n, const Node *t)
{
    if (strcmp(n->op, t->op_type) || strcmp(n->name, t->name ? t->name : ""))
        return differ("node %s, protobuf-c has %s", n->op, t->op_type);
    if (!same_names(g, n->inputs, n->ninputs, t->input, t->n_input, n->op) ||
        !same_names(g, n->outputs, n->noutputs, t->output, t->n_output, n->op))
        return false;
    if ((size_t)n->nattrs != t->n_attribute) return differ("%s: %d attributes, protobuf-c has %zu", n->op, n->nattrs, t->n_attribute);
    for (int i = 0; i < n->nattrs; i++)
        if (!same_attribute(&n->attrs[i], t->attribute[i])) return false;
    return true;
}

static bool same_graph(const kn_graph *g, const Graph *t)
{
    size_t inputs = 0;
    if ((size_t)g->nnodes != t->n_node) return differ("%d nodes, protobuf-c has %zu", g->nnodes, t->n_node);
    for (int i = 0; i < g->nnodes; i++)
        if (!same_node(g, &g->nodes[i], t->node[i])) return false;
    for (size_t i = 0; i < t->n_initializer; i++)
        if (!same_tensor(&g->values[i], t->initializer[i])) return false; /* the first values of a graph are its initializers */
    for (size_t i = 0; i < t->n_input; i++) {
        bool constant = false;
        for (size_t k = 0; k < t->n_initializer; k++) constant |= !strcmp(t->initializer[k]->name, t->input[i]->name);
        if (constant) continue;
        if (inputs >= (size_t)g->ninputs || strcmp(name_of(g, g->inputs[inputs]), t->input[i]->name)) return differ("input %zu", i);
        inputs++;
    }
    for (size_t i = 0; i < t->n_output; i++)
        if (strcmp(name_of(g, g->outputs[i]), t->output[i]->name)) return differ("output %zu", i);
    return (size_t)g->noutputs == t->n_output || differ("%d outputs, protobuf-c has %zu", g->noutputs, t->n_output);
}

/* True when we read what protobuf-c reads, or refuse; read: whether we read it. */
static bool agree(const uint8_t *p, size_t n, bool compare, bool *read)
{
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    Model *theirs = model__unpack(NULL, n, p);
    kn_graph *g = NULL;
    kiln_diag d = {0};
    *read = kn_onnx_read(a, (kiln_bytes){(const char *)p, n}, NULL, &g, &d) == KILN_OK;
    bool good = !*read || (theirs && theirs->graph) || differ("protobuf-c refuses what we read");
    if (good && *read && compare) good = same_graph(g, theirs->graph);
    if (theirs) model__free_unpacked(theirs, NULL);
    kiln_arena_close(a);
    return good;
}

static bool check(const char *path, int *read, int *damaged)
{
    FILE *f = fopen(path, "rb");
    if (!f) return differ("cannot be read");
    uint8_t *p = malloc(1 << 24);
    size_t n = fread(p, 1, 1 << 24, f);
    bool ok, good = agree(p, n, true, &ok);
    fclose(f);
    *read += ok;
    uint32_t seed = 1;
    for (int k = 0; good && k < 64 && n > 1; k++, ++*damaged) { /* shortened, and with a byte changed */
        uint8_t *copy = malloc(n);
        memcpy(copy, p, n);
        seed = seed * 1664525 + 1013904223;
        size_t at = seed % n;
        if (k % 2) copy[at] = (uint8_t)(seed >> 24);
        good = agree(copy, k % 2 ? n : at, false, &ok);
        if (!good)
            snprintf(why + strlen(why), sizeof why - strlen(why), k % 2 ? ", byte %zu changed to %d" : ", cut at byte %zu", at,
                     (int)copy[at]);
        free(copy);
    }
    free(p);
    return good;
}

int main(int argc, char **argv)
{
    int read = 0, damaged = 0, failed = 0;
    for (int i = 1; i < argc; i++)
        if (!check(argv[i], &read, &damaged)) {
            printf("FAIL %s: %s\n", argv[i], why);
            failed++;
        }
    printf("# %d models read alike by protobuf-c, %d refused by Kiln, %d damaged copies, %d failed\n", read, argc - 1 - read, damaged,
           failed);
    return failed != 0 || !read;
}
