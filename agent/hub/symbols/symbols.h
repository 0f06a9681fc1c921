/* SPDX-License-Identifier: Apache-2.0 */
/*
 * symbols: uploaded symbol files, stored by build id, and the names that they give to frames that a
 * node could not name. A file is an index of lib/symbols. An uploader may be wrong or hostile:
 * every bound is checked before the file is stored, and again when it is opened. All functions wait
 * for the disk; any thread that may wait can call them.
 */
#pragma once

#include "lib/profile/profile.h"
#include "lib/symbols/symbols.h"

#define SYMBOLS_UPLOAD_BYTES (64u << 20)  /* compressed, at most */
#define SYMBOLS_FILE_BYTES   (256u << 20) /* inflated, at most */

struct symbols;
struct symbols_config {
	const char *dir;		/* made when it is not there */
	uint64_t max_bytes;		/* of all files, inflated */
};
int symbols_open(const struct symbols_config *c, struct symbols **ret, struct field_error *reterr);
struct symbols *symbols_close(struct symbols *s);
/* -EINVAL: it is none */
int symbols_check_build_id(const char *build_id, struct field_error *reterr);
/*
 * Keeps a zstd-compressed index under its build id (hex, lower case), instead of an older one.
 * -EINVAL (no build id), -EBADMSG (no index, or of another build id), -E2BIG (one file's limit),
 * -ENOSPC (the limit of all, or the disk's); *reterr says it for people.
 */
int symbols_put(struct symbols *s, const char *build_id, const void *data, size_t n,
		struct field_error *reterr);
int symbols_delete(struct symbols *s, const char *build_id);	/* -ENOENT */
/* [{"build_id", "bytes", "uploaded" (Unix seconds)}], by build id. */
json_t *symbols_list(struct symbols *s);
bool symbols_any(struct symbols *s);
/* A new reference; -ENOENT: there is none, -EBADMSG: it was damaged since. */
int symbols_index(struct symbols *s, const char *build_id, struct elf_index **ret);
struct demangler *symbols_demangler(struct symbols *s);	/* borrowed */
/*
 * The cost of the names of a file, in all queries together: a new reference, which outlives the
 * file. NULL: there is no such file.
 */
struct symbols_cost {
	struct name_cost names;		/* for elf_demangler_text */
	unsigned refs;			/* private */
};
struct symbols_cost *symbols_cost(struct symbols *s, const char *build_id);
void symbols_cost_unref(struct symbols *s, struct symbols_cost *c);

/* ---- names.c: of one query ---- */
struct symbols_names;
struct symbols_names *symbols_names_new(struct symbols *s);
struct symbols_names *symbols_names_free(struct symbols_names *n);
/*
 * For a frame without a name: the function that it is in and the functions inlined there, root
 * first; 0: not known. The answer is remembered by f's address: f must outlive arg, the struct
 * symbols_names, and the answer lives as long as that.
 */
size_t symbols_name(const struct frame *f, void *arg, const struct frame **ret);
