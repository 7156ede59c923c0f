/* TensorProto: dtype, dims and the elements, which are raw bytes in place, numbers to be narrowed, or a part of another file. */
#include "onnx/read.h"
#include <string.h>

typedef struct tensor {
    kn_onnx *r;
    const char *place, *name, *location;
    int64_t dims[KILN_MAX_RANK];
    int rank, type, external;
    bool deep, has_raw, packed; /* packed: two numbers a byte, the first in its low half */
    kn_field raw;
    int64_t offset, length; /* of external data; length -1: to the end */
    enum kn_dtype dtype;
    uint8_t *bytes; /* numbers stored as they come */
    int64_t elems, stored;
    kn_data named; /* external data that whoever runs the model has */
    char kind; /* of the numbers: 'f' float_data, 'd' double_data, 'i' integers */
} tensor;

static void add_dim(void *user, uint64_t bits)
{
    tensor *t = user;
    if (t->rank == KILN_MAX_RANK)
        t->deep = true;
    else
        memcpy(&t->dims[t->rank++], &bits, 8);
}

/* int32_data holds the bits of floats of 8 and 16 bits and of booleans; float_data and double_data hold numbers. */
static void add_number(void *user, uint64_t bits)
{
    tensor *t = user;
    size_t size = (size_t)kn_dtype_bytes(t->dtype);
    if (t->stored >= t->elems || !t->bytes) {
        t->stored++;
        return;
    }
    uint8_t *at = t->bytes + (size_t)t->stored++ * size;
    if (t->dtype == KN_BOOL)
        *at = bits != 0;
    else
        for (size_t k = 0; k < size; k++) at[k] = (uint8_t)(bits >> 8 * k);
}

static kiln_status read_entry(tensor *t, const kn_field *f)
{
    kn_wire w = kn_onnx_open(f);
    kn_field e;
    enum kn_wire_state state;
    const char *key = "", *value = "";
    while ((state = kn_wire_next(&w, &e)) == KN_WIRE_FIELD) {
        kiln_status s = e.number == 1   ? kn_onnx_text(t->r, &e, t->place, &key)
                        : e.number == 2 ? kn_onnx_text(t->r, &e, t->place, &value)
                                        : KILN_OK;
        if (s != KILN_OK) return s;
    }
    if (state == KN_WIRE_BROKEN) return kn_onnx_broken(t->r, t->place);
    int64_t number = 0;
    for (const char *p = value; *p >= '0' && *p <= '9' && number < INT64_MAX / 16; p++) number = number * 10 + (*p - '0');
    if (!strcmp(key, "location")) t->location = value;
    if (!strcmp(key, "offset")) t->offset = number;
    if (!strcmp(key, "length")) t->length = number;
    return KILN_OK;
}

static kiln_status refuse_external(tensor *t)
{
    kn_fail_at(t->r->d, KILN_REQUEST, t->place, "tensor \"%.64s\" keeps its data in another file, \"%.80s\"", t->name, t->location);
    kn_hint(t->r->d,
            "send the file along as a part of its name, name it sha256: and the digest of its bytes, or save the model with its weights inside");
    return t->r->d->status;
}

static kiln_status external_bytes(tensor *t, size_t want, const uint8_t **out)
{
    const kiln_graph_options *o = t->r->o;
    for (int i = 0; o && i < o->nparts; i++) {
        if (strcmp(o->parts[i].location, t->location)) continue;
        kiln_bytes part = o->parts[i].bytes;
        if ((uint64_t)t->offset > part.n || (t->length >= 0 && (uint64_t)t->length != want) || part.n - (size_t)t->offset < want)
            return kn_fail_at(t->r->d, KILN_REQUEST, t->place, "tensor \"%.64s\" needs %zu bytes at %lld of a part with %zu", t->name, want,
                              (long long)t->offset, part.n);
        *out = (const uint8_t *)part.p + t->offset;
        return KILN_OK;
    }
    bool whole = !t->offset && (t->length < 0 || (uint64_t)t->length == want);
    if (!strncmp(t->location, "sha256:", 7) && kn_data_named(&t->named, t->location + 7) && whole) return KILN_OK;
    return refuse_external(t);
}

bool kn_onnx_packed(int type) { return type == 21 || type == 22; }

/* Constants of 4 bits are constants of 8 from here on: what is made of them (DequantizeLinear) means the same. */
static kiln_status check_type(tensor *t)
{
    t->packed = kn_onnx_packed(t->type);
    if (t->packed) t->dtype = t->type == 21 ? KN_U8 : KN_I8;
    if (!t->packed && !kn_onnx_dtype(t->type, &t->dtype)) {
        kn_fail_at(t->r->d, KILN_DTYPE, t->place, "tensor \"%.64s\" is of dtype %s (%d)", t->name, kn_onnx_dtype_name(t->type), t->type);
        kn_hint(t->r->d, "float, double, float16, bfloat16, float8e4m3fn, float8e5m2, int64, int32, int16, int8, uint8, bool and constants of int4 "
                         "and uint4 are supported");
        return t->r->d->status;
    }
    if (t->deep) return kn_fail_at(t->r->d, KILN_LIMIT, t->place, "tensor \"%.64s\" has more than %d dimensions", t->name, KILN_MAX_RANK);
    t->elems = 1;
    for (int i = 0; i < t->rank; i++)
        if (t->dims[i] < 0 || t->dims[i] > KILN_MAX_EXTENT || !kn_mul_fits(t->elems, t->dims[i], &t->elems) || t->elems > KILN_MAX_ELEMENTS)
            return kn_fail_at(t->r->d, KILN_LIMIT, kn_onnx_item(t->r, t->place, "dims", i), "dimension %d of tensor \"%.64s\" is %lld", i,
                              t->name, (long long)t->dims[i]);
    return KILN_OK;
}

/* Everything but the numbers, which need the dtype that may stand behind them. */
static kiln_status read_head(tensor *t, const kn_field *f)
{
    kn_wire w = kn_onnx_open(f);
    kn_field x;
    enum kn_wire_state state;
    while ((state = kn_wire_next(&w, &x)) == KN_WIRE_FIELD) {
        kiln_status s = KILN_OK;
        if ((x.number == 2 || x.number == 14) && x.type != 0)
            return kn_onnx_wrong(t->r, t->place, x.number == 2 ? "data_type" : "data_location");
        if (x.number == 1 && !kn_wire_numbers(&x, 0, add_dim, t))
            s = kn_onnx_wrong(t->r, t->place, "dims");
        else if (x.number == 2)
            t->type = x.u > 1000 ? -1 : (int)x.u;
        else if (x.number == 8)
            s = kn_onnx_text(t->r, &x, t->place, &t->name);
        else if (x.number == 9 && x.type != 2)
            s = kn_onnx_wrong(t->r, t->place, "raw_data");
        else if (x.number == 9)
            t->raw = x, t->has_raw = true;
        else if (x.number == 13)
            s = x.type == 2 ? read_entry(t, &x) : kn_onnx_wrong(t->r, t->place, "external_data");
        else if (x.number == 14)
            t->external = x.u == 1;
        if (s != KILN_OK) return s;
    }
    return state == KN_WIRE_BROKEN ? kn_onnx_broken(t->r, t->place) : check_type(t);
}

static kiln_status read_numbers(tensor *t, const kn_field *f)
{
    static const struct {
        uint32_t number;
        int size;
        const char *name, *dtypes;
    } lists[] = {{4, 4, "float_data", "f32"},
                 {5, 0, "int32_data", "i32 i16 i8 u8 bool f16 bf16 f8e4m3 f8e5m2"},
                 {7, 0, "int64_data", "i64"},
                 {10, 8, "double_data", "f64"}};
    kn_wire w = kn_onnx_open(f);
    kn_field x;
    int64_t bytes = t->elems * kn_dtype_bytes(t->dtype);
    if ((uint64_t)t->elems > f->n) /* every number takes a byte or more: no room is taken for what is not there */
        return kn_fail_at(t->r->d, KILN_REQUEST, t->place, "tensor \"%.64s\" has %lld elements but not their data", t->name,
                          (long long)t->elems);
    if (!(t->bytes = kn_alloc(t->r->a, (size_t)bytes + 1))) return kn_onnx_dry(t->r);
    while (kn_wire_next(&w, &x) == KN_WIRE_FIELD)
        for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
            if (x.number != lists[i].number) continue;
            const char *fits = strstr(lists[i].dtypes, kn_dtype_text(t->dtype));
            if (!fits || !kn_wire_numbers(&x, lists[i].size, add_number, t)) return kn_onnx_wrong(t->r, t->place, lists[i].name);
        }
    if (t->stored != t->elems)
        return kn_fail_at(t->r->d, KILN_REQUEST, t->place, "tensor \"%.64s\" has %lld numbers for %lld elements", t->name,
                          (long long)t->stored, (long long)t->elems);
    return KILN_OK;
}

/* The numbers of 4 bits in n bytes, each in a byte of its own. */
static const uint8_t *unpacked(tensor *t, const uint8_t *from)
{
    uint8_t *to = kn_alloc(t->r->a, (size_t)t->elems + 1);
    for (int64_t i = 0; to && i < t->elems; i++) {
        uint8_t x = i & 1 ? from[i / 2] >> 4 : from[i / 2] & 15;
        to[i] = t->dtype == KN_I8 && x > 7 ? (uint8_t)(x - 16) : x;
    }
    return to;
}

kiln_status kn_onnx_read_tensor(kn_onnx *r, const kn_field *f, const char *place, kn_value *out)
{
    tensor t = {.r = r, .place = place, .name = "", .location = "", .length = -1};
    if (f->type != 2) return kn_onnx_broken(r, place);
    kiln_status s = read_head(&t, f);
    if (s != KILN_OK) return s;
    int64_t elems = t.elems;
    if (t.packed) t.elems = (elems + 1) / 2;
    size_t want = (size_t)t.elems * (size_t)kn_dtype_bytes(t.dtype);
    const uint8_t *bytes = t.raw.p;
    if (t.external)
        s = external_bytes(&t, want, &bytes);
    else if (t.has_raw && t.raw.n != want)
        return kn_fail_at(r->d, KILN_REQUEST, place, "tensor \"%.64s\" has %zu bytes of data; %zu are right", t.name, t.raw.n, want);
    else if (!t.has_raw && (s = read_numbers(&t, f)) == KILN_OK)
        bytes = t.bytes;
    if (s != KILN_OK) return s;
    if (t.packed) {
        if (t.named.by_digest) return refuse_external(&t);
        t.elems = elems;
        want = (size_t)elems;
        if (!(bytes = unpacked(&t, bytes))) return kn_onnx_dry(r);
    }
    kn_value *v = kn_value_constant(r->a, t.dtype, t.rank, t.dims, bytes, want, false);
    if (!v) return kn_onnx_dry(r);
    if (t.named.by_digest) {
        t.named.n = want;
        *(kn_data *)(uintptr_t)v->data = t.named;
    }
    *out = *v;
    out->name = t.name;
    out->place = place;
    return KILN_OK;
}

kiln_status kn_onnx_tensor(kiln_arena *a, kiln_bytes file, kn_value *out, kiln_diag *d)
{
    kn_onnx r = {.a = a, .d = d};
    kn_field f = {.type = 2, .p = (const uint8_t *)file.p, .n = file.n};
    return kn_onnx_read_tensor(&r, &f, "", out);
}
