/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jvm_stubs: what the pieces of HotSpot's hand-made code are called: a blob of them has hundreds. HotSpot keeps a
 * list for its own error messages (StubCodeDesc, runtime/stubCodeGenerator.hpp), which is none of its tables: it is
 * found where libjvm has its symbol table.
 */
#pragma once

#include "node/runtime/runtime.h"

struct jvm_stubs;
/* list: the address of StubCodeDesc::_list. Those that were there when it was read; never fails: fewer are known. */
struct jvm_stubs *runtime_jvm_stubs_read(struct memory *m, uint64_t list);
struct jvm_stubs *runtime_jvm_stubs_free(struct jvm_stubs *s);
/*
 * "jbyte_disjoint_arraycopy"; NULL: none is known to be there. pc: one more than an address in it; or its
 * first: some are returned to that nothing called. Borrowed.
 */
const char *runtime_jvm_stubs_find(const struct jvm_stubs *s, uint64_t pc);
