// Generated from build_matrix.yaml by `scripts/build_all.sh generate`; do not edit.
#pragma once

#define PROJECT_NAME "own-op"
#define PROJECT_PACKAGE "own_op"
// The C++ namespace, the dispatcher's namespace, and the prefix of exported C symbols.
#define PROJECT_NAMESPACE own_op
#define PROJECT_SYMBOL(name) own_op_##name
