/* SPDX-License-Identifier: Apache-2.0 */
/* Several tags as one: its name, and its values, which are lists of JSON without brackets. */
#include "hub/store/store.h"

#include <stdlib.h>

/* What no name of a tag has. */
#define ITEM	  '\x1f' /* before each tag */
#define OTHERWISE '\x1e' /* before the tag that counts for what lacks it */

static void put_name(struct buf *b, char mark, const char *tag)
{
	buf_putc(b, mark);
	for (; *tag; tag++) /* a name with a mark in it is of no tag, and stays one */
		buf_putc(b, *tag == ITEM || *tag == OTHERWISE ? '\x1d' : *tag);
}

char *store_join(const struct store_joined *items, size_t n)
{
	struct buf b = {0};

	assert_se(n && n <= STORE_MAX_JOINED);
	for (size_t i = 0; i < n; i++) {
		put_name(&b, ITEM, items[i].tag);
		if (items[i].otherwise)
			put_name(&b, OTHERWISE, items[i].otherwise);
	}
	return buf_steal(&b);
}

bool store_is_joint(const char *tag)
{
	return *tag == ITEM;
}

size_t store_joined(const char *tag, struct store_joined ret[static STORE_MAX_JOINED], char **text)
{
	size_t n = 0;
	char *p = *text = xstrdup(tag);

	while (*p == ITEM && n < STORE_MAX_JOINED) {
		struct store_joined *x = &ret[n++];

		*p++ = '\0';
		*x = (struct store_joined){.tag = p};
		p += strcspn(p, "\x1e\x1f");
		if (*p == OTHERWISE) {
			*p++ = '\0';
			x->otherwise = p;
			p += strcspn(p, "\x1f");
		}
	}
	return n;
}

int store_joined_values(const char *value, size_t n, char **ret)
{
	_cleanup_free_ char *mended = utf8_repaired(value);
	_cleanup_free_ char *text = xasprintf("[%s]", mended ?: value);
	_cleanup_json_ json_t *list = json_loads(text, 0, NULL);

	if (json_array_size(list) != n)
		return -EBADMSG;
	for (size_t i = 0; i < n; i++)
		ret[i] = xstrdup(json_string_value(json_array_get(list, i)));
	return 0;
}
