/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between parser and child: fixed size, at most one descriptor each. */
#include "node/parse/format.h"

#include <sys/socket.h>
#include <unistd.h>

int parse_send(int sock, const void *message, size_t n, int fd)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {.iov_base = (void *)message, .iov_len = n};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

	if (fd >= 0) {
		struct cmsghdr *c;

		m.msg_control = control.bytes;
		m.msg_controllen = sizeof(control.bytes);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	if (sendmsg(sock, &m, MSG_NOSIGNAL) < 0)
		return errno == ECONNRESET ? -EPIPE : -errno;
	return 0;
}

/* Takes every descriptor out of a message; all but the first are closed. */
static size_t take_fds(struct msghdr *m, int *ret_fd)
{
	size_t n = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t in_header;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		in_header = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < in_header; i++, n++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (n == 0)
				*ret_fd = fd;
			else
				close(fd);
		}
	}
	return n;
}

int parse_receive(int sock, void *message, size_t n, int *ret_fd)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_base = message, .iov_len = n};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control.bytes,
			   .msg_controllen = sizeof(control.bytes)};
	_cleanup_close_ int fd = -1;
	ssize_t got;

	do
		got = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return errno == ECONNRESET ? -EPIPE : -errno;
	if (take_fds(&m, &fd) > 1 || m.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
		return -EBADMSG;
	if (got == 0)
		return -EPIPE;
	if ((size_t)got != n)
		return -EBADMSG;
	*ret_fd = TAKE_FD(fd);
	return 0;
}
