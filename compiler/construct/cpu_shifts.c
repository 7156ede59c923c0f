/* Sums over all places of planes for a few shifts of them against each other (the gradient of a convolution by its weights): neither lanes along the
 * shifts nor places made one axis leave them much to do. The other factor is copied with its channels beside each other, so that lanes run along
 * these, rows of shifts and of the planes' channels meet them, and the results are turned as they are written out; lanes of groups are a group's
 * (8 gradients in 2 to 16 groups: 2.3 times as fast as with lanes along the places). */
#include "construct/cpu.h"
#include "te/expr.h"

bool kn_cpu_few_shifts(const kn_site *x, const kn_expr *load, int d, int axis)
{
    kn_affine f;
    int64_t lo, hi, most;
    if (!kn_affine_of(load->args[d], &f) || f.coef[axis] < 1) return false;
    if (!kn_expr_range(load->args[d], kn_stmt_range, (void *)(uintptr_t)x->s, &lo, &hi)) return false;
    return kn_mul_fits(2 * f.coef[axis], kn_cpu_extent(x, axis), &most) && hi - lo >= most;
}

/* The planes are shifted along n: it stands beside places that the sum goes over. */
static bool is_shifted(const kn_site *x, const kn_expr *load)
{
    uint32_t summed = (1u << x->s->naxes) - (1u << x->s->nspatial);
    for (int d = 0; d < load->nargs; d++) {
        uint32_t in = kn_axes_in(load->args[d]);
        if ((in >> x->n & 1) && (in & summed)) return kn_cpu_few_shifts(x, load, d, x->n);
    }
    return false;
}

/* The longest axis of results that this factor alone has; -1: none fills a vector. */
static int channels_of(const kn_site *x, int w)
{
    int best = -1;
    int64_t most = x->hw->vector_bytes / kn_cpu_acc_bytes(x) - 1;
    for (int i = 0; i < x->s->nspatial; i++) {
        if (!(x->load[w].axes >> i & 1) || x->load[1 - w].axes >> i & 1 || kn_cpu_extent(x, i) <= most) continue;
        best = i;
        most = kn_cpu_extent(x, i);
    }
    return best;
}

/* The dimension along which the axis goes element by element, alone or behind axes that both factors have (groups); -1: there is none. */
static int dim_at(const kn_site *x, kn_expr *const *index, int rank, int axis)
{
    uint32_t both = x->load[0].axes & x->load[1].axes;
    for (int d = 0; d < rank; d++) {
        kn_affine f;
        uint32_t in = kn_axes_in(index[d]);
        if (in >> axis & 1) return !(in & ~(1u << axis) & ~both) && kn_affine_of(index[d], &f) && f.coef[axis] == 1 ? d : -1;
    }
    return -1;
}

const char *kn_cpu_shifts(kiln_arena *a, const kn_site *x, const char *factor, const char *results)
{
    const kn_expr *loads[2];
    const kn_program *p = x->t->program;
    if (x->hw->gpu || !x->contraction || x->s->scatter || x->nloads != 2 || kn_loads(x->s->body, loads, 2) != 2 || x->n < 0) return NULL;
    for (int w = 0; w < 2; w++) {
        int rank = p->tensors[x->s->out].rank, lanes = channels_of(x, w);
        if (lanes < 0 || kn_dtype_bytes(loads[w]->dtype) < 4 || !is_shifted(x, loads[1 - w])) continue;
        int to = dim_at(x, x->s->lhs, rank, lanes), from = dim_at(x, loads[w]->args, loads[w]->nargs, lanes);
        if (to < 0 || from < 0 || loads[w]->padded) continue;
        kn_buf b;
        kn_buf_init(&b, a);
        kn_putf(&b, "copy %s %d %s\n", x->name, w, factor);
        if (from < loads[w]->nargs - 1) kn_cpu_put_last(&b, factor, loads[w]->nargs, from);
        kn_putf(&b, "cache_write %s %s\n", x->name, results);
        if (to < rank - 1) kn_cpu_put_last(&b, results, rank, to);
        return kn_buf_take(&b).p;
    }
    return NULL;
}
