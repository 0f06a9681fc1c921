/* SPDX-License-Identifier: Apache-2.0 */
/* Private to `podflame symbols`: the index of a local file. */
#pragma once

#include "node/parse/parse.h"

/*
 * The best index of an ELF file: with inlined functions if it has DWARF (split DWARF from its .dwo
 * files). For a file without build id or symbols it fails, with the reason.
 */
int cli_symbols_of_file(struct parser *p, const char *path, struct elf_index **ret,
		    struct field_error *reterr);
