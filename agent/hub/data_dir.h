/* SPDX-License-Identifier: Apache-2.0 */
/* Private to hub: the lock on data_dir. */
#pragma once

#include "lib/base/base.h"

/*
 * Locks data_dir for this process, so that only one hub writes there. The lock ends when *ret_fd
 * is closed.
 */
int hub_data_dir_lock(const char *dir, int *ret_fd, struct field_error *reterr);
