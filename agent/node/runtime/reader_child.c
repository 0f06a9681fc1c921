/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child that parses bytes of processes. In an endless loop it receives a question with a
 * descriptor, and answers with messages. It allocates no memory: its buffers are static. It ends
 * when the agent ends, or at the first call that the sandbox forbids.
 */
#include "node/runtime/reader.h"

#include "lib/child/child.h"
#include "node/runtime/perfmap/perfmap.h"

#include <seccomp.h>
#include <unistd.h>

#define DATA_BYTES (16ull << 20)
/* A child is replaced after CHILD_POOL_QUESTIONS questions, long before it has used this time. */
#define CPU_S 60

const char runtime_reader_verb[] = "__read";

static const int calls[] = {
	SCMP_SYS(recvmsg), SCMP_SYS(sendmsg),	 SCMP_SYS(pread64),
	SCMP_SYS(close),   SCMP_SYS(exit_group), SCMP_SYS(rt_sigreturn),
};

const struct child_rights runtime_reader_rights = {
	.data_bytes = DATA_BYTES,
	.n_fds = CHILD_SOCKET_FD + 2,
	.cpu_s = CPU_S,
	.calls = calls,
	.n_calls = ARRAY_SIZE(calls),
};

/* Answers one question. -errno: the child cannot go on. */
static int answer(const void *message, size_t n, int fd)
{
	const struct reader_head *head = message;

	if (n < sizeof(*head) || head->what != READ_PERF_MAP)
		return -EBADMSG;
	return runtime_perf_answer(message, n, fd);
}

static int child_main(void)
{
	static _Alignas(8) char message[READER_MESSAGE_MAX];
	int r = child_begin(runtime_reader_verb, "podflame-reader", &runtime_reader_rights);

	while (!r) {
		size_t n, n_fds;
		int fd = -1;

		r = child_receive(CHILD_SOCKET_FD, message, sizeof(message), &n, &fd, 1, &n_fds);
		if (!r && n_fds != 1)
			r = -EBADMSG;
		if (!r)
			r = answer(message, n, fd);
		closep(&fd);
	}
	return r < 0 ? 1 : r;
}

__attribute__((constructor)) static void be_child(int argc, char **argv)
{
	if (argc == 2 && streq(argv[1], runtime_reader_verb))
		_exit(child_main());
}
