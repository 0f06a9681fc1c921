/* SPDX-License-Identifier: Apache-2.0 */
/* The table of keys. */
#include "lib/conf/value.h"

#define OFF "static_config.ebpf."

#define AT(member) offsetof(struct config, member)

const struct key conf_keys[] = {
	{"cluster_name", STRING, AT(cluster_name), "default", 0, 0, NULL,
	 "name of the cluster: tag `pod_cluster` of every sample"},
	{"node_name", STRING, AT(node_name), "", 0, 0, NULL,
	 "name of this node at the API server; empty: environment NODE_NAME, else the host name"},
	{"own_namespace", STRING, AT(own_namespace), "", 0, 0, NULL,
	 "podflame's own namespace; empty: environment POD_NAMESPACE, else podflame-system"},
	{"kubernetes", CHOICE, AT(kubernetes), "auto", 0, 0, "auto|on|off",
	 "whether to use a Kubernetes API server; auto: if kubeconfig is set or podflame runs in a "
	 "pod"},
	{"kubeconfig", STRING, AT(kubeconfig), "", 0, 0, NULL,
	 "a kubeconfig file, for use outside of a pod"},
	{"kube_context", STRING, AT(kube_context), "", 0, 0, NULL,
	 "a context of the kubeconfig file; empty: its current context"},
	{"default_target", BOOL, AT(default_target), "true", 0, 0, NULL,
	 "whether namespaces with the label podflame.io/profiling=enabled are profiled without any "
	 "target"},
	{"opt_in", CHOICE, AT(opt_in_required), "required", 0, 0, "required|not-required",
	 "required: a ClusterProfilingTarget reaches only namespaces with that label"},
	{"total", BOOL, AT(total), "false", 0, 0, NULL,
	 "count the CPU time of every process of the host, without stacks (`local` always does)"},
	{"run_as_user", UINT, AT(run_as_user), "0", 0, 65534, NULL,
	 "`agent`: the user and group that the agent takes when it has started; 0: it stays the "
	 "user that started it. With another user, it writes no file of root, and javaAttach "
	 "cannot be used"},
	{"max_sample_hz", UINT, AT(max_sample_hz), "199", 1, 999, NULL,
	 "upper limit of sampleHz of every target"},
	{"tenant.max_sample_hz", UINT, AT(tenant_max_sample_hz), "999", 1, 999, NULL,
	 "upper limit of sampleHz of a ProfilingTarget"},
	{"tenant.max_overhead_percent", PERCENT, AT(tenant_max_overhead_percent), "100", 0, 0, NULL,
	 "upper limit of limits.overheadPercent of a ProfilingTarget, also of onCpu if the spec "
	 "has "
	 "none; 100: no limit"},
	{"tenant.allowed_events", WORDS, AT(tenant_allowed_events), "all", 1, 16,
	 "all|onCpu|offCpu|memAlloc|memInuse|hbmAlloc|hbmInuse|onGpu|rdma|rdmaLatency",
	 "events that a ProfilingTarget may ask for; they limit the profiles of `scrape`, too"},
	{"tenant.min_sample_bytes", UINT, AT(tenant_min_sample_bytes), "1", 1, 1 << 30, NULL,
	 "lower limit of sampleBytes of a ProfilingTarget"},
	{"tenant.max_targets", UINT, AT(tenant_max_targets), "4096", 1, 4096, NULL,
	 "most ProfilingTargets of a namespace; the oldest ones count"},
	{"window", DURATION, AT(window_ns), "10s", 1, 60, NULL, "length of one profile"},
	{"trace_context", BOOL, AT(trace_context), "false", 0, 0, NULL,
	 "`local`: samples carry the ids of the call that they were taken in, if a program "
	 "publishes it. In a cluster, targets ask for it by traceContext"},
	{"cgroup_hierarchy", CHOICE, AT(cgroup_hierarchy), "", 0, 0, "|v2|v1:memory|v1:cpu|v1:pids",
	 "the cgroup hierarchy by which the agent tells containers apart; empty: the agent finds "
	 "it"},
	{"hub.url", URL, AT(hub_url), "", 0, 0, NULL,
	 "`agent`: address of the hub; empty: the agent sends no profiles"},
	{"hub.ca_file", STRING, AT(hub_ca_file), "", 0, 0, NULL,
	 "file with the CA of the hub's certificate (PEM)"},
	{"hub.token_file", STRING, AT(hub_token_file), "", 0, 0, NULL,
	 "file with the bearer token for the hub, audience podflame-ingest"},
	{"spool.dir", STRING, AT(spool_dir), "", 0, 0, NULL,
	 "`agent`: directory for profiles that wait while the hub is away; empty: they wait in 8 "
	 "MiB of memory"},
	{"spool.max_bytes", BYTES, AT(spool_max_bytes), "256Mi", 1, 1 << 20, NULL,
	 "size of spool.dir; when it is full, the agent drops the oldest profiles of the namespace "
	 "that has most there, and counts them"},
	{"unwind.table_bytes", BYTES, AT(unwind_table_bytes), "64Mi", 1, 256, NULL,
	 "most kernel memory for unwind tables; at most a quarter of the pod's memory limit"},
	{"symbols.cache_bytes", BYTES, AT(symbol_cache_bytes), "256Mi", 8, 1 << 16, NULL,
	 "memory of the agent for names and tables of files; at most a quarter of the pod's memory "
	 "limit. When it is full, the container with the most loses those that it used least "
	 "recently"},
	{"symbols.host_debug_dir", STRING, AT(host_debug_dir), "/proc/1/root/usr/lib/debug", 0, 0,
	 NULL,
	 "directory with debug files of the host, by build id and .gnu_debuglink; empty: none"},
	{"symbols.debuginfod_url", URL, AT(debuginfod_url), "", 0, 0, NULL,
	 "address of a debuginfod server that gives debug files by build id; empty: none"},
	{"symbols.debuginfod_ca_file", STRING, AT(debuginfod_ca_file), "", 0, 0, NULL,
	 "file with the CA of the server's certificate (PEM); empty: the CAs of the system"},
	{"symbols.debuginfod_cache", STRING, AT(debuginfod_cache), "", 0, 0, NULL,
	 "directory for the files that the server has sent; empty: podflame keeps none"},
	{"symbols.debuginfod_cache_bytes", BYTES, AT(debuginfod_cache_bytes), "1Gi", 1, 1 << 20,
	 NULL,
	 "size of that directory; when it is full, podflame deletes the least recently used files"},
	{"symbols.debuginfod_timeout", DURATION, AT(debuginfod_timeout_ns), "60s", 1, 3600, NULL,
	 "most time to get one file from the server"},
	{"data_dir", STRING, AT(data_dir), "/var/lib/podflame", 0, 0, NULL,
	 "directory for the state of `hub` and `local`"},
	{"lease", STRING, AT(lease), "", 0, 0, NULL,
	 "`hub`: name of the Lease in podflame's namespace by which several hubs elect the one "
	 "that writes the status of targets and the certificate; empty: this hub is the only one"},
	{"store.kind", CHOICE, AT(store_kind), "sqlite", 0, 0, "sqlite|clickhouse|null|otlp",
	 "where the hub stores profiles; null: nowhere; otlp: `hub` forwards them to a central hub "
	 "and keeps none"},
	{"store.url", URL, AT(store_url), "", 0, 0, NULL,
	 "store.kind clickhouse: address of ClickHouse's HTTP interface; otlp: that of the central "
	 "hub, https"},
	{"store.ca_file", STRING, AT(store_ca_file), "", 0, 0, NULL,
	 "file with the CA of the certificate at store.url (PEM); empty: the CAs of the system"},
	{"store.token_file", STRING, AT(store_token_file), "", 0, 0, NULL,
	 "store.kind otlp: file with the bearer token for it, audience podflame-ingest"},
	{"store.clickhouse.database", STRING, AT(clickhouse_database), "profile", 0, 0, NULL,
	 "database, which the hub makes if it is not there"},
	{"store.clickhouse.user", STRING, AT(clickhouse_user), "", 0, 0, NULL,
	 "user of ClickHouse; empty: ClickHouse's user `default`, without a password"},
	{"store.clickhouse.password_file", STRING, AT(clickhouse_password_file), "", 0, 0, NULL,
	 "file with that user's password. The hub reads it again for each request"},
	{"store.clickhouse.plain_http", BOOL, AT(clickhouse_plain_http), "false", 0, 0, NULL,
	 "true: store.url may be http, so profiles and the password cross the network in the "
	 "clear. false: only http on a loopback address"},
	{"store.clickhouse.cluster", STRING, AT(clickhouse_cluster), "", 0, 0, NULL,
	 "cluster of ClickHouse on whose servers the hub makes the tables: replicated, and "
	 "distributed over its shards; empty: on one server"},
	{"store.clickhouse.storage_policy", STRING, AT(clickhouse_storage_policy), "", 0, 0, NULL,
	 "ClickHouse's storage policy of the tables; empty: its default"},
	{"store.clickhouse.max_bytes", BYTES, AT(clickhouse_max_bytes), "0Mi", 0, 1 << 30, NULL,
	 "size of the database, instead of store.max_bytes; 0Mi: no limit"},
	{"store.retention", DURATION, AT(store_retention_ns), "72h", 60, 366 * 86400, NULL,
	 "the hub deletes older profiles. The age counts back from now, but at most from a day "
	 "after the newest profile"},
	{"store.event_retention", DURATIONS, AT(event_retention), "", 60, 366 * 86400,
	 "on-cpu|off-cpu|mem-alloc|mem-inuse|hbm-alloc|hbm-inuse|on-gpu|rdma|rdma-latency",
	 "how long the profiles of an event are kept, instead of store.retention"},
	{"store.namespace_retention", DURATIONS, AT(namespace_retention), "", 60, 366 * 86400, NULL,
	 "how long the profiles of a namespace (of any cluster) are kept, whatever their event"},
	{"store.max_bytes", BYTES, AT(store_max_bytes), "10Gi", 16, 1 << 24, NULL,
	 "size of the store (ClickHouse: store.clickhouse.max_bytes); when it is full, the hub "
	 "deletes the oldest profiles of the "
	 "namespaces that have more than their share"},
	{"store.symbols_max_bytes", BYTES, AT(symbols_max_bytes), "1Gi", 1, 1 << 24, NULL,
	 "size of all uploaded symbol files; when it is reached, the hub refuses uploads"},
	{"store.note", STRING, AT(store_note), "", 0, 0, NULL, "a sentence that the page shows"},
	{"links.trace", LINK, AT(link_trace), "", 0, 0, NULL,
	 "address to which the page links from a trace; {trace_id} {pod_ns} {pod} {start_ms} "
	 "{end_ms} are replaced"},
	{"links.logs", LINK, AT(link_logs), "", 0, 0, NULL,
	 "address to which the page links for the logs of a trace; the same texts in {} are "
	 "replaced"},
	{"api.address", STRING, AT(api_address), "127.0.0.1", 0, 0, NULL,
	 "address of API and page"},
	{"api.port", UINT, AT(api_port), "20416", 0, 65535, NULL,
	 "port of API and page; 0: any free one"},
	{"api.audiences", WORDS, AT(api_audiences), "podflame-api", 1, 16, NULL,
	 "`hub`: a user's token must be made for one of these audiences. The API server's own "
	 "audience lets in OIDC users, and every pod by its default token"},
	{"api.audit", BOOL, AT(api_audit), "false", 0, 0, NULL,
	 "`hub`, `local`: a line of JSON on standard output for each query"},
	{"ingest.address", STRING, AT(ingest_address), "0.0.0.0", 0, 0, NULL,
	 "`hub`: address on which it takes OTLP profiles; `local` takes none"},
	{"ingest.port", UINT, AT(ingest_port), "4318", 0, 65535, NULL, "its port; 0: any free one"},
	{"ingest.require_node", BOOL, AT(ingest_require_node), "true", 0, 0, NULL,
	 "`hub`: the token of a sender must name its node, as tokens of pods do since Kubernetes "
	 "1.30. false: a sender without it may speak of any node"},
	{"ingest.agents", WORDS, AT(ingest_agents), "podflame-agent", 1, 16, NULL,
	 "`hub`: service accounts of agents: a name, in own_namespace, or NAMESPACE/NAME. What "
	 "others send by OTLP is not taken for what podflame has sampled (docs/otlp.md)"},
	{"clusters.file", STRING, AT(clusters_file), "", 0, 0, NULL,
	 "`hub`: file that registers other clusters, whose hubs may send profiles "
	 "(docs/clusters.md); "
	 "empty: none"},
	{"health.address", STRING, AT(health_address), "127.0.0.1", 0, 0, NULL,
	 "`agent`, `hub`: address of /healthz and /readyz, and of the agent's /metrics, without "
	 "sign-in; the hub has /metrics at api.port"},
	{"health.port", UINT, AT(health_port), "20417", 0, 65535, NULL,
	 "its port; 0: any free one"},
	{"tls.source", CHOICE, AT(tls_source), "own", 0, 0, "own|secret",
	 "`hub`: own: the hub makes its certificate and a CA of its own, and keeps both in the "
	 "Secret. secret: others write tls.crt, tls.key and ca.crt of the Secret, and the hub uses "
	 "them"},
	{"tls.secret", STRING, AT(tls_secret), "podflame-hub-tls", 0, 0, NULL,
	 "Secret of the hub's certificate"},
	{"tls.ca_configmap", STRING, AT(ca_configmap), "podflame-hub-ca", 0, 0, NULL,
	 "ConfigMap in which the hub publishes its CA"},
	{"tls.service", STRING, AT(service_name), "podflame-hub", 0, 0, NULL,
	 "name of the Service for which the hub makes its certificate"},
	{"tls.public_name", STRING, AT(public_name), "", 0, 0, NULL,
	 "one more name or IP address in the hub's certificate, by which other clusters reach it; "
	 "empty: none"},
	{"log_level", CHOICE, AT(log_level), "info", 0, 0, "error|warn|info|debug",
	 "the least level that is logged"},
	{OFF "on-cpu-profile.disabled", BOOL, AT(on_cpu_disabled), "false", 0, 0, NULL,
	 "true: `local` makes no on-CPU profile"},
	{OFF "on-cpu-profile.frequency", UINT, AT(on_cpu_hz), "99", 1, 1000, NULL,
	 "`local`: samples per second on each CPU; use no multiple of 10"},
	{OFF "on-cpu-profile.cpu", UINT, AT(on_cpu_per_cpu), "0", 0, 1, NULL,
	 "1: `local` and `agent` count the samples of each CPU separately (tag `cpu`)"},
	{OFF "on-cpu-profile.regex", REGEX, AT(on_cpu_regex), "^podflame", 0, 0, NULL,
	 "`local`: names of the processes to profile"},
	{OFF "on-cpu-profile.java-symbol-file-refresh-defer-interval", DURATION,
	 AT(java_refresh_ns), "600s", 5, 3600, NULL,
	 "least time between two requests to a JVM for its perf map (javaAttach: Allowed)"},
	{OFF "java-symbol-file-refresh-defer-interval", DURATION, AT(java_refresh_ns), "600s", 5,
	 3600, NULL, "the same setting, at its place in DeepFlow 6.5"},
	{OFF "off-cpu-profile.disabled", BOOL, AT(off_cpu_disabled), "true", 0, 0, NULL,
	 "true: `local` makes no off-CPU profile; DeepFlow's default is true from 7 on"},
	{OFF "off-cpu-profile.regex", REGEX, AT(off_cpu_regex), "^podflame", 0, 0, NULL,
	 "`local`: names of the processes whose waits are profiled"},
	{OFF "off-cpu-profile.minblock", DURATION, AT(off_cpu_min_block_ns), "50us", 0, 3600, NULL,
	 "`local`: least length of a wait; shorter ones are left out"},
	{OFF "off-cpu-profile.cpu", WARN, 0, "", 0, 0, NULL,
	 "accepted, no effect: on-cpu-profile.cpu holds for off-cpu, too"},
	{OFF "memory-profile", WARN, 0, "", 0, 0, NULL,
	 "accepted, no effect: targets ask for memory profiles, and `podflame record --event "
	 "mem-alloc` or `mem-inuse`"},
	{OFF "preprocess", WARN, 0, "", 0, 0, NULL, "accepted, no effect yet"},
	{OFF "dwarf-disabled", WARN, 0, "", 0, 0, NULL, "accepted, no effect yet"},
	{OFF "dwarf-regex", WARN, 0, "", 0, 0, NULL, "accepted, no effect yet"},
	{OFF "dwarf-process-map-size", WARN, 0, "", 0, 0, NULL, "accepted, no effect yet"},
	{OFF "dwarf-shard-map-size", WARN, 0, "", 0, 0, NULL, "accepted, no effect yet"},
};

const size_t conf_n_keys = ARRAY_SIZE(conf_keys);
