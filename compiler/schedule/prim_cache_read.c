/* cache_read S I SCOPE L loops ... | region [last D]: a load is read from a near buffer filled at the start of loop L's body. */
#include "schedule/sched.h"
#include <string.h>

/* Thread loops stand above the loop a shared buffer is filled at, yet the whole block shares it: they count as inside. */
static bool inside(const kn_stage *g, const kn_cache *c, int loop)
{
    return loop > c->at || (c->scope == KN_SHARED && g->loops[loop].kind == KN_THREAD);
}

int64_t kn_cache_dim(const kn_stage *g, const kn_cache *c, int i)
{
    return c->count[i] ? c->count[i] : g->loops[c->loops[i]].extent / (c->by[i] ? c->by[i] : 1);
}

/* "L", "L/N" or "L%N": a dimension more. */
static kiln_status read_loop(kn_step *s, const kn_stage *g, kn_cache *c, const char *text)
{
    char name[sizeof g->loops[0].name] = "";
    size_t n = strcspn(text, "/%");
    int64_t few = 0;
    if (c->nloops == KILN_MAX_LOOPS) return kn_step_refuse(s, "more than %d dimensions", KILN_MAX_LOOPS);
    if (n < sizeof name) memcpy(name, text, n);
    int l = kn_step_loop(s, g, n < sizeof name ? name : text);
    if (l < 0 || (text[n] && !kn_step_int(s, text + n + 1, 2, KILN_MAX_EXTENT, &few))) return KILN_TRACE;
    if (c->at >= 0 && !inside(g, c, l)) return kn_step_refuse(s, "loop '%s' is not inside '%s'", name, g->loops[c->at].name);
    if (few && s->hw->gpu) return kn_step_refuse(s, "parts of loops, '%s', are for CPU targets", text);
    if (few && (g->loops[l].extent % few || g->loops[l].extent == few))
        return kn_step_refuse(s, "%lld does not part the %lld of loop '%s'", (long long)few, (long long)g->loops[l].extent, name);
    for (int i = 0; i < c->nloops; i++)
        if (c->loops[i] == l && !(few && (text[n] == '/' ? c->count[i] == few : c->by[i] == few)))
            return kn_step_refuse(s, "loop '%s' is named twice", text);
    if (text[n] == '/') c->by[c->nloops] = few;
    if (text[n] == '%') c->count[c->nloops] = few;
    c->loops[c->nloops++] = l;
    return KILN_OK;
}

kiln_status kn_cache_loops(kn_step *s, const kn_stage *g, kn_cache *c, int *arg)
{
    for (; *arg < s->nargs && strcmp(s->args[*arg], "pad"); (*arg)++) {
        kiln_status bad = read_loop(s, g, c, s->args[*arg]);
        if (bad) return bad;
    }
    for (int i = 0; i < c->nloops; i++) {
        int parts = 0;
        for (int k = 0; k < c->nloops; k++) parts += c->loops[k] == c->loops[i];
        if (parts != (c->by[i] || c->count[i] ? 2 : 1))
            return kn_step_refuse(s, "loop '%s' must stand there once, or as its quotient and its remainder", g->loops[c->loops[i]].name);
    }
    return KILN_OK;
}

kiln_status kn_cache_fits(kn_step *s, const kn_stage *g, const kn_cache *c, const kn_expr *load)
{
    uint32_t axes = kn_axes_in(load);
    for (int i = 0; i < load->nargs; i++) {
        kn_affine f;
        const kn_expr *inner[2];
        if (kn_loads(load->args[i], inner, 2)) return kn_step_refuse(s, "load %d is at an index read from data; it cannot be cached",
            c->load);
        if (c->region && !kn_affine_of(load->args[i], &f)) return kn_step_refuse(s,
            "index %d of load %d is not affine; name its loops instead", i, c->load);
    }
    for (int i = 0; i < g->nloops; i++) {
        if (!inside(g, c, i) || !(axes >> g->loops[i].axis & 1)) continue;
        bool named = c->region;
        for (int k = 0; k < c->nloops; k++) named |= c->loops[k] == i;
        if (!named) return kn_step_refuse(s, "load %d depends on loop '%s' inside '%s'; name it", c->load, g->loops[i].name,
            c->at < 0 ? kn_stage_name(s->t, g) : g->loops[c->at].name);
    }
    for (int k = 0; k < c->nloops; k++)
        if (!(axes >> g->loops[c->loops[k]].axis & 1))
            return kn_step_refuse(s, "load %d does not depend on loop '%s'", c->load, g->loops[c->loops[k]].name);
    return KILN_OK;
}

/* Extent that axis x spans inside the cache: the loops inside `at` need not be adjacent, so the span is a sum, not a product. */
static int64_t span(const kn_stage *g, const kn_cache *c, int x)
{
    int64_t n = 1;
    for (int i = 0; i < g->nloops; i++)
        if (g->loops[i].axis == x && inside(g, c, i)) n += (g->loops[i].extent - 1) * g->loops[i].stride;
    return n;
}

int kn_cache_order(const kn_cache *c, int n, int i)
{
    if (!c->last) return i;
    return i == n - 1 ? c->last - 1 : i < c->last - 1 ? i : i + 1;
}

/* "last D": dimension D alone is an axis, whose elements in the buffer are those of a vector; the tensor's rows run along another one. */
static kiln_status read_last(kn_step *s, const kn_stage *g, kn_cache *c, const kn_expr *load, int *arg)
{
    int64_t d;
    if (*arg == s->nargs || strcmp(s->args[*arg], "last")) return KILN_OK;
    if (*arg + 1 == s->nargs || !kn_step_int(s, s->args[*arg + 1], 0, load->nargs - 1, &d))
        return kn_step_refuse(s, "'last' is followed by no dimension of load %d", c->load);
    const kn_tensor *x = &s->t->program->tensors[load->u.tensor];
    const kn_stmt *st = kn_stage_stmt(s->t, g);
    int row = x->rank - 1;
    while (row > 0 && x->shape[row] == 1) row--;
    if (s->hw->gpu || !c->region) return kn_step_refuse(s, "'last' is for regions on a CPU");
    if (row <= d) return kn_step_refuse(s, "dimension %lld of load %d is its innermost already", (long long)d, c->load);
    const kn_expr *at = load->args[d];
    int64_t n = at->op == KN_OP_AXIS ? span(g, c, at->u.axis) : 0;
    if (n != 4 && n != 8 && n != 16)
        return kn_step_refuse(s, "dimension %lld of load %d is no axis of 4, 8 or 16 elements there", (long long)d, c->load);
    if (st->axes[at->u.axis].reduce) return kn_step_refuse(s, "dimension %lld of load %d is reduced along", (long long)d, c->load);
    if (st->axes[at->u.axis].extent > x->shape[d] || kn_dtype_bytes(x->dtype) < 4)
        return kn_step_refuse(s, "dimension %lld of load %d strays, or its elements are narrower than 4 bytes", (long long)d, c->load);
    c->last = (int)d + 1;
    *arg += 2;
    return KILN_OK;
}

kiln_status kn_prim_cache_read(kn_step *s)
{
    kn_stage *g = kn_step_stage(s, s->args[0]);
    if (!g) return KILN_TRACE;
    if (g->ncaches == KN_CACHES) return kn_step_refuse(s, "too many caches");
    kn_cache c = { 0 };
    int64_t number;
    if (!kn_step_int(s, s->args[1], 0, KILN_MAX_TENSORS - 1, &number)) return KILN_TRACE;
    c.load = (int)number;
    const kn_expr *load = kn_stage_load(s->t, g, c.load);
    if (!load) return kn_step_refuse(s, "the body of '%s' has no load %d", s->args[0], c.load);
    for (int i = 0; i < g->ncaches; i++)
        if (g->caches[i].load == c.load) return kn_step_refuse(s, "load %d has a cache already", c.load);
    if (!strcmp(s->args[2], "scratch")) c.scope = KN_SCRATCH;
    else if (!strcmp(s->args[2], "shared")) c.scope = KN_SHARED;
    else return kn_step_refuse(s, "'%s' is neither scratch nor shared", s->args[2]);
    if ((c.scope == KN_SHARED) != s->hw->gpu) return kn_step_refuse(s, "%s targets have %s", s->hw->gpu ? "GPU" : "CPU",
        s->hw->gpu ? "shared" : "scratch");
    c.at = kn_step_loop(s, g, s->args[3]);
    if (c.at < 0) return KILN_TRACE;
    int arg = 5;
    c.region = !strcmp(s->args[4], "region");
    if (!c.region && strcmp(s->args[4], "loops")) return kn_step_refuse(s, "'%s' is neither loops nor region", s->args[4]);
    kiln_status bad = c.region ? KILN_OK : kn_cache_loops(s, g, &c, &arg);
    if (!bad) bad = read_last(s, g, &c, load, &arg);
    if (bad) return bad;
    if (arg < s->nargs) {
        if (strcmp(s->args[arg], "pad") || arg + 2 != s->nargs) return kn_step_refuse(s, "expected 'pad N' at '%s'", s->args[arg]);
        if (!kn_step_int(s, s->args[arg + 1], 0, 4096, &c.pad)) return KILN_TRACE;
    }
    for (int i = 0; i < s->t->nstages; i++) {
        const kn_stage *p = s->t->stages[i];
        if (p->at_stage == kn_stage_find(s->t, g) && kn_stage_out(s->t, p) == load->u.tensor)
            return kn_step_refuse(s, "load %d is computed at '%s', into a buffer of its own", c.load, g->loops[p->at_loop].name);
    }
    bad = kn_cache_fits(s, g, &c, load);
    if (bad) return bad;
    if (!kn_cache_bytes(s->t, g, &c)) return kn_step_refuse(s, "the cache of load %d is too large", c.load);
    return kn_stage_add_cache(s->a, g, &c) ? KILN_OK : kn_fail(s->d, KILN_MEMORY, "out of memory while adding a cache");
}

/* Elements of the innermost row before padding in *row, all elements before it in *n; false on overflow. */
static bool cache_shape(const kn_stage *g, const kn_cache *c, const kn_expr *load, int64_t *n, int64_t *row)
{
    *n = *row = 1;
    int dims = c->region ? load->nargs : c->nloops;
    for (int k = 0; k < dims; k++) {
        int i = kn_cache_order(c, dims, k);
        int64_t size = 1, part;
        kn_affine f;
        if (!c->region) {
            size = kn_cache_dim(g, c, i);
        } else if (!kn_affine_of(load->args[i], &f)) {
            return false;
        } else {
            for (int x = 0; x < KILN_MAX_AXES; x++) {
                if (!f.coef[x]) continue;
                if (!kn_mul_fits(f.coef[x] < 0 ? -f.coef[x] : f.coef[x], span(g, c, x) - 1, &part)) return false;
                size += part;
            }
        }
        if (!kn_mul_fits(*n, *row, n)) return false;
        *row = size;
    }
    return true;
}

int64_t kn_cache_bytes(const kn_tree *t, const kn_stage *g, const kn_cache *c)
{
    const kn_expr *load = kn_stage_load(t, g, c->load);
    int64_t n, row;
    if (!load || !cache_shape(g, c, load, &n, &row)) return 0;
    int bytes = kn_dtype_bytes(t->program->tensors[load->u.tensor].dtype) * (c->copies ? c->copies : 1);
    if (!kn_mul_fits(n, row + c->pad, &n) || !kn_mul_fits(n, bytes, &n)) return 0;
    return n > KILN_MAX_ELEMENTS ? 0 : n;
}

int64_t kn_cache_row(const kn_tree *t, const kn_stage *g, const kn_cache *c)
{
    const kn_expr *load = kn_stage_load(t, g, c->load);
    int64_t n, row;
    return load && cache_shape(g, c, load, &n, &row) ? row : 0;
}
