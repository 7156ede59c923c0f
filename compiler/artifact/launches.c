/* Launch list: grids and arguments from the loop program; for GPU launches also the program that the launch alone computes. */
#include "artifact/launches.h"
#include <string.h>

static bool begins(const char *line, size_t n, const char *word) { return n > strlen(word) && !memcmp(line, word, strlen(word)); }

/* The layout is a copy's that one of these steps has made: other temporaries' follow axes that are fused. */
static bool lays_out_copy(kiln_arena *a, const kn_buf *steps, const char *line, size_t n)
{
    static const char word[] = "transform_layout ";
    if (!begins(line, n, word) || !steps->n) return false;
    const char *name = line + sizeof word - 1;
    const char *made = kn_format(a, " %.*s\n", (int)strcspn(name, " \n"), name);
    const char *text = kn_format(a, "%.*s", (int)steps->n, steps->p);
    return made && text && strstr(text, made);
}

/* The trace's steps that make and undo statements and say how copies lie, alone: the statements as launched, but with the axes of the canonical
 * program (fuse rewrites left sides, which the reference cannot run backwards). */
static kiln_bytes plain_steps(kiln_arena *a, kiln_bytes trace)
{
    static const char *const kept[] = {"inline ", "part ", "copy ", "cache_write ", "pad_einsum "};
    kn_buf b;
    kn_buf_init(&b, a);
    for (size_t i = 0; i < trace.n;) {
        const char *line = trace.p + i, *end = memchr(line, '\n', trace.n - i);
        size_t n = end ? (size_t)(end - line) + 1 : trace.n - i;
        bool keep = lays_out_copy(a, &b, line, n);
        for (size_t k = 0; k < sizeof kept / sizeof *kept; k++) keep |= begins(line, n, kept[k]);
        if (keep) kn_putn(&b, line, n);
        i += n;
    }
    return kn_buf_take(&b);
}

/* The statement of `from` that statement `stmt` of p is: the one that writes that tensor, or the same in order of those that scatter into it. */
static int statement_of(const kn_program *from, const kn_program *p, int stmt)
{
    const char *tensor = p->tensors[p->stmts[stmt]->out].name;
    int n = 0;
    for (int i = 0; i < stmt; i++) n += p->stmts[i]->out == p->stmts[stmt]->out;
    for (int i = 0; i < from->nstmts; i++)
        if (!strcmp(from->tensors[from->stmts[i]->out].name, tensor) && !n--) return i;
    return -1;
}

static kn_expr *renumber(void *user, kiln_arena *a, kn_expr *e)
{
    const int *map = user;
    if (e->op != KN_OP_LOAD) return e;
    kn_expr *x = kn_new(a, kn_expr);
    if (!x) return NULL;
    *x = *e;
    x->u.tensor = map[e->u.tensor];
    return x;
}

/* Statements of stage s of the tree (its own, its epilogue, and those computed inside it), by index in `from`. */
static uint32_t statements(const kn_tree *t, int stage, const kn_program *from)
{
    uint32_t set = 0;
    for (int i = 0; i < t->nstages; i++) {
        int root = i;
        for (int hops = 0; t->stages[root]->at_stage >= 0 && hops < t->nstages; hops++) root = t->stages[root]->at_stage;
        if (root != stage) continue;
        const kn_stage *s = t->stages[i];
        int own = statement_of(from, t->program, s->stmt);
        int tail = s->epilogue < 0 ? -1 : statement_of(from, t->program, s->epilogue);
        if (own >= 0) set |= 1u << own;
        if (tail >= 0) set |= 1u << tail;
    }
    return set;
}

/* The scatter goes into a copy of what is there before it. */
static bool copy_old(kiln_arena *a, kn_program *p, int old, int out)
{
    const kn_tensor *x = &p->tensors[out];
    kn_stmt *s = kn_new(a, kn_stmt);
    if (old < 0 || out < 0 || !s) return false;
    s->out = out;
    s->naxes = s->nspatial = x->rank;
    for (int i = 0; i < x->rank; i++) {
        s->axes[i] = (kn_axis){.name = kn_format(a, "S%d", i), .extent = x->shape[i]};
        s->lhs[i] = kn_axis_ref(a, i);
    }
    s->body = kn_load(a, p, old, s->lhs);
    p->stmts[p->nstmts++] = s;
    return s->body != NULL;
}

static kn_program *launch_program(kiln_arena *a, const kn_program *from, uint32_t set, const kiln_launch *l)
{
    kn_program *p = kn_program_new(a);
    int map[KILN_MAX_TENSORS], old = -1;
    if (!p) return NULL;
    for (int i = 0; i < KILN_MAX_TENSORS; i++) map[i] = -1;
    for (int role = KN_INPUT; role <= KN_OUTPUT; role += KN_OUTPUT - KN_INPUT) {
        for (int i = 0; i < l->nargs; i++) {
            int writer = kn_writer(from, l->args[i]);
            bool written = i == l->again || (writer >= 0 && (set >> writer & 1));
            const kn_tensor *x = &from->tensors[l->args[i]];
            if (written == (role == KN_OUTPUT)) map[l->args[i]] = kn_add_tensor(p, x->name, x->dtype, (enum kn_role)role, x->rank, x->shape);
        }
        const kn_tensor *x = l->again >= 0 ? &from->tensors[l->args[l->again]] : NULL;
        if (role == KN_INPUT && x) old = kn_add_tensor(p, kn_format(a, "%s_old", x->name), x->dtype, KN_INPUT, x->rank, x->shape);
    }
    if (l->again >= 0 && !copy_old(a, p, old, map[l->args[l->again]])) return NULL;
    for (int i = 0; i < from->nstmts; i++) {
        if (!(set >> i & 1)) continue;
        const kn_tensor *x = &from->tensors[from->stmts[i]->out];
        if (map[from->stmts[i]->out] < 0) map[from->stmts[i]->out] = kn_add_tensor(p, x->name, x->dtype, KN_TEMP, x->rank, x->shape);
        kn_stmt *s = kn_new(a, kn_stmt);
        if (!s) return NULL;
        *s = *from->stmts[i];
        s->out = map[from->stmts[i]->out];
        s->body = kn_rewrite(a, s->body, renumber, map);
        for (int k = 0; k < x->rank; k++) s->lhs[k] = kn_rewrite(a, s->lhs[k], renumber, map);
        p->stmts[p->nstmts++] = s;
    }
    return p;
}

/* The grid as the shape gives it: blocks of every axis that is cut into some; of persistent kernels no more than run at once. */
static const char *grid_formula(kiln_arena *a, const kn_tree *t, const kn_stage *g, const kn_hw *hw)
{
    kn_buf b;
    int n = g->cluster > 1 ? g->cluster : 1;
    const kn_stmt *s = t->program->stmts[g->stmt];
    bool any = false;
    kn_buf_init(&b, a);
    if (n > 1) kn_putf(&b, "%d*", n);
    if (g->persist) kn_putf(&b, "min(%d, ", hw->units / n);
    for (int i = 0; i < g->nloops; i++) {
        const kn_loop *l = &g->loops[i];
        long long step = n > 1 && i == g->cluster_loop ? l->stride * n : l->stride;
        if (l->kind != KN_GRID) continue;
        kn_putf(&b, step > 1 ? "%sceil(%lld/%lld)" : "%s%lld", any ? "*" : "", (long long)(step > 1 ? s->axes[l->axis].extent : l->extent), step);
        any = true;
    }
    if (!any) kn_put(&b, "1");
    if (g->persist) kn_put(&b, ")");
    return kn_buf_take(&b).p;
}

static void fill(const kn_lprog *l, int i, kiln_arena *a, const char *entry, kiln_launch *out)
{
    const kn_fn *f = &l->fns[i];
    *out = (kiln_launch){.entry = l->hw->gpu ? kn_format(a, "%s_%d", entry, i) : entry,
                         .grid = f->grid,
                         .threads = f->threads,
                         .shared_bytes = f->shared_bytes,
                         .dynamic_shared_bytes = l->hw->gpu && f->shared_bytes > KN_STATIC_SHARED ? f->shared_bytes : 0,
                         .cluster = f->cluster,
                         .maps = f->maps,
                         .asking = f->asking,
                         .computing = f->computing,
                         .nargs = f->nargs,
                         .again = -1};
    memcpy(out->args, f->args, sizeof(int) * (size_t)f->nargs);
}

kiln_status kn_launches(kiln_arena *a, const kn_program *canonical, const kn_hw *hw, const kn_tree *tree, const kn_lprog *l,
                        kiln_kernel *k, kiln_diag *d)
{
    kiln_launch *list = kn_array(a, kiln_launch, l->nfns + 1);
    int64_t *temps = kn_array(a, int64_t, l->ntemps + 1);
    int *slots = kn_array(a, int, l->ntemps + 1);
    kn_tree *plain = NULL;
    if (!list || !temps || !slots) return kn_fail(d, KILN_MEMORY, "out of memory");
    const kn_program *from = canonical;
    if (hw->gpu) { /* scheduled or not, only the program that these steps leave is looked at */
        kiln_bytes steps = plain_steps(a, k->trace);
        kiln_status s = kn_trace_apply(a, canonical, hw, steps, &plain, d);
        if (s != KILN_OK) return s;
        from = plain->program;
    }
    for (int i = 0; i < l->nfns; i++) {
        fill(l, i, a, k->entry, &list[i]);
        const kn_stmt *s = tree->program->stmts[tree->stages[l->fns[i].stage]->stmt];
        for (int j = 0; j < list[i].nargs && s->scatter; j++)
            if (list[i].args[j] == s->out) list[i].again = j;
        if (hw->gpu) list[i].grid_formula = grid_formula(a, tree, tree->stages[l->fns[i].stage], hw);
        if (hw->gpu) list[i].program = launch_program(a, from, statements(tree, l->fns[i].stage, from), &list[i]);
    }
    for (int i = 0; i < l->ntemps; i++) {
        const kn_tensor *t = &l->program->tensors[l->temp_slot[i]];
        int64_t n = kn_dtype_bytes(t->dtype);
        for (int j = 0; j < t->rank; j++) n *= t->shape[j];
        temps[i] = n;
        slots[i] = l->temp_slot[i];
    }
    k->launches = list;
    kiln_packed *packed = kn_array(a, kiln_packed, l->npacks + 1);
    if (!packed) return kn_fail(d, KILN_MEMORY, "out of memory");
    for (int i = 0; i < l->npacks; i++)
        if (kn_pack_first(l, i)) packed[k->npacked++] = (kiln_packed){kn_pack_slot(l, i), kn_pack_bytes(l, kn_pack_slot(l, i))};
    k->packed = packed;
    k->nlaunches = l->nfns;
    k->temp_bytes = temps;
    k->temp_slots = slots;
    k->ntemps = l->ntemps;
    k->scratch_bytes = l->scratch_bytes;
    return KILN_OK;
}
