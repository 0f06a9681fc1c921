/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: a test program that is its own child, gives up its rights as a child of podflame
 * does, and then makes one attempt of testescapes.h after the other.
 */
#pragma once

#include "lib/child/child.h"
#include "lib/child/testescapes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define ESCAPE_VERB	 "__escape" /* argv[1] of the child */
#define ESCAPE_ANSWER_NS (10 * NSEC_PER_SEC)

struct escape_question {
	struct escape_outside outside;
	int attempt; /* a row of the table, or one of the test's own, which are below 0 */
};

/* ---- the child ---- */

/*
 * begin: gives up the rights. own: makes an attempt below 0, and returns 0 or -errno; NULL: there
 * is none. For main().
 */
static inline int escape_child_main(int (*begin)(void), int (*own)(const struct escape_question *))
{
	static struct escape_list all;
	struct escape_question q;
	size_t n, n_fds;
	int r = begin();

	if (r)
		return r;
	while (child_receive(CHILD_SOCKET_FD, &q, sizeof(q), &n, NULL, 0, &n_fds) == 0) {
		escapes(&q.outside, &all);
		r = q.attempt < 0 ? own(&q) : escape_try(&all.items[q.attempt]);
		child_send(CHILD_SOCKET_FD, &r, sizeof(r), NULL, 0);
	}
	_exit(0);
}

/* ---- the owner ---- */

/* What the attempts aim at. Setup and teardown of a group of tests start and stop it. */
static struct escape_outside escape_outside;

static inline int escape_setup(void **state)
{
	(void)state;
	escape_outside_start(&escape_outside);
	return 0;
}

static inline int escape_teardown(void **state)
{
	(void)state;
	escape_outside_stop(&escape_outside);
	return 0;
}

static inline struct child *escape_child_new(void)
{
	static const char *const argv[] = {ESCAPE_VERB, NULL};
	static const struct child_config c = {
		.argv = argv, .restarts = "restarts", .stuck = "stuck"};

	return child_new(&c);
}

/* Returns what the attempt gave in the child; -EPIPE: the kernel has killed the child. */
static inline int escape_ask(struct child *c, int number)
{
	const struct escape_question q = {escape_outside, number};
	size_t n;
	int r, answer;

	assert_int_equal(child_ask(c, &q, sizeof(q), NULL, 0), 0);
	r = child_answer(c, ESCAPE_ANSWER_NS, &answer, sizeof(answer), &n, NULL);
	if (r < 0)
		child_lose(c);
	child_forget_losses(c);
	return r < 0 ? r : answer;
}

/* Checks that the kernel kills the child at each attempt of the table that `where` must refuse. */
static inline void escape_assert_none(unsigned where, size_t n_min)
{
	struct child *c = escape_child_new();
	static struct escape_list all;
	size_t n_tried = 0, n_out = 0;

	escapes(&escape_outside, &all);
	for (size_t i = 0; i < all.n; i++) {
		int r;

		if (!(all.items[i].where & where))
			continue;
		n_tried++;
		r = escape_ask(c, (int)i);
		if (r == -EPIPE)
			continue;
		print_error("%s: %s\n", all.items[i].name, r < 0 ? strerror(-r) : "it works");
		n_out++;
	}
	assert_true(n_tried > n_min);
	assert_int_equal(n_out, 0);
	child_free(c);
}
