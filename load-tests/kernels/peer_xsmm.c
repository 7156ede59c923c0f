/* LIBXSMM: one kernel compiled at run time for the shape, plain row-major operands; it does not thread itself. */
#include "load-tests/kernels/bench.h"
#include <libxsmm.h>
#include <stdlib.h>

typedef struct state {
    const bench_case *c;
    libxsmm_smmfunction run;
    float *out;
    int batch;
    size_t mk, kn, mn;
} state;

/* Its matrices are column-major, so the operands change places. */
static void call(void *p)
{
    const state *s = p;
    const float *a = s->c->in[0], *b = s->c->in[1];
    for (size_t i = 0; i < (size_t)s->batch; i++) { s->run(b + s->kn * i, a + s->mk * i, s->out + s->mn * i); }
}

static void fetch(void *p, void *out) { memcpy(out, ((state *)p)->out, (size_t)((state *)p)->c->out_bytes); }

static void drop(void *p)
{
    free(((state *)p)->out);
    free(p);
}

static bool open_plain(const bench_case *c, bench_run *run)
{
    int m = (int)bench_get(c, "M"), n = (int)bench_get(c, "N"), k = (int)bench_get(c, "K");
    float one = 1, zero = 0;
    if ((!bench_is(c, "matmul", "f32") && !bench_is(c, "batch_matmul", "f32")) || c->threads > 1) { return false; }
    libxsmm_smmfunction f = libxsmm_smmdispatch(n, m, k, &n, &k, &n, &one, &zero, NULL, NULL);
    if (!f) { return false; }
    state *s = calloc(1, sizeof *s);
    *s = (state){.c = c, .run = f, .batch = bench_get(c, "B") ? (int)bench_get(c, "B") : 1};
    s->mk = (size_t)m * (size_t)k, s->kn = (size_t)k * (size_t)n, s->mn = (size_t)m * (size_t)n;
    s->out = aligned_alloc(4096, (size_t)(c->out_bytes + 8191) / 4096 * 4096);
    *run = (bench_run){s, call, fetch, drop};
    return true;
}

const bench_form *bench_forms(void)
{
    static const bench_form forms[] = {{"", open_plain}, {NULL, NULL}};
    return forms;
}
