/* Plans of a scatter: axes each value of which has a place of its own are tasks, threads and lanes; what the data send somewhere is walked in order
 * inside of them. */
#include "construct/cpu.h"

enum { SLICE = 1024, THREADS = 128 }; /* elements of a row that a task takes: a few lines of cache a value; threads of a block */

/* The axis that lanes or neighbouring threads lie along: that of the last dimension; -1: its index is of another kind. */
static int along(const kn_site *x, uint32_t owned)
{
    int rank = x->t->program->tensors[x->s->out].rank;
    const kn_expr *e = rank ? x->s->lhs[rank - 1] : NULL;
    if (!e || e->op != KN_OP_AXIS || !(owned >> e->u.axis & 1) || kn_cpu_extent(x, e->u.axis) < 2) return -1;
    for (int k = 0; k < rank - 1; k++)
        if (kn_axes_in(x->s->lhs[k]) >> e->u.axis & 1) return -1;
    return e->u.axis;
}

/* Owned axes first, then slices of the row, what is walked in order, and the slice. Steps that make the first `npar` loops tasks follow. */
static void put_plan(const kn_site *x, kn_plans *p, int n, const char *split, const char *inner, const char *outer, const char *kinds)
{
    uint32_t owned = kn_scatter_owned(x->t->program, x->s);
    kn_buf b;
    kn_buf_init(&b, p->a);
    kn_putf(&b, "%sreorder %s", split, x->name);
    for (int a = 0; a < x->s->naxes; a++)
        if ((owned >> a & 1) && a != n) kn_putf(&b, " %s.0", kn_cpu_axis(x, a));
    kn_putf(&b, "%s", outer);
    for (int a = 0; a < x->s->naxes; a++)
        if (!(owned >> a & 1)) kn_putf(&b, " %s.0", kn_cpu_axis(x, a));
    kn_putf(&b, "%s\n", inner);
    for (int a = 0; a < x->s->naxes; a++)
        if ((owned >> a & 1) && a != n) kn_putf(&b, x->hw->gpu ? "bind %s %s.0 grid\n" : "parallel %s %s.0\n", x->name, kn_cpu_axis(x, a));
    kn_putf(&b, "%s", kinds);
    kn_plans_try(p, &b);
}

static void on_cpu(const kn_site *x, kn_plans *p, int n)
{
    const char *axis = n < 0 ? "" : kn_cpu_axis(x, n);
    enum kn_dtype t = x->t->program->tensors[x->s->out].dtype;
    int64_t lanes = n < 0 ? 1 : kn_cpu_pow2(kn_cpu_extent(x, n), x->hw->vector_bytes / kn_dtype_bytes(t));
    int64_t slice = SLICE / lanes;
    if (lanes < 2) {
        put_plan(x, p, -1, "", "", "", "");
        return;
    }
    const char *split = kn_format(p->a, "split %s %s %lld %lld\n", x->name, axis, (long long)slice, (long long)lanes);
    const char *inner = kn_format(p->a, " %s.1 %s.2", axis, axis), *outer = kn_format(p->a, " %s.0", axis);
    const char *kinds = kn_format(p->a, "parallel %s %s.0\nvectorize %s %s.2\n", x->name, axis, x->name, axis);
    if (split && inner && outer && kinds) put_plan(x, p, n, split, inner, outer, kinds);
}

static void on_gpu(const kn_site *x, kn_plans *p, int n)
{
    uint32_t owned = kn_scatter_owned(x->t->program, x->s);
    for (int a = 0; a < x->s->naxes && n < 0; a++) /* threads that lie apart are threads all the same */
        if ((owned >> a & 1) && kn_cpu_extent(x, a) > 1) n = a;
    if (n < 0) return;
    const char *axis = kn_cpu_axis(x, n);
    const char *split = kn_format(p->a, "split %s %s %lld\n", x->name, axis, (long long)kn_cpu_pow2(kn_cpu_extent(x, n), THREADS));
    const char *outer = kn_format(p->a, " %s.0 %s.1", axis, axis);
    const char *kinds = kn_format(p->a, "bind %s %s.0 grid\nbind %s %s.1 thread\n", x->name, axis, x->name, axis);
    if (split && outer && kinds) put_plan(x, p, n, split, "", outer, kinds);
}

bool kn_plan_scatter(const kn_site *x, kn_plans *p)
{
    if (!x->s->scatter) return false;
    int n = along(x, kn_scatter_owned(x->t->program, x->s));
    if (x->hw->gpu) on_gpu(x, p, n);
    else on_cpu(x, p, n);
    return true;
}
