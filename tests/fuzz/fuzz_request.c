/* Fuzz target: what a client sends to POST /v1/compile but for HTTP itself: media type, Accept, query and body, up to the key of the kernel.
 * The input is four parts, each ended by a newline but the last: media type, Accept, query, body. */
#include "tests/fuzz/app.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *p = (const char *)data;
    char *type = cut_line(&p, &size), *accept = cut_line(&p, &size), *query = cut_line(&p, &size), *body = calloc(1, size + 1);
    memcpy(body, p, size);
    service_call c = call_of("POST", body, size);
    c.content_type = type;
    c.accept = accept;
    c.query = query;
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
