/* SPDX-License-Identifier: Apache-2.0 */
/* Private to `podflame symbols`: the index of a local file. */
#pragma once

#include "node/parse/parse.h"

/*
 * Makes the best index of an ELF file. If the file has DWARF, the index has inlined functions (for
 * split DWARF, from its .dwo files). If the file has no build id or no symbols, the function fails
 * and gives the reason.
 */
int cli_symbols_of_file(struct parser *p, const char *path, struct elf_index **ret,
		    struct field_error *reterr);
