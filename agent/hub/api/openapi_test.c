/* SPDX-License-Identifier: Apache-2.0 */
/* The description of the API has each route, and no other; its references lead somewhere. */
#include "hub/api/api_private.h"
#include "hub/api/testapi.h"

#include <strings.h>

static int setup_document(void **state)
{
	*state = api_openapi_new("9.9.9", true);
	return *state ? 0 : -1;
}

static int teardown_document(void **state)
{
	json_decref(*state);
	return 0;
}

/*
 * Whether a path of the document is that of a route: {x} stands for one part of it, and so does the
 * end of a route that ends in '/'.
 */
static bool is_path_of(const char *path, const char *route)
{
	size_t n = strcspn(path, "{"), part;

	if (strncmp(path, route, n) != 0)
		return false;
	if (!path[n])
		return !route[n];
	part = strcspn(route + n, "/");
	return !route[n + part] && !strchr(path + n, '/');
}

/* What is described at the path of a route, with this method; NULL: nothing. */
static const json_t *described(const json_t *document, const char *route, const char *method)
{
	const char *path;
	json_t *item;

	json_object_foreach (json_object_get(document, "paths"), path, item) {
		if (is_path_of(path, route) && json_object_get(item, method))
			return item;
	}
	return NULL;
}

static void each_route_is_described(void **state)
{
	size_t n;
	const struct route *r = api_routes(&n);

	for (size_t i = 0; i < n; i++) {
		_cleanup_free_ char *method = xstrdup(r[i].method);

		for (char *c = method; *c; c++)
			*c = (char)(*c | 0x20);
		if (!described(*state, r[i].path, method))
			fail_msg("openapi.yaml lacks %s %s", r[i].method, r[i].path);
	}
}

/* Whether a route has this path of the document, and this method. */
static bool has_route(const char *path, const char *method)
{
	size_t n;
	const struct route *r = api_routes(&n);

	for (size_t i = 0; i < n; i++)
		if (is_path_of(path, r[i].path) && strcasecmp(r[i].method, method) == 0)
			return true;
	return false;
}

static void each_description_has_a_route(void **state)
{
	const char *path, *method;
	json_t *item, *operation;

	json_object_foreach (json_object_get(*state, "paths"), path, item) {
		json_object_foreach (item, method, operation) {
			if (!streq(method, "parameters") && !has_route(path, method))
				fail_msg("openapi.yaml describes %s %s", method, path);
		}
	}
}

static void check_references(const json_t *document, const json_t *j)
{
	const char *reference = json_string_value(json_object_get(j, "$ref"));
	const char *name;
	json_t *member;
	size_t i;

	if (reference) {
		const json_t *at = document;
		_cleanup_free_ char *parts = xstrdup(reference + strlen("#/"));

		for (char *save = NULL, *p = strtok_r(parts, "/", &save); p;
		     p = strtok_r(NULL, "/", &save))
			at = json_object_get(at, p);
		if (!at)
			fail_msg("openapi.yaml: %s leads nowhere", reference);
	}
	json_object_foreach ((json_t *)j, name, member)
		check_references(document, member);
	json_array_foreach (j, i, member)
		check_references(document, member);
}

static void references_lead_somewhere(void **state)
{
	check_references(*state, *state);
}

/* What only the program knows is in it, and anybody may ask for it. */
static void the_hub_serves_it(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(ask(f, "GET", "/v1/openapi.json", NULL, NULL), 200);
	assert_string_equal(json_str_at(f->json, "openapi", ""), "3.1.0");
	assert_string_equal(json_str_at(json_object_get(f->json, "info"), "version", ""), "9.9.9");
	assert_non_null(strstr(f->body,
			       "{\"type\":\"string\",\"description\":\"profile_event_type\""
			       ",\"enum\":[\"on-cpu\","));
	assert_non_null(strstr(f->body, "\"mutex_count\""));
	assert_non_null(strstr(f->body, "\"enum\":[\"folded\",\"pprof\","));
	assert_non_null(strstr(f->body, "\"enum\":[\"ProfileTypes\","));
	assert_non_null(strstr(f->body, "\"enum\":[\"pod_cluster\",\"pod_ns\","));
}

#define OF_DOCUMENT(t) cmocka_unit_test_setup_teardown(t, setup_document, teardown_document)

int main(void)
{
	const struct CMUnitTest tests[] = {
		OF_DOCUMENT(each_route_is_described),
		OF_DOCUMENT(each_description_has_a_route),
		OF_DOCUMENT(references_lead_somewhere),
		LOCAL(the_hub_serves_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
