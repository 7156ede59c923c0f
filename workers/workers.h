/* Workers: toolchains, verification and emulation in sandboxed child processes, and the pool of threads that drives them.
 *
 * Children run through `kiln-child child ...`, which sets limits (CPU time, address space, file size, processes), forbids new privileges
 * and all sockets (seccomp), enters a private directory and then does its work or executes the compiler. They are killed with their whole
 * process group at the deadline. Nothing in here keeps state between calls but the pool, and what memory checks have taken (room_posix.h). */
#ifndef KILN_WORKERS_H
#define KILN_WORKERS_H
#include "kiln.h"

typedef struct worker_error {
    kiln_status status;
    char slug[32];
    char message[2048];
} worker_error; /* slug: "compile-failed", "compile-timeout", "verify-failed", "toolchain-missing" */

/* Where things are; found once at start (workers_find_tools) and passed around read-only. */
typedef struct worker_tools {
    char worker[512]; /* path of kiln-child, or of kiln-worker, which does the same */
    char cc[512];     /* C compiler, "" when none */
    char cc_version[128];
    char clang[512];  /* for PTX through its NVPTX back end, "" when none */
    char clang_version[128];
    char nvrtc[512]; /* path of libnvrtc, "" when none */
    char nvrtc_version[32];
    char nvrtc_why[256]; /* why there is none: places looked at */
    int nnvrtc_archs;
    int nvrtc_archs[64]; /* 75, 80, ... */
    char gpu[16];        /* "sm_90": the GPU of this host, "" when none */
    char tmp[512];       /* private directories are made here */
    bool (*stop)(void *user); /* asked ten times a second while a child runs: true ends it as at its deadline; NULL: never */
    void *stop_user;
    void (*meanwhile)(void *user); /* called once while a child runs, which it delays by nothing but its own time; NULL: nothing to do */
    void *meanwhile_user;
    char bwrap[64];      /* children also get namespaces of their own by this program; "": not asked for, or it does not work here */
} worker_tools;
/* exe_dir: folder of the running binary (kiln-worker lies beside). Looks at KILN_WORKER, KILN_CC, KILN_NVRTC, the CUDA toolkit, wheels
 * under nvrtc/ beside the binary. */
void workers_find_tools(const char *exe_dir, worker_tools *out);
/* Tries bubblewrap once and fills out->bwrap when it works: 5 ms more a child, for a network, processes and mounts of its own. */
void workers_find_namespaces(worker_tools *out);

typedef struct worker_blob {
    char kind[16];
    char *p;
    size_t n;
} worker_blob; /* free(p) */

/* C -> shared object. flags: the target's (kiln_hw_flags). deadline_ms: from now. */
bool worker_compile_c(const worker_tools *t, kiln_bytes source, const char *const *flags, int nflags, int deadline_ms, worker_blob *so,
                      worker_error *e);
/* CUDA C -> PTX and cubin through NVRTC in a child. arch: "sm_90a". want_ptx/want_cubin. log: warnings, ptxas report; free(). */
bool worker_compile_cuda(const worker_tools *t, kiln_bytes source, const char *arch, bool want_ptx, bool want_cubin, int deadline_ms,
                         worker_blob *ptx, worker_blob *cubin, char **log, worker_error *e);

/* CUDA C -> PTX through clang, for devices that NVRTC does not know any more: whether it can be tried, and the try. */
bool worker_ptx_knows(const worker_tools *t, const char *arch);
bool worker_compile_ptx(const worker_tools *t, kiln_bytes source, const char *arch, int deadline_ms, worker_blob *ptx, worker_error *e);
/* kiln_kernel.launcher and a cubin or PTX -> shared object with both (docs/abi.md). */
bool worker_compile_launcher(const worker_tools *t, kiln_bytes launcher, const worker_blob *image, int deadline_ms, worker_blob *so, worker_error *e);

/* How a kernel was checked. */
/* Of the blocks of a CUDA kernel that were emulated: sectors of 32 bytes touched in global memory and the least that hold as many bytes; turns that
 * accesses of shared memory took, and how many they take without two words of one bank. */
typedef struct worker_traffic { int64_t load_sectors, load_least, store_sectors, store_least, shared_turns, shared_least; } worker_traffic;
typedef struct worker_verdict {
    bool ok;
    const char *how;  /* "run", "emulated" */
    double max_error; /* largest |got - ref| / (rtol*scale + atol): <= 1 passes */
    double rtol, atol;
    int64_t checked, total; /* output elements compared; all */
    bool all_written;
    double seconds;
    worker_traffic traffic; /* worker_emulate_traffic's */
    char detail[512]; /* first failing element, or why it could not be done; JSON-safe text */
} worker_verdict;
/* Runs a CPU kernel in a child against the reference: random, integer-exact and edge inputs, poisoned outputs and guard bytes, serial and
 * with a parallel_for. budget_ms bounds the reference's cost by sampling. */
bool worker_verify_cpu(const worker_tools *t, const kiln_program *p, const kiln_kernel *k, const worker_blob *so, int budget_ms,
                       worker_verdict *v, worker_error *e);
/* The same begun before the binary is there: worker_check_meanwhile (a worker_tools.meanwhile) computes the reference's values and starts a child,
 * which fills its inputs, and worker_check_end hands the binary over and judges. p and t must live until then; so NULL: it will not come, v and e are
 * untouched. NULL: no memory, or other checks have it (room_posix.h); worker_verify_cpu waits for them. */
typedef struct worker_check worker_check;
worker_check *worker_check_begin(const worker_tools *t, const kiln_program *p, const kiln_kernel *k, int budget_ms);
void worker_check_meanwhile(void *check);
bool worker_check_end(worker_check *c, const worker_blob *so, worker_verdict *v, worker_error *e);
/* Compiles the same kernel text for this host with the emulator's runtime and runs it: CUDA text as fibers, C text without the target's
 * flags. Blocks are sampled; every launch is verified on its own (kiln_launch.program). */
bool worker_emulate(const worker_tools *t, const kiln_program *p, const kiln_kernel *k, int budget_ms, worker_verdict *v, worker_error *e);
/* The same for CUDA text, slower, with what its warps do to memory. */
bool worker_emulate_traffic(const worker_tools *t, const kiln_program *p, const kiln_kernel *k, int budget_ms, worker_verdict *v, worker_error *e);
/* Times a CPU kernel in a child: median and spread in microseconds. threads: 1.. */
bool worker_time_cpu(const worker_tools *t, const kiln_program *p, const kiln_kernel *k, const worker_blob *so, int threads, int runs,
                     double *median_us, double *p10_us, double *p90_us, worker_error *e);

/* GPU of this host: its architecture, found once by workers_find_tools; whether it runs kernels of "sm_90a". */
void worker_gpu_here(const worker_tools *t, char out[16]);
bool worker_gpu_runs(const worker_tools *t, const char *arch);
/* Checks a GPU kernel on it against the reference, then times it: median, least and most in microseconds over `rounds`. image: cubin or PTX.
 * False: trouble (e), also a kernel that hung or crashed. v->ok false: wrong values. */
bool worker_run_gpu(const worker_tools *t, const kiln_program *p, const kiln_kernel *k, const worker_blob *image, int rounds, worker_verdict *v,
                    double us[3], worker_error *e);

/* CPU features of this host ("avx2", "fma", "avx512f", "amx_bf16" ...), by CPUID and XCR0, and AMX permission; static strings. */
int worker_host_features(const char *const **names);

/* A bounded pool of threads with a queue: interactive jobs before background ones; refuses (false) when full. */
typedef struct worker_pool worker_pool;
typedef void (*worker_job)(void *arg);
worker_pool *worker_pool_open(int threads, int queue_max);
bool worker_pool_submit(worker_pool *p, worker_job fn, void *arg, bool background);
int worker_pool_depth(const worker_pool *p, bool background);
void worker_pool_close(worker_pool *p, bool drain); /* waits for running jobs; drain: also for queued ones */
#endif
