/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The open window: its batch, the clock that determines its end, and what is added to it: samples
 * (profiles.c finds their profiles), losses, and values of a whole node or container. A sample's
 * link is the trace and span in which it was taken.
 */
#include "node/fold/internal.h"

#include <stdlib.h>

/* if wall time moves by more than this against CLOCK_BOOTTIME, the clock was set */
#define STEP_NS	      (500 * NSEC_PER_MSEC)
#define LATE_COUNTER  "podflame_samples_late_total"
#define PROCESS_TOTAL "Total"
#define PROCESS_HELD  "Throttled"

/* ---- windows ---- */

/*
 * Opens a window. It ends at a multiple of its length. It also begins at such a multiple, unless
 * `now` is set. Then it begins at wall_ns: no window was open before, or the last one ended at that
 * time.
 */
static void window_open(struct fold *f, uint64_t boot_ns, uint64_t wall_ns, bool now)
{
	f->batch = profile_batch_new();
	f->offset_ns = wall_ns - boot_ns;
	f->start_ns = wall_ns - wall_ns % f->window_ns;
	f->end_ns = f->start_ns + f->window_ns;
	if (now)
		f->start_ns = wall_ns;
	f->sample_bytes = 0;
}

int fold_new(const struct fold_config *c, struct fold **ret)
{
	uint64_t boot_ns = now_boot_ns(), wall_ns = now_wall_ns();
	struct fold *f;

	if (c->window_ns < NSEC_PER_SEC || c->window_ns > 60 * NSEC_PER_SEC)
		return -ERANGE;
	f = xcalloc(1, sizeof(*f));
	f->node_uid = xstrdup(c->node_uid ? c->node_uid : "");
	f->boot_id = xstrdup(c->boot_id ? c->boot_id : "");
	f->node_name = xstrdup(c->node_name ? c->node_name : "");
	f->cluster_name = xstrdup(c->cluster_name ? c->cluster_name : "");
	f->window_ns = c->window_ns;
	f->per_cpu = c->per_cpu;
	f->first_offset_ns = c->start_offset_ns ? c->start_offset_ns : wall_ns - boot_ns;
	snprintf(f->run, sizeof(f->run), "%llu", (unsigned long long)boot_ns);
	window_open(f, boot_ns, wall_ns, true);
	*ret = f;
	return 0;
}

struct fold *fold_free(struct fold *f)
{
	if (!f)
		return NULL;
	fold_apply_estimates(f);
	fold_forget_profiles(f);
	fold_forget_shares(f);
	shares_done(&f->unlinked);
	profile_batch_free(f->batch);
	free(f->node_uid);
	free(f->boot_id);
	free(f->node_name);
	free(f->cluster_name);
	free(f);
	return NULL;
}

struct batch *fold_batch(struct fold *f)
{
	return f->batch;
}

uint64_t fold_next_flush_ns(const struct fold *f)
{
	return f->end_ns - f->offset_ns;
}

uint64_t fold_window_end_ns(const struct fold *f, uint64_t boot_ns)
{
	uint64_t due_ns = fold_next_flush_ns(f), late_ns = boot_ns > due_ns ? boot_ns - due_ns : 0;

	return due_ns + late_ns - late_ns % f->window_ns;
}

static void set_end(struct batch *b, uint64_t end_ns)
{
	for (size_t i = 0; i < b->n_profiles; i++)
		b->profiles[i]->end_ns = end_ns;
}

/*
 * Sets the end of a window that is cut short, or that lasts a little longer because the clock was
 * set at its end. The end is computed with the clock that the window began with. Time in which the
 * machine slept is not part of the window.
 */
static void window_cut(struct fold *f, uint64_t boot_ns)
{
	uint64_t now_ns = boot_ns - f->asleep_ns + f->offset_ns;

	if (now_ns <= f->start_ns || now_ns >= f->end_ns + f->window_ns)
		return;
	set_end(f->batch, now_ns);
}

static bool clock_was_set(const struct fold *f, uint64_t boot_ns, uint64_t wall_ns)
{
	int64_t moved_ns = (int64_t)(wall_ns - boot_ns - f->offset_ns);

	return moved_ns > (int64_t)STEP_NS || moved_ns < -(int64_t)STEP_NS;
}

void fold_note_sleep(struct fold *f, uint64_t ns)
{
	f->asleep_ns += ns;
}

int fold_flush(struct fold *f, uint64_t now_boot_ns, uint64_t now_wall_ns, bool force,
	       struct batch **ret)
{
	bool ended = now_boot_ns >= fold_next_flush_ns(f);
	bool set = clock_was_set(f, now_boot_ns, now_wall_ns) || f->asleep_ns;
	uint64_t old_end_ns = f->end_ns;
	struct batch *old = f->batch;

	if (!ended && !set && !force) {
		*ret = NULL;
		return 0;
	}
	if (!ended || set)
		window_cut(f, now_boot_ns);
	fold_apply_estimates(f);
	fold_forget_profiles(f);
	fold_forget_shares(f);
	window_open(f, now_boot_ns, now_wall_ns, !ended || set);
	if (ended && !set && f->start_ns < old_end_ns) {
		/*
		 * the wall clock was slowed down a little: the new window must not begin before the
		 * end of the old one
		 */
		f->start_ns = old_end_ns;
		f->end_ns = old_end_ns + f->window_ns;
	} else if (ended && !set && f->start_ns > old_end_ns) {
		/*
		 * this call is late by whole windows: the old window lasts until the new one begins
		 */
		set_end(old, f->start_ns);
	}
	*ret = old->n_profiles ? old : profile_batch_free(old);
	if (f->asleep_ns)
		fold_lose(f, NULL, (1u << _EVENT_MAX) - 1, "asleep", 0, f->asleep_ns);
	f->asleep_ns = 0;
	return 0;
}

/* ---- adding samples ---- */

static void count_links(const char *reason, uint64_t n)
{
	counter_add(counter("podflame_links_dropped_total", "reason", reason), n);
}

static void count_labels(const char *reason, uint64_t n)
{
	counter_add(counter("podflame_labels_dropped_total", "reason", reason), n);
}

/*
 * Returns the sample's labels. NULL: it has none, or its container has used up its bytes for
 * labels.
 */
static const struct profile_labels *labels_of(struct fold *f, const struct raw_sample *s)
{
	if (!s->labels || fold_may_label(f))
		return sample_labels(f->batch, s);
	count_labels("budget", s->n);
	return NULL;
}

static void count_late(const struct fold *f, uint64_t time_ns, uint64_t n)
{
	if (time_ns + f->offset_ns < f->start_ns)
		counter_add(counter(LATE_COUNTER, "reason", "after_window"), n);
}

static const char *text16(struct batch *b, const char *s)
{
	return s && *s ? profile_batch_strn(b, s, 16) : NULL;
}

static const char *service_name(struct fold *f, const struct fold_process *p,
				const struct raw_names *names)
{
	const char *comm = p->comm && *p->comm ? profile_batch_str(f->batch, p->comm) : NULL;

	if (!comm && names)
		comm = text16(f->batch, names->leader_comm);
	return comm ? comm : profile_batch_str(f->batch, "unknown");
}

static uint32_t ppm_of(uint32_t keep)
{
	return MAX((uint32_t)(((uint64_t)keep + 1) * 1000000 >> 32), 1u);
}

/*
 * Returns a sample with all members except the stack and the link, and process_comm, which only
 * "Total" has.
 */
static struct profile_sample sample_of(struct fold *f, const struct raw_sample *s,
				       const struct raw_names *names, const char *service)
{
	struct profile_sample sample = {
		.value = (int64_t)MIN(s->value, (uint64_t)PROFILE_MAX_VALUE),
		.n_samples = s->n,
		.thread_comm = names ? text16(f->batch, names->thread_comm) : NULL,
		.main_thread = s->tid == s->tgid,
		.cpu = f->per_cpu && s->cpu != UINT32_MAX ? (int32_t)s->cpu : -1,
		.wait = s->event == EVENT_OFF_CPU ? s->wait : WAIT_NONE,
		.labels = labels_of(f, s),
	};

	if (!sample.thread_comm && sample.main_thread)
		sample.thread_comm = service;
	return sample;
}

static struct profile_key key_of(const struct fold_process *p, enum event event,
				 const char *service)
{
	bool snapshot = profile_event_info(event)->snapshot;
	struct profile_key key;

	memset(&key, 0, sizeof(key)); /* all bytes of a key are compared, padding included */
	key.owner = snapshot ? NULL : p->owner;
	key.comm = snapshot ? NULL : service;
	key.id = p->id;
	key.event = event;
	return key;
}

static void note_period(struct profile *p, uint64_t value_us, uint64_t n)
{
	if (!p->period_ns && p->event == EVENT_ON_CPU && n)
		p->period_ns = value_us / n * 1000;
}

static void note_thinning(struct profile *p, const struct owner *o)
{
	uint32_t ppm = o ? ppm_of(o->off_keep) : 0;

	if (p->event == EVENT_OFF_CPU && o && o->off_keep != UINT32_MAX &&
	    (!p->estimate_ppm || ppm < p->estimate_ppm))
		p->estimate_ppm = ppm;
}

/*
 * Tries to add a sample without its link, and then also without its labels: the window may already
 * have an equal sample, to which it can be added.
 */
static bool put_without(struct fold *f, struct profile_entry *e, struct profile_sample *sample)
{
	if (sample->link) {
		count_links("window_full", sample->n_samples);
		sample->link = 0;
		if (fold_put_sample(f, e, sample))
			return true;
	}
	if (!sample->labels)
		return false;
	count_labels("window_full", sample->n_samples);
	sample->labels = NULL;
	return fold_put_sample(f, e, sample);
}

bool fold_add(struct fold *f, const struct fold_process *p, const struct raw_sample *s,
	      const struct raw_names *names, uint32_t stack)
{
	const char *service = service_name(f, p, names);
	struct profile_key key = key_of(p, s->event, service);
	struct profile_sample sample;
	struct profile_entry *e;
	bool empty = !s->n && !s->value;

	count_late(f, s->last_ns, s->n);
	if (fold_is_full(f, 0) && !fold_has_profile(f, &key)) {
		fold_lose(f, p->owner, 1u << s->event, "window_full", s->n, 0);
		return false;
	}
	e = fold_find_profile(f, &key, p->owner, p->container_pid);
	if (profile_event_info(s->event)->snapshot &&
	    !fold_begin_snapshot(f, e, p, service, s->last_ns))
		return true;
	if (empty)
		return true;
	sample = sample_of(f, s, names, service);
	sample.stack = stack;
	sample.wait = profile_wait_of(sample.wait, f->batch, stack);
	if (s->link && !fold_link(f, e, s->link, &sample))
		count_links("budget", s->n);
	note_period(e->profile, s->value, s->n);
	note_thinning(e->profile, p->owner);
	if (fold_put_sample(f, e, &sample) || put_without(f, e, &sample))
		return true;
	fold_lose(f, p->owner, 1u << s->event, "window_full", s->n, 0);
	return false;
}

uint64_t fold_value_before(const struct raw_sample *s, const struct owner *o, uint64_t boot_ns)
{
	uint64_t late_ns = s->last_ns > boot_ns ? s->last_ns - boot_ns : 0, span_ns;
	double measured_us = (double)s->value;

	if (s->event != EVENT_OFF_CPU || !late_ns)
		return s->value;
	if (o) /* only a part of the waits was measured; the value is scaled up to all waits */
		measured_us *= ((double)o->off_keep + 1) / 4294967296.0;
	span_ns = MAX(s->last_ns - MIN(s->first_ns, s->last_ns), (uint64_t)(measured_us * 1e3));
	if (late_ns >= span_ns)
		return 0;
	return (uint64_t)((__uint128_t)s->value * (span_ns - late_ns) / span_ns);
}

/* ---- values of whole nodes and containers ---- */

/* Adds a sample without a stack to a profile whose name is not that of a process ("Total"). */
static void add_pseudo(struct fold *f, struct owner *owner, enum event event, const char *service,
		       const struct profile_sample *sample)
{
	struct profile_key key;
	struct profile_entry *e;

	memset(&key, 0, sizeof(key));
	key.owner = owner;
	key.comm = profile_batch_str(f->batch, service);
	key.event = event;
	e = fold_find_profile(f, &key, owner, 0);
	note_period(e->profile, (uint64_t)sample->value, sample->n_samples);
	if (!fold_put_sample(f, e, sample))
		fold_lose(f, owner, 1u << event, "window_full", sample->n_samples, 0);
}

void fold_total(struct fold *f, const struct raw_total *t, uint64_t time_ns)
{
	const struct profile_sample sample = {
		.stack = STACK_NONE,
		.value = (int64_t)MIN(t->value, (uint64_t)PROFILE_MAX_VALUE),
		.n_samples = t->n,
		.process_comm = text16(f->batch, t->leader_comm),
		.thread_comm = text16(f->batch, t->thread_comm),
		.main_thread = t->main_thread,
		.cpu = -1,
	};

	count_late(f, time_ns, t->n);
	add_pseudo(f, NULL, EVENT_ON_CPU, PROCESS_TOTAL, &sample);
}

void fold_throttled(struct fold *f, struct owner *owner, uint64_t us, uint64_t n)
{
	const struct profile_sample sample = {
		.stack = STACK_NONE,
		.value = (int64_t)MIN(us, (uint64_t)PROFILE_MAX_VALUE),
		.n_samples = n,
		.cpu = -1,
	};

	add_pseudo(f, owner, EVENT_OFF_CPU, PROCESS_HELD, &sample);
}

void fold_lose(struct fold *f, const struct owner *owner, unsigned event_mask, const char *reason,
	       uint64_t n, uint64_t time_ns)
{
	struct profile_key key;

	memset(&key, 0, sizeof(key));
	key.owner = owner;
	for (enum event e = 0; e < _EVENT_MAX; e++) {
		if (!(event_mask & 1u << e))
			continue;
		key.event = e;
		profile_lose(f->batch,
			     fold_find_profile(f, &key, (struct owner *)owner, 0)->profile, reason,
			     n, time_ns);
	}
}
