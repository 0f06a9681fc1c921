/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses the address of a server as users write it (RFC 3986). Refuses a query, a fragment and a
 * user name: a client would ignore these parts, or would send them to the server without the user's
 * knowledge.
 */
#include "lib/base/base.h"

#include <arpa/inet.h>
#include <stdlib.h>

#define HOST_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._"

/*
 * Whether s has a blank or a control character. The agent puts host and path into the head of each
 * request unchanged.
 */
static bool has_blank(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s <= ' ' || *s == 0x7f)
			return true;
	return false;
}

static int refuse(struct field_error *reterr, const char *why)
{
	return field_error_set(reterr, "url", "%s", why);
}

/*
 * Copies the host at the beginning of s: "name", "10.0.0.1" or "[::1]". *ret_rest is the text
 * behind it.
 */
static int parse_host(const char *s, char **ret_host, const char **ret_rest,
		      struct field_error *reterr)
{
	bool bracket = *s == '[';
	size_t n = bracket ? strcspn(s + 1, "]") : strspn(s, HOST_CHARS);
	_cleanup_free_ char *host = xstrndup(s + bracket, n);
	struct in6_addr ip;

	if (bracket && (s[1 + n] != ']' || inet_pton(AF_INET6, host, &ip) != 1))
		return refuse(reterr, "has no IPv6 address in its brackets");
	s += n + 2 * bracket;
	if (!bracket && *s == ':' && s[1 + strcspn(s + 1, ":/")] == ':')
		return refuse(reterr, "has an IPv6 address without brackets");
	if (!n)
		return refuse(reterr, "names no host");
	if (*s && *s != ':' && *s != '/')
		return refuse(reterr, "has no valid host");
	*ret_host = TAKE_PTR(host);
	*ret_rest = s;
	return 0;
}

/* Reads the port from s, which is ":8080" and the path. */
static int parse_port(const char *s, uint16_t *ret, struct field_error *reterr)
{
	_cleanup_free_ char *digits = xstrndup(s + 1, strcspn(s + 1, "/"));
	uint64_t port;

	if (*digits == '0' || str_to_u64(digits, UINT16_MAX, &port) < 0)
		return refuse(reterr, "has a port that is not in 1..65535");
	*ret = (uint16_t)port;
	return 0;
}

int url_parse(const char *s, struct url *ret, struct field_error *reterr)
{
	bool tls = str_has_prefix(s, "https://");
	_cleanup_free_ char *host = NULL;
	uint16_t port = tls ? 443 : 80;
	int r;

	if (has_blank(s))
		return refuse(reterr, "holds a blank or a control character");
	if (!tls && !str_has_prefix(s, "http://"))
		return refuse(reterr, "begins neither with https:// nor with http://");
	if (strpbrk(s, "?#"))
		return refuse(reterr, "has a query or a fragment");
	s = strstr(s, "//") + 2;
	if (memchr(s, '@', strcspn(s, "/")))
		return refuse(reterr, "has a user name in it");
	r = parse_host(s, &host, &s, reterr);
	if (r == 0 && *s == ':')
		r = parse_port(s, &port, reterr);
	if (r < 0)
		return r;
	s += strcspn(s, "/");
	if (strpbrk(s, "[]"))
		return refuse(reterr, "has a bracket in its path");
	*ret = (struct url){.tls = tls,
			    .host = TAKE_PTR(host),
			    .port = port,
			    .path = xstrndup(s, strlen(s) - str_has_suffix(s, "/"))};
	return 0;
}

bool url_is_loopback(const char *host)
{
	struct in_addr v4;
	struct in6_addr v6;

	if (inet_pton(AF_INET, host, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127;
	if (inet_pton(AF_INET6, host, &v6) == 1)
		return IN6_IS_ADDR_LOOPBACK(&v6);
	return streq(host, "localhost");
}

void url_done(struct url *u)
{
	free(u->host);
	free(u->path);
	*u = (struct url){0};
}
