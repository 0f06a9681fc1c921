/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LIKE and REGEXP on tag values. Patterns come from whoever may ask, so their
 * cost is bounded: LIKE is O(pattern x text); a regular expression is POSIX ERE
 * without back-references, and refused when it would expand to too many nodes
 * (glibc compiles a+ as aa* and a{n} as n copies of a, so that nesting multiplies).
 */
#include "hub/store/sink.h"

#include <ctype.h>
#include <regex.h>
#include <stdlib.h>

#define MAX_NODES  2000
#define MAX_GROUPS 50 /* open at once */
#define STATES_BYTES                                                                               \
	(64u << 20) /* of all patterns; beyond it who has more than a share begins anew */

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

/*
 * glibc keeps each state that a text leads to, for as long as the pattern: of some patterns a new one for nearly each byte
 * of each text, 2 KB and more with the pattern's length.
 */
#define REG_FLAGS (REG_EXTENDED | REG_NOSUB)
struct regexp {
	regex_t re;
	char *pattern;	   /* as regcomp() takes it */
	size_t byte_bytes; /* what a byte of a text takes at most, */
	size_t bytes;	   /* and all since it was compiled */
};

static _Atomic size_t all_bytes, n_regexps;

/* What a pattern expands to, as it is read: sums of finished atoms, by open group. */
struct cost {
	uint64_t sum[MAX_GROUPS + 1], last[MAX_GROUPS + 1];
	unsigned depth;
	const char *refused;
};

static uint64_t capped(uint64_t v)
{
	return MIN(v, (uint64_t)MAX_NODES + 1);
}

static void cost_atom(struct cost *c, uint64_t n)
{
	c->sum[c->depth] = capped(c->sum[c->depth] + c->last[c->depth]);
	c->last[c->depth] = n;
	if (c->sum[c->depth] + n > MAX_NODES)
		c->refused = "it expands to too many states (nested or large repetitions)";
}

static void cost_repeat(struct cost *c, uint64_t n)
{
	uint64_t times = capped(c->last[c->depth] * capped(n));

	c->last[c->depth] = 0;
	cost_atom(c, times);
}

static void cost_open(struct cost *c)
{
	if (c->depth == MAX_GROUPS) {
		c->refused = "groups are nested too deep";
		return;
	}
	c->depth++;
	c->sum[c->depth] = c->last[c->depth] = 0;
}

static void cost_close(struct cost *c)
{
	uint64_t group = capped(c->sum[c->depth] + c->last[c->depth] + 1);

	if (c->depth == 0) { /* regcomp() takes or refuses it */
		cost_atom(c, 1);
		return;
	}
	c->depth--;
	cost_atom(c, group);
}

/* {n}, {n,}, {n,m}: what it multiplies by; a brace that is no bound counts 1. */
static uint64_t bound_value(const char *p)
{
	uint64_t low, high;
	char *end;

	if (!isdigit((unsigned char)p[1]))
		return p[1] == ',' ? MAX_NODES + 1 : 1;
	low = strtoull(p + 1, &end, 10);
	high = low + 1;
	if (*end == ',' && isdigit((unsigned char)end[1]))
		high = strtoull(end + 1, &end, 10);
	return MAX(MAX(capped(low), capped(high)), (uint64_t)1);
}

static void cost_of(struct cost *c, const char *p)
{
	switch (*p) {
	case '(':
		return cost_open(c);
	case ')':
		return cost_close(c);
	case '+':
	case '*':
	case '?':
		return cost_repeat(c, 2);
	case '{':
		return cost_repeat(c, bound_value(p));
	default:
		return cost_atom(c, 1);
	}
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

/* Copies one element to out as regcomp() takes it; returns what is behind it. */
static const char *translate_one(const char *p, struct buf *out, struct cost *c)
{
	const char *end = *p == '[' ? bracket_end(p) : p + 1;

	if (*p != '\\') {
		cost_of(c, p);
		buf_add(out, p, (size_t)(end - p));
		return end;
	}
	cost_atom(c, 1);
	if (p[1] >= '1' && p[1] <= '9')
		c->refused = "back-references are not supported";
	if (p[1] == 'd' || p[1] == 'D') {
		buf_puts(out, p[1] == 'd' ? "[0-9]" : "[^0-9]");
		return p + 2;
	}
	buf_add(out, p, p[1] ? 2 : 1);
	return p + (p[1] ? 2 : 1);
}

static int translate(const char *p, struct buf *out, uint64_t *ret_nodes,
		     struct field_error *reterr)
{
	struct cost c = {0};

	while (*p && !c.refused)
		p = translate_one(p, out, &c);
	while (c.depth && !c.refused)
		cost_close(&c);
	*ret_nodes = c.sum[0] + c.last[0];
	return c.refused ? field_error_set(reterr, "regexp", "%s", c.refused) : 0;
}

int regexp_new(const char *pattern, struct regexp **ret, struct field_error *reterr)
{
	_cleanup_buf_ struct buf text = {0};
	struct regexp *x;
	uint64_t n_nodes;
	char why[128];
	int r;

	if (strlen(pattern) > REGEXP_MAX_BYTES)
		return field_error_set(reterr, "regexp", "longer than %d bytes", REGEXP_MAX_BYTES);
	r = translate(pattern, &text, &n_nodes, reterr);
	if (r)
		return r;
	x = xcalloc(1, sizeof(*x));
	x->pattern = buf_steal(&text);
	x->byte_bytes = 2048 + 16 * n_nodes;
	r = regcomp(&x->re, x->pattern, REG_FLAGS);
	if (r) {
		regerror(r, &x->re, why, sizeof(why));
		free(x->pattern);
		free(x);
		return field_error_set(reterr, "regexp", "'%.200s': %s", pattern, why);
	}
	atomic_fetch_add(&n_regexps, 1);
	*ret = x;
	return 0;
}

void regexp_free(void *r)
{
	struct regexp *x = r;

	if (!x)
		return;
	atomic_fetch_sub(&n_regexps, 1);
	atomic_fetch_sub(&all_bytes, x->bytes);
	regfree(&x->re);
	free(x->pattern);
	free(x);
}

static void forget_states(struct regexp *x)
{
	regex_t again;

	if (regcomp(&again, x->pattern, REG_FLAGS)) /* no memory: it goes on with what it has */
		return;
	regfree(&x->re);
	x->re = again;
	atomic_fetch_sub(&all_bytes, x->bytes);
	x->bytes = 0;
}

bool regexp_match(struct regexp *x, const char *text)
{
	size_t bytes = strlen(text) * x->byte_bytes;

	if (atomic_load(&all_bytes) > STATES_BYTES &&
	    x->bytes > STATES_BYTES / atomic_load(&n_regexps))
		forget_states(x);
	x->bytes += bytes;
	atomic_fetch_add(&all_bytes, bytes);
	return regexec(&x->re, text, 0, NULL, 0) == 0;
}

int predicate_regexp_check(const char *pattern, struct field_error *reterr)
{
	struct regexp *x = NULL;
	int r = regexp_new(pattern, &x, reterr);

	regexp_free(x);
	return r;
}
