/* Convolutions whose terms and results lie beside each other (channels last), with so few results that lanes along these would be idle: the terms,
 * and the results, get a place in front of the planes that the window goes over, so that lanes run along these. */
#include "construct/cpu.h"
#include "te/expr.h"

/* The first dimension of the load in which places stand beside terms: a window slides along it; -1: none does. */
static int first_slid(const kn_site *x, const kn_expr *load)
{
    uint32_t places = (1u << x->s->nspatial) - 1;
    for (int d = 0; d < load->nargs; d++)
        if ((kn_axes_in(load->args[d]) & places) && (kn_axes_in(load->args[d]) & ~places)) return d;
    return -1;
}

/* Results of one image, or whatever else stands outside of the places; 0: too many to count. */
static int64_t places_of(const kn_site *x, const kn_expr *load, int from)
{
    int64_t n = 1;
    uint32_t in = 0;
    for (int d = from; d < load->nargs; d++) in |= kn_axes_in(load->args[d]);
    for (int i = 0; i < x->s->nspatial; i++)
        if ((in >> i & 1) && !kn_mul_fits(n, kn_cpu_extent(x, i), &n)) return 0;
    return n;
}

/* Lanes along so few results would be idle for longer than it takes to turn what the window goes over, and what lanes along the places waste: ends of
 * rows, and with few registers two loads a multiply-add instead of one (3x3 of 64x56x56 to 20, 18, 12, 11, 5: 1.4, 1.15, 1.1, 1.05, 0.8 times as
 * long as with idle lanes). Places that step are copied once more, apart (5x5 by 2, 70x63x63 to 4, 9, 11: 1.1 times as long). */
static bool wastes_results(const kn_site *x, const kn_expr *load, int slid)
{
    const kn_tensor *planes = &x->t->program->tensors[load->u.tensor], *out = &x->t->program->tensors[x->s->out];
    int64_t lanes = x->hw->vector_bytes / kn_cpu_acc_bytes(x), n = kn_cpu_extent(x, x->n), places = places_of(x, load, slid);
    const double twice = kn_hw_few_registers(x->hw) ? 0.2 : 0; /* of what the products take: tiles of few sums */
    double flops = 2, reach = 0, row = 1, gflops = kn_hw_peak_gflops(x->hw, out->dtype);
    kn_affine f;
    if (places < 1 || gflops <= 0 || !kn_affine_of(load->args[load->nargs - 2], &f)) return false;
    for (int r = x->s->nspatial; r < x->s->naxes; r++) reach += (double)((f.coef[r] < 0 ? -f.coef[r] : f.coef[r]) * (x->s->axes[r].extent - 1));
    for (int i = 0; i < x->s->nspatial; i++) {
        if (f.coef[i] > 1 && kn_hw_few_registers(x->hw)) return false;
        if (f.coef[i] > 0) row = (double)(f.coef[i] * kn_cpu_extent(x, i));
    }
    for (int i = 0; i < x->s->naxes; i++) flops *= (double)x->s->axes[i].extent;
    /* half a vector alone waits for what each of its products reads */
    double idle = n < lanes ? (double)lanes / (double)n - 1 : kn_cpu_idle(x, n, lanes), at_end = kn_cpu_idle(x, places, lanes);
    return (idle - twice - reach / row - at_end) * flops / gflops > kn_cpu_time_of_turning(x, kn_cpu_bytes(planes) + kn_cpu_bytes(out));
}

static void put_before(kn_buf *b, const char *tensor, int rank, int last, int before)
{
    kn_putf(b, "transform_layout %s", tensor);
    for (int d = 0; d < rank; d++) {
        if (d == before) kn_putf(b, " %d", last);
        if (d != last) kn_putf(b, " %d", d);
    }
    kn_put(b, "\n");
}

const char *kn_cpu_planar(kiln_arena *a, const kn_site *x, const char *plane, const char *results)
{
    const kn_expr *loads[2];
    const kn_program *p = x->t->program;
    int rank = p->tensors[x->s->out].rank, before = -1;
    if (x->hw->gpu || !x->contraction || x->s->scatter || x->nloads != 2 || kn_loads(x->s->body, loads, 2) != 2 || x->n < 0) return NULL;
    int w = x->load[1].axes >> x->n & 1, slid = first_slid(x, loads[1 - w]), terms = loads[1 - w]->nargs - 1;
    if (x->load[1 - w].axes >> x->n & 1 || kn_dtype_bytes(loads[0]->dtype) < 4 || kn_dtype_bytes(loads[1]->dtype) < 4 || slid < 0) return NULL;
    const kn_expr *last = loads[1 - w]->args[terms], *end = x->s->lhs[rank - 1];
    if (last->op != KN_OP_AXIS || last->u.axis < x->s->nspatial || end->op != KN_OP_AXIS || end->u.axis != x->n) return NULL;
    for (int d = 0; d < rank && before < 0; d++)
        if (x->s->lhs[d]->op == KN_OP_AXIS && (kn_axes_in(loads[1 - w]->args[slid]) >> x->s->lhs[d]->u.axis & 1)) before = d;
    if (kn_cpu_groups(x) > 1) return NULL; /* lanes along these would gather their weights */
    if (before < 0 || p->tensors[loads[1 - w]->u.tensor].role != KN_INPUT || !wastes_results(x, loads[1 - w], slid)) return NULL;
    kn_buf b;
    kn_buf_init(&b, a);
    kn_putf(&b, "copy %s %d %s\ncache_write %s %s\n", x->name, 1 - w, plane, x->name, results);
    put_before(&b, results, rank, rank - 1, before);
    put_before(&b, plane, terms + 1, terms, slid);
    return kn_buf_take(&b).p;
}
