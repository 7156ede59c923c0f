/* Einsum: a sum of products over named axes, "ij,jk->ik"; without an arrow the result has the letters that occur once, in order. */
#include "ops/ops.h"
#include <string.h>

static const kn_attr_spec attrs[] = {
    {"equation", 's', "mandatory", "letters for axes, operands divided by commas, ... for further leading axes"}, {NULL, 0, NULL, NULL}};

/* One operand's letters as axes; those of "..." are E0.. counted from the right. */
typedef struct term {
    int n;
    char axis[KILN_MAX_RANK][4];
} term;

static bool letter(char x) { return (x >= 'a' && x <= 'z') || (x >= 'A' && x <= 'Z'); }

/* rank < 0: of the result, which names `more` axes with "...". */
static kiln_status read_term(kn_op_call *c, const char **p, int rank, int more, term *t)
{
    int letters = 0;
    for (const char *q = *p; *q && *q != ',' && *q != '-'; q++) letters += letter(*q);
    *t = (term){0};
    for (; **p && **p != ',' && **p != '-'; ++*p) {
        int extra = rank < 0 ? more : rank - letters;
        if (**p == ' ') continue;
        if (**p == '.') {
            if (strncmp(*p, "...", 3) || t->n + extra > KILN_MAX_RANK || extra < 0)
                return kn_op_bad_attr(c, "equation", "\"...\" does not fit the ranks");
            *p += 2;
            for (int i = 0; i < extra; i++) t->axis[t->n][0] = 'E', t->axis[t->n++][1] = (char)('0' + extra - 1 - i);
            continue;
        }
        if (!letter(**p) || t->n == KILN_MAX_RANK) return kn_op_bad_attr(c, "equation", "\"%.8s\" is no letter, comma, arrow or ...", *p);
        t->axis[t->n][0] = **p <= 'Z' ? 'U' : 'L'; /* axes are written in upper case: Ua is A, La is a */
        t->axis[t->n++][1] = (char)(**p | 32);
    }
    if (rank >= 0 && t->n != rank) return kn_op_bad_attr(c, "equation", "an operand of rank %d has %d axes", rank, t->n);
    return KILN_OK;
}

static void put_term(kn_buf *b, const term *t)
{
    for (int i = 0; i < t->n; i++) kn_putf(b, "%s%s", i ? "," : "", t->axis[i]);
}

/* Without an arrow: "...", then letters that occur once, upper case before lower. */
static void implicit(const term *in, int n, int more, term *y)
{
    *y = (term){0};
    for (int i = more - 1; i >= 0; i--) y->axis[y->n][0] = 'E', y->axis[y->n++][1] = (char)('0' + i);
    for (int k = 0; k < 52; k++) {
        char a[4] = {k < 26 ? 'U' : 'L', (char)('a' + k % 26), 0, 0};
        int seen = 0;
        for (int i = 0; i < n; i++)
            for (int j = 0; j < in[i].n; j++) seen += !strcmp(in[i].axis[j], a);
        if (seen == 1 && y->n < KILN_MAX_RANK) memcpy(y->axis[y->n++], a, 3);
    }
}

static kiln_status lower(kn_op_call *c)
{
    const char *p = kn_attr_str(c, "equation", "");
    term in[KN_OP_NAMED], y;
    int n = 0, more = 0;
    for (;; p++) {
        if (n == c->ninputs || n == KN_OP_NAMED) return kn_op_bad_attr(c, "equation", "more operands than inputs");
        int rank = c->in[n].rank;
        kiln_status s = read_term(c, &p, rank, 0, &in[n]);
        if (s != KILN_OK) return s;
        int extra = 0;
        for (int i = 0; i < in[n].n; i++) extra += in[n].axis[i][0] == 'E';
        more = extra > more ? extra : more;
        n++;
        if (*p != ',') break;
    }
    if (n != c->ninputs) return kn_op_bad_attr(c, "equation", "%d operands for %d inputs", n, c->ninputs);
    implicit(in, n, more, &y);
    if (*p && (p[0] != '-' || p[1] != '>')) return kn_op_bad_attr(c, "equation", "\"%.8s\" is no arrow", p);
    if (*p) {
        p += 2;
        kiln_status s = read_term(c, &p, -1, more, &y);
        if (s != KILN_OK) return s;
    }
    bool reduces = false;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < in[i].n; j++) {
            bool kept = false;
            for (int k = 0; k < y.n; k++) kept |= !strcmp(y.axis[k], in[i].axis[j]);
            reduces |= !kept;
        }
    kn_put(&c->text, "y[");
    put_term(&c->text, &y);
    kn_put(&c->text, reduces ? "] +=! " : "] = ");
    for (int i = 0; i < n; i++) {
        kn_buf at;
        kn_buf_init(&at, c->arena);
        for (int j = 0; j < in[i].n; j++)
            kn_putf(&at, "%s%s", j ? "," : "", in[i].axis[j][0] == 'E' && c->in[i].shape[j] == 1 ? "0" : in[i].axis[j]);
        kiln_bytes t = kn_buf_take(&at);
        if (i) kn_put(&c->text, " * ");
        kn_op_load(c, i, t.p ? t.p : "");
    }
    kn_op_end(c);
    return KILN_OK;
}

const kn_op_spec kn_op_einsum = {.name = "Einsum",
                                 .min_inputs = 1,
                                 .max_inputs = KN_OP_NAMED,
                                 .input_names = {"Inputs"},
                                 .dtypes = "fiu",
                                 .about = "a sum of products over named axes",
                                 .attrs = attrs,
                                 .lower = lower};
