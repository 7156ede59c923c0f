/* The Redis tier: a copy shared by the services of a fleet, bounded in time and in the size of values, and allowed to vanish or to forget.
 *
 * Staleness: a write leaves a tombstone that outlives any read of a store under way, so that such a read cannot bring the old record back.
 * A write that cannot reach the server leaves a debt; the next contact pays it by a new epoch, and records of other epochs do not count. */
#include <errno.h>
#include <hiredis/hiredis.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <fcntl.h>
#include <zstd.h>
#include "cache/remote.h"

enum { CONNS = 4, CONNECT_MS = 50, COMMAND_MS = 20, VALUE_MAX = 8 << 20, PACK_MIN = 1024, PACK_LEVEL = 1, DIGEST_HEX = 64, PIECE = 16384 };
#define LIFETIME_S "604800" /* 7 days */
#define TOMBSTONE_S "5"     /* longer than a read of the store with its timeout of 2 s */
#define EPOCH_KEY "kiln:epoch"

typedef struct conn { redisContext *redis; bool used; } conn;
typedef struct redis_tier {
    cache_tier base;
    char host[256], debt_path[800];
    int port;
    cache_breaker breaker;
    atomic_bool debt;         /* a write could not be told; also the file debt_path, for the next process */
    atomic_ullong epoch;      /* as last seen; 0: unknown */
    cache_lender lender;
    conn conns[CONNS];
} redis_tier;

typedef struct arg { const void *p; size_t n; } arg;
#define TEXT(s) ((arg){(s), strlen(s)})

static redis_tier *of(cache_tier *t) { return (redis_tier *)t; }

/* "redis://HOST[:PORT]", HOST possibly [IPv6]. */
static bool parse_url(redis_tier *t, const char *url)
{
    if (strncmp(url, "redis://", 8)) return false;
    const char *host = url + 8, *end = host + strcspn(host, ":/"), *rest = end;
    if (*host == '[') {
        end = strchr(++host, ']');
        if (!end) return false;
        rest = end + 1;
    }
    size_t n = (size_t)(end - host);
    if (n == 0 || n >= sizeof t->host) return false;
    memcpy(t->host, host, n);
    t->port = 6379;
    if (*rest == ':') {
        char *stop;
        long port = strtol(rest + 1, &stop, 10);
        if (stop == rest + 1 || port < 1 || port > 65535) return false;
        t->port = (int)port;
        rest = stop;
    }
    return !*rest || !strcmp(rest, "/");
}

static enum cache_status redis_open(const cache_config *cfg, cache_tier **out, cache_error *e)
{
    if (!cfg->redis_url || !*cfg->redis_url) return CACHE_MISS;
    redis_tier *t = calloc(1, sizeof *t);
    if (!t || !parse_url(t, cfg->redis_url)) {
        snprintf(e->message, sizeof e->message, "%s", t ? "the address of Redis is not of the form redis://HOST:PORT" : "out of memory");
        free(t);
        return CACHE_ERROR;
    }
    if (cfg->data_dir && strlen(cfg->data_dir) < 700) {
        snprintf(t->debt_path, sizeof t->debt_path, "%s/redis-stale", cfg->data_dir);
        atomic_init(&t->debt, access(t->debt_path, F_OK) == 0);
    }
    cache_lender_open(&t->lender, CONNS);
    *out = &t->base;
    return CACHE_OK;
}

static void hang_up(conn *c)
{
    if (c->redis) redisFree(c->redis);
    c->redis = NULL;
}

static void redis_close(cache_tier *t)
{
    for (int i = 0; i < CONNS; i++) hang_up(&of(t)->conns[i]);
    cache_lender_close(&of(t)->lender);
    free(t);
}

static void owe(redis_tier *t)
{
    if (atomic_exchange(&t->debt, true) || !t->debt_path[0]) return;
    int fd = open(t->debt_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) close(fd);
}

/* ---- one command on one connection ---- */
static bool dial(redis_tier *t, conn *c)
{
    const struct timeval connecting = {0, CONNECT_MS * 1000}, command = {0, COMMAND_MS * 1000};
    c->redis = redisConnectWithTimeout(t->host, t->port, connecting);
    c->used = false;
    if (c->redis && !c->redis->err && redisSetTimeout(c->redis, command) == REDIS_OK) return true;
    hang_up(c);
    return false;
}

/* The string that a reply begins with, the rest of it read to its place: through hiredis it would be copied twice more. NULL: *other, the reply is
 * none of a string; or it did not come whole. */
static redisReply *take_string(int fd, const char *first, size_t n, bool *other)
{
    const char *text = memchr(first, '\n', n < 16 ? n : 16);
    char *stop;
    *other = true;
    if (!text++ || *first != '$' || first[1] < '0' || first[1] > '9') return NULL;
    size_t size = strtoul(first + 1, &stop, 10), have = n - (size_t)(text - first);
    if (*stop != '\r' || size > VALUE_MAX + 1024 || have > size + 2) return NULL;
    *other = false;
    redisReply *reply = calloc(1, sizeof *reply);
    char *str = malloc(size + 2);
    if (str) memcpy(str, text, have);
    for (ssize_t k; str && have < size + 2; have += (size_t)k)
        if ((k = read(fd, str + have, size + 2 - have)) <= 0) break;
    if (!reply || !str || have < size + 2) {
        free(reply);
        free(str);
        return NULL;
    }
    str[size] = 0;
    reply->type = REDIS_REPLY_STRING;
    reply->str = str;
    reply->len = size;
    return reply;
}

/* NULL: no reply; the error of the context and errno tell why. */
static redisReply *exchange(redisContext *redis, int n, const char **argv, const size_t *lengths)
{
    char first[PIECE];
    int done = 0;
    bool other = true;
    void *reply = NULL;
    if (redisAppendCommandArgv(redis, n, argv, lengths) != REDIS_OK) return NULL;
    while (!done)
        if (redisBufferWrite(redis, &done) != REDIS_OK) return NULL;
    ssize_t k = read(redis->fd, first, sizeof first);
    if (k > 0) reply = take_string(redis->fd, first, (size_t)k, &other);
    if (reply) return reply;
    if (k > 0 && other) return redisReaderFeed(redis->reader, first, (size_t)k) || redisGetReply(redis, &reply) ? NULL : reply;
    redis->err = k ? REDIS_ERR_IO : REDIS_ERR_EOF;
    if (!other) errno = EAGAIN;
    return NULL;
}

/* NULL: no answer, and the connection is gone. A connection that the server closed while it was idle is dialled once more. */
static redisReply *send_command(redis_tier *t, conn *c, const arg *args, int n)
{
    const char *argv[12];
    size_t lengths[12];
    for (int i = 0; i < n; i++) {
        argv[i] = args[i].p;
        lengths[i] = args[i].n;
    }
    for (int i = 0; i < 2; i++) {
        if (!c->redis && !dial(t, c)) return NULL;
        redisReply *reply = exchange(c->redis, n, argv, lengths);
        if (reply) {
            c->used = true;
            return reply;
        }
        bool again = c->used && (c->redis->err == REDIS_ERR_EOF || (c->redis->err == REDIS_ERR_IO && (errno == EPIPE || errno == ECONNRESET)));
        hang_up(c);
        if (!again) return NULL;
    }
    return NULL;
}

/* A new epoch voids every record of the old one, in all processes. */
static bool pay_debt(redis_tier *t, conn *c)
{
    char value[24];
    unsigned long long epoch = 0;
    if (!atomic_exchange(&t->debt, false)) return true;
    if (getrandom(&epoch, sizeof epoch, 0) != (ssize_t)sizeof epoch || epoch < 2) epoch = (unsigned long long)cache_unix_ms();
    snprintf(value, sizeof value, "%llu", epoch);
    redisReply *reply = send_command(t, c, (arg[]){TEXT("SET"), TEXT(EPOCH_KEY), TEXT(value)}, 3);
    bool ok = reply && reply->type == REDIS_REPLY_STATUS;
    if (reply) freeReplyObject(reply);
    if (!ok) atomic_store(&t->debt, true);
    else if (t->debt_path[0]) unlink(t->debt_path);
    return ok;
}

/* The reply, or NULL when there is none: refused by the breaker, no connection free in time, no answer, or an error of the server. */
static redisReply *ask(redis_tier *t, const arg *args, int n)
{
    enum cache_leave leave = cache_breaker_ask(&t->breaker);
    int place = leave == LEAVE_REFUSED ? -1 : cache_lender_take(&t->lender, COMMAND_MS);
    if (place < 0) {
        if (leave == LEAVE_TO_TRY) cache_breaker_bad(&t->breaker, leave, false);
        atomic_fetch_add(&t->base.skipped, 1);
        return NULL;
    }
    redisReply *reply = NULL;
    conn *c = &t->conns[place];
    if (leave == LEAVE_GIVEN && cache_breaker_open(&t->breaker)) atomic_fetch_add(&t->base.skipped, 1); /* it opened while this waited */
    else {
        reply = pay_debt(t, c) ? send_command(t, c, args, n) : NULL;
        if (reply && reply->type == REDIS_REPLY_ERROR) {
            freeReplyObject(reply);
            reply = NULL;
        }
        if (reply) cache_breaker_good(&t->breaker);
        else cache_breaker_bad(&t->breaker, leave, false);
    }
    cache_lender_give(&t->lender, place);
    return reply;
}

/* Fills and puts do not try a server that just failed: reads do, so that a dead server costs a request one timeout, not several. */
static bool doubtful(redis_tier *t) { return atomic_load(&t->breaker.errors) > 0; }

/* CACHE_OK: done. CACHE_MISS: the condition of the command did not hold. */
static enum cache_status simple(redis_tier *t, const arg *args, int n)
{
    redisReply *reply = ask(t, args, n);
    enum cache_status st = !reply ? CACHE_ERROR : reply->type == REDIS_REPLY_NIL ? CACHE_MISS : CACHE_OK;
    if (reply) freeReplyObject(reply);
    return st;
}

/* ---- values: 'r' and the bytes, or 'z' and a zstd frame that knows its size ---- */
static char *pack(const void *p, size_t n, size_t *size)
{
    char *out = n <= VALUE_MAX ? malloc(1 + ZSTD_compressBound(n)) : NULL;
    if (!out) return NULL;
    if (n > PACK_MIN) {
        size_t packed = ZSTD_compress(out + 1, ZSTD_compressBound(n), p, n, PACK_LEVEL);
        if (!ZSTD_isError(packed) && packed < n) {
            out[0] = 'z';
            *size = packed + 1;
            return out;
        }
    }
    out[0] = 'r';
    if (n) memcpy(out + 1, p, n);
    *size = n + 1;
    return out;
}

/* With a NUL behind; NULL when these are not bytes of pack. */
static char *unpack(const char *p, size_t n, size_t *size)
{
    if (n < 1 || n > VALUE_MAX + 1024 || (*p != 'r' && *p != 'z')) return NULL;
    unsigned long long whole = *p == 'r' ? n - 1 : ZSTD_getFrameContentSize(p + 1, n - 1);
    if (whole > VALUE_MAX) return NULL; /* the codes for "unknown" and "error" are larger too */
    char *out = malloc((size_t)whole + 1);
    if (!out) return NULL;
    if (*p == 'r') memcpy(out, p + 1, n - 1);
    else if (ZSTD_decompress(out, (size_t)whole, p + 1, n - 1) != whole) {
        free(out);
        return NULL;
    }
    out[whole] = 0;
    *size = (size_t)whole;
    return out;
}

/* Texts and records carry the digest of what follows it; artifacts have theirs in their name. */
static char *seal(const char *head, kiln_bytes body, size_t *size)
{
    size_t nhead = strlen(head), n = DIGEST_HEX + nhead + body.n;
    char *plain = malloc(n + 1), *out = NULL;
    if (plain) {
        memcpy(plain + DIGEST_HEX, head, nhead);
        if (body.n) memcpy(plain + DIGEST_HEX + nhead, body.p, body.n);
        char hex[65];
        cache_digest(plain + DIGEST_HEX, nhead + body.n, hex);
        memcpy(plain, hex, DIGEST_HEX);
        out = pack(plain, n, size);
    }
    free(plain);
    return out;
}

/* The text behind the digest is at DIGEST_HEX of the result; NULL when damaged. */
static char *unseal(redis_tier *t, const char *p, size_t n, size_t *size)
{
    char hex[65], *plain = unpack(p, n, size);
    if (plain && *size >= DIGEST_HEX) {
        cache_digest(plain + DIGEST_HEX, *size - DIGEST_HEX, hex);
        if (!memcmp(hex, plain, DIGEST_HEX)) return plain;
    }
    free(plain);
    atomic_fetch_add(&t->base.bad_record, 1);
    return NULL;
}

/* ---- records: "EPOCH VERSION STATE LENGTH\n", the verdict, the encoded record; "" is a tombstone ---- */
static char *record_value(unsigned long long epoch, const cache_record *r, size_t *size)
{
    char head[96 + sizeof r->verdict];
    kiln_bytes body;
    char *bytes = cache_record_encode(r, &body.n), *out = NULL;
    body.p = bytes;
    snprintf(head, sizeof head, "%llu %lld %d %zu\n%s", epoch, (long long)r->version, (int)r->verification, strlen(r->verdict), r->verdict);
    if (bytes) out = seal(head, body, size);
    free(bytes);
    return out;
}

static cache_record *record_of(redis_tier *t, const char *p, size_t n, unsigned long long epoch)
{
    size_t size, length;
    unsigned long long of_epoch;
    long long version;
    int state, used = 0;
    char *plain = unseal(t, p, n, &size), verdict[CACHE_VERDICT_BYTES] = "";
    if (!plain) return NULL;
    const char *at = plain + DIGEST_HEX, *end = plain + size;
    cache_record *r = NULL;
    bool ok = sscanf(at, "%llu %lld %d %zu%n", &of_epoch, &version, &state, &length, &used) == 4 && at[used] == '\n';
    if (ok && length < sizeof verdict && length <= (size_t)(end - at) - (size_t)used - 1) {
        at += used + 1;
        memcpy(verdict, at, length);
        at += length;
        r = cache_record_decode(at, (size_t)(end - at), version, (enum cache_verification)state, verdict);
        if (!r) atomic_fetch_add(&t->base.bad_record, 1);
    }
    free(plain);
    if (r && of_epoch == epoch && state != CACHE_FAILED) return r;
    cache_release(r);
    return NULL;
}

/* The epoch of the server, made when there is none: a server that lost it may have lost any of its forgettings. */
static unsigned long long epoch_of(redis_tier *t, const redisReply *reply)
{
    unsigned long long epoch = reply->type == REDIS_REPLY_STRING ? strtoull(reply->str, NULL, 10) : 0;
    atomic_store(&t->epoch, epoch);
    if (!epoch) owe(t);
    return epoch;
}

static void name_key(char out[112], char kind, const char *id) { snprintf(out, 112, "kiln:%c:%.96s", kind, id); }

/* raw: the value as it is, for a later compare. */
static enum cache_status read_record(redis_tier *t, const char *key, int64_t version, cache_record **out, redisReply **raw)
{
    char name[112];
    name_key(name, 'r', key);
    redisReply *reply = ask(t, (arg[]){TEXT("MGET"), TEXT(EPOCH_KEY), TEXT(name)}, 3);
    if (!reply) return CACHE_ERROR;
    cache_record *r = NULL;
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2) {
        unsigned long long epoch = epoch_of(t, reply->element[0]);
        const redisReply *value = reply->element[1];
        if (epoch && value->type == REDIS_REPLY_STRING && value->len > 0) r = record_of(t, value->str, (size_t)value->len, epoch);
    }
    if (r && (strcmp(r->key, key) || (version && r->version != version))) {
        cache_release(r);
        r = NULL;
    }
    if (r && raw) *raw = reply;
    else freeReplyObject(reply);
    *out = r;
    return r ? CACHE_OK : CACHE_MISS;
}

static enum cache_status redis_get(cache_tier *t, const char *key, int64_t version, cache_record **out)
{
    return read_record(of(t), key, version, out, NULL);
}

static enum cache_status redis_put_blob(cache_tier *t, const cache_blob *b)
{
    char name[112];
    size_t n;
    if (doubtful(of(t))) return CACHE_MISS;
    char *value = pack(b->bytes.p, b->bytes.n, &n);
    if (!value) return CACHE_MISS; /* larger than this tier takes */
    name_key(name, 'b', b->digest);
    enum cache_status st = simple(of(t), (arg[]){TEXT("SET"), TEXT(name), {value, n}, TEXT("EX"), TEXT(LIFETIME_S)}, 5);
    free(value);
    return st;
}

static enum cache_status redis_put(cache_tier *t, cache_record *r, const cache_blob *blobs, int nblobs)
{
    char name[112];
    size_t n;
    if (doubtful(of(t)) || r->verification == CACHE_FAILED || r->version >= CACHE_PROVISIONAL) return CACHE_MISS;
    if (!atomic_load(&of(t)->epoch)) {
        cache_record *other = NULL;
        if (read_record(of(t), r->key, 0, &other, NULL) == CACHE_ERROR) return CACHE_ERROR;
        cache_release(other);
    }
    for (int i = 0; i < nblobs; i++) redis_put_blob(t, &blobs[i]);
    char *value = record_value(atomic_load(&of(t)->epoch), r, &n);
    if (!value) return CACHE_MISS;
    name_key(name, 'r', r->key);
    enum cache_status st = simple(of(t), (arg[]){TEXT("SET"), TEXT(name), {value, n}, TEXT("EX"), TEXT(LIFETIME_S), TEXT("NX")}, 6);
    free(value);
    return st;
}

static void redis_forget(cache_tier *t, const char *key)
{
    char name[112];
    name_key(name, 'r', key);
    if (simple(of(t), (arg[]){TEXT("SET"), TEXT(name), TEXT(""), TEXT("EX"), TEXT(TOMBSTONE_S)}, 5) == CACHE_ERROR) owe(of(t));
}

static enum cache_status redis_verdict(cache_tier *t, const char *key, int64_t version, enum cache_verification v, const char *json)
{
    static const char swap[] = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3]) end return 1";
    char name[112];
    size_t n;
    cache_record *r = NULL;
    redisReply *raw = NULL;
    if (doubtful(of(t))) return CACHE_ERROR;
    enum cache_status st = read_record(of(t), key, version, &r, &raw);
    if (st != CACHE_OK) return st;
    r->verification = v;
    snprintf(r->verdict, sizeof r->verdict, "%s", json ? json : "");
    char *value = v == CACHE_FAILED ? NULL : record_value(atomic_load(&of(t)->epoch), r, &n);
    if (value) {
        const redisReply *old = raw->element[1];
        name_key(name, 'r', key);
        st = simple(of(t), (arg[]){TEXT("EVAL"), TEXT(swap), TEXT("1"), TEXT(name), {old->str, (size_t)old->len}, {value, n}, TEXT(LIFETIME_S)}, 7);
    } else
        redis_forget(t, key);
    free(value);
    freeReplyObject(raw);
    cache_release(r);
    return st;
}

/* The value of a key as a reply with a string; NULL with *st otherwise. */
static redisReply *value_of(redis_tier *t, const char *name, enum cache_status *st)
{
    redisReply *reply = ask(t, (arg[]){TEXT("GET"), TEXT(name)}, 2);
    if (reply && reply->type == REDIS_REPLY_STRING) return reply;
    *st = reply ? CACHE_MISS : CACHE_ERROR;
    if (reply) freeReplyObject(reply);
    return NULL;
}

static enum cache_status redis_get_blob(cache_tier *t, const char *digest, char **bytes, size_t *n)
{
    char name[112];
    enum cache_status st = CACHE_OK;
    name_key(name, 'b', digest);
    redisReply *reply = value_of(of(t), name, &st);
    if (!reply) return st;
    if (reply->len > 0 && (size_t)reply->len <= VALUE_MAX && *reply->str == 'r') { /* as it came: kept, not copied */
        *n = (size_t)reply->len - 1;
        *bytes = memmove(reply->str, reply->str + 1, *n + 1);
        reply->str = NULL;
    } else
        *bytes = unpack(reply->str, (size_t)reply->len, n);
    freeReplyObject(reply);
    if (*bytes) return CACHE_OK;
    *bytes = calloc(1, 1); /* not even unpackable: the front finds that the digest is wrong, counts it and drops it */
    *n = 0;
    return *bytes ? CACHE_OK : CACHE_ERROR;
}

static void redis_drop_blob(cache_tier *t, const char *digest)
{
    char name[112];
    name_key(name, 'b', digest);
    simple(of(t), (arg[]){TEXT("DEL"), TEXT(name)}, 2);
}

/* Keys and fingerprints are hashed together: either may be long. */
static void name_impossible(char name[112], const char *key, const char *fingerprint)
{
    char both[512], hex[65];
    int n = snprintf(both, sizeof both, "%s %s", key, fingerprint);
    cache_digest(both, n < (int)sizeof both ? (size_t)n : sizeof both - 1, hex);
    name_key(name, 'i', hex);
}

static enum cache_status redis_get_impossible(cache_tier *t, const char *key, const char *fingerprint, char **json)
{
    char name[112];
    size_t n;
    enum cache_status st = CACHE_OK;
    name_impossible(name, key, fingerprint);
    redisReply *reply = value_of(of(t), name, &st);
    if (!reply) return st;
    char *plain = unseal(of(t), reply->str, (size_t)reply->len, &n);
    freeReplyObject(reply);
    if (!plain) return CACHE_MISS;
    memmove(plain, plain + DIGEST_HEX, n - DIGEST_HEX + 1);
    *json = plain;
    return CACHE_OK;
}

static enum cache_status redis_put_impossible(cache_tier *t, const char *key, kiln_bytes canon, const char *fingerprint, const char *json)
{
    (void)canon;
    char name[112];
    size_t n;
    if (doubtful(of(t))) return CACHE_MISS;
    char *value = seal(json, (kiln_bytes){"", 0}, &n);
    if (!value) return CACHE_MISS;
    name_impossible(name, key, fingerprint);
    enum cache_status st = simple(of(t), (arg[]){TEXT("SET"), TEXT(name), {value, n}, TEXT("EX"), TEXT(LIFETIME_S)}, 5);
    free(value);
    return st;
}

static bool redis_resting(cache_tier *t) { return cache_breaker_open(&of(t)->breaker); }

const tier_ops cache_tier_redis = {
    .name = "redis", .kind = TIER_COPY, .answer_ms = COMMAND_MS - 2, .shared = true, .trusted = false, .open = redis_open,
    .resting = redis_resting, .close = redis_close, .get = redis_get, .put = redis_put,
    .verdict = redis_verdict, .get_blob = redis_get_blob, .put_blob = redis_put_blob, .drop_blob = redis_drop_blob,
    .get_impossible = redis_get_impossible, .put_impossible = redis_put_impossible, .forget = redis_forget,
};
