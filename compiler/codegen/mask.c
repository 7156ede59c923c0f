/* BOOL vectors as C text: masks, one integer lane of 0 or -1 each, as wide as what they are to choose between. */
#include "codegen/gen.h"

static const char *mask_of_bits(int bits) { return bits == 64 ? "i64" : bits == 32 ? "i32" : bits == 16 ? "i16" : "i8"; }

/* What stands in front of a mask of `own` bits a lane that is to have `bits`, and behind it. */
static void open_mask(kn_gen *g, int own, int bits, int lanes)
{
    if (own == 8 && bits == 32) kn_put_helper(g, KN_SN_WIDE, "wide", KN_I8, lanes);
    else if (own == 32 && bits == 8) kn_put_helper(g, KN_SN_THIN, "thin", KN_I32, lanes);
    else if (own == 64 && bits == 8) kn_put_helper(g, KN_SN_THIN_LONG, "thin", KN_I64, lanes);
    else if (own != bits) kn_put(&g->out, "__builtin_convertvector");
    if (own != bits) kn_put(&g->out, "(");
}

static void close_mask(kn_gen *g, int own, int bits, int lanes)
{
    if (own == bits) return;
    if (own * bits != 8 * 32 && (own != 64 || bits != 8)) {
        kn_put(&g->out, ", ");
        kn_put_vector_type(g, mask_of_bits(bits), lanes);
    }
    kn_put(&g->out, ")");
}

/* A comparison at its own width, then at the wanted one; a cast to BOOL compares its one operand with 0. */
static void compare(kn_gen *g, const kn_expr *e, const char *op, const kn_expr *x, int bits, int lanes)
{
    int own = kn_value_bits(x->dtype);
    open_mask(g, own, bits, lanes);
    if (e->nargs == 2) {
        kn_put_infix(g, e, op, lanes);
    } else {
        kn_put(&g->out, "(");
        kn_put_operand(g, x, lanes);
        kn_put(&g->out, " != (");
        kn_put_vector_type(g, kn_value_type(x->dtype), lanes);
        kn_put(&g->out, "){0})");
    }
    close_mask(g, own, bits, lanes);
}

static void mask_pair(kn_gen *g, const kn_expr *x, const kn_expr *y, const char *op, int bits, int lanes)
{
    kn_put(&g->out, "(");
    kn_put_mask(g, x, bits, lanes);
    kn_putf(&g->out, " %s ", op);
    kn_put_mask(g, y, bits, lanes);
    kn_put(&g->out, ")");
}

static void mask_splat(kn_gen *g, const kn_expr *e, int bits, int lanes)
{
    kn_put(&g->out, "((");
    kn_put_vector_type(g, mask_of_bits(bits), lanes);
    kn_putf(&g->out, "){0} - (%s)", mask_of_bits(bits));
    kn_put_scalar(g, e);
    kn_put(&g->out, ")");
}

/* Stored or listed booleans, 0 or 1 a byte: compared with zero. */
static void mask_bytes(kn_gen *g, const kn_expr *e, int bits, int lanes)
{
    open_mask(g, 8, bits, lanes);
    kn_put(&g->out, "(");
    if (e->op == KN_OP_READ)
        kn_put_vector_read(g, e);
    else
        kn_put_lane_list(g, e);
    kn_put(&g->out, " != (");
    kn_put_vector_type(g, "u8", lanes);
    kn_put(&g->out, "){0})");
    close_mask(g, 8, bits, lanes);
}

/* One condition for all lanes evaluates one side. */
static void mask_of_one(kn_gen *g, const kn_expr *e, int bits, int lanes)
{
    kn_put(&g->out, "(");
    kn_put_scalar(g, e->args[0]);
    for (int i = 1; i < 3; i++) {
        kn_put(&g->out, i == 1 ? " ? " : " : ");
        kn_put_mask(g, e->args[i], bits, lanes);
    }
    kn_put(&g->out, ")");
}

static void mask_select(kn_gen *g, const kn_expr *e, int bits, int lanes)
{
    if (e->args[0]->lanes <= 1) {
        mask_of_one(g, e, bits, lanes);
        return;
    }
    if (kn_guards(e)) {
        mask_bytes(g, e, bits, lanes);
        return;
    }
    kn_put_helper(g, KN_SN_SELECT, "select", bits == 64 ? KN_I64 : bits == 32 ? KN_I32 : bits == 16 ? KN_I16 : KN_I8, lanes);
    for (int i = 0; i < 3; i++) {
        kn_put(&g->out, i ? ", " : "(");
        kn_put_mask(g, e->args[i], bits, lanes);
    }
    kn_put(&g->out, ")");
}

void kn_put_mask(kn_gen *g, const kn_expr *e, int bits, int lanes)
{
    if (e->lanes <= 1) {
        mask_splat(g, e, bits, lanes);
        return;
    }
    switch (e->op) {
    case KN_OP_SPLAT: mask_splat(g, e->args[0], bits, lanes); break;
    case KN_OP_LT: compare(g, e, "<", e->args[0], bits, lanes); break;
    case KN_OP_LE: compare(g, e, "<=", e->args[0], bits, lanes); break;
    case KN_OP_EQ: compare(g, e, "==", e->args[0], bits, lanes); break;
    case KN_OP_NE: compare(g, e, "!=", e->args[0], bits, lanes); break;
    case KN_OP_CAST: compare(g, e, "", e->args[0], bits, lanes); break;
    case KN_OP_AND: mask_pair(g, e->args[0], e->args[1], "&", bits, lanes); break;
    case KN_OP_OR: mask_pair(g, e->args[0], e->args[1], "|", bits, lanes); break;
    case KN_OP_NOT:
        kn_put(&g->out, "(~");
        kn_put_mask(g, e->args[0], bits, lanes);
        kn_put(&g->out, ")");
        break;
    case KN_OP_SELECT: mask_select(g, e, bits, lanes); break;
    default: mask_bytes(g, e, bits, lanes); break;
    }
}
