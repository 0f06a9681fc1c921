/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the file of registrations: YAML with one list, `clusters`. A wrong file stops the start of
 * the hub; the error names the file, line and column and the field.
 */
#include "hub/issuers/internal.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdlib.h>

#define MAX_FILE_BYTES	 (1 << 20) /* bytes of the file of registrations */
#define MAX_CLUSTERS	 100	   /* clusters that may be registered */
#define MAX_NAME_BYTES	 63	   /* bytes of the name of a cluster */
#define MAX_TEXT_BYTES	 1024	   /* bytes of an issuer or of a subject */
#define MAX_SOURCE_BYTES 4096	   /* bytes of a file name or of an address */

struct registering {
	const char *file;
	char *dir; /* relative names of files start from it */
	const char *own_cluster, *own_issuer;
	const struct yaml_doc *doc;
	struct registration *all;
	size_t n;	 /* of `all` that are read */
	char where[32];	 /* the registration that is being read: "clusters[2]" */
	const json_t *o; /* and its object */
	struct field_error *err;
};

static int fail_at(struct registering *g, const char *path, const char *why)
{
	unsigned line = 1, column = 1;
	char at[256];

	/* if the field is missing, the position is that of the registration */
	if (yaml_position(g->doc, path, &line, &column) < 0)
		yaml_position(g->doc, g->where, &line, &column);
	snprintf(at, sizeof(at), "%.200s:%u:%u", g->file, line, column);
	return field_error_set(g->err, at, "%s: %s", path, why);
}

static int bad(struct registering *g, const char *field, const char *fmt, ...) _printf_(3, 4);
static int bad(struct registering *g, const char *field, const char *fmt, ...)
{
	_cleanup_free_ char *path = xasprintf("%s.%.100s", g->where, field);
	char why[300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	return fail_at(g, path, why);
}

static int check_members(struct registering *g)
{
	static const char *const known[] = {"name",	 "issuer",   "subject",
					    "jwks_file", "jwks_url", "jwks_ca_file"};
	const char *member;
	json_t *value;

	json_object_foreach ((json_t *)g->o, member, value) {
		bool found = false;

		for (size_t i = 0; i < ARRAY_SIZE(known); i++)
			found |= streq(member, known[i]);
		if (!found)
			return bad(g, member, "no such field; docs/clusters.md lists them all");
	}
	return 0;
}

/* Gets a text without control characters. *ret NULL: the field is not there. */
static int get_text(struct registering *g, const char *field, size_t max, const char **ret)
{
	const json_t *v = json_object_get(g->o, field);
	const char *s = json_string_value(v);

	if (v && (!s || !*s || strlen(s) > max))
		return bad(g, field, "is no text of 1 to %zu bytes", max);
	for (const char *c = s; c && *c; c++)
		if (iscntrl((unsigned char)*c))
			return bad(g, field, "has a control character");
	*ret = s;
	return 0;
}

static int need_text(struct registering *g, const char *field, size_t max, char **ret)
{
	const char *s;
	int r = get_text(g, field, max, &s);

	if (r == 0 && !s)
		r = bad(g, field, "is missing");
	if (r == 0)
		*ret = xstrdup(s);
	return r;
}

/* The rule of clusterName in the chart's values.schema.json. */
static bool is_name(const char *s)
{
	size_t n = strlen(s);

	if (!isalnum((unsigned char)s[0]) || !isalnum((unsigned char)s[n - 1]))
		return false;
	for (; *s; s++)
		if (!isalnum((unsigned char)*s) && !strchr("-_.", *s))
			return false;
	return true;
}

static int check_name(struct registering *g, const struct registration *r)
{
	if (!is_name(r->name))
		return bad(g, "name",
			   "\"%s\" has other characters than letters, digits and -_. "
			   "between two letters or digits",
			   r->name);
	if (streq(r->name, g->own_cluster))
		return bad(g, "name", "\"%s\" is the hub's own cluster (cluster_name)", r->name);
	for (size_t i = 0; i < g->n; i++)
		if (streq(g->all[i].name, r->name))
			return bad(g, "name", "\"%s\" is the name of clusters[%zu], too", r->name,
				   i);
	return 0;
}

/*
 * Many clusters have the same default issuer. The key then tells them apart. So the user must give
 * the keys: a cluster that publishes its keys by a URL could publish the key of another one.
 */
static int check_issuer(struct registering *g, const struct registration *r)
{
	if (r->by_url && str_equal(r->issuer, g->own_issuer))
		return bad(g, "issuer",
			   "is the one of the hub's own cluster, too, so the hub tells the "
			   "clusters apart by their keys: jwks_file is needed, not jwks_url");
	for (size_t i = 0; i < g->n; i++)
		if (streq(g->all[i].issuer, r->issuer) && (g->all[i].by_url || r->by_url))
			return bad(
				g, "issuer",
				"is the one of clusters[%zu], too, so the hub tells the "
				"clusters apart by their keys: both need jwks_file, not jwks_url",
				i);
	return 0;
}

static int take_url(struct registering *g, const char *url, struct registration *r)
{
	struct field_error e = {0};

	if (url_parse(url, &r->url, &e) < 0)
		return bad(g, "jwks_url", "%s", e.reason);
	if (!r->url.tls)
		return bad(g, "jwks_url", "begins not with https://");
	r->by_url = true;
	return 0;
}

static int read_source(struct registering *g, struct registration *r)
{
	const char *file, *url, *ca;
	int e = get_text(g, "jwks_file", MAX_SOURCE_BYTES, &file);

	if (e == 0)
		e = get_text(g, "jwks_url", MAX_SOURCE_BYTES, &url);
	if (e == 0)
		e = get_text(g, "jwks_ca_file", MAX_SOURCE_BYTES, &ca);
	if (e < 0)
		return e;
	if (!file == !url)
		return bad(g, "jwks_file",
			   file ? "is there, and jwks_url, too: one of them is "
				  "needed"
				: "is missing, and jwks_url, too");
	if (!url != !ca)
		return bad(g, "jwks_ca_file",
			   url ? "is missing: the hub trusts no other CA for "
				 "jwks_url"
			       : "is there without jwks_url");
	file = file ?: ca;
	r->file = *file == '/' ? xstrdup(file) : xasprintf("%s/%s", g->dir, file);
	return url ? take_url(g, url, r) : 0;
}

static int read_one(struct registering *g, const json_t *o, struct registration *r)
{
	int e;

	snprintf(g->where, sizeof(g->where), "clusters[%zu]", g->n);
	g->o = o;
	if (!json_is_object(o))
		return fail_at(g, g->where, "is no mapping");
	e = check_members(g);
	if (e == 0)
		e = need_text(g, "name", MAX_NAME_BYTES, &r->name);
	if (e == 0)
		e = check_name(g, r);
	if (e == 0)
		e = need_text(g, "issuer", MAX_TEXT_BYTES, &r->issuer);
	if (e == 0)
		e = need_text(g, "subject", MAX_TEXT_BYTES, &r->subject);
	if (e == 0)
		e = read_source(g, r);
	return e == 0 ? check_issuer(g, r) : e;
}

static int read_root(struct registering *g, struct issuers *i)
{
	const json_t *root = yaml_root(g->doc), *list = json_object_get(root, "clusters"), *o;
	const char *member;
	json_t *value;
	size_t k;

	if (!json_is_object(root))
		return fail_at(g, "clusters", "is missing: the file must be a mapping");
	json_object_foreach ((json_t *)root, member, value)
		if (!streq(member, "clusters"))
			return fail_at(g, member, "no such field; only clusters is known");
	if (!json_is_array(list))
		return fail_at(g, "clusters", "is missing or no list");
	if (json_array_size(list) > MAX_CLUSTERS)
		return fail_at(g, "clusters", "has more than 100 clusters");
	i->registrations = xcalloc(json_array_size(list) + 1, sizeof(*i->registrations));
	g->all = i->registrations;
	json_array_foreach ((json_t *)list, k, o) {
		struct registration *r = &i->registrations[i->n++];
		int e;

		r->issuers = i;
		g->n = k;
		e = read_one(g, o, r);
		if (e < 0)
			return e;
	}
	return 0;
}

int issuers_register(struct issuers *i, const char *file, const char *own_cluster,
		     struct field_error *reterr)
{
	const char *slash = strrchr(file, '/');
	struct registering g = {.file = file,
				.own_cluster = own_cluster,
				.own_issuer = i->own_issuer,
				.err = reterr};
	_cleanup_free_ char *text = NULL;
	struct field_error e = {0};
	struct yaml_doc *doc = NULL;
	char at[256];
	size_t n;
	int r = file_read(AT_FDCWD, file, MAX_FILE_BYTES, &text, &n);

	if (r < 0) {
		field_error_set(reterr, file, "%s", file_error_text(r));
		return r;
	}
	r = yaml_parse(text, n, &doc, &e);
	if (r < 0) {
		snprintf(at, sizeof(at), "%.190s:%.60s", file, e.path);
		field_error_set(reterr, at, "%s", e.reason);
		return r;
	}
	g.doc = doc;
	g.dir = slash ? xstrndup(file, (size_t)(slash - file)) : xstrdup(".");
	r = read_root(&g, i);
	free(g.dir);
	yaml_doc_free(doc);
	return r;
}
