/* FunctionProto: names of inputs, outputs and attributes, and nodes with operators of versions of its own. */
#include "onnx/read.h"
#include <string.h>

typedef struct counts {
    int inputs, outputs, attrs, opsets;
} counts;

/* Names, versions and how many there are of everything. */
static kiln_status scan(kn_onnx *r, const kn_field *f, kn_function *out, counts *n)
{
    kn_wire w = kn_onnx_open(f);
    kn_field x;
    enum kn_wire_state state;
    while ((state = kn_wire_next(&w, &x)) == KN_WIRE_FIELD) {
        kiln_status s = KILN_OK;
        int version = 0;
        if (x.number == 1) s = kn_onnx_text(r, &x, out->place, &out->name);
        if (x.number == 10) s = kn_onnx_text(r, &x, out->place, &out->domain);
        if (x.number == 13) s = kn_onnx_text(r, &x, out->place, &out->overload);
        if (x.number == 9)
            s = x.type == 2 ? kn_onnx_read_opset(r, &x, kn_onnx_item(r, out->place, "opset_import", n->opsets++), &version)
                            : kn_onnx_wrong(r, out->place, "opset_import");
        if (s != KILN_OK) return s;
        if (version) r->opset = version;
        n->inputs += x.number == 4;
        n->outputs += x.number == 5;
        n->attrs += x.number == 6 || x.number == 11;
    }
    if (state == KN_WIRE_BROKEN) return kn_onnx_broken(r, out->place);
    if (!*out->name) return kn_fail_at(r->d, KILN_REQUEST, out->place, "a function without a name");
    if (n->inputs > KILN_MAX_GRAPH_ARGS || n->outputs > KILN_MAX_GRAPH_ARGS || n->attrs > KILN_MAX_GRAPH_ARGS)
        return kn_fail_at(r->d, KILN_LIMIT, out->place, "more than %d inputs, outputs or attributes", KILN_MAX_GRAPH_ARGS);
    if (!strcmp(out->domain, "ai.onnx")) out->domain = "";
    return KILN_OK;
}

enum pass { HEAD, NODES, USES, OUTPUTS, PASSES };

static kiln_status read_head(kn_onnx *r, const kn_field *x, kn_scope *s, kn_function *out, kn_gattr *attrs)
{
    kn_graph *g = out->graph;
    const char *name = "";
    kiln_status status = KILN_OK;
    if (x->number == 4) {
        const char *place = kn_onnx_item(r, out->place, "input", g->ninputs);
        status = kn_onnx_text(r, x, place, &name);
        return status == KILN_OK ? kn_onnx_define(r, s, name, place, &g->inputs[g->ninputs++]) : status;
    }
    if (x->number == 6) {
        status = kn_onnx_text(r, x, out->place, &name);
        attrs[out->nattrs++] = (kn_gattr){.name = name, .s = ""};
    } else if (x->number == 11) {
        const char *place = kn_onnx_item(r, out->place, "attribute_proto", out->nattrs);
        status = x->type == 2 ? kn_onnx_read_attribute(r, x, place, s, &attrs[out->nattrs++]) : kn_onnx_wrong(r, out->place, "attribute_proto");
    }
    return status;
}

static kiln_status read_pass(kn_onnx *r, const kn_field *f, enum pass pass, kn_scope *s, kn_function *out, kn_gattr *attrs)
{
    kn_wire w = kn_onnx_open(f);
    kn_field x;
    kn_graph *g = out->graph;
    kiln_status status = KILN_OK;
    int nodes = 0;
    while (status == KILN_OK && kn_wire_next(&w, &x) == KN_WIRE_FIELD) {
        const char *name;
        if (pass == HEAD) status = read_head(r, &x, s, out, attrs);
        if (x.number == 7 && x.type != 2) return kn_onnx_broken(r, out->place);
        if (pass == NODES && x.number == 7) status = kn_onnx_open_node(r, &x, kn_onnx_item(r, out->place, "node", nodes++), s);
        if (pass == USES && x.number == 7) {
            kn_node n = g->nodes[nodes];
            status = kn_onnx_close_node(r, &x, s, &n);
            g->nodes[nodes++] = n;
        }
        if (pass != OUTPUTS || x.number != 5) continue;
        const char *place = kn_onnx_item(r, out->place, "output", g->noutputs);
        status = kn_onnx_text(r, &x, place, &name);
        if (status == KILN_OK) status = kn_onnx_resolve(r, s, name, place, &g->outputs[g->noutputs++]);
    }
    return status;
}

kiln_status kn_onnx_read_function(kn_onnx *r, const kn_field *f, const char *place, kn_function *out)
{
    int opset = r->opset;
    counts n = {0};
    kn_scope scope;
    *out = (kn_function){.domain = "", .name = "", .overload = "", .place = place, .graph = kn_graph_new(r->a)};
    if (!out->graph) return kn_onnx_dry(r);
    kiln_status s = scan(r, f, out, &n);
    kn_gattr *attrs = kn_array(r->a, kn_gattr, n.attrs + 1);
    out->attrs = attrs;
    out->graph->inputs = kn_array(r->a, int, n.inputs + 1);
    out->graph->outputs = kn_array(r->a, int, n.outputs + 1);
    out->graph->opset = r->opset;
    if (s == KILN_OK && (!attrs || !out->graph->inputs || !out->graph->outputs)) s = kn_onnx_dry(r);
    kn_scope_open(&scope, r->a, out->graph, NULL);
    r->function = true;
    for (int pass = 0; s == KILN_OK && pass < PASSES; pass++) s = read_pass(r, f, (enum pass)pass, &scope, out, attrs);
    r->function = false;
    r->opset = opset;
    return s == KILN_OK ? kn_graph_order(r->a, out->graph, r->d) : s;
}
