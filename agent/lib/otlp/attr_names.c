/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of names: tags and their names in OpenTelemetry's semantic conventions (k8s.*,
 * container.*, process.*, profile.frame.type), and the events and units of other profilers. Also
 * makes text valid UTF-8.
 */
#include "lib/otlp/internal.h"

#include <limits.h>
#include <stdlib.h>

static const struct attr_name names[] = {
	{"pod_cluster", "k8s.cluster.name", false},
	{"pod_ns", "k8s.namespace.name", false},
	{"pod", "k8s.pod.name", false},
	{"pod_uid", "k8s.pod.uid", false},
	{"pod_node", "k8s.node.name", false},
	{"container", "k8s.container.name", false},
	{"container_id", ATTR_CONTAINER, false},
	{"image", "container.image.name", false},
	{"container_pid", "process.vpid", true},
};

/*
 * The kinds of owners. If a pod has several owners, the one whose row comes first counts: a pod of
 * a Deployment may also have its ReplicaSet, and a pod of a CronJob its Job.
 */
static const struct {
	const char *kind, *attr;
} owners[] = {
	{"Deployment", "k8s.deployment.name"},
	{"StatefulSet", "k8s.statefulset.name"},
	{"DaemonSet", "k8s.daemonset.name"},
	{"CronJob", "k8s.cronjob.name"},
	{"Job", "k8s.job.name"},
	{"ReplicaSet", "k8s.replicaset.name"},
	{"ReplicationController", "k8s.replicationcontroller.name"},
};

static const char *const frame_types[_FRAME_KIND_MAX] = {
	[FRAME_APP] = "native",	   [FRAME_LIBRARY] = "native",	[FRAME_KERNEL] = "kernel",
	[FRAME_JVM] = "jvm",	   [FRAME_PYTHON] = "cpython",	[FRAME_LUA] = "lua",
	[FRAME_CUDA] = "cuda",	   [FRAME_OBJECT] = "podflame", [FRAME_MARKER] = "podflame",
	[FRAME_WAIT] = "podflame",
};

const struct attr_name *otlp_attr_by_tag(const char *tag)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (streq(names[i].tag, tag))
			return &names[i];
	return NULL;
}

const struct attr_name *otlp_attr_by_name(const char *attr)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (streq(names[i].attr, attr))
			return &names[i];
	return NULL;
}

const char *otlp_attr_of_owner(const char *kind)
{
	for (size_t i = 0; i < ARRAY_SIZE(owners); i++)
		if (streq(owners[i].kind, kind))
			return owners[i].attr;
	return NULL;
}

const char *otlp_owner_of_attr(const char *attr, unsigned *ret_rank)
{
	for (size_t i = 0; i < ARRAY_SIZE(owners); i++) {
		if (!streq(owners[i].attr, attr))
			continue;
		*ret_rank = (unsigned)i;
		return owners[i].kind;
	}
	return NULL;
}

const char *otlp_frame_type_of(enum frame_kind k)
{
	return frame_types[k];
}

bool otlp_frame_type_is_kind(enum frame_kind k)
{
	return !streq(frame_types[k], "native") && !streq(frame_types[k], "podflame");
}

/*
 * Returns the kind of a frame by its type. Types without a kind (go, rust, ruby, php, dotnet, v8js
 * ...) count as native code.
 */
enum frame_kind otlp_frame_kind_of_type(const char *type, const char *module)
{
	for (int k = 0; k < _FRAME_KIND_MAX; k++)
		if (str_equal(type, frame_types[k]) && otlp_frame_type_is_kind((enum frame_kind)k))
			return (enum frame_kind)k;
	return module ? profile_module_kind(module) : FRAME_APP;
}

/*
 * Types of the semantic conventions (profile.frame.type). Languages that run in an interpreter come
 * first: such a process often has libraries in one of the others.
 */
static const struct {
	const char *type, *language;
} languages[] = {
	{"jvm", "Java"},   {"cpython", "python"}, {"ruby", "ruby"}, {"php", "PHP"},
	{"v8js", "Node"},  {"dotnet", "dotnet"},  {"perl", "Perl"}, {"beam", "Erlang"},
	{"luajit", "Lua"}, {"lua", "Lua"},	  {"go", "Golang"}, {"rust", "Rust"},
};

uint8_t otlp_language_of_type(const char *type)
{
	for (uint8_t i = 0; i < ARRAY_SIZE(languages); i++)
		if (str_equal(type, languages[i].type))
			return i;
	return OTLP_NO_LANGUAGE;
}

const char *otlp_language_name(uint8_t rank)
{
	return languages[rank].language;
}

/*
 * OpenTelemetry's eBPF profiler uses samples/count for on-CPU and events/nanoseconds for off-CPU
 * (reporter/internal/pdata/generate.go). It uses events/count for probes that podflame does not
 * have. goroutine is a name of Go's pprof (runtime/pprof/pprof.go).
 */
bool otlp_event_of_type(const char *type, const char *unit, enum event *ret)
{
	static const struct {
		const char *type, *unit; /* unit NULL: any unit */
		enum event event;
	} others[] = {
		{"", NULL, EVENT_CPU},
		{"samples", NULL, EVENT_CPU},
		{"process_cpu", NULL, EVENT_CPU},
		{"on-cpu", NULL, EVENT_CPU},
		{"on_cpu", NULL, EVENT_CPU},
		{"events", "nanoseconds", EVENT_OFF_CPU},
		{"mem_alloc", NULL, EVENT_ALLOC_SPACE},
		{"mem_inuse", NULL, EVENT_INUSE_SPACE},
		{"goroutine", NULL, EVENT_GOROUTINES},
	};

	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		if (!streq(type, others[i].type) ||
		    (others[i].unit && !streq(unit, others[i].unit)))
			continue;
		*ret = others[i].event;
		return true;
	}
	PROFILE_EACH_EVENT (e) {
		if (!streq(type, profile_event_info(e)->otlp_sample_type))
			continue;
		*ret = e;
		return true;
	}
	return false;
}

double otlp_unit_in(const char *unit, const char *to)
{
	static const struct {
		const char *unit, *to;
		double factor;
	} units[] = {
		{"nanoseconds", "microseconds", 1e-3},
		{"microseconds", "microseconds", 1},
		{"milliseconds", "microseconds", 1e3},
		{"seconds", "microseconds", 1e6},
		{"bytes", "bytes", 1},
	};

	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if (streq(unit, units[i].unit) && streq(to, units[i].to))
			return units[i].factor;
	return !streq(to, "microseconds") && !streq(to, "bytes");
}

bool otlp_text_is_number(const char *s, int64_t *ret)
{
	char back[24];
	uint64_t value;

	if (str_to_u64(s, INT64_MAX, &value) < 0)
		return false;
	snprintf(back, sizeof(back), "%llu", (unsigned long long)value);
	if (!streq(back, s))
		return false;
	*ret = (int64_t)value;
	return true;
}

const char *otlp_text_utf8(struct pool *pool, const char *s)
{
	const char *p = s;
	size_t n, n_bad = 0;
	char *copy, *out;

	for (; *p; p += n ? n : 1)
		n_bad += (n = utf8_len(p)) == 0;
	if (!n_bad)
		return s;
	copy = out = otlp_pool_alloc(pool, (size_t)(p - s) + 2 * n_bad + 1);
	if (!copy)
		return NULL;
	for (p = s; *p; p += n ? n : 1) {
		n = utf8_len(p);
		memcpy(out, n ? p : UTF8_REPLACEMENT, n ? n : 3);
		out += n ? n : 3;
	}
	return copy;
}
