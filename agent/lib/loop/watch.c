/* SPDX-License-Identifier: Apache-2.0 */
/* Watches a descriptor. The loop has a duplicate, so that the owner may close its descriptor. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/loop/loop_private.h"

struct watch {
	struct io io;
	int fd, dup_fd;
	watch_fn *fn;
	void *arg;
};

static void watch_ready(uint32_t events, void *arg)
{
	struct watch *w = arg;

	(void)events;
	w->fn(w->fd, w->arg);
}

int watch_new(struct loop *l, int fd, watch_fn *fn, void *arg, struct watch **ret)
{
	struct watch *w = xcalloc(1, sizeof(*w));
	int r;

	w->fd = fd;
	w->fn = fn;
	w->arg = arg;
	w->dup_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	r = w->dup_fd < 0 ? -errno : io_add(l, &w->io, w->dup_fd, EPOLLIN, watch_ready, w);
	if (r < 0) {
		closep(&w->dup_fd);
		free(w);
		return r;
	}
	*ret = w;
	return 0;
}

struct watch *watch_free(struct watch *w)
{
	if (!w)
		return NULL;
	io_del(&w->io);
	closep(&w->dup_fd);
	free(w);
	return NULL;
}
