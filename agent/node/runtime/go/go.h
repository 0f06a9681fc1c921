/* SPDX-License-Identifier: Apache-2.0 */
/* Private to runtime: the types of a Go program, which name the objects that it allocates. */
#pragma once

#include "node/runtime/internal.h"

#define GO_RESOLVE_NAME "runtime.resolveNameOff" /* the function that leads to the types */
/* Finds a program's types. NULL: they cannot be found. The caller frees the result with free(). */
struct go_types *runtime_go_types_find(const struct loaded_elf *e, const struct elf_index *index,
				       unsigned minor);
/*
 * Names the object of a frame of PF_TYPE_OBJECT, as runtime_ops.resolve does. state: struct
 * go_types.
 */
int runtime_go_type_resolve(void *state, struct memory *m, const struct runtime_words *frame,
		    const struct runtime_words *caller, struct runtime_names *ret);
