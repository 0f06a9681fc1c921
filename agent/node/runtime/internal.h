/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of runtime share. */
#pragma once

#include "node/runtime/runtime.h"

#define X(NAME, name) extern const struct runtime_ops name##_runtime;
PF_RUNTIMES(X)
#undef X
