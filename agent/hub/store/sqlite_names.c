/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The strings, frames and stacks that a connection has read. They stay for its next query, because
 * reading them is a third of the work for a flame graph. A row of a dictionary never changes. But
 * the writer deletes rows, and SQLite gives a new row the id above the greatest one. If the row
 * with the greatest id was deleted, a new row may get its id, so the connection forgets what it
 * has.
 */
#include "hub/store/sqlite.h"

#include <stdlib.h>

/* what all connections together keep between queries */
#define KEEP_BYTES (32u << 20)
/* memory that a string or a frame needs besides its own bytes: for malloc and for the map */
#define WORD_BYTES 48

struct kept_string {
	uint64_t query; /* the number of the last query that used it */
	size_t bytes;	/* its memory */
	char text[];
};
struct kept_frame {
	uint64_t query;
	struct frame frame; /* its strings are the texts of kept strings */
};
struct kept_stack {
	uint64_t query;
	size_t bytes;
	struct stack_head head; /* as those of frames */
	const char **labels;	/* by enum profile_label, behind the frames; NULL: there are none */
	size_t n;
	const struct frame *frames[]; /* of kept frames, or `lost` */
};

static const struct frame lost = {.kind = FRAME_MARKER, .name = STORE_LOST};
static const struct frame *const lost_frames[] = {&lost};

static void forget(struct names *n)
{
	store_id_map_free(&n->strings);
	store_id_map_free(&n->frames);
	store_id_map_free(&n->stacks);
	n->bytes = 0;
}

/* ---- a query ---- */

static int prepare_one(sqlite3 *db, const char *sql, sqlite3_stmt **st)
{
	if (*st)
		return 0;
	return store_sq_errno(sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, st, NULL));
}

static int prepare(struct names *n, sqlite3 *db)
{
	int r = prepare_one(db, "SELECT s FROM strings WHERE id=?", &n->get_string);

	if (!r)
		r = prepare_one(db,
				"SELECT name, module, build_id, address, file, line, kind, inlined "
				"FROM frames WHERE id=?",
				&n->get_frame);
	if (!r)
		r = prepare_one(db,
				"SELECT process, thread, main, frames, wait, labels FROM stacks "
				"WHERE id=?",
				&n->get_stack);
	if (!r)
		r = prepare_one(db,
				"SELECT (SELECT s FROM strings WHERE id=key), value FROM tags "
				"WHERE tagset=?",
				&n->get_labels);
	return r;
}

int store_names_begin(struct names *n, const struct query *q)
{
	int r = prepare(n, q->db);

	/* from this first row on, the transaction sees one state of the file */
	if (!r)
		r = store_sq_exec(q->db, "SELECT 1 FROM meta LIMIT 1");
	if (r)
		return r;
	/*
	 * The writer counts such a deletion before it commits it and after it. So if the count is
	 * that of the names, they are of this state. What the query adds may be older than the
	 * deletions that were counted since it began, so it keeps the count of that time.
	 */
	if (n->n_reused != atomic_load(&q->s->n_reused))
		forget(n);
	n->n_reused = q->n_reused;
	n->query++;
	n->query_bytes = 0;
	n->error = 0;
	return 0;
}

void store_names_end(struct names *n, struct sqlite_store *s)
{
	/* what could not be read stands in stacks as lost; the next query may be able to read it */
	if (n->error)
		forget(n);
	atomic_fetch_sub(&s->kept_bytes, n->kept_bytes);
	n->kept_bytes = n->bytes;
	if (atomic_fetch_add(&s->kept_bytes, n->bytes) + n->bytes <= KEEP_BYTES)
		return;
	atomic_fetch_sub(&s->kept_bytes, n->bytes);
	n->kept_bytes = 0;
	forget(n);
}

void store_names_done(struct names *n, struct sqlite_store *s)
{
	forget(n);
	store_names_end(n, s);
	sqlite3_finalize(n->get_string);
	sqlite3_finalize(n->get_frame);
	sqlite3_finalize(n->get_stack);
	sqlite3_finalize(n->get_labels);
	*n = (struct names){0};
}

/* ---- strings, frames, stacks ---- */

/* Counts the memory of an item once in a query. */
static void use(struct names *n, uint64_t *query, size_t bytes)
{
	n->query_bytes += *query == n->query ? 0 : bytes;
	*query = n->query;
}

static void use_string(struct names *n, const char *text)
{
	struct kept_string *s;

	if (!text)
		return;
	s = (struct kept_string *)(text - offsetof(struct kept_string, text));
	use(n, &s->query, s->bytes);
}

static bool has_next_row(struct names *n, sqlite3_stmt *st)
{
	int rc = sqlite3_step(st);

	if (store_sq_errno(rc) && !n->error)
		n->error = store_sq_errno(rc);
	return rc == SQLITE_ROW;
}

/* Runs the statement for this id. Returns whether it has a row. */
static bool has_row(struct names *n, sqlite3_stmt *st, int64_t id)
{
	sqlite3_bind_int64(st, 1, id);
	return has_next_row(n, st);
}

static struct kept_string *read_string(struct names *n, int64_t id)
{
	struct kept_string *x = NULL;

	if (has_row(n, n->get_string, id)) {
		const char *text = (const char *)sqlite3_column_text(n->get_string, 0) ?: "";
		size_t len = strlen(text) + 1;

		x = xmalloc(sizeof(*x) + len);
		*x = (struct kept_string){.bytes = sizeof(*x) + len + WORD_BYTES};
		memcpy(x->text, text, len);
		store_id_map_put(&n->strings, id, x);
		n->bytes += x->bytes;
	}
	sqlite3_reset(n->get_string);
	return x;
}

const char *store_names_string(struct names *n, int64_t id)
{
	struct kept_string *x = id > 0 ? store_id_map_get(&n->strings, id) : NULL;

	if (!x && id > 0)
		x = read_string(n, id);
	if (!x)
		return NULL;
	use(n, &x->query, x->bytes);
	return x->text;
}

static struct kept_frame *read_frame(struct names *n, int64_t id)
{
	sqlite3_stmt *st = n->get_frame;
	struct kept_frame *x = NULL;

	if (has_row(n, st, id)) {
		int kind = sqlite3_column_int(st, 6);

		x = xcalloc(1, sizeof(*x));
		x->frame = (struct frame){
			.name = store_names_string(n, sqlite3_column_int64(st, 0)),
			.module = store_names_string(n, sqlite3_column_int64(st, 1)),
			.build_id = store_names_string(n, sqlite3_column_int64(st, 2)),
			.address = (uint64_t)sqlite3_column_int64(st, 3),
			.file = store_names_string(n, sqlite3_column_int64(st, 4)),
			.kind = kind >= 0 && kind < _FRAME_KIND_MAX ? (enum frame_kind)kind
								    : FRAME_APP,
			.inlined = sqlite3_column_int(st, 7),
		};
		profile_frame_set_stored_line(&x->frame, (uint32_t)sqlite3_column_int64(st, 5));
		store_id_map_put(&n->frames, id, x);
		n->bytes += sizeof(*x) + WORD_BYTES;
	}
	sqlite3_reset(st);
	return x;
}

static void use_frame(struct names *n, struct kept_frame *x)
{
	if (x->query == n->query)
		return;
	use(n, &x->query, sizeof(*x) + WORD_BYTES);
	use_string(n, x->frame.name);
	use_string(n, x->frame.module);
	use_string(n, x->frame.build_id);
	use_string(n, x->frame.file);
}

static const struct frame *frame_of(struct names *n, int64_t id)
{
	struct kept_frame *x = id > 0 ? store_id_map_get(&n->frames, id) : NULL;

	if (!x && id > 0)
		x = read_frame(n, id);
	if (!x)
		return &lost;
	use_frame(n, x);
	return &x->frame;
}

/* Reads the labels of a set of tags. Returns how many there are. */
static size_t read_labels(struct names *n, int64_t tagset, const char *ret[static _LABEL_MAX])
{
	sqlite3_stmt *st = n->get_labels;
	size_t n_labels = 0;

	for (enum profile_label l = 0; l < _LABEL_MAX; l++)
		ret[l] = NULL;
	if (!tagset)
		return 0;
	for (bool row = has_row(n, st, tagset); row; row = has_next_row(n, st)) {
		const char *tag = (const char *)sqlite3_column_text(st, 0);
		enum profile_label l = tag ? profile_label_of_tag(tag) : _LABEL_MAX;

		if (l == _LABEL_MAX)
			continue;
		ret[l] = store_names_string(n, sqlite3_column_int64(st, 1));
		n_labels += ret[l] != NULL;
	}
	sqlite3_reset(st);
	return n_labels;
}

/*
 * Makes a stack of the row that st is at. If the head has no process or thread name, the file has
 * "" or no string. Such a name is no level in the graph.
 */
static struct kept_stack *stack_of_row(struct names *n, sqlite3_stmt *st)
{
	const struct frame *frames[STACK_MAX_FRAMES];
	const char *labels[_LABEL_MAX];
	size_t label_bytes =
		read_labels(n, sqlite3_column_int64(st, 5), labels) ? sizeof(labels) : 0;
	const uint8_t *p = sqlite3_column_blob(st, 3);
	const uint8_t *end = p + sqlite3_column_bytes(st, 3);
	int wait = sqlite3_column_int(st, 4);
	struct kept_stack *x;
	size_t n_frames = 0, bytes;
	uint64_t id;

	while (n_frames < STACK_MAX_FRAMES && store_varint_get(&p, end, &id))
		frames[n_frames++] = frame_of(n, (int64_t)id);
	bytes = sizeof(*x) + n_frames * sizeof(*frames) + label_bytes;
	x = xmalloc(bytes);
	*x = (struct kept_stack){
		.bytes = bytes + WORD_BYTES,
		.head = {.process_comm = store_names_string(n, sqlite3_column_int64(st, 0)),
			 .thread_comm = store_names_string(n, sqlite3_column_int64(st, 1)),
			 .main_thread = sqlite3_column_int(st, 2),
			 .wait = wait >= 0 && wait < _WAIT_MAX ? (enum wait)wait : WAIT_OTHER},
		.n = n_frames,
	};
	memcpy(x->frames, frames, n_frames * sizeof(*frames));
	if (label_bytes) {
		x->labels = (const char **)(x->frames + n_frames);
		memcpy(x->labels, labels, label_bytes);
	}
	return x;
}

static struct kept_stack *read_stack(struct names *n, int64_t id)
{
	struct kept_stack *x = NULL;

	if (has_row(n, n->get_stack, id)) {
		x = stack_of_row(n, n->get_stack);
		store_id_map_put(&n->stacks, id, x);
		n->bytes += x->bytes;
	}
	sqlite3_reset(n->get_stack);
	return x;
}

static void use_stack(struct names *n, struct kept_stack *x)
{
	if (x->query == n->query)
		return;
	use(n, &x->query, x->bytes);
	use_string(n, x->head.process_comm);
	use_string(n, x->head.thread_comm);
	for (enum profile_label l = 0; x->labels && l < _LABEL_MAX; l++)
		use_string(n, x->labels[l]);
	for (size_t i = 0; i < x->n; i++)
		if (x->frames[i] != &lost)
			use_frame(n, (struct kept_frame *)((char *)x->frames[i] -
							   offsetof(struct kept_frame, frame)));
}

int store_names_stack(struct names *n, int64_t id, struct store_row *row)
{
	struct kept_stack *x = store_id_map_get(&n->stacks, id);

	if (!x)
		x = read_stack(n, id);
	if (n->error)
		return n->error;
	if (!x) {
		row->frames = lost_frames;
		row->n_frames = 1;
		return 0;
	}
	use_stack(n, x);
	row->head = x->head;
	row->labels = x->labels;
	row->frames = x->frames;
	row->n_frames = x->n;
	return 0;
}
