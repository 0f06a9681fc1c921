/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mappings: maps the program's own file as executable 4,000 times more. Runs code now in the
 * copies, now in its usual mapping.
 */
#include <elf.h>
#include <link.h>
#include <sys/mman.h>

#include "burn.h"

#define COPIES 4000

static char *copies[COPIES];

/* Runs in a copy, where only the code is: it has no data and calls nothing. */
__attribute__((noinline, section(".text.copied"), aligned(64))) uint64_t copied(uint64_t n)
{
	uint64_t x = n | 1;

	for (; n; n--)
		x = x * 6364136223846793005ull + 1;
	return x;
}

static ALONE void in_place(uint64_t n)
{
	SPIN(n);
}

static ALONE void in_copy(uint64_t n)
{
	uint64_t (*f)(uint64_t) = (uint64_t(*)(uint64_t))copies[burn_random(COPIES)];

	burn_sink = f(n);
}

/* Maps the copies with free pages between them: the kernel would join neighbours. */
static int map_copies(void)
{
	extern const ElfW(Ehdr) __ehdr_start;
	uintptr_t offset =
		(uintptr_t)copied - (uintptr_t)&__ehdr_start; /* the file offset is the same */
	char *area = (char *)mmap(NULL, COPIES * 2 * 8192ul, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
				  -1, 0);
	int fd = open("/proc/self/exe", O_RDONLY);

	for (int i = 0; i < COPIES; i++) {
		char *at = area + (size_t)i * 2 * 8192;

		if (mmap(at, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd,
			 (off_t)(offset & ~4095ul)) == MAP_FAILED)
			return -1;
		copies[i] = at + (offset & 4095);
	}
	return close(fd);
}

int main(int argc, char **argv)
{
	struct share shares[] = {{"in_copy", 0}, {"in_place", 0}};

	(void)argc;
	if (map_copies())
		return 4;
	burn_begin(argv);
	while (burn_more())
		if (burn_random(10) < 6)
			BURN(shares[0], in_copy(burn_steps()));
		else
			BURN(shares[1], in_place(burn_steps()));
	return burn_end(shares, 2);
}
