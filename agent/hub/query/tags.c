/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tags of tag_filter: DeepFlow's list for profile.in_process (its
 * db_descriptions/clickhouse/tag/profile/in_process, June 2026), and podflame's own. The hub
 * accepts a tag that DeepFlow knows but podflame does not store. Such a tag matches nothing.
 */
#include "hub/query/query.h"

#define TEXT(tag, what)                                                                            \
	{                                                                                          \
		.name = tag, .stored = true, .help = what                                          \
	}
#define NUMBER(tag, what)                                                                          \
	{                                                                                          \
		.name = tag, .stored = true, .numeric = true, .help = what                         \
	}
/* what: the tag's name in the store; tag is another name of the same tag */
#define ALIAS(tag, what)                                                                           \
	{                                                                                          \
		.name = tag, .canonical = what, .stored = true, .help = "as " what                 \
	}
#define OF_EVENTS(tag, events, shown, what)                                                        \
	{                                                                                          \
		.name = tag, .stored = true, .help = what, .event_mask = events, .title = shown    \
	}
#define NOT_STORED(tag)                                                                            \
	{                                                                                          \
		.name = tag, .help = "known to DeepFlow, not stored here"                          \
	}
static const struct tag_info table[] = {
	TEXT("pod_cluster", "cluster (clusterName of the install)"),
	TEXT("pod_ns", "namespace"),
	TEXT("pod_node", "node"),
	TEXT("pod_group", "workload that owns the pod"),
	TEXT("pod_group_type", "kind of the workload: Deployment, StatefulSet, ..."),
	TEXT("pod", "pod"),
	TEXT("pod_gpu", "GPU resource that the pod requests: nvidia.com/gpu, ..."),
	TEXT(TAG_UNVERIFIED, "true: the hub could not verify that the pod was on the node"),
	TEXT("container", "container name"),
	TEXT("container_id", "container id"),
	TEXT("image", "container image"),
	NUMBER("container_pid", "process id inside the container"),
	TEXT("app_service", "process name (comm)"),
	NUMBER("process_id", "process id on the host"),
	NUMBER("process_start_time", "start of the process, Unix milliseconds"),
	TEXT("thread", "thread name"),
	NUMBER("cpu", "CPU of the sample, if on-cpu-profile.cpu is 1"),
	NUMBER("time", "last second of the window, Unix seconds"),
	{.name = "profile_event_type",
	 .stored = true,
	 .help = "event",
	 .values = profile_event_names},
	TEXT("profile_language_type",
	     "eBPF; of a program's own profile, and another profiler's, its language: Golang, "
	     "python, ..."),
	TEXT("profile_value_unit", "microseconds, bytes, or what is counted"),
	TEXT(PUSHED_LABEL, PUSHED_LABEL "X: label X of a profile that a program pushed"),
	TEXT("producer", "what made a profile that podflame has not sampled: gospy, ..."),
	TEXT("session_id", "run of the program that pushed the profile"),
	TEXT(POD_LABEL, POD_LABEL "X: label X of the pod, if the target keeps it"),
	TEXT("trace_id", "trace of the call, 32 hexadecimal digits"),
	TEXT("profile_id", "span of the call, 16 hexadecimal digits"),
	ALIAS("span_id", "profile_id"),
	{.name = "wait",
	 .stored = true,
	 .help = "off-cpu: what the thread waited for",
	 .event_mask = 1u << EVENT_OFF_CPU,
	 .title = "Waits for",
	 .values = profile_wait_names},
#define X(NAME, tag, attribute, form, events, title, help) OF_EVENTS(tag, events, title, help),
	PROFILE_LABELS(X)
#undef X
		TEXT("sample_id",
		     "id of the sample's stack, thread and labels: the same in every window"),
	ALIAS("app_instance", "app_service"),
	ALIAS("gprocess", "app_service"),
	ALIAS("comm", "app_service"),
	ALIAS("auto_instance", "pod"),
	ALIAS("auto_service", "pod_group"),
	ALIAS("agent", "pod_node"),
	ALIAS("vtap", "pod_node"),
	ALIAS("pod_node_hostname", "pod_node"),
	NOT_STORED("_id"),
	NOT_STORED("region"),
	NOT_STORED("az"),
	NOT_STORED("host"),
	NOT_STORED("chost"),
	NOT_STORED("vpc"),
	NOT_STORED("router"),
	NOT_STORED("dhcpgw"),
	NOT_STORED("lb"),
	NOT_STORED("lb_listener"),
	NOT_STORED("natgw"),
	NOT_STORED("redis"),
	NOT_STORED("rds"),
	NOT_STORED("subnet"),
	NOT_STORED("l3_epc"),
	NOT_STORED("pod_ingress"),
	NOT_STORED("pod_service"),
	NOT_STORED("service"),
	NOT_STORED("auto_instance_type"),
	NOT_STORED("auto_service_type"),
	NOT_STORED("host_ip"),
	NOT_STORED("host_hostname"),
	NOT_STORED("chost_ip"),
	NOT_STORED("chost_hostname"),
	NOT_STORED("pod_node_ip"),
	NOT_STORED("ip"),
	NOT_STORED("is_ipv4"),
	NOT_STORED("span_name"),
	NOT_STORED("profile_create_timestamp"),
	NOT_STORED("profile_in_timestamp"),
	NOT_STORED("k8s.annotation."),
	NOT_STORED("k8s.env."),
	NOT_STORED("cloud.tag."),
	NOT_STORED("biz_service.group"),
};

/*
 * The tag for region_id, pod_ns_id and so on, which are numbers that DeepFlow gives to resources.
 */
static const struct tag_info number = {
	.name = "_id", .help = "a number of DeepFlow's; podflame keeps names, not numbers"};

static bool is_map(const struct tag_info *t)
{
	return str_has_suffix(t->name, ".");
}

static const struct tag_info *find(const char *name, size_t n)
{
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		const char *t = table[i].name;

		if (is_map(&table[i]) ? n > strlen(t) && strncmp(name, t, strlen(t)) == 0
				      : strlen(t) == n && strncmp(name, t, n) == 0)
			return &table[i];
	}
	return NULL;
}

const struct tag_info *query_tag_lookup(const char *name)
{
	size_t n = strlen(name);
	const struct tag_info *t = find(name, n);

	if (!t && str_has_suffix(name, "_id") && find(name, n - 3))
		return &number;
	return t;
}

char *query_tag_help(const struct tag_info *t)
{
	_cleanup_free_ char *values = t->values ? t->values() : NULL;

	return values ? xasprintf("%s: %s", t->help, values) : xstrdup(t->help);
}

const char *query_tag_canonical(const struct tag_info *t, const char *name)
{
	return t->canonical ? t->canonical : name;
}

const struct tag_info *query_tag_table(size_t *ret_n)
{
	*ret_n = ARRAY_SIZE(table);
	return table;
}

/* The Levenshtein distance. Both names are short. */
static size_t distance(const char *a, const char *b)
{
	size_t row[64], m = strlen(b), diagonal, above;

	if (m >= ARRAY_SIZE(row))
		return SIZE_MAX;
	for (size_t j = 0; j <= m; j++)
		row[j] = j;
	for (size_t i = 0; a[i]; i++) {
		diagonal = row[0];
		row[0] = i + 1;
		for (size_t j = 1; j <= m; j++) {
			above = row[j];
			row[j] = MIN(MIN(above, row[j - 1]) + 1, diagonal + (a[i] != b[j - 1]));
			diagonal = above;
		}
	}
	return row[m];
}

const char *query_tag_suggest(const char *name)
{
	const char *best = NULL;
	size_t best_distance = strlen(name) / 3 + 2;

	for (size_t i = 0; i < ARRAY_SIZE(table) && strlen(name) < 64; i++) {
		size_t d = table[i].stored ? distance(name, table[i].name) : SIZE_MAX;

		if (d < best_distance) {
			best = table[i].name;
			best_distance = d;
		}
	}
	return best;
}
