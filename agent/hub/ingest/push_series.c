/* SPDX-License-Identifier: Apache-2.0 */
/* The labels of a series. */
#include "hub/ingest/push.h"

#include <stdlib.h>

static int wrong(struct field_error *e, int error, const char *path, const char *reason)
{
	field_error_set(e, path, "%s", reason);
	return error;
}

int ingest_push_series_add(struct push_series *s, const char *key, const char *value,
			   struct field_error *e)
{
	if (strlen(key) > PPROF_MAX_KEY || strlen(value) > PPROF_MAX_VALUE)
		return wrong(e, -E2BIG, "labels",
			     "a name has more than 1024 bytes, or a value more "
			     "than 2048");
	if (!pprof_is_utf8(key) || !pprof_is_utf8(value))
		return wrong(e, -EBADMSG, "labels", "a text is not UTF-8");
	if (!*key)
		return wrong(e, -EBADMSG, "labels", "a name is empty");
	if (streq(key, "service_name") || streq(key, "__name__")) {
		char **at = *key == 's' ? &s->app : &s->name;

		free(*at);
		*at = xstrdup(value);
		return 0;
	}
	if (s->n_labels == PUSH_MAX_LABELS)
		return wrong(e, -E2BIG, "labels", "more than 30");
	s->labels[s->n_labels++] = (struct tag){xstrdup(key), xstrdup(value)};
	return 0;
}

/* Whether the key says whose a profile is, and was there before. */
static bool is_said_twice(const struct push_series *s, const char *key)
{
	if (!streq(key, "namespace") && !streq(key, "pod"))
		return false;
	for (size_t i = 0; i < s->n_labels; i++)
		if (streq(s->labels[i].key, key))
			return true;
	return false;
}

/*
 * Adds "key=value", n bytes. A key with a '{' means that somebody has put a name with labels into
 * the place of an application's: they are not believed. A value may have one ("/users/{id}").
 */
static int add_pair(struct push_series *s, const char *pair, size_t n, struct field_error *e)
{
	const char *equals = memchr(pair, '=', n);
	_cleanup_free_ char *key = NULL, *value = NULL;

	if (!equals)
		return wrong(e, -EBADMSG, "name", "a label has no '='");
	if (memchr(pair, '{', (size_t)(equals - pair)))
		return wrong(e, -EBADMSG, "name", "a label's name has a '{'");
	key = xstrndup(pair + strspn(pair, " "), (size_t)(equals - pair) - strspn(pair, " "));
	if (is_said_twice(s, key))
		return wrong(e, -EBADMSG, "name", "names a namespace or a pod twice");
	value = xstrndup(equals + 1, n - (size_t)(equals + 1 - pair));
	return ingest_push_series_add(s, key, value, e);
}

int ingest_push_series_parse(struct push_series *s, const char *name, struct field_error *e)
{
	size_t n = strcspn(name, "{");
	const char *at = name + n, *end = strrchr(name, '}');
	int r = 0;

	if (!n)
		return wrong(e, -EBADMSG, "name", "names no application");
	if (*at && (!end || end < at || end[1]))
		return wrong(e, -EBADMSG, "name", "does not end with '}'");
	while (*at && ++at < end && !r) {
		n = MIN(strcspn(at, ","), (size_t)(end - at));
		r = n ? add_pair(s, at, n, e) : 0;
		at += n;
	}
	if (!r && !s->app) {
		_cleanup_free_ char *app = xstrndup(name, strcspn(name, "{"));

		r = ingest_push_series_add(s, "service_name", app, e);
	}
	return r;
}

void ingest_push_series_done(struct push_series *s)
{
	free(s->app);
	free(s->name);
	for (size_t i = 0; i < s->n_labels; i++) {
		free((char *)s->labels[i].key);
		free((char *)s->labels[i].value);
	}
	*s = (struct push_series){0};
}
