// SPDX-License-Identifier: Apache-2.0
/* usage: what events cost each cgroup. The programs count it on each CPU. */
#include "node/probe/internal.h"

#include "core.skel.h"

static struct pf_usage sum_of(const struct pf_usage *cpus, int n)
{
	struct pf_usage sum = {};

	for (int i = 0; i < n; i++) {
		sum.hits += cpus[i].hits;
		sum.taken += cpus[i].taken;
		sum.value += cpus[i].value;
		sum.square += cpus[i].square;
		sum.own_ns += cpus[i].own_ns;
		sum.share |= cpus[i].share; /* one CPU has it */
	}
	return sum;
}

struct gone {
	struct pf_usage_key key;
	uint32_t share;
};

static void remove_gone(struct probes *p, int map, const struct gone *gone, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!bpf_map_delete_elem(map, &gone[i].key))
			probes_share_less(p->usage_shares, gone[i].share % PF_SHARES_MAX);
}

int probes_usage(struct probes *p, struct probe_usage **ret, size_t *ret_n)
{
	int map = bpf_map__fd(p->core->maps.usage);
	_cleanup_free_ struct pf_usage *cpus = xcalloc(p->n_possible_cpus, sizeof(*cpus));
	_cleanup_free_ struct gone *gone = NULL;
	struct probe_usage *items = NULL;
	struct pf_usage_key key, *at = NULL;
	size_t n = 0, cap = 0, n_gone = 0, cap_gone = 0, n_keys = 0;

	for (; n_keys < PF_USAGE_MAX && !bpf_map_get_next_key(map, at, &key); n_keys++, at = &key) {
		struct pf_usage sum;

		if (bpf_map_lookup_elem(map, &key, cpus))
			continue;
		sum = sum_of(cpus, p->n_possible_cpus);
		/*
		 * With a process list, the agent does not know the cgroups of the processes, so it
		 * keeps all keys.
		 */
		if (!p->config.use_list && !probes_filter_has(p, key.cgroup_id)) {
			GROW(gone, n_gone, cap_gone);
			gone[n_gone++] = (struct gone){key, sum.share};
			continue;
		}
		GROW(items, n, cap);
		items[n++] = (struct probe_usage){
			.cgroup_id = key.cgroup_id,
			.event = (enum event)key.event,
			.hits = sum.hits,
			.taken = sum.taken,
			.value = sum.value,
			.square = sum.square,
			.own_ns = sum.own_ns,
		};
	}
	remove_gone(p, map, gone, n_gone);
	*ret = items;
	*ret_n = n;
	return 0;
}
