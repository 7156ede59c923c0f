/* The manifest of a kernel that the copy engine feeds: what it says as formulas of its tensors' shapes is what it says in numbers. */
#include "tests/arena.h"
#include "hw/hw.h"
#include "tests/unit/device.h"
#include <cjson/cJSON.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* "in0.shape[1]*2" with the shapes of the manifest. */
static double evaluated(const cJSON *manifest, const char *formula)
{
    double x = 1;
    for (const char *at = formula; *at; at += *at == '*') {
        bool input = !strncmp(at, "in", 2);
        int tensor = 0, axis = 0, used = 0;
        if (sscanf(at, input ? "in%d.shape[%d]%n" : "out%d.shape[%d]%n", &tensor, &axis, &used) == 2 && used) {
            const cJSON *t = cJSON_GetArrayItem(cJSON_GetObjectItem(manifest, input ? "inputs" : "outputs"), tensor);
            const cJSON *extent = cJSON_GetArrayItem(cJSON_GetObjectItem(t, "shape"), axis);
            if (!extent) fail_msg("%s: no such extent", formula);
            x *= extent->valuedouble;
            at += used;
        } else {
            char *end;
            x *= (double)strtol(at, &end, 10);
            if (end == at) fail_msg("%s", formula);
            at = end;
        }
        if (*at && *at != '*') fail_msg("%s", formula);
    }
    return x;
}

/* How many numbers of `numbers` have their formula in `formulas`, which must give the same. */
static int alike(const cJSON *manifest, const cJSON *map, const char *numbers, const char *formulas)
{
    const cJSON *n = cJSON_GetObjectItem(map, numbers), *f = cJSON_GetObjectItem(map, formulas);
    if (!f) return 0;
    assert_int_equal(cJSON_GetArraySize(n), cJSON_GetArraySize(f));
    for (int i = 0; i < cJSON_GetArraySize(n); i++)
        assert_true(cJSON_GetArrayItem(n, i)->valuedouble == evaluated(manifest, cJSON_GetArrayItem(f, i)->valuestring));
    return cJSON_GetArraySize(n);
}

static void maps_as_formulas(void **state)
{
    static const struct { const char *text, *inputs, *one; } cases[] = {
        {"c[M,N] +=! a[M,K]*b[N,K]", "a=bf16:2056x2056&b=bf16:2056x2056", "\"dims_formula\":[\"in0.shape[1]\",\"in0.shape[0]\"]"},
        {"c[M,N] +=! a[M,K]*b[K,N]", "a=f16:4096x4096&b=f16:4096x4096", "\"strides_formula\":[\"out0.shape[1]*2\"]"},
        {"c[B,M,N] +=! a[B,M,K]*b[B,N,K]", "a=bf16:8x1024x1024&b=bf16:8x1024x1024", "shape[1]*in0.shape[2]*2\""},
        {"y[N,P,Q,F] +=! pad(x,0.0)[N,P+R-1,Q+S-1,C]*w[F,R,S,C] where P in 14, Q in 14, R in 3, S in 3",
         "x=f16:64x14x14x256&w=f16:256x3x3x256", "\"dims_formula\":[\"in"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "nvidia-h200");
        kiln_request *r;
        kiln_candidates *c = NULL;
        kiln_kernel *k = NULL;
        kiln_diag d = {0};
        int found = 0;
        kiln_bytes text = {cases[i].text, strlen(cases[i].text)}, inputs = {cases[i].inputs, strlen(cases[i].inputs)};
        if (kiln_request_text(a, text, inputs, NULL, &r, &d) || kiln_construct(a, r->program, hw, "default", 16, &c, &d)) fail_msg("%s", d.message);
        for (int j = 0; j < c->n && !k; j++)
            if (strstr(c->c[j].trace.p, " bulk\n") && kiln_generate(a, r->program, hw, c->c[j].trace, &k, &d)) fail_msg("%s", d.message);
        assert_non_null(k);
        cJSON *manifest = cJSON_ParseWithLength(k->manifest.p, k->manifest.n);
        const cJSON *launch, *arg;
        assert_non_null(manifest);
        cJSON_ArrayForEach(launch, cJSON_GetObjectItem(manifest, "launch"))
            cJSON_ArrayForEach(arg, cJSON_GetObjectItem(launch, "args"))
                found += alike(manifest, arg, "dims", "dims_formula") + alike(manifest, arg, "strides_bytes", "strides_formula");
        if (found < 6 || !strstr(k->manifest.p, cases[i].one)) fail_msg("case %d: %d formulas; %s", (int)i, found, k->manifest.p);
        cJSON_Delete(manifest);
        kiln_arena_close(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(maps_as_formulas)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
