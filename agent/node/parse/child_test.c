/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests what a hostile file costs. For each kind of file, the child is killed or stopped, or the
 * file is truncated (each a "blow"), while the child reads the file. The child also reads damaged
 * files of each kind. The test program is its own child (PARSE_CHILD_VERB).
 */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "lib/base/testfolder.h"
#include "node/parse/format.h"
#include "node/parse/testkinds.h"

#define TIMEOUT_NS (300 * NSEC_PER_MSEC)
#define HEAP_SLACK 16384 /* bytes that malloc may keep in caches; a leaked index is larger */
#define CUTS	   20
#define FLIPS	   200
#define TRIES	   20 /* tries to hit the child before it has read the file, on a busy machine */

static struct parser *new_parser(uint64_t timeout_ns)
{
	struct parser_config c = {.timeout_ns = timeout_ns};
	struct parser *p;

	assert_int_equal(parse_new(&c, &p), 0);
	return p;
}

static int parse(struct parser *p, const struct test_kind *k, const struct test_files *t,
		 struct elf_index **ret)
{
	int dwo_fds[PARSE_FDS_MAX - 2];
	struct parse_debug_files f = {t->main_fd, t->debug_fd, dwo_fds, ARRAY_SIZE(dwo_fds)};

	if (!k->debug)
		return parse_elf(p, t->main_fd, ret);
	for (size_t i = 0; i < ARRAY_SIZE(dwo_fds); i++)
		dwo_fds[i] = t->dwo_fd;
	return parse_debug(p, &f, ret);
}

/* ---- what the child did ---- */

static uint64_t failures(const char *word)
{
	return counter_get(counter("podflame_parse_failures_total", "reason", word));
}

/* Asserts that the reader of this kind has found at least one item, and returns how many. */
static size_t assert_found(const struct test_kind *k, struct elf_index *i)
{
	struct elf_tables tables;
	size_t n;

	elf_index_tables(i, &tables);
	if (streq(k->name, "notes"))
		n = streq(elf_index_build_id(i), "abcd");
	else if (strstr(k->name, "frame"))
		n = tables.n_rows;
	else
		n = elf_index_n_symbols(i);
	assert_true(n > 0);
	elf_index_unref(i);
	return n;
}

/*
 * Asserts that the child works as before. On a busy machine, reading may take longer than the
 * timeout, so this tries again.
 */
static void assert_works(struct parser *p, const struct test_kind *k, const struct test_files *t,
			 size_t found)
{
	struct elf_index *i;
	int r = -ETIMEDOUT;

	for (int tries = 0; r == -ETIMEDOUT && tries < TRIES; tries++)
		r = parse(p, k, t, &i);
	assert_int_equal(r, 0);
	assert_string_equal(parse_reason(p), "");
	assert_int_equal(assert_found(k, i), found);
}

/* Returns the CPU time that a child needs for a file, without its start. */
static uint64_t cpu_of(const struct test_kind *k, const struct test_files *t)
{
	struct parser *p = new_parser(60 * NSEC_PER_SEC);
	uint64_t started = program_cpu_ns(test_child_waits(1)), before = test_ended_cpu_ns();
	struct elf_index *i;

	assert_int_equal(parse(p, k, t, &i), 0);
	assert_found(k, i);
	before = test_ended_cpu_ns() - before;
	assert_int_equal(parse_restarts(p), 0);
	parse_free(p);
	return before - MIN(started, before);
}

/* ---- a blow in the middle of a file ---- */

struct owned { /* what the test program has open or allocated */
	size_t fds, maps, heap;
};

static size_t count_entries(const char *path)
{
	DIR *d = opendir(path);
	size_t n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static struct owned owned_now(void)
{
	return (struct owned){count_entries("/proc/self/fd"), count_entries("/proc/self/map_files"),
			      mallinfo2().uordblks};
}

/*
 * Gives the file to a new parser, and hits the child (or the file) after ns of CPU time. Returns
 * the parser's answer; -EAGAIN: the child was ready before the blow, each time.
 */
static int hit(const struct test_kind *k, struct test_files *t, uint64_t ns, enum test_blow blow,
	       struct parser **ret)
{
	for (int tries = 0; tries < TRIES; tries++) {
		struct parser *p = new_parser(blow == TEST_STOP ? TIMEOUT_NS : 0);
		pid_t child = test_child_waits(1);
		pid_t striker = test_strike(child, ns, blow, *test_files_subject(t));
		struct elf_index *i;
		int r = parse(p, k, t, &i);

		test_strike_done(striker);
		if (r == 0)
			elf_index_unref(i);
		if (r < 0 || blow == TEST_TRUNCATE) {
			assert_int_equal(kill(child, 0), -1); /* it has ended after its only file */
			*ret = p;
			return r;
		}
		parse_free(p);
	}
	return -EAGAIN;
}

/*
 * If the child is killed or stopped, only the file that it was reading fails, with one reason. The
 * parser loses one child, and reads the next file as before.
 */
static void costs_one_file(const struct test_kind *k, struct test_files *big,
			   struct test_files *small, uint64_t ns, size_t found, enum test_blow blow)
{
	const char *reason = blow == TEST_KILL ? "child_died" : "timeout";
	uint64_t before = failures(reason);
	struct parser *p = NULL;

	assert_int_equal(hit(k, big, ns, blow, &p), blow == TEST_KILL ? -EPIPE : -ETIMEDOUT);
	assert_string_equal(parse_reason(p), reason);
	assert_int_equal(failures(reason), before + 1);
	assert_int_equal(parse_restarts(p), 1);
	assert_works(p, k, small, found);
	if (blow == TEST_KILL)
		assert_int_equal(parse_restarts(p), 1);
	parse_free(p);
}

/* Truncates the big file while the child reads it. */
static void cut_off(const struct test_kind *k, struct test_files *big, struct test_files *small,
		    uint64_t ns, size_t found)
{
	struct parser *p = NULL;
	int r = hit(k, big, ns, TEST_TRUNCATE, &p);

	assert_true(r == 0 || *parse_reason(p));
	assert_int_equal(parse_restarts(p), r == -EPIPE);
	print_message("%s: file cut off at work: %s\n", k->name, r ? parse_reason(p) : "no loss");
	assert_works(p, k, small, found);
	parse_free(p);
}

static void hit_in_the_middle_it_costs_one_file(void **state)
{
	const struct test_kind *k = *state;
	struct test_files small = test_kind_make(k, dir, 1);
	struct test_files big = test_kind_make(k, dir, k->copies);
	struct parser *p = new_parser(0);
	struct owned before, after;
	struct elf_index *i;
	uint64_t ns;
	size_t found, n;

	assert_int_equal(parse(p, k, &small, &i), 0);
	found = assert_found(k, i);
	parse_free(p);
	ns = cpu_of(k, &big);
	print_message("%s: %.1f ms of CPU time\n", k->name, ns / 1e6);
	/* all but this kind's reader takes < 1/3, so at half time the child is in that reader */
	assert_true(ns > 3 * cpu_of(k, &small));
	/* creates the counters now, because owned_now() measures the heap next */
	failures("child_died");
	failures("timeout");
	before = owned_now();
	costs_one_file(k, &big, &small, ns / 2, found, TEST_KILL);
	costs_one_file(k, &big, &small, ns / 2, found, TEST_STOP);
	cut_off(k, &big, &small, ns / 2, found);
	after = owned_now();
	assert_int_equal(after.fds, before.fds);
	assert_int_equal(after.maps, before.maps);
	assert_true(after.heap < before.heap + HEAP_SLACK);
	assert_int_equal(test_children(&n), 0);
	test_files_done(&small);
	test_files_done(&big);
}

/* ---- damaged ---- */

#define RANGES_MAX 64
struct subject { /* the bytes of a private file that a test may change */
	struct test_files files;
	int fd;
	char *data;
	size_t n, n_ranges;
	struct {
		size_t start, n;
	} ranges[RANGES_MAX];
};

static void find_ranges(struct subject *s, const char *prefix)
{
	const Elf64_Ehdr *e = (const Elf64_Ehdr *)s->data;
	const Elf64_Shdr *h = (const Elf64_Shdr *)(s->data + e->e_shoff);

	for (int i = 0; i < e->e_shnum && s->n_ranges < RANGES_MAX; i++) {
		const char *name = s->data + h[e->e_shstrndx].sh_offset + h[i].sh_name;

		if (*prefix && strncmp(name, prefix, strlen(prefix)) == 0 &&
		    h[i].sh_type != SHT_NOBITS && h[i].sh_size) {
			s->ranges[s->n_ranges].start = h[i].sh_offset;
			s->ranges[s->n_ranges++].n = h[i].sh_size;
		}
	}
	if (!*prefix) {
		s->n_ranges = 2;
		s->ranges[0].n = sizeof(*e) + e->e_phnum * sizeof(Elf64_Phdr);
		s->ranges[1].n = s->n;
	}
	assert_true(s->n_ranges > 0);
}

static struct subject subject_of(const struct test_kind *k)
{
	struct subject s = {.files = test_kind_make(k, dir, 1)};
	int *fd = test_files_subject(&s.files);

	s.fd = memfd_create("damaged", MFD_CLOEXEC);
	assert_true(s.fd >= 0);
	s.n = lseek(*fd, 0, SEEK_END);
	s.data = xmalloc(s.n);
	assert_int_equal(pread(*fd, s.data, s.n, 0), s.n);
	assert_int_equal(fd_write_all(s.fd, s.data, s.n), 0);
	close(*fd);
	*fd = s.fd;
	find_ranges(&s, k->section);
	return s;
}

/*
 * Reads a damaged file: the parse may fail with a reason, or the child may die, but it must not
 * take long.
 */
static void read_damaged(struct parser *p, const struct test_kind *k, const struct subject *s,
			 unsigned results[3])
{
	uint64_t start = now_mono_ns(), restarts = parse_restarts(p);
	struct elf_index *i;
	int r = parse(p, k, &s->files, &i);
	bool lost = parse_restarts(p) != restarts;

	if (r == 0)
		elf_index_unref(i);
	assert_true(r == 0 || *parse_reason(p));
	assert_true(!lost || r == -ETIMEDOUT || r == -EPIPE ||
		    streq(parse_reason(p), "answer_refused"));
	assert_true(parse_restarts(p) <= restarts + 1);
	assert_true(now_mono_ns() - start < 20 * TIMEOUT_NS); /* 6 s, for slow machines */
	results[lost ? 2 : r < 0]++;
	if (lost)
		print_message("%s: a child lost: %s\n", k->name, parse_reason(p));
}

static uint64_t random_of(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	return *seed ^= *seed << 17;
}

/* Changes one to eight bytes of a section, and reads the file. */
static void flip(struct parser *p, const struct test_kind *k, const struct subject *s,
		 uint64_t *seed, unsigned results[3])
{
	size_t which = random_of(seed) % s->n_ranges, start = s->ranges[which].start;

	for (size_t n = 1 + random_of(seed) % 8; n; n--) {
		uint8_t byte = random_of(seed);

		assert_int_equal(
			pwrite(s->fd, &byte, 1, start + random_of(seed) % s->ranges[which].n), 1);
	}
	read_damaged(p, k, s, results);
	assert_int_equal(pwrite(s->fd, s->data + start, s->ranges[which].n, start),
			 s->ranges[which].n);
}

static void damaged_it_costs_its_time_at_most(void **state)
{
	const struct test_kind *k = *state;
	struct subject s = subject_of(k);
	struct parser *p = new_parser(TIMEOUT_NS);
	unsigned flips[3] = {0}, cuts[3] = {0};
	uint64_t seed = 0x706f64666c616d65;
	struct elf_index *i;
	size_t found;

	assert_int_equal(parse(p, k, &s.files, &i), 0);
	found = assert_found(k, i);
	for (int times = 0; times < FLIPS; times++)
		flip(p, k, &s, &seed, flips);
	assert_works(p, k, &s.files, found);
	for (int cut = CUTS - 1; cut >= 0; cut--) {
		assert_int_equal(ftruncate(s.fd, s.n * cut / CUTS), 0);
		read_damaged(p, k, &s, cuts);
	}
	assert_int_equal(pwrite(s.fd, s.data, s.n, 0), s.n);
	assert_works(p, k, &s.files, found);
	print_message("%s: %d damaged: %u read, %u refused, %u children lost; "
		      "%d cut: %u read, %u refused, %u children lost\n",
		      k->name, FLIPS, flips[0], flips[1], flips[2], CUTS, cuts[0], cuts[1],
		      cuts[2]);
	parse_free(p);
	free(s.data);
	test_files_done(&s.files);
}

int main(int argc, char **argv)
{
	struct CMUnitTest tests[2 * ARRAY_SIZE(test_kinds)];
	size_t n = 0;

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	for (size_t i = 0; i < ARRAY_SIZE(test_kinds); i++) {
		void *kind = (void *)&test_kinds[i];

		tests[n++] = (struct CMUnitTest)cmocka_unit_test_prestate(
			hit_in_the_middle_it_costs_one_file, kind);
		tests[n++] = (struct CMUnitTest)cmocka_unit_test_prestate(
			damaged_it_costs_its_time_at_most, kind);
	}
	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
