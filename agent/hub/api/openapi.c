/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The description of the API for programs: openapi.yaml, with what the program's own tables know.
 * So a new event or tag is in it without a change there.
 */
#include "hub/api/connect.h"

#include "openapi.h"

static json_t *schema(json_t *document, const char *name)
{
	json_t *components = json_object_get(document, "components");

	return json_object_get(json_object_get(components, "schemas"), name);
}

static void add_events(json_t *document)
{
	json_t *names = json_array();

	PROFILE_EACH_EVENT (e)
		json_array_append_new(names, json_string(profile_event_info(e)->name));
	json_object_set_new(schema(document, "Event"), "enum", names);
}

/* Which tags a field takes. */
static const struct {
	const char *schema;
	bool grouped, over_time; /* query_tag_can_group */
} tag_schemas[] = {
	{"Tag", false, false},
	{"TreeGroup", true, false},
	{"SeriesGroup", true, true},
};

/* Other names of a tag are left out. A pattern in the document stands for those with a prefix. */
static void add_tags(json_t *document, size_t i)
{
	json_t *names = json_array(), *forms;
	const struct tag_info *t;
	size_t n;

	t = query_tag_table(&n);
	for (size_t k = 0; k < n; k++)
		if (!t[k].canonical && !str_has_suffix(t[k].name, ".") &&
		    (!tag_schemas[i].grouped ||
		     query_tag_can_group(t[k].name, tag_schemas[i].over_time)))
			json_array_append_new(names, json_string(t[k].name));
	forms = json_object_get(schema(document, tag_schemas[i].schema), "anyOf");
	json_object_set_new(json_array_get(forms, 0), "enum", names);
}

/* Each type of content is a binary or a text: what is in it, the format's own page says. */
static void add_files(json_t *document)
{
	const json_t *responses =
		json_object_get(json_object_get(document, "components"), "responses");
	json_t *content = json_object_get(json_object_get(responses, "File"), "content");
	json_t *names = json_array();

	for (enum file_format f = 0; f < _FILE_FORMAT_MAX; f++) {
		const struct file_format_info *info = query_file_format(f);
		_cleanup_free_ char *type =
			xstrndup(info->content_type, strcspn(info->content_type, ";"));

		json_array_append_new(names, json_string(info->name));
		json_object_set_new(content, type, json_object());
	}
	json_object_set_new(schema(document, "FileFormat"), "enum", names);
}

static void add_calls(json_t *document)
{
	static const char service[] = "/querier.v1.QuerierService/";
	json_t *names = json_array();
	const struct connect_method *m;
	size_t n;

	m = api_pyroscope_methods(&n);
	for (size_t i = 0; i < n; i++)
		if (str_has_prefix(m[i].path, service))
			json_array_append_new(names, json_string(m[i].path + strlen(service)));
	json_object_set_new(schema(document, "QuerierMethod"), "enum", names);
}

/* A hub that asks nobody to sign in says so. */
static void forget_sign_in(json_t *document)
{
	json_object_del(document, "security");
	json_object_del(json_object_get(document, "components"), "securitySchemes");
}

json_t *api_openapi_new(const char *version, bool sign_in)
{
	json_t *document = json_loadb(openapi_json, sizeof(openapi_json), 0, NULL);

	json_object_set_new(json_object_get(document, "info"), "version", json_string(version));
	if (!sign_in)
		forget_sign_in(document);
	add_events(document);
	add_files(document);
	add_calls(document);
	for (size_t i = 0; i < ARRAY_SIZE(tag_schemas); i++)
		add_tags(document, i);
	return document;
}

void api_handle_openapi(struct call *c)
{
	api_call_json(c, 200, api_openapi_new(c->api->config.version, c->api->gate != NULL));
}
