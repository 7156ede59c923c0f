/* A kernel record as an answer: JSON with everything, one artifact, or the bundle. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "service/auth.h"

static const cache_artifact *artifact(const cache_record *r, const char *kind)
{
    for (int i = 0; i < r->nartifacts; i++)
        if (!strcmp(r->artifacts[i].kind, kind)) return &r->artifacts[i];
    return NULL;
}

static bool is_cuda(const cache_record *r) { return r->manifest.p && strstr(r->manifest.p, "\"language\":\"cuda\"") != NULL; }

static unsigned forms_of(const cache_record *r)
{
    unsigned have = 1u << SERVICE_JSON | 1u << SERVICE_ZIP;
    if (artifact(r, "source")) have |= 1u << (is_cuda(r) ? SERVICE_CUDA : SERVICE_C);
    if (artifact(r, "ptx")) have |= 1u << SERVICE_PTX;
    if (artifact(r, "cubin")) have |= 1u << SERVICE_CUBIN;
    if (artifact(r, "so")) have |= 1u << SERVICE_SO;
    return have;
}

/* Of the kernel when it was stored, or what a later measurement says of it in its verdict; 0: nobody has measured it. */
static double measured_us(const cache_record *r)
{
    if (r->measured_us > 0 || r->verification != CACHE_MEASURED) return r->measured_us;
    cJSON *said = cJSON_Parse(r->verdict);
    const cJSON *us = cJSON_GetObjectItemCaseSensitive(said, "median_us");
    double t = cJSON_IsNumber(us) ? us->valuedouble : 0;
    cJSON_Delete(said);
    return t;
}

cJSON *service_kernel_summary(const cache_record *r)
{
    double us = measured_us(r);
    cJSON *o = cJSON_CreateObject(), *q;
    cJSON_AddStringToObject(o, "key", r->key);
    cJSON_AddStringToObject(o, "build", r->build);
    cJSON_AddNumberToObject(o, "version", (double)r->version);
    cJSON_AddStringToObject(o, "workload", r->workload);
    cJSON_AddStringToObject(o, "name", r->name ? r->name : "");
    cJSON_AddStringToObject(o, "target", r->target);
    q = cJSON_AddObjectToObject(o, "quality");
    cJSON_AddStringToObject(q, "origin", r->origin);
    cJSON_AddStringToObject(q, "verification", cache_verification_text(r->verification));
    cJSON_AddNumberToObject(o, "predicted_us", r->predicted_us);
    if (us > 0) cJSON_AddNumberToObject(o, "measured_us", us);
    cJSON_AddNumberToObject(o, "created_ms", (double)r->created_ms);
    return o;
}

static void add_binding(cJSON *o, const service_ask *a)
{
    cJSON *b = cJSON_AddObjectToObject(o, "binding");
    char name[16];
    for (int i = 0; i < a->request->ninputs; i++) {
        snprintf(name, sizeof name, "in%d", i);
        cJSON_AddStringToObject(b, a->request->input_names[i], name);
    }
    for (int i = 0; i < a->request->noutputs; i++) {
        snprintf(name, sizeof name, "out%d", i);
        if (!cJSON_GetObjectItemCaseSensitive(b, a->request->output_names[i]))
            cJSON_AddStringToObject(b, a->request->output_names[i], name);
    }
}

static void add_notes(cJSON *o, const service_app *app, const cache_record *r)
{
    cJSON *notes = cJSON_AddArrayToObject(o, "notes");
    char text[400];
    if (is_cuda(r) && !artifact(r, "cubin")) {
        const char *why = *app->tools.nvrtc ? "NVRTC here does not know this architecture" : app->tools.nvrtc_why;
        if (artifact(r, "ptx")) snprintf(text, sizeof text, "no cubin: %.200s; PTX through clang, which the driver compiles when it loads it", why);
        else snprintf(text, sizeof text, "only source can be had: %.200s%s", why, *app->tools.clang ? ", nor does clang make PTX of it" : "");
        cJSON_AddItemToArray(notes, cJSON_CreateString(text));
    }
    if (!is_cuda(r) && !artifact(r, "so"))
        cJSON_AddItemToArray(notes, cJSON_CreateString("only source can be had: no C compiler was found"));
    if (r->verification == CACHE_PENDING)
        cJSON_AddItemToArray(
            notes, cJSON_CreateString("not verified yet: this host cannot run it; emulation follows (quality \"verified\" waits for it)"));
}

static void add_artifacts(cJSON *o, const cache_record *r)
{
    cJSON *list = cJSON_AddArrayToObject(o, "artifacts");
    for (int i = 0; i < r->nartifacts; i++) {
        char href[100];
        cJSON *e = cJSON_CreateObject();
        snprintf(href, sizeof href, "/v1/blobs/sha256/%s", r->artifacts[i].digest);
        cJSON_AddStringToObject(e, "kind", r->artifacts[i].kind);
        cJSON_AddStringToObject(e, "sha256", r->artifacts[i].digest);
        cJSON_AddNumberToObject(e, "bytes", (double)r->artifacts[i].bytes);
        cJSON_AddStringToObject(e, "href", href);
        cJSON_AddItemToArray(list, e);
    }
}

static cJSON *whole(service_call *c, const cache_record *r, const service_answer *how)
{
    cJSON *o = service_kernel_summary(r), *target = cJSON_CreateObject(), *m = cJSON_ParseWithLength(r->manifest.p, r->manifest.n);
    cJSON_AddStringToObject(target, "id", r->target);
    if (how->ask) {
        cJSON_AddStringToObject(target, "asked", how->ask->target);
        cJSON_AddStringToObject(target, "arch", kiln_hw_arch(how->ask->hw));
    }
    cJSON_ReplaceItemInObjectCaseSensitive(o, "target", target);
    if (how->ask) add_binding(o, how->ask);
    if (m) cJSON_AddItemToObject(o, "manifest", m);
    add_artifacts(o, r);
    char *said = cache_sealed_plain(r->verdict);
    cJSON *v = said ? cJSON_Parse(said) : NULL;
    free(said);
    cJSON_AddItemToObject(o, "verification", v ? v : cJSON_CreateObject());
    if (how->times) {
        cJSON *t = cJSON_AddObjectToObject(o, "timings_ms");
        const double ms[] = {how->times->canon,   how->times->lookup,    how->times->construct,
                             how->times->codegen, how->times->toolchain, how->times->verify};
        static const char *const names[] = {"canon", "lookup", "construct", "codegen", "toolchain", "verify"};
        for (int i = 0; i < 6; i++)
            if (i < 2 || ms[i] > 0) cJSON_AddNumberToObject(t, names[i], (double)(int64_t)(ms[i] * 1000) / 1000);
    }
    add_notes(o, c->app, r);
    return o;
}

static service_reply *bundle(service_call *c, const cache_record *r, const service_answer *how)
{
    static const struct {
        const char *kind, *name;
    } names[] = {
        {"header", "kernel.h"},
        {"launcher", "launcher.c"},
        {"so", "lib.so"},
        {"ptx", "kernel.ptx"},
        {"cubin", "kernel.cubin"},
    };
    service_file files[10] = {{"manifest.json", NULL, 0}};
    char *bytes[10] = {0}, *zip = NULL;
    size_t size = 0;
    int n = 1;
    bool ok = true;
    service_answer still = {how->ask, "", NULL}; /* no times: the bundle's bytes depend on the kernel alone */
    cJSON *o = whole(c, r, &still);
    char *text = cJSON_Print(o);
    cJSON_Delete(o);
    files[0].p = text;
    files[0].n = text ? strlen(text) : 0;
    for (int i = 0; ok && i < r->nartifacts; i++) {
        const char *name = is_cuda(r) ? "kernel.cu" : "kernel.c";
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (!strcmp(names[k].kind, r->artifacts[i].kind)) name = names[k].name;
        ok = cache_get_blob(c->app->cache, r->artifacts[i].digest, &bytes[n], &files[n].n) == CACHE_OK;
        snprintf(files[n].name, sizeof files[n].name, "%s", name);
        files[n].p = bytes[n];
        n++;
    }
    ok = ok && text && service_bundle(files, n, &zip, &size);
    for (int i = 1; i < n; i++) free(bytes[i]);
    free(text);
    service_reply *reply = ok ? service_reply_new(200, "application/zip", zip, size) : NULL;
    service_reply_header(reply, "Content-Disposition", "attachment; filename=\"%.20s.kiln\"", r->key);
    return reply;
}

static service_reply *one_artifact(service_call *c, const cache_record *r, enum service_form f)
{
    const cache_artifact *x = artifact(r, service_form_kind(f));
    char *bytes;
    size_t n;
    if (!x || cache_get_blob(c->app->cache, x->digest, &bytes, &n) != CACHE_OK)
        return service_problem(503, "store-unavailable", "the artifact cannot be read", NULL,
                               "ask again: it is compiled anew when it is lost");
    return service_reply_new(200, service_form_media(f), bytes, n);
}

static service_reply *not_acceptable(unsigned have, const char *accept)
{
    char list[400] = "";
    for (int f = 0; f < SERVICE_FORMS; f++) {
        size_t n = strlen(list);
        if (have & 1u << f) snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", service_form_media((enum service_form)f));
    }
    return service_problem(406, "not-acceptable", "this kernel cannot be had in the form asked for", accept, list);
}

static void add_headers(service_call *c, service_reply *reply, const cache_record *r, const service_answer *how, const char *etag)
{
    const service_times *t = how->times;
    service_reply_header(reply, "ETag", "%s", etag);
    service_reply_header(reply, "Cache-Control", "private, no-cache");
    if (how->cache_status) service_reply_header(reply, "Cache-Status", "%s", how->cache_status);
    service_reply_header(reply, "Kiln-Key", "%s", r->key);
    service_reply_header(reply, "Kiln-Verification", "%s", cache_verification_text(r->verification));
    if (t)
        service_reply_header(
            reply, "Server-Timing",
            "canon;dur=%.3f, lookup;dur=%.3f, construct;dur=%.3f, codegen;dur=%.3f, toolchain;dur=%.3f, verify;dur=%.3f, total;dur=%.3f",
            t->canon, t->lookup, t->construct, t->codegen, t->toolchain, t->verify, service_now_ms() - c->began_ms);
    const cache_artifact *source = artifact(r, "source");
    if (source)
        service_reply_header(reply, "Link",
                             "</v1/kernels/%s>; rel=\"canonical\", </v1/blobs/sha256/%s>; rel=\"describedby\"; title=\"source\"", r->key,
                             source->digest);
}

service_reply *service_answer_kernel(service_call *c, const cache_record *r, const service_answer *how)
{
    unsigned have = forms_of(r);
    int f = service_negotiate(c->accept, have);
    char etag[140];
    if (f < 0) return not_acceptable(have, c->accept);
    service_grant_record(c, r);
    snprintf(etag, sizeof etag, "\"%s-%s-%s\"", r->build, cache_verification_text(r->verification),
             strrchr(service_form_media(f), '/') + 1);
    service_reply *reply;
    if (*c->if_none_match && service_etag_matches(c->if_none_match, etag)) {
        reply = service_reply_text(304, service_form_media((enum service_form)f), "");
    } else {
        reply = f == SERVICE_JSON  ? service_reply_json(200, whole(c, r, how))
                : f == SERVICE_ZIP ? bundle(c, r, how)
                                   : one_artifact(c, r, (enum service_form)f);
        if (reply && reply->status == 200) service_reply_digest(reply);
    }
    if (reply && reply->status < 400) add_headers(c, reply, r, how, etag);
    return reply;
}
