/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parse child's main loop: one descriptor in, one index out, for ever. It ends when
 * its parent does, or at the first thing the sandbox does not allow.
 */
#include "node/parse/format.h"
#include "node/parse/parse.h"

#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* 0..2 must not become a pod's file; what else the parent left open is none of our business. */
static void close_others(void)
{
	int null = open("/dev/null", O_RDWR);

	for (int fd = 0; fd < PARSE_SOCKET_FD; fd++) {
		if (null < 0)
			close(fd);
		else
			dup2(null, fd);
	}
	close_range(PARSE_SOCKET_FD + 1, ~0U, 0);
}

static bool is_socket(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
}

static int answer(const struct parse_request *request, int fd)
{
	struct parse_reply reply = {.sequence = request->sequence};
	_cleanup_close_ int memfd = -1;

	reply.reason = fd < 0 ? PARSE_IO : elf_to_index(fd, request->max_index_bytes, &memfd);
	return parse_send(PARSE_SOCKET_FD, &reply, sizeof(reply), memfd);
}

int parse_child_main(int argc, char **argv)
{
	struct parse_reply ready = {0};

	(void)argv;
	if (argc != 2 || !is_socket(PARSE_SOCKET_FD)) {
		log_err("%s is started by podflame itself, not by hand", PARSE_CHILD_VERB);
		return 2;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "podflame-parse");
	close_others();
	if (parse_sandbox(INDEX_STRINGS_MAX + (uint64_t)INDEX_SYMBOLS_MAX * 16 + (1 << 20)) < 0)
		ready.reason = PARSE_SANDBOX;
	if (parse_send(PARSE_SOCKET_FD, &ready, sizeof(ready), -1) < 0 || ready.reason)
		_exit(1);
	for (;;) {
		_cleanup_close_ int fd = -1;
		struct parse_request request;

		if (parse_receive(PARSE_SOCKET_FD, &request, sizeof(request), &fd) < 0 ||
		    answer(&request, fd) < 0)
			_exit(0);
		malloc_trim(0);
	}
}
