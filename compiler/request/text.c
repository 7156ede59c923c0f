/* The one-line text form: an expression in the body, inputs and target beside it. */
#include "grad/grad.h"
#include "request/request.h"
#include <stdio.h>
#include <string.h>

kiln_status kn_request_finish(kiln_arena *a, const kn_program *p, kiln_request *r, kiln_diag *d)
{
    int in_perm[KILN_MAX_TENSORS] = {0}, out_perm[KILN_MAX_TENSORS] = {0};
    kn_program *canonical = NULL;
    kiln_status s = kn_canon(a, p, &canonical, in_perm, out_perm, d);
    if (s != KILN_OK) return s;
    const char **in = kn_array(a, const char *, canonical->ninputs + 1), **out = kn_array(a, const char *, canonical->noutputs + 1);
    if (!in || !out) return kn_fail(d, KILN_MEMORY, "out of memory");
    for (int i = 0; i < canonical->ninputs; i++) in[i] = p->tensors[in_perm[i]].name;
    for (int i = 0; i < canonical->noutputs; i++) out[i] = p->tensors[p->ninputs + out_perm[i]].name;
    r->program = canonical;
    r->ninputs = canonical->ninputs;
    r->noutputs = canonical->noutputs;
    r->input_names = in;
    r->output_names = out;
    return KILN_OK;
}

static int input_named(const kn_program *p, const char *name, size_t n)
{
    int i = 0;
    while (i < p->ninputs && (strlen(p->tensors[i].name) != n || memcmp(p->tensors[i].name, name, n))) i++;
    return i < p->ninputs ? i : -1;
}

/* "a,b": the program becomes that of its gradients by these inputs. */
static kiln_status differentiate(kiln_arena *a, const char *names, kn_program **p, kiln_diag *d)
{
    int inputs[KILN_MAX_TENSORS], n = 0;
    for (const char *at = names; *at || at == names; at += *at == ',') {
        size_t len = strcspn(at, ",");
        int i = input_named(*p, at, len);
        for (int k = 0; k < n; k++)
            if (inputs[k] == i) i = -1;
        if (i < 0) {
            kn_fail_at(d, KILN_REQUEST, "?grad", "\"%.*s\" is no input, or named twice", len > 64 ? 64 : (int)len, at);
            kn_hint(d, "names of inputs, as in grad=a or grad=a,b");
            return KILN_REQUEST;
        }
        inputs[n++] = i;
        at += len;
    }
    kiln_status s = kn_grad(a, *p, inputs, n, p, d);
    if (s != KILN_OK && (!*d->pointer || *d->pointer == '/')) snprintf(d->pointer, sizeof d->pointer, "?grad");
    return s;
}

kiln_status kiln_request_text(kiln_arena *a, kiln_bytes text, kiln_bytes inputs, const char *grad, kiln_request **out, kiln_diag *d)
{
    kn_program *p = NULL;
    kiln_status s = kn_parse(a, text, inputs, &p, d);
    if (s == KILN_OK && grad && *grad) s = differentiate(a, grad, &p, d);
    if (s != KILN_OK) return s;
    kiln_request *r = kn_new(a, kiln_request);
    if (!r) return kn_fail(d, KILN_MEMORY, "out of memory");
    *r = (kiln_request){.target = "", .policy = "default", .quality = "any", .top_k = 10};
    s = kn_request_finish(a, p, r, d);
    if (s == KILN_OK) *out = r;
    return s;
}
