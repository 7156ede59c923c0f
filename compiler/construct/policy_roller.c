/* Policy "roller": the published artifact's tiles as traces, in its order, every statement a kernel of its own. */
#include "construct/roller.h"

enum { CALLS = 8000 }; /* of the search where its tiles compete with others: a millisecond or two, and most searches end before it */

/* What the search found for one statement, and how its axes were fused. */
typedef struct plan {
    const char *name; /* of the statement: the tensor it writes */
    kn_roller_view view;
    int group[KILN_MAX_AXES];
    const char *axis[KILN_MAX_AXES]; /* name of every fused axis */
    kn_rtile *tiles;
    int ntiles;
    bool plain;
} plan;

static int members(const kn_stmt *s, const int *group, int g)
{
    int n = 0;
    for (int i = 0; i < s->naxes; i++) n += group[i] == g;
    return n;
}

/* few: calls of the search for a statement where only contractions are wanted, which compete with other plans; 0: all statements, in any time */
static kiln_status plan_statement(kiln_arena *a, const kn_program *p, int i, const kn_hw *hw, int k, int few, plan *out, kiln_diag *d)
{
    const kn_stmt *s = p->stmts[i];
    const char *used = "";
    double eps;
    out->name = p->tensors[s->out].name;
    kiln_status st = kn_roller_view_of(p, i, &out->view, out->group, d);
    if (st == KILN_OK && few && s->red != KN_RED_NONE && !kn_roller_io_dependent(&out->view))
        return kn_fail(d, KILN_NO_SCHEDULE, "statement %d is no contraction", i);
    if (st == KILN_OK) st = kn_roller_tiles(a, &out->view, hw, k, few ? few : KN_ROLLER_ALL, &out->tiles, &out->ntiles, &used, &eps, d);
    out->plain = used[0] == 'P';
    for (int g = 0; st == KILN_OK && g < out->view.nspatial + out->view.nreduce; g++)
        for (int x = s->naxes - 1; x >= 0; x--)
            if (out->group[x] == g) out->axis[g] = members(s, out->group, g) > 1 ? kn_format(a, "G%d", g) : s->axes[x].name;
    return st;
}

static void put_fusions(kn_buf *b, const kn_stmt *s, const plan *q)
{
    for (int g = 0; g < q->view.nspatial + q->view.nreduce; g++) {
        if (members(s, q->group, g) < 2) continue;
        kn_putf(b, "fuse %s %s", q->name, q->axis[g]);
        for (int i = 0; i < s->naxes; i++)
            if (q->group[i] == g) kn_putf(b, " %s", s->axes[i].name);
        kn_put(b, "\n");
    }
}

/* Loops of axis x: x.0 grid, x.1 vthread (registers, cyclic), x.2 threads; of a reduction: .0 steps, .1 inside a step. */
static void put_loops(kn_buf *b, const plan *q, const kn_rtile *t)
{
    int ns = q->view.nspatial, n = ns + q->view.nreduce;
    for (int i = 0; i < ns; i++)
        kn_putf(b, "split %s %s %lld %lld\n", q->name, q->axis[i], (long long)t->thread[i], (long long)kn_ceil_div(t->block[i], t->thread[i]));
    for (int i = ns; i < n; i++) kn_putf(b, "split %s %s %lld\n", q->name, q->axis[i], (long long)t->rstep[i - ns]);
    kn_putf(b, "reorder %s", q->name);
    static const struct { bool reduce; int level; } order[] = {{false, 0}, {false, 2}, {true, 0}, {true, 1}, {false, 1}};
    bool any = false;
    for (size_t k = 0; k < sizeof order / sizeof *order; k++) {
        int from = order[k].reduce ? ns : 0, to = order[k].reduce ? n : ns;
        if (any && from < to) kn_put(b, " |");
        for (int i = from; i < to; i++) kn_putf(b, " %s.%d", q->axis[i], order[k].level);
        any = any || from < to;
    }
    kn_put(b, "\n");
    static const char *const kinds[] = {"grid", "vthread", "thread"};
    for (int level = 0; level < 3; level++)
        for (int i = 0; i < ns; i++) kn_putf(b, "bind %s %s.%d %s\n", q->name, q->axis[i], level, kinds[level]);
}

/* Fused axes of a load from its slowest dimension to its fastest, so that neighbouring threads fill neighbouring elements. */
static int axes_of_load(const kn_expr *load, const plan *q, int *out)
{
    int n = 0, last[KILN_MAX_AXES];
    for (int g = 0; g < q->view.nspatial + q->view.nreduce; g++) {
        last[g] = -1;
        for (int k = 0; k < load->nargs; k++) {
            uint32_t axes = kn_axes_in(load->args[k]);
            for (int i = 0; i < KILN_MAX_AXES; i++)
                if ((axes >> i & 1) && q->group[i] == g) last[g] = k;
        }
        if (last[g] < 0) continue;
        bool spatial = g < q->view.nspatial;
        int at = n++;
        for (; at > 0; at--) {
            int o = out[at - 1];
            if (last[o] < last[g] || (last[o] == last[g] && (spatial || o >= q->view.nspatial))) break;
            out[at] = o;
        }
        out[at] = g;
    }
    return n;
}

static void put_caches(kn_buf *b, const kn_stmt *s, const plan *q, const kn_rtile *t, const kn_hw *hw)
{
    const kn_expr *loads[KN_ROLLER_OPERANDS];
    int n = kn_loads(s->body, loads, KN_ROLLER_OPERANDS), ns = q->view.nspatial;
    if (!q->view.nreduce || n > q->view.nin) return; /* element-wise: straight from memory */
    kn_roller_view whole = q->view;
    whole.clip_padding = false; /* what is really held, not what the artifact counts */
    int64_t tile[KILN_MAX_AXES];
    for (int i = 0; i < ns + q->view.nreduce; i++) tile[i] = i < ns ? t->thread[i] * kn_ceil_div(t->block[i], t->thread[i]) : t->rstep[i - ns];
    if (kn_roller_footprint(&whole, tile) > (double)(hw->max_shared_per_block < 49152 ? hw->max_shared_per_block : 49152)) return;
    for (int l = 0; l < n; l++) {
        int axes[KILN_MAX_AXES], m = axes_of_load(loads[l], q, axes);
        kn_putf(b, "cache_read %s %d shared %s.0", q->name, l, q->axis[ns + q->view.nreduce - 1]);
        if (q->plain) {
            kn_put(b, " region\n");
            continue;
        }
        kn_put(b, " loops");
        for (int i = 0; i < m; i++)
            kn_putf(b, axes[i] < ns ? " %s.1 %s.2" : " %s.1", q->axis[axes[i]], q->axis[axes[i]]);
        kn_put(b, "\n");
    }
}

static void put_list(kn_buf *b, const char *name, const int64_t *x, int n)
{
    kn_putf(b, "\"%s\":[", name);
    for (int i = 0; i < n; i++) kn_putf(b, "%s%lld", i ? "," : "", (long long)x[i]);
    kn_put(b, "]");
}

static kiln_bytes summary(kiln_arena *a, const kn_rtile *t)
{
    kn_buf b;
    kn_buf_init(&b, a);
    kn_put(&b, "{\"tiles\":{");
    put_list(&b, "block", t->block, t->nspatial);
    kn_put(&b, ",");
    put_list(&b, "thread", t->thread, t->nspatial);
    kn_put(&b, ",");
    put_list(&b, "reduce_step", t->rstep, t->nreduce);
    kn_putf(&b, "},\"threads\":%lld,\"grid\":%lld,\"shared_bytes\":%lld,\"registers\":", (long long)t->threads, (long long)t->grid,
            (long long)t->smem_bytes);
    kn_put_double(&b, t->regs);
    kn_put(&b, "}");
    return kn_buf_take(&b);
}

/* Candidate number r: every statement's tile of that rank (its last one where it has fewer). */
static kiln_status candidate(kiln_arena *a, const kn_program *p, const kn_hw *hw, const plan *plans, int r, kiln_candidate *out, kiln_diag *d)
{
    kn_buf b;
    kn_tree *tree;
    kn_cost cost;
    kn_buf_init(&b, a);
    const kn_rtile *last = NULL;
    for (int i = 0; i < p->nstmts; i++) {
        const kn_rtile *t = last = &plans[i].tiles[r < plans[i].ntiles ? r : plans[i].ntiles - 1];
        put_fusions(&b, p->stmts[i], &plans[i]);
        put_loops(&b, &plans[i], t);
        put_caches(&b, p->stmts[i], &plans[i], t, hw);
    }
    *out = (kiln_candidate){.rank = r, .trace = kn_buf_take(&b), .summary = summary(a, last)};
    if (!out->trace.p || !out->summary.p) return kn_fail(d, KILN_MEMORY, "out of memory");
    kn_mark before = kn_mark_of(a);
    kiln_status s = kn_trace_apply(a, p, hw, out->trace, &tree, d);
    if (s == KILN_OK) s = kn_cost_of(tree, hw, &cost, d);
    kn_release(a, before);
    if (s != KILN_OK) return s;
    out->predicted_us = cost.us;
    out->bottleneck = cost.bottleneck;
    return KILN_OK;
}

static kiln_status construct_tiles(kiln_arena *a, const kn_program *p, const kn_hw *hw, int k, int calls, kiln_candidates **out,
                                   kiln_diag *d)
{
    plan *plans = kn_array(a, plan, p->nstmts + 1);
    kiln_candidates *list = kn_new(a, kiln_candidates);
    if (!plans || !list) return kn_fail(d, KILN_MEMORY, "out of memory");
    int most = 0, sums = 0;
    for (int i = 0; i < p->nstmts; i++) sums += p->stmts[i]->red != KN_RED_NONE;
    for (int i = 0; i < p->nstmts; i++) {
        kiln_status s = plan_statement(a, p, i, hw, k, calls && sums ? kn_ceil_div(calls, sums) : calls, &plans[i], d);
        if (s != KILN_OK) return s;
        if (plans[i].ntiles > most) most = plans[i].ntiles;
    }
    for (int r = 0; r < most; r++) {
        kiln_status s = candidate(a, p, hw, plans, r, &list->c[list->n], d);
        if (s != KILN_OK && (s == KILN_MEMORY || (r == most - 1 && !list->n))) return s;
        if (s == KILN_OK) list->n++;
    }
    *out = list;
    return KILN_OK;
}

static kiln_status construct(kiln_arena *a, const kn_program *p, const kn_hw *hw, int k, kiln_candidates **out, kiln_diag *d)
{
    return construct_tiles(a, p, hw, k, 0, out, d);
}

kiln_status kn_roller_contractions(kiln_arena *a, const kn_program *p, const kn_hw *hw, int k, kiln_candidates **out, kiln_diag *d)
{
    return construct_tiles(a, p, hw, k, CALLS, out, d);
}

const kn_policy kn_policy_roller = {.name = "roller", .version = 1, .construct = construct};
