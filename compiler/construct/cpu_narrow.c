/* Products whose results have so few columns that lanes along them would mostly be idle: lanes along the sum instead, which lies in memory in one
 * factor. The other one, which is small and met by every row, is turned as it is packed (ahead where it is constant), so that it lies along the sum
 * too, unless it does as it is. Halves become floats as they are read. */
#include "construct/cpu.h"
#include "intrin/intrin.h"

enum {
    ROWS = 128,  /* of a task: they are worth the copy that it makes */
    FEWEST = 16, /* rows of a factor that is packed ahead */
    COPIED = 10, /* rows for each column of one that is not: turning it takes as long as some of them */
    TERMS = 4    /* vectors of the sum: fewer are over before their lanes are combined */
};

static bool along_sum(const kn_site *x, const kn_site_access *a)
{
    return a->linear && !a->padded && a->coef[x->r] == 1 && (a->axes >> x->m & 1) && !(a->axes >> x->n & 1);
}

static bool along_columns(const kn_site *x, const kn_site_access *a)
{
    bool columns = a->linear && !a->padded && (a->axes >> x->n & 1) && !(a->axes >> x->m & 1);
    return columns && (a->coef[x->r] != 1 || a->bytes == kn_cpu_acc_bytes(x));
}

/* The narrow factor lies along the sum as it is. */
static bool lies_along(const kn_site *x, int w) { return x->load[w].coef[x->r] == 1; }

/* The load of the narrow factor, -1: it is no such product. */
static int narrow_factor(const kn_site *x)
{
    const kn_expr *loads[2];
    bool sum = x->s->red == KN_RED_SUM && !x->s->scatter && x->contraction && x->n >= 0 && x->m >= 0 && x->r >= 0;
    if (!sum || x->s->naxes != x->s->nspatial + 1 || x->nloads != 2 || kn_loads(x->s->body, loads, 2) != 2) return -1;
    for (int l = 0; l < 2; l++)
        if (along_sum(x, &x->load[1 - l]) && along_columns(x, &x->load[l])) return l;
    return -1;
}

static bool is_constant(const kn_site *x, int w)
{
    const kn_expr *loads[2];
    kn_loads(x->s->body, loads, 2);
    const kn_tensor *t = &x->t->program->tensors[loads[w]->u.tensor];
    return t->role == KN_INPUT && t->constant && kn_loads_in_calls(x->t, loads[w]->u.tensor) == 1;
}

/* The register tile: rows by columns, each a vector of partial sums, by its loads beside its multiply-adds. */
static void choose_tile(const kn_site *x, int64_t *mr, int64_t *nr)
{
    const double load = 0.3;
    int64_t n = kn_cpu_extent(x, x->n), need = x->hw->fma_latency * x->hw->fma_per_cycle, most = kn_cpu_in_one_set(x) ? 6 : 8;
    double least = 0;
    for (int64_t c = 1; c <= n; c++) {
        for (int64_t r = 1; r <= most && r * c + (r < c ? r : c) + 1 <= x->hw->vector_registers; r++) {
            double tile = (double)(r * c < need ? need : r * c) + load * (double)(r + c), time = tile * (double)kn_ceil_div(n, c) / (double)r;
            if (least > 0 && time >= least) continue;
            least = time;
            *mr = r;
            *nr = c;
        }
    }
}

/* Sums whose products take longer than combining their lanes, which is done for each column: lanes along the columns take as long for all of these,
 * and the less of them are idle, the longer the sums have to be. */
static bool long_enough(const kn_site *x, int64_t n, int64_t lanes)
{
    int64_t least = n * lanes * (2 * n > lanes ? 2 : 1);
    return 4 * n <= 3 * lanes && x->reduce_extent >= (least < TERMS * lanes ? TERMS * lanes : least);
}

/* The device has an instruction for products of that dtype, as many at a time as divide the sum. */
static bool has_instruction(const kn_site *x, enum kn_dtype t)
{
    for (int i = 0; i < x->hw->nintrins; i++) {
        const kn_intrin *it = x->hw->intrins[i].parsed;
        int terms = it->s->naxes - 1;
        if (terms >= 0 && it->operand[1].dtype == t && it->s->axes[terms].reduce && x->reduce_extent % it->s->axes[terms].extent == 0) return true;
    }
    return false;
}

/* Halves become floats as they are read: an instruction for them leaves most lanes idle before it is slower. Columns of rows of places, which the
 * other factor does not have, are lanes together. */
static bool worth_floats(const kn_site *x, int load, int64_t n, int64_t lanes)
{
    const kn_expr *loads[2];
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != x->n && x->s->axes[i].extent > 1 && !(x->load[load].axes >> i & 1)) return false;
    kn_loads(x->s->body, loads, 2);
    return kn_dtype_class(x->s->body->dtype) == 'f' && (has_instruction(x, loads[load]->dtype) ? 4 : 2) * n <= lanes;
}

int kn_cpu_narrow_load(const kn_site *x)
{
    int w = narrow_factor(x);
    int64_t lanes = x->hw->vector_bytes / kn_cpu_acc_bytes(x), n = w < 0 ? 0 : kn_cpu_extent(x, x->n);
    if (w >= 0 && x->load[1 - w].bytes < kn_cpu_acc_bytes(x) && !worth_floats(x, 1 - w, n, lanes)) return -1;
    if (x->hw->gpu || n < 2 || !long_enough(x, n, lanes)) return -1;
    int64_t rows = kn_cpu_extent(x, x->m);
    return rows >= FEWEST && (rows >= COPIED * n || is_constant(x, w) || lies_along(x, w)) ? w : -1;
}

bool kn_cpu_narrow(const kn_site *x, kn_plans *p)
{
    int w = kn_cpu_narrow_load(x);
    int64_t lanes = x->hw->vector_bytes / kn_cpu_acc_bytes(x), mr = 1, nr = 1;
    if (w < 0) return false;
    choose_tile(x, &mr, &nr);
    int64_t rows = kn_cpu_extent(x, x->m), tasks = rows / (is_constant(x, w) ? 2 * FEWEST : ROWS), units = x->hw->units;
    if (tasks < 1) tasks = 1;
    if (tasks > units) tasks = !is_constant(x, w) || tasks < 4 * units ? units : 4 * units; /* each makes its copy of what is no constant */
    int64_t groups = kn_ceil_div(kn_ceil_div(rows, mr), tasks);
    const char *m = kn_cpu_axis(x, x->m), *c = kn_cpu_axis(x, x->n), *r = kn_cpu_axis(x, x->r);
    kn_buf b;
    kn_buf_init(&b, p->a);
    kn_putn(&b, x->before.p ? x->before.p : "", x->before.n);
    kn_putf(&b, "split %s %s %lld %lld\nsplit %s %s %lld\n", x->name, m, (long long)groups, (long long)mr, x->name, c, (long long)nr);
    kn_putf(&b, "split %s %s %lld\nreorder %s", x->name, r, (long long)lanes, x->name);
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != x->n && i != x->m) kn_putf(&b, " %s.0", kn_cpu_axis(x, i));
    kn_putf(&b, " %s.0 | %s.1 %s.0 %s.0 | %s.2 %s.1 %s.1\n", m, m, c, r, m, c, r);
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != x->n && i != x->m) kn_putf(&b, "parallel %s %s.0\n", x->name, kn_cpu_axis(x, i));
    kn_putf(&b, "parallel %s %s.0\nunroll %s %s.2\nunroll %s %s.1\nvectorize %s %s.1\n", x->name, m, x->name, m, x->name, c, x->name, r);
    if (is_constant(x, w)) kn_putf(&b, "prepack %s %d", x->name, w);
    else if (!lies_along(x, w)) kn_putf(&b, "cache_read %s %d scratch %s.0 loops", x->name, w, m);
    if (is_constant(x, w) || !lies_along(x, w)) kn_putf(&b, " %s.0 %s.0 %s.1 %s.1\n", c, r, c, r);
    kn_plans_try(p, &b);
    return p->n > 0;
}
