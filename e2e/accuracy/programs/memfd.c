/* SPDX-License-Identifier: Apache-2.0 */
/* memfd: runs from a file in memory, which no directory has. */
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include "burn.h"

extern char **environ;

static ALONE void first(uint64_t n)
{
	SPIN(n);
}

static ALONE void second(uint64_t n)
{
	SPIN(n);
}

static int run_from_memfd(char **argv)
{
	int from = open("/proc/self/exe", O_RDONLY), to = memfd_create("nowhere", MFD_CLOEXEC);
	char *again[] = {argv[0], argv[1], argv[2], (char *)"again", NULL};
	struct stat st;

	if (fstat(from, &st) || sendfile(to, from, NULL, (size_t)st.st_size) != st.st_size)
		return 4;
	fexecve(to, again, environ);
	return 5;
}

int main(int argc, char **argv)
{
	struct share shares[] = {{"first", 0}, {"second", 0}};

	if (argc == 3)
		return run_from_memfd(argv);
	burn_begin(argv);
	while (burn_more())
		if (burn_random(10) < 7)
			BURN(shares[0], first(burn_steps()));
		else
			BURN(shares[1], second(burn_steps()));
	return burn_end(shares, 2);
}
