/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LIKE on tag values. Anybody who may query chooses the pattern, so a match takes at most O(pattern
 * x text) steps.
 */
#include "hub/store/sink.h"

#include <ctype.h>

static bool is_run(char c)
{
	return c == '%' || c == '*';
}

/*
 * Whether one element of the pattern at p matches the byte c. *ret_next is then behind the element.
 */
static bool like_one(const char *p, char c, const char **ret_next)
{
	bool literal = *p == '\\' && p[1];

	if (literal)
		p++;
	*ret_next = p + 1;
	if (*p == '_' && !literal)
		return true;
	return tolower((unsigned char)*p) == tolower((unsigned char)c);
}

bool store_match_like(const char *pattern, const char *text)
{
	const char *p = pattern, *run = NULL, *resume = NULL, *next;

	while (*text) {
		if (is_run(*p)) {
			run = ++p;
			resume = text;
			continue;
		}
		if (*p && like_one(p, *text, &next)) {
			p = next;
			/*
			 * '_' matches one character: skip the remaining bytes of a UTF-8 sequence,
			 * too
			 */
			do
				text++;
			while (next[-1] == '_' && ((unsigned char)*text & 0xc0) == 0x80);
			continue;
		}
		if (!run)
			return false;
		p = run;
		text = ++resume;
	}
	while (is_run(*p))
		p++;
	return !*p;
}
