/* Building a kernel as the service and the workers do it: construct, generate, toolchain, verify, store. */
#ifndef WORKERS_BUILD_H
#define WORKERS_BUILD_H
#include "cache/cache.h"
#include "workers/gate.h"

typedef struct build_times { double construct, codegen, toolchain, verify; } build_times; /* milliseconds */

/* What is to be built, with what. Read-only while it is built. */
typedef struct build_order {
    const worker_tools *tools;
    cache *cache;
    const kiln_request *request;
    const kiln_hw *hw;
    const kiln_keys *keys;
    int candidates, attempts; /* tried before the kernel is given up as wrong; versions of one key looked at */
    int verify_ms;
    bool runs_here;           /* the kernel can be run on this machine */
    int64_t deadline;         /* of build_now_ms */
    const char *job;          /* under whose lease it is built, for the statement of who built it; NULL: none */
    int64_t epoch;
    bool (*may_store)(void *user); /* asked before a kernel is stored; NULL: always. False: somebody else builds it now */
    void *user;
} build_order;

enum build_end { BUILD_OK, BUILD_REFUSED, BUILD_FAILED, BUILD_LOST };
/* REFUSED: diag says why, and lasting, that it will be the same next time. FAILED: slug, title, detail and the HTTP status of a tool's trouble. */
typedef struct build_result {
    enum build_end end;
    kiln_diag diag;
    bool lasting;
    int http;
    char slug[40], title[96], detail[2048];
    int64_t version;
    enum cache_verification verification;
    char build[72];
    bool stored;
    int wrong; /* candidates that failed verification */
    build_times times;
} build_result;

int64_t build_now_ms(void);
/* Candidates in rank order until one is right; what is wrong is stored as a failed version and never built again with the same build id. */
void build_kernel(const build_order *o, build_result *r);

/* ---- its steps, for those who choose candidates themselves ---- */
typedef struct build {
    const build_order *order;
    build_result *result;
    kiln_arena *arena;
    kiln_kernel *kernel;
    worker_blob blobs[3]; /* so (of a GPU kernel: its launcher with the image), ptx, cubin */
    cache_record record;
    worker_check *check; /* begun while the toolchain works; NULL: none */
    char *manifest; /* the kernel's, with what made its binary */
    const char *toolchain; /* of the build id */
    char flags[1024];
    gate_report gate;     /* of CUDA kernels, what the assembler says; candidates that it speaks against are passed over while there are others */
} build;
bool build_open(build *b, const build_order *o, build_result *r);
void build_close(build *b);
void build_name(build *b, kiln_bytes trace); /* record.build */
bool build_failed_before(build *b);
bool build_make(build *b, kiln_bytes trace); /* generate, toolchain, verify: record.verification and verdict. False: result says why */
bool build_store(build *b, const char *origin, double predicted_us, double measured_us);
/* Whether NVRTC here can make binaries for "sm_90a". */
bool build_nvrtc_knows(const worker_tools *t, const char *arch);
void build_verdict_text(const worker_verdict *v, char *json, size_t size);
/* A problem (RFC 9457) as the service would put it; build_problem_free. */
char *build_problem(int http, const char *slug, const char *title, const char *detail, const char *pointer, const char *hint);
void build_problem_free(char *text);
void build_id(const kiln_bytes *parts, int n, char out[72]); /* "kb1-" and a digest over the parts, each with its length before it */

/* ---- orders as text, for jobs that another machine does ---- */
/* {"program","hw","policy","trace","top_k"} from a request and the JSON of its hardware; free(). version 0: none is named. */
char *build_payload(kiln_arena *a, const kiln_request *r, const char *hw_json, int64_t version);
typedef struct build_asked { kiln_request *request; kiln_hw *hw; kiln_keys keys; int64_t version; struct cJSON *held; } build_asked;
/* Points into a and into out->held: build_asked_free, whatever the status. */
kiln_status build_payload_read(kiln_arena *a, const char *payload, build_asked *out, kiln_diag *d);
void build_asked_free(build_asked *x);
/* The words a worker must offer (jobs_ask.needs) to build, and with `run` also to run, a kernel for hw. */
void build_needs(const kiln_hw *hw, bool run, char out[128]);
/* The words this machine offers (jobs_offer.words). */
void build_words(const worker_tools *t, char *out, size_t size);
#endif
