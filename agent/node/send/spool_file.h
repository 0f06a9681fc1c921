/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The format of a file of the spool: a line with the kind, checksum and size of the body, then the
 * body. os worker.
 */
#pragma once

#include "lib/otlp/otlp.h"

#define SPOOL_HEADER_MAX 64 /* bytes before the body, at most */

/* Replaces the file at once: on failure or after a kill the old one is there, whole. */
int send_spool_file_write(const char *path, bool loss_only, const struct buf *body);
/* -EBADMSG: the file is not as send_spool_file_write() wrote it. */
int send_spool_file_read(const char *path, struct buf *ret_body);
