/* Results and operands of an instruction in registers of its own unit (scope `tile`): which register has what, and when it is loaded. Results stay
 * there over the reduction; an operand's tile is loaded once for all results that take it. Where serial loops over results stand around a slice of
 * the reduction, results are brought from memory and back around it; rows that are far apart are loaded a step before their first product. */
#include "lower/called.h"

int64_t kn_unit_rows(const kn_intrin_operand *o)
{
    if (!o->plain) return o->place_shape[0];
    return o->rank > 1 ? o->shape[0] : 1;
}

/* Loop i is written out around the tile, and operand o moves with it. */
static bool moves(const kn_called *x, int o, int i)
{
    const kn_loop *l = &x->sg->g->loops[i];
    return l->kind == KN_UNROLL && (!o || (kn_axes_in(x->source[o]) >> l->axis & 1));
}

/* Tiles of operand o among all results of a step. */
static int64_t tiles_of(const kn_called *x, int o)
{
    int64_t n = 1;
    for (int i = x->sg->first_reduce; i < x->sg->tile; i++)
        if (moves(x, o, i)) n *= x->sg->g->loops[i].extent;
    return n;
}

bool kn_lw_unit_slow(const kn_called *x, int o)
{
    for (int i = x->sg->tile - 1; i >= x->sg->first_reduce; i--)
        if (x->sg->g->loops[i].kind == KN_UNROLL && x->sg->g->loops[i].extent > 1) return !moves(x, o, i);
    return true;
}

/* Registers of every source: one for each of its tiles, where there are so many; else one for those that pass slowly, or for every one. */
static void share_out(const kn_called *x, int64_t results, int64_t *n)
{
    for (int pass = 0; pass < 3; pass++) {
        int64_t all = results;
        for (int o = 1; o < x->it->noperands; o++) {
            n[o] = pass == 2 || (pass == 1 && kn_lw_unit_slow(x, o)) ? 1 : tiles_of(x, o);
            all += n[o];
        }
        if (all <= x->w->hw->tile_registers) return;
    }
}

bool kn_lw_unit_roomy(const kn_called *x)
{
    for (int o = 1; o < x->it->noperands; o++)
        if (!x->sg->unit[o] || x->w->p->buffers[x->sg->unit[o]].elems < tiles_of(x, o)) return false;
    return true;
}

static int registers(kn_lw *w, const kn_intrin_operand *o, const char *name, int64_t n, int64_t *next)
{
    int b = kn_lw_buffer(w, name, o->dtype, (int)o->elems, n, KN_REGISTER);
    w->p->buffers[b].unit = (int)*next + 1;
    w->p->buffers[b].rows = (int)kn_unit_rows(o);
    *next += n;
    return b;
}

void kn_lw_unit_begin(kn_called *x, int64_t results)
{
    int64_t n[KN_INTRIN_OPERANDS] = {0}, next = 0;
    share_out(x, results, n);
    x->sg->results = registers(x->w, &x->it->operand[0], "result", results, &next);
    for (int o = 1; o < x->it->noperands; o++) x->sg->unit[o] = registers(x->w, &x->it->operand[o], x->it->operand[o].name, n[o], &next);
}

void kn_lw_unit_clear(kn_called *x)
{
    for (int64_t c = 0; c < x->w->p->buffers[x->sg->results].elems; c++)
        kn_lw_unit(x->w, &(kn_unit_step){.what = KN_UNIT_CLEAR, .reg = x->sg->results, .number = c});
}

/* Number of the tile of operand o that the present values of the loops name. */
static int64_t tile_now(const kn_called *x, int o)
{
    int64_t at = 0;
    for (int i = x->sg->first_reduce; i < x->sg->tile; i++)
        if (moves(x, o, i)) at = at * x->sg->g->loops[i].extent + (x->sg->val[i] ? x->sg->val[i]->u.i : 0);
    return at;
}

/* Conditions on a result hold for those before it along every loop: what they have loaded is there. */
bool kn_lw_unit_holds(const kn_called *x, int o)
{
    int64_t t = tile_now(x, o), slots = x->w->p->buffers[x->sg->unit[o]].elems;
    return x->held[o][t % slots] == t + 1;
}

void kn_lw_unit_load(kn_called *x, int o)
{
    int reg = x->sg->unit[o];
    int64_t t = tile_now(x, o), slot = t % x->w->p->buffers[reg].elems;
    kn_lw_unit(x->w, &(kn_unit_step){.what = KN_UNIT_LOAD, .reg = reg, .number = slot, .buffer = x->buffer[o], .at = x->at[o], .row = x->row[o]});
    x->held[o][slot] = t + 1;
}

kn_expr *kn_lw_unit_at(const kn_called *x, int o)
{
    return kn_lw_int(x->w, tile_now(x, o) % x->w->p->buffers[x->sg->unit[o]].elems);
}

void kn_lw_unit_move(kn_called *x, bool load)
{
    const kn_buffer *r = &x->w->p->buffers[x->sg->results];
    for (int64_t c = 0; c < r->elems; c++) {
        kn_called_register(x, c);
        kn_lw_unit(x->w, &(kn_unit_step){.what = load ? KN_UNIT_LOAD : KN_UNIT_STORE, .reg = x->sg->results, .number = c, .buffer = x->sg->part,
                                         .at = kn_called_part(x), .row = r->lanes / r->rows});
    }
    kn_called_register(x, -1);
}
