/* The table of languages. */
#include "codegen/gen.h"
#include <string.h>

static const kn_language languages[] = {
#define X(id, text, version, function) {text, version, function},
#include "codegen/languages.def"
#undef X
};

int kn_languages_count(void) { return (int)(sizeof languages / sizeof *languages); }

const kn_language *kn_languages_at(int i) { return i >= 0 && i < kn_languages_count() ? &languages[i] : NULL; }

const kn_language *kn_language_find(const char *name)
{
    for (int i = 0; i < kn_languages_count(); i++)
        if (name && !strcmp(languages[i].name, name)) return &languages[i];
    return NULL;
}
