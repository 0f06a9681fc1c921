/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures a large file, from a request to its last byte: its size, the CPU time of hub and client
 * together, and by how much the memory of both is greater meanwhile. The client keeps nothing. The
 * stacks are deep and have few functions, so the text is far larger than what it is made of.
 */
#include "hub/api/benchhub.h"
#include "hub/api/teststacks.h"

#include <fcntl.h>
#include <unistd.h>

#define T0	 1700000000
#define N_STACKS 15000
#define DEPTH	 100
#define N_NAMES	 150 /* functions of each level */
#define ROUNDS	 3

static void name_of(unsigned stack, unsigned frame, char ret[static TEST_NAME_BYTES])
{
	const unsigned key[] = {stack, frame};

	snprintf(ret, TEST_NAME_BYTES, "a::name::of::%0187llu",
		 (unsigned long long)hash_bytes(key, sizeof(key), 1) % N_NAMES);
}

static void fill(struct store *s)
{
	const struct test_stacks stacks = {.n = N_STACKS, .depth = DEPTH, .name = name_of};
	int r = test_stacks_write(s, T0 * NSEC_PER_SEC, &stacks);

	if (r)
		bench_die("the store", -r);
}

/* ---- memory ---- */

/* A line of /proc/self/status, in MiB. */
static double status_mib(const char *name)
{
	_cleanup_free_ char *text = NULL;
	const char *line;

	if (file_read(AT_FDCWD, "/proc/self/status", 1 << 16, &text, NULL))
		bench_die("/proc/self/status", errno);
	line = strstr(text, name);
	return line ? strtod(line + strlen(name), NULL) / 1024 : 0;
}

/* The greatest RSS from now on is that of VmHWM. */
static void forget_greatest(void)
{
	_cleanup_close_ int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, "5", 1) != 1)
		bench_die("/proc/self/clear_refs", errno);
}

int main(void)
{
	static const char body[] =
		"{\"profile_event_type\":\"on-cpu\",\"profile_language_type\":\"eBPF\","
		"\"time_start\":1699999000,\"time_end\":1700001000}";
	double ms[ROUNDS], mib = 0, size = 0;
	struct hub h = {0};

	start_hub(&h);
	fill(h.store);
	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t before = own_cpu_ns();
		double rss;

		forget_greatest();
		rss = status_mib("VmRSS:");
		ask_hub(&h, "/v1/profile/folded", NULL, body);
		ms[i] = (double)(own_cpu_ns() - before) / 1e6;
		mib = MAX(mib, status_mib("VmHWM:") - rss); /* later rounds reuse it */
		size = (double)h.n_bytes / (1 << 20);
	}
	bench_rounds("formats.large_size", &size, 1, "MiB", "", "folded stacks");
	bench_rounds("formats.large_cpu", ms, ROUNDS, "ms", "", "");
	bench_rounds("formats.large_memory", &mib, 1, "MiB", "", "the names and stacks; no text");
	stop_hub(&h);
	return 0;
}
