/* SPDX-License-Identifier: Apache-2.0 */
/* Which handler answers which path. openapi.yaml describes each of them. */
#include "hub/api/api_private.h"

const struct gate_right api_read_profiles = {"get", "profiles"};
static const struct gate_right list_symbols = {"get", "symbols"},
			       put_symbols = {"create", "symbols"},
			       delete_symbols = {"delete", "symbols"};

static const struct route routes[] = {
	{"/", "GET", NULL, api_handle_page, 0},
	{"/healthz", "GET", NULL, api_handle_alive, 0},
	{"/readyz", "GET", NULL, api_handle_ready, 0},
	{"/metrics", "GET", &api_read_profiles, api_handle_metrics, 0},
	{"/v1/info", "GET", NULL, api_handle_info, 0},
	{"/v1/openapi.json", "GET", NULL, api_handle_openapi, 0},
	{"/v1/profile/ProfileTracing", "POST", &api_read_profiles, api_handle_tracing,
	 BY_NAMESPACE},
#define X(NAME, name, ...)                                                                         \
	{QUERY_FILES_PATH name, "GET", &api_read_profiles, api_handle_file, BY_NAMESPACE},         \
		{QUERY_FILES_PATH name, "POST", &api_read_profiles, api_handle_file,               \
		 BY_NAMESPACE},
	QUERY_FILE_FORMATS(X)
#undef X
		{"/v1/profile/groups", "POST", &api_read_profiles, api_handle_groups, BY_NAMESPACE},
	{"/v1/profile/series", "POST", &api_read_profiles, api_handle_series, BY_NAMESPACE},
	{"/v1/profile/oldest", "GET", &api_read_profiles, api_handle_oldest, BY_NAMESPACE},
	{"/v1/profile/tags", "GET", &api_read_profiles, api_handle_tags, BY_NAMESPACE},
	{"/v1/profile/choices", "POST", &api_read_profiles, api_handle_choices, BY_NAMESPACE},
	{"/v1/profile/tree", "POST", &api_read_profiles, api_handle_tree, BY_NAMESPACE},
	{"/v1/profile/values", "POST", &api_read_profiles, api_handle_values, BY_NAMESPACE},
	{"/v1/profile/why", "POST", &api_read_profiles, api_handle_why, BY_NAMESPACE},
	{"/querier.v1.QuerierService/", "POST", &api_read_profiles, api_handle_connect,
	 BY_NAMESPACE | CONNECT},
	{"/settings.v1.SettingsService/", "POST", &api_read_profiles, api_handle_connect,
	 BY_NAMESPACE | CONNECT},
	{"/pyroscope/render", "GET", &api_read_profiles, api_handle_render, BY_NAMESPACE | CONNECT},
	{"/pyroscope/render-diff", "GET", &api_read_profiles, api_handle_render,
	 BY_NAMESPACE | CONNECT},
	{"/v1/symbols", "GET", &list_symbols, api_handle_symbols_list, BY_NAMESPACE},
	{"/v1/symbols/", "PUT", &put_symbols, api_handle_symbols_put, UPLOAD | BY_NAMESPACE},
	{"/v1/symbols/", "DELETE", &delete_symbols, api_handle_symbols_delete, BY_NAMESPACE},
};

const struct route *api_routes(size_t *ret_n)
{
	*ret_n = ARRAY_SIZE(routes);
	return routes;
}

static bool is_at(const struct route *r, const char *path)
{
	size_t n = strlen(r->path);

	if (n == 1 || r->path[n - 1] != '/')
		return streq(r->path, path);
	return str_has_prefix(path, r->path) && path[n] && !strchr(path + n, '/');
}

char *api_allowed_methods(const char *path)
{
	_cleanup_buf_ struct buf b = {0};

	buf_puts(&b, "Allow:");
	for (size_t i = 0; i < ARRAY_SIZE(routes); i++)
		if (is_at(&routes[i], path))
			buf_printf(&b, "%s %s", b.data[b.len - 1] == ':' ? "" : ",",
				   routes[i].method);
	return buf_steal(&b);
}

const struct route *api_find_route(const char *path, const char *method)
{
	const struct route *found = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
		if (!is_at(&routes[i], path))
			continue;
		found = &routes[i];
		if (streq(found->method, method))
			break;
	}
	return found;
}
