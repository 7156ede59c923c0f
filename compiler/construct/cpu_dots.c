/* Sums of products of bytes or halves on a CPU core that has a dot instruction for them: d[I] += a[R] * b[I,R], a few terms broadcast to every
 * lane. The results of a register tile stay in registers (equation 3.4 of Chimera, HPCA'23, as for other products), the operand with the lanes
 * is packed once a task, or, where it is constant, before the first call, as the instruction reads it, the other one lies so already: its terms
 * follow each other in memory. */
#include "construct/cpu.h"
#include "intrin/intrin.h"
#include "te/expr.h"

/* What the instruction is: one loop of lanes, one of terms, operand `a` has the terms only and operand `b` both. */
static bool is_dot(const kn_hw_intrin *spec, int *a, int *b)
{
    const kn_intrin *it = spec->parsed;
    if (!it || !kn_native_of(spec) || it->noperands != 3 || it->nloops != 2 || it->nspatial != 1 || it->red != KN_RED_SUM) return false;
    *a = it->operand[1].rank == 1 ? 1 : 2;
    *b = 3 - *a;
    for (int o = 1; o < 3; o++)
        if (kn_dtype_bytes(it->operand[o].dtype) > 2) return false;
    return it->operand[*a].rank == 1 && it->operand[*a].lone[0] == 1 && it->operand[*b].rank == 2 && it->operand[*b].lone[0] == 0 &&
           it->operand[*b].lone[1] == 1;
}

/* The signed byte of which the factor is the unsigned one that is 128 more, NULL: it is none. */
static const kn_expr *flipped(const kn_expr *factor)
{
    const kn_expr *e = kn_bare(factor);
    if (e->op != KN_OP_CAST || e->dtype != KN_U8 || e->args[0]->op != KN_OP_ADD) return NULL;
    const kn_expr *load = kn_bare(e->args[0]->args[0]), *by = e->args[0]->args[1];
    return load->op == KN_OP_LOAD && load->dtype == KN_I8 && by->op == KN_OP_CONST_I && by->u.i == 128 ? load : NULL;
}

/* The instruction does that to its operand with the lanes. */
static bool flips(const kn_intrin *it)
{
    const kn_expr *body = kn_bare(it->s->body);
    return body->op == KN_OP_MUL && (flipped(body->args[0]) || flipped(body->args[1]));
}

/* The factors of the product, loads or casts of them, in the dtype that the instruction gives, or in a narrower float: it then loses less. *flip: the
 * one that is flipped, -1: none. */
static bool factors_of(const kn_expr *body, enum kn_dtype t, int *flip)
{
    bool wider = kn_is_float(t) && kn_is_float(body->dtype) && kn_dtype_holds(t, body->dtype);
    *flip = -1;
    if (body->op != KN_OP_MUL || (body->dtype != t && !wider)) return false;
    for (int i = 0; i < 2; i++) {
        if (kn_bare(body->args[i])->op == KN_OP_LOAD) continue;
        if (*flip >= 0 || !flipped(body->args[i])) return false;
        *flip = i;
    }
    return true;
}

bool kn_cpu_whole_dim(const kn_site *x, const kn_expr *load, int axis)
{
    int last = load->nargs - 1;
    if (last < 0 || load->args[last]->op != KN_OP_AXIS || load->args[last]->u.axis != axis) return false;
    return x->t->program->tensors[load->u.tensor].shape[last] == kn_cpu_extent(x, axis);
}

/* The longest reduce axis along which the access's elements follow each other, of so many at least; whole: which is the last dimension of that load
 * from end to end. -1: none. */
static int run_of(const kn_site *x, const kn_site_access *a, int64_t least, const kn_expr *whole)
{
    int best = -1;
    for (int i = x->s->nspatial; i < x->s->naxes && a->linear; i++) {
        bool follows = a->coef[i] == 1 && !(a->bent >> i & 1) && kn_cpu_extent(x, i) >= least && (!whole || kn_cpu_whole_dim(x, whole, i));
        if (follows && (best < 0 || kn_cpu_extent(x, i) > kn_cpu_extent(x, best))) best = i;
    }
    return best;
}

/* The dimension that the longest reduce axis has for itself in a load, which could be its last one; its axis in *run. -1: none. */
static int turned_run(const kn_site *x, const kn_expr *load, int *run)
{
    int best = -1;
    for (int d = 0; d < load->nargs && !load->padded; d++) {
        const kn_expr *e = load->args[d];
        if (e->op != KN_OP_AXIS || e->u.axis < x->s->nspatial || kn_cpu_extent(x, e->u.axis) < 16) continue;
        if (best < 0 || kn_cpu_extent(x, e->u.axis) > kn_cpu_extent(x, *run)) best = d, *run = e->u.axis;
    }
    return best;
}

/* The two innermost axes of the results are rows and columns of a window, with padding or steps, of one load alone: flatten_window makes one axis of
 * these. */
static bool will_be_flat(const kn_site *x)
{
    uint32_t both = x->n > 0 ? 3u << (x->n - 1) : 0;
    bool flat = both != 0;
    for (int i = 0; i < x->nloads; i++) {
        const kn_site_access *a = &x->load[i];
        uint32_t in = a->axes & both;
        flat = flat && (!in || (in == both && a->linear && (a->padded || a->coef[x->n] > 1)));
    }
    return flat;
}

/* Elements along which the lanes run: of two axes that will be joined those of both. */
static int64_t places_of(const kn_site *x)
{
    int64_t n = kn_cpu_extent(x, x->n);
    bool joins = x->n > 0 && kn_site_continues(&x->store, x->n - 1, x->n, n);
    for (int i = 0; i < x->nloads && joins; i++) joins = kn_site_continues(&x->load[i], x->n - 1, x->n, n);
    return joins || will_be_flat(x) ? n * kn_cpu_extent(x, x->n - 1) : n;
}

/* So many lanes are idle that a mapping, which fills them otherwise, is faster: a dot takes less than what a mapping brings together for one (bytes,
 * 3 to 7 columns: 1.3 to 4.9 times as fast as mapped; of 2 columns 0.8 to 1.2), but places that are gathered for the lanes take longer, sooner where
 * that is done at each call. */
static bool idles(const kn_site *x, int with_lanes, bool constant, const kn_intrin *it)
{
    enum { MOST = 5 };
    int64_t wide = places_of(x), idle = kn_round_up(wide, it->s->axes[0].extent) - wide;
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != x->n && x->s->axes[i].extent > 1 && (x->load[with_lanes].axes >> i & 1)) return constant ? idle > wide : 5 * idle > 4 * wide;
    return idle > MOST * wide;
}

/* Sums of the rows' terms, by which what is flipped is corrected, take longer than making the rows unsigned and summing the other factor's. */
static bool many_rows(const kn_site *x, int rows, int lanes)
{
    double m = 1, n = 1;
    for (int i = 0; i < x->s->nspatial; i++) {
        if (x->load[rows].axes >> i & 1) m *= (double)x->s->axes[i].extent;
        if (x->load[lanes].axes >> i & 1) n *= (double)x->s->axes[i].extent;
    }
    return m > 2 * n;
}

static double products_of(const kn_site *x)
{
    double n = (double)x->reduce_extent;
    for (int i = 0; i < x->s->nspatial; i++) n *= (double)x->s->axes[i].extent;
    return n;
}

/* Turning the rows' factor and packing the other one take less than the other ways to compute the sum: matrices nearly always (bf16, 16 to 1565 rows:
 * 1.03 to 9 times as fast as mapped, bytes 0.8 to 6 times as wide), a window's image for many places, and where it is copied anyway. */
static bool pays_to_turn(const kn_site *x, const kn_expr *load, bool narrow)
{
    enum { ROWS = 64 };
    double products = products_of(x);
    bool matrix = x->s->naxes == x->s->nspatial + 1;
    for (int d = 0; d < load->nargs; d++) matrix = matrix && load->args[d]->op == KN_OP_AXIS;
    if (matrix) return products >= 1 << 15;
    return !narrow && products >= 1 << 17 && kn_cpu_extent(x, x->m) >= ROWS;
}

/* Instruction k of the device for the sum. flip: one that makes bytes unsigned as it reads them, for what is no constant, or is read so already. */
static bool dot_by(const kn_site *x, int k, int64_t least, bool whole, bool flip, kn_cpu_dot *d)
{
    const kn_expr *loads[KN_SITE_LOADS];
    const kn_intrin *it = x->hw->intrins[k].parsed;
    int a, b, done;
    double products = products_of(x);
    if (!is_dot(&x->hw->intrins[k], &a, &b) || flips(it) != flip || !factors_of(x->s->body, it->operand[0].dtype, &done)) return false;
    int ia = x->load[0].axes >> x->n & 1 ? 1 : 0, ib = 1 - ia; /* the one without n has the terms only */
    kn_loads(x->s->body, loads, KN_SITE_LOADS);
    if (!(x->load[ib].axes >> x->n & 1) || x->load[ia].axes >> x->n & 1 || loads[ib]->dtype != it->operand[b].dtype) return false;
    if ((done >= 0 && done != ib) || (done >= 0 && !flip)) return false;
    bool narrow = loads[ia]->dtype == it->operand[a].dtype, recast = narrow ? flip && done < 0 : true;
    bool wide = !narrow && kn_dtype_class(it->operand[a].dtype) == 'i' && kn_dtype_holds(it->operand[a].dtype, loads[ia]->dtype);
    int run = run_of(x, &x->load[ia], least, whole ? loads[ia] : NULL), turn = run < 0 ? turned_run(x, loads[ia], &run) : -1;
    if (run < 0 || !(x->load[ib].axes >> run & 1)) return false;
    if (turn >= 0 && !pays_to_turn(x, loads[ia], narrow)) return false;
    bool constant = x->t->program->tensors[loads[ib]->u.tensor].constant;
    bool few = products < 1 << 16 && recast && (kn_cpu_extent(x, run) < 8 || kn_cpu_extent(x, x->m) < 4);
    if ((narrow && idles(x, ib, constant, it)) || (few && !constant)) return false; /* what is made of few bytes at each call takes longer */
    if (!narrow && !wide && (flip || loads[ia]->dtype != KN_I8 || it->operand[a].dtype != KN_U8)) return false;
    if (flip && (constant || x->reduce_extent != kn_cpu_extent(x, run) || (done < 0 && many_rows(x, ia, ib)))) return false;
    if (x->m < 0 && !kn_cpu_zips(x, ib, run)) return false;
    *d = (kn_cpu_dot){.it = it, .a = ia, .b = ib, .run = run, .recast = recast || turn >= 0, .wide = wide, .flip = flip && recast, .turn = turn};
    return true;
}

static bool dot_along(const kn_site *x, int64_t least, bool whole, kn_cpu_dot *d)
{
    enum { LEAST = 4096 };
    double products = products_of(x);
    bool vector = x->m < 0 && x->n >= 0 && x->s->red == KN_RED_SUM && products == (double)x->reduce_extent * (double)kn_cpu_extent(x, x->n);
    if (x->hw->gpu || !(x->contraction || vector) || x->s->scatter || x->nloads != 2 || products < LEAST) return false;
    for (int flip = 1; flip >= 0; flip--)
        for (int k = 0; k < x->hw->nintrins; k++)
            if (dot_by(x, k, least, whole, flip, d)) return true;
    return false;
}

/* Sums over before their results are out of the way: floats are written past the caches as fast as memory takes them (bytes, 4096x4096 of 4 terms:
 * 0.85 of the time of an instruction's). */
static bool written_past(const kn_site *x)
{
    enum { TERMS = 4 };
    double results = kn_cpu_bytes(&x->t->program->tensors[x->s->out]);
    return kn_hw_past_caches(x->hw, results) && x->reduce_extent <= TERMS && kn_dtype_bytes(x->t->program->tensors[x->s->out].dtype) >= 4;
}

/* The few terms are taps of a window that slides along the lanes: each of these is gathered for itself. */
static bool gathers_run(const kn_site *x, const kn_cpu_dot *d)
{
    enum { LONG = 16 };
    const kn_expr *loads[KN_SITE_LOADS];
    kn_loads(x->s->body, loads, KN_SITE_LOADS);
    uint32_t both = 1u << x->n | 1u << d->run;
    for (int i = 0; i < loads[d->b]->nargs && kn_cpu_extent(x, d->run) < LONG; i++)
        if ((kn_axes_in(loads[d->b]->args[i]) & both) == both) return true;
    return false;
}

/* The terms are taps of a window, too few by some for the instruction: what is missing would be filled in for each of its calls, element by
 * element (5x5 over one channel, bf16: 4.5 times as long as from a box, whose rows go on). */
static bool lacks_taps(const kn_site *x, const kn_cpu_dot *d)
{
    const kn_expr *loads[KN_SITE_LOADS];
    uint32_t run = 1u << d->run;
    bool window = false;
    kn_loads(x->s->body, loads, KN_SITE_LOADS);
    for (int i = 0; i < loads[d->a]->nargs; i++) {
        uint32_t in = kn_axes_in(loads[d->a]->args[i]);
        window |= (in & run) && in != run;
    }
    return window && kn_cpu_extent(x, d->run) % d->it->s->axes[1].extent;
}

bool kn_cpu_dot_of(const kn_site *x, kn_cpu_dot *d)
{
    enum { RUN = 4, PAIR = 2 }; /* terms; of halves where a run is all of the sum */
    if (kn_cpu_streams_narrow(x) || written_past(x)) return false;
    if (dot_along(x, RUN, false, d) && !gathers_run(x, d) && !lacks_taps(x, d)) return true;
    bool pairs = dot_along(x, PAIR, false, d) && !d->recast && kn_cpu_extent(x, d->run) == x->reduce_extent;
    if (pairs && !gathers_run(x, d)) return true;
    return (dot_along(x, 1, false, d) && kn_cpu_boxes_run(x, d)) || (dot_along(x, 1, true, d) && kn_cpu_boxes_run(x, d));
}

bool kn_cpu_dot_fits(const kn_site *x, const kn_cpu_dot *d, int64_t mr, int64_t nv)
{
    return mr * nv + nv + 1 + kn_native_of(d->it->spec)->registers <= x->hw->vector_registers;
}

double kn_cpu_time_of_dots(const kn_site *x, const kn_cpu_dot *d, int64_t mr, int64_t nv, bool blocks)
{
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1"), *l2 = kn_hw_level_named(x->hw, "l2");
    enum kn_dtype acc = d->it->operand[0].dtype;
    int bytes = kn_dtype_bytes(d->it->operand[d->it->operand[1].rank == 1 ? 2 : 1].dtype);
    int64_t lanes = d->it->s->axes[0].extent, terms = d->it->s->axes[1].extent, panel = nv * lanes * bytes * x->reduce_extent;
    double tile = (double)(mr * nv), need = (double)(x->hw->fma_latency * x->hw->fma_per_cycle), time = 1 + 0.3 * (double)(mr + nv) / tile;
    if (l1 && l2 && panel > l1->capacity_bytes / 2 && !blocks) /* every tile brings the panel from L2 again */
        time += (double)(terms * bytes) * kn_hw_peak_gflops(x->hw, acc) / 2 / l2->bandwidth_gbs / (double)mr;
    double over = kn_hw_few_registers(x->hw) ? 1.5 : 1.1, spilled = kn_cpu_dot_fits(x, d, mr, nv) ? 1 : over;
    return time * (tile < need ? need / tile : 1) * spilled;
}

/* Rows and vectors of the register tile: those that waste least, in rows past the end and in loads beside the products. Rows at the same place of
 * their pages are no more than the ways of L1 (64 rows of 4096 halves by 16 columns: 8 at a time 2.4 times as fast as 16). */
static void tile_of(const kn_site *x, const kn_cpu_dot *d, int64_t lanes, int64_t *rows, int64_t *vectors)
{
    enum { MOST = 16 };
    double best = 0;
    int64_t m = kn_cpu_extent(x, x->m), n = kn_cpu_extent(x, x->n), most = kn_cpu_in_one_set(x) ? KN_CPU_OF_ONE_SET : MOST;
    for (int64_t nv = 1; nv <= 4; nv++) {
        for (int64_t mr = 1; mr <= most && mr <= m; mr++) {
            if (!kn_cpu_dot_fits(x, d, mr, nv) || (nv > 1 && (nv - 1) * lanes >= n)) continue;
            double done = (double)(kn_round_up(m, mr) * kn_round_up(n, nv * lanes)), tile = (double)(mr * nv);
            double need = (double)(x->hw->fma_latency * x->hw->fma_per_cycle), busy = tile < need ? tile / need : 1;
            double cost = done * (1 + 0.5 * (double)(mr + nv) / tile) / busy;
            if (best > 0 && cost >= best) continue;
            best = cost, *rows = mr, *vectors = nv;
        }
    }
}

/* Axes beside rows and lanes that the lanes' operand does not have (images, above all): a task goes over all of them with the panel that it has
 * packed, which takes as long as the products of some dozen rows (8x448x7x7 by 3x3 in steps of 2 to 116: 0.8 of the time). */
static uint32_t sharing(const kn_site *x, const kn_cpu_dot *d, bool ahead)
{
    enum { ROWS = 256 };
    uint32_t axes = 0;
    for (int i = 0; i < x->s->nspatial && !ahead && kn_cpu_extent(x, x->m) < ROWS; i++)
        if (i != x->n && i != x->m && x->s->axes[i].extent > 1 && !(x->load[d->b].axes >> i & 1)) axes |= 1u << i;
    return axes;
}

/* Rows of a task, of so many bytes a term, fill half of L2; there are tasks for all cores, of these and of `others`. */
static int64_t rows_of_task(const kn_site *x, int bytes, int64_t mr, int64_t others)
{
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2");
    int64_t groups = kn_ceil_div(kn_cpu_extent(x, x->m), mr), most = (l2 ? l2->capacity_bytes : 262144) / 2 / bytes / x->reduce_extent / mr;
    int64_t tasks = kn_ceil_div(groups, most < 1 ? 1 : most);
    while (tasks * others < 2 * x->hw->units && tasks < groups) tasks++;
    return kn_ceil_div(groups, tasks);
}

/* The plan: the operand with the lanes is packed once a task, or, where it is constant, before the first call. */
static bool try_dots(const kn_site *x, kn_plans *p, const kn_cpu_dot *d, bool ahead)
{
    kn_buf b;
    int64_t lanes = d->it->s->axes[0].extent, terms = d->it->s->axes[1].extent, mr = 1, nv = 1;
    tile_of(x, d, lanes, &mr, &nv);
    int bytes = kn_dtype_bytes(d->it->operand[d->it->operand[1].rank == 1 ? 1 : 2].dtype);
    uint32_t shared = sharing(x, d, ahead);
    int64_t panels = kn_ceil_div(kn_cpu_extent(x, x->n), nv * lanes), images = shared ? 1 : kn_cpu_extent(x, kn_cpu_other(x));
    int64_t mc = rows_of_task(x, bytes, mr, panels * images);
    const char *n = kn_cpu_axis(x, x->n), *m = kn_cpu_axis(x, x->m), *r = kn_cpu_axis(x, d->run);
    kn_buf_init(&b, p->a);
    kn_putf(&b, "split %s %s %lld %lld\nsplit %s %s %lld %lld\nsplit %s %s %lld\nreorder %s", x->name, n, (long long)nv, (long long)lanes, x->name, m,
            (long long)mc, (long long)mr, x->name, r, (long long)terms, x->name);
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != x->n && i != x->m && !(shared >> i & 1)) kn_putf(&b, " %s.0", kn_cpu_axis(x, i));
    kn_putf(&b, " %s.0 %s.0 |", m, n);
    for (int i = 0; i < x->s->nspatial; i++)
        if (shared >> i & 1) kn_putf(&b, " %s.0", kn_cpu_axis(x, i));
    kn_putf(&b, " %s.1", m);
    for (int i = x->s->nspatial; i < x->s->naxes; i++) kn_putf(&b, " %s.0", kn_cpu_axis(x, i));
    kn_putf(&b, " %s.2 %s.1 | %s.2 %s.1\n", m, n, n, r);
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != x->n && i != x->m && !(shared >> i & 1)) kn_putf(&b, "parallel %s %s.0\n", x->name, kn_cpu_axis(x, i));
    kn_putf(&b, "parallel %s %s.0\nparallel %s %s.0\n", x->name, m, x->name, n);
    kn_putf(&b, "unroll %s %s.2\nunroll %s %s.1\ntensorize %s %s.2 %s\n", x->name, m, x->name, n, x->name, n, d->it->name);
    if (ahead) {
        kn_putf(&b, "prepack %s %d", x->name, d->b);
        for (int i = 0; i < x->s->nspatial; i++)
            if (i != x->n && i != x->m && (x->load[d->b].axes >> i & 1)) kn_putf(&b, " %s.0", kn_cpu_axis(x, i));
        kn_putf(&b, " %s.0", n);
    } else {
        kn_putf(&b, "cache_read %s %d scratch %s.0 loops", x->name, d->b, n);
    }
    for (int i = x->s->nspatial; i < x->s->naxes; i++)
        if (x->load[d->b].axes >> i & 1) kn_putf(&b, " %s.0", kn_cpu_axis(x, i));
    kn_putf(&b, " %s.1 %s.2 %s.1\n", n, n, r);
    int before = p->n;
    kn_plans_try(p, &b);
    return p->n > before;
}

bool kn_cpu_dots(const kn_site *x, kn_plans *p)
{
    kn_cpu_dot d;
    const kn_expr *loads[KN_SITE_LOADS];
    if (!kn_cpu_dot_of(x, &d) || d.recast || x->load[d.a].padded || kn_cpu_is_packed(x)) return false;
    kn_loads(x->s->body, loads, KN_SITE_LOADS);
    bool constant = x->t->program->tensors[loads[d.b]->u.tensor].constant;
    if (kn_cpu_zipped(x, p, &d)) return true;
    return x->m >= 0 && ((constant && try_dots(x, p, &d, true)) || try_dots(x, p, &d, false));
}
