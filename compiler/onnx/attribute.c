/* AttributeProto: one value or one list, of the type that it names (or, in old files, of the field that is there). */
#include "onnx/read.h"
#include <string.h>

typedef struct list {
    kiln_arena *a;
    int n, cap;
    int64_t *ints;
    double *floats;
    bool real;
} list;

static bool room(list *l)
{
    if (l->n < l->cap) return true;
    int cap = l->cap ? 2 * l->cap : 16;
    int64_t *ints = l->real ? NULL : kn_array(l->a, int64_t, cap);
    double *floats = l->real ? kn_array(l->a, double, cap) : NULL;
    if (l->real ? !floats : !ints) return false;
    if (l->n && l->real) memcpy(floats, l->floats, (size_t)l->n * sizeof *floats);
    if (l->n && !l->real) memcpy(ints, l->ints, (size_t)l->n * sizeof *ints);
    l->ints = ints;
    l->floats = floats;
    l->cap = cap;
    return true;
}

static double float_of(uint64_t bits)
{
    uint32_t u = (uint32_t)bits;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static void add(void *user, uint64_t bits)
{
    list *l = user;
    if (!room(l)) return; /* the arena is dry: found at the end */
    if (l->real)
        l->floats[l->n++] = float_of(bits);
    else
        memcpy(&l->ints[l->n++], &bits, 8);
}

typedef struct found {
    list ints, floats;
    const char **strings;
    int nstrings, cap;
    uint64_t type;
    bool i, f, s;
    kn_field t, g;
    const char *refers;
} found;

static kiln_status add_string(kn_onnx *r, const kn_field *x, const char *place, found *y)
{
    if (y->nstrings == y->cap) {
        int cap = y->cap ? 2 * y->cap : 8;
        const char **p = kn_array(r->a, const char *, cap);
        if (!p) return kn_onnx_dry(r);
        if (y->nstrings) memcpy(p, y->strings, (size_t)y->nstrings * sizeof *p);
        y->strings = p;
        y->cap = cap;
    }
    return kn_onnx_text(r, x, place, &y->strings[y->nstrings++]);
}

static kiln_status read_field(kn_onnx *r, const kn_field *x, const char *place, kn_gattr *out, found *y)
{
    switch (x->number) {
    case 1: return kn_onnx_text(r, x, place, &out->name);
    case 2:
        y->f = true;
        out->f = float_of(x->u);
        return x->type == 5 ? KILN_OK : kn_onnx_wrong(r, place, "f");
    case 3:
        y->i = true;
        memcpy(&out->i, &x->u, 8);
        return x->type == 0 ? KILN_OK : kn_onnx_wrong(r, place, "i");
    case 4: y->s = true; return kn_onnx_text(r, x, place, &out->s);
    case 5: y->t = *x; return x->type == 2 ? KILN_OK : kn_onnx_wrong(r, place, "t");
    case 6: y->g = *x; return x->type == 2 ? KILN_OK : kn_onnx_wrong(r, place, "g");
    case 7: return kn_wire_numbers(x, 4, add, &y->floats) ? KILN_OK : kn_onnx_wrong(r, place, "floats");
    case 8: return kn_wire_numbers(x, 0, add, &y->ints) ? KILN_OK : kn_onnx_wrong(r, place, "ints");
    case 9: return add_string(r, x, place, y);
    case 20: y->type = x->type == 0 ? x->u : 99; return KILN_OK;
    case 21: return kn_onnx_text(r, x, place, &y->refers);
    default: return KILN_OK;
    }
}

static char kind_of(const found *y)
{
    static const char kinds[] = "?fistGFIS";
    if (y->type) return y->type <= 8 ? kinds[y->type] : '?';
    return y->t.p        ? 't'
           : y->g.p      ? 'G'
           : y->floats.n ? 'F'
           : y->ints.n   ? 'I'
           : y->nstrings ? 'S'
           : y->s        ? 's'
           : y->f        ? 'f'
           : y->i        ? 'i'
                         : '?';
}

kiln_status kn_onnx_read_attribute(kn_onnx *r, const kn_field *f, const char *place, kn_scope *scope, kn_gattr *out)
{
    kn_wire w = kn_onnx_open(f);
    kn_field x;
    enum kn_wire_state state;
    found y = {.ints = {.a = r->a}, .floats = {.a = r->a, .real = true}, .refers = ""};
    *out = (kn_gattr){.name = "", .s = ""};
    while ((state = kn_wire_next(&w, &x)) == KN_WIRE_FIELD) {
        kiln_status s = read_field(r, &x, place, out, &y);
        if (s != KILN_OK) return s;
    }
    if (state == KN_WIRE_BROKEN) return kn_onnx_broken(r, place);
    char kind = kind_of(&y);
    out->kind = kind == 't' ? 'T' : kind;
    if (*y.refers) {
        if (!r->function) return kn_fail_at(r->d, KILN_REQUEST, place, "attribute \"%.64s\" refers to one of a function, and is in none", out->name);
        *out = (kn_gattr){.name = out->name, .s = "", .refers = y.refers};
        return KILN_OK;
    }
    out->n = kind == 'I' ? y.ints.n : kind == 'F' ? y.floats.n : kind == 'S' ? y.nstrings : 0;
    out->ints = y.ints.ints;
    out->floats = y.floats.floats;
    out->strings = y.strings;
    if (kind == 'i') out->f = (double)out->i;
    if ((kind != 't' && y.t.p) || (kind != 'G' && y.g.p))
        return kn_fail_at(r->d, KILN_REQUEST, place, "attribute \"%.64s\" has several values", out->name);
    if ((kind == 't' && !y.t.p) || (kind == 'G' && !y.g.p) || kind == '?')
        return kn_fail_at(r->d, KILN_REQUEST, place, "attribute \"%.64s\" has no value of a supported type", out->name);
    if (kind == 'G') return kn_onnx_read_graph(r, &y.g, kn_onnx_at(r, place, "g"), scope, &out->graph);
    if (kind != 't') return KILN_OK;
    kn_value *v = kn_new(r->a, kn_value);
    if (!v) return kn_onnx_dry(r);
    out->tensor = v;
    return kn_onnx_read_tensor(r, &y.t, kn_onnx_at(r, place, "t"), v);
}
