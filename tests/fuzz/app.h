/* What the targets of the HTTP side share: a service without its server, lines cut off the input, a call with empty headers. */
#ifndef TESTS_FUZZ_APP_H
#define TESTS_FUZZ_APP_H
#include "service/service.h"
#include "service/sign.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static service_app app;

static inline void open_app(void)
{
    static char dir[] = "/tmp/kiln-fuzz-XXXXXX", why[256];
    cache_error e = {""};
    if (!mkdtemp(dir)) abort();
    app.config.hwspecs = (char *)"hwspecs";
    app.config.data = dir;
    app.config.trusted_keys = app.config.postgres = (char *)"";
    app.cpus = 2;
    app.cache = cache_open(&(cache_config){.data_dir = dir, .memory_bytes = 1 << 20}, &e);
    app.targets = app.cache ? service_targets_open(&app, why, sizeof why) : NULL;
    app.signer = service_signer_open(&app, why, sizeof why);
    app.metrics = service_metrics_open();
    app.jobs = service_jobs_open(&app);
    if (app.targets && app.signer && app.metrics && app.jobs) return;
    fprintf(stderr, "%s %s\n", e.message, why);
    abort();
}

/* Called by the fuzzer before the first input; a target is one source file. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    open_app();
    return 0;
}

/* Cuts the next line off *p, or takes all of it; malloc'd, with a NUL. */
static inline char *cut_line(const char **p, size_t *n)
{
    const char *end = *n ? memchr(*p, '\n', *n) : NULL;
    size_t len = end ? (size_t)(end - *p) : *n;
    char *text = calloc(1, len + 1);
    memcpy(text, *p, len);
    *p += len + (end != NULL);
    *n -= len + (end != NULL);
    return text;
}

static inline service_call call_of(const char *method, char *body, size_t n)
{
    service_call c = {.app = &app, .content_type = "application/json", .accept = "", .query = "", .body = body, .n = n, .if_none_match = "",
                      .prefer = "", .cache_control = "", .range = "", .if_range = "", .if_match = "", .last_event = "", .traceparent = "",
                      .who = {.scopes = ~0u, .sees_all = true, .open = true}};
    snprintf(c.method, sizeof c.method, "%s", method);
    return c;
}
#endif
