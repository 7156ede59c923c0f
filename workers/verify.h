/* What the two sides of verification share: how inputs are made, what the child is told, where arrays lie, what it answers.
 *
 * Inputs are a function of (seed, tensor, index), so that the child fills arrays and the parent's reference reads single elements of
 * the same data without holding any. Internal to workers/. */
#ifndef WORKERS_VERIFY_H
#define WORKERS_VERIFY_H
#include "workers/workers.h"

typedef enum verify_dtype {
    VERIFY_F32, VERIFY_F64, VERIFY_F16, VERIFY_BF16, VERIFY_I64, VERIFY_I32, VERIFY_I16, VERIFY_I8, VERIFY_U8, VERIFY_BOOL,
    VERIFY_F8E4M3, VERIFY_F8E5M2, VERIFY_DTYPES
} verify_dtype;
typedef enum verify_kind { VERIFY_RANDOM, VERIFY_INTEGER, VERIFY_EDGE, VERIFY_KINDS } verify_kind;
enum { VERIFY_MAX_ARGS = KILN_MAX_TENSORS, VERIFY_SIDES = 4096, VERIFY_ROOM = INT64_C(6) << 30 >> 20 /* MiB of arrays at most */ };

/* Bits of what an input value is like; the comparison is looser where such a value went in (VERIFY.md). */
enum { VERIFY_BIG = 1, VERIFY_EXTREME = 2, VERIFY_NONFINITE = 4 };

typedef struct verify_source {
    uint64_t seed;
    int32_t kind;      /* verify_kind */
    int32_t nonfinite; /* EDGE: infinities and NaN among the values */
    int32_t nonzero;   /* integers: never 0, since something divides */
} verify_source;

bool verify_dtype_find(const char *text, verify_dtype *out);
int verify_dtype_bytes(verify_dtype t);
bool verify_dtype_is_float(verify_dtype t);
double verify_dtype_max(verify_dtype t);       /* largest finite value */
double verify_dtype_tiny(verify_dtype t);      /* below it rounding is absolute: smallest normal (f16, f8: smallest denormal); integers 0 */
double verify_dtype_exact(verify_dtype t);     /* integers up to here are exact in it */
double verify_input(const verify_source *s, verify_dtype t, int input, int64_t index, int *flags); /* flags may be NULL; bits are added */
void verify_fill(const verify_source *s, verify_dtype t, int input, int64_t elems, void *array);
double verify_load(verify_dtype t, const void *array, int64_t index);
void verify_store(verify_dtype t, void *array, int64_t index, double value); /* value representable in t */

/* One array. Outputs of run A lie in the shared file, one slot a kind; everything else is private to the child. */
typedef struct verify_array {
    int32_t dtype, pad;
    int64_t elems, bytes;
    int64_t offset; /* outputs: of kind 0's slot in the file */
} verify_array;

enum { VERIFY_MAGIC = 0x4b4e5631, VERIFY_RUN = 0, VERIFY_TIME = 1, VERIFY_BLOCKS = 2 };
/* job.bin in the child's directory. Args: inputs, then outputs. */
typedef struct verify_job {
    uint32_t magic, size;
    int32_t mode;          /* VERIFY_RUN, VERIFY_TIME (CPU kernels), VERIFY_BLOCKS (CUDA text) */
    int32_t nin, nout, nkinds, threads, runs;
    int32_t order[VERIFY_MAX_ARGS]; /* VERIFY_BLOCKS: arg of the job that argument i of the launch is */
    int32_t launch_threads, launch, cluster; /* cluster: blocks that run together; 0: one */
    int32_t wait;          /* VERIFY_RUN: kernel.so is there when VERIFY_GO can be read, inputs are filled before */
    int32_t again;         /* VERIFY_BLOCKS: the output that begins as a copy of the last input, as the launch goes on from there; -1: none */
    int32_t traffic;       /* VERIFY_BLOCKS: what warps do to memory is counted */
    int64_t grid;
    int64_t slot_bytes;    /* distance of two kinds' slots in the file */
    double budget_ms;      /* kinds after the first are only run while time spent stays below; blocks sampled to fit */
    char entry[80];
    verify_source source[VERIFY_KINDS];
    verify_array args[VERIFY_MAX_ARGS];
} verify_job;

/* An array's place so that its end touches an unmapped page: what is left before it in its pages. */
int64_t verify_pages(int64_t bytes); /* bytes rounded up to pages, at least one */
enum { VERIFY_PAGE = 4096, VERIFY_POISON_A = 0xff, VERIFY_POISON_B = 0x7f, VERIFY_CANARY = 0xc5, VERIFY_FD = 3, VERIFY_GO = 4 };

/* The child's answer is lines on stdout: "at PHASE" before each step, "fail TEXT", "kind N" when kind N's outputs are complete,
 * "blocks RUN ALL", "traffic" with the six numbers of worker_traffic, "time MEDIAN P10 P90", at last "done". */

/* Which output elements to compare: corners, row ends and tile edges, then random ones; all of them when total is small. */
typedef struct verify_points { const kiln_arg *arg; uint64_t seed; int64_t n, i; } verify_points;
void verify_points_open(verify_points *p, const kiln_arg *arg, uint64_t seed);
bool verify_points_next(verify_points *p, int64_t *index); /* false: every element has been handed out (small outputs only) */

/* An element of an output and what the reference says of it. */
typedef struct verify_expected { int64_t index; double value, scale; int flags; } verify_expected;
/* What was computed beforehand for one kind: the elements of output o after those of the outputs before it. */
typedef struct verify_expectations { verify_expected *x; int64_t n[VERIFY_MAX_ARGS]; } verify_expectations;

/* Compares one kind's outputs with the reference. */
typedef struct verify_check {
    const kiln_program *program;
    const char *text;            /* the program's */
    const verify_job *job;
    int kind;                    /* index in job->source */
    bool sparse;                 /* elements that still hold poison were not run and are passed over */
    char *const *outputs;        /* this kind's */
    double budget_ms;
    const verify_expectations *known; /* NULL, or x NULL: computed while comparing */
} verify_check;
/* Computes what verify_compare would for a kind that is not sparse; free(out->x), NULL when that cannot be. */
void verify_expect(const verify_check *c, verify_expectations *out);
/* False: a difference, described in v->detail, or the reference failed (v->detail, *broken set). */
bool verify_compare(const verify_check *c, worker_verdict *v, bool *broken);
bool verify_text_is_exact(const char *text);       /* only + - * min max select on integers: integer inputs give integers */
bool verify_text_is_elementwise(const char *text); /* no reduction */

double verify_now_ms(void);
double verify_work_ms(void); /* of this thread: what a budget of work is counted in, so that a busy machine does not make a check shallower */
uint64_t verify_mix(uint64_t x);

/* The parent's side (verify_posix.c). */
enum verify_fit { VERIFY_FITS, VERIFY_TOO_LARGE, VERIFY_NO_DTYPE };
enum verify_fit verify_job_of(const kiln_program *p, verify_job *j, char *why, size_t why_n);
/* Runs the job in a child and compares what it leaves. v is added to (several launches share one); v->ok false: v->detail says why.
 * False: e, a trouble of this machine. */
bool verify_execute(const worker_tools *t, const kiln_program *p, verify_job *j, const worker_blob *so, int budget_ms, worker_verdict *v,
                    worker_error *e);
/* Cannot be judged: how "", ok false. Returns true. */
bool verify_refused(worker_verdict *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#endif
