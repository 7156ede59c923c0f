/* Sums of products on the instructions of a CPU: all mappings of a statement's loops onto all of them, the one predicted to be the fastest first
 * (AMOS, ISCA'22). */
#include "construct/site.h"
#include "intrin/intrin.h"
#include "intrin/map.h"
#include <math.h>

/* Layouts cost more than the instruction saves below that; WHOLE_PRODUCTS: of a unit whose tiles are whole, for which there is little to lay out. */
enum { LEAST_PRODUCTS = 1 << 18, WHOLE_PRODUCTS = 1 << 14, LEAST_TERMS = 16 };

static double products(const kn_site *x)
{
    double n = (double)x->reduce_extent;
    for (int i = 0; i < x->s->nspatial; i++) n *= (double)x->s->axes[i].extent;
    return n;
}

static bool worth(const kn_site *x)
{
    return !x->hw->gpu && x->contraction && !x->s->scatter && x->reduce_extent >= LEAST_TERMS && products(x) >= WHOLE_PRODUCTS;
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
    for (int i = 0; i < n; i++)
        if (products(x) >= LEAST_PRODUCTS || (best[i].padding <= 1 && kn_intrin_unit(best[i].m->it, hw))) best[kept++] = best[i];
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
