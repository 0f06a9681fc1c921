/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to symbols/: where the uploaded files are kept. Either a directory of this hub has them
 * (local.c), or the store that all hubs share (shared.c); then the directory is a cache.
 *
 * Any thread may call these functions at any time, but only one at a time calls put or remove, and
 * one calls list. The first argument is what an open function has made.
 */
#pragma once

#include "hub/store/uploads.h"
#include "hub/symbols/file.h"

/* A file that was received: checked, and whole. */
struct symbols_received {
	const char *temporary; /* its path, in the directory */
	const void *data;      /* the upload, as it came */
	size_t n;
};

struct symbols_backend {
	/* How long a list is good. 0: for ever, because only this hub changes it. */
	uint64_t list_ns;
	/* Calls fn for each upload; of one file, newer ones come first. */
	int (*list)(void *b, store_upload_fn *fn, void *arg, struct field_error *reterr);
	/*
	 * Keeps a file, in place of older ones of its name. Sets what of *u only it knows. It may
	 * take the temporary file, or leave it.
	 */
	int (*put)(void *b, struct store_upload *u, const struct symbols_received *file,
		   struct field_error *reterr);
	/* Removes an upload; older: and all older ones of its name. */
	int (*remove)(void *b, const struct store_upload *u, bool older);
	/*
	 * Opens a file of the list. -ENOENT: it is not there, or not all of it; -EBADMSG: it is not
	 * what was uploaded; -ETIME: the wait has ended. Other errors are of the moment.
	 */
	int (*open)(void *b, const struct store_upload *u, const struct store_wait *w,
		    struct elf_index **ret);
	void (*close)(void *b);
};
extern const struct symbols_backend symbols_local, symbols_shared;

int symbols_local_open(const char *dir, void **ret, struct field_error *reterr);
/* max_bytes: of the cache */
int symbols_shared_open(struct store *s, const char *dir, uint64_t max_bytes, void **ret,
			struct field_error *reterr);
