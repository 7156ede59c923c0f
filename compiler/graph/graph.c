/* The graph IR: building it, reading it, and the elements of its constants. */
#include "graph/graph.h"
#include <math.h>
#include <string.h>

kn_graph *kn_graph_new(kiln_arena *a)
{
    kn_graph *g = kn_new(a, kn_graph);
    if (g) g->name = "";
    return g;
}

/* Doubles the room of a list; false when out of memory. */
static bool room(kiln_arena *a, void **list, int *cap, int n, size_t size)
{
    if (n < *cap) return true;
    int more = *cap ? *cap * 2 : 64;
    void *p = kn_alloc(a, (size_t)more * size);
    if (!p) return false;
    if (n) memcpy(p, *list, (size_t)n * size);
    *list = p;
    *cap = more;
    return true;
}

int kn_graph_value(kiln_arena *a, kn_graph *g, const char *name)
{
    if (!room(a, (void **)&g->values, &g->values_cap, g->nvalues, sizeof *g->values)) return -1;
    g->values[g->nvalues] = (kn_value){.name = name, .place = "", .producer = -1, .outer = -1};
    return g->nvalues++;
}

kn_graph *kn_graph_bare(kiln_arena *a, const kn_graph *g)
{
    kn_graph *q = kn_new(a, kn_graph);
    kn_value *values = kn_array(a, kn_value, g->nvalues + 1);
    if (!q || !values) return NULL;
    *q = *g;
    q->nnodes = q->nodes_cap = 0;
    q->nodes = NULL;
    q->values_cap = g->nvalues;
    q->values = values;
    memcpy(values, g->values, sizeof *values * (size_t)g->nvalues);
    return q;
}

int kn_graph_node(kiln_arena *a, kn_graph *g, const kn_node *n)
{
    if (!room(a, (void **)&g->nodes, &g->nodes_cap, g->nnodes, sizeof *g->nodes)) return -1;
    for (int i = 0; i < n->noutputs; i++)
        if (n->outputs[i] >= 0) g->values[n->outputs[i]].producer = g->nnodes;
    g->nodes[g->nnodes] = *n;
    return g->nnodes++;
}

int64_t kn_value_elems(const kn_value *v)
{
    int64_t n = 1;
    for (int i = 0; i < v->rank; i++)
        if (!kn_mul_fits(n, v->shape[i], &n)) return INT64_MAX;
    return n;
}

kn_value *kn_value_constant(kiln_arena *a, enum kn_dtype t, int rank, const int64_t *shape, const void *bytes, size_t n, bool splat)
{
    kn_value *v = kn_new(a, kn_value);
    kn_data *d = kn_new(a, kn_data);
    if (!v || !d) return NULL;
    *d = (kn_data){.bytes = bytes, .n = n, .splat = splat};
    *v = (kn_value){
        .name = "", .place = "", .typed = true, .shaped = true, .dtype = t, .rank = rank, .data = d, .producer = -1, .outer = -1};
    for (int i = 0; i < rank; i++) v->shape[i] = shape[i];
    return v;
}

bool kn_data_named(kn_data *d, const char *hex)
{
    static const char digits[] = "0123456789abcdef";
    if (strlen(hex) != 64 || strspn(hex, digits) != 64) return false;
    for (int i = 0; i < 32; i++) d->digest[i] = (uint8_t)((strchr(digits, hex[2 * i]) - digits) << 4 | (strchr(digits, hex[2 * i + 1]) - digits));
    d->by_digest = true;
    return true;
}

const kn_gattr *kn_node_attr(const kn_node *n, const char *name)
{
    for (int i = 0; i < n->nattrs; i++)
        if (!strcmp(n->attrs[i].name, name)) return &n->attrs[i];
    return NULL;
}

bool kn_node_is_view(const kn_node *n) { return !strcmp(n->op, "Reshape") && !*n->domain; }

int kn_graph_users(const kn_graph *g, int v, int *nodes, int cap)
{
    int n = 0;
    for (int i = g->values[v].producer + 1; i < g->nnodes; i++)
        for (int k = 0; k < g->nodes[i].ninputs; k++) {
            if (g->nodes[i].inputs[k] != v) continue;
            if (n < cap) nodes[n] = i;
            n++;
            break;
        }
    return n;
}

bool kn_graph_is_output(const kn_graph *g, int v)
{
    for (int i = 0; i < g->noutputs; i++)
        if (g->outputs[i] == v) return true;
    return false;
}

/* ---- elements ---- */

static double from_half(uint16_t h)
{
    int e = h >> 10 & 31;
    double m = h & 1023, s = h & 0x8000 ? -1 : 1;
    if (e == 31) return m != 0 ? NAN : s * INFINITY;
    return s * (e ? ldexp(1024 + m, e - 25) : ldexp(m, -24));
}

static double from_bf16(uint16_t b)
{
    uint32_t u = (uint32_t)b << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static const uint8_t *element(const kn_value *v, int64_t i)
{
    return v->data->bytes + (v->data->splat ? 0 : (size_t)i * (size_t)kn_dtype_bytes(v->dtype));
}

/* Integers of 1 to 8 bytes, little-endian. */
static int64_t load_int(const uint8_t *p, int bytes, bool sign)
{
    uint64_t u = 0;
    for (int k = 0; k < bytes; k++) u |= (uint64_t)p[k] << 8 * k;
    if (sign && bytes < 8 && u >> (8 * bytes - 1) & 1) u |= ~UINT64_C(0) << 8 * bytes;
    int64_t x;
    memcpy(&x, &u, 8);
    return x;
}

static double load_float(enum kn_dtype t, const uint8_t *p)
{
    float f;
    double x;
    if (t == KN_F32) {
        memcpy(&f, p, 4);
        return f;
    }
    if (t == KN_F64) {
        memcpy(&x, p, 8);
        return x;
    }
    if (kn_is_f8(t)) return kn_f8_value(t, *p);
    uint16_t h = (uint16_t)(p[0] | p[1] << 8);
    return t == KN_F16 ? from_half(h) : from_bf16(h);
}

double kn_value_double(const kn_value *v, int64_t i)
{
    const uint8_t *p = element(v, i);
    if (kn_dtype_class(v->dtype) == 'f') return load_float(v->dtype, p);
    return (double)load_int(p, kn_dtype_bytes(v->dtype), kn_dtype_class(v->dtype) == 'i');
}

int64_t kn_value_int(const kn_value *v, int64_t i)
{
    const uint8_t *p = element(v, i);
    if (kn_dtype_class(v->dtype) != 'f') return load_int(p, kn_dtype_bytes(v->dtype), kn_dtype_class(v->dtype) == 'i');
    double x = load_float(v->dtype, p);
    return x >= 9.2233720368547758e18 ? INT64_MAX : x <= -9.2233720368547758e18 ? INT64_MIN : isnan(x) ? 0 : (int64_t)x;
}

bool kn_value_alike(const kn_value *v, int64_t *out)
{
    int64_t n = kn_value_elems(v), stored = n && v->data && v->data->splat ? 1 : n;
    if (!n || !v->data || !v->data->bytes) return false;
    *out = kn_value_int(v, 0);
    for (int64_t i = 1; i < stored; i++)
        if (kn_value_int(v, i) != *out) return false;
    return true;
}

/* x rounded to `bits` significant bits with the smallest exponent `least` (of the last bit), half to even. */
static double rounded(double x, int bits, int least)
{
    int e;
    if (x - x != 0 || x == 0) return x;
    frexp(x, &e);
    int unit = e - bits < least ? least : e - bits;
    return ldexp(nearbyint(ldexp(x, -unit)), unit);
}

static uint16_t to_half(double x)
{
    uint16_t s = signbit(x) ? 0x8000 : 0;
    if (isnan(x)) return 0x7e00;
    x = fabs(rounded(x, 11, -24));
    if (x >= 65520) return (uint16_t)(s | 0x7c00);
    if (x < 0x1p-14) return (uint16_t)(s | (uint16_t)ldexp(x, 24));
    int e;
    double m = frexp(x, &e);
    return (uint16_t)(s | ((e + 14) << 10) | ((uint16_t)ldexp(m, 11) & 1023));
}

static uint16_t to_bf16(double x)
{
    if (isnan(x)) return 0x7fc0;
    float f = (float)rounded(x, 8, -133);
    uint32_t u;
    memcpy(&u, &f, 4);
    return (uint16_t)(u >> 16);
}

static void store_int(enum kn_dtype t, uint8_t *at, double x)
{
    int bytes = kn_dtype_bytes(t);
    bool sign = kn_dtype_class(t) == 'i';
    double top = ldexp(1, 8 * bytes - sign), low = sign ? -top : 0;
    uint64_t u;
    int64_t most = bytes == 8 ? INT64_MAX : (int64_t)top - 1, least = bytes == 8 ? INT64_MIN : (int64_t)low;
    int64_t i = isnan(x) ? 0 : x <= low ? least : x >= top ? most : (int64_t)x;
    memcpy(&u, &i, 8);
    for (int k = 0; k < bytes; k++) at[k] = (uint8_t)(u >> 8 * k);
}

void kn_element_compute(enum kn_dtype t, uint8_t *at, double x)
{
    bool whole = kn_dtype_class(t) == 'i' || kn_dtype_class(t) == 'u';
    if (whole && kn_dtype_bytes(t) < 8 && fabs(x) < 9e15) {
        uint64_t u = (uint64_t)(int64_t)x;
        for (int k = 0; k < kn_dtype_bytes(t); k++) at[k] = (uint8_t)(u >> 8 * k);
    } else {
        kn_element_store(t, at, x);
    }
}

void kn_element_store(enum kn_dtype t, uint8_t *at, double x)
{
    float f = (float)x;
    uint16_t h = t == KN_F16 ? to_half(x) : t == KN_BF16 ? to_bf16(x) : 0;
    if (t == KN_F32)
        memcpy(at, &f, 4);
    else if (t == KN_F64)
        memcpy(at, &x, 8);
    else if (t == KN_BOOL)
        *at = x != 0;
    else if (kn_is_f8(t))
        *at = kn_f8_bits(t, x);
    else if (kn_dtype_class(t) == 'f')
        at[0] = (uint8_t)h, at[1] = (uint8_t)(h >> 8);
    else
        store_int(t, at, x);
}
