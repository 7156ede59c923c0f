/* MatMulInteger: product of 8-bit matrices in 32-bit integers, each less its zero point. */
#include "ops/ops.h"

/* " - zero point)": one number, or one for each row of A or column of B. */
static kiln_status zero_point(kn_op_call *c, int input, const char *axis, const char **before, const char **after)
{
    const kn_operand *z = &c->in[input], *x = &c->in[input - 2];
    *before = z->present ? "(cast(" : "cast(";
    *after = ",i32)";
    if (!z->present) return KILN_OK;
    char pointer[] = "/inputs/2/dtype";
    pointer[8] = (char)('0' + input);
    if (z->dtype != x->dtype)
        return kn_fail_at(c->d, KILN_DTYPE, pointer, "the zero point is %s but its matrix %s", kn_dtype_text(z->dtype), kn_dtype_text(x->dtype));
    int64_t lines = x->rank > 1 ? x->shape[x->rank - (input == 2 ? 2 : 1)] : 1;
    bool one = !z->rank || (z->rank == 1 && z->shape[0] == 1);
    if (!one && (z->rank != 1 || z->shape[0] != lines)) return kn_op_bad_shape(c, input, "one number or [%lld] is right", (long long)lines);
    *after = kn_format(c->arena, ",i32) - cast(x%d[%s],i32))", input, !z->rank ? "" : one ? "0" : axis);
    return KILN_OK;
}

static kiln_status lower(kn_op_call *c)
{
    const char *before[2], *after[2];
    for (int i = 0; i < 2; i++)
        if (kn_dtype_bytes(c->in[i].dtype) != 1)
            return kn_fail_at(c->d, KILN_DTYPE, i ? "/inputs/1/dtype" : "/inputs/0/dtype", "MatMulInteger takes i8 and u8");
    kiln_status s = zero_point(c, 2, "M", &before[0], &after[0]);
    if (s == KILN_OK) s = zero_point(c, 3, "N", &before[1], &after[1]);
    return s == KILN_OK ? kn_op_matmul_product(c, before, after) : s;
}

const kn_op_spec kn_op_matmulinteger = {.name = "MatMulInteger", .min_inputs = 2, .max_inputs = 4,
                                        .input_names = {"A", "B", "a_zero_point", "b_zero_point"}, .dtypes = "iu",
                                        .input_dtypes = {NULL, "iu", "iu", "iu"},
                                        .about = "matrix product of i8 and u8 in i32, less zero points", .lower = lower};
