/* Cases read from a list: operators and their shapes, with the request that asks Kiln for each. */
#ifndef BENCH_CASES_H
#define BENCH_CASES_H
#include "load-tests/kernels/bench.h"
#include <stdio.h>

/* Reads the next row of a CSV list: `id, operator, params, dtype, layout` in any order of columns, others ignored. Params are
 * NAME=VALUE;... 1: a case, and its request in `request`; 0: end of the list; -1: a row that cannot be used, with the reason in `request`.
 */
typedef struct case_list {
    FILE *f;
    bool requests; /* the list is Kiln's requests, one JSON a line (NAME.jsonl) */
    int row, column[5];
} case_list;
bool cases_open(case_list *l, const char *path, char *why, size_t n);
int cases_next(case_list *l, int64_t most_bytes, bench_case *c, char *request, size_t n);
#endif
