/* SPDX-License-Identifier: Apache-2.0 */
/* Private to `podflame symbols`: the index of a local file. */
#pragma once

#include "node/parse/parse.h"

/*
 * What is best known of an ELF file: inlined functions too where it has DWARF (split DWARF from
 * its .dwo files). Fails with the reason for a file without build id or symbols.
 */
int cli_symbols_of_file(struct parser *p, const char *path, struct elf_index **ret,
		    struct field_error *reterr);
