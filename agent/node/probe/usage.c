// SPDX-License-Identifier: Apache-2.0
/* usage: what events cost each cgroup. The programs count it on each CPU. */
#include "node/probe/internal.h"

#include "core.skel.h"

#define MAX_KEYS 16384 /* entries of the map of costs, as in bpf/maps.h */

static struct pf_usage sum_of(const struct pf_usage *cpus, int n)
{
	struct pf_usage sum = {};

	for (int i = 0; i < n; i++) {
		sum.hits += cpus[i].hits;
		sum.taken += cpus[i].taken;
		sum.value += cpus[i].value;
		sum.square += cpus[i].square;
		sum.own_ns += cpus[i].own_ns;
	}
	return sum;
}

static bool is_known(const struct probes *p, uint64_t cgroup_id)
{
	for (size_t i = 0; i < p->cgroups.n; i++)
		if (p->cgroups.items[i].key == cgroup_id)
			return true;
	return false;
}

int probes_usage(struct probes *p, struct probe_usage **ret, size_t *ret_n)
{
	int map = bpf_map__fd(p->core->maps.usage);
	_cleanup_free_ struct pf_usage *cpus = xcalloc(p->n_possible_cpus, sizeof(*cpus));
	_cleanup_free_ struct pf_usage_key *gone = NULL;
	struct probe_usage *items = NULL;
	struct pf_usage_key key, *at = NULL;
	size_t n = 0, cap = 0, n_gone = 0, cap_gone = 0, n_keys = 0;

	for (; n_keys < MAX_KEYS && !bpf_map_get_next_key(map, at, &key); n_keys++, at = &key) {
		struct pf_usage sum;

		if (bpf_map_lookup_elem(map, &key, cpus))
			continue;
		/*
		 * With a process list, the agent does not know the cgroups of the processes, so it
		 * keeps all keys.
		 */
		if (!p->config.use_list && !is_known(p, key.cgroup_id)) {
			GROW(gone, n_gone, cap_gone);
			gone[n_gone++] = key;
			continue;
		}
		sum = sum_of(cpus, p->n_possible_cpus);
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
	if (n_keys == MAX_KEYS)
		counter_add(counter("podflame_usage_full_total", NULL, NULL), 1);
	for (size_t i = 0; i < n_gone; i++)
		bpf_map_delete_elem(map, &gone[i]);
	*ret = items;
	*ret_n = n;
	return 0;
}
