/* Fuzz target: what a client sends to POST /v1/compile but for HTTP itself: media type, Accept, query and body, up to the key of the kernel.
 * The input is four parts, each ended by a newline but the last: media type, Accept, query, body. */
#include "service/service.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static service_app app;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static char dir[] = "/tmp/kiln-fuzz-XXXXXX", why[256];
    (void)argc;
    (void)argv;
    cache_error e;
    if (!mkdtemp(dir)) abort();
    app.config.hwspecs = (char *)"hwspecs";
    app.cpus = 2;
    app.cache = cache_open(&(cache_config){.data_dir = dir, .memory_bytes = 1 << 20}, &e);
    app.targets = app.cache ? service_targets_open(&app, why, sizeof why) : NULL;
    if (!app.targets) {
        fprintf(stderr, "%s %s\n", e.message, why);
        abort();
    }
    return 0;
}

/* Cuts the next line off *p, or takes all of it. */
static char *line(const char **p, size_t *n)
{
    const char *end = *n ? memchr(*p, '\n', *n) : NULL;
    size_t len = end ? (size_t)(end - *p) : *n;
    char *text = calloc(1, len + 1);
    memcpy(text, *p, len);
    *p += len + (end != NULL);
    *n -= len + (end != NULL);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *p = (const char *)data;
    char *type = line(&p, &size), *accept = line(&p, &size), *query = line(&p, &size), *body = calloc(1, size + 1);
    memcpy(body, p, size);
    service_call c = {.app = &app, .content_type = type, .accept = accept, .query = query, .body = body, .n = size,
                      .if_none_match = "", .prefer = "", .cache_control = "", .range = ""};
    service_reply *problem = NULL;
    service_negotiate(accept, 0x7f);
    service_ask *a = service_ask_parse(&c, &problem);
    if (!a == !problem) abort(); /* either a key or a reason */
    if (a) service_ask_drop(a);
    if (problem) service_reply_drop(problem);
    free(type);
    free(accept);
    free(query);
    free(body);
    return 0;
}
