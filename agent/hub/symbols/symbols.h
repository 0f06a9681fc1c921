/* SPDX-License-Identifier: Apache-2.0 */
/*
 * symbols: keeps uploaded symbol files by build id, and names frames that agents could not name. A
 * file is of one namespace, and then it names frames of that namespace only, or it is of all
 * namespaces. For each build id, every namespace may have a file of its own.
 *
 * A file is an index of lib/symbols. An uploader may be wrong or hostile, so every bound is checked
 * before a file is stored, and again when it is opened. All functions wait for the disk. Any thread
 * that may wait can call them. ns is the namespace of a file; NULL: all namespaces.
 */
#pragma once

#include "hub/store/uploads.h"
#include "lib/profile/profile.h"
#include "lib/symbols/symbols.h"

#define SYMBOLS_UPLOAD_BYTES STORE_UPLOAD_BYTES	     /* limit of an upload, compressed */
#define SYMBOLS_FILE_BYTES   STORE_UPLOAD_FILE_BYTES /* limit of an uncompressed file */

struct symbols;
struct symbols_config {
	const char *dir; /* the directory; made if it does not exist */
	/*
	 * Limit for all files together, uncompressed; a file counts at least 4 KiB. Those of a
	 * namespace may take half of what the others leave.
	 */
	uint64_t max_bytes;
	/*
	 * NULL: the directory has the files. Else the store has them, for all hubs, and the
	 * directory is a cache of up to max_bytes. What another hub has uploaded is seen within
	 * 10 s.
	 */
	struct store *store;
};
int symbols_open(const struct symbols_config *c, struct symbols **ret, struct field_error *reterr);
struct symbols *symbols_close(struct symbols *s);
/*
 * Copies the files of a directory, which a hub may be using, into another one, which no hub uses.
 * Files that are there already stay as they are. *ret_n: how many were copied.
 */
int symbols_copy(const char *from, const char *to, size_t *ret_n, struct field_error *reterr);
/*
 * Uploads the files of a directory, which a hub may be using, unless `to` has a file of that name.
 * Logs which files are damaged or too large, and goes on. If it ends before the end, the next call
 * continues.
 */
int symbols_copy_into(const char *from, struct symbols *to, size_t *ret_n,
		      struct field_error *reterr);
/* Returns 0, or -EINVAL if build_id is no build id. */
int symbols_check_build_id(const char *build_id, struct field_error *reterr);
/* Returns 0, or -EINVAL if ns is no name that Kubernetes allows for a namespace. */
int symbols_check_namespace(const char *ns, struct field_error *reterr);
/*
 * Stores a zstd-compressed index under its build id (hex, lower case) and replaces an older one of
 * the same namespace. Errors: -EINVAL (not a build id, not a namespace), -EBADMSG (not an index, or
 * of another build id), -E2BIG (over the limit of one file), -ENOSPC (over the limit of all files
 * or of the namespace's, or the disk is full), -EAGAIN (the store does not answer: try again).
 * *reterr explains the error.
 */
int symbols_put(struct symbols *s, const char *ns, const char *build_id, const void *data, size_t n,
		struct field_error *reterr);
/* Tries again to remove an upload that was refused after it was stored. For once a minute. */
void symbols_retry(struct symbols *s);
/* -ENOENT: no such file; -EAGAIN */
int symbols_delete(struct symbols *s, const char *ns, const char *build_id);
/*
 * Returns [{"build_id", "namespace" (null: all), "bytes", "uploaded" (Unix seconds)}], sorted by
 * build id and then by namespace; all namespaces come first.
 */
json_t *symbols_list(struct symbols *s);
bool symbols_any(struct symbols *s);
/* The namespaces that have files of their own, sorted. The caller frees the list and the names. */
char **symbols_namespaces(struct symbols *s, size_t *ret_n);
/*
 * Returns a new reference to an index, which it may have to read from the store first. -ENOENT: no
 * such file, -EBADMSG: the file was damaged after the upload, -EAGAIN; -ETIME: the wait has ended.
 * w: NULL: there is no limit but that of the store.
 */
int symbols_index(struct symbols *s, const char *ns, const char *build_id,
		  const struct store_wait *w, struct elf_index **ret);
struct demangler *symbols_demangler(struct symbols *s); /* borrowed */
/*
 * The time that the demangling of a file's names has taken, in all queries together. symbols_cost
 * returns a new reference, which stays valid after the file is deleted. NULL: no such file.
 */
struct symbols_cost {
	struct name_cost names; /* argument of elf_demangler_text */
	unsigned refs;		/* private to symbols/ */
};
struct symbols_cost *symbols_cost(struct symbols *s, const char *ns, const char *build_id);
void symbols_cost_unref(struct symbols *s, struct symbols_cost *c);

/* ---- names.c: the names that one query needs ---- */
struct symbols_names;
struct symbols_names *symbols_names_new(struct symbols *s);
struct symbols_names *symbols_names_free(struct symbols_names *n);
/*
 * How long symbols_name() waits for files of the store, for all of them together. Frames of files
 * for which there was no time stay without a name. w is copied. Without it there is no limit.
 */
void symbols_names_wait(struct symbols_names *n, const struct store_wait *w);
/*
 * Frames that have no name otherwise get one by where their function begins, if that is known and
 * these names have room.
 */
void symbols_names_by_start(struct symbols_names *n);
/*
 * Which files could not be read, and why, as a text for the user: their frames have no names, or
 * those of the file of all namespaces. It also says if names by where functions begin
 * had no room. The caller frees it. NULL: neither.
 */
char *symbols_names_unread(const struct symbols_names *n);
/*
 * The namespaces that had files of their own when n was made, sorted. A query must tell frames of
 * these apart from those of others. They are valid until n is freed.
 */
char *const *symbols_names_namespaces(const struct symbols_names *n, size_t *ret_n);
/*
 * For a frame without a name: finds the function at its address and the functions inlined there,
 * outermost first. Returns how many they are; 0: not known. After symbols_names_by_start(), what no
 * file names is one function where its start is known. Only then is the start of (*ret)[0] not 0.
 *
 * A file of the frame's namespace is used rather than one of all namespaces. ns is one of
 * symbols_names_namespaces(), the same pointer; NULL: the frame is of none of them. arg is a struct
 * symbols_names. It stores the answer by the address of *f, so *f must stay valid until arg is
 * freed. *ret is valid until then, too.
 */
size_t symbols_name(const struct frame *f, const char *ns, void *arg, const struct frame **ret);
