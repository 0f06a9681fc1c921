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

/* The descriptors came in order, without those that are missing. */
static void place_fds(const struct parse_request *request, const int *got, size_t n_got,
		      int ret[PARSE_FDS_MAX])
{
	uint64_t has = request->has | (uint64_t)request->has_high << 32;
	size_t next = 0;

	for (size_t i = 0; i < PARSE_FDS_MAX; i++)
		ret[i] = has >> i & 1 && next < n_got ? got[next++] : -1;
}

static enum parse_reason work(const struct parse_request *request, char **marks, const int *got,
			      size_t n_got, int *ret_memfd)
{
	int fds[PARSE_FDS_MAX];

	if (n_got == 0)
		return PARSE_IO;
	if (request->what != PARSE_DEBUG)
		return elf_to_index(got[0], (const char *const *)marks, request->max_index_bytes,
				    ret_memfd);
	place_fds(request, got, n_got, fds);
	return elf_to_debug_index(fds, PARSE_FDS_MAX, request->max_index_bytes, ret_memfd);
}

static int answer(const struct parse_request *request, char **marks, const int *fds, size_t n_fds)
{
	struct parse_reply reply = {.sequence = request->sequence};
	_cleanup_close_ int memfd = -1;

	reply.reason = work(request, marks, fds, n_fds, &memfd);
	return parse_send(PARSE_SOCKET_FD, &reply, sizeof(reply), &memfd, memfd >= 0);
}

int parse_child_main(int argc, char **argv)
{
	struct parse_reply ready = {0};

	if (argc < 2 || !is_socket(PARSE_SOCKET_FD)) {
		log_err("%s is started by podflame itself, not by hand", PARSE_CHILD_VERB);
		return 2;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "podflame-parse");
	close_others();
	if (parse_sandbox(INDEX_BYTES_MAX) < 0)
		ready.reason = PARSE_SANDBOX;
	if (parse_send(PARSE_SOCKET_FD, &ready, sizeof(ready), NULL, 0) < 0 || ready.reason)
		_exit(1);
	for (;;) {
		struct parse_request request;
		int fds[PARSE_FDS_MAX], r;
		size_t n_fds;

		if (parse_receive(PARSE_SOCKET_FD, &request, sizeof(request), fds, PARSE_FDS_MAX,
				  &n_fds) < 0)
			_exit(0);
		r = answer(&request, argc > 2 ? argv + 2 : NULL, fds, n_fds);
		for (size_t i = 0; i < n_fds; i++)
			close(fds[i]);
		if (r < 0)
			_exit(0);
		malloc_trim(0);
	}
}
