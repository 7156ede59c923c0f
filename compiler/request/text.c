/* The one-line text form: an expression in the body, inputs and target beside it. */
#include "request/request.h"

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

kiln_status kiln_request_text(kiln_arena *a, kiln_bytes text, kiln_bytes inputs, kiln_request **out, kiln_diag *d)
{
    kn_program *p = NULL;
    kiln_status s = kn_parse(a, text, inputs, &p, d);
    if (s != KILN_OK) return s;
    kiln_request *r = kn_new(a, kiln_request);
    if (!r) return kn_fail(d, KILN_MEMORY, "out of memory");
    *r = (kiln_request){.target = "", .policy = "default", .quality = "any", .top_k = 10};
    s = kn_request_finish(a, p, r, d);
    if (s == KILN_OK) *out = r;
    return s;
}
