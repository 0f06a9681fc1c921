/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the decoder's table with crds/, the source of names, limits and defaults. Each field of
 * the schemas must be in the table with the same type, bounds, choices, pattern and default, and
 * each field of the table in the schemas. CRDS names another directory of schemas.
 */
#include "node/plan/internal.h"

#include <fcntl.h>
#include <regex.h>
#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>

static json_t *load_spec_schema(const char *file)
{
	const char *dir = getenv("CRDS");
	_cleanup_free_ char *path = xasprintf("%s/%s", dir ? dir : "crds", file);
	_cleanup_free_ char *data = NULL;
	struct yaml_doc *doc = NULL;
	struct field_error err;
	const json_t *version;
	json_t *spec;
	size_t n;

	if (file_read(AT_FDCWD, path, 1 << 20, &data, &n) < 0)
		fail_msg("%s cannot be read", path);
	if (yaml_parse(data, n, &doc, &err) < 0)
		fail_msg("%s:%s: %s", path, err.path, err.reason);
	version = json_array_get(json_at(yaml_root(doc), "spec.versions"), 0);
	spec = json_deep_copy(json_at(version, "schema.openAPIV3Schema.properties.spec"));
	assert_non_null(spec);
	yaml_doc_free(doc);
	return spec;
}

static enum field_type schema_type(const json_t *s, const char *path)
{
	static const struct {
		const char *name;
		enum field_type type;
	} types[] = {{"array", FIELD_ARRAY},   {"string", FIELD_STRING}, {"integer", FIELD_INT},
		     {"number", FIELD_NUMBER}, {"boolean", FIELD_BOOL},	 {"object", FIELD_OBJECT}};
	const char *name = json_str_at(s, "type", "");

	if (json_object_get(s, "additionalProperties"))
		return FIELD_MAP;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		if (streq(types[i].name, name))
			return types[i].type;
	}
	fail_msg("%s: type \"%s\"", path, name);
	return FIELD_OBJECT;
}

static double number(const json_t *s, const char *key)
{
	return json_number_value(json_object_get(s, key));
}

static void compare_bounds(const struct field *f, const json_t *s)
{
	static const char *const bounds[][2] = {
		[FIELD_OBJECT] = {"minProperties", "maxProperties"},
		[FIELD_MAP] = {"minProperties", "maxProperties"},
		[FIELD_ARRAY] = {"minItems", "maxItems"},
		[FIELD_STRING] = {"minLength", "maxLength"},
		[FIELD_INT] = {"minimum", "maximum"},
		[FIELD_NUMBER] = {"minimum", "maximum"},
		[FIELD_BOOL] = {"minimum", "maximum"},
	};

	if (number(s, bounds[f->type][0]) != f->min || number(s, bounds[f->type][1]) != f->max ||
	    json_bool_at(s, "exclusiveMinimum", false) != f->min_exclusive)
		fail_msg("%s: the schema allows %g..%g, the decoder %g..%g", f->path,
			 number(s, bounds[f->type][0]), number(s, bounds[f->type][1]), f->min,
			 f->max);
}

static void compare_choices(const struct field *f, const json_t *s)
{
	_cleanup_buf_ struct buf b = {0};
	const json_t *v;
	size_t i;

	json_array_foreach (json_object_get(s, "enum"), i, v)
		buf_printf(&b, "%s%s", i ? "|" : "", json_string_value(v));
	if (!str_equal(b.data, f->choices))
		fail_msg("%s: the schema has the values %s, the decoder %s", f->path,
			 b.data ? b.data : "-", f->choices ? f->choices : "-");
}

static void compare(const struct field *f, const json_t *s, const char *path, bool required)
{
	_cleanup_json_ json_t *def = NULL;

	if (!f)
		fail_msg("spec.%s is in the schema and not in the decoder", path);
	if (schema_type(s, path) != f->type)
		fail_msg("%s: the schema's type is %s", path, json_str_at(s, "type", "?"));
	if (required != f->required)
		fail_msg("%s: required differs", path);
	compare_bounds(f, s);
	compare_choices(f, s);
	if (!streq(json_str_at(s, "pattern", ""), plan_format_pattern(f->format)))
		fail_msg("%s: the schema's pattern is %s, the decoder's %s", path,
			 json_str_at(s, "pattern", ""), plan_format_pattern(f->format));
	def = f->def ? json_loads(f->def, JSON_DECODE_ANY, NULL) : NULL;
	if ((def || json_object_get(s, "default")) &&
	    !json_equal(def, json_object_get(s, "default")))
		fail_msg("%s: the defaults differ", path);
	if (strlen(json_str_at(s, "description", "")) < 10 && !strpbrk(path, "[{"))
		fail_msg("%s: the schema describes nothing to kubectl explain", path);
}

static bool is_required(const json_t *parent, const char *name)
{
	const json_t *v;
	size_t i;

	json_array_foreach (json_object_get(parent, "required"), i, v) {
		if (str_equal(json_string_value(v), name))
			return true;
	}
	return false;
}

/* Compares all fields below s with the table. Returns their number. */
static size_t compare_below(const json_t *s, const char *path)
{
	const json_t *items = json_object_get(s, "items");
	const json_t *values = json_object_get(s, "additionalProperties");
	const char *key;
	size_t n = 0;
	json_t *v;

	if (items || values) {
		_cleanup_free_ char *p = xasprintf("%s%s", path, items ? "[]" : "{}");

		compare(plan_field(p), items ? items : values, p, false);
		n += 1 + compare_below(items ? items : values, p);
	}
	json_object_foreach (json_object_get(s, "properties"), key, v) {
		_cleanup_free_ char *p = xasprintf("%s%s%s", path, *path ? "." : "", key);

		compare(plan_field(p), v, p, is_required(s, key));
		n += 1 + compare_below(v, p);
	}
	return n;
}

static void test_cluster_kind_equals_the_table(void **state)
{
	_cleanup_json_ json_t *spec = load_spec_schema("clusterprofilingtargets.yaml");
	size_t n;

	(void)state;
	plan_fields(&n);
	assert_int_equal(compare_below(spec, ""), n);
}

static void test_namespaced_kind_equals_the_table(void **state)
{
	_cleanup_json_ json_t *spec = load_spec_schema("profilingtargets.yaml");
	const struct field *f;
	size_t n, n_both = 0;

	(void)state;
	f = plan_fields(&n);
	for (size_t i = 0; i < n; i++)
		n_both += !str_has_prefix(f[i].path, "namespaceSelector");
	assert_int_equal(compare_below(spec, ""), n_both);
}

static bool known_event(const char *field)
{
	for (enum event e = 0; e < _EVENT_MAX; e++) {
		if (streq(profile_event_info(e)->spec_field, field))
			return true;
	}
	return false;
}

static void test_events_of_the_schema_are_those_of_the_program(void **state)
{
	_cleanup_json_ json_t *spec = load_spec_schema("profilingtargets.yaml");
	json_t *events = json_object_get(
		json_object_get(json_object_get(spec, "properties"), "events"), "properties");
	const char *key;
	json_t *v;

	(void)state;
	json_object_foreach (events, key, v) {
		if (!known_event(key))
			fail_msg("the program has no event %s", key);
	}
	for (enum event e = 0; e < _EVENT_MAX; e++) {
		if (!json_object_get(events, profile_event_info(e)->spec_field))
			fail_msg("crds/ have no event %s", profile_event_info(e)->spec_field);
	}
}

static void a_target_names_an_event(const char *file)
{
	_cleanup_json_ json_t *spec = load_spec_schema(file);
	const json_t *events = json_at(spec, "properties.events");
	const json_t *rule = json_array_get(json_object_get(events, "x-kubernetes-validations"), 0);
	_cleanup_free_ char *fields = profile_event_fields();
	_cleanup_buf_ struct buf want = {0};

	for (enum event e = 0; e < _EVENT_MAX; e++)
		buf_printf(&want, "%shas(self.%s)", e ? " || " : "",
			   profile_event_info(e)->spec_field);
	assert_string_equal(json_str_at(rule, "rule", ""), want.data);
	if (!strstr(json_str_at(rule, "message", ""), fields))
		fail_msg("%s: the message of the rule of events does not name %s", file, fields);
}

static void test_the_schemas_require_an_event(void **state)
{
	(void)state;
	a_target_names_an_event("profilingtargets.yaml");
	a_target_names_an_event("clusterprofilingtargets.yaml");
}

/* Texts that some formats allow and others do not. */
static const char *const words[] = {
	"",
	"a",
	"A",
	"a-b",
	"-a",
	"a-",
	"a.b",
	"a_b",
	"a b",
	"app/x",
	"App/x",
	"x/Y.z",
	"/x",
	"x/",
	"a/b/c",
	"5m",
	"1h30m",
	"30m1h",
	"5",
	"s",
	"1h1h",
	"99999h",
	"0s",
	"1234567s",
	"12345678s",
	"1h5m3s",
	"5 m",
	"-5m",
	"m5",
	"é",
	"a..b",
	"example.com/tier",
	"example.com/",
	"0",
	"x/-y",
	"x-/y",
	"1.5s",
	"50us",
	"1ms",
	"5m10ms",
	"10ms5m",
	"1h2m3s4ms5us",
	"3us4ms",
	"5mss",
	"5ns",
	"12345678901us",
	"1ms1",
	"1s 1ms",
	"abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz01",
	"abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0",
};

/* The checks in the code of format.c must allow the same texts as the patterns. */
static void test_formats_equal_their_patterns(void **state)
{
	(void)state;
	for (enum field_format f = FORMAT_LABEL_KEY; f <= FORMAT_SHORT_DURATION; f++) {
		regex_t re;

		assert_int_equal(regcomp(&re, plan_format_pattern(f), REG_EXTENDED | REG_NOSUB), 0);
		for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
			bool want = regexec(&re, words[i], 0, NULL, 0) == 0;

			if (plan_format_ok(f, words[i]) != want)
				fail_msg("format %d: \"%s\" should be %s", f, words[i],
					 want ? "allowed" : "refused");
		}
		regfree(&re);
	}
}

/* ---- the largest target ---- */

/* A label's key of the longest form. */
static const char *long_key(unsigned i)
{
	static char key[318];

	snprintf(key, sizeof(key), "%0*u/%063u", 253, i, i);
	return key;
}

static const char *long_value(unsigned i)
{
	static char value[64];

	snprintf(value, sizeof(value), "%063u", i);
	return value;
}

static unsigned most(const char *path)
{
	return (unsigned)plan_field(path)->max;
}

static json_t *long_values(unsigned n)
{
	json_t *list = json_array();

	while (n--)
		json_array_append_new(list, json_string(long_value(n)));
	return list;
}

static json_t *largest_selector(void)
{
	json_t *labels = json_object(), *expressions = json_array();

	for (unsigned i = 0; i < most("podSelector.matchLabels"); i++)
		json_object_set_new(labels, long_key(i), json_string(long_value(i)));
	for (unsigned i = 0; i < most("podSelector.matchExpressions"); i++)
		json_array_append_new(
			expressions,
			json_pack("{s:s, s:s, s:o}", "key", long_key(i), "operator", "NotIn",
				  "values",
				  long_values(most("podSelector.matchExpressions[].values"))));
	return json_pack("{s:o, s:o}", "matchLabels", labels, "matchExpressions", expressions);
}

static json_t *largest_target(void)
{
	json_t *tags = json_array();

	for (unsigned i = 0; i < most("podLabelTags"); i++)
		json_array_append_new(tags, json_string(long_key(i)));
	return json_pack("{s:s, s:{s:s, s:s, s:s}, s:{s:o, s:o, s:{s:o}, s:o}}", "kind",
			 "ProfilingTarget", "metadata", "name", "t", "namespace", "app", "uid", "t",
			 "spec", "podSelector", largest_selector(), "nodeSelector",
			 largest_selector(), "containers", "include",
			 long_values(most("containers.include")), "podLabelTags", tags);
}

/*
 * A tenant may write targets up to the limits of the schema, and all agents keep them. 128 MiB have
 * room for about 3,000 of the largest ones.
 */
static void test_the_largest_target_is_small(void **state)
{
	json_t *t = largest_target();
	size_t bytes = json_memory_bytes(t);
	struct field_error err;

	(void)state;
	if (plan_check_target(t, &err) < 0)
		fail_msg("%s: %s", err.path, err.reason);
	print_message("the largest target needs %zu bytes\n", bytes);
	assert_in_range(bytes, 16 << 10, 45 << 10);
	json_decref(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cluster_kind_equals_the_table),
		cmocka_unit_test(test_namespaced_kind_equals_the_table),
		cmocka_unit_test(test_events_of_the_schema_are_those_of_the_program),
		cmocka_unit_test(test_the_schemas_require_an_event),
		cmocka_unit_test(test_formats_equal_their_patterns),
		cmocka_unit_test(test_the_largest_target_is_small),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
