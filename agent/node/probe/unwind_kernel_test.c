// SPDX-License-Identifier: Apache-2.0
/*
 * The unwinder in the kernel: tables of code written by hand, how they get into the maps, the
 * mappings that the kernel reports, and uprobes and ticks on one CPU. unwind_test.c tests each
 * rule.
 */
#include "node/probe/workload_test.h"

#include <sched.h>
#include <sys/time.h>

#include "node/probe/rows_test.h"

#include "core.skel.h"
#include "memory.skel.h"
#include "uprobe_test.skel.h"

#define LISTED                                                                                     \
	(struct probe_config)                                                                      \
	{                                                                                          \
		.use_list = true, .max_sample_hz = 999                                             \
	}
#define TEST_EVENT 15 /* the event of uprobe_test.bpf.c */

/* ---- the drains of one process, sample by sample ---- */

typedef void stack_fn(const struct raw_sample *s, const struct raw_stack *stack, void *arg);

struct watch {
	pid_t pid;
	unsigned seen, maps;
	struct raw_proc proc;
	uint64_t samples;
	stack_fn *each;
	void *arg;
};

static void watch_take(struct watch *w, const struct drain *d)
{
	for (size_t i = 0; i < d->n_procs; i++) {
		if ((pid_t)d->procs[i].tgid != w->pid)
			continue;
		w->seen += d->procs[i].what == RAW_PROC_SEEN;
		w->maps += d->procs[i].what == RAW_PROC_MAPS;
		w->proc = d->procs[i];
	}
	for (size_t i = 0; i < d->n_samples; i++) {
		const struct raw_sample *s = &d->samples[i];

		if ((pid_t)s->tgid != w->pid)
			continue;
		w->samples += s->n;
		if (w->each && s->ustack)
			w->each(s, sample_drain_stack(d, s->ustack), w->arg);
	}
}

static void watch_drain(struct probes *p, struct watch *w, size_t n, bool full)
{
	struct drain *d = NULL;

	assert_int_equal(probes_drain(p, full, &d), 0);
	for (size_t i = 0; i < n; i++)
		watch_take(&w[i], d);
	sample_drain_free(d);
}

static void watch_until(struct probes *p, struct watch *w, const uint64_t *what, uint64_t n)
{
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC, start = *what;

	while (*what - start < n) {
		if (now_mono_ns() > deadline)
			fail_msg("%lu of %lu in 60 s", *what - start, n);
		nap(50);
		watch_drain(p, w, 1, true);
	}
}

static uint64_t exec_pages_of(const struct raw_proc *r)
{
	struct mappings *m = NULL;
	uint64_t pages;

	assert_int_equal(proc_mappings_read(process_id_of(r), r->exec_id, &m), 0);
	pages = m->exec_pages;
	proc_mappings_unref(m);
	return pages;
}

/* ---- rows ---- */

#define DEPTH 20

IN_SECTION(pf_short) static void spin_forever(void)
{
	for (volatile bool stop = false; !stop;)
		spin(100);
}

IN_SECTION(pf_loop) static void body_rows(struct truth *t)
{
	t->ready = 1;
	pf_rows_enter(DEPTH, spin_forever);
	t->ready = 2; /* so that the call before is no tail call */
}

struct rows_tally {
	uint64_t n, in_work, whole, pending;
	/*
	 * in the stacks whose leaf is spin_forever: the smallest and the largest number of frames
	 * in pf_rows
	 */
	unsigned least, most;
};

static void tally_rows(const struct raw_sample *s, const struct raw_stack *stack, void *arg)
{
	struct rows_tally *t = arg;
	unsigned rows = 0;
	bool entered = false;

	if (!stack)
		return;
	t->n += s->n;
	if (!IN_RANGE(stack->frames[0].address, pf_short))
		return;
	t->in_work += s->n;
	for (size_t i = 0; i < stack->n; i++) {
		rows += IN_RANGE(stack->frames[i].address, pf_rows);
		entered |= rows && IN_RANGE(stack->frames[i].address, pf_loop);
	}
	t->least = MIN(t->least, rows);
	t->most = MAX(t->most, rows);
	t->whole += entered && rows == DEPTH + 1 ? s->n : 0;
	t->pending += stack->end_reason && streq(stack->end_reason, "tables_pending") ? s->n : 0;
}

/* Returns whether the kernel counts changes of mappings: since 6.4. */
static bool changes_are_counted(struct probes *p)
{
	struct pf_vma v = {.address = (uintptr_t)__start_pf_rows};
	int map = bpf_map__fd(p->core->maps.looked);
	LIBBPF_OPTS(bpf_test_run_opts, opts);
	uint32_t zero = 0;

	assert_int_equal(bpf_map_update_elem(map, &zero, &v, BPF_ANY), 0);
	assert_int_equal(
		bpf_prog_test_run_opts(bpf_program__fd(p->core->progs.pf_look_self), &opts), 0);
	assert_int_equal(bpf_map_lookup_elem(map, &zero, &v), 0);
	assert_true(v.start <= v.address && v.address < v.end);
	return v.sequence != PF_UNVERIFIED;
}

/* Returns whether the walk has verified the mapping of pf_rows. */
static bool rows_are_verified(struct probes *p)
{
	_cleanup_free_ struct pf_mapping *m = xmalloc(PF_CHUNK_BYTES);
	uint32_t zero = 0, i = 0;

	assert_int_equal(bpf_map_lookup_elem(p->writer.fds[ROWS_CHUNK + 3], &zero, m), 0);
	while (m[i].file != ROWS_FILE)
		i++;
	return m[i].verified != PF_UNVERIFIED;
}

static void rows_lead_where_frame_pointers_do_not(void **state)
{
	struct child c = child_start(body_rows, NULL);
	struct rows_tally t = {.least = 1000};
	struct watch w = {.pid = c.pid, .each = tally_rows, .arg = &t};
	struct probes *p = open_probes(LISTED);
	struct pf_process_key key;

	(void)state;
	list_pids(p, 1, &c, (unsigned[]){999});
	watch_until(p, &w, &t.in_work, 100);
	assert_int_equal(t.whole, 0);
	assert_int_equal(t.pending, t.in_work);
	assert_int_equal(t.most, 1); /* pf_rows_enter has overwritten rbp */

	rows_install(p);
	key = rows_process(p, &w.proc, exec_pages_of(&w.proc));
	watch_drain(p, &w, 1, true);
	watch_drain(p, &w, 1, true);
	t = (struct rows_tally){.least = 1000};
	watch_until(p, &w, &t.in_work, 500);
	assert_int_equal(t.whole, t.in_work);
	assert_int_equal(t.pending, 0);
	assert_int_equal(t.least, DEPTH + 1);
	assert_int_equal(rows_are_verified(p),
			 /*
			  * the walk keeps the result of its check only if the kernel counts changes
			  */
			 changes_are_counted(p));

	assert_int_equal(probes_process_remove(p, &key), 0);
	/* removed already: that is not an error */
	assert_int_equal(probes_process_remove(p, &key), 0);
	watch_drain(p, &w, 1, true);
	watch_drain(p, &w, 1, true);
	t = (struct rows_tally){};
	watch_until(p, &w, &t.in_work, 100);
	/* without the list, the walk still finds the tables of the mapped files by their tags */
	assert_int_equal(t.whole, t.in_work);
	probes_free(p);
	child_stop(&c);
}

/* Forks a child when the test asks for that, and puts its PID into long_ns. */
IN_SECTION(pf_loop) static void body_fork(struct truth *t)
{
	pid_t pid;

	t->ready = 1;
	while (t->ready != 2)
		spin(10);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pf_rows_enter(DEPTH, spin_forever);
		t->ready = 4; /* so that the call before is no tail call */
	}
	t->long_ns = pid;
	spin_forever();
}

static void a_fork_has_its_parents_tables(void **state)
{
	struct child c[2] = {child_start(body_fork, NULL)};
	struct rows_tally t = {.least = 1000};
	struct watch w = {.pid = c[0].pid};
	struct probes *p = open_probes(LISTED);

	(void)state;
	list_pids(p, 1, c, (unsigned[]){999});
	watch_until(p, &w, &w.samples, 10);
	rows_install(p);
	rows_process(p, &w.proc, exec_pages_of(&w.proc));
	c[0].truth->ready = 2;
	while (!c[0].truth->long_ns)
		nap(1);
	c[1].pid = c[0].truth->long_ns;
	c[1].start_ns = start_of(c[1].pid);
	list_pids(p, 2, c, (unsigned[]){999, 999});
	w = (struct watch){.pid = c[1].pid, .each = tally_rows, .arg = &t};
	watch_until(p, &w, &t.in_work, 200);
	/* the kernel still asks the agent to read the child's mappings */
	assert_int_equal(w.seen, 1);
	assert_int_equal(t.whole, t.in_work);
	probes_free(p);
	kill(c[1].pid, SIGKILL);
	child_stop(&c[0]);
}

/* ---- what the kernel reports about mappings ---- */

static void body_maps(struct truth *t)
{
	t->ready = 1;
	for (;;) {
		spin(10);
		if (t->ready == 2) {
			if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
				 0) == MAP_FAILED)
				_exit(1);
			t->ready = 3;
		}
	}
}

/*
 * Returns how often the kernel reports the same change in this time: again after half a second,
 * then after twice the time, and so on.
 */
static unsigned times_told(uint64_t ns)
{
	unsigned n = 1;

	for (uint64_t at = 0, wait = NSEC_PER_SEC / 2; (at += wait) <= ns; wait *= 2)
		n++;
	return n;
}

static void new_code_is_told_of(void **state)
{
	struct child c = child_start(body_maps, NULL);
	struct watch w = {.pid = c.pid};
	struct probes *p = open_probes(LISTED);
	uint64_t started, pages;
	unsigned told;

	(void)state;
	list_pids(p, 1, &c, (unsigned[]){999});
	watch_until(p, &w, &w.samples, 10);
	pages = exec_pages_of(&w.proc);
	rows_install(p);
	rows_process(p, &w.proc, pages);
	watch_until(p, &w, &w.samples, 1200);
	assert_int_equal(w.maps, 0);
	started = now_mono_ns();
	c.truth->ready = 2;
	while (!w.maps) {
		if (now_mono_ns() - started > 60 * NSEC_PER_SEC)
			fail_msg("no word of it");
		nap(20);
		watch_drain(p, &w, 1, false);
	}
	assert_int_equal(exec_pages_of(&w.proc), pages + 1);
	/* If user space does not answer, the kernel reports less and less often. */
	watch_until(p, &w, &w.samples, 1500);
	assert_in_range(w.maps, 2, times_told(now_mono_ns() - started));
	/*
	 * If mappings changed while the agent read them, the list is wrong, too. The kernel then
	 * reports them again soon, not after seconds.
	 */
	told = w.maps;
	rows_process(p, &w.proc, pages + 7);
	watch_until(p, &w, &w.samples, 1500);
	assert_true(w.maps > told);
	/* After user space has given the mappings, the kernel does not report them. */
	rows_process(p, &w.proc, pages + 1);
	watch_drain(p, &w, 1, true);
	told = w.maps;
	watch_until(p, &w, &w.samples, 1500);
	assert_int_equal(w.maps, told);
	assert_int_equal(w.seen, 1);
	probes_free(p);
	child_stop(&c);
}

static void body_sleep(struct truth *t)
{
	t->ready = 1;
	for (;;)
		pause();
}

static void who_sleeps_is_announced(void **state)
{
	struct child c = child_start(body_sleep, NULL), other = child_start(body_sleep, NULL);
	struct watch w[2] = {{.pid = c.pid}, {.pid = other.pid}};
	struct probes *p = open_probes(LISTED);

	(void)state;
	if (!p->announce) {
		print_message("skipped: no iterator over tasks\n");
		skip();
	}
	while (!c.truth->ready || !other.truth->ready)
		nap(1);
	list_pids(p, 1, &c, (unsigned[]){99});
	watch_drain(p, w, 2, true);
	assert_int_equal(w[0].seen, 0);
	assert_int_equal(probes_announce(p), 0);
	assert_int_equal(probes_announce(p), 0);
	watch_drain(p, w, 2, false);
	assert_int_equal(w[0].seen, 1);
	assert_int_equal(w[0].proc.what, RAW_PROC_SEEN);
	assert_true(w[0].proc.start_boottime_ns - c.start_ns < PF_USER_HZ_NS);
	assert_int_equal(w[1].seen, 0);
	probes_free(p);
	child_stop(&c);
	child_stop(&other);
}

/*
 * Changes the process's entry in the map procs as if the kernel had last reported its mappings
 * ago_ns ago.
 */
static void told_long_ago(struct probes *p, const struct child *c, uint64_t ago_ns)
{
	int map = bpf_map__fd(p->core->maps.procs);
	struct {
		uint64_t start_boottime_ns, tgid_root;
	} key;
	struct {
		uint32_t exec_id, sampled;
		uint64_t maps_told_ns, exec_pages, given_pages, maps_wait_ns;
	} state;

	key.start_boottime_ns = 0;
	assert_int_equal(bpf_map_get_next_key(map, NULL, &key), 0);
	assert_true(key.start_boottime_ns - c->start_ns < PF_USER_HZ_NS);
	assert_int_equal(bpf_map_lookup_elem(map, &key, &state), 0);
	state.maps_told_ns -= ago_ns;
	assert_int_equal(bpf_map_update_elem(map, &key, &state, BPF_ANY), 0);
}

/*
 * The agent has not read the mappings of the process yet. While the process has no samples, only
 * probes_announce() makes the kernel report it again.
 */
static void who_is_not_known_is_announced_again(void **state)
{
	struct child c = child_start(body_sleep, NULL);
	struct watch w = {.pid = c.pid};
	struct probes *p = open_probes(LISTED);

	(void)state;
	if (!p->announce) {
		print_message("skipped: no iterator over tasks\n");
		skip();
	}
	while (!c.truth->ready)
		nap(1);
	list_pids(p, 1, &c, (unsigned[]){99});
	for (unsigned i = 1; i <= 3; i++) {
		assert_int_equal(probes_announce(p), 0);
		assert_int_equal(probes_announce(p), 0);
		watch_drain(p, &w, 1, false);
		assert_int_equal(w.seen, i);
		told_long_ago(p, &c, 10 * NSEC_PER_SEC);
	}
	rows_install(p);
	rows_process(p, &w.proc, exec_pages_of(&w.proc));
	assert_int_equal(probes_announce(p), 0);
	watch_drain(p, &w, 1, false);
	assert_int_equal(w.seen, 3);
	probes_free(p);
	child_stop(&c);
}

/* ---- chunks ---- */

static int chunk_map_of(struct probes *p, uint32_t chunk)
{
	uint32_t id;
	int r = bpf_map_lookup_elem(bpf_map__fd(p->core->maps.chunks), &chunk, &id);

	return r ? r : bpf_map_get_fd_by_id(id);
}

static void chunk_read_back(struct probes *p, uint32_t chunk, uint8_t bytes[PF_CHUNK_BYTES])
{
	int fd = chunk_map_of(p, chunk);
	uint32_t zero = 0;

	assert_true(fd >= 0);
	assert_int_equal(bpf_map_lookup_elem(fd, &zero, bytes), 0);
	close(fd);
}

static uint32_t map_id(int fd)
{
	struct bpf_map_info info = {};
	uint32_t n = sizeof(info);

	assert_int_equal(bpf_obj_get_info_by_fd(fd, &info, &n), 0);
	close(fd);
	return info.id;
}

enum { CHUNKS = 150 }; /* more chunks than one update of the outer map can hold */

static void chunks_hold_what_was_written(void **state)
{
	_cleanup_free_ uint8_t *bytes = xmalloc(PF_CHUNK_BYTES);
	struct probes *p = open_probes(LISTED);
	uint32_t x;

	(void)state;
	for (uint32_t i = 0; i < CHUNKS; i++) {
		x = 1000 + i;
		assert_int_equal(probes_chunk_write(p, i, 4 * i, &x, 4), 0);
	}
	/* writes again to some chunks, both published and unpublished ones */
	for (uint32_t i = 0; i < CHUNKS; i += 7) {
		x = 2000 + i;
		assert_int_equal(probes_chunk_write(p, i, PF_CHUNK_BYTES - 4, &x, 4), 0);
	}
	assert_int_equal(probes_chunk_flush(p), 0);
	for (uint32_t i = 0; i < CHUNKS; i++) {
		chunk_read_back(p, i, bytes);
		assert_int_equal(*(uint32_t *)(bytes + 4 * i), 1000 + i);
		assert_int_equal(*(uint32_t *)(bytes + PF_CHUNK_BYTES - 4), i % 7 ? 0 : 2000 + i);
	}
	assert_int_equal(probes_chunk_write(p, 1, PF_CHUNK_BYTES - 2, &x, 4), -EINVAL);
	assert_int_equal(probes_chunk_write(p, PF_CHUNKS_MAX, 0, &x, 4), -EINVAL);
	assert_int_equal(probes_grace(p), 0);
	probes_free(p);
}

/*
 * The memory of dropped chunks is freed. They can be made again, before or after the outer map is
 * updated.
 */
static void dropped_chunks_are_gone(void **state)
{
	_cleanup_free_ uint8_t *bytes = xmalloc(PF_CHUNK_BYTES);
	struct probes *p = open_probes(LISTED);
	uint64_t deadline = now_mono_ns() + 120 * NSEC_PER_SEC;
	uint32_t ids[CHUNKS], x = 5;
	size_t alive = CHUNKS;

	(void)state;
	for (uint32_t i = 0; i < CHUNKS; i++)
		assert_int_equal(probes_chunk_write(p, i, 0, &x, 4), 0);
	assert_int_equal(probes_chunk_flush(p), 0);
	for (uint32_t i = 0; i < CHUNKS; i++)
		ids[i] = map_id(chunk_map_of(p, i));
	/* this chunk is still being written when the others are dropped */
	assert_int_equal(probes_chunk_write(p, CHUNKS, 12, &x, 4), 0);
	for (uint32_t i = 0; i < CHUNKS; i++)
		assert_int_equal(probes_chunk_drop(p, i), 0);
	assert_int_equal(probes_chunk_drop(p, 2000), 0); /* this chunk was never made */
	assert_int_equal(probes_chunk_write(p, CHUNKS - 1, 8, &x, 4), 0);
	assert_int_equal(probes_chunk_flush(p), 0);
	chunk_read_back(p, CHUNKS - 1, bytes);
	assert_int_equal(*(uint32_t *)bytes, 0);
	assert_int_equal(*(uint32_t *)(bytes + 8), 5);
	chunk_read_back(p, CHUNKS, bytes);
	assert_int_equal(*(uint32_t *)(bytes + 12), 5);
	assert_int_equal(probes_chunk_write(p, 3, 4, &x, 4), 0);
	assert_int_equal(probes_chunk_flush(p), 0);
	chunk_read_back(p, 3, bytes);
	assert_int_equal(*(uint32_t *)bytes, 0);
	assert_int_equal(*(uint32_t *)(bytes + 4), 5);
	while (alive && now_mono_ns() < deadline) {
		alive = 0;
		for (uint32_t i = 0; i < CHUNKS; i++) {
			int fd = bpf_map_get_fd_by_id(ids[i]);

			alive += fd >= 0;
			if (fd >= 0)
				close(fd);
		}
		nap(10);
	}
	assert_int_equal(alive, 0);
	probes_free(p);
}

/* ---- signals ---- */

IN_SECTION(pf_long) static void on_signal(int signal)
{
	(void)signal;
	spin(2000);
}

IN_SECTION(pf_loop) static void body_signal(struct truth *t)
{
	static uint8_t other_stack[65536];
	stack_t alternate = {.ss_sp = other_stack, .ss_size = sizeof(other_stack)};
	struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_RESTART};
	struct itimerval every = {{0, 5000}, {0, 5000}};

	sigaltstack(&alternate, NULL);
	sigaction(SIGPROF, &a, NULL);
	setitimer(ITIMER_PROF, &every, NULL);
	t->ready = 1;
	spin_forever();
	t->ready = 2; /* so that the call before is no tail call */
}

struct signal_tally {
	uint64_t in_handler, through, n;
};

static void tally_signal(const struct raw_sample *s, const struct raw_stack *stack, void *arg)
{
	struct signal_tally *t = arg;
	bool handler = false, interrupted = false, body = false;

	if (!stack)
		return;
	t->n += s->n;
	for (size_t i = 0; i < stack->n; i++) {
		handler |= IN_RANGE(stack->frames[i].address, pf_long);
		interrupted |= handler && IN_RANGE(stack->frames[i].address, pf_short);
		body |= interrupted && IN_RANGE(stack->frames[i].address, pf_loop);
	}
	t->in_handler += handler ? s->n : 0;
	t->through += body ? s->n : 0;
}

/* The handler runs on its own stack. After it come the interrupted function and its caller. */
static void stacks_go_through_signal_handlers(void **state)
{
	struct child c = child_start(body_signal, NULL);
	struct signal_tally t = {};
	struct watch w = {.pid = c.pid, .each = tally_signal, .arg = &t};
	struct probes *p = open_probes(LISTED);

	(void)state;
	list_pids(p, 1, &c, (unsigned[]){999});
	watch_until(p, &w, &t.in_handler, 300);
	assert_near("handlers with who they interrupted", (double)t.through / t.in_handler, 1,
		    0.01);
	probes_free(p);
	child_stop(&c);
}

/* ---- uprobes and ticks on one CPU ---- */

SECTION_BOUNDS(pf_target);
/*
 * Begins like libcuda's functions: without frame record and push. A walk by frame pointers would
 * lose its caller.
 */
__asm__(".pushsection pf_target,\"ax\",@progbits\n"
	"pf_target_fn:\n"
	"	cmpl $0,(%rsp)\n"
	"	ret\n"
	".popsection\n");
void pf_target_fn(void);

IN_SECTION(pf_short) static void left_calls(void)
{
	pf_target_fn();
	spin(2);
}

IN_SECTION(pf_long) static void right_calls(unsigned n)
{
	volatile unsigned below = n;

	if (below)
		right_calls(n - 1);
	else
		pf_target_fn();
	spin(1);
}

static void on_first_cpu(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(0, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		_exit(1);
}

IN_SECTION(pf_loop) static void body_left(struct truth *t)
{
	on_first_cpu();
	for (t->ready = 1;;)
		left_calls();
}

IN_SECTION(pf_loop) static void body_right(struct truth *t)
{
	on_first_cpu();
	for (t->ready = 1;;)
		right_calls(10);
}

struct mix {
	bool left;
	pid_t pid;
	uint64_t hits, ticks, wrong, lost;
};

static void tell_wrong(const struct mix *m, bool hit, const struct raw_sample *s,
		       const struct raw_stack *stack)
{
	print_message("%s, %lu %s, %s the kernel, %s:", m->left ? "left" : "right", s->n,
		      hit ? "hits" : "ticks", s->kstack ? "in" : "not in",
		      stack->end_reason ? stack->end_reason : "finished");
	for (size_t i = 0; i < stack->n; i++)
		print_message(" %#lx%s", stack->frames[i].address,
			      IN_RANGE(stack->frames[i].address, pf_short)  ? " left"
			      : IN_RANGE(stack->frames[i].address, pf_long) ? " right"
			      : IN_RANGE(stack->frames[i].address, pf_loop) ? " loop"
									    : "");
	print_message("\n");
}

/* Returns whether the sample has the labels that uprobe_test.bpf.c gives, and no trace context. */
static bool has_labels_of(const struct raw_sample *s, pid_t pid)
{
	return s->labels && !s->link &&
	       s->labels->mask == (1u << LABEL_GPU_DEVICE | 1u << LABEL_GPU_STREAM) &&
	       s->labels->numbers[LABEL_GPU_DEVICE] == (uint64_t)pid &&
	       s->labels->numbers[LABEL_GPU_STREAM] == 2;
}

/*
 * A hit must have its labels, pf_target and then exactly the frames of its own process. A tick must
 * have no labels and no frame of the other process.
 */
static void tally_mix(const struct raw_sample *s, const struct raw_stack *stack, void *arg)
{
	struct mix *m = arg;
	bool hit = (int)s->event == TEST_EVENT;
	size_t own = 0, others = 0, want = m->left ? 1 : 11;
	bool wrong;

	*(hit ? &m->hits : &m->ticks) += s->n;
	if (!stack) {
		m->lost += s->n;
		return;
	}
	for (size_t i = 0; i < stack->n; i++) {
		bool left = IN_RANGE(stack->frames[i].address, pf_short);
		bool right = IN_RANGE(stack->frames[i].address, pf_long);

		own += m->left ? left : right;
		others += m->left ? right : left;
	}
	wrong = others || own > want || (hit ? !has_labels_of(s, m->pid) : s->labels != NULL);
	if (hit && !wrong)
		wrong = own != want || stack->frames[0].address != (uintptr_t)pf_target_fn ||
			!IN_RANGE(stack->frames[1 + want].address, pf_loop);
	if (!wrong)
		return;
	m->wrong += s->n;
	tell_wrong(m, hit, s, stack);
}

static struct uprobe_test_bpf *load_uprobe(struct probes *p)
{
	struct uprobe_test_bpf *u = uprobe_test_bpf__open();

	assert_non_null(u);
	u->rodata->pf_config = p->bpf_config;
	assert_int_equal(probes_lend_maps(p, u->obj), 0);
	assert_int_equal(uprobe_test_bpf__load(u), 0);
	return u;
}

/* Attaches to a function of this program, in a child. */
static struct bpf_link *attach_uprobe(struct uprobe_test_bpf *u, bool at_return, pid_t pid,
				      const void *function)
{
	struct mappings *m = NULL;
	const struct mapping *of;
	struct bpf_link *link;
	size_t offset;

	assert_int_equal(
		proc_mappings_read((struct process_id){start_of(getpid()), getpid()}, 0, &m), 0);
	of = proc_mappings_find(m, (uintptr_t)function);
	assert_non_null(of);
	offset = (uintptr_t)function - of->start + of->file_offset;
	proc_mappings_unref(m);
	link = bpf_program__attach_uprobe(u->progs.pf_uprobe_test, at_return, pid, "/proc/self/exe",
					  offset);
	if (!link) {
		print_message("skipped: no uprobes here (%s)\n", strerror(errno));
		skip();
	}
	return link;
}

static uint64_t samples_dropped(struct probes *p)
{
	static const bool is_sample[] = {
#define X(name, text, sample) sample,
		PF_DROP_REASONS(X)
#undef X
	};
	struct pf_stats s;
	uint64_t n = 0;

	assert_int_equal(probes_stats_read(p, &s), 0);
	for (size_t e = 0; e < _PF_EVENT_MAX; e++)
		for (size_t i = 0; i < _PF_DROP_MAX; i++)
			n += is_sample[i] ? s.drop[e][i] : 0;
	assert_int_equal(s.taken, s.delivered + n);
	return n;
}

static void uprobes_and_ticks_never_mix(void **state)
{
	struct child c[2] = {child_start(body_left, NULL), child_start(body_right, NULL)};
	struct mix m[2] = {{.left = true, .pid = c[0].pid}, {.left = false, .pid = c[1].pid}};
	struct watch w[2] = {{.pid = c[0].pid, .each = tally_mix, .arg = &m[0]},
			     {.pid = c[1].pid, .each = tally_mix, .arg = &m[1]}};
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC;
	struct probes *p = open_probes(LISTED);
	struct uprobe_test_bpf *u = load_uprobe(p);
	struct bpf_link *links[2];

	(void)state;
	for (size_t i = 0; i < 2; i++)
		links[i] = attach_uprobe(u, false, c[i].pid, pf_target_fn);
	list_pids(p, 2, c, (unsigned[]){999, 999});
	while (MIN(m[0].ticks, m[1].ticks) < 500 || MIN(m[0].hits, m[1].hits) < 5000) {
		if (now_mono_ns() > deadline)
			fail_msg("%lu + %lu ticks, %lu + %lu hits in 60 s", m[0].ticks, m[1].ticks,
				 m[0].hits, m[1].hits);
		nap(100);
		watch_drain(p, w, 2, true);
	}
	assert_int_equal(m[0].wrong + m[1].wrong, 0);
	assert_int_equal(m[0].lost + m[1].lost, 0);
	child_stop(&c[0]);
	child_stop(&c[1]);
	assert_int_equal(samples_dropped(p), 0);
	bpf_link__destroy(links[0]);
	bpf_link__destroy(links[1]);
	uprobe_test_bpf__destroy(u);
	probes_free(p);
}

static bool is_on_stack(const struct bpf_insn *i)
{
	uint8_t class = BPF_CLASS(i->code);

	return ((class == BPF_ST || class == BPF_STX) && i->dst_reg == BPF_REG_10) ||
	       (class == BPF_LDX && i->src_reg == BPF_REG_10);
}

/*
 * Counts the uprobe programs, and checks that each uses the BPF stack only between its first call,
 * pf_alone_begin(), and its last, pf_alone_end(). Outside of them, another task may run the same
 * program on the same CPU and stack.
 */
static unsigned count_alone(struct bpf_object *o)
{
	struct bpf_program *p;
	unsigned n_seen = 0;

	bpf_object__for_each_program(p, o)
	{
		const struct bpf_insn *insns = bpf_program__insns(p);
		size_t n = bpf_program__insn_cnt(p), first = 0, last = n;

		if (bpf_program__type(p) != BPF_PROG_TYPE_KPROBE)
			continue;
		while (first < n && insns[first].code != (BPF_JMP | BPF_CALL))
			assert_false(is_on_stack(&insns[first++]));
		while (last-- && insns[last].code != (BPF_JMP | BPF_CALL))
			assert_false(is_on_stack(&insns[last]));
		assert_true(first < last);
		n_seen++;
	}
	return n_seen;
}

static void nothing_is_on_a_uprobes_stack_that_is_not_alone(void **state)
{
	struct memory_bpf *m = memory_bpf__open();
	struct uprobe_test_bpf *u = uprobe_test_bpf__open();

	(void)state;
	assert_true(m && u);
	assert_int_equal(count_alone(m->obj), 7);
	assert_int_equal(count_alone(u->obj), 1);
	memory_bpf__destroy(m);
	uprobe_test_bpf__destroy(u);
}

struct inside {
	uint64_t n, whole;
};

static void tally_inside(const struct raw_sample *s, const struct raw_stack *stack, void *arg)
{
	struct inside *t = arg;

	/*
	 * Samples with a kernel stack do not count: while the kernel handles the probe's trap, only
	 * half of the registers and the stack have changed.
	 */
	for (size_t i = 0; (int)s->event == EVENT_ON_CPU && !s->kstack && stack && i + 1 < stack->n;
	     i++) {
		if (!IN_RANGE(stack->frames[i].address, pf_short))
			continue;
		t->n += s->n;
		t->whole += IN_RANGE(stack->frames[i + 1].address, pf_loop) ? s->n : 0;
	}
}

/*
 * The kernel has replaced the caller's address on the stack by its own (as with mem-inuse, inside
 * an allocator).
 */
static void probed_returns_hide_no_caller(void **state)
{
	struct child c = child_start(body_left, NULL);
	struct inside t = {};
	struct watch w = {.pid = c.pid, .each = tally_inside, .arg = &t};
	struct probes *p = open_probes(LISTED);
	struct uprobe_test_bpf *u = load_uprobe(p);
	struct bpf_link *link = attach_uprobe(u, true, c.pid, left_calls);

	(void)state;
	list_pids(p, 1, &c, (unsigned[]){999});
	watch_until(p, &w, &t.n, 300);
	assert_near("their callers", (double)t.whole / t.n, 1, 0.02);
	child_stop(&c);
	bpf_link__destroy(link);
	uprobe_test_bpf__destroy(u);
	probes_free(p);
}

/*
 * pf_rows_two(site) calls pf_rows_naps from one of two places, at the same depth. The walk ends in
 * pf_rows_two.
 */
__asm__(".pushsection pf_rows,\"ax\",@progbits\n"
	".balign 64\n"
	"pf_rows_naps:\n"
	"	lea unwind_nap(%rip),%rdi\n"
	"	xor %esi,%esi\n"
	"	mov $35,%eax\n" /* nanosleep */
	"	syscall\n"
	"	ret\n"
	"pf_rows_two:\n"
	"	test %edi,%edi\n"
	"	jne 1f\n"
	"	call pf_rows_naps\n"
	"pf_rows_site_0:\n"
	"	ret\n"
	"1:	call pf_rows_naps\n"
	"pf_rows_site_1:\n"
	"	ret\n"
	".balign 64\n"
	".popsection\n");
void pf_rows_naps(void);
void pf_rows_two(int site);
extern const char pf_rows_site_0[], pf_rows_site_1[];
extern struct timespec unwind_nap;
struct timespec unwind_nap = {0, 1000000};

#define NAPS 300 /* waits from each place */

static void body_naps(struct truth *t)
{
	while (t->ready != 1)
		usleep(1000);
	for (int i = 0; i < 2 * NAPS; i++)
		pf_rows_two(i % 2);
	t->ready = 2;
	spin_forever();
}

struct sites {
	uint64_t of[2], others;
};

static void tally_sites(const struct raw_sample *s, const struct raw_stack *stack, void *arg)
{
	struct sites *t = arg;
	uint64_t caller;

	/*
	 * The process may wait elsewhere, too: before the test lets it begin, and on its way to and
	 * from the kernel.
	 */
	if (s->wait != WAIT_SLEEP || !stack || stack->n < 2 ||
	    !IN_RANGE(stack->frames[0].address, pf_rows))
		return;
	caller = stack->frames[1].address;
	if (caller == (uintptr_t)pf_rows_site_0)
		t->of[0] += s->n;
	else if (caller == (uintptr_t)pf_rows_site_1)
		t->of[1] += s->n;
	else
		t->others += s->n;
}

/*
 * With a probed return, all callers have the kernel's address at the same word of the stack. So
 * that word does not identify a stack.
 */
static void waits_below_a_probed_return_have_their_callers(void **state)
{
	struct child c = child_start(body_naps, NULL);
	struct sites t = {};
	struct watch w = {.pid = c.pid};
	struct probes *p = open_probes(LISTED);
	struct uprobe_test_bpf *u = load_uprobe(p);
	struct bpf_link *link = attach_uprobe(u, true, c.pid, pf_rows_naps);
	struct listed_process l = {.id = {c.start_ns, c.pid}, .event_mask = 1u << EVENT_OFF_CPU};
	struct pf_rule rule = {.cfa = PF_CFA_RSP, .cfa_offset = 8};
	uint16_t two_at = (const char *)pf_rows_two - (const char *)__start_pf_rows;
	struct pf_row rows[] = {{0, 0}, {two_at, PF_RULE_ROOT}};
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC;

	(void)state;
	assert_int_equal(probes_list(p, &l, 1), 0);
	while (!w.seen && now_mono_ns() < deadline)
		watch_drain(p, &w, 1, false);
	assert_true(w.seen);
	rows_write(p, rows, ARRAY_SIZE(rows), &rule, 1);
	rows_process(p, &w.proc, exec_pages_of(&w.proc));
	watch_drain(p, &w, 1, true);
	w.each = tally_sites;
	w.arg = &t;
	c.truth->ready = 1;
	while (c.truth->ready != 2 && now_mono_ns() < deadline) {
		nap(100);
		watch_drain(p, &w, 1, true);
	}
	watch_drain(p, &w, 1, true);
	/*
	 * If a drain comes during a wait, the wait is reported in two parts. If a thread is
	 * preempted before it waits, it may not wait at all.
	 */
	assert_in_range(t.of[0], NAPS * 9 / 10, NAPS * 11 / 10);
	assert_in_range(t.of[1], NAPS * 9 / 10, NAPS * 11 / 10);
	assert_int_equal(t.others, 0);
	child_stop(&c);
	bpf_link__destroy(link);
	uprobe_test_bpf__destroy(u);
	probes_free(p);
}

/* The argument is a pattern of test names such as "uprobes*"; without it, all tests run. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_lead_where_frame_pointers_do_not),
		cmocka_unit_test(a_fork_has_its_parents_tables),
		cmocka_unit_test(new_code_is_told_of),
		cmocka_unit_test(who_sleeps_is_announced),
		cmocka_unit_test(who_is_not_known_is_announced_again),
		cmocka_unit_test(chunks_hold_what_was_written),
		cmocka_unit_test(dropped_chunks_are_gone),
		cmocka_unit_test(stacks_go_through_signal_handlers),
		cmocka_unit_test(nothing_is_on_a_uprobes_stack_that_is_not_alone),
		cmocka_unit_test(uprobes_and_ticks_never_mix),
		cmocka_unit_test(probed_returns_hide_no_caller),
		cmocka_unit_test(waits_below_a_probed_return_have_their_callers),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
