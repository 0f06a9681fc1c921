/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the process that a user names with --pid. */
#include "cli/cli.h"

#include "lib/base/base.h"

#include <fcntl.h>
#include <inttypes.h>

uint32_t cli_process_of(uint32_t pid)
{
	_cleanup_free_ char *path = xasprintf("/proc/%" PRIu32 "/status", pid), *text = NULL;
	const char *line;
	uint32_t tgid;

	if (file_read(AT_FDCWD, path, 65536, &text, NULL) < 0)
		return 0;
	line = strstr(text, "\nTgid:");
	return line && sscanf(line, "\nTgid: %" SCNu32, &tgid) == 1 ? tgid : 0;
}
