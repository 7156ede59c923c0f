/* Policy "default": shape the program, grow rTiles for each stage, rank them by the micro performance model. */
#include "construct/roller.h"
#include "construct/cpu.h"
#include <string.h>

enum { MAPPED_SERIAL = 900 }; /* numbers the decision of a mapping that comes before all shaping */
enum { EVALUATIONS = 90 }; /* of one construction: keeps it under the 10 ms that an answer may take */

static kn_plans plans_of(kiln_arena *a, const kn_program *p, const kn_hw *hw, int evaluations, kiln_bytes head, const kn_tree *t)
{
    int each = evaluations, sums = 0; /* maps want few */
    for (int i = 0; i < t->nstages; i++) sums += t->program->stmts[t->stages[i]->stmt]->red != KN_RED_NONE;
    if (sums > 1) each /= sums;
    return (kn_plans){.a = a, .canonical = p, .hw = hw, .head = head, .t = t, .left = each < 8 ? 8 : each};
}

static kiln_status plan_stage(int k, kn_plans *out, kiln_diag *d)
{
    kn_site x;
    const kn_hw *hw = out->hw;
    kn_site_of(out->a, out->t, out->t->stages[k], hw, &x);
    if (kn_site_scheduled(out->t, out->t->stages[k])) { /* by what shaped the program */
        out->n = 1;
        out->best[0] = (kn_plan){.lines = {"", 0}};
        return KILN_OK;
    }
    if (hw->gpu) kn_plan_gpu(&x, out);
    else kn_plan_cpu(&x, out);
    if (kn_arena_dry(out->a)) return kn_fail(d, KILN_MEMORY, "out of memory while constructing");
    if (out->stopped) return kn_fail(d, KILN_STOPPED, "stopped while constructing");
    if (!out->n) return kn_fail(d, KILN_NO_SCHEDULE, "no schedule of '%s' is legal on %s", x.name, hw->id);
    return KILN_OK;
}

/* Plans for the stages of the set, a kernel each, as one more plan of their last one: one row after the other may leave a device idle. */
static kiln_status plan_apart(kn_plans *plans, uint32_t set, int last, kiln_diag *d)
{
    kn_plans together = plans[last];
    kn_buf b;
    kn_buf_init(&b, together.a);
    plans[last].n = 0;
    for (int k = 0; k <= last; k++) {
        kiln_status s = set >> k & 1 ? plan_stage(k, &plans[k], d) : KILN_OK;
        if (s) return s;
        if (set >> k & 1) kn_putn(&b, plans[k].best[0].lines.p, plans[k].best[0].lines.n);
    }
    together.left = 1;
    plans[last] = together;
    kn_plans_try(&plans[last], &b);
    return KILN_OK;
}

/* Plans of a stage with those that go under its loops; the set of them, 0: none do. */
static uint32_t plan_joined(kn_plans *plans, const kn_tree *t, int stage)
{
    enum { cpu, gpu };
    static const struct {
        int device;
        uint32_t (*plan)(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int last, kn_plans *p);
    } rows[] = {
#define JOINED(device, plan) {device, plan},
#include "construct/plans.def"
    };
    kn_plans *p = &plans[stage];
    uint32_t set = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && !set; i++)
        if (rows[i].device == (p->hw->gpu ? gpu : cpu)) set = rows[i].plan(p->a, t, p->hw, stage, p);
    return set;
}

/* Plans of all stages; what goes under another stage's loops has its lines there. */
static kiln_status plan_stages(kn_plans *plans, const kn_tree *t, kiln_diag *d)
{
    uint32_t planned = 0;
    for (int i = t->nstages - 1; i >= 0; i--) {
        if (planned >> i & 1) continue;
        const kn_hw *hw = plans[i].hw;
        uint32_t set = plan_joined(plans, t, i);
        kiln_status s = !set ? plan_stage(i, &plans[i], d) : hw->gpu ? plan_apart(plans, set, i, d) : KILN_OK;
        if (s) return s;
        bool alone = !set && !plans[i].hw->gpu;
        for (int k = 0; k < i && alone; k++)
            if (!(planned >> k & 1) && kn_cpu_plane(plans[i].a, t, i, k, &plans[i])) set |= 1u << k;
        planned |= set | 1u << i;
        for (int k = 0; k < i; k++)
            if (set >> k & 1) plans[k].n = 1, plans[k].best[0] = (kn_plan){.lines = {"", 0}};
    }
    return KILN_OK;
}

/* Candidate r: every stage's plan of that rank, its last one where it has fewer. */
static kiln_status candidate(const kn_plans *plans, int nstages, int r, kiln_candidate *out, kiln_diag *d)
{
    const kn_plans *first = &plans[0];
    kn_buf b;
    kn_buf_init(&b, first->a);
    kn_putn(&b, first->head.p, first->head.n);
    for (int k = 0; k < nstages; k++) {
        const kn_plan *p = &plans[k].best[r < plans[k].n ? r : plans[k].n - 1];
        kn_putn(&b, p->lines.p, p->lines.n);
    }
    kiln_bytes trace = kn_buf_take(&b);
    if (!trace.p) return kn_fail(d, KILN_MEMORY, "out of memory");
    return kn_candidate_of(first->a, first->canonical, first->hw, trace, r, out, d);
}

/* Puts a candidate at its predicted place among at most k. */
static void insert(kiln_candidates *list, const kiln_candidate *c, int k)
{
    int at = list->n < k ? list->n++ : list->n;
    for (; at > 0 && list->c[at - 1].predicted_us > c->predicted_us; at--)
        if (at < list->n) list->c[at] = list->c[at - 1];
    if (at < list->n) list->c[at] = *c;
}

/* On devices whose description has ROLLER's constants its tiles compete: they are made of fused axes, which small images want. Those of windows
 * without reuse do not: the model underrates their fills. */
static kiln_status add_tiles(kiln_arena *a, const kn_program *p, const kn_hw *hw, int k, kiln_candidates *list)
{
    if (!hw->gpu || !hw->roller.present || kn_scatters(p)) return KILN_OK;
    kiln_candidates *tiles;
    kiln_diag none = {0};
    if (k > KILN_MAX_CANDIDATES) k = KILN_MAX_CANDIDATES;
    kiln_status s = kn_roller_contractions(a, p, hw, k < 10 ? 10 : k, &tiles, &none);
    for (int i = 0; s == KILN_OK && i < tiles->n; i++) insert(list, &tiles->c[i], k);
    return s == KILN_MEMORY || s == KILN_STOPPED ? s : KILN_OK;
}

/* Candidates of the tree that these steps give; each at its predicted place, or all behind each other. */
static kiln_status planned(kiln_arena *a, const kn_program *p, const kn_hw *hw, kiln_bytes head, kn_tree *t, bool place, int evaluations, int k,
                           kiln_candidates *list, kiln_diag *d)
{
    kiln_status s;
    kn_plans *plans = kn_array(a, kn_plans, t->nstages + 1);
    if (!plans) return kn_fail(d, KILN_MEMORY, "out of memory");
    int most = 1;
    kn_costs *costs = kn_new(a, kn_costs);
    if (!costs) return kn_fail(d, KILN_MEMORY, "out of memory");
    costs->of = t;
    for (int i = 0; i < t->nstages; i++) {
        plans[i] = plans_of(a, p, hw, evaluations, head, t);
        plans[i].costs = costs;
    }
    if ((s = plan_stages(plans, t, d))) return s;
    for (int i = 0; i < t->nstages; i++) if (plans[i].n > most) most = plans[i].n;
    for (int r = 0; r < most && r < k && r < KILN_MAX_CANDIDATES; r++) {
        kiln_candidate c;
        s = candidate(plans, t->nstages, r, &c, d);
        if (s) return s;
        if (place) insert(list, &c, k);
        else list->c[list->n++] = c;
    }
    return KILN_OK;
}

/* Candidates that begin with these steps and go on with the shaping's. */
static kiln_status shaped(kiln_arena *a, const kn_program *p, const kn_hw *hw, kiln_bytes start, int evaluations, int k, kiln_candidates *list,
                          kiln_diag *d)
{
    kiln_bytes head;
    kn_tree *t;
    kiln_status s = kn_shape(a, p, hw, start, &head, &t, d);
    return s ? s : planned(a, p, hw, head, t, start.n > 0, evaluations, k, list, d);
}

/* Reductions whose results are too few to fill a GPU or the cores of a CPU compete in parts. */
static kiln_status add_parts(kiln_arena *a, const kn_program *p, const kn_hw *hw, int k, kiln_candidates *list)
{
    kiln_bytes start[KN_PARTS];
    int n = kn_part_steps(a, p, hw, start);
    for (int i = 0; i < n; i++) {
        kiln_diag none = {0};
        kiln_status s = shaped(a, p, hw, start[i], EVALUATIONS / 3, k < 4 ? k : 4, list, &none);
        if (s == KILN_MEMORY || s == KILN_STOPPED) return s;
    }
    return KILN_OK;
}

/* Windows over planes compete with the channels as lanes. */
static kiln_status add_lanes(kiln_arena *a, const kn_program *p, const kn_hw *hw, int k, kiln_candidates *list)
{
    kiln_bytes start;
    kiln_diag none = {0};
    if (!kn_cpu_lanes_steps(a, p, hw, &start)) return KILN_OK;
    kiln_candidates *one = kn_new(a, kiln_candidates);
    if (!one) return KILN_MEMORY;
    kiln_status s = shaped(a, p, hw, start, EVALUATIONS / 8, 1, one, &none);
    if (s == KILN_OK && one->n && strstr(one->c[0].trace.p, " region last ")) insert(list, &one->c[0], k);
    return s == KILN_MEMORY || s == KILN_STOPPED ? s : KILN_OK;
}

/* Of candidates that come from another shape of the program those that are clearly better than the best one, or worse: what lies between says more
 * about the model than about them. */
static void insert_clear(kiln_candidates *list, const kiln_candidates *others, int k)
{
    const double clear = 0.9;
    double best = list->n ? list->c[0].predicted_us : 0;
    for (int i = 0; i < others->n; i++)
        if (!list->n || others->c[i].predicted_us < clear * best || others->c[i].predicted_us > best) insert(list, &others->c[i], k);
}

/* Another shape of the program, of which the candidates that differ clearly are taken. */
static kiln_status compete(kiln_arena *a, const kn_program *p, const kn_hw *hw, kiln_bytes start, int k, kiln_candidates *list)
{
    kiln_diag none = {0};
    kiln_candidates *others = kn_new(a, kiln_candidates);
    if (!others) return KILN_MEMORY;
    kiln_status s = shaped(a, p, hw, start, EVALUATIONS / 3, k, others, &none);
    if (s == KILN_OK) insert_clear(list, others, k);
    return s == KILN_MEMORY || s == KILN_STOPPED ? s : KILN_OK;
}

/* Sums of products that have their lanes elsewhere compete with them along what is turned as it is packed, or is packed ahead. */
static kiln_status add_squares(kiln_arena *a, const kn_program *p, const kn_hw *hw, int k, kiln_candidates *list)
{
    kiln_bytes start;
    kiln_diag none = {0};
    bool ahead;
    if (!kn_cpu_squares_steps(a, p, hw, &start, &ahead)) return KILN_OK;
    if (ahead) return compete(a, p, hw, start, k, list);
    kiln_status s = shaped(a, p, hw, start, EVALUATIONS / 3, k, list, &none);
    return s == KILN_MEMORY || s == KILN_STOPPED ? s : KILN_OK;
}

/* Chains of a GPU whose rows the shaping could not make one axis compete so. */
static kiln_status add_groups(kiln_arena *a, const kn_program *p, const kn_hw *hw, int k, kiln_candidates *list)
{
    kiln_bytes head, start;
    kn_tree *t;
    kiln_diag none = {0};
    if (!hw->gpu) return KILN_OK;
    bool joined = list->n && strstr(list->c[0].trace.p, "\ncompute_at ");
    if (joined || p->nstmts < 2 || kn_shape(a, p, hw, (kiln_bytes){"", 0}, &head, &t, &none) || t->nstages < 2) return KILN_OK;
    if (!kn_group_steps(a, p, hw, head, &start) || kn_trace_apply(a, p, hw, start, &t, &none)) return KILN_OK;
    kiln_status s = planned(a, p, hw, start, t, true, EVALUATIONS / 3, k < 4 ? k : 4, list, &none);
    return s == KILN_MEMORY || s == KILN_STOPPED ? s : KILN_OK;
}

/* Steps for the first stage that they are for and that may have them; false: there is none. */
static bool first_steps(kiln_arena *a, const kn_program *p, const kn_hw *hw, const char *steps(kiln_arena *, const kn_site *), kiln_bytes *start)
{
    kn_tree *t, *with;
    kiln_diag d;
    if (kn_trace_apply(a, p, hw, (kiln_bytes){"", 0}, &t, &d)) return false;
    for (int i = 0; i < t->nstages; i++) {
        kn_site x;
        kn_site_of(a, t, t->stages[i], hw, &x);
        const char *lines = steps(a, &x);
        if (!lines) continue;
        *start = (kiln_bytes){lines, strlen(lines)};
        if (!kn_trace_apply(a, p, hw, *start, &with, &d)) return true;
    }
    return false;
}

/* The channels of results compete as lanes over an image that is read as it lies. */
static kiln_status add_alone(kiln_arena *a, const kn_program *p, const kn_hw *hw, int k, kiln_candidates *list)
{
    kiln_bytes start;
    return first_steps(a, p, hw, kn_cpu_turned_alone, &start) ? compete(a, p, hw, start, k, list) : KILN_OK;
}

/* What a GPU copies 16 bytes at a time competes with what it gathers: windows over planes with their channels last, rows that are filled up. */
static kiln_status add_copies(kiln_arena *a, const kn_program *p, const kn_hw *hw, int k, kiln_candidates *list)
{
    static const char *(*const copies[])(kiln_arena *, const kn_site *) = {kn_channels_steps, kn_padded_steps};
    for (size_t i = 0; i < sizeof copies / sizeof copies[0] && hw->gpu; i++) {
        kiln_bytes start;
        kiln_diag none = {0};
        if (!first_steps(a, p, hw, copies[i], &start)) continue;
        kiln_status s = shaped(a, p, hw, start, EVALUATIONS / 3, k < 4 ? k : 4, list, &none);
        if (s == KILN_MEMORY || s == KILN_STOPPED) return s;
    }
    return KILN_OK;
}

/* The same tiles at the same time, under whatever names. */
static bool listed(const kiln_candidates *list, const kiln_candidate *c)
{
    for (int i = 0; i < list->n; i++) {
        const kiln_candidate *o = &list->c[i];
        bool same = o->predicted_us == c->predicted_us && o->summary.n == c->summary.n;
        if (same && !memcmp(o->summary.p, c->summary.p, c->summary.n)) return true;
    }
    return false;
}

/* The other mappings onto a CPU's instructions, for a search to try: behind what was constructed, those of the first statement that has any, in
 * their predicted order. */
static kiln_status add_mappings(kiln_arena *a, const kn_program *p, const kn_hw *hw, int k, kiln_candidates *list)
{
    kn_tree *t;
    kiln_diag none = {0};
    if (hw->gpu || list->n >= k || kn_trace_apply(a, p, hw, (kiln_bytes){"", 0}, &t, &none)) return KILN_OK;
    for (int i = 0; i < t->nstages; i++) {
        const char *line[KN_MAPPED];
        int n = kn_mapped_steps(a, t, hw, i, KN_MAPPED_ALL, MAPPED_SERIAL, line, KN_MAPPED), found = list->n;
        for (int j = 0; j < n && list->n < k; j++) {
            kn_mark before = kn_mark_of(a);
            const char *start = kn_format(a, "%s\n", line[j]);
            kiln_candidates *one = kn_new(a, kiln_candidates);
            if (!start || !one) return KILN_MEMORY;
            kiln_status s = shaped(a, p, hw, (kiln_bytes){start, strlen(start)}, EVALUATIONS / 8, 1, one, &none);
            if (s == KILN_MEMORY || s == KILN_STOPPED) return s;
            if (!s && one->n && !listed(list, &one->c[0])) list->c[list->n++] = one->c[0];
            else kn_release(a, before);
        }
        if (list->n > found) break;
    }
    return KILN_OK;
}

/* What competes with the plans of the shaped program, in the order in which they are added; each knows where it has something to offer. */
static kiln_status (*const rivals[])(kiln_arena *a, const kn_program *p, const kn_hw *hw, int k, kiln_candidates *list) = {
    add_tiles, add_groups, add_parts, add_copies, add_lanes, add_squares, add_alone, add_mappings,
};

static kiln_status construct(kiln_arena *a, const kn_program *p, const kn_hw *hw, int k, kiln_candidates **out, kiln_diag *d)
{
    kiln_candidates *list = kn_new(a, kiln_candidates);
    if (!list) return kn_fail(d, KILN_MEMORY, "out of memory");
    kiln_status s = shaped(a, p, hw, (kiln_bytes){"", 0}, EVALUATIONS, k, list, d);
    if (s) return s;
    for (size_t i = 0; i < sizeof rivals / sizeof rivals[0] && s == KILN_OK; i++) s = rivals[i](a, p, hw, k, list);
    if (s) return kn_fail(d, s, "out of memory, or stopped, while constructing");
    for (int i = 0; i < list->n; i++) list->c[i].rank = i;
    *out = list;
    return KILN_OK;
}

const kn_policy kn_policy_default = {.name = "default", .version = 6, .construct = construct};
