/* SPDX-License-Identifier: Apache-2.0 */
/* Private to symbols/: the table of the files that are kept. */
#pragma once

#include "hub/symbols/backend.h"

#include <pthread.h>
#include <uthash.h>

struct kept_upload {
	char *stem; /* the key: symbols_file_stem() */
	struct store_upload u;
	uint64_t round;		 /* symbols.round when it was last listed */
	struct elf_index *index; /* NULL: not open */
	struct symbols_cost *cost;
	uint64_t used;	   /* symbols.turn when the file was last used */
	int trouble;	   /* why it could not be opened */
	uint64_t again_ns; /* CLOCK_MONOTONIC; until then it is not tried again */
	UT_hash_handle hh;
};

/* A namespace that has files of its own. */
struct kept_namespace {
	char *ns;
	size_t n_files;
	uint64_t bytes; /* as they count: symbols_counted() */
	UT_hash_handle hh;
};

struct symbols {
	const struct symbols_backend *backend;
	void *kept; /* the backend's */
	char *dir;
	uint64_t max_bytes;
	struct demangler *demangler;
	pthread_mutex_t changing; /* one upload or deletion at a time; taken before the others */
	/* that was refused, but could not be removed yet; id 0: none. `changing` protects it */
	struct store_upload unwanted;
	pthread_mutex_t listing; /* protects listed_ns, list_failed, n_refused; taken before lock */
	uint64_t listed_ns;	 /* CLOCK_MONOTONIC, when the list was last asked for; 0: never */
	bool list_failed;
	size_t n_refused;
	pthread_mutex_t lock; /* protects the members below */
	struct kept_upload *files;
	struct kept_namespace *namespaces;
	uint64_t bytes, turn, round;
	unsigned n_open;
};

/* As symbols_open(), over any backend. Closes `kept` with it, also after an error. */
int symbols_open_over(const struct symbols_config *c, const struct symbols_backend *backend,
		      void *kept, struct symbols **ret, struct field_error *reterr);
/* Lists anew, if another hub may have changed the files. */
int symbols_list_now(struct symbols *s, struct field_error *reterr);
/* As symbols_put(). version: of the upload, unless there is one already (-EEXIST). 0: it is new. */
int symbols_put_as(struct symbols *s, const char *ns, const char *build_id, uint64_t version,
		   const void *data, size_t n, struct field_error *reterr);

/* ---- the caller of these holds s->lock ---- */
/* NULL: nobody has uploaded it. */
struct kept_upload *symbols_find(const struct symbols *s, const char *ns, const char *build_id);
/* What a file counts towards the limit of all: else there could be any number of small ones. */
uint64_t symbols_counted(const struct symbols *s, uint64_t bytes);
/* Puts an upload into the table, in place of the one of its name. */
void symbols_take(struct symbols *s, const struct store_upload *u);
void symbols_forget(struct symbols *s, struct kept_upload *k);
