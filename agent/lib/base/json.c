/* SPDX-License-Identifier: Apache-2.0 */
/* Look-ups in JSON of others: absent and of the wrong type look the same. */
#include "lib/base/base.h"

const json_t *json_at(const json_t *j, const char *path)
{
	char key[256];

	while (j && *path) {
		size_t n = strcspn(path, ".");

		if (n >= sizeof(key))
			return NULL;
		memcpy(key, path, n);
		key[n] = '\0';
		j = json_object_get(j, key);
		path += n + (path[n] == '.');
	}
	return j;
}

const char *json_str_at(const json_t *j, const char *path, const char *def)
{
	const char *s = json_string_value(json_at(j, path));

	return s ? s : def;
}

int64_t json_int_at(const json_t *j, const char *path, int64_t def)
{
	const json_t *v = json_at(j, path);

	return json_is_integer(v) ? json_integer_value(v) : def;
}

bool json_bool_at(const json_t *j, const char *path, bool def)
{
	const json_t *v = json_at(j, path);

	return json_is_boolean(v) ? json_is_true(v) : def;
}
