/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hub that is killed again and again while it writes; a file that is damaged in five ways; a full
 * disk; a read-only disk. The test runs in its own mount namespace, on small file systems.
 */
#include "hub/store/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/testdir.h"

#include <cmocka.h>
#include <sqlite3.h>

#define T0	     1700000000
#define FILE_NAME    "profiles.sqlite"
#define N_SAMPLES    40 /* samples in each profile of this test */
#define DISK_BYTES   "3m"
#define STORE_DISK   "8m" /* size of the disk that a store fills up */
#define MOST_BATCHES 4096

/* ---- a directory and the store in it ---- */

struct place {
	char dir[TESTDIR_BYTES];
	struct store *s;
};

static bool private_mounts;

static int setup(void **state)
{
	struct place *p = xcalloc(1, sizeof(*p));

	*state = p;
	return testdir_make(p->dir);
}

static int teardown(void **state)
{
	struct place *p = *state;
	int r;

	store_close(p->s);
	umount2(p->dir, MNT_DETACH);
	r = testdir_remove(p->dir);
	free(p);
	return r;
}

static char *path_in(const struct place *p, const char *suffix)
{
	return xasprintf("%s/" FILE_NAME "%s", p->dir, suffix);
}

static int try_open(struct place *p, struct field_error *reterr)
{
	const struct store_config c = {.kind = "sqlite", .path = p->dir};

	return store_open(&c, &p->s, reterr);
}

static void reopen(struct place *p)
{
	struct field_error e = {0};

	p->s = store_close(p->s);
	if (try_open(p, &e))
		fail_msg("%s: %s", e.path, e.reason);
}

/* Mounts a small tmpfs at the directory. */
static void small_disk(struct place *p, const char *bytes)
{
	_cleanup_free_ char *size = xasprintf("size=%s", bytes);

	if (!private_mounts) {
		print_message("skip: only root can mount a small disk\n");
		skip();
	}
	assert_int_equal(mount("none", p->dir, "tmpfs", 0, size), 0);
}

static void remount(const struct place *p, unsigned long flags)
{
	assert_int_equal(mount("none", p->dir, NULL, MS_REMOUNT | flags, "size=" DISK_BYTES), 0);
}

/* Makes the n-th profile: it has one stack of its own, and one that all profiles have. */
static struct batch *batch_of(uint64_t n)
{
	struct batch *b = profile_batch_new();
	struct profile *p = profile_batch_profile(b);
	_cleanup_free_ char *id = xasprintf("profile %llu", (unsigned long long)n);
	const char *parts[] = {id};

	profile_id_make(parts, 1, p->id);
	p->event = EVENT_ON_CPU;
	p->start_ns = (T0 + n * 10) * NSEC_PER_SEC;
	p->end_ns = p->start_ns + 10 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, "web");
	p->process_id = 10;
	for (uint64_t i = 0; i < N_SAMPLES; i++) {
		_cleanup_free_ char *name =
			xasprintf("function %llu", (unsigned long long)(i ? n * 1000 + i : 0));
		struct frame f = {.kind = FRAME_APP, .name = name, .module = "/bin/web"};
		struct profile_sample *s = profile_add(b, p);

		s->cpu = -1;
		s->value = s->n_samples = 1;
		assert_int_equal(profile_batch_stack(b, &f, 1, &s->stack), 0);
	}
	return b;
}

static int put(struct store *s, uint64_t n)
{
	_cleanup_(profile_batch_freep) struct batch *b = batch_of(n);
	size_t n_new;

	return store_write(s, b, &n_new);
}

/* What the store returns for the first n profiles. */
struct there {
	uint64_t n_rows, n_samples;
};

static int count_row(const struct store_row *row, void *arg)
{
	struct there *t = arg;

	assert_true(row->n_frames == 1 && row->frames[0]->name);
	t->n_rows++;
	t->n_samples += row->n_samples;
	return 0;
}

static int look(struct store *s, uint64_t *ret_n, struct field_error *reterr)
{
	struct selection sel = {
		.event = EVENT_ON_CPU, .time_start_s = 1, .time_end_s = T0 + MOST_BATCHES * 10};
	struct store_summary summary = {0};
	struct there t = {0};
	int r = store_read(s, &store_scope_all, &sel, count_row, &t, &summary, reterr);

	store_summary_done(&summary);
	if (r)
		return r;
	assert_int_equal(t.n_samples % N_SAMPLES, 0);
	*ret_n = t.n_samples / N_SAMPLES;
	assert_int_equal(t.n_rows, *ret_n ? *ret_n * (N_SAMPLES - 1) + 1 : 0);
	return 0;
}

static uint64_t n_there(struct store *s)
{
	struct field_error e = {0};
	uint64_t n = 0;

	if (look(s, &n, &e))
		fail_msg("%s: %s", e.path, e.reason);
	return n;
}

/* The reported error. It must name no directory, because anybody may ask /healthz for it. */
static const char *error_of(struct store *s)
{
	static struct store_stats stats;

	store_stats(s, &stats);
	assert_null(strchr(stats.error, '/'));
	return stats.error;
}

/* The number of files in the directory whose names begin with prefix. */
static unsigned n_files(const struct place *p, const char *prefix)
{
	DIR *d = opendir(p->dir);
	const struct dirent *e;
	unsigned n = 0;

	while ((e = readdir(d)))
		n += str_has_prefix(e->d_name, prefix);
	closedir(d);
	return n;
}

static bool has_failed(struct store *s)
{
	struct store_stats stats;

	store_stats(s, &stats);
	return stats.failed;
}

/* ---- killed ---- */

/*
 * Writes profiles from the n-th on, and reports each stored one with a byte to fd. Also calls
 * store_expire() after every 16 profiles. Does not return.
 */
_Noreturn static void write_until_killed(struct place *p, uint64_t n, int fd)
{
	char one = 1;

	if (try_open(p, NULL))
		_exit(1);
	for (;; n++) {
		if (n >= MOST_BATCHES || put(p->s, n) || write(fd, &one, 1) != 1)
			_exit(1);
		if (n % 16 == 0)
			(void)store_expire(p->s, (T0 + MOST_BATCHES * 10) * NSEC_PER_SEC);
	}
}

/* Starts a writer and kills it. Returns how many profiles it had reported as stored. */
static uint64_t write_and_kill(struct place *p, uint64_t n, uint64_t after_n, useconds_t after_us)
{
	uint64_t said = 0;
	int fds[2], status;
	char one;
	pid_t pid;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0)
		write_until_killed(p, n, fds[1]);
	close(fds[1]);
	while (said < after_n && read(fds[0], &one, 1) == 1)
		said++;
	usleep(after_us); /* after_us is random, so the kill comes at any moment of a write */
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status)); /* the writer was killed and did not exit with an error */
	while (read(fds[0], &one, 1) == 1)
		said++;
	close(fds[0]);
	return said;
}

static void check_whole(struct place *p)
{
	_cleanup_free_ char *path = path_in(p, "");
	sqlite3_stmt *st = NULL;
	sqlite3 *db = NULL;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &st, NULL),
			 SQLITE_OK);
	assert_int_equal(sqlite3_step(st), SQLITE_ROW);
	assert_string_equal(sqlite3_column_text(st, 0), "ok");
	sqlite3_finalize(st);
	sqlite3_close(db);
}

/*
 * Each acknowledged profile is stored, whole and once. In addition, the profile whose answer was
 * cut off may be stored.
 */
static void test_killed_again_and_again(void **state)
{
	struct place *p = *state;
	unsigned n_kills = getenv("LONG") ? 1000 : 60, n_most = 0;
	uint64_t n = 0, seed, said;

	random_bytes(&seed, sizeof(seed));
	seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 0) : seed >> 33;
	print_message("SEED=%llu\n", (unsigned long long)seed);
	srand48((long)seed);
	for (unsigned i = 0; i < n_kills && n < MOST_BATCHES - 500; i++) {
		/* the first kills are early, while the file is being made */
		said = write_and_kill(p, n, i < 20 ? 0 : (uint64_t)(drand48() * 12),
				      (useconds_t)(drand48() * (i < 20 ? 15e3 : 4e3)));
		reopen(p);
		assert_string_equal(error_of(p->s), "");
		assert_in_range(n_there(p->s) - n, said, said + 1);
		n_most += n_there(p->s) - n - said;
		n = n_there(p->s);
		p->s = store_close(p->s);
	}
	check_whole(p);
	/*
	 * only the file itself is left: SQLite removed the -wal and -shm at the last proper close
	 */
	assert_int_equal(n_files(p, FILE_NAME), 1);
	print_message("%u kills, %llu profiles, %u of them stored without an answer\n", n_kills,
		      (unsigned long long)n, n_most);
}

/* ---- damaged ---- */

static void overwrite(const char *path, off_t at, size_t n_bytes)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
	char junk[512];

	memset(junk, 0xa5, sizeof(junk));
	assert_true(fd >= 0);
	for (size_t i = 0; i < n_bytes; i += sizeof(junk))
		assert_int_equal(pwrite(fd, junk, sizeof(junk), at + (off_t)i), sizeof(junk));
}

static off_t size_of(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? st.st_size : -1;
}

enum damage { HEADER, MIDDLE, LAST, HALF, EMPTY, _DAMAGE_MAX };

static void damage(const struct place *p, enum damage how)
{
	_cleanup_free_ char *path = path_in(p, "");
	off_t size = size_of(path);

	assert_true(size > 32768);
	if (how == HEADER)
		overwrite(path, 0, 512);
	else if (how == MIDDLE)
		overwrite(path, 8192, (size_t)size - 12288);
	else if (how == LAST)
		overwrite(path, size - 8192, 8192);
	else
		assert_int_equal(truncate(path, how == HALF ? size / 2 / 512 * 512 : 0), 0);
}

/*
 * Damage that exists before the start is reported, the file is renamed unchanged, and the store
 * starts an empty one.
 */
static void test_damaged_before_the_start(void **state)
{
	struct place *p = *state;
	struct counter *told = counter("store_damaged_total", NULL, NULL);

	for (enum damage how = 0; how < _DAMAGE_MAX; how++) {
		uint64_t before = counter_get(told);

		reopen(p);
		for (uint64_t n = 0; n < 20; n++)
			assert_int_equal(put(p->s, n), 0);
		p->s = store_close(p->s);
		damage(p, how);
		reopen(p);
		assert_int_equal(counter_get(told), before + 1);
		assert_non_null(strstr(error_of(p->s), "renamed it to " FILE_NAME ".damaged-"));
		assert_int_equal(n_files(p, FILE_NAME ".damaged-"), how + 1);
		assert_int_equal(n_there(p->s), 0);
		assert_int_equal(put(p->s, 0), 0);
		assert_int_equal(n_there(p->s), 1);
		/* after the next start, the error is gone */
		reopen(p);
		assert_string_equal(error_of(p->s), "");
	}
}

/*
 * The file is damaged while the hub runs: the query that finds it returns an error, and the next
 * write is stored.
 */
static void test_damaged_under_a_reader(void **state)
{
	struct place *p = *state;
	struct field_error e = {0};
	uint64_t n;
	int r;

	reopen(p);
	for (n = 0; n < 50; n++)
		assert_int_equal(put(p->s, n), 0);
	/*
	 * reopen, so that nothing is cached; a proper close moves all changes from the -wal to the
	 * file
	 */
	reopen(p);
	damage(p, MIDDLE);
	/* the check at the start did not find the damage, because the damage came later */
	r = look(p->s, &n, &e);
	assert_int_equal(r, -EBADMSG);
	assert_non_null(strstr(e.reason, "damaged"));
	assert_int_equal(put(p->s, 99), 0);
	assert_int_equal(n_there(p->s), 1);
	assert_non_null(strstr(error_of(p->s), "renamed it to"));
	assert_int_equal(put(p->s, 100), 0);
	assert_int_equal(n_there(p->s), 2);
}

/* No profile is written any more, so store_expire, which runs each minute, finds the damage. */
static void test_damaged_and_quiet(void **state)
{
	struct place *p = *state;
	uint64_t n;

	reopen(p);
	for (n = 0; n < 50; n++)
		assert_int_equal(put(p->s, n), 0);
	reopen(p);
	damage(p, MIDDLE);
	assert_int_equal(look(p->s, &n, NULL), -EBADMSG);
	(void)store_expire(p->s, T0 * NSEC_PER_SEC);
	assert_int_equal(n_there(p->s), 0);
	assert_non_null(strstr(error_of(p->s), "renamed it to"));
}

/*
 * The -wal of a killed hub was damaged. SQLite uses the part before the damage; the rest looks like
 * a write that was cut off.
 */
static void test_damaged_wal(void **state)
{
	struct place *p = *state;
	_cleanup_free_ char *wal = path_in(p, "-wal");
	uint64_t said = write_and_kill(p, 0, 20, 0), n;

	assert_true(said > 0);
	overwrite(wal, size_of(wal) / 2 / 512 * 512, 4096);
	reopen(p);
	n = n_there(p->s);
	assert_true(n <= said + 1);
	assert_int_equal(put(p->s, MOST_BATCHES - 1), 0);
	assert_int_equal(n_there(p->s), n + 1);
	p->s = store_close(p->s);
	check_whole(p);
}

/* ---- full, read-only ---- */

static void fill(const struct place *p)
{
	_cleanup_free_ char *path = xasprintf("%s/others", p->dir);
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	char zeros[512] = "";

	while (write(fd, zeros, sizeof(zeros)) > 0)
		;
}

static void make_room(const struct place *p)
{
	_cleanup_free_ char *path = xasprintf("%s/others", p->dir);

	assert_int_equal(unlink(path), 0);
}

/* Writes until the disk is full. Returns how many profiles are stored by then. */
static uint64_t put_until_full(struct place *p, uint64_t n)
{
	int r;

	while ((r = put(p->s, n)) == 0)
		n++;
	assert_int_equal(r, -ENOSPC);
	return n;
}

/*
 * While the disk is full, a write fails, so the sender keeps its profiles, and stored ones can be
 * read. Once the disk has room, writes succeed again.
 */
static void test_full_disk(void **state)
{
	struct place *p = *state;
	struct counter *told = counter("store_write_errors_total", "reason", "ENOSPC");
	uint64_t n = 3, before = counter_get(told);

	small_disk(p, DISK_BYTES);
	reopen(p);
	for (uint64_t i = 0; i < n; i++)
		assert_int_equal(put(p->s, i), 0);
	for (int round = 0; round < 3; round++) {
		fill(p);
		n = put_until_full(p, n);
		assert_int_equal(counter_get(told), ++before);
		assert_non_null(strstr(error_of(p->s), "No space left"));
		assert_true(has_failed(p->s));
		assert_int_equal(n_there(p->s), n);
		make_room(p);
		assert_int_equal(put(p->s, n), 0);
		n++;
		assert_int_equal(n_there(p->s), n);
		assert_string_equal(error_of(p->s), "");
		assert_false(has_failed(p->s));
	}
	reopen(p);
	assert_int_equal(n_there(p->s), n);
	p->s = store_close(p->s);
	check_whole(p);
}

/*
 * The disk is too small for all profiles: the oldest are deleted, new ones are stored once, and the
 * store reports it.
 */
static void test_disk_smaller_than_the_store(void **state)
{
	struct place *p = *state;
	struct counter *told = counter("store_expired_profiles_total", "reason", "disk_full");
	uint64_t n = 0, before = counter_get(told), n_gone = 0;
	struct store_stats stats;

	small_disk(p, STORE_DISK);
	reopen(p);
	for (unsigned n_times = 0; n_times < 2 && n < MOST_BATCHES; n++) {
		assert_int_equal(put(p->s, n), 0);
		if (counter_get(told) - before == n_gone)
			continue;
		n_gone = counter_get(told) - before;
		assert_int_equal(n_there(p->s), n + 1 - n_gone);
		assert_non_null(strstr(error_of(p->s), "the disk was full"));
		assert_false(has_failed(p->s)); /* the full disk was handled, so it is no failure */
		n_times++;
	}
	assert_in_range(n_gone, 1, n - 1);
	assert_int_equal(put(p->s, n - 1), 0);
	assert_int_equal(n_there(p->s), n - n_gone);
	assert_int_equal(store_expire(p->s, T0 * NSEC_PER_SEC), 0);
	n_gone = counter_get(told) - before;
	store_stats(p->s, &stats);
	assert_int_equal(stats.oldest_ns / NSEC_PER_SEC, T0 + n_gone * 10 + 9);
	reopen(p);
	assert_int_equal(n_there(p->s), n - n_gone);
	p->s = store_close(p->s);
	check_whole(p);
	print_message("%llu of %llu profiles had to go\n", (unsigned long long)n_gone,
		      (unsigned long long)n);
}

/* Deletes the file that the store keeps in reserve for a full disk, and then fills the disk. */
static void fill_all(const struct place *p)
{
	_cleanup_free_ char *reserve = xasprintf("%s/reserve", p->dir);

	assert_int_equal(unlink(reserve), 0);
	fill(p);
}

/*
 * A hub that starts on a disk that refuses writes reports it. When the disk is good again, the
 * store has all profiles.
 */
static void start_on_a_bad_disk(struct place *p, void (*spoil)(const struct place *),
				void (*mend)(const struct place *), int error, const char *why)
{
	struct field_error e = {0};
	uint64_t n;

	small_disk(p, DISK_BYTES);
	reopen(p);
	assert_int_equal(put(p->s, 0), 0);
	p->s = store_close(p->s);
	spoil(p);
	if (try_open(p, &e))
		fail_msg("%s: %s", e.path, e.reason);
	assert_non_null(strstr(error_of(p->s), why));
	assert_true(str_has_prefix(error_of(p->s), FILE_NAME " cannot be opened: "));
	assert_int_equal(look(p->s, &n, &e), -ENOTCONN);
	assert_non_null(strstr(e.reason, why));
	assert_int_equal(put(p->s, 1), error);
	assert_non_null(strstr(error_of(p->s), why));
	mend(p);
	assert_int_equal(put(p->s, 1), 0);
	assert_int_equal(n_there(p->s), 2);
	assert_string_equal(error_of(p->s), "");
}

static void test_start_on_a_full_disk(void **state)
{
	start_on_a_bad_disk(*state, fill_all, make_room, -ENOSPC, "No space left");
}

static void make_read_only(const struct place *p)
{
	remount(p, MS_RDONLY);
}

static void make_writable(const struct place *p)
{
	remount(p, 0);
}

static void test_start_on_a_read_only_disk(void **state)
{
	start_on_a_bad_disk(*state, make_read_only, make_writable, -EROFS, "Read-only");
}

/* ---- an ext4 that the kernel makes read-only under open files, as when a disk fails ---- */

static int run(const char *const *argv)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		execvp(argv[0], (char *const *)argv);
		_exit(127);
	}
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int mount_image(const struct place *p, const char *image)
{
	return run((const char *const[]){"mount", "-n", "-o", "loop,errors=remount-ro", image,
					 p->dir, NULL});
}

/*
 * Returns the path of a file in /sys. A write to it makes the file system at the directory fail, as
 * after a disk error.
 */
static char *trigger_of(const struct place *p)
{
	_cleanup_free_ char *link = NULL;
	char target[512] = "";
	struct stat st;

	assert_int_equal(stat(p->dir, &st), 0);
	link = xasprintf("/sys/dev/block/%u:%u", major(st.st_dev), minor(st.st_dev));
	assert_true(readlink(link, target, sizeof(target) - 1) > 0);
	return xasprintf("/sys/fs/ext4/%s/trigger_fs_error", strrchr(target, '/') + 1);
}

static void fail_disk(const struct place *p)
{
	_cleanup_free_ char *trigger = trigger_of(p);
	_cleanup_close_ int fd = open(trigger, O_WRONLY | O_CLOEXEC);
	_cleanup_close_ int dir = open(p->dir, O_RDONLY | O_CLOEXEC);

	/*
	 * sync first, because what is not on the disk when it fails may be lost, as in a power
	 * failure
	 */
	assert_int_equal(syncfs(dir), 0);
	assert_int_equal(write(fd, "1", 1), 1);
}

/*
 * Repairs a copy of the image. While the store holds the old files open, mount would use the old
 * file system again.
 */
static void mend_disk(const struct place *p, const char *image)
{
	_cleanup_free_ char *copy = xasprintf("%s2", image);

	assert_int_equal(umount2(p->dir, MNT_DETACH), 0);
	assert_int_equal(run((const char *const[]){"cp", image, copy, NULL}), 0);
	assert_in_range(run((const char *const[]){"e2fsck", "-fp", copy, NULL}), 0, 1);
	assert_int_equal(mount_image(p, copy), 0);
	unlink(copy);
}

/*
 * The store reports the read-only disk and writes nothing; stored profiles can be read. After the
 * repair it writes again.
 */
static void read_only_while_open(struct place *p, const char *image)
{
	reopen(p);
	assert_int_equal(put(p->s, 0), 0);
	assert_int_equal(put(p->s, 1), 0);
	fail_disk(p);
	assert_int_equal(put(p->s, 2), -EROFS);
	assert_non_null(strstr(error_of(p->s), "Read-only"));
	assert_int_equal(n_there(p->s), 2);
	assert_int_not_equal(store_expire(p->s, T0 * NSEC_PER_SEC), 0);
	assert_int_equal(n_files(p, FILE_NAME ".damaged-"), 0);
	mend_disk(p, image);
	assert_int_equal(put(p->s, 2), 0);
	assert_int_equal(n_there(p->s), 3);
	assert_string_equal(error_of(p->s), "");
	p->s = store_close(p->s);
	check_whole(p);
}

static void test_read_only_while_open(void **state)
{
	struct place *p = *state;
	_cleanup_free_ char *image = xasprintf("%s.img", p->dir);
	_cleanup_close_ int fd = open(image, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	assert_int_equal(ftruncate(fd, 16 << 20), 0);
	if (!private_mounts ||
	    run((const char *const[]){"mkfs.ext4", "-q", "-F", "-O", "^has_journal", image,
				      NULL}) ||
	    mount_image(p, image)) {
		unlink(image);
		print_message("skip: no ext4 can be mounted from a file here\n");
		skip();
	}
	read_only_while_open(p, image);
	unlink(image);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_killed_again_and_again),
		TEST(test_damaged_before_the_start),
		TEST(test_damaged_under_a_reader),
		TEST(test_damaged_and_quiet),
		TEST(test_damaged_wal),
		TEST(test_full_disk),
		TEST(test_disk_smaller_than_the_store),
		TEST(test_start_on_a_full_disk),
		TEST(test_start_on_a_read_only_disk),
		TEST(test_read_only_while_open),
	};

	private_mounts = unshare(CLONE_NEWNS) == 0 &&
			 mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
