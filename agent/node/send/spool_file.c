/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and reads one file of the spool: see spool_file.h. */
#include "node/send/spool_file.h"

#include <fcntl.h>
#include <zlib.h>

/* the kind, and the CRC-32 and size of the body */
#define HEADER	       "podflame-spool 1 %c %08lx %zu\n"
#define FILE_MAX_BYTES (2 * (size_t)OTLP_MAX_BYTES) /* bytes of a file; a larger one is damaged */

int send_spool_file_write(const char *path, bool loss_only, const struct buf *body)
{
	_cleanup_buf_ struct buf file = {0};
	unsigned long crc = crc32(0, (const Bytef *)body->data, (uInt)body->len);

	buf_printf(&file, HEADER, loss_only ? 'L' : 'P', crc, body->len);
	buf_add(&file, body->data, body->len);
	return file.failed ? -E2BIG : file_write_atomic(path, file.data, file.len, 0600);
}

int send_spool_file_read(const char *path, struct buf *ret_body)
{
	_cleanup_free_ char *data = NULL;
	char header[SPOOL_HEADER_MAX];
	unsigned long crc;
	size_t n, line, body;
	int r = file_read(AT_FDCWD, path, FILE_MAX_BYTES, &data, &n);

	if (r < 0)
		return r == -E2BIG ? -EBADMSG : r;
	line = strcspn(data, "\n") + 1;
	if (line > n || line >= sizeof(header))
		return -EBADMSG;
	body = n - line;
	crc = crc32(0, (const Bytef *)data + line, (uInt)body);
	snprintf(header, sizeof(header), HEADER, data[line > 17 ? 17 : 0], crc, body);
	if (strncmp(data, header, line) != 0)
		return -EBADMSG;
	return buf_add(ret_body, data + line, body);
}
