/* The runner of GPU bundles: what a bundle says, the driver it is given to, and what is measured. Internal to workers/gpu.
 *
 * It stands alone: libcuda by dlopen (no header of a toolkit), libm, and workers/verify_value.c for the values of inputs. Bundles
 * travel to hosts that reach nothing else, with these sources in them. */
#ifndef WORKERS_GPU_H
#define WORKERS_GPU_H
#include "workers/verify.h"
#include <stdio.h>

typedef uint64_t gpu_ptr; /* CUdeviceptr */

/* CUlaunchAttribute and CUlaunchConfig, as the driver's ABI has them since 11.8. */
typedef struct gpu_launch_attribute {
    int id;
    char pad[4];
    union {
        unsigned dim[3];
        char raw[64];
    } value;
} gpu_launch_attribute;
typedef struct gpu_launch_config {
    unsigned grid[3], block[3], shared;
    void *stream;
    gpu_launch_attribute *attributes;
    unsigned nattributes;
} gpu_launch_config;
enum { GPU_ATTRIBUTE_CLUSTER = 4 };

typedef struct gpu_driver {
    void *library;
#define X(name, symbol, needed, args) int(*name) args;
#include "workers/gpu/driver.def"
#undef X
} gpu_driver;
/* KILN_LIBCUDA, or libcuda.so.1. False: why says what is missing. */
bool gpu_driver_open(gpu_driver *d, char *why, size_t n);

enum { GPU_RANK = 5, GPU_ARGS = 32, GPU_SETS = 64, GPU_GUARD = 256, GPU_STATIC_SHARED = 48 * 1024 };

/* A tensor map, encoded at run time since it holds the address: CUDA's enumerations, dimension 0 is the fastest, strides are those of
 * dimension 1 on, in bytes. */
typedef struct gpu_map {
    int dtype, rank, swizzle, l2, oob;
    uint64_t dims[GPU_RANK], strides[GPU_RANK];
    unsigned box[GPU_RANK];
    unsigned pixels;        /* of a window's column (im2col); 0: boxes */
    int lower[2], upper[2]; /* corners, of columns and rows */
    unsigned steps[GPU_RANK];
} gpu_map;
enum gpu_arg_kind { GPU_POINTER, GPU_I32, GPU_I64, GPU_F32, GPU_TENSOR_MAP };
typedef struct gpu_arg {
    enum gpu_arg_kind kind;
    int buffer;
    int64_t i;
    float f;
    gpu_map map;
} gpu_arg;
typedef struct gpu_step {
    char entry[128];
    unsigned grid[3], block[3], cluster[3], shared; /* shared: dynamic bytes */
    bool persistent;                                /* grid is at most what runs at once: the device's units, whole clusters */
    int nargs;
    gpu_arg args[GPU_ARGS];
    void *function;
} gpu_step;
typedef struct gpu_kernel {
    char id[64];
    int module, rank; /* rank: among the constructed candidates */
    double flops, bytes, predicted_us;
    const char *trace; /* percent-encoded, points into the text */
    int nsteps;
    gpu_step *steps;
} gpu_kernel;
typedef struct gpu_buffer {
    char id[32];
    verify_dtype dtype;
    int64_t elems, bytes;
    int input; /* number of the input, -1: an output, -2: a temporary */
    int nsets;
    gpu_ptr set[GPU_SETS];
} gpu_buffer;
typedef struct gpu_point {
    int64_t index;
    double value, scale;
} gpu_point;
/* Elements of an output as the reference computed them from inputs of this source: |got - value| <= rtol * scale + atol. */
typedef struct gpu_check {
    int buffer;
    verify_source source;
    double rtol, atol;
    int npoints;
    gpu_point *points;
} gpu_check;
/* One workload: its buffers, candidates for it, and what is right. */
typedef struct gpu_group {
    char id[64], key[80], target[64];
    const char *program; /* percent-encoded */
    int nbuffers, nkernels, nchecks;
    gpu_buffer *buffers;
    gpu_kernel *kernels;
    gpu_check *checks;
} gpu_group;
typedef struct gpu_module {
    char id[64], file[128];
} gpu_module;
typedef struct gpu_bundle {
    char *text;
    char dir[512];
    int nmodules, ngroups;
    gpu_module *modules;
    gpu_group *groups;
} gpu_bundle;
/* DIR/bundle.txt. False: why has the line and what would be right. A bundle lives as long as the process. */
bool gpu_bundle_open(gpu_bundle *b, const char *dir, char *why, size_t n);
/* The rules that the driver documents for a map, so that a bundle is refused before it travels; NULL: holds. */
const char *gpu_map_wrong(const gpu_map *m);
int gpu_map_element_bytes(int dtype); /* 0: no such dtype */
void gpu_put_json(FILE *f, const char *percent_encoded);

/* What a child says on the way: "at KERNEL PHASE" before each step that may hang, "line JSON" for the results, "done". */
typedef struct gpu_options {
    int rounds;
    double batch_ms;
    const bool *skip;
    FILE *say;
    bool first;
} gpu_options;
/* Runs a group's kernels in this process, skip[i]: without kernel i. 0, or a status that ended it: the context may be broken then. */
int gpu_run_group(const gpu_bundle *b, gpu_group *g, const gpu_options *o);

/* A device that is open (gpu.c). */
typedef struct gpu_device {
    gpu_driver cu;
    int id, units, l2_bytes, shared_optin, major, minor, driver, clock_khz, memory_khz;
    char name[128];
    void *context, *stream, *event[2];
} gpu_device;
bool gpu_device_open(gpu_device *g, char *why, size_t n);
void gpu_device_close(gpu_device *g);
const char *gpu_error(const gpu_device *g, int result); /* "CUDA_ERROR_..." */
/* Buffers of a group: sets beyond thrice the L2, so that no launch finds its data there; canaries behind each. */
int gpu_buffers_make(gpu_device *d, gpu_group *g);
void gpu_buffers_free(gpu_device *d, gpu_group *g);
int gpu_fill(gpu_device *d, gpu_group *g, const verify_source *s);
int gpu_functions(gpu_device *d, gpu_kernel *k, void *module, char *why, size_t n);
int gpu_launch(gpu_device *d, const gpu_group *g, const gpu_kernel *k, int set);
/* Outputs against the reference's points, twice over different poison: written everywhere, the same each time, nothing beside them touched.
 */
typedef struct gpu_verdict {
    bool ok, deterministic;
    double max_error;
    int64_t checked;
    char detail[256];
} gpu_verdict;
int gpu_verify(gpu_device *d, gpu_group *g, const gpu_kernel *k, gpu_verdict *v);
#endif
