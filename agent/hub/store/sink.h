/* SPDX-License-Identifier: Apache-2.0 */
/* Private to store/: the functions of a sink. A new sink is one file and one row in store.c. */
#pragma once

#include "hub/store/uploads.h"

/*
 * What gets a store that is exported. Each function returns 0, or -errno, which ends the export:
 * then it has set the reterr of the export.
 */
struct store_receiver {
	/* called first: the clusters other than the hub's own */
	int (*begin)(const char *const *clusters, size_t n, uint64_t n_profiles, void *arg);
	int (*batch)(const struct batch *b, void *arg); /* at least one profile */
	int (*cut)(const struct store_cut *cut, void *arg);
	void *arg;
};

/* The functions of uploads.h. */
struct upload_ops {
	int (*list)(void *sink, store_upload_fn *fn, void *arg, struct field_error *reterr);
	int (*put)(void *sink, struct store_upload *u, const void *data, size_t n,
		   struct field_error *reterr);
	int (*get)(void *sink, const struct store_upload *u, const struct store_wait *w, void *data,
		   struct field_error *reterr);
	int (*remove)(void *sink, const struct store_upload *u, bool older,
		      struct field_error *reterr);
};

struct sink_ops {
	const char *kind;
	int (*open)(const struct store_config *c, void **ret, struct field_error *reterr);
	/* as store_migrate(); NULL: open makes what it needs */
	int (*migrate)(const struct store_config *c, bool dry_run, store_print_fn *print, void *arg,
		       struct field_error *reterr);
	void (*close)(void *sink);
	/*
	 * For a sink whose database may be away: every other function that returns an error is
	 * called only after this one has returned 0. NULL: it is ready once it is open.
	 */
	int (*ready)(void *sink, struct field_error *reterr);
	char *const *(*clusters)(void *sink, size_t *ret_n);
	int (*write)(void *sink, const struct batch *b, size_t *ret_n_new);
	/* for a sink with a pace; the others are written to batch by batch */
	int (*write_all)(void *sink, const struct batch *const *batches, size_t n);
	struct store_pace pace;
	int (*read)(void *sink, const struct selection *sel, store_row_fn *fn, void *arg,
		    struct store_summary *ret, struct field_error *reterr);
	int (*series)(void *sink, const struct series_request *r, struct store_series *ret,
		      struct field_error *reterr);
	int (*choices)(void *sink, const struct store_choice *choices, size_t n,
		       store_choice_fn *fn, void *arg, struct field_error *reterr);
	int (*namespaces)(void *sink, const atomic_bool *given_up, store_namespace_fn *fn,
			  void *arg, struct field_error *reterr);
	/* sel has the scope and given_up */
	int (*oldest)(void *sink, const struct selection *sel, store_oldest_fn *fn, void *arg,
		      struct field_error *reterr);
	int (*pods)(void *sink, int64_t since_s, store_pod_fn *fn, void *arg,
		    struct field_error *reterr);
	int (*expire)(void *sink, uint64_t now_wall_ns);
	void (*stats)(void *sink, struct store_stats *ret);
	/* The rest may be NULL. */
	void (*set_lead)(void *sink, uint64_t (*term)(void *arg), void *arg);
	int (*cut)(void *sink, const struct store_cut *cut);
	int (*backup)(const struct store_config *c, const char *to, store_progress_fn *fn,
		      void *arg, struct field_error *reterr);
	/* *ret_n_left_out: rows of the store that belong to no profile */
	int (*export)(const struct store_config *c, const struct store_receiver *to,
		      uint64_t *ret_n_left_out, struct field_error *reterr);
	const struct upload_ops *uploads; /* NULL: this sink keeps none */
};
extern const struct sink_ops store_sqlite_sink, store_clickhouse_sink, store_null_sink;

/* ---- store.c ---- */
/* NULL: there is no such kind, and reterr says so. */
const struct sink_ops *store_sink_find(const char *kind, struct field_error *reterr);

/* ---- store.c: what a sink asks of a reader's scope ---- */
/*
 * Returns the end of the places of the same cluster from `i` on. *ret_bytes: the bytes of its name
 * and ':'; 0: it is the hub's own.
 */
size_t store_scope_of_cluster(const struct scope *s, size_t i, size_t *ret_bytes);
/* Whether the place is of the hub's own cluster, or of one of the others that the store knows. */
bool store_scope_knows(const struct selection *sel, const char *place, size_t bytes);

/* like.c: LIKE with '%' and '*' for any run, '_' for any character, '\' before a literal. */
bool store_match_like(const char *pattern, const char *text);
