/* Code generators: loop program -> text. One file gen_NAME.c and one row in languages.def each. */
#ifndef KN_CODEGEN_H
#define KN_CODEGEN_H
#include "lower/loop.h"

typedef struct kn_language {
    const char *name;      /* "c", "cuda" */
    int version;           /* part of the compiler fingerprint: raise it whenever the text for any input changes */
    /* entry: C identifier. Fills source and header (header empty where the language has none). */
    kiln_status (*print)(kiln_arena *a, const kn_lprog *p, const char *entry, kiln_bytes *source, kiln_bytes *header, kiln_diag *d);
} kn_language;
const kn_language *kn_language_find(const char *name);
int kn_languages_count(void);
const kn_language *kn_languages_at(int i);
#endif
