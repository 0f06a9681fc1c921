/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts the parts of the node together: it creates them, connects them through their ops, calls them
 * every second and ends them in order. It owns struct node. Loop thread.
 */
#include "node/internal.h"

#include <fcntl.h>
#include <stdlib.h>

_Static_assert(LEFT_BEHIND_MAX >= PLAN_MAX_PODS, "each pod may block a thread of a worker");

#define USER_AGENT "podflame-agent/" PODFLAME_VERSION

/* ---- reporting ---- */

struct stored {
	struct report *report;
	const struct stored_event *event;
};

static void tell_stored(const char *uid, void *arg)
{
	const struct stored *s = arg;

	report_stored(s->report, uid, s->event->event, s->event->n_samples);
}

static void on_stored(const struct stored_event *e, size_t n_events, void *arg)
{
	const struct node *n = arg;

	for (size_t i = 0; n->report && i < n_events; i++) {
		struct stored s = {n->report, &e[i]};

		plan_targets_of(proc_containers_plan(n->containers), e[i].container_id,
				e[i].pod_uid, tell_stored, &s);
	}
}

json_t *node_debug_plan(void *node)
{
	struct node *n = node;
	const struct plan *plan = proc_containers_plan(n->containers);

	return plan ? plan_to_json(plan) : json_null();
}

json_t *node_debug_report(void *node)
{
	struct node *n = node;

	return n->report && n->started ? report_json(n->report) : json_null();
}

/* If the agent was ready once, it stays ready, also while it loads a new plan. */
bool node_ready(struct buf *why, void *node)
{
	struct node *n = node;

	if (n->was_ready)
		return true;
	if (n->config.kube && !proc_containers_plan(n->containers))
		buf_puts(why, "the agent has not yet read all the lists that it needs from the API "
			      "server\n");
	else if (!n->started)
		buf_puts(why, "the API server does not know this node yet\n");
	else if (!kernel_settled(n->kernel))
		buf_puts(why, "the agent is loading its programs and filter into the kernel\n");
	else
		n->was_ready = true;
	return n->was_ready;
}

/* ---- start ---- */

static void read_id(const char *path, char *out, size_t n)
{
	_cleanup_free_ char *text = NULL;

	if (file_read(AT_FDCWD, path, 4096, &text, NULL) < 0)
		return;
	text[strcspn(text, "\n")] = '\0';
	snprintf(out, n, "%s", text);
}

static int open_files(struct node *n)
{
	const struct config *conf = n->conf;
	struct files_config c = {
		.parser.marks = learn_markers(),
		.cache_bytes = proc_memory_share(conf->symbol_cache_bytes),
		.host_debug_dir = conf->host_debug_dir,
		.debuginfod_url = conf->debuginfod_url,
		.debuginfod_ca_file = conf->debuginfod_ca_file,
		.debuginfod_cache = conf->debuginfod_cache,
		.debuginfod_cache_bytes = conf->debuginfod_cache_bytes,
		.debuginfod_timeout_ns = conf->debuginfod_timeout_ns,
		.queued = true,
	};

	return files_new(&c, &n->files);
}

int node_start(struct node *n, const char *node_uid)
{
	const char *problem;
	int r;

	loop_assert(n->work->loop);
	if (n->started)
		return 0;
	r = pipeline_start(n->pipeline, node_uid);
	if (r < 0)
		return r;
	n->started = true;
	if (*proc_mappings_problem())
		log_warn("functions of processes have no names: %s", proc_mappings_problem());
	problem = pipeline_kernel_problem(n->pipeline);
	if (*problem)
		log_warn("kernel functions have no names: %s", problem);
	kernel_start(n->kernel, problem);
	return 0;
}

static int open_sender(struct node *n, struct field_error *reterr)
{
	const struct config *conf = n->conf;
	struct send_config c = {
		.url = conf->hub_url,
		.ca_file = conf->hub_ca_file,
		.token_file = conf->hub_token_file,
		.spool_dir = conf->spool_dir,
		.spool_max_bytes = conf->spool_max_bytes,
		.user_agent = USER_AGENT,
		.disk = n->work->disk,
		.direct = n->config.direct,
		.direct_arg = n->config.direct_arg,
	};
	int r = send_new(n->work->loop, &c, &n->sender, reterr);

	if (r == 0)
		send_on_stored(n->sender, on_stored, n);
	return r;
}

/* Whether the node profiles pods, by their cgroups. If not, it profiles host processes only. */
static bool has_pods(const struct node *n)
{
	return n->config.kube || !n->config.local;
}

/*
 * Chooses the cgroup hierarchy. An agent without Kubernetes needs none. So if it finds none, this
 * is an error only if the user has chosen a hierarchy.
 */
static int choose_hierarchy(struct node *n, struct field_error *reterr)
{
	struct field_error err = {0};
	int r = proc_cgroup_choose(n->conf->cgroup_hierarchy, &n->hierarchy, &err);

	if (r == 0 || (!has_pods(n) && !*n->conf->cgroup_hierarchy))
		return 0;
	if (reterr)
		*reterr = err;
	return r;
}

static void open_report(struct node *n, size_t table_bytes)
{
	struct report_config c = {
		.node_name = n->conf->node_name,
		.pod_name = getenv("POD_NAME"),
		.ns = n->conf->own_namespace,
		.version = PODFLAME_VERSION,
		.boot_id = n->boot_id,
		.unwind_table_bytes = table_bytes,
	};
	int r = n->config.kube ? report_new(n->work->loop, n->config.kube, &c, &n->report) : 0;

	if (r < 0)
		log_err("node %s: its report cannot be written: %s", n->conf->node_name,
			strerror(-r));
}

static void open_limit(struct node *n)
{
	struct limit_config c = {
		.work = n->work,
		.containers = n->containers,
		.report = n->report,
		.hierarchy = &n->hierarchy,
		.window_ns = n->conf->window_ns,
	};

	n->limit = limit_new(&c);
}

/* ---- calls from the kernel module to other modules ---- */

static void exited(void *node, const struct process_exit *exits, size_t n_exits)
{
	const struct node *n = node;

	follow_exited(n->follow, exits, n_exits);
	pipeline_exited(n->pipeline, exits, n_exits);
}

static void crowded(void *node, uint64_t ns)
{
	const struct node *n = node;

	kernel_note_share(n->kernel, SHARED_PROCESSES, ns);
}

static void open_processes(struct node *n)
{
	struct processes_config c = {
		.work = n->work,
		.exited = exited,
		.crowded = crowded,
		.arg = n,
	};

	n->processes = processes_new(&c);
}

static void drained(void *node, struct drain *drain, bool full)
{
	const struct node *n = node;

	processes_drained(n->processes, drain);
	pipeline_drain(n->pipeline, drain, full);
}

static bool detach(void *node)
{
	const struct node *n = node;

	follow_detach(n->follow);
	return follow_is_detached(n->follow);
}

static void unloaded(void *node)
{
	const struct node *n = node;

	follow_unloaded(n->follow);
}

static int open_kernel(struct node *n, size_t table_bytes, struct field_error *reterr)
{
	static const struct kernel_ops ops = {drained, detach, unloaded};
	struct kernel_config c = {
		.work = n->work,
		.containers = n->containers,
		.report = n->report,
		.limit = n->limit,
		.conf = n->conf,
		.hierarchy = &n->hierarchy,
		.has_pods = has_pods(n),
		.has_api_server = n->config.kube != NULL,
		.by_name = n->config.local,
		.total = n->conf->total || (n->config.local && !n->conf->on_cpu_disabled),
		.table_bytes = table_bytes,
		.ops = &ops,
		.ops_arg = n,
	};

	return kernel_new(&c, &n->kernel, reterr);
}

/* ---- calls from follow to other modules ---- */

static void learnt_runtimes(void *node, struct process_id id, uint32_t exec_id,
			    struct runtime_process *found)
{
	const struct node *n = node;

	pipeline_runtimes(n->pipeline, id, exec_id, found);
}

static void rows_set(void *node, struct process_id id, uint32_t exec_id, struct runtime_process *r,
		     uint64_t since_ns, uint64_t until_ns)
{
	const struct node *n = node;

	pipeline_rows_set(n->pipeline, id, exec_id, r, since_ns, until_ns);
}

static void parsed(void *node)
{
	const struct node *n = node;

	pipeline_advance(n->pipeline);
}

static void sampled(void *node, struct drain *drain)
{
	const struct node *n = node;

	pipeline_drain_whole(n->pipeline, drain);
}

static void read_mappings(void *node, struct process_id id, uint32_t exec_id, uint64_t cgroup_id)
{
	const struct node *n = node;

	pipeline_read_mappings(n->pipeline, id, exec_id, cgroup_id);
}

static void open_follow(struct node *n)
{
	static const struct follow_ops ops = {learnt_runtimes, rows_set, parsed, sampled,
					      read_mappings};
	struct follow_config c = {
		.work = n->work,
		.containers = n->containers,
		.report = n->report,
		.limit = n->limit,
		.kernel = n->kernel,
		.files = n->files,
		.java_refresh_ns = n->conf->java_refresh_ns,
		.ops = &ops,
		.ops_arg = n,
	};

	n->follow = follow_new(&c);
}

static void open_pipeline(struct node *n)
{
	struct pipeline_config c = {
		.work = n->work,
		.containers = n->containers,
		.report = n->report,
		.limit = n->limit,
		.kernel = n->kernel,
		.processes = n->processes,
		.follow = n->follow,
		.files = n->files,
		.sender = n->sender,
		.hierarchy = &n->hierarchy,
		.conf = n->conf,
		.has_pods = has_pods(n),
		.local = n->config.local,
		.boot_id = n->boot_id,
	};

	n->pipeline = pipeline_new(&c);
}

/* ---- every second ---- */

static void show_sender(const struct sender *sender)
{
	struct sender_stats s;

	send_stats(sender, &s);
	counter_set(counter("podflame_send_total", "result", "stored"), s.n_sent);
	counter_set(counter("podflame_send_total", "result", "failed"), s.n_failed);
	counter_set(counter("podflame_send_dropped_profiles_total", NULL, NULL),
		    s.n_dropped_profiles);
	counter_set(counter("podflame_send_dropped_samples_total", NULL, NULL),
		    s.n_dropped_samples);
	counter_set(counter("podflame_spool_bytes", NULL, NULL), s.spool_bytes);
	counter_set(counter("podflame_spool_batches", NULL, NULL), s.n_spooled);
}

static void tell_lost(const struct node *n)
{
	struct sender_stats s;

	if (!n->report)
		return;
	send_stats(n->sender, &s);
	report_lost(n->report, pipeline_n_lost(n->pipeline) + s.n_dropped_samples,
		    s.n_dropped_profiles);
}

/* Tells all targets of the node whether the hub refuses its profiles because of its clock. */
static void tell_clock(struct node *n)
{
	const struct plan *plan = proc_containers_plan(n->containers);
	struct sender_stats s;

	send_stats(n->sender, &s);
	if (!n->report || !plan || (!*s.clock_ahead && !n->told_clock))
		return;
	n->told_clock = *s.clock_ahead;
	for (size_t i = 0; i < plan->n_targets; i++)
		if (plan->targets[i].containers_planned || !n->told_clock)
			report_problem(n->report, plan->targets[i].uid, REASON_CLOCK_AHEAD,
				       s.clock_ahead, 0);
}

static void tell_scrape(const char *uid, enum reason reason, const char *message, unsigned n_pods,
			void *arg)
{
	const struct node *n = arg;

	if (n->report)
		report_problem(n->report, uid, reason, message, n_pods);
}

static int open_scrape(struct node *n, struct field_error *reterr)
{
	const struct config *conf = n->conf;
	const struct scrape_config c = {
		.work = n->work,
		.containers = n->containers,
		.hierarchy = &n->hierarchy,
		.url = conf->hub_url,
		.ca_file = conf->hub_ca_file,
		.token_file = conf->hub_token_file,
		.user_agent = USER_AGENT,
		.tell = tell_scrape,
		.arg = n,
	};

	return n->config.kube && *conf->hub_url ? scrape_new(&c, &n->scrape, reterr) : 0;
}

static void tick(void *arg)
{
	struct node *n = arg;

	/* at each second of the wall clock, so that a window gets the samples of its own time */
	timer_set(n->work->loop, &n->tick,
		  NSEC_PER_SEC - now_wall_ns() % NSEC_PER_SEC + NSEC_PER_MSEC, tick, n);
	show_sender(n->sender);
	tell_lost(n);
	tell_clock(n);
	if (!n->started)
		return;
	work_tick(n->work);
	kernel_sync(n->kernel);
	pipeline_note_profiled(n->pipeline);
	if (!kernel_tick(n->kernel))
		pipeline_drain(n->pipeline, NULL, true);
	pipeline_tick(n->pipeline);
	follow_tick(n->follow);
	processes_tick(n->processes);
	if (n->scrape)
		scrape_tick(n->scrape);
}

/* ---- start ---- */

/*
 * Starts without an API server: there is nothing to wait for, and the user sees errors immediately.
 */
static int start_local(struct node *n, struct field_error *reterr)
{
	char machine_id[64] = "";
	int r;

	read_id("/etc/machine-id", machine_id, sizeof(machine_id));
	r = node_start(n, *machine_id ? machine_id : n->conf->node_name);
	if (r == 0 && kernel_is_asked(n->kernel))
		r = kernel_load_now(n->kernel, reterr);
	return r;
}

static int start(struct node *n, struct field_error *reterr)
{
	size_t table_bytes = proc_memory_share(n->conf->unwind_table_bytes);
	int r = work_start_workers(n->work, SEND_MAILBOX_BYTES);

	if (r == 0)
		r = proc_containers_new(&n->containers);
	if (r == 0)
		r = open_files(n);
	if (r == 0)
		r = open_sender(n, reterr);
	if (r == 0)
		r = choose_hierarchy(n, reterr);
	if (r < 0)
		return r;
	open_report(n, table_bytes);
	n->work->containers = n->containers;
	n->work->report = n->report;
	open_limit(n);
	r = open_kernel(n, table_bytes, reterr);
	if (r < 0)
		return r;
	open_processes(n);
	open_follow(n);
	open_pipeline(n);
	r = open_scrape(n, reterr);
	if (r < 0)
		return r;
	timer_set(n->work->loop, &n->tick, 0, tick, n);
	if (n->config.local)
		r = start_local(n, reterr);
	if (r == 0 && n->config.kube)
		r = node_watches_new(n, &n->watches);
	return r;
}

int node_new(struct loop *l, const struct node_config *c, struct node **ret,
	     struct field_error *reterr)
{
	struct node *n = xcalloc(1, sizeof(*n));
	int r;

	loop_assert(l);
	n->conf = c->conf;
	n->config = *c;
	n->work = work_new(l);
	read_id("/proc/sys/kernel/random/boot_id", n->boot_id, sizeof(n->boot_id));
	r = start(n, reterr);
	if (r < 0) {
		node_free(n);
		return r;
	}
	*ret = n;
	return 0;
}

/* ---- end ---- */

struct node *node_free(struct node *n)
{
	if (!n)
		return NULL;
	loop_assert(n->work->loop);
	n->watches = node_watches_free(n->watches);
	timer_cancel(&n->tick);
	if (n->follow)
		follow_stop(n->follow);
	work_close(n->work);
	if (n->follow)
		follow_detach(n->follow);
	/*
	 * The workers have ended, and their results are handled. Now come the last drain and the
	 * open window.
	 */
	if (n->pipeline) {
		kernel_close(n->kernel);
		pipeline_close(n->pipeline);
	}
	report_free(n->report);
	/*
	 * The disk worker is still running: it delivers or spools the batches that the sender has.
	 */
	send_free(n->sender);
	if (n->work->disk)
		worker_free(n->work->disk);
	scrape_free(n->scrape);
	kernel_free(n->kernel);
	pipeline_free(n->pipeline);
	follow_free(n->follow);
	processes_free(n->processes);
	limit_free(n->limit);
	files_free(n->files);
	proc_containers_free(n->containers);
	work_free(n->work);
	free(n);
	return NULL;
}
