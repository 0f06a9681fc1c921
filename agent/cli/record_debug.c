/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record: reads debug files. Only the names of functions need these files, and a large file takes
 * seconds to read. So a second thread reads them, while the first one goes on to drain the kernel's
 * maps each second. Samples wait here until the reading ends.
 */
#include "cli/record.h"
#include "lib/loop/loop.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>

/* limit for the bytes of samples that wait; over it, the oldest are named without waiting longer */
#define MAX_WAITING_BYTES (64u << 20)

struct waiting {
	struct drain *d;
	uint64_t since_ns;
	size_t bytes;
};

struct record_debug {
	const struct record_debug_ops *ops;
	struct loop *loop; /* the loop never runs; it only owns the thread */
	struct worker *thread;
	uint64_t n_posted;
	atomic_bool is_over;	 /* no sample waits any more, so the thread stops reading */
	struct waiting *waiting; /* oldest first */
	size_t n_waiting, cap_waiting, bytes;
};

struct debug_reading {
	struct job job;
	const struct record_debug *debug;
	struct files *files;
	struct mappings *m;
};

static void read_files(struct job *j)
{
	struct debug_reading *x = (struct debug_reading *)j;
	const struct mappings *m = x->m;

	for (size_t i = 0; i < m->n && !x->debug->is_over; i++)
		if (m->items[i].fd >= 0 && (i == 0 || m->items[i].fd != m->items[i - 1].fd))
			x->debug->ops->read(x->files, &m->items[i], m->root_fd);
	proc_mappings_unref(x->m);
	free(x);
}

int cli_record_debug_new(const struct record_debug_ops *ops, struct record_debug **ret)
{
	struct record_debug *g = xcalloc(1, sizeof(*g));
	int e = loop_new(&g->loop);

	g->ops = ops;
	if (!e)
		e = worker_new(g->loop, "debug", 0, &g->thread);
	if (e) {
		loop_free(g->loop);
		free(g);
		return e;
	}
	*ret = g;
	return 0;
}

void cli_record_debug_free(struct record_debug *g)
{
	if (!g)
		return;
	g->is_over = true;
	loop_free(g->loop);
	for (size_t i = 0; i < g->n_waiting; i++)
		sample_drain_free(g->waiting[i].d);
	free(g->waiting);
	free(g);
}

void cli_record_debug_read(struct recording *r, struct mappings *m)
{
	struct debug_reading *x = xcalloc(1, sizeof(*x));

	*x = (struct debug_reading){.job.run = read_files,
				    .debug = r->debug,
				    .files = r->files,
				    .m = proc_mappings_ref(m)};
	if (worker_post(r->debug->thread, &x->job))
		read_files(&x->job); /* the queue is full: reads the files on this thread */
	else
		r->debug->n_posted++;
}

bool cli_record_debug_reads(const struct recording *r)
{
	struct worker_stats s;

	worker_stats(r->debug->thread, &s);
	return s.n_done < r->debug->n_posted;
}

/* Names the samples of the n oldest drains. */
static void name(struct recording *r, size_t n)
{
	struct record_debug *g = r->debug;

	for (size_t i = 0; i < n; i++) {
		g->ops->name(r, g->waiting[i].d);
		sample_drain_free(g->waiting[i].d);
		g->bytes -= g->waiting[i].bytes;
	}
	g->n_waiting -= n;
	if (g->n_waiting)
		memmove(g->waiting, g->waiting + n, g->n_waiting * sizeof(*g->waiting));
}

static size_t bytes_of(const struct drain *d)
{
	return sizeof(*d) + d->n_samples * sizeof(*d->samples) + d->n_stacks * sizeof(*d->stacks) +
	       d->n_names * sizeof(*d->names) + d->n_procs * sizeof(*d->procs) +
	       d->n_young * sizeof(*d->young) + (d->memory ? d->memory->len : 0);
}

void cli_record_debug_wait(struct recording *r, struct drain *d)
{
	struct record_debug *g = r->debug;
	size_t n = 0, bytes;

	GROW(g->waiting, g->n_waiting, g->cap_waiting);
	g->waiting[g->n_waiting++] = (struct waiting){d, now_mono_ns(), bytes_of(d)};
	g->bytes += bytes_of(d);
	if (!cli_record_debug_reads(r)) {
		name(r, g->n_waiting);
		return;
	}
	for (bytes = g->bytes; n < g->n_waiting; bytes -= g->waiting[n++].bytes)
		if (bytes <= MAX_WAITING_BYTES &&
		    now_mono_ns() - g->waiting[n].since_ns < RECORD_WAIT_NS)
			break;
	name(r, n);
}

/*
 * Waits until the thread has read all debug files, which may take minutes. A second signal ends
 * this wait.
 */
static void wait_or_signal(struct recording *r, int signal_fd)
{
	struct pollfd p = {.fd = signal_fd, .events = POLLIN};

	while (cli_record_debug_reads(r)) {
		if (poll(&p, 1, 20) <= 0)
			continue;
		r->debug->is_over = true;
		fprintf(stderr, "podflame record: the profile lacks the names of debug files that "
				"were not read yet\n");
		return;
	}
}

void cli_record_debug_finish(struct recording *r, int signal_fd)
{
	wait_or_signal(r, signal_fd);
	worker_free(r->debug->thread);
	r->debug->thread = NULL;
	name(r, r->debug->n_waiting);
}
