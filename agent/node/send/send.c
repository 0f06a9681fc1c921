/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends batches. The worker send_config.disk makes items of batches (spool_dir.c), which wait in a
 * queue (queue.c). The oldest item goes to the sink (sink.c), one at a time, and stays in the queue
 * until the sink has stored it.
 * Everything runs on the loop thread, except the functions named ..._work and those that they call:
 * these run on the worker.
 */
#include "node/send/jobs.h"

#include <stdlib.h>
#include <utlist.h>

#define BACKOFF_MIN_NS (NSEC_PER_SEC / 2)
#define BACKOFF_MAX_NS (60 * NSEC_PER_SEC) /* longest wait, unless the receiver asks for more */

/* ---- sending ---- */

static void retry_fire(void *arg)
{
	struct sender *s = arg;

	s->waiting = false;
	send_queue_next(s);
}

/*
 * Sets the timer for the next try. The delay doubles up to a minute. The real delay is a random
 * time between one half and all of this, so that nodes do not try at the same time.
 */
static void retry_later(struct sender *s, uint64_t at_least_ns)
{
	uint64_t delay_ns = BACKOFF_MIN_NS << MIN(s->n_tries, 10u);

	delay_ns = MIN(delay_ns, (uint64_t)BACKOFF_MAX_NS);
	delay_ns = delay_ns / 2 + random_below(delay_ns / 2 + 1);
	delay_ns = MAX(delay_ns, at_least_ns);
	s->n_tries++;
	s->waiting = true;
	timer_set(s->loop, &s->retry, delay_ns, retry_fire, s);
}

static void set_error(struct sender *s, const char *error)
{
	if (*error && !*s->last_error)
		log_warn("send: %s; batches waiting: %zu", error, s->n_items);
	else if (!*error && *s->last_error)
		log_info("send: works again");
	snprintf(s->last_error, sizeof(s->last_error), "%s", error);
}

static void remove_work(struct send_job *j)
{
	send_spool_remove(j->s->spool, j->item);
}

static void remove_item(struct sender *s, struct spool_item *i)
{
	struct send_job *j;

	send_queue_unlink(s, i);
	j = send_job_new(s, remove_work, NULL);
	j->item = i;
	if (send_job_post(j, 0) <
	    0) /* The file stays. After a restart it is sent again, and the hub ignores it. */
		send_job_free(j);
}

static void losses_work(struct send_job *j)
{
	j->r = send_spool_take_losses(j->s->spool, &j->item);
}

static void losses_then(struct send_job *j)
{
	if (!j->item)
		return;
	send_queue_add(j->s, TAKE_PTR(j->item));
	send_queue_next(j->s);
}

static void send_losses(struct sender *s)
{
	struct send_job *j = send_job_new(s, losses_work, losses_then);

	s->has_losses = false;
	if (send_job_post(j, 0) < 0) {
		s->has_losses = true;
		send_job_free(j);
	}
}

/*
 * Counts profiles that the receiver rejected. No account of losses contains them, because the
 * receiver does not report which profiles they are.
 */
static void count_rejected(struct sender *s, uint64_t n)
{
	s->stats.n_dropped_profiles += n;
	counter_add(counter("podflame_profiles_dropped_total", "reason", "hub_rejected"), n);
}

static void stored(struct sender *s, struct spool_item *i, const struct sink_answer *a)
{
	s->stats.n_sent++;
	s->n_tries = 0;
	s->clock_ahead[0] = '\0';
	set_error(s, a->error);
	if (a->n_rejected)
		count_rejected(s, a->n_rejected);
	if (a->pods_stored && s->on_stored && i->n_events)
		s->on_stored(i->events, i->n_events, s->stored_arg);
	remove_item(s, i);
	if (s->has_losses)
		send_losses(s);
	send_queue_next(s);
}

static void answered(const struct sink_answer *a, void *arg)
{
	struct sender *s = arg;
	struct spool_item *i = s->sending;

	if (s->closed)
		return;
	buf_reset(&s->body);
	s->sending = NULL;
	if (a->result == SINK_STORED) {
		stored(s, i, a);
		return;
	}
	s->stats.n_failed++;
	set_error(s, a->error);
	if (a->clock_ahead)
		snprintf(s->clock_ahead, sizeof(s->clock_ahead), "%s",
			 *a->clock_ahead ? a->clock_ahead : a->error);
	if (a->result == SINK_REFUSED && send_queue_drop(s, i, "hub_refused")) {
		s->n_tries = 0;
		send_queue_next(s);
		return;
	}
	retry_later(s, a->retry_after_ns);
}

static const struct sink_answer all_stored = {
	.result = SINK_STORED, .pods_stored = true, .error = ""};

static void fetch_work(struct send_job *j)
{
	struct sender *s = j->s;

	j->r = send_spool_get(s->spool, j->borrowed, &j->body);
	if (j->r < 0)
		return;
	if (s->type->refresh)
		s->type->refresh(s->sink);
	if (s->type->in_worker)
		j->r = s->type->deliver(s->sink, j->body.data, j->body.len);
}

/*
 * The item cannot be read. If its file is damaged or missing, its samples are lost. If the disk
 * cannot read the file now, the file stays for the next run.
 */
static void fetch_failed(struct sender *s, struct spool_item *i, int error)
{
	struct send_lost lost = {0};

	send_queue_unlink(s, i);
	if (error == -EBADMSG || error == -ENOENT) {
		send_spool_count_unreadable(i, &lost);
		send_count_lost(s, &lost);
	}
	send_spool_item_free(i);
}

static void fetch_then(struct send_job *j)
{
	struct sender *s = j->s;
	struct sink_answer a = all_stored;

	if (s->type->in_worker) {
		if (j->r < 0)
			a = (struct sink_answer){.result = j->r == -EBADMSG || j->r == -E2BIG
								   ? SINK_REFUSED
								   : SINK_RETRY,
						 .error = strerror(-j->r)};
		answered(&a, s);
	} else if (j->r == -EAGAIN) {
		answered(&(struct sink_answer){.result = SINK_RETRY,
					       .error = "spool: no memory or no free file "
							"descriptor now; the agent tries again"},
			 s);
	} else if (j->r < 0) { /* the spool has counted the file as unreadable */
		fetch_failed(s, TAKE_PTR(s->sending), j->r);
		s->stats.n_failed++;
		send_queue_next(s);
	} else {
		buf_done(&s->body);
		s->body = j->body;
		buf_init(&j->body, 0);
		s->type->send(s->sink, s->body.data, s->body.len, answered, s);
	}
}

/* Sends the oldest item, unless an item is being sent or the timer for the next try is set. */
void send_queue_next(struct sender *s)
{
	struct send_job *j;

	if (!s->items && s->has_losses && s->ready && !s->n_tries)
		send_losses(s);
	if (s->closed || !s->ready || s->sending || s->waiting || !s->items)
		return;
	j = send_job_new(s, fetch_work, fetch_then);
	j->borrowed = s->sending = s->items;
	if (send_job_post(j, s->sending->bytes) < 0) {
		s->sending = NULL;
		send_job_free(j);
		retry_later(s, 0);
	}
}

/* ---- batches from the pipeline ---- */

static uint64_t samples_in(const struct profile *p)
{
	uint64_t n = 0;

	for (size_t i = 0; i < p->n_samples; i++)
		n += p->samples[i].n_samples;
	return n;
}

static void put_profiles(struct send_job *j, struct batch *b, size_t from, size_t n, uint64_t ns);

/*
 * A window may have more names than fit into one request. Then each half of its profiles becomes an
 * item. If a single profile is too large, only this profile is lost.
 */
static void put_halves(struct send_job *j, struct batch *b, uint64_t ns)
{
	size_t n = b->n_profiles;

	if (n > 1) {
		put_profiles(j, b, 0, n / 2, ns);
		put_profiles(j, b, n / 2, n - n / 2, ns);
		return;
	}
	send_spool_lose(j->s->spool, b, "too_large", &j->lost);
}

static void put_profiles(struct send_job *j, struct batch *b, size_t from, size_t n, uint64_t ns)
{
	struct batch part = *b; /* part shares all memory of b */
	struct sender *s = j->s;
	struct spool_item *i;

	part.profiles += from;
	part.n_profiles = n;
	if (send_spool_put(s->spool, &part, ns, &i) < 0) {
		put_halves(j, &part, ns);
		return;
	}
	DL_APPEND(j->found, i);
	if (!s->type->in_worker || j->r < 0)
		return;
	/* deliver now, on the worker, because the loop may end before this job is done */
	j->r = s->type->deliver(s->sink, i->body.data, i->body.len);
	j->n_delivered += j->r == 0;
}

static const char *namespace_of(const struct profile *p)
{
	return profile_tag_get(p, "pod_ns") ?: "";
}

static int by_namespace(const void *a, const void *b)
{
	const struct profile *const *x = a, *const *y = b;

	return strcmp(namespace_of(*x), namespace_of(*y));
}

/* Makes an item for each namespace, so that the queue can drop them apart. */
static void put_namespaces(struct send_job *j, struct batch *b)
{
	size_t from = 0, to;

	qsort(b->profiles, b->n_profiles, sizeof(*b->profiles), by_namespace);
	for (; from < b->n_profiles; from = to) {
		const char *ns = namespace_of(b->profiles[from]);

		for (to = from + 1; to < b->n_profiles; to++)
			if (!streq(namespace_of(b->profiles[to]), ns))
				break;
		put_profiles(j, b, from, to - from, hash_bytes(ns, strlen(ns), 0) | 1);
	}
}

static void put_work(struct send_job *j)
{
	if (j->apart && j->batch->n_profiles)
		put_namespaces(j, j->batch);
	else
		put_profiles(j, j->batch, 0, j->batch->n_profiles, SPOOL_SEVERAL_NS);
}

/* Puts the items into the queue, and removes those that are delivered already. */
static void link_found(struct send_job *j)
{
	struct sender *s = j->s;
	struct spool_item *i;

	while ((i = j->found)) {
		DL_DELETE(j->found, i);
		send_queue_add(s, i);
		if (!j->n_delivered)
			continue;
		j->n_delivered--;
		stored(s, i, &all_stored);
	}
}

static void put_then(struct send_job *j)
{
	struct sender *s = j->s;

	link_found(j);
	if (j->r < 0) {
		s->stats.n_failed++;
		set_error(s, strerror(-j->r));
		if (!s->waiting)
			retry_later(s, 0);
	}
	if (j->lost.n_profiles)
		set_error(s, "a process's profile is too large to be sent");
	send_queue_make_room(s);
	send_queue_next(s);
}

static void count_refused(struct sender *s, const struct batch *b)
{
	struct send_lost lost = {.n_profiles = b->n_profiles};

	for (size_t i = 0; i < b->n_profiles; i++) {
		uint64_t n = samples_in(b->profiles[i]);

		lost.n_samples += n;
		profile_samples_lost(&lost.losses, 1u << b->profiles[i]->event, "mailbox_full", n);
	}
	counter_add(counter("podflame_profiles_dropped_total", "reason", "mailbox_full"),
		    lost.n_profiles);
	send_count_lost(s, &lost);
}

int send_send(struct sender *s, struct batch *b)
{
	struct send_job *j = send_job_new(s, put_work, put_then);

	j->batch = b;
	j->apart = s->type->remote && s->n_tries; /* the last try to send has failed */
	if (send_job_post(j, profile_batch_bytes(b)) == 0)
		return 0;
	count_refused(s, b);
	send_job_free(j);
	return -ENOBUFS;
}

/* ---- start and end ---- */

static void scan_work(struct send_job *j)
{
	j->r = send_spool_scan(j->s->spool, &j->found);
}

static void scan_then(struct send_job *j)
{
	struct sender *s = j->s;
	struct spool_item *i, *next, *found = TAKE_PTR(j->found);

	DL_FOREACH_SAFE(found, i, next)
	{
		DL_DELETE(found, i);
		send_queue_add(s, i);
	}
	if (j->r < 0) {
		_cleanup_free_ char *text = xasprintf("spool directory: %s", strerror(-j->r));

		set_error(s, text);
	}
	s->ready = true;
	send_queue_make_room(s);
	send_queue_next(s);
}

int send_new(struct loop *l, const struct send_config *c, struct sender **ret,
	     struct field_error *reterr)
{
	struct sender *s = xcalloc(1, sizeof(*s));
	struct send_job *j;
	int r;

	s->loop = l;
	s->disk = c->disk;
	s->type = send_sink_type_for(c);
	s->max_bytes = c->spool_max_bytes ? c->spool_max_bytes : SEND_MEMORY_MAX_BYTES;
	s->spool = send_spool_new(s->type->remote ? c->spool_dir : "", s->type->remote);
	r = s->type->open(l, c, &s->sink, reterr);
	j = send_job_new(s, scan_work, scan_then);
	if (r == 0) {
		r = send_job_post(j, 0);
		if (r < 0)
			field_error_set(reterr, "spool",
					"the queue of the disk worker has no room for the job "
					"that reads the spool");
	}
	if (r < 0) {
		send_job_free(j);
		send_destroy(s);
		return r;
	}
	*ret = s;
	return 0;
}

struct sender *send_free(struct sender *s)
{
	if (!s)
		return NULL;
	loop_assert(s->loop);
	assert_se(!s->closed);
	s->closed = true;
	timer_cancel(&s->retry);
	if (s->n_jobs == 0)
		send_destroy(s);
	return NULL;
}

void send_take_losses(struct sender *s, struct losses *into)
{
	profile_losses_move(into, &s->losses);
}

void send_stats(const struct sender *s, struct sender_stats *ret)
{
	loop_assert(s->loop);
	*ret = s->stats;
	ret->spool_bytes = s->file_bytes + s->memory_bytes;
	ret->n_spooled = s->n_items;
	ret->last_error = s->last_error;
	ret->clock_ahead = s->clock_ahead;
}

void send_on_stored(struct sender *s, void (*fn)(const struct stored_event *e, size_t n, void *arg),
		    void *arg)
{
	s->on_stored = fn;
	s->stored_arg = arg;
}
