/* The operator table: finding a row, checking a call against it, and turning the lowering's text into a program. */
#include "ops/ops.h"
#include <stdio.h>
#include <string.h>

#define X(symbol) extern const kn_op_spec kn_op_##symbol;
#include "ops/ops.def"
#undef X
static const kn_op_spec *const table[] = {
#define X(symbol) &kn_op_##symbol,
#include "ops/ops.def"
#undef X
};

int kn_ops_count(void) { return (int)(sizeof table / sizeof *table); }
const kn_op_spec *kn_ops_at(int i) { return table[i]; }

const kn_op_spec *kn_ops_find(const char *name)
{
    for (int i = 0; i < kn_ops_count(); i++)
        if (!strcmp(table[i]->name, name)) return table[i];
    return NULL;
}

static char lower_case(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

const kn_op_spec *kn_ops_near(const char *name)
{
    for (int i = 0; i < kn_ops_count(); i++) {
        const char *x = table[i]->name, *y = name;
        while (*x && lower_case(*x) == lower_case(*y)) x++, y++;
        if (!*x && !*y) return table[i];
    }
    return NULL;
}

static const kn_attr_spec *attr_spec(const kn_op_spec *op, const char *name)
{
    for (const kn_attr_spec *s = op->attrs; s && s->name; s++)
        if (!strcmp(s->name, name)) return s;
    return NULL;
}

static const char *kind_text(char kind)
{
    static const struct { char kind; const char *text; } rows[] = {
        {'i', "an integer"}, {'f', "a number"}, {'s', "a string"}, {'F', "a list of numbers"}, {'I', "a list of integers"}};
    size_t i = 0;
    while (i < sizeof rows / sizeof *rows - 1 && rows[i].kind != kind) i++;
    return rows[i].text;
}

static void hint_attrs(const kn_op_spec *op, kiln_diag *d)
{
    size_t used = 0;
    char list[280] = "";
    for (const kn_attr_spec *s = op->attrs; s && s->name && used < sizeof list; s++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", s->name);
    kn_hint(d, used ? "attributes of %s: %s" : "%s has no attributes%s", op->name, list);
}

static kiln_status check_attrs(const kn_op_spec *op, kn_op_call *c)
{
    for (int i = 0; i < c->nattrs; i++) {
        const kn_attr *a = &c->attrs[i];
        const kn_attr_spec *s = attr_spec(op, a->name);
        if (!s) {
            kn_op_bad_attr(c, a->name, "%s has no attribute \"%s\"", op->name, a->name);
            hint_attrs(op, c->d);
            return c->d->status;
        }
        bool fits = a->kind == s->kind || (s->kind == 'f' && a->kind == 'i') || (s->kind == 'I' && a->kind == 'i' && a->n == 1) ||
                    (s->kind == 'F' && a->kind == 'I');
        if (!fits) return kn_op_bad_attr(c, a->name, "attribute \"%s\" of %s must be %s", a->name, op->name, kind_text(s->kind));
    }
    return KILN_OK;
}

/* The row that describes input i: its own, or that of the last input named. */
static int named(const kn_op_spec *op, int i)
{
    while (i && (i >= KN_OP_NAMED || !op->input_names[i])) i--;
    return i;
}

const char *kn_op_input_name(const kn_op_spec *op, int i) { return op->input_names[named(op, i)]; }
const char *kn_op_input_dtypes(const kn_op_spec *op, int i) { return op->input_dtypes[named(op, i)]; }

static kiln_status check_inputs(const kn_op_spec *op, kn_op_call *c)
{
    if (c->ninputs < op->min_inputs || c->ninputs > op->max_inputs)
        return op->min_inputs == op->max_inputs
                   ? kn_fail_at(c->d, KILN_REQUEST, "/inputs", "%s takes %d inputs, got %d", op->name, op->min_inputs, c->ninputs)
                   : kn_fail_at(c->d, KILN_REQUEST, "/inputs", "%s takes %d to %d inputs, got %d", op->name, op->min_inputs,
                                op->max_inputs, c->ninputs);
    for (int i = 0; i < c->ninputs; i++) {
        char pointer[64];
        snprintf(pointer, sizeof pointer, "/inputs/%d", i);
        if (!c->in[i].present && i < op->min_inputs)
            return kn_fail_at(c->d, KILN_REQUEST, pointer, "input %s of %s is mandatory", kn_op_input_name(op, i), op->name);
        if (!c->in[i].present) continue;
        snprintf(pointer, sizeof pointer, "/inputs/%d/dtype", i);
        const char *classes = kn_op_input_dtypes(op, i);
        if (!strchr(classes ? classes : op->dtypes, kn_dtype_class(c->in[i].dtype)))
            return kn_fail_at(c->d, KILN_DTYPE, pointer, "%s does not take %s as %s", op->name, kn_dtype_text(c->in[i].dtype),
                              kn_op_input_name(op, i));
        if (!classes && c->in[i].dtype != c->in[0].dtype)
            return kn_fail_at(c->d, KILN_DTYPE, pointer, "input %s of %s is %s but input %s is %s; all inputs must have one dtype",
                              kn_op_input_name(op, i), op->name, kn_dtype_text(c->in[i].dtype), op->input_names[0],
                              kn_dtype_text(c->in[0].dtype));
    }
    return KILN_OK;
}

static kiln_bytes declare_inputs(kn_op_call *c)
{
    kn_buf b;
    kn_buf_init(&b, c->arena);
    for (int i = 0; i < c->ninputs; i++) {
        if (!c->in[i].present) continue;
        kn_putf(&b, "%sx%d=%s", b.n ? "&" : "", i, kn_dtype_text(c->in[i].dtype));
        for (int k = 0; k < c->in[i].rank; k++) kn_putf(&b, "%c%lld", k ? 'x' : ':', (long long)c->in[i].shape[k]);
    }
    return kn_buf_take(&b);
}

kiln_status kn_op_program(const kn_op_spec *op, kn_op_call *c, kn_program **out)
{
    kiln_status s = check_inputs(op, c);
    if (s == KILN_OK) s = check_attrs(op, c);
    if (s != KILN_OK) return s;
    kn_buf_init(&c->text, c->arena);
    if ((s = op->lower(c)) != KILN_OK) return s;
    kiln_bytes text = kn_buf_take(&c->text), inputs = declare_inputs(c);
    if (!text.p || !inputs.p) return kn_fail(c->d, KILN_MEMORY, "out of memory");
    s = kn_parse(c->arena, text, inputs, out, c->d);
    if (s != KILN_OK) { /* places in the generated text mean nothing to the client: say it in the operator's terms */
        char why[sizeof c->d->message];
        snprintf(why, sizeof why, "%s", c->d->message);
        kn_fail_at(c->d, s, "/inputs", "%s cannot be built from these inputs: %.400s", op->name, why);
        c->d->line = c->d->col = 0;
    }
    return s;
}
