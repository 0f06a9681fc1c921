/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record, with an event that has uprobes (enum probe_set): attaches them to the recorded processes
 * as soon as their files are known. For memory it reads Go's own heap profile, if a process has
 * one.
 */
#include "cli/record.h"
#include "cli/record_probed.h"
#include "node/learn/go_heap_drain.h"
#include "node/limit/limit.h"

#include <stdlib.h>

#define GO_READ_NS  (5 * NSEC_PER_SEC)
#define ANNOUNCE_NS (5 * NSEC_PER_SEC)
/* least time between two lists of all processes because of forks: a list looks at all tasks */
#define FORKS_REST_NS (200 * NSEC_PER_MSEC)
#define WATCH_NS      (20 * NSEC_PER_MSEC)
#define REPORTS_NS    NSEC_PER_SEC /* the library of on-gpu reports its status twice in this time */

static enum probe_set set_of(const struct recording *r)
{
	return probes_set_of(r->options->event);
}

static bool has_probes(const struct recording *r)
{
	return set_of(r) < _PROBES_SET_MAX;
}

static struct record_probed *find(struct recording *r, struct process_id id)
{
	for (size_t i = 0; i < r->n_probed; i++)
		if (process_id_equal(r->probed[i].id, id))
			return &r->probed[i];
	return NULL;
}

static void take_away(struct recording *r, struct record_probed *x)
{
	x->attached = probes_detach(r->probes, x->attached);
	cli_record_probed_reset(x);
}

static struct record_probed *get(struct recording *r, const struct mappings *m)
{
	struct record_probed *x = find(r, m->id);

	if (x && x->exec_id != m->exec_id) {
		take_away(r, x);
		cli_record_probed_forgive(x);
		learn_unseen_begin_anew(&x->unseen);
	}
	if (!x) {
		GROW(r->probed, r->n_probed, r->cap_probed);
		x = &r->probed[r->n_probed++];
		*x = (struct record_probed){.id = m->id};
	}
	x->exec_id = m->exec_id;
	return x;
}

/* Compares the growth of the process's memory with what its probes saw. */
static void look_at_memory(const struct recording *r, struct record_probed *x)
{
	struct proc_memory now;

	if (set_of(r) == PROBES_MEMORY && x->attached && cli_record_probed_is_compared(x) &&
	    proc_memory(x->id, &now) == 0)
		learn_unseen(&x->unseen, &now, probes_attached_bytes(x->attached),
			     r->options->settings.alloc_sample_bytes);
}

/*
 * on-gpu: a library in the process reports the work of its GPUs, and also its own status. This
 * function reads the status, and notes a problem.
 */
static void look_at_library(const struct recording *r, struct record_probed *x, bool is_last)
{
	struct on_gpu_status s = {0};
	uint64_t attached_ns = now_mono_ns() - x->attached_ns;

	if (set_of(r) != PROBES_GPU || !x->attached)
		return;
	/* after a short recording, a library without a status counts as silent earlier */
	if (is_last && attached_ns > REPORTS_NS)
		attached_ns = UINT64_MAX;
	(void)probes_attached_status(x->attached, &s); /* on an error: s stays "no status yet" */
	cli_record_probed_library(x, &s, attached_ns);
}

/* Attaches probes at the process's sites. They replace those that are attached. */
static void attach(struct recording *r, struct record_probed *x)
{
	struct site_files f;
	struct probes_refused refused = {0};
	int e;

	if (!x->sites->n) {
		x->attached = probes_detach(r->probes, x->attached);
		learn_unseen_begin_anew(&x->unseen); /* the new probes count from 0 */
		return;
	}
	learn_site_files(x->sites, x->m, 1u << r->options->event, &f);
	if (x->attached)
		e = probes_attach_change(r->probes, x->attached, &f.process, f.files, f.n_files,
					 &refused);
	else
		e = probes_attach(r->probes, set_of(r), x->id, &f.process, f.files, f.n_files,
				  &x->attached, &refused);
	learn_site_files_done(&f);
	r->n_refused_sites += refused.n;
	r->n_attached += e == 0;
	if (e == 0)
		x->attached_ns = now_mono_ns();
	look_at_memory(r, x);
	if (e == -ESRCH || (e == 0 && !refused.inuse && !refused.too_many && !refused.objects))
		return;
	free(x->problem);
	x->problem = e ? xasprintf("cannot attach probes: %s", strerror(-e))
		       : learn_sites_problem(x->sites, 1u << r->options->event, &refused);
}

/* Gets the functions of RDMA providers that the BPF programs know; n 0: none. */
static void get_functions(const struct recording *r, const struct record_probed *x,
			  struct pf_rdma_functions *ret)
{
	if (probes_rdma_functions(r->probes, set_of(r), x->id, x->exec_id, ret))
		ret->n = 0;
}

static int find_sites(struct recording *r, struct record_probed *x, const struct mappings *m,
		      struct alloc_sites **ret)
{
	struct pf_rdma_functions rdma;

	get_functions(r, x, &rdma);
	x->n_functions = rdma.n;
	return learn_alloc_sites(r->files, m, 1u << r->options->event, &rdma, ret);
}

void cli_record_probed_look(struct recording *r, struct mappings *m)
{
	struct alloc_sites *s = NULL;
	struct record_probed *x;
	int e;

	if (!has_probes(r))
		return;
	x = get(r, m);
	e = find_sites(r, x, m, &s);
	x->again = e == -EAGAIN;
	if (e == 0) {
		cli_record_probed_lacks(x, set_of(r), s, now_mono_ns());
		if (cli_record_probed_sites(x, r->options->event, s, m))
			attach(r, x);
	} else if (!x->sites && e != -ESRCH) {
		free(x->problem);
		x->problem = xasprintf("cannot find what to probe: %s",
				       x->again ? "it has just started" : strerror(-e));
	}
}

static void read_go(struct recording *r, struct record_probed *x)
{
	struct go_process who = {
		.id = x->id, .exec_id = x->exec_id, .event_mask = 1u << r->options->event};
	struct drain *d = NULL;

	if (x->sites && x->sites->go)
		(void)learn_go_heap(x->sites->go, &who, &d);
	if (d)
		cli_record_samples(r, d);
}

void cli_record_probes_read(struct recording *r)
{
	if (!has_probes(r))
		return;
	for (size_t i = 0; i < r->n_probed; i++) {
		look_at_memory(r, &r->probed[i]);
		read_go(r, &r->probed[i]);
	}
	r->next_go_ns = now_mono_ns() + GO_READ_NS;
	probes_live_ask(r->probes);
}

/*
 * Whether the size of the process's mapped code (VmLib) has changed since its mappings were last
 * searched for the library that it lacks.
 */
static bool has_other_code(struct record_probed *x, uint64_t *ret_bytes)
{
	struct proc_memory now;

	if (proc_memory(x->id, &now) || now.library_bytes == x->library_bytes)
		return false;
	*ret_bytes = now.library_bytes;
	return true;
}

/*
 * Reads the mappings again if the process may have loaded the library that it lacks, or if more
 * functions of RDMA providers are known. Does nothing while cli_record_rests() is true, because
 * cli_record_read_mappings() would refuse.
 */
static void look_for_more(struct recording *r, struct record_probed *x)
{
	struct pf_rdma_functions rdma;
	uint64_t bytes = x->library_bytes;

	if (!x->sites || cli_record_rests(r, x->id, x->exec_id))
		return;
	get_functions(r, x, &rdma);
	if (rdma.n <= x->n_functions &&
	    !(learn_sites_may_come(set_of(r), x->sites) && has_other_code(x, &bytes)))
		return;
	if (cli_record_read_mappings(r, x->id, x->exec_id, 0, 0))
		x->library_bytes = bytes;
}

/*
 * Attaches the probes of a process again if the kernel cannot probe its new mappings any more
 * (probes_attached_lost()), or if some probes are not needed any more (probes_attached_queried()).
 * Looks whether a young process has loaded what it lacks: it may use it at once.
 */
uint64_t cli_record_probes_watch(struct recording *r)
{
	uint64_t now_ns = now_mono_ns();
	bool any = false;

	for (size_t i = 0; i < r->n_probed; i++) {
		struct record_probed *x = &r->probed[i];
		bool soon = cli_record_probed_loads_soon(x, now_ns);

		any |= x->attached || soon;
		if (soon)
			look_for_more(r, x);
		if (x->attached &&
		    (probes_attached_lost(x->attached) || probes_attached_queried(x->attached)))
			attach(r, x);
	}
	return any || r->forks_wait ? now_mono_ns() + WATCH_NS : UINT64_MAX;
}

void cli_record_probes_tick(struct recording *r)
{
	if (!has_probes(r))
		return;
	if (now_mono_ns() >= r->next_go_ns)
		cli_record_probes_read(r);
	for (size_t i = 0; i < r->n_probed; i++) {
		struct record_probed *x = &r->probed[i];

		look_at_memory(r, x);
		look_at_library(r, x, false);
		if (x->again)
			cli_record_read_mappings(r, x->id, x->exec_id, 0, 0);
		else
			look_for_more(r, x);
	}
}

/* podflame hears of a fork without exec only if the kernel lists the processes again. */
void cli_record_probes_announce(struct recording *r)
{
	uint64_t ago_ns = now_mono_ns() - r->announced_ns;

	if (!has_probes(r))
		return;
	r->forks_wait = probes_forked(r->probes);
	if (ago_ns < (r->forks_wait ? FORKS_REST_NS : ANNOUNCE_NS))
		return;
	(void)probes_announce(r->probes);
	r->announced_ns = now_mono_ns();
	r->forks_wait = false;
}

void cli_record_probed_forget(struct recording *r, struct process_id id)
{
	struct record_probed *x = find(r, id);

	if (x)
		take_away(r, x);
}

bool cli_record_probed_newer(struct recording *r, const struct raw_sample *s)
{
	struct record_probed *x = find(r, process_id_of(s));
	bool newer = x && x->snapshot_ns != s->last_ns;

	if (x)
		x->snapshot_ns = s->last_ns;
	return newer;
}

void cli_record_probes_free(struct recording *r)
{
	for (size_t i = 0; i < r->n_probed; i++) {
		take_away(r, &r->probed[i]);
		cli_record_probed_forgive(&r->probed[i]);
	}
	free(r->probed);
	r->probed = NULL;
	r->n_probed = 0;
}

int cli_record_probes_check(const struct recording *r)
{
	const char *lacks = cli_record_probes_all_lack(r->probed, r->n_probed);
	size_t n_seen = 0, n_unseen = 0;

	for (size_t i = 0; i < r->n_probed; i++) {
		const struct record_probed *x = &r->probed[i];

		n_seen += x->again || x->lacks || x->attached || (x->sites && x->sites->go);
		n_unseen += x->problem && !x->again && !x->attached;
		if (x->problem && !x->again)
			fprintf(stderr, "podflame record: process %u: %s\n", (unsigned)x->id.tgid,
				x->problem);
	}
	if (lacks)
		fprintf(stderr, "podflame record: no process has %s loaded yet\n", lacks);
	return n_unseen && !n_seen ? -EOPNOTSUPP : 0;
}

/*
 * The values of a counted event are estimates if they come from a random part of what happened: of
 * the launches (on-gpu: podflame's library in the process chooses) or of the allocated bytes.
 */
static void print_error(uint64_t value, uint64_t square)
{
	uint32_t ppm = limit_error_ppm(value, square);

	if (ppm)
		fprintf(stderr,
			"podflame record: the values are estimates, made from a random part of "
			"what happened: the standard error of their sum is %.2g %%\n",
			ppm / 1e4);
}

/* Prints what the probes have cost, and how exact the values are. */
static void print_usage(const struct recording *r)
{
	_cleanup_free_ struct probe_usage *u = NULL;
	uint64_t hits = 0, value = 0, square = 0, trap_ns = probes_trap_ns(r->probes);
	size_t n = 0;

	if (probes_usage(r->probes, &u, &n) < 0)
		return;
	for (size_t i = 0; i < n; i++)
		if (u[i].event == r->options->event) {
			hits += u[i].hits;
			value += u[i].value;
			square += u[i].square;
		}
	fprintf(stderr,
		"podflame record: the probes took about %" PRIu64
		" ms of CPU time from the recorded processes, as much as %" PRIu64
		" hits of a simple probe (%" PRIu64 " ns)\n",
		(uint64_t)(hits * trap_ns / NSEC_PER_MSEC), hits, trap_ns);
	if (probes_set_info(set_of(r))->counted == r->options->event)
		print_error(value, square);
}

void cli_record_probes_print(const struct recording *r)
{
	if (!has_probes(r))
		return;
	if (r->n_pids && !r->n_probed)
		fprintf(stderr,
			"podflame record: the process has nothing to probe: it has ended or "
			"is a kernel thread\n");
	for (size_t i = 0; i < r->n_probed; i++)
		look_at_library(r, &r->probed[i], true);
	cli_record_probes_print_lack(r->probed, r->n_probed);
	if (!r->n_attached)
		return;
	print_usage(r);
	if (r->n_refused_sites)
		fprintf(stderr, "podflame record: the kernel refused to probe %zu places\n",
			r->n_refused_sites);
}
