/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses a selector of Prometheus:
 *
 *	selector = [name] ['{' [item {',' item} [',']] '}']
 *	item     = label op text | name in quotes
 *	label    = word | text
 *	op       = '=' | '!=' | '=~' | '!~'
 *	text     = "..." | '...' | `...`
 *
 * Texts in " and ' have the escapes of Go. A name is a type's id, or the value of __name__.
 */
#include "hub/pyroscope/internal.h"
#include "hub/query/query.h"

#include <ctype.h>
#include <stdlib.h>

struct selector_parser {
	const char *text, *at;
	struct matcher_list *list;
	struct field_error *err;
};

static int fail(struct selector_parser *p, const char *what)
{
	return field_error_set(p->err, "selector", "selector '%.200s': position %zu: %s", p->text,
			       (size_t)(p->at - p->text) + 1, what);
}

static void skip_blanks(struct selector_parser *p)
{
	p->at += strspn(p->at, " \t\r\n");
}

static bool take(struct selector_parser *p, const char *word)
{
	skip_blanks(p);
	if (!str_has_prefix(p->at, word))
		return false;
	p->at += strlen(word);
	return true;
}

/* ---- texts ---- */

/* Reads n digits of a base. */
static bool read_digits(const char **at, unsigned n, unsigned base, uint32_t *ret)
{
	*ret = 0;
	for (; n; n--, (*at)++) {
		char c = (char)tolower((unsigned char)**at);
		unsigned digit = isdigit((unsigned char)c) ? (unsigned)(c - '0')
				 : c >= 'a' && c <= 'f'	   ? (unsigned)(c - 'a') + 10
							   : base;

		if (digit >= base)
			return false;
		*ret = *ret * base + digit;
	}
	return true;
}

/* Reads the escape behind a backslash. false: it is none. */
static bool read_escape(const char **at, struct buf *out)
{
	static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
	char c = **at;
	const char *known = c ? strchr(from, c) : NULL;
	unsigned n = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 3;
	uint32_t v;

	if (known) {
		(*at)++;
		return buf_putc(out, to[known - from]) == 0;
	}
	*at += n != 3;
	if (!read_digits(at, n, n == 3 ? 8 : 16, &v) || !v || v > 0x10ffff ||
	    (v >= 0xd800 && v < 0xe000))
		return false;
	if (n > 3)
		buf_put_utf8(out, v);
	else
		buf_putc(out, (char)v);
	return v < 256 || n > 3;
}

/* Reads a text with its quotes. */
static int take_text(struct selector_parser *p, char **ret)
{
	_cleanup_buf_ struct buf b = {0};
	char quote = *p->at;

	if (!quote || !strchr("\"'`", quote))
		return fail(p, "expected a text in quotes");
	for (p->at++; *p->at != quote;) {
		char c = *p->at;

		if (!c || (c == '\n' && quote != '`'))
			return fail(p, "expected the end of the text");
		p->at++;
		if (c != '\\' || quote == '`')
			buf_putc(&b, c);
		else if (!read_escape(&p->at, &b))
			return fail(p, "a backslash with no meaning");
	}
	p->at++;
	if (b.len > FILTER_MAX_VALUE)
		return fail(p, "the text is too long");
	*ret = buf_steal(&b);
	return 0;
}

/* ---- matchers ---- */

/* The matcher takes ownership of label and value. */
static int add(struct selector_parser *p, char *label, enum match_op op, char *value)
{
	struct matcher_list *l = p->list;

	if (l->n == FILTER_MAX_CONDITIONS) {
		free(label);
		free(value);
		return fail(p, "there are too many matchers");
	}
	GROW(l->items, l->n, l->cap);
	l->items[l->n++] = (struct matcher){label, value, op};
	return 0;
}

static int add_name(struct selector_parser *p, char *name)
{
	size_t n_colons = 0;

	for (const char *c = name; *c; c++)
		n_colons += *c == ':';
	return add(p, xstrdup(n_colons ? "__profile_type__" : "__name__"), MATCH_EQUAL, name);
}

static bool is_in_name(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == ':';
}

static char *take_word(struct selector_parser *p)
{
	const char *begin = p->at;

	if (isdigit((unsigned char)*begin))
		return NULL;
	while (is_in_name(*p->at))
		p->at++;
	return p->at > begin ? xstrndup(begin, (size_t)(p->at - begin)) : NULL;
}

static int take_op(struct selector_parser *p, enum match_op *ret)
{
	if (take(p, "=~"))
		*ret = MATCH_REGEXP;
	else if (take(p, "!~"))
		*ret = MATCH_NOT_REGEXP;
	else if (take(p, "!="))
		*ret = MATCH_NOT_EQUAL;
	else if (take(p, "="))
		*ret = MATCH_EQUAL;
	else
		return fail(p, "expected =, !=, =~ or !~");
	return 0;
}

static int take_item(struct selector_parser *p)
{
	_cleanup_free_ char *label = NULL, *value = NULL;
	enum match_op op = MATCH_EQUAL;
	int e;

	skip_blanks(p);
	if (*p->at == '"' || *p->at == '\'' || *p->at == '`') {
		e = take_text(p, &label);
		if (e)
			return e;
		skip_blanks(p);
		if (*p->at == ',' || *p->at == '}')
			return add_name(p, TAKE_PTR(label));
	} else {
		label = take_word(p);
		if (!label)
			return fail(p, "expected a label");
	}
	e = take_op(p, &op);
	skip_blanks(p);
	if (!e)
		e = take_text(p, &value);
	return e ? e : add(p, TAKE_PTR(label), op, TAKE_PTR(value));
}

static int take_braces(struct selector_parser *p)
{
	int e = 0;

	while (!e && !take(p, "}")) {
		e = take_item(p);
		skip_blanks(p);
		if (!e && *p->at != '}' && !take(p, ","))
			e = fail(p, "expected ',' or '}'");
	}
	return e;
}

int pyroscope_selector_parse(const char *text, struct matcher_list *ret, struct field_error *reterr)
{
	struct selector_parser p = {text, text, ret, reterr};
	char *name;
	int e = 0;

	if (strlen(text) > FILTER_MAX_BYTES)
		return field_error_set(reterr, "selector", "a selector of more than %d bytes",
				       FILTER_MAX_BYTES);
	skip_blanks(&p);
	name = take_word(&p);
	if (name)
		e = add_name(&p, name);
	if (!e && take(&p, "{"))
		e = take_braces(&p);
	skip_blanks(&p);
	if (!e && *p.at)
		e = fail(&p, "expected the end");
	return e;
}

void pyroscope_matcher_list_done(struct matcher_list *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free(l->items[i].label);
		free(l->items[i].value);
	}
	free(l->items);
	*l = (struct matcher_list){0};
}
