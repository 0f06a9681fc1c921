// SPDX-License-Identifier: Apache-2.0
/*
 * install DIRECTORY: copies libpodflame-cuda.so from the image's root into a directory. It is the
 * program of the init container that brings the library into a pod (docs/gpu.md). The image has no
 * shell and no libc, so the program is linked statically. If the directory has the library already,
 * the new one takes its place at once: a program that has the old one keeps it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "libpodflame-cuda.so"
#define PART "." NAME ".part"

static int fail(const char *what)
{
	fprintf(stderr, "install: %s: %s\n", what, strerror(errno));
	return 1;
}

/* Copies all of `from` to `to`. Returns 0 or -1, with errno set. */
static int copy(int from, int to)
{
	ssize_t n;

	do
		n = sendfile(to, from, NULL, 1 << 20);
	while (n > 0 || (n < 0 && errno == EINTR));
	return n < 0 || fchmod(to, 0755) || close(to) ? -1 : 0;
}

int main(int argc, char **argv)
{
	int from = open("/" NAME, O_RDONLY | O_CLOEXEC), to;

	if (argc != 2) {
		fputs("usage: install DIRECTORY\n", stderr);
		return 2;
	}
	if (from < 0)
		return fail("/" NAME);
	if (chdir(argv[1]))
		return fail(argv[1]);
	to = open(PART, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0755);
	if (to < 0 || copy(from, to) || rename(PART, NAME))
		return fail(argv[1]);
	return 0;
}
