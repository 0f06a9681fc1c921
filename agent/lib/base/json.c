/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads JSON that users or the API server wrote. For a look-up, a value of the wrong type is the
 * same as an absent one. json_keep() reduces an object to the members that are needed.
 */
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

json_t *json_with(const json_t *array, const char *member, const char *text)
{
	json_t *object;
	size_t i;

	json_array_foreach (array, i, object) {
		const char *value = json_string_value(json_object_get(object, member));

		if (value && streq(value, text))
			return object;
	}
	return NULL;
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

/*
 * Returns a new object with those members of j that words names. It is a new one, because an object
 * from which members are removed keeps its large table.
 */
static json_t *kept(json_t *j, const char *words)
{
	json_t *out, *v;
	char key[64];

	if (!json_is_object(j))
		return json_incref(j);
	out = json_object();
	for (const char *w = words + strspn(words, " "); *w; w += strspn(w, " ")) {
		size_t n = strcspn(w, " ");

		snprintf(key, sizeof(key), "%.*s", (int)n, w);
		v = json_object_get(j, key);
		if (v)
			json_object_set(out, key, v);
		w += n;
	}
	return out;
}

void json_keep(json_t *parent, const char *key, const char *words)
{
	json_t *at = json_object_get(parent, key), *v;
	size_t i;

	json_array_foreach (at, i, v)
		json_array_set_new(at, i, kept(v, words));
	if (json_is_object(at))
		json_object_set_new(parent, key, kept(at, words));
}

/*
 * Counts the bytes that jansson 2.14 allocates, with glibc's malloc() on 64 bits. base_test.c
 * compares the result with the real use of memory.
 */
size_t json_memory_bytes(const json_t *j)
{
	size_t sum = 0, i;
	const char *key;
	const json_t *v;

	switch (json_typeof(j)) {
	case JSON_OBJECT:
		json_object_foreach ((json_t *)j, key, v)
			sum += 96 + strlen(key) + json_memory_bytes(v);
		return sum + 224;
	case JSON_ARRAY:
		json_array_foreach (j, i, v)
			sum += 12 + json_memory_bytes(v);
		return sum + 128;
	case JSON_STRING:
		return 48 + MAX(json_string_length(j) + 16, 32u);
	case JSON_INTEGER:
	case JSON_REAL:
		return 32;
	default:
		return 0;
	}
}
