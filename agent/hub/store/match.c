/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LIKE and REGEXP on tag values. Patterns come from whoever may ask, so their
 * cost is bounded: LIKE is O(pattern x text); a regular expression is POSIX ERE
 * without back-references and with a limit on what its repetitions multiply to
 * (glibc expands a{n} by copying).
 */
#include "hub/store/sink.h"

#include <ctype.h>
#include <regex.h>
#include <stdlib.h>

#define MAX_REPEAT 1000 /* product of all {n} of a pattern */

static bool is_run(char c)
{
	return c == '%' || c == '*';
}

/* One pattern element against one byte; *ret_next is behind the element. */
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

bool match_like(const char *pattern, const char *text)
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
			/* '_' is one character: take the rest of a UTF-8 sequence too */
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

struct regexp {
	regex_t re;
};

/* {n}, {n,}, {n,m}: what it multiplies by; a brace that is no bound counts 1. */
static uint64_t bound_value(const char *p)
{
	uint64_t low, high;
	char *end;

	if (!isdigit((unsigned char)p[1]))
		return 1;
	low = high = strtoull(p + 1, &end, 10);
	if (*end == ',' && isdigit((unsigned char)end[1]))
		high = strtoull(end + 1, &end, 10);
	return MAX(MAX(low, high), (uint64_t)1);
}

/* Past a [...] expression; "[]a]" and "[^]a]" hold a bracket, "[[:alpha:]]" a class. */
static const char *bracket_end(const char *p)
{
	p++;
	if (*p == '^')
		p++;
	if (*p == ']')
		p++;
	while (*p && *p != ']') {
		if (*p == '[' && (p[1] == ':' || p[1] == '.' || p[1] == '=')) {
			const char close[] = {p[1], ']', '\0'};
			const char *q = strstr(p + 2, close);

			p = q ? q + 2 : p + 1;
			continue;
		}
		p++;
	}
	return *p ? p + 1 : p;
}

static int translate_escape(const char *p, struct buf *out, struct field_error *reterr)
{
	if (p[1] >= '1' && p[1] <= '9')
		return field_error_set(reterr, "regexp", "back-references are not supported");
	if (p[1] == 'd')
		return buf_puts(out, "[0-9]");
	if (p[1] == 'D')
		return buf_puts(out, "[^0-9]");
	return buf_add(out, p, p[1] ? 2 : 1);
}

/* The pattern as regcomp() takes it: \d spelled out; what could explode refused. */
static int translate(const char *p, struct buf *out, struct field_error *reterr)
{
	uint64_t repeat = 1;
	int r;

	while (*p) {
		const char *end = p + 1;

		if (*p == '\\') {
			r = translate_escape(p, out, reterr);
			if (r)
				return r;
			p += p[1] ? 2 : 1;
			continue;
		}
		if (*p == '[')
			end = bracket_end(p);
		if (*p == '{')
			repeat = MIN(repeat, (uint64_t)MAX_REPEAT + 1) *
				 MIN(bound_value(p), (uint64_t)MAX_REPEAT + 1);
		if (repeat > MAX_REPEAT)
			return field_error_set(reterr, "regexp",
					       "repetitions multiply to more than %d", MAX_REPEAT);
		buf_add(out, p, (size_t)(end - p));
		p = end;
	}
	return 0;
}

int regexp_new(const char *pattern, struct regexp **ret, struct field_error *reterr)
{
	_cleanup_buf_ struct buf text = {0};
	struct regexp *x;
	char why[128];
	int r;

	if (strlen(pattern) > REGEXP_MAX_BYTES)
		return field_error_set(reterr, "regexp", "longer than %d bytes", REGEXP_MAX_BYTES);
	r = translate(pattern, &text, reterr);
	if (r)
		return r;
	x = xcalloc(1, sizeof(*x));
	r = regcomp(&x->re, text.data ? text.data : "", REG_EXTENDED | REG_NOSUB);
	if (r) {
		regerror(r, &x->re, why, sizeof(why));
		free(x);
		return field_error_set(reterr, "regexp", "'%.200s': %s", pattern, why);
	}
	*ret = x;
	return 0;
}

void regexp_free(void *r)
{
	struct regexp *x = r;

	if (!x)
		return;
	regfree(&x->re);
	free(x);
}

bool regexp_match(const struct regexp *r, const char *text)
{
	return regexec(&r->re, text, 0, NULL, 0) == 0;
}

int predicate_regexp_check(const char *pattern, struct field_error *reterr)
{
	struct regexp *x = NULL;
	int r = regexp_new(pattern, &x, reterr);

	regexp_free(x);
	return r;
}
