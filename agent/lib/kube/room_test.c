/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who has room: each namespace has its share, a small one loses nothing, and the result is that of
 * a simple computation, in whatever order the objects come and go.
 */
#include "lib/kube/kube_private.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define N_OBJECTS 60
#define N_SPACES  5
#define ROOM	  200

/* ---- the objects that the API server has, and those that the room keeps ---- */

static struct object {
	struct kube_item *item; /* NULL: the API server does not have it */
	bool kept;
} objects[N_OBJECTS];
static struct kube_room *room;

/* Object n is in one of the namespaces. Two neighbours have the same age. */
static struct kube_item *make(unsigned n, size_t n_bytes)
{
	char ns[8], name[8];
	_cleanup_json_ json_t *obj = NULL;

	snprintf(ns, sizeof(ns), "n%u", n % N_SPACES);
	snprintf(name, sizeof(name), "o%02u", n);
	obj = json_pack("{s:{s:s, s:s}}", "metadata", "namespace", ns, "name", name);
	return kube_item_new(obj, n / (2 * N_SPACES), n_bytes);
}

static void left_out(struct kube_item *i, void *arg)
{
	(void)arg;
	for (unsigned n = 0; n < N_OBJECTS; n++)
		if (objects[n].item == i)
			objects[n].kept = false;
}

static void settle(void)
{
	kube_room_settle(room, left_out, NULL);
}

static void forget_all(void)
{
	for (unsigned n = 0; n < N_OBJECTS; n++) {
		kube_item_free(objects[n].item);
		objects[n] = (struct object){0};
	}
	room = kube_room_free(room);
}

/* Makes a new room of what the API server has, as a list does, which begins anywhere. */
static void list(void)
{
	unsigned first = (unsigned)rand() % N_OBJECTS;

	kube_room_free(room);
	room = kube_room_new(ROOM);
	for (unsigned i = 0; i < N_OBJECTS; i++) {
		struct object *o = &objects[(first + i * 7) % N_OBJECTS];

		if (!o->item)
			continue;
		o->item->share = NULL;
		o->kept = kube_room_add(room, o->item, true);
		if (kube_room_is_over(room))
			settle();
	}
	settle();
	assert_false(kube_room_has_more(room));
}

/* ---- the same, computed from the definition ---- */

static bool same_space(unsigned a, unsigned b)
{
	return a % N_SPACES == b % N_SPACES;
}

/* Bytes of the objects of n's namespace that are not newer than n. */
static size_t sum_until(unsigned n)
{
	size_t sum = 0;

	for (unsigned i = 0; i < N_OBJECTS; i++) {
		const struct kube_item *a = objects[i].item, *b = objects[n].item;

		if (a && same_space(i, n) &&
		    (a->created_ns < b->created_ns ||
		     (a->created_ns == b->created_ns && strcmp(a->key, b->key) <= 0)))
			sum += a->n_bytes;
	}
	return sum;
}

static size_t taken_with(size_t share)
{
	size_t sum = 0;

	for (unsigned space = 0; space < N_SPACES; space++) {
		size_t need = 0;

		for (unsigned i = space; i < N_OBJECTS; i += N_SPACES)
			need += objects[i].item ? objects[i].item->n_bytes : 0;
		sum += MIN(need, share);
	}
	return sum;
}

static void assert_as_defined(void)
{
	size_t share = SIZE_MAX, n_out = 0, bytes = 0;

	if (taken_with(SIZE_MAX) > ROOM)
		for (share = ROOM; taken_with(share) > ROOM;)
			share--;
	for (unsigned i = 0; i < N_OBJECTS; i++) {
		if (!objects[i].item)
			continue;
		assert_int_equal(objects[i].kept, sum_until(i) <= share);
		n_out += !objects[i].kept;
		bytes += objects[i].kept ? objects[i].item->n_bytes : 0;
	}
	assert_int_equal(kube_room_left_out(room), n_out);
	assert_in_range(bytes, 0, ROOM);
}

/* ---- tests ---- */

static size_t some_bytes(void)
{
	return 1 + (size_t)rand() % (rand() % 4 ? 6 : 60);
}

static void the_order_of_a_list_does_not_matter(void **state)
{
	(void)state;
	for (unsigned seed = 0; seed < 200; seed++) {
		srand(seed);
		for (unsigned n = 0; n < N_OBJECTS; n++)
			objects[n].item = make(n, some_bytes());
		for (unsigned i = 0; i < 3; i++) {
			list();
			assert_as_defined();
		}
		forget_all();
	}
}

static void come(unsigned n)
{
	objects[n].item = make(n, some_bytes());
	objects[n].kept = kube_room_add(room, objects[n].item, true);
	settle();
}

static void go(unsigned n)
{
	if (objects[n].kept)
		kube_room_remove(room, objects[n].item);
	else
		kube_room_forget(room, objects[n].item);
	kube_item_free(objects[n].item);
	objects[n] = (struct object){0};
	settle();
}

/* Another size of an object that is kept. */
static void change(unsigned n)
{
	struct kube_item *was = objects[n].item;

	kube_room_remove(room, was);
	objects[n].item = make(n, some_bytes());
	objects[n].kept = kube_room_add(room, objects[n].item, true);
	assert_true(objects[n].kept);
	settle();
	kube_item_free(was);
}

/*
 * Objects come, change and go one by one. If the room says that what was left out has room again, a
 * list follows. If it does not, a list would bring nothing.
 */
static void what_comes_and_goes_is_as_in_a_list(void **state)
{
	unsigned n_lists = 0, n_out = 0;

	(void)state;
	for (unsigned seed = 0; seed < 20; seed++) {
		srand(seed);
		list();
		for (unsigned i = 0; i < 500; i++) {
			unsigned n = (unsigned)rand() % N_OBJECTS;

			if (!objects[n].item)
				come(n);
			else if (objects[n].kept && rand() % 2)
				change(n);
			else
				go(n);
			n_out += kube_room_left_out(room) != 0;
			if (kube_room_has_more(room)) {
				list();
				n_lists++;
			}
			assert_as_defined();
		}
		forget_all();
	}
	assert_in_range(n_lists, 100, 5000);
	assert_in_range(n_out, 1000, 9999);
}

static struct {
	const char *ns;
	size_t n;
} asked;

static void note(const char *ns, size_t n, void *arg)
{
	(void)arg;
	if (streq(ns, asked.ns))
		asked.n = n;
}

static size_t n_out_of(const char *ns)
{
	asked.ns = ns;
	asked.n = 0;
	kube_room_each_left_out(room, note, NULL);
	return asked.n;
}

static void each_namespace_is_told(void **state)
{
	(void)state;
	room = kube_room_new(ROOM);
	assert_false(kube_room_has_changed(room));
	objects[0].item = make(0, 150);
	objects[5].item = make(5, 150);
	objects[10].item = make(10, 1);
	objects[1].item = make(1, 100);
	for (unsigned n = 0; n < N_OBJECTS; n++)
		if (objects[n].item)
			objects[n].kept = kube_room_add(room, objects[n].item, true);
	settle();
	/* n1 needs no more than half, and n0 has not a single object that fits into the rest */
	assert_true(objects[1].kept);
	assert_false(objects[0].kept);
	assert_int_equal(n_out_of("n0"), 3);
	assert_int_equal(n_out_of("n1"), 0);
	assert_true(kube_room_has_changed(room));
	assert_false(kube_room_has_changed(room));
	/* now the first of n0 has room, the others do not */
	go(1);
	assert_true(kube_room_has_more(room));
	list();
	assert_true(objects[0].kept);
	assert_int_equal(n_out_of("n0"), 2);
	/* the size of an object that was left out is not known when it changes */
	go(5);
	assert_int_equal(n_out_of("n0"), 1);
	go(0);
	assert_true(kube_room_has_more(room));
	go(10);
	assert_int_equal(kube_room_left_out(room), 0);
	assert_false(kube_room_has_more(room));
	forget_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_order_of_a_list_does_not_matter),
		cmocka_unit_test(what_comes_and_goes_is_as_in_a_list),
		cmocka_unit_test(each_namespace_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
