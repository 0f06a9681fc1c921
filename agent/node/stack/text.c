/* SPDX-License-Identifier: Apache-2.0 */
/* Names and paths of pods hold any bytes; what leaves this module is text that JSON and protobuf take. */
#include "node/stack/internal.h"

/* Bytes of the valid UTF-8 sequence at s (no surrogates, no overlong forms), 0 if there is none. */
static size_t utf8_length(const unsigned char *s)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
	uint32_t c = s[0] & (0xff >> (n + 1));

	if (s[0] < 0xc2 || s[0] > 0xf4)
		return 0;
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		return 0;
	return n;
}

char *text_clean(const char *s)
{
	char *text = xstrdup(s);
	unsigned char *p = (unsigned char *)text;

	while (*p) {
		size_t n = 1;

		if (*p < 0x20 || *p == 0x7f)
			*p = '?';
		else if (*p >= 0x80)
			n = utf8_length(p);
		if (n == 0) {
			*p = '?';
			n = 1;
		}
		p += n;
	}
	return text;
}
