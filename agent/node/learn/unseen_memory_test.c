// SPDX-License-Identifier: Apache-2.0
/*
 * When memory counts as unseen. Each scene has, for several moments, the memory of a process and
 * what its probes saw.
 */
#include "node/learn/unseen_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define MIB  (1u << 20)
#define EACH (512u << 10) /* the default of sampleBytes */

struct look {
	unsigned anon, data, threads, seen; /* in MiB, but `threads` is a number */
	unsigned told;			    /* the growth that was reported last, in MiB; 0: none */
};
#define LOOKS_MAX 6
struct scene {
	const char *name;
	struct look looks[LOOKS_MAX]; /* an element with threads 0 ends the list */
};

static const struct scene scenes[] = {
	{"it grows unseen", {{10, 100, 1, 0, 0}, {70, 160, 1, 0, 0}, {75, 165, 1, 3, 65}}},
	{"it is told again when it has doubled",
	 {{10, 10, 1, 0, 0}, {80, 80, 1, 0, 70}, {140, 140, 1, 0, 70}, {151, 151, 1, 0, 141}}},
	{"a twentieth is seen", {{10, 100, 1, 0, 0}, {90, 180, 1, 4, 0}}},
	{"all is seen", {{10, 100, 1, 0, 0}, {900, 990, 1, 910, 0}, {1900, 1990, 1, 1950, 0}}},
	{"space that was reserved before is used", {{10, 1100, 1, 0, 0}, {110, 1100, 1, 0, 100}}},
	{"what was seen is used later",
	 {{10, 10, 1, 0, 0}, {20, 1020, 1, 1000, 0}, {1000, 1020, 1, 1000, 0}}},
	{"much is seen, then nothing",
	 {{10, 10, 1, 0, 0}, {500, 500, 1, 500, 0}, {600, 600, 1, 501, 100}}},
	{"stacks of new threads",
	 {{10, 100, 1, 0, 0}, {90, 190, 11, 0, 0}, {200, 300, 11, 0, 110}}},
	{"threads that come back",
	 {{110, 210, 101, 0, 0},
	  {10, 110, 1, 0, 0},
	  {110, 210, 101, 0, 0},
	  {910, 1010, 101, 0, 100}}},
	{"it comes and goes",
	 {{200, 300, 1, 0, 0}, {100, 200, 1, 0, 0}, {163, 263, 1, 0, 0}, {165, 265, 1, 0, 65}}},
	{"what was there first", {{900, 990, 1, 0, 0}, {900, 990, 1, 0, 0}}},
};

static void what_is_not_seen_is_told(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(scenes); i++) {
		const struct scene *s = &scenes[i];
		struct unseen u = {0};

		for (size_t k = 0; k < LOOKS_MAX && s->looks[k].threads; k++) {
			const struct look *l = &s->looks[k];
			const struct proc_memory m = {.anon_bytes = (uint64_t)l->anon * MIB,
						      .data_bytes = (uint64_t)l->data * MIB,
						      .n_threads = l->threads};
			uint64_t before = u.told_bytes;
			bool more = learn_unseen(&u, &m, (uint64_t)l->seen * MIB, EACH);

			if (u.told_bytes != (uint64_t)l->told * MIB ||
			    more != (u.told_bytes != before))
				fail_msg("%s, look %zu: %llu MiB told", s->name, k,
					 (unsigned long long)(u.told_bytes / MIB));
		}
	}
}

/* With one sample per 4 MiB, the probes may by chance take no sample of 64 MiB. */
static void few_samples_are_no_proof(void **state)
{
	struct proc_memory m = {.n_threads = 1};
	struct unseen u = {0};

	(void)state;
	assert_false(learn_unseen(&u, &m, 0, 4 * MIB));
	m.anon_bytes = m.data_bytes = 127 * MIB;
	assert_false(learn_unseen(&u, &m, 0, 4 * MIB));
	assert_null(learn_unseen_text(&u));
	m.anon_bytes = m.data_bytes = 128 * MIB;
	assert_true(learn_unseen(&u, &m, 0, 4 * MIB));
}

/* New probes count from 0 again. What was reported before stays. */
static void attached_anew(void **state)
{
	struct proc_memory m = {.n_threads = 1};
	_cleanup_free_ char *text = NULL;
	struct unseen u = {0};

	(void)state;
	assert_false(learn_unseen(&u, &m, 5000 * (uint64_t)MIB, EACH));
	m.anon_bytes = m.data_bytes = 100 * MIB;
	assert_true(learn_unseen(&u, &m, 5000 * (uint64_t)MIB, EACH));
	learn_unseen_begin_anew(&u);
	assert_false(learn_unseen(&u, &m, 0, EACH));
	text = learn_unseen_text(&u);
	assert_true(str_has_prefix(text, "its memory grew by 100 MiB"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_not_seen_is_told),
		cmocka_unit_test(few_samples_are_no_proof),
		cmocka_unit_test(attached_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
