/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that comes from no allocator. The program maps it, uses 2 MiB more each second up to 192
 * MiB, unmaps all of it, and begins again. The probes of mem-alloc do not see this memory.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define MIB	 (1u << 20)
#define MAX_MIB	 192
#define PAUSE_NS 500000000

int main(void)
{
	struct timespec pause = {0, PAUSE_NS};

	for (;;) {
		char *m = mmap(NULL, MAX_MIB * (size_t)MIB, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (m == MAP_FAILED)
			return EXIT_FAILURE;
		for (size_t i = 0; i < MAX_MIB; i++) {
			memset(m + i * MIB, 1, MIB);
			nanosleep(&pause, NULL);
		}
		munmap(m, MAX_MIB * (size_t)MIB);
	}
}
