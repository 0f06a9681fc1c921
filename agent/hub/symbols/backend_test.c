/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several hubs whose uploaded files are in one place, which here is a folder that can fail. What
 * one hub has uploaded or deleted, the others see; limits hold for all together; and a file that
 * is lost or altered names nothing.
 */
#include "lib/base/testclock.h"

#include "hub/symbols/table.h"
#include "hub/symbols/testindex.h"
#include "lib/base/testdir.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

#define ID	"00112233445566778899aabbccddeeff00112233"
#define OTHER	"ff112233445566778899aabbccddeeff00112233"
#define LIST_NS (10 * NSEC_PER_SEC)
#define LATER	(60 * NSEC_PER_SEC) /* more than any interval of the module */

/* ---- the place ---- */

struct place {
	char dir[TESTDIR_BYTES];
	struct store_upload uploads[64];
	size_t n, n_lists;
	uint64_t last_id;
	uint64_t late_id; /* the next list that should have this upload does not */
	int list_error, put_error, open_error, remove_error;
	/* called once, before the next upload is there: what another hub does meanwhile */
	void (*meanwhile)(void *arg);
	void *arg;
};

static char *path_of(const struct place *p, uint64_t id)
{
	return xasprintf("%s/%llu", p->dir, (unsigned long long)id);
}

static int by_version(const void *a, const void *b)
{
	const struct store_upload *x = a, *y = b;

	return (x->version < y->version) - (x->version > y->version);
}

static int place_list(void *b, store_upload_fn *fn, void *arg, struct field_error *reterr)
{
	struct place *p = b;

	p->n_lists++;
	if (p->list_error)
		return field_error_set(reterr, "store", "away"), p->list_error;
	qsort(p->uploads, p->n, sizeof(*p->uploads), by_version);
	for (size_t i = 0; i < p->n; i++) {
		if (p->uploads[i].id != p->late_id)
			fn(&p->uploads[i], arg);
		else
			p->late_id = 0;
	}
	return 0;
}

static int place_put(void *b, struct store_upload *u, const struct symbols_received *file,
		     struct field_error *reterr)
{
	struct place *p = b;
	void (*meanwhile)(void *) = TAKE_PTR(p->meanwhile);
	_cleanup_free_ char *path = NULL;

	if (meanwhile)
		meanwhile(p->arg);
	if (p->put_error)
		return field_error_set(reterr, "store", "away"), p->put_error;
	u->id = ++p->last_id;
	path = path_of(p, u->id);
	assert_int_equal(rename(file->temporary, path), 0);
	p->uploads[p->n++] = *u;
	return 0;
}

static int place_remove(void *b, const struct store_upload *u, bool older)
{
	struct place *p = b;

	if (p->remove_error)
		return p->remove_error;
	for (size_t i = 0; i < p->n;) {
		const struct store_upload *x = &p->uploads[i];
		bool of_it = streq(x->ns, u->ns) && streq(x->build_id, u->build_id);

		if (x->id == u->id || (older && of_it && x->version < u->version))
			p->uploads[i] = p->uploads[--p->n];
		else
			i++;
	}
	return 0;
}

static int place_open(void *b, const struct store_upload *u, const struct store_wait *wait,
		      struct elf_index **ret)
{
	struct place *p = b;
	_cleanup_free_ char *path = path_of(p, u->id);
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool there = false;

	if (store_wait_ended(wait))
		return -ETIME;
	for (size_t i = 0; i < p->n; i++)
		there |= p->uploads[i].id == u->id;
	if (p->open_error)
		return p->open_error;
	return there && fd >= 0 ? symbols_file_open(fd, ret) : -ENOENT;
}

static void place_close(void *b)
{
	(void)b;
}

static const struct symbols_backend place_backend = {LIST_NS,	   place_list, place_put,
						     place_remove, place_open, place_close};

/* ---- the hubs ---- */

struct world {
	struct place place;
	struct symbols *a, *b;
	struct field_error e;
	int meanwhile_result;
};

static struct symbols *hub(struct world *w, uint64_t max_bytes)
{
	const struct symbols_config c = {.dir = w->place.dir, .max_bytes = max_bytes};
	struct symbols *s = NULL;

	assert_int_equal(symbols_open_over(&c, &place_backend, &w->place, &s, &w->e), 0);
	return s;
}

static int setup(void **state)
{
	struct world *w = xcalloc(1, sizeof(*w));

	*state = w;
	test_clock.later_ns = 0;
	assert_int_equal(testdir_make(w->place.dir), 0);
	w->a = hub(w, 1 << 20);
	w->b = hub(w, 1 << 20);
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	symbols_close(w->a);
	symbols_close(w->b);
	assert_int_equal(testdir_remove(w->place.dir), 0);
	free(w);
	return 0;
}

static void later(void)
{
	test_clock.later_ns += LATER;
}

/* app::work() gets another name of the same length. */
static int put(struct world *w, struct symbols *s, const char *ns, const char *build_id,
	       const char *name)
{
	struct test_index x = test_index(build_id);
	size_t n;
	_cleanup_free_ void *data = NULL;

	memcpy(strstr(x.strings + 1, "work"), name, 4);
	data = test_compressed(&x, sizeof(x), &n);
	w->e = (struct field_error){0};
	return symbols_put(s, ns, build_id, data, n, &w->e);
}

/* The name that a hub gives to a frame of ID; "": none. */
static void assert_name(struct symbols *s, const char *ns, const char *want)
{
	const struct frame f = {.kind = FRAME_APP, .build_id = ID, .address = 0x1020};
	struct symbols_names *n = symbols_names_new(s);
	const struct frame *got;
	char *const *list;
	size_t n_list, i = 0;

	list = symbols_names_namespaces(n, &n_list);
	while (ns && i < n_list && !streq(list[i], ns))
		i++;
	if (symbols_name(&f, ns && i < n_list ? list[i] : NULL, n, &got))
		assert_string_equal(got[0].name, want);
	else
		assert_string_equal("", want);
	symbols_names_free(n);
}

static size_t n_listed(struct symbols *s)
{
	_cleanup_json_ json_t *list = symbols_list(s);

	return json_array_size(list);
}

static void what_one_hub_has_the_others_have(void **state)
{
	struct world *w = *state;

	assert_false(symbols_any(w->b));
	assert_int_equal(put(w, w->a, NULL, ID, "some"), 0);
	assert_int_equal(put(w, w->a, "shop", ID, "shop"), 0);
	assert_name(w->a, NULL, "app::some()");
	later();
	assert_name(w->b, NULL, "app::some()");
	assert_name(w->b, "shop", "app::shop()");
	assert_int_equal(put(w, w->b, NULL, ID, "more"), 0);
	later();
	assert_name(w->a, NULL, "app::more()");
	assert_int_equal(n_listed(w->a), 2);
	assert_int_equal(symbols_delete(w->a, "shop", ID), 0);
	assert_int_equal(symbols_delete(w->b, "shop", ID), -ENOENT);
	assert_name(w->b, "shop", "app::more()");
	assert_int_equal(symbols_delete(w->b, NULL, ID), 0);
	later();
	assert_name(w->a, NULL, "");
	assert_int_equal(w->place.n, 0);
}

static void a_list_is_good_for_a_while(void **state)
{
	struct world *w = *state;
	size_t n;

	(void)symbols_any(w->b);
	n = w->place.n_lists;
	test_clock.stands_ns = now_mono_ns();
	for (int i = 0; i < 10; i++)
		(void)symbols_any(w->b);
	assert_int_equal(w->place.n_lists, n);
	test_clock.stands_ns += LIST_NS;
	(void)symbols_any(w->b);
	(void)symbols_any(w->b);
	assert_int_equal(w->place.n_lists, n + 1);
	test_clock.stands_ns = 0;
}

static void put_at_b(void *arg)
{
	struct world *w = arg;
	struct field_error e = w->e;

	w->meanwhile_result = put(w, w->b, NULL, ID, "of_b");
	w->e = e;
}

/* Two hubs get the same file at once: the newer upload is the file, at both, and alone. */
static void of_two_uploads_at_once_one_is_left(void **state)
{
	struct world *w = *state;

	w->place.meanwhile = put_at_b;
	w->place.arg = w;
	assert_int_equal(put(w, w->a, NULL, ID, "of_a"), 0);
	assert_int_equal(w->meanwhile_result, 0);
	later();
	assert_name(w->a, NULL, "app::of_b()");
	assert_name(w->b, NULL, "app::of_b()");
	assert_int_equal(n_listed(w->a), 1);
	assert_int_equal(w->place.n, 1);
}

/* The clock of the hub with the older upload was ahead. */
static void the_later_upload_counts_whatever_clocks_say(void **state)
{
	struct world *w = *state;

	test_clock.later_ns = 3600 * NSEC_PER_SEC;
	assert_int_equal(put(w, w->a, NULL, ID, "fore"), 0);
	test_clock.later_ns = 0;
	assert_int_equal(put(w, w->b, NULL, ID, "then"), 0);
	assert_name(w->b, NULL, "app::then()");
	assert_int_equal(w->place.n, 1);
}

/* 16 files have room. */
static void the_limit_holds_for_all_hubs(void **state)
{
	struct world *w = *state;
	char id[sizeof(ID)] = ID;

	symbols_close(w->a);
	symbols_close(w->b);
	w->a = hub(w, 16 * 4096);
	w->b = hub(w, 16 * 4096);
	for (unsigned i = 0; i < 10; i++) {
		id[0] = (char)('0' + i);
		assert_int_equal(put(w, i % 2 ? w->a : w->b, "greedy", id, "some"),
				 i < 8 ? 0 : -ENOSPC);
	}
	assert_non_null(strstr(w->e.reason, "namespace greedy"));
	assert_int_equal(w->place.n, 8);
	for (unsigned i = 0; i < 10; i++) {
		id[0] = (char)('0' + i);
		assert_int_equal(put(w, i % 2 ? w->a : w->b, NULL, id, "some"),
				 i < 8 ? 0 : -ENOSPC);
	}
	assert_int_equal(w->place.n, 16);
}

static void put_other_at_b(void *arg)
{
	struct world *w = arg;

	w->meanwhile_result = put(w, w->b, NULL, OTHER, "of_b");
}

/* Each of both has room, and both together have not. What was there before stays. */
static void two_uploads_at_once_do_not_pass_the_limit(void **state)
{
	struct world *w = *state;

	assert_int_equal(put(w, w->a, NULL, ID, "fore"), 0);
	symbols_close(w->a);
	symbols_close(w->b);
	w->a = hub(w, 2 * 4096);
	w->b = hub(w, 2 * 4096);
	w->place.meanwhile = put_other_at_b;
	w->place.arg = w;
	assert_int_equal(put(w, w->a, NULL, "aa", "of_a"), -ENOSPC);
	assert_string_equal(w->e.path, "store.symbols_max_bytes");
	assert_int_equal(w->meanwhile_result, 0);
	assert_int_equal(n_listed(w->a), 2);
	assert_int_equal(w->place.n, 2);
	assert_name(w->a, NULL, "app::fore()");
}

static void nothing_is_taken_while_the_place_is_away(void **state)
{
	struct world *w = *state;

	assert_int_equal(put(w, w->a, NULL, ID, "fore"), 0);
	w->place.list_error = -EAGAIN;
	assert_int_equal(put(w, w->a, NULL, OTHER, "some"), -EAGAIN);
	assert_string_equal(w->e.reason, "away");
	assert_int_equal(symbols_delete(w->a, NULL, ID), -EAGAIN);
	later();
	assert_name(w->a, NULL, "app::fore()"); /* as it was listed before */
	w->place.list_error = 0;
	w->place.put_error = -EAGAIN;
	assert_int_equal(put(w, w->a, NULL, ID, "next"), -EAGAIN);
	assert_name(w->a, NULL, "app::fore()");
	w->place.put_error = 0;
	assert_int_equal(put(w, w->a, NULL, ID, "next"), 0);
	assert_name(w->a, NULL, "app::next()");
}

/* A replica of the place lags: the list after the upload has only the older one. */
static void an_upload_that_the_list_does_not_show_is_no_success(void **state)
{
	struct world *w = *state;

	assert_int_equal(put(w, w->a, NULL, ID, "fore"), 0);
	w->place.late_id = w->place.last_id + 1;
	assert_int_equal(put(w, w->a, NULL, ID, "next"), -EAGAIN);
	assert_non_null(strstr(w->e.reason, "does not show"));
	assert_int_equal(w->place.n, 1);
	assert_name(w->a, NULL, "app::fore()");
	assert_int_equal(put(w, w->a, NULL, ID, "next"), 0);
	assert_int_equal(w->place.n, 1);
	assert_name(w->a, NULL, "app::next()");
}

static void no_list_from_now_on(void *arg)
{
	struct place *p = arg;

	p->list_error = -EAGAIN;
}

static void an_upload_without_a_second_look_does_not_stay(void **state)
{
	struct world *w = *state;

	w->place.meanwhile = no_list_from_now_on;
	w->place.arg = &w->place;
	assert_int_equal(put(w, w->a, NULL, ID, "some"), -EAGAIN);
	assert_int_equal(w->place.n, 0);
}

/*
 * An upload that was refused, but could not be deleted, is the only one: the hub takes no other one
 * until it is gone.
 */
static void a_refused_upload_is_deleted_later(void **state)
{
	struct counter *errors = counter("symbols_remove_errors_total", NULL, NULL);
	struct world *w = *state;
	uint64_t before = counter_get(errors);

	w->place.meanwhile = no_list_from_now_on;
	w->place.arg = &w->place;
	w->place.remove_error = -EAGAIN;
	assert_int_equal(put(w, w->a, NULL, ID, "some"), -EAGAIN);
	w->place.list_error = 0;
	assert_int_equal(w->place.n, 1);
	assert_int_equal(put(w, w->a, NULL, OTHER, "next"), -EAGAIN);
	assert_non_null(strstr(w->e.reason, ID));
	assert_int_equal(w->place.n, 1);
	symbols_retry(w->a);
	assert_int_equal(counter_get(errors) - before, 3);
	w->place.remove_error = 0;
	symbols_retry(w->a);
	assert_int_equal(w->place.n, 0);
	assert_name(w->a, NULL, "");
	assert_int_equal(put(w, w->a, NULL, OTHER, "next"), 0);
	assert_int_equal(counter_get(errors) - before, 3);
}

static void a_hub_starts_while_the_place_is_away(void **state)
{
	struct world *w = *state;

	assert_int_equal(put(w, w->a, NULL, ID, "some"), 0);
	symbols_close(w->b);
	w->place.list_error = -EAGAIN;
	w->b = hub(w, 1 << 20);
	assert_false(symbols_any(w->b));
	w->place.list_error = 0;
	later();
	assert_name(w->b, NULL, "app::some()");
}

/* A file that cannot be read is asked for again, but not by each query. */
static void a_file_that_cannot_be_read_is_tried_again_later(void **state)
{
	static const int errors[] = {-EAGAIN, -ENOENT, -EBADMSG};
	struct world *w = *state;

	assert_int_equal(put(w, w->a, NULL, ID, "some"), 0);
	for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
		struct elf_index *index = NULL;
		struct symbols *s = hub(w, 1 << 20);

		w->place.open_error = errors[i];
		assert_int_equal(symbols_index(s, NULL, ID, NULL, &index),
				 errors[i] == -EAGAIN ? -EAGAIN : -EBADMSG);
		w->place.open_error = 0;
		assert_name(s, NULL, "");
		later();
		assert_name(s, NULL, "app::some()");
		symbols_close(s);
	}
}

/* The hub has listed an upload that another hub replaces before it is read. */
static void a_file_that_was_replaced_is_read_anew(void **state)
{
	struct world *w = *state;

	assert_int_equal(put(w, w->a, NULL, ID, "fore"), 0);
	later();
	test_clock.stands_ns = now_mono_ns();
	assert_true(symbols_any(w->b));
	assert_int_equal(put(w, w->a, NULL, ID, "then"), 0);
	assert_name(w->b, NULL, "app::then()");
	test_clock.stands_ns = 0;
}

/* Somebody has written into the database. */
static void rows_that_cannot_be_ours_are_left_out(void **state)
{
	static const struct store_upload wrong[] = {
		{.build_id = "../../etc/passwd", .id = 101, .version = 1},
		{.build_id = "", .id = 102, .version = 1},
		{.build_id = OTHER, .ns = "A.b", .id = 103, .version = 1},
		{.build_id = OTHER, .id = 104, .version = 1, .bytes = SYMBOLS_FILE_BYTES + 1},
		{.build_id = OTHER, .id = 105, .version = 1, .packed = UINT64_MAX},
		{.build_id = OTHER, .id = UINT64_MAX, .version = 1},
		{.build_id = ID, .id = 106, .version = UINT64_MAX},
	};
	struct world *w = *state;

	assert_int_equal(put(w, w->a, NULL, ID, "some"), 0);
	memcpy(w->place.uploads + w->place.n, wrong, sizeof(wrong));
	w->place.n += ARRAY_SIZE(wrong);
	later();
	assert_int_equal(n_listed(w->b), 1);
	assert_name(w->b, NULL, "app::some()");
	assert_int_equal(put(w, w->b, NULL, OTHER, "some"), 0);
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_one_hub_has_the_others_have),
		TEST(a_list_is_good_for_a_while),
		TEST(of_two_uploads_at_once_one_is_left),
		TEST(the_later_upload_counts_whatever_clocks_say),
		TEST(the_limit_holds_for_all_hubs),
		TEST(two_uploads_at_once_do_not_pass_the_limit),
		TEST(nothing_is_taken_while_the_place_is_away),
		TEST(an_upload_that_the_list_does_not_show_is_no_success),
		TEST(an_upload_without_a_second_look_does_not_stay),
		TEST(a_refused_upload_is_deleted_later),
		TEST(a_hub_starts_while_the_place_is_away),
		TEST(a_file_that_cannot_be_read_is_tried_again_later),
		TEST(a_file_that_was_replaced_is_read_anew),
		TEST(rows_that_cannot_be_ours_are_left_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
