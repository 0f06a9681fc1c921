/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the text of a value. */
#include "lib/base/regexp.h"
#include "lib/conf/value.h"

#include <inttypes.h>

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

int conf_duration(const char *s, uint64_t min_seconds, uint64_t max_seconds, uint64_t *ret_ns)
{
	uint64_t seconds;
	int r;

	if (strspn(s, "0123456789") != strlen(s))
		return str_to_duration_ns(s, ret_ns);
	r = str_to_u64(s, min_seconds ? max_seconds : 0, &seconds);
	if (!r)
		*ret_ns = seconds * NSEC_PER_SEC;
	return r;
}

/* Whether s is the address of a page. Other URLs, such as javascript:, are not. */
bool conf_is_link(const char *s)
{
	if (!str_has_prefix(s, "http://") && !str_has_prefix(s, "https://"))
		return false;
	for (; *s; s++)
		if ((unsigned char)*s <= ' ' || strchr("\"'<>`\\", *s))
			return false;
	return true;
}

bool conf_is_url(const char *s, struct field_error *reterr)
{
	_cleanup_(url_done) struct url u = {0};

	return url_parse(s, &u, reterr) == 0;
}

/* ---- texts about a value, for messages ---- */

bool conf_wants_text(const struct key *k)
{
	return k->type == STRING || k->type == CHOICE || k->type == REGEX || k->type == URL ||
	       k->type == LINK;
}

void conf_allowed(const struct key *k, char out[256])
{
	switch (k->type) {
	case BOOL:
		snprintf(out, 256, "true or false");
		break;
	case UINT:
		snprintf(out, 256, "a number, %" PRIu64 " to %" PRIu64, k->min, k->max);
		break;
	case DURATION:
		snprintf(out, 256, "a duration such as %s, %" PRIu64 "s to %" PRIu64 "s",
			 k->min ? "10s" : "50us", k->min, k->max);
		break;
	case BYTES:
		snprintf(out, 256, "a size such as 256Mi, %" PRIu64 "Mi to %" PRIu64 "Mi", k->min,
			 k->max);
		break;
	case CHOICE:
		snprintf(out, 256, "one of %s", *k->choices == '|' ? k->choices + 1 : k->choices);
		break;
	case REGEX:
		snprintf(out, 256, "a regular expression (PCRE2), at most %d bytes",
			 REGEXP_MAX_BYTES);
		break;
	case URL:
		snprintf(out, 256,
			 "empty, or http://HOST[:PORT][/PATH] or the same with https; HOST: a "
			 "name, an IPv4 address or [IPv6]");
		break;
	case LINK:
		snprintf(out, 256,
			 "empty, or an address that begins with http:// or https:// and holds no "
			 "blank, quote, backslash, < or >");
		break;
	default:
		snprintf(out, 256, "text, at most %d bytes", MAX_STRING_BYTES);
	}
}

#define SHOWN_BYTES 100

/* Writes a value as a message shows it: on one line, and shortened. */
static void show(const char *s, char out[SHOWN_BYTES + 4])
{
	size_t n = utf8_cut(s, SHOWN_BYTES);

	snprintf(out, SHOWN_BYTES + 4, "%.*s%s", (int)n, s, s[n] ? "..." : "");
	for (; *out; out++)
		if ((unsigned char)*out < ' ' || *out == 0x7f)
			*out = '?';
}

void conf_describe(const struct key *k, const json_t *v, char out[128])
{
	const char *unquoted = conf_wants_text(k) ? " without quotes" : "";
	char text[SHOWN_BYTES + 4];

	switch (json_typeof(v)) {
	case JSON_OBJECT:
		snprintf(out, 128, "a mapping");
		break;
	case JSON_ARRAY:
		snprintf(out, 128, "a list");
		break;
	case JSON_NULL:
		snprintf(out, 128, "an empty value");
		break;
	case JSON_STRING:
		show(json_string_value(v), text);
		snprintf(out, 128,
			 !*text				      ? "an empty value"
			 : k->type == BOOL || k->type == UINT ? "the text \"%s\""
							      : "%s",
			 text);
		break;
	case JSON_INTEGER:
		snprintf(out, 128, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
		break;
	case JSON_REAL:
		snprintf(out, 128, "the fraction %g%s", json_real_value(v), unquoted);
		break;
	default:
		snprintf(out, 128, "%s%s", json_is_true(v) ? "true" : "false", unquoted);
	}
}
