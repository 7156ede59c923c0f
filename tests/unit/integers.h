/* Arrays of a program, its inputs filled with small integers. */
#ifndef INTEGERS_H
#define INTEGERS_H
#include "te/te.h"

static inline int64_t elems(const kn_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->shape[i];
    return n;
}

/* Inputs are small integers, so that every order of summation gives the same. */
static inline void arrays(kiln_arena *a, const kn_program *p, double **x)
{
    unsigned seed = 12345;
    for (int i = 0; i < p->ntensors; i++) {
        x[i] = kn_array(a, double, elems(&p->tensors[i]));
        for (int64_t k = 0; k < elems(&p->tensors[i]) && i < p->ninputs; k++) {
            seed = seed * 1103515245u + 12345u;
            x[i][k] = (double)((int)(seed >> 16) % 7 - (p->tensors[i].dtype == KN_U8 ? 0 : 3));
        }
    }
}

#endif
