/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between a child and its owner. */
#include "lib/child/child.h"

#include <sys/socket.h>
#include <unistd.h>

union control {
	char bytes[CMSG_SPACE(CHILD_FDS_MAX * sizeof(int))];
	struct cmsghdr align;
};

int child_send(int sock, const void *message, size_t n, const int *fds, size_t n_fds)
{
	union control control = {0};
	struct iovec iov = {.iov_base = (void *)message, .iov_len = n};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

	if (n_fds > CHILD_FDS_MAX)
		return -E2BIG;
	if (n_fds) {
		struct cmsghdr *c;

		m.msg_control = control.bytes;
		m.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
	}
	if (sendmsg(sock, &m, MSG_NOSIGNAL) < 0)
		return errno == ECONNRESET ? -EPIPE : -errno;
	return 0;
}

/* Moves the descriptors of a message into fds; closes those beyond max. */
static size_t take_fds(struct msghdr *m, int *fds, size_t max)
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
			if (n < max)
				fds[n] = fd;
			else
				close(fd);
		}
	}
	return n;
}

int child_receive(int sock, void *message, size_t max, size_t *ret_n, int *ret_fds, size_t max_fds,
		  size_t *ret_n_fds)
{
	union control control;
	struct iovec iov = {.iov_base = message, .iov_len = max};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control.bytes,
			   .msg_controllen = sizeof(control.bytes)};
	int fds[CHILD_FDS_MAX], r = 0;
	size_t n_fds;
	ssize_t got;

	do
		got = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return errno == ECONNRESET ? -EPIPE : -errno;
	max_fds = MIN(max_fds, (size_t)CHILD_FDS_MAX);
	n_fds = take_fds(&m, fds, max_fds);
	if (n_fds > max_fds || m.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
		r = -EBADMSG;
	else if (got == 0)
		r = -EPIPE;
	if (r < 0) {
		for (size_t i = 0; i < MIN(n_fds, max_fds); i++)
			close(fds[i]);
		return r;
	}
	for (size_t i = 0; i < n_fds; i++)
		ret_fds[i] = fds[i];
	*ret_n_fds = n_fds;
	*ret_n = (size_t)got;
	return 0;
}
