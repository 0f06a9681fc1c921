/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_scene_test: shared by tests of memory events (memory of the CPU and of GPUs): a process,
 * its probes, and what the drains report of it.
 */
#pragma once

#include "node/probe/workload_test.h"

#include <malloc.h>
#include <pthread.h>

#include "node/probe/sites_test.h"

#define LISTED                                                                                     \
	(struct probe_config)                                                                      \
	{                                                                                          \
		.use_list = true, .max_sample_hz = 99                                              \
	}
#define ALLOC (1u << EVENT_MEM_ALLOC)
#define INUSE (1u << EVENT_MEM_INUSE)

/* ---- what the drains report of one process ---- */

struct seen {
	uint64_t n, bytes;
	uint64_t in_short, in_long, in_loop; /* bytes that each of these functions allocated */
};
struct memory_watch {
	pid_t pid;
	enum probe_set set;
	/* what the probes of another set of the same process report; NULL: no other set */
	struct memory_watch *also;
	struct raw_proc proc;
	bool known;
	/* all samples of the set's counted event; the newest snapshot of its live event */
	struct seen alloc, inuse;
	struct raw_labels labels; /* labels of the newest sample */
	uint64_t snapshot_ns;
	unsigned snapshots, empty;
	uint64_t others, stackless;
	uint64_t evicted; /* allocations without room, as the drains report */
	uint64_t refused; /* how many drains say that a namespace lacks entries of a table */
	struct raw_refused last_refused;
};

static inline void see(struct memory_watch *w, struct seen *t, const struct drain *d,
		       const struct raw_sample *s)
{
	const struct raw_stack *k = sample_drain_stack(d, s->ustack);

	t->n += s->n;
	t->bytes += s->value;
	w->stackless += s->n && !k;
	for (size_t i = 0; k && i < k->n; i++) {
		uint64_t a = k->frames[i].address;

		if (IN_RANGE(a, pf_short))
			t->in_short += s->value;
		else if (IN_RANGE(a, pf_long))
			t->in_long += s->value;
		else if (IN_RANGE(a, pf_loop))
			t->in_loop += s->value;
		else
			continue;
		break;
	}
}

static inline void watch_sample(struct memory_watch *w, const struct drain *d,
				const struct raw_sample *s)
{
	if ((pid_t)s->tgid != w->pid) {
		w->others += s->n;
		return;
	}
	if (probes_set_of(s->event) == w->set)
		w->labels = s->labels ? *s->labels : (struct raw_labels){};
	if (s->event == probes_set_info(w->set)->counted)
		see(w, &w->alloc, d, s);
	if (s->event != probes_set_info(w->set)->live)
		return;
	if (s->last_ns != w->snapshot_ns) {
		w->inuse = (struct seen){};
		w->snapshot_ns = s->last_ns;
		w->snapshots++;
	}
	w->empty += s->n == 0;
	see(w, &w->inuse, d, s);
}

static inline void watch_drain(struct probes *p, struct memory_watch *w, bool full)
{
	struct drain *d = NULL;

	assert_int_equal(probes_drain(p, full, &d), 0);
	for (size_t i = 0; i < d->n_procs; i++)
		if ((pid_t)d->procs[i].tgid == w->pid) {
			w->proc = d->procs[i];
			w->known = true;
		}
	for (size_t i = 0; i < d->n_samples; i++)
		for (struct memory_watch *x = w; x; x = x->also)
			watch_sample(x, d, &d->samples[i]);
	for (size_t i = 0; i < d->lost.n; i++)
		if (streq(d->lost.items[i].reason, "live_evicted"))
			w->evicted += d->lost.items[i].n;
	for (size_t i = 0; i < d->n_refused; i++) {
		w->refused++;
		w->last_refused = d->refused[i];
	}
	sample_drain_free(d);
}

/* Drains all samples so far, and a snapshot that is made now. */
static inline void watch_all(struct probes *p, struct memory_watch *w)
{
	probes_live_ask(p);
	watch_drain(p, w, true);
	watch_drain(p, w, true);
}

/* ---- a process and its probes ---- */

/* Values of ready: 1: the process waits; 2: the test lets it go on; 3, 4, ...: a step is done. */
static inline void say_and_wait(struct truth *t, uint32_t done)
{
	t->ready = done;
	while (t->ready == done)
		nap(1);
}

static inline void await(const struct child *c, uint32_t ready)
{
	uint64_t deadline = now_mono_ns() + 120 * NSEC_PER_SEC;

	while (c->truth->ready != ready) {
		if (now_mono_ns() > deadline)
			fail_msg("the workload does not come to step %u", ready);
		nap(1);
	}
}

struct scene {
	struct child c;
	struct probes *p;
	enum probe_set set; /* 0, the default, is PROBES_MEMORY */
	struct memory_watch w;
	struct probed probed;
	struct attached *a;
};

static enum uprobe_mode mode_at_most = UPROBE_SESSION;
/* Whether all scenes of a mode share the probes: the verifier takes seconds on a busy machine. */
static bool share_probes;
static struct probes *shared_probes;

static inline struct probes *open_in_mode(void)
{
	struct probes *p = open_probes(LISTED);

	p->uprobes->mode = mode_at_most;
	return p;
}

static inline int close_shared(void **state)
{
	(void)state;
	shared_probes = shared_probes ? probes_free(shared_probes) : NULL;
	return 0;
}

/*
 * The main() of tests that run in each form of uprobes. argv[1] is a pattern of test names such as
 * "bytes*"; without it, all tests run.
 */
static inline int in_each_mode(int argc, char **argv,
			       int (*run)(const char *name, enum uprobe_mode mode))
{
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return run("sessions", UPROBE_SESSION) + run("many places at once", UPROBE_MULTI) +
	       run("single probes", UPROBE_SINGLE);
}

static inline struct probe_set_state *scene_set(const struct scene *s)
{
	return probes_set_loaded(s->p, s->set);
}

static inline int list(const struct scene *s, unsigned events, uint64_t bytes)
{
	const struct listed_process l = {
		.id = {s->c.start_ns, s->c.pid},
		.event_mask = events,
		.settings = {.alloc_sample_bytes = bytes, .inuse_sample_bytes = bytes},
	};

	return probes_list(s->p, &l, 1);
}

static inline void want(const struct scene *s, unsigned events, uint64_t bytes)
{
	assert_int_equal(list(s, events, bytes), 0);
}

/* Waits until the kernel has reported the process, so that the scene has its key of the maps. */
static inline void get_known(struct scene *s)
{
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC;

	while (!s->w.known) {
		assert_int_equal(probes_announce(s->p), 0);
		watch_drain(s->p, &s->w, false);
		if (now_mono_ns() > deadline)
			fail_msg("the kernel does not tell of the process");
	}
}

static inline int scene_attach(struct scene *s, unsigned events)
{
	struct probes_refused refused = {.n = 99};
	int r;

	s->probed.proc.event_mask = events;
	s->probed.proc.exec_id = s->w.proc.exec_id;
	r = probes_attach(s->p, s->set, (struct process_id){s->w.proc.start_boottime_ns, s->c.pid},
			  &s->probed.proc, &s->probed.file, 1, &s->a, &refused);
	if (!r)
		assert_int_equal(refused.n, 0);
	return r;
}

static inline void need_mode(void)
{
	if (probes_uprobe_mode() >= mode_at_most)
		return;
	print_message("skipped: this kernel has no such uprobes\n");
	skip();
}

static inline struct probes *scene_probes(void)
{
	struct memory_watch before = {};

	if (!share_probes)
		return open_in_mode();
	if (!shared_probes)
		shared_probes = open_in_mode();
	watch_all(shared_probes, &before); /* removes what earlier scenes left */
	return shared_probes;
}

/*
 * Starts a process and attaches its probes: at the sites in s->probed if there are any, else at
 * those of the C library.
 */
static inline void scene_open(struct scene *s, body_fn *body, unsigned events, uint64_t bytes)
{
	need_mode();
	if (!s->probed.file.n_sites)
		probe_libc(&s->probed);
	s->c = child_start(body, NULL);
	s->w = (struct memory_watch){.pid = s->c.pid, .set = s->set};
	s->p = scene_probes();
	want(s, events, bytes);
	get_known(s);
	assert_int_equal(scene_attach(s, events), 0);
	await(&s->c, 1);
}

static inline unsigned map_count(int map, size_t key_bytes)
{
	_cleanup_free_ char *key = xcalloc(1, key_bytes), *next = xcalloc(1, key_bytes);
	unsigned n = 0;

	for (void *at = NULL; !bpf_map_get_next_key(map, at, next); at = key, n++)
		memcpy(key, next, key_bytes);
	return n;
}

static inline void scene_close(struct scene *s)
{
	const struct probe_set_state *set = scene_set(s);

	s->a = probes_detach(s->p, s->a);
	assert_null(s->a);
	assert_int_equal(map_count(set->procs, sizeof(struct pf_process_key)), 0);
	assert_int_equal(map_count(set->live, sizeof(struct pf_live_key)), 0);
	assert_int_equal(map_count(set->pending, sizeof(struct pf_pending_key)), 0);
	assert_int_equal(set->n_links, 0);
	assert_int_equal(s->w.others, 0);
	if (s->p != shared_probes)
		probes_free(s->p);
	close(s->probed.file.fd);
	child_stop(&s->c);
}

/* busy 1: the programs find each CPU's scratch memory in use by another task. 0: they do not. */
static inline void set_busy(const struct probe_set_state *set, uint32_t busy)
{
	const struct bpf_map *map = bpf_object__find_map_by_name(set->object.obj, "scratch");
	size_t each = (bpf_map__value_size(map) + 7) / 8 * 8;
	unsigned n_cpus = (unsigned)libbpf_num_possible_cpus();
	_cleanup_free_ uint8_t *scratch = xcalloc(n_cpus, each);
	uint32_t context = 2; /* value of PF_CONTEXT_TASK */

	assert_int_equal(bpf_map_lookup_elem(bpf_map__fd(map), &context, scratch), 0);
	for (unsigned i = 0; i < n_cpus; i++)
		memcpy(scratch + i * each, &busy, sizeof(busy)); /* `busy` is the first member */
	assert_int_equal(bpf_map_update_elem(bpf_map__fd(map), &context, scratch, BPF_ANY), 0);
}

static inline void go(struct scene *s, uint32_t until)
{
	s->c.truth->ready = 2;
	await(&s->c, until);
	watch_all(s->p, &s->w);
}

static inline uint64_t lost(const char *reason)
{
	return counter_get(counter("podflame_samples_dropped_total", "reason", reason));
}

/* The losses of all reasons. */
static inline uint64_t lost_in_all(void)
{
	uint64_t sum = 0;

#define X(name, word, n) sum += lost(word);
	PF_DROP_REASONS(X)
#undef X
	return sum;
}

static void *volatile keep[4096] __attribute__((unused));

/* ---- storms ---- */

static struct truth *storm_truth __attribute__((unused));

static inline void *storm(void *arg)
{
	unsigned seed = (uintptr_t)arg;
	void *p[32] = {};

	for (;;) {
		int i = rand_r(&seed) % 32;

		free(p[i]);
		p[i] = i % 3 ? malloc(rand_r(&seed) % 2000) : calloc(3, rand_r(&seed) % 300);
		if (i == 7)
			p[i] = realloc(p[i], 5000);
		__atomic_fetch_add(&storm_truth->short_ns, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static inline void body_storm(struct truth *t)
{
	pthread_t thread;

	storm_truth = t;
	for (uintptr_t i = 1; i < 4; i++)
		pthread_create(&thread, NULL, storm, (void *)i);
	t->ready = 1;
	storm((void *)4);
}

static inline void await_units(const struct child *c, uint64_t more)
{
	uint64_t start = c->truth->short_ns, deadline = now_mono_ns() + 120 * NSEC_PER_SEC;

	while (c->truth->short_ns - start < more) {
		if (now_mono_ns() > deadline)
			fail_msg("the workload does not go on");
		nap(1);
	}
}

static inline unsigned char byte_of(pid_t pid, const void *address)
{
	_cleanup_free_ char *path = xasprintf("/proc/%d/mem", pid);
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	unsigned char byte = 0;

	assert_int_equal(pread(fd, &byte, 1, (off_t)(uintptr_t)address), 1);
	return byte;
}
