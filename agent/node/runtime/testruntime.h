/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of other modules: runtime_process_with(), a table of runtimes of their own, and JVMs
 * that need a perf map (runtime_java_map_want()).
 */
#pragma once

#include "node/runtime/internal.h"
#include "node/runtime/java_attach/attach.h"
