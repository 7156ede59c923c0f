/* The table of a hwspec's members (fields.def) as data, for the parser and for the test that holds the JSON schema to it. */
#ifndef KN_HW_FIELDS_H
#define KN_HW_FIELDS_H
#include "hw/hw.h"

enum kn_hw_scope { KN_HW_TOP, KN_HW_LEVEL, KN_HW_INTRIN, KN_HW_COSTS, KN_HW_ROLLER, KN_HW_SCOPES };
enum kn_hw_type {
    KN_HW_T_ID,       /* text of a-z 0-9 - _ . */
    KN_HW_T_WORD,     /* the same and upper case */
    KN_HW_T_TEXT,     /* printable UTF-8 */
    KN_HW_T_KIND,
    KN_HW_T_INT, KN_HW_T_LONG, KN_HW_T_NUM,
    KN_HW_T_LONG2, KN_HW_T_NUM2, /* arrays of two */
    KN_HW_T_FEATURES, KN_HW_T_FLAGS,
    KN_HW_T_PEAKS, KN_HW_T_LEVELS, KN_HW_T_INTRINS, KN_HW_T_COSTS, KN_HW_T_ROLLER
};
typedef struct kn_hw_field {
    enum kn_hw_scope scope;
    const char *name;
    enum kn_hw_type type;
    size_t offset;
    double lo, hi;
    char need;
    bool code;
    const char *about;
} kn_hw_field;
int kn_hw_fields(const kn_hw_field **rows);
kiln_status kn_hw_canon(kiln_arena *a, kiln_hw *hw, kiln_diag *d); /* fills hw->canon */
#endif
