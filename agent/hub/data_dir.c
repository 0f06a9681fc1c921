/* SPDX-License-Identifier: Apache-2.0 */
/* The lock on data_dir: only one process writes a store there. */
#include "hub/data_dir.h"

#include <fcntl.h>
#include <unistd.h>

int hub_data_dir_lock(const char *dir, int *ret_fd, struct field_error *reterr)
{
	_cleanup_free_ char *path = xasprintf("%s/lock", dir);
	/*
	 * a POSIX lock: the kernel releases it when the process ends, even if children still have
	 * the file open
	 */
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	_cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0)
		return field_error_set(reterr, "data_dir", "%s: %s", path, strerror(errno));
	if (fcntl(fd, F_SETLK, &lock) < 0)
		return field_error_set(reterr, "data_dir", "%s: another podflame uses it", dir);
	*ret_fd = TAKE_FD(fd);
	return 0;
}
