/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes each call of a test row fail, one after another. fault_calls.h lists the calls that can
 * fail. It defines functions with the names of the calls: the linker prefers a program's own
 * definition to a shared library's, for all code of the process. One test at a time arms a fault;
 * the failing call may be on any thread.
 */
#include "lib/base/fault.h"

#include <setjmp.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define FAULT_SHORT (-1) /* no error: the call does half of what was asked for */
/*
 * how often one call is made to fail before what is left counts as a leak: after the first failure,
 * a run may keep memory or descriptors for good (a counter, a cache)
 */
#define FAULT_TRIES 3

static const struct {
	const char *name;
	int errors[4];
} calls[_FAULT_MAX] = {
	[FAULT_OPEN] = {"open", {EMFILE, EACCES}},
	[FAULT_FD] = {"descriptor", {EMFILE}},
	[FAULT_READ] = {"read", {EIO, EINTR, FAULT_SHORT}},
	[FAULT_READDIR] = {"readdir", {EIO}},
	[FAULT_WRITE] = {"write", {ENOSPC, EINTR, FAULT_SHORT}},
	[FAULT_SYNC] = {"fsync", {EIO}},
	[FAULT_RENAME] = {"rename", {ENOSPC}},
	[FAULT_UNLINK] = {"unlink", {EROFS}},
	[FAULT_STAT] = {"stat", {EACCES}},
	[FAULT_MKDIR] = {"mkdir", {ENOSPC}},
	[FAULT_TRUNCATE] = {"ftruncate", {EIO}},
	[FAULT_MMAP] = {"mmap", {ENOMEM}},
	[FAULT_BPF] = {"bpf", {ENOMEM, EPERM}},
	[FAULT_LINK] = {"bpf link", {ENOMEM, EPERM}},
	[FAULT_PERF] = {"perf_event_open", {EMFILE, EACCES}},
	[FAULT_IOCTL] = {"ioctl", {ENOMEM}},
	[FAULT_CONNECT] = {"connect", {ECONNREFUSED, ENETUNREACH}},
	[FAULT_SEND] = {"send", {EPIPE, EINTR, FAULT_SHORT}},
	[FAULT_RECV] = {"recv", {ECONNRESET, EINTR, FAULT_SHORT}},
	[FAULT_POLL] = {"poll", {EINTR}},
	[FAULT_EPOLL] = {"epoll_ctl", {ENOMEM}},
	[FAULT_START] = {"start", {EAGAIN}},
	[FAULT_MALLOC] = {"malloc", {ENOMEM}},
};

struct fault {
	enum fault_call call;
	int error;
	unsigned n;
	bool more;
};

static struct armed {
	atomic_int call; /* enum fault_call; -1: none */
	int error;
	bool more;
	unsigned n;
	atomic_uint n_seen, n_failed;
	/* with fault_in_children(), *armed is in memory that the children share */
} armed_here = {.call = -1}, *armed = &armed_here;
static atomic_long n_live; /* number of allocations that are not freed */

void fault_arm(enum fault_call call, int error, unsigned n, bool more)
{
	armed->error = error;
	armed->n = n;
	armed->more = more;
	atomic_store(&armed->n_seen, 0);
	atomic_store(&armed->n_failed, 0);
	atomic_store(&armed->call, call);
}

unsigned fault_disarm(void)
{
	atomic_store(&armed->call, -1);
	return atomic_load(&armed->n_failed);
}

unsigned fault_failed(void)
{
	return atomic_load(&armed->call) < 0 ? 0 : atomic_load(&armed->n_failed);
}

void fault_outage_ends(void *unused)
{
	(void)unused;
	(void)fault_disarm();
}

void fault_in_children(void)
{
	armed = mmap(NULL, sizeof(*armed), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	assert_true(armed != MAP_FAILED);
	atomic_store(&armed->call, -1);
}

/* Returns the error with which this call must fail; 0: the call must not fail. */
static int fault(enum fault_call call)
{
	unsigned n;

	if (atomic_load_explicit(&armed->call, memory_order_acquire) != (int)call)
		return 0;
	n = atomic_fetch_add(&armed->n_seen, 1) + 1;
	if (n != armed->n && !(armed->more && n > armed->n))
		return 0;
	atomic_fetch_add(&armed->n_failed, 1);
	return armed->error;
}

#include "lib/base/fault_calls.h"

/* ---- what a process holds ---- */

struct held {
	long n_fds, n_maps, n_live;
};

static long count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	long n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/*
 * Counts mappings of files and of BPF. It does not count those of the allocator, because their
 * number changes all the time.
 */
static long count_maps(void)
{
	_cleanup_free_ char *text = NULL;
	long n = 0;

	assert_int_equal(file_read(AT_FDCWD, "/proc/self/maps", 16 << 20, &text, NULL), 0);
	for (const char *line = text; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		n += strcspn(line, "/\n") < strcspn(line, "\n");
	}
	return n;
}

static struct held held_now(void)
{
	return (struct held){count_fds(), count_maps(), atomic_load(&n_live)};
}

static bool held_more(const struct fault_row *row, struct held a, struct held b)
{
	return b.n_fds > a.n_fds || b.n_maps > a.n_maps ||
	       (!row->threads && !row->grows && b.n_live > a.n_live);
}

/* ---- rows ---- */

static const char *error_name(int error)
{
	return error == FAULT_SHORT ? "short" : strerrorname_np(error);
}

/* The row that is being tested. */
static struct {
	const struct fault_row *row;
	void *arg;
	char why[512];
} now;

static int broken(const char *fmt, ...) _printf_(1, 2);
static int broken(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(now.why, sizeof(now.why), fmt, ap);
	va_end(ap);
	return -1;
}

static int run_once(const struct fault *f)
{
	int r;

	if (now.row->before)
		now.row->before(now.arg);
	if (f)
		fault_arm(f->call, f->error, f->n, f->more);
	r = now.row->run(now.arg);
	return r;
}

/*
 * Runs the row once with the fault and once without. Returns how many calls failed; -1: a check
 * failed.
 */
static int fail_and_again(const struct fault *f)
{
	int r = run_once(f);
	unsigned n_failed = fault_disarm();

	if (r > 0 || (r && !n_failed))
		return broken("gave %d when %u calls failed", r, n_failed);
	if (now.row->check)
		now.row->check(now.arg);
	r = run_once(NULL);
	if (r)
		return broken("afterwards, without a fault: %s", strerror(-r));
	if (now.row->check)
		now.row->check(now.arg);
	return (int)n_failed;
}

static int one_fault(const struct fault *f)
{
	struct held before, after;
	int n_failed, n_all = 0;

	for (unsigned i = 0; i < FAULT_TRIES; i++) {
		before = held_now();
		n_failed = fail_and_again(f);
		after = held_now();
		n_all += n_failed;
		if (n_failed < 0)
			return -1;
		if (!n_failed || !held_more(now.row, before, after))
			return n_all;
	}
	return broken("leaves %ld descriptors, %ld mappings, %ld allocations",
		      after.n_fds - before.n_fds, after.n_maps - before.n_maps,
		      after.n_live - before.n_live);
}

static int each_call(struct fault f)
{
	unsigned step = now.row->step > 1 && !getenv("LONG") ? now.row->step : 1;
	int n_failed, n_all = 0;
	size_t n;

	for (f.n = 1;; f.n += step) {
		if (getenv("V"))
			print_message("%s: %s %u %s%s\n", now.row->name, calls[f.call].name, f.n,
				      error_name(f.error), f.more ? " on" : "");
		n_failed = one_fault(&f);
		if (!n_failed)
			return n_all;
		if (n_failed < 0) {
			n = strlen(now.why);
			snprintf(now.why + n, sizeof(now.why) - n, " (%s: %s %u %s%s)",
				 now.row->name, calls[f.call].name, f.n, error_name(f.error),
				 f.more ? " and all from there on" : "");
			return -1;
		}
		n_all += n_failed;
	}
}

const char *fault_find(const struct fault_row *row, void *arg, unsigned *n_failed)
{
	now.row = row;
	now.arg = arg;
	/* the first runs make what all later runs use: counters, caches */
	for (unsigned i = 0; i < 2; i++)
		if (run_once(NULL) != 0)
			return "fails without a fault";
	for (unsigned c = 0; c < _FAULT_MAX; c++) {
		for (const int *e = calls[c].errors; *e && (row->calls & (1u << c)); e++) {
			for (int more = 0; more < 2; more++) {
				struct fault f = {c, *e, 0, more};
				int n;

				/*
				 * if each call is interrupted (EINTR), its caller may try again for
				 * ever
				 */
				if (more && *e == EINTR)
					continue;
				n = each_call(f);
				if (n < 0)
					return now.why;
				*n_failed += (unsigned)n;
			}
		}
	}
	return NULL;
}

void fault_each(const struct fault_row *row, void *arg)
{
	unsigned n_failed = 0;
	const char *why = fault_find(row, arg, &n_failed);

	print_message("faults: %s: %u calls failed\n", row->name, n_failed);
	if (why)
		fail_msg("%s: %s", row->name, why);
	if (!n_failed)
		fail_msg("%s: not one call failed", row->name);
}
