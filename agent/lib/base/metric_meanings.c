/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints counters as Prometheus text, with the meaning of each. .ci/check-metrics makes
 * docs/metrics.md from the table.
 */
#include "lib/base/base.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#define PREFIX "podflame_"

static const struct {
	const char *name; /* the name in /metrics, without the prefix */
	const char *help;
} helps[] = {
	/* the process */
	{"build_info", "Always 1. The label is the version."},
	{"file_tag_mappings_left_total",
	 "Mappings of pods' files that the agent made to learn their tags and could not undo."},
	{"file_tags_evicted_total", "Files that the agent forgot because there was no room. Frames "
				    "in them have no name once the file is not mapped any more."},
	{"process_cpu_seconds_total",
	 "CPU time of this process, all threads, without the parse children."},
	{"process_resident_memory_bytes", "Memory of this process that is resident."},
	{"loop_stall_seconds", "Longest time that one callback blocked the event loop: since the "
			       "start, in the last 10 minutes."},
	{"unwind_images_cut_total", "Files with so many pieces of code that a walk does not find "
				    "all of them by the file's tag."},
	{"unwind_images_evicted_total", "Files that walks cannot find by their tag any more, "
					"because other files needed the room."},
	{"worker_cpu_seconds_total", "CPU time of a worker's thread."},
	{"worker_cpu_wait_seconds_total",
	 "How long a worker's thread could run, but had no CPU: the node has none left, the "
	 "container's CPU request is too small, or its CPU limit is reached."},
	{"worker_jobs_total", "Jobs that a worker has done."},
	{"worker_longest_job_seconds", "Longest job of a worker, wall time."},
	{"worker_queued_bytes", "Bytes in a worker's queue."},
	{"worker_queued_jobs", "Jobs in a worker's queue."},
	{"worker_refused_jobs_total", "Jobs refused because a worker's queue was full."},
	{"worker_running_job_seconds",
	 "How long a worker's current job has run; 0: there is none."},
	{"worker_stuck", "Threads of a worker that have missed the deadline of their job, also "
			 "those that another thread has replaced."},
	{"stage_cpu_seconds_total", "CPU time by stage of the work."},
	{"http_accept_pauses_total", "Times that connections had to wait for a tenth of a second "
				     "because there were no descriptors or no memory."},
	{"http2_client_total",
	 "What happened to connections over HTTP/2, by event. connected; goaway: the server takes "
	 "no more requests on one; stream_refused: it did not read a request, which is sent again; "
	 "stream_reset: it ended an answer; ping_timeout: it did not answer a PING."},
	{"http_refused_total",
	 "Connections and requests that were refused, by reason. too_many_connections: there was "
	 "no room; made_room: closed to make room; peer_share: the same, since its peer had more "
	 "connections than another one; too_slow: the request came too slowly; not_taken: the "
	 "client did not take its answer; http2_streams: one request more than a connection of "
	 "HTTP/2 may have; http2_waiting: too much of bodies came before it was known whether they "
	 "are wanted; http2_resets, http2_control: the connection ended, since its client "
	 "reset too many requests, or sent too many frames that carry none; http2_invalid: it "
	 "ended, since its client broke the protocol."},
	{"tls_ca_skipped_total", "Certificates of CA bundles that cannot be read and were ignored, "
				 "each time that a bundle is read."},
	{"names_failing", "Host names that cannot be looked up now."},
	{"name_last_known_total", "Connections to the last known address of a host name."},
	{"name_lookups_total", "Look-ups of host names, by result."},
	/* Kubernetes */
	{"kube_credentials_total", "Changes of token and CA files, and problems with them."},
	{"kube_dropped_total", "Objects of the API server that were ignored, by reason."},
	{"kube_watch_total", "Events of watches: connects, lists, errors."},
	{"nodes_without_agent", "Nodes on which no agent has worked for 90 seconds."},
	/* BPF */
	{"bpf_links", "Attached BPF links."},
	{"bpf_program_run_seconds_total",
	 "Run time of one BPF program; only while kernel.bpf_stats_enabled is 1."},
	{"bpf_program_runs_total",
	 "Runs of one BPF program; only while kernel.bpf_stats_enabled is 1."},
	{"bpf_programs", "Loaded BPF programs."},
	{"bpf_run_seconds_total",
	 "Run time of all BPF programs; 0 while kernel.bpf_stats_enabled is 0."},
	{"node_hz", "Samples per second on each CPU that the node takes now."},
	{"sample_cost_seconds", "Cost of one sample, measured or estimated."},
	{"trap_seconds", "Cost of one hit of a uprobe on this machine."},
	/* samples */
	{"contexts_failed_total", "Samples whose trace context or labels could not be read."},
	{"cpus_reattached_total", "CPUs on which sampling had stopped, for example because they "
				  "were offline, and has begun again."},
	{"drain_failures_total", "Drains of the kernel's maps that failed."},
	{"drains_skipped_total", "Drains that were skipped or lost."},
	{"gpu_devices_failed_total",
	 "Times that the list of devices (/proc/devices) could not be read. It says which devices "
	 "are GPUs, for the waits of off-cpu."},
	{"records_dropped_total", "Records about processes, stacks and names that were lost."},
	{"records_repeated_total", "Records that the kernel sent twice."},
	{"samples_behind_seconds", "Age of the samples that the agent named last."},
	{"samples_dropped_total", "Samples that were lost."},
	{"samples_excluded_total", "Samples that do not belong to the selection, by reason."},
	{"samples_folded_total", "Samples that went into a window."},
	{"samples_late_total", "Samples that came after their window had ended."},
	{"samples_total",
	 "Samples by what the BPF programs did with them. States overlap, so do not add them up."},
	{"offcpu_looks_total", "Threads that still wait and that the agent looked at, by outcome."},
	{"usage_full_total",
	 "Events whose cost did not count, because the costs of the namespace's cgroups have their "
	 "share of the kernel's table. overheadPercent does not hold for these cgroups."},
	{"usage_unread_total",
	 "Times that the cost of containers could not be read from the kernel."},
	/* containers and processes */
	{"cgroup_cpu_unread_total", "Times that the CPU time of a container could not be read."},
	{"cgroups_dropped_total", "Cgroups that the agent does not know, because a limit was "
				  "reached or it may not read a directory."},
	{"containers_estimated", "Containers whose values are estimates now."},
	{"container_limits_dropped_total", "Times that the agent could not hold a container to "
					   "overheadPercent, because it holds too many already."},
	{"containers_over_budget",
	 "Containers with an event that is off because of limits.overheadPercent."},
	{"cpu_stat_failed_total", "Times that the cpu.stat of a container could not be read."},
	{"mapped_files_written_total",
	 "Files that were written in place while a process ran their code."},
	{"mapped_files_written_evicted_total",
	 "Files written in place that the agent forgot too early because there were too many."},
	{"mappings_dropped_total",
	 "Mappings of processes that were not read or not used. resting: they change faster than "
	 "the agent may read them. many_execs: not read at the start of a program, because its "
	 "namespace started more than its share. many_programs: not read for a sample, because its "
	 "namespace had more new programs than its share. long_path: only the beginning of a "
	 "file's path was read."},
	{"names_not_awaited_total",
	 "Times that profiles went on without the names of a namespace's new processes, because "
	 "these made them wait too often. Counts at most one a second for each namespace."},
	{"drains_hurried_total",
	 "Times that the samples of a second went on without names that were being read, because "
	 "they had waited four seconds for names already."},
	{"over_budget_total",
	 "Times that the agent switched off an event of a container because of its cost."},
	{"process_lists_failed_total",
	 "Times that the kernel could not list the selected processes."},
	{"processes_dropped_total", "Processes that were ignored because a limit was reached."},
	{"problems_omitted_total", "Problems that did not fit into the node report."},
	/* stacks and names */
	{"young_stacks_dropped_total",
	 "Stacks of young processes whose names were not read at once, because the namespace had "
	 "more than its share of them. They lack names if the process has ended."},
	{"code_copies_refused_total", "Mappings of code without a file that the agent did not look "
				      "up in the files beside them, by reason."},
	{"code_pages_compared_total",
	 "Pages of code that may differ from its file, by result of the comparison."},
	{"debug_files_total", "Separate debug files, by result."},
	{"demangle_child_restarts_total",
	 "Restarts of the child that demangles names, after it failed at a name."},
	{"demangle_children_stuck_total",
	 "Killed children that demangled names, which the kernel has not ended yet."},
	{"inlined_frames_dropped_total", "Inlined frames beyond the limit of a stack."},
	{"java_attach_stuck_total", "JVMs that did not answer the request for a perf map."},
	{"java_attach_total", "Requests to JVMs for a perf map, by result. forgotten: the agent's "
			      "list of JVMs was full, so the agent removed one of them, and adds "
			      "it again when it next reads that JVM's mappings."},
	{"java_files_left_total",
	 "Times that asking a JVM for its perf map may have left a file in its /tmp."},
	{"memory_files_rewritten_total",
	 "Files in memory (memfd) that were rewritten, so that the agent parses them again."},
	{"names_mangled_total", "Names that stay mangled, by reason."},
	{"parse_child_restarts_total",
	 "Times that the agent ended a child process that parses files, because the child took "
	 "too long, died or gave a wrong answer."},
	{"parse_children_stuck_total",
	 "Killed parse children, which the kernel has not ended yet."},
	{"parse_failures_total", "Files that could not be parsed."},
	{"perf_map_lines_refused_total", "Lines of perf maps that were refused."},
	{"reader_child_restarts_total",
	 "Times that the agent ended a child process that reads perf maps and the memory of "
	 "processes, because the child took too long, died or gave a wrong answer."},
	{"reader_children_stuck_total",
	 "Killed children that read perf maps and the memory of processes, which the kernel has "
	 "not ended yet."},
	{"reader_failures_total",
	 "Perf maps and runtimes of processes that could not be read, by reason. paused: the "
	 "agent reads none of the namespace for a while, because one stopped the child that read "
	 "it. no_child: no child could be started."},
	{"runtime_frames_unnamed_total", "Frames of runtimes without a name."},
	{"runtime_learn_failures_total", "Processes whose runtime could not be read."},
	{"generated_frames_left_out_total",
	 "Pieces of call frame information of generated code that were left out, by reason."},
	{"generated_rows_compared_total",
	 "Readings, after a drain, of the unwind rows that a process publishes for its generated "
	 "code. equal: the kernel has the same rows. differs: it has others, so stacks through "
	 "code whose rows differ are cut. unreadable: the rows could not be read."},
	{"runtime_learn_seconds_total",
	 "Wall time that the agent took to look for runtimes in processes."},
	{"runtime_learns_total", "Times that the agent looked for runtimes in a process."},
	{"runtime_learnt_again_total", "Times that a child had forgotten the runtimes of a "
				       "process, and learnt them again before it "
				       "named the process's functions."},
	{"runtime_lines_dropped_total",
	 "Functions of runtimes without lines, because their table of lines is too large."},
	{"runtime_names_evicted_total",
	 "Names of runtimes' functions that were dropped to make room for others."},
	{"runtime_names_failed_total", "Names of runtimes' functions that could not be read."},
	{"runtime_pages_touched_total", "Pages of processes that were read for names."},
	{"runtime_read_bytes_total", "Bytes of processes' memory that were read."},
	{"stacks_total", "User stacks that were walked."},
	{"stacks_unfinished_total", "User stacks that do not reach their beginning."},
	{"symbol_cache_bytes", "Memory for names and tables of files."},
	{"symbol_files_evicted_total", "Files whose names were dropped to make room for others."},
	{"symbol_files_failed_total", "Files without names, by reason."},
	{"symbol_files_incomplete_total",
	 "Files of which some names or unwind rows are missing, by reason."},
	{"symbol_files_skipped_total", "Files that were not parsed because a queue was full."},
	{"symbol_processes_evicted_total",
	 "Processes whose mappings were dropped to make room for others."},
	{"symbol_roots_evicted_total",
	 "Cgroups whose processes' root directory was dropped to make room for others."},
	{"unwind_bytes", "Kernel memory for unwind tables."},
	{"unwind_files", "Files with unwind tables in the kernel."},
	{"unwind_files_evicted_total",
	 "Files whose unwind tables were dropped to make room for others."},
	{"unwind_files_refused_total", "Files without unwind tables in the kernel."},
	{"unwind_mappings", "Mappings in the lists by which the kernel walks stacks."},
	{"unwind_mappings_dropped_total",
	 "Mappings that are not in the kernel, because a limit was reached."},
	{"unwind_processes", "Processes with unwind tables in the kernel."},
	{"unwind_processes_refused_total", "Processes without unwind tables in the kernel."},
	{"unwind_rows_unsupported_total", "Unwind rows that the walk in the kernel cannot use."},
	/* memory profiles */
	{"go_heap_reads_failed_total", "Heap profiles of Go programs that could not be read."},
	{"memory_unseen_total", "Times that the memory of a probed process grew by 64 MiB, or that "
				"this growth doubled, while the probes saw less than 5 % of it."},
	{"probes_attach_total", "Sets of uprobes that were attached to a process, by result."},
	{"probes_sites_refused_total", "Places that the kernel refused to probe."},
	{"probes_spans_coarse_total", "Spans whose cost is known only roughly."},
	{"probes_spans_seconds_total", "Time that uprobes were attached for a span."},
	{"probes_spans_total", "Spans of time in which the agent took an event of uprobes."},
	{"probes_stalls_total",
	 "Times that the agent detached uprobes because they delayed a process "
	 "for too long."},
	/* profiles on their way from the agent to the hub */
	{"labels_dropped_total", "Labels of samples that were dropped."},
	{"links_dropped_total", "Trace contexts of samples that were dropped."},
	{"profiles_dropped_total", "Profiles that were lost."},
	{"scrapes_total",
	 "Profiles for which programs of pods were asked (`scrape` of a target), by result. "
	 "stored: "
	 "the hub has it; unreachable, timeout: no whole answer; redirect, status: another answer "
	 "than 200; too_large: more than 4 MiB; no_delta: everything since the program's start, "
	 "instead of a window; not_pprof: the hub cannot read it; no_room: the answers of the "
	 "namespace need more memory than its share; hub: the hub did not take it, three times, "
	 "or nobody was asked meanwhile; dropped: the pod ended, or is asked something else, "
	 "before the hub had it; forbidden: pods that must not be asked; too_many: pods for which "
	 "there was no room; "
	 "over_budget: rounds put off to keep to overheadPercent."},
	{"send_dropped_profiles_total",
	 "Profiles that were dropped because the spool was full or the hub refused them."},
	{"send_dropped_samples_total", "Samples in the profiles that were dropped."},
	{"send_total", "Requests to the hub, by result."},
	{"spool_batches", "Windows in the spool, waiting for the hub."},
	{"spool_bytes", "Bytes in the spool, waiting for the hub."},
	{"spool_files_total",
	 "Files of the spool that could not be used, or that wait for the next start."},
	{"state_errors_total", "Files of the agent's state that could not be written."},
	/* the hub */
	{"api_refused_total", "Requests to the API that were refused."},
	{"api_requests_total", "Requests to the API, by path."},
	{"cluster_keys_failed_total",
	 "Times that the keys of a registered cluster could not be read, by cluster. The hub "
	 "keeps the last ones."},
	{"cluster_tokens_refused_total",
	 "Tokens of registered issuers that the hub refused, by the field that is wrong; no_keys: "
	 "it has no keys of the cluster; too_many_wait: too many requests of an address, or of "
	 "all, "
	 "wait for keys."},
	{"forward_healthy", "0: the central hub takes no profiles, or none was sent for a while "
			    "since it took none; 1: it takes them."},
	{"forward_profiles_rejected_total", "Profiles that the central hub left out."},
	{"forward_profiles_total", "Profiles that the central hub has stored."},
	{"forward_requests_total",
	 "Requests to the central hub, by result. stored; refused: it will never take the request; "
	 "again: it does not take it now; busy: too many were under way; stopping."},
	{"forward_requests_under_way", "Requests to the central hub that have no answer yet."},
	{"forward_requests_waiting", "Requests that wait until fewer are under way."},
	{"ingest_no_room_total",
	 "Requests with profiles that the hub had no room for, by reason. sender: too many bytes "
	 "of this sender were pending; all: too many of all senders; writer: too many profiles "
	 "waited for the store. The sender sends them again."},
	{"ingest_profiles_refused_total",
	 "Profiles of which their sender may not speak, by reason. not_an_agent: the sender, no "
	 "agent, sends what podflame has sampled. The hub does not store them. A request of "
	 "nothing "
	 "else gets 403, and does not count here: an agent sends it again."},
	{"ingest_profiles_unverified_total",
	 "Profiles of pods that the hub could not verify. Readers of some namespaces do not see "
	 "them."},
	{"ingest_requests_total", "Requests with profiles, by HTTP status."},
	{"leader", "1: of several hubs, this one writes the status of targets and the certificate. "
		   "The sum over all hubs is 1, and 0 for some seconds while the lead changes."},
	{"otlp_profiles_skipped_total",
	 "Profiles in requests that the hub did not take, by reason. counted_as_time: another "
	 "profile of the request has the same samples as time."},
	{"otlp_waits_unknown_total", "Waits of a cause that this hub does not know."},
	{"pprof_types_skipped_total",
	 "Types of values in pushed profiles that the hub did not take, by reason."},
	{"push_refused_total",
	 "Pushed profiles that were refused: of another format than pprof (format), over a limit "
	 "(limit), damaged (invalid)."},
	{"queries_busy_seconds_total", "Wall time that queries took."},
	{"queries_refused_total", "Queries that were refused because too many waited."},
	{"queries_total", "Queries done."},
	{"queries_waiting", "Queries that wait."},
	{"sign_ins_refused_total",
	 "Tokens that the hub refused without asking the API server, by reason. expired, audience: "
	 "what the token says of itself; peer_refused, all_refused: the API server refused too "
	 "many tokens of this address lately, or of all; peer_under_way, all_under_way: too many "
	 "are being checked."},
	{"store_bytes", "Size of the store."},
	{"store_damaged_total", "Times that a damaged store was renamed and a new one begun."},
	{"store_dropped_rows_total", "Rows that were not stored."},
	{"store_duplicate_profiles_total",
	 "Profiles that a sender repeated and that were stored already."},
	{"store_expire_errors_total", "Failures to delete old profiles."},
	{"store_expired_profiles_total", "Profiles deleted, by reason: age, size, disk_full."},
	{"store_healthy", "1: the store works."},
	{"store_blocks_without_sum_total",
	 "Ten minutes of a series with too many stacks for a sum: queries of them are slower."},
	{"store_links_expired_total", "Trace contexts deleted to keep within the store's budget."},
	{"store_names_bytes",
	 "Memory for the stacks and frames that the hub has read from ClickHouse, of all queries."},
	{"store_names_evicted_total",
	 "Stacks that made room for others there. The next query that has one reads it again."},
	{"store_names_total",
	 "Stacks that queries needed, by result. hit: the hub had it; miss: it asked ClickHouse; "
	 "wrong: a stack or frame of ClickHouse's answer does not have the id that follows from "
	 "what it says, so the hub does not keep it."},
	{"store_oldest_timestamp_seconds", "Unix time of the oldest profile."},
	{"store_profiles_total", "Profiles stored."},
	{"store_samples_total", "Samples stored."},
	{"store_stacks", "Distinct stacks in the store."},
	{"store_write_errors_total", "Failures to store profiles."},
	{"symbols_damaged_total", "Uploaded symbol files that were found damaged."},
	{"symbols_fetched_total",
	 "Uploaded symbol files that the hub read from ClickHouse, by result."},
	{"symbols_list_errors_total",
	 "Times that the list of uploaded symbol files could not be read from ClickHouse."},
	{"symbols_remove_errors_total",
	 "Times that an uploaded symbol file that the hub refused could not be deleted again; it "
	 "takes no other one until it is"},
	{"symbols_uploads_total", "Uploaded symbol files, by result."},
	{"targets_not_told_total", "Targets without room in the hub whose status does not say so, "
				   "because too many wait for it."},
};

struct metric_line {
	char *name; /* the name in /metrics */
	const char *label, *label_value;
	uint64_t value;
	bool is_ns;
};
struct metric_lines {
	struct metric_line *items;
	size_t n, cap;
};

static void lines_done(struct metric_lines *l)
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
	struct metric_lines *l = arg;

	GROW(l->items, l->n, l->cap);
	l->items[l->n++] = (struct metric_line){
		/* process_ has no prefix: every program has metrics of these names */
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
	const struct metric_line *x = a, *y = b;
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

/* Escapes quotes, backslashes and newlines of a label value as JSON does. */
static void put_line(struct buf *b, const struct metric_line *l)
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
	_cleanup_(lines_done) struct metric_lines l = {0};

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
