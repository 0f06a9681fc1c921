/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The profiles of the open window. This file makes their tags and ids, and adds up samples with
 * equal keys.
 */
#include "node/fold/internal.h"

#include <stdlib.h>

#define PROFILE_BYTES 2048 /* about the bytes of a profile with its tags */
#define ID_PARTS      7

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
 * Makes the id of a profile. If the agent restarts or the clock is set, a window has two parts. The
 * id contains the run and a sequence number, so profiles of both parts have different ids.
 */
static void make_id(struct fold *f, struct profile *p, const struct profile_key *k)
{
	const char *container = profile_tag_get(p, "container_id");
	char start[24], process[48], sequence[24];
	const char *parts[ID_PARTS] = {f->node_uid, f->boot_id, start,	 container ? container : "",
				       process,	    f->run,	sequence};

	snprintf(start, sizeof(start), "%llu", (unsigned long long)f->start_ns);
	snprintf(process, sizeof(process), "%u %llu %s", (unsigned)k->id.tgid,
		 (unsigned long long)k->id.start_boottime_ns, profile_event_info(k->event)->name);
	snprintf(sequence, sizeof(sequence), "%llu", (unsigned long long)f->n_profiles++);
	profile_id_make(parts, ID_PARTS, p->id);
}

bool fold_is_full(const struct fold *f, size_t more_bytes)
{
	return profile_batch_bytes(f->batch) + f->sample_bytes + more_bytes > BATCH_MAX_BYTES;
}

struct profile_entry *fold_find_profile(struct fold *f, const struct profile_key *key,
					struct owner *owner, uint32_t container_pid)
{
	struct profile_entry *e;
	struct profile *p;

	HASH_FIND(hh, f->profiles, key, sizeof(*key), e);
	if (e)
		return e;
	f->sample_bytes += PROFILE_BYTES;
	e = xcalloc(1, sizeof(*e));
	e->key = *key;
	e->owner = proc_owner_ref(owner);
	p = e->profile = profile_batch_profile(f->batch);
	p->event = key->event;
	p->start_ns = f->start_ns;
	p->end_ns = f->end_ns;
	p->app_service = key->comm ? key->comm : profile_batch_str(f->batch, "");
	p->process_id = (uint32_t)key->id.tgid;
	if (key->id.start_boottime_ns)
		p->process_start_ns = key->id.start_boottime_ns + f->first_offset_ns;
	add_tags(f, p, owner, container_pid);
	make_id(f, p, key);
	HASH_ADD(hh, f->profiles, key, sizeof(e->key), e);
	return e;
}

bool fold_has_profile(const struct fold *f, const struct profile_key *key)
{
	struct profile_entry *e;

	HASH_FIND(hh, f->profiles, key, sizeof(*key), e);
	return e;
}

static int64_t add_saturated(int64_t a, int64_t b)
{
	return a + MIN(b, PROFILE_MAX_VALUE - a);
}

static struct sample_entry *find_sample(const struct profile_entry *e,
					const struct profile_sample *s, struct sample_key *ret_key)
{
	struct sample_entry *found;

	memset(ret_key, 0, sizeof(*ret_key)); /* all bytes are compared, padding included */
	ret_key->process_comm = s->process_comm;
	ret_key->thread_comm = s->thread_comm;
	ret_key->stack = s->stack;
	ret_key->cpu = s->cpu;
	ret_key->main_thread = s->main_thread;
	ret_key->link = s->link;
	ret_key->wait = s->wait;
	ret_key->labels = s->labels;
	HASH_FIND(hh, e->samples, ret_key, sizeof(*ret_key), found);
	return found;
}

bool fold_has_sample(const struct profile_entry *e, const struct profile_sample *s)
{
	struct sample_key key;

	return find_sample(e, s, &key);
}

bool fold_put_sample(struct fold *f, struct profile_entry *e, const struct profile_sample *s)
{
	struct profile *p = e->profile;
	struct profile_sample *sum;
	struct sample_key key;
	struct sample_entry *found = find_sample(e, s, &key);

	if (!found) {
		if (fold_is_full(f, FOLD_ENTRY_BYTES))
			return false;
		f->sample_bytes += FOLD_ENTRY_BYTES;
		if (s->link)
			fold_add_linked(f, e->owner);
		found = xcalloc(1, sizeof(*found));
		found->key = key;
		found->index = p->n_samples;
		*profile_add(f->batch, p) = *s;
		HASH_ADD(hh, e->samples, key, sizeof(found->key), found);
		return true;
	}
	sum = &p->samples[found->index];
	sum->value = add_saturated(sum->value, s->value);
	sum->n_samples += s->n_samples;
	return true;
}

static void forget_samples(struct fold *f, struct profile_entry *e)
{
	struct sample_entry *s, *next;

	HASH_ITER (hh, e->samples, s, next) {
		HASH_DEL(e->samples, s);
		f->sample_bytes -= FOLD_ENTRY_BYTES;
		if (s->key.link)
			fold_remove_linked(f, e->owner);
		free(s);
	}
}

bool fold_begin_snapshot(struct fold *f, struct profile_entry *e, const struct fold_process *who,
			 const char *comm, uint64_t time_ns)
{
	struct profile *p = e->profile;

	if (time_ns <= e->snapshot_ns)
		return time_ns == e->snapshot_ns;
	e->snapshot_ns = time_ns;
	forget_samples(f, e);
	p->n_samples = 0;
	if (e->owner == who->owner && p->app_service == comm)
		return true;
	proc_owner_unref(e->owner);
	e->owner = proc_owner_ref(who->owner);
	p->app_service = comm;
	p->tags.n = 0;
	add_tags(f, p, who->owner, who->container_pid);
	return true;
}

void fold_forget_profiles(struct fold *f)
{
	struct profile_entry *e, *next;

	HASH_ITER (hh, f->profiles, e, next) {
		HASH_DEL(f->profiles, e);
		forget_samples(f, e);
		proc_owner_unref(e->owner);
		free(e);
	}
}
