/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store has filled its disk and gets a batch that is large compared with the disk. The test
 * mounts its own small file system.
 */
#include "hub/store/teststore.h"

#include <sched.h>
#include <sys/mount.h>

#define DISK "size=8m"
/* seconds between windows; more than an hour, so that old stacks can be deleted */
#define APART_S 4000
/* stacks of a profile; each has its own function, so together they need half a MiB in the -wal */
#define N_STACKS 100
#define N_LARGE	 12  /* profiles of the large batch */
#define N_MANY	 500 /* stacks of the large profile */

static bool private_mounts;

static struct batch *make_batch(unsigned window, unsigned n_profiles, unsigned n_stacks)
{
	struct batch *b = profile_batch_new();

	for (unsigned k = 0; k < n_profiles; k++) {
		_cleanup_free_ char *id = xasprintf("window %u, profile %u", window, k);
		struct profile *p =
			add_profile(b, id, "web", 10 + k, "app", T0 + (int64_t)window * APART_S);

		for (unsigned i = 0; i < n_stacks; i++) {
			_cleanup_free_ char *leaf = xasprintf("function_%u of %s", i, id);

			add_sample(b, p, "worker", false, leaf, 1);
		}
	}
	return b;
}

/* Returns how many profiles were new, or -errno. */
static int put(struct store *s, unsigned window, unsigned n_profiles, unsigned n_stacks)
{
	struct batch *b = make_batch(window, n_profiles, n_stacks);
	size_t n_new = 0;
	int r = store_write(s, b, &n_new);

	profile_batch_free(b);
	return r ? r : (int)n_new;
}

static uint64_t n_gone(void)
{
	return counter_get(counter("store_expired_profiles_total", "reason", "disk_full"));
}

static int add_value(const struct store_row *row, void *arg)
{
	*(int64_t *)arg += row->value;
	return 0;
}

static int64_t value_since(struct store *s, unsigned window)
{
	const struct selection sel = {.event = EVENT_ON_CPU,
				      .time_start_s = T0 + (int64_t)window * APART_S - 9,
				      .time_end_s = T0 * 2LL};
	struct store_summary summary;
	int64_t sum = 0;

	assert_int_equal(store_read(s, &store_scope_all, &sel, add_value, &sum, &summary, NULL), 0);
	store_summary_done(&summary);
	return sum;
}

/* Makes a store and writes windows until its disk is full. *ret_n: the number of windows. */
static struct store *full_store(const char *dir, unsigned *ret_n)
{
	uint64_t before = n_gone();
	struct store *s;
	unsigned n = 0;

	if (!private_mounts) {
		print_message("skip: only root can mount a small disk\n");
		skip();
	}
	assert_int_equal(mount("none", dir, "tmpfs", 0, DISK), 0);
	s = open_at(dir, 0, 0);
	while (n_gone() == before)
		assert_int_equal(put(s, n++, 1, N_STACKS), 1);
	*ret_n = n;
	return s;
}

static void a_large_batch_goes_by_profile(void **state)
{
	const char *dir = *state;
	struct store_stats stats;
	unsigned n;
	struct store *s = full_store(dir, &n);

	assert_int_equal(put(s, n, N_LARGE, N_STACKS), N_LARGE);
	assert_int_equal(value_since(s, n), N_LARGE * N_STACKS);
	store_stats(s, &stats);
	assert_false(stats.failed);
	assert_non_null(strstr(stats.error, "the disk was full"));
	assert_non_null(strstr(stats.error, "the namespaces that have more than their share"));
	/*
	 * the sender sends the batch again, as after a failure in the middle: nothing is stored
	 * twice
	 */
	assert_int_equal(put(s, n, N_LARGE, N_STACKS), 0);
	assert_int_equal(value_since(s, n), N_LARGE * N_STACKS);
	store_close(s);
	umount2(dir, MNT_DETACH);
}

/*
 * A profile needs more room than the store makes at first: more old profiles are deleted, but not
 * all.
 */
static void a_large_profile_makes_its_room(void **state)
{
	const char *dir = *state;
	struct store_stats stats;
	unsigned n;
	struct store *s = full_store(dir, &n);

	assert_int_equal(put(s, n, 1, N_MANY), 1);
	assert_int_equal(value_since(s, n), N_MANY);
	assert_int_equal(value_since(s, n - 1), N_STACKS + N_MANY);
	store_stats(s, &stats);
	assert_false(stats.failed);
	assert_int_equal(put(s, n + 1, 1, N_STACKS), 1);
	store_close(s);
	umount2(dir, MNT_DETACH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_DISK(a_large_batch_goes_by_profile),
		ON_DISK(a_large_profile_makes_its_room),
	};

	private_mounts = unshare(CLONE_NEWNS) == 0 &&
			 mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
	return cmocka_run_group_tests_name("room", tests, NULL, NULL);
}
