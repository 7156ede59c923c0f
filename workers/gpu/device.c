/* A device through the driver: opened, buffers in rotating sets, kernels launched. */
#include "workers/gpu/gpu.h"
#include <stdlib.h>
#include <string.h>

/* CUdevice_attribute and CUfunction_attribute. */
enum { CLOCK = 13, UNITS = 16, MEMORY_CLOCK = 36, L2 = 38, MAJOR = 75, MINOR = 76, SHARED_OPTIN = 97, MAX_DYNAMIC_SHARED = 8 };

const char *gpu_error(const gpu_device *g, int result)
{
    const char *name = NULL;
    if (g->cu.GetErrorName) g->cu.GetErrorName(result, &name);
    return name ? name : "CUDA_ERROR";
}

bool gpu_device_open(gpu_device *g, char *why, size_t n)
{
    memset(g, 0, sizeof *g);
    if (!gpu_driver_open(&g->cu, why, n)) return false;
    const gpu_driver *cu = &g->cu;
    int r = cu->Init(0);
    if (!r) r = cu->DriverGetVersion(&g->driver);
    if (!r) r = cu->DeviceGet(&g->id, 0);
    if (!r) r = cu->DeviceGetName(g->name, sizeof g->name, g->id);
    const struct {
        int which, *to;
    } want[] = {{CLOCK, &g->clock_khz}, {UNITS, &g->units}, {MEMORY_CLOCK, &g->memory_khz},  {L2, &g->l2_bytes},
                {MAJOR, &g->major},     {MINOR, &g->minor}, {SHARED_OPTIN, &g->shared_optin}};
    for (size_t i = 0; !r && i < sizeof want / sizeof *want; i++) r = cu->DeviceGetAttribute(want[i].to, want[i].which, g->id);
    if (!r) r = cu->DevicePrimaryCtxRetain(&g->context, g->id);
    if (!r) r = cu->CtxSetCurrent(g->context);
    if (!r) r = cu->StreamCreate(&g->stream, 0); /* one that waits for the null stream, on which buffers are set and filled: neither call does */
    for (int i = 0; i < 2 && !r; i++) r = cu->EventCreate(&g->event[i], 0);
    if (r) snprintf(why, n, "the driver does not open the device: %s (%d)", gpu_error(g, r), r);
    return !r;
}

void gpu_device_close(gpu_device *g)
{
    for (int i = 0; i < 2; i++)
        if (g->event[i]) g->cu.EventDestroy(g->event[i]);
    if (g->stream) g->cu.StreamDestroy(g->stream);
    if (g->context) g->cu.DevicePrimaryCtxRelease(g->id);
    g->context = g->stream = g->event[0] = g->event[1] = NULL;
}

static int buffer_make(gpu_device *d, gpu_buffer *b, int sets)
{
    int r = 0;
    for (b->nsets = 0; b->nsets < sets && !r; b->nsets += !r) {
        r = d->cu.MemAlloc(&b->set[b->nsets], (size_t)b->bytes + GPU_GUARD);
        if (!r) r = d->cu.MemsetD8(b->set[b->nsets] + (uint64_t)b->bytes, VERIFY_CANARY, GPU_GUARD);
    }
    return r;
}

int gpu_buffers_make(gpu_device *d, gpu_group *g)
{
    size_t available = 0, all = 0;
    int64_t bytes = 0;
    int r = d->cu.MemGetInfo(&available, &all);
    for (int i = 0; i < g->nbuffers; i++) bytes += g->buffers[i].bytes + GPU_GUARD;
    int64_t sets = bytes ? 3 * (int64_t)d->l2_bytes / bytes + 2 : 2, room = bytes ? (int64_t)(available / 10 * 9) / bytes : 2;
    if (sets > room) sets = room < 1 ? 1 : room;
    if (sets > GPU_SETS) sets = GPU_SETS;
    for (int i = 0; i < g->nbuffers && !r; i++) r = buffer_make(d, &g->buffers[i], (int)sets);
    return r;
}

void gpu_buffers_free(gpu_device *d, gpu_group *g)
{
    for (int i = 0; i < g->nbuffers; i++) {
        for (int s = 0; s < g->buffers[i].nsets; s++) d->cu.MemFree(g->buffers[i].set[s]);
        g->buffers[i].nsets = 0;
    }
}

int gpu_fill(gpu_device *d, gpu_group *g, const verify_source *s)
{
    int r = 0;
    for (int i = 0; i < g->nbuffers && !r; i++) {
        gpu_buffer *b = &g->buffers[i];
        if (b->input < 0) continue;
        void *host = malloc((size_t)b->bytes);
        if (!host) return 2; /* CUDA_ERROR_OUT_OF_MEMORY */
        verify_fill(s, b->dtype, b->input, b->elems, host);
        r = d->cu.MemcpyHtoD(b->set[0], host, (size_t)b->bytes);
        for (int k = 1; k < b->nsets && !r; k++) r = d->cu.MemcpyDtoD(b->set[k], b->set[0], (size_t)b->bytes);
        free(host);
    }
    return r;
}

static bool clustered(const gpu_step *s) { return s->cluster[0] * s->cluster[1] * s->cluster[2] > 1; }

int gpu_functions(gpu_device *d, gpu_kernel *k, void *module, char *why, size_t n)
{
    int r = 0;
    for (int i = 0; i < k->nsteps && !r; i++) {
        gpu_step *s = &k->steps[i];
        r = d->cu.ModuleGetFunction(&s->function, module, s->entry);
        if (r) snprintf(why, n, "no function %s: %s", s->entry, gpu_error(d, r));
        if (!r && (int)s->shared > d->shared_optin) {
            snprintf(why, n, "%s wants %u bytes of shared memory, the device gives a block %d", s->entry, s->shared, d->shared_optin);
            return 1;
        }
        if (!r && clustered(s) && !d->cu.LaunchKernelEx) {
            snprintf(why, n, "%s wants a cluster, the driver knows none", s->entry);
            return 1;
        }
        if (r || s->shared <= GPU_STATIC_SHARED) continue;
        r = d->cu.FuncSetAttribute(s->function, MAX_DYNAMIC_SHARED, (int)s->shared);
        if (r) snprintf(why, n, "%s may not have %u bytes of shared memory: %s", s->entry, s->shared, gpu_error(d, r));
    }
    return r;
}

typedef struct tensor_map {
    _Alignas(128) unsigned char bytes[128];
} tensor_map;

static int encode(gpu_device *d, const gpu_arg *a, gpu_ptr at, tensor_map *out)
{
    const gpu_map *m = &a->map;
    void *p = (void *)(uintptr_t)at;
    if (m->pixels && d->cu.TensorMapEncodeIm2col)
        return d->cu.TensorMapEncodeIm2col(out, m->dtype, (unsigned)m->rank, p, m->dims, m->strides, m->lower, m->upper, m->box[0], m->pixels,
                                           m->steps, 0, m->swizzle, m->l2, m->oob);
    if (m->pixels || !d->cu.TensorMapEncodeTiled) return 801; /* CUDA_ERROR_NOT_SUPPORTED */
    return d->cu.TensorMapEncodeTiled(out, m->dtype, (unsigned)m->rank, p, m->dims, m->strides, m->box, m->steps, 0, m->swizzle, m->l2, m->oob);
}

static int step(gpu_device *d, const gpu_group *g, const gpu_step *s, int set)
{
    tensor_map maps[GPU_ARGS];
    gpu_ptr pointer[GPU_ARGS];
    int32_t word[GPU_ARGS];
    void *params[GPU_ARGS + 1] = {NULL};
    int r;
    unsigned grid = s->grid[0];
    for (int i = 0; i < s->nargs; i++) {
        const gpu_arg *a = &s->args[i];
        const gpu_buffer *b = &g->buffers[a->buffer];
        pointer[i] = b->nsets ? b->set[set % b->nsets] : 0;
        word[i] = (int32_t)a->i;
        switch (a->kind) {
        case GPU_POINTER: params[i] = &pointer[i]; break;
        case GPU_I32: params[i] = &word[i]; break;
        case GPU_I64: params[i] = (void *)&a->i; break;
        case GPU_F32: params[i] = (void *)&a->f; break;
        case GPU_TENSOR_MAP:
            if ((r = encode(d, a, pointer[i], &maps[i]))) return r;
            params[i] = &maps[i];
        }
    }
    if (s->persistent) {
        unsigned most = (unsigned)d->units / s->cluster[0] * s->cluster[0];
        if (grid > most && most) grid = most;
    }
    if (!clustered(s))
        return d->cu.LaunchKernel(s->function, grid, s->grid[1], s->grid[2], s->block[0], s->block[1], s->block[2], s->shared, d->stream,
                                  params, NULL);
    gpu_launch_attribute at = {.id = GPU_ATTRIBUTE_CLUSTER};
    memcpy(at.value.dim, s->cluster, sizeof at.value.dim);
    gpu_launch_config c = {.grid = {grid, s->grid[1], s->grid[2]},
                           .block = {s->block[0], s->block[1], s->block[2]},
                           .shared = s->shared,
                           .stream = d->stream,
                           .attributes = &at,
                           .nattributes = 1};
    return d->cu.LaunchKernelEx(&c, s->function, params, NULL);
}

int gpu_launch(gpu_device *d, const gpu_group *g, const gpu_kernel *k, int set)
{
    int r = 0;
    for (int i = 0; i < k->nsteps && !r; i++) r = step(d, g, &k->steps[i], set);
    return r;
}
