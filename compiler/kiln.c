/* The driver: what the library does, as straight lists of calls. */
#include "block/block.h"
#include "codegen/codegen.h"
#include "construct/construct.h"
#include "intrin/intrin.h"
#include "artifact/fallback.h"
#include "artifact/launcher.h"
#include "artifact/launches.h"
#include "artifact/manifest.h"
#include <stdio.h>
#include <string.h>

kiln_status kiln_hw_parse(kiln_arena *a, kiln_bytes json, kiln_hw **out, kiln_diag *d)
{
    kiln_hw *hw;
    kiln_status s = kn_hw_parse(a, json, &hw, d);
    if (s == KILN_OK) s = kn_intrins_parse(a, hw, d);
    if (s == KILN_OK && kn_arena_dry(a)) s = kn_fail(d, KILN_MEMORY, "out of memory");
    if (s == KILN_OK) *out = hw;
    return s;
}

kiln_status kiln_construct(kiln_arena *a, const kiln_program *p, const kiln_hw *hw, const char *policy, int k,
                           kiln_candidates **out, kiln_diag *d)
{
    const kn_policy *how = kn_policy_find(policy);
    if (!how) {
        kn_fail_at(d, KILN_REQUEST, "/policy", "no policy \"%.60s\"", policy);
        kn_hint(d, "default, roller");
        return d->status;
    }
    if (kn_scatters(p)) how = kn_policy_find("default"); /* a tile says nothing of elements whose places the data decide */
    if (k < 1) k = 1;
    if (k > KILN_MAX_CANDIDATES) k = KILN_MAX_CANDIDATES;
    return how->construct(a, p, hw, k, out, d);
}

/* What came from outside must hold as blocks too: bindings independent and covering, regions written before they are read, threads that agree
 * (TensorIR, ASPLOS'23, section 3.3). */
static kiln_status check_blocks(kiln_arena *a, const kiln_program *p, const kiln_hw *hw, kiln_bytes trace, kiln_diag *d)
{
    kn_tree *tree;
    kn_blocks *blocks;
    kiln_status s = kn_trace_apply(a, p, hw, trace, &tree, d);
    if (s != KILN_OK || kn_scatters(p)) return s; /* blocks write what their iterators say: a scatter was judged at the end of the trace */
    s = kn_blocks_of_tree(a, tree, hw, &blocks, d);
    return s == KILN_OK ? kn_blocks_check(blocks, hw, d) : s;
}

kiln_status kiln_construct_request(kiln_arena *a, const kiln_request *r, const kiln_hw *hw, int k, kiln_candidates **out, kiln_diag *d)
{
    if (!r->trace.n) return kiln_construct(a, r->program, hw, r->policy, k, out, d);
    kiln_candidates *list = kn_new(a, kiln_candidates);
    if (!list) return kn_fail(d, KILN_MEMORY, "out of memory");
    kiln_bytes trace;
    kiln_status s = kn_trace_complete(a, r->program, hw, r->trace, &trace, d); /* stored with every decision */
    if (s == KILN_OK) s = check_blocks(a, r->program, hw, trace, d);
    if (s == KILN_OK) s = kn_candidate_of(a, r->program, hw, trace, 0, &list->c[0], d);
    if (s != KILN_OK) {
        if (!*d->pointer) snprintf(d->pointer, sizeof d->pointer, "/trace");
        return s;
    }
    list->n = 1;
    *out = list;
    return KILN_OK;
}

kiln_status kiln_explain(kiln_arena *a, const kiln_program *p, const kiln_hw *hw, kiln_bytes trace, kiln_bytes *out, kiln_diag *d)
{
    kn_tree *tree;
    kn_cost cost;
    kn_buf b;
    kiln_status s = kn_trace_apply(a, p, hw, trace, &tree, d);
    if (s == KILN_OK) s = kn_cost_of(tree, hw, &cost, d);
    if (s != KILN_OK) return s;
    kn_buf_init(&b, a);
    kn_cost_print(&b, tree, hw, &cost);
    kiln_bytes t = kn_buf_take(&b);
    if (!t.p) return kn_fail(d, KILN_MEMORY, "out of memory");
    *out = t;
    return KILN_OK;
}

/* "kiln_" and 16 hex digits of the workload key, so that kernels of one program on two targets have one name. */
static const char *entry_name(kiln_arena *a, const kiln_program *p, const kiln_hw *hw, kiln_diag *d)
{
    kiln_keys keys;
    if (kiln_keys_of(a, p, hw, "default", &keys, d) != KILN_OK) return NULL;
    const char *name = kn_format(a, "kiln_%.16s", keys.workload + 4);
    if (!name) kn_fail(d, KILN_MEMORY, "out of memory");
    return name;
}

static kiln_status print_source(kiln_arena *a, const kiln_hw *hw, const kn_lprog *l, kiln_kernel *k, kiln_diag *d)
{
    const kn_language *language = kn_language_find(hw->language);
    if (!language) return kn_fail_at(d, KILN_TARGET, "/target", "no code generator for language \"%s\" of target %s", hw->language, hw->id);
    k->language = language->name;
    return language->print(a, l, k->entry, &k->source, &k->header, d);
}

/* Kernels for any address go with those that want multiples of 16. */
static kiln_status second_choice(kiln_arena *a, const kiln_program *p, const kiln_hw *hw, kn_lprog *loops, kiln_kernel *k, kiln_diag *d)
{
    if (!hw->gpu || !kn_wants_alignment(loops)) return KILN_OK;
    kn_tree *tree;
    kn_lprog *any;
    kiln_kernel *second = kn_new(a, kiln_kernel);
    if (!second || !(second->entry = kn_format(a, "%s_any", k->entry))) return KILN_MEMORY;
    kiln_status s = KILN_TRACE;
    for (int warps = 1; warps >= 0 && s != KILN_OK && s != KILN_MEMORY; warps--) {
        second->trace = kn_fallback_trace(a, p, warps);
        s = second->trace.p ? kn_trace_apply(a, p, hw, second->trace, &tree, d) : KILN_MEMORY;
        if (s == KILN_OK) s = kn_lower(a, tree, hw, &any, d);
    }
#ifndef NDEBUG
    if (s == KILN_OK) s = kn_lprog_check(any, d);
#endif
    if (s == KILN_OK) s = kn_launches(a, p, hw, tree, any, second, d);
    if (s != KILN_OK) return s;
    loops->fallback = any;
    k->fallback = second;
    return KILN_OK;
}

kiln_status kiln_generate(kiln_arena *a, const kiln_program *p, const kiln_hw *hw, kiln_bytes trace, kiln_kernel **out, kiln_diag *d)
{
    kn_tree *tree;
    kn_lprog *loops;
    kiln_kernel *k = kn_new(a, kiln_kernel);
    if (!k) return kn_fail(d, KILN_MEMORY, "out of memory");
    if (!(k->entry = entry_name(a, p, hw, d))) return d->status;
    k->trace = (kiln_bytes){kn_strndup(a, trace.p, trace.n), trace.n};
    kiln_status s = kn_trace_apply(a, p, hw, trace, &tree, d);
#ifdef KN_CHECK /* debug builds: every schedule */
    if (s == KILN_OK) s = check_blocks(a, p, hw, trace, d);
#endif
    if (s == KILN_OK) s = kn_lower(a, tree, hw, &loops, d);
#ifndef NDEBUG
    if (s == KILN_OK) s = kn_lprog_check(loops, d);
#endif
    if (s == KILN_OK) s = second_choice(a, p, hw, loops, k, d);
    if (s == KILN_OK) s = print_source(a, hw, loops, k, d);
    if (s == KILN_OK && k->fallback) { /* it lies in the same text */
        kiln_kernel *second = kn_new(a, kiln_kernel);
        if (!second) return kn_fail(d, KILN_MEMORY, "out of memory");
        *second = *k->fallback;
        second->language = k->language, second->source = k->source;
        k->fallback = second;
    }
    if (s == KILN_OK) s = kn_launches(a, p, hw, tree, loops, k, d);
    if (s == KILN_OK) s = kn_launcher(a, p, hw, k, &k->launcher);
    if (s == KILN_OK) s = kn_manifest(a, p, hw, k, &k->manifest);
    if (s == KILN_OK && kn_arena_dry(a)) s = KILN_MEMORY;
    if (s == KILN_MEMORY) return kn_fail(d, s, "out of memory");
    if (s == KILN_OK) *out = k;
    return s;
}
