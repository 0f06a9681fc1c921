/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a user who may see one namespace can learn of others: nothing. Each attempt is made in two
 * worlds: in one, the store also has data of another namespace and of the host. The answers to the
 * tenant must be the same, byte for byte; those to a user who may see all are not, so the attempt
 * reaches what it is after. docs/tenants.md lists the attempts.
 */
#include "hub/api/testapi.h"
#include "hub/symbols/testindex.h"

#define GRAFANA	      "/querier.v1.QuerierService/"
#define MATCH(x)      ",\"matchers\":[\"{" x "}\"]"
#define VALUES(label) ",\"name\":\"" label "\""
#define OVER_TIME(x)                                                                               \
	",\"step\":100,\"profileTypeID\":\"process_cpu:cpu:nanoseconds:cpu:nanoseconds\","         \
	"\"labelSelector\":\"{" x "}\""
#define STACKS	       GRAFANA "SelectMergeStacktraces"
#define CPU_ID	       "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
#define CALL(selector) ",\"profileTypeID\":\"" CPU_ID "\",\"labelSelector\":\"" selector "\""
#define SIDE(selector) "{\"start\":1699999000000,\"end\":1700001000000" CALL(selector) "}"
#define N(x)	       ",\"tag_filter\":\"" x "\""
/* takes too many steps on the name of a pod of the other namespace */
#define SLOW	      N("pod REGEXP '^(((.+)+)+)+\\\\d$'")
#define OTHER_TRACE   "0000000000000000000000000000ab01"
#define SYMBOLS	      "/v1/symbols/" BUILD_ID
#define VAULT_SYMBOLS SYMBOLS "?namespace=vault"

struct attempt {
	const char *what, *path;
	const char *more;  /* members of the body; NULL: none, and path is [METHOD ]URL */
	bool same_for_all; /* the answer has no data, so it is the same for everybody */
	const char *event; /* NULL: on-cpu */
};

#define DATA(...)                                                                                  \
	{                                                                                          \
		__VA_ARGS__, false, NULL                                                           \
	}
#define SAME(...)                                                                                  \
	{                                                                                          \
		__VA_ARGS__, true, NULL                                                            \
	}
#define OF(event, ...)                                                                             \
	{                                                                                          \
		__VA_ARGS__, false, event                                                          \
	}

/* `vault` is the other namespace. */
static const struct attempt attempts[] = {
	/* filters */
	DATA("no filter", TRACING, ""),
	DATA("the other namespace", TRACING, N("pod_ns='vault'")),
	DATA("both namespaces", TRACING, N("pod_ns IN ('app','vault')")),
	DATA("not the own namespace", TRACING, N("pod_ns!='app'")),
	DATA("NOT IN", TRACING, N("pod_ns NOT IN ('app')")),
	DATA("no namespace", TRACING, N("pod_ns IS NULL")),
	DATA("any namespace", TRACING, N("pod_ns IS NOT NULL")),
	DATA("OR", TRACING, N("pod_ns='app' OR pod_ns='vault'")),
	DATA("OR with a true condition", TRACING, N("pod_ns='app' OR pod!='x'")),
	DATA("NOT of a false condition", TRACING, N("NOT (pod_ns='app' AND pod='none')")),
	DATA("nested NOT", TRACING, N("NOT (NOT (pod_ns='vault'))")),
	DATA("parentheses", TRACING, N("((pod_ns='app') OR ((pod_ns='vault')))")),
	DATA("a regular expression", TRACING, N("pod_ns REGEXP '.*'")),
	DATA("not a regular expression", TRACING, N("pod_ns NOT REGEXP '^app$'")),
	DATA("LIKE", TRACING, N("pod_ns LIKE '%'")),
	DATA("NOT LIKE", TRACING, N("pod_ns NOT LIKE 'app'")),
	DATA("comparison of texts", TRACING, N("process_id > 0")),
	DATA("another tag", TRACING, N("pod='vault-pod'")),
	DATA("another tag by pattern", TRACING, N("pod REGEXP 'vault'")),
	DATA("a label", TRACING, N("`k8s.label.owner`='vault-team'")),
	DATA("a container", TRACING, N("container='vault-c'")),
	DATA("an image", TRACING, N("image='registry/vault:1'")),
	DATA("a process id", TRACING, N("process_id=4242")),
	DATA("a thread", TRACING, N("thread='vault-thread'")),
	DATA("the node that both are on", TRACING, N("pod_node='n1'")),
	DATA("the cluster", TRACING, N("pod_cluster='c1'")),
	DATA("a trace", TRACING, N("trace_id='" OTHER_TRACE "'")),
	DATA("any trace", TRACING, N("trace_id IS NOT NULL")),
	DATA("a span", TRACING, N("profile_id='00000000000000cd'")),
	DATA("time by the filter", TRACING, N("time>0")),
	DATA("another cluster", TRACING, N("pod_cluster='edge'")),
	DATA("the own namespace of another cluster", TRACING,
	     N("pod_cluster='edge' AND pod_ns='app'")),
	DATA("not the own cluster", TRACING, N("pod_cluster!='c1'")),
	DATA("no cluster", TRACING, N("pod_cluster IS NULL OR pod_cluster IN ('edge')")),
	DATA("a pod of the same name in another cluster", TRACING,
	     N("pod='web-1' AND `k8s.label.owner`='edge-team'")),
	DATA("the own namespace, wherever", TRACING, N("pod_ns='app'")),
	DATA("what could not be verified", TRACING, N("unverified='true'")),
	DATA("anything that could not be verified", TRACING, N("unverified IS NOT NULL")),
	DATA("a pod of the own namespace that could not be verified", TRACING,
	     N("pod_ns='app' AND pod='forged-pod'")),
	DATA("a process", TRACING, ",\"app_service\":\"vault-svc\""),
	DATA("a process of the host", TRACING, ",\"app_service\":\"hostd\""),
	DATA("Total", TRACING, ",\"app_service\":\"Total\""),
	OF("off-cpu", "Throttled", TRACING, ",\"app_service\":\"Throttled\""),
	/* the text of the filter */
	SAME("a quote", TRACING, N("pod_ns='app'' OR ''1''=''1'")),
	SAME("a comment of SQL", TRACING, N("pod_ns='app' -- '")),
	SAME("a second statement", TRACING, N("pod_ns='app'; DROP TABLE series")),
	SAME("a union", TRACING, N("pod_ns='app' UNION SELECT 1")),
	SAME("SQL in a tag", TRACING, N("`pod_ns) OR (1`='1'")),
	SAME("SQL in a label", TRACING, N("`k8s.label.x') OR ('1`='1'")),
	SAME("another spelling", TRACING, N("POD_NS='vault'")),
	SAME("a name with a blank", TRACING, N("pod_ns='vault '")),
	SAME("a full-width letter", TRACING,
	     N("pod_ns='\xef\xbd\x96"
	       "ault'")),
	SAME("a null character", TRACING, N("pod_ns='app\\u0000vault'")),
	SAME("an alias of the tag", TRACING, N("pod_ns_0='vault'")),
	DATA("an expression that takes too long on the other's values", TRACING, SLOW),
	DATA("the same in a series", "/v1/profile/series", SLOW),
	DATA("the same in choices", "/v1/profile/choices", ",\"tags\":[\"pod\"]" SLOW),
	DATA("the same beside a condition on threads", TRACING,
	     N("thread!='x' AND pod REGEXP '^(((.+)+)+)+\\\\d$'")),
	/* trees, files, groups */
	DATA("a tree", "/v1/profile/tree", ""),
	DATA("a tree by lines", "/v1/profile/tree", ",\"by_line\":true"),
	DATA("a preview", "/v1/profile/tree", ",\"preview\":true"),
	DATA("a flat answer", TRACING, ",\"result_format\":\"flat\""),
	DATA("groups: namespaces", "/v1/profile/groups", ",\"group_by\":\"pod_ns\""),
	DATA("groups: processes", "/v1/profile/groups", ",\"group_by\":\"app_service\""),
	DATA("groups: nodes", "/v1/profile/groups", ",\"group_by\":\"pod_node\""),
	DATA("groups: spans", "/v1/profile/groups", ",\"group_by\":\"profile_id\""),
	DATA("groups: labels", "/v1/profile/groups", ",\"group_by\":\"k8s.label.owner\""),
	DATA("groups: clusters", "/v1/profile/groups", ",\"group_by\":\"pod_cluster\""),
	DATA("groups: what could not be verified", "/v1/profile/groups",
	     ",\"group_by\":\"unverified\""),
	DATA("groups of a function", "/v1/profile/groups",
	     ",\"group_by\":\"pod\",\"function\":{\"name\":\"vault_function\"}"),
	DATA("a difference with the other", "/v1/profile/tree",
	     N("pod_ns='app'") ",\"before\":{\"time_start\":1699999000,\"time_end\":1700001000,"
			       "\"tag_filter\":\"pod_ns='vault'\"}"),
	DATA("a difference of the other", "/v1/profile/tree",
	     N("pod_ns='vault'") ",\"before\":{\"time_start\":1699999000,\"time_end\":1700001000,"
				 "\"tag_filter\":\"pod_ns='app'\"}"),
	DATA("a difference with everything", "/v1/profile/tree",
	     N("pod_ns='app'") ",\"before\":{\"time_start\":1,\"time_end\":1700001000}"),
	DATA("folded", "/v1/profile/folded", ""),
	DATA("speedscope", "/v1/profile/speedscope", ""),
	DATA("the oldest data", "/v1/profile/oldest", NULL),
	DATA("folded, by GET",
	     "/v1/profile/"
	     "folded?profile_event_type=on-cpu&time_start=1699999000&time_end=1700001000",
	     NULL),
	DATA("folded, by GET, of the other",
	     "/v1/profile/"
	     "folded?profile_event_type=on-cpu&time_start=1699999000&time_end=1700001000"
	     "&tag_filter=pod_ns%3D'vault'",
	     NULL),
	DATA("a parameter twice",
	     "/v1/profile/"
	     "folded?profile_event_type=on-cpu&time_start=1699999000&time_end=1700001000"
	     "&tag_filter=pod_ns%3D'app'&tag_filter=pod_ns%3D'vault'",
	     NULL),
	SAME("a field twice", TRACING, N("pod_ns='app'") N("pod_ns='vault'")),
	/* symbols */
	DATA("a frame that the other's symbols would name", TRACING, N("pod='stripped-1'")),
	DATA("the same in a tree", "/v1/profile/tree", N("pod='stripped-1'")),
	DATA("the same in a tree by namespaces", "/v1/profile/tree",
	     N("pod='stripped-1'") ",\"group_by\":\"pod_ns\""),
	DATA("the same in a file", "/v1/profile/folded", N("pod='stripped-1'")),
	DATA("the list", "/v1/symbols", NULL),
	DATA("the list of the other", "/v1/symbols?namespace=vault", NULL),
	SAME("an upload for the other", "PUT " VAULT_SYMBOLS, NULL),
	SAME("an upload for all namespaces", "PUT " SYMBOLS, NULL),
	SAME("a delete of the other's", "DELETE " VAULT_SYMBOLS, NULL),
	SAME("a delete of those of all namespaces", "DELETE " SYMBOLS, NULL),
	SAME("an upload for a name that is a path", "PUT " SYMBOLS "?namespace=../vault", NULL),
	/* series */
	DATA("a series", "/v1/profile/series", ""),
	DATA("a series by namespace", "/v1/profile/series", ",\"group_by\":\"pod_ns\""),
	DATA("a series by cluster", "/v1/profile/series", ",\"group_by\":\"pod_cluster\""),
	DATA("a series by process", "/v1/profile/series", ",\"group_by\":\"app_service\""),
	DATA("a series by thread", "/v1/profile/series", ",\"group_by\":\"thread\""),
	DATA("a series of the other", "/v1/profile/series", N("pod_ns='vault'")),
	DATA("a series of few groups", "/v1/profile/series", ",\"group_by\":\"pod\",\"limit\":1"),
	OF("off-cpu", "a series of waits", "/v1/profile/series", ""),
	OF("off-cpu", "throttled time beside the own waits", TRACING, N("pod_node='n1'")),
	OF("mem-inuse", "snapshots", TRACING, ""),
	OF("mem-inuse", "a series of snapshots", "/v1/profile/series", ""),
	/* values and choices */
	DATA("values: namespaces", "/v1/profile/values", ",\"tag\":\"pod_ns\""),
	DATA("values: processes", "/v1/profile/values", ",\"tag\":\"app_service\""),
	DATA("values: pods", "/v1/profile/values", ",\"tag\":\"pod\""),
	DATA("values: nodes", "/v1/profile/values", ",\"tag\":\"pod_node\""),
	DATA("values: threads", "/v1/profile/values", ",\"tag\":\"thread\""),
	DATA("values: traces", "/v1/profile/values", ",\"tag\":\"trace_id\""),
	DATA("values: stacks", "/v1/profile/values", ",\"tag\":\"sample_id\""),
	DATA("values: names of labels", "/v1/profile/values", ",\"tag\":\"k8s.label.\""),
	DATA("values: a label", "/v1/profile/values", ",\"tag\":\"k8s.label.owner\""),
	DATA("values: events", "/v1/profile/values", ",\"tag\":\"profile_event_type\""),
	DATA("values: clusters", "/v1/profile/values", ",\"tag\":\"pod_cluster\""),
	DATA("values: what could not be verified", "/v1/profile/values", ",\"tag\":\"unverified\""),
	DATA("values under the other's filter", "/v1/profile/values",
	     ",\"tag\":\"pod\"" N("pod_ns='vault'")),
	DATA("choices", "/v1/profile/choices",
	     ",\"tags\":[\"pod_ns\",\"app_service\",\"pod\",\"k8s.label.\",\"profile_event_"
	     "type\"]"),
	DATA("choices beside the own filter", "/v1/profile/choices",
	     ",\"tags\":[\"pod_ns\"]" N("pod_ns='app'")),
	DATA("choices beside the other's filter", "/v1/profile/choices",
	     ",\"tags\":[\"pod_ns\",\"pod\"]" N("pod_ns='vault'")),
	/* why there is no data */
	DATA("why: the other namespace", "/v1/profile/why", N("pod_ns='vault'")),
	DATA("why: another cluster", "/v1/profile/why", N("pod_cluster='edge' AND pod_ns='app'")),
	DATA("why: the other's pod", "/v1/profile/why", N("pod_ns='vault' AND pod='vault-pod'")),
	DATA("why: a pod of a name like the other's", "/v1/profile/why", N("pod='vault-po'")),
	OF("mem-alloc", "why: an event without data", "/v1/profile/why", ""),
	/* Grafana */
	DATA("types", GRAFANA "ProfileTypes", ""),
	DATA("names of labels", GRAFANA "LabelNames", ""),
	DATA("names of the other's labels", GRAFANA "LabelNames", MATCH("namespace='vault'")),
	DATA("a label's values: namespaces", GRAFANA "LabelValues", VALUES("namespace")),
	DATA("a label's values: workloads", GRAFANA "LabelValues", VALUES("service_name")),
	DATA("a label's values: types", GRAFANA "LabelValues", VALUES("__profile_type__")),
	DATA("a label's values: a label of pods", GRAFANA "LabelValues", VALUES("k8s_label_owner")),
	DATA("a label's values: a label of the other's pods", GRAFANA "LabelValues",
	     VALUES("k8s_label_vault")),
	DATA("a label's values under the other's matcher", GRAFANA "LabelValues",
	     VALUES("pod") MATCH("namespace='vault'")),
	DATA("a label's values beside the own matcher", GRAFANA "LabelValues",
	     VALUES("namespace") MATCH("namespace!='app'")),
	DATA("a label's values by an expression", GRAFANA "LabelValues",
	     VALUES("pod") MATCH("namespace=~'.*'")),
	DATA("a label's values by an expression that takes too long", GRAFANA "LabelValues",
	     VALUES("pod") MATCH("pod=~'(((.+)+)+)+[0-9]'")),
	DATA("sets of labels", GRAFANA "Series",
	     ",\"labelNames\":[\"service_name\",\"__profile_type__\"]"),
	DATA("sets of all labels", GRAFANA "Series", ""),
	DATA("sets of labels of the other", GRAFANA "Series",
	     ",\"labelNames\":[\"pod\"]" MATCH("node='n1',pod!='web-1'")),
	DATA("values over time", GRAFANA "SelectSeries", OVER_TIME("")),
	DATA("values over time by namespace", GRAFANA "SelectSeries",
	     OVER_TIME("") ",\"groupBy\":[\"namespace\"]"),
	DATA("values over time by two labels", GRAFANA "SelectSeries",
	     OVER_TIME("") ",\"groupBy\":[\"pod\",\"k8s_label_owner\"]"),
	DATA("values over time of the other", GRAFANA "SelectSeries",
	     OVER_TIME("namespace='vault'")),
	DATA("the greatest value over time", GRAFANA "SelectSeries",
	     OVER_TIME("") ",\"groupBy\":[\"service_name\"],\"limit\":1"),
	DATA("the times of all profiles", GRAFANA "GetProfileStats", ""),
	SAME("the size of a query", GRAFANA "AnalyzeQuery", ""),
	/* Grafana: stacks */
	DATA("a flame graph", STACKS, CALL("{}")),
	DATA("a flame graph of the other", STACKS, CALL("{namespace=\\\"vault\\\"}")),
	DATA("a flame graph of any namespace", STACKS, CALL("{namespace!=\\\"app\\\"}")),
	DATA("a flame graph by a slow expression", STACKS, CALL("{pod=~\\\"(((.+)+)+)+[0-9]\\\"}")),
	DATA("a tree in bytes", STACKS, CALL("{}") ",\"format\":2"),
	DATA("a call graph", STACKS, CALL("{}") ",\"format\":3"),
	DATA("a flame graph from a call site of both", STACKS,
	     CALL("{}") ",\"stackTraceSelector\":{\"callSite\":[{\"name\":\"main\"}]}"),
	DATA("a flame graph of the other's trace", STACKS,
	     CALL("{}") ",\"traceIdSelector\":[\"" OTHER_TRACE "\"]"),
	DATA("a flame graph of the other's span", GRAFANA "SelectMergeSpanProfile",
	     CALL("{}") ",\"spanSelector\":[\"00000000000000cd\"]"),
	DATA("a flame graph of what could not be verified", STACKS,
	     CALL("{unverified=\\\"true\\\"}")),
	DATA("pprof", GRAFANA "SelectMergeProfile", CALL("{}")),
	DATA("pprof in a flame graph's answer", STACKS, CALL("{}") ",\"format\":4"),
	DATA("a difference of flame graphs", GRAFANA "Diff",
	     ",\"left\":" SIDE("{namespace=\\\"app\\\"}") ",\"right\":" SIDE(
		     "{namespace=\\\"vault\\\"}")),
	DATA("a heat map", GRAFANA "SelectHeatmap", CALL("{}") ",\"step\":100"),
	DATA("a heat map by namespace", GRAFANA "SelectHeatmap",
	     CALL("{}") ",\"step\":100,\"group_by\":[\"namespace\"]"),
	DATA("a flame graph by GET",
	     "/pyroscope/render?query=" CPU_ID "%7B%7D&from=1699999000&until=1700001000", NULL),
	DATA("a call graph by GET, of the other",
	     "/pyroscope/render?query=" CPU_ID
	     "%7Bnamespace%3D%22vault%22%7D&from=1699999000&until=1700001000&format=dot",
	     NULL),
	DATA("a difference by GET",
	     "/pyroscope/render-diff?leftQuery=" CPU_ID "&leftFrom=1699999000&leftUntil=1700001000"
	     "&rightQuery=" CPU_ID "&rightFrom=1699999000&rightUntil=1700001000",
	     NULL),
};

/* ---- the two worlds ---- */

/* Values that only the other namespace and the host have. */
#define OTHER_US 424242

static struct profile *add(struct batch *b, const char *id, const char *app, uint32_t pid,
			   const char *ns)
{
	struct profile *p = profile_batch_profile(b);

	profile_id_make(&id, 1, p->id);
	p->event = EVENT_ON_CPU;
	p->end_ns = T0 * NSEC_PER_SEC;
	p->start_ns = p->end_ns - 10 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, app);
	p->process_id = pid;
	p->process_start_ns = pid ? (T0 - pid % 100) * NSEC_PER_SEC : 0;
	profile_tag(b, p, "pod_cluster", "c1");
	profile_tag(b, p, "pod_node", "n1");
	if (ns)
		profile_tag(b, p, "pod_ns", ns);
	return p;
}

static struct profile_sample *sample(struct batch *b, struct profile *p, const char *thread,
				     const char *function, int64_t value)
{
	struct frame frames[] = {{.kind = FRAME_APP, .name = "main", .module = "/bin/x"},
				 {.kind = FRAME_APP, .name = function, .module = "/bin/x"}};
	struct profile_sample *s = profile_add(b, p);

	s->thread_comm = profile_batch_str(b, thread);
	s->cpu = -1;
	s->value = value;
	s->n_samples = (uint64_t)value / 100;
	assert_int_equal(profile_batch_stack(b, frames, ARRAY_SIZE(frames), &s->stack), 0);
	return s;
}

static void in_trace(struct batch *b, struct profile_sample *s, uint8_t trace, uint8_t span)
{
	struct profile_link l = {.trace_id = {[14] = 0xab, [15] = trace}, .span_id = {[7] = span}};

	assert_int_equal(profile_batch_link(b, &l, &s->link), 0);
}

/* A frame that has no name, in a pod of a name that both namespaces have. */
static void add_stripped(struct batch *b, const char *id, const char *ns)
{
	struct frame frame = {.kind = FRAME_APP,
			      .module = "/bin/stripped",
			      .build_id = BUILD_ID,
			      .address = 0x1020};
	struct profile *p = add(b, id, "stripped", 9, ns);
	struct profile_sample *s = profile_add(b, p);

	profile_tag(b, p, "pod", "stripped-1");
	s->cpu = -1;
	s->value = 500;
	s->n_samples = 5;
	assert_int_equal(profile_batch_stack(b, &frame, 1, &s->stack), 0);
}

/* What the tenant may see. The node has lost samples in both worlds, in one of them more. */
static void add_own(struct batch *b, uint64_t n_lost)
{
	struct profile *p = add(b, "own", "web", 7, "app");

	profile_tag(b, p, "pod", "web-1");
	profile_tag(b, p, "k8s.label.owner", "web-team");
	sample(b, p, "worker", "serve", 7000);
	in_trace(b, sample(b, p, "worker", "answer", 1000), 2, 0xce);
	profile_lose(b, p, "too_large", 3, 0);
	p = add(b, "own waits", "web", 7, "app");
	p->event = EVENT_OFF_CPU;
	sample(b, p, "worker", "serve", 300);
	p = add(b, "own live", "web", 7, "app");
	p->event = EVENT_MEM_INUSE;
	sample(b, p, "worker", "serve", 400);
	add_stripped(b, "own stripped", "app");
	p = add(b, "node", "", 0, NULL);
	profile_lose(b, p, "ring_full", n_lost, 0);
	profile_lose(b, p, "counts_full", n_lost > 99 ? 1 : 50, 0);
}

static void add_other(struct batch *b)
{
	struct profile *p = add(b, "other", "vault-svc", 4242, "vault");

	profile_tag(b, p, "pod", "vault-pod");
	profile_tag(b, p, "container", "vault-c");
	profile_tag(b, p, "container_id", "vaultid");
	profile_tag(b, p, "image", "registry/vault:1");
	profile_tag(b, p, "k8s.label.owner", "vault-team");
	profile_tag(b, p, "k8s.label.vault", "yes");
	sample(b, p, "vault-thread", "vault_function", OTHER_US);
	in_trace(b, sample(b, p, "vault-thread", "serve", OTHER_US), 1, 0xcd);
	profile_lose(b, p, "window_full", 77, 0);
	p = add(b, "slow", "web", 4243, "vault"); /* the tenant's process and pod, by name */
	profile_tag(b, p, "pod", "web-1");
	profile_tag(b, p, "pod_group", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
	sample(b, p, "worker", "serve", OTHER_US);
	p = add(b, "long", "xxxxxxxxxxxxxxx", 4244, "vault");
	profile_tag(b, p, "pod", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
	sample(b, p, "worker", "serve", OTHER_US);
	p = add(b, "waits", "vault-svc", 4242, "vault");
	p->event = EVENT_OFF_CPU;
	profile_tag(b, p, "container_id", "vaultid");
	sample(b, p, "vault-thread", "vault_function", OTHER_US);
	p = add(b, "throttled", "Throttled", 0, "vault");
	p->event = EVENT_OFF_CPU;
	profile_tag(b, p, "container_id", "vaultid");
	sample(b, p, "", "x", OTHER_US);
	p = add(b, "live", "vault-svc", 4242, "vault");
	p->event = EVENT_MEM_INUSE;
	sample(b, p, "vault-thread", "vault_function", OTHER_US);
	p = add(b, "allocated", "web", 4243, "vault");
	p->event = EVENT_MEM_ALLOC;
	sample(b, p, "worker", "serve", OTHER_US);
	add_stripped(b, "stripped", "vault");
	p = add(b, "host", "hostd", 99, NULL);
	sample(b, p, "hostd", "host_function", OTHER_US);
	p = add(b, "total", "Total", 0, NULL);
	sample(b, p, "", "x", 10 * OTHER_US);
}

/* Profiles that a node sent of a pod of the tenant's namespace, and that the hub did not verify. */
static void add_unverified(struct batch *b)
{
	struct profile *p = add(b, "forged", "forged-svc", 4245, "app");

	profile_tag(b, p, TAG_UNVERIFIED, "true");
	profile_tag(b, p, "pod", "forged-pod");
	profile_tag(b, p, "k8s.label.forged", "yes");
	sample(b, p, "forged-thread", "forged_function", OTHER_US);
	in_trace(b, sample(b, p, "worker", "serve", OTHER_US), 3, 0xcf);
	profile_lose(b, p, "forged_reason", 11, 0);
	p = add(b, "forged waits", "web", 7, "app"); /* the tenant's own process, it says */
	p->event = EVENT_OFF_CPU;
	profile_tag(b, p, TAG_UNVERIFIED, "true");
	sample(b, p, "worker", "serve", OTHER_US);
	p = add(b, "forged live", "web", 7, "app");
	p->event = EVENT_MEM_INUSE;
	p->end_ns += 10 * NSEC_PER_SEC; /* newer than the true snapshot of this process */
	profile_tag(b, p, TAG_UNVERIFIED, "true");
	sample(b, p, "worker", "serve", OTHER_US);
}

/* Another cluster has a namespace, pods, nodes and processes of the same names. */
static void add_edge(struct batch *b)
{
	static const struct {
		const char *id, *app, *ns;
		uint32_t pid;
		enum event event;
	} of_edge[] = {
		{"edge", "web", "app", 7, EVENT_ON_CPU},
		{"edge waits", "web", "app", 7, EVENT_OFF_CPU},
		{"edge live", "web", "app", 7, EVENT_MEM_INUSE},
		{"edge throttled", "Throttled", "app", 0, EVENT_OFF_CPU},
		{"edge vault", "vault-svc", "vault", 4242, EVENT_ON_CPU},
		{"edge host", "hostd", NULL, 99, EVENT_ON_CPU},
		{"edge total", "Total", NULL, 0, EVENT_ON_CPU},
		{"edge node", "", NULL, 0, EVENT_ON_CPU},
	};

	for (size_t i = 0; i < ARRAY_SIZE(of_edge); i++) {
		struct profile *p =
			add(b, of_edge[i].id, of_edge[i].app, of_edge[i].pid, of_edge[i].ns);

		p->event = of_edge[i].event;
		p->end_ns += 10 * NSEC_PER_SEC; /* later than the tenant's own */
		profile_tag(b, p, "pod_cluster", "edge");
		profile_tag(b, p, "pod", "web-1");
		profile_tag(b, p, "container_id", "webid");
		profile_tag(b, p, "k8s.label.owner", "edge-team");
		profile_lose(b, p, "edge_reason", 12, 0);
		if (*of_edge[i].app)
			in_trace(b, sample(b, p, "worker", "edge_function", OTHER_US), 2, 0xce);
	}
}

static void fill_with(struct store *s, bool other)
{
	struct batch *b = profile_batch_new();
	size_t n_new;

	add_own(b, other ? 987654 : 5);
	if (other) {
		add_other(b);
		add_unverified(b);
		add_edge(b);
	}
	assert_int_equal(store_write(s, b, &n_new), 0);
	profile_batch_free(b);
}

static void fill_both(struct store *s)
{
	fill_with(s, true);
}

static void fill_own(struct store *s)
{
	fill_with(s, false);
}

static void upload_other(struct fixture *f)
{
	struct field_error e;
	size_t n;
	_cleanup_free_ void *data = test_upload(BUILD_ID, &n);

	assert_int_equal(symbols_put(f->symbols, "vault", BUILD_ID, data, n, &e), 0);
}

static int setup_world(void **state, void (*fill_it)(struct store *s), const char *targets)
{
	static const char *const clusters[] = {"edge", NULL};
	int r;

	with_clusters = clusters;
	fill_store = fill_it;
	r = setup_cluster(state);
	cluster.targets = json_loads(targets, 0, NULL);
	if (fill_it == fill_both)
		upload_other(*state);
	return r;
}

#define TARGET(ns)                                                                                 \
	"{\"metadata\":{\"namespace\":\"" ns "\",\"name\":\"" ns "-target\"},"                     \
	"\"spec\":{\"podSelector\":{},\"events\":{\"onCpu\":{}}}}"
#define CLUSTER_TARGET                                                                             \
	"{\"metadata\":{\"name\":\"vault-all\"},\"spec\":{\"podSelector\":{},"                     \
	"\"namespaceSelector\":{}}}"

static int setup_both(void **state)
{
	return setup_world(state, fill_both,
			   "[" TARGET("app") "," TARGET("vault") "," CLUSTER_TARGET "]");
}

static int setup_own(void **state)
{
	return setup_world(state, fill_own, "[" TARGET("app") "]");
}

#define BOTH(t) cmocka_unit_test_setup_teardown(t, setup_both, teardown)
#define OWN(t)	cmocka_unit_test_setup_teardown(t, setup_own, teardown)

/* ---- attempts ---- */

#define BODY                                                                                       \
	"{\"profile_event_type\":\"%s\",\"profile_language_type\":\"eBPF\","                       \
	"\"time_start\":1699999000,\"time_end\":1700001000"

#define GRAFANA_BODY "{\"start\":1699999000000,\"end\":1700001000000%s}"

/* The body of an attempt. The caller frees it. */
static char *body_of(const struct attempt *a)
{
	if (!a->more)
		return NULL;
	if (str_has_prefix(a->path, GRAFANA))
		return xasprintf(GRAFANA_BODY, a->more);
	return xasprintf(BODY "%s}", a->event ?: "on-cpu", a->more);
}

/* Hides texts that are chosen at random in each answer (UUIDs) or store (ids of stacks). */
static void hide_ids(char *text)
{
	for (char *p = text; (p = strchr(p, '"')); p++) {
		size_t n = strspn(p + 1, "0123456789abcdef-");

		if ((n == 16 || n == 36) && p[1 + n] == '"')
			memset(p + 1, 'x', n);
	}
}

/* The answer, with its status: "200 {...}". The caller frees it. */
static char *try(struct fixture *f, const struct attempt *a, const char *token)
{
	_cleanup_free_ char *header = xasprintf(BEARER "%s", token);
	const char *const headers[] = {header, "Content-Type: application/json", NULL};
	_cleanup_free_ char *body = body_of(a);
	char *answer;
	const char *url = strchr(a->path, '/');
	_cleanup_free_ char *method =
		url > a->path ? xstrndup(a->path, (size_t)(url - a->path) - 1) : NULL;

	ask_headers(f,
		    method
			    ?: a->more ? "POST"
				       : "GET",
		    url, headers, body, body ? strlen(body) : 0);
	answer = xasprintf("%d %s", f->status, f->body);
	hide_ids(answer);
	return answer;
}

struct answers {
	char *of[ARRAY_SIZE(attempts)][2]; /* to the tenant, and to a user who may see all */
};
static struct answers both, own;

static void ask_all(struct fixture *f, struct answers *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(attempts); i++) {
		ret->of[i][0] = try(f, &attempts[i], "tenant");
		ret->of[i][1] = try(f, &attempts[i], "viewer");
	}
}

static void with_the_other(void **state)
{
	ask_all(*state, &both);
}

static void without_the_other(void **state)
{
	ask_all(*state, &own);
}

static void each_answer_is_the_same_without_the_other(void **state)
{
	bool failed = false;

	(void)state;
	assert_non_null(strstr(both.of[0][0], "serve")); /* the tenant has its own data */
	for (size_t i = 0; i < ARRAY_SIZE(attempts); i++) {
		const struct attempt *a = &attempts[i];
		bool differs = !streq(both.of[i][0], own.of[i][0]);
		bool reaches = !streq(both.of[i][1], own.of[i][1]);

		if (differs)
			print_error("%s: the tenant gets\n%s\nand without the other\n%s\n", a->what,
				    both.of[i][0], own.of[i][0]);
		if (reaches == a->same_for_all)
			print_error("%s: a user who may see all gets %s answer\n%s\n", a->what,
				    reaches ? "another" : "the same", both.of[i][1]);
		failed |= differs || reaches == a->same_for_all;
		for (size_t k = 0; k < 2; k++) {
			free(both.of[i][k]);
			free(own.of[i][k]);
		}
	}
	assert_false(failed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(with_the_other),
		OWN(without_the_other),
		cmocka_unit_test(each_answer_is_the_same_without_the_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
