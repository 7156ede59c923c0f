/* The table of policies. */
#include "construct/construct.h"
#include <string.h>

#define X(name) extern const kn_policy kn_policy_##name;
#include "construct/policies.def"
#undef X

static const kn_policy *const table[] = {
#define X(name) &kn_policy_##name,
#include "construct/policies.def"
#undef X
};

int kn_policies_count(void) { return (int)(sizeof table / sizeof table[0]); }
const kn_policy *kn_policies_at(int i) { return table[i]; }

const kn_policy *kn_policy_find(const char *name)
{
    for (int i = 0; i < kn_policies_count(); i++) if (!strcmp(table[i]->name, name)) return table[i];
    return NULL;
}
