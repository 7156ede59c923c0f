/* What the bench and its peers share: a case (one operator at one shape, with its data) and a contestant (something that computes it).
 * A peer is one file peer_NAME.c, compiled to a shared object of its own so that libraries with the same symbols live side by side,
 * and one row of peers.def. */
#ifndef BENCH_H
#define BENCH_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { BENCH_INPUTS = 4, BENCH_PARAMS = 40 };

typedef struct bench_case {
    char id[64], op[32], dtype[8], layout[8]; /* op as in ops.def; dtype "f32", "bf16", "i8"; layout "" or "NCHW", "NHWC" */
    char family[32];
    bool exact;    /* sums of eighths and integers are exact in any order: outputs must agree to the bit */
    bool by_bytes; /* a rate is in GB/s, not in GFLOP/s */
    int nparams;
    struct {
        char name[16];
        int64_t value;
    } params[BENCH_PARAMS]; /* those of the list, and what follows from them (PT, HO, CG ...) */
    int nin;
    void *in[BENCH_INPUTS]; /* row-major in the case's layout, 64-byte aligned */
    int64_t in_elems[BENCH_INPUTS], in_bytes[BENCH_INPUTS];
    char in_dtype[BENCH_INPUTS][8], out_dtype[8];
    int64_t out_elems, out_bytes;
    int threads;
} bench_case;

/* state is the contestant's; fetch writes the last call's output in the case's own layout. */
typedef struct bench_run {
    void *state;
    void (*call)(void *state);
    void (*fetch)(void *state, void *out);
    void (*drop)(void *state);
} bench_run;

/* One way in which a peer does its work. open returns false when the peer has no such operator. */
typedef struct bench_form {
    const char *name;
    bool (*open)(const bench_case *c, bench_run *run);
} bench_form;

/* What every peer exports as `bench_forms`: ends with a NULL name. */
typedef const bench_form *(*bench_forms_fn)(void);

static inline int64_t bench_get(const bench_case *c, const char *name) /* 0 when absent */
{
    for (int i = 0; i < c->nparams; i++) {
        if (!strcmp(c->params[i].name, name)) { return c->params[i].value; }
    }
    return 0;
}

static inline bool bench_is(const bench_case *c, const char *op, const char *dtype)
{
    return !strcmp(c->op, op) && !strcmp(c->dtype, dtype);
}
#endif
