#!/bin/bash
# Makes a wheel and installs this wheel. An installation from the source
# folder would leave a direct_url.json with this build's path in the package.
set -euo pipefail
prefix=$(sed -n 's/^  prefix: *//p' build_matrix.yaml)
[ -z "${PREBUILT:-}" ] || export "${prefix}_PREBUILT=$PREBUILT"
# The build's flags and LD_RUN_PATH ask for an RPATH into this host environment. Our binaries need no
# RPATH, because torch has loaded their libraries before.
LDFLAGS=$(printf '%s' "${LDFLAGS:-}" | sed -E 's/-Wl,-rpath,[^ ]+//g')
export LDFLAGS
unset LD_RUN_PATH
# The Python runs on this machine even if the package is for another platform.
export _PYTHON_HOST_PLATFORM=${target_platform/%-64/-x86_64}
wheels=$(mktemp -d)
"$PYTHON" -m pip wheel . --no-deps --no-build-isolation --no-index -w "$wheels" -v
"$PYTHON" -m pip install "$PKG_NAME" --no-deps --no-index --find-links "$wheels" -v
