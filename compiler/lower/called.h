/* A tile that calls of an instruction compute, while it is lowered: what instruction.c and called_store.c share. Private to compiler/lower. */
#ifndef KN_LOWER_CALLED_H
#define KN_LOWER_CALLED_H
#include "lower/tile.h"

enum { KN_UNIT_MOST = 64 }; /* of kn_hw's tile_registers */

typedef struct kn_called {
    kn_lw *w;
    kn_sg *sg;
    const kn_tensor_tile *x;
    const kn_intrin *it;
    const kn_expr *source[KN_INTRIN_OPERANDS];
    int buffer[KN_INTRIN_OPERANDS];
    int packed[KN_INTRIN_OPERANDS];  /* the buffer of its copies, -1: none was made yet */
    kn_expr *at[KN_INTRIN_OPERANDS]; /* first element of the operand there */
    int64_t row[KN_INTRIN_OPERANDS]; /* elements from one of its rows to the next there */
    int64_t held[KN_INTRIN_OPERANDS][KN_UNIT_MOST]; /* in registers of the unit: 1 + number of the tile that is in each; 0: none */
    bool full;                       /* under the condition that no axis ends inside the tile */
} kn_called;

/* The element of the results that the present values of the loops name. */
kn_expr *kn_called_result(kn_called *x);
/* Stores what is in range of the tiles that the spatial loops from number `from` on walk over. */
void kn_called_store(kn_called *x, int from);
kn_tile kn_called_one(kn_called *x); /* an element of the results, as what stores it takes it */
/* Condition that all that the tile has in registers is in range, on the axes that are not known to be; NULL: it is. */
kn_expr *kn_called_all_in_range(kn_called *x);
/* The first n lanes of a vector of results, in memory, in vectors of 8, 4 and 2. */
void kn_called_store_first(kn_called *x, int lanes, int n);
/* called_registers.c: vectors of results that are in registers, from there to where they go. *rest: where those are to be stored that are not, NULL:
 * there are none. False: nothing has been stored. */
bool kn_called_store_registers(kn_called *x, kn_ls ***rest);
/* On a unit, of results that no loop around the tile has kept in memory: its registers are stored where they go, rows beside each other or apart,
 * unchanged. *rest: where the others are to be stored that are not all in range, NULL: there are none. False: they do not lie so. */
bool kn_called_store_tiles(kn_called *x, kn_ls ***rest);
/* The unrolled loops have the values of their iteration c; c < 0: none. */
void kn_called_register(kn_called *x, int64_t c);
void kn_called_parts(kn_called *x); /* memory for the vectors of all registers, one after the other, unless there is some: sg->part */
/* The destination's tile among the partial results: one for each iteration of the spatial loops between the outermost reduction and the tile. */
kn_expr *kn_called_part(kn_called *x);
/* unit.c: registers of the instruction's own unit for so many results and for its sources. */
void kn_lw_unit_begin(kn_called *x, int64_t results);
bool kn_lw_unit_holds(const kn_called *x, int o); /* the tile of operand o that this result takes was loaded for one before */
void kn_lw_unit_load(kn_called *x, int o);
bool kn_lw_unit_slow(const kn_called *x, int o);  /* it stands still while the innermost of the unrolled loops goes on */
bool kn_lw_unit_roomy(const kn_called *x);        /* every tile of the sources, among all results of a step, has a register of its own */
kn_expr *kn_lw_unit_at(const kn_called *x, int o); /* the register that has it */
void kn_lw_unit_clear(kn_called *x);
void kn_lw_unit_move(kn_called *x, bool load);     /* the results from their places in sg->part, or to them, one dense tile each */
int64_t kn_unit_rows(const kn_intrin_operand *o);  /* of its tile in such a register */
#endif
