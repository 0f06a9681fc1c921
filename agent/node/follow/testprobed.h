/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of probed*.c only: a process in a container whose limit allows steady probes, and
 * functions that count probes instead of attaching them. This thread does the work of the workers.
 */
#pragma once

#include "node/alloc/alloc.h"
#include "node/follow/internal.h"
#include "node/kernel/testkernel.h"
#include "node/limit/limit.h"
#include "node/proc/testowner.h"
#include "node/work/testworkers.h"

#include <unistd.h>

#include "lib/base/testclock.h"

/* ---- probes ---- */

static char attached[_PROBES_SET_MAX]; /* each element stands for a struct attached */
static struct process_id probed; /* the process of the test */
struct set_probes { /* counts for one set */
	uint64_t hits;
	unsigned n_attached, n_detached;
};
static struct {
	int result; /* the result of the next attaching */
	bool lost, outlives;
	bool queried; /* result of attached_queried(), until the probes change */
	uint64_t moves;
	unsigned n_functions; /* of RDMA providers, which the BPF programs know */
	unsigned n_attached, n_detached, n_asked_for_thread;
	struct set_probes of[_PROBES_SET_MAX];
} probes;

static inline struct attached *attached_of(enum probe_set set)
{
	return (struct attached *)&attached[set];
}

static inline struct set_probes *probes_of(const struct attached *a)
{
	size_t set = (size_t)((const char *)a - attached);

	assert_true(set < ARRAY_SIZE(attached));
	return &probes.of[set];
}

/* Returns the set that has these events. */
static inline enum probe_set set_of_events(unsigned event_mask)
{
	enum probe_set set = 0;

	while (set < _PROBES_SET_MAX && !(event_mask & probes_set_events(set)))
		set++;
	assert_true(set < _PROBES_SET_MAX);
	assert_int_equal(event_mask & ~probes_set_events(set), 0);
	return set;
}

static int note_attached(const struct pf_mem_proc *proc, const struct attached *a)
{
	assert_ptr_equal(a, attached_of(set_of_events(proc->event_mask)));
	probes.n_attached++;
	probes_of(a)->n_attached++;
	return probes.result;
}

static int probes_do_attach(struct probes *p, enum probe_set set, struct process_id id,
			    const struct pf_mem_proc *proc, const struct probe_file *files,
			    size_t n, struct attached **ret, struct probes_refused *ret_refused)
{
	(void)p;
	(void)files;
	(void)n;
	(void)ret_refused;
	assert_true(process_id_equal(id, probed));
	if (probes.result == 0)
		*ret = attached_of(set);
	return note_attached(proc, attached_of(set));
}

static int probes_do_change(struct probes *p, struct attached *a, const struct pf_mem_proc *proc,
			    const struct probe_file *files, size_t n,
			    struct probes_refused *ret_refused)
{
	(void)p;
	(void)files;
	(void)n;
	(void)ret_refused;
	probes.queried = false;
	return note_attached(proc, a);
}

static void probes_do_detach(struct probes *p, struct attached **items, size_t n)
{
	(void)p;
	for (size_t i = 0; i < n; i++)
		probes_of(items[i])->n_detached++;
	probes.n_detached += (unsigned)n;
}

static bool probes_do_lose(const struct attached *a)
{
	(void)probes_of(a);
	probes.n_asked_for_thread++;
	return probes.lost;
}

static bool probes_do_outlive(const struct attached *a)
{
	(void)probes_of(a);
	return probes.outlives;
}

static uint64_t probes_n_hits(const struct attached *a)
{
	return probes_of(a)->hits;
}

static bool probes_do_query(const struct attached *a)
{
	(void)probes_of(a);
	return probes.queried;
}

static void probes_do_leave(struct attached *a)
{
	(void)probes_of(a);
}

static uint64_t probes_n_moves(struct probes *p)
{
	(void)p;
	return probes.moves;
}

static int probes_functions(struct probes *p, enum probe_set set, struct process_id id,
			    uint32_t exec_id, struct pf_rdma_functions *ret)
{
	(void)p;
	(void)set;
	(void)id;
	(void)exec_id;
	ret->n = probes.n_functions;
	return probes.n_functions ? 0 : -ENOENT;
}

static const struct probe_calls counted_probes = {
	.attach = probes_do_attach,
	.attach_change = probes_do_change,
	.detach_all = probes_do_detach,
	.attached_lost = probes_do_lose,
	.attached_outlives = probes_do_outlive,
	.attached_hits = probes_n_hits,
	.attached_queried = probes_do_query,
	.rdma_functions = probes_functions,
	.leave = probes_do_leave,
	.moves = probes_n_moves,
};

/* ---- the process, which is this one ---- */

static struct work node_work;
static struct kernel *kernel;
static struct limit *limit;
static struct follow *follow;
static struct tracked *tracked;
/* the sets PROBES_MEMORY and PROBES_GPU_MEMORY of the process */
static struct probed *memory, *gpu;

/*
 * Has the limit try the event in a span that costs nearly nothing. After that, its probes may stay
 * attached.
 */
static inline void allow_steadily(enum event e)
{
	const struct limit_spent calm = {
		.attached_ns = 10 * NSEC_PER_MSEC, .hits = 1, .cpu_ns = 10 * NSEC_PER_MSEC};
	struct limit_span span;

	assert_int_equal(limit_mode(limit, TEST_CGROUP, e, &span), LIMIT_SPANS);
	limit_spent(limit, TEST_CGROUP, probes_set_of(e), 1u << e, &calm);
	assert_int_equal(limit_mode(limit, TEST_CGROUP, e, &span), LIMIT_STEADY);
}

/*
 * Begins a test: a target asks for these events of the process, of which at most one is a memory
 * event. report may be NULL.
 */
static inline void probed_begin(const struct follow_calls *calls, unsigned event_mask,
				struct report *report)
{
	struct plan *plan = testowner_plan();

	testwork(&node_work);
	plan->pods->containers->event_mask = event_mask;
	testowner_apply(node_work.containers, plan);
	kernel = testkernel_new(&node_work, NULL);
	limit = limit_new(&(struct limit_config){.work = &node_work,
						 .containers = node_work.containers});
	for (enum event e = EVENT_MEM_ALLOC; e <= EVENT_MEM_INUSE; e++)
		if (event_mask & 1u << e)
			allow_steadily(e);
	follow = follow_new_with(&(struct follow_config){.work = &node_work,
							 .containers = node_work.containers,
							 .report = report,
							 .limit = limit,
							 .kernel = kernel},
				 calls);
	probed = (struct process_id){1000, (uint64_t)getpid()};
	tracked = follow_track(follow, probed);
	tracked->cgroup_id = TEST_CGROUP;
	memory = &tracked->probed[PROBES_MEMORY];
	gpu = &tracked->probed[PROBES_GPU_MEMORY];
	memset(&probes, 0, sizeof(probes));
}

static inline void probed_end(void)
{
	posted_run_all();
	follow_unloaded(follow);
	posted_run_all();
	assert_true(follow_is_detached(follow));
	follow = follow_free(follow);
	kernel = testkernel_free(kernel);
	limit = limit_free(limit);
}

/* ---- the same process, with a place to be probed ---- */

#define KNOWN "half of it is not seen" /* the problem at the only place */

static const struct follow_calls probing_calls = {.probes = &counted_probes};
static struct mapping known_library = {.inode = 1, .fd = -1};
static struct mappings known_maps = {.exec_id = 5, .items = &known_library, .n = 1, .refs = 1};

/* Sets the places of the set: there is one. */
static inline void know_a_place(struct probed *x, unsigned looked_mask)
{
	x->m = proc_mappings_ref(&known_maps);
	x->sites = xcalloc(1, sizeof(*x->sites));
	x->sites->items = xcalloc(1, sizeof(*x->sites->items));
	x->sites->n = 1;
	snprintf(x->sites->problem, sizeof(x->sites->problem), KNOWN);
	x->looked_mask = looked_mask;
}

/* Begins a test in which a target asks for mem-alloc. */
static inline int begin_with_sites(void **state)
{
	(void)state;
	probed_begin(&probing_calls, 1u << EVENT_MEM_ALLOC, NULL);
	tracked->exec_id = 5;
	know_a_place(memory, 1u << EVENT_MEM_ALLOC);
	workers.n_given_time = workers.n_replaced = 0;
	workers.replace_result = 0;
	return 0;
}

static inline int end_with_sites(void **state)
{
	(void)state;
	posted_run_all();
	assert_int_equal(follow->n_attaching, 0);
	assert_int_equal(follow->stuck.n, 0);
	assert_null(follow->stuck.waits.job);
	probed_end();
	assert_int_equal(known_maps.refs, 1);
	return 0;
}

static inline void assert_told(const char *part)
{
	assert_non_null(memory->problem);
	if (!strstr(memory->problem, part))
		fail_msg("%s", memory->problem);
}

/* Returns how often attaching ended with this result. */
static inline uint64_t n_ended(const char *result)
{
	return counter_get(counter(PROBES_COUNTER, "result", result));
}

static inline void clock_stands(void)
{
	test_clock.stands_ns = 1000 * NSEC_PER_SEC;
}

static inline int clock_goes_on(void **state)
{
	test_clock.stands_ns = 0;
	return end_with_sites(state);
}
