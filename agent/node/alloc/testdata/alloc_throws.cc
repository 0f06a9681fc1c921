// SPDX-License-Identifier: Apache-2.0
/*
 * Asks operator new for more than it may have: by its size, and by a limit of its own. Catches what is thrown, in a
 * child, too.
 */
#include <cstdio>
#include <new>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static bool throws(std::size_t n)
{
	try {
		::operator new(n);
	} catch (const std::bad_alloc &) {
		return true;
	}
	return false;
}

int main()
{
	int status = 0;
	struct rlimit limit = {512u << 20, 512u << 20};

	std::puts("ready");
	std::fflush(stdout);
	std::getchar();
	setrlimit(RLIMIT_AS, &limit);
	for (int i = 0; i < 100; i++)
		if (!throws(std::size_t(1) << 40) || !throws(std::size_t(768) << 20))
			return 1;
	if (fork() == 0)
		_exit(!throws(std::size_t(1) << 40));
	if (wait(&status) < 0 || status)
		return 1;
	std::puts("done");
	std::fflush(stdout);
	std::getchar();
	return 0;
}
