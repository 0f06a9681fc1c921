/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forge NODE NAMESPACE POD UID STACKS: writes to stdout a request as an agent of the node sends it:
 * one profile of the pod, of now, with so many invented stacks of 10 ms each. Each call gives
 * another profile. peer.py sends it.
 */
#include "lib/otlp/otlp.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define DEPTH 20

static void fail(const char *what, int error)
{
	fprintf(stderr, "forge: %s: %s\n", what, strerror(-error));
	exit(1);
}

static void add_sample(struct batch *b, struct profile *p, uint64_t seed, unsigned k)
{
	struct frame frames[DEPTH];
	struct profile_sample *s;
	char name[64];
	uint32_t stack;
	int r;

	for (unsigned i = 0; i < DEPTH; i++) {
		snprintf(name, sizeof(name), "forged_%" PRIx64 "_%u", seed, i ? k * DEPTH + i : 0);
		frames[i] = (struct frame){.kind = FRAME_APP,
					   .name = profile_batch_str(b, name),
					   .module = "/bin/forged"};
	}
	r = profile_batch_stack(b, frames, DEPTH, &stack);
	if (r < 0)
		fail("a stack", r);
	s = profile_add(b, p);
	*s = (struct profile_sample){.stack = stack,
				     .value = 10000,
				     .n_samples = 1,
				     .cpu = -1,
				     .thread_comm = profile_batch_str(b, "forged")};
}

static struct profile *add_profile(struct batch *b, char **argv, uint64_t seed)
{
	static const char *const keys[] = {"pod_node", "pod_ns", "pod", "pod_uid"};
	struct profile *p = profile_batch_profile(b);

	memcpy(p->id, &seed, sizeof(seed));
	p->event = EVENT_ON_CPU;
	p->end_ns = now_wall_ns() / NSEC_PER_SEC * NSEC_PER_SEC;
	p->start_ns = p->end_ns - NSEC_PER_SEC;
	p->period_ns = 10 * NSEC_PER_MSEC;
	p->app_service = "forged";
	p->process_id = 1;
	p->process_start_ns = NSEC_PER_SEC;
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		profile_tag(b, p, keys[i], argv[i]);
	return p;
}

int main(int argc, char **argv)
{
	uint64_t seed = now_wall_ns() ^ (uint64_t)getpid() << 40;
	struct batch *b = profile_batch_new();
	struct buf bytes = {0};
	struct profile *p;
	int r;

	if (argc != 6) {
		fprintf(stderr, "usage: forge NODE NAMESPACE POD UID STACKS\n");
		return 2;
	}
	p = add_profile(b, argv + 1, seed);
	for (unsigned k = 0; k < (unsigned)atoi(argv[5]); k++)
		add_sample(b, p, seed, k);
	r = otlp_encode(b, &bytes);
	if (r < 0)
		fail("the request", r);
	if (fwrite(bytes.data, 1, bytes.len, stdout) != bytes.len || fflush(stdout))
		fail("standard output", -errno);
	buf_done(&bytes);
	profile_batch_free(b);
	return 0;
}
