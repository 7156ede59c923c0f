/* The service's own Ed25519 key, and whose signatures count. */
#ifndef KILN_SIGN_H
#define KILN_SIGN_H
#include "service/service.h"
#include "workers/seal.h"

service_signer *service_signer_open(service_app *app, char *why, size_t size); /* makes a key at the first start */
void service_signer_close(service_signer *s);
const char *service_signer_public(const service_signer *s); /* 64 hex digits */
void service_sign(const service_signer *s, const void *p, size_t n, uint8_t out[64]);
/* Whether `signer` (64 hex digits) signed the bytes and is one whose word counts here: this service, or a line of the file trusted_keys. */
bool service_signed(const service_signer *s, const char *signer, const uint8_t sig[64], const void *p, size_t n);
seals *service_signer_seals(service_signer *s);
/* Who built it, as its builder signed it: state of the signature, statement, DSSE envelope. */
cJSON *service_provenance(service_signer *s, const cache_record *r);
bool service_builders_drop(service_call *c, const char *key); /* those whom this API key enrolled; false: the store could not be asked */
/* in-toto statement about a record in a DSSE envelope. */
cJSON *service_attestation(const service_signer *s, const cache_record *r);
#endif
