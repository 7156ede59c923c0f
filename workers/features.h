/* CPU features: the pure reading of CPUID, apart from the operating system's part of it. Internal to workers/. */
#ifndef WORKERS_FEATURES_H
#define WORKERS_FEATURES_H
#include <stdbool.h>
enum { FEATURES_MAX = 64 };
int features_scan(const char **names, bool amx_granted); /* names: FEATURES_MAX places; static strings */
#endif
