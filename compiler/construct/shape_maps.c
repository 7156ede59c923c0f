/* Maps go where they are read, or into what they read; what one constant alone decides goes ahead of the first call. */
#include "construct/shape.h"
#include "te/expr.h"
#include <string.h>

enum { FUNCTION = 16 }; /* operations that a function counts as */

static int body_cost(const kn_expr *e)
{
    int n = kn_is_function(e->op) ? FUNCTION : e->op >= KN_OP_ADD;
    if (e->op == KN_OP_LOAD) return 0;
    for (int i = 0; i < e->nargs && n < 1000; i++) n += body_cost(e->args[i]);
    return n;
}

/* Reads of a temporary in the whole program, and how often one element of it would be computed after inlining: 1 when its one reader has no
 * other axes. again: some reader has. */
static int reads_of(const kn_program *p, int tensor, bool *once, bool *by_map, bool *again)
{
    int total = 0;
    *once = *by_map = true;
    *again = false;
    for (int i = 0; i < p->nstmts; i++) {
        const kn_expr *one = NULL;
        int n = kn_shaper_reads(p->stmts[i]->body, tensor, &one);
        if (!n) continue;
        total += n;
        double points = 1, elems = 1;
        for (int k = 0; k < p->stmts[i]->naxes; k++) points *= (double)p->stmts[i]->axes[k].extent;
        for (int k = 0; k < p->tensors[tensor].rank; k++) elems *= (double)p->tensors[tensor].shape[k];
        if (n > 1 || points > elems) *once = false;
        *again |= points > elems;
        if (p->stmts[i]->red != KN_RED_NONE) *by_map = false;
    }
    if (total != 1) *once = false;
    return total;
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

/* The sum that the map finishes, which nothing else reads; NULL: there is none. */
static const char *sum_of(const kn_program *p, const kn_stmt *st)
{
    const kn_expr *one;
    for (int i = 0; i < p->nstmts; i++) {
        const kn_tensor *t = &p->tensors[p->stmts[i]->out];
        if (p->stmts[i]->red == KN_RED_NONE || t->role != KN_TEMP || kn_shaper_reads(st->body, p->stmts[i]->out, &one) != 1) continue;
        int readers = 0;
        for (int k = 0; k < p->nstmts; k++) readers += kn_shaper_reads(p->stmts[k]->body, p->stmts[i]->out, &one) > 0;
        return readers == 1 ? t->name : NULL;
    }
    return NULL;
}

/* Functions of a tile's sums want the registers that its loop has: a loop of their own takes 0.95 to 1 of the time while a cache holds what goes
 * between the two, 1.03 to 1.1 beyond (an AVX2 machine). Without functions the loop takes 1.02 to 2.9 times as long. */
static bool wants_loop(const kn_shaper *s, int tensor)
{
    const kn_program *p = s->t->program;
    const kn_hw_level *l3 = kn_hw_level_named(s->hw, "l3"), *far = l3 ? l3 : kn_hw_level_named(s->hw, "l2");
    double bytes = kn_dtype_bytes(p->tensors[tensor].dtype);
    bool calls = false;
    for (int i = 0; i < p->tensors[tensor].rank; i++) bytes *= (double)p->tensors[tensor].shape[i];
    for (int i = 0; i < p->nstmts; i++) {
        const kn_expr *one;
        calls |= kn_shaper_reads(p->stmts[i]->body, tensor, &one) && body_cost(p->stmts[i]->body) >= FUNCTION;
    }
    return !s->hw->gpu && calls && far && bytes <= (double)far->capacity_bytes;
}

/* A biased sum that its one reader reads several times (x * clip(x)): made in each of these places, the reader is what finishes the sum, and nothing
 * goes through memory in between. Left alone where the reader cannot be that. */
static bool finishes_with_reader(kn_shaper *s, const kn_stmt *st)
{
    const char *sum = wants_loop(s, st->out) ? NULL : sum_of(s->t->program, st), *name = s->t->program->tensors[st->out].name;
    kn_tree *before = s->t;
    kiln_bytes text = s->text;
    if (!sum || !kn_shaper_try(s, kn_format(s->a, "inline %s\nepilogue %s", name, sum))) return false;
    s->t = before;
    s->text = text;
    return true;
}

/* The temporary says where something is read: a CPU would compute that lane by lane. */
static bool is_place(const kn_expr *e, int tensor, bool in_index)
{
    bool load = e->op == KN_OP_LOAD;
    if (load && in_index && e->u.tensor == tensor) return true;
    for (int i = 0; i < e->nargs; i++)
        if (is_place(e->args[i], tensor, in_index || load)) return true;
    return false;
}

/* Something is read where the data say. */
static bool gathers(const kn_expr *e)
{
    for (int i = 0; i < e->nargs; i++)
        if (e->op == KN_OP_LOAD ? kn_loads(e->args[i], NULL, 0) > 0 : gathers(e->args[i])) return true;
    return false;
}

static bool tells_places(const kn_shaper *s, int tensor)
{
    const kn_program *p = s->t->program;
    for (int i = 0; i < p->nstmts; i++)
        if (is_place(p->stmts[i]->body, tensor, false)) return true;
    return false;
}

static double elems_of(const kn_tensor *t)
{
    double n = 1;
    for (int i = 0; i < t->rank; i++) n *= (double)t->shape[i];
    return n;
}

/* The axis that the last dimension of a read, or of what a statement writes, is; -1: something else. */
static int last_axis(kn_expr *const *index, int n) { return n && index[n - 1]->op == KN_OP_AXIS ? index[n - 1]->u.axis : -1; }

/* Reads of whole rows, along `axis` (-1: any), where the data say, of one tensor (-1: of any). */
static int reads_rows(const kn_expr *e, int tensor, int axis)
{
    int n = 0;
    if (e->op == KN_OP_LOAD && (tensor < 0 || e->u.tensor == tensor)) {
        int last = last_axis(e->args, e->nargs);
        n = last >= 0 && (axis < 0 || last == axis) && gathers(e);
    }
    for (int i = 0; i < e->nargs; i++) n += reads_rows(e->args[i], tensor, axis);
    return n;
}

/* Reads of the tensor along another axis than the statement's last one. */
static bool turns(const kn_expr *e, int tensor, int axis)
{
    if (e->op == KN_OP_LOAD && e->u.tensor == tensor) return last_axis(e->args, e->nargs) != axis;
    for (int i = 0; i < e->nargs; i++)
        if (turns(e->args[i], tensor, axis)) return true;
    return false;
}

/* Rows that lie together are gathered as vectors. A copy that turns them so stays, if it is not larger than what is read of it, and what is made of
 * rows is made in their order and turned afterwards: either would else have lanes that are fetched one by one. */
static bool keeps_rows(const kn_shaper *s, const kn_stmt *st)
{
    const kn_program *p = s->t->program;
    const kn_tensor *t = &p->tensors[st->out];
    int axis = last_axis(st->lhs, t->rank);
    const kn_expr *read = kn_bare(st->body);
    if (s->hw->gpu || axis < 0 || st->axes[axis].extent * kn_dtype_bytes(t->dtype) < s->hw->vector_bytes) return false;
    bool turned = read->op == KN_OP_LOAD && last_axis(read->args, read->nargs) != axis, rows = reads_rows(st->body, -1, axis) > 0;
    for (int i = 0; i < p->nstmts && (turned || rows); i++) {
        const kn_stmt *r = p->stmts[i];
        double points = 1;
        for (int k = 0; k < r->naxes; k++) points *= (double)r->axes[k].extent;
        if (turned && points * reads_rows(r->body, st->out, -1) >= elems_of(t)) return true;
        if (rows && turns(r->body, st->out, last_axis(r->lhs, p->tensors[r->out].rank))) return true;
    }
    return false;
}

/* The axis along which the statement's results lie, -1: none of its own. */
static int results_axis(const kn_program *p, const kn_stmt *s)
{
    for (int d = p->tensors[s->out].rank - 1; d >= 0; d--)
        if (s->lhs[d]->op == KN_OP_AXIS && s->axes[s->lhs[d]->u.axis].extent > 1) return s->lhs[d]->u.axis;
    return -1;
}

/* It makes so many elements of what it reads that they had better not all be there at once. */
static bool spreads(const kn_program *p, const kn_stmt *map)
{
    enum { MANY = 4 };
    const kn_expr *loads[KN_SITE_LOADS];
    int n = kn_loads(map->body, loads, KN_SITE_LOADS);
    double read = 1;
    for (int l = 0; l < n && l < KN_SITE_LOADS; l++) read += elems_of(&p->tensors[loads[l]->u.tensor]);
    return elems_of(&p->tensors[map->out]) > MANY * read;
}

/* A sum of products reads the map's results again and again: as what all columns share they would be made element by element beside the
 * multiply-adds of a tile's few vectors, and for each panel anew; as what has the columns in vectors, for each group of rows. Made once before, it
 * takes 0.3 to 0.6 of the time of the former, and 0.88 to 0.99 of the latter's (relu, a scaling and a division before 256x256x256, 64x1024x1024,
 * 512x64x512, 16x2048x512 and 128x768x768, AVX2). But few rows had better read columns that are narrow, or far away, once. */
static bool is_factor(const kn_shaper *s, const kn_stmt *map)
{
    enum { FEW_ROWS = 16 };
    const kn_program *p = s->t->program;
    for (int i = 0; i < p->nstmts && !s->hw->gpu && !spreads(p, map); i++) {
        const kn_stmt *r = p->stmts[i];
        const kn_expr *one;
        int n = results_axis(p, r);
        double rows = 1;
        if (r->red != KN_RED_SUM || kn_bare(r->body)->op != KN_OP_MUL || n < 0 || !kn_shaper_reads(r->body, map->out, &one)) continue;
        for (int k = 0; k < r->nspatial; k++) rows *= kn_axes_in(one) >> k & 1 ? 1 : (double)r->axes[k].extent;
        if (!(kn_axes_in(one) >> n & 1) || rows > FEW_ROWS) return true;
    }
    return false;
}

/* Map temporaries into their readers. first: only chains of maps, so that what is left of them can become an epilogue. */
static bool inline_one(kn_shaper *s, bool first)
{
    const kn_program *p = s->t->program;
    for (int k = 0; k < s->t->nstages; k++) {
        const kn_stmt *st = p->stmts[s->t->stages[k]->stmt];
        if (p->tensors[st->out].role != KN_TEMP || st->red != KN_RED_NONE || kn_pinned(p, st->out) || s->t->stages[k]->epilogue >= 0) continue;
        if (kn_shaper_stores(s, p->tensors[st->out].name)) continue;
        bool once, by_map, again;
        int n = reads_of(p, st->out, &once, &by_map, &again), cost = body_cost(st->body);
        bool slow = !s->hw->gpu && again && (gathers(st->body) || tells_places(s, st->out)); /* lanes are made one by one, each time */
        bool cheap = cost <= (slow ? 1 : 4) && n <= 4 && !(slow && gathers(st->body)), worth = first ? once && by_map : once || cheap;
        worth |= first && cheap && by_map && finishes_with_reader(s, st);
        worth |= !first && s->hw->gpu && n <= 2 && cost <= 40 && reads_one(st); /* a kernel and its traffic cost more than a function twice */
        if (again && cost > 0 && is_factor(s, st)) continue;
        if (worth && !keeps_rows(s, st) && kn_shaper_try(s, kn_format(s->a, "inline %s", p->tensors[st->out].name))) return true;
    }
    return false;
}

static const kn_stmt *statement_of(const kn_program *p, const char *name)
{
    for (int i = 0; i < p->nstmts; i++)
        if (!strcmp(p->tensors[p->stmts[i]->out].name, name)) return p->stmts[i];
    return NULL;
}

/* The table stays near and each of its elements is read often. */
static bool is_short(const kn_shaper *s, const char *table, double points)
{
    enum { OFTEN = 8 };
    const kn_hw_level *l1 = kn_hw_level_named(s->hw, "l1");
    const kn_program *p = s->t->program;
    const kn_stmt *made = statement_of(p, table);
    if (!made || !l1) return false;
    const kn_tensor *t = &p->tensors[made->out];
    return elems_of(t) * kn_dtype_bytes(t->dtype) <= (double)l1->capacity_bytes / 4 && points >= OFTEN * elems_of(t);
}

/* Of what a map reads and makes a function of, elements that lie along its lanes, each for many results: where they lie across these, a loop's
 * invariant is one number (LogSoftmax of 20x30x40x50 along the third axis: 2.1 times as fast). */
static bool is_shared(const kn_shaper *s, const char *map, const char *table, double points)
{
    enum { OFTEN = 8 };
    const kn_program *p = s->t->program;
    const kn_stmt *made = statement_of(p, table), *st = statement_of(p, map);
    const kn_expr *one = NULL;
    int lanes = st ? results_axis(p, st) : -1;
    return made && lanes >= 0 && kn_shaper_reads(st->body, made->out, &one) == 1 && kn_axes_in(one) >> lanes & 1 &&
           points >= OFTEN * elems_of(&p->tensors[made->out]);
}

/* What a map computes from some of its axes alone, once for all that share it: `read`: from what it reads; else, where it finishes a reduction, from
 * the axes themselves (an average's counts). */
static bool tabulate_one(kn_shaper *s, bool read)
{
    const kn_program *p = s->t->program;
    kn_tree *before = s->t;
    kiln_bytes text = s->text;
    for (int k = 0; k < s->t->nstages && !s->hw->gpu; k++) {
        const kn_stmt *st = p->stmts[s->t->stages[k]->stmt];
        const kn_expr *loads[KN_SITE_LOADS];
        const char *map = p->tensors[st->out].name, *table = kn_shaper_name(s, "table");
        int n = kn_loads(st->body, loads, KN_SITE_LOADS);
        bool finishes = read;
        for (int i = 0; i < n && i < KN_SITE_LOADS; i++)
            for (int j = 0; j < p->nstmts; j++) finishes |= p->stmts[j]->out == loads[i]->u.tensor && p->stmts[j]->red != KN_RED_NONE;
        if (st->red != KN_RED_NONE || !finishes || !table) continue;
        double points = 1;
        for (int i = 0; i < st->naxes; i++) points *= (double)st->axes[i].extent;
        if (!kn_shaper_try(s, kn_format(s->a, "tabulate %s %s%s", map, table, read ? " read" : ""))) continue;
        if (read ? is_shared(s, map, table, points) : is_short(s, table, points)) {
            kn_shaper_keep(s, table);
            return true;
        }
        s->t = before;
        s->text = text;
    }
    return false;
}

static bool epilogue_one(kn_shaper *s)
{
    const kn_program *p = s->t->program;
    for (int k = 0; k < s->t->nstages; k++) {
        const kn_stmt *st = p->stmts[s->t->stages[k]->stmt];
        if (p->tensors[st->out].role != KN_TEMP || st->red == KN_RED_NONE || kn_pinned(p, st->out) || s->t->stages[k]->epilogue >= 0) continue;
        if (kn_shaper_stores(s, p->tensors[st->out].name)) continue;
        if (kn_shaper_try(s, kn_format(s->a, "epilogue %s", p->tensors[st->out].name))) return true;
    }
    return false;
}

/* What depends on one constant alone is no work of a call: sums of weights, before they become a part of something else, and maps that are not
 * computed where they are read: wide, padded or other forms of weights. */
static void go_ahead(kn_shaper *s, bool sums)
{
    for (int k = 0; k < s->t->nstages && !s->hw->gpu && !kn_stopped(s->a); k++) {
        const kn_stage *g = s->t->stages[k];
        const kn_stmt *st = s->t->program->stmts[g->stmt];
        if (g->ahead || kn_stage_constant(s->t, g) < 0 || (sums && st->red == KN_RED_NONE)) continue;
        kn_shaper_try(s, kn_format(s->a, "ahead %s", s->t->program->tensors[st->out].name));
    }
}

void kn_shape_chains(kn_shaper *s) { while (inline_one(s, true)) {} }
void kn_shape_inlined(kn_shaper *s) { while (inline_one(s, false)) {} }
void kn_shape_tables(kn_shaper *s) { while (!kn_stopped(s->a) && (tabulate_one(s, false) || tabulate_one(s, true))) {} }
void kn_shape_epilogues(kn_shaper *s) { while (epilogue_one(s)) {} }
void kn_shape_sums_ahead(kn_shaper *s) { go_ahead(s, true); }
void kn_shape_ahead(kn_shaper *s) { go_ahead(s, false); }
