/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a file against the table of keys. */
#include "lib/base/regexp.h"
#include "lib/conf/value.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_FILE_BYTES (1u << 20) /* bytes of the configuration file; a larger one is refused */
struct conf_walk {
	const char *file;
	const struct yaml_doc *doc;
	struct config *conf;
	struct buf *warnings;
	struct field_error *err;
	bool *seen; /* by key */
};

static void *member(struct config *c, const struct key *k)
{
	return (char *)c + k->offset;
}

static void set_string(struct config *c, const struct key *k, const char *value)
{
	char **s = member(c, k);

	free(*s);
	*s = xstrdup(value);
}

/* One key of type CHOICE, opt_in, is a bool in struct config: "required" means true. */
static bool is_opt_in(const struct key *k)
{
	return k->offset == offsetof(struct config, opt_in_required);
}

static void set_choice(struct config *c, const struct key *k, const char *value)
{
	if (is_opt_in(k))
		c->opt_in_required = streq(value, "required");
	else
		set_string(c, k, value);
}

/*
 * Sets a key from the text of its value. Returns false if the text has the wrong type or is out of
 * range.
 */
static bool set_text(struct config *c, const struct key *k, const char *s)
{
	uint64_t v;

	switch (k->type) {
	case STRING:
	case REGEX:
	case URL:
	case LINK:
		if (!conf_text_ok(k, s))
			return false;
		set_string(c, k, s);
		return true;
	case CHOICE:
		if (!conf_is_choice(k->choices, s))
			return false;
		set_choice(c, k, s);
		return true;
	case BOOL:
		*(bool *)member(c, k) = streq(s, "true");
		return streq(s, "true") || streq(s, "false");
	case UINT:
		if (str_to_u64(s, k->max, &v) || v < k->min)
			return false;
		*(unsigned *)member(c, k) = (unsigned)v;
		return true;
	case PERCENT:
		return conf_percent(s, member(c, k));
	case DURATION:
		return conf_duration_of(k, s, member(c, k));
	case BYTES:
		if (conf_bytes(s, &v) || v < k->min << 20 || v > k->max << 20)
			return false;
		*(uint64_t *)member(c, k) = v;
		return true;
	case WORDS:	/* conf_set_words() */
	case DURATIONS: /* set_durations() */
	case WARN:
		break;
	}
	return false;
}

static int fail(struct conf_walk *w, const char *path, const char *reason)
{
	unsigned line = 1, column = 1;
	char at[256];

	yaml_position(w->doc, path, &line, &column);
	snprintf(at, sizeof(at), "%s:%u:%u", w->file, line, column);
	return field_error_set(w->err, at, "%s", reason);
}

static int fail_value(struct conf_walk *w, const struct key *k, const json_t *v)
{
	char what[128], range[ALLOWED_BYTES], reason[704];
	const char *s = json_string_value(v);
	struct field_error e;

	conf_allowed(k, range);
	conf_describe(k, v, what);
	if (s && strchr(s, '@'))
		snprintf(what, sizeof(what), "this"); /* the value may contain a password */
	if (k->type == REGEX && s && regexp_check(s, &e))
		snprintf(reason, sizeof(reason), "%s: %.300s; it must be %s", k->path, e.reason,
			 range);
	else if (k->type == URL && s && !conf_is_url(s, &e))
		snprintf(reason, sizeof(reason), "%s: %s %.100s; it must be %s", k->path, what,
			 e.reason, range);
	else
		snprintf(reason, sizeof(reason), "%s: %s is not allowed; it must be %s", k->path,
			 what, range);
	return fail(w, k->path, reason);
}

static int fail_entry(struct conf_walk *w, const struct key *k, const char *name, const json_t *v,
		      bool bad_name)
{
	_cleanup_free_ char *path = xasprintf("%s.%s", k->path, name);
	_cleanup_json_ json_t *text = json_string(name);
	char what[128], range[ALLOWED_BYTES], reason[704];

	conf_allowed(k, range);
	conf_describe(k, bad_name ? text : v, what);
	snprintf(reason, sizeof(reason), "%s: %s is not allowed; it must be %s",
		 bad_name ? k->path : path, what, range);
	return fail(w, path, reason);
}

/* A mapping with nothing below it is empty. */
static int set_durations(struct conf_walk *w, const struct key *k, const json_t *mapping)
{
	struct conf_durations *d = member(w->conf, k);
	const char *name;
	json_t *v;
	bool bad_name;

	if (!json_is_null(mapping) &&
	    (!json_is_object(mapping) || json_object_size(mapping) > MAX_ENTRIES))
		return fail_value(w, k, mapping);
	json_object_foreach ((json_t *)mapping, name, v)
		if (!conf_add_duration(d, k, name, v, &bad_name))
			return fail_entry(w, k, name, v, bad_name);
	return 0;
}

static int set_json(struct conf_walk *w, const struct key *k, const json_t *v)
{
	char text[64];
	const char *s = json_string_value(v);

	if (k->type == WARN) {
		if (w->warnings)
			buf_printf(w->warnings, "%s: %s: %s\n", w->file, k->path, k->help);
		return 0;
	}
	if (k->type == WORDS)
		return conf_set_words(member(w->conf, k), k, v, &v) ? 0 : fail_value(w, k, v);
	if (k->type == DURATIONS)
		return set_durations(w, k, v);
	if (json_is_boolean(v) && k->type == BOOL)
		s = json_is_true(v) ? "true" : "false";
	else if (json_is_integer(v) && k->type != BOOL) {
		snprintf(text, sizeof(text), "%" JSON_INTEGER_FORMAT, json_integer_value(v));
		s = text;
	} else if (json_is_real(v) && k->type == PERCENT) {
		snprintf(text, sizeof(text), "%.15g", json_real_value(v));
		s = text;
	} else if (json_is_string(v) &&
		   (k->type == BOOL || k->type == UINT || k->type == PERCENT)) {
		s = NULL; /* a quoted "5" is no number */
	} else if (json_is_null(v) && conf_wants_text(k)) {
		s = k->type == STRING ? "" : k->def;
	}
	if (s && set_text(w->conf, k, s))
		return 0;
	return fail_value(w, k, v);
}

/* Refuses a key that is set twice: "hub.url: x" and "hub: {url: x}" are the same key. */
static int set_once(struct conf_walk *w, const struct key *k, const json_t *v)
{
	bool *seen = &w->seen[k - conf_keys];
	char reason[256];

	if (*seen) {
		snprintf(reason, sizeof(reason), "%s is there twice", k->path);
		return fail(w, k->path, reason);
	}
	*seen = true;
	return set_json(w, k, v);
}

/*
 * Returns the row of the key with this path. *ret_inside: whether the path is the beginning of
 * other keys.
 */
static const struct key *find_key(const char *path, bool *ret_inside)
{
	size_t n = strlen(path);

	*ret_inside = false;
	for (size_t i = 0; i < conf_n_keys; i++) {
		if (streq(conf_keys[i].path, path))
			return &conf_keys[i];
		if (str_has_prefix(conf_keys[i].path, path) && conf_keys[i].path[n] == '.')
			*ret_inside = true;
	}
	return NULL;
}

static int check_object(struct conf_walk *w, const char *prefix, const json_t *object)
{
	const char *name;
	json_t *value;

	json_object_foreach ((json_t *)object, name, value) {
		_cleanup_free_ char *path = xasprintf("%s%s%s", prefix, *prefix ? "." : "", name);
		char reason[512];
		bool inside;
		const struct key *k = find_key(path, &inside);
		int r;

		if (k)
			r = set_once(w, k, value);
		else if (inside && json_is_object(value))
			r = check_object(w, path, value);
		else if (inside && json_is_null(value))
			r = 0; /* "static_config:" with nothing below it */
		else {
			snprintf(reason, sizeof(reason), "%.200s: %s", path,
				 inside ? "must be a mapping"
					: "no such key; docs/config.md lists them all");
			r = fail(w, path, reason);
		}
		if (r)
			return r;
	}
	return 0;
}

static void set_default(struct config *c, const struct key *k)
{
	_cleanup_json_ json_t *words = k->type == WORDS ? json_pack("[s]", k->def) : NULL;
	const json_t *bad;

	if (words)
		conf_set_words(member(c, k), k, words, &bad);
	else if (k->type != WARN && k->type != DURATIONS)
		set_text(c, k, k->def);
}

void conf_init(struct config *c)
{
	*c = (struct config){0};
	for (size_t i = 0; i < conf_n_keys; i++)
		set_default(c, &conf_keys[i]);
}

void conf_done(struct config *c)
{
	for (size_t i = 0; i < conf_n_keys; i++) {
		const struct key *k = &conf_keys[i];

		if (conf_wants_text(k) && k->type != WORDS && !is_opt_in(k)) {
			char **s = member(c, k);

			free(*s);
			*s = NULL;
		} else if (k->type == WORDS) {
			conf_words_done(member(c, k));
		} else if (k->type == DURATIONS) {
			conf_durations_done(member(c, k));
		}
	}
}

/* Refuses a second YAML document, because the program would ignore it. */
static int parse_one(const char *text, size_t n, struct yaml_doc **ret, struct field_error *reterr)
{
	_cleanup_json_ json_t *all = NULL;
	int r = yaml_parse_all(text, n, &all, reterr);

	if (r)
		return r;
	for (size_t i = 1; i < json_array_size(all); i++)
		if (!json_is_null(json_array_get(all, i)))
			return field_error_set(
				reterr, "1:1",
				"the file has several documents (---); it must have one");
	return yaml_parse(text, n, ret, reterr);
}

int conf_parse(const char *file_name, const char *text, size_t n, struct config *ret,
	       struct buf *warnings, struct field_error *reterr)
{
	struct config c;
	struct yaml_doc *doc = NULL;
	struct field_error e = {0};
	_cleanup_free_ bool *seen = xcalloc(conf_n_keys, sizeof(*seen));
	struct conf_walk w = {
		.file = file_name, .conf = &c, .warnings = warnings, .err = reterr, .seen = seen};
	int r = parse_one(text, n, &doc, &e);

	if (r) {
		char at[256];

		snprintf(at, sizeof(at), "%.180s:%.60s", file_name, e.path);
		return field_error_set(reterr, at, "%s", e.reason);
	}
	conf_init(&c);
	w.doc = doc;
	if (json_is_object(yaml_root(doc)))
		r = check_object(&w, "", yaml_root(doc));
	else if (!json_is_null(yaml_root(doc)))
		r = fail(&w, "", "the file must be a mapping of keys to values");
	yaml_doc_free(doc);
	if (r) {
		conf_done(&c);
		return r;
	}
	*ret = c;
	return 0;
}

int conf_load(const char *path, struct config *ret, struct buf *warnings,
	      struct field_error *reterr)
{
	_cleanup_free_ char *text = NULL;
	size_t n;
	int r = file_read(AT_FDCWD, path, MAX_FILE_BYTES, &text, &n);

	if (r) {
		field_error_set(reterr, path, "cannot be read: %s", file_error_text(r));
		return r;
	}
	return conf_parse(path, text, n, ret, warnings, reterr);
}

static void resolve(char **s, const char *variable, const char *otherwise)
{
	const char *env = getenv(variable);

	if (**s)
		return;
	free(*s);
	*s = xstrdup(env && *env ? env : otherwise);
}

void conf_resolve(struct config *c)
{
	char host[256] = "";

	gethostname(host, sizeof(host) - 1);
	resolve(&c->node_name, "NODE_NAME", host);
	resolve(&c->own_namespace, "POD_NAMESPACE", "podflame-system");
}

void conf_doc(struct buf *out)
{
	buf_puts(out, "| key | default | allowed | meaning |\n| --- | --- | --- | --- |\n");
	for (size_t i = 0; i < conf_n_keys; i++) {
		const struct key *k = &conf_keys[i];
		char range[ALLOWED_BYTES];

		conf_allowed(k, range);
		for (char *p = range; *p; p++)
			if (*p == '|')
				*p = ' ';
		buf_printf(out, "| `%s` | %s%s%s | %s | %s |\n", k->path,
			   k->type == WORDS ? "`["
			   : *k->def	    ? "`"
					    : "",
			   *k->def ? k->def : "empty",
			   k->type == WORDS ? "]`"
			   : *k->def	    ? "`"
					    : "",
			   k->type == WARN ? "anything" : range, k->help);
	}
}
