/* The components of a kernel key, taken apart, printed, compared. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "service/spec.h"

static const char *const names[SPEC_PARTS] = {"inputs", "outputs", "statements", "target", "target_description", "policy", "numerics"};

service_ask *service_spec_ask(service_app *app, const cJSON *item, service_reply **problem)
{
    *problem = NULL;
    char *text = cJSON_PrintUnformatted(item);
    service_call part = {.app = app, .content_type = "application/json", .query = "", .body = text, .n = text ? strlen(text) : 0};
    service_ask *a = text ? service_ask_parse(&part, problem) : NULL;
    free(text);
    return a;
}

/* "NAME:LENGTH;BYTES" as kiln_keys_of writes it; advances *at. */
static bool section(kiln_bytes b, size_t *at, const char *name, kiln_bytes *out)
{
    size_t k = strlen(name), n = 0, i = *at + k + 1;
    if (b.n < i || memcmp(b.p + *at, name, k) || b.p[*at + k] != ':') return false;
    while (i < b.n && b.p[i] >= '0' && b.p[i] <= '9' && n < b.n) n = n * 10 + (size_t)(b.p[i++] - '0');
    if (i >= b.n || b.p[i] != ';' || b.n - i - 1 < n) return false;
    *out = (kiln_bytes){b.p + i + 1, n};
    *at = i + 1 + n;
    return true;
}

/* Lines of the program that declare inputs, or that do not. */
static char *lines_of(const char *text, size_t n, bool inputs)
{
    char *out = calloc(1, n + 1);
    size_t at = 0;
    for (size_t i = 0; out && i < n;) {
        const char *end = memchr(text + i, '\n', n - i);
        size_t k = end ? (size_t)(end - text) - i + 1 : n - i;
        bool in = k > 3 && !strncmp(text + i, "in ", 3);
        if (in == inputs) {
            memcpy(out + at, text + i, k);
            at += k;
        }
        i += k;
    }
    return out;
}

static char *outputs_of(const char *statements)
{
    char *out = calloc(1, strlen(statements) + 1);
    size_t at = 0;
    for (const char *p = statements; out && *p; p += strcspn(p, "\n"), p += *p == '\n') { /* what stands left of '[' in each line */
        size_t k = strcspn(p, "[\n");
        if (p[k] != '[' || strncmp(p, "out", 3)) continue;
        memcpy(out + at, p, k);
        at += k;
        out[at++] = ' ';
    }
    if (at) out[at - 1] = 0;
    return out;
}

bool service_parts_of(const char *program, size_t n, kiln_bytes canon, const char *target, service_parts *out)
{
    kiln_bytes workload = {"", 0}, hw = {"", 0};
    size_t at = 0;
    uint8_t digest[32];
    char hex[65];
    *out = (service_parts){0};
    bool ok = section(canon, &at, "workload", &workload) && section(canon, &at, "target", &hw);
    size_t numerics = 0;
    for (int i = 0; i < 2 && ok; i++) { /* "numerics=..;layout=..;" come first */
        const char *semi = memchr(workload.p + numerics, ';', workload.n - numerics);
        if (semi) numerics = (size_t)(semi - workload.p) + 1;
    }
    kiln_sha256(hw.p, hw.n, digest);
    kiln_hex(digest, 32, hex);
    out->text[SPEC_INPUTS] = lines_of(program, n, true);
    out->text[SPEC_STATEMENTS] = lines_of(program, n, false);
    out->text[SPEC_OUTPUTS] = out->text[SPEC_STATEMENTS] ? outputs_of(out->text[SPEC_STATEMENTS]) : NULL;
    out->text[SPEC_TARGET] = strdup(target);
    out->text[SPEC_DESCRIPTION] = strdup(hex);
    out->text[SPEC_POLICY] = ok && at < canon.n ? strndup(canon.p + at, canon.n - at) : strdup("policy:default;");
    out->text[SPEC_NUMERICS] = strndup(workload.p, numerics);
    for (int i = 0; i < SPEC_PARTS; i++) ok = ok && out->text[i];
    if (!ok) service_parts_free(out);
    return ok;
}

bool service_parts_ask(service_ask *a, service_parts *out)
{
    kiln_bytes text;
    if (kiln_program_text(a->arena, a->request->program, &text) != KILN_OK) return false;
    return service_parts_of(text.p, text.n, a->keys.kernel_canon, kiln_hw_id(a->hw), out);
}

bool service_parts_record(const cache_record *r, service_parts *out)
{
    return service_parts_of(r->name, strlen(r->name), r->canon, r->target, out);
}

void service_parts_free(service_parts *p)
{
    for (int i = 0; i < SPEC_PARTS; i++) free(p->text[i]);
    *p = (service_parts){0};
}

cJSON *service_parts_json(const service_parts *p)
{
    cJSON *o = cJSON_CreateObject();
    for (int i = 0; i < SPEC_PARTS; i++) {
        uint8_t digest[32];
        char hex[65];
        cJSON *e = cJSON_AddObjectToObject(o, names[i]);
        kiln_sha256(p->text[i], strlen(p->text[i]), digest);
        kiln_hex(digest, 32, hex);
        cJSON_AddStringToObject(e, "value", p->text[i]);
        cJSON_AddStringToObject(e, "sha256", hex);
    }
    return o;
}

cJSON *service_parts_diff(const service_parts *a, const service_parts *b)
{
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; i < SPEC_PARTS; i++) {
        if (!strcmp(a->text[i], b->text[i])) continue;
        cJSON *e = cJSON_CreateObject();
        cJSON_AddStringToObject(e, "component", names[i]);
        cJSON_AddStringToObject(e, "a", a->text[i]);
        cJSON_AddStringToObject(e, "b", b->text[i]);
        cJSON_AddItemToArray(list, e);
    }
    return list;
}

/* Words of declarations that differ: another size or dtype is one word. */
static int words_apart(const char *a, const char *b)
{
    int apart = 0;
    while (*a || *b) {
        size_t n = strcspn(a, "[], ;\n"), k = strcspn(b, "[], ;\n");
        apart += n != k || strncmp(a, b, n);
        a += n;
        b += k;
        a += *a != 0;
        b += *b != 0;
    }
    return apart;
}

int service_parts_distance(const service_parts *a, const service_parts *b)
{
    int d = 0;
    static const int weight[SPEC_PARTS] = {[SPEC_STATEMENTS] = 100, [SPEC_TARGET] = 10, [SPEC_DESCRIPTION] = 1,
                                            [SPEC_POLICY] = 3, [SPEC_NUMERICS] = 20};
    for (int i = 0; i < SPEC_PARTS; i++) d += strcmp(a->text[i], b->text[i]) ? weight[i] : 0;
    if (d >= weight[SPEC_STATEMENTS]) d += words_apart(a->text[SPEC_STATEMENTS], b->text[SPEC_STATEMENTS]);
    return d + words_apart(a->text[SPEC_INPUTS], b->text[SPEC_INPUTS]);
}
