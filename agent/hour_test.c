/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An hour of profiling in a short time: drain -> fold -> names -> encode -> spool -> send -> ingest
 * -> store -> query. A drain is the samples of one second, as the agent reads them from the kernel.
 * The test makes the drains itself, so it does not need the kernel's probes. Ten drains are a
 * window. Old profiles are deleted meanwhile. The container has a new process in each window. After
 * each window, all memory that it used must be free. The test runs 36 windows, or 360 with LONG=1.
 * With AddressSanitizer (make test-asan), LeakSanitizer checks, too.
 */
#include "node/pipeline/testwindows.h"

#include <dlfcn.h>
#include <malloc.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/base/testdir.h"
#include "testwire.h"

#define N_SHORT	     36
#define N_LONG	     360
#define N_WARM	     6 /* windows until all memory that is kept for good (caches) exists */
#define DRAINS	     10
#define WINDOW_NS    (DRAINS * NSEC_PER_SEC)
#define STACKS	     16
#define CGROUP	     77
#define GUARD_NS     (300 * NSEC_PER_SEC)
#define RETENTION_NS (N_WARM * WINDOW_NS)
/*
 * bytes by which the memory in use may grow after the first windows, in all others together: for
 * SQLite's cache, and for memory that malloc keeps
 */
#define MAX_GROWTH (1 << 20)

struct world {
	char dir[TESTDIR_BYTES];
	struct wire wire;
	struct files *files;
	struct windows *windows;
	struct owner *owner;
	struct timer guard;
	uint64_t now_ns; /* CLOCK_BOOTTIME in the hour that the test simulates */
	uint64_t offset_ns;
	pid_t pid; /* the process in the container during this window */
	uint64_t pid_start_ns;
	struct raw_proc news[1];
	size_t n_news;
	bool has_ended; /* the process has ended since the last drain */
	uint64_t n_made, n_sent, n_stored, n_rows, n_named;
};

/* ---- memory in use; with a sanitizer, only its own allocator has the number ---- */

size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static long bytes_in_use(void)
{
	if (__sanitizer_get_current_allocated_bytes)
		return (long)__sanitizer_get_current_allocated_bytes();
	return (long)(mallinfo2().uordblks + mallinfo2().hblkhd);
}

/* ---- in place of the kernel: processes and drains ---- */

/*
 * Returns an address in a small library (zlib) that every process of the test has mapped. The
 * address is in a function with a known name.
 */
static uint64_t address_of(size_t i)
{
	static const char *const names[] = {"crc32", "adler32", "deflate", "inflate"};
	void *p = dlsym(RTLD_DEFAULT, names[i % ARRAY_SIZE(names)]);

	assert_non_null(p);
	return (uint64_t)p + 4;
}

static void process_begins(struct world *w, uint32_t exec_id)
{
	w->pid = fork();
	assert_true(w->pid >= 0);
	if (w->pid == 0)
		for (;;)
			pause();
	assert_int_equal(proc_start_boottime((uint32_t)w->pid, &w->pid_start_ns), 0);
	w->news[w->n_news++] = (struct raw_proc){.what = RAW_PROC_SEEN,
						 .tgid = (uint32_t)w->pid,
						 .tgid_own = 1,
						 .exec_id = exec_id,
						 .start_boottime_ns = w->pid_start_ns,
						 .cgroup_id = CGROUP,
						 .time_ns = w->now_ns,
						 .comm = "worker"};
}

static void process_ends(struct world *w)
{
	kill(w->pid, SIGKILL);
	assert_int_equal(waitpid(w->pid, NULL, 0), w->pid);
	w->has_ended = true;
}

static void add_sample(const struct world *w, struct drain *d, enum event e, size_t stack)
{
	d->samples[d->n_samples++] = (struct raw_sample){.event = e,
							 .wait = WAIT_LOCK,
							 .start_boottime_ns = w->pid_start_ns,
							 .cgroup_id = CGROUP,
							 .ustack = 1 + stack,
							 .tgid = (uint32_t)w->pid,
							 .tid = (uint32_t)w->pid,
							 .cpu = UINT32_MAX,
							 .n = 1,
							 .value = 10101,
							 .first_ns = d->from_ns,
							 .last_ns = d->from_ns};
}

/* Makes the drain of one second: STACKS stacks of the process, each in three events. */
static struct drain *make_drain(struct world *w, uint32_t exec_id)
{
	struct drain *d = sample_drain_new(0);
	struct raw_frame frame = {.exec_id = exec_id};

	d->from_ns = w->now_ns;
	d->to_ns = w->now_ns += NSEC_PER_SEC;
	d->stacks = xcalloc(STACKS, sizeof(*d->stacks));
	d->samples = xcalloc(3 * (size_t)STACKS, sizeof(*d->samples));
	for (size_t i = 0; i < STACKS; i++)
		for (size_t k = 0; k <= i; k++) {
			frame.address = address_of(i + k);
			buf_add(d->memory, &frame, sizeof(frame));
		}
	for (size_t i = 0, at = 0; i < STACKS; at += ++i) {
		d->stacks[d->n_stacks++] =
			(struct raw_stack){.hash = 1 + i,
					   .frames = (const struct raw_frame *)d->memory->data + at,
					   .n = 1 + i};
		add_sample(w, d, EVENT_ON_CPU, i);
		add_sample(w, d, EVENT_OFF_CPU, i);
		add_sample(w, d, EVENT_MEM_ALLOC, i);
	}
	d->procs = xcalloc(ARRAY_SIZE(w->news), sizeof(*d->procs));
	memcpy(d->procs, w->news, w->n_news * sizeof(*d->procs));
	d->n_procs = w->n_news;
	w->n_news = 0;
	w->n_made += d->n_samples;
	return d;
}

/* ---- in place of the node ---- */

static void send_batch(struct world *w, struct batch *b)
{
	for (size_t i = 0; b && i < b->n_profiles; i++)
		for (size_t k = 0; k < b->profiles[i]->n_samples; k++)
			w->n_sent += b->profiles[i]->samples[k].n_samples;
	if (b)
		assert_int_equal(send_send(w->wire.sender, b), 0);
}

static void take_drain(struct world *w, struct drain *d)
{
	const struct process_exit ended = {.id = {w->pid_start_ns, (uint64_t)w->pid},
					   .exited_ns = d->from_ns};

	send_batch(w, testwindows_drain(w->windows, d, CGROUP, w->owner,
					w->has_ended ? &ended : NULL));
	w->has_ended = false;
}

static void on_stored(const struct stored_event *e, size_t n, void *arg)
{
	struct world *w = arg;

	for (size_t i = 0; i < n; i++)
		w->n_stored += e[i].n_samples;
	if (w->n_stored >= w->n_sent)
		loop_stop(w->wire.loop, 0);
}

static void late(void *arg)
{
	loop_stop(((struct world *)arg)->wire.loop, -ETIMEDOUT);
}

static void await_hub(struct world *w)
{
	if (w->n_stored < w->n_sent)
		assert_int_equal(loop_run(w->wire.loop), 0);
	assert_int_equal(w->n_stored, w->n_sent);
}

/* ---- the hub ---- */

static int on_row(const struct store_row *row, void *arg)
{
	struct world *w = arg;

	w->n_rows += row->n_samples;
	if (row->n_frames && str_equal(row->frames[row->n_frames - 1]->name, "crc32"))
		w->n_named += row->n_samples;
	return 0;
}

/* Checks the rows in the store, and deletes the old ones. */
static void look_at_store(struct world *w)
{
	int64_t now_s = (int64_t)((w->now_ns + w->offset_ns) / NSEC_PER_SEC);
	struct selection sel = {
		.event = EVENT_ON_CPU, .time_start_s = now_s - 3600, .time_end_s = now_s + 60};
	struct store_summary sum = {0};

	w->n_rows = w->n_named = 0;
	assert_int_equal(store_read(w->wire.store, &store_scope_all, &sel, on_row, w, &sum, NULL),
			 0);
	assert_true(w->n_rows > 0);
	assert_int_equal(w->n_named, w->n_rows / 4); /* a quarter of the frames is in crc32 */
	store_summary_done(&sum);
	assert_int_equal(store_expire(w->wire.store, w->now_ns + w->offset_ns), 0);
}

static void one_window(struct world *w, uint32_t number)
{
	process_begins(w, number);
	for (unsigned i = 0; i < DRAINS; i++) {
		if (i == DRAINS - 1)
			process_ends(w);
		take_drain(w, make_drain(w, number));
	}
	await_hub(w);
	if (w->n_stored)
		look_at_store(w);
}

/* ---- set-up and tear-down ---- */

static void add_tag(struct owner *o, const char *key, const char *value)
{
	GROW(o->tags.items, o->tags.n, o->tags.cap);
	o->tags.items[o->tags.n++] = (struct tag){xstrdup(key), xstrdup(value)};
}

static void make_world(struct world *w)
{
	_cleanup_free_ char *spool = xasprintf("%s/spool", w->dir);
	const struct store_config stored = {
		.kind = "sqlite", .path = w->dir, .retention_ns = RETENTION_NS};
	const struct files_config fc = {};

	wire_make(&w->wire, &stored, spool, 64 << 20);
	send_on_stored(w->wire.sender, on_stored, w);
	assert_int_equal(files_new(&fc, &w->files), 0);
	assert_int_equal(testwindows_new(w->files, WINDOW_NS, &w->windows), 0);
	w->owner = xcalloc(1, sizeof(*w->owner));
	w->owner->refs = 1;
	w->owner->off_keep = UINT32_MAX;
	w->owner->container_id = xstrdup("c0ffee");
	add_tag(w->owner, "container_id", "c0ffee");
	add_tag(w->owner, "pod_uid", "401b6bf6");
}

static void done(struct world *w)
{
	timer_cancel(&w->guard);
	wire_free(&w->wire);
	pipeline_windows_free(w->windows);
	files_free(w->files);
	proc_owner_unref(w->owner);
	testdir_remove(w->dir);
}

/*
 * Some data of an ended process is kept for some seconds of real time, which may be longer than the
 * test's hour. So this function continues until these seconds are over. Returns how much more
 * memory is in use than before.
 */
static long settle(struct world *w, uint32_t n_windows, long before)
{
	uint64_t deadline = now_mono_ns() + GUARD_NS;
	long more;

	while ((more = bytes_in_use() - before) >= MAX_GROWTH && now_mono_ns() < deadline) {
		usleep(200000);
		one_window(w, ++n_windows);
	}
	return more;
}

static void run(uint32_t n_windows)
{
	struct world w = {.now_ns = now_boot_ns(), .offset_ns = now_wall_ns() - now_boot_ns()};
	long warm = 0, more;

	assert_int_equal(testdir_make(w.dir), 0);
	make_world(&w);
	for (uint32_t i = 1; i <= n_windows; i++) {
		timer_set(w.wire.loop, &w.guard, GUARD_NS, late, &w);
		one_window(&w, i);
		if (i == 2 * N_WARM)
			warm = bytes_in_use();
		if (i % 60 == 0)
			print_message("%u windows: %ld KiB in use\n", i, bytes_in_use() >> 10);
	}
	more = settle(&w, n_windows, warm);
	print_message("%u windows, %llu samples: %ld KiB more than after %d windows\n", n_windows,
		      (unsigned long long)w.n_made, more >> 10, 2 * N_WARM);
	assert_true(more < MAX_GROWTH);
	send_batch(&w, pipeline_windows_flush(w.windows)); /* the flush may return no batch */
	await_hub(&w);
	assert_int_equal(w.n_stored, w.n_made);
	done(&w);
}

static void windows(void **state)
{
	(void)state;
	run(N_SHORT);
}

static void windows_of_an_hour_long(void **state)
{
	(void)state;
	if (!getenv("LONG")) {
		print_message("skip: an hour of windows: LONG=1\n");
		skip();
	}
	run(N_LONG);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(windows),
		cmocka_unit_test(windows_of_an_hour_long),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("hour", tests, NULL, NULL);
}
