/* fields.def as a constant table. */
#include "hw/fields.h"

#define OFF_TOP(m) offsetof(struct kiln_hw, m)
#define OFF_LEVEL(m) offsetof(kn_hw_level, m)
#define OFF_INTRIN(m) offsetof(kn_hw_intrin, m)
#define OFF_COSTS(m) offsetof(struct kiln_hw, m)
#define OFF_ROLLER(m) offsetof(struct kiln_hw, m)

static const kn_hw_field rows[] = {
#define X(scope, name, type, member, lo, hi, need, code, about) \
    {KN_HW_##scope, name, KN_HW_T_##type, OFF_##scope(member), (double)(lo), (double)(hi), need, code, about},
#include "hw/fields.def"
#undef X
};

int kn_hw_fields(const kn_hw_field **out)
{
    *out = rows;
    return (int)(sizeof rows / sizeof rows[0]);
}
