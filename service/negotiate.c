/* Which form of a kernel a client wants: Accept against what there is (RFC 9110, 12.5.1). */
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
