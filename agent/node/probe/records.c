// SPDX-License-Identifier: Apache-2.0
/*
 * records: takes records out of the ring. Stacks, names, contexts and texts are kept until the
 * counts of their generation are taken. Processes and cgroups are passed on with the next drain,
 * which may be a quick one. So are copies of the stacks of young processes: a young process may end
 * soon, and the names of some of its frames are in its memory.
 */
#include "node/probe/internal.h"

#define MAX_YOUNG 4096 /* copied stacks of young processes in one drain */

_Static_assert((int)RAW_WORK_KERNEL == (int)PODFLAME_CUDA_KERNEL, "abi");
_Static_assert((int)RAW_WORK_COPY == (int)PODFLAME_CUDA_COPY, "abi");
_Static_assert((int)RAW_WORK_SET == (int)PODFLAME_CUDA_SET, "abi");

static const char *const end_reasons[_PF_END_MAX] = {
#define X(name, text) [PF_END_##name] = text,
	PF_STACK_ENDS(X)
#undef X
};

/*
 * Makes a frame of a record's words. words: the frame's header, followed by the part of its payload
 * that the record contains.
 */
static struct raw_frame frame_of(const uint64_t *words, uint32_t n, uint32_t exec_id)
{
	enum pf_frame_kind kind = words[0] & 0xff;
	struct raw_frame f = {
		.kernel = kind == PF_FRAME_KERNEL,
		.no_file = kind == PF_FRAME_NO_FILE,
		.exec_id = exec_id,
	};

	if (kind == PF_FRAME_RUNTIME && n > 2) {
		f.runtime = words[0] >> 16;
		f.type = words[0] >> 24;
		memcpy(f.words, &words[1], sizeof(f.words));
	} else if (kind != PF_FRAME_RUNTIME) {
		f.address = words[1];
	}
	if (kind == PF_FRAME_FILE && n > 2) {
		f.file_offset = PF_FRAME_MORE(words[0]);
		f.tag = words[2];
	}
	return f;
}

/*
 * Adds the only frame of a stack of a GPU's work. The name follows, padded to whole items of the
 * array with at least one NUL.
 */
static bool gpu_work_add(struct buf *memory, const struct pf_rec_stack *r, size_t *ret_n)
{
	static const struct raw_frame zeros;
	uint64_t more = PF_FRAME_MORE(r->words[0]);
	struct raw_frame f = {
		.gpu_work = true,
		.exec_id = r->exec_id,
		.work = more,
		.copy = more >> 8,
		.name_cut = more >> 16 & 1,
	};
	size_t bytes = strnlen((const char *)&r->words[1], (r->n_words - 1) * sizeof(r->words[0]));

	*ret_n = 1 + (bytes ? bytes / sizeof(f) + 1 : 0);
	return !buf_add(memory, &f, sizeof(f)) && !buf_add(memory, &r->words[1], bytes) &&
	       (!bytes || !buf_add(memory, &zeros, sizeof(f) - bytes % sizeof(f)));
}

static bool frames_add(struct buf *memory, const struct pf_rec_stack *r, size_t *ret_n)
{
	size_t n = 0;

	if (r->n_words && (r->words[0] & 0xff) == PF_FRAME_GPU_WORK)
		return gpu_work_add(memory, r, ret_n);
	for (uint32_t i = 0; i + 1 < r->n_words; n++) {
		struct raw_frame f = frame_of(&r->words[i], r->n_words - i, r->exec_id);

		if (buf_add(memory, &f, sizeof(f)))
			return false;
		i += 1 + (r->words[i] >> 8 & 0xff);
	}
	*ret_n = n;
	return true;
}

/* If the stack is of a young process, copies it into the next drain, too. */
static void on_young(struct probes *p, const struct pf_rec_stack *r, const struct raw_frame *frames,
		     size_t n)
{
	struct pending *now = &p->now;
	struct raw_young *y;

	if (!r->young_tgid)
		return;
	if (!probes_share_may_add(&p->young_shares, r->h.share % PF_SHARES_MAX, 1, MAX_YOUNG)) {
		counter_add(counter("podflame_young_stacks_dropped_total", NULL, NULL), 1);
		return;
	}
	GROW(now->d->young, now->d->n_young, now->cap_young);
	y = &now->d->young[now->d->n_young++];
	*y = (struct raw_young){.tgid = r->young_tgid,
				.start_boottime_ns = r->young_start_boottime_ns,
				.frames = xmemdup(frames, n * sizeof(*frames)),
				.stack = {.hash = r->hash, .n = n}};
	y->stack.frames = y->frames;
}

/* Adds the frames if the namespace may have more. shares: of the generation's memory, in bytes */
static bool frames_add_to(struct pf_shares *shares, uint32_t share, struct buf *memory,
			  const struct pf_rec_stack *r, size_t *ret_n)
{
	const size_t at = memory->len;

	if (!probes_share_may_add(shares, share, 0, memory->max_bytes))
		return false;
	if (!frames_add(memory, r, ret_n)) {
		shares->refused[share] = PF_ALL_EVENTS;
		return false;
	}
	probes_share_more_by(shares, share, (uint32_t)(memory->len - at));
	return true;
}

static void on_stack(struct probes *p, struct pending *g, const struct pf_rec_stack *r)
{
	const uint32_t share = r->h.share % PF_SHARES_MAX;
	struct drain *d = g->d;
	size_t at = d->memory->len, n;

	if (!frames_add_to(&p->frame_shares[g - p->generations], share, d->memory, r, &n)) {
		sample_drain_lose_records(d, "memory", 1);
		return;
	}
	on_young(p, r, (const struct raw_frame *)(d->memory->data + at), n);
	GROW(d->stacks, d->n_stacks, g->cap_stacks);
	d->stacks[d->n_stacks++] = (struct raw_stack){
		.hash = r->hash,
		.frames = (const struct raw_frame *)(uintptr_t)at,
		.n = n,
		.end_reason = r->end < _PF_END_MAX ? end_reasons[r->end] : "unknown",
		.share = share,
	};
}

static void on_names(struct pending *g, const struct pf_rec_names *r)
{
	struct raw_names *n;

	GROW(g->d->names, g->d->n_names, g->cap_names);
	n = &g->d->names[g->d->n_names++];
	n->hash = r->hash;
	n->share = r->h.share % PF_SHARES_MAX;
	memcpy(n->leader_comm, r->leader_comm, sizeof(n->leader_comm));
	memcpy(n->thread_comm, r->thread_comm, sizeof(n->thread_comm));
}

_Static_assert(RAW_TEXT_BYTES == PF_TEXT_BYTES, "abi");

static void on_text(struct pending *g, const struct pf_rec_text *r)
{
	struct raw_text *t;

	GROW(g->d->texts, g->d->n_texts, g->cap_texts);
	t = &g->d->texts[g->d->n_texts++];
	t->hash = r->hash;
	t->share = r->h.share % PF_SHARES_MAX;
	memcpy(t->text, r->text, sizeof(t->text));
	t->text[sizeof(t->text) - 1] = '\0';
}

static enum raw_proc_what what_of(const struct pf_rec_proc *r)
{
	switch (r->what) {
	case PF_PROC_EXIT:
		return RAW_PROC_EXIT;
	case PF_PROC_EXEC:
		return RAW_PROC_EXEC;
	case PF_PROC_MAPS:
	case PF_PROC_FUNCTIONS:
		return RAW_PROC_MAPS;
	}
	return RAW_PROC_SEEN;
}

static void on_proc(struct probes *probes, const struct pf_rec_proc *r)
{
	struct pending *now = &probes->now;
	struct raw_proc *p;

	GROW(now->d->procs, now->d->n_procs, now->cap_procs);
	p = &now->d->procs[now->d->n_procs++];
	*p = (struct raw_proc){
		.what = what_of(r),
		.all_known = r->all_known,
		.tgid = r->tgid,
		.tgid_root = r->tgid_root,
		.tgid_own = r->tgid_own,
		.exec_id = r->exec_id,
		.stack = r->stack,
		.start_boottime_ns = r->start_boottime_ns,
		.cgroup_id = r->cgroup_id,
		.time_ns = r->time_ns,
	};
	memcpy(p->comm, r->comm, sizeof(p->comm));
	probes_live_ended(probes, r);
}

static void on_cgroup(struct probes *p, const struct pf_rec_cgroup *r)
{
	struct pending *now = &p->now;

	probes_filter_told(p, r);
	GROW(now->d->cgroups, now->d->n_cgroups, now->cap_cgroups);
	now->d->cgroups[now->d->n_cgroups++] = (struct raw_cgroup){
		.id = r->id,
		.parent_id = r->parent_id,
		.removed = r->removed,
		.armed = r->armed,
		.path = xstrndup(r->path, sizeof(r->path)),
	};
}

int probes_record_take(void *arg, void *data, size_t n)
{
	struct probes *p = arg;
	const struct pf_record *h = data;
	struct pending *g;

	if (n < sizeof(*h)) {
		sample_drain_lose_records(p->now.d, "short", 1);
		return 0;
	}
	if (p->ring_shares)
		probes_share_less_by(p->ring_shares, h->share % PF_SHARES_MAX, PF_RING_TAKES(n));
	g = &p->generations[h->generation % PF_GENERATIONS];
	switch (h->type) {
	case PF_REC_STACK:
		on_stack(p, g, data);
		break;
	case PF_REC_NAMES:
		on_names(g, data);
		break;
	case PF_REC_CONTEXT:
		probes_contexts_add(g, data, n);
		break;
	case PF_REC_TEXT:
		on_text(g, data);
		break;
	case PF_REC_PROC:
		on_proc(p, data);
		break;
	case PF_REC_CGROUP:
		on_cgroup(p, data);
		break;
	default:
		sample_drain_lose_records(p->now.d, "unknown_type", 1);
	}
	return 0;
}
