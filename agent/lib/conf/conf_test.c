/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conf: DeepFlow's own file works. An error names the position of the mistake and the allowed
 * range.
 */
#include "lib/conf/conf.h"

#include <regex.h>
#include <setjmp.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>

static int parse(const char *text, struct config *c, struct buf *warnings, struct field_error *err)
{
	return conf_parse("f.yaml", text, strlen(text), c, warnings, err);
}

static void test_defaults_are_those_of_the_documents(void **state)
{
	struct config c;

	(void)state;
	assert_int_equal(parse("", &c, NULL, NULL), 0);
	assert_false(c.on_cpu_disabled);
	assert_int_equal(c.on_cpu_hz, 99);
	assert_int_equal(c.on_cpu_per_cpu, 0);
	assert_string_equal(c.on_cpu_regex, "^podflame");
	assert_int_equal(c.java_refresh_ns, 600 * NSEC_PER_SEC);
	assert_true(c.off_cpu_disabled);
	assert_int_equal(c.off_cpu_min_block_ns, 50000);
	assert_int_equal(c.window_ns, 10 * NSEC_PER_SEC);
	assert_true(c.opt_in_required);
	assert_string_equal(c.api_audiences[0], "podflame-api");
	assert_null(c.api_audiences[1]);
	conf_done(&c);
}

static void test_deepflow_file(void **state)
{
	static const char text[] =
		"static_config:\n"
		"  ebpf:\n"
		"    dwarf-disabled: true\n"
		"    on-cpu-profile:\n"
		"      disabled: false\n"
		"      frequency: 199\n"
		"      cpu: 1\n"
		"      regex: ^redis-.*\n"
		"      java-symbol-file-refresh-defer-interval: 60s\n"
		"    off-cpu-profile: {disabled: false, regex: ^x, cpu: 0, minblock: 20us}\n"
		"    memory-profile:\n"
		"      disabled: true\n";
	_cleanup_buf_ struct buf warnings;
	struct field_error err = {0};
	struct config c;

	(void)state;
	buf_init(&warnings, 0);
	assert_int_equal(parse(text, &c, &warnings, &err), 0);
	assert_int_equal(c.on_cpu_hz, 199);
	assert_int_equal(c.on_cpu_per_cpu, 1);
	assert_string_equal(c.on_cpu_regex, "^redis-.*");
	assert_int_equal(c.java_refresh_ns, 60 * NSEC_PER_SEC);
	assert_false(c.off_cpu_disabled);
	assert_string_equal(c.off_cpu_regex, "^x");
	assert_int_equal(c.off_cpu_min_block_ns, 20000);
	assert_non_null(strstr(warnings.data, "off-cpu-profile.cpu: accepted, no effect: on-cpu"));
	assert_non_null(strstr(warnings.data, "memory-profile: accepted, no effect"));
	conf_done(&c);
	assert_int_equal(parse("static_config: {ebpf: {off-cpu-profile: {minblock: 0}}}\n", &c,
			       &warnings, &err),
			 0);
	assert_int_equal(c.off_cpu_min_block_ns, 0);
	assert_non_null(strstr(warnings.data, "dwarf-disabled: accepted, no effect yet"));
	conf_done(&c);
}

static void test_audiences(void **state)
{
	struct config c;

	(void)state;
	assert_int_equal(
		parse("api: {audiences: [a, 'https://k8s.example:6443/x']}\n", &c, NULL, NULL), 0);
	assert_string_equal(c.api_audiences[0], "a");
	assert_string_equal(c.api_audiences[1], "https://k8s.example:6443/x");
	assert_null(c.api_audiences[2]);
	conf_done(&c);
}

static void test_urls(void **state)
{
	static const char *const good[] = {
		"http://hub",	 "https://hub.example:4318/a/b", "https://10.0.0.1:4318",
		"https://[::1]", "https://[fd00::1]:4318",	 "http://[::ffff:10.0.0.1]/a"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		_cleanup_free_ char *text = xasprintf("hub: {url: '%s'}\n", good[i]);
		struct field_error err = {0};
		struct config c;

		if (parse(text, &c, NULL, &err))
			fail_msg("%s: %s", good[i], err.reason);
		assert_string_equal(c.hub_url, good[i]);
		conf_done(&c);
	}
}

/*
 * in_chart: where the chart's schema has the value. key: the configuration that the chart makes of
 * it. good, bad: values, separated by "|", that both must accept or refuse.
 */
struct chart_value {
	const char *in_chart, *key, *good, *bad;
};

/* Helm must refuse each value that the agent or the hub would refuse. */
static const struct chart_value chart_values[] = {
	{"agent.properties.debuginfodUrl", "symbols: {debuginfod_url: '%s'}",
	 "|http://d|https://d-1.example:8002/a/b@c|https://[fd00::1]:65535/a/|http://d:1|http://"
	 "d:9999|http://d:10000|"
	 "http://d:59999|http://d:64999|http://d:65499|http://d:65529|http://d:65535",
	 "ftp://d|http://|http://:80|http://u@d|http://[]|http://[d]|http://fd00::1:8002|http://"
	 "[::1]:|http://[::1]80|"
	 "http://d:x|http://d:0|http://d:-1|http://d:080|http://d:65536|http://d:65540|http://"
	 "d:65600|http://d:66000|"
	 "http://d:70000|http://d:99999|http://d:123456|http://d:80x|http://d?x|http://d/?x|http://"
	 "d/#x|http://d/a b|"
	 "http://d/[x]|http://d\\x|http://[fe80::1%25eth0]|http://d%41/|http://a[::1]| "
	 "http://d|http://d "},
	{"hub.properties.forward.properties.url", "store: {url: '%s'}",
	 "|https://d|https://d-1.example:4318/a/b@c|https://[fd00::1]:65535/a/|https://d:1",
	 "ftp://d|https://|https://:80|https://u@d|https://[]|https://[d]|https://fd00::1:8002|"
	 "https://d:x|https://d:0|https://d:65536|https://d?x|https://d/#x|https://d/a b|"
	 "https://d/[x]|https://d\\x| https://d|https://d "},
	{"agent.properties.window", "window: %s", "1s|9s|10s|59s|60s",
	 "0s|61s|-1s|6000s|x|10sec| "},
	{"agent.properties.spoolMaxBytes", "spool: {max_bytes: %s}",
	 "1Mi|256Mi|999999Mi|1Gi|99Gi|1000Gi|1019Gi|1024Gi|1Ti",
	 "0Mi|-1Mi|1048577Mi|1025Gi|1030Gi|1100Gi|2000Gi|2Ti|1Pi|1M|x| |1.5Gi"},
	{"agent.properties.unwindTableBytes", "unwind: {table_bytes: %s}",
	 "1Mi|64Mi|199Mi|249Mi|256Mi", "0Mi|257Mi|260Mi|300Mi|1000Mi|1Gi|1Ti|x| "},
	{"api.properties.audiences.items", "api: {audiences: ['%s']}",
	 "podflame-api|https://kubernetes.default.svc.cluster.local|a:b/c.d_e@f%g+h=i,j-",
	 "|a b|--x|$(x)|a'b|a\"b|\\|a;b"},
	{"hub.properties.maxBytes", "store: {max_bytes: %s}",
	 "16Mi|20Mi|100Mi|9999999Mi|1Gi|9999Gi|15999Gi|16299Gi|16379Gi|16384Gi|1Ti|16Ti",
	 "1Mi|9Mi|15Mi|0Gi|16385Gi|16390Gi|16400Gi|17000Gi|20000Gi|17Ti|20Ti|100Ti|x| "},
	{"hub.properties.symbolsMaxBytes", "store: {symbols_max_bytes: %s}",
	 "1Mi|15Mi|1Gi|16384Gi|16Ti", "0Mi|16385Gi|17Ti|x| "},
	{"hub.properties.retention", "store: {retention: %s}",
	 "60s|99s|100s|9999999s|1m|90m|99999m|1h|72h|999h|7999h|8699h|8779h|8784h",
	 "0s|1s|59s|0m|0h|8785h|8790h|8800h|9000h|10000h|1000000m|100000000s|x|-1h| "},
};

static const char *pattern_of(const json_t *schema, const char *in_chart)
{
	_cleanup_free_ char *path = xasprintf("properties.%s.pattern", in_chart);
	const char *pattern = json_str_at(schema, path, NULL);

	if (!pattern)
		fail_msg("the chart: no %s", path);
	return pattern;
}

static void check_value(const struct chart_value *v, const regex_t *re, const char *value,
			bool good)
{
	_cleanup_free_ char *text = xasprintf(v->key, value);
	struct config c;

	if ((regexec(re, value, 0, NULL, 0) == 0) != good)
		fail_msg("the chart: %s: %s", v->in_chart, value);
	if ((parse(text, &c, NULL, NULL) == 0) != good)
		fail_msg("the agent: %s", text);
	if (good)
		conf_done(&c);
}

static void check_values(const struct chart_value *v, const regex_t *re, const char *values,
			 bool good)
{
	for (const char *s = values;; s += strcspn(s, "|") + 1) {
		_cleanup_free_ char *value = xstrndup(s, strcspn(s, "|"));

		check_value(v, re, value, good);
		if (!s[strcspn(s, "|")])
			return;
	}
}

static json_t *schema_of_chart(void)
{
	_cleanup_free_ char *text = NULL;

	assert_int_equal(
		file_read(AT_FDCWD, "charts/podflame/values.schema.json", 1 << 20, &text, NULL), 0);
	return json_loads(text, 0, NULL);
}

static void test_values_of_the_chart(void **state)
{
	_cleanup_json_ json_t *schema = NULL;

	(void)state;
	schema = schema_of_chart();
	for (size_t i = 0; i < ARRAY_SIZE(chart_values); i++) {
		const struct chart_value *v = &chart_values[i];
		regex_t re;

		assert_int_equal(
			regcomp(&re, pattern_of(schema, v->in_chart), REG_EXTENDED | REG_NOSUB), 0);
		check_values(v, &re, v->good, true);
		check_values(v, &re, v->bad, false);
		regfree(&re);
	}
}

/* Helm must accept the events that the agent accepts, and the agent those that Helm accepts. */
static void test_events_of_the_chart(void **state)
{
	_cleanup_free_ char *all = NULL;
	_cleanup_json_ json_t *schema = NULL, *list = NULL;
	_cleanup_buf_ struct buf names = {0};
	struct field_error err = {0};
	const json_t *choices, *name;
	struct config c;
	size_t i;

	(void)state;
	schema = schema_of_chart();
	choices = json_at(schema, "properties.tenant.properties.allowedEvents.items.enum");
	json_array_foreach (choices, i, name)
		buf_printf(&names, "%s%s", i ? "|" : "", json_string_value(name));
	assert_int_equal(parse("tenant: {allowed_events: [some]}\n", &c, NULL, &err), -EINVAL);
	assert_true(str_has_suffix(err.reason, names.data));
	list = json_pack("{s:{s:O}}", "tenant", "allowed_events", choices);
	all = json_dumps(list, 0);
	assert_int_equal(parse(all, &c, NULL, &err), 0);
	conf_done(&c);
}

/* Helm must refuse each event that the hub would refuse, and no other. */
static void test_retention_in_the_chart(void **state)
{
	_cleanup_json_ json_t *schema = NULL;
	_cleanup_buf_ struct buf names = {0};
	struct field_error err = {0};
	const json_t *events, *name;
	struct config c;
	size_t i;

	(void)state;
	schema = schema_of_chart();
	events = json_at(schema, "properties.hub.properties.eventRetention.propertyNames.enum");
	json_array_foreach (events, i, name)
		buf_printf(&names, "%s%s", i ? "|" : " names (", json_string_value(name));
	buf_puts(&names, ") to durations");
	assert_int_equal(parse("store: {event_retention: {gpu: 1h}}\n", &c, NULL, &err), -EINVAL);
	assert_non_null(strstr(err.reason, names.data));
}

static void test_limits_of_tenants(void **state)
{
	struct field_error err = {0};
	struct config c;

	(void)state;
	assert_int_equal(parse("tenant: {allowed_events: [onCpu, memAlloc], max_sample_hz: 49, "
			       "max_overhead_percent: 0.5, min_sample_bytes: 65536, "
			       "max_targets: 10}\n",
			       &c, NULL, &err),
			 0);
	assert_string_equal(c.tenant_allowed_events[0], "onCpu");
	assert_string_equal(c.tenant_allowed_events[1], "memAlloc");
	assert_null(c.tenant_allowed_events[2]);
	assert_int_equal(c.tenant_max_sample_hz, 49);
	assert_true(c.tenant_max_overhead_percent == 0.5);
	assert_int_equal(c.tenant_min_sample_bytes, 65536);
	assert_int_equal(c.tenant_max_targets, 10);
	conf_done(&c);
	assert_int_equal(parse("tenant: {max_overhead_percent: 5}\n", &c, NULL, &err), 0);
	assert_true(c.tenant_max_overhead_percent == 5);
	assert_string_equal(c.tenant_allowed_events[0], "all");
	conf_done(&c);
}

static void test_durations(void **state)
{
	struct config c;

	(void)state;
	assert_int_equal(parse("store: {event_retention: {on-cpu: 168h, mem-alloc: 3600}, "
			       "namespace_retention: {ci: 1h}}\n",
			       &c, NULL, NULL),
			 0);
	assert_int_equal(c.event_retention.n, 2);
	assert_string_equal(c.event_retention.items[1].name, "mem-alloc");
	assert_int_equal(c.event_retention.items[1].ns, 3600 * NSEC_PER_SEC);
	assert_int_equal(c.namespace_retention.n, 1);
	assert_string_equal(c.namespace_retention.items[0].name, "ci");
	conf_done(&c);
	assert_int_equal(parse("store:\n  namespace_retention:\n", &c, NULL, NULL), 0);
	assert_int_equal(c.namespace_retention.n, 0);
	conf_done(&c);
}

static const struct {
	const char *text, *at, *says;
} mistakes[] = {
	{"tenant: {allowed_events: []}\n", "f.yaml:1:10",
	 "a list of 0 is not allowed; it must be a list of 1 or more of all|onCpu|"},
	{"tenant: {allowed_events: [onCpu, gpu]}\n", "f.yaml:1:10", "gpu is not allowed"},
	{"tenant: {allowed_events: all}\n", "f.yaml:1:10", "all is not allowed"},
	{"tenant:\n  allowed_events:\n", "f.yaml:2:3", "an empty value is not allowed"},
	{"tenant: {max_overhead_percent: 0}\n", "f.yaml:1:10", "a number above 0, at most 100"},
	{"tenant: {max_overhead_percent: 100.1}\n", "f.yaml:1:10", "the fraction 100.1 is not"},
	{"tenant: {max_overhead_percent: '5'}\n", "f.yaml:1:10", "the text \"5\" is not"},
	{"tenant: {max_targets: 0}\n", "f.yaml:1:10", "a number, 1 to 4096"},
	{"max_sample_hz: 0\n", "f.yaml:1:1", "a number, 1 to 999"},
	{"max_sample_hz: \"99\"\n", "f.yaml:1:1", "a number, 1 to 999"},
	{"total: yes\n", "f.yaml:1:1",
	 "total: the text \"yes\" is not allowed; it must be true or false"},
	{"api: {port: \"80\"}\n", "f.yaml:1:7", "api.port: the text \"80\" is not allowed"},
	{"window: [1s]\n", "f.yaml:1:1", "window: a list is not allowed; it must be a duration"},
	{"window: {a: 1}\n", "f.yaml:1:1", "window: a mapping is not"},
	{"window:\n", "f.yaml:1:1", "window: an empty value is not"},
	{"window: 1.5\n", "f.yaml:1:1", "window: the fraction 1.5 is not"},
	{"cluster_name: true\n", "f.yaml:1:1",
	 "cluster_name: true without quotes is not allowed; it must be text"},
	{"window: \"a\\nb\"\n", "f.yaml:1:1", "window: a?b is not allowed"},
	{"hub:\n\turl: http://h\n", "f.yaml:2:1", "a tab cannot stand here"},
	{"hub: {url: 'http://h'}\nwindow: 1s\nwindow: 2s\n", "f.yaml:3:1", "window is there twice"},
	{"hub: {url: 'http://h'}\nhub.url: http://i\n", "f.yaml:1:7", "hub.url is there twice"},
	{"window: 1s\n---\nwindow: 2s\n", "f.yaml:1:1", "several documents"},
	{"window: 90s\n", "f.yaml:1:1", "1s to 60s"},
	{"window: -1\n", "f.yaml:1:1", "1s to 60s"},
	{"a:\n  b: 1\n", "f.yaml:1:1", "a: no such key"},
	{"store:\n  kin: sqlite\n", "f.yaml:2:3", "store.kin: no such key"},
	{"store: sqlite\n", "f.yaml:1:1", "store: must be a mapping"},
	{"store:\n  event_retention: {on-cpu: 1h, gpu: 1h}\n", "f.yaml:2:33",
	 "store.event_retention: gpu is not allowed; it must be a mapping of at most 100 names ("
	 "on-cpu|off-cpu|"},
	{"store:\n  event_retention: {on-cpu: 59s}\n", "f.yaml:2:21",
	 "store.event_retention.on-cpu: 59s is not allowed; it must be a mapping"},
	{"store:\n  event_retention: {on-cpu: [1h]}\n", "f.yaml:2:21",
	 "store.event_retention.on-cpu: a list is not allowed"},
	{"store:\n  event_retention: 1h\n", "f.yaml:2:3",
	 "store.event_retention: 1h is not allowed; it must be a mapping"},
	{"store:\n  namespace_retention: {a b: 1h}\n", "f.yaml:2:25",
	 "store.namespace_retention: a b is not allowed; it must be a mapping of at most 100 names "
	 "to durations such as 10s, 60s to 31622400s"},
	{"store:\n  namespace_retention: {ci: 367d}\n", "f.yaml:2:25",
	 "store.namespace_retention.ci: 367d is not allowed"},
	{"store:\n  kind: mysql\n", "f.yaml:2:3", "one of sqlite"},
	{"static_config:\n  ebpf:\n    on-cpu-profile:\n      regex: '('\n", "f.yaml:4:7",
	 "regular expression"},
	{"static_config:\n  ebpf:\n    on-cpu-profile:\n      frequency: 1001\n", "f.yaml:4:7",
	 "frequency: 1001 is not allowed; it must be a number, 1 to 1000"},
	{"static_config:\n  ebpf:\n    on-cpu-profile: {cpu: 2}\n", "f.yaml:3:22", "0 to 1"},
	{"static_config:\n  ebpf:\n    off-cpu-profile: {minblock: 3601s}\n", "f.yaml:3:23",
	 "0s to 3600s"},
	{"static_config:\n  ebpf:\n    off-cpu-profile: {minblock: 50}\n", "f.yaml:3:23",
	 "such as 50us"},
	{"static_config:\n  ebpf:\n    off-cpu-profile: {regex: '['}\n", "f.yaml:3:23",
	 "regular expression"},
	{"static_config:\n  ebpf:\n    on-cpu-profile: {regex: 'a(?R)?'}\n", "f.yaml:3:22",
	 "regex: 'a(?R)?': '(?R' is not allowed; it must be a regular expression"},
	{"a: [\n", "f.yaml:2:1", ""},
	{"- a\n", "f.yaml:1:1", "must be a mapping"},
	{"symbols:\n  debuginfod_url: ftp://x/\n", "f.yaml:2:3", "http://HOST"},
	{"symbols:\n  debuginfod_url: http://\n", "f.yaml:2:3", "http://HOST"},
	{"hub:\n  url: https://::1:4318\n", "f.yaml:2:3", "http://HOST"},
	{"hub:\n  url: https://[::1\n", "f.yaml:2:3", "http://HOST"},
	{"hub:\n  url: 'https://[]:4318'\n", "f.yaml:2:3", "http://HOST"},
	{"hub:\n  url: 'https://[hub]:4318'\n", "f.yaml:2:3", "http://HOST"},
	{"hub:\n  url: 'https://[::1]4318'\n", "f.yaml:2:3", "http://HOST"},
	{"hub:\n  url: 'https://a[::1]'\n", "f.yaml:2:3", "http://HOST"},
	{"hub:\n  url: 'http://fd00::1:8002'\n", "f.yaml:2:3", "or [IPv6]"},
	{"hub:\n  url: 'http://[::1]:'\n", "f.yaml:2:3", "http://HOST"},
	{"hub:\n  url: 'http://h:x'\n", "f.yaml:2:3", "http://HOST"},
	{"hub:\n  url: 'http://h:65536'\n", "f.yaml:2:3",
	 "hub.url: http://h:65536 has a port that is not in 1..65535; it must be empty, or "
	 "http://HOST"},
	{"hub:\n  url: 'http://u:secret@h'\n", "f.yaml:2:3",
	 "hub.url: this has a user name in it; it must"},
	{"hub:\n  url: 'http://h '\n", "f.yaml:2:3", "holds a blank"},
	{"hub:\n  url: h:80\n", "f.yaml:2:3", "begins neither with https://"},
	{"links: {trace: 'http://a b'}\n", "f.yaml:1:9", "holds no blank"},
	{"hub:\n  url: 'http://[fe80::1%25eth0]'\n", "f.yaml:2:3", "http://HOST"},
	{"spool:\n  max_bytes: 10Xi\n", "f.yaml:2:3", "a size such as"},
	{"api: {audiences: []}\n", "f.yaml:1:7",
	 "api.audiences: a list of 0 is not allowed; it must be a list of 1 to 16 words"},
	{"api:\n  audiences:\n", "f.yaml:2:3", "api.audiences: an empty value is not"},
	{"api: {audiences: podflame-api}\n", "f.yaml:1:7",
	 "podflame-api is not allowed; it must be "},
	{"api: {audiences: [a, 'b c']}\n", "f.yaml:1:7", "api.audiences: b c is not allowed"},
	{"api: {audiences: ['$(x)']}\n", "f.yaml:1:7", "api.audiences: $(x) is not allowed"},
	{"api: {audiences: [--x]}\n", "f.yaml:1:7", "api.audiences: --x is not allowed"},
	{"api: {audiences: ['']}\n", "f.yaml:1:7", "api.audiences: an empty value is not"},
	{"api: {audiences: [[a]]}\n", "f.yaml:1:7", "api.audiences: a list of 1 is not"},
	{"api: {audiences: [1]}\n", "f.yaml:1:7", "api.audiences: 1 is not"},
	{"api: {audiences: [a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a]}\n", "f.yaml:1:7",
	 "api.audiences: a list of 17 is not"},
};

static void test_mistakes(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(mistakes); i++) {
		struct field_error err = {0};
		struct config c;

		assert_int_equal(parse(mistakes[i].text, &c, NULL, &err), -EINVAL);
		assert_string_equal(err.path, mistakes[i].at);
		if (!strstr(err.reason, mistakes[i].says))
			fail_msg("%s: \"%s\" does not say \"%s\"", mistakes[i].text, err.reason,
				 mistakes[i].says);
		assert_null(strstr(err.reason, "secret"));
	}
}

static void test_missing_file(void **state)
{
	struct field_error err = {0};
	struct config c;

	(void)state;
	assert_int_equal(conf_load("/nowhere.yaml", &c, NULL, &err), -ENOENT);
	assert_string_equal(err.path, "/nowhere.yaml");
}

/* docs/config.md contains the table as conf_doc() prints it. UPDATE_DOCS=1 writes the file. */
static void test_document_is_fresh(void **state)
{
	static const char head[] =
		"# The configuration file\n\nWho needs this page: people who run podflame without "
		"the Helm chart, or change its configuration.\nAll roles read one YAML file "
		"(`--config FILE`). A mistake in it stops the start, and the message\nnames its "
		"place. This page is made from the table in agent/lib/conf/keys.c "
		"(`UPDATE_DOCS=1 make\ntest`).\n\n";
	_cleanup_buf_ struct buf want;
	_cleanup_free_ char *have = NULL;

	(void)state;
	buf_init(&want, 0);
	buf_puts(&want, head);
	conf_doc(&want);
	if (getenv("UPDATE_DOCS"))
		assert_int_equal(file_write_atomic("docs/config.md", want.data, want.len, 0644), 0);
	assert_int_equal(file_read(AT_FDCWD, "docs/config.md", 1 << 20, &have, NULL), 0);
	assert_string_equal(have, want.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults_are_those_of_the_documents),
		cmocka_unit_test(test_deepflow_file),
		cmocka_unit_test(test_audiences),
		cmocka_unit_test(test_urls),
		cmocka_unit_test(test_values_of_the_chart),
		cmocka_unit_test(test_events_of_the_chart),
		cmocka_unit_test(test_limits_of_tenants),
		cmocka_unit_test(test_durations),
		cmocka_unit_test(test_retention_in_the_chart),
		cmocka_unit_test(test_mistakes),
		cmocka_unit_test(test_missing_file),
		cmocka_unit_test(test_document_is_fresh),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
