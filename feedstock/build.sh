#!/bin/bash
# Makes a wheel and installs this wheel. An installation from the source
# folder would leave a direct_url.json with this build's path in the package.
set -euo pipefail
. ./project.env
[ -z "${PREBUILT:-}" ] || export "${PROJECT_PREFIX}_PREBUILT=$PREBUILT"
# conda's flags and LD_RUN_PATH ask for an RPATH into this host environment. Our binaries need no
# RPATH, because torch has already loaded the libraries that they need.
LDFLAGS=$(printf '%s' "${LDFLAGS:-}" | sed -E 's/-Wl,-rpath,[^ ]+//g')
export LDFLAGS
unset LD_RUN_PATH
# Python runs on this machine, but the wheel's tag must name the package's platform.
export _PYTHON_HOST_PLATFORM=${target_platform/%-64/-x86_64}
wheels=$(mktemp -d)
"$PYTHON" -m pip wheel . --no-deps --no-build-isolation --no-index -w "$wheels" -v
"$PYTHON" -m pip install "$PKG_NAME" --no-deps --no-index --find-links "$wheels" -v
