/* Building blocks of loop programs: variables, buffers, expression nodes, statements. */
#include "lower/lower.h"
#include <stdio.h>
#include <string.h>

kiln_status kn_lw_fail(kn_lw *w, kiln_status s, const char *fmt, ...)
{
    if (w->status) return w->status;
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return w->status = kn_fail(w->d, s, "%s", text);
}

int kn_lw_var(kn_lw *w, const char *base, int64_t lo, int64_t hi)
{
    kn_lprog *p = w->p;
    if (p->nvars == w->var_cap) {
        int cap = w->var_cap ? w->var_cap * 2 : 64;
        const char **names = kn_array(w->a, const char *, cap);
        int64_t *los = kn_array(w->a, int64_t, cap), *his = kn_array(w->a, int64_t, cap);
        const kn_expr **values = kn_array(w->a, const kn_expr *, cap);
        if (!names || !los || !his || !values) {
            kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
            return 0;
        }
        if (p->nvars) {
            memcpy(names, p->var_names, sizeof *names * (size_t)p->nvars);
            memcpy(los, w->var_lo, sizeof *los * (size_t)p->nvars);
            memcpy(his, w->var_hi, sizeof *his * (size_t)p->nvars);
            memcpy(values, w->var_value, sizeof *values * (size_t)p->nvars);
        }
        p->var_names = names;
        w->var_lo = los;
        w->var_hi = his;
        w->var_value = values;
        w->var_cap = cap;
    }
    char clean[24];
    int n = 0;
    for (; base[n] && n < 20; n++)
        clean[n] = (base[n] >= 'a' && base[n] <= 'z') || (base[n] >= 'A' && base[n] <= 'Z') || (base[n] >= '0' &&
            base[n] <= '9') ? base[n] : '_';
    clean[n] = 0;
    p->var_names[p->nvars] = kn_format(w->a, "v%d_%s", p->nvars, clean);
    w->var_lo[p->nvars] = lo;
    w->var_hi[p->nvars] = hi < lo ? lo : hi;
    w->var_value[p->nvars] = NULL;
    return p->nvars++;
}

kn_expr *kn_lw_node(kn_lw *w, enum kn_op op, enum kn_dtype t, int lanes, kn_expr *x, kn_expr *y, kn_expr *z)
{
    kn_expr *e = kn_new(w->a, kn_expr);
    if (!e) {
        kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
        return &w->dry;
    }
    e->op = op;
    e->dtype = t;
    e->lanes = lanes > 1 ? lanes : 1;
    e->nargs = (x != NULL) + (y != NULL) + (z != NULL);
    if (e->nargs) e->args = kn_array(w->a, kn_expr *, 3);
    if (e->nargs && !e->args) {
        e->nargs = 0;
        kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
        return e;
    }
    if (x) e->args[0] = x;
    if (y) e->args[1] = y;
    if (z) e->args[2] = z;
    return e;
}

kn_expr *kn_lw_int(kn_lw *w, int64_t x)
{
    kn_expr *e = kn_lw_node(w, KN_OP_CONST_I, KN_I64, 1, NULL, NULL, NULL);
    if (!w->status) e->u.i = x;
    return e;
}

kn_expr *kn_lw_zero(kn_lw *w, enum kn_dtype t, double x)
{
    bool f = kn_dtype_class(t) == 'f';
    kn_expr *e = kn_lw_node(w, f ? KN_OP_CONST_F : KN_OP_CONST_I, t, 1, NULL, NULL, NULL);
    if (w->status) return e;
    if (f) e->u.f = x;
    else if (x >= 9223372036854775807.0) e->u.i = INT64_MAX;
    else if (x <= -9223372036854775808.0) e->u.i = INT64_MIN;
    else e->u.i = (int64_t)x;
    return e;
}

kn_expr *kn_lw_ref(kn_lw *w, int var)
{
    kn_expr *e = kn_lw_node(w, KN_OP_VAR, KN_I64, 1, NULL, NULL, NULL);
    if (!w->status) e->u.var = var;
    return e;
}

static void range_of(void *user, const kn_expr *leaf, int64_t *lo, int64_t *hi)
{
    const kn_lw *w = user;
    *lo = INT32_MIN;
    *hi = INT32_MAX;
    if (leaf->op == KN_OP_VAR && leaf->u.var >= 0 && leaf->u.var < w->p->nvars) {
        *lo = w->var_lo[leaf->u.var];
        *hi = w->var_hi[leaf->u.var];
    }
}

kn_expr *kn_lw_simp(kn_lw *w, kn_expr *e)
{
    kn_expr *r = w->status ? e : kn_simplify(w->a, e, range_of, w);
    if (r) return r;
    kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
    return e;
}

void kn_lw_range(kn_lw *w, const kn_expr *e, int64_t *lo, int64_t *hi)
{
    if (kn_expr_range(e, range_of, w, lo, hi)) return;
    *lo = INT32_MIN;
    *hi = INT32_MAX;
}

int64_t kn_lw_iterations(kn_lw *w, const kn_ls *loop)
{
    int64_t lo, hi, any;
    kn_lw_range(w, loop->lo, &lo, &any);
    kn_lw_range(w, loop->hi, &any, &hi);
    return hi > lo ? hi - lo : 0;
}

kn_expr *kn_lw_and(kn_lw *w, kn_expr *x, kn_expr *y)
{
    if (!x || !y) return x ? x : y;
    if (kn_lw_never(x) || kn_lw_never(y)) return kn_lw_never(x) ? x : y;
    return kn_lw_node(w, KN_OP_AND, KN_BOOL, 1, x, y, NULL);
}

kn_expr *kn_lw_below(kn_lw *w, kn_expr *x, int64_t limit)
{
    int64_t lo, hi;
    bool known = kn_expr_range(x, range_of, w, &lo, &hi);
    if (known && hi < limit) return NULL;
    if (known && lo >= limit) {
        kn_expr *never = kn_const_i(w->a, KN_BOOL, 0);
        if (never) return never;
    }
    return kn_lw_node(w, KN_OP_LT, KN_BOOL, 1, x, kn_lw_int(w, limit), NULL);
}

kn_expr *kn_lw_read(kn_lw *w, int buffer, kn_expr *index, int lanes)
{
    const kn_buffer *b = &w->p->buffers[buffer];
    kn_expr *e = kn_lw_node(w, KN_OP_READ, b->dtype, lanes, index, NULL, NULL);
    if (!w->status) e->u.buffer = buffer;
    return e;
}

kn_expr *kn_lw_splat(kn_lw *w, kn_expr *x, int lanes)
{
    return lanes > 1 && x->lanes <= 1 ? kn_lw_node(w, KN_OP_SPLAT, x->dtype, lanes, x, NULL, NULL) : x;
}

kn_expr *kn_lw_lanes(kn_lw *w, kn_expr *x, int var, int lanes)
{
    kn_expr *e = kn_lw_node(w, KN_OP_LANES, x->dtype, lanes, x, NULL, NULL);
    if (!w->status) e->u.var = e->var = var;
    return e;
}

bool kn_lw_uses(const kn_expr *e, int var)
{
    if (e->op == KN_OP_VAR) return e->u.var == var;
    for (int i = 0; i < e->nargs; i++)
        if (kn_lw_uses(e->args[i], var)) return true;
    return false;
}

bool kn_lw_reads(const kn_expr *e, int buffer)
{
    if (e->op == KN_OP_READ && e->u.buffer == buffer) return true;
    for (int i = 0; i < e->nargs; i++)
        if (kn_lw_reads(e->args[i], buffer)) return true;
    return false;
}

typedef struct swap { int var; kn_expr *with; } swap;
static kn_expr *swap_var(void *user, kiln_arena *a, kn_expr *e)
{
    (void)a;
    const swap *s = user;
    return e->op == KN_OP_VAR && e->u.var == s->var ? s->with : e;
}

kn_expr *kn_lw_at_lane(kn_lw *w, kn_expr *e, int var, kn_expr *with)
{
    swap s = { var, with };
    kn_expr *r = kn_rewrite(w->a, e, swap_var, &s);
    return r ? kn_lw_simp(w, r) : e;
}

bool kn_lw_coefficient(const kn_expr *e, int var, int64_t *c)
{
    int64_t x, y;
    *c = 0;
    if (!kn_lw_uses(e, var)) return true;
    if (e->op == KN_OP_VAR) return *c = 1, true;
    if (e->op == KN_OP_NEG) return kn_lw_coefficient(e->args[0], var, &x) && (*c = -x, true);
    if (e->op == KN_OP_ADD || e->op == KN_OP_SUB) {
        if (!kn_lw_coefficient(e->args[0], var, &x) || !kn_lw_coefficient(e->args[1], var, &y)) return false;
        *c = e->op == KN_OP_ADD ? x + y : x - y;
        return true;
    }
    if (e->op != KN_OP_MUL) return false;
    for (int i = 0; i < 2; i++)
        if (e->args[i]->op == KN_OP_CONST_I) return kn_lw_coefficient(e->args[1 - i], var, &x) && (*c = x * e->args[i]->u.i, true);
    return false;
}

bool kn_lw_unit_stride(const kn_expr *e, int var)
{
    int64_t c;
    return kn_lw_coefficient(e, var, &c) && c == 1;
}

int kn_lw_buffer(kn_lw *w, const char *base, enum kn_dtype t, int lanes, int64_t elems, enum kn_scope scope)
{
    if (w->p->nbuffers == KN_LW_BUFFERS) {
        kn_lw_fail(w, KILN_LIMIT, "a kernel has at most %d buffers", KN_LW_BUFFERS);
        return 0;
    }
    kn_buffer *b = &w->p->buffers[w->p->nbuffers];
    *b = (kn_buffer){ .dtype = t, .lanes = lanes > 1 ? lanes : 1, .elems = elems, .scope = scope, .slot = -1 };
    b->name = kn_format(w->a, "%s%d", base, w->p->nbuffers);
    int64_t bytes = kn_round_up(elems * kn_dtype_bytes(t), scope == KN_SCRATCH ? 64 : 16);
    if (scope == KN_SCRATCH) {
        b->offset = w->scratch;
        w->scratch += bytes;
        if (w->scratch > w->p->scratch_bytes) w->p->scratch_bytes = w->scratch;
    }
    if (scope == KN_SHARED) {
        b->align = w->shared_align;
        w->shared = kn_round_up(w->shared, b->align ? b->align : 16);
        b->offset = w->shared;
        w->shared += bytes;
    }
    return w->p->nbuffers++;
}

int64_t kn_lw_elems(const kn_tensor *x)
{
    int64_t n = 1;
    for (int i = 0; i < x->rank; i++) n *= x->shape[i];
    return n;
}

int kn_lw_tensor(kn_lw *w, int tensor)
{
    if (w->tensor_buffer[tensor] >= 0) return w->tensor_buffer[tensor];
    const kn_tensor *x = &w->p->program->tensors[tensor];
    int b = kn_lw_buffer(w, x->role == KN_TEMP ? "tmp" : x->role == KN_OUTPUT ? "out" : "in", x->dtype, 1, kn_lw_elems(x), KN_GLOBAL);
    w->p->buffers[b].slot = tensor;
    if (x->role == KN_TEMP) w->p->temp_slot[w->p->ntemps++] = tensor;
    return w->tensor_buffer[tensor] = b;
}

bool kn_lw_beyond_l2(const kn_lw *w, int tensor)
{
    const kn_tensor *x = &w->p->program->tensors[tensor];
    const kn_hw_level *l2 = kn_hw_level_named(w->hw, "l2");
    return l2 && kn_lw_elems(x) * kn_dtype_bytes(x->dtype) > l2->capacity_bytes;
}

static kn_ls *add(kn_lw *w, enum kn_ls_kind kind)
{
    kn_ls *s = kn_new(w->a, kn_ls);
    if (!s) {
        kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
        return NULL;
    }
    s->kind = kind;
    *w->tail = s;
    w->tail = &s->next;
    return s;
}

kn_ls *kn_lw_for(kn_lw *w, int var, kn_expr *lo, kn_expr *hi)
{
    kn_ls *s = add(w, KN_LS_FOR);
    if (!s) return NULL;
    s->var = var;
    s->lo = lo;
    s->hi = hi;
    return s;
}

kn_ls *kn_lw_if(kn_lw *w, kn_expr *cond)
{
    kn_ls *s = add(w, KN_LS_IF);
    if (s) s->value = cond;
    return s;
}

kn_expr *kn_lw_let(kn_lw *w, const char *base, kn_expr *value)
{
    int64_t lo, hi;
    value = kn_lw_simp(w, value);
    if (!value || value->op == KN_OP_CONST_I || value->op == KN_OP_VAR) return value;
    kn_lw_range(w, value, &lo, &hi);
    int var = kn_lw_var(w, base, lo, hi);
    kn_ls *s = add(w, KN_LS_LET);
    if (!s) return value;
    s->var = var;
    s->value = value;
    w->var_value[var] = value;
    return kn_lw_ref(w, var);
}

void kn_lw_store(kn_lw *w, int buffer, kn_expr *index, kn_expr *value) { kn_lw_store_line(w, buffer, index, value, NULL); }

kn_ls *kn_lw_store_line(kn_lw *w, int buffer, kn_expr *index, kn_expr *value, kn_expr *by)
{
    kn_ls *s = add(w, KN_LS_STORE);
    if (!s) return NULL;
    s->buffer = buffer;
    s->index = index;
    s->value = value;
    s->unaligned = value->lanes > 1 && w->p->buffers[buffer].scope != KN_REGISTER;
    int64_t bytes = value->lanes * kn_dtype_bytes(w->p->buffers[buffer].dtype);
    s->streams = buffer == w->streamed && (bytes == KN_LINE_BYTES || (bytes * 2 == KN_LINE_BYTES && w->hw->vector_bytes == bytes));
    s->lo = s->streams ? by : NULL;
    return s;
}

static kn_ls *prefetch(kn_lw *w, int buffer, kn_expr *index)
{
    kn_ls *s = add(w, KN_LS_PREFETCH);
    if (!s) return NULL;
    s->buffer = buffer;
    s->index = index;
    return s;
}

void kn_lw_prefetch(kn_lw *w, int buffer, kn_expr *index, bool writes)
{
    kn_ls *s = prefetch(w, buffer, index);
    if (s) s->writes = writes;
}

void kn_lw_prefetch_to_l2(kn_lw *w, int buffer, kn_expr *index)
{
    kn_ls *s = prefetch(w, buffer, index);
    if (s) s->to_l2 = true;
}

void kn_lw_prefetch_lines(kn_lw *w, int buffer, kn_expr *from, int64_t lines, int64_t step, bool writes)
{
    int var = kn_lw_var(w, "line", 0, lines - 1);
    from = kn_lw_let(w, "ahead", from);
    kn_ls *loop = lines > 1 ? kn_lw_for(w, var, kn_lw_int(w, 0), kn_lw_int(w, lines)) : NULL, **after = w->tail;
    if (loop) loop->unroll = (int)(lines < 16 ? lines : 16);
    if (loop) w->tail = &loop->body;
    if (loop) from = kn_lw_simp(w, kn_bin(w->a, KN_OP_ADD, from, kn_bin(w->a, KN_OP_MUL, kn_lw_ref(w, var), kn_lw_int(w, step))));
    kn_lw_prefetch(w, buffer, from, writes);
    if (loop) w->tail = after;
}

void kn_lw_call(kn_lw *w, const kn_call *c)
{
    kn_ls *s = add(w, KN_LS_CALL);
    if (s) s->call = c;
}

void kn_lw_fragment(kn_lw *w, const kn_fragment *f)
{
    kn_ls *s = add(w, KN_LS_FRAGMENT);
    if (s) s->fragment = f;
}

void kn_lw_unit(kn_lw *w, const kn_unit_step *step)
{
    kn_ls *s = add(w, KN_LS_UNIT);
    kn_unit_step *copy = kn_new(w->a, kn_unit_step);
    if (!copy) kn_lw_fail(w, KILN_MEMORY, "out of memory in lowering");
    else *copy = *step;
    if (s) s->unit = copy;
}

void kn_lw_pipe(kn_lw *w, kn_pipe step)
{
    kn_pipe *p = kn_new(w->a, kn_pipe);
    kn_ls *s = p ? add(w, KN_LS_PIPE) : NULL;
    if (!s) return;
    *p = step;
    s->pipe = p;
}

void kn_lw_commit(kn_lw *w) { add(w, KN_LS_COMMIT); }

void kn_lw_wait(kn_lw *w, int groups)
{
    kn_ls *s = add(w, KN_LS_WAIT);
    if (s) s->groups = groups;
}

void kn_lw_group(kn_lw *w, int step)
{
    kn_ls *s = add(w, KN_LS_GROUP);
    if (s) s->groups = step;
}

void kn_lw_group_end_of(kn_lw *w, int results)
{
    kn_ls *s = add(w, KN_LS_GROUP);
    if (!s) return;
    s->buffer = results;
    s->writes = true;
}

void kn_lw_store_async(kn_lw *w, int buffer, kn_expr *index, kn_expr *value)
{
    kn_ls *s = add(w, KN_LS_STORE);
    if (!s) return;
    s->buffer = buffer;
    s->index = index;
    s->value = value;
    s->async = true;
}

void kn_lw_barrier(kn_lw *w) { add(w, KN_LS_BARRIER); }
