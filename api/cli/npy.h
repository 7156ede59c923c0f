/* NumPy's .npy files (format 1.0 and 2.0), C order only. */
#ifndef KILN_CLI_NPY_H
#define KILN_CLI_NPY_H
#include "kiln.h"
/* Bytes of the array behind its header when dtype and shape are those of arg; NULL after a message. free(*file). */
const char *npy_read(const char *path, const kiln_arg *arg, char **file);
bool npy_write(const char *path, const kiln_arg *arg, const void *data);
#endif
