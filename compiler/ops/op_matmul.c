/* MatMul: matrix product with NumPy's rules for vectors and batches. */
#include "ops/ops.h"

static kiln_status lower(kn_op_call *c)
{
    static const char *const plain[2] = {"", ""};
    kiln_status s = kn_op_matmul_product(c, plain, plain);
    if (s == KILN_OK) kn_op_end(c);
    return s;
}

const kn_op_spec kn_op_matmul = {.name = "MatMul", .min_inputs = 2, .max_inputs = 2, .input_names = {"A", "B"}, .dtypes = "fi",
                                 .about = "matrix product, NumPy rules for vectors and batches", .lower = lower};
