/* Files that are part of the program: schemas and the status page. */
#ifndef KILN_ASSETS_H
#define KILN_ASSETS_H
/* First byte, and the one behind the last. */
#define X(name, path) extern const char service_asset_##name[], service_asset_##name##_end[];
#include "service/assets.def"
#undef X
#endif
