/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The format of a file of the spool: a line with the kind, the checksum and the size of the body,
 * then the body. Runs on the worker send_config.disk.
 */
#pragma once

#include "lib/otlp/otlp.h"

#define SPOOL_HEADER_MAX 64 /* bytes before the body of a file */

/*
 * Writes a file. If there is one already, replaces it in one step. If this fails or the agent is
 * killed, the old file is unchanged.
 */
int send_spool_file_write(const char *path, bool loss_only, const struct buf *body);
/* -EBADMSG: the file is damaged. */
int send_spool_file_read(const char *path, struct buf *ret_body);
