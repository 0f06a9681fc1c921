/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bodies of /ingest: a form (RFC 7578) with a profile and what its types are, or the profile
 * alone.
 */
#include "hub/ingest/push.h"

#include <stdlib.h>
#include <strings.h>

#define MAX_BOUNDARY 70 /* bytes: RFC 2046, 5.1.1 */
#define MAX_PARTS    16

struct part {
	char name[32];
	const char *body;
	size_t n;
};
struct form {
	struct part parts[MAX_PARTS];
	size_t n;
};

static int wrong(struct pushing *p, const char *path, const char *reason)
{
	struct field_error e = {0};

	field_error_set(&e, path, "%s", reason);
	return ingest_push_wrong(p->verdict, -EBADMSG, &e);
}

/* ---- the form ---- */

/* Reads a parameter of a header, quoted or not. Returns whether it is there and fits. */
static bool header_parameter(const char *header, const char *name, char *ret, size_t n_ret)
{
	size_t n = strlen(name), k;

	for (const char *at = strchr(header, ';'); at; at = strchr(at, ';')) {
		at += 1 + strspn(at + 1, " \t");
		if (strncasecmp(at, name, n) != 0 || at[n] != '=')
			continue;
		at += n + 1;
		k = *at == '"' ? strcspn(++at, "\"") : strcspn(at, "; \t\r\n");
		if (!k || k >= n_ret)
			return false;
		memcpy(ret, at, k);
		ret[k] = '\0';
		return true;
	}
	return false;
}

/* Reads the head of a part, which ends with an empty line. Returns the part's body, or NULL. */
static const char *read_part_head(const char *at, const char *end, struct part *ret)
{
	static const char disposition[] = "Content-Disposition:";

	while (at < end) {
		const char *eol = memmem(at, (size_t)(end - at), "\r\n", 2);
		_cleanup_free_ char *line = eol ? xstrndup(at, (size_t)(eol - at)) : NULL;

		if (!eol)
			return NULL;
		at = eol + 2;
		if (!*line)
			return at;
		if (strncasecmp(line, disposition, strlen(disposition)) == 0 &&
		    !header_parameter(line, "name", ret->name, sizeof(ret->name)))
			return NULL;
	}
	return NULL;
}

static int read_parts(const struct buf *body, const char *boundary, struct form *ret)
{
	_cleanup_free_ char *line = xasprintf("\r\n--%s", boundary);
	const char *at = body->data ?: "", *end = at + body->len, *next;
	size_t n = strlen(line);

	/* the first boundary may begin the body */
	if (body->len < n - 2 || memcmp(at, line + 2, n - 2) != 0)
		return -EBADMSG;
	for (at += n - 2; end - at >= 2 && memcmp(at, "\r\n", 2) == 0; at = next + n) {
		struct part *part = &ret->parts[ret->n];

		if (ret->n == MAX_PARTS)
			return -E2BIG;
		part->body = read_part_head(at + 2, end, part);
		next = part->body ? memmem(part->body, (size_t)(end - part->body), line, n) : NULL;
		if (!next)
			return -EBADMSG;
		part->n = (size_t)(next - part->body);
		ret->n++;
	}
	return end - at >= 2 && memcmp(at, "--", 2) == 0 ? 0 : -EBADMSG;
}

static const struct part *find_part(const struct form *f, const char *name)
{
	for (size_t i = 0; i < f->n; i++)
		if (streq(f->parts[i].name, name))
			return &f->parts[i];
	return NULL;
}

/* ---- the types ---- */

/* Reads the part sample_type_config. *ret borrows its texts from json. */
static int read_types(const json_t *json, struct pprof_type ret[static PPROF_MAX_TYPES],
		      size_t *ret_n)
{
	const char *type;
	json_t *j;

	if (!json_is_object(json) || json_object_size(json) > PPROF_MAX_TYPES)
		return -EBADMSG;
	json_object_foreach ((json_t *)json, type, j)
		ret[(*ret_n)++] =
			(struct pprof_type){.type = type,
					    .display_name = json_str_at(j, "display-name", ""),
					    .cumulative = json_bool_at(j, "cumulative", false)};
	return 0;
}

static int read_profile(struct pushing *p, const struct form *f)
{
	const struct part *profile = find_part(f, "profile"),
			  *config = find_part(f, "sample_type_config");
	_cleanup_json_ json_t *json =
		config ? json_loadb(config->body, config->n, JSON_REJECT_DUPLICATES, NULL) : NULL;
	struct pprof_type types[PPROF_MAX_TYPES];
	size_t n = 0;

	if (find_part(f, "prev_profile"))
		return wrong(p, "prev_profile", "is not read here: send profiles of deltas");
	if (find_part(f, "jfr")) {
		counter_add(counter("podflame_push_refused_total", "reason", "format"), 1);
		ingest_verdict(p->verdict, 415, NULL, "jfr is not read here: only pprof is");
		return -EBADMSG;
	}
	if (!profile)
		return wrong(p, "profile", "the form has no such part");
	if (config && read_types(json, types, &n) < 0)
		return wrong(p, "sample_type_config",
			     "is no JSON object of at most 16 sample types");
	return ingest_push_profile(p, &p->push->series, types, n, "profile", profile->body,
				   profile->n);
}

int ingest_push_read_form(struct pushing *p, const struct buf *body)
{
	_cleanup_free_ struct form *f = xcalloc(1, sizeof(*f));
	char boundary[MAX_BOUNDARY + 1];
	int r = header_parameter(p->push->content_type, "boundary", boundary, sizeof(boundary))
			? read_parts(body, boundary, f)
			: -EBADMSG;

	if (r < 0)
		return wrong(p, "body",
			     r == -E2BIG ? "the form has more than 16 parts"
					 : "is no multipart/form-data");
	return read_profile(p, f);
}

int ingest_push_read_raw(struct pushing *p, const struct buf *body)
{
	return ingest_push_profile(p, &p->push->series, NULL, 0, "profile", body->data ?: "",
				   body->len);
}
