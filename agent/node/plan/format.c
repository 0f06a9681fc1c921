/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks the forms of strings in a target. It uses no regular expressions: to compile one for each
 * label of each target would cost more than the plan itself. crd_test.c compares the code with the
 * patterns, and the patterns with crds/. Pure.
 */
#include "node/plan/internal.h"

/*
 * The patterns as in crds/. They use RE2 syntax that all engines for regular expressions
 * understand.
 */
static const char *const patterns[] = {
	[FORMAT_NONE] = "",
	[FORMAT_LABEL_KEY] = "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?"
			     "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$",
	[FORMAT_LABEL_VALUE] = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
	[FORMAT_DNS_LABEL] = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
	[FORMAT_DURATION] = "^([0-9]{1,4}h)?([0-9]{1,5}m)?([0-9]{1,7}s)?$",
	[FORMAT_SHORT_DURATION] = "^([0-9]{1,4}h)?([0-9]{1,5}m)?([0-9]{1,7}s)?"
				  "([0-9]{1,10}ms)?([0-9]{1,10}us)?$",
};

const char *plan_format_pattern(enum field_format f)
{
	return patterns[f];
}

/*
 * Whether each of n characters is a letter or a digit. Inside the string, the characters of `more`
 * are allowed, too. Upper-case letters are allowed only if `upper`.
 */
static bool name_ok(const char *s, size_t n, const char *more, bool upper)
{
	for (size_t i = 0; i < n; i++) {
		bool letter = (s[i] >= 'a' && s[i] <= 'z') || (upper && s[i] >= 'A' && s[i] <= 'Z');
		bool inside = i > 0 && i + 1 < n;

		if (!letter && !(s[i] >= '0' && s[i] <= '9') && !(inside && strchr(more, s[i])))
			return false;
	}
	return n > 0;
}

static bool label_key_ok(const char *s)
{
	const char *slash = strchr(s, '/');

	if (slash && !name_ok(s, (size_t)(slash - s), "-.", false))
		return false;
	if (slash)
		s = slash + 1;
	return strlen(s) <= 63 && name_ok(s, strlen(s), "-_.", true);
}

/*
 * Whether s is a duration. n_units: how many units are allowed, beginning with the longest one,
 * hours.
 */
static bool duration_ok(const char *s, size_t n_units)
{
	static const struct {
		const char *unit;
		size_t max_digits;
	} parts[] = {{"h", 4}, {"m", 5}, {"s", 7}, {"ms", 10}, {"us", 10}};

	for (size_t i = 0; i < n_units; i++) {
		size_t n = strspn(s, "0123456789");
		size_t n_unit = strcspn(s + n, "0123456789");

		if (n > 0 && n <= parts[i].max_digits && strlen(parts[i].unit) == n_unit &&
		    memcmp(s + n, parts[i].unit, n_unit) == 0)
			s += n + n_unit;
	}
	return *s == '\0';
}

bool plan_format_ok(enum field_format f, const char *s)
{
	switch (f) {
	case FORMAT_NONE:
		return true;
	case FORMAT_LABEL_KEY:
		return label_key_ok(s);
	case FORMAT_LABEL_VALUE:
		return !*s || name_ok(s, strlen(s), "-_.", true);
	case FORMAT_DNS_LABEL:
		return name_ok(s, strlen(s), "-", false);
	case FORMAT_DURATION:
		return duration_ok(s, 3);
	case FORMAT_SHORT_DURATION:
		return duration_ok(s, 5);
	}
	return false;
}
