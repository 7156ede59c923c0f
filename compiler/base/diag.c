/* Diagnostics: status tables and the one way to fill a kiln_diag. */
#include "base/base.h"
#include <stdio.h>
#include <string.h>

static const struct { const char *slug, *text; int http; } rows[] = {
#define X(name, slug, http, text) [KILN_##name] = {slug, text, http},
#include "errors.def"
#undef X
};

static size_t row_of(kiln_status s) { return (unsigned)s < KILN_STATUS_COUNT ? (size_t)s : KILN_INTERNAL; }
const char *kiln_status_slug(kiln_status s) { return rows[row_of(s)].slug; }
const char *kiln_status_text(kiln_status s) { return rows[row_of(s)].text; }
int kiln_status_http(kiln_status s) { return rows[row_of(s)].http; }

kiln_status kn_fail(kiln_diag *d, kiln_status s, const char *fmt, ...)
{
    *d = (kiln_diag){.status = s};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(d->message, sizeof d->message, fmt, ap);
    va_end(ap);
    return s;
}

kiln_status kn_fail_at(kiln_diag *d, kiln_status s, const char *pointer, const char *fmt, ...)
{
    *d = (kiln_diag){.status = s};
    snprintf(d->pointer, sizeof d->pointer, "%s", pointer);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(d->message, sizeof d->message, fmt, ap);
    va_end(ap);
    return s;
}

void kn_hint(kiln_diag *d, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(d->hint, sizeof d->hint, fmt, ap);
    va_end(ap);
}
