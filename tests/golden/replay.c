/* Replay: for every request on stdin (JSON, one a line) and every hardware description named: the constructed trace goes through JSON and back
 * exactly, gives byte-identical source in a fresh arena, and leaves the next request's program as it was whether it fits there or not. */
#include "tests/arena.h"
#include "kiln.h"
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct run { kiln_arena *a; kiln_request *r; kiln_hw *hw; kiln_candidates *c; kiln_kernel *k; kiln_diag d; } run;

static char *read_all(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *s = calloc(1, 1 << 20);
    *n = f && s ? fread(s, 1, (1 << 20) - 1, f) : 0;
    if (f) fclose(f);
    return s;
}

/* Everything from the request to the source; trace NULL: the one that the policy constructs. */
static bool make(run *x, const char *request, const char *spec, size_t nspec, const char *trace)
{
    *x = (run){.a = kiln_arena_open(&(kiln_host){NULL, mem, NULL})};
    if (!x->a || kiln_request_json(x->a, (kiln_bytes){request, strlen(request)}, &x->r, &x->d) ||
        kiln_hw_parse(x->a, (kiln_bytes){spec, nspec}, &x->hw, &x->d))
        return false;
    if (!trace && kiln_construct(x->a, x->r->program, x->hw, "default", 1, &x->c, &x->d)) return false;
    kiln_bytes t = trace ? (kiln_bytes){trace, strlen(trace)} : x->c->c[0].trace;
    return kiln_generate(x->a, x->r->program, x->hw, t, &x->k, &x->d) == KILN_OK;
}

static bool same(kiln_bytes a, kiln_bytes b) { return a.n == b.n && !memcmp(a.p, b.p, a.n); }

static const char *through_json(const char *trace, char **out)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "trace", trace);
    char *text = cJSON_PrintUnformatted(o);
    cJSON *back = cJSON_Parse(text);
    *out = strdup(cJSON_GetStringValue(cJSON_GetObjectItem(back, "trace")));
    cJSON_Delete(o);
    cJSON_Delete(back);
    free(text);
    return *out;
}

static const char *check(const char *request, const char *next, const char *spec, size_t nspec, int *strangers)
{
    static char why[800];
    run one, two, other;
    char *trace = NULL;
    why[0] = 0;
    if (!make(&one, request, spec, nspec, NULL)) {
        snprintf(why, sizeof why, "%.300s %.400s", one.d.pointer, one.d.message);
    } else if (strcmp(through_json(one.k->trace.p, &trace), one.k->trace.p)) {
        snprintf(why, sizeof why, "the trace is another one after JSON");
    } else {
        if (!make(&two, request, spec, nspec, trace)) snprintf(why, sizeof why, "does not replay: %.600s", two.d.message);
        else if (!same(one.k->source, two.k->source) || !same(one.k->manifest, two.k->manifest)) snprintf(why, sizeof why, "the source differs");
        kiln_arena_close(two.a);
        kiln_bytes before, after;
        bool fits = make(&other, next, spec, nspec, NULL);
        if (fits && kiln_program_text(other.a, other.r->program, &before) == KILN_OK) {
            kiln_diag d = {0};
            kiln_kernel *k;
            if (kiln_generate(other.a, other.r->program, other.hw, (kiln_bytes){trace, strlen(trace)}, &k, &d)) {
                ++*strangers;
                if (!d.message[0]) snprintf(why, sizeof why, "a foreign trace is refused without a reason");
            }
            kiln_program_text(other.a, other.r->program, &after);
            if (!same(before, after)) snprintf(why, sizeof why, "a foreign trace changed the program");
        }
        kiln_arena_close(other.a);
    }
    kiln_arena_close(one.a);
    free(trace);
    return why[0] ? why : NULL;
}

int main(int argc, char **argv)
{
    static char *line[4096];
    int n = 0, bad = 0, all = 0, strangers = 0;
    for (char text[1 << 14]; n < 4096 && fgets(text, sizeof text, stdin);) line[n++] = strdup(text);
    for (int t = 1; t < argc; t++) {
        size_t nspec;
        char *spec = read_all(argv[t], &nspec);
        for (int i = 0; i < n; i++, all++) {
            const char *why = check(line[i], line[(i + 1) % n], spec, nspec, &strangers);
            if (!why) continue;
            bad++;
            printf("%s on %s: %s\n", line[i], argv[t], why);
        }
        free(spec);
    }
    for (int i = 0; i < n; i++) free(line[i]);
    printf("# %d replayed byte for byte, %d failed; %d of the traces are refused by the next program\n", all - bad, bad, strangers);
    return bad || !all;
}
