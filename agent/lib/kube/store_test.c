/* SPDX-License-Identifier: Apache-2.0 */
/* More objects of a kind than any cluster has: what is beyond the limit is left out and counted. */
#include "lib/kube/kube_private.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

#define OBJECTS 200000 /* MAX_OBJECTS */

static size_t n_told;

static void upsert(const char *key, const json_t *obj, const json_t *old, void *arg)
{
	(void)key;
	(void)obj;
	(void)old;
	(void)arg;
	n_told++;
}

static void removed(const char *key, const json_t *old, void *arg)
{
	(void)key;
	(void)old;
	(void)arg;
	n_told--;
}

static json_t *object(unsigned i)
{
	char name[16];

	snprintf(name, sizeof(name), "p%u", i);
	return json_pack("{s:{s:s, s:s}}", "metadata", "name", name, "uid", name);
}

static int apply(struct kube_store *s, unsigned i)
{
	json_t *obj = object(i);
	int r = kube_store_apply(s, obj);

	json_decref(obj);
	return r;
}

static void too_many_objects_are_left_out(void **state)
{
	static const struct kube_watch_ops ops = {.upsert = upsert, .remove = removed};
	struct counter *dropped = counter("kube_dropped_total", "reason", "too_many_objects");
	struct kube_store *s = kube_store_new(&ops, NULL);
	json_t *first = object(0);

	(void)state;
	for (unsigned i = 0; i < OBJECTS; i++)
		assert_int_equal(apply(s, i), 0);
	assert_int_equal(n_told, OBJECTS);
	assert_int_equal(counter_get(dropped), 0);
	assert_int_equal(apply(s, OBJECTS), -E2BIG);
	assert_int_equal(apply(s, 0), 0); /* who is known is not left out */
	assert_int_equal(counter_get(dropped), 1);
	assert_int_equal(n_told, OBJECTS);
	kube_store_remove(s, first);
	assert_int_equal(apply(s, OBJECTS), 0);
	assert_int_equal(n_told, OBJECTS);
	json_decref(first);
	kube_store_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(too_many_objects_are_left_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
