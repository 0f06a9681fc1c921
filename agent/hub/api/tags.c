/* SPDX-License-Identifier: Apache-2.0 */
/* Which tags there are. */
#include "hub/api/api_private.h"

static json_t *tag_json(const struct tag_info *t)
{
	_cleanup_free_ char *help = query_tag_help(t);
	json_t *j = json_pack("{s:s, s:b, s:s, s:s, s:s}", "name", t->name, "stored", t->stored,
			      "type", t->numeric ? "int" : "string", "same_as",
			      t->canonical ? t->canonical : "", "help", help);
	json_t *events = t->event_mask ? json_array() : NULL;
	const char *unset = query_tag_unset(t);

	PROFILE_EACH_EVENT (e)
		if (t->event_mask & 1u << e)
			json_array_append_new(events, json_string(profile_event_info(e)->name));
	if (events) {
		json_object_set_new(j, "events", events);
		json_object_set_new(j, "title", json_string(t->title));
	}
	if (unset)
		json_object_set_new(j, "unset", json_string(unset));
	return j;
}

json_t *api_tags_new(void)
{
	json_t *list = json_array();
	const struct tag_info *t;
	size_t n;

	t = query_tag_table(&n);
	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, tag_json(&t[i]));
	return list;
}

void api_handle_tags(struct call *c)
{
	api_call_json(c, 200,
		      json_pack("{s:s, s:s, s:O, s:n}", "OPT_STATUS", "SUCCESS", "DESCRIPTION", "",
				"result", c->api->tags, "debug"));
}
