/* SPDX-License-Identifier: Apache-2.0 */
/* Private to symbols/: one uploaded file on the disk. */
#pragma once

#include "hub/symbols/symbols.h"

#include <sys/stat.h>

#define SYMBOLS_SUFFIX	  ".pfindex"
#define SYMBOLS_TEMPORARY ".upload-" /* what the name of a file begins with until it is whole */

/*
 * The name of a file without its suffix: BUILD_ID or NAMESPACE.BUILD_ID; neither part has a dot. A
 * hub that does not know files of namespaces takes no notice of them. The caller frees it.
 */
char *symbols_file_stem(const char *ns, const char *build_id);
/* Whether it is such a name. *ret_build_id points into it. *ret_ns (NULL: all) the caller frees. */
bool symbols_file_split(const char *stem, char **ret_ns, const char **ret_build_id);
/* Removes what a hub that was killed has left in the directory. */
void symbols_file_clean(const char *dir);
/* When a file was written or used last: Unix, ns. */
static inline uint64_t symbols_file_time(const struct stat *st)
{
	return (uint64_t)st->st_mtim.tv_sec * NSEC_PER_SEC + (uint64_t)st->st_mtim.tv_nsec;
}
/* What a file counts towards a limit: a smaller one takes a block of disk, and memory. */
static inline uint64_t symbols_file_counted(uint64_t bytes)
{
	return MAX(bytes, UINT64_C(4096));
}
/* Maps the file and checks every bound in it. -EBADMSG: it is no index. */
int symbols_file_open(int fd, struct elf_index **ret);
/* Writes an upload to the file, decompressed, and checks that it is an index of this build id. */
int symbols_file_receive(int fd, const char *build_id, const void *data, size_t n,
			 uint64_t *ret_bytes, struct field_error *reterr);
/* Writes into *reterr why a file could not be written. Returns r. */
int symbols_file_explain(int r, struct field_error *reterr);
