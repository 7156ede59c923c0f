/* A stand-in for libcuda that holds its callers to the driver's rules: a context that is current, modules that are loaded, arguments of
 * each function, limits of grids and blocks, shared memory asked for before it is used, live pointers, tensor maps as documented, events
 * recorded before they are read. Modules are texts (README.md beside this file); their functions run on the host, on memory that only
 * this library gives. Time is counted. */
#include "tests/mock/emulate.h"
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY = 209,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    OUT_OF_RESOURCES = 701,
    LAUNCH_FAILED = 719,
    CAPTURE_UNSUPPORTED = 900
};
#define MAGIC 0x6b696c6e6d617073u
enum { UNITS = 132, L2 = 1 << 20, OPTIN = 232448, STATIC = 49152, ARCH = 90, DRIVER = 13000, PARAMS = 32, MAXN = 4096 };
#define MEMORY ((size_t)256 << 20)
#define BEHIND ((size_t)64 << 10) /* memory behind an allocation, of nobody: a kernel with a planted defect may read it, as it does on a device */

typedef struct block {
    unsigned char *p;
    size_t n;
    bool live;
} block;
typedef struct function {
    char name[128], body[16], params[256], so[400];
    int regs, threads, fixed_shared, allowed, cluster, launch;
    double us;
    int64_t elems;
} function;
typedef struct module {
    bool live;
    int n;
    function f[32];
} module;
typedef struct event {
    bool live, recorded;
    double at;
} event;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool initialised;
static int retained, context_object, stream_object[8], sticky, launches, counter;
static bool stream_live[8], stream_apart[8];
typedef struct setting { uint64_t at; size_t n; unsigned char v; } setting;
static setting settings[MAXN]; /* asked for on the null stream and not done yet */
static int nsettings;
static _Thread_local void *current, *below[16];
static _Thread_local int depth;
static block blocks[MAXN];
static int nblocks;
static size_t used;
static module *modules[MAXN];
static int nmodules;
static event events[64];
static int nevents;
static double clock_ms;

/* A broken rule says which, so that a test's log explains itself. */
static int no(int result, const char *why)
{
    fprintf(stderr, "mock: %s\n", why);
    return result;
}

__attribute__((destructor)) static void report(void)
{
    int live = 0;
    for (int i = 0; i < nblocks; i++) live += blocks[i].live;
    if (getenv("MOCK_CUDA_REPORT")) fprintf(stderr, "mock: %d launches, %d allocations live, %d contexts\n", launches, live, retained);
}

static int ready(void)
{
    if (!initialised) return no(NOT_INITIALIZED, "cuInit was not called");
    if (sticky) return sticky;
    if (!retained || current != &context_object) return no(INVALID_CONTEXT, "no context is current");
    return OK;
}

/* The live block that holds n bytes from p. */
static block *holds(uint64_t p, size_t n)
{
    for (int i = 0; i < nblocks; i++) {
        block *b = &blocks[i];
        uint64_t at = (uint64_t)(uintptr_t)b->p;
        if (b->live && p >= at && n <= b->n && p - at <= b->n - n) return b;
    }
    return NULL;
}

static int stream_ok(void *s)
{
    if (!s) return OK;
    for (int i = 0; i < 8; i++)
        if (s == &stream_object[i]) return stream_live[i] ? OK : no(INVALID_HANDLE, "a stream that was destroyed");
    return no(INVALID_HANDLE, "no such stream");
}

/* What was asked for on the null stream is done at the latest now. */
static void settle(void)
{
    for (int i = 0; i < nsettings; i++)
        if (holds(settings[i].at, settings[i].n)) memset((void *)(uintptr_t)settings[i].at, settings[i].v, settings[i].n);
    nsettings = 0;
}

/* Streams that are not created apart from the null stream wait for what stands on it; the others go ahead of it. */
static void meet(void *s)
{
    bool apart = false;
    for (int i = 0; i < 8; i++) apart |= s == &stream_object[i] && stream_apart[i];
    if (!apart) settle();
}

int cuGetErrorName(int r, const char **e)
{
    static const struct {
        int r;
        const char *name;
    } names[] = {{OK, "CUDA_SUCCESS"},
                 {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
                 {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
                 {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
                 {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},
                 {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
                 {NO_BINARY, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
                 {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
                 {NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
                 {NOT_READY, "CUDA_ERROR_NOT_READY"},
                 {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                 {OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i].r != r) continue;
        *e = names[i].name;
        return OK;
    }
    *e = NULL;
    return INVALID_VALUE;
}

int cuInit(unsigned flags) { return flags ? INVALID_VALUE : (initialised = true, OK); }
int cuDriverGetVersion(int *v) { return *v = DRIVER, OK; }
int cuDeviceGet(int *d, int i) { return !initialised ? NOT_INITIALIZED : i ? INVALID_DEVICE : (*d = 0, OK); }
int cuDeviceGetName(char *s, int n, int d) { return d ? INVALID_DEVICE : (snprintf(s, (size_t)n, "Mock GPU"), OK); }

int cuDeviceGetAttribute(int *v, int which, int d)
{
    static const int known[][2] = {{1, 1024},     {8, STATIC}, {10, 32},        {13, 1980000},   {16, UNITS},
                                   {36, 2619000}, {38, L2},    {75, ARCH / 10}, {76, ARCH % 10}, {97, OPTIN}};
    if (d) return INVALID_DEVICE;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i][0] != which) continue;
        *v = known[i][1];
        return OK;
    }
    return no(INVALID_VALUE, "a device attribute that this mock does not know");
}

int cuDevicePrimaryCtxRetain(void **c, int d)
{
    return !initialised ? NOT_INITIALIZED : d ? INVALID_DEVICE : (retained++, *c = &context_object, OK);
}

int cuDevicePrimaryCtxRelease_v2(int d)
{
    if (d || !retained) return no(INVALID_CONTEXT, "a context is released that nobody retains");
    if (--retained) return OK;
    for (int i = 0; i < nblocks; i++) blocks[i].live = false;
    for (int i = 0; i < nmodules; i++) modules[i]->live = false;
    used = 0;
    return OK;
}

int cuCtxSetCurrent(void *c)
{
    if (c && (c != &context_object || !retained)) return no(INVALID_CONTEXT, "no such context");
    current = c;
    return OK;
}
int cuCtxGetCurrent(void **c) { return *c = current, initialised ? OK : NOT_INITIALIZED; }
int cuCtxPushCurrent_v2(void *c)
{
    void *before = current;
    int r = depth == 16 ? OUT_OF_MEMORY : cuCtxSetCurrent(c);
    if (!r) below[depth++] = before;
    return r;
}
int cuCtxPopCurrent_v2(void **c)
{
    if (!current) return no(INVALID_CONTEXT, "nothing was pushed");
    if (c) *c = current;
    current = depth ? below[--depth] : NULL;
    return OK;
}
int cuCtxSynchronize(void) { return settle(), ready(); }
int cuCtxGetDevice(int *d) { return !current ? no(INVALID_CONTEXT, "no context is current") : (*d = 0, OK); }

int cuMemGetInfo_v2(size_t *free_bytes, size_t *all) { return *free_bytes = MEMORY - used, *all = MEMORY, ready(); }

int cuMemAlloc_v2(uint64_t *p, size_t n)
{
    int r = ready();
    if (r) return r;
    if (!n) return no(INVALID_VALUE, "an allocation of no bytes");
    if (n > MEMORY - used || nblocks == MAXN) return OUT_OF_MEMORY;
    size_t bytes = (n + 255) / 256 * 256 + BEHIND;
    unsigned char *q = aligned_alloc(256, bytes);
    if (!q) return OUT_OF_MEMORY;
    memset(q, 0xee, bytes);
    blocks[nblocks++] = (block){q, n, true};
    used += n;
    *p = (uint64_t)(uintptr_t)q;
    return OK;
}

int cuMemFree_v2(uint64_t p)
{
    int r = ready();
    if (r) return r;
    block *b = holds(p, 1); /* not the one that ends where this begins */
    if (!b || (uint64_t)(uintptr_t)b->p != p) return no(INVALID_VALUE, "a pointer is freed that is no live allocation");
    b->live = false; /* the address is never given again, so that a late use is seen */
    memset(b->p, 0xdd, b->n);
    used -= b->n;
    return OK;
}
int cuMemAllocAsync(uint64_t *p, size_t n, void *s) { return stream_ok(s) ? INVALID_HANDLE : cuMemAlloc_v2(p, n); }
int cuMemFreeAsync(uint64_t p, void *s) { return stream_ok(s) ? INVALID_HANDLE : cuMemFree_v2(p); }

int cuMemcpyHtoD_v2(uint64_t d, const void *s, size_t n)
{
    int r = ready();
    if (r) return r;
    if (!holds(d, n)) return no(INVALID_VALUE, "a copy to memory that is not all there");
    settle();
    memcpy((void *)(uintptr_t)d, s, n);
    return OK;
}
int cuMemcpyDtoH_v2(void *d, uint64_t s, size_t n)
{
    int r = ready();
    if (r) return r;
    if (!holds(s, n)) return no(INVALID_VALUE, "a copy from memory that is not all there");
    settle();
    memcpy(d, (void *)(uintptr_t)s, n);
    return OK;
}
int cuMemcpyDtoD_v2(uint64_t d, uint64_t s, size_t n)
{
    int r = ready();
    if (r) return r;
    if (!holds(s, n) || !holds(d, n)) return no(INVALID_VALUE, "a copy between memory that is not all there");
    settle();
    memmove((void *)(uintptr_t)d, (void *)(uintptr_t)s, n);
    return OK;
}
int cuMemcpyDtoDAsync_v2(uint64_t d, uint64_t s, size_t n, void *stream)
{
    int r = stream_ok(stream);
    return r ? r : cuMemcpyDtoD_v2(d, s, n);
}
int cuMemsetD8_v2(uint64_t d, unsigned char v, size_t n)
{
    int r = ready();
    if (r) return r;
    if (!holds(d, n)) return no(INVALID_VALUE, "memory is set that is not all there");
    if (nsettings == MAXN) settle();
    settings[nsettings++] = (setting){d, n, v}; /* as late as a device may do it: the call does not wait */
    return OK;
}

static bool word(const char *line, const char *key, char *out, size_t cap)
{
    const char *p = strstr(line, key);
    size_t n = p ? strcspn(p + strlen(key), " \n") : 0;
    if (!p || n >= cap) return false;
    memcpy(out, p + strlen(key), n);
    out[n] = 0;
    return true;
}
static double number(const char *line, const char *key, double fallback)
{
    char x[32];
    return word(line, key, x, sizeof x) ? atof(x) : fallback;
}

int cuModuleLoadData(void **m, const void *image)
{
    int r = ready(), arch = ARCH;
    if (r) return r;
    const char *text = image;
    if (strncmp(text, "MOCK", 4)) return no(INVALID_IMAGE, "an image that is none of this mock");
    if (sscanf(text, "MOCK arch=%d", &arch) == 1 && arch != ARCH) return NO_BINARY;
    module *x = calloc(1, sizeof *x);
    if (!x || nmodules == MAXN) return OUT_OF_MEMORY;
    x->live = true;
    for (const char *l = strchr(text, '\n'); l && x->n < 32; l = strchr(l + 1, '\n')) {
        char line[1024];
        snprintf(line, sizeof line, "%.*s", (int)strcspn(l + 1, "\n"), l + 1);
        if (strncmp(line, "fn ", 3)) continue;
        function *f = &x->f[x->n++];
        sscanf(line, "fn %127s", f->name);
        word(line, " body=", f->body, sizeof f->body);
        word(line, " params=", f->params, sizeof f->params);
        word(line, " so=", f->so, sizeof f->so);
        f->launch = (int)number(line, " launch=", 0);
        f->regs = (int)number(line, " regs=", 32), f->threads = (int)number(line, " threads=", 1024);
        f->fixed_shared = (int)number(line, " static=", 0), f->cluster = (int)number(line, " cluster=", 0);
        f->us = number(line, " us=", 1), f->elems = (int64_t)number(line, " elems=", 0);
        f->allowed = STATIC - f->fixed_shared;
    }
    modules[nmodules++] = x;
    *m = x;
    return OK;
}

static bool known(const module *m)
{
    for (int i = 0; i < nmodules; i++)
        if (modules[i] == m) return m->live;
    return false;
}
int cuModuleUnload(void *m)
{
    int r = ready();
    if (r) return r;
    if (!known(m)) return no(INVALID_HANDLE, "a module that is not loaded");
    ((module *)m)->live = false;
    return OK;
}
int cuModuleGetFunction(void **f, void *m, const char *name)
{
    int r = ready();
    if (r) return r;
    if (!known(m)) return no(INVALID_HANDLE, "a module that is not loaded");
    for (int i = 0; i < ((module *)m)->n; i++) {
        if (strcmp(((module *)m)->f[i].name, name)) continue;
        *f = &((module *)m)->f[i];
        return OK;
    }
    return NOT_FOUND;
}
static bool callable(const function *f)
{
    for (int i = 0; i < nmodules; i++)
        if (f >= modules[i]->f && f < modules[i]->f + 32) return modules[i]->live;
    return false;
}
int cuFuncSetAttribute(void *p, int which, int value)
{
    function *f = p;
    int r = ready();
    if (r) return r;
    if (!callable(f)) return no(INVALID_HANDLE, "a function whose module is gone");
    if (which != 8) return INVALID_VALUE;
    if (value < 0 || value + f->fixed_shared > OPTIN) return no(INVALID_VALUE, "more shared memory than the device gives a block");
    f->allowed = value;
    return OK;
}
int cuFuncGetAttribute(int *v, int which, void *p)
{
    const function *f = p;
    if (!callable(f)) return no(INVALID_HANDLE, "a function whose module is gone");
    *v = which == 0 ? f->threads : which == 1 ? f->fixed_shared : which == 4 ? f->regs : which == 8 ? f->allowed : 0;
    return OK;
}

/* A kernel's own text, where this library has the emulator in it. */
#pragma weak mock_emulate
static int emulate(const function *f, const unsigned g[3], const unsigned b[3], unsigned cluster, void **params)
{
    if (!mock_emulate) return sticky = no(LAUNCH_FAILED, "this library emulates nothing: libcuda_emu.so does");
    const char *why = mock_emulate(f->so, f->launch, g[0], b[0], cluster, f->params, params);
    return why ? sticky = no(LAUNCH_FAILED, why) : OK;
}

/* What functions do, on f32 arrays of `elems`, the last pointer's. A pointer that does not hold them is found by the device, after the
 * launch. */
static int execute(const function *f, void **params)
{
    uint64_t p[4] = {0};
    int n = 0;
    const char *t = f->params;
    for (int i = 0; *t && n < 4; i++, t += strcspn(t, ","), t += *t == ',') {
        if (!strncmp(t, "ptr", 3))
            memcpy(&p[n++], params[i], 8);
        else if (!strncmp(t, "tmap", 4))
            p[n++] = ((const mock_map *)params[i])->address;
    }
    bool add = strcmp(f->body, "none") != 0;
    if (!strcmp(f->body, "hang"))
        for (;;) pause();
    if (!strcmp(f->body, "crash")) raise(SIGSEGV);
    for (int i = 0; add && i < n; i++)
        if (!holds(p[i], (size_t)f->elems * 4)) return sticky = no(ILLEGAL_ADDRESS, "a kernel touches memory that is not all there");
    float *out = (float *)(uintptr_t)p[n - 1], *a = (float *)(uintptr_t)p[0], *b = (float *)(uintptr_t)p[n > 2 ? 1 : 0];
    int64_t last = !strcmp(f->body, "partial") ? f->elems - 1 : f->elems;
    for (int64_t i = 0; add && i < last; i++) out[i] = a[i] + b[i];
    if (!strcmp(f->body, "wrong")) out[f->elems / 2] += 1;
    if (!strcmp(f->body, "racy")) out[f->elems / 2] *= 1 + 1e-7f * (float)(counter++ % 2 ? 2 : 0);
    if (!strcmp(f->body, "overrun")) ((unsigned char *)(out + f->elems))[0] = 0;
    return OK;
}

static int check_params(const function *f, void **params)
{
    const char *t = f->params;
    for (int i = 0; *t; i++, t += strcspn(t, ","), t += *t == ',') {
        if (!params || !params[i]) return no(INVALID_VALUE, "an argument is missing");
        if (!strncmp(t, "tmap", 4)) {
            const mock_map *m = params[i];
            if ((uintptr_t)m % 64) return no(INVALID_VALUE, "a tensor map that is not aligned");
            if (m->magic != MAGIC) return no(INVALID_VALUE, "an argument that is no tensor map");
        }
    }
    return OK;
}

static int check_shape(const function *f, const unsigned g[3], const unsigned b[3], unsigned shared)
{
    uint64_t threads = (uint64_t)b[0] * b[1] * b[2];
    if (!g[0] || !g[1] || !g[2] || !threads) return no(INVALID_VALUE, "a dimension of 0");
    if (g[0] > 0x7fffffff || g[1] > 65535 || g[2] > 65535) return no(INVALID_VALUE, "a grid that is too large");
    if (b[0] > 1024 || b[1] > 1024 || b[2] > 64 || threads > 1024) return no(INVALID_VALUE, "a block that is too large");
    if (threads > (uint64_t)f->threads || threads * (uint64_t)f->regs > 65536)
        return no(OUT_OF_RESOURCES, "more threads than the function was made for");
    if ((int)shared > f->allowed) return no(INVALID_VALUE, "shared memory that was not asked for with cuFuncSetAttribute");
    return OK;
}

/* Launches of a stream that is captured are kept with their arguments' values, and done when the graph is launched. */
typedef struct node {
    function *f;
    unsigned g[3], b[3], shared, cluster;
    _Alignas(64) unsigned char value[PARAMS][128]; /* as tensor maps are */
    void *params[PARAMS + 1];
    struct node *next;
} node;
typedef struct graph {
    node *first, **end;
    bool live, exec;
} graph;
static graph graphs[MAXN];
static int ngraphs;
static void *captured;
static graph *capturing;

static int keep(function *f, const unsigned g[3], const unsigned b[3], unsigned shared, void **params, unsigned cluster)
{
    node *n = aligned_alloc(_Alignof(node), sizeof *n);
    int i = 0;
    if (!n) return OUT_OF_MEMORY;
    *n = (node){.f = f, .g = {g[0], g[1], g[2]}, .b = {b[0], b[1], b[2]}, .shared = shared, .cluster = cluster};
    for (const char *t = f->params; *t && i < PARAMS; i++, t += strcspn(t, ","), t += *t == ',') {
        size_t size = !strncmp(t, "tmap", 4) ? 128 : !strncmp(t, "i32", 3) || !strncmp(t, "f32", 3) ? 4 : 8;
        memcpy(n->value[i], params[i], size);
        n->params[i] = n->value[i];
    }
    *capturing->end = n;
    capturing->end = &n->next;
    return OK;
}

static int launch(function *f, const unsigned g[3], const unsigned b[3], unsigned shared, void *stream, void **params, unsigned cluster)
{
    pthread_mutex_lock(&lock);
    int r = ready();
    if (!r && !callable(f)) r = no(INVALID_HANDLE, "a function whose module is gone");
    if (!r) r = stream_ok(stream);
    if (!r) r = check_shape(f, g, b, shared);
    if (!r && f->cluster && (int)cluster != f->cluster) r = no(INVALID_VALUE, "another cluster than the function was made for");
    if (!r) r = check_params(f, params);
    if (!r && captured && stream == captured) {
        r = keep(f, g, b, shared, params, cluster);
    } else if (!r) {
        launches++;
        meet(stream);
        clock_ms += f->us / 1e3;
        if (strcmp(f->body, "emulate")) execute(f, params); /* what goes wrong on the device shows at the next call */
        else emulate(f, g, b, cluster ? cluster : 1, params);
    }
    pthread_mutex_unlock(&lock);
    return r;
}

int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream,
                   void **params, void **extra)
{
    if (params && extra) return no(INVALID_VALUE, "arguments given twice");
    return launch(f, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, shared, stream, params, 1);
}

struct attribute {
    int id;
    char pad[4];
    union {
        unsigned dim[3];
        char raw[64];
    } value;
};
struct config {
    unsigned grid[3], block[3], shared;
    void *stream;
    struct attribute *attributes;
    unsigned n;
};
int cuLaunchKernelEx(const struct config *c, void *f, void **params, void **extra)
{
    unsigned cluster = 1;
    (void)extra;
    for (unsigned i = 0; i < c->n; i++) {
        const unsigned *d = c->attributes[i].value.dim;
        if (c->attributes[i].id != 4) return no(INVALID_VALUE, "a launch attribute that this mock does not know");
        cluster = d[0] * d[1] * d[2];
        if (!cluster || cluster > 8) return no(INVALID_VALUE, "a cluster of no or more than 8 blocks");
        for (int k = 0; k < 3; k++)
            if (c->grid[k] % d[k]) return no(INVALID_VALUE, "a grid that is no multiple of the cluster");
    }
    return launch(f, c->grid, c->block, c->shared, c->stream, params, cluster);
}

int cuStreamBeginCapture_v2(void *s, int mode)
{
    int r = ready();
    if (!r) r = stream_ok(s);
    if (r || mode < 0 || mode > 2 || captured || ngraphs == MAXN) return r ? r : no(INVALID_VALUE, "a capture that cannot begin");
    if (!s) return no(CAPTURE_UNSUPPORTED, "the null stream cannot be captured");
    capturing = &graphs[ngraphs++];
    *capturing = (graph){.live = true};
    capturing->end = &capturing->first;
    captured = s;
    return OK;
}
int cuStreamEndCapture(void *s, void **out)
{
    if (!captured || s != captured) return no(INVALID_VALUE, "a stream that is not captured");
    *out = capturing;
    captured = NULL;
    return OK;
}
static graph *graph_of(void *p, bool exec)
{
    graph *x = p;
    return x >= graphs && x < graphs + ngraphs && x->live && x->exec == exec ? x : NULL;
}
int cuGraphInstantiateWithFlags(void **out, void *from, unsigned long long flags)
{
    graph *x = graph_of(from, false);
    if (!x || flags || ngraphs == MAXN) return no(INVALID_VALUE, "no such graph");
    graphs[ngraphs] = *x; /* its nodes are never given back, so that both can have them */
    graphs[ngraphs].exec = true;
    *out = &graphs[ngraphs++];
    return OK;
}
int cuGraphLaunch(void *p, void *stream)
{
    graph *x = graph_of(p, true);
    int r = x ? ready() : no(INVALID_HANDLE, "no such executable graph");
    for (node *n = x ? x->first : NULL; n && !r; n = n->next) r = launch(n->f, n->g, n->b, n->shared, stream, n->params, n->cluster);
    return r;
}
static int graph_destroy(void *p, bool exec)
{
    graph *x = graph_of(p, exec);
    if (!x) return no(INVALID_HANDLE, "no such graph");
    x->live = false;
    return OK;
}
int cuGraphDestroy(void *p) { return graph_destroy(p, false); }
int cuGraphExecDestroy(void *p) { return graph_destroy(p, true); }

int cuStreamCreate(void **s, unsigned flags)
{
    int r = ready(), i = 0;
    if (r || flags > 1) return r ? r : INVALID_VALUE;
    while (i < 8 && stream_live[i]) i++;
    if (i == 8) return OUT_OF_MEMORY;
    stream_live[i] = true;
    stream_apart[i] = flags == 1;
    *s = &stream_object[i];
    return OK;
}
int cuStreamSynchronize(void *s)
{
    int r = ready();
    if (!r && !(r = stream_ok(s))) meet(s);
    return r;
}
int cuStreamDestroy_v2(void *s)
{
    int r = stream_ok(s);
    if (!r && s) stream_live[(int *)s - stream_object] = false;
    return r;
}

static event *event_of(void *e)
{
    event *x = e;
    return x >= events && x < events + nevents && x->live ? x : NULL;
}
int cuEventCreate(void **e, unsigned flags)
{
    int r = ready();
    if (r || flags || nevents == 64) return r ? r : INVALID_VALUE;
    events[nevents] = (event){true, false, 0};
    *e = &events[nevents++];
    return OK;
}
int cuEventRecord(void *e, void *s)
{
    int r = ready();
    event *x = event_of(e);
    if (r) return r;
    if (!x) return no(INVALID_HANDLE, "no such event");
    if ((r = stream_ok(s))) return r;
    x->recorded = true, x->at = clock_ms;
    return OK;
}
int cuEventSynchronize(void *e) { return ready() ? ready() : event_of(e) ? OK : no(INVALID_HANDLE, "no such event"); }
int cuEventElapsedTime(float *ms, void *a, void *b)
{
    event *x = event_of(a), *y = event_of(b);
    int r = ready();
    if (r) return r;
    if (!x || !y) return no(INVALID_HANDLE, "no such event");
    if (!x->recorded || !y->recorded) return no(INVALID_HANDLE, "an event that was not recorded");
    *ms = (float)(y->at - x->at);
    return OK;
}
int cuEventDestroy_v2(void *e)
{
    event *x = event_of(e);
    if (!x) return no(INVALID_HANDLE, "no such event");
    x->live = false;
    return OK;
}

/* The rules that cuda.h documents for tiled maps. */
int cuTensorMapEncodeTiled(void *out, int dtype, unsigned rank, void *address, const uint64_t *dims, const uint64_t *strides,
                           const unsigned *box, const unsigned *steps, int interleave, int swizzle, int l2, int oob)
{
    static const unsigned bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4};
    if (dtype < 0 || dtype > 11 || rank < 1 || rank > 5 || interleave || swizzle < 0 || swizzle > 3 || l2 < 0 || l2 > 3 || oob < 0 ||
        oob > 1)
        return no(INVALID_VALUE, "a tensor map with a value that is none");
    if ((uintptr_t)out % 64) return no(INVALID_VALUE, "a tensor map's place is aligned to 64 bytes");
    if ((uintptr_t)address % 16 || !holds((uint64_t)(uintptr_t)address, 1))
        return no(INVALID_VALUE, "a tensor map of an address that is not aligned or not live");
    for (unsigned i = 0; i < rank; i++) {
        if (!dims[i] || dims[i] > UINT64_C(1) << 32 || !box[i] || box[i] > 256 || steps[i] < 1 || steps[i] > 8)
            return no(INVALID_VALUE, "dims, box or steps out of range");
        if (i && (strides[i - 1] % 16 || strides[i - 1] >= UINT64_C(1) << 40))
            return no(INVALID_VALUE, "a stride that is no multiple of 16 bytes");
    }
    unsigned row = box[0] * bytes[dtype];
    if (row % 16 || (swizzle && row > 16u << swizzle)) return no(INVALID_VALUE, "a box whose rows do not fit the swizzle");
    mock_map m = {.magic = MAGIC, .address = (uint64_t)(uintptr_t)address, .rank = (uint8_t)rank, .bytes = (uint8_t)bytes[dtype],
                  .swizzle = (uint8_t)swizzle};
    for (unsigned i = 0; i < rank; i++) {
        m.dims[i] = dims[i], m.box[i] = (uint16_t)box[i];
        if (i) m.strides[i - 1] = strides[i - 1];
    }
    memset(out, 0x5a, 128);
    memcpy(out, &m, sizeof m);
    return OK;
}

int cuTensorMapEncodeIm2col(void *out, int dtype, unsigned rank, void *address, const uint64_t *dims, const uint64_t *strides, const int *lower,
                            const int *upper, unsigned channels, unsigned pixels, const unsigned *steps, int interleave, int swizzle, int l2, int oob)
{
    unsigned box[5] = {channels, 1, 1, 1, 1};
    if (rank < 3 || rank > 5 || channels > 256 || !pixels || pixels > 1024)
        return no(INVALID_VALUE, "a window of no 3 to 5 dimensions, or too large");
    int most = rank == 3 ? 32768 : rank == 4 ? 128 : 16;
    for (unsigned i = 0; i + 2 < rank; i++) {
        if (lower[i] < -most || lower[i] >= most || upper[i] < -most || upper[i] >= most) return no(INVALID_VALUE, "a corner that is out of range");
        if ((int64_t)dims[1 + i] - 1 + upper[i] < lower[i]) return no(INVALID_VALUE, "corners with no pixel between them");
    }
    int r = cuTensorMapEncodeTiled(out, dtype, rank, address, dims, strides, box, steps, interleave, swizzle, l2, oob);
    if (r || rank != 4) return r; /* of others nothing is emulated */
    mock_map *m = out;
    m->pixels = (uint16_t)pixels;
    for (int i = 0; i < 2; i++)
        m->lower[i] = (int16_t)lower[i], m->upper[i] = (int16_t)upper[i], m->step[i] = (uint8_t)steps[1 + i];
    return OK;
}
