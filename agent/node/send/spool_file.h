/* SPDX-License-Identifier: Apache-2.0 */
/* What a file of the spool holds: a line that says what follows and its checksum, then the body. */
#pragma once

#include "lib/otlp/otlp.h"

#define SPOOL_HEADER_MAX 64 /* bytes before the body, at most */

/* The whole file or, on failure, the one that was there. */
int send_spool_file_write(const char *path, bool loss_only, const struct buf *body);
/* -EBADMSG: not what send_spool_file_write wrote. */
int send_spool_file_read(const char *path, struct buf *ret_body);
