/* Orders as text, so that another machine can build the same kernel: the program in the expression language, the hardware, the policy. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "workers/build.h"

static void add(cJSON *o, const char *name, const char *p, size_t n)
{
    char *text = strndup(p ? p : "", p ? n : 0);
    if (text) cJSON_AddStringToObject(o, name, text);
    free(text);
}

char *build_payload(kiln_arena *a, const kiln_request *r, const char *hw_json, int64_t version)
{
    kiln_bytes program;
    if (kiln_program_text(a, r->program, &program) != KILN_OK) return NULL;
    cJSON *o = cJSON_CreateObject();
    add(o, "program", program.p, program.n);
    cJSON_AddStringToObject(o, "hw", hw_json);
    cJSON_AddStringToObject(o, "policy", r->policy ? r->policy : "default");
    if (r->trace.n) add(o, "trace", r->trace.p, r->trace.n);
    cJSON_AddNumberToObject(o, "top_k", r->top_k);
    if (version) cJSON_AddNumberToObject(o, "version", (double)version);
    char *text = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    return text;
}

static const char *member(const cJSON *o, const char *name)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(o, name);
    return cJSON_IsString(x) ? x->valuestring : NULL;
}

static int64_t number(const cJSON *o, const char *name, int64_t otherwise)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(o, name);
    return cJSON_IsNumber(x) && x->valuedouble >= 0 && x->valuedouble < 9e15 ? (int64_t)x->valuedouble : otherwise;
}

kiln_status build_payload_read(kiln_arena *a, const char *payload, build_asked *out, kiln_diag *d)
{
    static const kiln_bytes none = {"", 0};
    *out = (build_asked){0};
    *d = (kiln_diag){.status = KILN_REQUEST, .message = "the payload of the job is not an order", .hint = "program, hw, policy, trace, top_k"};
    if (kiln_json_check((kiln_bytes){payload, strlen(payload)}, d) != KILN_OK) return d->status;
    cJSON *o = out->held = cJSON_Parse(payload);
    const char *program = member(o, "program"), *hw = member(o, "hw"), *policy = member(o, "policy"), *trace = member(o, "trace");
    int64_t top_k = number(o, "top_k", 10);
    out->version = number(o, "version", 0);
    if (!program || !hw || top_k < 1 || top_k > KILN_MAX_CANDIDATES || (policy && strcmp(policy, "default") && strcmp(policy, "roller")))
        return KILN_REQUEST;
    kiln_status s = kiln_request_text(a, (kiln_bytes){program, strlen(program)}, none, NULL, &out->request, d);
    if (s == KILN_OK) s = kiln_hw_parse(a, (kiln_bytes){hw, strlen(hw)}, &out->hw, d);
    if (s != KILN_OK) return s;
    out->request->policy = policy && !strcmp(policy, "roller") ? "roller" : "default";
    out->request->trace = trace ? (kiln_bytes){trace, strlen(trace)} : none;
    out->request->top_k = (int)top_k;
    policy = kiln_request_policy(a, out->request);
    return policy ? kiln_keys_of(a, out->request->program, out->hw, policy, &out->keys, d) : KILN_MEMORY;
}

void build_asked_free(build_asked *x)
{
    cJSON_Delete(x->held);
    x->held = NULL;
}

static void put_word(char *out, size_t size, const char *word)
{
    size_t n = strlen(out);
    if (n + strlen(word) + 2 <= size) snprintf(out + n, size - n, "%s%s", n ? " " : "", word);
}

void build_needs(const kiln_hw *hw, bool run, char out[128])
{
    const char *const *features;
    int n = kiln_hw_features(hw, &features);
    *out = 0;
    if (strcmp(kiln_hw_kind(hw), "gpu")) put_word(out, 128, "cc");
    for (int i = 0; run && i < n; i++) put_word(out, 128, features[i]);
    if (run && !strcmp(kiln_hw_kind(hw), "gpu")) { /* "sm_90" for "sm_90a" */
        char arch[16];
        snprintf(arch, sizeof arch, "%s", kiln_hw_arch(hw));
        arch[3 + strspn(arch + (strlen(arch) > 3 ? 3 : 0), "0123456789")] = 0;
        put_word(out, 128, arch);
    }
}

void build_words(const worker_tools *t, char *out, size_t size)
{
    const char *const *features;
    int n = worker_host_features(&features);
    *out = 0;
    if (*t->cc) put_word(out, size, "cc");
    if (*t->nvrtc) put_word(out, size, "nvrtc");
    if (*t->gpu) put_word(out, size, t->gpu);
    for (int i = 0; i < n; i++) put_word(out, size, features[i]);
}

char *build_problem(int http, const char *slug, const char *title, const char *detail, const char *pointer, const char *hint)
{
    char type[96];
    cJSON *o = cJSON_CreateObject();
    snprintf(type, sizeof type, "/problems/%s", slug);
    cJSON_AddStringToObject(o, "type", type);
    cJSON_AddStringToObject(o, "title", title);
    cJSON_AddNumberToObject(o, "status", http);
    if (*detail) cJSON_AddStringToObject(o, "detail", detail);
    if (*hint) cJSON_AddStringToObject(o, "hint", hint);
    if (*pointer) cJSON_AddStringToObject(o, "pointer", pointer);
    char *text = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    return text;
}

void build_problem_free(char *text) { free(text); }
