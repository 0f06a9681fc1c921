/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of the functions of other modules that the jobs of this module call. internal.h names
 * the worker that makes each call.
 */
#include "node/follow/internal.h"

static void set_tables(struct unwind *u, struct files *f, const struct mappings *m,
		       uint64_t charged_ns, const struct runtime_process *runtimes,
		       struct applied *ret, struct unwind_stats *ret_stats)
{
	/*
	 * No error is returned: unwind counts what the kernel refused, and ret->missing reports it.
	 */
	(void)learn_apply(u, f, m, charged_ns, runtimes, ret);
	unwind_stats(u, ret_stats);
}

static int find_runtimes(struct files *f, const struct mappings *m, struct runtime_process *old,
			 struct java_requests *java, struct found_runtimes *ret)
{
	int r = learn_runtimes(f, m, old, java, &ret->process, &ret->again);

	if (r < 0)
		return r;
	ret->problem = learn_runtimes_problem(m, ret->process);
	ret->unnamed = learn_runtimes_unnamed(ret->process);
	return 0;
}

static const struct parse_ops parse = {
	.index = files_index,
	.debug = files_debug,
	.expect = files_expect,
	.root = files_root,
	.parsed_ns = files_parsed_ns,
};

static const struct probe_calls probes = {
	.attach = probes_attach,
	.attach_change = probes_attach_change,
	.detach_all = probes_detach_all,
	.leave = probes_leave,
	.attached_wait = probes_attached_wait,
	.attached_lost = probes_attached_lost,
	.attached_outlives = probes_attached_outlives,
	.attached_hits = probes_attached_hits,
	.attached_queried = probes_attached_queried,
	.attached_bytes = probes_attached_bytes,
	.attached_status = probes_attached_status,
	.rdma_functions = probes_rdma_functions,
	.moves = probes_moves,
};

const struct follow_calls follow_calls = {
	.parse = &parse,
	.set_tables = set_tables,
	.remove_tables = unwind_exited,
	.find_runtimes = find_runtimes,
	.find_sites = learn_alloc_sites,
	.ask_jvm = runtime_java_attach,
	.read_memory = proc_memory,
	.probes = &probes,
};
