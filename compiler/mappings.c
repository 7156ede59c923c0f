/* kiln_mappings: every way to run a program's statements on the instructions of a device, as JSON, with what was refused and why. */
#include "intrin/map.h"
#include "schedule/schedule.h"
#include <stdlib.h>
#include <string.h>

enum { LISTED = 256 }; /* mappings and refusals written out for one statement and instruction */

typedef struct ranked { const kn_mapping *x; kn_map_plan plan; const char *barred; kiln_bytes trace; int order; } ranked;

/* A statement of the program and its schedule so far: the axes that its indices take apart, divided. */
typedef struct subject { const kn_hw *hw; const kn_program *whole; kn_tree *tree; const char *cuts; int stmt; } subject;

static int by_time(const void *p, const void *q)
{
    const ranked *x = p, *y = q;
    if (!x->barred != !y->barred) return x->barred ? 1 : -1;
    if (x->plan.us != y->plan.us) return x->plan.us < y->plan.us ? -1 : 1;
    return x->order - y->order;
}

static void put_strides(kn_buf *b, const char *name, const int64_t *stride, const kn_stmt *s)
{
    kn_putf(b, ",\"%s\":{", name);
    const char *comma = "";
    for (int i = 0; i < s->naxes; i++) {
        if (!stride[i]) continue;
        kn_putf(b, "%s\"%s\":%lld", comma, s->axes[i].name, (long long)stride[i]);
        comma = ",";
    }
    kn_put(b, "}");
}

/* Parts of the operand's indices in the order in which they lie in its tile, "1/2 0 1%2"; none: places that are no such parts. */
static void put_place(kn_buf *b, const kn_intrin_operand *h)
{
    kn_put(b, ",\"tile\":\"");
    for (int i = 0; i < h->ndigits; i++) {
        const kn_intrin_digit *g = &h->digit[i];
        kn_putf(b, "%s%d", i ? " " : "", g->dim);
        if (g->by > 1) kn_putf(b, "/%lld", (long long)g->by);
        if (g->by * g->count < h->shape[g->dim]) kn_putf(b, "%%%lld", (long long)g->count);
    }
    kn_put(b, "\"");
}

static void put_operands(kn_buf *b, const kn_maps *m, const kn_map_plan *p)
{
    kn_put(b, ",\"operands\":[");
    for (int o = 0; o < m->nops; o++) {
        const kn_map_layout *y = &p->operand[o];
        const kn_intrin_operand *h = &m->it->operand[kn_intrin_operand_of(m->it, m->op[o].hard)];
        kn_putf(b, "%s{\"operand\":\"%s\",\"tensor\":\"%s\",\"scope\":\"%s\",\"packed\":%s,\"elems\":%lld,\"base\":%lld", o ? "," : "",
                m->hard->tensors[m->op[o].hard].name, m->soft->tensors[m->op[o].soft].name,
                kn_intrin_scope_text(h->scope), y->direct ? "false" : "true", (long long)y->elems,
                (long long)y->base);
        put_strides(b, "loops", y->loop, m->stmt);
        put_strides(b, "tiles", y->tile, m->intrin);
        put_strides(b, "steps", y->step, m->intrin);
        if (!h->plain) put_place(b, h);
        kn_put(b, "}");
    }
    kn_put(b, "]");
}

/* The same mapping onto the instruction with fewer iterations, so that its tiles are whole: how to ask for it, and its time. */
static void put_fewer(kn_buf *b, const kn_hw *hw, const kn_maps *m, const ranked *r)
{
    kiln_diag why;
    kn_map_plan plan;
    const kn_maps *few = r->plan.padding > 1 ? kn_map_fewer(b->a, m, r->x, false) : NULL;
    if (!few || kn_map_plan_of(few, r->x, &plan, &why)) return;
    kn_map_predict(few, r->x, hw, &plan);
    kn_putf(b, ",\"fewer\":{\"instruction\":\"%s\",\"predicted_us\":", few->it->name);
    kn_put_double(b, plan.us);
    kn_put(b, "}");
}

static void put_mapping(kn_buf *b, const kn_hw *hw, const kn_maps *m, const ranked *r)
{
    kn_put(b, "{\"mapping\":");
    kn_put_json_string(b, kn_map_text(b->a, m, r->x));
    if (r->barred) {
        kn_put(b, ",\"barred\":");
        kn_put_json_string(b, r->barred);
        kn_put(b, "}");
        return;
    }
    kn_put(b, ",\"predicted_us\":");
    kn_put_double(b, r->plan.us);
    kn_put(b, ",\"pack_us\":");
    kn_put_double(b, r->plan.pack_us);
    kn_putf(b, ",\"bound\":\"%s\",\"calls\":%lld,\"padding\":", r->plan.bound, (long long)r->plan.calls);
    kn_put_double(b, r->plan.padding);
    kn_putf(b, ",\"fills\":%s", kn_map_fills(m, r->x) ? "true" : "false");
    put_operands(b, m, &r->plan);
    put_fewer(b, hw, m, r);
    kn_put(b, ",\"trace\":");
    kn_put_json_string(b, r->trace.p);
    kn_put(b, "}");
}

static void put_refused(kn_buf *b, const kn_maps *m)
{
    kn_putf(b, ",\"refusals\":%d,\"refused\":[", m->nrefused);
    for (int i = 0; i < m->nrefused && i < LISTED; i++) {
        kn_put(b, i ? ",{\"tried\":" : "{\"tried\":");
        kn_put_json_string(b, kn_map_text(b->a, m, &m->refused[i].tried));
        if (m->refused[i].operand >= 0)
            kn_putf(b, ",\"operand\":\"%s\",\"tensor\":\"%s\"", m->hard->tensors[m->op[m->refused[i].operand].hard].name,
                    m->soft->tensors[m->op[m->refused[i].operand].soft].name);
        if (m->refused[i].index >= 0) kn_putf(b, ",\"index\":%d", m->refused[i].index);
        kn_put(b, ",\"why\":");
        kn_put_json_string(b, m->refused[i].why);
        kn_put(b, "}");
    }
    kn_put(b, "]}");
}

/* The mapping's schedule is tried: what it cannot do bars the mapping. */
static void judge(kiln_arena *a, const subject *u, const kn_maps *m, ranked *r)
{
    kiln_diag why = {0};
    kn_tree *t;
    if (!kn_map_check(m, r->x, &why) && !kn_map_plan_of(m, r->x, &r->plan, &why)) {
        kn_map_predict(m, r->x, u->hw, &r->plan);
        const char *stmt = m->soft->tensors[m->stmt->out].name, *word = kn_map_word(a, m, r->x), *it = m->it->name;
        if (!word) return;
        const char *text = kn_format(a, "%ssample_mapping %s_map %s %s : %s\nmap %s %s $%s_map\n", u->cuts, stmt, stmt, it, word, stmt, it, stmt);
        if (!text) return;
        r->trace = (kiln_bytes){text, strlen(text)};
        if (!kn_trace_apply(a, u->whole, u->hw, r->trace, &t, &why)) return;
    }
    r->barred = kn_strdup(a, why.message);
}

static kiln_status put_maps(kn_buf *b, const subject *u, const kn_maps *m, kiln_diag *d)
{
    ranked *r = kn_array(b->a, ranked, m->nmaps + 1);
    for (int i = 0; r && i < m->nmaps; i++) {
        r[i].x = &m->maps[i], r[i].order = i;
        if (i < LISTED) judge(b->a, u, m, &r[i]);
    }
    if (kn_arena_dry(b->a)) return kn_fail(d, KILN_MEMORY, "out of memory");
    int n = m->nmaps < LISTED ? m->nmaps : LISTED;
    qsort(r, (size_t)n, sizeof *r, by_time);
    kn_putf(b, ",\"atoms\":%d,\"count\":%d,\"mappings\":[", m->natoms, m->nmaps);
    for (int i = 0; i < n; i++) {
        if (i) kn_put(b, ",");
        put_mapping(b, u->hw, m, &r[i]);
    }
    kn_put(b, "]");
    put_refused(b, m);
    return KILN_OK;
}

/* One result for each order of the operands. */
static kiln_status put_statement(kn_buf *b, const subject *u, const kn_intrin *it, kiln_diag *d)
{
    kn_maps *list = NULL;
    kiln_diag why = {0};
    const kn_program *p = u->tree->program;
    const char *head = kn_format(b->a, "{\"statement\":\"%s\",\"instruction\":\"%s\"", p->tensors[p->stmts[u->stmt]->out].name, it->name);
    kiln_status s = head ? kn_maps_of(b->a, p, u->stmt, it, &list, &why) : KILN_MEMORY;
    if (s && s != KILN_UNSUPPORTED && s != KILN_LIMIT) {
        *d = why;
        return s;
    }
    if (s) {
        kn_putf(b, "%s,\"unsupported\":", head);
        kn_put_json_string(b, why.message);
        kn_put(b, "}");
    }
    for (const kn_maps *m = list; m && (!s || m == list); m = m->turned) {
        if (m != list) kn_put(b, ",");
        kn_put(b, head);
        if ((s = put_maps(b, u, m, d))) return s;
    }
    return KILN_OK;
}

static kiln_status subject_of(kiln_arena *a, const kn_program *p, int stmt, const kn_hw *hw, subject *u, kiln_diag *d)
{
    kn_buf cuts;
    kn_buf_init(&cuts, a);
    *u = (subject){.hw = hw, .whole = p, .stmt = stmt};
    kiln_status s = kn_trace_start(a, p, &u->tree, d);
    if (!s) s = kn_trace_cut_axes(a, hw, stmt, &u->tree, &cuts, d);
    u->cuts = s ? "" : kn_buf_take(&cuts).p;
    return s || u->cuts ? s : kn_fail(d, KILN_MEMORY, "out of memory");
}

static kiln_status unknown(const kn_hw *hw, const char *instruction, kiln_diag *d)
{
    kn_fail(d, KILN_TARGET, "%s has no instruction \"%.63s\"", hw->id, instruction);
    char list[240] = "";
    for (int i = 0; i < hw->nintrins; i++) {
        size_t n = strlen(list), more = strlen(hw->intrins[i].name);
        if (n + more + 2 >= sizeof list) break;
        if (n) list[n++] = ' ';
        memcpy(list + n, hw->intrins[i].name, more + 1);
    }
    kn_hint(d, "%s", hw->nintrins ? list : "the target describes no instructions");
    return KILN_TARGET;
}

kiln_status kiln_mappings(kiln_arena *a, const kiln_program *p, const kiln_hw *hw, const char *instruction, kiln_bytes *out, kiln_diag *d)
{
    kn_buf b;
    kn_buf_init(&b, a);
    kn_putf(&b, "{\"target\":\"%s\",\"results\":[", hw->id);
    const kn_intrin *only = *instruction ? kn_intrin_find(a, hw, instruction) : NULL;
    if (!only && (*instruction || !hw->nintrins)) return kn_arena_dry(a) ? kn_fail(d, KILN_MEMORY, "out of memory") : unknown(hw, instruction, d);
    int n = 0;
    for (int k = 0; k < p->nstmts; k++) {
        subject u;
        kiln_status s = subject_of(a, p, k, hw, &u, d);
        for (int i = 0; i < (only ? 1 : hw->nintrins) && !s; i++) {
            if (n++) kn_put(&b, ",");
            s = put_statement(&b, &u, only ? only : hw->intrins[i].parsed, d);
        }
        if (s) return s;
    }
    kn_put(&b, "]}\n");
    kiln_bytes text = kn_buf_take(&b);
    if (!text.p) return kn_fail(d, KILN_MEMORY, "out of memory while writing mappings");
    *out = text;
    return KILN_OK;
}
