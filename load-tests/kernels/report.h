/* What was measured, as text while it runs, then geometric means a family, and as JSON. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H
#include "load-tests/kernels/bench.h"

enum { ROUNDS = 99, CONTESTANTS = 24 };
typedef struct contestant {
    char name[32];
    int64_t wrong;
} contestant;
typedef struct result {
    int n; /* contestants; [0] is Kiln if constructed, behind it Kiln with weights packed ahead */
    int packed; /* which one that is, 0: none */
    int alone;  /* which one is Kiln's without a pool, 0: none: no peer, its ratio says what the threads bring */
    bool constructed;
    char note[600]; /* why not, or what went wrong */
    contestant who[CONTESTANTS];
    int rounds[CONTESTANTS], reference_wrong;
    double first_us[CONTESTANTS];                                          /* of the first call */
    double us[CONTESTANTS][ROUNDS], memory_us[ROUNDS], compute_us[ROUNDS]; /* compute_us 0: the case is counted in bytes */
    double flops, bytes;
} result;

typedef struct report report;
/* Files to write, "" for none: everything as JSON, and the families' means as a table for picture.gp; both outlive the report. */
report *report_open(const char *json, const char *table, const char *target, int threads, int rounds);
void report_case(report *r, const bench_case *c, const result *x);
int report_close(report *r); /* prints the means; cases with wrong outputs */
#endif
