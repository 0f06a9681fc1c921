/* SPDX-License-Identifier: Apache-2.0 */
/* The backup of a store that is written meanwhile, damaged, or larger than the disk. */
#include "hub/store/teststore.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define N_BEFORE 10   /* profiles when the backup begins */
#define N_STACKS 3000 /* of each; so the file has some hundred pages */

struct place {
	char dir[TESTDIR_BYTES];
	char from[96], to[96];
	struct store *s; /* the store that is copied; a hub has it open */
	int n_written;
	unsigned n_steps;
};

static bool private_mounts;

static struct store *open_sqlite(const char *dir)
{
	const struct store_config c = {.kind = "sqlite", .path = dir};
	struct field_error e = {0};
	struct store *s = NULL;

	if (store_open(&c, &s, &e))
		fail_msg("%s: %s", e.path, e.reason);
	return s;
}

static void write_more(struct place *p, int n)
{
	many_rows(p->s, p->n_written, n, N_STACKS);
	p->n_written += n;
}

static int place_setup(void **state)
{
	struct place *p = xcalloc(1, sizeof(*p));

	*state = p;
	if (testdir_make(p->dir))
		return -1;
	snprintf(p->from, sizeof(p->from), "%s/from", p->dir);
	snprintf(p->to, sizeof(p->to), "%s/to", p->dir);
	p->s = open_sqlite(p->from);
	write_more(p, N_BEFORE);
	return mkdir(p->to, 0700);
}

static int place_teardown(void **state)
{
	struct place *p = *state;
	int r;

	store_close(p->s);
	umount2(p->to, MNT_DETACH);
	r = testdir_remove(p->dir);
	free(p);
	return r;
}

static int backup(struct place *p, store_progress_fn *fn, struct field_error *e)
{
	const struct store_config c = {.kind = "sqlite", .path = p->from};

	return store_backup(&c, p->to, fn, p, e);
}

/* What the first n profiles of many_rows() add up to. */
static void has_first(struct store *s, int n)
{
	_cleanup_(got_done) struct got g = {0};
	struct selection sel = {.event = EVENT_ON_CPU,
				.time_start_s = T0 - 10,
				.time_end_s = T0 + 100000,
				.max_time_ns = 600 * NSEC_PER_SEC};

	read_rows(s, &sel, &g);
	assert_int_equal(g.summary.n_profiles, n);
	assert_int_equal(g.sum, n * N_STACKS * 10);
}

static void write_at_each_step(uint64_t n_done, uint64_t n, void *arg)
{
	struct place *p = arg;

	assert_true(n_done <= n);
	p->n_steps++;
	if (n_done < n)
		write_more(p, 3);
}

static void a_writer_writes_meanwhile(void **state)
{
	struct place *p = *state;
	struct store *copy;
	struct field_error e = {0};

	if (backup(p, write_at_each_step, &e))
		fail_msg("%s: %s", e.path, e.reason);
	/* it was not begun again after each write */
	assert_true(p->n_steps > 2);
	assert_true(p->n_written > N_BEFORE);
	copy = open_sqlite(p->to);
	has_first(copy, N_BEFORE);
	write_batch(copy, two_services(), 3);
	store_close(copy);
	has_first(p->s, p->n_written);
}

static void nothing_is_overwritten(void **state)
{
	struct place *p = *state;
	struct field_error e = {0};
	struct store *copy;

	assert_int_equal(backup(p, NULL, &e), 0);
	write_more(p, 1);
	assert_int_equal(backup(p, NULL, &e), -EINVAL);
	assert_string_equal(e.reason, "is there already");
	copy = open_sqlite(p->to);
	has_first(copy, N_BEFORE);
	store_close(copy);
}

/* No hub runs, and a hub was killed: what is in the -wal only is copied, too. */
static void a_store_that_nobody_has_open(void **state)
{
	struct place *p = *state;
	struct field_error e = {0};
	struct store *copy;

	p->s = store_close(p->s);
	if (backup(p, NULL, &e))
		fail_msg("%s: %s", e.path, e.reason);
	copy = open_sqlite(p->to);
	has_first(copy, N_BEFORE);
	store_close(copy);
}

static void a_damaged_store(void **state)
{
	struct place *p = *state;
	_cleanup_free_ char *path = xasprintf("%s/" FILE_NAME, p->from);
	_cleanup_close_ int fd = -1;
	struct field_error e = {0};
	char junk[4096];

	p->s = store_close(p->s);
	memset(junk, 0xa5, sizeof(junk));
	fd = open(path, O_WRONLY | O_CLOEXEC);
	for (off_t at = 40960; at < 81920; at += (off_t)sizeof(junk))
		assert_int_equal(pwrite(fd, junk, sizeof(junk), at), sizeof(junk));
	assert_int_not_equal(backup(p, NULL, &e), 0);
	assert_non_null(strstr(e.reason, "is damaged"));
}

static void there_is_no_store(void **state)
{
	struct place *p = *state;
	const struct store_config c = {.kind = "sqlite", .path = p->dir}, null = {.kind = "null"};
	struct field_error e = {0};

	assert_int_equal(store_backup(&c, p->to, NULL, NULL, &e), -ENOENT);
	assert_non_null(strstr(e.reason, "No such file"));
	assert_int_equal(store_backup(&null, p->to, NULL, NULL, &e), -EINVAL);
	assert_non_null(strstr(e.reason, "has no backup"));
}

static void grow_the_wal(uint64_t n_done, uint64_t n, void *arg)
{
	struct place *p = arg;
	_cleanup_free_ char *wal = xasprintf("%s/" FILE_NAME "-wal", p->from);

	(void)n_done;
	(void)n;
	assert_int_equal(truncate(wal, 3LL << 29), 0); /* with a hole, so it takes no disk */
}

static void the_wal_grows_too_much(void **state)
{
	struct field_error e = {0};

	assert_int_equal(backup(*state, grow_the_wal, &e), -EINVAL);
	assert_non_null(strstr(e.reason, "grew by 1024 MiB"));
}

static void the_disk_is_too_small(void **state)
{
	struct place *p = *state;
	struct field_error e = {0};

	if (!private_mounts) {
		print_message("skip: only root can mount a small disk\n");
		skip();
	}
	assert_int_equal(mount("none", p->to, "tmpfs", 0, "size=256k"), 0);
	assert_int_equal(backup(p, NULL, &e), -EINVAL);
	assert_non_null(strstr(e.reason, "MiB of disk, and 0 are free"));
}

/* A copy on a disk that cannot be written, as a snapshot of a volume is. */
static void a_read_only_disk(void **state)
{
	struct place *p = *state;
	struct field_error e = {0};
	struct store *copy;

	if (!private_mounts) {
		print_message("skip: only root can mount a disk read-only\n");
		skip();
	}
	p->s = store_close(p->s);
	assert_int_equal(mount(p->from, p->from, NULL, MS_BIND, NULL), 0);
	assert_int_equal(mount(NULL, p->from, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL), 0);
	if (backup(p, NULL, &e))
		fail_msg("%s: %s", e.path, e.reason);
	assert_int_equal(umount(p->from), 0);
	copy = open_sqlite(p->to);
	has_first(copy, N_BEFORE);
	store_close(copy);
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, place_setup, place_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_writer_writes_meanwhile),
		TEST(nothing_is_overwritten),
		TEST(a_store_that_nobody_has_open),
		TEST(a_damaged_store),
		TEST(there_is_no_store),
		TEST(the_wal_grows_too_much),
		TEST(the_disk_is_too_small),
		TEST(a_read_only_disk),
	};

	private_mounts = unshare(CLONE_NEWNS) == 0 &&
			 mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
	return cmocka_run_group_tests_name("backup", tests, NULL, NULL);
}
