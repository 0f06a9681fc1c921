/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a parse child can do that hostile bytes have taken over: nothing. The test program is its
 * own child. It gives up its rights as the parse child does, and then makes one attempt.
 */
#include "node/parse/build.h"
#include "node/parse/parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/child/testescapes.h"

#define ANSWER_NS (10 * NSEC_PER_SEC)
/* Attempts that are no row of the table. */
enum { STAT_BY_PATH = -1, STAT_BY_DIRECTORY = -2, MUCH_MEMORY = -3, A_LARGE_FILE = -4 };

static struct escape_outside outside;

/* ---- the child ---- */

struct question {
	struct escape_outside outside;
	int attempt;
};

/* Returns 0 if the size of the file is known, else -errno. */
static int stat_path(int dir_fd, const char *path)
{
	struct stat st = {.st_size = -1};

	if (syscall(SYS_newfstatat, dir_fd, path, &st, AT_EMPTY_PATH) < 0)
		return -errno;
	return st.st_size == -1;
}

static int take_memory(void)
{
	return mmap(NULL, 8ul << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
			       MAP_FAILED
		       ? -errno
		       : 0;
}

static int fill_file(void)
{
	int fd = memfd_create("escape", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	return pwrite(fd, "x", 1, 64l << 30) == 1 ? 0 : -errno;
}

static int attempt(struct question *q)
{
	static struct escape_list all;

	switch (q->attempt) {
	case STAT_BY_PATH:
		return stat_path(AT_FDCWD, q->outside.file);
	case STAT_BY_DIRECTORY:
		return stat_path(CHILD_SOCKET_FD, "..");
	case MUCH_MEMORY:
		return take_memory();
	case A_LARGE_FILE:
		return fill_file();
	default:
		escapes(&q->outside, &all);
		return escape_try(&all.items[q->attempt]);
	}
}

static int child_main(void)
{
	struct question q;
	size_t n, n_fds;
	int r = parse_child_begin();

	if (r)
		return r;
	for (;;) {
		if (child_receive(CHILD_SOCKET_FD, &q, sizeof(q), &n, NULL, 0, &n_fds) < 0)
			_exit(0);
		r = attempt(&q);
		child_send(CHILD_SOCKET_FD, &r, sizeof(r), NULL, 0);
	}
}

/* ---- the owner ---- */

static struct child *new_child(void)
{
	static const char *const argv[] = {PARSE_CHILD_VERB, NULL};
	const struct child_config c = {.argv = argv, .restarts = "restarts", .stuck = "stuck"};

	return child_new(&c);
}

/* Returns what the attempt gave in the child; -EPIPE: the kernel has killed the child. */
static int ask(struct child *c, int number)
{
	const struct question q = {outside, number};
	size_t n;
	int r, answer;

	assert_int_equal(child_ask(c, &q, sizeof(q), NULL, 0), 0);
	r = child_answer(c, ANSWER_NS, &answer, sizeof(answer), &n, NULL);
	if (r < 0)
		child_lose(c);
	child_forget_losses(c);
	return r < 0 ? r : answer;
}

static void no_system_call_leads_out(void **state)
{
	struct child *c = new_child();
	static struct escape_list all;
	size_t n_tried = 0, n_out = 0;

	(void)state;
	escapes(&outside, &all);
	for (size_t i = 0; i < all.n; i++) {
		int r;

		if (!(all.items[i].where & IN_PARSER))
			continue;
		n_tried++;
		r = ask(c, (int)i);
		if (r == -EPIPE)
			continue;
		print_error("%s: %s\n", all.items[i].name, r < 0 ? strerror(-r) : "it works");
		n_out++;
	}
	assert_true(n_tried > 70);
	assert_int_equal(n_out, 0);
	child_free(c);
}

/* fstat() works, and fstatat() says nothing of a path, whatever its flags are. */
static void no_path_is_looked_up(void **state)
{
	struct child *c = new_child();

	(void)state;
	assert_int_equal(ask(c, STAT_BY_PATH), -EBADF); /* of AT_FDCWD */
	assert_int_equal(ask(c, STAT_BY_DIRECTORY), 0); /* of the descriptor, not of "..", */
	assert_int_equal(child_restarts(c), 0);
	child_free(c);
}

static void memory_and_files_have_a_limit(void **state)
{
	struct child *c = new_child();

	(void)state;
	assert_int_equal(ask(c, MUCH_MEMORY), -ENOMEM);
	assert_int_equal(ask(c, A_LARGE_FILE), -EFBIG);
	assert_int_equal(child_restarts(c), 0);
	child_free(c);
}

static int start(void **state)
{
	(void)state;
	escape_outside_start(&outside);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	escape_outside_stop(&outside);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_system_call_leads_out),
		cmocka_unit_test(no_path_is_looked_up),
		cmocka_unit_test(memory_and_files_have_a_limit),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return child_main();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	print_message("skipped: a child with a sanitizer has no sandbox\n");
	return 0;
#endif
	return cmocka_run_group_tests(tests, start, stop);
}
