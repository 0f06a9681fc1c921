/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store: keeps profiles and answers queries. A sink is a kind of store: sqlite (default) or null.
 * store_write runs on the writer's worker. store_read and store_choices may run on several query
 * workers at once; one more than STORE_MAX_READERS waits.
 */
#pragma once

#include "lib/base/named_duration.h"
#include "lib/profile/profile.h"

#include <stdatomic.h>

/* ---- what a query asks: the language between query/ and the sinks ---- */
enum predicate_op {
	PRED_AND, PRED_OR, PRED_NOT,		/* nodes that have children */
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
/* Whether a tag is that of the call in which a sample was taken. Few samples were. */
static inline bool store_is_tag_of_calls(const char *tag)
{
	return streq(tag, "trace_id") || streq(tag, "profile_id");
}
/* Whether single samples have the tag, or stacks: the samples of a process have several values. */
static inline bool store_is_tag_of_samples(const char *tag)
{
	return streq(tag, "time") || streq(tag, "cpu") || streq(tag, "thread") ||
	       streq(tag, "wait") || streq(tag, "sample_id") || store_is_tag_of_calls(tag) ||
	       profile_label_of_tag(tag) != _LABEL_MAX;
}
/*
 * Several tags as one, for group_by and choices: a row's value of it has those of all of them, and
 * each row has one. None of them is a tag of samples.
 */
#define STORE_MAX_JOINED 32
struct store_joined {
	const char *tag;
	const char *otherwise; /* the tag that counts for what lacks the first one; NULL: none */
};
char *store_join(const struct store_joined *items, size_t n); /* the name; the caller frees it */
bool store_is_joint(const char *tag);
/* The tags of such a name. Their names lie in *text, which the caller frees. */
size_t store_joined(const char *tag, struct store_joined ret[static STORE_MAX_JOINED], char **text);
/* The values in one of a joint tag of n tags, each owned by the caller, NULL: the row lacks it. */
int store_joined_values(const char *value, size_t n, char **ret);
/* Whether the values of this tag are names of labels: store_choices(). */
static inline bool store_is_names_of_labels(const char *tag)
{
	return streq(tag, POD_LABEL) || streq(tag, PUSHED_LABEL);
}

/*
 * Whose data a reader may see: an argument of every read. All of zero: nobody's. A reader of some
 * namespaces of a cluster is told for which reasons its nodes lost something, without numbers, and
 * does not see what has TAG_UNVERIFIED. Clusters are the hub's own and those of store_clusters().
 */
struct scope {
	bool all; /* everything of all clusters */
	bool own; /* everything of the hub's own cluster: host processes and Total, too */
	/*
	 * What of the rest: "NS", a namespace of the hub's own cluster; "CLUSTER:NS", one of
	 * another cluster; "CLUSTER:", everything of it
	 */
	char **places;
	size_t n_places;
};
extern const struct scope store_scope_all;
/* Returns at which byte of a place its namespace begins. 0: it is of the hub's own cluster. */
static inline size_t store_place_ns_at(const char *place)
{
	const char *colon = strchr(place, ':');

	return colon ? (size_t)(colon - place) + 1 : 0;
}
/* Whether a reader may see all of the hub's own cluster. */
bool store_scope_has_own(const struct scope *s);
/* Whether a reader may see a namespace of the hub's own cluster; NULL: what belongs to none. */
bool store_scope_has(const struct scope *s, const char *ns);
void store_scope_done(struct scope *s);

struct selection {
	enum event event;
	int64_t time_start_s, time_end_s;	/* both seconds are included */
	/*
	 * n_app_services 0: all processes, but not the pseudo services Total (a whole host) and
	 * Throttled (the time for which CPU limits kept containers from running)
	 */
	char **app_services;
	bool with_total; /* n_app_services 0: also Total and Throttled (for the lists of choices) */
	size_t n_app_services;
	struct predicate *where;		/* NULL: everything */
	/* only for sinks: store_read() and the others set them; clusters as store_clusters() */
	const struct scope *scope;
	char *const *clusters;
	size_t n_clusters;
	/*
	 * limit for the rows; 0: 4,000,000 (ClickHouse: 1,000,000). If there are more stacks, one
	 * more row, [others], has the sum of the rest.
	 */
	size_t max_rows;
	/*
	 * For store_read: rows of samples with different values of this tag are different rows.
	 * NULL: none. Not a tag of single samples (time, cpu, sample_id). With trace_id or
	 * profile_id, only samples that were taken in a call are read, as with a condition on them.
	 */
	const char *group_by;
	/*
	 * For store_read: samples of each of these namespaces (sorted) of the hub's own cluster are
	 * rows of their own, because the caller names their frames in another way. Borrowed.
	 * n_apart 0: none.
	 */
	char *const *apart;
	size_t n_apart;
	/*
	 * Which name a frame without one has in the answer: false: none. true: one by where its
	 * function begins, if that is known. The store reads the same rows in both cases.
	 */
	bool unnamed_by_start;
	uint64_t max_time_ns;			/* 0: 30 s; a longer query fails with -ETIME */
	/*
	 * set when the caller does not wait any more: the query then fails with -ETIME; may be NULL
	 */
	const atomic_bool *given_up;
};
struct selection *store_selection_free(struct selection *s);

/* name of the frame of the row that adds up the smallest stacks, if an answer has too many */
#define STORE_OTHERS "[others]"
/* name of the frame that stands for a stack or a frame which the file lacks */
#define STORE_LOST   "[stack trace lost]"
/*
 * One folded row: the sum of equal stacks of the selection. The greatest value comes first,
 * [others] last. The row is valid during the callback only. But each frame stays at its address
 * until store_read returns. For an event whose profiles are snapshots (of memory in use), only the
 * newest snapshot of each process in the selection's time counts, even if that one is empty. Of
 * those that end in one second, the one with the greatest id counts: of those with samples, if
 * there are any. So the answer does not depend on which came first.
 */
struct store_row {
	const char *app_service;
	/*
	 * stacks that waited for different things (head.wait) are different rows, and so are stacks
	 * with different labels
	 */
	struct stack_head head;
	const char *group;	/* with group_by: the tag's value; NULL: the tag is not there */
	const char *ns;		/* its namespace, if that is one of sel->apart: the text there */
	const char *const *labels;	/* by enum profile_label, each may be NULL; NULL: none */
	const struct frame *const *frames;	/* root first */
	size_t n_frames;
	int64_t value;
	uint64_t n_samples;
};
/*
 * What was lost for a reason, as in struct loss, in windows that overlap the selection's time: but
 * only until so long after it, so that a query does not read what is much later. An agent's windows
 * are shorter; those of other senders may not be.
 */
#define STORE_WINDOW_MAX_S 3600
static inline int64_t store_losses_until_s(const struct selection *sel)
{
	return MIN(sel->time_end_s, INT64_MAX - STORE_WINDOW_MAX_S) + STORE_WINDOW_MAX_S;
}
struct store_loss {
	char *reason;
	uint64_t n_samples, time_ns;
	/* some process of a node of the selection has lost it: the agent does not know which */
	bool of_node;
	bool hidden; /* of a node, for a reader who may not see all: the numbers are 0 */
};

/*
 * A namespace whose profiles until a second were deleted, because the store was full and the
 * namespace had more than its share.
 */
struct store_cut {
	char *cluster; /* NULL: the hub's own */
	char *ns;      /* NULL: what belongs to no namespace, or what could not be verified */
	bool unverified;
	int64_t until_s;
};
#define STORE_MAX_CUTS 100 /* in one answer */

struct store_summary {
	/* n_profiles: profiles that match, apart from the conditions on their single samples */
	uint64_t n_rows, n_samples, n_profiles;
	/* of the n_profiles profiles; a profile whose process is not known (pushed) has none */
	uint64_t n_processes;
	int64_t first_s, last_s;		/* oldest and newest row's time; 0 when none */
	uint64_t query_ns;
	/* the first SQL statement that ran, with ? for values; for debugging; may be NULL */
	char *statement;
	uint64_t n_unverified; /* how many of n_profiles have TAG_UNVERIFIED */
	bool truncated; /* the last row is [others]: one marker frame, no app_service */
	/*
	 * if truncated: a row's value may be too small by at most this; the missing part is in
	 * [others]
	 */
	uint64_t short_by;
	/*
	 * Over the n_profiles profiles: the smallest estimate_ppm of struct profile, which is the
	 * share that was measured (0: everything was measured), and one standard error of the sum.
	 */
	uint32_t estimate_ppm;
	uint64_t estimate_error;
	/* off-cpu: for how long CPU limits kept the containers of the selection from running */
	uint64_t throttled_us;
	/* what was lost in the time and the scope of the selection, by reason */
	struct store_loss *losses;
	size_t n_losses;
	/* those whose profiles may be missing in the selection's time, the latest first */
	struct store_cut *cuts;
	size_t n_cuts;
};
void store_summary_done(struct store_summary *s);

#define STORE_MAX_READERS 17 /* queries that read at once */
struct store;
struct store_config {
	const char *kind;			/* "sqlite", "clickhouse", "null" */
	const char *path;			/* directory; ":memory:" for tests */
	uint64_t retention_ns;			/* profiles older than this are deleted; 0: none */
	/*
	 * if the file is larger than this, the oldest profiles of the namespaces that have more
	 * than their share are deleted; 0: no limit
	 */
	uint64_t max_bytes;
	/*
	 * Other clusters than the hub's own. The store remembers them, so that their profiles never
	 * become the hub's own. A name that the hub's own cluster has, or had, is refused.
	 */
	const char *const *clusters;
	size_t n_clusters;
	const char *own_cluster; /* NULL or "": it has no name */
	/*
	 * ClickHouse: "http[s]://HOST:PORT[/PATH]"; http only to this machine, or with plain_http
	 */
	const char *url;
	bool plain_http;
	/* NULL or "": the CAs of the system; ClickHouse's user default; no password */
	const char *ca_file, *user, *password_file;
	const char *database; /* NULL: "profile" */
	/*
	 * Of ClickHouse, as its configuration has them; NULL or "": none. cluster: the tables are
	 * replicated and lie on all shards of this cluster.
	 */
	const char *cluster, *storage_policy;
	/*
	 * Instead of retention_ns; 0: for ever. That of a namespace (of any cluster) beats that of
	 * an event, but not for what could not be verified.
	 */
	const struct named_duration *event_retention, *ns_retention;
	size_t n_event_retention, n_ns_retention;
};
int store_open(const struct store_config *c, struct store **ret, struct field_error *reterr);
/*
 * Makes the tables of a store that several hubs share, and gives them what the configuration says
 * of them, as store_open() does. It may run again, and while hubs write. Calls print for each
 * statement that ran; with dry_run for each that would run, and runs none: also if the database
 * cannot be reached, then as for one without tables. Prints nothing if nothing has to run, and for
 * other kinds of stores.
 */
typedef void store_print_fn(const char *line, void *arg);
int store_migrate(const struct store_config *c, bool dry_run, store_print_fn *print, void *arg,
		  struct field_error *reterr);
struct store *store_close(struct store *s);
/*
 * Writes the batch in one transaction, or on a full disk in one for each profile. Skips profiles
 * whose id is stored already. *ret_n_new is the number of new ones.
 */
int store_write(struct store *s, const struct batch *b, size_t *ret_n_new);
/*
 * How a store likes to be written to: batches together, once so many bytes of them wait (decoded,
 * about), or so much time after the last write. bytes 0: each batch by itself.
 */
struct store_pace {
	size_t bytes;
	uint64_t ns;
};
struct store_pace store_pace(const struct store *s);
/* Of a store with a pace: as store_write() of all together. After an error, some may be stored. */
int store_write_all(struct store *s, const struct batch *const *batches, size_t n);
typedef int store_row_fn(const struct store_row *row, void *arg);
int store_read(struct store *s, const struct scope *scope, const struct selection *sel,
	       store_row_fn *fn, void *arg, struct store_summary *ret, struct field_error *reterr);
/*
 * The value of a selection over time, by a tag. Step i is of the seconds from start_s + i * step_s
 * on; the last one may be shorter. A window counts in the step in which it ends. For an event whose
 * profiles are snapshots, a step has the newest snapshot of each process at the step's end, if that
 * one is less than STORE_SNAPSHOT_S (or a step, if that is longer) old.
 */
#define STORE_SNAPSHOT_S 90	/* the longest window, and its way to the hub */
#define STORE_MAX_STEPS	 2000	/* in one answer; more are refused */
#define STORE_MAX_STARTS 1000	/* of processes, in one answer; the oldest ones */
/*
 * As group_by: each process by itself (one that changes its name or tags is several). Users have no
 * such tag, and its values say nothing.
 */
#define STORE_TAG_PROCESS "process"
struct series_request {
	const struct selection *sel;
	uint32_t step_s;
	const char *group_by;		/* a tag; NULL: all in one group */
	size_t limit;			/* of groups; those with the smallest sums are added up */
};
struct series_group {
	char *value;			/* of the tag; NULL: what does not have the tag */
	int64_t *values;		/* one for each step */
};
struct series_loss {
	char *reason;
	uint64_t *n_samples, *time_ns;	/* one for each step */
};
struct store_series {
	size_t n_steps;
	struct series_group *groups;	/* the one with the greatest sum first */
	size_t n_groups;
	int64_t *others;		/* the sum of the other groups; NULL: there are none */
	/* there was no memory for all groups: one of the others may be greater than some here */
	bool cut_groups;
	struct series_loss *losses;
	size_t n_losses;
	int64_t *starts;		/* when processes of the selection began, in s; ascending */
	size_t n_starts;
	bool more_starts;		/* not all are in `starts` */
};
int store_series(struct store *s, const struct scope *scope, const struct series_request *r,
		 struct store_series *ret, struct field_error *reterr);
void store_series_done(struct store_series *s);
/*
 * The values of a tag within a selection, which the page offers as choices. For the tag
 * "profile_event_type" the selection's event is ignored. A value has as many samples as the rows of
 * store_read() with it: of snapshots only the newest one of each process counts. The values of
 * POD_LABEL are the names of the labels that the pods have, those of PUSHED_LABEL the names of the
 * labels of pushed profiles.
 */
struct store_choice {
	const char *tag;
	const struct selection *sel;
	/*
	 * Of the values; 0: only whether the tag has one. Then fn is called once if it has, and
	 * what fn gets as value and samples says nothing. A store reads less for that. Not for
	 * events, and names of labels.
	 */
	size_t limit;
};
/*
 * Calls fn for each value of the first choice, the value with most samples first, then for those of
 * the next choice, and so on. They are read in one transaction, with the deadline of the first one.
 * Choices of the same time take little longer together than one alone. n is at least 1.
 */
typedef int store_choice_fn(const struct store_choice *c, const char *value, uint64_t n_samples,
			    void *arg);
int store_choices(struct store *s, const struct scope *scope, const struct store_choice *choices,
		  size_t n, store_choice_fn *fn, void *arg, struct field_error *reterr);
/*
 * The other clusters of this start and of earlier ones, sorted. The texts stay until the store is
 * closed; while ClickHouse was never there, earlier ones are not known.
 */
char *const *store_clusters(const struct store *s, size_t *ret_n);
/*
 * Calls fn for each namespace that has verified profiles, in the order of their names (also for
 * some whose profiles were just deleted): as a place of struct scope. Only for a caller that asks
 * which of them a reader may see.
 */
typedef void store_namespace_fn(const char *ns, void *arg);
int store_namespaces(struct store *s, const atomic_bool *given_up, store_namespace_fn *fn,
		     void *arg, struct field_error *reterr);
/*
 * Calls fn for each namespace (and what belongs to none, or could not be verified) of which the
 * store has data that the reader may see, in the order of their places. oldest_s, newest_s: nothing
 * of it from before and after these seconds is stored. The texts of `of` are valid only while fn
 * runs; its until_s is 0 if none of its profiles were deleted because the store was full.
 */
typedef void store_oldest_fn(const struct store_cut *of, int64_t oldest_s, int64_t newest_s,
			     void *arg);
int store_oldest(struct store *s, const struct scope *scope, const atomic_bool *given_up,
		 store_oldest_fn *fn, void *arg, struct field_error *reterr);
/*
 * Calls fn for the pods that have profiles since this second, perhaps several times for a pod, but
 * not for those that could not be verified. The strings are valid only while fn runs.
 */
struct store_pod {
	const char *cluster, *ns, *name, *uid, *node; /* cluster may be NULL */
};
typedef void store_pod_fn(const struct store_pod *p, void *arg);
int store_pods(struct store *s, int64_t since_s, store_pod_fn *fn, void *arg,
	       struct field_error *reterr);
/*
 * Runs on the writer's worker, every minute. After 10 s it begins no further deletion; the next
 * call continues. It deletes all names that nothing refers to in one transaction, however long that
 * takes. It logs its errors.
 */
int store_expire(struct store *s, uint64_t now_wall_ns);
/*
 * For a store that several hubs share, of which only the one that leads deletes profiles: the store
 * asks term(arg), on any thread, before each deletion. It returns 0 if this hub does not lead at
 * this moment, else a number of its lead. What store_expire() began under one number does not go on
 * under another. Called at most once, before store_expire(); if never, this hub is the only one.
 */
void store_set_lead(struct store *s, uint64_t (*term)(void *arg), void *arg);
#define STORE_ERROR_BYTES 512
struct store_stats {
	uint64_t n_profiles, n_duplicates, n_samples, n_stacks, bytes, n_expired, oldest_ns;
	/* the last write failed, or the file cannot be opened: the store takes no profiles */
	bool failed;
	/* why it failed; else events since the start that a user must know of, or "" */
	char error[STORE_ERROR_BYTES];
};
void store_stats(struct store *s, struct store_stats *ret);

/*
 * ---- a store as a whole ----
 * For a process of its own. A hub may use the store at c->path or from->path meanwhile: nothing
 * in it is changed. On failure *reterr says why. Only stores of kind "sqlite".
 */
/* How much is done: pages of the file. */
typedef void store_progress_fn(uint64_t n_done, uint64_t n, void *arg);
/*
 * Writes a copy of the store's file, as it is when the copy begins, into the directory `to`. When
 * it returns 0, the copy was checked and is on the disk. On failure, a part of it may be in `to`.
 * fn may be NULL.
 */
int store_backup(const struct store_config *c, const char *to, store_progress_fn *fn, void *arg,
		 struct field_error *reterr);
struct store_copied {
	uint64_t n_profiles; /* in the store when the copy began */
	uint64_t n_done, n_new; /* new: those that the other store did not have */
	int64_t until_s; /* the profiles until then are copied */
	/* whole: what the other store cannot have, and what belonged to no profile */
	uint64_t n_left_out;
	bool whole; /* the copy has ended */
};
typedef void store_copied_fn(const struct store_copied *c, void *arg);
/*
 * Copies all that a store has into another one, in the order of time, and calls fn after each
 * batch and at the end. If it ends before the end, the next call skips what is copied already.
 */
int store_copy(const struct store_config *from, const struct store_config *to, store_copied_fn *fn,
	       void *arg, struct field_error *reterr);
/*
 * Notes that profiles were deleted, in a store that has what is left of them. On the thread that
 * writes. -EOPNOTSUPP: a sink without cuts.
 */
int store_put_cut(struct store *s, const struct store_cut *cut);
