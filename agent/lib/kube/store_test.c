/* SPDX-License-Identifier: Apache-2.0 */
/*
 * More objects, or objects with more memory, than the store and a list may have. Those beyond a
 * limit are not kept, and are counted as dropped.
 */
#include "lib/kube/kube_private.h"
#include "lib/loop/testserver.h"

#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>

#include <cmocka.h>

#define OBJECTS 200000 /* as MAX_OBJECTS of store.c and MAX_LISTED of watch_list.c */

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

static int apply_of(struct kube_store *s, unsigned i, size_t n_bytes)
{
	json_t *obj = object(i);
	int r = kube_store_apply(s, obj, n_bytes);

	json_decref(obj);
	return r;
}

static int apply(struct kube_store *s, unsigned i)
{
	return apply_of(s, i, 0);
}

static void too_many_objects_are_left_out(void **state)
{
	static const struct kube_watch_ops ops = {.upsert = upsert, .remove = removed};
	struct counter *dropped = counter("kube_dropped_total", "reason", "too_many_objects");
	struct kube_store *s = kube_store_new(&ops, NULL, 0);
	json_t *first = object(0);

	(void)state;
	for (unsigned i = 0; i < OBJECTS; i++)
		assert_int_equal(apply(s, i), 0);
	assert_int_equal(n_told, OBJECTS);
	assert_int_equal(counter_get(dropped), 0);
	assert_int_equal(apply(s, OBJECTS), -E2BIG);
	/* a known object is updated even if the limit is reached */
	assert_int_equal(apply(s, 0), 0);
	assert_int_equal(counter_get(dropped), 1);
	assert_int_equal(n_told, OBJECTS);
	kube_store_remove(s, first);
	assert_int_equal(apply(s, OBJECTS), 0);
	assert_int_equal(n_told, OBJECTS);
	json_decref(first);
	kube_store_free(s);
}

static void too_many_bytes_are_left_out(void **state)
{
	enum { A, B, C, D, E };
	static const struct kube_watch_ops ops = {.upsert = upsert, .remove = removed};
	struct counter *dropped = counter("kube_dropped_total", "reason", "too_many_bytes");
	struct kube_store *s = kube_store_new(&ops, NULL, 100);
	json_t *d = object(D);

	(void)state;
	n_told = 0;
	assert_int_equal(apply_of(s, A, 40), 0);
	assert_int_equal(apply_of(s, B, 40), 0);
	assert_int_equal(apply_of(s, C, 21), -E2BIG);
	assert_int_equal(apply_of(s, A, 60), 0);
	assert_int_equal(n_told, 2);
	/* B is removed, because the new version does not fit and the old one would be wrong */
	assert_int_equal(apply_of(s, B, 41), -E2BIG);
	assert_int_equal(n_told, 1);
	assert_int_equal(apply_of(s, C, 40), 0);
	/* the new list has no A. D has room, because A's bytes do not count any more */
	kube_store_begin(s);
	assert_int_equal(apply_of(s, C, 40), 0);
	assert_int_equal(apply_of(s, D, 60), 0);
	assert_int_equal(apply_of(s, E, 1), -E2BIG);
	assert_false(kube_store_sweep(s, 10));
	assert_int_equal(n_told, 2);
	assert_int_equal(apply_of(s, E, 1), -E2BIG);
	kube_store_remove(s, d);
	assert_int_equal(apply_of(s, E, 60), 0);
	assert_int_equal(n_told, 2);
	assert_int_equal(counter_get(dropped), 4);
	json_decref(d);
	kube_store_free(s);
}

/* ---- a list ---- */

#define ITEM(name) "{\"metadata\":{\"name\":\"" name "\",\"uid\":\"" name "\"}}"
#define HEAD(more)                                                                                 \
	"{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"1\"" more "},\"items\":["

/*
 * The first page has object p as often as a list may have objects; the next page has one more
 * object.
 */
static void serve(struct ts_conn *c, const struct ts_request *r, void *arg)
{
	(void)arg;
	if (strstr(r->line, "watch=true")) {
		ts_stream(c);
		ts_stall(c);
	} else if (strstr(r->line, "continue=next")) {
		ts_reply(c, 200, NULL, HEAD("") ITEM("beyond") "]}");
	} else {
		_cleanup_buf_ struct buf b = {0};

		buf_puts(&b, HEAD(",\"continue\":\"next\"") ITEM("p"));
		for (unsigned i = 1; i < OBJECTS; i++)
			buf_puts(&b, "," ITEM("p"));
		buf_puts(&b, "]}");
		ts_reply(c, 200, NULL, b.data);
	}
}

static void synced(void *arg)
{
	loop_stop(arg, 0);
}

static void give_up(void *arg)
{
	loop_stop(arg, -ETIMEDOUT);
}

static void a_list_is_cut_at_its_limit(void **state)
{
	static const struct kube_watch_ops ops = {upsert, removed, synced, NULL};
	static const struct kube_watch_spec spec = {.path = "/api/v1/pods", .max_bytes = 1 << 30};
	struct counter *dropped = counter("kube_dropped_total", "reason", "too_many_objects");
	uint64_t before = counter_get(dropped);
	struct ts_config tc = {0};
	struct test_server *ts = ts_start(&tc, serve, NULL);
	struct kube_config kc = {
		.address = (char *)"127.0.0.1", .port = ts->port, .plain_http = true};
	struct timer guard = {0};
	struct kube_watch *w;
	struct kube *k;
	struct loop *l;

	(void)state;
	signal(SIGPIPE, SIG_IGN);
	n_told = 0;
	assert_int_equal(loop_new(&l), 0);
	assert_int_equal(kube_new(l, &kc, "podflame/test", &k, NULL), 0);
	assert_int_equal(kube_watch_new(k, &spec, &ops, l, &w), 0);
	timer_set(l, &guard, 120 * NSEC_PER_SEC, give_up, l);
	assert_int_equal(loop_run(l), 0);
	assert_int_equal(n_told, 1);
	assert_non_null(kube_watch_get(w, "p"));
	assert_null(kube_watch_get(w, "beyond"));
	assert_int_equal(counter_get(dropped) - before, 1);
	timer_cancel(&guard);
	kube_watch_free(w);
	kube_free(k);
	ts_stop(ts);
	loop_free(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(too_many_objects_are_left_out),
		cmocka_unit_test(too_many_bytes_are_left_out),
		cmocka_unit_test(a_list_is_cut_at_its_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
