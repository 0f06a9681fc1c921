/* SPDX-License-Identifier: Apache-2.0 */
/* A selection as a file: its rows become a batch of profiles, which formats.c writes. */
#include "hub/query/query.h"

#include <stdlib.h>
#include <uthash.h>

/* The profile of a process name and a value of the selection's group_by. */
struct profile_key {
	/* interned; group NULL: none; of a joint tag, the values of all */
	const char *app, *group;
};
struct file_profile {
	struct profile_key key;
	struct profile *profile;
	UT_hash_handle hh;
};

struct query_file {
	struct batch *batch;
	struct file_profile *profiles;
	const struct selection *sel;
	struct store_joined joined[STORE_MAX_JOINED]; /* the tags of a joint group_by */
	size_t n_joined;			      /* 0: it is one tag */
	char *joined_names;			      /* that they point to */
	bool labels[_LABEL_MAX];		      /* those that samples get */
	tree_names_fn *names;			      /* NULL: frames without a name stay */
	void *names_arg;
	struct buf_budget *budget;    /* of the memory of the file; NULL: none */
	size_t n_profile_bytes;	      /* of profiles and their samples */
	size_t n_counted;	      /* bytes that the budget has given */
	const char *const *call_site; /* stacks that do not begin with it are left out */
	size_t n_call_site;
};

struct query_file *query_file_new(const struct selection *sel, tree_names_fn *names, void *arg)
{
	struct query_file *f = xcalloc(1, sizeof(*f));

	*f = (struct query_file){
		.batch = profile_batch_new(), .sel = sel, .names = names, .names_arg = arg};
	f->batch->max_bytes = QUERY_MAX_FILE_BYTES;
	if (sel->group_by && store_is_joint(sel->group_by))
		f->n_joined = store_joined(sel->group_by, f->joined, &f->joined_names);
	return f;
}

struct query_file *query_file_free(struct query_file *f)
{
	struct file_profile *p, *next;

	if (!f)
		return NULL;
	HASH_ITER (hh, f->profiles, p, next) {
		HASH_DEL(f->profiles, p);
		free(p);
	}
	profile_batch_free(f->batch);
	free(f->joined_names);
	free(f);
	return NULL;
}

void query_file_set_tags(struct query_file *f, const char *const *tags, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		enum profile_label label = profile_label_of_tag(tags[i]);

		if (label != _LABEL_MAX)
			f->labels[label] = true;
	}
}

void query_file_set_budget(struct query_file *f, struct buf_budget *b)
{
	f->budget = b;
}

void query_file_set_call_site(struct query_file *f, const char *const *names, size_t n)
{
	f->call_site = names;
	f->n_call_site = n;
}

/* Takes what the file has grown by from its budget. An array counts with its free part. */
static int count_memory(struct query_file *f)
{
	const struct batch *b = f->batch;

	return buf_budget_grow(f->budget,
			       profile_batch_bytes(b) + b->cap_stacks * sizeof(*b->stacks) +
				       f->n_profile_bytes,
			       &f->n_counted);
}

/* Gives a profile the values of the tags of a joint one. */
static void put_tags(struct query_file *f, struct profile *p, const char *group)
{
	char *values[STORE_MAX_JOINED];

	if (store_joined_values(group, f->n_joined, values))
		return; /* [others] has no values */
	for (size_t i = 0; i < f->n_joined; i++) {
		if (values[i])
			profile_tag(f->batch, p, f->joined[i].tag, values[i]);
		free(values[i]);
	}
}

static struct profile *profile_of(struct query_file *f, const struct store_row *row)
{
	const struct profile_key key = {.app = profile_batch_str(f->batch, row->app_service ?: ""),
					.group = profile_batch_str(f->batch, row->group)};
	struct file_profile *p;

	HASH_FIND(hh, f->profiles, &key, sizeof(key), p);
	if (p)
		return p->profile;
	p = xcalloc(1, sizeof(*p));
	*p = (struct file_profile){.key = key, .profile = profile_batch_profile(f->batch)};
	p->profile->event = f->sel->event;
	p->profile->start_ns = (uint64_t)f->sel->time_start_s * NSEC_PER_SEC;
	p->profile->end_ns = ((uint64_t)f->sel->time_end_s + 1) * NSEC_PER_SEC;
	p->profile->app_service = key.app;
	if (key.group && f->n_joined)
		put_tags(f, p->profile, key.group);
	else if (key.group)
		profile_tag(f->batch, p->profile, f->sel->group_by, key.group);
	HASH_ADD(hh, f->profiles, key, sizeof(key), p);
	f->n_profile_bytes += sizeof(*p) + sizeof(*p->profile);
	return p->profile;
}

/* The labels of a row's sample, of those that are asked for. */
static const struct profile_labels *labels_of(struct query_file *f, const struct store_row *row)
{
	struct profile_labels l = {0};
	bool some = false;

	for (enum profile_label i = 0; row->labels && i < _LABEL_MAX; i++) {
		if (!f->labels[i] || !row->labels[i])
			continue;
		l.values[i] = profile_batch_str(f->batch, row->labels[i]);
		some = true;
	}
	return some ? profile_batch_labels(f->batch, &l) : NULL;
}

/* Fills list with the frames of the row, and with names for those without. Returns how many. */
static size_t named_frames(struct query_file *f, const struct store_row *row,
			   struct frame list[static STACK_MAX_FRAMES])
{
	size_t n = 0;

	for (size_t i = 0; i < row->n_frames && n < STACK_MAX_FRAMES; i++) {
		const struct frame *frame = row->frames[i], *named = NULL;
		size_t n_named = !frame->name && f->names
					 ? f->names(frame, row->ns, f->names_arg, &named)
					 : 0;

		if (!n_named)
			list[n++] = *frame;
		for (size_t k = 0; k < n_named && n < STACK_MAX_FRAMES; k++)
			list[n++] = named[k];
	}
	return n;
}

/* Whether a stack begins with the call site. Names are those of nodes: query_nodes_of(). */
static bool is_at_call_site(const struct query_file *f, const struct frame *list, size_t n,
			    enum wait wait)
{
	_cleanup_buf_ struct buf name = {0};
	bool user_seen = false;

	for (size_t i = 0; i < f->n_call_site; i++) {
		const struct frame *frame = i < n    ? &list[i]
					    : i == n ? profile_wait_frame(wait)
						     : NULL;
		bool user = frame && frame->kind != FRAME_KERNEL && frame->kind != FRAME_MARKER;

		if (!frame)
			return false;
		buf_reset(&name);
		profile_frame_render(frame, user && !user_seen, &name);
		user_seen |= user;
		if (!streq(name.data, f->call_site[i]))
			return false;
	}
	return true;
}

int query_file_add(const struct store_row *row, void *arg)
{
	struct query_file *f = arg;
	_cleanup_free_ struct frame *list = xcalloc(STACK_MAX_FRAMES, sizeof(*list));
	struct profile *p;
	struct profile_sample *s;
	size_t cap;
	uint32_t stack;
	size_t n = named_frames(f, row, list);
	int e;

	if (!is_at_call_site(f, list, n, row->head.wait))
		return 0;
	e = profile_batch_stack(f->batch, list, n, &stack);
	if (e)
		return e;
	p = profile_of(f, row);
	cap = p->cap_samples;
	s = profile_add(f->batch, p);
	if (!s)
		return -E2BIG;
	f->n_profile_bytes += (p->cap_samples - cap) * sizeof(*s);
	*s = (struct profile_sample){
		.stack = stack,
		.value = row->value,
		.n_samples = row->n_samples,
		.process_comm = profile_batch_str(f->batch, row->head.process_comm),
		.thread_comm = profile_batch_str(f->batch, row->head.thread_comm),
		.main_thread = row->head.main_thread,
		.cpu = -1,
		.wait = row->head.wait,
		.labels = labels_of(f, row),
	};
	return count_memory(f);
}

const struct batch *query_file_batch(const struct query_file *f)
{
	return f->batch;
}
