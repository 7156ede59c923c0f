/* The host side of a whole model on a GPU: one C file with the plan and every launch in tables (docs/abi.md). */
#include "artifact/launch_text.h"
#include "plan/text.h"
#include <string.h>

/* What a model needs of the driver beside what a launch needs. */
static const char rows[] =
    " \\\n    X(New, \"cuMemAlloc_v2\", 1, (u64 *, __SIZE_TYPE__)) \\\n    X(Delete, \"cuMemFree_v2\", 1, (u64)) \\\n"
    "    X(Up, \"cuMemcpyHtoD_v2\", 1, (u64, const void *, __SIZE_TYPE__)) \\\n"
    "    X(Across, \"cuMemcpyDtoD_v2\", 1, (u64, u64, __SIZE_TYPE__)) \\\n"
    "    X(Copy, \"cuMemcpyDtoDAsync_v2\", 1, (u64, u64, __SIZE_TYPE__, void *)) \\\n"
    "    X(Wait, \"cuCtxSynchronize\", 1, (void))";

static const char types[] =
    "extern void *calloc(__SIZE_TYPE__, __SIZE_TYPE__);\nextern void free(void *);\nextern int snprintf(char *, __SIZE_TYPE__, const char *, ...);\n"
    "/* place: 0 input, 1 weight, 2 arena, 3 output. kernel: -1 copies `bytes` from the first place to the second, -2 and less are calls. */\n"
    "typedef struct k_slot {\n    i32 place, index;\n    i64 offset;\n} k_slot;\n"
    "typedef struct k_do {\n    i32 kernel, first, nin, n;\n    i64 bytes;\n} k_do;\n"
    "/* of: the weight that this one is another name of, or -1. at: in the device's block of weights. size: of the element that all are equal to,\n"
    " * or 0; -1: made by the steps that run once. */\n"
    "typedef struct k_weight {\n    i32 of, size;\n    i64 at, bytes;\n    u8 element[16];\n} k_weight;\n";

static const char state[] =
    "typedef i32 (*k_caller)(void *user, i32 call, const void *const *inputs, void *const *outputs, void *stream);\n"
    "typedef struct k_model {\n    void *context, *modules[K_KERNELS + 1], *functions[K_STEPS + 1];\n    u64 block, arena;\n"
    "    const u8 *weights[K_WEIGHTS + 1];\n    k_caller caller;\n    void *user;\n} k_model;\n"
    "static __thread char k_text[200];\n"
    "static int k_fail_at(int result, const char *what, i32 number, i32 of)\n{\n"
    "    snprintf(k_text, sizeof k_text, \"%s %d of %d: %s\", what, number, of, k_error ? k_error : \"\");\n    return k_fail(result, k_text);\n}\n";

/* Loading: modules, weights, an arena. All of it may wait for the device; nothing of it is needed again. */
static const char loading[] =
    "static int k_splat(u64 to, const k_weight *w)\n{\n"
    "    i64 have = w->bytes < w->size ? w->bytes : w->size;\n    int r = k_cu.Up(to, w->element, (__SIZE_TYPE__)have);\n"
    "    for (; !r && have < w->bytes; have *= 2)\n"
    "        r = k_cu.Across(to + (u64)have, to, (__SIZE_TYPE__)(have < w->bytes - have ? have : w->bytes - have));\n    return r;\n}\n"
    "static int k_fill(k_model *m, const void *const *weights)\n{\n"
    "    int r = (K_BLOCK) > 0 ? k_cu.New(&m->block, (__SIZE_TYPE__)K_BLOCK) : 0;\n"
    "    if (!r && (K_ARENA) > 0) r = k_cu.New(&m->arena, (__SIZE_TYPE__)K_ARENA);\n    if (r) return k_fail(r, 0);\n"
    "    for (i32 i = 0; i < K_WEIGHTS && !r; i++) {\n        const k_weight *w = &k_weights[i];\n"
    "        m->weights[i] = w->of >= 0 ? m->weights[w->of] : (const u8 *)(__UINTPTR_TYPE__)(m->block + (u64)w->at);\n"
    "        if (w->of >= 0 || w->size < 0 || !w->bytes) continue;\n"
    "        if (!w->size && (!weights || !weights[i])) return k_fail_at(1, \"weight\", i + 1, K_WEIGHTS);\n"
    "        r = w->size ? k_splat(m->block + (u64)w->at, w) : k_cu.Up(m->block + (u64)w->at, weights[i], (__SIZE_TYPE__)w->bytes);\n    }\n"
    "    if (!r) r = k_cu.Wait();\n    return r ? k_fail(r, 0) : 0;\n}\n"
    "static int k_unload(k_model *m)\n{\n    int r = k_cu.Push(m->context), s;\n    if (r) return k_fail(r, 0);\n    r = k_cu.Wait();\n"
    "    for (i32 i = 0; i < K_KERNELS; i++)\n        if (m->modules[i] && (s = k_cu.Unload(m->modules[i]))) r = s;\n"
    "    if (m->block && (s = k_cu.Delete(m->block))) r = s;\n    if (m->arena && (s = k_cu.Delete(m->arena))) r = s;\n"
    "    k_cu.Pop(0);\n    free(m);\n    return r ? k_fail(r, 0) : 0;\n}\n"
    "static int k_load(k_model **model, const void *const *images, const void *const *weights)\n{\n"
    "    void *context = 0;\n    int r = k_current(&context);\n    if (r) return r;\n"
    "    k_model *m = calloc(1, sizeof *m);\n    if (!m) return k_fail(2, \"out of memory\");\n    m->context = context;\n"
    "    for (i32 i = 0; i < K_KERNELS && !r; i++) {\n"
    "        r = images && images[i] ? k_load_image(images[i], &k_kernels[i], &m->modules[i], m->functions) : k_fail(200, \"no image\");\n"
    "        if (r) k_fail_at(r, \"kernel\", i + 1, K_KERNELS);\n    }\n"
    "    if (!r) r = k_fill(m, weights);\n    if (!r) r = k_do_once(m);\n"
    "    if (r) {\n        const char *why = k_error;\n        k_unload(m);\n        k_error = why;\n        return r;\n    }\n"
    "    *model = m;\n    return 0;\n}\n";

/* What depends on weights alone. */
static const char once[] =
    "static int k_do_once(const k_model *m)\n{\n#ifdef K_ONCE_ARENA\n    u64 arena = 0;\n    int s, r = K_ONCE_ARENA > 0 ? "
    "k_cu.New(&arena, (__SIZE_TYPE__)K_ONCE_ARENA) : 0;\n    if (r) return k_fail(r, 0);\n"
    "    for (i32 i = K_PLAN; i < K_PLAN + K_ONCE && !r; i++) r = k_do_step(m, i, 0, 0, (u8 *)(__UINTPTR_TYPE__)arena, K_ONCE_VALUES, 0);\n"
    "    if (!r && (r = k_cu.Wait())) k_fail(r, 0);\n    if (arena && (s = k_cu.Delete(arena)) && !r) r = k_fail(s, 0);\n    return r;\n"
    "#else\n    (void)m;\n    return 0;\n#endif\n}\n";

static const char running[] =
    "static void *k_at(const k_model *m, const k_slot *s, const void *const *inputs, void *const *outputs, u8 *arena)\n{\n"
    "    const u8 *p = s->place == 0 ? inputs[s->index] : s->place == 1 ? m->weights[s->index] : s->place == 2 ? arena : outputs[s->index];\n"
    "    return (u8 *)p + s->offset;\n}\n"
    "static int k_do_step(const k_model *m, i32 i, const void *const *inputs, void *const *outputs, u8 *arena, i64 temps, void *stream)\n{\n"
    "    const k_do *s = &k_plan[i];\n    void *slots[K_SLOTS];\n    int r;\n"
    "    for (i32 k = 0; k < s->n; k++) slots[k] = k_at(m, &k_slots[s->first + k], inputs, outputs, arena);\n"
    "    if (s->kernel >= 0) {\n        r = k_kernel_run(&k_kernels[s->kernel], m->functions, slots, arena + temps, stream);\n"
    "    } else if (s->kernel == -1) {\n"
    "        r = k_cu.Copy((u64)(__UINTPTR_TYPE__)slots[1], (u64)(__UINTPTR_TYPE__)slots[0], (__SIZE_TYPE__)s->bytes, stream);\n"
    "        if (r) k_fail(r, 0);\n"
    "    } else {\n"
    "        r = m->caller ? m->caller(m->user, -2 - s->kernel, (const void *const *)slots, slots + s->nin, stream) : 1;\n"
    "        if (r) k_fail(r, m->caller ? \"the caller could not do it\" : \"a node is left to a caller, and there is none\");\n    }\n"
    "    return r ? k_fail_at(r, i < K_PLAN ? \"step\" : \"step done once\", i < K_PLAN ? i + 1 : i - K_PLAN + 1, "
    "i < K_PLAN ? K_PLAN : K_ONCE) : 0;\n}\n"
    "static int k_do_steps(const k_model *m, i32 from, i32 to, const void *const *inputs, void *const *outputs, void *arena, void *stream)\n{\n"
    "    void *context = 0;\n    int r = m ? k_current(&context) : k_fail(1, \"no model\");\n"
    "    if (!r && context != m->context) r = k_fail(201, \"another context is current than the one that the model was loaded in\");\n"
    "    if (!r && (from < 0 || to > K_PLAN)) r = k_fail(1, \"no such step\");\n"
    "    u8 *own = arena ? arena : m ? (u8 *)(__UINTPTR_TYPE__)m->arena : 0;\n"
    "    for (i32 i = from; i < to && !r; i++) r = k_do_step(m, i, inputs, outputs, own, K_VALUES, stream);\n    return r;\n}\n";

typedef struct text {
    kn_buf b;
    const kiln_plan *p;
    const kn_launched *kernels;
    int64_t block, temporaries; /* bytes on the device: weights, the largest workspace */
} text;

static void put_weight(text *t, const kiln_weight *w)
{
    kn_buf *b = &t->b;
    int64_t at = t->block;
    int size = w->of >= 0 ? 0 : w->once ? -1 : w->splat ? (int)w->n : 0;
    if (w->of < 0) t->block = kn_round_up(t->block + w->arg.bytes, 256);
    kn_putf(b, "    {%d, %d, %lld, %lld, {", w->of, size, (long long)at, (long long)w->arg.bytes);
    for (int i = 0; i < size && i < 16; i++) kn_putf(b, "%d, ", (unsigned char)w->data[i]);
    kn_put(b, "0}},\n");
}

static int inputs_of(const kiln_plan *p, const kiln_step *s)
{
    return s->kernel < -1 ? p->calls[-2 - s->kernel].nin : s->kernel < 0 ? 1 : kiln_program_inputs(p->kernels[s->kernel]);
}

/* Step i of both lists, those of each run first. */
static const kiln_step *step_of(const kiln_plan *p, int i) { return i < p->nsteps ? &p->steps[i] : &p->once[i - p->nsteps]; }

static void put_plan(text *t)
{
    kn_buf *b = &t->b;
    const kiln_plan *p = t->p;
    int most = 2, first = 0;
    int64_t values = kn_round_up(p->arena_bytes, 256), once = kn_round_up(p->once_bytes, 256);
    for (int i = 0; i < p->nkernels; i++)
        if (kn_launch_slots(&t->kernels[i]) > most) most = kn_launch_slots(&t->kernels[i]);
    kn_put(b, "static const k_slot k_slots[] = {\n");
    for (int i = 0; i < p->nsteps + p->nonce; i++) {
        const kiln_step *x = step_of(p, i);
        if (x->nargs > most) most = x->nargs;
        kn_put(b, "    ");
        for (int k = 0; k < x->nargs; k++) {
            const kiln_slot *s = &x->args[k];
            kn_putf(b, "{%d, %d, %lld}, ", (int)s->place, s->index, (long long)s->offset);
        }
        kn_put(b, "\n");
    }
    kn_put(b, "    {0, 0, 0}};\nstatic const k_do k_plan[] = {\n");
    for (int i = 0; i < p->nsteps + p->nonce; i++) {
        const kiln_step *s = step_of(p, i);
        kn_putf(b, "    {%d, %d, %d, %d, %lld},\n", s->kernel, first, inputs_of(p, s), s->nargs, (long long)s->bytes);
        first += s->nargs;
    }
    kn_put(b, "    {0, 0, 0, 0, 0}};\nstatic const k_weight k_weights[] = {\n");
    for (int i = 0; i < p->nweights; i++) put_weight(t, &p->weights[i]);
    kn_putf(b, "    {0, 0, 0, 0, {0}}};\nenum { K_PLAN = %d, K_ONCE = %d, K_WEIGHTS = %d, K_SLOTS = %d };\n", p->nsteps, p->nonce, p->nweights,
            most + 1);
    kn_putf(b, "/* Bytes: weights on the device; values between steps, with the kernels' temporaries behind them. */\n"
               "#define K_BLOCK %lldll\n#define K_VALUES %lldll\n#define K_ARENA %lldll\n",
            (long long)t->block, (long long)values, (long long)(values + t->temporaries));
    if (p->nonce)
        kn_putf(b, "#define K_ONCE_VALUES %lldll\n#define K_ONCE_ARENA %lldll\n", (long long)once, (long long)(once + t->temporaries));
}

static void put_functions(kn_buf *b, const char *e)
{
    kn_putf(b, "\nKN_API const char kiln_entry[] = \"%s\";\nKN_API i32 kiln_abi_version(void) { return 1; }\n", e);
    kn_putf(b, "KN_API i64 %s_arena(void) { return K_ARENA; }\nKN_API i64 %s_weights(void) { return K_BLOCK; }\n", e, e);
    kn_putf(b, "KN_API i32 %s_steps(void) { return K_PLAN; }\n", e);
    kn_putf(b, "KN_API const char *%s_error(void) { return k_error ? k_error : \"\"; }\n", e);
    kn_putf(b, "KN_API i32 %s_load(void **model, const void *const *images, const void *const *weights)\n{\n"
               "    k_model *m = 0;\n    while (__atomic_exchange_n(&k_busy, 1, __ATOMIC_ACQUIRE)) {}\n"
               "    int r = k_load(&m, images, weights);\n    __atomic_store_n(&k_busy, 0, __ATOMIC_RELEASE);\n"
               "    *model = m;\n    return r;\n}\n", e);
    kn_putf(b, "KN_API i32 %s_launch(void *model, const void *const *inputs, void *const *outputs, void *arena, void *stream)\n{\n"
               "    return k_do_steps(model, 0, K_PLAN, inputs, outputs, arena, stream);\n}\n", e);
    kn_putf(b, "KN_API i32 %s_step(void *model, i32 step, const void *const *inputs, void *const *outputs, void *arena, void *stream)\n{\n"
               "    return k_do_steps(model, step, step + 1, inputs, outputs, arena, stream);\n}\n", e);
    kn_putf(b, "KN_API void %s_caller(void *model, k_caller caller, void *user)\n{\n    ((k_model *)model)->caller = caller;\n"
               "    ((k_model *)model)->user = user;\n}\n", e);
    kn_putf(b, "KN_API i32 %s_unload(void *model) { return model ? k_unload(model) : 0; }\n", e);
}

static void put_title(kn_buf *b, const kiln_plan *p, const kn_hw *hw)
{
    kn_putf(b,
            "/* Runs a model of %d steps on %s. Generated by Kiln; needs no header and no toolkit: libcuda.so.1 is loaded at run time.\n"
            " *   int32_t %s_load(void **model, const void *const *images, const void *const *weights);\n"
            " *   int32_t %s_launch(void *model, const void *const *inputs, void *const *outputs, void *arena, void *stream);\n"
            " *   int32_t %s_unload(void *model);\n"
            " * 0: done, else a CUresult, and %s_error() says what it was. Inputs and outputs: device pointers. Images, in this order:\n",
            p->nsteps, hw->arch, p->entry, p->entry, p->entry, p->entry);
    for (int i = 0; i < p->nkernels; i++) kn_putf(b, " *   %d: %s\n", i, p->keys[i].kernel);
    kn_put(b, " */\n");
}

int64_t kn_plan_temporaries(const kiln_plan *p, const kiln_image *images)
{
    int64_t most = 0;
    for (int i = 0; i < p->nkernels; i++)
        if (kn_workspace_bytes(images[i].kernel) > most) most = kn_workspace_bytes(images[i].kernel);
    return most;
}

kiln_status kn_plan_launcher(kiln_arena *a, const kiln_plan *p, const kn_hw *hw, const kiln_image *images, kiln_bytes *out)
{
    kn_launched *kernels = kn_array(a, kn_launched, p->nkernels + 1);
    if (!kernels) return KILN_MEMORY;
    for (int i = 0; i < p->nkernels; i++) kernels[i] = (kn_launched){p->kernels[i], images[i].kernel};
    text t = {.p = p, .kernels = kernels, .temporaries = kn_plan_temporaries(p, images)};
    kn_buf_init(&t.b, a);
    put_title(&t.b, p, hw);
    kn_put_launch_types(&t.b);
    kn_put(&t.b, types);
    if (!kn_put_launch_tables(&t.b, kernels, p->nkernels)) return KILN_INTERNAL;
    put_plan(&t);
    kn_put_launch_code(&t.b, rows);
    kn_put(&t.b, state);
    kn_put(&t.b, running);
    kn_put(&t.b, once);
    kn_put(&t.b, loading);
    put_functions(&t.b, p->entry);
    *out = kn_buf_take(&t.b);
    return out->p ? KILN_OK : KILN_MEMORY;
}

kiln_status kiln_plan_link(kiln_arena *a, const kiln_plan *p, const kiln_hw *hw, const kiln_image *images, kiln_bytes *launcher, kiln_bytes *manifest,
                           kiln_diag *d)
{
    kiln_bytes text = {0}, json = {0};
    if (!hw->gpu || strcmp(hw->language, "cuda")) return kn_fail(d, KILN_INTERNAL, "a launcher is made for CUDA targets");
    kiln_status s = kn_plan_launcher(a, p, hw, images, &text);
    if (s == KILN_OK) s = kn_plan_manifest(a, p, hw, images, &json);
    if (s == KILN_OK && kn_arena_dry(a)) s = KILN_MEMORY;
    if (s == KILN_MEMORY) return kn_fail(d, s, "out of memory");
    if (s != KILN_OK) return kn_fail(d, s, "a launch names a tensor that its kernel does not have");
    *launcher = text;
    *manifest = json;
    return KILN_OK;
}
