/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the text of a value. */
#include "lib/base/regexp.h"
#include "lib/conf/value.h"

#include <inttypes.h>
#include <stdlib.h>

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

bool conf_duration_of(const struct key *k, const char *s, uint64_t *ret_ns)
{
	uint64_t v;

	if (conf_duration(s, k->min, k->max, &v) || v < k->min * NSEC_PER_SEC ||
	    v > k->max * NSEC_PER_SEC)
		return false;
	*ret_ns = v;
	return true;
}

/* Whether s is the address of a page. Other URLs, such as javascript:, are not. */
static bool is_link(const char *s)
{
	if (!str_has_prefix(s, "http://") && !str_has_prefix(s, "https://"))
		return false;
	for (; *s; s++)
		if ((unsigned char)*s <= ' ' || strchr("\"'<>`\\", *s))
			return false;
	return true;
}

static bool is_word(const char *s)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789:/._@%+=,-";
	size_t n = strlen(s);

	return n && n <= MAX_WORD_BYTES && *s != '-' && strspn(s, allowed) == n;
}

bool conf_set_words(char ***words, const struct key *k, const json_t *list, const json_t **ret_bad)
{
	size_t n = json_array_size(list), i;
	const json_t *item;

	*ret_bad = list;
	if (n < k->min || n > k->max)
		return false;
	json_array_foreach ((json_t *)list, i, item) {
		const char *s = json_string_value(item);

		*ret_bad = item;
		if (!s || !(k->choices ? conf_is_choice(k->choices, s) : is_word(s)))
			return false;
	}
	conf_words_done(words);
	*words = xcalloc(n + 1, sizeof(**words));
	json_array_foreach ((json_t *)list, i, item)
		(*words)[i] = xstrdup(json_string_value(item));
	return true;
}

void conf_words_done(char ***words)
{
	for (char **w = *words; w && *w; w++)
		free(*w);
	free(*words);
	*words = NULL;
}

bool conf_add_duration(struct conf_durations *d, const struct key *k, const char *name,
		       const json_t *duration, bool *ret_bad_name)
{
	_cleanup_free_ char *number =
		json_is_integer(duration)
			? xasprintf("%" JSON_INTEGER_FORMAT, json_integer_value(duration))
			: NULL;
	const char *text = number ?: json_string_value(duration);
	uint64_t ns;

	*ret_bad_name = !(k->choices ? conf_is_choice(k->choices, name) : is_word(name));
	if (*ret_bad_name || !text || !conf_duration_of(k, text, &ns))
		return false;
	d->items = xrealloc(d->items, (d->n + 1) * sizeof(*d->items));
	d->items[d->n++] = (struct named_duration){xstrdup(name), ns};
	return true;
}

void conf_durations_done(struct conf_durations *d)
{
	for (size_t i = 0; i < d->n; i++)
		free((char *)d->items[i].name);
	free(d->items);
	*d = (struct conf_durations){0};
}

bool conf_is_url(const char *s, struct field_error *reterr)
{
	_cleanup_(url_done) struct url u = {0};

	return url_parse(s, &u, reterr) == 0;
}

bool conf_percent(const char *s, double *ret)
{
	char *end;
	double v = strtod(s, &end);

	if (!*s || *end || !strchr("0123456789", *s) || !(v > 0 && v <= 100))
		return false;
	*ret = v;
	return true;
}

bool conf_text_ok(const struct key *k, const char *s)
{
	switch (k->type) {
	case REGEX:
		return regexp_check(s, NULL) == 0;
	case URL:
		return strlen(s) <= MAX_STRING_BYTES && (!*s || conf_is_url(s, NULL));
	case LINK:
		return strlen(s) <= MAX_STRING_BYTES && (!*s || is_link(s));
	default:
		return strlen(s) <= MAX_STRING_BYTES;
	}
}

/* ---- texts about a value, for messages ---- */

bool conf_wants_text(const struct key *k)
{
	return k->type == STRING || k->type == CHOICE || k->type == REGEX || k->type == URL ||
	       k->type == LINK || k->type == WORDS;
}

void conf_allowed(const struct key *k, char out[ALLOWED_BYTES])
{
	switch (k->type) {
	case BOOL:
		snprintf(out, ALLOWED_BYTES, "true or false");
		break;
	case UINT:
		snprintf(out, ALLOWED_BYTES, "a number, %" PRIu64 " to %" PRIu64, k->min, k->max);
		break;
	case PERCENT:
		snprintf(out, ALLOWED_BYTES, "a number above 0, at most 100");
		break;
	case DURATION:
		snprintf(out, ALLOWED_BYTES, "a duration such as %s, %" PRIu64 "s to %" PRIu64 "s",
			 k->min ? "10s" : "50us", k->min, k->max);
		break;
	case BYTES:
		snprintf(out, ALLOWED_BYTES, "a size such as 256Mi, %" PRIu64 "Mi to %" PRIu64 "Mi",
			 k->min, k->max);
		break;
	case CHOICE:
		snprintf(out, ALLOWED_BYTES, "one of %s",
			 *k->choices == '|' ? k->choices + 1 : k->choices);
		break;
	case REGEX:
		snprintf(out, ALLOWED_BYTES, "a regular expression (PCRE2), at most %d bytes",
			 REGEXP_MAX_BYTES);
		break;
	case URL:
		snprintf(out, ALLOWED_BYTES,
			 "empty, or http://HOST[:PORT][/PATH] or the same with https; HOST: a "
			 "name, an IPv4 address or [IPv6]");
		break;
	case LINK:
		snprintf(out, ALLOWED_BYTES,
			 "empty, or an address that begins with http:// or https:// and holds no "
			 "blank, quote, backslash, < or >");
		break;
	case WORDS:
		if (k->choices) {
			snprintf(out, ALLOWED_BYTES, "a list of 1 or more of %s", k->choices);
			break;
		}
		snprintf(out, ALLOWED_BYTES,
			 "a list of %" PRIu64 " to %" PRIu64 " words of letters, digits and "
			 ":/._@%%+=,- that do not begin with -, each of at most %d bytes",
			 k->min, k->max, MAX_WORD_BYTES);
		break;
	case DURATIONS:
		snprintf(out, ALLOWED_BYTES,
			 "a mapping of at most %d names%s%s%s to durations such as 10s, %" PRIu64
			 "s to %" PRIu64 "s",
			 MAX_ENTRIES, k->choices ? " (" : "", k->choices ?: "",
			 k->choices ? ")" : "", k->min, k->max);
		break;
	default:
		snprintf(out, ALLOWED_BYTES, "text, at most %d bytes", MAX_STRING_BYTES);
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
		if (k->type == WORDS)
			snprintf(out, 128, "a list of %zu", json_array_size(v));
		else
			snprintf(out, 128, "a list");
		break;
	case JSON_NULL:
		snprintf(out, 128, "an empty value");
		break;
	case JSON_STRING:
		show(json_string_value(v), text);
		snprintf(out, 128,
			 !*text ? "an empty value"
			 : k->type == BOOL || k->type == UINT || k->type == PERCENT
				 ? "the text \"%s\""
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
