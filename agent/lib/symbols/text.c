/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names and paths of pods may contain any bytes. This module makes text of them that is valid in
 * JSON and protobuf.
 */
#include "lib/symbols/symbols.h"

#include <stdlib.h>

char *elf_text_clean(const char *s)
{
	char *text = xstrdup(s);
	unsigned char *p = (unsigned char *)text;

	while (*p) {
		size_t n = 1;

		if (*p < 0x20 || *p == 0x7f)
			*p = '?';
		else if (*p >= 0x80)
			n = utf8_len((const char *)p);
		if (n == 0) {
			*p = '?';
			n = 1;
		}
		p += n;
	}
	return text;
}
