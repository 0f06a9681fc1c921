/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child that parses bytes of processes. In an endless loop it receives a question with one or
 * two descriptors, and answers with messages. It ends when the agent ends, or at the first call
 * that the sandbox forbids.
 */
#include "node/runtime/ask_format.h"

#include "lib/child/child.h"
#include "node/runtime/go/go_heap_format.h"
#include "node/runtime/perfmap/perfmap.h"

#include <seccomp.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * The largest that is needed: the caches (18 MiB), and a look (4 MiB) with code that is searched
 * for Lua (6 MiB), or with rows of generated code (16 MiB while they are sorted, and an index of 8
 * MiB), or the counts of a Go program's heap profile (9 MiB).
 */
#define DATA_BYTES (64ull << 20)
/* A child is replaced after CHILD_QUESTIONS_MAX questions, long before it has used this time. */
#define CPU_S	120
#define FDS_MAX 2 /* of one question */

const char runtime_reader_verb[] = "__read";

static const int calls[] = {
	SCMP_SYS(recvmsg),    SCMP_SYS(sendmsg),      SCMP_SYS(pread64), SCMP_SYS(close),
	SCMP_SYS(exit_group), SCMP_SYS(rt_sigreturn), SCMP_SYS(brk),	 SCMP_SYS(munmap),
	SCMP_SYS(sysinfo), /* qsort() asks how much memory there is */
};

/* malloc() may have memory that is private, and that cannot be run. */
static int allow_memory(void *filter)
{
	int r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 3, SCMP_A0(SCMP_CMP_EQ, 0),
				 SCMP_A2(SCMP_CMP_EQ, PROT_READ | PROT_WRITE),
				 SCMP_A3(SCMP_CMP_EQ, MAP_PRIVATE | MAP_ANONYMOUS));

	if (!r)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mremap), 1,
				     SCMP_A3(SCMP_CMP_EQ, MREMAP_MAYMOVE));
	return r;
}

const struct child_rights runtime_reader_rights = {
	.data_bytes = DATA_BYTES,
	.n_fds = CHILD_SOCKET_FD + 1 + FDS_MAX,
	.cpu_s = CPU_S,
	.calls = calls,
	.n_calls = ARRAY_SIZE(calls),
	.allow = allow_memory,
};

static int answer(const void *message, size_t n, const int fds[FDS_MAX])
{
	const struct reader_head *head = message;

	if (n < sizeof(*head))
		return -EBADMSG;
	switch (head->what) {
	case READ_PERF_MAP:
		return runtime_perf_answer(message, n, fds[0]);
	case READ_RUNTIMES:
		return runtime_answer_learn(message, n, fds[0], fds[1]);
	case READ_NAMES:
		return runtime_answer_names(message, n, fds[0]);
	case READ_GO_HEAP:
		return runtime_go_heap_answer(message, n, fds[0], fds[1]);
	default:
		return -EBADMSG;
	}
}

/* Answers one question. -errno: the child cannot go on. */
static int serve(void)
{
	static _Alignas(8) char message[READER_MESSAGE_MAX];
	int fds[FDS_MAX] = {-1, -1};
	size_t n, n_fds = 0;
	int r = child_receive(CHILD_SOCKET_FD, message, sizeof(message), &n, fds, FDS_MAX, &n_fds);

	if (!r)
		r = n_fds ? answer(message, n, fds) : -EBADMSG;
	for (size_t i = 0; i < n_fds; i++)
		close(fds[i]);
	return r;
}

static int child_main(void)
{
	int r = child_begin(runtime_reader_verb, "podflame-reader", &runtime_reader_rights);

	while (!r)
		r = serve();
	return r < 0 ? 1 : r;
}

__attribute__((constructor)) static void be_child(int argc, char **argv)
{
	if (argc == 2 && streq(argv[1], runtime_reader_verb))
		_exit(child_main());
}
