/* BitShift: bits moved, with NumPy broadcasting; what leaves is lost. By as many as the dtype has, or more, none is left, but the sign of what is
 * shifted to the right; ONNX has unsigned numbers only. */
#include "ops/ops.h"
#include <string.h>

static const kn_attr_spec attrs[] = {{"direction", 's', "mandatory", "LEFT or RIGHT"}, {NULL, 0, NULL, NULL}};

static kiln_status lower(kn_op_call *c)
{
    const char *way = kn_attr_str(c, "direction", "");
    bool left = !strcmp(way, "LEFT"), sign = kn_dtype_class(c->in[0].dtype) == 'i';
    int bits = 8 * kn_dtype_bytes(c->in[0].dtype);
    if (!left && strcmp(way, "RIGHT")) return kn_op_bad_attr(c, "direction", "\"%.40s\" is neither LEFT nor RIGHT", way);
    const char *t = kn_dtype_text(c->in[0].dtype);
    if (left) return kn_op_bits(c, kn_format(c->arena, "select(@ >= 0 && @ < %d, shl(#, @), cast(0, %s))", bits, t));
    if (sign) return kn_op_bits(c, kn_format(c->arena, "shr(#, select(@ >= 0 && @ < %d, @, cast(%d, %s)))", bits, bits - 1, t));
    return kn_op_bits(c, kn_format(c->arena, "select(@ < %d, shr(#, @), cast(0, %s))", bits, t));
}

const kn_op_spec kn_op_bitshift = {.name = "BitShift", .min_inputs = 2, .max_inputs = 2, .input_names = {"X", "Y"}, .dtypes = "iu",
                                   .about = "bits moved to one side, with NumPy broadcasting", .attrs = attrs, .lower = lower};
