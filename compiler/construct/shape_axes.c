/* Axes that are adjacent in every access become one (ROLLER 3.4), those that are read in digits two. */
#include "construct/shape.h"
#include "te/expr.h"


/* Some sum reads the tensor. */
static bool summed(const kn_program *p, int tensor)
{
    const kn_expr *one;
    bool yes = false;
    for (int i = 0; i < p->nstmts; i++) yes |= p->stmts[i]->red != KN_RED_NONE && kn_shaper_reads(p->stmts[i]->body, tensor, &one);
    return yes;
}

/* The statement makes the rows of a window, or reads them at one of these axes alone, whose loop it is to share with what makes them. */
static bool holds_rows(const kn_shaper *s, const kn_stmt *st, int x, int y)
{
    const kn_program *p = s->t->program;
    const kn_expr *loads[1];
    if (st->red == KN_RED_NONE) return false;
    if (kn_shaper_stores(s, p->tensors[st->out].name) && summed(p, st->out)) return true;
    if (kn_loads(st->body, loads, 1) != 1 || !kn_shaper_stores(s, p->tensors[loads[0]->u.tensor].name)) return false;
    for (int i = 0; i < p->nstmts; i++) {
        if (p->stmts[i]->out != loads[0]->u.tensor || p->stmts[i]->red == KN_RED_NONE) continue;
        for (int d = 0; d < loads[0]->nargs; d++) {
            bool last = d == loads[0]->nargs - 1, alone = loads[0]->args[d]->op == KN_OP_AXIS;
            if (alone && (loads[0]->args[d]->u.axis == x || (loads[0]->args[d]->u.axis == y && !last))) return true;
        }
    }
    return false;
}

static bool fuse_pair(kn_shaper *s, const kn_stage *g)
{
    kn_site v;
    kn_site_of(s->a, s->t, g, s->hw, &v);
    const kn_stmt *st = v.s;
    const kn_expr *loads[1];
    if (st->scatter || kn_loads(st->body, loads, 1) > KN_SITE_LOADS || kn_cpu_is_widened(s->a, s->t, s->hw, g)) return false;
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
        if (kn_shaper_try(s, kn_format(s->a, "fuse %s F%d %s %s", v.name, s->nfused++, st->axes[x].name, st->axes[y].name))) return true;
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
static bool is_affine(kn_shaper *s, const kn_stage *g)
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
static bool divide_one(kn_shaper *s, const kn_stage *g)
{
    const kn_stmt *st = s->t->program->stmts[g->stmt];
    if (is_affine(s, g)) return false;
    for (int x = 0; x < st->naxes && !st->scatter; x++) {
        long long f = factor_of(st, x);
        int n = f ? s->nfused++ : 0;
        const char *name = s->t->program->tensors[st->out].name;
        if (f && kn_shaper_try(s, kn_format(s->a, "divide %s %s D%d E%d %lld", name, st->axes[x].name, n, n, f))) return true;
    }
    return false;
}

/* So does a dimension of a sum that one map reads, with the map's axis, since an epilogue sees the axes of its sum (groups of a convolution). */
static bool divide_with_reader(kn_shaper *s, const kn_stage *g)
{
    const kn_program *p = s->t->program;
    const kn_stmt *st = p->stmts[g->stmt], *reader = NULL;
    const kn_expr *one = NULL;
    if (s->hw->gpu || p->tensors[st->out].role != KN_TEMP || st->red == KN_RED_NONE || st->scatter || is_affine(s, g)) return false;
    for (int i = 0; i < p->nstmts; i++) {
        int n = kn_shaper_reads(p->stmts[i]->body, st->out, &one);
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
        if (f && lines.p && kn_shaper_try(s, lines.p)) return true;
    }
    return false;
}

/* Groups are taken apart before anything looks at the windows, which have affine indices then. What makes up the sum's epilogue is one map first.
 * Not for registers of a unit of its own, which a group's few channels leave empty. */
void kn_shape_groups(kn_shaper *s)
{
    for (int k = 0; k < s->t->nstages && !s->hw->gpu && !kn_stopped(s->a); k++) {
        const kn_stmt *st = s->t->program->stmts[s->t->stages[k]->stmt];
        bool grouped = false;
        for (int x = 0; x < st->nspatial; x++) grouped |= kn_numbers_groups(st, x);
        if (!grouped || kn_site_scheduled(s->t, s->t->stages[k])) continue;
        int stages = s->t->nstages;
        kn_shape_chains(s);
        kn_tree *before = s->t;
        kiln_bytes text = s->text;
        if (s->t->nstages != stages) {
            k = -1; /* anew */
        } else if ((divide_with_reader(s, s->t->stages[k]) || divide_one(s, s->t->stages[k])) && kn_mapped_unit(s->a, s->t, s->hw, k)) {
            s->t = before;
            s->text = text;
        }
    }
}

/* Outer axes that several statements have are fused in all of them. */
static bool fuse_jointly(kn_shaper *s)
{
    for (int k = s->t->nstages - 1; k >= 0; k--) {
        const kn_stmt *st = s->t->program->stmts[s->t->stages[k]->stmt];
        for (int x = 0; x + 1 < st->naxes; x++) {
            const char *lines = kn_joint_fuse(s->a, s->t, s->hw, k, x, s->nfused);
            if (lines && kn_shaper_try(s, lines)) return ++s->nfused;
        }
    }
    return false;
}

void kn_shape_joint(kn_shaper *s) { while (!kn_stopped(s->a) && fuse_jointly(s)) {} }

/* Each stage in turn, as often as there is something to do. */
static void each(kn_shaper *s, bool one(kn_shaper *, const kn_stage *))
{
    for (int k = 0; k < s->t->nstages; k++)
        while (!kn_stopped(s->a) && one(s, s->t->stages[k])) {}
}

void kn_shape_read_digits(kn_shaper *s) { each(s, divide_with_reader); }
void kn_shape_axis_digits(kn_shaper *s) { each(s, divide_one); }
void kn_shape_fused(kn_shaper *s) { each(s, fuse_pair); }
