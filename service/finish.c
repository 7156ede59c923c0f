/* The last touches of a reply: conditions, content coding, digest, ranges (RFC 9110, RFC 9530). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>
#include <zstd.h>
#include "service/service.h"

enum { CODED_FROM = 1024 };
static const char *const codings[] = {"identity", "gzip", "zstd"};

enum service_coding service_coding_of(const char *accept)
{
    double best = 0;
    enum service_coding coding = SERVICE_IDENTITY;
    for (const char *p = accept; *p;) {
        p += strspn(p, " \t,");
        size_t n = strcspn(p, ","), k = strcspn(p, "; \t,");
        const char *s = memchr(p, ';', n);
        double q = 1;
        if (s && strspn(s + 1, " \tqQ=")) q = strtod(s + 1 + strspn(s + 1, " \tqQ="), NULL);
        for (int i = SERVICE_GZIP; i <= SERVICE_ZSTD; i++) {
            bool same = (k == strlen(codings[i]) && !strncasecmp(p, codings[i], k)) || (k == 1 && *p == '*');
            if (!same || q <= 0 || q > 1 || q < best || (q == best && i < (int)coding)) continue;
            best = q;
            coding = (enum service_coding)i;
        }
        p += n;
    }
    return coding;
}

const char *service_coding_text(enum service_coding c) { return codings[c]; }

/* Length of a tag without its quotes and without the suffix that a coding gave it. */
static size_t tag_length(const char *p, size_t n)
{
    for (int i = SERVICE_GZIP; i <= SERVICE_ZSTD; i++) {
        size_t k = strlen(codings[i]);
        if (n > k + 1 && p[n - k - 1] == '-' && !strncmp(p + n - k, codings[i], k)) return n - k - 1;
    }
    return n;
}

bool service_etag_matches(const char *header, const char *etag)
{
    const char *own = strchr(etag, '"');
    if (!strcmp(header, "*")) return true;
    if (!own) return false;
    size_t n = tag_length(own + 1, strcspn(own + 1, "\""));
    for (const char *p = strchr(header, '"'); p; p = strchr(p + 1, '"')) {
        size_t k = strcspn(++p, "\"");
        if (tag_length(p, k) == n && !strncmp(p, own + 1, n)) return true;
        p += k;
        if (!*p) break;
    }
    return false;
}

static char *deflated(const char *p, size_t n, size_t *out)
{
    z_stream z = {0};
    if (deflateInit2(&z, 5, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) return NULL;
    size_t room = deflateBound(&z, (uLong)n);
    char *to = malloc(room);
    z.next_in = (Bytef *)(uintptr_t)p;
    z.avail_in = (uInt)n;
    z.next_out = (Bytef *)to;
    z.avail_out = (uInt)room;
    bool ok = to && deflate(&z, Z_FINISH) == Z_STREAM_END;
    *out = (size_t)z.total_out;
    deflateEnd(&z);
    if (!ok) free(to);
    return ok ? to : NULL;
}

static char *zstandard(const char *p, size_t n, size_t *out)
{
    size_t room = ZSTD_compressBound(n);
    char *to = malloc(room);
    *out = to ? ZSTD_compress(to, room, p, n, 3) : 0;
    if (to && !ZSTD_isError(*out)) return to;
    free(to);
    return NULL;
}

static void encode(service_reply *r, enum service_coding coding)
{
    const char *media = service_reply_value(r, "Content-Type");
    if (r->n < CODED_FROM || r->n > UINT32_MAX / 2 || service_reply_value(r, "Content-Encoding")) return;
    if (service_media_is(media, "application/zip") || service_media_is(media, "application/vnd.kiln.export")) return;
    size_t n;
    char *p = coding == SERVICE_ZSTD ? zstandard(r->body, r->n, &n) : deflated(r->body, r->n, &n);
    if (!p || n >= r->n) {
        free(p);
        return;
    }
    free(r->body);
    r->body = p;
    r->n = n;
    service_reply_header(r, "Content-Encoding", "%s", codings[coding]);
    for (int i = 0; i < r->nheaders; i++) { /* other bytes, another strong tag */
        char *v = r->headers[i].value, *tag;
        size_t k = strlen(v);
        if (strcmp(r->headers[i].name, "ETag") || k < 2 || asprintf(&tag, "%.*s-%s\"", (int)k - 1, v, codings[coding]) < 0) continue;
        free(v);
        r->headers[i].value = tag;
    }
}

/* 1: a range, 0: none that is understood, -1: outside. */
static int range_of(const char *text, size_t size, size_t *from, size_t *n)
{
    if (strncasecmp(text, "bytes=", 6) || strchr(text, ',')) return 0;
    const char *p = text + 6, *dash = strchr(p, '-');
    size_t first = strspn(p, "0123456789"), last = dash ? strspn(dash + 1, "0123456789") : 0;
    if (!dash || p + first != dash || dash[1 + last] || (!first && !last) || first > 18 || last > 18) return 0;
    unsigned long long a = strtoull(p, NULL, 10), b = last ? strtoull(dash + 1, NULL, 10) : size;
    if (!first) {
        *n = b < size ? (size_t)b : size;
        *from = size - *n;
        return *n ? 1 : -1;
    }
    if (last && b < a) return 0;
    if (a >= size) return -1;
    *from = (size_t)a;
    *n = (b < size ? (size_t)b + 1 : size) - (size_t)a;
    return 1;
}

static service_reply *part_of(service_call *c, service_reply *r)
{
    size_t from = 0, n = 0;
    const char *etag = service_reply_value(r, "ETag");
    if (*c->if_range && (!etag || strcmp(c->if_range, etag))) return r;
    int which = range_of(c->range, r->n, &from, &n);
    if (!which) return r;
    if (which < 0) {
        service_reply *bad = service_problem(416, "range-not-satisfiable", "the range lies outside of the bytes", c->range, "bytes=FIRST-LAST");
        service_reply_header(bad, "Content-Range", "bytes */%zu", r->n);
        service_reply_drop(r);
        return bad;
    }
    service_reply_header(r, "Content-Range", "bytes %zu-%zu/%zu", from, from + n - 1, r->n);
    memmove(r->body, r->body + from, n);
    r->n = n;
    r->status = 206;
    return r;
}

/* Over the bytes that are sent as the representation, so after its coding (RFC 9530, 2). */
static void add_digest(service_reply *r)
{
    static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint8_t d[33] = {0};
    char text[45];
    cache_sha256(r->body, r->n, d);
    for (int i = 0, o = 0; i < 33; i += 3, o += 4) {
        uint32_t v = (uint32_t)d[i] << 16 | (uint32_t)d[i + 1] << 8 | d[i + 2];
        for (int k = 0; k < 4; k++) text[o + k] = set[v >> (18 - 6 * k) & 63];
    }
    text[43] = '=';
    text[44] = 0;
    service_reply_header(r, "Repr-Digest", "sha-256=:%s:", text);
}

/* A 304 names the representation that a 200 would have sent: the coded one, when that is what the client has. */
static void tag_as_held(const service_call *c, service_reply *r)
{
    char coded[200];
    const char *etag = service_reply_value(r, "ETag");
    size_t k = etag ? strlen(etag) : 0;
    if (c->coding == SERVICE_IDENTITY || k < 2) return;
    snprintf(coded, sizeof coded, "%.*s-%s\"", (int)k - 1, etag, codings[c->coding]);
    if (strstr(c->if_none_match, coded)) service_reply_set(r, "ETag", "%s", coded);
}

/* Ranges are of GET alone: a HEAD with one is as without (RFC 9110, 14.2). */
service_reply *service_finish(service_call *c, service_reply *r)
{
    if (!r || atomic_load(&r->refs) != 1 || atomic_load(&r->sent)) return r;
    bool get = !strcmp(c->method, "GET"), reads = get || !strcmp(c->method, "HEAD");
    const char *etag = service_reply_value(r, "ETag");
    if (reads && r->status == 200 && etag && *c->if_none_match && service_etag_matches(c->if_none_match, etag)) {
        r->status = 304;
        r->n = 0;
    }
    if (r->status == 304) tag_as_held(c, r);
    bool ranged = r->ranges && r->status == 200 && get && *c->range;
    if (c->coding != SERVICE_IDENTITY && r->status / 100 == 2 && !ranged) encode(r, c->coding);
    if (r->digest && r->status / 100 == 2) add_digest(r);
    if (r->ranges) service_reply_header(r, "Accept-Ranges", "bytes");
    const char *own = c->app->config.auth ? ", Authorization" : "";
    if (r->status / 100 == 2 || r->status == 304) service_reply_header(r, "Vary", "Accept, Accept-Encoding%s", own);
    return ranged ? part_of(c, r) : r;
}
