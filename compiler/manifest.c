/* Prints the kernel manifest as JSON: flat, every number with its unit in its name. */
#include "manifest.h"

/* GPU kernels may load 16 bytes at once; device allocations are aligned to more than that. */
static void put_args(kn_buf *b, const kn_program *p, const kn_hw *hw, bool outputs)
{
    int n = outputs ? kiln_program_outputs(p) : kiln_program_inputs(p);
    kn_put(b, "[");
    for (int i = 0; i < n; i++) {
        kiln_arg x;
        if (outputs) kiln_program_output(p, i, &x);
        else kiln_program_input(p, i, &x);
        kn_putf(b, "%s{\"name\":\"%s\",\"dtype\":\"%s\",\"shape\":[", i ? "," : "", x.name, x.dtype);
        for (int k = 0; k < x.rank; k++) kn_putf(b, "%s%lld", k ? "," : "", (long long)x.shape[k]);
        int align = hw->gpu ? 16 : kn_dtype_bytes(p->tensors[outputs ? p->ninputs + i : i].dtype);
        kn_putf(b, "],\"layout\":\"row_major\",\"role\":\"%s\",\"bytes\":%lld,\"align_bytes\":%d", outputs ? "output" : "input",
                (long long)x.bytes, align);
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
static void put_slot(kn_buf *b, const kn_program *p, int slot)
{
    if (slot < p->ninputs) kn_putf(b, "\"in%d\"", slot);
    else if (slot < p->ninputs + p->noutputs) kn_putf(b, "\"out%d\"", slot - p->ninputs);
    else kn_putf(b, "\"temp%d\"", slot - p->ninputs - p->noutputs);
}

static void put_launches(kn_buf *b, const kn_program *p, const kiln_kernel *k)
{
    kn_put(b, "[");
    for (int i = 0; i < k->nlaunches; i++) {
        const kiln_launch *l = &k->launches[i];
        kn_putf(b, "%s{\"entry\":\"%s\",\"grid\":[%lld,1,1],\"block\":[%d,1,1],\"shared_bytes\":%lld,\"dynamic_shared_bytes\":%lld,"
                "\"cluster\":[1,1,1],\"args\":[",
                i ? "," : "", l->entry, (long long)l->grid, l->threads, (long long)l->shared_bytes,
                (long long)l->dynamic_shared_bytes);
        for (int j = 0; j < l->nargs; j++) {
            if (j) kn_put(b, ",");
            put_slot(b, p, l->args[j]);
        }
        kn_put(b, "]}");
    }
    kn_put(b, "]");
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

static void put_memory(kn_buf *b, const kn_hw *hw, const kiln_kernel *k)
{
    if (!hw->gpu) {
        int64_t shared = 0;
        for (int i = 0; i < k->ntemps; i++) shared += kn_round_up(k->temp_bytes[i], 64);
        kn_putf(b, "\"workspace\":{\"bytes\":%lld,\"bytes_per_thread\":%lld,\"align_bytes\":64}", (long long)shared,
                (long long)k->scratch_bytes);
        return;
    }
    kn_put(b, "\"temporaries\":[");
    for (int i = 0; i < k->ntemps; i++)
        kn_putf(b, "%s{\"name\":\"temp%d\",\"bytes\":%lld,\"align_bytes\":256,\"cleared\":false}", i ? "," : "", i, (long long)k->temp_bytes[i]);
    kn_put(b, "]");
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
    if (!hw->gpu) kn_putf(&b, "\"entry_tvm_ffi\":\"__tvm_ffi_%s\",", k->entry);
    kn_put(&b, "\"program\":");
    kn_put_json_string(&b, text.p);
    kn_put(&b, ",\"target\":");
    put_target(&b, hw);
    kn_put(&b, ",\"inputs\":");
    put_args(&b, p, hw, false);
    kn_put(&b, ",\"outputs\":");
    put_args(&b, p, hw, true);
    kn_put(&b, ",\"launch\":");
    put_launches(&b, p, k);
    kn_put(&b, ",");
    put_memory(&b, hw, k);
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
