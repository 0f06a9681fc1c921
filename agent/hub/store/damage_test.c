/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A damaged file, a full disk, and a killed writer: one case of each. crash_test.c has hundreds of
 * each.
 */
#include "hub/store/teststore.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * The file lacks a stack of a profile: the other stacks are returned, and the value of the lost one
 * as [stack trace lost].
 */
static void lost_stacks(void **state)
{
	const char *dir = *state;
	struct store *s = open_at(dir, 0, 0);
	_cleanup_(got_done) struct got g = {0};

	write_batch(s, two_services(), 3);
	/* delete the stack with value 150 */
	sql(dir, "DELETE FROM stacks WHERE id=(SELECT MIN(id) FROM stacks)");
	/*
	 * The samples of the profile with value 70: stack 0, any cpu, value 5, 2 samples; the
	 * second sample is cut off.
	 */
	sql(dir, "UPDATE profiles SET samples=x'0000050201' WHERE value=70");
	read_where(s, NULL, &g);
	assert_int_equal(g.n, 3);
	assert_int_equal(g.sum, 175);
	assert_string_equal(g.rows[0].text, "api: [stack trace lost]");
	assert_int_equal(g.rows[0].value, 150);
	assert_int_equal(g.rows[0].n, 15);
	assert_string_equal(g.rows[2].text, "db: [stack trace lost]");
	assert_int_equal(g.rows[2].value, 5);
	assert_int_equal(g.rows[2].n, 2);
	store_close(s);
}

static void overwrite(const char *dir, off_t at, size_t n)
{
	_cleanup_free_ char *path = xasprintf("%s/profiles.sqlite", dir);
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
	char junk[4096];

	memset(junk, 0xa5, sizeof(junk));
	assert_true(fd >= 0);
	for (size_t i = 0; i < n; i += sizeof(junk))
		assert_int_equal(pwrite(fd, junk, sizeof(junk), at + (off_t)i), sizeof(junk));
}

static bool has_damaged_file(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	bool found = false;

	while ((e = readdir(d)))
		found |= str_has_prefix(e->d_name, "profiles.sqlite.damaged-");
	closedir(d);
	return found;
}

static void damaged_file(void **state)
{
	static const struct {
		off_t at;
		size_t n;
	} where[] = {{0, 4096}, {4096, 65536}};

	for (size_t i = 0; i < ARRAY_SIZE(where); i++) {
		_cleanup_free_ char *dir = xasprintf("%s/%zu", (const char *)*state, i);
		struct store *s = open_at(dir, 0, 0);
		struct store_stats stats;

		write_batch(s, two_services(), 3);
		store_close(s);
		overwrite(dir, where[i].at, where[i].n);
		s = open_at(dir, 0, 0);
		store_stats(s, &stats);
		assert_non_null(strstr(stats.error, "damaged"));
		assert_true(has_damaged_file(dir));
		assert_int_equal(value_where(s, NULL), 0);
		write_batch(s, two_services(), 3);
		assert_int_equal(value_where(s, NULL), 240);
		store_close(s);
	}
}

/* The file is damaged while the hub runs: the write that notices it is stored. */
static void damaged_while_open(void **state)
{
	const char *dir = *state;
	struct store *s = open_at(dir, 0, 0), *second;
	struct store_stats stats;
	size_t n_new;
	struct batch *b;

	many_rows(s, 0, 20, 2000);
	store_close(s);
	s = open_at(dir, 0, 0);
	/* another writer changes the file, so the pages that s has cached become invalid */
	second = open_at(dir, 0, 0);
	many_rows(second, 20, 1, 1);
	overwrite(dir, 4096, 2 << 20);
	b = two_services();
	assert_int_equal(store_write(s, b, &n_new), 0);
	profile_batch_free(b);
	store_stats(s, &stats);
	assert_non_null(strstr(stats.error, "damaged"));
	assert_int_equal(value_where(s, NULL), 240);
	store_close(second);
	store_close(s);
}

/* The disk is full: the write fails, no part of it is stored, and the next one succeeds. */
static void full_disk(void **state)
{
	const char *dir = *state;
	struct store *s = open_at(dir, 0, 0);
	struct rlimit before, small;
	struct store_stats stats;
	struct batch *b = profile_batch_new();
	size_t n_new = 0;
	char name[32];

	write_batch(s, two_services(), 3);
	for (int i = 0; i < 5000; i++) {
		snprintf(name, sizeof(name), "function_%d", i);
		add_sample(b, i ? b->profiles[0] : add_profile(b, "big", "api", 10, "app", T0), "w",
			   false, name, 10);
	}
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	small = (struct rlimit){200 << 10, before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_true(store_write(s, b, &n_new) < 0);
	store_stats(s, &stats);
	assert_non_null(strstr(stats.error, "write failed"));
	assert_int_equal(value_where(s, NULL), 240);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	write_batch(s, b, 1);
	assert_int_equal(value_where(s, NULL), 240 + 50000);
	store_stats(s, &stats);
	assert_string_equal(stats.error, "");
	store_close(s);
}

/* The writer is killed during a write: acknowledged profiles are stored, once. */
static void killed_while_writing(void **state)
{
	const char *dir = *state;
	int pipe_fds[2], status;
	uint8_t count = 0, got;
	_cleanup_(got_done) struct got g = {0};
	struct store *s;
	pid_t child;

	assert_int_equal(pipe(pipe_fds), 0);
	child = fork();
	if (child == 0) {
		s = open_at(dir, 0, 0);
		for (int i = 0; i < 200; i++) {
			many_rows(s, i, 1, 300);
			if (write(pipe_fds[1], "x", 1) != 1)
				_exit(1);
		}
		pause();
	}
	close(pipe_fds[1]);
	while (count < 20 && read(pipe_fds[0], &got, 1) == 1)
		count++;
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	while (read(pipe_fds[0], &got, 1) == 1)
		count++;
	close(pipe_fds[0]);
	s = open_at(dir, 0, 0);
	read_where(s, NULL, &g);
	/* all acknowledged writes, and perhaps the one whose answer was cut off */
	assert_true(g.summary.n_profiles == count || g.summary.n_profiles == count + 1u);
	assert_int_equal(g.summary.n_samples, g.summary.n_profiles * 300);
	store_close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_DISK(lost_stacks), ON_DISK(damaged_file),	     ON_DISK(damaged_while_open),
		ON_DISK(full_disk),   ON_DISK(killed_while_writing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
