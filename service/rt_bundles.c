/* POST /v1/exports and /v1/imports: kernels as one signed bundle, a tar in zstd: manifest.json, manifest.sig, records/, blobs/. */
#include <archive.h>
#include <archive_entry.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "service/auth.h"
#include "service/body.h"
#include "service/sign.h"

static const char format[] = "kiln-export/1";
enum { STATEMENT = 32768 }; /* bytes of a builder's statement that an import keeps */

/* ---- out ---- */
typedef struct writer {
    struct archive *a;
    char *buf;
    size_t room, used, bytes;
    bool ok, full;
    cJSON *records, *written; /* digests of blobs that are in */
} writer;

static void put(writer *w, const char *name, const void *p, size_t n)
{
    if (!w->ok) return;
    w->bytes += n;
    if (w->bytes > SERVICE_BUNDLE_BYTES) w->ok = false, w->full = true;
    struct archive_entry *e = w->ok ? archive_entry_new() : NULL;
    if (!e) {
        w->ok = false;
        return;
    }
    archive_entry_set_pathname(e, name);
    archive_entry_set_size(e, (la_int64_t)n);
    archive_entry_set_filetype(e, AE_IFREG);
    archive_entry_set_perm(e, 0644);
    archive_entry_set_mtime(e, 0, 0);
    w->ok = archive_write_header(w->a, e) == ARCHIVE_OK && archive_write_data(w->a, p, n) == (la_ssize_t)n;
    archive_entry_free(e);
}

static void put_blobs(writer *w, cache *c, const cache_record *r)
{
    for (int i = 0; i < r->nartifacts && w->ok; i++) {
        const char *digest = r->artifacts[i].digest;
        char name[80], *bytes;
        size_t n;
        if (cJSON_GetObjectItemCaseSensitive(w->written, digest)) continue;
        if (cache_get_blob(c, digest, &bytes, &n) != CACHE_OK) {
            w->ok = false;
            return;
        }
        snprintf(name, sizeof name, "blobs/%s", digest);
        put(w, name, bytes, n);
        free(bytes);
        cJSON_AddTrueToObject(w->written, digest);
    }
}

static void put_record(writer *w, cache *c, const cache_record *r)
{
    char name[40], hex[65];
    uint8_t digest[32];
    size_t n;
    char *bytes = cache_record_encode(r, &n);
    if (!bytes) {
        w->ok = false;
        return;
    }
    snprintf(name, sizeof name, "records/%05d", cJSON_GetArraySize(w->records));
    cache_sha256(bytes, n, digest);
    kiln_hex(digest, 32, hex);
    cJSON *e = cJSON_CreateObject();
    cJSON_AddStringToObject(e, "file", name);
    cJSON_AddStringToObject(e, "sha256", hex);
    cJSON_AddStringToObject(e, "key", r->key);
    cJSON_AddStringToObject(e, "build", r->build);
    cJSON_AddStringToObject(e, "target", r->target);
    cJSON_AddNumberToObject(e, "verification", r->verification);
    cJSON_AddStringToObject(e, "verdict", r->verdict);
    cJSON_AddItemToArray(w->records, e);
    put(w, name, bytes, n);
    free(bytes);
    put_blobs(w, c, r);
}

/* What was written before the manifest is named in it by digest, and the manifest is signed. */
static void put_manifest(writer *w, const service_app *app)
{
    uint8_t sig[64];
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "format", format);
    cJSON_AddStringToObject(o, "signer", service_signer_public(app->signer));
    cJSON_AddStringToObject(o, "fingerprint", kiln_fingerprint());
    cJSON_AddNumberToObject(o, "created_ms", (double)service_unix_ms());
    cJSON_AddItemReferenceToObject(o, "records", w->records);
    char *text = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    if (!text) w->ok = false;
    if (!w->ok) return;
    service_sign(app->signer, text, strlen(text), sig);
    put(w, "manifest.json", text, strlen(text));
    put(w, "manifest.sig", sig, sizeof sig);
    free(text);
}

static bool open_writer(writer *w)
{
    *w = (writer){.room = SERVICE_BUNDLE_BYTES + (SERVICE_BUNDLE_BYTES >> 3), .ok = true,
                  .records = cJSON_CreateArray(), .written = cJSON_CreateObject()};
    w->buf = malloc(w->room);
    w->a = archive_write_new();
    w->ok = w->buf && w->a && archive_write_set_format_ustar(w->a) == ARCHIVE_OK && archive_write_add_filter_zstd(w->a) == ARCHIVE_OK &&
            archive_write_open_memory(w->a, w->buf, w->room, &w->used) == ARCHIVE_OK;
    return w->ok;
}

static void close_writer(writer *w)
{
    if (w->a && archive_write_close(w->a) != ARCHIVE_OK) w->ok = false;
    if (w->a) archive_write_free(w->a);
    cJSON_Delete(w->records);
    cJSON_Delete(w->written);
    char *fit = w->ok ? realloc(w->buf, w->used + 1) : NULL;
    if (fit) w->buf = fit;
    if (w->ok) return;
    free(w->buf);
    w->buf = NULL;
}

static void put_all(writer *w, cache *c, const char *target, int64_t since)
{
    cache_record *page[SERVICE_LIST];
    char cursor[128] = "";
    int n = SERVICE_LIST;
    while (n == SERVICE_LIST && w->ok) {
        n = cache_list(c, target, cursor, SERVICE_LIST, page);
        for (int i = 0; i < n; i++) {
            snprintf(cursor, sizeof cursor, "%s:%lld", page[i]->key, (long long)page[i]->version);
            if (cJSON_GetArraySize(w->records) >= SERVICE_BUNDLE_KERNELS) w->ok = false, w->full = true;
            if (w->ok && page[i]->created_ms >= since && cache_trusts(c, page[i])) put_record(w, c, page[i]);
            cache_release(page[i]);
        }
    }
}

service_reply *rt_export(service_call *c)
{
    static const char *const names[] = {"target", "since_ms", "keys", NULL};
    service_reply *bad;
    writer w;
    cJSON *o = service_body_json(c, &bad);
    if (!o) return bad;
    const char *target = service_body_text(o, "target", "", 63, &bad);
    int64_t since = service_body_int(o, "since_ms", 0, 0, INT64_C(1) << 50, &bad);
    const cJSON *keys = cJSON_GetObjectItemCaseSensitive(o, "keys");
    if (!bad) service_body_only(o, names, &bad);
    if (!bad && keys && !cJSON_IsArray(keys)) bad = service_body_wrong("/keys", "no list of keys", "kk1-...");
    for (const cJSON *e = bad || !keys ? NULL : keys->child; e && !bad; e = e->next) {
        cache_record *r = NULL;
        const char *tier;
        if (!cJSON_IsString(e) || cache_get(c->app->cache, e->valuestring, (kiln_bytes){0}, &r, &tier) != CACHE_OK)
            bad = service_body_wrong("/keys", "no kernel has this key", cJSON_IsString(e) ? e->valuestring : "kk1-...");
        cache_release(r);
    }
    if (bad) {
        cJSON_Delete(o);
        return bad;
    }
    if (open_writer(&w)) {
        if (!keys) put_all(&w, c->app->cache, target, since);
        for (const cJSON *e = keys ? keys->child : NULL; e; e = e->next) {
            cache_record *r = NULL;
            const char *tier;
            if (cache_get(c->app->cache, e->valuestring, (kiln_bytes){0}, &r, &tier) == CACHE_OK) put_record(&w, c->app->cache, r);
            cache_release(r);
        }
        put_manifest(&w, c->app);
    }
    if (w.ok) service_audit(c, "export", target, NULL);
    cJSON_Delete(o);
    close_writer(&w);
    if (w.full) return service_problem_limit(413, "bundle_bytes", SERVICE_BUNDLE_BYTES, "the bundle becomes too large: export by target or by keys");
    if (!w.ok) return service_problem(503, "store-unavailable", "an artifact cannot be read", NULL, NULL);
    service_reply *r = service_reply_new(200, "application/vnd.kiln.export", w.buf, w.used);
    service_reply_digest(r);
    return r;
}

/* ---- in ---- */
typedef struct entry {
    char name[80], *p;
    size_t n;
} entry;
typedef struct reader {
    entry *list;
    int n;
    size_t bytes;
} reader;

static void close_reader(reader *r)
{
    for (int i = 0; i < r->n; i++) free(r->list[i].p);
    free(r->list);
}

static const entry *find(const reader *r, const char *name)
{
    for (int i = 0; i < r->n; i++)
        if (!strcmp(r->list[i].name, name)) return &r->list[i];
    return NULL;
}

/* Sizes are claims until the bytes are there: read in pieces, bounded in sum. */
static bool read_entry(struct archive *a, reader *r, entry *e)
{
    char piece[65536];
    la_ssize_t k;
    while ((k = archive_read_data(a, piece, sizeof piece)) > 0) {
        r->bytes += (size_t)k;
        char *p = r->bytes <= SERVICE_BUNDLE_BYTES ? realloc(e->p, e->n + (size_t)k) : NULL;
        if (!p) return false;
        memcpy(p + e->n, piece, (size_t)k);
        e->p = p;
        e->n += (size_t)k;
    }
    return k == 0;
}

static bool read_bundle(reader *r, const char *body, size_t n)
{
    struct archive *a = archive_read_new();
    struct archive_entry *h;
    int rc = ARCHIVE_FATAL;
    bool ok = a && archive_read_support_filter_zstd(a) == ARCHIVE_OK && archive_read_support_format_tar(a) == ARCHIVE_OK &&
              archive_read_open_memory(a, body, n) == ARCHIVE_OK;
    while (ok && (rc = archive_read_next_header(a, &h)) == ARCHIVE_OK) {
        entry *list = r->n < 20 * SERVICE_BUNDLE_KERNELS ? realloc(r->list, sizeof *list * (size_t)(r->n + 1)) : NULL;
        const char *name = archive_entry_pathname(h);
        ok = list && name && strlen(name) < sizeof list->name && archive_entry_filetype(h) == AE_IFREG;
        if (list) r->list = list;
        if (!ok) break;
        entry *e = &r->list[r->n++];
        *e = (entry){0};
        snprintf(e->name, sizeof e->name, "%s", name);
        ok = read_entry(a, r, e);
    }
    if (a) archive_read_free(a);
    return ok && rc == ARCHIVE_EOF;
}

static bool is_digest(const entry *e, const char *hex)
{
    uint8_t digest[32];
    char actual[65];
    if (!e || !hex) return false;
    cache_sha256(e->p ? e->p : "", e->n, digest);
    kiln_hex(digest, 32, actual);
    return !strcmp(actual, hex);
}

/* Who built it stays part of what this service signs; free(). */
static char *made_elsewhere(const cache_record *r, const char *bundle)
{
    cJSON *o = cJSON_CreateObject(), *in = cJSON_AddObjectToObject(o, "imported");
    cJSON_AddStringToObject(in, "bundle_signer", bundle);
    if (r->statement.n && r->statement.n <= STATEMENT) {
        cJSON_AddStringToObject(in, "statement", r->statement.p); /* NUL behind it, as decoded */
        cJSON_AddStringToObject(in, "signer", r->signer);
        cJSON_AddStringToObject(in, "sig", r->seal);
    }
    char *text = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    return text;
}

/* One record with all its artifacts: 1 stored, 0 known already, -1 not what the manifest says, -2 not stored, -3 no room. */
static int take_record(service_call *c, const reader *b, const cJSON *line, const char *bundle)
{
    const char *file = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(line, "file"));
    const char *verdict = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(line, "verdict"));
    const cJSON *state = cJSON_GetObjectItemCaseSensitive(line, "verification");
    const entry *e = file ? find(b, file) : NULL;
    if (!is_digest(e, cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(line, "sha256"))) || !cJSON_IsNumber(state)) return -1;
    if (state->valueint < CACHE_PENDING || state->valueint >= CACHE_FAILED || !verdict) return -1;
    cache_record *r = cache_record_decode(e->p, e->n, 0, (enum cache_verification)state->valueint, verdict), *known = NULL;
    if (!r) return -1;
    char builder[64];
    if (seals_state(service_signer_seals(c->app->signer), r, builder) == SEAL_BROKEN) {
        cache_release(r);
        return -1;
    }
    cache_blob blobs[8] = {0};
    int result = 1;
    const char *tier;
    for (int i = 0; i < r->nartifacts && result == 1; i++) {
        char name[80];
        snprintf(name, sizeof name, "blobs/%s", r->artifacts[i].digest);
        const entry *x = find(b, name);
        if (!is_digest(x, r->artifacts[i].digest) || x->n != (size_t)r->artifacts[i].bytes) result = -1;
        if (result != 1) break;
        memcpy(blobs[i].digest, r->artifacts[i].digest, sizeof blobs[i].digest);
        blobs[i].bytes = (kiln_bytes){x->p, x->n};
    }
    if (result == 1 && cache_get(c->app->cache, r->key, r->canon, &known, &tier) == CACHE_OK && !strcmp(known->build, r->build)) result = 0;
    cache_release(known);
    if (result == 1) {
        bool stored;
        char *made = made_elsewhere(r, bundle);
        snprintf(r->origin, sizeof r->origin, "imported");
        r->statement = (kiln_bytes){0};
        *r->signer = *r->seal = 0;
        if (made) r->made = (kiln_bytes){made, strlen(made)};
        enum cache_status put = cache_put(c->app->cache, r, blobs, r->nartifacts, &stored);
        if (put != CACHE_OK || !stored) result = put == CACHE_FULL ? -3 : -2;
        r->made = (kiln_bytes){0};
        free(made);
    }
    if (result >= 0) service_grant_record(c, r);
    cache_release(r);
    return result;
}

static service_reply *wrong(const char *slug, const char *detail)
{
    return service_problem(422, slug, "the bundle cannot be imported", detail,
                           "a bundle of POST /v1/exports, signed by this service or by a line of trusted_keys");
}

service_reply *rt_import(service_call *c)
{
    if (!service_media_is(c->content_type, "application/vnd.kiln.export"))
        return service_problem(415, "unsupported-media-type", "the body must be a bundle", c->content_type, "application/vnd.kiln.export");
    reader b = {0};
    cJSON *m = NULL;
    service_reply *bad = read_bundle(&b, c->body, c->n) ? NULL : wrong("invalid-bundle", "it is no tar in zstd, or larger than a bundle may be");
    const entry *text = find(&b, "manifest.json"), *sig = find(&b, "manifest.sig");
    if (!bad && (!text || !sig || sig->n != 64)) bad = wrong("invalid-bundle", "it has no manifest.json or no manifest.sig");
    if (!bad) m = cJSON_ParseWithLength(text->p, text->n);
    const char *signer = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(m, "signer"));
    const char *kind = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(m, "format"));
    const cJSON *records = cJSON_GetObjectItemCaseSensitive(m, "records");
    if (!bad && !(signer && service_signed(c->app->signer, signer, (const uint8_t *)sig->p, text->p, text->n)))
        bad = wrong("signature-invalid", "the signature does not hold, or nobody here trusts its key");
    if (!bad && (!kind || strcmp(kind, format) || !cJSON_IsArray(records))) bad = wrong("invalid-bundle", "its manifest is of another format");
    int counts[5] = {0};
    for (const cJSON *e = bad ? NULL : records->child; e && !counts[0]; e = e->next) counts[take_record(c, &b, e, signer) + 3]++;
    close_reader(&b);
    if (!bad) service_audit(c, "import", signer, NULL);
    cJSON_Delete(m);
    if (bad) return bad;
    static const char again[] = "import it again: what is there is passed over";
    if (counts[0]) return service_problem(507, "store-full", "the store is full", "its disk has no room for all of the bundle", again);
    if (counts[1]) return service_problem(503, "store-unavailable", "not every kernel could be stored", NULL, again);
    if (counts[2] && !counts[3] && !counts[4]) return wrong("invalid-bundle", "no record is what the manifest says");
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "imported", counts[4]);
    cJSON_AddNumberToObject(o, "known", counts[3]);
    cJSON_AddNumberToObject(o, "refused", counts[2]);
    return service_reply_json(200, o);
}
