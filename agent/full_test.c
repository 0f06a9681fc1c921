/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The disks of the hub and of the agent are full while windows (profiles of 10 s) go from the spool
 * to the store: spool -> send -> ingest -> store. Each disk is a small file system of the test, in
 * a mount namespace of its own. Each sample must be stored once, or counted as lost and reported to
 * the hub. When the disks have free space again, all windows must be stored again.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/base/testdir.h"
#include "testwire.h"

#define T0	   1700000000
#define STORE_DISK "16m"
#define SPOOL_DISK "256k"
/*
 * limit of the spool's files, larger than its disk. The batches that do not fit on the disk are
 * kept in memory, which has the same limit
 */
#define SPOOL_BYTES  (384 << 10)
#define N_PER_WINDOW 10
#define NAME_BYTES   1024 /* bytes of random text; compression halves them */
#define N_MOST	     400
#define DEADLINE_NS  (120 * NSEC_PER_SEC)

struct world {
	char dir[TESTDIR_BYTES];
	char *hub_dir, *spool_dir;
	struct wire wire;
	uint32_t n_windows;
	uint64_t n_rows; /* number of samples in the store */
	bool (*until)(struct world *w);
	struct timer poll;
	uint64_t due_ns;
};

/* ---- disks ---- */

static char *small_disk(const struct world *w, const char *name, const char *bytes)
{
	char *path = xasprintf("%s/%s", w->dir, name);
	_cleanup_free_ char *size = xasprintf("size=%s", bytes);

	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(mount("none", path, "tmpfs", 0, size), 0);
	return path;
}

/* Deletes the file that is kept in reserve for a full disk, and then fills the disk of dir. */
static void fill(const char *dir)
{
	_cleanup_free_ char *reserve = xasprintf("%s/reserve", dir);
	_cleanup_free_ char *path = xasprintf("%s/others", dir);
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	char zeros[512] = "";

	assert_true(fd >= 0);
	assert_true(unlink(reserve) == 0 || errno == ENOENT);
	while (write(fd, zeros, sizeof(zeros)) > 0)
		;
	assert_int_equal(errno, ENOSPC);
}

static void make_room(const char *dir)
{
	_cleanup_free_ char *path = xasprintf("%s/others", dir);

	assert_int_equal(unlink(path), 0);
}

/* Returns the number of batches that wait in files. */
static size_t n_files(const struct world *w)
{
	DIR *d = opendir(w->spool_dir);
	const struct dirent *e;
	size_t n = 0;

	assert_non_null(d);
	while ((e = readdir(d)))
		n += strstr(e->d_name, ".otlp") != NULL;
	closedir(d);
	return n;
}

/* ---- windows ---- */

static void add_sample(struct batch *b, struct profile *p)
{
	struct profile_sample *s = profile_add(b, p);
	char name[2 * NAME_BYTES + 1];
	uint8_t noise[NAME_BYTES];
	struct frame f = {.kind = FRAME_APP, .name = name, .module = "/bin/web"};

	random_bytes(noise, sizeof(noise));
	for (size_t i = 0; i < NAME_BYTES; i++)
		snprintf(name + 2 * i, 3, "%02x", noise[i]);
	s->cpu = -1;
	s->value = s->n_samples = 1;
	assert_int_equal(profile_batch_stack(b, &f, 1, &s->stack), 0);
}

static void send_window(struct world *w)
{
	struct batch *b = profile_batch_new();
	struct profile *p = profile_batch_profile(b);
	_cleanup_free_ char *id = xasprintf("window %u", ++w->n_windows);
	const char *parts[] = {id};

	profile_id_make(parts, 1, p->id);
	p->event = EVENT_ON_CPU;
	p->start_ns = (T0 + w->n_windows * 10ULL) * NSEC_PER_SEC;
	p->end_ns = p->start_ns + 10 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, "web");
	p->process_id = 10;
	for (size_t i = 0; i < N_PER_WINDOW; i++)
		add_sample(b, p);
	assert_int_equal(send_send(w->wire.sender, b), 0);
}

static struct sender_stats stats_of(const struct world *w)
{
	struct sender_stats s;

	send_stats(w->wire.sender, &s);
	return s;
}

/* ---- the contents of the store ---- */

static int count_row(const struct store_row *row, void *arg)
{
	((struct world *)arg)->n_rows += row->n_samples;
	return 0;
}

/*
 * Sets n_rows. Returns the number of samples that the store counts as lost because the spool was
 * full.
 */
static uint64_t look_at_store(struct world *w)
{
	const struct selection sel = {.event = EVENT_ON_CPU, .time_end_s = INT32_MAX};
	struct store_summary sum = {0};
	uint64_t n = 0;

	w->n_rows = 0;
	assert_int_equal(
		store_read(w->wire.store, &store_scope_all, &sel, count_row, w, &sum, NULL), 0);
	for (size_t i = 0; i < sum.n_losses; i++)
		if (streq(sum.losses[i].reason, "spool_full"))
			n += sum.losses[i].n_samples;
	store_summary_done(&sum);
	return n;
}

/* ---- waits until a condition holds ---- */

static void look(void *arg)
{
	struct world *w = arg;

	if (w->until(w))
		loop_stop(w->wire.loop, 0);
	else if (now_mono_ns() > w->due_ns)
		loop_stop(w->wire.loop, -ETIMEDOUT);
	else
		timer_set(w->wire.loop, &w->poll, 5 * NSEC_PER_MSEC, look, w);
}

static void run_until(struct world *w, bool (*until)(struct world *w), const char *what)
{
	struct sender_stats s;

	w->until = until;
	w->due_ns = now_mono_ns() + DEADLINE_NS;
	timer_set(w->wire.loop, &w->poll, 0, look, w);
	if (loop_run(w->wire.loop) == 0)
		return;
	s = stats_of(w);
	fail_msg("not in time: %s; %llu batches wait, last error \"%s\"", what,
		 (unsigned long long)s.n_spooled, s.last_error);
}

static bool all_is_stored_or_lost(struct world *w)
{
	struct sender_stats s = stats_of(w);

	look_at_store(w);
	return s.n_spooled == 0 &&
	       w->n_rows + s.n_dropped_samples == (uint64_t)w->n_windows * N_PER_WINDOW;
}

static bool hub_is_full(struct world *w)
{
	return strstr(stats_of(w).last_error, "No space left") != NULL;
}

static bool window_is_taken(struct world *w)
{
	struct sender_stats s = stats_of(w);

	return (s.n_sent + s.n_spooled) * N_PER_WINDOW + s.n_dropped_samples >=
	       (uint64_t)w->n_windows * N_PER_WINDOW;
}

static bool all_is_told(struct world *w)
{
	/*
	 * also compares the number of files: the disk worker deletes a file some time after its
	 * window was counted as sent
	 */
	return all_is_stored_or_lost(w) && n_files(w) == 0 &&
	       look_at_store(w) == stats_of(w).n_dropped_samples;
}

/* ---- set-up and tear-down ---- */

static int setup(void **state)
{
	struct world *w = xcalloc(1, sizeof(*w));

	*state = w;
	assert_int_equal(testdir_make(w->dir), 0);
	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
		print_message("skip: only root can mount a small disk\n");
		return 0;
	}
	w->hub_dir = small_disk(w, "hub", STORE_DISK);
	w->spool_dir = small_disk(w, "spool", SPOOL_DISK);
	wire_make(&w->wire, &(struct store_config){.kind = "sqlite", .path = w->hub_dir},
		  w->spool_dir, SPOOL_BYTES);
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	int r;

	if (w->wire.loop) {
		wire_free(&w->wire);
		umount2(w->hub_dir, MNT_DETACH);
		umount2(w->spool_dir, MNT_DETACH);
	}
	r = testdir_remove(w->dir);
	free(w->hub_dir);
	free(w->spool_dir);
	free(w);
	return r;
}

static uint64_t count_of(const char *name, const char *reason)
{
	return counter_get(counter(name, "reason", reason));
}

/* Sends windows until the samples of some are lost. */
static void windows_while_full(struct world *w)
{
	while (stats_of(w).n_dropped_samples < 5 * N_PER_WINDOW) {
		assert_true(w->n_windows < N_MOST);
		send_window(w);
		run_until(w, window_is_taken, "a window is in the spool");
	}
}

static void both_disks_are_full(void **state)
{
	struct world *w = *state;
	uint64_t n_unwritten;
	size_t n_waiting;

	if (!w->wire.loop)
		skip();
	for (int i = 0; i < 3; i++)
		send_window(w);
	run_until(w, all_is_stored_or_lost, "three windows are stored");
	fill(w->hub_dir);
	send_window(w);
	run_until(w, hub_is_full, "the hub has no room");
	assert_true(count_of("store_write_errors_total", "ENOSPC") > 0);
	/* fills the spool's disk, and then its memory */
	windows_while_full(w);
	n_waiting = n_files(w);
	n_unwritten = count_of("podflame_spool_files_total", "write_failed");
	assert_true(n_waiting > 0);
	assert_true(n_unwritten > 0);
	assert_true(stats_of(w).n_spooled > n_waiting); /* the other batches are in memory */
	/* rows that were stored before can still be read */
	look_at_store(w);
	assert_int_equal(w->n_rows, 3 * N_PER_WINDOW);
	make_room(w->hub_dir);
	run_until(w, all_is_told, "what waits is stored, what was lost is told");
	assert_int_equal(count_of("podflame_samples_dropped_total", "spool_full"),
			 stats_of(w).n_dropped_samples);
	assert_string_equal(stats_of(w).last_error, "");
	/* new windows go through the files of the spool and are stored */
	n_unwritten = count_of("podflame_spool_files_total", "write_failed");
	for (int i = 0; i < 3; i++)
		send_window(w);
	run_until(w, all_is_stored_or_lost, "windows are stored again");
	assert_int_equal(count_of("podflame_spool_files_total", "write_failed"), n_unwritten);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(both_disks_are_full, setup, teardown),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("full", tests, NULL, NULL);
}
