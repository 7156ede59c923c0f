/* Images that libcuda_emu.so executes: a kernel's own text compiled for the host, with the emulator's runtime. For tests. */
#ifndef EMU_IMAGE_H
#define EMU_IMAGE_H
#include "kiln.h"

/* Writes STEM.so with the launches of k, and of its fallback behind them; what the mock driver loads as a module is written to STEM.image. stem: an
 * absolute path. cc: the C compiler. False: it did not compile. */
bool emu_image(const char *cc, const kiln_kernel *k, const char *stem);
#endif
