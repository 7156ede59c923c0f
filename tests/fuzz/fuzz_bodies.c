/* Fuzz target: JSON bodies of the routes beside compile that need no other process: key, explain, lookup, mappings, measurements (the lines of
 * kiln import-results). The first byte chooses the route. */
#include "tests/fuzz/app.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const service_handler routes[] = {rt_key, rt_explain, rt_lookup, rt_mappings, rt_measurements};
    if (!size) return 0;
    char *body = calloc(1, size);
    memcpy(body, data + 1, size - 1);
    app.config.deadline_ms = 1000;
    service_call c = call_of("POST", body, size - 1);
    service_reply *r = routes[*data % (sizeof routes / sizeof *routes)](&c);
    if (!r || r->status < 200 || r->status > 599) abort();
    service_reply_drop(r);
    service_ask_drop(c.ask);
    free(body);
    return 0;
}
