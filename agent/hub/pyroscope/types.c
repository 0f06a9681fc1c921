/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events as types of profiles. Grafana knows some ids, and shows their values right: the table of
 * events has those. Of another id it goes by the unit: it divides ns and bytes by the step, as if
 * they were sums. What lives at a moment is none, so its unit is another word for bytes.
 */
#include "hub/pyroscope/pyroscope.h"

#define SNAPSHOT_BYTES "decbytes" /* Grafana's unit of bytes, which it does not divide */

static const char *unit_of(const struct event_info *info)
{
	if (streq(info->unit, "microseconds"))
		return "nanoseconds";
	return info->snapshot && streq(info->unit, "bytes") ? SNAPSHOT_BYTES : info->unit;
}

/* Writes the parts behind each other, with ':' between them. */
static void split(struct pyroscope_type *t)
{
	const char *at = t->id;

	for (size_t i = 0; i < PYROSCOPE_TYPE_PARTS; i++) {
		size_t n = strcspn(at, ":");

		snprintf(t->parts[i], sizeof(t->parts[i]), "%.*s", (int)n, at);
		at += n + (at[n] == ':');
	}
}

void pyroscope_type_of(enum event e, struct pyroscope_type *ret)
{
	const struct event_info *info = profile_event_info(e);
	_cleanup_free_ char *name = xstrdup(info->name);

	*ret = (struct pyroscope_type){.factor = streq(info->unit, "microseconds") ? 1000 : 1};
	for (char *c = name; *c; c++) /* an id must be a name of Prometheus */
		*c = *c == '-' ? '_' : *c;
	if (info->pyroscope_type)
		snprintf(ret->id, sizeof(ret->id), "%s", info->pyroscope_type);
	else
		snprintf(ret->id, sizeof(ret->id), "%s:%s:%s::", name, name, unit_of(info));
	split(ret);
}

static size_t count_colons(const char *s)
{
	size_t n = 0;

	while ((s = strchr(s, ':'))) {
		s++;
		n++;
	}
	return n;
}

int pyroscope_type_parse(const char *id, enum event *ret, struct field_error *reterr)
{
	size_t n = strlen(id), colons = count_colons(id);
	struct pyroscope_type t;

	if (colons == PYROSCOPE_TYPE_PARTS && str_has_suffix(id, ":delta")) {
		n -= strlen(":delta");
		colons--;
	}
	if (colons != PYROSCOPE_TYPE_PARTS - 1)
		return field_error_set(reterr, "profile_typeID",
				       "'%.100s' is no type of profiles: expected "
				       "name:sample_type:sample_unit:period_type:period_unit",
				       id);
	PROFILE_EACH_EVENT (e) {
		pyroscope_type_of(e, &t);
		if (strlen(t.id) == n && strncmp(t.id, id, n) == 0) {
			*ret = e;
			return 0;
		}
	}
	field_error_set(reterr, "profile_typeID", "no profiles have the type '%.100s'", id);
	return -ENOENT;
}

const char *const pyroscope_private_names[] = {
	"__profile_type__", "__name__",	       "__type__", "__unit__",
	"__period_type__",  "__period_unit__", NULL};

bool pyroscope_is_private(const char *name)
{
	return str_has_prefix(name, "__");
}

const char *pyroscope_private_value(const char *name, const struct pyroscope_type *t)
{
	if (streq(name, pyroscope_private_names[0]))
		return t->id;
	for (size_t i = 0; i < PYROSCOPE_TYPE_PARTS; i++)
		if (streq(name, pyroscope_private_names[i + 1]))
			return t->parts[i];
	return "";
}
