/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures a large file, from a request to its last byte: its size, the CPU time of hub and client
 * together, and by how much the memory of both is greater meanwhile. The client keeps nothing. The
 * stacks are deep and have few functions, so the text is far larger than what it is made of.
 */
#include "hub/api/benchhub.h"

#include <fcntl.h>
#include <unistd.h>

#define T0	 1700000000
#define N_STACKS 15000
#define DEPTH	 100
#define N_NAMES	 150 /* functions of each level */
#define ROUNDS	 3

static void fill(struct store *s)
{
	struct batch *b = profile_batch_new();
	struct profile *p = profile_batch_profile(b);
	struct frame frames[DEPTH];
	size_t n_new;

	p->event = EVENT_ON_CPU;
	p->end_ns = T0 * NSEC_PER_SEC;
	p->start_ns = p->end_ns - 10 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, "api");
	for (unsigned i = 0; i < N_STACKS; i++) {
		struct profile_sample *sample = profile_add(b, p);

		for (unsigned k = 0; k < DEPTH; k++) {
			const unsigned key[] = {i, k};
			char name[256];

			snprintf(name, sizeof(name), "a::name::of::%0187llu",
				 (unsigned long long)hash_bytes(key, sizeof(key), 1) % N_NAMES);
			frames[k] = (struct frame){.kind = FRAME_APP,
						   .name = profile_batch_str(b, name)};
		}
		sample->cpu = -1;
		sample->value = (int64_t)(sample->n_samples = 1);
		if (profile_batch_stack(b, frames, DEPTH, &sample->stack))
			bench_die("a stack", ENOMEM);
	}
	if (store_write(s, b, &n_new) || n_new != 1)
		bench_die("the store", EINVAL);
	profile_batch_free(b);
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
