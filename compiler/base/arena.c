/* The arena: a list of growing chunks from the host's memory function, freed together. */
#include "base/base.h"
#include <stdio.h>
#include <string.h>

#define CHUNK_MIN 16384
#define ALIGNMENT 16

typedef struct chunk { struct chunk *next; size_t size, used; } chunk; /* size: whole chunk with this head */
struct kiln_arena {
    kiln_host host;
    chunk *chunks, *spare; /* the newest first; those that kn_release emptied */
    size_t next_size;
    bool dry;
};

kiln_arena *kiln_arena_open(const kiln_host *host)
{
    kiln_arena *a = host->mem(host->user, NULL, 0, sizeof *a);
    if (!a) return NULL;
    *a = (kiln_arena){.host = *host, .next_size = CHUNK_MIN};
    return a;
}

static void close_list(const kiln_host *host, chunk *c)
{
    for (chunk *next; c; c = next) {
        next = c->next;
        host->mem(host->user, c, c->size, 0);
    }
}

void kiln_arena_close(kiln_arena *a)
{
    if (!a) return;
    kiln_host host = a->host;
    close_list(&host, a->chunks);
    close_list(&host, a->spare);
    host.mem(host.user, a, sizeof *a, 0);
}

static chunk *add_chunk(kiln_arena *a, size_t need)
{
    size_t head = (sizeof(chunk) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (need > SIZE_MAX / 2 - head) return NULL;
    if (a->spare && a->spare->size >= need + head) {
        chunk *again = a->spare;
        a->spare = again->next;
        *again = (chunk){.next = a->chunks, .size = again->size, .used = head};
        return a->chunks = again;
    }
    size_t size = need + head > a->next_size ? need + head : a->next_size;
    chunk *c = a->host.mem(a->host.user, NULL, 0, size);
    if (!c) return NULL;
    *c = (chunk){.next = a->chunks, .size = size, .used = head};
    a->chunks = c;
    if (a->next_size < ((size_t)1 << 22)) a->next_size *= 2;
    return c;
}

/* As it was left by whoever had it before. */
static void *take(kiln_arena *a, size_t size)
{
    if (a->dry || size > SIZE_MAX / 4) {
        a->dry = true;
        return NULL;
    }
    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (size == 0) size = ALIGNMENT;
    chunk *c = a->chunks;
    if (!c || c->size - c->used < size) c = add_chunk(a, size);
    if (!c) {
        a->dry = true;
        return NULL;
    }
    void *p = (char *)c + c->used;
    c->used += size;
    return p;
}

void *kn_alloc(kiln_arena *a, size_t size)
{
    void *p = take(a, size);
    return p ? memset(p, 0, size) : NULL;
}

void *kn_copy(kiln_arena *a, const void *from, size_t size)
{
    void *p = take(a, size);
    return p ? memcpy(p, from, size) : NULL;
}

kn_mark kn_mark_of(const kiln_arena *a) { return (kn_mark){a->chunks, a->chunks ? a->chunks->used : 0}; }

void kn_release(kiln_arena *a, kn_mark m)
{
    while (a->chunks && a->chunks != m.chunk) {
        chunk *c = a->chunks;
        a->chunks = c->next;
        c->next = a->spare;
        a->spare = c;
    }
    if (a->chunks) a->chunks->used = m.used;
}

char *kn_strndup(kiln_arena *a, const char *s, size_t n)
{
    char *p = take(a, n + 1);
    if (p && n) memcpy(p, s, n);
    if (p) p[n] = 0;
    return p;
}

char *kn_strdup(kiln_arena *a, const char *s) { return kn_strndup(a, s, strlen(s)); }

char *kn_format(kiln_arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = n < 0 ? NULL : kn_alloc(a, (size_t)n + 1);
    if (p) vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

bool kn_arena_dry(const kiln_arena *a) { return a->dry; }
bool kn_stopped(const kiln_arena *a) { return a->host.stop && a->host.stop(a->host.user) != 0; }
