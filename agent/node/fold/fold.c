/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The open window: a batch, tables that find a profile and a sample in it again,
 * and the clock that says when it ends.
 */
#include "node/fold/fold.h"

#include <stdlib.h>
#include <uthash.h>

#define STEP_NS	      (500 * NSEC_PER_MSEC) /* wall and boot time apart by more: the clock was set */
#define ENTRY_BYTES   (sizeof(struct profile_sample) + sizeof(struct sample_entry) + 64)
#define PROFILE_BYTES 2048	 /* a profile with its tags, about */
#define LINKED_BYTES  (4u << 20) /* of a window's samples that differ by their link: about 18,000 */
#define LATE_COUNTER  "podflame_samples_late_total"
#define ID_PARTS      7
#define PROCESS_TOTAL "Total"

/* Strings in keys are interned in the batch: equal ones are the same pointer. Zeroed before use. */
struct profile_key {
	const struct owner *owner;
	const char *comm; /* NULL: losses */
	uint64_t start_boottime_ns;
	uint32_t tgid;
	enum event event;
};
struct profile_entry {
	UT_hash_handle hh;
	struct profile_key key;
	struct profile *profile;
	struct owner *owner; /* a reference: the key's pointer stays unique */
};
struct sample_key {
	const struct profile *profile;
	const char *process_comm, *thread_comm;
	uint32_t stack;
	int32_t cpu;
	uint32_t main_thread;
	uint32_t link;
};
struct sample_entry {
	UT_hash_handle hh;
	struct sample_key key;
	size_t index; /* in profile->samples */
};

struct fold {
	char *node_uid, *boot_id, *node_name, *cluster_name;
	uint64_t window_ns;
	bool per_cpu;
	uint64_t first_offset_ns; /* start times of processes: the same in every window */
	char run[24];		  /* this run of the agent, in ids */
	uint64_t n_profiles;	  /* of this run, in ids */

	struct batch *batch;
	uint64_t start_ns, end_ns; /* wall time */
	uint64_t offset_ns;	   /* wall = boot + offset, modulo 2^64 */
	size_t sample_bytes, linked_bytes;
	struct profile_entry *profiles;
	struct sample_entry *samples;
};

/* ---- windows ---- */

static void window_open(struct fold *f, uint64_t boot_ns, uint64_t wall_ns)
{
	f->batch = batch_new();
	f->offset_ns = wall_ns - boot_ns;
	f->start_ns = wall_ns - wall_ns % f->window_ns;
	f->end_ns = f->start_ns + f->window_ns;
	f->sample_bytes = f->linked_bytes = 0;
}

static void window_forget(struct fold *f)
{
	struct profile_entry *p, *p_next;
	struct sample_entry *s, *s_next;

	HASH_ITER (hh, f->profiles, p, p_next) {
		HASH_DEL(f->profiles, p);
		owner_unref(p->owner);
		free(p);
	}
	HASH_ITER (hh, f->samples, s, s_next) {
		HASH_DEL(f->samples, s);
		free(s);
	}
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
	f->first_offset_ns = wall_ns - boot_ns;
	snprintf(f->run, sizeof(f->run), "%llu", (unsigned long long)boot_ns);
	window_open(f, boot_ns, wall_ns);
	*ret = f;
	return 0;
}

struct fold *fold_free(struct fold *f)
{
	if (!f)
		return NULL;
	window_forget(f);
	batch_free(f->batch);
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

/* A window that is cut short ends with the second that its last sample may lie in. */
static void window_cut(struct fold *f, uint64_t boot_ns)
{
	uint64_t now_ns = boot_ns + f->offset_ns, cut_ns = now_ns - now_ns % NSEC_PER_SEC;

	cut_ns += NSEC_PER_SEC;
	if (cut_ns <= f->start_ns || cut_ns >= f->end_ns)
		return;
	for (size_t i = 0; i < f->batch->n_profiles; i++)
		f->batch->profiles[i]->end_ns = cut_ns;
}

static bool clock_was_set(const struct fold *f, uint64_t boot_ns, uint64_t wall_ns)
{
	int64_t moved_ns = (int64_t)(wall_ns - boot_ns - f->offset_ns);

	return moved_ns > (int64_t)STEP_NS || moved_ns < -(int64_t)STEP_NS;
}

int fold_flush(struct fold *f, uint64_t now_boot_ns, uint64_t now_wall_ns, bool force,
	       struct batch **ret)
{
	bool ended = now_boot_ns >= fold_next_flush_ns(f);
	bool set = clock_was_set(f, now_boot_ns, now_wall_ns);
	uint64_t old_end_ns = f->end_ns;
	struct batch *old = f->batch;

	if (!ended && !set && !force) {
		*ret = NULL;
		return 0;
	}
	if (!ended)
		window_cut(f, now_boot_ns);
	window_forget(f);
	window_open(f, now_boot_ns, now_wall_ns);
	if (ended && !set && f->start_ns < old_end_ns) {
		/* the wall clock was slowed down a little: no second window of the same time */
		f->start_ns = old_end_ns;
		f->end_ns = old_end_ns + f->window_ns;
	}
	*ret = old->n_profiles ? old : batch_free(old);
	return 0;
}

/* ---- profiles ---- */

static void default_tag(struct fold *f, struct profile *p, const char *key, const char *value)
{
	if (value && *value && !profile_tag_get(p, key))
		profile_tag(f->batch, p, key, value);
}

static void add_tags(struct fold *f, struct profile *p, const struct owner *o,
		     uint32_t container_pid)
{
	char number[16];

	for (size_t i = 0; o && i < o->tags.n; i++)
		profile_tag(f->batch, p, o->tags.items[i].key, o->tags.items[i].value);
	if (o) {
		default_tag(f, p, "container_id", o->container_id);
		default_tag(f, p, "pod_uid", o->pod_uid);
	}
	default_tag(f, p, "pod_node", f->node_name);
	default_tag(f, p, "pod_cluster", f->cluster_name);
	if (container_pid) {
		snprintf(number, sizeof(number), "%u", container_pid);
		profile_tag(f->batch, p, "container_pid", number);
	}
}

/*
 * The run and the sequence keep the two halves of a window apart that lie before
 * and behind a restart of the agent or a step of the clock.
 */
static void make_id(struct fold *f, struct profile *p, const struct profile_key *k)
{
	const char *container = profile_tag_get(p, "container_id");
	char start[24], process[48], sequence[24];
	const char *parts[ID_PARTS] = {f->node_uid, f->boot_id, start,	 container ? container : "",
				       process,	    f->run,	sequence};

	snprintf(start, sizeof(start), "%llu", (unsigned long long)f->start_ns);
	snprintf(process, sizeof(process), "%u %llu %s", k->tgid,
		 (unsigned long long)k->start_boottime_ns, event_info(k->event)->name);
	snprintf(sequence, sizeof(sequence), "%llu", (unsigned long long)f->n_profiles++);
	profile_id_make(parts, ID_PARTS, p->id);
}

static bool window_is_full(const struct fold *f, size_t more_bytes)
{
	return batch_bytes(f->batch) + f->sample_bytes + more_bytes > BATCH_MAX_BYTES;
}

/* The profile of key, made if need be: also in a full window, so that a loss has its place. */
static struct profile *find_profile(struct fold *f, const struct profile_key *key,
				    struct owner *owner, uint32_t container_pid)
{
	struct profile_entry *e;
	struct profile *p;

	HASH_FIND(hh, f->profiles, key, sizeof(*key), e);
	if (e)
		return e->profile;
	f->sample_bytes += PROFILE_BYTES;
	e = xcalloc(1, sizeof(*e));
	e->key = *key;
	e->owner = owner_ref(owner);
	p = e->profile = batch_profile(f->batch);
	p->event = key->event;
	p->start_ns = f->start_ns;
	p->end_ns = f->end_ns;
	p->app_service = key->comm ? key->comm : batch_str(f->batch, "");
	p->process_id = key->tgid;
	if (key->start_boottime_ns)
		p->process_start_ns = key->start_boottime_ns + f->first_offset_ns;
	add_tags(f, p, owner, container_pid);
	make_id(f, p, key);
	HASH_ADD(hh, f->profiles, key, sizeof(e->key), e);
	return p;
}

static bool has_profile(const struct fold *f, const struct profile_key *key)
{
	struct profile_entry *e;

	HASH_FIND(hh, f->profiles, key, sizeof(*key), e);
	return e;
}

static int64_t add_saturated(int64_t a, uint64_t b)
{
	int64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

/* false: the window is full. */
static bool add_sample(struct fold *f, struct profile *p, const struct profile_sample *s)
{
	struct sample_key key;
	struct sample_entry *e;
	struct profile_sample *sum;

	memset(&key, 0, sizeof(key)); /* padding is compared too */
	key.profile = p;
	key.process_comm = s->process_comm;
	key.thread_comm = s->thread_comm;
	key.stack = s->stack;
	key.cpu = s->cpu;
	key.main_thread = s->main_thread;
	key.link = s->link;
	HASH_FIND(hh, f->samples, &key, sizeof(key), e);
	if (!e) {
		if (window_is_full(f, ENTRY_BYTES))
			return false;
		f->sample_bytes += ENTRY_BYTES;
		f->linked_bytes += s->link ? ENTRY_BYTES : 0;
		e = xcalloc(1, sizeof(*e));
		e->key = key;
		e->index = p->n_samples;
		*profile_add(f->batch, p) = *s;
		HASH_ADD(hh, f->samples, key, sizeof(e->key), e);
		return true;
	}
	sum = &p->samples[e->index];
	sum->value = add_saturated(sum->value, (uint64_t)s->value);
	sum->n_samples += s->n_samples;
	return true;
}

static void count_links(const char *reason, uint64_t n)
{
	counter_add(counter("podflame_links_dropped_total", "reason", reason), n);
}

/* The sample's link; 0 where it has none, or when links have used up their budget. */
static uint32_t link_of(struct fold *f, const struct raw_sample *s)
{
	uint32_t link = 0;

	if (!s->link)
		return 0;
	if (f->linked_bytes + ENTRY_BYTES > LINKED_BYTES ||
	    batch_link(f->batch, s->link, &link) < 0)
		count_links("budget", s->n);
	return link;
}

static void count_late(const struct fold *f, uint64_t time_ns, uint64_t n)
{
	if (time_ns + f->offset_ns < f->start_ns)
		counter_add(counter(LATE_COUNTER, "reason", "after_window"), n);
}

/* ---- what comes in ---- */

static const char *text16(struct batch *b, const char *s)
{
	return s && *s ? batch_strn(b, s, 16) : NULL;
}

static const char *service_name(struct fold *f, const struct fold_process *p,
				const struct raw_names *names)
{
	const char *comm = p->comm && *p->comm ? batch_str(f->batch, p->comm) : NULL;

	if (!comm && names)
		comm = text16(f->batch, names->leader_comm);
	return comm ? comm : batch_str(f->batch, "unknown");
}

void fold_add(struct fold *f, const struct fold_process *p, const struct raw_sample *s,
	      const struct raw_names *names, uint32_t stack)
{
	bool main_thread = s->tid == s->tgid;
	struct profile_sample sample = {
		.stack = stack,
		.value = (int64_t)MIN(s->value, (uint64_t)INT64_MAX),
		.n_samples = s->n,
		.thread_comm = names ? text16(f->batch, names->thread_comm) : NULL,
		.main_thread = main_thread,
		.cpu = f->per_cpu && s->cpu != UINT32_MAX ? (int32_t)s->cpu : -1,
		.link = link_of(f, s),
	};
	struct profile_key key;
	struct profile *profile;

	memset(&key, 0, sizeof(key)); /* padding is compared too */
	key.owner = p->owner;
	key.comm = service_name(f, p, names);
	key.start_boottime_ns = p->start_boottime_ns;
	key.tgid = p->tgid;
	key.event = s->event;
	if (!sample.thread_comm && main_thread)
		sample.thread_comm = key.comm;
	count_late(f, s->last_ns, s->n);
	if (window_is_full(f, 0) && !has_profile(f, &key)) {
		fold_lose(f, p->owner, "window_full", s->n, 0);
		return;
	}
	profile = find_profile(f, &key, p->owner, p->container_pid);
	if (!profile->period_ns && s->event == EVENT_ON_CPU && s->n)
		profile->period_ns = s->value / s->n * 1000; /* value: microseconds */
	if (add_sample(f, profile, &sample))
		return;
	if (sample.link) { /* there may be a sample that differs by the link alone */
		count_links("window_full", s->n);
		sample.link = 0;
		if (add_sample(f, profile, &sample))
			return;
	}
	fold_lose(f, p->owner, "window_full", s->n, 0);
}

void fold_total(struct fold *f, const struct raw_total *t, uint64_t time_ns)
{
	struct profile_sample sample = {
		.stack = STACK_NONE,
		.value = (int64_t)MIN(t->value, (uint64_t)INT64_MAX),
		.n_samples = t->n,
		.process_comm = text16(f->batch, t->leader_comm),
		.thread_comm = text16(f->batch, t->thread_comm),
		.main_thread = t->main_thread,
		.cpu = -1,
	};
	struct profile_key key;
	struct profile *profile;

	memset(&key, 0, sizeof(key));
	key.comm = batch_str(f->batch, PROCESS_TOTAL);
	key.event = EVENT_ON_CPU;
	profile = find_profile(f, &key, NULL, 0);
	if (!profile->period_ns && t->n)
		profile->period_ns = t->value / t->n * 1000;
	count_late(f, time_ns, t->n);
	if (!add_sample(f, profile, &sample))
		fold_lose(f, NULL, "window_full", t->n, 0);
}

void fold_lose(struct fold *f, const struct owner *owner, const char *reason, uint64_t n,
	       uint64_t time_ns)
{
	struct profile_key key;

	memset(&key, 0, sizeof(key));
	key.owner = owner;
	key.event = EVENT_ON_CPU;
	profile_lose(f->batch, find_profile(f, &key, (struct owner *)owner, 0), reason, n, time_ns);
}
