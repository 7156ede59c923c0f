/* Sums of products on the instructions of a CPU: all mappings of a statement's loops onto all of them, the one predicted to be the fastest first
 * (AMOS, ISCA'22). */
#include "construct/site.h"
#include "intrin/intrin.h"
#include "intrin/map.h"
#include <math.h>

/* Layouts cost more than the instruction saves below that; UNIT_PRODUCTS: of a unit whose tiles are whole, for which there is little to lay out, or
 * where each element of a plain product that is interleaved in the call has so many products (10x64x100 halves 0.86 of the time in vectors,
 * 17x19x23 to 60x60x60 0.1 to 0.8; 8x100x200 bytes 1.8 times it, 20x100x100 0.4). */
enum { LEAST_PRODUCTS = 1 << 18, UNIT_PRODUCTS = 1 << 14, LEAST_USES = 12, LEAST_TERMS = 16 };

static double products(const kn_site *x)
{
    double n = (double)x->reduce_extent;
    for (int i = 0; i < x->s->nspatial; i++) n *= (double)x->s->axes[i].extent;
    return n;
}

static bool worth(const kn_site *x)
{
    return !x->hw->gpu && x->contraction && !x->s->scatter && x->reduce_extent >= LEAST_TERMS && products(x) >= UNIT_PRODUCTS;
}

/* One axis is summed over. */
static bool one_sum(const kn_site *x)
{
    int n = 0;
    for (int i = x->s->nspatial; i < x->s->naxes; i++) n += x->s->axes[i].extent > 1;
    return n == 1;
}

/* The terms lie along memory: they are copied as they lie, if at all. */
static bool along_terms(const kn_site *x, const kn_expr *load)
{
    const kn_expr *last = load->nargs ? load->args[load->nargs - 1] : NULL;
    return last && last->op == KN_OP_AXIS && last->u.axis >= x->s->nspatial;
}

/* The fewest products that an element has of what is no constant, and interleaved. */
static double uses(const kn_site *x)
{
    const kn_expr *loads[KN_SITE_LOADS];
    double most = 1;
    for (int l = 0, n = kn_loads(x->s->body, loads, KN_SITE_LOADS); l < n && l < KN_SITE_LOADS; l++) {
        double elems = 1;
        for (int i = 0; i < x->s->naxes; i++)
            if (kn_axes_in(loads[l]) >> i & 1) elems *= (double)x->s->axes[i].extent;
        if (elems > most && !x->t->program->tensors[loads[l]->u.tensor].constant && !along_terms(x, loads[l])) most = elems;
    }
    return products(x) / most;
}

/* An instruction that generated C can use as such. narrow: of operands below 4 bytes; wider types are as fast in lanes, and blocked better. */
static bool usable(const kn_hw_intrin *spec, const kn_hw *hw, bool narrow)
{
    bool unit = spec->parsed && kn_unit_of(spec) && kn_intrin_unit(spec->parsed, hw);
    if (!spec->parsed || (!kn_native_of(spec) && !unit)) return false;
    for (int o = 1; o < spec->parsed->noperands; o++)
        if (narrow && kn_dtype_bytes(spec->parsed->operand[o].dtype) >= 4) return false;
    return true;
}

/* All mappings of the stage's statement by predicted time. */
static int choices(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int stage, const kn_site *x, bool narrow, kn_map_choice *best, int most)
{
    int n = 0;
    for (int k = 0; k < hw->nintrins && worth(x); k++) {
        kn_maps *list;
        kiln_diag why;
        if (!usable(&hw->intrins[k], hw, narrow) || kn_maps_of(a, t->program, t->stages[stage]->stmt, hw->intrins[k].parsed, &list, &why)) continue;
        n = kn_map_choices(a, list, hw, best, n, most);
    }
    int kept = 0;
    bool few = products(x) < LEAST_PRODUCTS, used = few && n && one_sum(x) && uses(x) >= LEAST_USES;
    for (int i = 0; i < n; i++)
        if (!few || (kn_intrin_unit(best[i].m->it, hw) && (best[i].padding <= 1 || used))) best[kept++] = best[i];
    return kept;
}

double kn_mapped_us(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int stage)
{
    kn_site x;
    kn_map_choice best;
    if (hw->gpu || !hw->tile_registers) return INFINITY;
    kn_site_of(a, t, t->stages[stage], hw, &x);
    return choices(a, t, hw, stage, &x, true, &best, 1) && kn_intrin_unit(best.m->it, hw) ? best.us : INFINITY;
}

bool kn_mapped_unit(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int stage) { return kn_mapped_us(a, t, hw, stage) < INFINITY; }

int kn_mapped_steps(kiln_arena *a, const kn_tree *t, const kn_hw *hw, int stage, kn_mapped what, int serial, const char **line, int most)
{
    kn_site x;
    kn_map_choice best[KN_MAPPED];
    int n;
    if (most > KN_MAPPED) most = KN_MAPPED;
    if (what == KN_MAPPED_UNIT && (hw->gpu || !hw->tile_registers)) return 0;
    kn_site_of(a, t, t->stages[stage], hw, &x);
    n = choices(a, t, hw, stage, &x, what != KN_MAPPED_ALL, best, most);
    if (what == KN_MAPPED_UNIT && n && !kn_intrin_unit(best[0].m->it, hw)) return 0;
    for (int i = 0; i < n; i++) {
        const char *it = best[i].m->it->name, *word = kn_map_word(a, best[i].m, best[i].x);
        if (!word) return i;
        line[i] = kn_format(a, "sample_mapping mapping%d %s %s : %s\nmap %s %s $mapping%d", serial, x.name, it, word, x.name, it, serial);
        if (!line[i]) return i;
    }
    return n;
}
