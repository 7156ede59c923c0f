/* An ONNX file without its large weights: they are named by their SHA-256 in place of external data, "sha256:" and 64 digits, so that a service plans
 * and compiles a model of gigabytes from what is left, a few KiB. */
#include "onnx/onnx.h"
#include "onnx/wire.h"

enum { MODEL_GRAPH = 7, GRAPH_INITIALIZER = 5, TENSOR_TYPE = 2, TENSOR_RAW = 9, TENSOR_EXTERNAL = 13, TENSOR_LOCATION = 14, BYTES = 2 };

typedef struct slimmer {
    kiln_arena *a;
    size_t least;
    kiln_onnx_weight *all;
    int n, cap;
} slimmer;

static void put_varint(kn_buf *b, uint64_t x)
{
    char bytes[10];
    size_t n = 0;
    for (; x > 127; x >>= 7) bytes[n++] = (char)((x & 127) | 128);
    bytes[n++] = (char)x;
    kn_putn(b, bytes, n);
}

static void put_field(kn_buf *b, int number, kiln_bytes x)
{
    put_varint(b, (uint64_t)number << 3 | BYTES);
    put_varint(b, x.n);
    kn_putn(b, x.p, x.n);
}

static bool add(slimmer *s, const kn_field *raw, kiln_onnx_weight **out)
{
    uint8_t digest[32];
    if (s->n == s->cap) {
        kiln_onnx_weight *more = kn_array(s->a, kiln_onnx_weight, 2 * (size_t)s->cap + 16);
        if (!more) return false;
        for (int i = 0; i < s->n; i++) more[i] = s->all[i];
        s->all = more;
        s->cap = 2 * s->cap + 16;
    }
    *out = &s->all[s->n++];
    (*out)->bytes = (kiln_bytes){(const char *)raw->p, raw->n};
    kiln_sha256(raw->p, raw->n, digest);
    kiln_hex(digest, 32, (*out)->sha256);
    return true;
}

/* StringStringEntryProto. */
static void put_entry(slimmer *s, kn_buf *b, const char *key, const char *value)
{
    kn_buf e;
    kn_buf_init(&e, s->a);
    put_field(&e, 1, (kiln_bytes){key, __builtin_strlen(key)});
    put_field(&e, 2, (kiln_bytes){value, __builtin_strlen(value)});
    put_field(b, TENSOR_EXTERNAL, kn_buf_take(&e));
}

/* Tensors of 4 bits keep their bytes: they are taken apart when the model is read. */
static bool is_packed(const kn_field *tensor)
{
    kn_wire w = {tensor->p, tensor->p + tensor->n};
    kn_field f;
    while (kn_wire_next(&w, &f) == KN_WIRE_FIELD)
        if (f.number == TENSOR_TYPE && f.type == 0 && kn_onnx_packed((int)(f.u & 0xffff))) return true;
    return false;
}

/* The same message without the bytes of what is large; level 0: the model, 1: its graph, 2: a tensor. Broken ones stay as they are: whoever reads
 * them says where. */
static bool copy(slimmer *s, kiln_bytes message, int level, kn_buf *b)
{
    static const uint32_t inner[] = {MODEL_GRAPH, GRAPH_INITIALIZER, TENSOR_RAW};
    kn_wire w = {(const uint8_t *)message.p, (const uint8_t *)message.p + message.n};
    kn_field f;
    for (;;) {
        const uint8_t *from = w.p;
        enum kn_wire_state state = kn_wire_next(&w, &f);
        if (state == KN_WIRE_END) return true;
        bool here = state == KN_WIRE_FIELD && f.type == BYTES && f.number == inner[level] && f.n >= s->least && (level != 1 || !is_packed(&f));
        if (!here) kn_putn(b, (const char *)from, (size_t)((state == KN_WIRE_FIELD ? w.p : w.end) - from));
        if (state == KN_WIRE_BROKEN) return true;
        if (!here) continue;
        if (level < 2) {
            kn_buf more;
            kn_buf_init(&more, s->a);
            if (!copy(s, (kiln_bytes){(const char *)f.p, f.n}, level + 1, &more)) return false;
            put_field(b, (int)f.number, kn_buf_take(&more));
            continue;
        }
        kiln_onnx_weight *x;
        const char *location = add(s, &f, &x) ? kn_format(s->a, "sha256:%s", x->sha256) : NULL;
        if (!location) return false;
        put_entry(s, b, "location", location);
        put_varint(b, TENSOR_LOCATION << 3);
        put_varint(b, 1);
    }
}

kiln_status kiln_onnx_slim(kiln_arena *a, kiln_bytes model, size_t least, kiln_bytes *out, const kiln_onnx_weight **weights, int *n)
{
    slimmer s = {.a = a, .least = least ? least : 1};
    kn_buf b;
    kn_buf_init(&b, a);
    bool ok = copy(&s, model, 0, &b);
    *out = kn_buf_take(&b);
    *weights = s.all;
    *n = s.n;
    return ok && out->p && !kn_arena_dry(a) ? KILN_OK : KILN_MEMORY;
}
