/* What a client wants: Accept against what there is (RFC 9110, 12.5.1), Prefer (RFC 7240), Last-Event-ID. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "service/service.h"

typedef struct media {
    const char *name;
    enum service_form form;
} media;
static const media medias[] = {
    {"application/json", SERVICE_JSON},
    {"text/x-c", SERVICE_C},
    {"text/x-cuda", SERVICE_CUDA},
    {"text/x-ptx", SERVICE_PTX},
    {"application/x-cubin", SERVICE_CUBIN},
    {"application/x-sharedlib", SERVICE_SO},
    {"application/zip", SERVICE_ZIP},
    {"application/vnd.kiln.so", SERVICE_SO},
    {"text/plain", SERVICE_C},
    {"text/plain", SERVICE_CUDA},
};

const char *service_form_media(enum service_form f) { return medias[f].name; }

const char *service_form_kind(enum service_form f)
{
    static const char *const kinds[SERVICE_FORMS] = {"", "source", "source", "ptx", "cubin", "so", ""};
    return kinds[f];
}

bool service_media_is(const char *header, const char *type)
{
    size_t n = strcspn(header, "; \t,"), k = strlen(type);
    return n == k && !strncasecmp(header, type, n);
}

static int best_of(const char *range, unsigned have)
{
    size_t n = strcspn(range, "; \t,");
    if (n == 3 && !strncmp(range, "*/*", 3)) return have & 1u << SERVICE_JSON ? SERVICE_JSON : -1;
    for (size_t i = 0; i < sizeof medias / sizeof *medias; i++) {
        const char *m = medias[i].name;
        bool same = service_media_is(range, m) || (n > 2 && range[n - 1] == '*' && range[n - 2] == '/' && !strncasecmp(m, range, n - 1));
        if (same && have & 1u << medias[i].form) return medias[i].form;
    }
    return -1;
}

int service_negotiate(const char *accept, unsigned have)
{
    int best = -1;
    double quality = 0;
    if (!*accept) accept = "*/*";
    for (const char *p = accept; *p;) {
        p += strspn(p, " \t,");
        size_t n = strcspn(p, ",");
        if (!n) break;
        double q = 1;
        for (const char *s = memchr(p, ';', n); s; s = memchr(s + 1, ';', n - (size_t)(s + 1 - p))) {
            const char *v = s + 1 + strspn(s + 1, " \t");
            if ((*v == 'q' || *v == 'Q') && v[1] == '=') q = strtod(v + 2, NULL);
        }
        int f = best_of(p, have);
        if (f >= 0 && q > quality && q <= 1) {
            best = f;
            quality = q;
        }
        p += n;
    }
    return best;
}

/* One preference of the list from p: a token, maybe "= value" (a token or quoted); parameters are passed over. Returns its end. */
static const char *preference(const char *p, const char **name, size_t *n, const char **value, size_t *k)
{
    p += strspn(p, " \t,");
    *name = p;
    *n = strcspn(p, " \t,;=");
    p += *n;
    const char *at = p + strspn(p, " \t");
    *value = "";
    *k = 0;
    if (*at == '=') {
        at += 1 + strspn(at + 1, " \t");
        bool quoted = *at == '"';
        *value = at + quoted;
        *k = strcspn(*value, quoted ? "\"" : " \t,;");
        p = *value + *k + (quoted && (*value)[*k]);
    }
    for (bool quoted = false; *p && (quoted || *p != ','); p++) quoted ^= *p == '"';
    return p;
}

/* The first of a name counts. A number that is none is no preference; more than a minute is a minute. */
service_prefer service_prefer_of(const char *header)
{
    service_prefer out = {.wait_ms = -1};
    for (const char *p = header; *p;) {
        const char *name, *value;
        size_t n, k;
        p = preference(p, &name, &n, &value, &k);
        if (n == 13 && !strncasecmp(name, "respond-async", 13)) out.async = true;
        if (n != 4 || strncasecmp(name, "wait", 4) || out.wait_ms >= 0 || !k || strspn(value, "0123456789") < k) continue;
        out.wait_ms = k > 9 || atoi(value) > 60 ? 60000 : atoi(value) * 1000;
    }
    return out;
}

int64_t service_last_event(const char *header)
{
    size_t n = strlen(header);
    return n && n <= 18 && strspn(header, "0123456789") == n ? strtoll(header, NULL, 10) : -1;
}
