/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a Go program's own heap profile and makes a drain of it. See go_heap_drain.h. It runs on
 * the files worker. Between calls only the caller's struct alloc_go_heap is kept.
 */
#include "node/learn/go_heap_drain.h"

#include <stdlib.h>

/* the id of the names of the process, which is the only one in the drain */
#define NAMES		 1
#define FRAMES_BYTES_MAX (64u << 20) /* bytes of the frames of one read */

struct heap_feed {
	const struct go_process *who;
	struct drain *d;
	size_t cap_samples, cap_stacks;
	size_t n_live;
};

static uint64_t hash_stack(const struct alloc_go_record *r)
{
	uint64_t h = r->n_addresses << 1 | r->truncated;

	for (size_t i = 0; i < r->n_addresses; i++) {
		h = (h ^ r->addresses[i]) * 0x9e3779b97f4a7c15ull;
		h ^= h >> 32;
	}
	return h ? h : 1; /* 0 would mean: no stack */
}

/* Adds a stack. Returns false if there are too many frames. */
static bool add_stack(struct heap_feed *f, const struct alloc_go_record *r, uint64_t hash)
{
	struct drain *d = f->d;
	size_t at = d->memory->len;

	for (size_t i = 0; i < r->n_addresses; i++) {
		/*
		 * The address of the leaf, too, is a return address: that of the call under way. So
		 * 1 is subtracted.
		 */
		struct raw_frame frame = {.exec_id = f->who->exec_id,
					  .address = r->addresses[i] - (i == 0)};

		if (buf_add(d->memory, &frame, sizeof(frame)) < 0)
			return false;
	}
	GROW(d->stacks, d->n_stacks, f->cap_stacks);
	d->stacks[d->n_stacks++] = (struct raw_stack){
		.hash = hash,
		.frames = (const struct raw_frame *)(uintptr_t)at,
		.n = r->n_addresses,
		.end_reason = r->truncated ? "truncated" : NULL,
	};
	return true;
}

static void add_sample(struct heap_feed *f, enum event event, uint64_t stack, uint64_t n,
		       uint64_t bytes)
{
	struct drain *d = f->d;

	GROW(d->samples, d->n_samples, f->cap_samples);
	d->samples[d->n_samples++] = (struct raw_sample){
		.event = event,
		.start_boottime_ns = f->who->id.start_boottime_ns,
		.cgroup_id = f->who->cgroup_id,
		.ustack = stack,
		.names = NAMES,
		.tgid = (uint32_t)f->who->id.tgid,
		/* the profile has no thread ids, so the process id is used */
		.tid = (uint32_t)f->who->id.tgid,
		.cpu = UINT32_MAX,
		.n = n,
		.value = bytes,
		.first_ns = d->to_ns,
		.last_ns = d->to_ns,
	};
}

static void on_record(const struct alloc_go_record *r, void *arg)
{
	struct heap_feed *f = arg;
	bool alloc = r->alloc_bytes && f->who->event_mask & 1u << EVENT_MEM_ALLOC;
	bool live = r->inuse_bytes && f->who->event_mask & 1u << EVENT_MEM_INUSE;
	uint64_t hash = hash_stack(r);

	if (!alloc && !live)
		return;
	if (r->n_addresses && !add_stack(f, r, hash)) {
		profile_samples_lost(&f->d->lost, 1u << EVENT_MEM_ALLOC, "go_heap_full", alloc);
		profile_samples_lost(&f->d->lost, 1u << EVENT_MEM_INUSE, "go_heap_full", live);
		return;
	}
	if (alloc)
		add_sample(f, EVENT_MEM_ALLOC, hash, 1, r->alloc_bytes);
	if (live)
		add_sample(f, EVENT_MEM_INUSE, hash, 1, r->inuse_bytes);
	f->n_live += live;
}

/*
 * Adds the name of the process as that of the thread, too, because the profile has no thread names.
 */
static void add_names(struct drain *d, uint32_t tgid)
{
	_cleanup_free_ char *path = xasprintf("/proc/%u/comm", tgid), *text = NULL;
	struct raw_names *n;

	if (file_read(-1, path, 64, &text, NULL) < 0)
		return;
	text[strcspn(text, "\n")] = '\0';
	n = d->names = xcalloc(1, sizeof(*d->names));
	d->n_names = 1;
	n->hash = NAMES;
	snprintf(n->leader_comm, sizeof(n->leader_comm), "%s", text);
	memcpy(n->thread_comm, n->leader_comm, sizeof(n->thread_comm));
}

int learn_go_heap(struct alloc_go_heap *g, const struct go_process *who, struct drain **ret)
{
	struct runtime_asked of = {.charged_ns = who->charged_ns};
	struct heap_feed f = {.who = who};
	int r = runtime_process_memory_open(who->id, &of.memory);

	if (r < 0)
		return r;
	f.d = sample_drain_new(FRAMES_BYTES_MAX);
	f.d->from_ns = f.d->to_ns = now_boot_ns();
	add_names(f.d, (uint32_t)who->id.tgid);
	alloc_go_charge(g, who->charged_ns);
	r = alloc_go_read(g, runtime_go_heap_ask, &of, on_record, &f);
	runtime_process_memory_close(of.memory);
	if (r < 0 && r != -E2BIG)
		f.d->n_samples = 0;
	if (!f.n_live && r == 0 && who->event_mask & 1u << EVENT_MEM_INUSE)
		add_sample(&f, EVENT_MEM_INUSE, 0, 0, 0);
	/* one place may allocate objects of several sizes, so a stack may appear several times */
	(void)sample_drain_sort(f.d);
	sample_drain_link_frames(f.d);
	if (f.d->n_samples || f.d->lost.n)
		*ret = f.d;
	else
		sample_drain_free(f.d);
	return r;
}
