/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to store/: what sqlite_export.c reads of a file, apart from the profiles themselves.
 */
#pragma once

#include "hub/store/sqlite.h"

/*
 * ---- sqlite_export_words.c: the dictionaries. Each row is read once per batch, because the writer
 * may delete a row between two transactions and give its id to another one.
 */

struct export_stack {
	uint32_t index; /* in the batch's stacks; STACK_NONE: it has no frames */
	const char *process, *thread;
	bool main_thread;
	enum wait wait;
	const struct profile_labels *labels;
};
struct export_series {
	const char *app;
	uint32_t pid;
	int64_t start_ms, first_s;
	struct tag *tags;
	size_t n_tags;
};

enum export_statement {
	EX_STRING,
	EX_FRAME,
	EX_STACK,
	EX_TAGSET,
	EX_SERIES,
	_EX_MAX,
};
struct export_words {
	sqlite3_stmt *st[_EX_MAX];
	struct batch *batch; /* all texts, frames and stacks are interned in it */
	struct id_map strings, frames, stacks, series; /* what is in the batch, by row id */
	int error;				       /* the first one, as -errno; 0: none */
};
int store_export_words_open(struct export_words *w, sqlite3 *db);
void store_export_words_done(struct export_words *w); /* before the connection is closed */
/* From now on, rows are read for this batch. */
void store_export_words_begin(struct export_words *w, struct batch *b);
/*
 * A row as it is in the batch, valid as long as that. A stack or a frame that the file lacks is the
 * marker STORE_LOST. NULL: it cannot be read (w->error), or there is no such string or series.
 */
const char *store_export_string(struct export_words *w, int64_t id);
const struct export_stack *store_export_stack(struct export_words *w, int64_t id);
const struct export_series *store_export_series(struct export_words *w, int64_t id);

/* ---- sqlite_export_moment.c: what the profiles of a second have in other tables ---- */

/*
 * Where such a row belongs: to the profiles of an event and a series in that second, mostly one. A
 * call belongs to one of their stacks; stack 0: others.
 */
struct moment_key {
	int64_t event, series, stack;
};
struct moment_call {
	struct moment_key key;
	int64_t cpu, value, n; /* value, n: what no sample has yet */
	struct profile_link link;
	bool used;
};
struct moment {
	int64_t time_s; /* -1: none */
	sqlite3_stmt *get_calls, *get_losses, *get_estimates;
	/* sorted by key */
	struct moment_call *calls;
	struct moment_loss *losses;
	struct moment_estimate *estimates;
	size_t n_calls, cap_calls, n_losses, cap_losses, n_estimates, cap_estimates;
	/* rows of all seconds so far that no profile has taken */
	uint64_t n_left_out;
};
int store_moment_open(struct moment *m, sqlite3 *db);
void store_moment_done(struct moment *m); /* before the connection is closed */
int store_moment_read(struct moment *m, int64_t time_s);
/* Forgets the second, and counts what is left of it. */
void store_moment_end(struct moment *m);
/* The calls of a stack. */
struct moment_call *store_moment_calls(struct moment *m, const struct moment_key *key,
				       size_t *ret_n);
/*
 * Gives the profile the losses of one window: those that begin with the first that no profile has.
 * Returns when it began; -1: there are none.
 */
int64_t store_moment_losses(struct moment *m, const struct moment_key *key, struct batch *b,
			    struct profile *p);
void store_moment_estimate(struct moment *m, const struct moment_key *key, struct profile *p);
