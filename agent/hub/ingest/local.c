/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles without HTTP, for `podflame local`: the agent's thread waits until they are stored. */
#include "hub/ingest/internal.h"

#include <sys/eventfd.h>
#include <unistd.h>

struct write_job {
	struct job job; /* must be the first member */
	struct store *store;
	const struct batch *batch;
	int fd, r;
};

/*
 * The job is on the stack of write_and_wait. So this function does not use it after the write to
 * fd.
 */
static void write_run(struct job *job)
{
	struct write_job *w = (struct write_job *)job;
	uint64_t one = 1;
	size_t n_new;
	int fd = w->fd;

	w->r = store_write(w->store, w->batch, &n_new);
	while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

static int write_and_wait(struct ingest *i, const struct batch *b)
{
	_cleanup_close_ int fd = eventfd(0, EFD_CLOEXEC);
	struct write_job w = {.job.run = write_run, .store = i->config.store, .batch = b, .fd = fd};
	uint64_t value;

	assert_se(!worker_is_current(i->config.writer)); /* else the worker would wait for itself */
	if (fd < 0)
		return -errno;
	if (worker_post(i->config.writer, &w.job) < 0)
		return -EAGAIN;
	while (read(fd, &value, sizeof(value)) < 0 && errno == EINTR)
		;
	return w.r;
}

int ingest_bytes(struct ingest *i, const void *body, size_t n)
{
	_cleanup_(profile_batch_freep) struct batch *b = NULL;
	int r = otlp_decode(body, n, &b, NULL);

	return r < 0 ? r : write_and_wait(i, b);
}
