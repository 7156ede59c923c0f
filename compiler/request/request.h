/* The last step that all request forms share. */
#ifndef KN_REQUEST_H
#define KN_REQUEST_H
#include "te/te.h"
/* Canonicalises p, fills program and the names of r (those of p's tensors). */
kiln_status kn_request_finish(kiln_arena *a, const kn_program *p, kiln_request *r, kiln_diag *d);
#endif
