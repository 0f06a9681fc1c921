/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store: where profiles are kept and asked for. A sink is one row of a table:
 * sqlite (default), null. store_write runs on the writer's worker, store_read on
 * a query worker with its own read-only connection.
 */
#pragma once

#include "lib/profile/profile.h"

#include <stdatomic.h>

/* ---- what is asked: the language between query/ and the sinks ---- */
enum predicate_op {
	PRED_AND, PRED_OR, PRED_NOT,		/* children */
	PRED_EQ, PRED_NE, PRED_LT, PRED_GT, PRED_LE, PRED_GE,
	PRED_IN, PRED_NOT_IN, PRED_LIKE, PRED_NOT_LIKE, PRED_REGEXP, PRED_NOT_REGEXP,
	PRED_IS_NULL, PRED_NOT_NULL,
	PRED_TRUE, PRED_FALSE,
};
struct predicate {
	enum predicate_op op;
	struct predicate **children;		/* AND, OR: any number; NOT: one */
	size_t n_children;
	char *tag;				/* canonical tag name, resolved by query/ */
	bool numeric;				/* values compare as integers */
	char **values;				/* one, or a list for IN */
	size_t n_values;
};
struct predicate *store_predicate_free(struct predicate *p);

struct selection {
	enum event event;
	int64_t time_start_s, time_end_s;	/* inclusive */
	char **app_services;			/* none: every one but Total and Throttled */
	bool with_total; /* none of them named: those two too, for lists of choices */
	size_t n_app_services;
	struct predicate *where;		/* NULL: everything */
	char **allowed_namespaces; /* NULL: all ("*"); host processes and Total only with all */
	size_t n_allowed_namespaces;
	size_t max_rows; /* 0: 4,000,000 folded rows; the rest is one more, [others] */
	uint64_t max_time_ns;			/* 0: 30 s; past it -ETIME */
	/* the caller does not wait any more: -ETIME soon; may be NULL */
	const atomic_bool *given_up;
};
struct selection *store_selection_free(struct selection *s);

#define STORE_OTHERS "[others]"			/* frame of the stacks that were added up */
/* frame of a stack, or in place of a frame, that the file does not have */
#define STORE_LOST   "[stack trace lost]"
/*
 * One folded row: equal stacks of the selection are added up, the greatest value first, [others]
 * last. Borrowed during the call, except frames: each stays at its address until store_read
 * returns. For an event whose profiles are snapshots, only the newest one of each process in the
 * time counts, even if it is empty.
 */
struct store_row {
	const char *app_service;
	struct stack_head head; /* rows that waited for different things are different rows */
	const struct frame *const *frames;	/* root first */
	size_t n_frames;
	int64_t value;
	uint64_t n_samples;
};
struct store_summary {
	uint64_t n_rows, n_samples, n_profiles;	/* n_profiles: that may hold a match */
	int64_t first_s, last_s;		/* oldest and newest row's time; 0 when none */
	uint64_t query_ns;
	char *statement; /* the statements that ran, with ? for values; for debug; may be NULL */
	bool truncated; /* the last row is [others], a marker: no stack, no app_service */
	/* truncated: a row's value is too small by at most that, which is in [others] */
	uint64_t short_by;
	/*
	 * Over the profiles that may hold a match: the smallest share that was looked at (0: all of
	 * all), and one standard error of their sum, as struct profile has them.
	 */
	uint32_t estimate_ppm;
	uint64_t estimate_error;
	uint64_t throttled_us; /* off-cpu: that the containers of the selection were not let run */
	struct loss *losses; /* by reason, for the selection's window and scope */
	size_t n_losses;
};
void store_summary_done(struct store_summary *s);

struct store;
struct store_config {
	const char *kind;			/* "sqlite", "null" */
	const char *path;			/* directory; ":memory:" for tests */
	uint64_t retention_ns;			/* by age; 0: keep */
	uint64_t max_bytes;			/* by size; 0: no limit */
};
int store_open(const struct store_config *c, struct store **ret, struct field_error *reterr);
struct store *store_close(struct store *s);
/*
 * One transaction, or on a full disk one for each profile. Profiles whose id was stored before are
 * skipped: *ret_n_new is the number of new ones.
 */
int store_write(struct store *s, const struct batch *b, size_t *ret_n_new);
typedef int store_row_fn(const struct store_row *row, void *arg);
int store_read(struct store *s, const struct selection *sel, store_row_fn *fn, void *arg,
	       struct store_summary *ret, struct field_error *reterr);
/*
 * Distinct values of a tag within the selection, most samples first; for choices
 * on the page. For "profile_event_type" the selection's event does not count.
 */
typedef int store_value_fn(const char *value, uint64_t n_samples, void *arg);
int store_values(struct store *s, const struct selection *sel, const char *tag, size_t limit,
		 store_value_fn *fn, void *arg,
		 struct field_error *reterr);
/*
 * On the writer's worker, every minute. After 10 s it begins no further deletion; the next call
 * goes on. It deletes names that nothing refers to in one go, however long that takes.
 */
int store_expire(struct store *s, uint64_t now_wall_ns);
#define STORE_ERROR_BYTES 512
struct store_stats {
	uint64_t n_profiles, n_duplicates, n_samples, n_stacks, bytes, n_expired, oldest_ns;
	bool failed; /* the last write, or to open the file: nothing is taken */
	/* the reason; else events since the start that a user must know, or "" */
	char error[STORE_ERROR_BYTES];
};
void store_stats(struct store *s, struct store_stats *ret);
