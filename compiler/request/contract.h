/* What a client may ask of a kernel's arithmetic, and what kernels keep to. */
#ifndef KN_CONTRACT_H
#define KN_CONTRACT_H
#include "te/te.h"
#include <cjson/cJSON.h>
/* Members "numerics" ("reassoc", or {"mode", "deterministic"}) and "accumulate" (a dtype) of a request for p, both optional: they are
 * statements of what the client relies on. Every kernel reassociates sums, has no fast-math and gives the same bytes for the same input
 * (docs/abi.md); what asks for another contract is refused with UNSUPPORTED, what is no contract with REQUEST or DTYPE, each with its
 * pointer and what would be right. */
kiln_status kn_request_contract(const cJSON *root, const kn_program *p, kiln_diag *d);
#endif
