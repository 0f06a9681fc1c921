/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns samples into frames and puts them into the window of their container. judge.c decides which
 * samples count. Every sample that is left out is counted by reason. What the kernel lost goes into
 * the window in which it was lost. This file owns the open windows. It runs on the pipeline worker.
 */
#include "node/pipeline/internal.h"

#include <stdlib.h>

#define ALL_PPM 1000000

static void exclude(const char *reason, uint64_t n)
{
	counter_add(counter("podflame_samples_excluded_total", "reason", reason), n);
}

static void assert_thread(const struct windows *p)
{
	if (p->work)
		work_assert_on(p->work, pipe);
}

/* ---- creation and end ---- */

int pipeline_windows_new(const struct fold_config *c, struct files *f, const struct work *work,
			 struct windows **ret)
{
	struct windows *p = xcalloc(1, sizeof(*p));
	struct stacks_config stacks = {.files = f};
	int r = stacks_new(&stacks, &p->stacks);

	p->work = work;
	p->event_mask = 1u << EVENT_ON_CPU;
	if (r == 0)
		r = fold_new(c, &p->fold);
	if (r < 0) {
		pipeline_windows_free(p);
		return r;
	}
	*ret = p;
	return 0;
}

struct windows *pipeline_windows_free(struct windows *p)
{
	if (!p)
		return NULL;
	pipeline_forget_exited(p, UINT64_MAX);
	fold_free(p->fold);
	stacks_free(p->stacks);
	shares_done(&p->crowded);
	free(p);
	return NULL;
}

void pipeline_feed_done(struct feed *f)
{
	for (size_t i = 0; i < f->n_owners; i++)
		proc_owner_unref(f->owners[i].owner);
	free(f->owners);
	for (size_t i = 0; i < f->n_held_back; i++)
		proc_owner_unref(f->held_back[i].owner);
	free(f->held_back);
	free(f->proc_ns);
	free(f->exits);
	profile_losses_done(&f->lost);
	sample_drain_free(f->drain);
	kernel_host_list_unref(f->hosts);
}

void pipeline_feed_answer_done(struct feed_answer *a)
{
	for (size_t i = 0; i < a->n_wanted; i++)
		stacks_wanted_free(a->wanted[i]);
	free(a->wanted);
	stacks_unparsed_free(a->unparsed, a->n_unparsed);
	free(a->taken);
	free(a->refused);
	shares_done(&a->crowded);
	shares_done(&a->unlinked);
	shares_done(&a->rows_refused);
	profile_batch_free(a->batch);
}

void pipeline_windows_mappings(struct windows *p, struct mappings *m, uint64_t ns)
{
	assert_thread(p);
	stacks_mappings(p->stacks, m, ns);
}

void pipeline_windows_runtimes(struct windows *p, struct process_id id, uint32_t exec_id,
			       struct runtime_process *r)
{
	assert_thread(p);
	stacks_runtimes(p->stacks, id, exec_id, r);
}

void pipeline_windows_rows_set(struct windows *p, struct process_id id, uint32_t exec_id,
			       const struct rows_told *rows)
{
	assert_thread(p);
	stacks_rows_set(p->stacks, id, exec_id, rows->runtimes, rows->since_ns, rows->until_ns);
	if (rows->skipped)
		stacks_rows_skipped(p->stacks, id, exec_id, rows->until_ns);
}

void pipeline_windows_named(struct windows *p, struct names_wanted *w)
{
	assert_thread(p);
	stacks_named(p->stacks, w);
}

/* ---- frames and folding ---- */

/* Counts whether the walk of the user stack reached the end of the stack, and if not, why. */
static void count_end(struct windows *p, const struct accepted *a, const struct raw_sample *s,
		      const struct raw_stack *user)
{
	const char *reason = user ? stacks_end(p->stacks, process_id_of(s), user) : "lost";

	if (!s->ustack)
		return;
	counter_add(counter("podflame_stacks_total", NULL, NULL), s->n);
	if (reason)
		counter_add(counter("podflame_stacks_unfinished_total", "reason", reason), s->n);
	if (!a->taken)
		return;
	a->taken->n_stacks += s->n;
	a->taken->n_finished += reason ? 0 : s->n;
}

/*
 * Returns the value of a sample. If the sample comes from uprobes and only a share of the time was
 * measured, the value is multiplied.
 */
static uint64_t scaled(const struct accepted *a, const struct raw_sample *s)
{
	uint32_t ppm = a->attribution ? a->attribution->share_ppm[s->event] : 0;
	__uint128_t value = s->value;

	if (probes_set_of(s->event) == _PROBES_SET_MAX || !ppm || ppm >= ALL_PPM)
		return s->value;
	value = value * ALL_PPM / ppm;
	return value > (uint64_t)PROFILE_MAX_VALUE ? (uint64_t)PROFILE_MAX_VALUE : (uint64_t)value;
}

static void note_folded(struct windows *p, const struct accepted *a, const struct raw_sample *s)
{
	p->event_mask |= 1u << s->event;
	counter_add(counter("podflame_samples_folded_total", NULL, NULL), s->n);
	if (!a->taken)
		return;
	/* a sample that reports no memory in use counts, too */
	a->taken->n_samples[s->event] += s->n || s->value ? s->n : 1;
	a->taken->values[s->event] += s->value;
}

static void fold_sample(struct windows *p, const struct drain *d, struct raw_sample s,
			const struct accepted *a)
{
	const struct raw_stack *user = s.ustack ? sample_drain_stack(d, s.ustack) : NULL;
	const struct raw_stack *kernel = s.kstack ? sample_drain_stack(d, s.kstack) : NULL;
	bool lost = (s.ustack && !user) || (s.kstack && !kernel);
	struct fold_process who = {
		.id = process_id_of(&s),
		.container_pid = a->owner && a->process ? a->process->container_pid : 0,
		.comm = a->names.leader_comm[0] ? a->names.leader_comm : "unknown",
		.owner = a->owner,
	};
	uint32_t stack = STACK_NONE;
	int r = fold_begin(p->fold, a->owner) ? 0 : -E2BIG;

	p->work_done += pipeline_work(user, kernel);
	stacks_taken(p->stacks, d, &s);
	if (r == 0 && (s.n || s.value))
		r = stacks_resolve(p->stacks, fold_batch(p->fold), process_id_of(&s), user, kernel,
				   lost, &stack);
	s.value = scaled(a, &s);
	if (r < 0) {
		fold_lose(p->fold, a->owner, 1u << s.event, r == -E2BIG ? "window_full" : "resolve",
			  s.n, 0);
	} else if (fold_add(p->fold, &who, &s, a->have_names ? &a->names : NULL, stack)) {
		count_end(p, a, &s, user);
		note_folded(p, a, &s);
	}
	fold_end(p->fold);
}

static uint32_t leaf_exec_id(const struct raw_stack *s)
{
	return s->n ? s->frames[0].exec_id : 0;
}

/* Notes that the namespace asks for the mappings of more programs than its share. */
static void refuse_missing(struct feed_answer *ret, enum event e, uint64_t ns)
{
	const struct raw_refused r = {SHARED_MAPPINGS, e, ns};
	size_t cap = ret->n_refused;

	counter_add(counter("podflame_mappings_dropped_total", "reason", "many_programs"), 1);
	for (size_t i = 0; i < ret->n_refused; i++)
		if (memcmp(&ret->refused[i], &r, sizeof(r)) == 0)
			return;
	GROW(ret->refused, ret->n_refused, cap);
	ret->refused[ret->n_refused++] = r;
}

static bool may_miss(const struct feed_answer *a, uint64_t ns)
{
	size_t own = 0;

	for (size_t i = 0; i < a->n_missing; i++)
		own += a->missing[i].ns == ns;
	return shares_have_room(a->n_missing, own, 1, MAX_MISSING);
}

/*
 * Notes that mappings of a process must be read. If the sample is from before an exec, its mappings
 * cannot be read any more.
 */
static void note_missing(struct feed_answer *ret, const struct raw_sample *s,
			 const struct raw_stack *user, const struct accepted *a)
{
	const struct sampled_process *proc = a->process;
	const uint64_t ns = a->owner ? a->owner->ns_hash : 0;
	const struct process_id id = process_id_of(s);
	uint32_t exec_id = leaf_exec_id(user);
	bool told = proc && proc->exec_id == exec_id;

	if (proc && exec_is_older(exec_id, proc->exec_id))
		return;
	for (size_t i = 0; i < ret->n_missing; i++)
		if (process_id_equal(ret->missing[i].id, id) && ret->missing[i].exec_id == exec_id)
			return;
	if (!may_miss(ret, ns)) {
		refuse_missing(ret, s->event, ns);
		return;
	}
	ret->missing[ret->n_missing++] =
		(struct missing){id, exec_id, told ? proc->stack : 0, s->cgroup_id, ns};
}

/*
 * Finds what the names of a drain still need. These are mappings, if a library was loaded after
 * they were read, and the names of functions that runtimes run. They are requested once per drain
 * at most. If mappings must be read, their files are requested in the second pass.
 */
static void find_missing(struct windows *p, const struct feed *f, struct feed_answer *ret)
{
	for (size_t i = 0; i < f->drain->n_samples; i++) {
		const struct raw_sample *s = &f->drain->samples[i];
		const struct raw_stack *user =
			s->ustack ? sample_drain_stack(f->drain, s->ustack) : NULL;
		struct accepted a;

		if (!user || pipeline_judge(p, f, s, &a))
			continue;
		stacks_want_files(p->stacks, process_id_of(s), user);
		if (f->last_pass)
			continue;
		if (stacks_misses(p->stacks, process_id_of(s), user))
			note_missing(ret, s, user, &a);
		stacks_want(p->stacks, process_id_of(s), user);
	}
	ret->files_asked = ret->n_missing == 0;
	ret->unparsed = stacks_unparsed(p->stacks, &ret->n_unparsed);
	ret->wanted = stacks_wanted(p->stacks, &ret->n_wanted);
	ret->waits = ret->n_missing > 0 || ret->n_unparsed > 0;
	for (size_t i = 0; i < ret->n_wanted; i++)
		ret->waits |= ret->wanted[i]->fresh;
}

/* Requests the names of young processes now, because they may end soon. */
static void want_young(struct windows *p, const struct feed *f, struct feed_answer *ret)
{
	const struct drain *d = f->drain;

	for (size_t i = 0; i < d->n_young; i++)
		stacks_want(p->stacks, process_id_of(&d->young[i]), &d->young[i].stack);
	ret->wanted = stacks_wanted(p->stacks, &ret->n_wanted);
}

/* Calls pipeline_judge(), and sets ret->taken to the sums of the sample's cgroup. */
static const char *judge(struct windows *p, const struct feed *f, const struct raw_sample *s,
			 struct taken *taken, struct accepted *ret)
{
	const char *reason = pipeline_judge(p, f, s, ret);

	ret->taken = ret->attribution ? &taken[ret->attribution - f->owners] : NULL;
	return reason;
}

/*
 * Folds one part of a wait: if `first`, the part before `boot_ns`, else the part after. So each
 * window gets only its own part.
 */
static void fold_part(struct windows *p, const struct feed *f, const struct raw_sample *s,
		      const struct accepted *a, uint64_t boot_ns, bool first)
{
	uint64_t before = fold_value_before(s, a->owner, boot_ns);
	struct raw_sample part = *s;

	part.value = first ? before : s->value - before;
	if (part.value != s->value && !part.value)
		return;
	if (!first && before)
		part.n = 0; /* the first part has counted the wait */
	fold_sample(p, f->drain, part, a);
}

static void tell_estimates(struct windows *p, const struct feed *f, struct taken *taken)
{
	for (size_t i = 0; taken && i < f->n_owners; i++) {
		const struct attribution *a = &f->owners[i];
		uint64_t *values = taken[i].values;

		for (enum event e = 0; e < _EVENT_MAX; e++) {
			if (values[e] && (a->share_ppm[e] || a->error_ppm[e]))
				fold_estimate(p->fold, a->owner, e, a->share_ppm[e],
					      (uint64_t)((__uint128_t)values[e] * a->error_ppm[e] /
							 ALL_PPM));
			values[e] = 0;
		}
	}
}

/*
 * Returns the end of the open window, for the samples of a drain. If the machine slept during the
 * drain, it is not known which samples are from before the sleep. So all of them, at most a second
 * of time awake, go into the window that the sleep ends. Waits do not include the sleep: see
 * bpf/waits.h.
 */
static uint64_t window_end(const struct windows *p, const struct feed *f, uint64_t now_ns)
{
	return f->asleep_ns ? UINT64_MAX : fold_window_end_ns(p->fold, now_ns);
}

static void fold_drain(struct windows *p, const struct feed *f, struct taken *taken)
{
	const struct drain *d = f->drain;
	uint64_t end_ns = window_end(p, f, d->to_ns);

	for (size_t i = 0; i < d->n_samples; i++) {
		const struct raw_sample *s = &d->samples[i];
		struct accepted a;
		const char *reason = judge(p, f, s, taken, &a);

		if (reason)
			exclude(reason, s->n);
		else
			fold_part(p, f, s, &a, end_ns, true);
	}
	for (size_t i = 0; i < d->n_totals; i++)
		fold_total(p->fold, &d->totals[i], d->to_ns);
	for (size_t i = 0; i < f->n_held_back; i++)
		fold_throttled(p->fold, f->held_back[i].owner, f->held_back[i].us,
			       f->held_back[i].n);
	tell_estimates(p, f, taken);
}

/* Folds the rest of waits that were not over when the window ended at end_ns. */
static void fold_rest(struct windows *p, const struct feed *f, struct taken *taken, uint64_t end_ns)
{
	const struct drain *d = f->drain;

	for (size_t i = 0; i < d->n_samples; i++) {
		const struct raw_sample *s = &d->samples[i];
		struct accepted a;

		if (s->event == EVENT_OFF_CPU && s->last_ns > end_ns && !judge(p, f, s, taken, &a))
			fold_part(p, f, s, &a, end_ns, false);
	}
	tell_estimates(p, f, taken);
}

static void end_window(struct windows *p, const struct feed *f, struct feed_answer *ret,
		       uint64_t now_ns)
{
	const uint64_t due_ns = fold_next_flush_ns(p->fold), end_ns = window_end(p, f, now_ns);
	uint64_t offset_ns = now_wall_ns() - now_boot_ns();

	fold_note_sleep(p->fold, f->asleep_ns);
	if (fold_flush(p->fold, now_ns, now_ns + offset_ns, false, &ret->batch) < 0)
		ret->batch = NULL;
	if (fold_next_flush_ns(p->fold) != due_ns)
		ret->left_ns = MIN(end_ns, now_ns) + offset_ns;
	if (f->drain)
		fold_rest(p, f, ret->taken, end_ns);
}

void pipeline_windows_gap(struct windows *p, uint64_t gap_ns)
{
	assert_thread(p);
	if (gap_ns)
		fold_lose(p->fold, NULL, (1u << _EVENT_MAX) - 1, "agent_down", 0, gap_ns);
}

void pipeline_windows_lose(struct windows *p, const struct losses *l)
{
	assert_thread(p);
	for (size_t i = 0; i < l->n; i++) {
		const struct lost *x = &l->items[i];

		fold_lose(p->fold, NULL, x->event_mask ? x->event_mask : p->event_mask, x->reason,
			  x->n, 0);
	}
}

void pipeline_windows_fold(struct windows *p, const struct feed *f, struct feed_answer *ret)
{
	uint64_t now_ns = now_boot_ns();

	assert_thread(p);
	pipeline_windows_gap(p, f->gap_ns);
	if (f->drain && !f->last_pass)
		pipeline_note_processes(p, f);
	if (!f->last_pass)
		pipeline_note_exits(p, f->exits, f->n_exits);
	shares_move_owners(&ret->crowded, &p->crowded);
	stacks_crowded(p->stacks, &ret->crowded);
	fold_unlinked(p->fold, &ret->unlinked);
	stacks_rows_refused(p->stacks, &ret->rows_refused);
	if (f->drain && f->full) {
		if (f->room && !f->last_pass)
			pipeline_crowd_out(p, f, ret);
		if (!f->files_asked)
			find_missing(p, f, ret);
		if (ret->waits)
			return;
		proc_mapping_files_look();
		/* no need to check: after a failure, the profiles have unresolved addresses */
		(void)stacks_refresh_kernel(p->stacks);
		stacks_unparsed_free(TAKE_PTR(ret->unparsed), ret->n_unparsed);
		ret->taken = xcalloc(f->n_owners + 1, sizeof(*ret->taken));
		p->work_done = 0;
		fold_drain(p, f, ret->taken);
		ret->work = p->work_done;
		ret->unparsed = stacks_unparsed(p->stacks, &ret->n_unparsed);
		now_ns = f->drain->to_ns;
	}
	if (f->drain && !f->full) {
		want_young(p, f, ret);
		return;
	}
	pipeline_windows_lose(p, &f->lost);
	/*
	 * Samples that the kernel has counted until now may arrive later. So this drain ends no
	 * window.
	 */
	if (f->whole)
		return;
	pipeline_forget_exited(p, now_ns);
	end_window(p, f, ret, now_ns);
}

const char *pipeline_windows_kernel_problem(const struct windows *p)
{
	return stacks_kernel_problem(p->stacks);
}

struct batch *pipeline_windows_flush(struct windows *p)
{
	struct batch *b;

	assert_thread(p);
	if (fold_flush(p->fold, now_boot_ns(), now_wall_ns(), true, &b) < 0)
		return NULL;
	return b;
}
