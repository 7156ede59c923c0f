/* Who built a record, of what: keys (Ed25519) of processes that build, their statements on what they put into shared stores, and whose word counts.
 *
 * A statement is an in-toto statement. Its predicate names record_sha256 (cache_record_sum), so that nothing of the record can be changed, and the
 * key, so that it stands for no other; the signature is over its DSSE encoding ("DSSEv1 LEN TYPE LEN BODY"). Those that count: the process's own
 * key, the roots (lines of a file), and builders that a root enrolled by a document of kind "builder" that it signed. Thread-safe. */
#ifndef WORKERS_SEAL_H
#define WORKERS_SEAL_H
#include "cache/cache.h"

typedef struct seals seals;
typedef struct seals_config {
    const char *key_file;  /* seed as 64 hex digits, mode 0600; made when it is not there */
    const char *roots;     /* file with public keys, 64 hex digits a line; NULL or "": only the own */
    const char *name, *program; /* of the process, for the statement: "worker-7", "kiln-worker" */
    bool required;         /* what nobody counted has signed is not read from PostgreSQL or Redis */
    void *user;
    /* Of a record that is refused (NULL: a verdict or an answer of "impossible" is); may be NULL. why:
     * "unsigned", "forged", "stranger", "replayed". Called for every read. */
    void (*refused)(void *user, const char *key, const cache_record *r, const char *why); /* key: under which it was found */
    /* Whether the job had such a lease, on that key; asked of stores only. NULL: not asked. */
    bool (*leased)(void *user, const char *job, int64_t epoch, const char *key);
} seals_config;
seals *seals_open(const seals_config *c, char *why, size_t size);
void seals_close(seals *s);
void seals_watch(seals *s, cache *c); /* from here on c signs what it puts and, when required, judges what it reads; before c is used */
const char *seals_public(const seals *s); /* 64 hex digits */
const char *seals_name(const seals *s);
void seals_sign(const seals *s, const void *p, size_t n, uint8_t out[64]);
bool seals_holds(const char *signer, const uint8_t sig[64], const void *p, size_t n); /* the signature is right, whoever the signer is */

bool seals_enrolled(seals *s); /* others count what this process signs: its key is in the file, or was enrolled */
enum seal_state { SEAL_NONE, SEAL_BROKEN, SEAL_STRANGER, SEAL_COUNTS };
bool seals_counts(seals *s, const char *public, char name[64]); /* name: of whom, when it counts */
/* Texts that a seal is put on (cache/cache.h: sign_text, judge_text). */
char *seals_say(void *seals, const char *context, const char *json);
bool seals_believe(void *seals, const char *key, const char *context, const char *text);
void seals_refuse(seals *s, const char *key, const char *why); /* a text */
int64_t seals_now(const seals *s);
enum seal_state seals_state(seals *s, const cache_record *r, char name[64]); /* name: of the builder when it counts */
char *seal_encoding(const void *body, size_t n, size_t *size); /* DSSE, free() */
int seal_read_keys(const char *file, uint8_t (*out)[32], int max); /* -1: cannot be read */

/* ---- enrolment ---- */
/* {"public","name","proof"}: what a builder shows to be enrolled; the proof is its signature over the name. free() */
char *seals_card(const seals *s);
bool seal_card_holds(const char *public, const char *name, const char *proof);
/* The document by which a root enrols a builder; by: the API key that asked; ends_ms: 0: never. free() */
char *seals_enrol(const seals *s, const char *public, const char *name, const char *by, int64_t at_ms, int64_t ends_ms);
#endif
