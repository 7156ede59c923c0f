/* Gemm: alpha * A' * B' + beta * C, each of A and B transposed on demand, C broadcast. */
#include "ops/ops.h"

static const kn_attr_spec attrs[] = {{"alpha", 'f', "1.0", "factor of the product"},
                                     {"beta", 'f', "1.0", "factor of C"},
                                     {"transA", 'i', "0", "1: A is given as [K, M]"},
                                     {"transB", 'i', "0", "1: B is given as [N, K]"},
                                     {NULL, 0, NULL, NULL}};

/* " + C [* beta]" */
static void put_c(kn_op_call *c, double beta, bool cut)
{
    const kn_operand *x = &c->in[2];
    static const char *const axis[2] = {"M", "N"};
    kn_buf b;
    kn_buf_init(&b, c->arena);
    for (int i = 0; i < x->rank; i++) kn_putf(&b, "%s%s", i ? "," : "", x->shape[i] == 1 ? "0" : axis[2 - x->rank + i]);
    kiln_bytes index = kn_buf_take(&b);
    kn_put(&c->text, cut ? " + cast(" : " + ");
    kn_op_load(c, 2, index.p ? index.p : "");
    kn_put(&c->text, cut ? ",f64)" : "");
    if (beta == 1) return;
    kn_put(&c->text, " * ");
    kn_put_double(&c->text, beta);
}

/* y = t [* alpha] + C [* beta]; fractions of whole numbers are computed in f64, and cut off. */
static void epilogue(kn_op_call *c, double alpha, double beta)
{
    bool cut = kn_dtype_class(c->in[0].dtype) != 'f' && (alpha != 1 || beta != 1);
    kn_put(&c->text, cut ? "; y[M,N] = cast(cast(t[M,N],f64)" : "; y[M,N] = t[M,N]");
    if (alpha != 1) {
        kn_put(&c->text, " * ");
        kn_put_double(&c->text, alpha);
    }
    if (c->in[2].present) put_c(c, beta, cut);
    if (cut) kn_putf(&c->text, ",%s)", kn_dtype_text(c->in[0].dtype));
}

static kiln_status check(kn_op_call *c, bool ta, bool tb)
{
    for (int i = 0; i < 2; i++)
        if (c->in[i].rank != 2) return kn_op_bad_shape(c, i, "rank %d; Gemm wants matrices (rank 2)", c->in[i].rank);
    int64_t m = c->in[0].shape[ta], ka = c->in[0].shape[!ta], kb = c->in[1].shape[tb], n = c->in[1].shape[!tb];
    if (ka != kb) return kn_op_bad_shape(c, 1, "K is %lld in A but %lld in B", (long long)ka, (long long)kb);
    const kn_operand *x = &c->in[2];
    if (c->ninputs < 3 || !x->present) return KILN_OK;
    const int64_t want[2] = {m, n};
    if (x->rank > 2) return kn_op_bad_shape(c, 2, "rank %d; C must broadcast to [%lld, %lld]", x->rank, (long long)m, (long long)n);
    for (int i = 0; i < x->rank; i++)
        if (x->shape[i] != 1 && x->shape[i] != want[2 - x->rank + i])
            return kn_op_bad_shape(c, 2, "dimension %d is %lld; C must broadcast to [%lld, %lld]", i, (long long)x->shape[i], (long long)m,
                                   (long long)n);
    return KILN_OK;
}

static kiln_status lower(kn_op_call *c)
{
    bool ta = kn_attr_int(c, "transA", 0) != 0, tb = kn_attr_int(c, "transB", 0) != 0;
    double alpha = kn_attr_float(c, "alpha", 1), beta = kn_attr_float(c, "beta", 1);
    kiln_status s = check(c, ta, tb);
    if (s != KILN_OK) return s;
    bool tail = alpha != 1 || c->in[2].present;
    kn_put(&c->text, tail ? "t[M,N] +=! " : "y[M,N] +=! ");
    kn_op_load(c, 0, ta ? "K,M" : "M,K");
    kn_put(&c->text, " * ");
    kn_op_load(c, 1, tb ? "N,K" : "K,N");
    if (tail) {
        kn_put(&c->text, kn_op_wide(c));
        epilogue(c, alpha, beta);
    }
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_gemm = {.name = "Gemm", .min_inputs = 2, .max_inputs = 3, .input_names = {"A", "B", "C"}, .dtypes = "fi",
                               .about = "alpha * A * B + beta * C", .attrs = attrs, .lower = lower};
