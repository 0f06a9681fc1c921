/* SPDX-License-Identifier: Apache-2.0 */
/*
 * More objects, or objects with more memory, than the store may have. Those that have no room are
 * not kept, and are counted.
 */
#include "lib/kube/kube_private.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define OBJECTS 200000 /* as MAX_OBJECTS of room.c */

static size_t n_told, n_changed;
static char last_removed[64];

static void upsert(const char *key, const json_t *obj, const json_t *old, void *arg)
{
	(void)key;
	(void)obj;
	(void)arg;
	n_told += !old;
}

static void removed(const char *key, const json_t *old, void *arg)
{
	(void)old;
	(void)arg;
	n_told--;
	snprintf(last_removed, sizeof(last_removed), "%s", key);
}

static void changed(void *arg)
{
	(void)arg;
	n_changed++;
}

static const struct kube_watch_ops ops = {.upsert = upsert, .remove = removed, .left_out = changed};

/* An object of age i. */
static struct kube_item *item(const char *ns, unsigned i, size_t n_bytes)
{
	char name[16];
	_cleanup_json_ json_t *obj = NULL;

	snprintf(name, sizeof(name), "p%u", i);
	obj = json_pack("{s:{s:s, s:s, s:s}}", "metadata", "namespace", ns, "name", name, "uid",
			name);
	return kube_item_new(obj, i, n_bytes);
}

static void take(struct kube_store *s, const char *ns, unsigned i, size_t n_bytes)
{
	kube_store_take(s, item(ns, i, n_bytes), true);
}

static void drop(struct kube_store *s, const char *ns, unsigned i, size_t n_bytes)
{
	struct kube_item *it = item(ns, i, n_bytes);

	kube_store_remove(s, it);
	kube_item_free(it);
}

static uint64_t dropped(void)
{
	return counter_get(counter("kube_dropped_total", "reason", "no_room"));
}

static void too_many_objects_are_left_out(void **state)
{
	struct kube_store *s = kube_store_new(&ops, NULL, 4 * OBJECTS);

	(void)state;
	n_told = 0;
	for (unsigned i = 0; i < OBJECTS; i++)
		take(s, "crowd", i, 0);
	assert_int_equal(n_told, OBJECTS);
	assert_int_equal(dropped(), 0);
	take(s, "crowd", OBJECTS, 0);
	assert_int_equal(n_told, OBJECTS);
	assert_int_equal(dropped(), 1);
	/* a known object is updated even if the limit is reached */
	take(s, "crowd", 0, 0);
	assert_int_equal(n_told, OBJECTS);
	assert_int_equal(dropped(), 1);
	/* another namespace has room, at the crowd's cost */
	take(s, "small", 1, 0);
	assert_non_null(kube_store_get(s, "small/p1"));
	assert_string_equal(last_removed, "crowd/p199999");
	assert_int_equal(n_told, OBJECTS);
	drop(s, "crowd", 7, 0);
	assert_int_equal(n_told, OBJECTS - 1);
	assert_true(kube_room_has_more(kube_store_room(s)));
	kube_store_free(s);
}

static void too_many_bytes_are_left_out(void **state)
{
	struct kube_store *s = kube_store_new(&ops, NULL, 100);
	uint64_t before = dropped();

	(void)state;
	n_told = n_changed = 0;
	take(s, "a", 1, 40);
	take(s, "a", 2, 60);
	take(s, "b", 1, 30);
	/* b needs less than its share. a has 70, and its newest object does not fit */
	assert_string_equal(last_removed, "a/p2");
	assert_non_null(kube_store_get(s, "b/p1"));
	/* a smaller, newer object would fit, but the one before it comes first */
	take(s, "a", 3, 10);
	assert_null(kube_store_get(s, "a/p3"));
	assert_int_equal(dropped() - before, 2);
	kube_store_tell_left_out(s);
	kube_store_tell_left_out(s);
	assert_int_equal(n_changed, 1);
	/* the new version does not fit, and the old one would be wrong */
	take(s, "a", 1, 71);
	assert_null(kube_store_get(s, "a/p1"));
	assert_int_equal(n_told, 1);
	assert_int_equal(kube_room_left_out(kube_store_room(s)), 3);
	assert_false(kube_room_has_more(kube_store_room(s)));
	/* its next version fits, but a watch has only the change of one object: a list brings it */
	kube_store_take(s, item("a", 1, 40), false);
	assert_null(kube_store_get(s, "a/p1"));
	assert_true(kube_room_has_more(kube_store_room(s)));
	kube_store_free(s);
}

/*
 * Targets of one namespace fill all of the memory that an agent has for targets. The target of
 * another namespace is passed on to the plan all the same, and so is its next, larger version.
 */
static void targets_of_maximal_size_leave_room(void **state)
{
	enum { CROWD = 760 };
	const size_t max_bytes = kube_times_default.max_kind_bytes;
	struct kube_store *s = kube_store_new(&ops, NULL, max_bytes);

	(void)state;
	n_told = 0;
	for (unsigned i = 0; i < CROWD; i++)
		take(s, "crowd", i, max_bytes / CROWD);
	assert_int_equal(n_told, CROWD);
	take(s, "innocent", CROWD, max_bytes / CROWD);
	assert_non_null(kube_store_get(s, "innocent/p760"));
	assert_string_equal(last_removed, "crowd/p759");
	assert_int_equal(n_told, CROWD);
	take(s, "innocent", CROWD, max_bytes / 2);
	assert_non_null(kube_store_get(s, "innocent/p760"));
	assert_non_null(kube_store_get(s, "crowd/p379"));
	assert_int_equal(n_told, 1 + CROWD / 2);
	kube_store_free(s);
}

/* Gives the store a list: a/p0, a/p1, ... of these sizes. */
static void list(struct kube_store *s, size_t n, const size_t *n_bytes)
{
	struct kube_room *room = kube_room_new(100);
	struct kube_item *items[8];

	for (unsigned i = 0; i < n; i++) {
		items[i] = item("a", i, n_bytes[i]);
		assert_true(kube_room_add(room, items[i], true));
	}
	kube_store_begin(s, room);
	for (unsigned i = 0; i < n; i++)
		kube_store_take(s, items[i], true);
	while (kube_store_sweep(s, 1))
		;
}

static void a_list_counts_anew(void **state)
{
	static const size_t three[] = {20, 20, 60}, two[] = {40, 50};
	struct kube_store *s = kube_store_new(&ops, NULL, 100);

	(void)state;
	n_told = 0;
	list(s, 3, three);
	assert_int_equal(n_told, 3);
	/* what the new list lacks counts no more */
	list(s, 2, two);
	assert_int_equal(n_told, 2);
	take(s, "a", 5, 10);
	assert_int_equal(n_told, 3);
	take(s, "a", 6, 1);
	assert_int_equal(n_told, 3);
	/* an object of the list that the watch then brings again counts once */
	take(s, "a", 1, 50);
	drop(s, "a", 5, 10);
	assert_int_equal(n_told, 2);
	assert_true(kube_room_has_more(kube_store_room(s)));
	kube_store_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(too_many_objects_are_left_out),
		cmocka_unit_test(too_many_bytes_are_left_out),
		cmocka_unit_test(targets_of_maximal_size_leave_room),
		cmocka_unit_test(a_list_counts_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
