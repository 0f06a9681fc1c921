/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as a configuration file gives a configuration whose values are in their ranges, or an
 * error with a position in the file and a reason. If any YAML is read, written as JSON (which is
 * YAML too) and read again, both results are equal.
 * Fuzzes: lib/conf/conf.c, lib/conf/keys.c, lib/conf/value.c, lib/base/yaml.c
 */
#include "lib/conf/conf.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok)
{
	if (!ok)
		abort();
}

/* Checks that path is "f:LINE:COLUMN", and that this position is inside the text. */
static void check_place(const char *path, const char *text, size_t n)
{
	unsigned line = 0, column = 0, lines = 1;

	for (size_t i = 0; i < n; i++)
		lines += text[i] == '\n' || text[i] == '\r' || (unsigned char)text[i] >= 0x80;
	check(sscanf(path, "f:%u:%u", &line, &column) == 2 && line >= 1 && line <= lines + 1 &&
	      column >= 1);
}

static void parse_conf(const char *text, size_t n)
{
	_cleanup_buf_ struct buf warnings = {0};
	struct field_error e = {0};
	struct config c;

	if (conf_parse("f", text, n, &c, &warnings, &e) < 0) {
		check(e.reason[0]);
		check_place(e.path, text, n);
		return;
	}
	check(c.max_sample_hz >= 1 && c.max_sample_hz <= 999 && c.api_port <= 65535 &&
	      c.ingest_port <= 65535 && c.on_cpu_hz >= 1 && c.on_cpu_hz <= 1000);
	check(c.window_ns >= NSEC_PER_SEC && c.window_ns <= 60 * NSEC_PER_SEC);
	check(c.tenant_max_targets >= 1 && *c.tenant_allowed_events[0] &&
	      c.tenant_max_overhead_percent > 0 && c.tenant_max_overhead_percent <= 100);
	check(streq(c.store_kind, "sqlite") || streq(c.store_kind, "null") ||
	      streq(c.store_kind, "clickhouse") || streq(c.store_kind, "otlp"));
	check(streq(c.tls_source, "own") || streq(c.tls_source, "secret"));
	check(c.spool_max_bytes >= 1 << 20 && c.unwind_table_bytes <= 256u << 20);
	check(!*c.link_trace || str_has_prefix(c.link_trace, "http"));
	conf_resolve(&c);
	check(*c.node_name && *c.own_namespace);
	conf_done(&c);
}

/*
 * Writes root as JSON and reads it again as YAML. Some characters are not allowed in YAML even if
 * they are escaped, so yaml_parse() may refuse the text. (Characters are escaped because YAML takes
 * some, such as U+0085, as ends of lines.)
 */
static void read_again(const json_t *root)
{
	_cleanup_free_ char *text =
		json_dumps(root, JSON_ENCODE_ANY | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(17));
	struct yaml_doc *again;

	if (!text || yaml_parse(text, strlen(text), &again, NULL) < 0)
		return;
	check(json_equal(yaml_root(again), root));
	yaml_doc_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const char *text = (const char *)data;
	_cleanup_json_ json_t *all = NULL;
	struct yaml_doc *doc = NULL;
	struct field_error e = {0};

	parse_conf(text, n);
	if (yaml_parse(text, n, &doc, &e) < 0) {
		check(e.path[0] && e.reason[0] && yaml_parse_all(text, n, &all, NULL) < 0);
		return 0;
	}
	read_again(yaml_root(doc));
	if (yaml_parse_all(text, n, &all, NULL) == 0 && json_array_size(all))
		check(json_equal(json_array_get(all, 0), yaml_root(doc)));
	yaml_doc_free(doc);
	return 0;
}
