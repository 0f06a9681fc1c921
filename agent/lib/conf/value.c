/* SPDX-License-Identifier: Apache-2.0 */
/* What the text of a value may be. */
#include "lib/conf/value.h"

#include <arpa/inet.h>

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

/* A server and perhaps a path: no user, no query; an IPv6 address in brackets. */
bool conf_is_url(const char *s)
{
	size_t scheme = str_has_prefix(s, "https://") ? 8 : str_has_prefix(s, "http://") ? 7 : 0;
	const char *host = s + scheme, *rest = host;

	if (scheme && *host == '[') {
		_cleanup_free_ char *ip = xstrndup(host + 1, strcspn(host + 1, "]"));
		struct in6_addr addr;

		rest = host + 1 + strlen(ip);
		if (*rest++ != ']' || inet_pton(AF_INET6, ip, &addr) != 1 || !strchr(":/", *rest))
			return false;
	}
	return scheme && (rest > host || !strchr("/:", *host)) && !strpbrk(rest, "?#@[] ");
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
