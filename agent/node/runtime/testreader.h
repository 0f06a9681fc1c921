/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: a program that is its own reader child, with a table of runtimes of its own. */
#pragma once

#include "lib/child/child.h"
#include "node/runtime/ask_format.h"

/* What the child answers to a question about runtimes and names. */
static inline int testreader_answer(const void *message, size_t n, const int fds[2])
{
	const struct reader_head *head = message;

	return head->what == READ_RUNTIMES ? runtime_answer_learn(message, n, fds[0], fds[1])
					   : runtime_answer_names(message, n, fds[0]);
}

/* The child's main(). */
static inline int testreader_main(const char *verb,
				  int (*answer)(const void *message, size_t n, const int fds[2]))
{
	static _Alignas(8) char message[READER_MESSAGE_MAX];
	int r = child_begin(verb, "podflame-reader", &runtime_reader_rights);

	while (!r) {
		int fds[2] = {-1, -1};
		size_t n, n_fds;

		r = child_receive(CHILD_SOCKET_FD, message, sizeof(message), &n, fds, 2, &n_fds);
		if (!r)
			r = answer(message, n, fds);
		closep(&fds[0]);
		closep(&fds[1]);
	}
	return r;
}
