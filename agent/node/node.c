/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's side put together: who is made when, who is told what, who ends first. */
#include "node/limit/overhead.h"

#include <fcntl.h>
#include <stdlib.h>

#define OS_MAILBOX     (64u << 20)
#define FILES_MAILBOX  (16u << 20)
#define PARSE_MAILBOX  (1u << 20)
#define PIPE_MAILBOX   (256u << 20)
#define PROBES_MAILBOX (1u << 20)
#define USER_AGENT     "podflame-agent/" PODFLAME_VERSION

bool node_total(const struct node *n)
{
	return n->conf->total || (n->config.local && !n->conf->on_cpu_disabled);
}

bool node_has_pods(const struct node *n)
{
	return n->config.kube || !n->config.local;
}

/* ---- what is told ---- */

void node_batch(struct node *n, struct batch *b)
{
	int r;

	if (!b)
		return;
	r = sender_send(n->sender, b);
	if (r < 0)
		log_warn("profiles of a window could not be queued: %s", strerror(-r));
}

void node_problem_all(struct node *n, const char *reason, const char *message)
{
	const struct plan *plan = procs_plan(n->procs);

	for (size_t i = 0; n->report && plan && i < plan->n_targets; i++)
		if (plan->targets[i].containers_planned || !*message)
			report_problem(n->report, plan->targets[i].uid, reason, message, 0);
}

static bool has_container(const struct plan_pod *pod, const char *id)
{
	for (size_t i = 0; i < pod->n_containers; i++)
		if (str_equal(pod->containers[i].id, id))
			return true;
	return false;
}

/* A container that runs before the API server has said its id is one of those without. */
static bool is_asked(const struct plan_pod *pod, const struct plan_container *c,
		     const char *container_id, const char *pod_uid)
{
	if (!container_id || !*container_id)
		return str_equal(pod->uid, pod_uid);
	if (c->id)
		return streq(c->id, container_id);
	return str_equal(pod->uid, pod_uid) && !has_container(pod, container_id);
}

void node_targets_of(struct node *n, const char *container_id, const char *pod_uid,
		     void (*fn)(struct node *n, const char *uid, void *arg), void *arg)
{
	const struct plan *plan = procs_plan(n->procs);

	for (size_t i = 0; plan && i < plan->n_pods; i++)
		for (size_t k = 0; k < plan->pods[i].n_containers; k++) {
			const struct plan_container *c = &plan->pods[i].containers[k];

			if (!is_asked(&plan->pods[i], c, container_id, pod_uid))
				continue;
			for (size_t t = 0; t < c->n_targets; t++)
				fn(n, plan->targets[c->targets[t]].uid, arg);
		}
}

static void tell_stored(struct node *n, const char *uid, void *arg)
{
	const struct stored_event *e = arg;

	report_stored(n->report, uid, e->event, e->n_samples);
}

static void on_stored(const struct stored_event *e, size_t n_events, void *arg)
{
	struct node *n = arg;

	for (size_t i = 0; n->report && i < n_events; i++)
		node_targets_of(n, e[i].container_id, e[i].pod_uid, tell_stored, (void *)&e[i]);
}

json_t *node_debug_plan(void *node)
{
	struct node *n = node;
	const struct plan *plan = procs_plan(n->procs);

	return plan ? plan_to_json(plan) : json_null();
}

json_t *node_debug_report(void *node)
{
	struct node *n = node;

	return n->report ? report_json(n->report) : json_null();
}

/* Later plans are put in force without the pod becoming unready each time. */
bool node_ready(struct buf *why, void *node)
{
	struct node *n = node;

	if (n->was_ready)
		return true;
	if (n->config.kube && !procs_plan(n->procs))
		buf_puts(why, "the API server's lists are not in yet\n");
	else if (!n->pipeline)
		buf_puts(why, "this node is not known to the API server yet\n");
	else if (!kernel_settled(n->kernel))
		buf_puts(why, "programs or the filter are being put into the kernel\n");
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

int node_start_report(struct node *n)
{
	struct report_config c = {
		.node_name = n->conf->node_name,
		.pod_name = getenv("POD_NAME"),
		.ns = n->conf->own_namespace,
		.version = PODFLAME_VERSION,
		.boot_id = n->boot_id,
		.unwind_table_bytes = n->table_bytes,
	};

	return n->report ? 0 : report_new(n->loop, n->config.kube, &c, &n->report);
}

static int open_files(struct node *n)
{
	const struct config *conf = n->conf;
	struct files_config c = {
		.parser.marks = tables_marks(),
		.cache_bytes = memory_share(conf->symbol_cache_bytes),
		.host_debug_dir = conf->host_debug_dir,
		.debuginfod_url = conf->debuginfod_url,
		.debuginfod_ca_file = conf->debuginfod_ca_file,
		.debuginfod_cache = conf->debuginfod_cache,
		.debuginfod_cache_bytes = conf->debuginfod_cache_bytes,
		.debuginfod_timeout_ns = conf->debuginfod_timeout_ns,
		.queued = true,
	};

	return n->known_files ? 0 : files_new(&c, &n->known_files);
}

int node_start(struct node *n, const char *node_uid)
{
	struct pipeline_config c = {
		.fold = {.node_uid = node_uid,
			 .boot_id = n->boot_id,
			 .node_name = n->conf->node_name,
			 .cluster_name = n->conf->cluster_name,
			 .window_ns = n->conf->window_ns,
			 .per_cpu = n->conf->on_cpu_per_cpu,
			 .start_offset_ns = n->gap.start_offset_ns},
	};
	const char *problem;
	int r;

	if (n->pipeline)
		return 0;
	r = open_files(n);
	c.files = n->known_files;
	if (r == 0)
		r = pipeline_new(&c, &n->pipeline);
	if (r < 0)
		return r;
	if (*mappings_problem())
		log_warn("functions of processes have no names: %s", mappings_problem());
	problem = pipeline_kernel_problem(n->pipeline);
	if (*problem)
		log_warn("kernel functions have no names: %s", problem);
	snprintf(n->kernel_problem, sizeof(n->kernel_problem), "%s", problem);
	return 0;
}

/* Windows wait in memory; a restart would lose them, and the disk would answer no sooner. */
static void disk_stuck(struct worker *w, struct job *j, void *arg)
{
	(void)w;
	(void)j;
	(void)arg;
	log_warn("the spool's disk does not answer: profiles wait in memory");
}

static int start_workers(struct node *n)
{
	int r = worker_new(n->loop, "os", OS_MAILBOX, &n->os);

	if (r == 0)
		r = worker_new(n->loop, "files", FILES_MAILBOX, &n->files);
	if (r == 0)
		r = worker_new(n->loop, "tables", PARSE_MAILBOX, &n->tables);
	if (r == 0)
		r = worker_new(n->loop, "debug", PARSE_MAILBOX, &n->debug);
	if (r == 0)
		r = worker_new(n->loop, "pipeline", PIPE_MAILBOX, &n->pipe);
	if (r == 0)
		r = worker_new(n->loop, "probes", PROBES_MAILBOX, &n->probing);
	if (r == 0)
		r = worker_new(n->loop, "disk", SEND_MAILBOX_BYTES, &n->disk);
	if (r == 0)
		worker_on_stuck(n->disk, disk_stuck, NULL);
	return r;
}

static int start_sender(struct node *n, struct field_error *reterr)
{
	const struct config *conf = n->conf;
	struct send_config c = {
		.url = conf->hub_url,
		.ca_file = conf->hub_ca_file,
		.token_file = conf->hub_token_file,
		.spool_dir = conf->spool_dir,
		.spool_max_bytes = conf->spool_max_bytes,
		.user_agent = USER_AGENT,
		.os = n->disk,
		.direct = n->config.direct,
		.direct_arg = n->config.direct_arg,
	};
	int r = sender_new(n->loop, &c, &n->sender, reterr);

	if (r == 0)
		sender_on_stored(n->sender, on_stored, n);
	return r;
}

/* One machine without an API server: nothing to wait for, errors are the user's at once. */
static int start_local(struct node *n, struct field_error *reterr)
{
	char machine_id[64] = "";
	int r;

	read_id("/etc/machine-id", machine_id, sizeof(machine_id));
	r = hosts_new(n, &n->hosts, reterr);
	if (r == 0)
		r = node_start(n, *machine_id ? machine_id : n->conf->node_name);
	if (r == 0 && (node_total(n) || n->hosts))
		r = kernel_load_now(n->kernel, reterr);
	return r;
}

static int start(struct node *n, struct field_error *reterr)
{
	int r = start_workers(n);

	if (r == 0)
		r = procs_new(&n->procs);
	if (r == 0)
		r = start_sender(n, reterr);
	if (r == 0)
		r = kernel_new(n, &n->kernel, reterr);
	if (r < 0)
		return r;
	n->reads = reads_new(n);
	n->drains = drains_new(n);
	n->follow = follow_new(n);
	n->limit = limit_new(n);
	n->throttle = throttle_new(n);
	n->overhead = overhead_new(n);
	if (n->config.local)
		r = start_local(n, reterr);
	if (r == 0 && n->config.kube)
		r = world_new(n, &n->world);
	return r;
}

int node_new(struct loop *l, const struct node_config *c, struct node **ret,
	     struct field_error *reterr)
{
	struct node *n = xcalloc(1, sizeof(*n));
	int r;

	n->loop = l;
	n->conf = c->conf;
	n->config = *c;
	n->refs = 1;
	n->tasks_tail = &n->tasks;
	read_id("/proc/sys/kernel/random/boot_id", n->boot_id, sizeof(n->boot_id));
	n->table_bytes = memory_share(c->conf->unwind_table_bytes);
	gap_open(&n->gap, c->conf, c->local, n->boot_id);
	r = start(n, reterr);
	if (r < 0) {
		node_free(n);
		return r;
	}
	*ret = n;
	return 0;
}

/* ---- end ---- */

/* The workers have ended and what they did is taken in: the last drain, the open window. */
static void flush(struct node *n)
{
	if (n->kernel)
		kernel_close(n->kernel);
	if (n->drains)
		drains_advance(n->drains);
	if (n->pipeline)
		pipeline_gap(n->pipeline, gap_take(n));
	if (n->pipeline && n->sender)
		node_batch(n, pipeline_flush(n->pipeline));
	if (n->pipeline)
		gap_end(n);
}

struct node *node_free(struct node *n)
{
	if (!n)
		return NULL;
	n->world = world_free(n->world);
	if (n->follow)
		follow_stop(n->follow);
	if (n->tables)
		worker_free(n->tables);
	if (n->debug)
		worker_free(n->debug);
	if (n->attach)
		worker_free(n->attach);
	if (n->probing)
		worker_free(n->probing);
	if (n->os)
		worker_free(n->os);
	if (n->files)
		worker_free(n->files);
	if (n->pipe)
		worker_free(n->pipe);
	n->closing = true;
	tasks_finish(n);
	if (n->follow)
		(void)follow_idle(n->follow);
	flush(n);
	report_free(n->report);
	/* The disk worker still delivers or spools what the sender was given. */
	sender_free(n->sender);
	if (n->disk)
		worker_free(n->disk);
	hosts_free(n->hosts);
	kernel_free(n->kernel);
	drains_free(n->drains);
	reads_free(n->reads);
	follow_free(n->follow);
	limit_free(n->limit);
	throttle_free(n->throttle);
	overhead_free(n->overhead);
	pipeline_free(n->pipeline);
	files_free(n->known_files);
	procs_free(n->procs);
	gap_done(&n->gap);
	n->closed = true;
	node_unref(n);
	return NULL;
}
