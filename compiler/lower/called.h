/* A tile that calls of an instruction compute, while it is lowered: what instruction.c and called_store.c share. Private to compiler/lower. */
#ifndef KN_LOWER_CALLED_H
#define KN_LOWER_CALLED_H
#include "lower/tile.h"

typedef struct kn_called {
    kn_lw *w;
    kn_sg *sg;
    const kn_tensor_tile *x;
    const kn_intrin *it;
    const kn_expr *source[KN_INTRIN_OPERANDS];
    int buffer[KN_INTRIN_OPERANDS];
    int packed[KN_INTRIN_OPERANDS];  /* the buffer of its copies, -1: none was made yet */
    kn_expr *at[KN_INTRIN_OPERANDS]; /* first element of the operand there */
    bool full;                       /* under the condition that no axis ends inside the tile */
} kn_called;

/* The element of the results that the present values of the loops name. */
kn_expr *kn_called_result(kn_called *x);
/* Stores what is in range of the tiles that the spatial loops from number `from` on walk over. */
void kn_called_store(kn_called *x, int from);
#endif
