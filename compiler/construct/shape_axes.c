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

/* The only statement that reads tensor t, once, if that is a map. */
static const kn_stmt *only_reader(const kn_program *p, int t, const kn_expr **read)
{
    const kn_stmt *reader = NULL;
    for (int i = 0; i < p->nstmts; i++) {
        int n = kn_shaper_reads(p->stmts[i]->body, t, read);
        if (n && (n > 1 || reader || p->stmts[i]->red != KN_RED_NONE || p->stmts[i]->scatter)) return NULL;
        if (n) reader = p->stmts[i];
    }
    return reader;
}

/* So does a dimension of a sum that one map reads, with the map's axis, since an epilogue sees the axes of its sum (groups of a convolution). */
static bool divide_with_reader(kn_shaper *s, const kn_stage *g)
{
    const kn_program *p = s->t->program;
    const kn_stmt *st = p->stmts[g->stmt];
    const kn_expr *one = NULL;
    if (s->hw->gpu || p->tensors[st->out].role != KN_TEMP || st->red == KN_RED_NONE || st->scatter || is_affine(s, g)) return false;
    const kn_stmt *reader = only_reader(p, st->out, &one);
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

/* The dimension of what `read` reads that is axis x as it is (op AXIS), its quotients by f (FLOORDIV) or its remainders (MOD); -1: none. */
static int dimension_of(const kn_expr *read, enum kn_op op, int x, int64_t f)
{
    for (int k = 0; k < read->nargs; k++) {
        const kn_expr *at = read->args[k], *axis = op == KN_OP_AXIS ? at : at->nargs ? at->args[0] : at;
        if (at->op != op || axis->op != KN_OP_AXIS || axis->u.axis != x) continue;
        if (op == KN_OP_AXIS || (at->args[1]->op == KN_OP_CONST_I && at->args[1]->u.i == f)) return k;
    }
    return -1;
}

/* Axis x of the sum is one of a constant's, which is packed with its lanes along it. */
static bool along_constant(const kn_program *p, const kn_stmt *st, int x)
{
    const kn_expr *loads[2];
    int n = kn_loads(st->body, loads, 2);
    for (int l = 0; l < n && n == 2; l++) {
        const kn_tensor *t = &p->tensors[loads[l]->u.tensor];
        if (t->role == KN_INPUT && t->constant && kn_axes_in(loads[l]) >> x & 1) return true;
    }
    return false;
}

/* A map that finishes a sum and reads it in digits of its own axes (the places of a transposed convolution whose windows do not overlap) has these as
 * axes, too, and the sum lies in the order of its results, where that makes it the sum's epilogue. What lies along their lanes has to stay whole, and
 * to be a constant's: others would be copied in squares. */
static bool divide_reader(kn_shaper *s, const kn_stage *g)
{
    const kn_program *p = s->t->program;
    const kn_stmt *st = p->stmts[g->stmt];
    const kn_expr *read = NULL;
    if (s->hw->gpu || p->tensors[st->out].role != KN_TEMP || st->red == KN_RED_NONE || st->scatter) return false;
    const kn_stmt *reader = only_reader(p, st->out, &read);
    const kn_tensor *y = reader ? &p->tensors[reader->out] : NULL;
    if (!y || !y->rank || y->shape[y->rank - 1] * kn_dtype_bytes(y->dtype) < s->hw->vector_bytes) return false;
    int divided = 0, order[KILN_MAX_RANK], n = 0;
    kn_buf b;
    kn_buf_init(&b, s->a);
    for (int d = 0; d < y->rank; d++) {
        if (reader->lhs[d]->op != KN_OP_AXIS) return false;
        int x = reader->lhs[d]->u.axis;
        long long f = factor_of(reader, x);
        if (n + 2 > KILN_MAX_RANK || (f && d == y->rank - 1)) return false;
        order[n++] = dimension_of(read, f ? KN_OP_FLOORDIV : KN_OP_AXIS, x, f);
        if (f) order[n++] = dimension_of(read, KN_OP_MOD, x, f);
        if (order[n - 1] < 0 || (f && order[n - 2] < 0)) return false;
        if (f) kn_putf(&b, "divide %s %s D%d E%d %lld\n", y->name, reader->axes[x].name, s->nfused + divided, s->nfused + divided, f), divided++;
    }
    const kn_expr *lanes = n == read->nargs && n == p->tensors[st->out].rank ? st->lhs[order[n - 1]] : NULL;
    if (!divided || !lanes || lanes->op != KN_OP_AXIS || !along_constant(p, st, lanes->u.axis)) return false;
    s->nfused += divided;
    kn_putf(&b, "transform_layout %s", p->tensors[st->out].name);
    for (int d = 0; d < n; d++) kn_putf(&b, " %d", order[d]);
    kn_putf(&b, "\nepilogue %s", p->tensors[st->out].name);
    kiln_bytes lines = kn_buf_take(&b);
    return lines.p && kn_shaper_try(s, lines.p);
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

void kn_shape_read_digits(kn_shaper *s) { each(s, divide_with_reader), each(s, divide_reader); }
void kn_shape_axis_digits(kn_shaper *s) { each(s, divide_one); }
void kn_shape_fused(kn_shaper *s) { each(s, fuse_pair); }
