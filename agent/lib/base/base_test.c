/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of base: mostly of the parts that read text of users. */
#include "lib/base/base.h"
#include "lib/base/testabort.h"

#include <setjmp.h>
#include <cmocka.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <unistd.h>
#include <uthash.h>
#include <zlib.h>

struct budget {
	struct buf_budget budget;
	size_t left;
};

static bool take_some(struct buf_budget *budget, size_t n)
{
	struct budget *b = (struct budget *)budget;

	if (n > b->left)
		return false;
	b->left -= n;
	return true;
}

/* A buffer asks its budget for each byte of memory, and keeps what it has if it gets no more. */
static void test_buf_keeps_to_its_budget(void **state)
{
	struct budget budget = {{take_some}, 300};
	_cleanup_buf_ struct buf b = {.budget = &budget.budget};

	(void)state;
	for (int i = 0; i < 255; i++)
		assert_int_equal(buf_putc(&b, 'x'), 0);
	assert_int_equal(budget.left, 300 - b.cap);
	assert_int_equal(buf_putc(&b, 'x'), -E2BIG);
	assert_true(b.failed);
	assert_int_equal(b.len, 255);
	assert_int_equal(budget.left, 300 - b.cap);
}

static void test_buf_keeps_its_limit(void **state)
{
	_cleanup_buf_ struct buf b;

	(void)state;
	buf_init(&b, 8);
	assert_int_equal(buf_puts(&b, "12345678"), 0);
	assert_int_equal(buf_putc(&b, '9'), -E2BIG);
	assert_true(b.failed);
	assert_string_equal(b.data, "12345678");
	buf_reset(&b);
	assert_int_equal(buf_printf(&b, "%d", 42), 0);
	assert_string_equal(b.data, "42");
}

/* What a gzip file holds: n bytes, of which there are fewer than `most`. */
static char *content_of(const char *file, size_t n_file, size_t most, size_t *ret_n)
{
	char *bytes = xmalloc(most);
	z_stream z = {.next_in = (Bytef *)(uintptr_t)file,
		      .avail_in = (uInt)n_file,
		      .next_out = (Bytef *)bytes,
		      .avail_out = (uInt)most};

	assert_int_equal(inflateInit2(&z, 15 + 16), Z_OK); /* 16: only files of gzip */
	assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
	assert_int_equal(z.avail_in, 0);
	*ret_n = z.total_out;
	inflateEnd(&z);
	return bytes;
}

static void test_gzip_files(void **state)
{
	enum { N = 300000 };
	_cleanup_free_ char *random = xmalloc(N);
	static const size_t lengths[] = {0, 1, 1000, N};

	(void)state;
	random_bytes(random, N);
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		_cleanup_buf_ struct buf b = {0};
		_cleanup_free_ char *got = NULL;
		size_t n;

		buf_puts(&b, "head");
		assert_int_equal(buf_add_gzip(&b, random, lengths[i], 6), 0);
		got = content_of(b.data + 4, b.len - 4, N + 1, &n);
		assert_int_equal(n, lengths[i]);
		assert_memory_equal(got, random, n);
	}
}

static void test_a_gzip_file_that_does_not_fit(void **state)
{
	enum { N = 300000 };
	_cleanup_free_ char *random = xmalloc(N);
	_cleanup_buf_ struct buf b;

	(void)state;
	random_bytes(random, N);
	buf_init(&b, N);
	buf_puts(&b, "head");
	assert_int_equal(buf_add_gzip(&b, random, N, 1), -E2BIG);
	assert_true(b.failed);
	assert_string_equal(b.data, "head");
}

static void test_json_string_is_escaped(void **state)
{
	_cleanup_buf_ struct buf b;

	(void)state;
	buf_init(&b, 0);
	buf_json_string(&b, "a\"b\\c\n\x01z");
	assert_string_equal(b.data, "\"a\\\"b\\\\c\\n\\u0001z\"");
	/* DEL, and the first and the last control character above ASCII: a terminal obeys them */
	buf_reset(&b);
	buf_json_string(&b, "\x7f \xc2\x80 \xc2\x9b \xc2\x9f \xc2\xa0 \xc2");
	assert_string_equal(b.data,
			    "\"\\u007f \\u0080 \\u009b \\u009f \xc2\xa0 " UTF8_REPLACEMENT "\"");
	/*
	 * a single byte, a cut character, an overlong one, a surrogate, a code point above U+10FFFF
	 */
	buf_reset(&b);
	buf_json_string(&b, "\xff \xe2\x82 \xc0\xaf \xed\xa0\x80 \xf4\x90\x80\x80 \xe2\x82\xac");
#define R UTF8_REPLACEMENT
	assert_string_equal(b.data, "\"" R " " R R " " R R " " R R R " " R R R R " \xe2\x82\xac\"");
}

static void test_text_is_cut_between_characters(void **state)
{
	static const char text[] =
		"a\xc3\xa4\xe2\x82\xac\xf0\x9f\x94\xa5"; /* characters of 1, 2, 3 and 4 bytes */
	static const size_t kept[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10};
	static const char *const shortened[] = {"...",
						"a...",
						"a...",
						"a\xc3\xa4...",
						"a\xc3\xa4...",
						"a\xc3\xa4...",
						"a\xc3\xa4\xe2\x82\xac...",
						text,
						text};

	(void)state;
	for (size_t max = 0; max < ARRAY_SIZE(kept); max++)
		assert_int_equal(utf8_cut(text, max), kept[max]);
	for (size_t max = 3; max < 12; max++) {
		_cleanup_free_ char *s = utf8_shorten(text, max);

		assert_string_equal(s, shortened[max - 3]);
	}
}

static void test_numbers(void **state)
{
	uint64_t v = 7;

	(void)state;
	assert_int_equal(str_to_u64("123", 200, &v), 0);
	assert_int_equal(v, 123);
	assert_int_equal(str_to_u64("0xff", 255, &v), 0);
	assert_int_equal(v, 255);
	assert_int_equal(str_to_u64("256", 255, &v), -ERANGE);
	assert_int_equal(str_to_u64("99999999999999999999999", UINT64_MAX, &v), -ERANGE);
	assert_int_equal(str_to_u64("", 9, &v), -EINVAL);
	assert_int_equal(str_to_u64("-1", 9, &v), -EINVAL);
	assert_int_equal(str_to_u64(" 1", 9, &v), -EINVAL);
	assert_int_equal(v, 255);
}

static void test_durations(void **state)
{
	static const struct {
		const char *text;
		uint64_t ns;
		int r;
	} t[] = {
		{"50us", 50000, 0},
		{"1h", 3600000000000, 0},
		{"1h30m", 5400000000000, 0},
		{"1.5s", 1500000000, 0},
		{"600s", 600000000000, 0},
		{"0", 0, 0},
		{"5", 0, -EINVAL},
		{"", 0, -EINVAL},
		{"1d", 0, -EINVAL},
		{"-1s", 0, -EINVAL},
		{"99999999999h", 0, -ERANGE},
		{"18446744073.709551616s", 0, -ERANGE}, /* 2^64 ns */
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		uint64_t ns = 0;

		assert_int_equal(str_to_duration_ns(t[i].text, &ns), t[i].r);
		assert_int_equal(ns, t[i].ns);
	}
}

static void test_base64_and_hex(void **state)
{
	_cleanup_free_ uint8_t *p = NULL;
	uint8_t raw[4];
	char hex[9];
	size_t n;

	(void)state;
	assert_int_equal(base64_decode("aGVs\nbG8=", &p, &n), 0);
	assert_int_equal(n, 5);
	assert_memory_equal(p, "hello", 5);
	assert_int_equal(base64_decode("aGVs!", &p, &n), -EINVAL);
	assert_int_equal(hex_decode("deadBEEF", 4, raw, &n), 0);
	hex_encode(raw, 4, hex);
	assert_string_equal(hex, "deadbeef");
	assert_int_equal(hex_decode("abc", 4, raw, &n), -EINVAL);
	assert_int_equal(hex_decode("0011223344", 4, raw, &n), -E2BIG);
}

static void test_time(void **state)
{
	char text[32];
	uint64_t ns;

	(void)state;
	assert_int_equal(time_parse("2026-11-21T13:00:00.25Z", &ns), 0);
	assert_int_equal(ns, 1795266000250000000ULL);
	time_format(ns, text);
	assert_string_equal(text, "2026-11-21T13:00:00Z");
	assert_int_equal(time_parse("2026-11-21T14:00:00+01:00", &ns), 0);
	assert_int_equal(ns, 1795266000000000000ULL);
	assert_int_equal(time_parse("yesterday", &ns), -EINVAL);
	/* the year's nanoseconds do not fit into 64 bits */
	assert_int_equal(time_parse("9999-12-31T23:59:59Z", &ns), -ERANGE);
	assert_int_equal(time_parse("2500-01-01T00:00:00Z", &ns), 0);
	assert_int_equal(ns, UINT64_C(16725225600) * NSEC_PER_SEC);
}

static void test_file_limit(void **state)
{
	_cleanup_free_ char *data = NULL;
	size_t n;

	(void)state;
	assert_int_equal(file_read(AT_FDCWD, "/proc/self/stat", 1 << 20, &data, &n), 0);
	assert_true(n > 0 && data[n] == '\0');
	assert_int_equal(file_read(AT_FDCWD, "/proc/self/stat", 4, &data, &n), -E2BIG);
	assert_int_equal(file_read(AT_FDCWD, "/nowhere", 4, &data, &n), -ENOENT);
	assert_int_equal(mkdir_parents("/proc/self/stat", 0700), -ENOTDIR);
	assert_int_equal(mkdir_parents("/proc/self", 0700), 0);
}

static void test_an_object_is_found_by_a_member(void **state)
{
	json_t *all = json_loads("[1, {}, {\"a\": 5}, {\"a\": \"x\", \"n\": 1}, "
				 "{\"a\": \"x\", \"n\": 2}]",
				 0, NULL);

	(void)state;
	assert_int_equal(json_int_at(json_with(all, "a", "x"), "n", 0), 1);
	assert_null(json_with(all, "a", ""));
	assert_null(json_with(NULL, "a", "x"));
	json_decref(all);
}

static void test_yaml_types_and_positions(void **state)
{
	static const char text[] = "a: 1\nb:\n  c: [x, 'y', 2.5, true, null]\n  d: \"5\"\n";
	struct field_error err = {0};
	struct yaml_doc *d = NULL;
	unsigned line, column;

	(void)state;
	assert_int_equal(yaml_parse(text, sizeof(text) - 1, &d, &err), 0);
	assert_int_equal(json_int_at(yaml_root(d), "a", 0), 1);
	assert_string_equal(json_str_at(yaml_root(d), "b.d", ""), "5");
	assert_int_equal(json_array_size(json_at(yaml_root(d), "b.c")), 5);
	assert_int_equal(yaml_position(d, "b.c[2]", &line, &column), 0);
	assert_int_equal(line, 3);
	assert_int_equal(column, 15);
	assert_int_equal(yaml_position(d, "b.x", &line, &column), -ENOENT);
	yaml_doc_free(d);
}

/*
 * The position of an item with a long path is not kept, because otherwise a text of a megabyte
 * would need gigabytes of memory.
 */
static void test_yaml_keeps_no_long_positions(void **state)
{
	_cleanup_free_ char *key = xasprintf("%0300d", 0), *text = xasprintf("k%s: [1, 2]\n", key);
	_cleanup_free_ char *item = xasprintf("k%s[1]", key);
	struct yaml_doc *d = NULL;
	unsigned line, column;

	(void)state;
	assert_int_equal(yaml_parse(text, strlen(text), &d, NULL), 0);
	assert_int_equal(json_object_size(yaml_root(d)), 1);
	assert_int_equal(yaml_position(d, item, &line, &column), -ENOENT);
	yaml_doc_free(d);
}

/* If a key is longer than the limit of a path, no value below it has a position. */
static void test_yaml_key_above_the_longest_path(void **state)
{
	_cleanup_free_ char *text = xasprintf("? \"k%01100000d\"\n: [a, {b: c}]\n", 0);
	struct yaml_doc *d = NULL;

	(void)state;
	assert_int_equal(yaml_parse(text, strlen(text), &d, NULL), 0);
	assert_int_equal(json_object_size(yaml_root(d)), 1);
	yaml_doc_free(d);
}

static void test_yaml_refuses(void **state)
{
	static const struct {
		const char *text, *at;
	} t[] = {
		{"a: 1\na: 2\n", "2:1"}, {"a: [1, 2\n", "2:1"},	  {"a: &x 1\nb: *x\n", "2:4"},
		{"a:\n\tb: 1\n", "2:1"}, {"? [1]\n: 2\n", "1:3"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct field_error err = {0};
		struct yaml_doc *d = NULL;

		assert_int_equal(yaml_parse(t[i].text, strlen(t[i].text), &d, &err), -EINVAL);
		assert_string_equal(err.path, t[i].at);
		assert_true(*err.reason);
	}
}

static void test_yaml_all(void **state)
{
	_cleanup_json_ json_t *all = NULL;

	(void)state;
	assert_int_equal(yaml_parse_all("a: 1\n---\nb: 2\n", 14, &all, NULL), 0);
	assert_int_equal(json_array_size(all), 2);
}

/* Prometheus text has each metric once, with its meaning, in base units. */
static void test_counters_printed(void **state)
{
	_cleanup_buf_ struct buf b = {0};

	(void)state;
	counter_set(counter("worker_cpu_ns_total", "worker", "b"), 1500000000);
	counter_set(counter("worker_cpu_ns_total", "worker", "a\"\n"), 2 * NSEC_PER_SEC + 7);
	counter_set(counter("podflame_node_hz", NULL, NULL), 99);
	counter_set(counter("process_cpu_ns_total", NULL, NULL), 1);
	counters_print(&b);
	assert_non_null(strstr(b.data, "# HELP podflame_worker_cpu_seconds_total CPU time of a "
				       "worker's thread.\n"
				       "# TYPE podflame_worker_cpu_seconds_total counter\n"
				       "podflame_worker_cpu_seconds_total{worker=\"a\\\"\\n\"} "
				       "2.000000007\n"
				       "podflame_worker_cpu_seconds_total{worker=\"b\"} "
				       "1.500000000\n"));
	assert_non_null(strstr(b.data, "# TYPE podflame_node_hz gauge\npodflame_node_hz 99\n"));
	assert_non_null(strstr(b.data, "\nprocess_cpu_seconds_total 0.000000001\n"));
}

static void burn_a_stage(void)
{
	_stage_("t");

	for (volatile int i = 0; i < 1000000; i++)
		;
}

static void test_stages_are_counted(void **state)
{
	struct counter *c = counter("stage_cpu_ns_total", "stage", "t");
	uint64_t once;

	(void)state;
	burn_a_stage();
	once = counter_get(c);
	assert_true(once > 0);
	burn_a_stage();
	assert_true(counter_get(c) > once);
}

static void test_counters(void **state)
{
	struct counter *c = counter("t_total", "reason", "x");

	(void)state;
	counter_add(c, 3);
	counter_add(counter("t_total", "reason", "x"), 2);
	assert_int_equal(counter_get(c), 5);
	assert_ptr_not_equal(c, counter("t_total", "reason", "y"));
}

static void test_urls(void **state)
{
	static const struct {
		const char *text;
		bool tls;
		const char *host;
		uint16_t port;
		const char *path;
	} good[] = {
		{"http://hub", false, "hub", 80, ""},
		{"https://hub/", true, "hub", 443, ""},
		{"https://a_b-c.example:4318/a/b/", true, "a_b-c.example", 4318, "/a/b"},
		{"http://10.0.0.1:65535/a@b:c%20d", false, "10.0.0.1", 65535, "/a@b:c%20d"},
		{"https://[::1]", true, "::1", 443, ""},
		{"https://[fd00::1]:1/a", true, "fd00::1", 1, "/a"},
		{"http://[::ffff:10.0.0.1]/", false, "::ffff:10.0.0.1", 80, ""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		struct url u;

		assert_int_equal(url_parse(good[i].text, &u, NULL), 0);
		assert_int_equal(u.tls, good[i].tls);
		assert_string_equal(u.host, good[i].host);
		assert_int_equal(u.port, good[i].port);
		assert_string_equal(u.path, good[i].path);
		url_done(&u);
	}
}

static void test_urls_refused(void **state)
{
	static const char *const bad[][2] = {
		{"", "begins neither"},
		{"hub:4318", "begins neither"},
		{"ftp://hub", "begins neither"},
		{"http:/hub", "begins neither"},
		{" http://hub", "blank"},
		{"http://", "no host"},
		{"http:///a", "no host"},
		{"http://:80", "no host"},
		{"http://u@h", "user name"},
		{"http://u:p@h:80/a", "user name"},
		{"http://u@[::1]", "user name"},
		{"http://h?x", "query"},
		{"http://h/#x", "fragment"},
		{"http://h/a b", "blank"},
		{"http://h/\r\nX: y", "control"},
		{"http://h\x7f", "control"},
		{"http://h:", "port"},
		{"http://h:/a", "port"},
		{"http://h:0", "port"},
		{"http://h:080", "port"},
		{"http://h:0x50", "port"},
		{"http://h:65536", "port"},
		{"http://h:99999999999999999999", "port"},
		{"http://h:x", "port"},
		{"http://h:+1", "port"},
		{"http://[::1]:", "port"},
		{"http://[::1]:0", "port"},
		{"http://::1", "without brackets"},
		{"http://fd00::1", "without brackets"},
		{"http://fd00::1:8002/a", "without brackets"},
		{"http://[::1", "brackets"},
		{"http://[]", "brackets"},
		{"http://[hub]:80", "brackets"},
		{"http://[a:b]", "brackets"},
		{"http://[10.0.0.1]", "brackets"},
		{"http://[fe80::1%25eth0]", "brackets"},
		{"http://[::1]80", "valid host"},
		{"http://a[::1]", "valid host"},
		{"http://a%41", "valid host"},
		{"http://a\\b", "valid host"},
		{"http://h/[a]", "bracket in its path"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct url u = {.port = 7};
		struct field_error e;

		if (url_parse(bad[i][0], &u, &e) != -EINVAL)
			fail_msg("accepted %s", bad[i][0]);
		if (!strstr(e.reason, bad[i][1]))
			fail_msg("%s: %s", bad[i][0], e.reason);
		assert_int_equal(u.port, 7);
		assert_null(u.host);
	}
}

static void test_loopback(void **state)
{
	static const char *const here[] = {"localhost", "127.0.0.1", "127.255.0.9", "::1"},
				 *const elsewhere[] = {"",	  "hub",       "127.0.0.1.example",
						       "127.1",	  "128.0.0.1", "localhost.x",
						       "fd00::1", "0.0.0.0",   "::"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(here); i++)
		assert_true(url_is_loopback(here[i]));
	for (size_t i = 0; i < ARRAY_SIZE(elsewhere); i++)
		if (url_is_loopback(elsewhere[i]))
			fail_msg("%s is not this machine", elsewhere[i]);
}

/* ---- hash tables whose keys a pod chooses ---- */

struct key {
	uint32_t words[6];
	UT_hash_handle hh;
};

/* One round of Jenkins's hash (uthash's own, HASH_JEN). unmix() is its inverse. */
static void mix(uint32_t s[3])
{
	uint32_t a = s[0], b = s[1], c = s[2];

	a = (a - b - c) ^ c >> 13, b = (b - c - a) ^ a << 8, c = (c - a - b) ^ b >> 13;
	a = (a - b - c) ^ c >> 12, b = (b - c - a) ^ a << 16, c = (c - a - b) ^ b >> 5;
	a = (a - b - c) ^ c >> 3, b = (b - c - a) ^ a << 10, c = (c - a - b) ^ b >> 15;
	s[0] = a, s[1] = b, s[2] = c;
}

static void unmix(uint32_t s[3])
{
	uint32_t a = s[0], b = s[1], c = s[2];

	c = (c ^ b >> 15) + a + b, b = (b ^ a << 10) + c + a, a = (a ^ c >> 3) + b + c;
	c = (c ^ b >> 5) + a + b, b = (b ^ a << 16) + c + a, a = (a ^ c >> 12) + b + c;
	c = (c ^ b >> 13) + a + b, b = (b ^ a << 8) + c + a, a = (a ^ c >> 13) + b + c;
	s[0] = a, s[1] = b, s[2] = c;
}

/*
 * Makes a key that differs for each i, but has the same hash (HASH_JEN) for every i: its last 12
 * bytes bring the hash to the same state.
 */
static void make_key(uint32_t i, struct key *k)
{
	uint32_t state[3] = {0x9e3779b9u + i, 0x9e3779b9u, 0xfeedbeefu}, same[3] = {1, 2, 3};

	mix(state);
	unmix(same);
	*k = (struct key){
		.words = {i, 0, 0, same[0] - state[0], same[1] - state[1], same[2] - state[2]}};
}

static void test_keys_that_were_chosen_do_not_meet(void **state)
{
	enum { N_KEYS = 4000 };
	struct key *keys = xcalloc(N_KEYS, sizeof(*keys)), *table = NULL, *found;
	unsigned longest = 0, first = 0, hash;

	(void)state;
	for (uint32_t i = 0; i < N_KEYS; i++) {
		make_key(i, &keys[i]);
		HASH_JEN(keys[i].words, sizeof(keys[i].words), hash);
		first = i ? first : hash;
		assert_int_equal(hash, first); /* all keys collide with uthash's own function */
		HASH_ADD(hh, table, words, sizeof(keys[i].words), &keys[i]);
	}
	for (uint32_t i = 0; i < N_KEYS; i++) {
		HASH_FIND(hh, table, keys[i].words, sizeof(keys[i].words), found);
		assert_ptr_equal(found, &keys[i]);
	}
	for (unsigned i = 0; i < table->hh.tbl->num_buckets; i++)
		longest = MAX(longest, table->hh.tbl->buckets[i].count);
	assert_true(longest <= 40); /* an average bucket has at most ten entries */
	HASH_CLEAR(hh, table);
	free(keys);
}

/*
 * Returns n objects such as {"k0": "v", ...} with n_members members each: a tenant can make such an
 * object.
 */
static json_t *many(unsigned n, unsigned n_members, json_t *(*value)(void))
{
	json_t *list = json_array();
	char key[16];

	for (unsigned i = 0; i < n; i++) {
		json_t *o = json_object();

		for (unsigned k = 0; k < n_members; k++) {
			snprintf(key, sizeof(key), "k%u", k);
			json_object_set_new(o, key, value());
		}
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *short_text(void)
{
	return json_string("v");
}

static json_t *list_of_numbers(void)
{
	return json_pack("[i, f, b, n]", 1, 0.5, 1);
}

static void test_memory_of_json(void **state)
{
	static const unsigned shapes[][2] = {{1, 100000}, {10000, 0}, {10000, 1}, {1000, 20}};

	(void)state;
	for (size_t i = 0; i < 2 * ARRAY_SIZE(shapes); i++) {
		/* real is 0 with ASan: mallinfo2() does not count its heap */
		size_t before = mallinfo2().uordblks, real, told;
		_cleanup_json_ json_t *j = many(shapes[i / 2][0], shapes[i / 2][1],
						i % 2 ? list_of_numbers : short_text);

		real = mallinfo2().uordblks - before;
		told = json_memory_bytes(j);
		if (real)
			assert_in_range(told, real * 3 / 4, real * 4 / 3);
	}
}

static void test_what_is_kept_of_json(void **state)
{
	_cleanup_json_ json_t *j = many(1, 50000, short_text), *want = NULL;
	json_t *big = json_incref(json_array_get(j, 0));

	(void)state;
	json_object_set_new(big, "", json_true());
	want = json_loads("{\"list\": [{\"k2\": \"v\"}, 1, {}], \"map\": {\"k10\": \"v\", "
			  "\"k2\": \"v\"}, \"text\": \"k2\"}",
			  0, NULL);
	json_decref(j);
	j = json_pack("{s:[O, i, {}], s:o, s:s}", "list", big, 1, "map", big, "text", "k2");
	json_keep(j, "list", "k2");
	json_keep(j, "map", " k2  k10 k");
	json_keep(j, "text", "k2");
	json_keep(j, "absent", "k2");
	assert_true(json_equal(j, want));
	assert_true(json_memory_bytes(j) < 3000);
	json_keep(j, "map", "");
	assert_int_equal(json_object_size(json_object_get(j, "map")), 0);
	json_keep(json_object_get(j, "absent"), "map", "k2");
}

static void asserts_two(void *arg)
{
	assert_se(*(const int *)arg == 2);
}

static void takes(void *n)
{
	ref_take(n);
}

static void drops(void *n)
{
	(void)ref_drop(n);
}

static void test_reference_to_what_is_gone_aborts(void **state)
{
	unsigned n = 1;

	(void)state;
	ref_take(&n);
	assert_false(ref_drop(&n));
	assert_true(ref_drop(&n));
	assert_aborts(takes, &n, "lib/base/base.h:");
	assert_aborts(drops, &n, "before > 0");
}

static void test_assertion_says_where_and_aborts(void **state)
{
	int two = 2, three = 3;

	(void)state;
	asserts_two(&two);
	assert_aborts(asserts_two, &three, "agent/lib/base/base_test.c:");
	assert_aborts(asserts_two, &three, ": assertion failed: *(const int *)arg == 2");
}

static void test_utf8_is_repaired(void **state)
{
	_cleanup_free_ char *cut = utf8_repaired("a\xc3"), *two = utf8_repaired("\xff\xfe"
										"b");
	_cleanup_buf_ struct buf b = {0};

	(void)state;
	assert_null(utf8_repaired("n\xc3\xa4"));
	assert_string_equal(cut, "a" UTF8_REPLACEMENT);
	assert_string_equal(two, UTF8_REPLACEMENT UTF8_REPLACEMENT "b");
	buf_put_utf8(&b, 'a');
	buf_put_utf8(&b, 0xe4);
	buf_put_utf8(&b, 0x20ac);
	buf_put_utf8(&b, 0x1f40d);
	assert_string_equal(b.data, "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x90\x8d");
}

static void test_varints(void **state)
{
	static const uint8_t bytes[] = {0x96, 1,    0xff, 0xff, 0xff, 0xff, 0xff,
					0xff, 0xff, 0xff, 0xff, 1,    0x80};
	static const uint8_t over[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2};
	const uint8_t *p = bytes, *end = bytes + sizeof(bytes), *q = over;
	uint64_t v;

	(void)state;
	assert_true(varint_read(&p, end, &v) && v == 150);
	assert_true(varint_read(&p, end, &v) && v == UINT64_MAX);
	assert_false(varint_read(&p, end, &v)); /* cut */
	assert_false(varint_read(&q, over + sizeof(over), &v));
}

/* What is written is read again, and has as many bytes as it needs. */
static void test_varints_are_written(void **state)
{
	static const uint64_t numbers[] = {0,	   1,	       0x7f,	   0x80,       0x3fff,
					   0x4000, UINT32_MAX, 1ULL << 62, 1ULL << 63, UINT64_MAX};
	static const size_t n_bytes[] = {1, 1, 1, 2, 2, 3, 5, 9, 10, 10};
	_cleanup_buf_ struct buf b = {0}, small = {.max_bytes = 2};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		const uint8_t *p;
		uint64_t v;

		buf_reset(&b);
		assert_int_equal(buf_put_varint(&b, numbers[i]), 0);
		assert_int_equal(b.len, n_bytes[i]);
		p = (const uint8_t *)b.data;
		assert_true(varint_read(&p, p + b.len, &v) && v == numbers[i]);
	}
	assert_int_equal(buf_put_varint(&small, 0x4000), -E2BIG);
	assert_int_equal(small.len, 0); /* nothing of it */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_utf8_is_repaired),
		cmocka_unit_test(test_varints),
		cmocka_unit_test(test_varints_are_written),
		cmocka_unit_test(test_memory_of_json),
		cmocka_unit_test(test_what_is_kept_of_json),
		cmocka_unit_test(test_buf_keeps_its_limit),
		cmocka_unit_test(test_buf_keeps_to_its_budget),
		cmocka_unit_test(test_gzip_files),
		cmocka_unit_test(test_a_gzip_file_that_does_not_fit),
		cmocka_unit_test(test_json_string_is_escaped),
		cmocka_unit_test(test_text_is_cut_between_characters),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_durations),
		cmocka_unit_test(test_base64_and_hex),
		cmocka_unit_test(test_urls),
		cmocka_unit_test(test_urls_refused),
		cmocka_unit_test(test_loopback),
		cmocka_unit_test(test_time),
		cmocka_unit_test(test_file_limit),
		cmocka_unit_test(test_an_object_is_found_by_a_member),
		cmocka_unit_test(test_yaml_types_and_positions),
		cmocka_unit_test(test_yaml_keeps_no_long_positions),
		cmocka_unit_test(test_yaml_key_above_the_longest_path),
		cmocka_unit_test(test_yaml_refuses),
		cmocka_unit_test(test_yaml_all),
		cmocka_unit_test(test_counters),
		cmocka_unit_test(test_counters_printed),
		cmocka_unit_test(test_stages_are_counted),
		cmocka_unit_test(test_keys_that_were_chosen_do_not_meet),
		cmocka_unit_test(test_assertion_says_where_and_aborts),
		cmocka_unit_test(test_reference_to_what_is_gone_aborts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
