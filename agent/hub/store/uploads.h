/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store: symbol files that users have uploaded, in a store that several hubs share. An upload is
 * what the user has sent. Of several uploads of one file the newest one is the file. An upload is
 * there once it is whole.
 *
 * Any thread that may wait. Errors: -EAGAIN: the database does not answer, or refuses (try again);
 * -ENOSPC: its disk is full. What is read of the database may be anything, because others may write
 * there, too.
 */
#pragma once

#include "hub/store/store.h"

#define STORE_UPLOAD_BYTES	(64u << 20)  /* limit of an upload, compressed */
#define STORE_UPLOAD_FILE_BYTES (256u << 20) /* limit of its file, uncompressed */
#define STORE_MAX_UPLOADS	(1u << 18)   /* in the list; there must not be more */

/* How long a caller waits. */
struct store_wait {
	uint64_t deadline_ns;	     /* CLOCK_MONOTONIC */
	const atomic_bool *given_up; /* set when the caller does not wait any more; may be NULL */
};
static inline bool store_wait_ended(const struct store_wait *w)
{
	return now_mono_ns() >= w->deadline_ns || (w->given_up && atomic_load(w->given_up));
}

/* A name that is too long is cut, but not so much that it becomes a right one. */
struct store_upload {
	char ns[72]; /* "": the file is of all namespaces */
	char build_id[136];
	uint64_t id;	  /* random; no other upload has it */
	uint64_t version; /* the time of the upload (Unix, ns), and more than that of older ones */
	uint64_t bytes;	  /* of the file; packed: of the upload */
	uint64_t packed;
	uint8_t sha256[32]; /* of the upload */
};

/* Whether all hubs of the store share its uploads. If not, a hub keeps them elsewhere. */
bool store_shares_uploads(const struct store *s);
/* Calls fn for each upload; of one file, newer ones come first. */
typedef void store_upload_fn(const struct store_upload *u, void *arg);
int store_uploads(struct store *s, store_upload_fn *fn, void *arg, struct field_error *reterr);
/* Keeps an upload. Sets its id, packed and sha256; the caller has set the rest. */
int store_upload_put(struct store *s, struct store_upload *u, const void *data, size_t n,
		     struct field_error *reterr);
/*
 * Reads an upload into `data`, which has room for u->packed bytes. -ENOENT: a part of it is not
 * there, or all of it; -EBADMSG: it is not what was uploaded. -EAGAIN, too: the wait has ended.
 */
int store_upload_get(struct store *s, const struct store_upload *u, const struct store_wait *w,
		     void *data, struct field_error *reterr);
/* Deletes an upload; older: and all older ones of the same file. */
int store_upload_delete(struct store *s, const struct store_upload *u, bool older,
			struct field_error *reterr);
