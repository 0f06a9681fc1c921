/* SPDX-License-Identifier: Apache-2.0 */
/* bpf() and perf_event_open() that fail at any moment: what cannot be done is told, and nothing stays in the kernel. */
#include "lib/base/fault.h"
#include "node/probe/probe.h"

#include <setjmp.h>
#include <unistd.h>

#include <cmocka.h>

/* Loads, samples this process, drains, ends. */
static int sample(void *arg)
{
	struct probe_config c = {.use_list = true, .max_sample_hz = 99};
	struct listed_process self = {
		.tgid = (uint32_t)getpid(), .event_mask = 1u << EVENT_ON_CPU, .sample_hz = 99};
	struct probes *p = NULL;
	struct field_error e = {0};
	struct drain *d = NULL;
	int r = probes_new(&c, &p, &e);

	(void)arg;
	if (r) {
		assert_null(p);
		return r;
	}
	r = proc_start_boottime(self.tgid, &self.start_boottime_ns);
	if (!r)
		r = probes_list(p, &self, 1);
	if (!r)
		r = probes_drain(p, true, &d);
	if (r)
		assert_null(d);
	drain_free(d);
	probes_free(p);
	return r;
}

/* A run takes 100 ms of CPU, most of it the verifier's: few of some 200 calls fail but with LONG=1. */
static void each_call_fails_once(void **state)
{
	static const struct fault_row rows[] = {
		{.name = "probes_new, probes_list, probes_drain: bpf()",
		 .calls = FAULT(BPF),
		 .run = sample,
		 .step = 101,
		 .grows = true},
		{.name = "probes_new, probes_list, probes_drain: the rest",
		 .calls = FAULT(PERF) | FAULT(MMAP) | FAULT(FD) | FAULT(START) | FAULT(EPOLL) |
			  FAULT(OPEN),
		 .run = sample,
		 .step = 61,
		 .grows = true},
	};

	(void)state;
	if (geteuid() != 0) {
		print_message("skipped: BPF needs root\n");
		skip();
	}
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		fault_each(&rows[i], NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(each_call_fails_once)};

	return cmocka_run_group_tests_name("probe_faults", tests, NULL, NULL);
}
