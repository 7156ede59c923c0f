/* A model on a GPU: libcuda at run time, buffers for inputs and outputs, the calls of the model's launcher (docs/abi.md). */
#include "api/client/cuda.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* X(name, symbol, (arguments)): what is called of the driver beside what the launcher calls. */
#define DRIVER(X) \
    X(init, "cuInit", (unsigned)) \
    X(error_name, "cuGetErrorName", (int, const char **)) \
    X(device, "cuDeviceGet", (int *, int)) \
    X(current_device, "cuCtxGetDevice", (int *)) \
    X(attribute, "cuDeviceGetAttribute", (int *, int, int)) \
    X(retain, "cuDevicePrimaryCtxRetain", (void **, int)) \
    X(give_back, "cuDevicePrimaryCtxRelease_v2", (int)) \
    X(current, "cuCtxGetCurrent", (void **)) \
    X(push, "cuCtxPushCurrent_v2", (void *)) \
    X(pop, "cuCtxPopCurrent_v2", (void **)) \
    X(wait, "cuCtxSynchronize", (void)) \
    X(alloc, "cuMemAlloc_v2", (uint64_t *, size_t)) \
    X(release, "cuMemFree_v2", (uint64_t)) \
    X(up, "cuMemcpyHtoD_v2", (uint64_t, const void *, size_t)) \
    X(down, "cuMemcpyDtoH_v2", (void *, uint64_t, size_t)) \
    X(event, "cuEventCreate", (void **, unsigned)) \
    X(record, "cuEventRecord", (void *, void *)) \
    X(reach, "cuEventSynchronize", (void *)) \
    X(between, "cuEventElapsedTime", (float *, void *, void *)) \
    X(drop, "cuEventDestroy_v2", (void *))

enum { MAJOR = 75, MINOR = 76 }; /* attributes of a device: compute capability */

struct cuda_model {
#define MEMBER(name, symbol, args) int(*name) args;
    DRIVER(MEMBER)
    int32_t (*load)(void **, const void *const *, const void *const *);
    int32_t (*launch)(void *, const void *const *, void *const *, void *, void *);
    int32_t (*step)(void *, int32_t, const void *const *, void *const *, void *, void *);
    int32_t (*unload)(void *);
    const char *(*error)(void);
    cuda_parts p;
    void *library, *context, *model;
    int device_number;
    bool retained;
    uint64_t *buffers; /* inputs, outputs */
    const void **inputs;
    void **outputs;
};

static int trouble(const cuda_model *m, int result, const char *what, kiln_client_error *e)
{
    const char *name = NULL;
    if (m->error_name) m->error_name(result, &name);
    snprintf(e->message, sizeof e->message, "%s: %s (%d)", what, name ? name : "CUDA error", result);
    return result;
}

static bool find_driver(cuda_model *m, kiln_client_error *e)
{
    const char *named = getenv("KILN_LIBCUDA"), *name = named && *named ? named : "libcuda.so.1";
    m->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!m->library) {
        snprintf(e->message, sizeof e->message, "the model is for a GPU (%.20s), and this machine has no CUDA driver: %.300s", m->p.arch, dlerror());
        return false;
    }
#define FIND(member, symbol, args) \
    if (!(*(void **)&m->member = dlsym(m->library, symbol))) { \
        snprintf(e->message, sizeof e->message, "%.200s lacks %s: a newer driver is needed", name, symbol); \
        return false; \
    }
    DRIVER(FIND)
    int r = m->init(0);
    return !r || (trouble(m, r, "the CUDA driver does not start", e), false);
}

static bool find_launcher(cuda_model *m, kiln_client_error *e)
{
    const struct { const char *name; void **to; } want[] = {{"load", (void **)&m->load}, {"launch", (void **)&m->launch}, {"step", (void **)&m->step},
                                                            {"unload", (void **)&m->unload}, {"error", (void **)&m->error}};
    int32_t (*version)(void);
    *(void **)&version = dlsym(m->p.so, "kiln_abi_version");
    bool ok = version && version() == 1;
    for (size_t i = 0; i < sizeof want / sizeof *want && ok; i++) {
        char symbol[160];
        snprintf(symbol, sizeof symbol, "%s_%s", m->p.entry, want[i].name);
        ok = (*want[i].to = dlsym(m->p.so, symbol)) != NULL;
    }
    if (!ok) snprintf(e->message, sizeof e->message, "entry.so does not speak ABI 1");
    return ok;
}

/* "sm_90a" wants 9.0 exactly, "sm_80" 8.x with x at least 0. */
static bool fits(const char *arch, int major, int minor)
{
    int n = 0, used = 0;
    if (sscanf(arch, "sm_%d%n", &n, &used) < 1) return false;
    return n / 10 == major && (arch[used] ? n % 10 == minor : n % 10 <= minor);
}

static bool choose_context(cuda_model *m, kiln_client_error *e)
{
    int r, major = 0, minor = 0;
    if ((r = m->current(&m->context))) return trouble(m, r, "the current context cannot be asked", e), false;
    if (m->context) r = m->current_device(&m->device_number);
    else if (!(r = m->device(&m->device_number, 0)) && !(r = m->retain(&m->context, m->device_number))) m->retained = true;
    if (!r && !(r = m->attribute(&major, MAJOR, m->device_number))) r = m->attribute(&minor, MINOR, m->device_number);
    if (r) return trouble(m, r, "no GPU can be used", e), false;
    if (fits(m->p.arch, major, minor)) return true;
    snprintf(e->message, sizeof e->message, "the GPU of this machine is sm_%d%d, and the model is for %.20s: compile it for that GPU's target",
             major, minor, m->p.arch);
    return false;
}

static bool make_buffers(cuda_model *m, kiln_client_error *e)
{
    int n = m->p.nin + m->p.nout;
    m->buffers = calloc((size_t)n + 1, sizeof *m->buffers);
    m->inputs = calloc((size_t)n + 1, sizeof *m->inputs);
    m->outputs = calloc((size_t)n + 1, sizeof *m->outputs);
    if (!m->buffers || !m->inputs || !m->outputs) return snprintf(e->message, sizeof e->message, "out of memory"), false;
    for (int i = 0; i < n; i++) {
        int64_t bytes = i < m->p.nin ? m->p.in[i].bytes : m->p.out[i - m->p.nin].bytes;
        int r = m->alloc(&m->buffers[i], (size_t)bytes + 16);
        if (r) return trouble(m, r, "no device memory for inputs and outputs", e), false;
        if (i < m->p.nin) m->inputs[i] = (const void *)(uintptr_t)m->buffers[i];
        else m->outputs[i - m->p.nin] = (void *)(uintptr_t)m->buffers[i];
    }
    return true;
}

cuda_model *cuda_open(const cuda_parts *p, kiln_client_error *e)
{
    cuda_model *m = calloc(1, sizeof *m);
    if (!m) return snprintf(e->message, sizeof e->message, "out of memory"), NULL;
    m->p = *p;
    bool ok = find_driver(m, e) && find_launcher(m, e) && choose_context(m, e);
    int r = ok ? m->push(m->context) : 0;
    if (r) ok = (trouble(m, r, "the context cannot be used", e), false);
    if (ok && (r = m->load(&m->model, p->images, p->weights))) {
        snprintf(e->message, sizeof e->message, "the model cannot be loaded: %.300s (%d)", m->error(), r);
        ok = false;
    }
    ok = ok && make_buffers(m, e);
    if (m->context && m->pop) m->pop(NULL);
    if (ok) return m;
    cuda_close(m);
    return NULL;
}

void cuda_close(cuda_model *m)
{
    if (!m) return;
    if (m->model) m->unload(m->model);
    if (m->buffers && !m->push(m->context)) {
        for (int i = 0; i < m->p.nin + m->p.nout; i++)
            if (m->buffers[i]) m->release(m->buffers[i]);
        m->pop(NULL);
    }
    if (m->retained) m->give_back(m->device_number);
    free(m->buffers);
    free(m->inputs);
    free(m->outputs);
    free(m); /* the driver stays loaded: it does not bear being loaded twice */
}

static int failed(const cuda_model *m, int r, kiln_client_error *e)
{
    if (r) snprintf(e->message, sizeof e->message, "%.300s (%d)", m->error(), r);
    return r;
}

int cuda_launch(cuda_model *m, const void *const *inputs, void *const *outputs, void *stream, kiln_client_error *e)
{
    int r = m->push(m->context);
    if (r) return trouble(m, r, "the context cannot be used", e);
    r = failed(m, m->launch(m->model, inputs, outputs, NULL, stream), e);
    m->pop(NULL);
    return r;
}

static int timed(cuda_model *m, double *us, int n, kiln_client_error *e)
{
    void *from = NULL, *to = NULL;
    float ms = 0;
    int r = m->event(&from, 0), s = 0;
    if (!r) r = m->event(&to, 0);
    for (int i = 0; i < n && !r; i++) {
        if ((r = m->record(from, NULL)) || (s = m->step(m->model, i, m->inputs, m->outputs, NULL, NULL))) break;
        if ((r = m->record(to, NULL)) || (r = m->reach(to)) || (r = m->between(&ms, from, to))) break;
        us[i] = 1e3 * (double)ms;
    }
    if (from) m->drop(from);
    if (to) m->drop(to);
    return s ? failed(m, s, e) : r ? trouble(m, r, "the steps cannot be timed", e) : 0;
}

int cuda_run(cuda_model *m, const void *const *inputs, void *const *outputs, double *us, int n, kiln_client_error *e)
{
    int r = m->push(m->context);
    if (r) return trouble(m, r, "the context cannot be used", e);
    for (int i = 0; i < m->p.nin && !r; i++)
        if ((r = m->up(m->buffers[i], inputs[i], (size_t)m->p.in[i].bytes))) trouble(m, r, "an input cannot be copied to the device", e);
    if (!r) r = us ? timed(m, us, n, e) : failed(m, m->launch(m->model, m->inputs, m->outputs, NULL, NULL), e);
    if (!r && (r = m->wait())) trouble(m, r, "the device stopped", e);
    for (int i = 0; i < m->p.nout && !r; i++)
        if ((r = m->down(outputs[i], m->buffers[m->p.nin + i], (size_t)m->p.out[i].bytes))) trouble(m, r, "an output cannot be copied back", e);
    m->pop(NULL);
    return r;
}
