/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jvm_stubs: names of HotSpot's hand-written pieces of code, of which one blob has hundreds.
 * HotSpot keeps a list for its own error messages (StubCodeDesc, runtime/stubCodeGenerator.hpp).
 * The list is in no exported table; it is found if libjvm has a symbol table. Reader's thread.
 */
#pragma once

#include "node/runtime/runtime.h"

struct jvm_stubs;
/*
 * Reads the list as it is now. list: the address of StubCodeDesc::_list. It never fails: on an
 * error it has fewer stubs.
 */
struct jvm_stubs *runtime_jvm_stubs_read(struct memory *m, uint64_t list);
struct jvm_stubs *runtime_jvm_stubs_free(struct jvm_stubs *s);
/*
 * "jbyte_disjoint_arraycopy", borrowed; NULL: no stub is known there. pc: one more than an address
 * in the stub; or its first address, since some stubs are returned to without a call.
 */
const char *runtime_jvm_stubs_find(const struct jvm_stubs *s, uint64_t pc);
