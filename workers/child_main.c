/* kiln-child: children alone, without the libraries of a fleet, which take longer to load than most kernels to be checked. */
#include "workers/child.h"

int main(int argc, char **argv) { return child_main(argc, argv); }
