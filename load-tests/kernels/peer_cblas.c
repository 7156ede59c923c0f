/* Peers with the CBLAS interface: products, and sums of rows or columns as a product with a vector of ones. */
#include "load-tests/kernels/bench.h"
#include <stdlib.h>

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 }; /* CBLAS_ORDER, CBLAS_TRANSPOSE */
void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb, float beta,
                 float *c, int ldc);
void cblas_sgemv(int order, int ta, int m, int n, float alpha, const float *a, int lda, const float *x, int incx, float beta, float *y,
                 int incy);

typedef struct state {
    const bench_case *c;
    float *out, *ones;
    int batch, m, n, k;
    bool columns;
} state;

static void product(void *p)
{
    state *s = p;
    for (int i = 0; i < s->batch; i++) {
        size_t mk = (size_t)s->m * (size_t)s->k, kn = (size_t)s->k * (size_t)s->n, mn = (size_t)s->m * (size_t)s->n;
        const float *a = (const float *)s->c->in[0] + mk * (size_t)i, *b = (const float *)s->c->in[1] + kn * (size_t)i;
        float *y = s->out + mn * (size_t)i;
        if (s->m == 1) {
            cblas_sgemv(ROW_MAJOR, TRANS, s->k, s->n, 1, b, s->n, a, 1, 0, y, 1);
        } else {
            cblas_sgemm(ROW_MAJOR, NO_TRANS, NO_TRANS, s->m, s->n, s->k, 1, a, s->k, b, s->n, 0, y, s->n);
        }
    }
}

static void sum(void *p)
{
    state *s = p;
    cblas_sgemv(ROW_MAJOR, s->columns ? TRANS : NO_TRANS, s->m, s->n, 1, s->c->in[0], s->n, s->ones, 1, 0, s->out, 1);
}

static void fetch(void *p, void *out) { memcpy(out, ((state *)p)->out, (size_t)((state *)p)->c->out_bytes); }

static void drop(void *p)
{
    state *s = p;
    free(s->out);
    free(s->ones);
    free(s);
}

static state *fresh(const bench_case *c)
{
    state *s = calloc(1, sizeof *s);
    s->c = c;
    s->out = aligned_alloc(64, (size_t)(c->out_bytes + 127) / 64 * 64);
    return s;
}

static bool open_plain(const bench_case *c, bench_run *run)
{
    bool sums = bench_is(c, "reduce_sum", "f32");
    if (!sums && !bench_is(c, "matmul", "f32") && !bench_is(c, "batch_matmul", "f32")) { return false; }
    state *s = fresh(c);
    *run = (bench_run){s, sums ? sum : product, fetch, drop};
    s->batch = bench_get(c, "B") ? (int)bench_get(c, "B") : 1;
    s->m = (int)bench_get(c, sums ? "outer" : "M");
    s->n = (int)bench_get(c, sums ? "inner" : "N");
    s->k = (int)bench_get(c, "K");
    s->columns = bench_get(c, "axis") == 0;
    if (sums) {
        s->ones = malloc(sizeof *s->ones * (size_t)(s->m > s->n ? s->m : s->n));
        for (int i = 0; i < s->m || i < s->n; i++) { s->ones[i] = 1; }
    }
    return true;
}

const bench_form *bench_forms(void)
{
    static const bench_form forms[] = {{"", open_plain}, {NULL, NULL}};
    return forms;
}
