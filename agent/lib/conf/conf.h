/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conf: the configuration file, one format for all roles. Every key is a row of the table in
 * conf.c. An unknown key, a wrong type or a value out of range stops the start; the message has
 * file:line:column, the key and what is allowed. docs/config.md is made from the same table.
 */
#pragma once

#include "lib/base/base.h"
#include "lib/base/named_duration.h"

struct conf_durations { /* the names are owned */
	struct named_duration *items;
	size_t n;
};

struct config {
	/* names of the cluster, the node and podflame's namespace */
	char *cluster_name, *node_name, *own_namespace;
	/* Kubernetes */
	char *kubernetes;		/* "auto", "on", "off" */
	char *kubeconfig, *kube_context;
	/* profiling */
	bool default_target, opt_in_required, total;
	unsigned max_sample_hz, run_as_user;
	/* what a ProfilingTarget may ask for */
	unsigned tenant_max_sample_hz, tenant_max_targets, tenant_min_sample_bytes;
	double tenant_max_overhead_percent;
	char **tenant_allowed_events;	/* "all", or fields of spec.events; NULL at the end */
	uint64_t window_ns;
	char *cgroup_hierarchy;		/* "", "v2", "v1:memory" */
	/* sending */
	char *hub_url, *hub_ca_file, *hub_token_file, *spool_dir;
	uint64_t spool_max_bytes;
	/* native stacks */
	uint64_t unwind_table_bytes;	/* limit of the kernel's memory that unwind tables use */
	uint64_t symbol_cache_bytes;
	char *host_debug_dir, *debuginfod_url, *debuginfod_ca_file, *debuginfod_cache;
	uint64_t debuginfod_cache_bytes, debuginfod_timeout_ns;
	/* hub */
	char *lease;			/* "": this hub is the only one */
	char *data_dir;
	char *store_kind;
	/* store_kind otlp: the central hub; clickhouse: ClickHouse, without the token */
	char *store_url, *store_ca_file, *store_token_file;
	char *clickhouse_database, *clickhouse_user, *clickhouse_password_file;
	bool clickhouse_plain_http;
	uint64_t clickhouse_max_bytes;
	char *clickhouse_cluster, *clickhouse_storage_policy; /* "": none */
	uint64_t store_retention_ns, store_max_bytes, symbols_max_bytes;
	struct conf_durations event_retention, namespace_retention; /* names: as in the API */
	char *store_note;
	char *link_trace, *link_logs;	/* templates of addresses (URLs); "": no links */
	char *api_address, *ingest_address, *health_address;
	unsigned api_port, ingest_port, health_port;
	char **api_audiences;		/* at least one; NULL at the end */
	bool api_audit;
	bool ingest_require_node;
	char **ingest_agents;		/* "NAME" or "NAMESPACE/NAME"; NULL at the end */
	char *clusters_file;		/* "": no other clusters */
	char *tls_source;		/* "own", "secret" */
	char *tls_secret, *ca_configmap, *service_name, *public_name;
	char *log_level;
	/*
	 * DeepFlow's keys. Only `podflame local` uses them, apart from on_cpu_per_cpu and
	 * java_refresh_ns, which `podflame agent` uses, too.
	 */
	bool on_cpu_disabled;
	unsigned on_cpu_hz;
	unsigned on_cpu_per_cpu;	/* 1: samples of each CPU are counted separately */
	char *on_cpu_regex;		/* regexp_check() has accepted it */
	bool off_cpu_disabled;
	char *off_cpu_regex;
	uint64_t off_cpu_min_block_ns;
	/* whether the processes that DeepFlow's keys select get trace contexts */
	bool trace_context;
	uint64_t java_refresh_ns;
};

/* Sets all members to their defaults. */
void conf_init(struct config *c);
void conf_done(struct config *c);
/*
 * Sets all members to their defaults, and then those that the file at path names. reterr->path is
 * "FILE:LINE:COLUMN"; the reason names the key and its allowed values. For a key that has no effect
 * yet, the function appends a line to warnings (may be NULL).
 */
int conf_load(const char *path, struct config *ret, struct buf *warnings,
	      struct field_error *reterr);
int conf_parse(const char *file_name, const char *text, size_t n, struct config *ret,
	       struct buf *warnings,
	       struct field_error *reterr);
/* Takes node_name and own_namespace from the environment if the file did not set them. */
void conf_resolve(struct config *c);
/* Prints the table of keys as Markdown. */
void conf_doc(struct buf *out);
