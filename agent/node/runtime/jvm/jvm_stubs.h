/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jvm_stubs: names of HotSpot's hand-written pieces of code (stubs). One blob has hundreds of them.
 * HotSpot keeps a list for its own error messages (StubCodeDesc, runtime/stubCodeGenerator.hpp). No
 * exported table has that list, so the list is found only if libjvm has a symbol table. Runs on the
 * reader's thread.
 */
#pragma once

#include "node/runtime/runtime.h"

struct jvm_stubs;
/*
 * Reads the list. list: the address of StubCodeDesc::_list. The function never fails: after an
 * error, the result has fewer stubs.
 */
struct jvm_stubs *runtime_jvm_stubs_read(struct memory *m, uint64_t list);
struct jvm_stubs *runtime_jvm_stubs_free(struct jvm_stubs *s);
/*
 * Returns the name of the stub at pc, such as "jbyte_disjoint_arraycopy"; it belongs to s. NULL: no
 * stub is known there. pc: one more than an address in the stub; or the stub's first address,
 * because functions may return to a stub that did not call them.
 */
const char *runtime_jvm_stubs_find(const struct jvm_stubs *s, uint64_t pc);
