/* The contract of a kernel's arithmetic is one so far (keys.c has it in every key): a request that relies on another is told so. */
#include "request/contract.h"
#include <stdio.h>
#include <string.h>

static const char *const modes[] = {"reassoc", "strict", "fast", NULL}; /* the first is what kernels have; the others are not built */

static kiln_status check_mode(const cJSON *m, const char *pointer, kiln_diag *d)
{
    if (!cJSON_IsString(m)) return kn_fail_at(d, KILN_REQUEST, pointer, "%s must be a string", pointer);
    if (!strcmp(m->valuestring, modes[0])) return KILN_OK;
    for (int i = 1; modes[i]; i++)
        if (!strcmp(m->valuestring, modes[i])) {
            kn_fail_at(d, KILN_UNSUPPORTED, pointer, "numerics \"%s\" is not supported yet", modes[i]);
            kn_hint(d, "\"%s\": sums in any order, NaN and infinity as in IEEE 754", modes[0]);
            return d->status;
        }
    kn_fail_at(d, KILN_REQUEST, pointer, "\"%.60s\" is no mode of numerics", m->valuestring);
    kn_hint(d, "\"%s\"", modes[0]);
    return d->status;
}

static kiln_status check_numerics(const cJSON *m, kiln_diag *d)
{
    if (!m || cJSON_IsNull(m)) return KILN_OK;
    if (!cJSON_IsObject(m)) return check_mode(m, "/numerics", d);
    for (const cJSON *e = m->child; e; e = e->next) {
        char pointer[96];
        snprintf(pointer, sizeof pointer, "/numerics/%.80s", e->string);
        if (!strcmp(e->string, "mode")) {
            kiln_status s = check_mode(e, pointer, d);
            if (s != KILN_OK) return s;
        } else if (!strcmp(e->string, "deterministic")) { /* every kernel is: who does not ask for it gets it, too */
            if (!cJSON_IsBool(e)) return kn_fail_at(d, KILN_REQUEST, pointer, "%s must be true or false", pointer);
        } else {
            kn_fail_at(d, KILN_UNSUPPORTED, pointer, "numerics may not set \"%.60s\"", e->string);
            kn_hint(d, "mode, deterministic; the tolerance that a kernel is verified to stands in its manifest");
            return d->status;
        }
    }
    return KILN_OK;
}

static kiln_status check_accumulate(const cJSON *m, const kn_program *p, kiln_diag *d)
{
    enum kn_dtype asked;
    if (!m || cJSON_IsNull(m)) return KILN_OK;
    if (!cJSON_IsString(m)) return kn_fail_at(d, KILN_REQUEST, "/accumulate", "/accumulate must be a dtype such as \"f32\"");
    if (!kn_dtype_find(m->valuestring, strlen(m->valuestring), &asked))
        return kn_fail_at(d, KILN_DTYPE, "/accumulate", "no dtype \"%.40s\"", m->valuestring);
    for (int i = 0; i < p->nstmts; i++) {
        const kn_stmt *s = p->stmts[i];
        if (s->red != KN_RED_SUM && s->red != KN_RED_PROD) continue;
        if (kn_stmt_acc(s) == asked) continue;
        kn_fail_at(d, KILN_UNSUPPORTED, "/accumulate", "sums of %s accumulate in %s", kn_dtype_text(s->body->dtype), kn_dtype_text(kn_stmt_acc(s)));
        kn_hint(d, "\"%s\"; an expression may cast its operands to another dtype", kn_dtype_text(kn_stmt_acc(s)));
        return d->status;
    }
    return KILN_OK;
}

kiln_status kn_request_contract(const cJSON *root, const kn_program *p, kiln_diag *d)
{
    kiln_status s = check_numerics(cJSON_GetObjectItemCaseSensitive(root, "numerics"), d);
    return s == KILN_OK ? check_accumulate(cJSON_GetObjectItemCaseSensitive(root, "accumulate"), p, d) : s;
}
