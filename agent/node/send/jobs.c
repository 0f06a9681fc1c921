/* SPDX-License-Identifier: Apache-2.0 */
/* Creates and frees a sender and its jobs: see jobs.h. */
#include "node/send/jobs.h"

#include <stdlib.h>

#define JOB_DEADLINE_NS (30 * NSEC_PER_SEC)

static void items_free(struct spool_item *items)
{
	for (struct spool_item *next; items; items = next) {
		next = items->next;
		send_spool_item_free(items);
	}
}

void send_destroy(struct sender *s)
{
	assert_se(s->n_jobs == 0);
	items_free(s->items);
	if (s->sink)
		s->type->close(s->sink);
	send_spool_free(s->spool);
	buf_done(&s->body);
	profile_losses_done(&s->losses);
	free(s);
}

void send_job_free(struct send_job *j)
{
	profile_batch_free(j->batch);
	send_spool_item_free(j->item);
	items_free(j->found);
	profile_losses_done(&j->lost.losses);
	buf_done(&j->body);
	free(j);
}

void send_count_lost(struct sender *s, struct send_lost *lost)
{
	s->stats.n_dropped_profiles += lost->n_profiles;
	s->stats.n_dropped_samples += lost->n_samples;
	profile_losses_move(&s->losses, &lost->losses);
}

static void job_run(struct job *job)
{
	struct send_job *j = (struct send_job *)job;

	worker_assert(j->s->disk);
	j->work(j);
	j->has_losses = send_spool_has_losses(j->s->spool);
}

static void job_done(struct job *job)
{
	struct send_job *j = (struct send_job *)job;
	struct sender *s = j->s;

	loop_assert(s->loop);
	assert_se(s->n_jobs > 0);
	s->n_jobs--;
	s->has_losses = j->has_losses;
	send_count_lost(s, &j->lost);
	if (!s->closed && j->then)
		j->then(j);
	send_job_free(j);
	if (s->closed && s->n_jobs == 0)
		send_destroy(s);
}

struct send_job *send_job_new(struct sender *s, void (*work)(struct send_job *),
			      void (*then)(struct send_job *))
{
	struct send_job *j = xcalloc(1, sizeof(*j));

	j->job = (struct job){.run = job_run, .done = job_done, .deadline_ns = JOB_DEADLINE_NS};
	j->s = s;
	j->work = work;
	j->then = then;
	return j;
}

int send_job_post(struct send_job *j, size_t n_bytes)
{
	int r;

	loop_assert(j->s->loop);
	j->job.n_bytes = n_bytes;
	r = worker_post(j->s->disk, &j->job);
	if (r == 0)
		j->s->n_jobs++;
	return r;
}
