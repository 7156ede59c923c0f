/* Fuzz target: bundles that are imported. First byte even: the input is the file itself, as anybody may send it. Odd: it is a manifest, a line,
 * and what one record's file holds; both are packed and signed with the service's own key, so that what lies behind the signature is reached. */
#include <archive.h>
#include <archive_entry.h>
#include "tests/fuzz/app.h"

static void add(struct archive *a, const char *name, const void *p, size_t n)
{
    struct archive_entry *e = archive_entry_new();
    archive_entry_set_pathname(e, name);
    archive_entry_set_size(e, (la_int64_t)n);
    archive_entry_set_filetype(e, AE_IFREG);
    archive_write_header(a, e);
    archive_write_data(a, p, n);
    archive_entry_free(e);
}

/* @ in the manifest becomes the digest of the record, % the key of this service. */
static char *manifest_of(const char *text, const char *record, size_t n)
{
    size_t at = 0;
    char digest[65], *out = calloc(1, strlen(text) * 64 + 1);
    uint8_t sum[32];
    kiln_sha256(record, n, sum);
    kiln_hex(sum, 32, digest);
    for (; *text; text++) {
        const char *put = *text == '@' ? digest : *text == '%' ? service_signer_public(app.signer) : NULL;
        if (put) at += (size_t)sprintf(out + at, "%s", put);
        else out[at++] = *text;
    }
    return out;
}

static size_t pack(const char *p, size_t n, char *file, size_t room)
{
    size_t used = 0;
    uint8_t sig[64];
    char *text = cut_line(&p, &n), *manifest = manifest_of(text, p, n);
    struct archive *a = archive_write_new();
    archive_write_set_format_ustar(a);
    archive_write_open_memory(a, file, room, &used);
    add(a, "records/00000", p, n);
    service_sign(app.signer, manifest, strlen(manifest), sig);
    add(a, "manifest.json", manifest, strlen(manifest));
    add(a, "manifest.sig", sig, sizeof sig);
    archive_write_close(a);
    archive_write_free(a);
    free(manifest);
    free(text);
    return used;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { ROOM = 1 << 20 };
    if (!size || size > 8192) return 0;
    bool whole = *data % 2 == 0;
    char *file = malloc(whole ? size : ROOM);
    size_t n = whole ? size - 1 : pack((const char *)data + 1, size - 1, file, ROOM);
    if (whole) memcpy(file, data + 1, n);
    service_call c = call_of("POST", file, n);
    c.content_type = "application/vnd.kiln.export";
    service_reply *r = rt_import(&c);
    if (!r || r->status < 200 || r->status > 599) abort();
    service_reply_drop(r);
    free(file);
    return 0;
}
