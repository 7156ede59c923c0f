/* Peers with the CBLAS interface: products, convolutions through im2col (part of their time), and sums of rows or columns as a product with
 * a vector of ones. */
#include "load-tests/kernels/bench.h"
#include <stdlib.h>

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 }; /* CBLAS_ORDER, CBLAS_TRANSPOSE */
void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb, float beta,
                 float *c, int ldc);
void cblas_sgemv(int order, int ta, int m, int n, float alpha, const float *a, int lda, const float *x, int incx, float beta, float *y,
                 int incy);

typedef struct state {
    const bench_case *c;
    float *out, *ones, *patches;
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

/* A row of all pixels for every weight of a filter, one image at a time. */
static void unfold(const bench_case *c, const float *x, float *to)
{
    int64_t st = bench_get(c, "stride"), dil = bench_get(c, "dilation"), h = bench_get(c, "H"), w = bench_get(c, "W");
    int64_t kh = bench_get(c, "KH"), kw = bench_get(c, "KW"), ho = bench_get(c, "HO"), wo = bench_get(c, "WO");
    for (int64_t i = 0; i < bench_get(c, "C") * kh * kw; i++) {
        int64_t down = i / kw % kh * dil - bench_get(c, "PT"), right = i % kw * dil - bench_get(c, "PL");
        const float *plane = x + i / (kh * kw) * h * w;
        for (int64_t p = 0; p < ho; p++, to += wo) {
            int64_t row = p * st + down;
            for (int64_t q = 0; q < wo; q++) {
                int64_t at = q * st + right;
                to[q] = row >= 0 && row < h && at >= 0 && at < w ? plane[row * w + at] : 0;
            }
        }
    }
}

static void convolution(void *p)
{
    state *s = p;
    const bench_case *c = s->c;
    int64_t image = bench_get(c, "C") * bench_get(c, "H") * bench_get(c, "W");
    for (int i = 0; i < s->batch; i++) {
        const float *x = (const float *)c->in[0] + i * image;
        if (s->patches) { unfold(c, x, s->patches); }
        cblas_sgemm(ROW_MAJOR, NO_TRANS, NO_TRANS, s->m, s->n, s->k, 1, c->in[1], s->k, s->patches ? s->patches : x, s->n, 0,
                    s->out + (int64_t)i * s->m * s->n, s->n);
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
    free(s->patches);
    free(s);
}

static state *fresh(const bench_case *c)
{
    state *s = calloc(1, sizeof *s);
    s->c = c;
    s->out = aligned_alloc(4096, (size_t)(c->out_bytes + 8191) / 4096 * 4096);
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

static bool open_im2col(const bench_case *c, bench_run *run)
{
    if (!bench_is(c, "conv2d", "f32") || strcmp(c->layout, "NCHW") || bench_get(c, "group") != 1) { return false; }
    state *s = fresh(c);
    *run = (bench_run){s, convolution, fetch, drop};
    s->batch = (int)bench_get(c, "N");
    s->m = (int)bench_get(c, "F");
    s->n = (int)(bench_get(c, "HO") * bench_get(c, "WO"));
    s->k = (int)(bench_get(c, "C") * bench_get(c, "KH") * bench_get(c, "KW"));
    bool same = bench_get(c, "KH") * bench_get(c, "KW") == 1 && bench_get(c, "stride") == 1 && !bench_get(c, "PT") && !bench_get(c, "PL");
    s->patches = same ? NULL : malloc(sizeof *s->patches * (size_t)s->n * (size_t)s->k);
    return true;
}

const bench_form *bench_forms(void)
{
    static const bench_form forms[] = {{"", open_plain}, {"im2col", open_im2col}, {NULL, NULL}};
    return forms;
}
