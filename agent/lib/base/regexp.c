/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regular expressions of users. Anybody who may query can send one, so its cost has limits: the
 * length of the pattern, and the steps and memory of each match. A match beyond a limit is an
 * error, never "no match".
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "lib/base/regexp.h"

#include <pcre2.h>
#include <pthread.h>
#include <stdlib.h>

#define MAX_GROUPS 50	  /* levels of nested groups in a pattern */
#define MAX_STEPS  200000 /* steps of one match: 0.2 s at most, roughly */
#define MAX_KIB	   16384  /* memory of one match, for backtracking */
/*
 * PCRE2_DOTALL: "." matches any character. PCRE2_NO_AUTO_CAPTURE: "(...)" only groups, so there are
 * no back-references by number. PCRE2_NEVER_BACKSLASH_C: \C would match one byte of a character.
 */
#define OPTIONS                                                                                    \
	(PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_DOTALL | PCRE2_DOLLAR_ENDONLY |               \
	 PCRE2_NO_AUTO_CAPTURE | PCRE2_NEVER_BACKSLASH_C)

struct regexp {
	pcre2_code *code;
	pthread_mutex_t lock; /* held while a thread uses `data` */
	pcre2_match_data *data;
	pcre2_match_context *limits;
};

/* Returns 0 or PCRE2's error number. */
static int compile(const char *pattern, uint32_t options, pcre2_code **ret)
{
	pcre2_compile_context *c = pcre2_compile_context_create(NULL);
	PCRE2_SIZE at;
	int error;

	if (!c)
		return PCRE2_ERROR_NOMEMORY;
	pcre2_set_parens_nest_limit(c, MAX_GROUPS);
	*ret = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, options, &error, &at, c);
	pcre2_compile_context_free(c);
	return *ret ? 0 : error;
}

/*
 * PCRE2 tries a pattern at each position of the text, and counts the steps of each try anew. So
 * this function puts the pattern into one that begins at the start of the text: then the limit
 * holds for all steps together. It first compiles the pattern alone, to refuse a text that is no
 * pattern by itself, such as "a)|(b". The \E behind the pattern ends a \Q in it, and the new line
 * ends a comment of (?x).
 */
static int compile_searching(const char *pattern, pcre2_code **ret)
{
	_cleanup_buf_ struct buf text = {0};
	int error = compile(pattern, OPTIONS, ret);

	if (error)
		return error;
	pcre2_code_free(*ret);
	buf_printf(&text, ".*?(?:%s\\E)", pattern);
	error = compile(text.data, OPTIONS | PCRE2_ANCHORED, ret);
	if (!error)
		return 0;
	buf_reset(&text);
	buf_printf(&text, ".*?(?:%s\n)", pattern);
	return compile(text.data, OPTIONS | PCRE2_ANCHORED, ret);
}

/*
 * Returns the number of bytes of the escape at s, or 1 if s is no escape. The escape \c has one
 * byte more than others.
 */
static size_t bytes_of_escape(const char *s)
{
	if (*s != '\\' || !s[1])
		return 1;
	return s[1] == 'c' && s[2] ? 3 : 2;
}

/*
 * Finds elements of a pattern that would also act on the text that compile_searching() adds: verbs,
 * and recursion into the whole pattern.
 */
static const char *find_outer(const char *pattern)
{
	static const char *const outer[] = {"(*", "(?R", "(?0", "\\g"};

	for (const char *s = pattern; *s; s += bytes_of_escape(s))
		for (size_t i = 0; i < ARRAY_SIZE(outer); i++)
			if (str_has_prefix(s, outer[i]))
				return outer[i];
	return NULL;
}

int regexp_new(const char *pattern, struct regexp **ret, struct field_error *reterr)
{
	const char *outer = find_outer(pattern);
	char why[128];
	struct regexp *x;
	pcre2_code *code;
	int error;

	if (strlen(pattern) > REGEXP_MAX_BYTES)
		return field_error_set(reterr, "regexp", "longer than %d bytes", REGEXP_MAX_BYTES);
	if (outer)
		return field_error_set(reterr, "regexp", "'%.200s': '%s' is not allowed", pattern,
				       outer);
	error = compile_searching(pattern, &code);
	if (error) {
		pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof(why));
		return field_error_set(reterr, "regexp", "'%.200s': %s", pattern, why);
	}
	x = xcalloc(1, sizeof(*x));
	x->code = code;
	pthread_mutex_init(&x->lock, NULL);
	x->data = pcre2_match_data_create(1, NULL);
	x->limits = pcre2_match_context_create(NULL);
	if (!x->data || !x->limits) {
		regexp_free(x);
		return field_error_set(reterr, "regexp", "no memory");
	}
	pcre2_set_match_limit(x->limits, MAX_STEPS);
	pcre2_set_heap_limit(x->limits, MAX_KIB);
	*ret = x;
	return 0;
}

void regexp_free(void *r)
{
	struct regexp *x = r;

	if (!x)
		return;
	pcre2_match_context_free(x->limits);
	pcre2_match_data_free(x->data);
	pcre2_code_free(x->code);
	pthread_mutex_destroy(&x->lock);
	free(x);
}

int regexp_match(struct regexp *x, const char *text)
{
	int r;

	pthread_mutex_lock(&x->lock);
	r = pcre2_match(x->code, (PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, 0, 0, x->data, x->limits);
	pthread_mutex_unlock(&x->lock);
	return r >= 0 ? 1 : r == PCRE2_ERROR_NOMATCH ? 0 : -ELOOP;
}

int regexp_check(const char *pattern, struct field_error *reterr)
{
	struct regexp *x = NULL;
	int r = regexp_new(pattern, &x, reterr);

	regexp_free(x);
	return r;
}
