/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uploaded files: which are kept and for how long, which are refused, and which names they give to
 * frames.
 */
#include "lib/base/testchild.h"
#include "hub/symbols/symbols.h"
#include "hub/symbols/testindex.h"
#include "lib/base/testdir.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define ID    "00112233445566778899aabbccddeeff00112233"
#define OTHER "ff112233445566778899aabbccddeeff00112233"

#define TAKES_YEARS  "_RMIC1aFGzzzzzzzzzz_EuEu"
#define N_SLOW_NAMES 50

struct fixture {
	char dir[TESTDIR_BYTES];
	struct symbols_config config;
	struct symbols *s;
	struct field_error e;
};

static int setup(void **state)
{
	struct fixture *f = xcalloc(1, sizeof(*f));

	assert_int_equal(testdir_make(f->dir), 0);
	f->config = (struct symbols_config){.dir = xasprintf("%s/a/symbols", f->dir),
					    .max_bytes = 1 << 20};
	assert_int_equal(symbols_open(&f->config, &f->s, &f->e), 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	symbols_close(f->s);
	free((char *)f->config.dir);
	assert_int_equal(testdir_remove(f->dir), 0);
	free(f);
	return 0;
}

static int put(struct fixture *f, const char *build_id, const void *data, size_t n)
{
	size_t n_compressed;
	_cleanup_free_ void *compressed = test_compressed(data, n, &n_compressed);

	return symbols_put(f->s, NULL, build_id, compressed, n_compressed, &f->e);
}

static int put_good(struct fixture *f, const char *build_id)
{
	struct test_index x = test_index(build_id);

	return put(f, build_id, &x, sizeof(x));
}

/* Uploads for a namespace an index in which app::work() has another name of the same length. */
static int put_named(struct fixture *f, const char *ns, const char *build_id, const char *name)
{
	struct test_index x = test_index(build_id);
	size_t n;
	_cleanup_free_ void *data = NULL;

	memcpy(strstr(x.strings + 1, "work"), name, 4);
	data = test_compressed(&x, sizeof(x), &n);
	return symbols_put(f->s, ns, build_id, data, n, &f->e);
}

static size_t n_listed(struct fixture *f)
{
	_cleanup_json_ json_t *list = symbols_list(f->s);

	return json_array_size(list);
}

static void kept_until_deleted(void **state)
{
	struct fixture *f = *state;
	_cleanup_json_ json_t *list = NULL;
	struct elf_index *index;

	assert_false(symbols_any(f->s));
	assert_int_equal(symbols_index(f->s, NULL, ID, NULL, &index), -ENOENT);
	assert_int_equal(put_good(f, OTHER), 0);
	assert_int_equal(put_good(f, ID), 0);
	assert_true(symbols_any(f->s));
	list = symbols_list(f->s);
	assert_int_equal(json_array_size(list), 2);
	assert_string_equal(json_str_at(json_array_get(list, 0), "build_id", ""), ID);
	assert_int_equal(json_int_at(json_array_get(list, 0), "bytes", 0),
			 sizeof(struct test_index));
	assert_int_not_equal(json_int_at(json_array_get(list, 0), "uploaded", 0), 0);
	assert_int_equal(symbols_index(f->s, NULL, ID, NULL, &index), 0);
	assert_string_equal(elf_index_build_id(index), ID);
	assert_int_equal(symbols_delete(f->s, NULL, ID), 0);
	assert_int_equal(symbols_delete(f->s, NULL, ID), -ENOENT);
	assert_int_equal(symbols_delete(f->s, NULL, "../../x"), -ENOENT);
	/* a reader that still holds the index can use it */
	assert_int_equal(elf_index_n_symbols(index), 1);
	elf_index_unref(index);
	assert_int_equal(symbols_index(f->s, NULL, ID, NULL, &index), -ENOENT);
	assert_int_equal(n_listed(f), 1);
}

static void survive_a_restart(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *leftover = xasprintf("%s/.upload-abcdef", f->config.dir);
	_cleanup_free_ char *foreign = xasprintf("%s/README", f->config.dir);
	struct elf_index *index;

	assert_int_equal(put_good(f, ID), 0);
	assert_int_equal(file_write_atomic(leftover, "x", 1, 0600), 0);
	assert_int_equal(file_write_atomic(foreign, "x", 1, 0600), 0);
	symbols_close(f->s);
	assert_int_equal(symbols_open(&f->config, &f->s, &f->e), 0);
	assert_int_equal(n_listed(f), 1);
	assert_int_equal(access(leftover, F_OK), -1);
	assert_int_equal(access(foreign, F_OK), 0);
	assert_int_equal(symbols_index(f->s, NULL, ID, NULL, &index), 0);
	elf_index_unref(index);
}

static void an_upload_replaces(void **state)
{
	struct fixture *f = *state;
	struct test_index x = test_index(ID);
	struct elf_symbol symbol;
	struct elf_index *index;

	assert_int_equal(put_good(f, ID), 0);
	assert_int_equal(symbols_index(f->s, NULL, ID, NULL, &index), 0);
	elf_index_unref(index);
	x.symbol.address = 0x2000;
	x.header.n[INDEX_symbols] = 1;
	assert_int_equal(put(f, ID, &x, sizeof(x)), 0);
	assert_int_equal(n_listed(f), 1);
	assert_int_equal(symbols_index(f->s, NULL, ID, NULL, &index), 0);
	assert_int_equal(elf_index_symbol(index, 0x1000, &symbol), -ENOENT);
	assert_int_equal(elf_index_symbol(index, 0x2000, &symbol), 0);
	elf_index_unref(index);
}

static void the_limit_of_all(void **state)
{
	struct fixture *f = *state;

	symbols_close(f->s);
	f->config.max_bytes = 2 * 4096 - 1; /* each of them counts 4 KiB */
	assert_int_equal(symbols_open(&f->config, &f->s, &f->e), 0);
	assert_int_equal(put_good(f, ID), 0);
	assert_int_equal(put_good(f, ID), 0); /* replaces the same file */
	assert_int_equal(put_good(f, OTHER), -ENOSPC);
	assert_int_equal(put_named(f, "shop", ID, "some"), -ENOSPC);
	assert_string_equal(f->e.path, "store.symbols_max_bytes");
	assert_int_equal(n_listed(f), 1);
	assert_int_equal(symbols_delete(f->s, NULL, ID), 0);
	assert_int_equal(put_good(f, OTHER), 0);
}

/* 16 files have room. Each namespace may take half of what the others leave. */
static void a_namespace_leaves_room_for_others(void **state)
{
	struct fixture *f = *state;
	char id[sizeof(ID)] = ID;

	symbols_close(f->s);
	f->config.max_bytes = 16 * 4096;
	assert_int_equal(symbols_open(&f->config, &f->s, &f->e), 0);
	for (unsigned i = 0; i < 10; i++) {
		id[0] = (char)('0' + i);
		assert_int_equal(put_named(f, "greedy", id, "some"), i < 8 ? 0 : -ENOSPC);
	}
	assert_string_equal(f->e.path, "store.symbols_max_bytes");
	assert_non_null(strstr(f->e.reason, "namespace greedy"));
	assert_int_equal(put_named(f, "greedy", ID, "some"), 0); /* replaces the same file */
	for (unsigned i = 0; i < 5; i++) {
		id[0] = (char)('0' + i);
		assert_int_equal(put_named(f, "shop", id, "some"), i < 4 ? 0 : -ENOSPC);
	}
	assert_int_equal(put_named(f, "bank", ID, "some"), 0);
	for (unsigned i = 0; i < 4; i++) {
		id[0] = (char)('0' + i);
		assert_int_equal(put_good(f, id), i < 3 ? 0 : -ENOSPC);
	}
	assert_int_equal(symbols_delete(f->s, "greedy", ID), 0);
	assert_int_equal(put_named(f, "bank", OTHER, "some"), -ENOSPC);
	id[0] = '7';
	assert_int_equal(symbols_delete(f->s, "greedy", id), 0);
	id[0] = '6';
	assert_int_equal(symbols_delete(f->s, "greedy", id), 0);
	assert_int_equal(put_named(f, "bank", OTHER, "some"), 0);
}

static void the_limit_of_one(void **state)
{
	struct fixture *f = *state;
	size_t n = SYMBOLS_FILE_BYTES + (1u << 20);
	_cleanup_free_ char *zeros = xcalloc(1, n);

	/* the data has some KiB compressed, and is too large uncompressed */
	assert_int_equal(put(f, ID, zeros, n), -E2BIG);
	assert_non_null(strstr(f->e.reason, "256 MiB"));
	assert_int_equal(symbols_put(f->s, NULL, ID, zeros, SYMBOLS_UPLOAD_BYTES + 1, &f->e),
			 -E2BIG);
	assert_non_null(strstr(f->e.reason, "64 MiB compressed"));
	assert_int_equal(n_listed(f), 0);
}

static void lies_are_refused(void **state)
{
	struct fixture *f = *state;
	struct test_index good = test_index(ID), x;
	size_t n;
	_cleanup_free_ void *whole = test_upload(ID, &n);

	x = good;
	x.symbol.name = sizeof(x.strings);
	assert_int_equal(put(f, ID, &x, sizeof(x)), -EBADMSG);
	x = good;
	x.range.node = 1;
	assert_int_equal(put(f, ID, &x, sizeof(x)), -EBADMSG);
	x = good;
	x.header.n[INDEX_symbols] = 1000;
	assert_int_equal(put(f, ID, &x, sizeof(x)), -EBADMSG);
	assert_int_equal(put(f, ID, &good, sizeof(good) - 1), -EBADMSG);
	assert_int_equal(put(f, ID, "", 0), -EBADMSG);
	assert_int_equal(symbols_put(f->s, NULL, ID, "not zstd", 8, &f->e), -EBADMSG);
	assert_int_equal(symbols_put(f->s, NULL, ID, whole, n - 1, &f->e), -EBADMSG);
	assert_int_equal(put(f, OTHER, &good, sizeof(good)), -EBADMSG);
	assert_non_null(strstr(f->e.reason, ID));
	assert_int_equal(n_listed(f), 0);
	assert_false(symbols_any(f->s));
}

static void build_ids(void **state)
{
	static const char *const bad[] = {"", "abc", "AB", "zz", "../ab", "ab/cd", "ab\n"};
	struct fixture *f = *state;
	char id[2 * 65 + 1];

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(put_good(f, bad[i]), -EINVAL);
	memset(id, 'a', sizeof(id) - 1);
	id[sizeof(id) - 1] = '\0';
	assert_int_equal(put_good(f, id), -EINVAL);
	id[2 * 64] = '\0';
	assert_int_equal(put_good(f, id), 0);
}

/* If a file is damaged on the disk, its names are missing, but the query succeeds. */
static void damage_is_seen(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *path = xasprintf("%s/" ID ".pfindex", f->config.dir);
	struct elf_index *index;

	assert_int_equal(put_good(f, ID), 0);
	assert_int_equal(truncate(path, 100), 0);
	assert_int_equal(symbols_index(f->s, NULL, ID, NULL, &index), -EBADMSG);
	assert_int_equal(symbols_index(f->s, NULL, ID, NULL, &index), -EBADMSG);
	assert_int_equal(put_good(f, ID), 0);
	assert_int_equal(symbols_index(f->s, NULL, ID, NULL, &index), 0);
	elf_index_unref(index);
}

/* More files than the hub keeps open at once: all of them can be read. */
static void many_files(void **state)
{
	struct fixture *f = *state;

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 50; i++) {
			struct elf_index *index;
			char id[9];

			snprintf(id, sizeof(id), "%08x", i);
			if (round == 0) {
				assert_int_equal(put_good(f, id), 0);
				continue;
			}
			assert_int_equal(symbols_index(f->s, NULL, id, NULL, &index), 0);
			assert_string_equal(elf_index_build_id(index), id);
			elf_index_unref(index);
		}
	}
}

static void names(void **state)
{
	struct fixture *f = *state;
	const struct frame in_inline = {.kind = FRAME_APP, .build_id = ID, .address = 0x1010},
			   behind_it = {.kind = FRAME_LIBRARY, .build_id = ID, .address = 0x1020},
			   outside = {.kind = FRAME_APP, .build_id = ID, .address = 0x1100},
			   other = {.kind = FRAME_APP, .build_id = OTHER, .address = 0x1010},
			   no_id = {.kind = FRAME_APP, .address = 0x1010},
			   kernel = {.kind = FRAME_KERNEL, .build_id = ID, .address = 0x1010};
	struct symbols_names *n;
	const struct frame *got, *again;

	assert_int_equal(put_good(f, ID), 0);
	n = symbols_names_new(f->s);
	assert_int_equal(symbols_name(&in_inline, NULL, n, &got), 2);
	assert_string_equal(got[0].name, "app::work()");
	assert_string_equal(got[0].file, "work.cc");
	assert_int_equal(got[0].line, 7);
	assert_false(got[0].inlined);
	assert_string_equal(got[1].name, "inner()");
	assert_int_equal(got[1].line, 3);
	assert_true(got[1].inlined);
	assert_int_equal(got[1].kind, FRAME_APP);
	/* a query that began before still has the names */
	assert_int_equal(symbols_delete(f->s, NULL, ID), 0);
	assert_int_equal(symbols_name(&in_inline, NULL, n, &again), 2);
	assert_ptr_equal(got, again);
	assert_int_equal(symbols_name(&behind_it, NULL, n, &got), 1);
	assert_int_equal(got[0].kind, FRAME_LIBRARY);
	/* an address outside of the function gets no name, not even that of the nearest function */
	assert_int_equal(symbols_name(&outside, NULL, n, &got), 0);
	assert_int_equal(symbols_name(&other, NULL, n, &got), 0);
	assert_int_equal(symbols_name(&no_id, NULL, n, &got), 0);
	assert_int_equal(symbols_name(&kernel, NULL, n, &got), 0);
	symbols_names_free(n);
}

/* What no file names has a name by its start, if that is asked for. */
static void names_by_start(void **state)
{
	struct fixture *f = *state;
	const struct frame
		uploaded = {.module = "/bin/a", .build_id = ID, .address = 0x1010, .start = 0x1000},
		outside = {.module = "/bin/a", .build_id = ID, .address = 0x1104, .start = 0x1100},
		no_id = {.module = "/bin/a", .address = 0x20, .start = 0x10},
		no_start = {.module = "/bin/a", .build_id = ID, .address = 0x1200};
	struct symbols_names *n;
	const struct frame *got;

	assert_int_equal(put_good(f, ID), 0);
	n = symbols_names_new(f->s);
	assert_int_equal(symbols_name(&outside, NULL, n, &got), 0);
	symbols_names_free(n);
	n = symbols_names_new(f->s);
	symbols_names_by_start(n);
	assert_int_equal(symbols_name(&uploaded, NULL, n, &got), 2);
	assert_string_equal(got[0].name, "app::work()");
	assert_int_equal(got[0].start, 0);
	for (int twice = 0; twice < 2; twice++) {
		assert_int_equal(symbols_name(&outside, NULL, n, &got), 1);
		assert_string_equal(got[0].name, "a+0x1100");
		assert_int_equal(got[0].start,
				 0x1100); /* so it is known as a function without a name */
		assert_int_equal(symbols_name(&no_id, NULL, n, &got), 1);
		assert_string_equal(got[0].name, "a+0x10");
		assert_int_equal(symbols_name(&no_start, NULL, n, &got), 0);
	}
	symbols_names_free(n);
}

/* What has no room keeps its module, and the answer says so. Names that there are stay. */
static void names_by_start_have_a_limit(void **state)
{
	enum { LEN = 16 << 20, N = 8 };
	struct fixture *f = *state;
	_cleanup_free_ char *module = xcalloc(1, LEN + 1), *told = NULL;
	struct symbols_names *n = symbols_names_new(f->s);
	struct frame frames[N];
	const struct frame *got;
	size_t n_named = 0;

	memset(module, 'm', LEN);
	symbols_names_by_start(n);
	for (size_t i = 0; i < N && !told; i++) {
		frames[i] = (struct frame){.module = module, .address = 0x20, .start = 0x10};
		n_named += symbols_name(&frames[i], NULL, n, &got);
		told = symbols_names_unread(n);
		assert_int_equal(n_named, told ? i : i + 1);
	}
	assert_in_range(n_named, 1, N - 1);
	assert_non_null(strstr(told, "too many: ask for less"));
	assert_int_equal(symbols_name(&frames[0], NULL, n, &got), 1);
	symbols_names_free(n);
}

/* The name of a frame of ID in a namespace of the query; NULL: in none of them. */
static void assert_named(struct symbols_names *n, const char *ns, const struct frame *f,
			 const char *name)
{
	char *const *list;
	const struct frame *got;
	size_t n_list, i = 0;

	list = symbols_names_namespaces(n, &n_list);
	while (ns && i < n_list && !streq(list[i], ns))
		i++;
	assert_true(!ns || i < n_list);
	assert_int_equal(symbols_name(f, ns ? list[i] : NULL, n, &got), !!name);
	if (name)
		assert_string_equal(got[0].name, name);
}

/* A namespace's file names the frames of that namespace, and no other ones. */
static void names_of_namespaces(void **state)
{
	struct fixture *f = *state;
	const struct frame known = {.kind = FRAME_APP, .build_id = ID, .address = 0x1020},
			   of_one = {.kind = FRAME_APP, .build_id = OTHER, .address = 0x1020};
	struct symbols_names *n;
	char *const *list;
	size_t n_list;

	assert_int_equal(put_good(f, ID), 0);
	assert_int_equal(put_named(f, "vault", ID, "evil"), 0);
	assert_int_equal(put_named(f, "shop", OTHER, "shop"), 0);
	for (int restart = 0; restart < 2; restart++) {
		n = symbols_names_new(f->s);
		list = symbols_names_namespaces(n, &n_list);
		assert_int_equal(n_list, 2);
		assert_string_equal(list[0], "shop");
		assert_string_equal(list[1], "vault");
		/* the same frame, of several namespaces */
		assert_named(n, NULL, &known, "app::work()");
		assert_named(n, "vault", &known, "app::evil()");
		assert_named(n, "shop", &known, "app::work()");
		assert_named(n, NULL, &known, "app::work()");
		assert_named(n, NULL, &of_one, NULL);
		assert_named(n, "vault", &of_one, NULL);
		assert_named(n, "shop", &of_one, "app::shop()");
		symbols_names_free(n);
		symbols_close(f->s);
		assert_int_equal(symbols_open(&f->config, &f->s, &f->e), 0);
	}
	assert_int_equal(symbols_delete(f->s, "shop", ID), -ENOENT);
	assert_int_equal(symbols_delete(f->s, "vault", ID), 0);
	assert_int_equal(symbols_delete(f->s, "shop", OTHER), 0);
	n = symbols_names_new(f->s);
	symbols_names_namespaces(n, &n_list);
	assert_int_equal(n_list, 0);
	assert_named(n, NULL, &known, "app::work()");
	symbols_names_free(n);
}

/* If the file of a namespace is damaged, the one of all namespaces names its frames. */
static void a_damaged_file_of_a_namespace(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *path = xasprintf("%s/vault." ID ".pfindex", f->config.dir);
	const struct frame frame = {.kind = FRAME_APP, .build_id = ID, .address = 0x1020};
	struct symbols_names *n;

	assert_int_equal(put_good(f, ID), 0);
	assert_int_equal(put_named(f, "vault", ID, "evil"), 0);
	assert_int_equal(truncate(path, 100), 0);
	n = symbols_names_new(f->s);
	assert_named(n, "vault", &frame, "app::work()");
	symbols_names_free(n);
}

static void the_list_says_of_which_namespace(void **state)
{
	static const char *const expected[][2] = {{ID, ""}, {ID, "a-1"}, {ID, "b"}, {OTHER, "a-1"}};
	struct fixture *f = *state;
	_cleanup_json_ json_t *list = NULL;

	assert_int_equal(put_named(f, "b", ID, "some"), 0);
	assert_int_equal(put_named(f, "a-1", OTHER, "some"), 0);
	assert_int_equal(put_good(f, ID), 0);
	assert_int_equal(put_named(f, "a-1", ID, "some"), 0);
	assert_int_equal(put_named(f, "a-1", ID, "more"), 0); /* replaces the one before */
	list = symbols_list(f->s);
	assert_int_equal(json_array_size(list), ARRAY_SIZE(expected));
	for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
		const json_t *item = json_array_get(list, i);

		assert_string_equal(json_str_at(item, "build_id", ""), expected[i][0]);
		assert_string_equal(json_str_at(item, "namespace", ""), expected[i][1]);
	}
	assert_true(json_is_null(json_object_get(json_array_get(list, 0), "namespace")));
}

/* The name of a namespace is a part of a file's name. */
static void namespaces(void **state)
{
	static const char *const bad[] = {
		"",
		".",
		"a.b",
		"A",
		"a/b",
		"../a",
		"-a",
		"a-",
		"a b",
		"a\n",
		"Ã¤",
		"a23456789012345678901234567890123456789012345678901234567"
		"8901234"};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(put_named(f, bad[i], ID, "some"), -EINVAL);
		assert_string_equal(f->e.path, "namespace");
	}
	assert_int_equal(n_listed(f), 0);
	assert_int_equal(put_named(f, bad[ARRAY_SIZE(bad) - 1] + 1, ID, "some"), 0);
}

static uint64_t mangled(const char *reason)
{
	return counter_get(counter("podflame_names_mangled_total", "reason", reason));
}

static void put_slow_names(struct fixture *f)
{
	static struct {
		struct index_header header;
		struct index_symbol symbols[N_SLOW_NAMES];
		char strings[8 + N_SLOW_NAMES * 32];
	} x;

	x.header = test_index(ID).header;
	x.header.n[INDEX_symbols] = N_SLOW_NAMES;
	x.header.n[INDEX_inline_ranges] = x.header.n[INDEX_inline_nodes] = 0;
	x.header.string_bytes = sizeof(x.strings);
	for (unsigned i = 0; i < N_SLOW_NAMES; i++) {
		uint32_t name = 8 + i * 32;

		x.symbols[i] =
			(struct index_symbol){.address = 0x1000 + i, .size = 1, .name = name};
		memcpy(x.strings + name, TAKES_YEARS, sizeof(TAKES_YEARS));
	}
	assert_int_equal(put(f, ID, &x, sizeof(x)), 0);
}

static void query_all_slow_names(struct fixture *f)
{
	struct symbols_names *n = symbols_names_new(f->s);
	struct frame frames[N_SLOW_NAMES];
	const struct frame *got;

	for (unsigned i = 0; i < N_SLOW_NAMES; i++) {
		frames[i] =
			(struct frame){.kind = FRAME_APP, .build_id = ID, .address = 0x1000 + i};
		assert_int_equal(symbols_name(&frames[i], NULL, n, &got), 1);
		assert_string_equal(got[0].name, TAKES_YEARS);
	}
	symbols_names_free(n);
}

/*
 * The slow names of an upload cost time once, not in each query. Else an upload could block all
 * queries.
 */
static void a_hostile_upload_has_its_time_once(void **state)
{
	struct fixture *f = *state;
	uint64_t n_slow = mangled("too_slow"), n_file = mangled("slow_file");

	put_slow_names(f);
	query_all_slow_names(f);
	n_slow = mangled("too_slow") - n_slow;
	n_file = mangled("slow_file") - n_file;
	assert_in_range(n_slow, 1, 40);
	assert_int_equal(n_slow + n_file, N_SLOW_NAMES);
	n_slow = mangled("too_slow");
	query_all_slow_names(f);
	assert_int_equal(mangled("too_slow"), n_slow);
}

/* The PID of the child of this program that demangles names; 0: there is none. */
static pid_t child_pid(void)
{
	return testchild_pid("podflame-names");
}

/*
 * The child that demangles dies before each query. Each query waits for a new child and gets its
 * name.
 */
static void a_query_waits_for_the_next_child(void **state)
{
	const struct frame frame = {.kind = FRAME_APP, .build_id = ID, .address = 0x1020};
	struct fixture *f = *state;
	const struct frame *got;

	assert_int_equal(put_good(f, ID), 0);
	for (int i = 0; i < 4; i++) {
		struct symbols_names *n = symbols_names_new(f->s);
		siginfo_t ended;
		pid_t pid;

		assert_int_equal(symbols_name(&frame, NULL, n, &got), 1);
		assert_string_equal(got[0].name, "app::work()");
		symbols_names_free(n);
		pid = child_pid();
		assert_int_not_equal(pid, 0);
		kill(pid, SIGKILL);
		assert_int_equal(waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT), 0);
	}
}

int main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(kept_until_deleted),
		TEST(survive_a_restart),
		TEST(an_upload_replaces),
		TEST(the_limit_of_all),
		TEST(a_namespace_leaves_room_for_others),
		TEST(the_limit_of_one),
		TEST(lies_are_refused),
		TEST(build_ids),
		TEST(damage_is_seen),
		TEST(many_files),
		TEST(names),
		TEST(names_by_start),
		TEST(names_by_start_have_a_limit),
		TEST(names_of_namespaces),
		TEST(a_damaged_file_of_a_namespace),
		TEST(the_list_says_of_which_namespace),
		TEST(namespaces),
		TEST(a_hostile_upload_has_its_time_once),
		TEST(a_query_waits_for_the_next_child),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
