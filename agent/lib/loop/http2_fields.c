/* SPDX-License-Identifier: Apache-2.0 */
/* A request's head as fields of HTTP/2. */
#include "lib/loop/http2_fields.h"

#include <ctype.h>

static void add_field(nghttp2_nv *fields, size_t *n, const char *name, const char *value)
{
	/* nobody else sees a token in the table of a later connection's headers */
	bool secret = streq(name, "authorization");

	fields[(*n)++] = (nghttp2_nv){
		.name = (uint8_t *)name,
		.namelen = strlen(name),
		.value = (uint8_t *)value,
		.valuelen = strlen(value),
		.flags = secret ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE,
	};
}

size_t http2_fields(char *head, bool tls, nghttp2_nv *fields)
{
	char *line = head, *next, *path = strchr(head, ' ') + 1;
	size_t n = 0;

	next = strstr(line, "\r\n") + 2;
	path[-1] = path[strcspn(path, " ")] = '\0';
	add_field(fields, &n, ":method", head);
	add_field(fields, &n, ":scheme", tls ? "https" : "http");
	add_field(fields, &n, ":path", path);
	for (line = next; *line != '\r' && n < HTTP2_MAX_FIELDS; line = next) {
		char *value = strchr(line, ':');

		next = strstr(line, "\r\n") + 2;
		next[-2] = *value++ = '\0';
		for (char *c = line; *c; c++)
			*c = (char)tolower((unsigned char)*c);
		add_field(fields, &n, streq(line, "host") ? ":authority" : line,
			  value + strspn(value, " "));
	}
	return n;
}
