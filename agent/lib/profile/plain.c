/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names as plain text. A process chooses its own name and those of its threads and functions, so a
 * name may have characters that control a terminal or turn the text around them.
 */
#include "lib/profile/profile.h"

/*
 * Unicode's control characters, format characters and separators of lines (Cc, Cf, Zl, Zp), without
 * those of ASCII, and the two code points that XML refuses.
 */
static const struct {
	uint32_t first, last;
} unseen[] = {
	{0x80, 0x9f},	    {0xad, 0xad},	{0x600, 0x605},	    {0x61c, 0x61c},
	{0x6dd, 0x6dd},	    {0x70f, 0x70f},	{0x890, 0x891},	    {0x8e2, 0x8e2},
	{0x180e, 0x180e},   {0x200b, 0x200f},	{0x2028, 0x202e},   {0x2060, 0x206f},
	{0xfeff, 0xfeff},   {0xfff9, 0xfffb},	{0xfffe, 0xffff},   {0x110bd, 0x110bd},
	{0x110cd, 0x110cd}, {0x13430, 0x1343f}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a},
	{0xe0001, 0xe007f},
};

/* The code point of a valid character of n bytes. */
static uint32_t code_point(const char *s, size_t n)
{
	uint32_t c = (unsigned char)*s & (n == 1 ? 0x7f : 0xffu >> (n + 1));

	for (size_t i = 1; i < n; i++)
		c = c << 6 | ((unsigned char)s[i] & 0x3f);
	return c;
}

static bool is_unseen(uint32_t c)
{
	for (size_t i = 0; i < ARRAY_SIZE(unseen); i++)
		if (c >= unseen[i].first && c <= unseen[i].last)
			return true;
	return false;
}

void profile_put_plain(const char *name, size_t max_bytes, struct buf *out)
{
	_cleanup_free_ char *cut = utf8_shorten(name, max_bytes);
	size_t n;

	for (const char *s = cut; *s; s += n ? n : 1) {
		n = utf8_len(s);
		if (n == 1 && ((unsigned char)*s < ' ' || *s == 0x7f))
			buf_putc(out, ' ');
		else if (!n || is_unseen(code_point(s, n)))
			buf_puts(out, UTF8_REPLACEMENT);
		else
			buf_add(out, s, n);
	}
}
