/* SPDX-License-Identifier: Apache-2.0 */
/* .gnu_debugdata -> symbols. */
#include "node/parse/build.h"

enum parse_reason build_debugdata(struct elf_build *b)
{
	(void)b;
	return PARSE_OK;
}
