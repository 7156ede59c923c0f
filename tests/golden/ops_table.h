/* A CSV table with a head, the requests of ROLLER's operators, and devices by the artifact's names. For the golden programs. */
#ifndef GOLDEN_OPS_TABLE_H
#define GOLDEN_OPS_TABLE_H
#include "hw/hw.h"
#include <stdio.h>

enum { OPS_TABLE_COLUMNS = 32 };
typedef struct ops_table {
    FILE *f;
    char head[4096], line[4096];
    char *name[OPS_TABLE_COLUMNS], *cell[OPS_TABLE_COLUMNS];
    int n; /* columns */
} ops_table;
bool ops_open(ops_table *t, const char *path); /* fclose(t->f) */
bool ops_has(const ops_table *t, const char *const *columns, int n); /* false: which it lacks is printed */
bool ops_next(ops_table *t);                   /* false at the end */
const char *ops_at(const ops_table *t, const char *column); /* "" when there is none */
/* The request that a client would send for the row; false: an operator without one. */
bool ops_request(const ops_table *t, char *out, size_t cap);
/* arch: "V100", "K80", "MI50", or a hwspec's id. NULL, with the reason printed. */
kn_hw *ops_device(kiln_arena *a, const char *arch);
#endif
