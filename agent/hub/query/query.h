/* SPDX-License-Identifier: Apache-2.0 */
/*
 * query: DeepFlow's ProfileTracing API as pure functions: request JSON -> selection, tag_filter
 * text -> predicate tree, rows of the store -> tree -> reply. The parsers do no I/O. Contract:
 * docs/api.md.
 */
#pragma once

#include "hub/store/store.h"

/*
 * Parses tag_filter. On an error, reterr->path is "tag_filter:POSITION" (byte, from 1). NULL or ""
 * gives *ret = NULL. A tag that DeepFlow knows but podflame does not store stays in the tree, and
 * compares like a tag that no row has.
 */
#define FILTER_MAX_BYTES      65536
#define FILTER_MAX_DEPTH      32	/* levels of nesting; SQLite's parser can read about 40 */
#define FILTER_MAX_VALUE      4096	/* bytes of one value */
/* limited, because the time in which SQLite compiles conditions is quadratic in their number */
#define FILTER_MAX_CONDITIONS 500
/* each value is bound three times, and SQLite allows 30000 bound parameters */
#define FILTER_MAX_VALUES     8000
#define FILTER_MAX_REGEXPS    50	/* regular expressions; each needs up to 64 KiB of memory */
int query_filter_parse(const char *text, struct predicate **ret, struct field_error *reterr);
/*
 * Returns the filter without its conditions on the tag, if all of them must hold: a choice of
 * values offers the others, too. Takes ownership of p. NULL: nothing is left.
 */
struct predicate *query_filter_without(struct predicate *p, const char *tag);

/* Names of namespaces. */
struct query_names {
	char **names;
	size_t n, cap;
};
void query_names_add(struct query_names *n, const char *name);
void query_names_sort(struct query_names *n); /* and keeps each once */
bool query_names_has(const struct query_names *n, const char *name); /* they are sorted */
void query_names_done(struct query_names *n);
/* The namespaces to which the condition limits its rows, sorted. Returns false if it does not. */
bool query_names_of(const struct predicate *p, struct query_names *ret);
/*
 * The namespaces that the selections of a body name, sorted: rows of others cannot match. Returns
 * false, and no names, if a selection does not name any, or if the body is wrong.
 */
bool query_names_of_body(const char *body, size_t n, struct query_names *ret);

enum result_format { RESULT_LIST, RESULT_FLAT };
struct tracing_request {
	struct selection *selection;
	enum result_format format;
	bool debug;
	int max_kernel_stack_depth;	/* -1: all */
	char *app_service;		/* app_service of the request; "" if absent */
	/* rdma: tag_filter names no operation, so the selection is of the send queue only */
	bool send_queue_only;
	char **notes;			/* texts for summary.notes, such as why no row can match */
	size_t n_notes;
	const char *scope_note; /* one more: what its user may not see; NULL: none; borrowed */
	struct buf_budget *budget; /* of the memory of the reply; NULL: none; borrowed */
};
#define QUERY_MAX_BODY_BYTES (1u << 20)
/*
 * Parses the body of POST /v1/profile/ProfileTracing. Errors use DeepFlow's text if DeepFlow has
 * the same error.
 */
int query_tracing_parse(const char *body, size_t n, struct tracing_request *ret,
		  struct field_error *reterr);
void query_tracing_request_done(struct tracing_request *r);
/* Adds a note for summary.notes, if it is not there yet. */
void query_note_add(struct tracing_request *r, const char *text);
/*
 * Adds the list of notes as JSON: those of the request, and own and deleted, unless they are "" or
 * NULL.
 */
void query_notes_put(struct buf *b, const struct tracing_request *r, const char *own,
		     const char *deleted);
/*
 * The body of POST /v1/profile/values: a selection like that of ProfileTracing, and the tag whose
 * values are wanted.
 */
struct values_request {
	struct tracing_request tracing;
	char *tag;			/* canonical name */
	bool stored;			/* false: podflame stores no values of this tag */
	size_t limit;
};
int query_values_parse(const char *body, size_t n, struct values_request *ret,
		 struct field_error *reterr);
void query_values_request_done(struct values_request *v);
/*
 * The body of POST /v1/profile/choices: a selection, and the tags whose values are wanted, each
 * under the selection without the conditions on that tag.
 */
#define QUERY_MAX_CHOICES 64 /* tags in one request */
struct choices_request {
	struct values_request *tags;
	size_t n_tags;
};
int query_choices_parse(const char *body, size_t n, struct choices_request *ret,
			struct field_error *reterr);
void query_choices_request_done(struct choices_request *c);

/* The body of POST /v1/profile/series: a selection, the step, and the tag to group by. */
#define QUERY_MAX_GROUPS 1000 /* groups that a request may ask for */
struct series_query {
	struct tracing_request tracing;
	char *group_by;			/* canonical name; NULL: one group */
	uint32_t step_s;
	size_t limit;
};
/*
 * The shortest step of a round length, in seconds, of which at most `most` cover so much time; at
 * most INT32_MAX.
 */
uint32_t query_round_step(uint64_t all_s, uint32_t most);
int query_series_parse(const char *body, size_t n, struct series_query *ret,
		       struct field_error *reterr);
void query_series_done(struct series_query *q);
/* The answer to it. The caller frees it. */
char *query_series_reply(const struct series_query *q, const struct store_series *s,
			 size_t *ret_n);

/* The body of POST /v1/profile/tree. */
struct tree_query {
	struct tracing_request tracing;
	struct tracing_request before;	/* selection NULL: none */
	char *group_by;			/* canonical name; NULL: none */
	bool by_line, preview;
	size_t max_nodes;
};
int query_tree_parse(const char *body, size_t n, struct tree_query *ret,
		     struct field_error *reterr);
void query_tree_query_done(struct tree_query *q);
/* The body of POST /v1/profile/groups: which values of a tag have a profile, or a function. */
struct groups_query {
	struct tree_query tree;		/* grouped */
	char *function, *kind;		/* NULL: the whole profile; functions of all kinds */
	size_t limit;
};
int query_groups_parse(const char *body, size_t n, struct groups_query *ret,
		       struct field_error *reterr);
void query_groups_done(struct groups_query *q);

/*
 * Makes a reply of rows. The caller adds the row with the greatest value first. Once the tree has
 * as many nodes as it may, a row counts only for the nodes that exist already, and the rest of its
 * stack is left out. So the smallest leaves are missing, the totals stay right, and the reply
 * reports that some are missing.
 */
#define QUERY_MAX_NODES	    200000  /* nodes of a reply in one of DeepFlow's forms */
#define QUERY_MAX_COLUMNS   1000000 /* nodes of a reply as columns */
#define QUERY_MAX_REPLY_BYTES (256u << 20) /* bytes of one reply */
struct tree;
/* What a node of the tree is. */
struct tree_form {
	/*
	 * false: nodes with the same text are the same, as in DeepFlow. true: nodes are the same if
	 * their functions have the same name, kind and module; the reply is one of columns.
	 */
	bool columns;
	bool by_line;	  /* with columns: and the same file and line */
	bool grouped;	  /* with columns: the first level is the row's group */
	bool by_process;  /* with columns: a thread has the level of its process above it */
	bool preview;	  /* with columns, of one selection: a preview may be asked for */
	bool only_frames; /* a stack that has frames has no level of its process or thread */
	size_t max_nodes;
};
struct tree *query_tree_new(const struct tree_form *form);
extern const struct tree_form query_deepflow_form;
/* The rows from now on belong to the selection before, with which the first one is compared. */
void query_tree_before(struct tree *t);
struct tree *query_tree_free(struct tree *t);
/*
 * The memory of the tree counts in the budget, roughly. If that has no more, query_tree_add() fails
 * with -E2BIG. The caller gives back query_tree_bytes() when it has freed the tree.
 */
void query_tree_set_budget(struct tree *t, struct buf_budget *b);
size_t query_tree_bytes(const struct tree *t); /* that it has from its budget */
/*
 * Called for each frame without a name, with its row's ns. Returns the number of frames that
 * replace it, and sets *ret to them, outermost first. They must stay valid as long as rows are
 * added. If it returns 0, the frame stays. fn NULL: all frames stay.
 */
typedef size_t tree_names_fn(const struct frame *f, const char *ns, void *arg,
			     const struct frame **ret);
void query_tree_set_names(struct tree *t, tree_names_fn *fn, void *arg);
/*
 * The frames and the names of row must stay at their addresses as long as rows of its selection are
 * added. -E2BIG: the budget has no room for more.
 */
int query_tree_add(struct tree *t, const struct store_row *row, int max_kernel_stack_depth);
/*
 * Makes the reply {"OPT_STATUS","DESCRIPTION","result","debug", + podflame's own keys
 * "unit","summary"}. The caller frees it.
 */
char *query_tracing_reply(struct tree *t, const struct tracing_request *r,
		    const struct store_summary *s,
		    int *ret_http, size_t *ret_n);
/*
 * The reply to POST /v1/profile/tree, as columns; docs/api.md describes it. before: the summary of
 * the selection before; NULL: there is none. preview: only of the nodes that have a width in a
 * picture; it ends with a newline, and no reply for the whole was made before it.
 */
char *query_columns_reply(struct tree *t, const struct tree_query *q,
			  const struct store_summary *s, const struct store_summary *before,
			  bool preview, int *ret_http, size_t *ret_n);
/* Whether a preview is worth it: the tree's form allows one, and the whole would take long. */
bool query_columns_has_preview(const struct tree *t);
/* The reply to POST /v1/profile/groups, of a tree with columns and groups. */
char *query_groups_reply(struct tree *t, const struct groups_query *q,
			 const struct store_summary *s, size_t *ret_n);
/* The name of a level_kind or frame_kind in replies: "app", "process", ... */
const char *query_level_name(uint8_t level);
/* ---- the nodes of a tree, for formats of others: tree_nodes.c ---- */

struct query_node {
	const char *name;		/* NULL: the root; borrowed from the tree */
	uint32_t function;		/* nodes of the same name have the same number */
	uint32_t depth;			/* of the root: 0 */
	uint32_t n_children;
	int64_t self, total;		/* total is self and the totals of the children */
	int64_t before_self, before_total;
};
/* A parent, then what is below it; the child with the greatest total first. The root is first. */
struct query_nodes {
	struct query_node *items;
	size_t n, cap;
	uint32_t n_functions;		/* the numbers of functions are less */
	size_t n_counted;		/* bytes that the budget has given */
};
#define QUERY_OTHER "other" /* the leaf that has the rest of its parent */
/*
 * Which nodes: of the stacks that begin with the names of call_site, those whose total reaches the
 * max_nodes-th greatest one. The rest of each node is one leaf, QUERY_OTHER. It also stands for
 * what the tree had no room for, and for stacks without levels. Nodes without any value are left
 * out.
 */
struct query_cut {
	size_t max_nodes;
	const char *const *call_site; /* outermost first */
	size_t n_call_site;
};
/*
 * The tree must have no columns. Its root is there in any case; if no stack begins with the call
 * site, alone. -E2BIG: the budget has no room; the caller frees *ret all the same.
 */
int query_nodes_of(struct tree *t, const struct query_cut *c, struct buf_budget *b,
		   struct query_nodes *ret);
void query_nodes_done(struct query_nodes *n);

/* status is for example "INVALID_POST_DATA" or "FAIL". *ret_http is the HTTP status for it. */
char *query_tracing_error(const char *status, const char *description,
			  const struct tracing_request *r,
		    int *ret_http, size_t *ret_n);
/*
 * The reply to a request that query_tracing_parse refused. As in DeepFlow, the HTTP status is 400,
 * but 500 for an error in tag_filter.
 */
char *query_tracing_refused(const struct field_error *err, int *ret_http, size_t *ret_n);

/* ---- a selection as a file ---- */
/*
 * The formats of files. To add one, write a function that writes it, and add a row here: the paths
 * of the API, /v1/info (from which the page makes its menu), the formats of `podflame query` and
 * the files of `podflame record` come from this table.
 *
 * X(NAME, name, ending, content type, flags, title, about)
 *
 *	NAME		enum file_format has FILE_NAME, formats.c has writer_NAME
 *	name		the end of its path, and its name in --format
 *	ending		of the names of such files, without the first dot
 *	flags		FILE_IS_*
 *	title, about	what it is called on the page, and what it is for
 */
#define QUERY_FILES_PATH "/v1/profile/"
enum file_flags {
	FILE_IS_GZIP = 1, /* the file is compressed with gzip */
};
#define QUERY_FILE_FORMATS(X)                                                                      \
	X(FOLDED, "folded", "folded.txt", "text/plain; charset=utf-8", 0, "Folded stacks",         \
	  "for flamegraph.pl: a line for each stack")                                              \
	X(PPROF, "pprof", "pb.gz", "application/octet-stream", FILE_IS_GZIP, "pprof",              \
	  "for go tool pprof")                                                                     \
	X(SPEEDSCOPE, "speedscope", "speedscope.json", "application/json", 0, "speedscope",        \
	  "for speedscope.app")                                                                    \
	X(OTLP, "otlp", "otlp", "application/x-protobuf", 0, "OTLP",                               \
	  "for the OpenTelemetry Collector: ProfilesData")
enum file_format {
#define X(NAME, ...) FILE_##NAME,
	QUERY_FILE_FORMATS(X)
#undef X
	_FILE_FORMAT_MAX
};
struct file_format_info {
	const char *name, *path, *ending, *content_type;
	unsigned flags;
	const char *title, *about;
	profile_writer_fn *writer; /* without compression */
};
const struct file_format_info *query_file_format(enum file_format f);
int query_file_format_from_name(const char *name, enum file_format *ret);

/* The request for a file: a selection, and the tags whose values are in the file. */
#define QUERY_MAX_FILE_TAGS 8
struct file_query {
	struct tracing_request tracing;
	char *tags[QUERY_MAX_FILE_TAGS]; /* canonical names, in the order of the request */
	size_t n_tags;
	/* what the store groups its rows by: one of the tags, or a joint one; NULL: none */
	char *group_by;
};
/*
 * group_by of the body: a tag, or several with commas between. A tag of single samples or calls is
 * refused beside others.
 */
int query_file_parse(const char *body, size_t n, struct file_query *ret,
		     struct field_error *reterr);
void query_file_query_done(struct file_query *q);
/*
 * What a reader of the file must know of it: what was lost, estimated or left out, and the notes of
 * the request. Returns the number of texts. The caller frees them and the list.
 */
size_t query_file_notes(const struct tracing_request *r, const struct store_summary *s,
			char ***ret);

struct query_file;
#define QUERY_MAX_FILE_BYTES (512u << 20) /* of the names and stacks of a file, in memory */
/* sel and arg must stay valid. names as in query_tree_set_names(); NULL: frames stay. */
struct query_file *query_file_new(const struct selection *sel, tree_names_fn *names, void *arg);
struct query_file *query_file_free(struct query_file *f);
/* Samples get those of these tags that are labels of them. */
void query_file_set_tags(struct query_file *f, const char *const *tags, size_t n);
/*
 * The memory of the rows counts in the budget, roughly, and what writing needs in the budget of the
 * buffer. The caller gives it back after query_file_free().
 */
void query_file_set_budget(struct query_file *f, struct buf_budget *b);
/* Only stacks that begin with these names are in the file: as in struct query_cut. Borrowed. */
void query_file_set_call_site(struct query_file *f, const char *const *names, size_t n);
/*
 * A store_row_fn; arg is a struct query_file. -E2BIG: the file would be too large, or its budget
 * has no room for more.
 */
int query_file_add(const struct store_row *row, void *arg);
/* What the file is made of; valid until query_file_free(). */
const struct batch *query_file_batch(const struct query_file *f);

/*
 * The parameters of a GET as the body of a POST: "time_start=1&tag_filter=pod%3D'x'". Returns NULL
 * with *reterr if they are no selection. The caller frees the text.
 */
char *query_parameters(const char *text, struct field_error *reterr);

/* The tags of tag_filter: the name, whether podflame stores the tag, and how its values compare. */
struct tag_info {
	const char *name;
	const char *canonical;		/* NULL: name is canonical; else name is an alias of this */
	/* false: only DeepFlow knows the tag, so it matches nothing here */
	bool stored;
	bool numeric;
	const char *help;
	/*
	 * For a tag that only some events have: event_mask has the bit 1 << enum event of each such
	 * event, and title is the tag's name on the page, which offers such a tag as a choice. For
	 * other tags: 0 and NULL.
	 */
	unsigned event_mask;
	const char *title;
	char *(*values)(void);		/* all values that it can have, as text; NULL: too many */
};
/* Returns the tag with this name, which may be k8s.label.X; NULL: no such tag. */
const struct tag_info *query_tag_lookup(const char *name);
const struct tag_info *query_tag_table(size_t *ret_n);
/* Returns the help of the tag and, if it has few values, all of them. The caller frees the text. */
char *query_tag_help(const struct tag_info *t);
/*
 * Returns a text that says which values of the tag a query covers if its filter does not name the
 * tag; NULL: all values. The page shows the text as a choice.
 */
const char *query_tag_unset(const struct tag_info *t);
/*
 * Restricts a selection of the event rdma to requests for the send queue, unless its filter names
 * the operation. Returns whether it did. See send_queue.c.
 */
bool query_send_queue_only(struct selection *s);
/* Returns the tag's name in the store. */
const char *query_tag_canonical(const struct tag_info *t, const char *name);
/*
 * Whether samples can be grouped by the tag of this name in the store: single samples have values
 * of the others. Values over time cannot be grouped by calls.
 */
bool query_tag_can_group(const char *canonical, bool over_time);
/* Returns the known name that is most similar; NULL: no name is similar. */
const char *query_tag_suggest(const char *name);
