// Generated from build_matrix.yaml by `scripts/build_all.sh generate`; do not edit.
#pragma once

#define PROJECT_NAME "lltm"
#define PROJECT_PACKAGE "lltm_conda"
// The C++ namespace, the dispatcher's namespace, and the prefix of exported C symbols.
#define PROJECT_NAMESPACE lltm
#define PROJECT_SYMBOL(name) lltm_##name
