/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: `dir`, a directory of this program. cmocka's set-up makes it and its tear-down
 * removes it.
 */
#pragma once

#include "lib/base/testdir.h"

static char dir[TESTDIR_BYTES];

static inline int dir_make(void **state)
{
	(void)state;
	return testdir_make(dir);
}

static inline int dir_remove(void **state)
{
	(void)state;
	return testdir_remove(dir);
}

/* Returns the path of a file in dir. The caller frees it. */
static inline char *file_in_dir(const char *name)
{
	return xasprintf("%s/%s", dir, name);
}
