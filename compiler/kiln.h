/* libkiln: the pure compiler library. Data in, data out: no files, sockets, clock, threads or globals.
 *
 * This is its one public header. Everything is allocated from a kiln_arena the caller owns; freeing the arena frees
 * every result made from it. Every call is deterministic: same input, same bytes. Calls that can fail return a
 * kiln_status and fill the kiln_diag (may not be NULL); on failure out parameters are untouched.
 * The way of the data: request -> kiln_program -> keys; program + kiln_hw -> candidates (traces) -> kiln_kernel. */
#ifndef KILN_H
#define KILN_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum kiln_status {
#define X(name, slug, http, text) KILN_##name,
#include "errors.def"
#undef X
    KILN_STATUS_COUNT
} kiln_status;
enum kiln_limit {
#define X(name, value, meaning) KILN_MAX_##name = (value > 2147483647 ? 2147483647 : (int)(value)),
#include "limits.def"
#undef X
};
#define KILN_MAX_ELEMENTS (INT64_C(1) << 40) /* the true value of the ELEMS row, which no enum can hold */

const char *kiln_status_slug(kiln_status s);  /* "shape-mismatch" */
const char *kiln_status_text(kiln_status s);  /* one line for people */
int kiln_status_http(kiln_status s);          /* 422 */

/* Where and why something was refused. pointer is a JSON pointer ("/op/attrs/pads") or "" ; line/col (1-based) are set for
 * text input, else 0; hint says what would be accepted. */
typedef struct kiln_diag {
    kiln_status status;
    int line, col;
    char pointer[192];
    char message[512];
    char hint[320];
} kiln_diag;

/* The only way out of the library. mem: size 0 frees p; may return NULL. stop: polled at bounded intervals, nonzero
 * means "budget spent" (KILN_STOPPED). Any member may be NULL: malloc's family is then NOT used, mem is mandatory. */
typedef struct kiln_host {
    void *user;
    void *(*mem)(void *user, void *p, size_t old_size, size_t size);
    int (*stop)(void *user);
} kiln_host;

typedef struct kiln_arena kiln_arena;
kiln_arena *kiln_arena_open(const kiln_host *host); /* NULL when out of memory; copies *host */
void kiln_arena_close(kiln_arena *a);               /* NULL is fine */

typedef struct kiln_bytes { const char *p; size_t n; } kiln_bytes;

/* ---- programs -------------------------------------------------------------------------------------------------- */
typedef struct kiln_program kiln_program; /* a tensor-expression program; see compiler/te/te.h */
typedef struct kiln_hw kiln_hw;           /* a hardware description; see compiler/hw/hw.h */

/* A compile request as parsed from JSON (schema: api/schemas/compile.json) or from the one-line text form. Members the
 * library does not judge (wait, emit, quality ...) stay with the service. */
typedef struct kiln_request {
    kiln_program *program;
    const char *target;      /* "" when the request named none (text form: ?target=) */
    const char *policy;      /* "default" or "roller" */
    const char *quality;     /* "any", "constructed", "verified", "tuned" */
    int ninputs, noutputs;
    const char *const *input_names;  /* the client's names, in the kernel's (canonical) argument order */
    const char *const *output_names;
    int top_k;               /* candidates wanted, default 10 */
    kiln_bytes trace;        /* the client's own schedule, in the canonical program's names; n 0: constructed by the policy */
} kiln_request;

kiln_status kiln_request_json(kiln_arena *a, kiln_bytes body, kiln_request **out, kiln_diag *d);
/* text: "c[M,N] +=! a[M,K]*b[K,N]"; inputs: "a=f32:512x512&b=f32:512x512" already URL-decoded, may be empty if the text declares
 * its inputs itself ("in a: f32[512,512]"). grad: inputs whose gradients are wanted instead, "a,b"; NULL or "": none. */
kiln_status kiln_request_text(kiln_arena *a, kiln_bytes text, kiln_bytes inputs, const char *grad, kiln_request **out, kiln_diag *d);
/* Strict RFC 8259 scan: UTF-8, no duplicate members, no NUL escapes, numbers in range, depth and member limits. */
kiln_status kiln_json_check(kiln_bytes text, kiln_diag *d);
/* JSON text of the operator table: name, attributes with defaults, inputs, dtypes. */
kiln_status kiln_operators_json(kiln_arena *a, kiln_bytes *out);

/* Programs seen from outside: arguments in the kernel's (canonical) order. */
typedef struct kiln_arg {
    const char *name;   /* canonical: "in0", "out0" */
    const char *dtype;  /* "f32" */
    int rank;
    int64_t shape[KILN_MAX_RANK];
    int64_t elems, bytes;
} kiln_arg;
int kiln_program_inputs(const kiln_program *p);
int kiln_program_outputs(const kiln_program *p);
void kiln_program_input(const kiln_program *p, int i, kiln_arg *out);
void kiln_program_output(const kiln_program *p, int i, kiln_arg *out);
kiln_status kiln_program_text(kiln_arena *a, const kiln_program *p, kiln_bytes *out); /* in the expression language; parses back */

/* ---- whole models ------------------------------------------------------------------------------------------------ */
typedef struct kiln_graph kiln_graph; /* a settled graph; see compiler/graph/graph.h */
/* What the client tells beside the model. Any member may be empty. */
typedef struct kiln_graph_part { const char *location; kiln_bytes bytes; } kiln_graph_part; /* a file of ONNX external data */
typedef struct kiln_graph_options {
    int ndims;                 /* extents of dimensions that the model only names ("batch") or not even that ("x:0", input and number) */
    const char *const *dims;
    const int64_t *extents;
    int nbinds;                /* inputs that are a number known now, all elements of them: "sr" is 16000; the graph then lacks that input */
    const char *const *binds;
    const double *values;
    int nparts;
    const kiln_graph_part *parts;
    bool bytes;                /* the target multiplies bytes (kiln_hw_multiplies_bytes): those of DequantizeLinear are multiplied as such */
    bool partial;              /* nodes that cannot be compiled are left to the caller (kiln_call) instead of refused */
} kiln_graph_options;
/* Extents and numbers as text, "" for none. dims: "batch:1" or a whole shape "x:1x3x224x224"; binds: "sr:16000"; both lists joined by commas. */
kiln_status kiln_graph_options_read(kiln_arena *a, const char *dims, const char *binds, kiln_graph_options *out, kiln_diag *d);
/* o may be NULL. The bytes (and those of parts) must live as long as the graph: weights are not copied. */
kiln_status kiln_graph_onnx(kiln_arena *a, kiln_bytes model, const kiln_graph_options *o, kiln_graph **out, kiln_diag *d);
/* A model without the bytes of its large initializers (raw data of `least` bytes and more), which are named by their SHA-256 as external data at
 * "sha256:" and 64 digits: kiln_graph_onnx takes it, plans and kernels need no more of them, and the plan names them by their digests (kiln_weight,
 * data NULL). Bytes point into the model. */
typedef struct kiln_onnx_weight { char sha256[65]; kiln_bytes bytes; } kiln_onnx_weight;
kiln_status kiln_onnx_slim(kiln_arena *a, kiln_bytes model, size_t least, kiln_bytes *out, const kiln_onnx_weight **weights, int *n);
/* A request body with a member "graph" (schema: api/schemas/graph.json). */
kiln_status kiln_graph_json(kiln_arena *a, kiln_bytes body, const kiln_graph_options *o, kiln_graph **out, kiln_diag *d);
/* The id in the member "target" of such a body ("" when absent), after a look at what stands around the graph, not at the graph itself. */
kiln_status kiln_graph_target(kiln_arena *a, kiln_bytes body, const char **out, kiln_diag *d);
kiln_status kiln_graph_text(kiln_arena *a, const kiln_graph *g, kiln_bytes *out); /* for people: nodes and shapes, one a line */

/* ---- keys (SHA-256, design section 4) --------------------------------------------------------------------------- */
/* canon: the canonical bytes (stored and compared on every hit). workload: "kw1-" + 64 hex + NUL; kernel: "kk1-". */
typedef struct kiln_keys {
    kiln_bytes workload_canon, kernel_canon;
    char workload[72], kernel[72];
} kiln_keys;
/* policy: the request's; kernels of another construction policy, or of a client's own trace (kiln_request_policy), are other kernels. */
const char *kiln_request_policy(kiln_arena *a, const kiln_request *r); /* "default", or "trace:" and a digest; NULL: out of memory */
kiln_status kiln_keys_of(kiln_arena *a, const kiln_program *p, const kiln_hw *hw, const char *policy, kiln_keys *out, kiln_diag *d);
void kiln_sha256(const void *p, size_t n, uint8_t out[32]);
void kiln_hex(const uint8_t *p, size_t n, char *out); /* writes 2n+1 bytes */
const char *kiln_fingerprint(void); /* hash of all tables and their versions: part of every build id */

/* ---- hardware ---------------------------------------------------------------------------------------------------- */
kiln_status kiln_hw_parse(kiln_arena *a, kiln_bytes json, kiln_hw **out, kiln_diag *d); /* d->pointer names the member */
const char *kiln_hw_id(const kiln_hw *hw);
const char *kiln_hw_kind(const kiln_hw *hw);     /* "cpu" or "gpu" */
const char *kiln_hw_language(const kiln_hw *hw); /* "c" or "cuda" */
const char *kiln_hw_arch(const kiln_hw *hw);     /* "sm_90a", "x86-64-v4" */
bool kiln_hw_multiplies_bytes(const kiln_hw *hw); /* has an instruction for sums of products of bytes */
int kiln_hw_features(const kiln_hw *hw, const char *const **names); /* CPU features a host must have, e.g. "avx512f" */
int kiln_hw_flags(const kiln_hw *hw, const char *const **flags);    /* compiler flags of the target, e.g. "-mavx512f" */

/* ---- construction ------------------------------------------------------------------------------------------------ */
typedef struct kiln_candidate {
    int rank;
    kiln_bytes trace;      /* text, one schedule step a line; replays to the same tile tree */
    double predicted_us;   /* micro performance model */
    const char *bottleneck;/* "compute", "shared", "dram", ... */
    kiln_bytes summary;    /* one line JSON: tiles per level, threads, grid, shared bytes, registers */
} kiln_candidate;
typedef struct kiln_candidates { int n; kiln_candidate c[KILN_MAX_CANDIDATES]; } kiln_candidates;
/* policy: "default" | "roller" (the published artifact's search, for comparison). k in 1..KILN_MAX_CANDIDATES. */
kiln_status kiln_construct(kiln_arena *a, const kiln_program *p, const kiln_hw *hw, const char *policy, int k,
                           kiln_candidates **out, kiln_diag *d);
/* What a request asks for: its own trace as the only candidate (errors at "/trace", with the line), else k of its policy. */
kiln_status kiln_construct_request(kiln_arena *a, const kiln_request *r, const kiln_hw *hw, int k, kiln_candidates **out, kiln_diag *d);
/* Which candidate a search should measure next. us: what each took, 0: not measured yet, negative: it failed. The first ones in their order, then
 * by what a model learns from those that are measured, some by `draw`, which the caller draws by chance. *next -1: none is left. */
kiln_status kiln_ask(kiln_arena *a, const kiln_program *p, const kiln_hw *hw, const kiln_candidates *c, const double *us, uint64_t draw, int *next,
                     kiln_diag *d);
/* Text picture for people: tiles per level, predicted bottleneck, traffic, occupancy, roofline. */
kiln_status kiln_explain(kiln_arena *a, const kiln_program *p, const kiln_hw *hw, kiln_bytes trace, kiln_bytes *out,
                         kiln_diag *d);

/* Every mapping of the program's loops onto the loops of an instruction of hw ("": of each), as JSON: for every statement the mappings by
 * predicted time with calls, padding and the addresses of their operands, and what was refused with operand, index and reason. */
kiln_status kiln_mappings(kiln_arena *a, const kiln_program *p, const kiln_hw *hw, const char *instruction, kiln_bytes *out, kiln_diag *d);

/* ---- generation -------------------------------------------------------------------------------------------------- */
/* A tensor map of the copy engine (TMA): what the launcher encodes at run time, since it holds the address. CUDA's numbers. */
typedef struct kiln_tensor_map {
    int rank;            /* 0: no map, the argument is a pointer */
    const char *dtype;   /* "bf16", "tf32", "u8" */
    int64_t dims[5];     /* fastest first */
    int64_t strides[4];  /* bytes, of dimension 1 on: multiples of 16 */
    int box[5];
    /* Windows over images (im2col): how many pixels a copy brings, 0: it brings boxes; of columns and rows the corners of what the first pixel may
     * be, beside the image's, and the steps from pixel to pixel. box[0]: channels, the others 1. */
    int pixels, lower[2], upper[2], steps[2];
    int swizzle, l2, oob; /* swizzle: 0 none, 1 32, 2 64, 3 128 bytes */
} kiln_tensor_map;

/* One launch of a GPU kernel; a CPU kernel has launches too (its parallel regions), for the record only. */
typedef struct kiln_launch {
    const char *entry;
    int64_t grid;        /* blocks in x (GPU) or tasks (CPU) */
    const char *grid_formula; /* "ceil(512/128)*ceil(512/64)": how the grid follows from the shape; GPU */
    int threads;         /* per block (GPU), 1 (CPU) */
    int cluster;         /* blocks of a cluster, in x; 0 or 1: none */
    int asking, computing; /* registers of each of the 128 threads that ask for copies, and of the others (setmaxnreg); 0: as launched */
    int64_t shared_bytes; /* of a block */
    int64_t dynamic_shared_bytes; /* of them to be given at the launch, which a device must be asked to allow first; 0: all is static */
    int nargs;
    int args[KILN_MAX_TENSORS]; /* tensor slots: 0..nin-1 inputs, nin..nin+nout-1 outputs, then temporaries */
    int again;           /* argument that the launch reads and writes in its place (what a scatter goes into), -1: none; the last input of
                          * `program` is then what is there before */
    const kiln_tensor_map *maps; /* NULL, or one an argument */
    const kiln_program *program; /* what this launch alone computes: inputs and outputs in the order of args; lets a launch be
                                  * verified on its own, with its input temporaries filled like any input */
} kiln_launch;
/* CPU: a constant input that the kernel takes in an order of its own, or with what is computed of it alone behind it, made by the function
 * ENTRY_prepack_INPUT (docs/abi.md). */
typedef struct kiln_packed { int input; int64_t bytes; } kiln_packed;
typedef struct kiln_kernel {
    const char *language;     /* "c" | "cuda" */
    const char *entry;        /* C symbol, "kiln_" + 16 hex of the workload key */
    kiln_bytes source;        /* .c or .cu */
    kiln_bytes header;        /* .h (CPU) or empty */
    kiln_bytes trace;         /* as replayed */
    int nlaunches;
    const kiln_launch *launches;
    int ntemps;               /* GPU temporaries in device memory, caller-allocated */
    const int64_t *temp_bytes;
    const int *temp_slots;    /* the slot that a launch's argument names it by */
    const struct kiln_kernel *fallback; /* GPU: launches of the same source for addresses that are no multiples of 16; NULL: these take any */
    kiln_bytes launcher;      /* GPU: .c text that launches the kernel from device pointers (docs/abi.md); empty for a CPU */
    int npacked;
    const kiln_packed *packed;
    int64_t scratch_bytes;    /* CPU: per-thread scratch; shared part is temp_bytes */
    kiln_bytes manifest;      /* JSON, design section 4; the service adds artifact digests and verification */
} kiln_kernel;
kiln_status kiln_generate(kiln_arena *a, const kiln_program *p, const kiln_hw *hw, kiln_bytes trace, kiln_kernel **out,
                          kiln_diag *d);

/* ---- whole models: the plan -------------------------------------------------------------------------------------- */
/* A place in memory: argument `index` that the caller feeds, weight `index`, the arena, or result `index`; `offset` bytes into it. */
enum kiln_place { KILN_FEED, KILN_WEIGHT, KILN_ARENA, KILN_RESULT };
typedef struct kiln_slot { enum kiln_place place; int index; int64_t offset; } kiln_slot;
/* One kernel call; (kernel == -1) a copy of `bytes` bytes from args[0] to args[1]; (kernel <= -2) call number -2 - kernel of the caller. */
typedef struct kiln_step {
    int kernel;            /* of kiln_plan.kernels */
    int nargs;             /* inputs, then outputs, in the kernel's canonical order */
    const kiln_slot *args;
    int64_t bytes;
    const char *nodes;     /* for people: "Conv /conv1, Relu" */
    int nnodes;
    const char *place;     /* of the first of them in the model, "/graph/node/12"; NULL: a copy */
    double flops, traffic; /* of the program: operations, compulsory bytes */
    double gain_us;        /* what fusing is predicted to save (thesis, equation 4.10) */
} kiln_step;
/* A value on its way from a step to one that reads it, and why the two are not one kernel. from -1: a model's input; to == nsteps: an output. */
typedef struct kiln_edge {
    int from, to;
    kiln_arg arg;
    const char *why;       /* "" at inputs, outputs and copies */
    double gain_us;        /* what joining them is predicted to save, by the same equation; negative: to cost. 0: it cannot be had */
} kiln_edge;
typedef struct kiln_weight {
    kiln_arg arg;
    const char *data;      /* n bytes: all of them, or one element that all are equal to (splat); NULL: elsewhere, sha256 names them */
    size_t n;
    bool splat;
    char sha256[65];       /* of the bytes in full; "" for a splat */
    int64_t offset;        /* in the file of all weights, one after the other, 64-byte aligned; -1: splats and those that are elsewhere */
    bool once;             /* the steps that run once write it; its bytes are not known here */
    int of;                /* -1, or the weight that this one is as input `input` of kernel `kernel` wants it: what its prepack entry makes of that
                            * weight, or the same bytes where it has no such entry; data, sha256 and offset say nothing then */
    int kernel, input;
} kiln_weight;
/* A node that is left to the caller's own runtime. A value that is held has no static shape or dtype: the caller keeps it by its name until another
 * of its nodes, or the caller of the model, takes it; its place in memory says nothing. */
typedef struct kiln_call_value { kiln_arg arg; bool held; } kiln_call_value;
typedef struct kiln_call {
    const char *place, *op, *domain, *name; /* of the node in the model: "/graph/node/12" */
    const char *why;                        /* it is not compiled */
    int nin, nout;
    const kiln_call_value *values;          /* nin that it reads (what its subgraphs read of the model among them), nout that it gives */
} kiln_call;
/* Kernels, what runs after what, and where values lie. Deterministic; everything in the arena, weights in the client's bytes. */
typedef struct kiln_plan {
    int nkernels, nsteps, nweights, ninputs, noutputs, ncalls;
    const kiln_program *const *kernels; /* each its own request: canonical, no two the same */
    const kiln_keys *keys;              /* of the kernels, for policy "default" */
    const kiln_step *steps;
    int nonce;                          /* steps that run once, when the model is loaded, before weights are packed: */
    const kiln_step *once;              /* they read weights and an arena of their own, and write the weights that are `once` */
    int64_t once_bytes;                 /* of that arena, 64-byte aligned */
    const kiln_weight *weights;
    const kiln_arg *inputs, *outputs;   /* names are the client's */
    const bool *held;                   /* of the outputs: given by a call, of no static shape */
    const kiln_call *calls;
    int64_t arena_bytes;                /* 64-byte aligned */
    int64_t weights_bytes;              /* of the file of all weights */
    const char *entry;                  /* C symbol of the function that runs all steps (docs/abi.md) */
    kiln_bytes source;                  /* C text of that function */
    kiln_bytes manifest;                /* the plan as JSON (docs/graphs.md) */
} kiln_plan;
kiln_status kiln_graph_plan(kiln_arena *a, const kiln_graph *g, const kiln_hw *hw, kiln_plan **out, kiln_diag *d);
/* The same, and what flows between its steps, ordered by reader. */
kiln_status kiln_graph_explain(kiln_arena *a, const kiln_graph *g, const kiln_hw *hw, kiln_plan **out, const kiln_edge **edges, int *nedges,
                               kiln_diag *d);
/* A kernel of a plan as it was built for a GPU. */
typedef struct kiln_image {
    const kiln_kernel *kernel;  /* of which the image is */
    const char *kind, *sha256;  /* "cubin", "ptx" or, where no toolchain was, "source"; digest of its bytes */
} kiln_image;
/* CUDA targets, when all kernels are built: the model's host side as C text, which loads images (one a kernel, in the plan's order) and launches the
 * steps (docs/abi.md), and the manifest with images and launches as data. */
kiln_status kiln_plan_link(kiln_arena *a, const kiln_plan *p, const kiln_hw *hw, const kiln_image *images, kiln_bytes *launcher, kiln_bytes *manifest,
                           kiln_diag *d);
/* The request that a kernel of a plan is: as if its program had been posted. */
kiln_status kiln_plan_request(kiln_arena *a, const kiln_plan *p, int kernel, kiln_request **out);

/* ---- reference --------------------------------------------------------------------------------------------------- */
/* Reads element `index` (row-major) of input `input`, as a double. Integers are exact to 2^53. */
typedef double (*kiln_ref_input)(void *user, int input, int64_t index);
typedef struct kiln_ref kiln_ref;
/* Lazy reference interpreter in double: temporaries are computed on demand and remembered in the arena. */
kiln_status kiln_ref_open(kiln_arena *a, const kiln_program *p, kiln_ref_input read, void *user, kiln_ref **out, kiln_diag *d);
/* value: the element; scale: sum of |terms| of the outermost reduction (>= |value|), the natural unit of rounding error. */
kiln_status kiln_ref_at(kiln_ref *r, int output, int64_t index, double *value, double *scale);
/* Relative rounding unit times growth: an element passes when |got - value| <= rtol * scale + atol. */
void kiln_tolerance(const kiln_program *p, int output, double *rtol, double *atol);
/* Multiply-adds and bytes (compulsory traffic) of the whole program, for rooflines. */
void kiln_work(const kiln_program *p, double *flops, double *bytes);
#endif
