/* ModelProto: versions of the operators, and the graph. */
#include "onnx/read.h"
#include <string.h>

enum { TEXT_BYTES = 4096 };

kiln_status kn_onnx_dry(kn_onnx *r) { return kn_fail(r->d, KILN_MEMORY, "out of memory"); }

kiln_status kn_onnx_broken(kn_onnx *r, const char *place)
{
    kn_fail_at(r->d, KILN_REQUEST, place, "the bytes are no ONNX: a field is cut short or has no known encoding");
    kn_hint(r->d, "an ONNX model, serialised as Protobuf, in full");
    return r->d->status;
}

kiln_status kn_onnx_wrong(kn_onnx *r, const char *place, const char *field)
{
    return kn_fail_at(r->d, KILN_REQUEST, kn_onnx_at(r, place, field), "field \"%s\" has another type in ONNX", field);
}

const char *kn_onnx_at(kn_onnx *r, const char *place, const char *field)
{
    const char *t = kn_format(r->a, "%.160s/%s", place, field);
    return t ? t : "";
}

const char *kn_onnx_item(kn_onnx *r, const char *place, const char *field, int i)
{
    const char *t = kn_format(r->a, "%.160s/%s/%d", place, field, i);
    return t ? t : "";
}

kn_wire kn_onnx_open(const kn_field *f)
{
    static const uint8_t none[1];
    return f->p ? (kn_wire){f->p, f->p + f->n} : (kn_wire){none, none}; /* an empty file has no bytes to point to */
}

/* Bytes of the UTF-8 character at p; 0: none is there. */
static size_t character(const uint8_t *p, size_t n)
{
    size_t more = *p < 0x80 ? 0 : *p >= 0xf0 ? 3 : *p >= 0xe0 ? 2 : 1;
    static const uint32_t least[] = {1, 0x80, 0x800, 0x10000};
    if ((*p >= 0x80 && *p < 0xc2) || *p > 0xf4 || more >= n) return 0;
    uint32_t x = more ? *p & (0x3fu >> more) : *p;
    for (size_t k = 1; k <= more; k++) {
        if ((p[k] & 0xc0) != 0x80) return 0;
        x = x << 6 | (p[k] & 0x3f);
    }
    return x < least[more] || x > 0x10ffff || (x >= 0xd800 && x < 0xe000) ? 0 : more + 1;
}

kiln_status kn_onnx_text(kn_onnx *r, const kn_field *f, const char *place, const char **out)
{
    size_t step;
    if (f->type != 2) return kn_onnx_broken(r, place);
    if (f->n > TEXT_BYTES) return kn_fail_at(r->d, KILN_LIMIT, place, "a name of %zu bytes; at most %d are supported", f->n, TEXT_BYTES);
    for (size_t i = 0; i < f->n; i += step)
        if (!(step = character(f->p + i, f->n - i))) return kn_fail_at(r->d, KILN_REQUEST, place, "a name that is no UTF-8 text");
    *out = kn_strndup(r->a, (const char *)f->p, f->n);
    return *out ? KILN_OK : kn_onnx_dry(r);
}

/* domain 1, version 2. */
kiln_status kn_onnx_read_opset(kn_onnx *r, const kn_field *f, const char *place, int *out)
{
    kn_wire w = kn_onnx_open(f);
    kn_field x;
    enum kn_wire_state state;
    const char *domain = "";
    uint64_t version = 0;
    *out = 0;
    while ((state = kn_wire_next(&w, &x)) == KN_WIRE_FIELD) {
        kiln_status s = x.number == 1 ? kn_onnx_text(r, &x, place, &domain) : KILN_OK;
        if (s != KILN_OK) return s;
        if (x.number == 2 && x.type != 0) return kn_onnx_wrong(r, place, "version");
        if (x.number == 2) version = x.u;
    }
    if (state == KN_WIRE_BROKEN) return kn_onnx_broken(r, place);
    if (*domain && strcmp(domain, "ai.onnx")) return KILN_OK; /* a node that uses it is refused by name */
    if (version < KN_GRAPH_OPSET_MIN || version > KN_GRAPH_OPSET) {
        kn_fail_at(r->d, KILN_UNSUPPORTED, place, "opset %lld of ai.onnx", version > 1000 ? -1LL : (long long)version);
        kn_hint(r->d, "from %d to %d", KN_GRAPH_OPSET_MIN, KN_GRAPH_OPSET);
        return r->d->status;
    }
    *out = (int)version;
    return KILN_OK;
}

/* Fields of ModelProto: graph 7, opset_import 8, functions 25, in any order. */
typedef struct parts {
    kn_field graph;
    int opsets, functions;
} parts;

static kiln_status find_parts(kn_onnx *r, kn_wire w, parts *p)
{
    kn_field x;
    enum kn_wire_state state;
    while ((state = kn_wire_next(&w, &x)) == KN_WIRE_FIELD) {
        kiln_status s = KILN_OK;
        int version = 0;
        bool wanted = x.number == 7 || x.number == 8 || x.number == 25;
        if (wanted && x.type != 2)
            s = kn_onnx_broken(r, x.number == 7 ? "/graph" : x.number == 8 ? "/opset_import" : "/functions");
        else if (x.number == 7)
            p->graph = x;
        else if (x.number == 8)
            s = kn_onnx_read_opset(r, &x, kn_onnx_item(r, "", "opset_import", p->opsets++), &version);
        else
            p->functions += x.number == 25;
        if (s != KILN_OK) return s;
        if (version) r->opset = version;
    }
    return state == KN_WIRE_BROKEN ? kn_onnx_broken(r, "") : KILN_OK;
}

static kiln_status read_functions(kn_onnx *r, kn_wire w, int n, kn_graph *g)
{
    kn_function *all = kn_array(r->a, kn_function, n + 1);
    kn_field x;
    kiln_status s = all ? KILN_OK : kn_onnx_dry(r);
    int i = 0;
    while (s == KILN_OK && kn_wire_next(&w, &x) == KN_WIRE_FIELD) {
        if (x.number != 25) continue;
        s = kn_onnx_read_function(r, &x, kn_onnx_item(r, "", "functions", i), &all[i]);
        for (int k = 0; s == KILN_OK && k < i; k++)
            if (!strcmp(all[k].name, all[i].name) && !strcmp(all[k].domain, all[i].domain) && !strcmp(all[k].overload, all[i].overload))
                s = kn_fail_at(r->d, KILN_REQUEST, all[i].place, "the function \"%.64s\" is there twice", all[i].name);
        i++;
    }
    g->nfunctions = n;
    g->functions = all;
    return s;
}

kiln_status kn_onnx_read(kiln_arena *a, kiln_bytes model, const kiln_graph_options *o, kn_graph **out, kiln_diag *d)
{
    kn_onnx r = {.a = a, .d = d, .o = o};
    parts p = {0};
    if (model.n > KILN_MAX_GRAPH_BYTES) return kn_fail_at(d, KILN_LIMIT, "", "a model of more than %d bytes", KILN_MAX_GRAPH_BYTES);
    kn_wire w = {(const uint8_t *)model.p, (const uint8_t *)model.p + model.n};
    kiln_status s = find_parts(&r, w, &p);
    if (s != KILN_OK) return s;
    if (!p.graph.p) return kn_fail_at(d, KILN_REQUEST, "/graph", "the model has no graph");
    if (p.functions > KILN_MAX_GRAPH_FUNCTIONS)
        return kn_fail_at(d, KILN_LIMIT, "/functions", "more than %d functions", KILN_MAX_GRAPH_FUNCTIONS);
    if (!r.opset && p.functions) r.opset = KN_GRAPH_OPSET; /* its graph may have nothing but calls of them */
    if (!r.opset) return kn_fail_at(d, KILN_REQUEST, "/opset_import", "the model does not say which opset of ai.onnx it uses");
    s = kn_onnx_read_graph(&r, &p.graph, "/graph", NULL, out);
    return s == KILN_OK && p.functions ? read_functions(&r, w, p.functions, *out) : s;
}
