/* SPDX-License-Identifier: Apache-2.0 */
/* For tests only: makes a directory for a test, and removes it with its contents. */
#pragma once

#include "lib/base/base.h"

#include <ftw.h>
#include <stdlib.h>

#define TESTDIR_BYTES 64

/* Makes a directory and writes its path into dir. Returns 0 or -errno. */
static inline int testdir_make(char dir[TESTDIR_BYTES])
{
	snprintf(dir, TESTDIR_BYTES, "/tmp/podflame-test-XXXXXX");
	return mkdtemp(dir) ? 0 : -errno;
}

static inline int testdir_remove_entry_(const char *path, const struct stat *st, int type,
					struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

/* Removes the directory. Returns not 0 if something is left. Follows no links. */
static inline int testdir_remove(const char *dir)
{
	return nftw(dir, testdir_remove_entry_, 8, FTW_DEPTH | FTW_PHYS);
}
