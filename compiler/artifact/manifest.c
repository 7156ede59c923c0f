/* Prints the kernel manifest as JSON: flat, every number with its unit in its name. */
#include "artifact/manifest.h"
#include "artifact/launch_text.h"
#include <stdio.h>

/* GPU kernels may load 16 bytes at once; device allocations are aligned to more than that. */
static void put_args(kn_buf *b, const kn_program *p, const kn_hw *hw, const kiln_kernel *k, bool outputs)
{
    int n = outputs ? kiln_program_outputs(p) : kiln_program_inputs(p);
    kn_put(b, "[");
    for (int i = 0; i < n; i++) {
        kiln_arg x;
        if (outputs) kiln_program_output(p, i, &x);
        else kiln_program_input(p, i, &x);
        kn_putf(b, "%s{\"name\":\"%s\",\"dtype\":\"%s\",\"shape\":[", i ? "," : "", x.name, x.dtype);
        for (int j = 0; j < x.rank; j++) kn_putf(b, "%s%lld", j ? "," : "", (long long)x.shape[j]);
        int align = hw->gpu ? 16 : kn_dtype_bytes(p->tensors[outputs ? p->ninputs + i : i].dtype);
        kn_putf(b, "],\"layout\":\"row_major\",\"role\":\"%s\",\"bytes\":%lld,\"align_bytes\":%d", outputs ? "output" : "input",
                (long long)x.bytes, align);
        if (!outputs && p->tensors[i].constant) kn_put(b, ",\"constant\":true");
        for (int j = 0; j < k->npacked && !outputs; j++)
            if (k->packed[j].input == i)
                kn_putf(b, ",\"prepack\":{\"entry\":\"%s_prepack_%d\",\"bytes\":%lld,\"align_bytes\":64}", k->entry, i,
                        (long long)k->packed[j].bytes);
        if (outputs) {
            double rtol, atol;
            kiln_tolerance(p, i, &rtol, &atol);
            kn_put(b, ",\"tolerance\":{\"rtol\":");
            kn_put_double(b, rtol);
            kn_put(b, ",\"atol\":");
            kn_put_double(b, atol);
            kn_put(b, "}");
        }
        kn_put(b, "}");
    }
    kn_put(b, "]");
}

/* "in0", "out0", "temp0": what a tensor slot is called in the manifest. */
static void put_slot(kn_buf *b, const kn_program *p, const kiln_kernel *k, int slot)
{
    int temp = 0;
    while (temp < k->ntemps && k->temp_slots[temp] != slot) temp++;
    if (slot < p->ninputs) kn_putf(b, "\"in%d\"", slot);
    else if (slot < p->ninputs + p->noutputs) kn_putf(b, "\"out%d\"", slot - p->ninputs);
    else kn_putf(b, "\"temp%d\"", temp);
}

static void put_numbers(kn_buf *b, const char *name, const int64_t *x, int n)
{
    kn_putf(b, ",\"%s\":[", name);
    for (int i = 0; i < n; i++) kn_putf(b, "%s%lld", i ? "," : "", (long long)x[i]);
    kn_put(b, "]");
}

/* The product of extents `from` to `to` - 1 of a tensor's shape, times `bytes` where they are no 0, as text. */
static void put_product(kn_buf *b, const char *name, int from, int to, int bytes)
{
    for (int i = from; i < to; i++) kn_putf(b, "%s%s.shape[%d]", i > from ? "*" : "", name, i);
    if (bytes) kn_putf(b, "%s%d", to > from ? "*" : "", bytes);
    else if (to <= from) kn_put(b, "1");
}

/* A map's dims and strides as products of the tensor's shape: a dimension that steps by `stride` bytes is made of the axes before those that `stride`
 * passes over. Tensors that only the kernel has are told in numbers alone. */
static void put_formulas(kn_buf *b, const kn_program *p, int slot, const kiln_tensor_map *m)
{
    if (slot >= p->ninputs + p->noutputs) return;
    const kn_tensor *t = &p->tensors[slot];
    int from[5], to[5], bytes = kn_dtype_bytes(t->dtype);
    for (int d = 0; d < m->rank; d++) {
        int64_t stride = d ? m->strides[d - 1] : bytes, passed = bytes, n = 1;
        for (to[d] = t->rank; to[d] > 0 && passed < stride; to[d]--) passed *= t->shape[to[d] - 1];
        for (from[d] = to[d]; from[d] > 0 && n < m->dims[d]; from[d]--) n *= t->shape[from[d] - 1];
        if (passed != stride || n != m->dims[d]) return; /* bytes as elements of a wider kind, or padding: numbers */
    }
    char name[16];
    snprintf(name, sizeof name, slot < p->ninputs ? "in%d" : "out%d", slot < p->ninputs ? slot : slot - p->ninputs);
    for (int strides = 0; strides < 2; strides++) {
        kn_putf(b, ",\"%s\":[", strides ? "strides_formula" : "dims_formula");
        for (int d = strides; d < m->rank; d++) {
            kn_put(b, d > strides ? ",\"" : "\"");
            put_product(b, name, strides ? to[d] : from[d], strides ? t->rank : to[d], strides ? bytes : 0);
            kn_put(b, "\"");
        }
        kn_put(b, "]");
    }
}

/* An argument: a tensor's pointer by its name, or a tensor map over one, whose address is known at run time only. */
static void put_arg(kn_buf *b, const kn_program *p, const kiln_kernel *k, const kiln_launch *l, int j)
{
    const kiln_tensor_map *m = l->maps && l->maps[j].rank ? &l->maps[j] : NULL;
    int64_t box[5];
    if (!m) {
        put_slot(b, p, k, l->args[j]);
        return;
    }
    for (int i = 0; i < m->rank; i++) box[i] = m->box[i];
    kn_put(b, "{\"tensor_map\":");
    put_slot(b, p, k, l->args[j]);
    kn_putf(b, ",\"dtype\":\"%s\"", m->dtype);
    put_numbers(b, "dims", m->dims, m->rank);
    put_numbers(b, "strides_bytes", m->strides, m->rank - 1);
    put_formulas(b, p, l->args[j], m);
    put_numbers(b, "box", box, m->rank);
    for (int i = 0; i < m->rank; i++) box[i] = m->pixels && (i == 1 || i == 2) ? m->steps[i - 1] : 1;
    put_numbers(b, "element_strides", box, m->rank);
    if (m->pixels)
        kn_putf(b, ",\"mode\":\"im2col\",\"channels_per_pixel\":%d,\"pixels_per_column\":%d,\"lower_corner\":[%d,%d],\"upper_corner\":[%d,%d]",
                m->box[0], m->pixels, m->lower[0], m->lower[1], m->upper[0], m->upper[1]);
    kn_putf(b, ",\"swizzle\":%d,\"l2_promotion\":%d,\"oob_fill\":%d}", m->swizzle, m->l2, m->oob);
}

static void put_launches(kn_buf *b, const kn_program *p, const kiln_kernel *k)
{
    kn_put(b, "[");
    for (int i = 0; i < k->nlaunches; i++) {
        const kiln_launch *l = &k->launches[i];
        kn_putf(b, "%s{\"entry\":\"%s\",\"grid\":[%lld,1,1],", i ? "," : "", l->entry, (long long)l->grid);
        if (l->grid_formula) kn_putf(b, "\"grid_formula\":[\"%s\",\"1\",\"1\"],", l->grid_formula);
        kn_putf(b, "\"block\":[%d,1,1],\"shared_bytes\":%lld,\"dynamic_shared_bytes\":%lld,\"cluster\":[%d,1,1],\"args\":[", l->threads,
                (long long)l->shared_bytes, (long long)l->dynamic_shared_bytes, l->cluster > 1 ? l->cluster : 1);
        for (int j = 0; j < l->nargs; j++) {
            if (j) kn_put(b, ",");
            put_arg(b, p, k, l, j);
        }
        kn_put(b, "]");
        if (l->computing) kn_putf(b, ",\"registers\":{\"asking\":%d,\"computing\":%d}", l->asking, l->computing);
        kn_put(b, "}");
    }
    kn_put(b, "]");
}

/* What the driver must know for the launches: clusters and tensor maps came with CUDA 12.0, the rest is older than any that is met. */
static void put_requirements(kn_buf *b, const kiln_kernel *k)
{
    bool hopper = false;
    int64_t dynamic = 0;
    for (int i = 0; i < k->nlaunches; i++) {
        const kiln_launch *l = &k->launches[i];
        hopper = hopper || l->cluster > 1 || l->maps;
        if (l->dynamic_shared_bytes > dynamic) dynamic = l->dynamic_shared_bytes;
    }
    kn_putf(b, ",\"requires\":{\"shape\":\"exact\",\"layout\":\"contiguous\",\"align_bytes\":16,\"outputs_overlap\":false,"
               "\"opt_in_shared_bytes\":%lld,\"driver_cuda\":\"%s\"}", (long long)dynamic, hopper ? "12.0" : "9.0");
}

/* Launches for when these cannot be: in the same image, of the same results. */
static void put_fallback(kn_buf *b, const kn_program *p, const kiln_kernel *k)
{
    bool maps = false;
    if (!k->fallback) {
        kn_put(b, ",\"fallback\":null");
        return;
    }
    for (int i = 0; i < k->nlaunches; i++) maps |= k->launches[i].maps || k->launches[i].cluster > 1;
    kn_putf(b, ",\"fallback\":{\"when\":[\"unaligned\"%s],\"requires\":{\"shape\":\"exact\",\"layout\":\"contiguous\",\"align\":\"element\","
               "\"driver_cuda\":\"9.0\"},\"deterministic\":true,\"temporaries\":[", maps ? ",\"old_driver\"" : "");
    int64_t at = 0;
    for (int i = 0; i < k->fallback->ntemps; i++) {
        kn_putf(b, "%s{\"name\":\"temp%d\",\"bytes\":%lld,\"workspace_offset_bytes\":%lld}", i ? "," : "", i,
                (long long)k->fallback->temp_bytes[i], (long long)at);
        at += kn_round_up(k->fallback->temp_bytes[i], 256);
    }
    kn_put(b, "],\"launch\":");
    put_launches(b, p, k->fallback);
    kn_put(b, "}");
}

static void put_target(kn_buf *b, const kn_hw *hw)
{
    kn_put(b, "{\"id\":");
    kn_put_json_string(b, hw->id);
    kn_putf(b, ",\"kind\":\"%s\",\"arch\":", hw->gpu ? "gpu" : "cpu");
    kn_put_json_string(b, hw->arch);
    kn_put(b, ",\"features\":[");
    for (int i = 0; i < hw->nfeatures; i++) {
        if (i) kn_put(b, ",");
        kn_put_json_string(b, hw->features[i]);
    }
    kn_put(b, "]}");
}

static void put_memory(kn_buf *b, const kn_program *p, const kn_hw *hw, const kiln_kernel *k)
{
    if (!hw->gpu) {
        int64_t shared = 0;
        for (int i = 0; i < k->ntemps; i++) shared += kn_round_up(k->temp_bytes[i], 64);
        kn_putf(b, "\"workspace\":{\"bytes\":%lld,\"bytes_per_thread\":%lld,\"align_bytes\":64}", (long long)shared,
                (long long)k->scratch_bytes);
        return;
    }
    int64_t at = 0;
    kn_put(b, "\"temporaries\":[");
    for (int i = 0; i < k->ntemps; i++) {
        kn_putf(b, "%s{\"name\":\"temp%d\",\"bytes\":%lld,\"align_bytes\":256,\"cleared\":false,\"workspace_offset_bytes\":%lld}", i ? "," : "", i,
                (long long)k->temp_bytes[i], (long long)at);
        at += kn_round_up(k->temp_bytes[i], 256);
    }
    kn_putf(b, "],\"workspace\":{\"bytes\":%lld,\"align_bytes\":256,\"cleared\":false}", (long long)kn_workspace_bytes(k));
    put_requirements(b, k);
    put_fallback(b, p, k);
}

void kn_put_launch_data(kn_buf *b, const kn_program *p, const kn_hw *hw, const kiln_kernel *k)
{
    kn_put(b, "\"launch\":");
    put_launches(b, p, k);
    kn_put(b, ",");
    put_memory(b, p, hw, k);
}

kiln_status kn_manifest(kiln_arena *a, const kn_program *p, const kn_hw *hw, const kiln_kernel *k, kiln_bytes *out)
{
    kn_buf b;
    double flops, bytes;
    kiln_bytes text;
    if (kiln_program_text(a, p, &text) != KILN_OK) return KILN_MEMORY;
    kiln_work(p, &flops, &bytes);
    kn_buf_init(&b, a);
    kn_putf(&b, "{\"kiln_abi\":1,\"language\":\"%s\",\"entry\":\"%s\",", k->language, k->entry);
    if (!hw->gpu || k->launcher.n) kn_putf(&b, "\"entry_tvm_ffi\":\"__tvm_ffi_%s\",", k->entry);
    kn_put(&b, "\"program\":");
    kn_put_json_string(&b, text.p);
    kn_put(&b, ",\"target\":");
    put_target(&b, hw);
    kn_put(&b, ",\"inputs\":");
    put_args(&b, p, hw, k, false);
    kn_put(&b, ",\"outputs\":");
    put_args(&b, p, hw, k, true);
    kn_put(&b, ",");
    kn_put_launch_data(&b, p, hw, k);
    kn_put(&b, ",\"numerics\":{\"mode\":\"reassoc\",\"fast_math\":false,\"reference\":\"f64 "
               "interpreter\"},\"deterministic\":true,\"work\":{\"flops\":");
    kn_put_double(&b, flops);
    kn_put(&b, ",\"bytes\":");
    kn_put_double(&b, bytes);
    kn_put(&b, "},\"trace\":");
    kn_put_json_string(&b, k->trace.p);
    kn_putf(&b, ",\"provenance\":{\"compiler\":\"kiln\",\"fingerprint\":\"%s\"}}", kiln_fingerprint());
    kiln_bytes t = kn_buf_take(&b);
    if (!t.p) return KILN_MEMORY;
    *out = t;
    return KILN_OK;
}
