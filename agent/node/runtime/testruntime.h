/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of other modules: runtime_process_with(), and a table of runtimes of their own. */
#pragma once

#include "node/runtime/internal.h"
