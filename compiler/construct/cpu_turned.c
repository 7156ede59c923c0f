/* Products whose results lie along the places of a window and not along what lanes had better run along (channels first): of bytes and halves what
 * a dot instruction's do, of wider ones those of a constant, where lanes along the places would be idle. They are computed with these last, the
 * other factor's terms beside each other, and the results turned as they are written out; the channels of a group are lanes as those of a whole
 * convolution are. Sums of one run of terms are too short to pay for that. Where few of a constant's elements meet each of the image's, this is read
 * as it lies, and the results alone are turned; that competes. So are those of a matrix product whose factors each lie as the other one should. */
#include "construct/cpu.h"
#include "te/expr.h"
#include <math.h>

enum { LEAST_RUN = 16 }; /* elements: shorter ones are no rows of squares */

/* The spatial axis that the constant alone has, whose extent leaves few lanes idle (a dot instruction may have more, but where there are groups,
 * whose terms are few as well); the longest, -1: none. */
static int lanes_of(const kn_site *x, int w, bool narrow)
{
    int best = -1;
    int64_t lanes = x->hw->vector_bytes / kn_cpu_acc_bytes(x);
    bool grouped = kn_cpu_groups(x) > 1;
    for (int i = 0; i < x->s->nspatial; i++) {
        int64_t n = kn_cpu_extent(x, i);
        bool alone = (x->load[w].axes >> i & 1) && !(x->load[1 - w].axes >> i & 1);
        if (alone && kn_round_up(n, lanes) - n <= (narrow && !grouped ? n : n / 3) && (best < 0 || n > kn_cpu_extent(x, best))) best = i;
    }
    return best;
}

/* The reduce axis that an index goes along element by element, alone or (a sum in parts) behind spatial axes that both factors have; -1. */
static int term_of(const kn_site *x, const kn_expr *index)
{
    kn_affine f;
    int axis = -1;
    uint32_t in = kn_axes_in(index), both = x->load[0].axes & x->load[1].axes;
    for (int i = x->s->nspatial; i < x->s->naxes; i++) {
        if (!(in >> i & 1)) continue;
        if (axis >= 0) return -1;
        axis = i;
    }
    bool beside = axis >= 0 && (in & ~(1u << axis) & ~both) == 0;
    return beside && kn_affine_of(index, &f) && f.coef[axis] == 1 ? axis : -1;
}

/* The dimension of the load that the longest such axis has, -1: none. */
static int terms_of(const kn_site *x, const kn_expr *load)
{
    int best = -1;
    int64_t most = 0;
    for (int d = 0; d < load->nargs; d++) {
        int axis = term_of(x, load->args[d]);
        if (axis < 0 || kn_cpu_extent(x, axis) <= most) continue;
        most = kn_cpu_extent(x, axis);
        best = d;
    }
    return best;
}

/* Places of an image, all that lie nearer than its terms do; 0: they do not lie in lines. */
static int64_t places_of(const kn_site *x, int other, int terms)
{
    int64_t places = 1;
    const kn_site_access *a = &x->load[other];
    if (!a->linear) return 0;
    for (int i = 0; i < x->s->nspatial; i++)
        if (a->axes >> i & 1 && a->coef[i] < a->coef[terms] && !kn_mul_fits(places, kn_cpu_extent(x, i), &places)) return 0;
    return places;
}

/* The part of its lanes that the last vector of an image's places leaves idle, of all. */
static double idle_at_end(const kn_site *x, int other, int terms)
{
    int64_t places = places_of(x, other, terms), lanes = x->hw->vector_bytes / kn_cpu_acc_bytes(x);
    return places ? kn_cpu_idle(x, places, lanes) : 0;
}

/* What turns is read a line of each row of a square at a time, wherever it lies, and no faster than a core turns it. */
double kn_cpu_time_of_turning(const kn_site *x, double bytes)
{
    const double a_cycle = 8.4; /* bytes that a core reads and writes, whole images measured */
    const kn_hw_level *l3 = kn_hw_level_named(x->hw, "l3"), *from = l3 ? l3 : &x->hw->levels[0];
    double gbs = a_cycle * x->hw->clock_ghz * x->hw->units;
    if (from->bandwidth_gbs > 0 && (from->bandwidth_gbs < gbs || gbs <= 0)) gbs = from->bandwidth_gbs;
    return gbs > 0 ? 2 * bytes / gbs : INFINITY;
}

/* Of so many bytes, from where they may be to there, in nanoseconds. */
static double time_of_copy(const kn_site *x, double bytes)
{
    const kn_hw_level *l3 = kn_hw_level_named(x->hw, "l3"), *from = l3 && bytes <= (double)l3->capacity_bytes ? l3 : &x->hw->levels[0];
    return from->bandwidth_gbs > 0 ? 2 * bytes / from->bandwidth_gbs : 0;
}

/* Planes that L2 does not hold, of which a panel of places with steps between them reads short runs of every row: each line is waited for, a few at a
 * time, since no prefetcher follows. In nanoseconds. */
static double time_of_far_runs(const kn_site *x, const kn_tensor *planes)
{
    enum { AT_A_TIME = 6 };
    double groups = kn_cpu_groups(x); /* of which a panel reads one */
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2"), *l3 = kn_hw_level_named(x->hw, "l3");
    double bytes = kn_cpu_bytes(planes);
    if (!l2 || !l3 || bytes <= groups * (double)planes->shape[0] * (double)l2->capacity_bytes) return 0;
    return bytes / l3->transaction_bytes * l3->latency_ns / AT_A_TIME;
}

/* A window that steps forwards, whose results and terms are whole vectors of whole lines: their squares turn as fast as they are copied otherwise,
 * to rows that are one axis and from them (on a Granite Rapids 6 windows one by one 1.0 to 1.15, 16 at a time 1.05 to 1.5 times as fast; rows of 112
 * 0.95 to 1.05, transposed convolutions 0.8 to 1.07, 72 results of 40 terms 0.8 to 0.98). */
static bool turns_as_fast(const kn_site *x, const kn_expr *load, int64_t results, int64_t run)
{
    enum { ROW = 64 };
    int64_t lanes = x->hw->vector_bytes / kn_cpu_acc_bytes(x);
    bool slides = false;
    for (int d = 0; d < load->nargs; d++) {
        kn_affine f;
        if (!(kn_axes_in(load->args[d]) >> x->n & 1)) continue;
        if (!kn_affine_of(load->args[d], &f) || f.coef[x->n] < 1) return false;
        for (int r = x->s->nspatial; r < x->s->naxes; r++) {
            if (f.coef[r] < 0) return false;
            slides |= f.coef[r] && x->s->axes[r].extent > 1;
        }
    }
    return slides && kn_cpu_extent(x, x->n) <= ROW && !kn_cpu_short_vectors(x) && results % lanes == 0 && run % lanes == 0;
}

/* Lanes along the places also take the columns between one row of them and the next, by which the window reaches past the row's end, and those past
 * the image's: what that wastes is more than turning what goes in and what comes out takes. Of a window these are copied otherwise too, to rows that
 * are one axis and from them, in half the time; and vectors that are parts of lines lie across these there (beside results that fill such vectors and
 * weights that are packed ahead, 32x56x56 by 3x3 in steps of 2 to 160: 1.54 times as long; 13 windows: 1.13). */
static bool wastes_places(const kn_site *x, const kn_expr *load, const kn_tensor *weights, double at_end, int64_t results)
{
    const double ACROSS = 0.08; /* of the time of computing */
    const kn_program *p = x->t->program;
    double flops, reach = 0, step = 1, n = (double)kn_cpu_extent(x, x->n);
    for (int d = 0; d < load->nargs; d++) {
        kn_affine f;
        if (!(kn_axes_in(load->args[d]) >> x->n & 1)) continue;
        if (!kn_affine_of(load->args[d], &f) || f.coef[x->n] < 1) return false;
        step = (double)f.coef[x->n];
        for (int r = x->s->nspatial; r < x->s->naxes; r++) reach += (double)((f.coef[r] < 0 ? -f.coef[r] : f.coef[r]) * (x->s->axes[r].extent - 1));
    }
    kn_cpu_uneven(x, &flops);
    for (int i = 0; i < x->s->naxes; i++) flops *= (double)x->s->axes[i].extent;
    flops *= 2;
    double gflops = kn_hw_peak_gflops(x->hw, p->tensors[x->s->out].dtype);
    int64_t lanes = x->hw->vector_bytes / kn_cpu_acc_bytes(x);
    double takes = kn_cpu_time_of_turning(x, kn_cpu_bytes(&p->tensors[load->u.tensor]) + kn_cpu_bytes(&p->tensors[x->s->out]));
    double waste = gflops > 0 ? flops / gflops * (reach / step / n + at_end) : 0;
    double idle = kn_cpu_idle(x, results, lanes);
    if (reach > 0 && kn_cpu_short_vectors(x) && weights->constant && idle == 0) waste += ACROSS * flops / gflops;
    if (reach > 0) takes /= 2;
    if (reach > 0 && step > 1) waste += time_of_far_runs(x, &p->tensors[load->u.tensor]);
    takes += idle > 1.0 / 8 ? idle * flops / gflops : 0;
    if (!weights->constant) takes += time_of_copy(x, kn_cpu_bytes(weights));
    return waste > takes;
}

/* Places from one lane to the next. */
static int64_t step_of(const kn_site *x, const kn_expr *load)
{
    int64_t step = 1;
    for (int d = 0; d < load->nargs; d++) {
        kn_affine f;
        if (kn_axes_in(load->args[d]) >> x->n & 1 && kn_affine_of(load->args[d], &f)) step = f.coef[x->n];
    }
    return step;
}

/* Sums of one run of terms, whose places lie in lines: whole lines of them are what the lanes take otherwise, of which an image's last one is partly
 * idle. An element that is turned takes as long as some dots of a lane (measured), in ragged squares twice that; half of that, where lanes lie apart,
 * copies that bring them together would take too. So does an element of the other factor that is packed at each call. */
static bool pays_alone(const kn_site *x, int w, int lanes, int terms, bool apart, bool constant)
{
    enum { LEAST = 32, RESULT = 8, ELEMENT = 4, PACKED = 8 };
    int bytes = x->load[1 - w].bytes;
    int64_t n = kn_cpu_extent(x, lanes), run = kn_cpu_extent(x, terms), places = places_of(x, 1 - w, terms), line = x->hw->vector_bytes / bytes;
    int64_t l = x->hw->vector_bytes / kn_cpu_acc_bytes(x);
    double dots = (double)kn_ceil_div(run, kn_cpu_acc_bytes(x) / bytes);
    double as_they_lie = (double)(kn_round_up(places, line) * n) * dots;
    double turned = (double)(RESULT * n + ELEMENT * run) * (n % l || run % l ? 2 : 1) / (apart ? 2 : 1);
    double packed = constant ? 0 : PACKED * (double)(n * run);
    return run >= LEAST && (double)places * ((double)kn_round_up(n, l) * dots + turned) + packed < as_they_lie;
}

/* The same where it competes: of floats, whose rows have lanes along the sum as they lie, some places; not what steps leave out. */
static bool pays_to_pack(const kn_site *x, int w, const kn_expr *other, int lanes, int terms, bool narrow)
{
    enum { PLACES = 32 };
    int64_t places = 1;
    for (int i = 0; i < x->s->nspatial; i++)
        if (!(x->load[w].axes >> i & 1)) places *= kn_cpu_extent(x, i);
    bool apart = step_of(x, other) > 1;
    return narrow ? pays_alone(x, w, lanes, terms, apart, false) : places >= PLACES && !apart;
}

/* Sums of few terms, by the time of a result's dots and of what is turned: beside floats' products, of which a vector takes half as many (of more
 * than a few results a mapping that gathers its places, which takes longer); bytes have no other way that is nearly as fast but for sums of one
 * run. */
static bool pays(const kn_site *x, int w, const kn_expr *load, int lanes, int terms)
{
    enum { RESULT = 14, PLACE = 33, TERMS = 2, FEW = 32 }; /* dots that turning a result takes, and an element that goes in */
    int64_t n = kn_cpu_extent(x, lanes), l = x->hw->vector_bytes / kn_cpu_acc_bytes(x), run = kn_cpu_extent(x, terms);
    bool apart = step_of(x, load) > 1;
    if (x->reduce_extent == run) return pays_alone(x, w, lanes, terms, apart, true);
    if (kn_dtype_bytes(load->dtype) < 2 || apart) return true;
    double dots = (double)(kn_ceil_div(run, TERMS) * (x->reduce_extent / run)) * (double)kn_round_up(n, l) / (double)n;
    return (n > FEW ? 0.75 : 1) * (dots + RESULT + PLACE * (double)run / (double)n) < (double)x->reduce_extent;
}

void kn_cpu_put_last(kn_buf *b, const char *tensor, int rank, int last)
{
    kn_putf(b, "transform_layout %s", tensor);
    for (int d = 0; d < rank; d++)
        if (d != last) kn_putf(b, " %d", d);
    kn_putf(b, " %d\n", last);
}

/* Dimension of the load that the axis has for itself, -1: none. */
static int dim_of(const kn_expr *load, int axis)
{
    for (int d = 0; d < load->nargs; d++)
        if (load->args[d]->op == KN_OP_AXIS && load->args[d]->u.axis == axis) return d;
    return -1;
}

/* The dimension of the results along which the axis goes element by element, alone or behind axes that both factors have (groups); -1: none. */
static int results_of(const kn_site *x, int lanes)
{
    uint32_t both = x->load[0].axes & x->load[1].axes;
    for (int d = 0; d < x->t->program->tensors[x->s->out].rank; d++) {
        kn_affine f;
        uint32_t in = kn_axes_in(x->s->lhs[d]);
        if (in >> lanes & 1) return !(in & ~(1u << lanes) & ~both) && kn_affine_of(x->s->lhs[d], &f) && f.coef[lanes] == 1 ? d : -1;
    }
    return -1;
}

/* What is no constant is turned at each call, which takes as long as the products of some dozen places; those of bytes whose terms are no whole dots
 * have no other way that is nearly as fast (17x11x11 to 57, 5x5: 0.3 of the time of wide products). */
static bool worth_copies(const kn_site *x, int w, int64_t run)
{
    enum { BYTES = 128, FEW = 80, TERMS = 4 };
    int64_t places = x->load[w].bytes, least = x->load[w].bytes == 1 && run % TERMS ? FEW : BYTES; /* in bytes */
    for (int i = 0; i < x->s->nspatial; i++)
        if (!(x->load[w].axes >> i & 1)) places *= kn_cpu_extent(x, i);
    return places >= least;
}

/* The results leave a part of their lanes idle, and strips of rows waste less (sums of 200 terms and 12 or 20 results: 1.2 to 1.5 times as fast). */
static bool lies_idle(const kn_site *x, int lanes)
{
    int64_t n = kn_cpu_extent(x, lanes), full = x->hw->vector_bytes / kn_cpu_acc_bytes(x);
    return kn_cpu_short_vectors(x) && 8 * (kn_round_up(n, full) - n) > n && kn_cpu_strip(x) >= 0;
}

/* Without a look at what else could be done: what is turned as it is packed competes with that. */
static bool worth_turning(const kn_site *x, int w, const kn_expr *const *loads, int lanes, int axis)
{
    const kn_tensor *t = &x->t->program->tensors[loads[w]->u.tensor];
    const kn_expr *other = loads[1 - w];
    bool narrow = kn_dtype_bytes(t->dtype) <= 2 && kn_dtype_bytes(other->dtype) <= 2;
    int64_t run = kn_cpu_extent(x, axis);
    bool long_run = run >= LEAST_RUN && (x->reduce_extent > run || !narrow);
    if (!t->constant && (!worth_copies(x, w, run) || x->reduce_extent == run)) return false; /* its own rows may be broadcast as they lie */
    if (!long_run && !(narrow && pays(x, w, other, lanes, axis))) return false;
    if (narrow || lies_idle(x, lanes)) return narrow;
    int64_t results = kn_cpu_extent(x, lanes);
    return turns_as_fast(x, other, results, run) || wastes_places(x, other, t, idle_at_end(x, 1 - w, axis), results);
}

/* A sum of products of two loads, for a CPU. */
static bool of_two(const kn_site *x, const kn_expr *loads[2])
{
    bool products = !x->hw->gpu && x->contraction && !x->s->scatter && x->n >= 0;
    return products && x->nloads == 2 && kn_loads(x->s->body, loads, 2) == 2;
}

/* The statement writes `results`, their dimension `to` last, from which they are copied. */
static void put_results(kn_buf *b, const kn_site *x, const char *results, int to)
{
    kn_putf(b, "cache_write %s %s\n", x->name, results);
    kn_cpu_put_last(b, results, x->t->program->tensors[x->s->out].rank, to);
}

const char *kn_cpu_turned(kiln_arena *a, const kn_site *x, const char *plane, const char *results, const char *weights)
{
    const kn_expr *loads[2];
    const kn_program *p = x->t->program;
    if (!of_two(x, loads)) return NULL;
    for (int w = 0; w < 2; w++) {
        const kn_tensor *t = &p->tensors[loads[w]->u.tensor];
        const kn_expr *other = loads[1 - w];
        bool narrow = kn_dtype_bytes(t->dtype) <= 2 && kn_dtype_bytes(other->dtype) <= 2;
        int lanes = lanes_of(x, w, narrow), terms = terms_of(x, other);
        bool copied = !t->constant && weights;
        if (t->role != KN_INPUT || x->load[w].axes >> x->n & 1 || lanes < 0 || terms < 0 || terms == other->nargs - 1) continue;
        int to = results_of(x, lanes), last = copied ? dim_of(loads[w], lanes) : -1;
        int axis = term_of(x, other->args[terms]);
        if (!weights && t->constant && worth_turning(x, w, loads, lanes, axis)) continue; /* it has been */
        if (!weights && !t->constant && p->tensors[other->u.tensor].constant) continue; /* which is packed, along what lanes are now */
        if (!weights && !t->constant && x->reduce_extent == kn_cpu_extent(x, axis) && !pays_to_pack(x, w, other, lanes, axis, narrow)) continue;
        if (to < 0 || (copied && last < 0) || (weights && !worth_turning(x, w, loads, lanes, axis))) continue;
        kn_buf b;
        kn_buf_init(&b, a);
        if (copied) kn_putf(&b, "copy %s %d %s\n", x->name, w, weights);
        if (copied && last < loads[w]->nargs - 1) kn_cpu_put_last(&b, weights, loads[w]->nargs, last);
        bool pads = other->padded && !narrow && weights && !kn_cpu_short_vectors(x); /* others are padded where they are read */
        const char *copy = pads ? "decompose_padding" : "copy";
        kn_putf(&b, "%s %s %d %s\n", copy, x->name, 1 - w, plane);
        put_results(&b, x, results, to);
        kn_cpu_put_last(&b, plane, other->nargs, terms);
        return kn_buf_take(&b).p;
    }
    return NULL;
}

const char *kn_cpu_exchanged(kiln_arena *a, const kn_site *x, const kn_cpu_dot *d, const char *results)
{
    const double TURNED = 0.8, SQUARES = 0.1, RESULT = 1, ZIPPED = 0.05; /* dots of a vector that an element takes, and a result */
    bool along = x->load[d->b].coef[d->run] == 1;
    if (d->turn < 0 || x->m < 0) return NULL;
    int64_t l = x->hw->vector_bytes / kn_cpu_acc_bytes(x), rows = kn_cpu_extent(x, x->m), columns = kn_cpu_extent(x, x->n), to = results_of(x, x->m);
    double m = (double)rows, n = (double)columns, terms = (double)x->reduce_extent, dots = terms / (double)(l * d->it->s->axes[1].extent);
    double as_is = dots * m * (double)kn_round_up(columns, l) + terms * (TURNED * m + (along ? SQUARES : ZIPPED) * n);
    double exchanged = dots * n * (double)kn_round_up(rows, l) + RESULT * m * n + terms * (ZIPPED * m + (along ? 0 : TURNED * n));
    if (to < 0 || x->load[d->a].coef[x->m] != 1 || exchanged >= as_is) return NULL;
    kn_buf b;
    kn_buf_init(&b, a);
    put_results(&b, x, results, (int)to);
    return kn_buf_take(&b).p;
}

/* Elements of a constant that each of the other factor's meets: results by taps, less what steps skip. More of them pay for turning it. */
static double meets(const kn_site *x, int w, const kn_expr *other, int lanes, int terms)
{
    double n = (double)kn_cpu_extent(x, lanes) * (double)x->reduce_extent / (double)kn_cpu_extent(x, term_of(x, other->args[terms]));
    for (int d = 0; d < other->nargs; d++) {
        kn_affine f;
        if (!kn_affine_of(other->args[d], &f)) continue;
        for (int i = 0; i < x->s->nspatial; i++)
            if (f.coef[i] > 1 && !(x->load[w].axes >> i & 1)) n /= (double)f.coef[i];
    }
    return n;
}

/* The constant has results of several places, the phases of a transposed convolution (32 and 16 of 4x4 places by 4x4: 0.83 to 0.96 of the rate). */
static bool of_phases(const kn_site *x, int w, int lanes)
{
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != lanes && kn_cpu_extent(x, i) > 1 && (x->load[w].axes >> i & 1) && !(x->load[1 - w].axes >> i & 1)) return true;
    return false;
}

/* Results that fill their lanes, of an image that a window steps over or whose padding is filled in a band at a time. By steps of 2 and 3 on a Zen 4:
 * 128x150x150 by 2x2 to 16 2.2 times as fast as with the image turned, or its places flat, 100x112x112 by 3x3 to 64 1.7, 1x1 to 96 to 192 1.1 to 1.3;
 * 5x5 and 7x7 taps 0.8 to 1.0, a third of the lanes idle 0.8 to 1.2, short vectors 0.6 to 1.6. */
const char *kn_cpu_turned_alone(kiln_arena *a, const kn_site *x)
{
    enum { MEETS = 150, IDLE = 8 };
    const kn_expr *loads[2];
    const kn_program *p = x->t->program;
    int64_t full = x->hw->vector_bytes / kn_cpu_acc_bytes(x);
    if (!of_two(x, loads) || kn_cpu_short_vectors(x)) return NULL;
    for (int w = 0; w < 2; w++) {
        const kn_tensor *t = &p->tensors[loads[w]->u.tensor];
        const kn_expr *other = loads[1 - w];
        int lanes = lanes_of(x, w, false), terms = terms_of(x, other), to = lanes < 0 ? -1 : results_of(x, lanes);
        if (kn_dtype_bytes(t->dtype) < 4 || kn_dtype_bytes(other->dtype) < 4 || !t->constant || t->role != KN_INPUT) continue;
        if (to < 0 || terms < 0 || terms == other->nargs - 1 || x->load[w].axes >> x->n & 1 || (step_of(x, other) < 2 && !other->padded)) continue;
        int64_t n = kn_cpu_extent(x, lanes);
        if ((kn_round_up(n, full) - n) * IDLE > n || of_phases(x, w, lanes) || meets(x, w, other, lanes, terms) > MEETS) continue;
        kn_buf b;
        kn_buf_init(&b, a);
        put_results(&b, x, KN_CPU_SQUARES_OUT, to);
        return kn_buf_take(&b).p;
    }
    return NULL;
}
