/* SPDX-License-Identifier: Apache-2.0 */
/* The table of keys, and the function that checks a file against it. */
#include "lib/base/regexp.h"
#include "lib/conf/value.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_FILE_BYTES (1u << 20) /* bytes of the configuration file; a larger one is refused */
#define OFF	       "static_config.ebpf."

#define AT(member) offsetof(struct config, member)

static const struct key keys[] = {
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
	 "events that a ProfilingTarget may ask for"},
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
	{"store.kind", CHOICE, AT(store_kind), "sqlite", 0, 0, "sqlite|null|otlp",
	 "where the hub stores profiles; null: nowhere; otlp: `hub` forwards them to a central hub "
	 "and keeps none"},
	{"store.url", URL, AT(store_url), "", 0, 0, NULL,
	 "store.kind otlp: address of the central hub, https"},
	{"store.ca_file", STRING, AT(store_ca_file), "", 0, 0, NULL,
	 "store.kind otlp: file with the CA of its certificate (PEM); empty: the CAs of the "
	 "system"},
	{"store.token_file", STRING, AT(store_token_file), "", 0, 0, NULL,
	 "store.kind otlp: file with the bearer token for it, audience podflame-ingest"},
	{"store.retention", DURATION, AT(store_retention_ns), "72h", 60, 366 * 86400, NULL,
	 "the hub deletes older profiles. The age counts back from now, but at most from a day "
	 "after the newest profile"},
	{"store.max_bytes", BYTES, AT(store_max_bytes), "10Gi", 16, 1 << 24, NULL,
	 "size of the store; when it is full, the hub deletes the oldest profiles of the "
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

struct conf_walk {
	const char *file;
	const struct yaml_doc *doc;
	struct config *conf;
	struct buf *warnings;
	struct field_error *err;
	bool seen[ARRAY_SIZE(keys)];
};

static void *member(struct config *c, const struct key *k)
{
	return (char *)c + k->offset;
}

static void set_string(struct config *c, const struct key *k, const char *value)
{
	char **s = member(c, k);

	free(*s);
	*s = xstrdup(value);
}

/* One key of type CHOICE, opt_in, is a bool in struct config: "required" means true. */
static void set_choice(struct config *c, const struct key *k, const char *value)
{
	if (k->offset == AT(opt_in_required))
		c->opt_in_required = streq(value, "required");
	else
		set_string(c, k, value);
}

/*
 * Sets a key from the text of its value. Returns false if the text has the wrong type or is out of
 * range.
 */
static bool set_text(struct config *c, const struct key *k, const char *s)
{
	uint64_t v;

	switch (k->type) {
	case STRING:
	case REGEX:
	case URL:
	case LINK:
		if (!conf_text_ok(k, s))
			return false;
		set_string(c, k, s);
		return true;
	case CHOICE:
		if (!conf_is_choice(k->choices, s))
			return false;
		set_choice(c, k, s);
		return true;
	case BOOL:
		*(bool *)member(c, k) = streq(s, "true");
		return streq(s, "true") || streq(s, "false");
	case UINT:
		if (str_to_u64(s, k->max, &v) || v < k->min)
			return false;
		*(unsigned *)member(c, k) = (unsigned)v;
		return true;
	case PERCENT:
		return conf_percent(s, member(c, k));
	case DURATION:
		if (conf_duration(s, k->min, k->max, &v))
			return false;
		if (v < k->min * NSEC_PER_SEC || v > k->max * NSEC_PER_SEC)
			return false;
		*(uint64_t *)member(c, k) = v;
		return true;
	case BYTES:
		if (conf_bytes(s, &v) || v < k->min << 20 || v > k->max << 20)
			return false;
		*(uint64_t *)member(c, k) = v;
		return true;
	case WORDS: /* conf_set_words() */
	case WARN:
		break;
	}
	return false;
}

static int fail(struct conf_walk *w, const char *path, const char *reason)
{
	unsigned line = 1, column = 1;
	char at[256];

	yaml_position(w->doc, path, &line, &column);
	snprintf(at, sizeof(at), "%s:%u:%u", w->file, line, column);
	return field_error_set(w->err, at, "%s", reason);
}

static int fail_value(struct conf_walk *w, const struct key *k, const json_t *v)
{
	char what[128], range[256], reason[640];
	const char *s = json_string_value(v);
	struct field_error e;

	conf_allowed(k, range);
	conf_describe(k, v, what);
	if (s && strchr(s, '@'))
		snprintf(what, sizeof(what), "this"); /* the value may contain a password */
	if (k->type == REGEX && s && regexp_check(s, &e))
		snprintf(reason, sizeof(reason), "%s: %.300s; it must be %s", k->path, e.reason,
			 range);
	else if (k->type == URL && s && !conf_is_url(s, &e))
		snprintf(reason, sizeof(reason), "%s: %s %.100s; it must be %s", k->path, what,
			 e.reason, range);
	else
		snprintf(reason, sizeof(reason), "%s: %s is not allowed; it must be %s", k->path,
			 what, range);
	return fail(w, k->path, reason);
}

static int set_json(struct conf_walk *w, const struct key *k, const json_t *v)
{
	char text[64];
	const char *s = json_string_value(v);

	if (k->type == WARN) {
		if (w->warnings)
			buf_printf(w->warnings, "%s: %s: %s\n", w->file, k->path, k->help);
		return 0;
	}
	if (k->type == WORDS)
		return conf_set_words(member(w->conf, k), k, v, &v) ? 0 : fail_value(w, k, v);
	if (json_is_boolean(v) && k->type == BOOL)
		s = json_is_true(v) ? "true" : "false";
	else if (json_is_integer(v) && k->type != BOOL) {
		snprintf(text, sizeof(text), "%" JSON_INTEGER_FORMAT, json_integer_value(v));
		s = text;
	} else if (json_is_real(v) && k->type == PERCENT) {
		snprintf(text, sizeof(text), "%.15g", json_real_value(v));
		s = text;
	} else if (json_is_string(v) &&
		   (k->type == BOOL || k->type == UINT || k->type == PERCENT)) {
		s = NULL; /* a quoted "5" is no number */
	} else if (json_is_null(v) && conf_wants_text(k)) {
		s = k->type == STRING ? "" : k->def;
	}
	if (s && set_text(w->conf, k, s))
		return 0;
	return fail_value(w, k, v);
}

/* Refuses a key that is set twice: "hub.url: x" and "hub: {url: x}" are the same key. */
static int set_once(struct conf_walk *w, const struct key *k, const json_t *v)
{
	bool *seen = &w->seen[k - keys];
	char reason[256];

	if (*seen) {
		snprintf(reason, sizeof(reason), "%s is there twice", k->path);
		return fail(w, k->path, reason);
	}
	*seen = true;
	return set_json(w, k, v);
}

/*
 * Returns the row of the key with this path. *ret_inside: whether the path is the beginning of
 * other keys.
 */
static const struct key *find_key(const char *path, bool *ret_inside)
{
	size_t n = strlen(path);

	*ret_inside = false;
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		if (streq(keys[i].path, path))
			return &keys[i];
		if (str_has_prefix(keys[i].path, path) && keys[i].path[n] == '.')
			*ret_inside = true;
	}
	return NULL;
}

static int check_object(struct conf_walk *w, const char *prefix, const json_t *object)
{
	const char *name;
	json_t *value;

	json_object_foreach ((json_t *)object, name, value) {
		_cleanup_free_ char *path = xasprintf("%s%s%s", prefix, *prefix ? "." : "", name);
		char reason[512];
		bool inside;
		const struct key *k = find_key(path, &inside);
		int r;

		if (k)
			r = set_once(w, k, value);
		else if (inside && json_is_object(value))
			r = check_object(w, path, value);
		else if (inside && json_is_null(value))
			r = 0; /* "static_config:" with nothing below it */
		else {
			snprintf(reason, sizeof(reason), "%.200s: %s", path,
				 inside ? "must be a mapping"
					: "no such key; docs/config.md lists them all");
			r = fail(w, path, reason);
		}
		if (r)
			return r;
	}
	return 0;
}

static void set_default(struct config *c, const struct key *k)
{
	_cleanup_json_ json_t *words = k->type == WORDS ? json_pack("[s]", k->def) : NULL;
	const json_t *bad;

	if (words)
		conf_set_words(member(c, k), k, words, &bad);
	else if (k->type != WARN)
		set_text(c, k, k->def);
}

void conf_init(struct config *c)
{
	*c = (struct config){0};
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		set_default(c, &keys[i]);
}

void conf_done(struct config *c)
{
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		const struct key *k = &keys[i];

		if (conf_wants_text(k) && k->type != WORDS && k->offset != AT(opt_in_required)) {
			char **s = member(c, k);

			free(*s);
			*s = NULL;
		} else if (k->type == WORDS) {
			conf_words_done(member(c, k));
		}
	}
}

/* Refuses a second YAML document, because the program would ignore it. */
static int parse_one(const char *text, size_t n, struct yaml_doc **ret, struct field_error *reterr)
{
	_cleanup_json_ json_t *all = NULL;
	int r = yaml_parse_all(text, n, &all, reterr);

	if (r)
		return r;
	for (size_t i = 1; i < json_array_size(all); i++)
		if (!json_is_null(json_array_get(all, i)))
			return field_error_set(
				reterr, "1:1",
				"the file has several documents (---); it must have one");
	return yaml_parse(text, n, ret, reterr);
}

int conf_parse(const char *file_name, const char *text, size_t n, struct config *ret,
	       struct buf *warnings, struct field_error *reterr)
{
	struct config c;
	struct yaml_doc *doc = NULL;
	struct field_error e = {0};
	struct conf_walk w = {.file = file_name, .conf = &c, .warnings = warnings, .err = reterr};
	int r = parse_one(text, n, &doc, &e);

	if (r) {
		char at[256];

		snprintf(at, sizeof(at), "%.180s:%.60s", file_name, e.path);
		return field_error_set(reterr, at, "%s", e.reason);
	}
	conf_init(&c);
	w.doc = doc;
	if (json_is_object(yaml_root(doc)))
		r = check_object(&w, "", yaml_root(doc));
	else if (!json_is_null(yaml_root(doc)))
		r = fail(&w, "", "the file must be a mapping of keys to values");
	yaml_doc_free(doc);
	if (r) {
		conf_done(&c);
		return r;
	}
	*ret = c;
	return 0;
}

int conf_load(const char *path, struct config *ret, struct buf *warnings,
	      struct field_error *reterr)
{
	_cleanup_free_ char *text = NULL;
	size_t n;
	int r = file_read(AT_FDCWD, path, MAX_FILE_BYTES, &text, &n);

	if (r) {
		field_error_set(reterr, path, "cannot be read: %s", file_error_text(r));
		return r;
	}
	return conf_parse(path, text, n, ret, warnings, reterr);
}

static void resolve(char **s, const char *variable, const char *otherwise)
{
	const char *env = getenv(variable);

	if (**s)
		return;
	free(*s);
	*s = xstrdup(env && *env ? env : otherwise);
}

void conf_resolve(struct config *c)
{
	char host[256] = "";

	gethostname(host, sizeof(host) - 1);
	resolve(&c->node_name, "NODE_NAME", host);
	resolve(&c->own_namespace, "POD_NAMESPACE", "podflame-system");
}

void conf_doc(struct buf *out)
{
	buf_puts(out, "| key | default | allowed | meaning |\n| --- | --- | --- | --- |\n");
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		const struct key *k = &keys[i];
		char range[256];

		conf_allowed(k, range);
		for (char *p = range; *p; p++)
			if (*p == '|')
				*p = ' ';
		buf_printf(out, "| `%s` | %s%s%s | %s | %s |\n", k->path,
			   k->type == WORDS ? "`["
			   : *k->def	    ? "`"
					    : "",
			   *k->def ? k->def : "empty",
			   k->type == WORDS ? "]`"
			   : *k->def	    ? "`"
					    : "",
			   k->type == WARN ? "anything" : range, k->help);
	}
}
