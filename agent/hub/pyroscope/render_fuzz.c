/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters of /pyroscope/render from arbitrary text: an object with all fields, or an error that
 * names a parameter, never both or neither. Fuzzes: hub/pyroscope/render.c
 */
#include "hub/pyroscope/render.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void check_side(const json_t *side)
{
	check(json_string_length(json_object_get(side, "profile_typeID")) > 0);
	check(*json_string_value(json_object_get(side, "label_selector")) == '{');
	check(json_is_integer(json_object_get(side, "start")));
	check(json_is_integer(json_object_get(side, "end")));
	check(json_integer_value(json_object_get(side, "max_nodes")) >= 0);
	check(json_is_integer(json_object_get(side, "format")));
}

static void read_as(const char *text, bool diff)
{
	_cleanup_json_ json_t *request = NULL;
	struct field_error e = {0};
	int r = pyroscope_read_render(text, diff, 1700000000000, &request, &e);

	check(r ? !request && *e.path && *e.reason : request != NULL);
	if (request && diff) {
		check_side(json_object_get(request, "left"));
		check_side(json_object_get(request, "right"));
	} else if (request) {
		check_side(request);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	_cleanup_free_ char *text = xstrndup((const char *)data, n);

	read_as(text, false);
	read_as(text, true);
	return 0;
}
