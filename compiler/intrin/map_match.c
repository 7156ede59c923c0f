/* Does the statement compute what the instruction computes, and which operand is which? Compared are the bodies, with exact casts seen
 * through: the instruction may compute in a wider float than the statement, since it then loses less. */
#include "intrin/map.h"
#include "te/expr.h"

typedef struct matcher {
    const kn_intrin *it;
    const kn_program *soft, *hard;
    kn_maps *m;
    uint32_t flips;    /* bit i: the i-th commutative node takes its operands the other way round */
    int commutative, load;
    kiln_diag *d;
} matcher;

static kiln_status differ(const matcher *x, const kn_expr *s, const kn_expr *h)
{
    return kn_fail(x->d, KILN_UNSUPPORTED, "the statement has '%s' (%s) where the instruction has '%s' (%s)", kn_op_name(s->op),
                   kn_dtype_text(s->dtype), kn_op_name(h->op), kn_dtype_text(h->dtype));
}

static kiln_status pair_loads(matcher *x, const kn_expr *s, const kn_expr *h)
{
    const kn_tensor *st = &x->soft->tensors[s->u.tensor], *ht = &x->hard->tensors[h->u.tensor];
    kn_maps *m = x->m;
    if (st->dtype != ht->dtype)
        return kn_fail(x->d, KILN_UNSUPPORTED, "operand '%s' of the instruction is %s, but '%s' is %s", ht->name, kn_dtype_text(ht->dtype),
                       st->name, kn_dtype_text(st->dtype));
    int bits = x->it->spec->significand_bits;
    if (bits && bits < kn_dtype_significand(st->dtype))
        return kn_fail(x->d, KILN_UNSUPPORTED, "operand '%s' of the instruction keeps %d of the %d significant bits of '%s'", ht->name, bits,
                       kn_dtype_significand(st->dtype), st->name);
    if (m->nops == KN_MAP_OPERANDS) return kn_fail(x->d, KILN_UNSUPPORTED, "more than %d operands", KN_MAP_OPERANDS - 1);
    m->op[m->nops++] = (kn_map_operand){x->load++, s->u.tensor, h->u.tensor, st->rank, ht->rank, s->args, h->args};
    return KILN_OK;
}

static kiln_status compare(matcher *x, const kn_expr *s, const kn_expr *h)
{
    s = kn_bare(s), h = kn_bare(h);
    if (s->op != h->op || s->nargs != h->nargs) {
        if (s->op != KN_OP_LOAD || h->op != KN_OP_LOAD) return differ(x, s, h);
    }
    if (s->op == KN_OP_LOAD) return pair_loads(x, s, h);
    bool wider = kn_is_float(s->dtype) && kn_is_float(h->dtype) && kn_dtype_holds(h->dtype, s->dtype);
    if (s->dtype != h->dtype && !wider) return differ(x, s, h);
    if (s->op == KN_OP_CONST_I || s->op == KN_OP_CONST_F) return kn_expr_equal(s, h) ? KILN_OK : differ(x, s, h);
    if (s->op == KN_OP_AXIS) return differ(x, s, h);
    bool turn = kn_op_commutes(h->op) && (x->flips >> x->commutative++ & 1);
    for (int i = 0; i < s->nargs; i++) {
        kiln_status bad = compare(x, s->args[i], h->args[turn ? s->nargs - 1 - i : i]);
        if (bad) return bad;
    }
    return KILN_OK;
}

kiln_status kn_map_operands(const kn_program *p, const kn_stmt *s, const kn_intrin *intrin, uint32_t flips, kn_maps *m, kiln_diag *d)
{
    const kn_stmt *h = intrin->s;
    if (s->red != intrin->red || s->scatter)
        return kn_fail(d, KILN_UNSUPPORTED, "the statement combines its terms in another way than the instruction");
    const kn_tensor *so = &p->tensors[s->out], *ho = &intrin->program->tensors[h->out];
    enum kn_dtype acc = kn_dtype_acc(s->body->dtype);
    bool wider = kn_is_float(acc) && kn_dtype_holds(ho->dtype, acc);
    if (s->red != KN_RED_NONE && ho->dtype != acc && !wider)
        return kn_fail(d, KILN_UNSUPPORTED, "the statement accumulates in %s, the instruction in %s", kn_dtype_text(acc), kn_dtype_text(ho->dtype));
    m->it = intrin;
    m->soft = p, m->hard = intrin->program, m->stmt = s, m->intrin = h;
    m->op[0] = (kn_map_operand){-1, s->out, h->out, so->rank, ho->rank, s->lhs, h->lhs};
    m->nops = 1;
    matcher x = {intrin, p, intrin->program, m, flips, 0, 0, d};
    return compare(&x, s->body, h->body);
}

static int commutative(const kn_expr *e)
{
    int n = e->op != KN_OP_LOAD && kn_op_commutes(e->op);
    for (int i = 0; i < e->nargs && e->op != KN_OP_LOAD; i++) n += commutative(e->args[i]);
    return n;
}

int kn_map_flips(const kn_stmt *intrin)
{
    int n = commutative(intrin->body);
    return 1 << (n < 4 ? n : 4);
}
