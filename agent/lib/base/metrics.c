/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters as Prometheus text, and what each of them means. docs/metrics.md is made of the table:
 * .ci/check-metrics.
 */
#include "lib/base/base.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#define PREFIX "podflame_"

static const struct {
	const char *name; /* as it is printed, without the prefix */
	const char *help;
} helps[] = {
	/* the process */
	{"build_info", "Always 1; which version this is."},
	{"file_tag_mappings_left_total",
	 "Mappings of pods' files that the agent made to learn their tags and could not undo."},
	{"file_tags_evicted_total",
	 "Files that the agent forgot for want of room: frames in them have no name once the file "
	 "is mapped no more."},
	{"process_cpu_seconds_total",
	 "CPU time of this process, all threads; parse children are not in it."},
	{"process_resident_memory_bytes", "Memory of this process that is resident."},
	{"loop_stall_seconds", "Longest time that one callback kept the event loop: since the "
			       "start, in the last 10 minutes."},
	{"unwind_images_cut_total",
	 "Files whose text has more pieces than a walk can find rows for by what is mapped."},
	{"unwind_images_evicted_total",
	 "Files whose rows a walk finds by what is mapped no more, for want of room."},
	{"worker_cpu_seconds_total", "CPU time of a worker's thread."},
	{"worker_jobs_total", "Jobs that a worker has done."},
	{"worker_longest_job_seconds", "Longest job of a worker, wall time."},
	{"worker_queued_bytes", "Bytes in a worker's mailbox."},
	{"worker_queued_jobs", "Jobs in a worker's mailbox."},
	{"worker_refused_jobs_total", "Jobs refused because a worker's mailbox was full."},
	{"worker_running_job_seconds", "How long the job of now runs; 0: none."},
	{"worker_stuck",
	 "Threads of a worker that are past their job's deadline, those left behind too."},
	{"stage_cpu_seconds_total", "CPU time by stage of the work."},
	{"http_accept_pauses_total", "Times that connections had to wait for a tenth of a second, "
				     "for want of descriptors or memory."},
	{"http_refused_total", "Connections refused or ended to make room."},
	{"tls_ca_skipped_total", "Certificates of CA bundles that were left out because they "
				 "cannot be read, each time that a "
				 "bundle is read."},
	{"names_failing", "Host names that cannot be looked up now."},
	{"name_last_known_total", "Connections to the last known address of a host name."},
	{"name_lookups_total", "Look-ups of host names, by result."},
	/* Kubernetes */
	{"kube_credentials_total", "Changes of and problems with token and CA files."},
	{"kube_dropped_total", "Objects of the API server that were left out."},
	{"kube_watch_total", "What happened to watches: connects, relists, errors."},
	{"nodes_without_agent", "Nodes on which no agent has worked for 90 seconds."},
	{"agentless_looks_total",
	 "Lists of the pods of a node without an agent. whole: all pods are known; incomplete: "
	 "not all are."},
	/* BPF */
	{"bpf_links", "Attached BPF links."},
	{"bpf_program_run_seconds_total",
	 "Run time of one BPF program; only while kernel.bpf_stats_enabled is 1."},
	{"bpf_program_runs_total",
	 "Runs of one BPF program; only while kernel.bpf_stats_enabled is 1."},
	{"bpf_programs", "Loaded BPF programs."},
	{"bpf_run_seconds_total",
	 "Run time of all BPF programs; 0 while kernel.bpf_stats_enabled is 0."},
	{"node_hz", "Samples a second and CPU that the node takes now."},
	{"sample_cost_seconds", "What one sample costs: measured, or an estimate."},
	{"trap_seconds", "What one hit of a memory probe costs here."},
	/* samples */
	{"contexts_failed_total", "Samples whose trace context could not be told."},
	{"cpus_reattached_total",
	 "CPUs whose sampling had stopped, as after they were offline: begun again."},
	{"drain_failures_total", "Drains of the kernel's maps that failed."},
	{"drains_skipped_total", "Drains that were left out or lost."},
	{"records_dropped_total", "Records about processes, stacks and names that were lost."},
	{"records_repeated_total", "Records that came twice."},
	{"samples_dropped_total", "Samples that were lost."},
	{"samples_excluded_total", "Samples that are not of the selection."},
	{"samples_folded_total", "Samples that went into a window."},
	{"samples_late_total", "Samples of a window that had ended."},
	{"samples_total",
	 "What the kernel's programs saw and did with it; states overlap: no sum."},
	{"offcpu_looks_total", "Looks at threads that wait on, by outcome."},
	{"usage_full_total",
	 "Times that the kernel had no room for the cost of further containers: until it has, "
	 "overheadPercent does not hold for them."},
	{"usage_unread_total",
	 "Times that the cost of containers could not be read from the kernel."},
	/* containers and processes */
	{"cgroup_cpu_unread_total", "CPU times of containers that could not be read."},
	{"cgroups_dropped_total",
	 "Cgroups that are not known: a limit was reached, or a folder may not be read."},
	{"containers_estimated", "Containers whose values are estimates now."},
	{"container_limits_dropped_total",
	 "Times that a container could not be held to overheadPercent, because too many are."},
	{"containers_over_budget",
	 "Containers with an event that is off to keep within limits.overheadPercent."},
	{"cpu_stat_failed_total", "cpu.stat files of containers that were not read."},
	{"mapped_files_written_total",
	 "Files that were written in place while a process ran their code."},
	{"mapped_files_written_evicted_total",
	 "Such files that were forgotten too early because there were too many."},
	{"mappings_dropped_total", "Mappings of processes that were not read or not taken in; "
				   "resting: they change more often than they are read."},
	{"over_budget_total", "Times that an event of a container went off for its cost."},
	{"process_lists_failed_total", "Lists of selected processes that the kernel did not give."},
	{"processes_dropped_total", "Processes that were left out because a limit was reached."},
	{"problems_omitted_total", "Problems that did not fit into the node report."},
	/* stacks and names */
	{"code_copies_refused_total",
	 "Mappings of code without a file that were not looked up in the files beside them, by "
	 "reason."},
	{"code_pages_compared_total",
	 "Pages of code that may differ from its file, by result of the comparison."},
	{"debug_files_total", "Separate debug files, by result."},
	{"demangle_child_restarts_total", "Children that demangle names, started anew."},
	{"demangle_children_stuck_total",
	 "Children that demangle names and were left behind: the kernel does not end them."},
	{"inlined_frames_dropped_total", "Inlined frames beyond the limit of a stack."},
	{"java_attach_stuck_total", "JVMs that did not answer when asked for a perf map."},
	{"java_attach_total",
	 "JVMs that were asked for a perf map, by result. forgotten: more lack names than are "
	 "kept, one waits until its mappings are read again."},
	{"java_files_left_total",
	 "Times that asking a JVM for its perf map may have left a file in its /tmp."},
	{"memory_files_rewritten_total",
	 "Files in memory (memfd) that the agent found rewritten and parses anew."},
	{"names_mangled_total", "Names that stay as compilers mangle them."},
	{"parse_child_restarts_total", "Parse children started anew."},
	{"parse_children_stuck_total", "Parse children left behind: the kernel does not end them."},
	{"parse_failures_total", "Files that could not be parsed."},
	{"perf_map_lines_refused_total", "Lines of perf maps that were left out."},
	{"runtime_frames_unnamed_total", "Frames of runtimes without a name."},
	{"runtime_learn_failures_total", "Processes whose runtime could not be looked at."},
	{"runtime_learn_seconds_total", "Wall time of looks at runtimes of processes."},
	{"runtime_learns_total", "Looks at runtimes of processes."},
	{"runtime_lines_dropped_total",
	 "Functions of runtimes without lines: their table of them is too large."},
	{"runtime_names_evicted_total", "Names of runtimes' functions that made room for others."},
	{"runtime_names_failed_total", "Names of runtimes' functions that could not be read."},
	{"runtime_pages_touched_total", "Pages of processes that were read for names."},
	{"runtime_read_bytes_total", "Bytes of processes' memory that were read."},
	{"stacks_total", "User stacks that were walked."},
	{"stacks_unfinished_total", "User stacks that do not reach their beginning."},
	{"symbol_cache_bytes", "Names and tables of files in memory."},
	{"symbol_files_evicted_total", "Files whose names made room for others."},
	{"symbol_files_failed_total", "Files without names, by reason."},
	{"symbol_files_incomplete_total", "Files whose names are not all there."},
	{"symbol_files_skipped_total", "Files that were not parsed because a queue was full."},
	{"symbol_processes_evicted_total", "Processes whose mappings made room for others."},
	{"unwind_bytes", "Kernel memory for unwind tables."},
	{"unwind_files", "Files with unwind tables in the kernel."},
	{"unwind_files_evicted_total", "Files whose unwind tables made room for others."},
	{"unwind_files_refused_total", "Files without unwind tables in the kernel."},
	{"unwind_mappings", "Mappings in the kernel."},
	{"unwind_mappings_dropped_total", "Mappings beyond the limit."},
	{"unwind_processes", "Processes with unwind tables in the kernel."},
	{"unwind_processes_refused_total", "Processes without unwind tables in the kernel."},
	{"unwind_rows_unsupported_total", "Unwind rows that the kernel's walk does not know."},
	/* memory profiles */
	{"go_heap_reads_failed_total", "Heap profiles of Go programs that could not be read."},
	{"memory_unseen_total",
	 "Times that the memory of a probed process grew by 64 MiB, or its growth doubled again, "
	 "of which the probes saw less than 5 %."},
	{"memory_attach_total", "Processes whose allocators were probed, by result."},
	{"memory_sites_refused_total", "Places of allocators that cannot be probed."},
	{"memory_spans_coarse_total", "Spans whose cost was known only roughly."},
	{"memory_spans_seconds_total", "Time that probes of allocators were attached for a span."},
	{"memory_spans_total", "Spans of mem-alloc."},
	{"memory_stalls_total", "Spans ended early: they would have kept the process too long."},
	/* windows on their way */
	{"links_dropped_total", "Trace contexts of samples that were left out."},
	{"profiles_dropped_total", "Profiles that were lost."},
	{"send_dropped_profiles_total",
	 "Profiles that were given up: the spool was full, or the hub refused them."},
	{"send_dropped_samples_total", "Samples in the profiles that were given up."},
	{"send_total", "Requests to the hub, by result."},
	{"spool_batches", "Windows in the spool, waiting for the hub."},
	{"spool_bytes", "Bytes in the spool, waiting for the hub."},
	{"spool_files_total",
	 "Files of the spool that could not be used, or are left for the next start."},
	{"state_errors_total", "Files of the agent's state that could not be written."},
	/* the hub */
	{"api_refused_total", "Requests to the API that were refused."},
	{"api_requests_total", "Requests to the API, by path."},
	{"ingest_requests_total", "Requests with profiles, by HTTP status."},
	{"otlp_profiles_skipped_total", "Profiles in requests that were not taken."},
	{"otlp_waits_unknown_total", "Waits of a kind that is not known here."},
	{"queries_busy_seconds_total", "Wall time that queries took."},
	{"queries_refused_total", "Queries refused because too many waited."},
	{"queries_total", "Queries done."},
	{"queries_waiting", "Queries that wait."},
	{"store_bytes", "Size of the store."},
	{"store_damaged_total", "Times that a damaged store was set aside."},
	{"store_dropped_rows_total", "Rows that were not stored."},
	{"store_duplicate_profiles_total", "Profiles that came again and were stored already."},
	{"store_expire_errors_total", "Failures to delete old profiles."},
	{"store_expired_profiles_total", "Profiles deleted, by reason: age, size, disk_full."},
	{"store_healthy", "1: the store works."},
	{"store_links_expired_total", "Trace contexts deleted to keep within the store's budget."},
	{"store_oldest_timestamp_seconds", "Unix time of the oldest profile."},
	{"store_profiles_total", "Profiles stored."},
	{"store_samples_total", "Samples stored."},
	{"store_stacks", "Distinct stacks in the store."},
	{"store_write_errors_total", "Failures to store profiles."},
	{"symbols_damaged_total", "Uploaded symbol files that were found damaged."},
	{"symbols_uploads_total", "Uploaded symbol files, by result."},
};

struct line {
	char *name; /* as printed */
	const char *label, *label_value;
	uint64_t value;
	bool is_ns;
};
struct lines {
	struct line *items;
	size_t n, cap;
};

static void lines_done(struct lines *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->items[i].name);
	free(l->items);
}

static void add(const char *name, const char *label, const char *label_value, uint64_t value,
		void *arg)
{
	const char *plain = str_has_prefix(name, PREFIX) ? name + strlen(PREFIX) : name;
	const char *end = str_has_suffix(plain, "_ns_total") ? "_ns_total" : "_ns";
	bool is_ns = str_has_suffix(plain, end);
	size_t n = strlen(plain) - (is_ns ? strlen(end) : 0);
	struct lines *l = arg;

	GROW(l->items, l->n, l->cap);
	l->items[l->n++] = (struct line){
		/* process_ is what every program calls these */
		.name = xasprintf("%s%.*s%s", str_has_prefix(name, "process_") ? "" : PREFIX,
				  (int)n, plain,
				  !is_ns		    ? ""
				  : streq(end, "_ns_total") ? "_seconds_total"
							    : "_seconds"),
		.label = label,
		.label_value = label_value,
		.value = value,
		.is_ns = is_ns,
	};
}

static int by_name(const void *a, const void *b)
{
	const struct line *x = a, *y = b;
	int order = strcmp(x->name, y->name);

	return order ? order : strcmp(x->label_value, y->label_value);
}

static void put_head(struct buf *b, const char *name)
{
	const char *plain = str_has_prefix(name, PREFIX) ? name + strlen(PREFIX) : name;

	for (size_t i = 0; i < ARRAY_SIZE(helps); i++)
		if (streq(helps[i].name, plain))
			buf_printf(b, "# HELP %s %s\n", name, helps[i].help);
	buf_printf(b, "# TYPE %s %s\n", name, str_has_suffix(name, "_total") ? "counter" : "gauge");
}

/* The quotes, backslash and newline of a label value are escaped as in JSON. */
static void put_line(struct buf *b, const struct line *l)
{
	buf_puts(b, l->name);
	if (*l->label) {
		buf_printf(b, "{%s=", l->label);
		buf_json_string(b, l->label_value);
		buf_putc(b, '}');
	}
	if (l->is_ns)
		buf_printf(b, " %" PRIu64 ".%09" PRIu64 "\n", (uint64_t)(l->value / NSEC_PER_SEC),
			   (uint64_t)(l->value % NSEC_PER_SEC));
	else
		buf_printf(b, " %" PRIu64 "\n", l->value);
}

void counters_print(struct buf *out)
{
	_cleanup_(lines_done) struct lines l = {0};

	counter_each(add, &l);
	if (l.n)
		qsort(l.items, l.n, sizeof(*l.items), by_name);
	for (size_t i = 0; i < l.n; i++) {
		if (i == 0 || !streq(l.items[i].name, l.items[i - 1].name))
			put_head(out, l.items[i].name);
		put_line(out, &l.items[i]);
	}
}

/* ---- stages ---- */

struct stage stage_begin(const char *name)
{
	return (struct stage){name, thread_cpu_ns()};
}

void stage_end(struct stage *s)
{
	counter_add(counter("stage_cpu_ns_total", "stage", s->name), thread_cpu_ns() - s->began_ns);
}
