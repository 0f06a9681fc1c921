/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of the fields of a target's spec, and the function that checks an object against it.
 * The table is equal to the schemas in crds/ (crd_test.c compares them). The API server has checked
 * most objects already. This check is for objects that came another way, or from a server with a
 * newer or older schema. Pure.
 */
#include "node/plan/internal.h"

/* clang-format off */
#define F(p, t, ...) {.path = p, .type = FIELD_##t, ##__VA_ARGS__}
#define SHORT .min = 2, .max = 32, .format = FORMAT_SHORT_DURATION
#define SELECTOR(p, ...)                                                                           \
	F(p, OBJECT, ##__VA_ARGS__),                                                               \
	F(p ".matchLabels", MAP, .max = 8),                                                       \
	F(p ".matchLabels{}", STRING, .max = 63, .format = FORMAT_LABEL_VALUE),                    \
	F(p ".matchExpressions", ARRAY, .max = 4),                                                \
	F(p ".matchExpressions[]", OBJECT),                                                        \
	F(p ".matchExpressions[].key", STRING, .required = true, .min = 1, .max = 317,             \
	  .format = FORMAT_LABEL_KEY),                                                             \
	F(p ".matchExpressions[].operator", STRING, .required = true,                              \
	  .choices = "In|NotIn|Exists|DoesNotExist"),                                              \
	F(p ".matchExpressions[].values", ARRAY, .max = 16),                                       \
	F(p ".matchExpressions[].values[]", STRING, .max = 63, .format = FORMAT_LABEL_VALUE)

static const struct field fields[] = {
	SELECTOR("namespaceSelector", .required = true, .cluster_only = true),
	SELECTOR("podSelector", .required = true),
	SELECTOR("nodeSelector"),
	F("containers", OBJECT),
	F("containers.include", ARRAY, .max = 16),
	F("containers.include[]", STRING, .min = 1, .max = 63, .format = FORMAT_DNS_LABEL),
	F("containers.exclude", ARRAY, .max = 16),
	F("containers.exclude[]", STRING, .min = 1, .max = 63, .format = FORMAT_DNS_LABEL),
	F("containers.types", ARRAY, .min = 1, .max = 4, .def = "[\"Regular\", \"Sidecar\"]"),
	F("containers.types[]", STRING, .choices = "Regular|Init|Sidecar|Ephemeral"),
	F("events", OBJECT, .def = "{\"onCpu\": {}}"),
	F("events.onCpu", OBJECT),
	F("events.onCpu.sampleHz", INT, .min = 1, .max = 999, .def = "99"),
	F("events.offCpu", OBJECT),
	F("events.offCpu.minBlock", STRING, SHORT, .def = "\"50us\""),
	F("events.offCpu.maxBlock", STRING, SHORT, .def = "\"1h\""),
	F("events.memAlloc", OBJECT),
	F("events.memAlloc.sampleBytes", INT, .min = 1, .max = 1 << 30, .def = "524288"),
	F("events.memAlloc.maxStall", STRING, SHORT, .def = "\"20ms\""),
	F("events.memInuse", OBJECT),
	F("events.memInuse.sampleBytes", INT, .min = 1, .max = 1 << 30, .def = "524288"),
	F("events.hbmAlloc", OBJECT),
	F("events.hbmInuse", OBJECT),
	F("events.onGpu", OBJECT),
	F("events.rdma", OBJECT),
	F("events.rdmaLatency", OBJECT),
	F("podLabelTags", ARRAY, .max = 8),
	F("podLabelTags[]", STRING, .min = 1, .max = 317, .format = FORMAT_LABEL_KEY),
	F("stopAfter", STRING, .min = 2, .max = 16, .format = FORMAT_DURATION),
	F("suspend", BOOL, .def = "false"),
	F("javaAttach", STRING, .choices = "Never|Allowed", .def = "\"Never\""),
	F("traceContext", BOOL, .def = "false"),
	F("scrape", OBJECT),
	F("scrape.port", INT, .min = 1, .max = 65535),
	F("scrape.profiles", ARRAY, .min = 1, .max = 6,
	  .def = "[\"heap\", \"allocs\", \"mutex\", \"block\", \"goroutine\"]"),
	F("scrape.profiles[]", STRING, .choices = "heap|allocs|mutex|block|goroutine|cpu"),
	F("scrape.interval", STRING, .min = 2, .max = 16, .format = FORMAT_DURATION,
	  .def = "\"30s\""),
	F("limits", OBJECT),
	F("limits.overheadPercent", NUMBER, .min = 0, .max = 100, .min_exclusive = true),
};
/* clang-format on */

static const char *const type_names[] = {
	[FIELD_OBJECT] = "an object",	[FIELD_MAP] = "an object",  [FIELD_ARRAY] = "a list",
	[FIELD_STRING] = "a string",	[FIELD_INT] = "an integer", [FIELD_NUMBER] = "a number",
	[FIELD_BOOL] = "true or false",
};

const struct field *plan_fields(size_t *ret_n)
{
	*ret_n = ARRAY_SIZE(fields);
	return fields;
}

const struct field *plan_field(const char *path)
{
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		if (streq(fields[i].path, path))
			return &fields[i];
	}
	return NULL;
}

/* ---- one value ---- */

static bool type_ok(enum field_type type, const json_t *v)
{
	switch (type) {
	case FIELD_OBJECT:
	case FIELD_MAP:
		return json_is_object(v);
	case FIELD_ARRAY:
		return json_is_array(v);
	case FIELD_STRING:
		return json_is_string(v);
	case FIELD_INT:
		return json_is_integer(v);
	case FIELD_NUMBER:
		return json_is_number(v);
	case FIELD_BOOL:
		return json_is_boolean(v);
	}
	return false;
}

static double measure(const struct field *f, const json_t *v)
{
	switch (f->type) {
	case FIELD_MAP:
		return (double)json_object_size(v);
	case FIELD_ARRAY:
		return (double)json_array_size(v);
	case FIELD_STRING:
		return (double)json_string_length(v);
	case FIELD_INT:
	case FIELD_NUMBER:
		return json_number_value(v);
	default:
		return f->min;
	}
}

static bool choice_ok(const char *choices, const char *s)
{
	size_t n = strlen(s);

	for (const char *c = choices; c; c = strchr(c, '|') ? strchr(c, '|') + 1 : NULL) {
		if (strcspn(c, "|") == n && memcmp(c, s, n) == 0)
			return true;
	}
	return false;
}

static int check_value(const struct field *f, const json_t *v, const char *path,
		       struct field_error *reterr)
{
	static const char *const units[] = {[FIELD_MAP] = " members",
					    [FIELD_ARRAY] = " members",
					    [FIELD_STRING] = " characters",
					    [FIELD_BOOL] = ""};
	double m;

	if (!type_ok(f->type, v))
		return field_error_set(reterr, path, "must be %s", type_names[f->type]);
	m = measure(f, v);
	if (m < f->min || (f->min_exclusive && m <= f->min) || (f->max > 0 && m > f->max))
		return field_error_set(reterr, path, "%g%s is not %s%g..%g", m,
				       units[f->type] ? units[f->type] : "",
				       f->min_exclusive ? "above " : "in ", f->min, f->max);
	if (f->choices && !choice_ok(f->choices, json_string_value(v)))
		return field_error_set(reterr, path, "\"%.64s\" is not one of %s",
				       json_string_value(v), f->choices);
	if (f->format && !plan_format_ok(f->format, json_string_value(v)))
		return field_error_set(reterr, path, "\"%.64s\" does not match %s",
				       json_string_value(v), plan_format_pattern(f->format));
	return 0;
}

/* ---- the whole spec ---- */

struct field_check {
	bool cluster;
	plan_unknown_fn *unknown;
	void *arg;
	struct field_error *reterr;
};

/*
 * Checks the members of an object. at: the path for the user, with indexes. field: the path in the
 * table; "" is the spec. In check_one(), f NULL means that the table has no such field.
 */
static int check_object(const struct field_check *c, const json_t *obj, const char *field,
			const char *at);
static int check_elements(const struct field_check *c, const json_t *all, const struct field *f,
			  const char *at);

static int check_one(const struct field_check *c, const json_t *v, const struct field *f,
		     const char *at)
{
	if (!f) {
		c->unknown(at, c->arg);
		return 0;
	}
	if (f->cluster_only && !c->cluster)
		return field_error_set(c->reterr, at, "is for a ClusterProfilingTarget only");
	if (check_value(f, v, at, c->reterr) < 0)
		return -EINVAL;
	switch (f->type) {
	case FIELD_OBJECT:
		return check_object(c, v, f->path, at);
	case FIELD_MAP:
	case FIELD_ARRAY:
		return check_elements(c, v, f, at);
	default:
		return 0;
	}
}

static int check_required(const struct field_check *c, const json_t *obj, const char *field,
			  const char *at)
{
	size_t n = strlen(field);

	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		const char *rest = fields[i].path;
		_cleanup_free_ char *where = NULL;

		if (!fields[i].required || (fields[i].cluster_only && !c->cluster))
			continue;
		if (n) {
			if (strncmp(rest, field, n) != 0 || rest[n] != '.')
				continue;
			rest += n + 1;
		}
		if (strpbrk(rest, ".[{") || json_object_get(obj, rest))
			continue;
		where = xasprintf("%s.%s", at, rest);
		return field_error_set(c->reterr, where, "is required");
	}
	return 0;
}

static bool is_good_text(const struct field *f, const json_t *v)
{
	return f && f->type == FIELD_STRING && check_value(f, v, "", NULL) == 0;
}

/* Checks all elements of one field. */
static int check_elements(const struct field_check *c, const json_t *all, const struct field *f,
			  const char *at)
{
	bool map = f->type == FIELD_MAP;
	_cleanup_free_ char *path = xasprintf("%s%s", f->path, map ? "{}" : "[]");
	const struct field *element = plan_field(path);
	const char *key;
	const json_t *v;
	size_t i;

	json_array_foreach (all, i, v) {
		_cleanup_free_ char *where = NULL;

		/*
		 * nearly all strings are good; so the path, which costs more than the check, is
		 * made only for a bad one
		 */
		if (is_good_text(element, v))
			continue;
		where = xasprintf("%s[%zu]", at, i);
		if (check_one(c, v, element, where) < 0)
			return -EINVAL;
	}
	json_object_foreach ((json_t *)all, key, v) {
		_cleanup_free_ char *where = xasprintf("%s.%.253s", at, key);

		if (!plan_format_ok(FORMAT_LABEL_KEY, key))
			return field_error_set(c->reterr, where, "is not a label key");
		if (check_one(c, v, element, where) < 0)
			return -EINVAL;
	}
	return 0;
}

static int check_object(const struct field_check *c, const json_t *obj, const char *field,
			const char *at)
{
	const char *key;
	const json_t *v;

	json_object_foreach ((json_t *)obj, key, v) {
		_cleanup_free_ char *member = xasprintf("%s%s%s", field, *field ? "." : "", key);
		_cleanup_free_ char *where = xasprintf("%s.%.253s", at, key);

		if (check_one(c, v, plan_field(member), where) < 0)
			return -EINVAL;
	}
	return check_required(c, obj, field, at);
}

int plan_fields_check(const json_t *spec, bool cluster, plan_unknown_fn *unknown, void *arg,
		      struct field_error *reterr)
{
	struct field_check c = {
		.cluster = cluster, .unknown = unknown, .arg = arg, .reterr = reterr};

	if (!json_is_object(spec))
		return field_error_set(reterr, "spec", spec ? "must be an object" : "is required");
	return check_object(&c, spec, "", "spec");
}
