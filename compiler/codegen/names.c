/* Names and types of the printed text. */
#include "codegen/gen.h"
#include <string.h>

void kn_put_clean(kn_buf *b, const char *s)
{
    char t[KILN_MAX_NAME_BYTES + 1];
    size_t n = 0;
    for (; s && *s && n < sizeof t - 1; s++) {
        bool letter = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z');
        bool digit = *s >= '0' && *s <= '9';
        t[n] = letter || (digit && n) ? *s : '_';
        n++;
    }
    if (!n || t[0] == '_') kn_put(b, "x");
    kn_putn(b, t, n);
}

void kn_put_var(kn_gen *g, int var)
{
    kn_put_clean(&g->out, g->p->var_names[var]);
    kn_putf(&g->out, "_v%d", var);
}

void kn_put_buffer(kn_gen *g, int buffer)
{
    kn_put_clean(&g->out, g->p->buffers[buffer].name);
    kn_putf(&g->out, "_b%d", buffer);
}

bool kn_is_small_float(enum kn_dtype t) { return t == KN_F16 || t == KN_BF16 || kn_is_f8(t); }
bool kn_is_float(enum kn_dtype t) { return kn_dtype_class(t) == 'f'; }
const char *kn_value_type(enum kn_dtype t) { return kn_is_small_float(t) ? "f32" : t == KN_BOOL ? "u8" : kn_dtype_text(t); }
const char *kn_storage_type(enum kn_dtype t) { return kn_is_f8(t) ? "u8" : kn_is_small_float(t) ? "u16" : kn_value_type(t); }
int kn_value_bits(enum kn_dtype t) { return kn_is_small_float(t) ? 32 : 8 * kn_dtype_bytes(t); }

const char *kn_mask_type(enum kn_dtype t)
{
    int bits = kn_value_bits(t);
    return bits == 64 ? "i64" : bits == 32 ? "i32" : bits == 16 ? "i16" : "i8";
}

int kn_lane_class(int lanes)
{
    int k = 0;
    if (lanes < 1 || lanes > KN_MAX_LANES || (lanes & (lanes - 1))) return -1;
    while (lanes >> (k + 1)) k++;
    return k;
}

static int lane_class(kn_gen *g, int lanes)
{
    int k = kn_lane_class(lanes);
    if (k < 0) {
        kn_gen_refuse(g, KILN_UNSUPPORTED, "vectors have 2, 4, 8 .. 128 lanes");
        return 0;
    }
    g->lanes[k] = true;
    return k;
}

void kn_put_vector_type(kn_gen *g, const char *element, int lanes)
{
    lane_class(g, lanes);
    kn_putf(&g->out, "%sx%d", element, lanes);
}

void kn_put_helper(kn_gen *g, enum kn_snippet s, const char *name, enum kn_dtype t, int lanes)
{
    /* of the rows NAME, NAME_BF, NAME_E4, NAME_E5 the dtype's */
    if (s == KN_SN_WIDEN || s == KN_SN_NARROW || s == KN_SN_ROUND || s == KN_SN_PAIR)
        s = (enum kn_snippet)(s + (t == KN_BF16 ? 1 : t == KN_F8E4M3 ? 2 : t == KN_F8E5M2 ? 3 : 0));
    g->need[s][t][lane_class(g, lanes < 1 ? 1 : lanes)] = true;
    kn_putf(&g->out, "k_%s_%s", name, kn_dtype_text(t));
    if (lanes > 1) kn_putf(&g->out, "x%d", lanes);
}
