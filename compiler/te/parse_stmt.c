/* The statement parser: declarations, left sides, assignment operators, ranges; and kn_parse, which drives the rest. */
#include "te/ast.h"
#include <string.h>

int kn_find_tensor(const kn_program *p, const char *name)
{
    for (int i = 0; i < p->ntensors; i++)
        if (!strcmp(p->tensors[i].name, name)) return i;
    return -1;
}

static const struct { const char *text; enum kn_reduce red; bool scatter; } assigns[] = {
    {"=", KN_RED_NONE, false}, {"+=!", KN_RED_SUM, false}, {"+=", KN_RED_SUM, false}, {"*=!", KN_RED_PROD, false},
    {"*=", KN_RED_PROD, false},
    {">=!", KN_RED_MAX, false}, {">=", KN_RED_MAX, false}, {"<=!", KN_RED_MIN, false}, {"<=", KN_RED_MIN, false},
    {"&=!", KN_RED_ALL, false}, {"&=", KN_RED_ALL, false}, {"|=!", KN_RED_ANY, false}, {"|=", KN_RED_ANY, false},
    {"=.", KN_RED_NONE, true}, {"+=.", KN_RED_SUM, true}, {"*=.", KN_RED_PROD, true}, {">=.", KN_RED_MAX, true}, {"<=.", KN_RED_MIN, true},
};

static bool assign_op(kn_parser *p, kn_ast_stmt *s)
{
    bool max = kn_is(p, "max"), min = kn_is(p, "min"), bang;
    if (max || min) {
        s->red = max ? KN_RED_MAX : KN_RED_MIN;
        return kn_next(p) && kn_want(p, "=") && kn_accept(p, "!", &bang);
    }
    for (size_t i = 0; i < sizeof assigns / sizeof *assigns; i++) {
        if (!kn_is(p, assigns[i].text)) continue;
        s->red = assigns[i].red;
        s->scatter = assigns[i].scatter;
        return kn_next(p);
    }
    kn_want(p, "=");
    kn_hint(p->d, "one of = +=! *=! >=! <=! max=! min=! &=! |=! and =. +=. *=. >=. <=. (scatter)");
    return false;
}

static bool left_side(kn_parser *p, kn_ast_stmt *s)
{
    bool done;
    if (p->t.kind != KN_T_LOWER) {
        if (p->t.kind == KN_T_UPPER) {
            kn_refuse(p, KILN_SYNTAX, &p->t, "a statement starts with a tensor, and names of tensors start in lower case");
            return false;
        }
        return kn_refuse(p, KILN_SYNTAX, &p->t, "expected a statement such as c[M,N] +=! a[M,K]*b[K,N]");
    }
    s->line = p->t.line;
    s->col = p->t.col;
    if (!(s->name = kn_token_name(p, &p->t)) || !kn_next(p) || !kn_want(p, "[") || !kn_accept(p, "]", &done)) return false;
    while (!done) {
        if (s->rank == KILN_MAX_RANK) return kn_refuse(p, KILN_LIMIT, &p->t, "more than %d dimensions", KILN_MAX_RANK);
        if (!(s->lhs[s->rank++] = kn_parse_expr(p)) || !kn_accept(p, "]", &done)) return false;
        if (!done && !kn_want(p, ",")) return false;
    }
    return true;
}

static bool ranges(kn_parser *p, kn_ast_stmt *s)
{
    bool comma = true;
    while (comma) {
        if (p->t.kind != KN_T_UPPER) return kn_refuse(p, KILN_SYNTAX, &p->t, "expected an axis, as in: where K in 128");
        if (s->nranges == KILN_MAX_AXES) return kn_refuse(p, KILN_LIMIT, &p->t, "more than %d axes", KILN_MAX_AXES);
        kn_ast_range *r = &s->ranges[s->nranges];
        kn_token at = p->t, value;
        *r = (kn_ast_range){.line = at.line, .col = at.col};
        if (!(r->name = kn_token_name(p, &at)) || !kn_next(p) || !kn_want(p, "in")) return false;
        value = p->t;
        if (!kn_parse_int(p, &r->extent)) return false;
        if (r->extent < 1) return kn_refuse(p, KILN_SHAPE, &value, "extent %lld of axis %s; the least is 1", (long long)r->extent, r->name);
        if (r->extent > KILN_MAX_EXTENT)
            return kn_refuse(p, KILN_LIMIT, &value, "extent %lld of axis %s; at most %d", (long long)r->extent, r->name, KILN_MAX_EXTENT);
        for (int i = 0; i < s->nranges; i++)
            if (!strcmp(s->ranges[i].name, r->name)) return kn_refuse(p, KILN_SYNTAX, &at, "axis %s has two ranges", r->name);
        s->nranges++;
        if (!kn_accept(p, ",", &comma)) return false;
    }
    return true;
}

static bool parse_stmt(kn_parser *p, kn_ast_stmt *s)
{
    if (!left_side(p, s) || !assign_op(p, s) || !(s->body = kn_parse_expr(p))) return false;
    for (;;) {
        bool where, colon = false;
        if (!kn_accept(p, "where", &where) || (where && !ranges(p, s))) return false;
        if (!where && !kn_accept(p, ":", &colon)) return false;
        if (colon && (s->typed || !kn_parse_dtype(p, &s->dtype))) {
            return p->d->status == KILN_OK ? kn_refuse(p, KILN_SYNTAX, &p->t, "a second dtype") : false;
        }
        s->typed |= colon;
        if (!where && !colon) return true;
    }
}

/* A scatter into an input leaves the input alone: its copy NAME_out is what is written. */
static int copy_of_input(kn_parser *p, const kn_ast_stmt *src, int from)
{
    const kn_tensor *x = &p->p->tensors[from];
    kn_stmt *s = kn_new(p->a, kn_stmt);
    const char *name = kn_format(p->a, "%.50s_out", x->name);
    kn_token at = {.line = src->line, .col = src->col};
    if (s && name) {
        if (kn_find_tensor(p->p, name) >= 0 || p->p->nstmts == KILN_MAX_STMTS) {
            kn_refuse(p, KILN_SYNTAX, &at, "the result of this scatter would be %s, which exists already", name);
            return -1;
        }
        kn_expr *idx[KILN_MAX_RANK];
        for (int i = 0; i < x->rank; i++) {
            s->lhs[i] = idx[i] = kn_axis_ref(p->a, i);
            s->axes[i] = (kn_axis){kn_format(p->a, "X%d", i), x->shape[i], false};
        }
        s->naxes = s->nspatial = x->rank;
        s->body = kn_load(p->a, p->p, from, idx);
        if (kn_arena_dry(p->a)) {
            kn_refuse(p, KILN_MEMORY, &at, "out of memory");
            return -1;
        }
        if ((s->out = kn_add_tensor(p->p, name, x->dtype, KN_TEMP, x->rank, x->shape)) >= 0) {
            p->p->stmts[p->p->nstmts++] = s;
            return s->out;
        }
    }
    kn_refuse(p, s && name ? KILN_LIMIT : KILN_MEMORY, &at, s && name ? "more than %d tensors" : "out of memory", KILN_MAX_TENSORS);
    return -1;
}

static bool target_tensor(kn_parser *p, const kn_ast_stmt *src, kn_stmt *s)
{
    kn_token at = {.line = src->line, .col = src->col};
    int t = kn_find_tensor(p->p, src->name);
    if (!src->scatter) {
        if (t < 0) return true;
        if (p->p->tensors[t].role == KN_INPUT) return kn_refuse(p, KILN_SYNTAX, &at, "%s is an input and cannot be written", src->name);
        return kn_refuse(p, KILN_SYNTAX, &at, "%s is written a second time", src->name);
    }
    if (t < 0) {
        kn_refuse(p, KILN_SHAPE, &at, "scatter into %s, which has no shape yet", src->name);
        kn_hint(p->d, "declare %s as an input, or write it first: %s[V,C] = 0.0 where V in 1000, C in 64;", src->name, src->name);
        return false;
    }
    if (p->p->tensors[t].role == KN_INPUT) {
        const char *copy = kn_format(p->a, "%.50s_out", src->name);
        int again = copy ? kn_find_tensor(p->p, copy) : -1;
        if (again >= 0 && p->p->tensors[again].role != KN_INPUT) t = again;
        else if ((t = copy_of_input(p, src, t)) < 0) return false;
    }
    s->out = t;
    if (p->p->tensors[t].rank == src->rank) return true;
    return kn_refuse(p, KILN_SHAPE, &at, "%s has %d dimensions, %d indices given", src->name, p->p->tensors[t].rank, src->rank);
}

/* Reduce axes in the order in which the finished body uses them (folding may have dropped some). */
static kn_expr *renumber(void *user, kiln_arena *a, kn_expr *e)
{
    const int *to = user;
    return e->op == KN_OP_AXIS && to[e->u.axis] != e->u.axis ? kn_axis_ref(a, to[e->u.axis]) : e;
}

static void first_uses(const kn_expr *e, int *order, int *n, uint32_t *seen)
{
    if (e->op == KN_OP_AXIS && !(*seen >> e->u.axis & 1)) {
        *seen |= 1u << e->u.axis;
        order[(*n)++] = e->u.axis;
    }
    for (int i = 0; i < e->nargs; i++) first_uses(e->args[i], order, n, seen);
}

static void order_axes(kn_parser *p, kn_stmt *s)
{
    int order[KILN_MAX_AXES], to[KILN_MAX_AXES], n = s->nspatial;
    kn_axis old[KILN_MAX_AXES];
    uint32_t seen = (1u << s->nspatial) - 1;
    for (int i = 0; i < n; i++) order[i] = i;
    first_uses(s->body, order, &n, &seen);
    for (int i = 0; i < s->naxes; i++)
        if (!(seen >> i & 1)) order[n++] = i;
    memcpy(old, s->axes, sizeof old);
    for (int i = 0; i < n; i++) {
        to[order[i]] = i;
        s->axes[i] = old[order[i]];
    }
    s->body = kn_rewrite(p->a, s->body, renumber, to);
}

static bool write_tensor(kn_parser *p, const kn_ast_stmt *src, kn_stmt *s)
{
    kn_token at = {.line = src->line, .col = src->col};
    int64_t shape[KILN_MAX_RANK];
    if (src->scatter) return true;
    for (int i = 0; i < src->rank; i++) {
        shape[i] = s->axes[i].extent;
        s->lhs[i] = kn_axis_ref(p->a, i);
    }
    s->out = kn_add_tensor(p->p, src->name, src->typed ? src->dtype : s->body->dtype, KN_TEMP, src->rank, shape);
    return s->out >= 0 ? true : kn_refuse(p, KILN_LIMIT, &at, "more than %d tensors", KILN_MAX_TENSORS);
}

static bool add_stmt(kn_parser *p, const kn_ast_stmt *src)
{
    kn_token at = {.line = src->line, .col = src->col};
    kn_stmt *s = kn_new(p->a, kn_stmt);
    if (!s) return kn_refuse(p, KILN_MEMORY, &at, "out of memory");
    s->red = src->red;
    s->scatter = src->scatter;
    if (!target_tensor(p, src, s) || !kn_infer(p, src, s) || !(s->body = kn_elaborate_body(p, src, s))) return false;
    order_axes(p, s);
    if (!s->body) return kn_refuse(p, KILN_MEMORY, &at, "out of memory");
    if (s->red == KN_RED_NONE && s->naxes > s->nspatial) {
        kn_refuse(p, KILN_SYNTAX, &at, "axis %s is on the right side only, but %s does not reduce", s->axes[s->nspatial].name,
                  src->scatter ? "=." : "=");
        kn_hint(p->d, "reduce with +=!, >=!, <=! or *=!, or name the axis on the left side");
        return false;
    }
    if (!src->scatter && s->naxes == s->nspatial) s->red = KN_RED_NONE;
    if (!write_tensor(p, src, s)) return false;
    if (p->p->nstmts == KILN_MAX_STMTS) return kn_refuse(p, KILN_LIMIT, &at, "more than %d statements", KILN_MAX_STMTS);
    p->p->stmts[p->p->nstmts++] = s;
    return true;
}

/* `in a: f32[4,4], b: i32` and `out y, z`, behind their first word. */
static bool declaration(kn_parser *p, char kind)
{
    bool comma = true;
    if (kind == 'd') {
        kn_refuse(p, KILN_UNSUPPORTED, &p->t, "symbolic dimensions are not supported yet");
        kn_hint(p->d, "give the number");
        return false;
    }
    while (comma) {
        kn_token name = p->t;
        enum kn_dtype t;
        int rank;
        int64_t shape[KILN_MAX_RANK];
        if (name.kind != KN_T_LOWER) return kn_refuse(p, KILN_SYNTAX, &name, "expected the name of a tensor (it starts in lower case)");
        if (!kn_next(p)) return false;
        bool constant = false;
        if (kind == 'i') {
            if (!kn_want(p, ":") || !kn_parse_type(p, &t, &rank, shape) || !kn_parse_constant(p, &constant)) return false;
            if (!kn_declare_input(p, &name, t, rank, shape, constant)) return false;
        } else {
            if (p->nouts == KILN_MAX_TENSORS) return kn_refuse(p, KILN_LIMIT, &name, "more than %d outputs", KILN_MAX_TENSORS);
            if (!(p->outs[p->nouts++] = kn_token_name(p, &name))) return false;
        }
        if (!kn_accept(p, ",", &comma)) return false;
    }
    return true;
}

static void mark_reads(const kn_expr *e, bool *read)
{
    if (e->op == KN_OP_LOAD) read[e->u.tensor] = true;
    for (int i = 0; i < e->nargs; i++) mark_reads(e->args[i], read);
}

void kn_default_outputs(const kn_program *p, int *place)
{
    bool read[KILN_MAX_TENSORS] = {false};
    int n = 0;
    for (int i = 0; i < p->nstmts; i++) {
        const kn_stmt *s = p->stmts[i];
        mark_reads(s->body, read);
        for (int k = 0; k < p->tensors[s->out].rank; k++) mark_reads(s->lhs[k], read);
    }
    if (p->nstmts) read[p->stmts[p->nstmts - 1]->out] = false;
    for (int i = 0; i < p->ntensors; i++) place[i] = -1;
    for (int i = 0; i < p->nstmts; i++) {
        int t = p->stmts[i]->out;
        if (!read[t] && place[t] < 0) place[t] = n++;
    }
}

static bool choose_outputs(kn_parser *p)
{
    int place[KILN_MAX_TENSORS];
    kn_token at = {.line = 1, .col = 1};
    kn_default_outputs(p->p, place);
    for (int i = 0; i < p->p->ntensors && p->nouts; i++) place[i] = -1;
    for (int i = 0; i < p->nouts; i++) {
        int t = kn_find_tensor(p->p, p->outs[i]);
        if (t < 0 || p->p->tensors[t].role == KN_INPUT) return kn_refuse(p, KILN_SYNTAX, &at, "output %s is never written", p->outs[i]);
        if (place[t] >= 0) return kn_refuse(p, KILN_SYNTAX, &at, "output %s is named twice", p->outs[i]);
        place[t] = i;
    }
    kn_order_tensors(p->a, p->p, place);
    return true;
}

static bool item(kn_parser *p)
{
    kn_token at = p->t;
    static const char *const words[] = {"in", "out", "dim"};
    for (int i = 0; i < 3; i++) {
        if (!kn_is(p, words[i])) continue;
        kn_parser saved = *p;
        if (!kn_next(p)) return false;
        if (!kn_is(p, "[")) return declaration(p, words[i][0]);
        *p = saved;
        break;
    }
    kn_ast_stmt *s = kn_new(p->a, kn_ast_stmt);
    if (!s) return kn_refuse(p, KILN_MEMORY, &at, "out of memory");
    return parse_stmt(p, s) && add_stmt(p, s);
}

static bool program(kn_parser *p)
{
    if (!kn_next(p)) return false;
    while (p->t.kind != KN_T_END) {
        bool semicolon;
        p->nesting = 0;
        if (!item(p) || !kn_accept(p, ";", &semicolon)) return false;
        if (!semicolon && p->t.kind != KN_T_END) {
            kn_want(p, ";");
            return false;
        }
        while (semicolon)
            if (!kn_accept(p, ";", &semicolon)) return false;
    }
    if (!p->p->nstmts) {
        kn_refuse(p, KILN_SYNTAX, &p->t, "no statement");
        kn_hint(p->d, "c[M,N] +=! a[M,K]*b[K,N]");
        return false;
    }
    return kn_arena_dry(p->a) ? kn_refuse(p, KILN_MEMORY, &p->t, "out of memory") : choose_outputs(p);
}

kiln_status kn_parse(kiln_arena *a, kiln_bytes text, kiln_bytes inputs, kn_program **out, kiln_diag *d)
{
    *d = (kiln_diag){0};
    if (text.n > KILN_MAX_TEXT_BYTES || inputs.n > KILN_MAX_TEXT_BYTES)
        return kn_fail(d, KILN_LIMIT, "text of %zu bytes; at most %d", text.n > inputs.n ? text.n : inputs.n, KILN_MAX_TEXT_BYTES);
    kn_parser *p = kn_new(a, kn_parser);
    if (!p || !(p->p = kn_program_new(a))) return kn_fail(d, KILN_MEMORY, "out of memory");
    p->a = a;
    p->d = d;
    if (!kn_parse_decls(p, inputs)) return d->status;
    kn_lex_start(p, text.p ? text : (kiln_bytes){"", 0});
    if (!program(p)) return d->status;
    if (kn_arena_dry(a)) return kn_fail(d, KILN_MEMORY, "out of memory");
    kiln_status s = kn_check(p->p, d);
    if (s == KILN_OK) *out = p->p;
    return s;
}
