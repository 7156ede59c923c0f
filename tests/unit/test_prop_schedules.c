/* Random schedules: sequences of 5 to 20 primitives over the base programs. What a refused step was tried on stays as it was and the
 * refusal says why; what is accepted computes the same as the program itself. KILN_SEED and KILN_COUNT choose the run (make
 * prop-schedules). */
#include "tests/arena.h"
#include "tests/unit/lprog_eval.c"
#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include "tests/unit/instructions.h"
#include "block/block.h"
#include "te/ref.h"

static kn_hw cpu = {.id = "cpu", .gpu = false, .max_threads_per_block = 1, .vector_bytes = 64};
static kn_hw gpu = {.id = "gpu", .gpu = true, .max_threads_per_block = 1024, .max_shared_per_block = 49152, .lanes = 32};
static const struct {
    const char *inputs, *text;
} programs[] = {
#define P(inputs, text) {inputs, text},
#include "tests/unit/prop_programs.def"
#undef P
};
enum { PROGRAMS = sizeof programs / sizeof *programs };

static uint64_t state;
static int rnd(int n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return n > 0 ? (int)((state >> 33) % (uint64_t)n) : 0;
}

static kiln_bytes bytes(const char *s) { return (kiln_bytes){s, strlen(s)}; }

/* ---- one random step on the tree as it is ---- */

typedef struct maker {
    const kn_tree *t;
    const kn_stage *g;
    const kn_stmt *s;
    const char *name;
    char *out;
    size_t cap;
    bool on_gpu;
    int serial;
} maker;

static const char *stage_name(const kn_tree *t, const kn_stage *g) { return t->program->tensors[t->program->stmts[g->stmt]->out].name; }
static const char *any_axis(const maker *m) { return m->s->naxes ? m->s->axes[rnd(m->s->naxes)].name : "none"; }
static const char *any_loop(const maker *m) { return m->g->nloops ? m->g->loops[rnd(m->g->nloops)].name : "none"; }
static const char *last_loop(const maker *m) { return m->g->nloops && rnd(8) ? m->g->loops[m->g->nloops - 1].name : any_loop(m); }
static const char *any_stage(const maker *m) { return stage_name(m->t, m->t->stages[rnd(m->t->nstages)]); }

/* Factors that mostly fit the axis: one that reaches far past its end only makes the interpreter walk through nothing. */
static void m_split(maker *m)
{
    static const int f[] = {1, 2, 3, 4, 5, 8};
    int n = 1 + rnd(3), axis = rnd(m->s->naxes);
    int64_t room = m->s->naxes ? 2 * m->s->axes[axis].extent + 2 : 8;
    size_t used = (size_t)snprintf(m->out, m->cap, "split %s %s", m->name, m->s->naxes ? m->s->axes[axis].name : "none");
    for (int i = 0; i < n; i++) {
        int by = f[rnd(6)];
        if (room / by < 1) by = 1;
        room /= by;
        used += (size_t)snprintf(m->out + used, m->cap - used, " %d", by);
    }
    if (!rnd(6)) snprintf(m->out + used, m->cap - used, " exact");
}

/* A random order of all loops, spatial ones rather outside on a GPU, with a tile boundary here and there. */
static void m_reorder(maker *m)
{
    int order[KILN_MAX_LOOPS];
    for (int i = 0; i < m->g->nloops; i++) order[i] = i;
    for (int i = m->g->nloops - 1; i > 0; i--) {
        int k = rnd(i + 1), was = order[i];
        order[i] = order[k], order[k] = was;
    }
    size_t used = (size_t)snprintf(m->out, m->cap, "reorder %s", m->name);
    for (int i = 0; i < m->g->nloops; i++)
        used += (size_t)snprintf(m->out + used, m->cap - used, "%s %s", i && !rnd(4) ? " |" : "", m->g->loops[order[i]].name);
}

static void m_loop(maker *m, const char *verb, const char *loop) { snprintf(m->out, m->cap, "%s %s %s", verb, m->name, loop); }
static void m_parallel(maker *m) { m_loop(m, "parallel", m->g->nloops && rnd(6) ? m->g->loops[0].name : any_loop(m)); }
static void m_vectorize(maker *m) { m_loop(m, "vectorize", last_loop(m)); }
static void m_unroll(maker *m) { m_loop(m, "unroll", last_loop(m)); }
static void m_rfactor(maker *m) { m_loop(m, "rfactor", any_loop(m)); }
static void m_blockize(maker *m) { m_loop(m, "blockize", any_loop(m)); }
static void m_decompose_reduction(maker *m)
{
    m_loop(m, "decompose_reduction", m->g->nloops && rnd(3) ? m->g->loops[0].name : any_loop(m));
}

static void m_bind(maker *m)
{
    static const char *const kinds[] = {"grid", "thread", "vthread"};
    int kind = rnd(3), i = 0;
    while (kind < 2 && i + 1 < m->g->nloops && m->g->loops[i].kind != KN_SERIAL) i++;
    snprintf(m->out, m->cap, "bind %s %s %s", m->name, kind == 2 ? last_loop(m) : m->g->nloops ? m->g->loops[i].name : "none", kinds[kind]);
}

static void m_annotate(maker *m) { snprintf(m->out, m->cap, "annotate %s %s unroll %d", m->name, any_loop(m), 1 + rnd(8)); }
static void m_inline(maker *m) { snprintf(m->out, m->cap, "inline %s", m->name); }
static void m_epilogue(maker *m) { snprintf(m->out, m->cap, "epilogue %s", m->name); }
static void m_cache_write(maker *m) { snprintf(m->out, m->cap, "cache_write %s cw%d", m->name, m->serial); }
static void m_reindex(maker *m)
{
    static const char *const what[] = {"0", "1", "2", "out"};
    snprintf(m->out, m->cap, "reindex %s %s ri%d", m->name, what[rnd(4)], m->serial);
}
static void m_decompose_padding(maker *m) { snprintf(m->out, m->cap, "decompose_padding %s %d dp%d", m->name, rnd(2), m->serial); }
static void m_copy(maker *m) { snprintf(m->out, m->cap, "copy %s %d co%d", m->name, rnd(2), m->serial); }
static void m_widen(maker *m)
{
    static const char *const to[] = {"", "", " i16", " f32"};
    snprintf(m->out, m->cap, "widen %s %d wi%d%s", m->name, rnd(2), m->serial, to[rnd(4)]);
}
static void m_tabulate(maker *m) { snprintf(m->out, m->cap, "tabulate %s tb%d%s", m->name, m->serial, rnd(2) ? " read" : ""); }
static void m_unsign(maker *m)
{
    snprintf(m->out, m->cap, "unsign %s %d ut%d uu%d uw%d", m->name, rnd(2), m->serial, m->serial, m->serial);
}
static void m_flatten_window(maker *m)
{
    int n = m->s->nspatial, b = n > 1 ? 1 + rnd(n - 1) : 0;
    const char *row = n > 1 ? m->s->axes[rnd(4) ? b - 1 : rnd(n)].name : "none", *column = n > 1 ? m->s->axes[b].name : "none";
    snprintf(m->out, m->cap, "flatten_window %s %d %s %s FV%d fp%d fr%d", m->name, rnd(2), row, column, m->serial, m->serial, m->serial);
}
static void m_unstride(maker *m) { snprintf(m->out, m->cap, "unstride %s %d %s us%d", m->name, rnd(2), any_axis(m), m->serial); }
static void m_unfold(maker *m)
{
    int n = m->s->naxes, reduce = n - m->s->nspatial;
    if (reduce < 2) {
        m_unstride(m);
        return;
    }
    int r = m->s->nspatial + rnd(reduce), c = m->s->nspatial + rnd(reduce);
    const kn_axis *axes = m->s->axes;
    snprintf(m->out, m->cap, "unfold %s %d %s %s %s UV%d uf%d", m->name, rnd(2), any_axis(m), axes[r].name, axes[c].name, m->serial, m->serial);
}
static void m_separate(maker *m) { snprintf(m->out, m->cap, "separate %s %s se%d%s", m->name, any_axis(m), m->serial, rnd(2) ? " inside" : ""); }
static void m_pad_einsum(maker *m) { snprintf(m->out, m->cap, "pad_einsum %s %s %d", m->name, any_axis(m), 2 + rnd(6)); }
static void m_compute_at(maker *m) { snprintf(m->out, m->cap, "compute_at %s %s %s", any_stage(m), m->name, any_loop(m)); }
static void m_keep(maker *m) { snprintf(m->out, m->cap, "keep %s %d %s", m->name, rnd(2), any_loop(m)); }
static void m_reverse_compute_at(maker *m) { snprintf(m->out, m->cap, "reverse_compute_at %s %s %s", any_stage(m), m->name, any_loop(m)); }
static void m_storage_align(maker *m) { snprintf(m->out, m->cap, "storage_align %s %d %d %d", m->name, rnd(2), 1 + rnd(16), rnd(4)); }
static void m_double_buffer(maker *m)
{
    snprintf(m->out, m->cap, rnd(2) ? "double_buffer %s %d" : "double_buffer %s %d %d", m->name, rnd(2), 2 + rnd(3));
}

static void m_set_scope(maker *m) { snprintf(m->out, m->cap, "set_scope %s %d %s", m->name, rnd(2), m->on_gpu ? "shared" : "scratch"); }
static void m_divide(maker *m)
{
    snprintf(m->out, m->cap, "divide %s %s DO%d DI%d %d", m->name, any_axis(m), m->serial, m->serial, 2 + rnd(4));
}

static void m_part(maker *m) { snprintf(m->out, m->cap, "part %s %s PK%d %d pt%d", m->name, any_axis(m), m->serial, 2 + rnd(3), m->serial); }

static void m_fuse(maker *m)
{
    int i = rnd(m->s->naxes), n = 2 + rnd(2);
    size_t used = (size_t)snprintf(m->out, m->cap, "fuse %s FU%d", m->name, m->serial);
    for (int k = 0; k < n; k++)
        used += (size_t)snprintf(m->out + used, m->cap - used, " %s", m->s->naxes ? m->s->axes[(i + k) % m->s->naxes].name : "none");
}

static void m_transform_layout(maker *m)
{
    int rank = m->t->program->tensors[m->s->out].rank, first = rnd(rank ? rank : 1), by = 2 + rnd(4);
    size_t used = (size_t)snprintf(m->out, m->cap, "transform_layout %s", m->name);
    for (int i = 0; i < rank; i++) {
        int d = (first + i) % rank;
        used += (size_t)snprintf(m->out + used, m->cap - used, d == first ? " %d/%d" : " %d", d, by);
    }
    snprintf(m->out + used, m->cap - used, " %d%%%d", first, by);
}

/* A cache at a random loop, of its region or of the loops inside that the load depends on. */
static void m_cache_read(maker *m)
{
    const kn_expr *loads[KILN_MAX_TENSORS];
    int n = kn_loads(m->s->body, loads, KILN_MAX_TENSORS), load = rnd(n), at = rnd(m->g->nloops);
    const char *scope = m->on_gpu ? "shared" : "scratch";
    if (!n || !m->g->nloops || !rnd(3)) {
        size_t used = (size_t)snprintf(m->out, m->cap, "cache_read %s %d %s %s region", m->name, load, scope, any_loop(m));
        if (n && rnd(2)) snprintf(m->out + used, m->cap - used, " last %d", rnd(loads[load]->nargs + 1));
        return;
    }
    size_t used = (size_t)snprintf(m->out, m->cap, "cache_read %s %d %s %s loops", m->name, load, scope, m->g->loops[at].name);
    for (int i = 0; i < m->g->nloops; i++)
        if ((i > at || (m->on_gpu && m->g->loops[i].kind == KN_THREAD)) && (kn_axes_in(loads[load]) >> m->g->loops[i].axis & 1))
            used += (size_t)snprintf(m->out + used, m->cap - used, " %s", m->g->loops[i].name);
    if (!rnd(3)) snprintf(m->out + used, m->cap - used, " pad %d", rnd(4));
}

/* A copy of a constant input in the order of the loops, or in an order of its own, sometimes without one that it wants. */
static void m_prepack(maker *m)
{
    const kn_expr *loads[KILN_MAX_TENSORS];
    int n = kn_loads(m->s->body, loads, KILN_MAX_TENSORS), load = rnd(n), from = rnd(3) || !m->g->nloops ? 0 : rnd(m->g->nloops);
    size_t used = (size_t)snprintf(m->out, m->cap, "prepack %s %d", m->name, load);
    for (int i = 0; n && i < m->g->nloops; i++) {
        const kn_loop *l = &m->g->loops[(i + from) % m->g->nloops];
        if ((kn_axes_in(loads[load]) >> l->axis & 1) && rnd(20)) used += (size_t)snprintf(m->out + used, m->cap - used, " %s", l->name);
    }
}

/* A statement that reads one constant alone and writes a temporary, where there is one; else any. */
static void m_ahead(maker *m)
{
    const char *name = m->name;
    for (int i = 0, from = rnd(m->t->nstages); i < m->t->nstages && rnd(8); i++) {
        const kn_stage *g = m->t->stages[(from + i) % m->t->nstages];
        bool temp = m->t->program->tensors[m->t->program->stmts[g->stmt]->out].role == KN_TEMP;
        if (temp && !g->ahead && kn_stage_constant(m->t, g) >= 0) name = stage_name(m->t, g);
    }
    snprintf(m->out, m->cap, "ahead %s", name);
}

/* A shared cache at a serial loop, in copies at once. */
static void m_cache_twice(maker *m)
{
    m_cache_read(m);
    int load = 0;
    size_t used = strlen(m->out);
    if (sscanf(m->out, "cache_read %*s %d", &load) == 1 && m->on_gpu)
        snprintf(m->out + used, m->cap - used, rnd(2) ? "\ndouble_buffer %s %d" : "\ndouble_buffer %s %d %d", m->name, load, 2 + rnd(4));
}

/* Rows of 64 or 128 bytes of a shared cache, swizzled, as they are or in copies that arrive later. */
static void m_swizzle(maker *m)
{
    const kn_expr *loads[KILN_MAX_TENSORS];
    int n = kn_loads(m->s->body, loads, KILN_MAX_TENSORS), load = rnd(n), axis = -1;
    for (int a = 0; n && a < m->s->naxes; a++)
        if (loads[load]->nargs && (kn_axes_in(loads[load]->args[loads[load]->nargs - 1]) >> a & 1)) axis = a;
    if (axis < 0) return;
    const char *x = m->s->axes[axis].name;
    size_t used = (size_t)snprintf(m->out, m->cap, "split %s %s %d\ncache_read %s %d shared %s.0 loops", m->name, x, 16 << rnd(2), m->name, load, x);
    bool inside = false;
    for (int i = 0; i < m->g->nloops; i++) {
        const kn_loop *l = &m->g->loops[i];
        if (inside && (kn_axes_in(loads[load]) >> l->axis & 1)) used += (size_t)snprintf(m->out + used, m->cap - used, " %s", l->name);
        inside |= l->axis == axis;
    }
    used += (size_t)snprintf(m->out + used, m->cap - used, " %s.1", x);
    if (rnd(2)) used += (size_t)snprintf(m->out + used, m->cap - used, "\ndouble_buffer %s %d %d async", m->name, load, 2 + rnd(3));
    snprintf(m->out + used, m->cap - used, "\nswizzle %s %d", m->name, load);
}

/* Bulk copies, refused at the end: nothing here has an instruction that reads what they bring. */
static void m_bulk(maker *m)
{
    const kn_expr *loads[KILN_MAX_TENSORS];
    int n = kn_loads(m->s->body, loads, KILN_MAX_TENSORS), load = rnd(n), at = 1 + rnd(m->g->nloops - 1);
    if (!m->on_gpu || !n || m->g->nloops < 2) return;
    const kn_loop *l = m->g->loops;
    bool blocks = rnd(2) || l[0].kind == KN_GRID;
    size_t used = 0;
    if (blocks && l[0].kind != KN_GRID) used = (size_t)snprintf(m->out, m->cap, "bind %s %s grid\n", m->name, l[0].name);
    used += (size_t)snprintf(m->out + used, m->cap - used, "cache_read %s %d shared %s loops", m->name, load, l[at].name);
    for (int i = 0; i < m->g->nloops; i++)
        if ((i > at || l[i].kind == KN_THREAD) && (kn_axes_in(loads[load]) >> l[i].axis & 1))
            used += (size_t)snprintf(m->out + used, m->cap - used, " %s", l[i].name);
    used += (size_t)snprintf(m->out + used, m->cap - used, "\ndouble_buffer %s %d 3 bulk", m->name, load);
    if (blocks && rnd(2)) used += (size_t)snprintf(m->out + used, m->cap - used, "\ncluster %s %s %d", m->name, l[0].name, 2 << rnd(3));
    if (rnd(2)) used += (size_t)snprintf(m->out + used, m->cap - used, "\nstore %s bulk", m->name);
    if (rnd(2)) snprintf(m->out + used, m->cap - used, "\npersist %s %d", m->name, rnd(9));
}

static void m_sample(maker *m)
{
    const char *axis = any_axis(m);
    if (rnd(2))
        snprintf(m->out, m->cap, "sample_perfect_tile v%d %s %s %d %d\nsplit %s %s $v%d.1", m->serial, m->name, axis, 2, 1 + rnd(8),
                 m->name, axis, m->serial);
    else
        snprintf(m->out, m->cap, "sample_categorical v%d 2 3 4 : %d\nsplit %s %s $v%d", m->serial, rnd(3), m->name, axis, m->serial);
}

static void m_sample_location(maker *m)
{
    const char *p = any_stage(m);
    snprintf(m->out, m->cap, "sample_compute_location l%d %s %s\ncompute_at %s %s $l%d", m->serial, p, m->name, p, m->name, m->serial);
}

/* An instruction for random axes of the right kinds: they are split, its loops go inside, and sometimes it is told which are which. */
static void m_tensorize(maker *m)
{
    const kn_hw *hw = m->on_gpu ? &gpu : &cpu;
    const kn_intrin *it = hw->intrins[rnd(hw->nintrins)].parsed;
    int axis[KN_INTRIN_LOOPS];
    uint32_t taken = 0;
    size_t n = 0;
    for (int l = 0; l < it->nloops; l++) {
        axis[l] = -1;
        for (int tries = 0; tries < 4 && axis[l] < 0 && m->s->naxes; tries++) {
            int x = rnd(m->s->naxes);
            if (m->s->axes[x].reduce == it->s->axes[l].reduce && !(taken >> x & 1)) axis[l] = x;
        }
        if (axis[l] < 0) continue;
        taken |= 1u << axis[l];
        n += (size_t)snprintf(m->out + n, m->cap - n, "split %s %s %lld\n", m->name, m->s->axes[axis[l]].name, (long long)it->s->axes[l].extent);
    }
    n += (size_t)snprintf(m->out + n, m->cap - n, "reorder %s", m->name);
    int held = rnd(3) || !m->g->nloops ? -1 : rnd(m->g->nloops); /* a loop that goes inside all others: unrolled, it keeps results in registers */
    for (int i = 0; i < m->g->nloops; i++)
        if (i != held) n += (size_t)snprintf(m->out + n, m->cap - n, " %s", m->g->loops[i].name);
    n += (size_t)snprintf(m->out + n, m->cap - n, " %s |", held < 0 ? "" : m->g->loops[held].name);
    const char *first = "none.1";
    for (int l = 0; l < it->nloops; l++) {
        if (axis[l] < 0) continue;
        const char *name = m->s->axes[axis[l]].name;
        if (!strcmp(first, "none.1")) first = name;
        n += (size_t)snprintf(m->out + n, m->cap - n, " %s.1", name);
    }
    n += (size_t)snprintf(m->out + n, m->cap - n, "\ntensorize %s %s.1 %s", m->name, first, it->name);
    for (int l = 0, told = !rnd(2); told && l < it->nloops; l++)
        if (axis[l] >= 0) n += (size_t)snprintf(m->out + n, m->cap - n, " %s=%s.1", it->s->axes[l].name, m->s->axes[axis[l]].name);
    if (held >= 0) snprintf(m->out + n, m->cap - n, "\nunroll %s %s", m->name, m->g->loops[held].name);
}

static void m_nonsense(maker *m)
{
    static const char *const lines[] = {"split %s NOPE 4",
                                        "parallel %s Z.9",
                                        "tensorise %s",
                                        "split %s",
                                        "vectorize %s A.0 extra words here",
                                        "bind %s Q.0 warp",
                                        "inline $%s",
                                        "cache_read %s 99 scratch X region",
                                        "transform_layout %s 9/0",
                                        "pad_einsum %s K 0"};
    snprintf(m->out, m->cap, lines[rnd(10)], m->name);
}

static void m_map(maker *m)
{
    const kn_hw *hw = m->on_gpu ? &gpu : &cpu;
    const char *name = hw->intrins[rnd(hw->nintrins)].name;
    snprintf(m->out, m->cap, "sample_mapping mp%d %s %s\nmap %s %s $mp%d", m->serial, m->name, name, m->name, name, m->serial);
}

/* Structural primitives come early in real schedules, annotations late: so do they here, most of the time. */
static void (*const early[])(maker *) = {m_inline,     m_epilogue,         m_cache_write, m_reindex, m_decompose_padding,
                                         m_pad_einsum, m_transform_layout, m_fuse,        m_divide,  m_split, m_flatten_window, m_copy, m_widen,
                                         m_map,        m_unsign,     m_part,             m_separate,    m_separate, m_tabulate, m_unstride,
                                         m_unfold,     m_unfold};
static void (*const middle[])(maker *) = {
    m_split,      m_split,   m_split,           m_swizzle,   m_reorder,   m_reorder,  m_sample,
    m_compute_at, m_reverse_compute_at, m_sample_location, m_tensorize, m_tensorize, m_ahead};
static void (*const late[])(maker *) = {m_parallel,      m_bind,       m_bind,          m_vectorize,   m_unroll,   m_unroll,
                                        m_cache_read,    m_cache_read, m_rfactor,       m_annotate,    m_blockize, m_decompose_reduction,
                                        m_storage_align, m_set_scope,  m_double_buffer, m_cache_twice, m_reorder,  m_swizzle,  m_nonsense,
                                        m_bulk,          m_prepack,    m_prepack,       m_keep,        m_keep,     m_ahead};

static void make_step(maker *m, int step, int steps)
{
    int phase = step * 3 / steps;
    if (!rnd(6)) phase = rnd(3);
    if (phase == 0)
        early[rnd((int)(sizeof early / sizeof *early))](m);
    else if (phase == 1)
        middle[rnd((int)(sizeof middle / sizeof *middle))](m);
    else
        late[rnd((int)(sizeof late / sizeof *late))](m);
}

/* ---- running and comparing ---- */

static int64_t elems(const kn_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->shape[i];
    return n;
}

static void fill(const kn_program *p, double **x)
{
    unsigned seed = 777;
    for (int i = 0; i < p->ntensors; i++) {
        int64_t n = elems(&p->tensors[i]);
        x[i] = calloc((size_t)n, sizeof(double));
        for (int64_t k = 0; k < n && i < p->ninputs; k++) {
            seed = seed * 1103515245u + 12345u;
            x[i][k] = (double)((int)(seed >> 16) % 5 - 2);
        }
    }
}

static void release(double **x)
{
    for (int i = 0; i < KILN_MAX_TENSORS; i++) free(x[i]);
}

static char *tree_text(kiln_arena *a, const kn_tree *t)
{
    kn_buf b;
    kn_buf_init(&b, a);
    kn_print_program(&b, t->program);
    kn_tree_print(&b, t);
    return (char *)(uintptr_t)kn_buf_take(&b).p;
}

static const char *const primitives[] = {
#define X(name, min, max, usage) #name,
#include "schedule/prims.def"
#undef X
};
enum { PRIMITIVES = sizeof primitives / sizeof *primitives };

typedef struct tally {
    int of[PRIMITIVES];
    int sequences, steps, accepted, refused, at_end, unlowered, compared, doubted;
} tally;

static void count_primitives(tally *n, const char *lines)
{
    for (const char *l = lines; *l; l += strcspn(l, "\n"), l += *l == '\n')
        for (int k = 0; k < PRIMITIVES; k++)
            n->of[k] += strlen(primitives[k]) == strcspn(l, " ") && !strncmp(l, primitives[k], strcspn(l, " "));
}

/* NULL, or what is wrong with the accepted schedule. */
static const char *compare(kiln_arena *a, const kn_program *p, const kn_tree *t, const kn_hw *hw, double *const *want, tally *n)
{
    static char why[600];
    kiln_diag d = {0};
    kn_lprog *l;
    kn_blocks *blocks;
    why[0] = 0;
    kiln_status s = kn_lower(a, (kn_tree *)(uintptr_t)t, hw, &l, &d);
    if (s == KILN_UNSUPPORTED || s == KILN_LIMIT || s == KILN_TRACE) {
        if (!d.message[0]) return "lowering refused without a reason";
        if (getenv("PROP_DUMP")) fprintf(stderr, "unlowered: %s\n", d.message);
        n->unlowered++;
        return NULL;
    }
    if (s || kn_lprog_check(l, &d)) {
        snprintf(why, sizeof why, "%s", d.message);
        return why;
    }
    if (kn_blocks_of_tree(a, t, hw, &blocks, &d) || kn_blocks_check(blocks, hw, &d)) {
        if (getenv("PROP_DUMP")) fprintf(stderr, "as blocks: %s\n", d.message);
        n->doubted++;
    }
    double *got[KILN_MAX_TENSORS] = {0};
    fill(t->program, got);
    const char *bad = lprog_eval(l, got);
    if (bad) snprintf(why, sizeof why, "%s", bad);
    for (int i = p->ninputs; i < p->ninputs + p->noutputs && !why[0]; i++)
        for (int64_t k = 0; k < elems(&p->tensors[i]) && !why[0]; k++)
            if (want[i][k] != got[i][k])
                snprintf(why, sizeof why, "%s[%lld] is %g, not %g", p->tensors[i].name, (long long)k, got[i][k], want[i][k]);
    release(got);
    n->compared++;
    return why[0] ? why : NULL;
}

static kiln_bytes step_of(kiln_arena *a, const kn_tree *t, bool on_gpu, int step, int steps)
{
    char line[1200];
    maker m = {.t = t, .g = t->stages[rnd(t->nstages)], .out = line, .cap = sizeof line, .on_gpu = on_gpu, .serial = step};
    m.s = t->program->stmts[m.g->stmt];
    m.name = stage_name(t, m.g);
    line[0] = 0;
    make_step(&m, step, steps);
    return bytes(kn_strdup(a, line));
}

/* False: the sequence shows a fault, which is printed with its trace. */
static bool sequence(uint64_t seed, tally *n)
{
    state = seed;
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    int which = rnd(PROGRAMS), steps = 5 + rnd(16);
    const kn_hw *hw = rnd(3) ? &cpu : &gpu;
    kiln_diag d = {0};
    kn_program *p;
    kn_tree *t;
    kn_buf trace;
    const char *why = NULL;
    assert_int_equal(kn_parse(a, bytes(programs[which].text), bytes(programs[which].inputs), &p, &d), KILN_OK);
    for (int i = 0; i < p->ninputs; i++) p->tensors[i].constant = true; /* so that they may be packed ahead */
    assert_int_equal(kn_trace_start(a, p, &t, &d), KILN_OK);
    kn_buf_init(&trace, a);
    for (int i = 0; i < steps && !why; i++, n->steps++) {
        kiln_bytes line = step_of(a, t, hw->gpu, i, steps);
        char *before = tree_text(a, t);
        kn_tree *next;
        d = (kiln_diag){0};
        kiln_status s = kn_trace_step(a, t, hw, line, &next, &d);
        if (strcmp(before, tree_text(a, t))) why = "a step changed the tree it was tried on";
        if (s && !d.message[0]) why = "a refusal without a reason";
        if (s == KILN_INTERNAL || s == KILN_MEMORY) why = d.message;
        n->accepted += !s;
        if (!s) count_primitives(n, line.p);
        n->refused += s != KILN_OK;
        if (s || why) continue;
        t = next;
        kn_putf(&trace, "%s\n", line.p);
    }
    kiln_bytes text = kn_buf_take(&trace);
    kn_tree *again;
    if (!why && kn_trace_end(t, hw, &d)) {
        n->at_end++;
    } else if (!why) {
        double *want[KILN_MAX_TENSORS] = {0};
        fill(p, want);
        if (kn_ref_all(a, p, want, &d))
            why = "the reference fails";
        else if (kn_trace_apply(a, p, hw, text, &again, &d))
            why = "the trace does not replay";
        else if (strcmp(tree_text(a, again), tree_text(a, t)))
            why = "the trace replays to another tree";
        else
            why = compare(a, p, t, hw, want, n);
        release(want);
    }
    n->sequences++;
    if (why)
        print_error("seed %llu, program %d (%s), %s: %s\n%s", (unsigned long long)seed, which, programs[which].text, hw->id, why, text.p);
    kiln_arena_close(a);
    return !why;
}

static void test_sequences(void **unused)
{
    (void)unused;
    tally n = {0};
    uint64_t seed = getenv("KILN_SEED") ? strtoull(getenv("KILN_SEED"), NULL, 10) : 1;
    int count = getenv("KILN_COUNT") ? atoi(getenv("KILN_COUNT")) : 2000, bad = 0;
    for (int i = 0; i < count && bad < 10; i++) bad += !sequence((seed << 32) + (uint64_t)i * 2654435761u, &n);
    print_message("%d sequences, %d steps: %d accepted, %d refused; %d compared, %d refused at the end, %d not lowered; %d doubted as "
                  "blocks; %d mismatches\n",
                  n.sequences, n.steps, n.accepted, n.refused, n.compared, n.at_end, n.unlowered, n.doubted, bad);
    int missing = 0;
    for (int k = 0; k < PRIMITIVES; k++) {
        if (getenv("KILN_COUNT")) print_message("%8d %s\n", n.of[k], primitives[k]);
        missing += !n.of[k];
    }
    if (count >= 2000) assert_int_equal(missing, 0);
    assert_int_equal(bad, 0);
    assert_true(n.compared * 4 > n.sequences);
    assert_true(n.doubted * 50 <= n.compared); /* the validator of blocks is stricter than it must be, but not by much */
}

int main(void)
{
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    add_instructions(a, &cpu);
    add_instructions(a, &gpu);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sequences)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kiln_arena_close(a);
    return failed;
}
