/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creates the parts of the pipeline, connects them and ends them. It owns struct pipeline. Runs on
 * the loop thread.
 */
#include "node/pipeline/internal.h"

#include <stdlib.h>

static const struct reader_ops reader_ops = {
	.rests = follow_rests,
	.cgroup = follow_cgroup,
	.follow = follow_process,
};
static const struct queue_ops queue_ops = {
	.fold = pipeline_windows_fold,
	.read_mappings = pipeline_reader_mappings,
	.read_names = pipeline_reader_names,
	.reads = pipeline_reader_reads,
	.parse = follow_parse,
	.parses = follow_parses,
};

struct pipeline *pipeline_new(const struct pipeline_config *c)
{
	struct pipeline *p = xcalloc(1, sizeof(*p));

	loop_assert(c->work->loop);
	p->config = *c;
	pipeline_downtime_open(&p->downtime, c->conf, c->local, c->boot_id);
	p->reader = pipeline_reader_new(p, &reader_ops);
	p->queue = pipeline_queue_new(p, &queue_ops);
	p->throttle = pipeline_throttle_new(p);
	return p;
}

int pipeline_start(struct pipeline *p, const char *node_uid)
{
	const struct config *conf = p->config.conf;
	struct fold_config c = {.node_uid = node_uid,
				.boot_id = p->config.boot_id,
				.node_name = conf->node_name,
				.cluster_name = conf->cluster_name,
				.window_ns = conf->window_ns,
				.per_cpu = conf->on_cpu_per_cpu,
				.start_offset_ns = p->downtime.start_offset_ns};

	return p->windows ? 0
			  : pipeline_windows_new(&c, p->config.files, p->config.work, &p->windows);
}

const char *pipeline_kernel_problem(const struct pipeline *p)
{
	return pipeline_windows_kernel_problem(p->windows);
}

void pipeline_send(struct pipeline *p, struct batch *b)
{
	int r = b ? send_send(p->config.sender, b) : 0;

	if (r < 0)
		log_warn("profiles of a window could not be queued: %s", strerror(-r));
}

void pipeline_close(struct pipeline *p)
{
	struct losses *lost = pipeline_queue_lost(p->queue);

	assert_se(p->config.work->closing);
	pipeline_queue_advance(p->queue);
	if (!p->windows)
		return;
	pipeline_windows_gap(p->windows, pipeline_downtime_take(p));
	send_take_losses(p->config.sender, lost);
	pipeline_windows_lose(p->windows, lost);
	profile_losses_done(lost);
	pipeline_send(p, pipeline_windows_flush(p->windows));
	pipeline_downtime_end(p);
}

struct pipeline *pipeline_free(struct pipeline *p)
{
	if (!p)
		return NULL;
	loop_assert(p->config.work->loop);
	pipeline_queue_free(p->queue);
	pipeline_reader_free(p->reader);
	pipeline_throttle_free(p->throttle);
	pipeline_windows_free(p->windows);
	pipeline_tell_done(p);
	pipeline_downtime_done(&p->downtime);
	free(p);
	return NULL;
}

/* ---- input ---- */

void pipeline_drain(struct pipeline *p, struct drain *drain, bool full)
{
	send_take_losses(p->config.sender, pipeline_queue_lost(p->queue));
	pipeline_queue_add(p->queue, drain, full);
}

void pipeline_drain_whole(struct pipeline *p, struct drain *drain)
{
	pipeline_queue_add_whole(p->queue, drain);
}

void pipeline_exited(struct pipeline *p, const struct process_exit *exits, size_t n)
{
	pipeline_queue_exited(p->queue, exits, n);
}

void pipeline_note_profiled(struct pipeline *p)
{
	const struct kernel *k = p->config.kernel;
	bool active = kernel_active(k) && (!p->downtime.lasts || kernel_filtered(k));

	pipeline_downtime_note(p, active, kernel_idle(k), kernel_refused(k));
}

void pipeline_tick(struct pipeline *p)
{
	loop_assert(p->config.work->loop);
	if (!kernel_on(p->config.kernel))
		pipeline_throttle_off(p->throttle);
	else if (p->config.has_pods)
		pipeline_throttle_tick(p->throttle);
	pipeline_queue_advance(p->queue);
}

uint64_t pipeline_n_lost(const struct pipeline *p)
{
	return pipeline_queue_n_lost(p->queue);
}

void pipeline_advance(struct pipeline *p)
{
	pipeline_queue_advance(p->queue);
}

void pipeline_read_mappings(struct pipeline *p, struct process_id id, uint32_t exec_id,
			    uint64_t cgroup_id)
{
	pipeline_reader_mappings(p->reader, id, exec_id, 0, cgroup_id);
}
