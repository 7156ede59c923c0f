/* A kernel as one zip: STORED entries in the order given, without times or owners, so that the same kernel gives the same bytes. */
#include <archive.h>
#include <archive_entry.h>
#include <stdlib.h>
#include "service/service.h"

bool service_bundle(const service_file *files, int n, char **out, size_t *size)
{
    size_t room = 4096;
    for (int i = 0; i < n; i++) room += files[i].n + 1024;
    char *buf = malloc(room);
    struct archive *a = buf ? archive_write_new() : NULL;
    bool ok = a && archive_write_set_format_zip(a) == ARCHIVE_OK && archive_write_zip_set_compression_store(a) == ARCHIVE_OK &&
              archive_write_set_bytes_per_block(a, 0) == ARCHIVE_OK && archive_write_open_memory(a, buf, room, size) == ARCHIVE_OK;
    for (int i = 0; ok && i < n; i++) {
        struct archive_entry *e = archive_entry_new();
        ok = e != NULL;
        if (!ok) break;
        archive_entry_set_pathname(e, files[i].name);
        archive_entry_set_size(e, (la_int64_t)files[i].n);
        archive_entry_set_filetype(e, AE_IFREG);
        archive_entry_set_perm(e, 0644);
        archive_entry_set_mtime(e, 315532800, 0); /* 1980-01-01, the first time a zip can hold */
        ok = archive_write_header(a, e) == ARCHIVE_OK && archive_write_data(a, files[i].p, files[i].n) == (la_ssize_t)files[i].n;
        archive_entry_free(e);
    }
    if (a && archive_write_close(a) != ARCHIVE_OK) ok = false;
    if (a) archive_write_free(a);
    if (ok)
        *out = buf;
    else
        free(buf);
    return ok;
}
