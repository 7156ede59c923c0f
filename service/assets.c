/* Includes the files of assets.def as they are. The Makefile lets this object depend on them. */
#include "service/assets.h"

#define X(name, path) \
    __asm__(".section .rodata\n.global service_asset_" #name "\nservice_asset_" #name ":\n.incbin \"" path "\"\n.global service_asset_" #name \
            "_end\nservice_asset_" #name "_end:\n.byte 0\n.previous\n");
#include "service/assets.def"
#undef X
