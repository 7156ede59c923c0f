/* Seals on short texts, JSON objects: verdicts on records, answers of "impossible". The signature is over what the text is about, when, and it. */
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "workers/seal.h"

static char *signed_text(const char *context, int64_t at_ms, const char *plain)
{
    char *out = NULL;
    return asprintf(&out, "%s %" PRId64 "\n%s", context, at_ms, plain) < 0 ? NULL : out;
}

char *seals_say(void *user, const char *context, const char *json)
{
    const seals *s = user;
    cache_sealed seal = {.at_ms = seals_now(s)};
    uint8_t sig[64];
    char *text = signed_text(context, seal.at_ms, json), *out = NULL;
    if (text) {
        seals_sign(s, text, strlen(text), sig);
        sodium_bin2hex(seal.seal, sizeof seal.seal, sig, sizeof sig);
        memcpy(seal.by, seals_public(s), sizeof seal.by);
        out = cache_sealed_text(json, &seal);
    }
    free(text);
    return out;
}

bool seals_believe(void *user, const char *key, const char *context, const char *text)
{
    seals *s = user;
    cache_sealed seal;
    uint8_t sig[64];
    char name[64], why[64];
    size_t n = 0;
    const char *wrong = cache_sealed_parse(text, &seal) ? NULL : "unsigned";
    if (!wrong) {
        char *plain = cache_sealed_plain(text), *said = plain ? signed_text(context, seal.at_ms, plain) : NULL;
        bool holds = said && !sodium_hex2bin(sig, sizeof sig, seal.seal, 128, NULL, &n, NULL) && n == 64;
        holds = holds && seals_holds(seal.by, sig, said, strlen(said));
        wrong = !holds ? "forged" : !seals_counts(s, seal.by, name) ? "stranger" : NULL;
        free(said);
        free(plain);
    }
    snprintf(why, sizeof why, "%s %s", strncmp(context, "kiln-verdict", 12) ? "impossible" : "verdict", wrong ? wrong : "");
    if (wrong) seals_refuse(s, key, why);
    return !wrong;
}
