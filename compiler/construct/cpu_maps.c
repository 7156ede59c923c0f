/* Tiles of maps on a CPU core: rows in vectors, squares turned in registers, padded lines turned in a box, and a few elements interleaved. */
#include "construct/cpu.h"
#include "construct/nest.h"
#include "te/expr.h"
#include <string.h>

enum {
    WRITTEN_OUT = 1024,   /* nodes of code, lanes made one by one, that a vector may have; eight times as many a row that is written out */
    LONG_TEXT = 512,      /* nodes of a row that is written out, beyond which a loop over its halves is no slower, and sooner written and compiled */
    CHEAP = 4,            /* operations on an element beside which moving it is what takes time */
    TASK_ELEMENTS = 2048, /* of a map, below which calling the task shows */
    NARROW_ROWS = 16,     /* below which squares of bytes or halves are too small to be turned */
    JOINED_LESS = 8       /* elements of a row that is joined with the next ones to be turned */
};
#define JOINED "J" /* name of the axis that is made so */

/* Operations on one element; a function of the library counts as several. */
static int work_of(const kn_expr *e)
{
    char class = kn_op_class(e->op);
    int n = class == 'f' ? 8 : class == 'a' || class == 'c';
    for (int i = 0; i < e->nargs && e->op != KN_OP_LOAD; i++) n += work_of(e->args[i]);
    return n;
}

double kn_cpu_touched(const kn_site *x)
{
    const kn_program *p = x->t->program;
    const kn_expr *loads[KN_SITE_LOADS];
    double bytes = kn_cpu_bytes(&p->tensors[x->s->out]);
    int n = kn_loads(x->s->body, loads, KN_SITE_LOADS);
    for (int i = 0; i < n && i < KN_SITE_LOADS; i++) bytes += kn_cpu_bytes(&p->tensors[loads[i]->u.tensor]);
    return bytes;
}

/* Vectors of a map: narrow where its operands lie beyond every cache and it does little with them. There the memory sets the pace, and
 * shorter accesses let it overlap more of them; but not where whole lines are written past the caches. */
static int64_t map_vector_bytes(const kn_site *x)
{
    const kn_hw_level *far = kn_hw_level_named(x->hw, "l3");
    for (int i = 0; i < x->nloads; i++) far = x->load[i].padded ? NULL : far; /* what is padded is read again soon */
    double bytes = kn_cpu_touched(x);
    bool streams = far && work_of(x->s->body) <= CHEAP && bytes > (double)far->capacity_bytes && !kn_hw_past_caches(x->hw, bytes);
    return streams ? x->hw->streaming_vector_bytes : x->hw->vector_bytes;
}

/* Iterations of axis `other` in one task. */
static int64_t rows_of_task(const kn_site *x, int other)
{
    int64_t grain = kn_cpu_grain(x, other), row = 1;
    bool inside = other < 0;
    for (int k = 0; k < x->s->nspatial; k++) { /* n is walked inside, wherever it stands */
        int i = kn_cpu_in_order(x, k);
        if ((inside || i == x->n) && !kn_mul_fits(row, kn_cpu_extent(x, i), &row)) return grain;
        inside = inside || i == other;
    }
    int64_t least = kn_ceil_div(TASK_ELEMENTS, row);
    if (least > kn_cpu_extent(x, other)) least = kn_cpu_extent(x, other);
    return grain > least ? grain : least;
}

int64_t kn_cpu_written_out(int64_t vectors)
{
    int64_t best = 4;
    for (int64_t nv = 5; nv <= 8; nv++)
        if (kn_ceil_div(vectors, nv) * nv <= kn_ceil_div(vectors, best) * best) best = nv;
    return best;
}

static int64_t nodes_of(const kn_expr *e)
{
    int64_t n = 1;
    for (int i = 0; i < e->nargs; i++) n += nodes_of(e->args[i]);
    return n;
}

/* As many as a lane along n has of its own: what does not follow n is computed once, and constants are part of what they are operands of. */
static int64_t nodes_along(const kn_expr *e, int n)
{
    int64_t own = e->op != KN_OP_CONST_I && e->op != KN_OP_CONST_F;
    for (int i = 0; i < e->nargs && kn_axes_in(e) >> n & 1; i++) own += nodes_along(e->args[i], n);
    return own;
}

/* Whether e depends on the place along axis n, not only on what lies there. */
static bool of_place(const kn_expr *e, int n)
{
    if (e->op == KN_OP_AXIS) return e->u.axis == n;
    for (int i = 0; i < e->nargs && e->op != KN_OP_LOAD; i++)
        if (of_place(e->args[i], n)) return true;
    return false;
}

/* Whether some choice among elements of memory differs from place to place along axis n: then every lane has code of its own. */
static bool chooses(const kn_expr *e, int n)
{
    const kn_expr *loads[1];
    if (e->op == KN_OP_SELECT && of_place(e->args[0], n) && (kn_loads(e->args[1], loads, 1) || kn_loads(e->args[2], loads, 1))) return true;
    for (int i = 0; i < e->nargs && e->op != KN_OP_LOAD; i++)
        if (chooses(e->args[i], n)) return true;
    return false;
}

/* Nodes of the code of each lane of a vector of this map (rolls of rolls, parts of parts); 0: its lanes share their code. */
static int64_t code_of_lane(const kn_site *x)
{
    bool apart = x->n >= 0 && chooses(x->s->body, x->n);
    for (int i = 0; i < x->nloads && !apart; i++) apart = !x->load[i].linear && x->n >= 0 && x->load[i].axes >> x->n & 1;
    return apart ? nodes_along(x->s->body, x->n) : 0;
}

/* A quotient or remainder of what follows axis n. */
static bool divides(const kn_expr *e, int n)
{
    bool digit = (e->op == KN_OP_FLOORDIV || e->op == KN_OP_MOD) && kn_is_int_const(e->args[1]);
    if (digit && kn_axes_in(e->args[0]) >> n & 1) return true;
    for (int i = 0; i < e->nargs; i++)
        if (divides(e->args[i], n)) return true;
    return false;
}

bool kn_cpu_picked(const kn_site *x)
{
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(x->s->body, loads, KN_SITE_LOADS);
    bool some = false;
    if (x->n < 0 || n > KN_SITE_LOADS || x->s->red != KN_RED_NONE) return false;
    for (int l = 0; l < n; l++)
        for (int d = 0; d < loads[l]->nargs; d++) {
            const kn_expr *at = loads[l]->args[d];
            if (kn_loads(at, NULL, 0) || !(kn_axes_in(at) >> x->n & 1)) continue;
            some |= !x->load[l].linear && divides(at, x->n);
        }
    return some;
}

/* A float that is computed with as a wider one. */
static bool is_small(enum kn_dtype t) { return kn_dtype_class(t) == 'f' && kn_dtype_acc(t) != t; }

/* What bytes and 16 bits do in lanes of their own, as no result is longer; compilers widen the lanes of quotients, and 16 bits are shifted as
 * words. */
static bool stays_narrow(const kn_expr *e)
{
    static const uint8_t own[] = {KN_OP_ADD, KN_OP_SUB, KN_OP_MUL,    KN_OP_NEG,   KN_OP_ABS,
                                  KN_OP_MIN, KN_OP_MAX, KN_OP_BITAND, KN_OP_BITOR, KN_OP_BITXOR};
    bool stays = kn_dtype_bytes(e->dtype) == 1 && (e->op == KN_OP_SHL || e->op == KN_OP_SHR);
    for (size_t i = 0; i < sizeof own; i++) stays |= e->op == own[i];
    return stays && !kn_is_float(e->dtype) && e->dtype != KN_BOOL;
}

/* Bytes of the widest element that the map computes with, of what it reads, rather than converts: compilers take vectors apart that are wider than
 * the processor's (a quantization with 64 lanes, of bytes but computed with floats, took eight times as long). Small floats are converted, compared
 * and chosen as the wider ones. */
static int64_t computed_bytes(const kn_expr *e)
{
    const kn_expr *loads[1];
    int64_t widest = 1;
    bool moves = e->op == KN_OP_LOAD || e->op == KN_OP_CAST || e->op == KN_OP_SELECT, test = e->dtype == KN_BOOL;
    if (!moves && !test && kn_loads(e, loads, 1)) widest = kn_dtype_bytes(stays_narrow(e) ? e->dtype : kn_dtype_acc(e->dtype));
    for (int i = 0; i < e->nargs && e->op != KN_OP_LOAD; i++) {
        const kn_expr *x = e->args[i];
        bool converts = e->op == KN_OP_CAST && x->dtype != e->dtype && (is_small(x->dtype) || is_small(e->dtype));
        bool chooses = e->op == KN_OP_SELECT && i && x->op != KN_OP_LOAD && is_small(e->dtype);
        int64_t n = computed_bytes(x), own = kn_dtype_bytes(converts || chooses || is_small(x->dtype) ? KN_F32 : x->dtype);
        if ((test || converts) && !kn_loads(x, loads, 1)) own = 1;
        if ((test || converts || chooses) && own > n) n = own;
        if (n > widest) widest = n;
    }
    return widest;
}

int64_t kn_cpu_computed_bytes(const kn_site *x)
{
    int64_t own = kn_dtype_bytes(x->s->body->dtype), widest = computed_bytes(x->s->body);
    return own > widest ? own : widest;
}

/* Iterations of all other axes than n together. */
static int64_t rows_around(const kn_site *x)
{
    int64_t rows = 1;
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != x->n && !kn_mul_fits(rows, kn_cpu_extent(x, i), &rows)) return INT64_MAX;
    return rows > 0 ? rows : 1;
}

/* Vectors a turn of a loop over many: a line of them past the caches; of short ones that a test for the end of all stands beside, a few, which take
 * as long as the test (8 thousand to a million elements that are no whole vectors, with AVX2 on a Zen 3: Relu 0.44 to 1.0 of the time, Add 0.69 to
 * 0.99, Floor 0.5 to 0.64, bytes and halves 0.75 to 0.9; of whole ones, of which none asks for the end, 0.94 to 1.1). */
static int64_t vectors_a_turn(const kn_site *x, int64_t lanes, int64_t nodes)
{
    enum { LINE = 2, FEW = 4 };
    int64_t own = kn_dtype_bytes(x->s->body->dtype);
    bool halves = own >= 4 && lanes * own == x->hw->vector_bytes && lanes * own * LINE == KN_CPU_LINE;
    if (halves && kn_hw_past_caches(x->hw, kn_cpu_touched(x))) return LINE;
    return kn_cpu_short_vectors(x) && kn_cpu_extent(x, x->n) % lanes && nodes * FEW <= LONG_TEXT ? FEW : 1;
}

/* A map: one long axis in vectors. Where it is the only one, a task is a run of it of some thousand elements, but not fewer tasks than keep
 * the cores busy. */
static void map_tiles(const kn_site *x, kn_plans *p)
{
    int other = kn_cpu_other(x);
    int64_t own = kn_dtype_bytes(x->s->body->dtype), widest = computed_bytes(x->s->body), full = map_vector_bytes(x) / own;
    if (widest > own && full > x->hw->vector_bytes / widest) full = x->hw->vector_bytes / widest;
    int64_t lanes = kn_cpu_pow2(kn_cpu_extent(x, x->n), full);
    /* rows begin anywhere in a cache line: a shorter vector straddles two less often */
    bool padded = x->nloads && x->load[0].padded, ragged = other >= 0 && !padded && kn_cpu_extent(x, x->n) % lanes != 0;
    if (ragged && work_of(x->s->body) <= CHEAP && lanes * kn_dtype_bytes(x->s->body->dtype) > KN_CPU_NARROW) lanes /= 2;
    int64_t code = code_of_lane(x);
    if (code * lanes > WRITTEN_OUT) lanes = 1; /* no faster than a loop over the elements, and the C compiler works on it for seconds */
    int64_t vectors = kn_ceil_div(kn_cpu_extent(x, x->n), lanes), rows = rows_around(x), tasks = 16 * (int64_t)x->hw->units;
    bool few = rows < tasks; /* rows are no tasks enough: runs of them are */
    int64_t run = vectors / kn_ceil_div(tasks, rows);
    if (run > 4096) run = 4096;
    bool picked = kn_cpu_picked(x) && nodes_of(x->s->body) * vectors <= 2 * WRITTEN_OUT;
    int64_t whole = padded || picked ? KN_CPU_ROW : KN_CPU_ROW / 2;
    if (code * lanes * whole > 8 * WRITTEN_OUT && !picked) whole = 0;
    if (vectors <= whole) run = vectors; /* a whole row, its last vector moved back */
    int64_t nodes = nodes_of(x->s->body);
    while (run <= KN_CPU_ROW && nodes * run > LONG_TEXT && kn_cpu_extent(x, x->n) % (run * lanes) == 0 && run % 2 == 0) run /= 2;
    const int64_t widths[] = {run, kn_cpu_written_out(vectors), 1};
    const int64_t turn = vectors_a_turn(x, lanes, nodes);
    for (int i = vectors <= whole || (few && run > 8) ? 0 : 1; i < 3; i++) {
        kn_cpu_tile t = {.lanes = lanes, .nv = widths[i], .mr = 1, .mc = 1, .grain = rows_of_task(x, other), .rlanes = 1, .runroll = 1};
        if (t.nv > KN_CPU_ROW && turn > 1) t.nc = t.nv / turn, t.nv = turn;
        kn_cpu_try(x, p, &t);
        if (p->n) break; /* short tasks would only pay more forks, single vectors more steps of a loop */
    }
}

/* The axis that alone is the load's last index, where n is in others of them, however it is there. */
static int last_alone(const kn_site *x, const kn_expr *load)
{
    const kn_expr *last = load->args[load->nargs - 1];
    if (last->op != KN_OP_AXIS || last->u.axis == x->n || last->u.axis >= x->s->nspatial) return -1;
    for (int d = 0; d + 1 < load->nargs; d++)
        if (kn_axes_in(load->args[d]) >> last->u.axis & 1) return -1;
    return last->u.axis;
}

/* The axis along which some load is contiguous that steps over memory along n: rows of it are turned into lanes in registers. */
static int turned_axis(const kn_site *x)
{
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(x->s->body, loads, KN_SITE_LOADS);
    for (int l = 0; l < x->nloads && l < n && l < KN_SITE_LOADS && x->n >= 0; l++) {
        const kn_site_access *a = &x->load[l];
        if (a->padded || loads[l]->dtype == KN_BOOL || !(a->axes >> x->n & 1)) continue;
        if (a->linear && (!a->coef[x->n] || a->coef[x->n] == 1)) continue;
        int alone = a->linear || !loads[l]->nargs ? -1 : last_alone(x, loads[l]);
        bool narrow = a->bytes < 4;
        for (int i = 0; i < x->s->nspatial; i++) {
            bool small = narrow && (kn_cpu_extent(x, i) < NARROW_ROWS || kn_cpu_extent(x, x->n) < NARROW_ROWS);
            if (i != x->n && (a->linear ? a->coef[i] == 1 : i == alone) && !small) return i;
        }
    }
    return -1;
}

/* Squares along n in one task: one where the other axes give tasks enough, else as many as leave the cores that. */
static int64_t squares_of_task(const kn_site *x, int64_t lanes, int64_t rows)
{
    int64_t tasks = kn_ceil_div(kn_cpu_extent(x, x->m), rows), want = 8 * (int64_t)x->hw->units, squares = kn_ceil_div(kn_cpu_extent(x, x->n), lanes);
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != x->n && i != x->m && !kn_mul_fits(tasks, kn_cpu_extent(x, i), &tasks)) tasks = want;
    int64_t run = tasks >= want ? 1 : squares * tasks / want;
    if (run <= KN_CPU_ROW) run = squares > 8 && tasks < want ? KN_CPU_ROW + 1 : 1; /* more than a row is written out as: a loop */
    return run > 1 && run < squares ? kn_ceil_div(squares, squares / run) : run; /* so that the last one is nearly as long as the others */
}

/* Tiles of `rows` rows along m by as many lanes along n, walked along n. */
static bool try_squares(const kn_site *x, kn_plans *p, int64_t lanes, int64_t rows)
{
    kn_cpu_tile t = {.lanes = lanes, .nv = squares_of_task(x, lanes, rows), .mr = rows, .mc = 1,
                     .grain = kn_cpu_grain(x, kn_cpu_other(x)), .rlanes = 1, .runroll = 1};
    kn_cpu_try(x, p, &t);
    return p->n > 0;
}

/* How squares are walked: along one axis, by a strip of `beside` of them along the other, so many of which follow each other before the strip's next
 * row does. */
typedef struct strip { int along, across; int64_t beside, pair, unit[2]; } strip;

/* A task has some squares at the least. */
static bool try_strips(const kn_site *x, kn_plans *p, const strip *k)
{
    enum { LEAST = 16, TASKS = 4 };
    int64_t steps = kn_ceil_div(kn_cpu_extent(x, k->along), k->pair * k->unit[0]);
    int64_t tasks = kn_ceil_div(kn_cpu_extent(x, k->across), k->beside * k->unit[1]), most = steps * k->pair / LEAST;
    int square = k->pair > 1 ? 3 : 2;
    kn_nest w;
    kn_nest_begin(&w, x, p->a);
    for (int i = 0; i < x->s->nspatial; i++) {
        if (i == x->n || i == x->m) continue;
        if (!kn_mul_fits(tasks, kn_cpu_extent(x, i), &tasks)) return false;
        kn_nest_task(&w, i);
    }
    int64_t parts = kn_ceil_div(TASKS * (int64_t)x->hw->units, tasks);
    if (parts > most) parts = most;
    kn_nest_split(&w, k->across, (int64_t[KN_NEST_CUTS]){k->beside, k->unit[1]});
    kn_nest_split(&w, k->along, (int64_t[KN_NEST_CUTS]){kn_ceil_div(steps, parts < 1 ? 1 : parts), k->pair > 1 ? k->pair : 0, k->unit[0]});
    kn_nest_task(&w, k->across);
    kn_nest_task(&w, k->along);
    kn_nest_bar(&w);
    for (int level = 1; level < square; level++) kn_nest_loop(&w, k->along, level);
    kn_nest_loop(&w, k->across, 1);
    kn_nest_bar(&w);
    kn_nest_loop(&w, x->m, x->m == k->along ? square : 2);
    kn_nest_loop(&w, x->n, x->n == k->along ? square : 2);
    kn_nest_kind(&w, "unroll", x->m, x->m == k->along ? square : 2);
    kn_nest_kind(&w, "vectorize", x->n, x->n == k->along ? square : 2);
    kn_nest_try(&w, p);
    return p->n > 0;
}

/* What is written has rows that are whole lines. */
static bool whole_lines(const kn_site *x)
{
    const kn_tensor *out = &x->t->program->tensors[x->s->out];
    return out->rank < 2 || out->shape[out->rank - 1] * kn_dtype_bytes(out->dtype) % KN_CPU_LINE == 0;
}

/* Rows of what is turned are longer than a page, and no whole lines. */
static bool crosses_lines(const kn_site *x)
{
    bool crosses = false;
    for (int l = 0; l < x->nloads; l++) {
        const kn_site_access *a = &x->load[l];
        int64_t row = a->linear && a->coef[x->m] == 1 ? a->coef[x->n] * a->bytes : 0;
        crosses = crosses || (row > KN_CPU_PAGE && row % KN_CPU_LINE);
    }
    return crosses;
}

/* Squares side by side along what is read, whose lines are then met at once, by as many that follow each other as write a line: as many as L1 has
 * sets and a TLB of the first level has pages for. Past the caches, where long rows of what is read begin anywhere in lines, so that a square that
 * goes along what is written meets two for each, one of them again (on a Zen 4 704x10025 0.84 of the time of lines that are written, 2x720x2798 0.66;
 * 16 bits: 704x21025 0.82, 1024x12321 0.61; bytes: 704x21025 0.7, 1024x30000 0.61; rows shorter than a page 1.05 to 1.3). */
static strip lines_of_reads(const kn_site *x, int64_t lanes, int64_t rows, int64_t bytes)
{
    enum { MOST = 8, LEAST = 2, PAGES = 64 };
    int64_t pitch = x->store.linear ? x->store.coef[x->m] * kn_dtype_bytes(x->s->body->dtype) : 0;
    int64_t most = pitch > 0 ? kn_cpu_rows_of_step(x, pitch, MOST * rows) / rows : LEAST, paged = pitch > KN_CPU_PAGE ? PAGES / rows : MOST;
    if (most > paged) most = paged;
    if (most < LEAST) most = LEAST;
    return (strip){x->n, x->m, most, kn_ceil_div(KN_CPU_LINE, bytes), {lanes, rows}};
}

/* Squares across beside each other: two, whose parts of lines fill each line that is read. One where the rows that are written begin anywhere in
 * lines and fall into so few sets that L1 does not hold two squares' until the next ones go on with them (on a Zen 3 twelve of floats, 1027x900,
 * 1021x1019, 511x700 among them: 0.67 to 0.87 of the time of two, one 1.0; bytes 0.74 to 1.26). */
static int64_t squares_beside(const kn_site *x, int64_t lanes, int64_t rows)
{
    enum { BESIDE = 2, OTHERS = 4, FLOAT = 4 }; /* lines: what is read, and what is asked for, are as many again */
    int64_t bytes = kn_dtype_bytes(x->s->body->dtype), pitch = x->store.linear ? x->store.coef[x->m] * bytes : 0, all = BESIDE * OTHERS * rows;
    bool anywhere = pitch > 0 && pitch % KN_CPU_LINE && bytes >= FLOAT && lanes * bytes < KN_CPU_LINE;
    return anywhere && kn_cpu_rows_of_step(x, pitch, all) < all ? 1 : BESIDE;
}

/* Squares that L2 does not hold all of, so that each line had better be met once. Past the caches four lines of what is written lie side by side,
 * and what is read goes by from end to end (2048x2048 1.3 to 1.5 times as fast as square by square along the lines that are written, 8192x8192 2.0,
 * 16384x128 1.8, 64x100000 1.0); else squares of two by two squares (512x768 1.1 to 1.6, 1000x1000 1.2 to 1.3, 777x2333 1.0 to 1.25). What comes from
 * memory and goes there by way of the caches is read in whole rows, or in runs that are pages, of a line of what is written (9133x337, 752x3256,
 * 1138x2976, 700x5000: 1.7, 1.4, 1.4, 1.9 times as fast; below thrice L3, and of under 192 elements a row, 0.8 to 0.95). */
static bool try_far_squares(const kn_site *x, kn_plans *p, int64_t lanes, int64_t rows)
{
    enum { LINES = 4, FEWEST = 4, FEW = 12, SQUARES = 32 };
    const kn_hw_level *l2 = kn_hw_level_named(x->hw, "l2"), *l3 = kn_hw_level_named(x->hw, "l3");
    int64_t bytes = lanes * kn_dtype_bytes(x->s->body->dtype), run = LINES * KN_CPU_LINE / bytes, squares = kn_ceil_div(kn_cpu_extent(x, x->m), rows);
    bool past = kn_hw_squares_past_caches(x->hw, kn_cpu_touched(x)) && (whole_lines(x) || squares < FEW);
    bool far = l3 && bytes == KN_CPU_LINE && kn_cpu_touched(x) > 3 * (double)l3->capacity_bytes;
    strip k = past && crosses_lines(x) ? lines_of_reads(x, lanes, rows, bytes)
            : past ? (strip){x->m, x->n, run, 1, {rows, lanes}}
            : far  ? (strip){x->n, x->m, kn_ceil_div(squares, kn_ceil_div(squares, SQUARES)), 1, {lanes, rows}}
                   : (strip){x->n, x->m, squares_beside(x, lanes, rows), 2, {lanes, rows}};
    if (!l2 || kn_cpu_touched(x) <= (double)l2->capacity_bytes || (k.beside < 2 && k.pair < 2)) return false;
    return kn_cpu_extent(x, x->n) >= FEWEST * lanes && kn_cpu_extent(x, x->m) >= FEWEST * rows && try_strips(x, p, &k);
}

/* A map that transposes: squares of as many rows as a vector has lanes, walked along the lines that are written. */
static bool turned_tiles(const kn_site *x, kn_plans *p)
{
    int64_t lanes = x->hw->vector_bytes / kn_dtype_bytes(x->s->body->dtype), shorter = kn_cpu_extent(x, x->n);
    if (shorter > kn_cpu_extent(x, x->m)) shorter = kn_cpu_extent(x, x->m);
    lanes = kn_cpu_pow2(shorter, lanes < 16 ? lanes : 16);
    if (lanes < 4) return false;
    /* moving a square back would do most of it twice */
    int64_t rows = kn_cpu_extent(x, x->m) < 8 && kn_cpu_extent(x, x->m) % lanes ? kn_cpu_extent(x, x->m) : lanes;
    return try_far_squares(x, p, lanes, rows) || try_squares(x, p, lanes, rows);
}

/* A map that takes a handful of elements apart which lie side by side: vectors of each, picked from the same few vectors of memory. Four are
 * turned in squares where picking from two vectors is no single instruction. */
static bool parted_tiles(const kn_site *x, kn_plans *p)
{
    int64_t few = kn_cpu_extent(x, x->m), most = x->hw->vector_bytes >= 64 ? 4 : 3;
    if (few < 2 || few > most || kn_dtype_bytes(x->s->body->dtype) < 4) return false;
    for (int l = 0; l < x->nloads; l++)
        if (!x->load[l].linear || x->load[l].padded || (x->load[l].coef[x->n] > 1 && x->load[l].coef[x->n] != few)) return false;
    int64_t lanes = kn_cpu_pow2(kn_cpu_extent(x, x->n), x->hw->vector_bytes / kn_dtype_bytes(x->s->body->dtype));
    return lanes >= 4 && try_squares(x, p, lanes, few);
}

/* A map whose innermost axis is a handful of elements: lanes along the next one out, whose vectors are interleaved as they are stored. */
static bool interleaved_tiles(const kn_site *x, kn_plans *p)
{
    enum { BYTES = 16 }; /* of vectors of which three are interleaved byte by byte: toolchains have one instruction for that */
    int64_t bytes = kn_dtype_bytes(x->s->body->dtype), few = kn_cpu_extent(x, x->n), lanes = x->hw->vector_bytes / bytes;
    if (few < 2 || few > 4 || !x->store.linear) return false;
    if (few == 3 && bytes == 1) lanes = BYTES;
    kn_site y = *x;
    y.m = x->n, y.n = -1;
    for (int i = 0; i < x->s->nspatial; i++) if (x->store.coef[i] == few && kn_cpu_extent(x, i) >= 4) y.n = i;
    if (y.n < 0) return false;
    for (int l = 0; l < x->nloads; l++) { /* lanes gathered one by one are no match */
        const kn_site_access *a = &x->load[l];
        bool parted = a->linear && !a->padded && a->coef[y.n] == few && a->coef[x->n] == 1;
        if (!a->linear || (a->coef[y.n] > 1 && !parted)) return false;
    }
    return try_squares(&y, p, kn_cpu_pow2(kn_cpu_extent(x, y.n), lanes), few);
}

/* The axis around n in what is written: one step of it is a row of n; -1: none, or m. */
static int outside(const kn_site *x)
{
    for (int i = 0; i < x->s->nspatial && x->store.linear; i++)
        if (i != x->n && i != x->m && x->store.coef[i] == kn_cpu_extent(x, x->n) && kn_cpu_extent(x, i) > 1) return i;
    return -1;
}

static int axis_named(const kn_stmt *s, const char *name)
{
    for (int i = 0; i < s->naxes; i++)
        if (!strcmp(s->axes[i].name, name)) return i;
    return -1;
}

/* A transposition into rows of a few elements: with the axis around them they are a run of memory, whose squares are turned. */
static bool joined_tiles(const kn_site *x, kn_plans *p)
{
    int around = outside(x);
    if (around < 0 || kn_cpu_extent(x, x->n) >= JOINED_LESS || axis_named(x->s, JOINED) >= 0) return false;
    kn_buf b;
    kiln_diag d;
    kn_tree *t;
    kn_site y;
    kn_buf_init(&b, p->a);
    kn_putf(&b, "fuse %s %s %s %s\n", x->name, JOINED, kn_cpu_axis(x, around), kn_cpu_axis(x, x->n));
    kiln_bytes line = kn_buf_take(&b);
    if (!line.p || kn_trace_step(p->a, x->t, x->hw, line, &t, &d)) return false;
    for (int k = 0; k < t->nstages; k++)
        if (t->stages[k]->stmt == x->g->stmt) kn_site_of(p->a, t, t->stages[k], x->hw, &y);
    y.n = axis_named(y.s, JOINED);
    y.m = axis_named(y.s, kn_cpu_axis(x, x->m));
    y.before = line;
    return turned_tiles(&y, p);
}

/* Axis that goes along the load's innermost dimension one by one, past its ends, while the lanes walk dimension d; -1: it is not so. */
static int padded_lines(const kn_site *x, const kn_expr *load, int d)
{
    kn_affine f;
    int along = -1;
    if (!load->padded || d < 0 || d == load->nargs - 1 || !kn_affine_of(load->args[load->nargs - 1], &f)) return -1;
    if (kn_cpu_extent(x, x->n) != x->t->program->tensors[load->u.tensor].shape[d]) return -1;
    for (int i = 0; i < x->s->nspatial; i++) {
        if (!f.coef[i]) continue;
        if (along >= 0 || f.coef[i] != 1) return -1;
        along = i;
    }
    return along;
}

/* A padded copy whose lanes lie apart: line by line, of as many of them as a vector has, which change places in a box beside, its padding filled in
 * (images of 32 to 80 channels, padded and turned for a window in steps of 2: the window with it 1.03 to 1.11 times as fast as where the image is
 * turned first and padded as it is read). */
static bool padded_tiles(const kn_site *x, kn_plans *p)
{
    const kn_expr *load;
    const kn_hw_level *l1 = kn_hw_level_named(x->hw, "l1");
    int tasks = 0, bytes = kn_dtype_bytes(x->s->body->dtype), lanes = x->hw->vector_bytes / bytes;
    if (x->hw->gpu || !l1 || kn_cpu_short_vectors(x) || x->s->body->op != KN_OP_LOAD || kn_loads(x->s->body, &load, 1) != 1) return false;
    if (bytes < 4 || lanes < 4 || lanes > 16) return false;
    int d = x->n < 0 ? -1 : kn_cpu_walked(load, x->n), along = padded_lines(x, load, d);
    if (along < 0 || kn_cpu_extent(x, x->n) % lanes || kn_cpu_extent(x, along) * lanes * bytes > l1->capacity_bytes / 2) return false;
    const char *n = kn_cpu_axis(x, x->n), *line = kn_cpu_axis(x, along);
    kn_buf b;
    kn_buf_init(&b, p->a);
    kn_putf(&b, "split %s %s %d\nreorder %s", x->name, n, lanes, x->name);
    for (int i = 0; i < x->s->nspatial; i++)
        if (i != x->n && i != along) kn_putf(&b, " %s.0", kn_cpu_axis(x, i));
    kn_putf(&b, " %s.0 | %s.0 %s.1\n", n, line, n);
    for (int i = 0; i < x->s->nspatial && tasks < 2; i++)
        if (i != x->n && i != along) kn_putf(&b, "parallel %s %s.0\n", x->name, kn_cpu_axis(x, i)), tasks += kn_cpu_extent(x, i) > 1;
    kn_putf(&b, "cache_read %s 0 scratch %s.0 region last %d\nvectorize %s %s.1\n", x->name, n, d, x->name, n);
    kn_plans_try(p, &b);
    return p->n > 0;
}

bool kn_cpu_maps(const kn_site *x, kn_plans *p)
{
    kn_site y = *x;
    if (x->s->red != KN_RED_NONE) return false;
    if (padded_tiles(x, p)) return true;
    y.m = turned_axis(x);
    if (y.m >= 0 && (parted_tiles(&y, p) || joined_tiles(&y, p) || turned_tiles(&y, p))) return true;
    y.m = -1;
    if (!interleaved_tiles(&y, p)) map_tiles(&y, p);
    return true;
}
