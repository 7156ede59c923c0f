/* Fuzz target: who a client is and what it wants: Authorization, judged by a service that knows one key and one administrator, Prefer,
 * Last-Event-ID; one a line. Nobody but the holders of the two keys may be let in, and a preference is within its bounds. */
#include "service/auth.h"
#include "tests/fuzz/app.h"

static const char admin[] = "an administrator's key of a test";
static char *secret, known[128], id[24];

/* At the first input: after open_app, which makes the store. */
static void open_auth(void)
{
    static char path[600], why[300];
    static service_config *c = &app.config;
    snprintf(path, sizeof path, "%s/admin", c->data);
    FILE *f = fopen(path, "w");
    if (!f || fprintf(f, "%s\n", admin) < 0 || fclose(f)) abort();
    c->admin_key_file = path;
    app.auth = service_auth_open(&app, why, sizeof why); /* without a thread that refreshes: config.auth comes after */
    c->auth = true;
    bool ok = app.auth && service_key_new(app.auth, "somebody", 1u << SERVICE_READ, 0, "", id, &secret) == CACHE_OK;
    if (!ok || !service_auth_load(app.auth)) abort();
    snprintf(known, sizeof known, "%s", secret);
    freopen("/dev/null", "w", stdout);
}

/* "@" stands for the key, "#" for the administrator's: a fuzzer finds neither. */
static char *filled(const char *line)
{
    char *out = calloc(1, strlen(line) * sizeof known + 1);
    size_t at = 0;
    for (; *line; line++) {
        if (*line == '@' || *line == '#') at += (size_t)sprintf(out + at, "%s", *line == '@' ? known : admin);
        else out[at++] = *line;
    }
    return out;
}

static void judge(const char *authorization)
{
    static const struct service_route read = {.scope = SERVICE_READ}, administer = {.scope = SERVICE_ADMIN};
    const struct service_route *const routes[] = {&read, &administer};
    const char *token = authorization + (strlen(authorization) > 6 ? 7 + strspn(authorization + 7, " ") : 0);
    bool is_known = !strcmp(token, known), is_admin = !strcmp(token, admin);
    for (int i = 0; i < 2; i++) {
        service_call c = call_of("GET", NULL, 0);
        c.route = routes[i];
        service_reply *r = service_auth_judge(&c, authorization, false);
        if (!r && !is_admin && !(is_known && i == 0)) abort();
        if (r && r->status != 401 && r->status != 403) abort();
        if (r && r->status == 403 && !is_known) abort();
        service_reply_drop(r);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *p = (const char *)data;
    if (!app.auth) open_auth();
    char *line = cut_line(&p, &size), *authorization = filled(line), *prefer = cut_line(&p, &size), *event = cut_line(&p, &size);
    judge(authorization);
    service_prefer w = service_prefer_of(prefer);
    if (w.wait_ms < -1 || w.wait_ms > 60000 || (w.wait_ms >= 0 && !strcasestr(prefer, "wait"))) abort();
    if (w.async && !strcasestr(prefer, "respond-async")) abort();
    int64_t since = service_last_event(event);
    if (since < -1 || (since >= 0) != (*event && strlen(event) <= 18 && !event[strspn(event, "0123456789")])) abort();
    free(line);
    free(authorization);
    free(prefer);
    free(event);
    return 0;
}
