/* Program shaping: map producers go into their readers, map consumers become epilogues, axes that are adjacent everywhere become one (ROLLER 3.4).
 * Every step is tried on the program so far; one that a primitive refuses is left out. */
#include "construct/cpu.h"
#include "intrin/intrin.h"
#include "te/expr.h"
#include <string.h>

typedef struct shaper {
    kiln_arena *a;
    const kn_hw *hw;
    kiln_bytes text;
    kn_tree *t;
    int nfused;
    int nplanes;             /* temporaries that widen and flatten_window made: they are there to be stored */
    const char *plane[KILN_MAX_STMTS];
} shaper;

static bool try_step(shaper *s, const char *line)
{
    kiln_diag d;
    kn_tree *t;
    kn_mark before = kn_mark_of(s->a);
    const char *text = line ? kn_format(s->a, "%s%s\n", s->text.p, line) : NULL;
    if (!text) return false;
    if (kn_trace_step(s->a, s->t, s->hw, (kiln_bytes){line, strlen(line)}, &t, &d) || kn_trace_end(t, s->hw, &d)) {
        kn_release(s->a, before);
        return false;
    }
    s->text = (kiln_bytes){text, strlen(text)};
    s->t = t;
    return true;
}

static int body_cost(const kn_expr *e)
{
    int n = kn_is_function(e->op) ? 16 : e->op >= KN_OP_ADD;
    if (e->op == KN_OP_LOAD) return 0;
    for (int i = 0; i < e->nargs && n < 1000; i++) n += body_cost(e->args[i]);
    return n;
}

static int reads(const kn_expr *e, int tensor, const kn_expr **one)
{
    int n = e->op == KN_OP_LOAD && e->u.tensor == tensor;
    if (n) *one = e;
    for (int i = 0; i < e->nargs; i++) n += reads(e->args[i], tensor, one);
    return n;
}

/* Reads of a temporary in the whole program, and how often one element of it would be computed after inlining: 1 when its one reader has no
 * other axes. */
static int reads_of(const kn_program *p, int tensor, bool *once, bool *by_map)
{
    int total = 0;
    *once = *by_map = true;
    for (int i = 0; i < p->nstmts; i++) {
        const kn_expr *one = NULL;
        int n = reads(p->stmts[i]->body, tensor, &one);
        if (!n) continue;
        total += n;
        double points = 1, elems = 1;
        for (int k = 0; k < p->stmts[i]->naxes; k++) points *= (double)p->stmts[i]->axes[k].extent;
        for (int k = 0; k < p->tensors[tensor].rank; k++) elems *= (double)p->tensors[tensor].shape[k];
        if (n > 1 || points > elems) *once = false;
        if (p->stmts[i]->red != KN_RED_NONE) *by_map = false;
    }
    if (total != 1) *once = false;
    return total;
}

static bool is_plane(const shaper *s, const char *name)
{
    for (int i = 0; i < s->nplanes; i++)
        if (!strcmp(s->plane[i], name)) return true;
    return false;
}

/* One full tensor goes in where one comes out, also at several places of it, so that making the elements anew reads no more than their copy would. */
static bool reads_one(const kn_stmt *st)
{
    const kn_expr *loads[KN_SITE_LOADS];
    uint32_t all = (1u << st->naxes) - 1;
    int n = kn_loads(st->body, loads, KN_SITE_LOADS), full = -1;
    for (int i = 0; i < n && i < KN_SITE_LOADS; i++) {
        if (kn_axes_in(loads[i]) != all) continue;
        if (full >= 0 && loads[i]->u.tensor != full) return false;
        full = loads[i]->u.tensor;
    }
    return n <= KN_SITE_LOADS;
}

/* Map temporaries into their readers. first: only chains of maps, so that what is left of them can become an epilogue. */
static bool inline_one(shaper *s, bool first)
{
    const kn_program *p = s->t->program;
    for (int k = 0; k < s->t->nstages; k++) {
        const kn_stmt *st = p->stmts[s->t->stages[k]->stmt];
        if (p->tensors[st->out].role != KN_TEMP || st->red != KN_RED_NONE || kn_pinned(p, st->out) || s->t->stages[k]->epilogue >= 0) continue;
        if (is_plane(s, p->tensors[st->out].name)) continue;
        bool once, by_map;
        int n = reads_of(p, st->out, &once, &by_map), cost = body_cost(st->body);
        bool worth = first ? once && by_map : once || (cost <= 4 && n <= 4);
        worth |= !first && s->hw->gpu && n <= 2 && cost <= 40 && reads_one(st); /* a kernel and its traffic cost more than a function twice */
        if (worth && try_step(s, kn_format(s->a, "inline %s", p->tensors[st->out].name))) return true;
    }
    return false;
}

/* The table stays near and each of its elements is read often. */
static bool is_short(const shaper *s, const char *table, double points)
{
    enum { OFTEN = 8 };
    const kn_hw_level *l1 = kn_hw_level_named(s->hw, "l1");
    const kn_program *p = s->t->program;
    for (int i = 0; i < p->ntensors && l1; i++) {
        double elems = 1;
        if (strcmp(p->tensors[i].name, table)) continue;
        for (int d = 0; d < p->tensors[i].rank; d++) elems *= (double)p->tensors[i].shape[d];
        return elems * kn_dtype_bytes(p->tensors[i].dtype) <= (double)l1->capacity_bytes / 4 && points >= OFTEN * elems;
    }
    return false;
}

/* What finishes a reduction computes from its axes alone (an average's counts), once for all that share it. */
static bool tabulate_one(shaper *s)
{
    const kn_program *p = s->t->program;
    kn_tree *before = s->t;
    kiln_bytes text = s->text;
    for (int k = 0; k < s->t->nstages && !s->hw->gpu && s->nplanes < KILN_MAX_STMTS; k++) {
        const kn_stmt *st = p->stmts[s->t->stages[k]->stmt];
        const kn_expr *loads[KN_SITE_LOADS];
        int n = kn_loads(st->body, loads, KN_SITE_LOADS);
        bool finishes = false;
        for (int i = 0; i < n && i < KN_SITE_LOADS; i++)
            for (int j = 0; j < p->nstmts; j++) finishes |= p->stmts[j]->out == loads[i]->u.tensor && p->stmts[j]->red != KN_RED_NONE;
        const char *table = kn_format(s->a, "table%d", s->nplanes);
        if (st->red != KN_RED_NONE || !finishes || !table) continue;
        double points = 1;
        for (int i = 0; i < st->naxes; i++) points *= (double)st->axes[i].extent;
        if (!try_step(s, kn_format(s->a, "tabulate %s %s", p->tensors[st->out].name, table))) continue;
        if (is_short(s, table, points)) {
            s->plane[s->nplanes++] = table;
            return true;
        }
        s->t = before;
        s->text = text;
    }
    return false;
}

static bool epilogue_one(shaper *s)
{
    const kn_program *p = s->t->program;
    for (int k = 0; k < s->t->nstages; k++) {
        const kn_stmt *st = p->stmts[s->t->stages[k]->stmt];
        if (p->tensors[st->out].role != KN_TEMP || st->red == KN_RED_NONE || kn_pinned(p, st->out) || s->t->stages[k]->epilogue >= 0) continue;
        if (is_plane(s, p->tensors[st->out].name)) continue;
        if (try_step(s, kn_format(s->a, "epilogue %s", p->tensors[st->out].name))) return true;
    }
    return false;
}

/* Some sum reads the tensor. */
static bool summed(const kn_program *p, int tensor)
{
    const kn_expr *one;
    bool yes = false;
    for (int i = 0; i < p->nstmts; i++) yes |= p->stmts[i]->red != KN_RED_NONE && reads(p->stmts[i]->body, tensor, &one);
    return yes;
}

/* The statement makes the rows of a window, or reads them at one of these axes alone, whose loop it is to share with what makes them. */
static bool holds_rows(const shaper *s, const kn_stmt *st, int x, int y)
{
    const kn_program *p = s->t->program;
    const kn_expr *loads[1];
    if (st->red == KN_RED_NONE) return false;
    if (is_plane(s, p->tensors[st->out].name) && summed(p, st->out)) return true;
    if (kn_loads(st->body, loads, 1) != 1 || !is_plane(s, p->tensors[loads[0]->u.tensor].name)) return false;
    for (int i = 0; i < p->nstmts; i++) {
        if (p->stmts[i]->out != loads[0]->u.tensor || p->stmts[i]->red == KN_RED_NONE) continue;
        for (int d = 0; d < loads[0]->nargs; d++) {
            bool last = d == loads[0]->nargs - 1, alone = loads[0]->args[d]->op == KN_OP_AXIS;
            if (alone && (loads[0]->args[d]->u.axis == x || (loads[0]->args[d]->u.axis == y && !last))) return true;
        }
    }
    return false;
}

static bool fuse_pair(shaper *s, const kn_stage *g)
{
    kn_site v;
    kn_site_of(s->a, s->t, g, s->hw, &v);
    const kn_stmt *st = v.s;
    const kn_expr *loads[1];
    if (st->scatter || kn_loads(st->body, loads, 1) > KN_SITE_LOADS) return false;
    bool boxed = kn_cpu_is_boxed(&v);
    double share;
    uint32_t uneven = kn_cpu_uneven(&v, &share);
    int taps = kn_cpu_written_taps(&v), layered = kn_cpu_layered(&v);
    for (int x = 0; x + 1 < st->naxes; x++) {
        int y = x + 1;
        if ((taps >= 0 && (x == taps || y == taps)) || x == layered || y == layered) continue;
        if (st->axes[x].reduce != st->axes[y].reduce || ((uneven >> x | uneven >> y) & 1) || holds_rows(s, st, x, y)) continue;
        if (!s->hw->gpu && kn_cpu_shares_planes(&v, x, y)) continue;
        if (boxed && (kn_stands_beside(st, x) || kn_stands_beside(st, y))) continue;
        if (y == v.n && !s->hw->gpu && kn_cpu_is_alone(&v)) continue; /* lanes that a copy turns are a dimension of their own */
        if (!s->hw->gpu && (kn_decides(st->body, x) || kn_decides(st->body, y))) continue;
        bool fits = kn_site_continues(&v.store, x, y, st->axes[y].extent);
        for (int i = 0; i < v.nloads && fits; i++) fits = kn_site_continues(&v.load[i], x, y, st->axes[y].extent);
        if (!fits) continue;
        if (g->epilogue >= 0 && !st->axes[x].reduce) continue; /* the epilogue's own loads see the axes as they are */
        if (try_step(s, kn_format(s->a, "fuse %s F%d %s %s", v.name, s->nfused++, st->axes[x].name, st->axes[y].name))) return true;
    }
    return false;
}

/* Greatest common divisor of the constants by which e divides axis x, or takes it modulo; 0: none. */
static int64_t divisor_of(const kn_expr *e, int x, int64_t g)
{
    bool divides = e->op == KN_OP_FLOORDIV || e->op == KN_OP_MOD;
    if (divides && e->args[0]->op == KN_OP_AXIS && e->args[0]->u.axis == x && e->args[1]->op == KN_OP_CONST_I) {
        int64_t a = e->args[1]->u.i, b = g;
        while (b) {
            int64_t r = a % b;
            a = b, b = r;
        }
        return a;
    }
    for (int i = 0; i < e->nargs; i++) g = divisor_of(e->args[i], x, g);
    return g;
}

/* Every index is affine, or digits of an axis that make it up again. */
static bool is_affine(shaper *s, const kn_stage *g)
{
    kn_site v;
    kn_site_of(s->a, s->t, g, s->hw, &v);
    bool linear = v.store.linear && !v.store.bent && kn_loads(v.s->body, NULL, 0) <= KN_SITE_LOADS;
    for (int i = 0; i < v.nloads; i++) linear = linear && v.load[i].linear && !v.load[i].bent && !v.load[i].padded;
    return linear;
}

/* The number by which axis x is divided, 0: none that divides it. */
static int64_t factor_of(const kn_stmt *st, int x)
{
    int64_t f = divisor_of(st->body, x, 0);
    return f < 2 || f >= st->axes[x].extent || st->axes[x].extent % f ? 0 : f;
}

/* An axis that is read as A//g or A%g becomes two, so that every index is affine. */
static bool divide_one(shaper *s, const kn_stage *g)
{
    const kn_stmt *st = s->t->program->stmts[g->stmt];
    if (is_affine(s, g)) return false;
    for (int x = 0; x < st->naxes && !st->scatter; x++) {
        long long f = factor_of(st, x);
        int n = f ? s->nfused++ : 0;
        const char *name = s->t->program->tensors[st->out].name;
        if (f && try_step(s, kn_format(s->a, "divide %s %s D%d E%d %lld", name, st->axes[x].name, n, n, f))) return true;
    }
    return false;
}

/* So does a dimension of a sum that one map reads, with the map's axis, since an epilogue sees the axes of its sum (groups of a convolution). */
static bool divide_with_reader(shaper *s, const kn_stage *g)
{
    const kn_program *p = s->t->program;
    const kn_stmt *st = p->stmts[g->stmt], *reader = NULL;
    const kn_expr *one = NULL;
    if (s->hw->gpu || p->tensors[st->out].role != KN_TEMP || st->red == KN_RED_NONE || st->scatter || is_affine(s, g)) return false;
    for (int i = 0; i < p->nstmts; i++) {
        int n = reads(p->stmts[i]->body, st->out, &one);
        if (n && (n > 1 || reader || p->stmts[i]->red != KN_RED_NONE)) return false;
        if (n) reader = p->stmts[i];
    }
    for (int d = 0; reader && !one->padded && d < one->nargs; d++) {
        if (st->lhs[d]->op != KN_OP_AXIS || one->args[d]->op != KN_OP_AXIS) continue;
        int x = st->lhs[d]->u.axis;
        long long f = factor_of(st, x);
        int n = f ? s->nfused++ : 0;
        kn_buf b;
        kn_buf_init(&b, s->a);
        kn_putf(&b, "divide %s %s D%d E%d %lld\n", p->tensors[st->out].name, st->axes[x].name, n, n, f);
        kn_putf(&b, "divide %s %s D%d E%d %lld\n", p->tensors[reader->out].name, reader->axes[one->args[d]->u.axis].name, n, n, f);
        kn_putf(&b, "transform_layout %s", p->tensors[st->out].name);
        for (int k = 0; k < one->nargs; k++) kn_putf(&b, k == d ? " %d/%lld %d%%%lld" : " %d", k, f, k, f);
        kiln_bytes lines = kn_buf_take(&b);
        if (f && lines.p && try_step(s, lines.p)) return true;
    }
    return false;
}

static bool is_cast(const kn_expr *e, const kn_expr *load)
{
    if (e->op == KN_OP_CAST && e->args[0] == load) return e->args[0]->dtype != e->dtype;
    for (int i = 0; i < e->nargs; i++)
        if (is_cast(e->args[i], load)) return true;
    return false;
}

/* Two loads of a dtype that the sum of their products does not accumulate in. */
static bool is_half_product(const kn_stmt *st)
{
    const kn_expr *e = st->body;
    if (e->op != KN_OP_MUL || kn_dtype_class(e->dtype) != 'f' || kn_dtype_acc(e->dtype) == e->dtype) return false;
    return e->args[0]->op == KN_OP_LOAD && e->args[1]->op == KN_OP_LOAD;
}

/* A matrix whose rows lie along the sum, times a vector, which all of its rows meet. */
static bool meets_vector(const kn_site *v, int load)
{
    uint32_t spatial = 0;
    for (int i = 0; i < v->s->nspatial && i < KILN_MAX_AXES; i++) spatial |= (uint32_t)(v->s->axes[i].extent > 1) << i;
    bool sum = v->s->red == KN_RED_SUM && v->nloads == 2 && v->s->naxes == v->s->nspatial + 1 && kn_bare(v->s->body)->op == KN_OP_MUL;
    return sum && v->m < 0 && v->n >= 0 && kn_cpu_only_along_r(v) && !(v->load[load].axes & spatial);
}

/* Narrow operands of a contraction are widened once, before it: where each is read so often, that takes less than doing so as it is read. A copy that
 * L2 does not hold goes out to memory and comes back several times as large. */
static bool widen_one(shaper *s, const kn_stage *g)
{
    enum { OFTEN = 8, FAR = 64 };
    const kn_hw_level *l2 = kn_hw_level_named(s->hw, "l2");
    kn_site v;
    kn_site_of(s->a, s->t, g, s->hw, &v);
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(v.s->body, loads, KN_SITE_LOADS);
    double outer = 1;
    if (s->hw->gpu || v.s->scatter) return false;
    for (int i = 0; i < v.s->nspatial; i++) outer *= (double)v.s->axes[i].extent;
    for (int i = 0; i < n && i < KN_SITE_LOADS; i++) {
        double elems = 1, reads = outer * (double)v.reduce_extent;
        if (!v.contraction && !meets_vector(&v, i)) continue;
        for (int d = 0; d < loads[i]->nargs; d++) elems *= (double)s->t->program->tensors[loads[i]->u.tensor].shape[d];
        const char *wide = kn_format(s->a, "wide%d", s->nplanes);
        double often = l2 && elems * kn_cpu_acc_bytes(&v) > (double)l2->capacity_bytes ? FAR : OFTEN;
        if (!wide || !(is_cast(v.s->body, loads[i]) || is_half_product(v.s)) || reads < often * elems || s->nplanes == KILN_MAX_STMTS) continue;
        if (!try_step(s, kn_format(s->a, "widen %s %d %s", v.name, i, wide))) continue;
        s->plane[s->nplanes++] = wide;
        return true;
    }
    return false;
}

/* Prepares a sum of products of bytes for the device's dot instruction: the operand that it broadcasts becomes unsigned, or wide, where that is what
 * it takes, and the terms a multiple of its own. */
static bool dot_one(shaper *s, const kn_stage *g, bool *fits)
{
    kn_site v;
    kn_cpu_dot d;
    kn_site_of(s->a, s->t, g, s->hw, &v);
    *fits = kn_cpu_dot_of(&v, &d);
    if (!*fits) return false;
    const kn_expr *loads[KN_SITE_LOADS];
    kn_loads(v.s->body, loads, KN_SITE_LOADS);
    int n = s->nplanes, rank = loads[d.a]->nargs;
    int64_t terms = d.it->s->axes[1].extent;
    if (!d.recast || (d.flip && v.s->axes[d.run].extent % terms)) {
        const char *pad = kn_format(s->a, "%s_pad_%s", s->t->program->tensors[loads[d.a]->u.tensor].name, v.s->axes[d.run].name);
        if (v.s->axes[d.run].extent % terms == 0 || !pad || n == KILN_MAX_STMTS || kn_cpu_is_packed(&v)) return false;
        if (!try_step(s, kn_format(s->a, "pad_einsum %s %s %lld", v.name, v.s->axes[d.run].name, (long long)terms))) return false;
        s->plane[s->nplanes++] = pad; /* what is broadcast has to lie there with its zeros */
        return true;
    }
    const char *more = kn_format(s->a, "more%d", n), *step = kn_format(s->a, "unsign %s %d %s sum%d less%d", v.name, d.flip ? d.b : d.a, more, n, n);
    int broadcast = d.it->operand[1].rank == 1 ? 1 : 2;
    if (d.wide) step = kn_format(s->a, "widen %s %d %s %s", v.name, d.a, more, kn_dtype_text(d.it->operand[broadcast].dtype));
    if (!more || n == KILN_MAX_STMTS || !try_step(s, step)) {
        *fits = false;
        return false;
    }
    if (d.flip) return try_step(s, kn_format(s->a, "inline %s", more)); /* the instruction does it */
    if (!d.wide) try_step(s, kn_format(s->a, "ahead sum%d", n)); /* now, so that the constant counts as read once */
    s->plane[s->nplanes++] = more;
    kn_buf b;
    kn_buf_init(&b, s->a);
    kn_putf(&b, "transform_layout %s", more);
    for (int i = 0; i < rank && d.turn >= 0; i++)
        if (i != d.turn) kn_putf(&b, " %d", i);
    kn_putf(&b, " %d", d.turn);
    kiln_bytes line = kn_buf_take(&b);
    if (d.turn >= 0 && line.p) try_step(s, line.p);
    return true;
}

/* Results that do not lie along what lanes had better run along are turned as they are written out. */
static bool turn_one(shaper *s, const kn_stage *g)
{
    kn_site v;
    kn_cpu_dot d;
    kn_tree *before = s->t;
    kiln_bytes text = s->text;
    int n = s->nplanes, stage = 0;
    while (s->t->stages[stage] != g) stage++;
    kn_site_of(s->a, s->t, g, s->hw, &v);
    const char *plane = kn_format(s->a, "plane%d", n), *results = kn_format(s->a, "turned%d", n), *weights = kn_format(s->a, "weights%d", n);
    const char *lines = n + 2 < KILN_MAX_STMTS && plane && results && weights ? kn_cpu_turned(s->a, &v, plane, results, weights) : NULL;
    int before_it = s->t->nstages;
    if (!lines || !try_step(s, lines)) return false;
    kn_site_of(s->a, s->t, s->t->stages[stage + s->t->nstages - before_it - 1], s->hw, &v);
    if (kn_cpu_dot_of(&v, &d) || kn_cpu_is_packed(&v)) {
        s->plane[s->nplanes++] = plane;
        s->plane[s->nplanes++] = results;
        if (strstr(lines, weights)) s->plane[s->nplanes++] = weights;
        return true;
    }
    s->t = before;
    s->text = text;
    return false;
}

/* Results that lie along too few elements for lanes are computed with these outside of the planes. */
static bool planar_one(shaper *s, const kn_stage *g)
{
    kn_site v;
    kn_site_of(s->a, s->t, g, s->hw, &v);
    const char *plane = kn_format(s->a, "plane%d", s->nplanes), *results = kn_format(s->a, "turned%d", s->nplanes);
    const char *lines = s->nplanes + 1 < KILN_MAX_STMTS && plane && results ? kn_cpu_planar(s->a, &v, plane, results) : NULL;
    if (!lines || !try_step(s, lines)) return false;
    s->plane[s->nplanes++] = plane;
    s->plane[s->nplanes++] = results;
    return true;
}

/* A window of halves whose places would be gathered term by term for few results each, or with steps between the lanes: as wide floats, of which
 * a vector takes half as many products, it is faster (measured). */
static bool gathers(const kn_site *v)
{
    enum { FEW = 32 };
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(v->s->body, loads, KN_SITE_LOADS);
    uint32_t spatial = (1u << v->s->nspatial) - 1;
    for (int l = 0; l < n && l < KN_SITE_LOADS && kn_dtype_class(v->s->body->dtype) == 'f'; l++) {
        bool window = false, steps = false;
        int64_t results = 1;
        for (int d = 0; d < loads[l]->nargs; d++) {
            kn_affine f;
            uint32_t in = kn_axes_in(loads[l]->args[d]);
            window |= (in & spatial) && (in & ~spatial);
            steps |= v->n >= 0 && (in >> v->n & 1) && kn_affine_of(loads[l]->args[d], &f) && f.coef[v->n] > 1;
        }
        for (int i = 0; i < v->s->nspatial; i++) if (!(kn_axes_in(loads[l]) >> i & 1)) results *= v->s->axes[i].extent;
        if (window && (results <= FEW || steps)) return true;
    }
    return false;
}

/* A product of narrow factors goes to the instruction of the device that multiplies them, by the mapping predicted to be the fastest that its
 * primitives take: a step that schedules its statement and the layouts that it wants. */
static bool map_one(shaper *s, int stage)
{
    const char *line[KN_MAPPED];
    kn_site v;
    kn_site_of(s->a, s->t, s->t->stages[stage], s->hw, &v);
    if ((gathers(&v) || kn_cpu_streams_narrow(&v)) && !kn_mapped_unit(s->a, s->t, s->hw, stage)) return false;
    int n = kn_mapped_steps(s->a, s->t, s->hw, stage, true, s->nfused, line, KN_MAPPED);
    for (int i = 0; i < n; i++)
        if (try_step(s, line[i])) return ++s->nfused;
    return false;
}

/* A load is copied as the sum wants it, by these steps if they are wanted: weights that are numbered in digits, which no window is, in order; what a
 * window's steps along the lanes meet. */
static bool copied_one(shaper *s, const kn_stage *g, const char *name, const char *steps(kiln_arena *a, const kn_site *x, const char *copy))
{
    kn_site v;
    kn_site_of(s->a, s->t, g, s->hw, &v);
    const char *copy = kn_format(s->a, "%s%d", name, s->nplanes), *lines = s->nplanes < KILN_MAX_STMTS && copy ? steps(s->a, &v, copy) : NULL;
    if (!lines || !try_step(s, lines)) return false;
    s->plane[s->nplanes++] = copy;
    return true;
}

static bool digits_one(shaper *s, const kn_stage *g) { return copied_one(s, g, "weights", kn_cpu_digits); }
static bool spread_one(shaper *s, const kn_stage *g) { return copied_one(s, g, "plane", kn_cpu_spread); }

/* The window slides along n, so that a row of it can be held and used for many of its places. */
static bool slides_along_n(const kn_site *v, const kn_expr *load)
{
    uint32_t reduced = (1u << v->s->naxes) - (1u << v->s->nspatial);
    for (int d = 0; d < load->nargs; d++)
        if ((kn_axes_in(load->args[d]) >> v->n & 1) && (kn_axes_in(load->args[d]) & reduced)) return true;
    return false;
}

/* Dimension of the load along which the axis alone of the two steps, -1: none; *window is set where it meets others there, steps by more than one
 * or may meet padding. */
static int window_dim(const kn_site *v, int l, const kn_expr *load, int axis, bool *window)
{
    int dim = -1;
    uint32_t moving = 0;
    for (int i = 0; i < v->s->naxes && i < KILN_MAX_AXES; i++) moving |= (uint32_t)(v->s->axes[i].extent > 1) << i;
    for (int i = 0; i < load->nargs; i++) {
        kn_affine f;
        uint32_t in = kn_axes_in(load->args[i]);
        if (!(in >> axis & 1)) continue;
        if (dim >= 0 || !kn_affine_of(load->args[i], &f) || f.coef[axis] < 1) return -1;
        if (!slides_along_n(v, load) && kn_cpu_is_digit(v, &f, axis)) return -1;
        dim = i;
        *window |= v->load[l].padded || (in & moving) != 1u << axis || f.coef[axis] > 1;
    }
    return dim;
}

/* A window whose rows fill vectors (cpu_strips.c) is read without its padding and stride. */
static bool strip_one(shaper *s, const kn_stage *g, int *added)
{
    kn_site v;
    kn_site_of(s->a, s->t, g, s->hw, &v);
    int load = s->nplanes < KILN_MAX_STMTS && !kn_cpu_is_packed(&v) ? kn_cpu_strip(&v) : -1;
    const char *plane = kn_format(s->a, "plane%d", s->nplanes), *line = load < 0 || !plane ? NULL : kn_cpu_strip_steps(s->a, &v, load, plane);
    if (!line || (*line && !try_step(s, line))) return false;
    *added = *line != 0;
    if (*line) s->plane[s->nplanes++] = plane;
    return true;
}

/* A window that slides over two dimensions, side by side, of one factor of a sum of products (a convolution): its places become one axis. */
static bool flatten_one(shaper *s, const kn_stage *g)
{
    kn_site v;
    kn_site_of(s->a, s->t, g, s->hw, &v);
    bool packed = kn_cpu_is_packed(&v); /* whose window stays as it is, but not rows and columns read alone */
    if (s->hw->gpu || !v.contraction || v.s->scatter || (packed && !kn_cpu_joins_rows(&v))) return false;
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(v.s->body, loads, KN_SITE_LOADS);
    for (int i = 0; i < n && i < KN_SITE_LOADS; i++) {
        for (int b = v.s->nspatial - 1; b > 0; b--) {
            bool window = false;
            int a = b - 1, row = window_dim(&v, i, loads[i], a, &window), column = window_dim(&v, i, loads[i], b, &window);
            if (row < 0 || column != row + 1 || !window || v.s->axes[a].extent < 2 || kn_cpu_few_shifts(&v, loads[i], column, b)) continue;
            const char *plane = kn_format(s->a, "plane%d", s->nplanes);
            if (!plane || s->nplanes == KILN_MAX_STMTS) return false;
            const char *thin = kn_cpu_thinned(s->a, &v, i, loads[i], plane);
            if (thin && try_step(s, thin)) {
                s->plane[s->nplanes++] = plane;
                return true;
            }
            if (packed || !try_step(s, kn_format(s->a, "flatten_window %s %d %s %s V%d %s rows%d", v.name, i, v.s->axes[a].name, v.s->axes[b].name,
                                       s->nplanes, plane, s->nplanes))) continue;
            s->plane[s->nplanes++] = plane;
            return true;
        }
    }
    return false;
}

/* Sums for a few shifts of planes have lanes along the other factor's channels. */
static bool shifts_one(shaper *s, const kn_stage *g)
{
    kn_site v;
    int n = s->nplanes;
    kn_site_of(s->a, s->t, g, s->hw, &v);
    const char *factor = kn_format(s->a, "factor%d", n), *results = kn_format(s->a, "turned%d", n);
    const char *lines = n + 1 < KILN_MAX_STMTS && factor && results ? kn_cpu_shifts(s->a, &v, factor, results) : NULL;
    if (!lines || !try_step(s, lines)) return false;
    s->plane[s->nplanes++] = factor;
    s->plane[s->nplanes++] = results;
    return true;
}

/* Taps of a depthwise window lie along the lanes, as a copy that is made ahead. */
static bool taps_one(shaper *s, const kn_stage *g)
{
    kn_site v;
    kn_site_of(s->a, s->t, g, s->hw, &v);
    int load = kn_cpu_taps(&v), n = s->nplanes;
    if (load < 0 || n == KILN_MAX_STMTS) return false;
    const char *taps = kn_format(s->a, "taps%d", n);
    kn_buf b;
    kn_buf_init(&b, s->a);
    kn_cpu_put_lanes_last(&b, &v, load, taps);
    kn_putf(&b, "ahead %s", taps);
    kiln_bytes lines = kn_buf_take(&b);
    if (!taps || !lines.p || !try_step(s, lines.p)) return false;
    s->plane[s->nplanes++] = taps;
    return true;
}

/* Padding of a window that is no product's (pooling, depthwise) is filled in once, instead of asked for or copied at every place of the window;
 * but not where rows could be held, and the filled in copy would have to go out to memory and come back. */
static bool pad_one(shaper *s, const kn_stage *g)
{
    kn_site v;
    kn_site_of(s->a, s->t, g, s->hw, &v);
    const kn_expr *loads[KN_SITE_LOADS];
    const kn_hw_level *l2 = kn_hw_level_named(s->hw, "l2");
    int n = kn_loads(v.s->body, loads, KN_SITE_LOADS), padded = 0;
    for (int i = 0; i < v.nloads; i++) padded += v.load[i].padded;
    int ahead = kn_cpu_packed_pads(&v);
    if (kn_cpu_taps_apart(&v)) return false;
    if (ahead < 0) ahead = kn_cpu_taps_pads(&v);
    if (ahead >= 0) {
        const char *plane = kn_format(s->a, "plane%d", s->nplanes);
        if (!plane || s->nplanes == KILN_MAX_STMTS || !try_step(s, kn_format(s->a, "decompose_padding %s %d %s", v.name, ahead, plane))) return false;
        s->plane[s->nplanes++] = plane;
        return true;
    }
    if (s->hw->gpu || v.contraction || v.s->scatter || v.s->naxes == v.s->nspatial) return false;
    for (int i = 0; i < n && i < KN_SITE_LOADS; i++) {
        const char *plane = kn_format(s->a, "plane%d", s->nplanes);
        double bytes = kn_dtype_bytes(loads[i]->dtype);
        for (int d = 0; d < loads[i]->nargs; d++) bytes *= (double)s->t->program->tensors[loads[i]->u.tensor].shape[d];
        bool held = n == 1 || (padded == 1 && v.n >= 0 && v.load[i].coef[v.n] > 1); /* beside other tensors no row is, but picked from by its steps */
        bool rows = v.n >= 0 && held && v.load[i].linear && slides_along_n(&v, loads[i]);
        if (!l2 || (rows && bytes > 2 * (double)l2->capacity_bytes)) continue;
        if (!v.load[i].padded || kn_site_lanes_agree(&v, loads[i]) || !plane || s->nplanes == KILN_MAX_STMTS) continue;
        if (!try_step(s, kn_format(s->a, "decompose_padding %s %d %s", v.name, i, plane))) continue;
        s->plane[s->nplanes++] = plane;
        return true;
    }
    return false;
}

/* A window of one tensor's elements over several dimensions: its rows are combined first, for all places that share them. `held`: where registers
 * hold them, so that columns in padding need not be filled in. */
static bool separate_one(shaper *s, int stage, bool held)
{
    kn_site v;
    kn_site_of(s->a, s->t, s->t->stages[stage], s->hw, &v);
    const kn_expr *loads[2];
    if (s->hw->gpu || v.s->scatter || v.s->naxes < v.s->nspatial + 2 || kn_loads(v.s->body, loads, 2) != 1) return false;
    kn_tree *before = s->t;
    kiln_bytes text = s->text;
    const char *rows = kn_format(s->a, "rows%d", s->nplanes), *inside = held && loads[0]->padded ? " inside" : "";
    for (int a = v.s->nspatial; a < v.s->naxes && rows && s->nplanes < KILN_MAX_STMTS; a++) {
        if (v.s->axes[a].extent < 2 || v.reduce_extent == v.s->axes[a].extent || !kn_cpu_separates(&v, loads[0], a, held)) continue;
        if (!try_step(s, kn_format(s->a, "separate %s %s %s%s", v.name, v.s->axes[a].name, rows, inside))) continue;
        if ((held ? kn_cpu_window_held : kn_cpu_window_fits)(s->a, s->t, s->hw, stage + 1)) {
            s->plane[s->nplanes++] = rows;
            return true;
        }
        s->t = before;
        s->text = text;
    }
    return false;
}

/* Outer axes that several statements have are fused in all of them. */
static bool fuse_jointly(shaper *s)
{
    for (int k = s->t->nstages - 1; k >= 0; k--) {
        const kn_stmt *st = s->t->program->stmts[s->t->stages[k]->stmt];
        for (int x = 0; x + 1 < st->naxes; x++) {
            const char *lines = kn_joint_fuse(s->a, s->t, s->hw, k, x, s->nfused);
            if (lines && try_step(s, lines)) return ++s->nfused;
        }
    }
    return false;
}

/* What depends on one constant alone is no work of a call: sums of weights, before they become a part of something else, and maps that are not
 * computed where they are read: wide, padded or other forms of weights. */
static void go_ahead(shaper *s, bool sums)
{
    for (int k = 0; k < s->t->nstages && !s->hw->gpu && !kn_stopped(s->a); k++) {
        const kn_stage *g = s->t->stages[k];
        const kn_stmt *st = s->t->program->stmts[g->stmt];
        if (g->ahead || kn_stage_constant(s->t, g) < 0 || (sums && st->red == KN_RED_NONE)) continue;
        try_step(s, kn_format(s->a, "ahead %s", s->t->program->tensors[st->out].name));
    }
}

/* The results are written with the channels last, by the statement itself or by what finishes them (cpu_lanes.c). */
static bool turned_back(const shaper *s, int tensor)
{
    const kn_program *p = s->t->program;
    const kn_expr *one;
    bool yes = !strcmp(p->tensors[tensor].name, KN_CPU_LANES);
    for (int i = 0; i < p->nstmts && !yes; i++)
        yes = !strcmp(p->tensors[p->stmts[i]->out].name, KN_CPU_LANES) && reads(p->stmts[i]->body, tensor, &one);
    return yes;
}

/* Halves whose lanes go along the sum become floats as they are read, the few that all rows meet before. */
static bool narrow_one(shaper *s, int stage, int *added)
{
    kn_site v;
    kn_site_of(s->a, s->t, s->t->stages[stage], s->hw, &v);
    int load = kn_site_scheduled(s->t, s->t->stages[stage]) ? -1 : kn_cpu_narrow_load(&v), before = s->t->nstages;
    const char *wide = kn_format(s->a, "wide%d", s->nplanes);
    *added = 0;
    if (load < 0 || v.load[load].bytes == kn_cpu_acc_bytes(&v)) return false;
    if (!wide || s->nplanes == KILN_MAX_STMTS) return true;
    if (!try_step(s, kn_format(s->a, "widen %s %d %s", v.name, load, wide))) return true;
    s->plane[s->nplanes++] = wide;
    *added = s->t->nstages - before;
    return true;
}

kiln_status kn_shape(kiln_arena *a, const kn_program *p, const kn_hw *hw, kiln_bytes start, kiln_bytes *trace, kn_tree **t, kiln_diag *d)
{
    shaper s = {.a = a, .hw = hw, .text = start};
    kiln_status st = kn_trace_apply(a, p, hw, s.text, &s.t, d);
    if (st) return st;
    for (int i = 0; i < s.t->program->ntensors && s.nplanes < KILN_MAX_STMTS; i++) {
        const char *name = s.t->program->tensors[i].name;
        if (!strcmp(name, KN_CPU_LANES) || !strcmp(name, KN_CPU_SQUARES_IN) || !strcmp(name, KN_CPU_SQUARES_OUT)) s.plane[s.nplanes++] = name;
    }
    for (int k = 0; k < s.t->nstages; k++) {
        kn_stage *g = s.t->stages[k];
        int before = s.t->nstages, strip = 0;
        bool dot = false, fresh = !kn_site_scheduled(s.t, g);
        if (turned_back(&s, s.t->program->stmts[g->stmt]->out)) continue;
        bool unit = fresh && kn_mapped_unit(a, s.t, hw, k);
        if (unit && map_one(&s, k)) k += s.t->nstages - before;
        else if (narrow_one(&s, k, &strip)) k += strip;
        else if (fresh && (turn_one(&s, g) || planar_one(&s, g) || dot_one(&s, g, &dot))) k--;
        else if (dot) k += !flatten_one(&s, g) && pad_one(&s, g);
        else if (fresh && map_one(&s, k)) k += s.t->nstages - before;
        else if (fresh && (widen_one(&s, g) || digits_one(&s, g) || taps_one(&s, g) || shifts_one(&s, g) || spread_one(&s, g)))
            k--; /* its statement is one further on */
        else if (fresh && strip_one(&s, g, &strip)) k += strip;
        else if (fresh && !flatten_one(&s, g)) {
            bool held = separate_one(&s, k, true);
            if (held) k++;
            while (!held && pad_one(&s, s.t->stages[k])) k++;
            k += !held && separate_one(&s, k, false);
        }
    }
    while (inline_one(&s, true)) {}
    for (int k = 0; k < s.t->nstages; k++)
        while (!kn_stopped(a) && divide_with_reader(&s, s.t->stages[k])) {}
    while (!kn_stopped(a) && tabulate_one(&s)) {}
    while (!kn_stopped(a) && fuse_jointly(&s)) {}
    go_ahead(&s, true);
    while (epilogue_one(&s)) {}
    while (inline_one(&s, false)) {}
    for (int k = 0; k < s.t->nstages; k++)
        while (!kn_stopped(a) && divide_one(&s, s.t->stages[k])) {}
    for (int k = 0; k < s.t->nstages; k++)
        while (!kn_stopped(a) && fuse_pair(&s, s.t->stages[k])) {}
    go_ahead(&s, false);
    *trace = s.text;
    *t = s.t;
    if (kn_stopped(a)) return kn_fail(d, KILN_STOPPED, "stopped while shaping the program");
    return kn_arena_dry(a) ? kn_fail(d, KILN_MEMORY, "out of memory") : KILN_OK;
}
