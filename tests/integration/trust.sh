#!/bin/sh
# Whose kernels a fleet serves: signatures, enrolment, forgers, verification by a second worker; see trust.py.
cd "$(dirname "$0")/../.." || exit 2
exec python3 tests/integration/trust.py "${KILN_BUILD:-build}"
