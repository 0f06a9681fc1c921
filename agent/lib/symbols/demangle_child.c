/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child that demangles. In an endless loop it reads a name and answers with a text. A name that
 * exceeds a limit stays mangled, and the child goes on. If a demangler crashes at a name, the child
 * ends, and the owner starts another one.
 */
#include "lib/child/child.h"
#include "lib/symbols/demangle.h"

#include <seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

const char elf_demangle_child_verb[] = "__demangle";

static const int calls[] = {
	SCMP_SYS(recvmsg),	SCMP_SYS(sendmsg), SCMP_SYS(clock_gettime),
	SCMP_SYS(rt_sigreturn), SCMP_SYS(exit),	   SCMP_SYS(exit_group),
};

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

static int answer(const char *name, struct demangle_reply *reply)
{
	uint64_t began = cpu_ns();
	const char *text = "";

	reply->result = elf_demangle(name, &text);
	reply->n = (uint32_t)strlen(text);
	memcpy(reply->text, text, reply->n);
	reply->cpu_ns = cpu_ns() - began;
	return child_send(CHILD_SOCKET_FD, reply, offsetof(struct demangle_reply, text) + reply->n,
			  NULL, 0);
}

int elf_demangle_child_begin(void)
{
	const struct child_rights rights = {
		.data_bytes = 64 << 20,
		.n_fds = CHILD_SOCKET_FD + 1,
		.calls = calls,
		.n_calls = ARRAY_SIZE(calls),
	};
	int r = elf_demangle_begin();

	return r ? r : child_begin(elf_demangle_child_verb, "podflame-names", &rights);
}

static int child_main(void)
{
	static struct {
		struct demangle_request request;
		char end;
	} in;
	static struct demangle_reply reply;
	size_t n, n_fds;
	int r = elf_demangle_child_begin();

	while (!r) {
		r = child_receive(CHILD_SOCKET_FD, &in, sizeof(in.request), &n, NULL, 0, &n_fds);
		if (r || n < offsetof(struct demangle_request, name))
			break;
		((char *)&in)[n] = '\0';
		reply.sequence = in.request.sequence;
		r = answer(in.request.name, &reply);
	}
	return r < 0 ? 1 : r;
}

__attribute__((constructor)) static void be_child(int argc, char **argv)
{
	if (argc == 2 && streq(argv[1], elf_demangle_child_verb))
		_exit(child_main());
}
