/* Launchers of GPU kernels: C text without headers that finds the driver at run time (docs/abi.md). */
#include "launcher.h"
#include "codegen/tvm_ffi.h"
#include <string.h>

static const char head[] =
    "typedef int i32;\ntypedef long long i64;\ntypedef unsigned char u8;\ntypedef unsigned short u16;\ntypedef unsigned int u32;\n"
    "typedef unsigned long long u64;\n#define KN_API __attribute__((visibility(\"default\")))\n"
    "extern void *dlopen(const char *, int);\nextern void *dlsym(void *, const char *);\nextern char *getenv(const char *);\n"
    "\n/* The cubin or PTX: an array named KILN_IMAGE that is linked in, or what the caller gives before the first launch. */\n"
    "#ifdef KILN_IMAGE\nextern const unsigned char KILN_IMAGE[];\nstatic const void *k_image = KILN_IMAGE;\n#else\nstatic const void "
    "*k_image;\n#endif\n";

static const char types[] =
    "\n/* The driver's own structures: a launch attribute (4: cluster), a launch. */\n"
    "typedef struct k_attribute {\n    i32 id;\n    u8 pad[4];\n    union { u32 dim[3]; u8 raw[64]; } v;\n} k_attribute;\n"
    "typedef struct k_config {\n    u32 grid[3], block[3], shared;\n    void *stream;\n    k_attribute *attributes;\n    u32 n;\n} "
    "k_config;\n"
    "typedef struct k_map {\n    i32 rank, dtype, swizzle, l2, oob;\n    u64 dims[5], strides[5];\n    u32 box[5], pixels;\n"
    "    i32 lower[2], upper[2];\n    u32 steps[5];\n} k_map;\n"
    "typedef struct k_step {\n    const char *entry;\n    u32 grid, threads, dynamic, cluster;\n    i32 nargs;\n    const i32 *args;\n"
    "    const k_map *maps;\n} k_step;\n";

/* The rows are the driver's functions; 0: an older driver may lack it. */
static const char driver[] =
    "\n#define K_DRIVER(X) \\\n"
    "    X(Init, \"cuInit\", 1, (u32)) \\\n"
    "    X(ErrorName, \"cuGetErrorName\", 1, (int, const char **)) \\\n"
    "    X(Current, \"cuCtxGetCurrent\", 1, (void **)) \\\n"
    "    X(Push, \"cuCtxPushCurrent_v2\", 1, (void *)) \\\n"
    "    X(Pop, \"cuCtxPopCurrent_v2\", 1, (void **)) \\\n"
    "    X(Retain, \"cuDevicePrimaryCtxRetain\", 1, (void **, int)) \\\n"
    "    X(Load, \"cuModuleLoadData\", 1, (void **, const void *)) \\\n"
    "    X(Function, \"cuModuleGetFunction\", 1, (void **, void *, const char *)) \\\n"
    "    X(Attribute, \"cuFuncSetAttribute\", 1, (void *, int, int)) \\\n"
    "    X(Launch, \"cuLaunchKernel\", 1, (void *, u32, u32, u32, u32, u32, u32, u32, void *, void **, void **)) \\\n"
    "    X(LaunchEx, \"cuLaunchKernelEx\", 0, (const k_config *, void *, void **, void **)) \\\n"
    "    X(Map, \"cuTensorMapEncodeTiled\", 0, (void *, int, u32, void *, const u64 *, const u64 *, const u32 *, const u32 *, int, int, "
    "int, int)) \\\n"
    "    X(Window, \"cuTensorMapEncodeIm2col\", 0, (void *, int, u32, void *, const u64 *, const u64 *, const i32 *, const i32 *, u32, u32, \\\n"
    "        const u32 *, int, int, int, int)) \\\n"
    "    X(Alloc, \"cuMemAllocAsync\", 0, (u64 *, __SIZE_TYPE__, void *)) \\\n"
    "    X(Free, \"cuMemFreeAsync\", 0, (u64, void *))\n"
    "#define K_MEMBER(name, symbol, needed, args) int (*name) args;\n"
    "#define K_FIND(name, symbol, needed, args) \\\n"
    "    *(void **)&k_cu.name = dlsym(library, symbol); \\\n    if (needed && !k_cu.name) return k_fail(500, \"the driver lacks \" "
    "symbol);\n"
    "static struct { K_DRIVER(K_MEMBER) int open; } k_cu;\n"
    "static __thread const char *k_error;\n"
    "static int k_fail(int result, const char *what)\n{\n"
    "    k_error = what;\n    if (!what && (!k_cu.ErrorName || k_cu.ErrorName(result, &k_error) || !k_error)) k_error = \"CUDA_ERROR\";\n"
    "    return result;\n}\n"
    "static int k_open(void)\n{\n    if (k_cu.open) return 0;\n"
    "    const char *name = getenv(\"KILN_LIBCUDA\");\n    void *library = dlopen(name && *name ? name : \"libcuda.so.1\", 2);\n"
    "    if (!library) return k_fail(100, \"no CUDA driver: libcuda.so.1 cannot be loaded\");\n    K_DRIVER(K_FIND)\n"
    "    int r = k_cu.Init(0);\n    if (r) return k_fail(r, 0);\n    k_cu.open = 1;\n    return 0;\n}\n";

/* A module belongs to a context: functions are found once in each. 8 is the attribute of dynamic shared memory. */
static const char load[] =
    "\nstatic struct { void *context, *function[K_STEPS]; } k_loaded[16];\nstatic i32 k_busy, k_nloaded;\n"
    "static int k_load(void *context, void *const **functions)\n{\n"
    "    for (i32 i = 0; i < k_nloaded; i++)\n        if (k_loaded[i].context == context) {\n            *functions = "
    "k_loaded[i].function;\n"
    "            return 0;\n        }\n"
    "    void *module;\n    if (k_nloaded == 16) return k_fail(2, \"more than 16 contexts\");\n"
    "    if (!k_image) return k_fail(200, \"no image: none is linked in, and none was loaded\");\n"
    "    int r = k_cu.Load(&module, k_image);\n"
    "    for (i32 i = 0; i < K_STEPS && !r; i++) {\n        void **f = &k_loaded[k_nloaded].function[i];\n"
    "        r = k_cu.Function(f, module, k_steps[i].entry);\n"
    "        if (r && i >= K_FIRST) {\n            *f = 0; /* an image without the kernels for any address */\n            r = 0;\n"
    "            continue;\n        }\n"
    "        if (!r && k_steps[i].dynamic > 48 * 1024) r = k_cu.Attribute(*f, 8, (int)k_steps[i].dynamic);\n    }\n"
    "    if (r) return k_fail(r, 0);\n    k_loaded[k_nloaded].context = context;\n    *functions = k_loaded[k_nloaded++].function;\n"
    "    return 0;\n}\n"
    "/* Ready in the current context; one thread at a time. */\n"
    "static int k_ready(void *const **functions)\n{\n    void *context = 0;\n"
    "    while (__atomic_exchange_n(&k_busy, 1, __ATOMIC_ACQUIRE)) {}\n    int r = k_open();\n"
    "    if (!r && (r = k_cu.Current(&context))) k_fail(r, 0);\n    if (!r && !context) r = k_fail(201, \"no context is current\");\n"
    "    if (!r) r = k_load(context, functions);\n    __atomic_store_n(&k_busy, 0, __ATOMIC_RELEASE);\n    return r;\n}\n";

static const char launch[] =
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
    "    return r ? k_fail(r, 0) : 0;\n}\n";

/* The context of a framework's device is its primary one. */
static const char tvm_device[] =
    "__attribute__((weak, visibility(\"default\"))) extern void *TVMFFIEnvGetStream(i32 device_type, i32 device_id);\n"
    "static const k_tensor *k_tensor_of(const k_any *a) { return (const k_tensor *)(a->type_index == 7 ? a->v.p : (const u8 *)a->v.p + "
    "24); }\n"
    "static int k_enter(i32 device)\n{\n    static void *contexts[64];\n    int r = 0;\n"
    "    while (__atomic_exchange_n(&k_busy, 1, __ATOMIC_ACQUIRE)) {}\n    r = k_open();\n"
    "    if (!r && (device < 0 || device >= 64)) r = k_fail(101, \"no such device\");\n"
    "    if (!r && !contexts[device] && (r = k_cu.Retain(&contexts[device], device))) k_fail(r, 0);\n"
    "    if (!r && (r = k_cu.Push(contexts[device]))) k_fail(r, 0);\n"
    "    __atomic_store_n(&k_busy, 0, __ATOMIC_RELEASE);\n    return r;\n}\n";

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

/* Slots of the launcher: inputs, outputs, then temporaries in the order of the list. */
static int slot_of(const kn_program *p, const kiln_kernel *k, int slot)
{
    if (slot < p->ninputs + p->noutputs) return slot;
    for (int i = 0; i < k->ntemps; i++)
        if (k->temp_slots[i] == slot) return p->ninputs + p->noutputs + i;
    return -1;
}

static int launches_of(const kiln_kernel *k) { return k->nlaunches + (k->fallback ? k->fallback->nlaunches : 0); }

/* Launch i of the kernel or, behind those, of its fallback. */
static const kiln_launch *launch_at(const kiln_kernel *k, int i, const kiln_kernel **of)
{
    *of = i < k->nlaunches ? k : k->fallback;
    return &(*of)->launches[i < k->nlaunches ? i : i - k->nlaunches];
}

static bool put_steps(kn_buf *b, const kn_program *p, const kiln_kernel *whole)
{
    int most = 1, n = launches_of(whole), temps = whole->ntemps;
    const kiln_kernel *k;
    if (whole->fallback && whole->fallback->ntemps > temps) temps = whole->fallback->ntemps;
    for (int i = 0; i < n; i++) {
        const kiln_launch *l = launch_at(whole, i, &k);
        if (l->nargs > most) most = l->nargs;
        kn_putf(b, "static const i32 k_args_%d[] = {", i);
        for (int j = 0; j < l->nargs; j++) {
            int slot = slot_of(p, k, l->args[j]);
            if (slot < 0) return false;
            kn_putf(b, "%s%d", j ? ", " : "", slot);
        }
        kn_put(b, l->nargs ? "};\n" : "0};\n");
        put_maps(b, l, i);
    }
    kn_putf(b, "enum { K_STEPS = %d, K_FIRST = %d, K_ARGS = %d, K_SLOTS = %d };\nstatic const k_step k_steps[K_STEPS] = {\n", n,
            whole->nlaunches, most, p->ninputs + p->noutputs + temps);
    for (int i = 0; i < n; i++) {
        const kiln_launch *l = launch_at(whole, i, &k);
        kn_putf(b, "    {\"%s\", %lld, %d, %lld, %d, %d, k_args_%d, ", l->entry, (long long)l->grid, l->threads,
                (long long)l->dynamic_shared_bytes, l->cluster > 1 ? l->cluster : 1, l->nargs, i);
        kn_putf(b, l->maps ? "k_maps_%d},\n" : "0},\n", i);
    }
    kn_put(b, "};\n");
    return true;
}

static void put_functions(kn_buf *b, const kn_program *p, const kiln_kernel *k, int64_t workspace)
{
    const char *e = k->entry;
    int nin = p->ninputs, nout = p->noutputs;
    int64_t at = 0;
    bool maps = false;
    for (int i = 0; i < k->nlaunches; i++) maps |= k->launches[i].maps || k->launches[i].cluster > 1;
    kn_putf(b, "\nKN_API const char kiln_entry[] = \"%s\";\nKN_API i32 kiln_abi_version(void) { return 1; }\n", e);
    kn_putf(b, "KN_API void %s_load(const void *image) { k_image = image; }\n", e);
    kn_putf(b, "KN_API i64 %s_workspace(void) { return %lld; }\n", e, (long long)workspace);
    kn_putf(b, "KN_API const char *%s_error(void) { return k_error ? k_error : \"\"; }\n", e);
    kn_putf(b, "KN_API i32 %s_launch(const void *const *inputs, void *const *outputs, void *workspace, void *stream)\n{\n", e);
    kn_put(b, "    void *slots[K_SLOTS], *const *functions = 0;\n");
    if (workspace)
        kn_put(b, "    if (!workspace) return k_fail(1, \"a workspace is needed\");\n");
    else
        kn_put(b, "    (void)workspace;\n");
    kn_putf(
        b, "    for (i32 i = 0; i < %d; i++) slots[i] = (void *)inputs[i];\n    for (i32 i = 0; i < %d; i++) slots[%d + i] = outputs[i];\n",
        nin, nout, nin);
    kn_put(b, "    i32 from = 0, to = K_FIRST;\n    int r = k_ready(&functions);\n");
    if (k->fallback) {
        kn_putf(b, "    for (i32 i = 0; i < %d; i++)\n", nin + nout);
        kn_put(b, "        if ((u64)(__UINTPTR_TYPE__)slots[i] % 16) from = K_FIRST, to = K_STEPS;\n");
        if (maps) kn_put(b, "    if (!r && (!k_cu.Map || !k_cu.LaunchEx)) from = K_FIRST, to = K_STEPS;\n");
        kn_put(b, "    if (!r && !functions[from]) return k_fail(500, \"the image has no kernel for such addresses\");\n");
    }
    for (int i = 0; i < k->ntemps; i++) {
        kn_putf(b, "    slots[%d] = (u8 *)workspace + %lld;\n", nin + nout + i, (long long)at);
        at += kn_round_up(k->temp_bytes[i], 256);
    }
    if (k->fallback && k->fallback->ntemps) {
        at = 0;
        kn_put(b, "    if (from) {\n");
        for (int i = 0; i < k->fallback->ntemps; i++) {
            kn_putf(b, "        slots[%d] = (u8 *)workspace + %lld;\n", nin + nout + i, (long long)at);
            at += kn_round_up(k->fallback->temp_bytes[i], 256);
        }
        kn_put(b, "    }\n");
    }
    kn_put(b, "    for (i32 i = from; i < to && !r; i++) r = k_step_run(&k_steps[i], functions[i], slots, stream);\n    return r;\n}\n");
}

static void put_tvm(kn_buf *b, const kn_program *p, const kiln_kernel *k, int64_t workspace)
{
    kn_put_tvm_types(b, true);
    kn_put_tvm_wants(b, p, "on a CUDA device");
    kn_put(b, tvm_device);
    kn_put_tvm_open(b, p, k->entry);
    kn_put(b,
           "    i32 device = k_tensor_of(&args[0])->device_id;\n    for (i32 i = 1; i < n; i++)\n"
           "        if (k_tensor_of(&args[i])->device_id != device) return k_raise(\"ValueError\", \"all arguments are on one device\");\n"
           "    if (k_enter(device)) return k_raise(\"RuntimeError\", k_error);\n"
           "    void *stream = TVMFFIEnvGetStream ? TVMFFIEnvGetStream(2, device) : 0;\n    int r = 0;\n    u64 workspace = 0;\n");
    if (workspace)
        kn_putf(b,
                "    if (!k_cu.Alloc || !k_cu.Free) r = k_fail(801, \"the driver allocates on no stream: use %s_launch\");\n"
                "    else if ((r = k_cu.Alloc(&workspace, %lld, stream))) k_fail(r, 0);\n",
                k->entry, (long long)workspace);
    kn_putf(b, "    if (!r) r = %s_launch((const void *const *)data, data + %d, (void *)(__UINTPTR_TYPE__)workspace, stream);\n", k->entry,
            p->ninputs);
    if (workspace) kn_put(b, "    if (workspace) k_cu.Free(workspace, stream);\n");
    kn_put(b, "    k_cu.Pop(0);\n    if (r) return k_raise(\"RuntimeError\", k_error);\n");
    kn_put_tvm_close(b);
}

int64_t kn_workspace_bytes(const kiln_kernel *k)
{
    int64_t n = 0, any = k->fallback ? kn_workspace_bytes(k->fallback) : 0;
    for (int i = 0; i < k->ntemps; i++) n += kn_round_up(k->temp_bytes[i], 256);
    return n > any ? n : any;
}

static void put_title(kn_buf *b, const kn_program *p, const kn_hw *hw, const kiln_kernel *k)
{
    kn_putf(b,
            "/* Launches %s on %s. Generated by Kiln; needs no header and no toolkit: libcuda.so.1 is loaded at run time.\n"
            " *   int32_t %s_launch(const void *const *inputs, void *const *outputs, void *workspace, void *stream); 0: launched, else a "
            "CUresult\n"
            " * Device pointers, contiguous, in the context that is current: multiples of 16, or slower kernels run; workspace: %s_workspace() "
            "bytes, aligned to 256.\n",
            k->entry, hw->arch, k->entry, k->entry);
    for (int i = 0; i < p->ninputs + p->noutputs; i++) {
        kn_putf(b, " *   %s[%d]: ", i < p->ninputs ? "inputs" : "outputs", i < p->ninputs ? i : i - p->ninputs);
        kn_put_tensor_type(b, &p->tensors[i]);
        kn_put(b, "\n");
    }
    kn_put(b, " */\n");
}

kiln_status kn_launcher(kiln_arena *a, const kn_program *p, const kn_hw *hw, const kiln_kernel *k, kiln_bytes *out)
{
    kn_buf b;
    int64_t workspace = 0;
    *out = (kiln_bytes){"", 0};
    if (!hw->gpu || strcmp(k->language, "cuda") || !k->nlaunches) return KILN_OK;
    workspace = kn_workspace_bytes(k);
    kn_buf_init(&b, a);
    put_title(&b, p, hw, k);
    kn_put(&b, head);
    kn_put(&b, types);
    if (!put_steps(&b, p, k)) return KILN_INTERNAL;
    kn_put(&b, driver);
    kn_put(&b, load);
    kn_put(&b, launch);
    put_functions(&b, p, k, workspace);
    put_tvm(&b, p, k, workspace);
    kiln_bytes text = kn_buf_take(&b);
    if (!text.p) return KILN_MEMORY;
    *out = text;
    return KILN_OK;
}
