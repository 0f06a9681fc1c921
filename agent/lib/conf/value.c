/* SPDX-License-Identifier: Apache-2.0 */
/* What the text of a value may be. */
#include "lib/conf/value.h"

bool conf_is_choice(const char *choices, const char *value)
{
	size_t n = strlen(value);

	for (const char *s = choices;; s += strcspn(s, "|") + 1) {
		size_t len = strcspn(s, "|");

		if (len == n && strncmp(s, value, n) == 0)
			return true;
		if (!s[len])
			return false;
	}
}

int conf_bytes(const char *s, uint64_t *ret)
{
	static const char *const units[] = {"", "Ki", "Mi", "Gi", "Ti"};
	size_t digits = strspn(s, "0123456789");
	_cleanup_free_ char *number = xstrndup(s, digits);
	uint64_t v;

	for (unsigned i = 0; i < ARRAY_SIZE(units); i++) {
		int r;

		if (!streq(s + digits, units[i]))
			continue;
		r = str_to_u64(number, UINT64_MAX >> (10 * i), &v);
		if (r)
			return r;
		*ret = v << (10 * i);
		return 0;
	}
	return -EINVAL;
}

/* A bare number is seconds, as in DeepFlow's files. */
int conf_duration(const char *s, uint64_t max_seconds, uint64_t *ret_ns)
{
	uint64_t seconds;
	int r;

	if (strspn(s, "0123456789") != strlen(s))
		return str_to_duration_ns(s, ret_ns);
	r = str_to_u64(s, max_seconds, &seconds);
	if (!r)
		*ret_ns = seconds * NSEC_PER_SEC;
	return r;
}

/* A page of a browser, never javascript: and the like. */
bool conf_is_link(const char *s)
{
	if (!str_has_prefix(s, "http://") && !str_has_prefix(s, "https://"))
		return false;
	for (; *s; s++)
		if ((unsigned char)*s <= ' ' || strchr("\"'<>`\\", *s))
			return false;
	return true;
}
