/* Protobuf's wire format: tag = field number * 8 + type, then the value (protobuf.dev, "Encoding"). */
#include "onnx/wire.h"
#include <string.h>

bool kn_wire_varint(kn_wire *w, uint64_t *out)
{
    uint64_t x = 0;
    for (int shift = 0; shift < 64 && w->p < w->end; shift += 7) {
        uint8_t b = *w->p++;
        if (shift == 63 && b > 1) return false;
        x |= (uint64_t)(b & 127) << shift;
        if (b < 128) {
            *out = x;
            return true;
        }
    }
    return false;
}

static uint64_t little(const uint8_t *p, int n)
{
    uint64_t x = 0;
    for (int i = 0; i < n; i++) x |= (uint64_t)p[i] << 8 * i;
    return x;
}

enum kn_wire_state kn_wire_next(kn_wire *w, kn_field *f)
{
    uint64_t tag, n;
    if (w->p == w->end) return KN_WIRE_END;
    if (!kn_wire_varint(w, &tag) || tag >> 3 == 0 || tag >> 3 > 536870911) return KN_WIRE_BROKEN;
    *f = (kn_field){.number = (uint32_t)(tag >> 3), .type = (int)(tag & 7)};
    if (f->type == 0) return kn_wire_varint(w, &f->u) ? KN_WIRE_FIELD : KN_WIRE_BROKEN;
    if (f->type == 2) {
        if (!kn_wire_varint(w, &n) || n > (uint64_t)(w->end - w->p)) return KN_WIRE_BROKEN;
    } else if (f->type == 1 || f->type == 5) {
        n = f->type == 1 ? 8 : 4;
        if (n > (uint64_t)(w->end - w->p)) return KN_WIRE_BROKEN;
        f->u = little(w->p, (int)n);
    } else {
        return KN_WIRE_BROKEN;
    }
    f->p = w->p;
    f->n = (size_t)n;
    w->p += n;
    return KN_WIRE_FIELD;
}

bool kn_wire_numbers(const kn_field *f, int size, kn_wire_each each, void *user)
{
    if (f->type != 2) {
        bool fits = f->type == (size == 0 ? 0 : size == 4 ? 5 : 1);
        if (fits) each(user, f->u);
        return fits;
    }
    kn_wire w = {f->p, f->p + f->n};
    if (size && f->n % (size_t)size) return false;
    while (w.p < w.end) {
        uint64_t x;
        if (!size) {
            if (!kn_wire_varint(&w, &x)) return false;
        } else {
            x = little(w.p, size);
            w.p += size;
        }
        each(user, x);
    }
    return true;
}
