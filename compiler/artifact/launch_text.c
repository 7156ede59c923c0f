/* How kernels are launched through the driver, as C text (docs/abi.md): types and tables, the driver's functions, a launch. */
#include "artifact/launch_text.h"
#include <string.h>

static const char types[] =
    "typedef int i32;\ntypedef long long i64;\ntypedef unsigned char u8;\ntypedef unsigned short u16;\ntypedef unsigned int u32;\n"
    "typedef unsigned long long u64;\n#define KN_API __attribute__((visibility(\"default\")))\n"
    "extern void *dlopen(const char *, int);\nextern void *dlsym(void *, const char *);\nextern char *getenv(const char *);\n"
    "\n/* The driver's own structures: a launch attribute (4: cluster), a launch. */\n"
    "typedef struct k_attribute {\n    i32 id;\n    u8 pad[4];\n    union { u32 dim[3]; u8 raw[64]; } v;\n} k_attribute;\n"
    "typedef struct k_config {\n    u32 grid[3], block[3], shared;\n    void *stream;\n    k_attribute *attributes;\n    u32 n;\n} "
    "k_config;\n"
    "typedef struct k_map {\n    i32 rank, dtype, swizzle, l2, oob;\n    u64 dims[5], strides[5];\n    u32 box[5], pixels;\n"
    "    i32 lower[2], upper[2];\n    u32 steps[5];\n} k_map;\n"
    "typedef struct k_step {\n    const char *entry;\n    u32 grid, threads, dynamic, cluster;\n    i32 nargs;\n    const i32 *args;\n"
    "    const k_map *maps;\n} k_step;\n"
    "/* Launches first to any-1; for addresses that are no multiples of 16, or (modern) a driver without tensor maps, any to end-1. Arguments are\n"
    " * numbers of tensors: inputs, outputs, then temporaries, which lie in the workspace. */\n"
    "typedef struct k_kernel {\n    i32 first, any, end, modern, tensors, ntemps, nspare;\n    const i64 *temps, *spare;\n} k_kernel;\n";

/* The rows are the driver's functions; 0: an older driver may lack it. */
static const char rows_of_all[] =
    "\n#define K_DRIVER(X) \\\n"
    "    X(Init, \"cuInit\", 1, (u32)) \\\n"
    "    X(ErrorName, \"cuGetErrorName\", 1, (int, const char **)) \\\n"
    "    X(Current, \"cuCtxGetCurrent\", 1, (void **)) \\\n"
    "    X(Push, \"cuCtxPushCurrent_v2\", 1, (void *)) \\\n"
    "    X(Pop, \"cuCtxPopCurrent_v2\", 1, (void **)) \\\n"
    "    X(Retain, \"cuDevicePrimaryCtxRetain\", 1, (void **, int)) \\\n"
    "    X(Load, \"cuModuleLoadData\", 1, (void **, const void *)) \\\n"
    "    X(Unload, \"cuModuleUnload\", 1, (void *)) \\\n"
    "    X(Function, \"cuModuleGetFunction\", 1, (void **, void *, const char *)) \\\n"
    "    X(Attribute, \"cuFuncSetAttribute\", 1, (void *, int, int)) \\\n"
    "    X(Launch, \"cuLaunchKernel\", 1, (void *, u32, u32, u32, u32, u32, u32, u32, void *, void **, void **)) \\\n"
    "    X(LaunchEx, \"cuLaunchKernelEx\", 0, (const k_config *, void *, void **, void **)) \\\n"
    "    X(Map, \"cuTensorMapEncodeTiled\", 0, (void *, int, u32, void *, const u64 *, const u64 *, const u32 *, const u32 *, int, int, "
    "int, int)) \\\n"
    "    X(Window, \"cuTensorMapEncodeIm2col\", 0, (void *, int, u32, void *, const u64 *, const u64 *, const i32 *, const i32 *, u32, u32, \\\n"
    "        const u32 *, int, int, int, int)) \\\n"
    "    X(Alloc, \"cuMemAllocAsync\", 0, (u64 *, __SIZE_TYPE__, void *)) \\\n"
    "    X(Free, \"cuMemFreeAsync\", 0, (u64, void *))";

static const char driver[] =
    "\n#define K_MEMBER(name, symbol, needed, args) int (*name) args;\n"
    "#define K_FIND(name, symbol, needed, args) \\\n"
    "    *(void **)&k_cu.name = dlsym(library, symbol); \\\n    if (needed && !k_cu.name) return k_fail(500, \"the driver lacks \" "
    "symbol);\n"
    "static struct { K_DRIVER(K_MEMBER) int open; } k_cu;\nstatic i32 k_busy; /* one thread at a time opens and loads */\n"
    "static __thread const char *k_error;\n"
    "static int k_fail(int result, const char *what)\n{\n"
    "    k_error = what;\n    if (!what && (!k_cu.ErrorName || k_cu.ErrorName(result, &k_error) || !k_error)) k_error = \"CUDA_ERROR\";\n"
    "    return result;\n}\n"
    "static int k_open(void)\n{\n    if (k_cu.open) return 0;\n"
    "    const char *name = getenv(\"KILN_LIBCUDA\");\n    void *library = dlopen(name && *name ? name : \"libcuda.so.1\", 2);\n"
    "    if (!library) return k_fail(100, \"no CUDA driver: libcuda.so.1 cannot be loaded\");\n    K_DRIVER(K_FIND)\n"
    "    int r = k_cu.Init(0);\n    if (r) return k_fail(r, 0);\n    k_cu.open = 1;\n    return 0;\n}\n"
    "/* The driver, and the context that is current. */\n"
    "static int k_current(void **context)\n{\n    int r = k_open();\n    *context = 0;\n"
    "    if (!r && (r = k_cu.Current(context))) k_fail(r, 0);\n"
    "    if (!r && !*context) r = k_fail(201, \"no context is current\");\n    return r;\n}\n";

static const char load[] =
    "\n/* Into the current context. 8 is the attribute of dynamic shared memory; an image may lack the kernels for any address. */\n"
    "static int k_load_image(const void *image, const k_kernel *k, void **module, void **functions)\n{\n"
    "    int r = k_cu.Load(module, image);\n    if (r) return *module = 0, k_fail(r, 0);\n"
    "    for (i32 i = k->first; i < k->end && !r; i++) {\n"
    "        functions[i] = 0;\n        r = k_cu.Function(&functions[i], *module, k_steps[i].entry);\n"
    "        if (r && i >= k->any) functions[i] = 0, r = 0;\n"
    "        else if (!r && k_steps[i].dynamic > 48 * 1024) r = k_cu.Attribute(functions[i], 8, (int)k_steps[i].dynamic);\n    }\n"
    "    if (!r) return 0;\n    k_fail(r, 0);\n    k_cu.Unload(*module);\n    *module = 0;\n    return r;\n}\n";

static const char run[] =
    "\nstatic int k_step_run(const k_step *s, void *function, void *const *slots, void *stream)\n{\n"
    "    u64 pointer[K_ARGS];\n    void *params[K_ARGS];\n    u8 maps[K_ARGS][128] __attribute__((aligned(128)));\n"
    "    for (i32 i = 0; i < s->nargs; i++) {\n        void *p = slots[s->args[i]];\n        pointer[i] = (u64)(__UINTPTR_TYPE__)p;\n"
    "        params[i] = &pointer[i];\n        const k_map *m = s->maps ? &s->maps[i] : 0;\n        if (!m || !m->rank) continue;\n"
    "        if (!k_cu.Map || !k_cu.Window) return k_fail(801, \"the driver knows no tensor maps\");\n"
    "        int r = m->pixels ? k_cu.Window(maps[i], m->dtype, (u32)m->rank, p, m->dims, m->strides, m->lower, m->upper, m->box[0], m->pixels,\n"
    "                                        m->steps, 0, m->swizzle, m->l2, m->oob)\n"
    "                          : k_cu.Map(maps[i], m->dtype, (u32)m->rank, p, m->dims, m->strides, m->box, m->steps, 0, m->swizzle, m->l2, m->oob);\n"
    "        if (r) return k_fail(r, 0);\n        params[i] = maps[i];\n    }\n"
    "    int r;\n    if (s->cluster > 1) {\n        if (!k_cu.LaunchEx) return k_fail(801, \"the driver knows no clusters\");\n"
    "        k_attribute a = {.id = 4, .v.dim = {s->cluster, 1, 1}};\n"
    "        k_config c = {{s->grid, 1, 1}, {s->threads, 1, 1}, s->dynamic, stream, &a, 1};\n        r = k_cu.LaunchEx(&c, function, "
    "params, 0);\n"
    "    } else {\n        r = k_cu.Launch(function, s->grid, 1, 1, s->threads, 1, 1, s->dynamic, stream, params, 0);\n    }\n"
    "    return r ? k_fail(r, 0) : 0;\n}\n"
    "/* slots: the kernel's tensors, with room for its temporaries. */\n"
    "static int k_kernel_run(const k_kernel *k, void *const *functions, void **slots, void *workspace, void *stream)\n{\n"
    "    i32 from = k->first, to = k->any, n = k->ntemps;\n    const i64 *temps = k->temps;\n    int r = 0, odd = 0;\n"
    "    for (i32 i = 0; i < k->tensors; i++) odd |= (u64)(__UINTPTR_TYPE__)slots[i] % 16 != 0;\n"
    "    if (k->any < k->end && (odd || (k->modern && (!k_cu.Map || !k_cu.LaunchEx)))) {\n"
    "        from = k->any, to = k->end, n = k->nspare, temps = k->spare;\n"
    "        if (!functions[from]) return k_fail(500, \"the image has no kernel for such addresses\");\n    }\n"
    "    for (i32 i = 0; i < n; i++) slots[k->tensors + i] = (u8 *)workspace + temps[i];\n"
    "    for (i32 i = from; i < to && !r; i++) r = k_step_run(&k_steps[i], functions[i], slots, stream);\n    return r;\n}\n";

/* The context of a framework's device is its primary one. */
static const char device[] =
    "__attribute__((weak, visibility(\"default\"))) extern void *TVMFFIEnvGetStream(i32 device_type, i32 device_id);\n"
    "static const k_tensor *k_tensor_of(const k_any *a) { return (const k_tensor *)(a->type_index == 7 ? a->v.p : (const u8 *)a->v.p + "
    "24); }\n"
    "static int k_enter(i32 device)\n{\n    static void *contexts[64];\n    int r = 0;\n"
    "    while (__atomic_exchange_n(&k_busy, 1, __ATOMIC_ACQUIRE)) {}\n    r = k_open();\n"
    "    if (!r && (device < 0 || device >= 64)) r = k_fail(101, \"no such device\");\n"
    "    if (!r && !contexts[device] && (r = k_cu.Retain(&contexts[device], device))) k_fail(r, 0);\n"
    "    if (!r && (r = k_cu.Push(contexts[device]))) k_fail(r, 0);\n"
    "    __atomic_store_n(&k_busy, 0, __ATOMIC_RELEASE);\n    return r;\n}\n";

void kn_put_launch_types(kn_buf *b) { kn_put(b, types); }

void kn_put_launch_code(kn_buf *b, const char *rows)
{
    kn_put(b, rows_of_all);
    kn_put(b, rows);
    kn_put(b, driver);
    kn_put(b, load);
    kn_put(b, run);
}

void kn_put_launch_device(kn_buf *b) { kn_put(b, device); }

static int map_dtype(const char *name)
{
    static const char *const names[] = {"u8", "u16", "u32", "i32", "u64", "i64", "f16", "f32", "f64", "bf16", "f32ftz", "tf32"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], name)) return (int)i;
    return 0; /* what has no number of its own goes as bytes */
}

static void put_list(kn_buf *b, const int64_t *x, int n)
{
    kn_put(b, "{");
    for (int i = 0; i < n; i++) kn_putf(b, "%s%lld", i ? ", " : "", (long long)x[i]);
    kn_put(b, n ? "}" : "0}");
}

static void put_maps(kn_buf *b, const kiln_launch *l, int n)
{
    if (!l->maps) return;
    kn_putf(b, "static const k_map k_maps_%d[] = {", n);
    for (int i = 0; i < l->nargs; i++) {
        const kiln_tensor_map *m = &l->maps[i];
        int64_t box[5];
        for (int k = 0; k < m->rank; k++) box[k] = m->box[k];
        kn_putf(b, "%s\n    {%d, %d, %d, %d, %d, ", i ? "," : "", m->rank, m->rank ? map_dtype(m->dtype) : 0, m->swizzle, m->l2, m->oob);
        put_list(b, m->dims, m->rank);
        kn_put(b, ", ");
        put_list(b, m->strides, m->rank ? m->rank - 1 : 0);
        kn_put(b, ", ");
        put_list(b, box, m->rank);
        bool window = m->pixels != 0;
        kn_putf(b, ", %d, {%d, %d}, {%d, %d}, {1, %d, %d, 1, 1}}", m->pixels, m->lower[0], m->lower[1], m->upper[0], m->upper[1],
                window ? m->steps[0] : 1, window ? m->steps[1] : 1);
    }
    kn_put(b, "};\n");
}

/* Numbers of a launcher's tensors: inputs, outputs, then temporaries in the order of the list. */
static int slot_of(const kn_program *p, const kiln_kernel *k, int slot)
{
    if (slot < p->ninputs + p->noutputs) return slot;
    for (int i = 0; i < k->ntemps; i++)
        if (k->temp_slots[i] == slot) return p->ninputs + p->noutputs + i;
    return -1;
}

/* Launch i of the kernel or, behind those, of its fallback. NULL: there is none. */
static const kiln_launch *launch_at(const kiln_kernel *k, int i, const kiln_kernel **of)
{
    *of = i < k->nlaunches ? k : k->fallback;
    if (!*of) return NULL;
    if (i >= k->nlaunches) i -= k->nlaunches;
    return i < (*of)->nlaunches ? &(*of)->launches[i] : NULL;
}

/* Argument lists and maps of all launches; `most`: arguments of one. */
static bool put_arguments(kn_buf *b, const kn_launched *x, int *number, int *most)
{
    const kiln_kernel *k;
    const kiln_launch *l;
    for (int i = 0; (l = launch_at(x->kernel, i, &k)); i++, ++*number) {
        if (l->nargs > *most) *most = l->nargs;
        kn_putf(b, "static const i32 k_args_%d[] = {", *number);
        for (int j = 0; j < l->nargs; j++) {
            int slot = slot_of(x->program, k, l->args[j]);
            if (slot < 0) return false;
            kn_putf(b, "%s%d", j ? ", " : "", slot);
        }
        kn_put(b, l->nargs ? "};\n" : "0};\n");
        put_maps(b, l, *number);
    }
    return true;
}

static void put_temps(kn_buf *b, const char *name, int number, const kiln_kernel *k)
{
    int64_t at = 0;
    kn_putf(b, "static const i64 k_%s_%d[] = {", name, number);
    for (int i = 0; k && i < k->ntemps; i++) {
        kn_putf(b, "%lld, ", (long long)at);
        at += kn_round_up(k->temp_bytes[i], 256);
    }
    kn_put(b, "0};\n");
}

static int launches_of(const kiln_kernel *k) { return k->nlaunches + (k->fallback ? k->fallback->nlaunches : 0); }

static void put_kernel(kn_buf *b, const kn_launched *x, int number, int first)
{
    const kiln_kernel *k = x->kernel;
    bool modern = false;
    for (int i = 0; i < k->nlaunches; i++) modern |= k->launches[i].maps || k->launches[i].cluster > 1;
    kn_putf(b, "    {%d, %d, %d, %d, %d, %d, %d, k_temps_%d, k_spare_%d},\n", first, first + k->nlaunches, first + launches_of(k), modern,
            x->program->ninputs + x->program->noutputs, k->ntemps, k->fallback ? k->fallback->ntemps : 0, number, number);
}

static void put_step(kn_buf *b, const kiln_launch *l, int number)
{
    kn_putf(b, "    {\"%s\", %lld, %d, %lld, %d, %d, k_args_%d, ", l->entry, (long long)l->grid, l->threads, (long long)l->dynamic_shared_bytes,
            l->cluster > 1 ? l->cluster : 1, l->nargs, number);
    if (l->maps) kn_putf(b, "k_maps_%d},\n", number);
    else kn_put(b, "0},\n");
}

bool kn_put_launch_tables(kn_buf *b, const kn_launched *kernels, int n)
{
    int steps = 0, most = 1, number = 0, first = 0;
    const kiln_kernel *of;
    const kiln_launch *l;
    for (int i = 0; i < n; i++) {
        if (!put_arguments(b, &kernels[i], &steps, &most)) return false;
        put_temps(b, "temps", i, kernels[i].kernel);
        put_temps(b, "spare", i, kernels[i].kernel->fallback);
    }
    kn_putf(b, "enum { K_KERNELS = %d, K_STEPS = %d, K_ARGS = %d };\nstatic const k_step k_steps[K_STEPS + 1] = {\n", n, steps, most);
    for (int i = 0; i < n; i++)
        for (int j = 0; (l = launch_at(kernels[i].kernel, j, &of)); j++) put_step(b, l, number++);
    kn_put(b, "    {0, 0, 0, 0, 0, 0, 0, 0}};\nstatic const k_kernel k_kernels[K_KERNELS + 1] = {\n");
    for (int i = 0; i < n; i++) {
        put_kernel(b, &kernels[i], i, first);
        first += launches_of(kernels[i].kernel);
    }
    kn_put(b, "    {0, 0, 0, 0, 0, 0, 0, 0, 0}};\n");
    return true;
}

int kn_launch_slots(const kn_launched *x)
{
    int temps = x->kernel->ntemps;
    if (x->kernel->fallback && x->kernel->fallback->ntemps > temps) temps = x->kernel->fallback->ntemps;
    return x->program->ninputs + x->program->noutputs + temps;
}

int64_t kn_workspace_bytes(const kiln_kernel *k)
{
    int64_t n = 0, any = k->fallback ? kn_workspace_bytes(k->fallback) : 0;
    for (int i = 0; i < k->ntemps; i++) n += kn_round_up(k->temp_bytes[i], 256);
    return n > any ? n : any;
}
