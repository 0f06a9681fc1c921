// SPDX-License-Identifier: Apache-2.0
/*
 * Waits for a GPU. The machine has none, so pseudo-terminals stand in for it: the test gives the
 * probes a list of devices in which the terminals belong to NVIDIA's driver.
 */
#include "node/probe/offcpu_scene_test.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sysmacros.h>
#include <termios.h>

#include "lib/base/testdir.h"

#define WAIT_MS	 100 /* VTIME of a terminal counts in this unit */
#define N_ROUNDS 3

static char dir[TESTDIR_BYTES];
static char devices[TESTDIR_BYTES + 16]; /* a file like /proc/devices */
static int terminal, far_end;
static unsigned terminal_major;

/* How the waits on terminals count in the test that runs. */
static enum wait polled_is, used_is;

/* Makes the terminal: if there is nothing to read, a read of it returns after 100 ms. */
static int begin_all(void **state)
{
	struct termios t;
	struct stat st;

	(void)state;
	far_end = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (far_end < 0 || grantpt(far_end) || unlockpt(far_end))
		return -1;
	terminal = open(ptsname(far_end), O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (terminal < 0 || fstat(terminal, &st) || tcgetattr(terminal, &t))
		return -1;
	terminal_major = major(st.st_rdev);
	cfmakeraw(&t);
	t.c_cc[VMIN] = 0;
	t.c_cc[VTIME] = WAIT_MS / 100;
	if (tcsetattr(terminal, TCSANOW, &t) || testdir_make(dir))
		return -1;
	snprintf(devices, sizeof(devices), "%s/devices", dir);
	return 0;
}

static int end_all(void **state)
{
	(void)state;
	close(terminal);
	close(far_end);
	return testdir_remove(dir);
}

/* Writes the list of devices: terminals have this name. The far end has a number of its own. */
static void list_terminals_as(const char *name)
{
	_cleanup_free_ char *text = xasprintf("Character devices:\n"
					      "  1 mem\n"
					      "%3u %s\n"
					      "\n"
					      "Block devices:\n"
					      "  5 nvidia\n",
					      terminal_major, name);

	assert_int_equal(file_write_atomic(devices, text, strlen(text), 0600), 0);
}

static struct probes *watch_terminals(const struct child *c, uint32_t off_keep)
{
	struct probe_config config = {.use_list = true, .devices_path = devices};

	return watch_by(config, c, (struct event_settings){.min_block_us = 50}, off_keep);
}

/* ---- a process that waits ---- */

static int empty[2]; /* a pipe */

static int poll_of(int a, int b)
{
	struct pollfd fds[] = {{.fd = a, .events = POLLIN}, {.fd = b, .events = POLLIN}};

	return poll(fds, ARRAY_SIZE(fds), WAIT_MS);
}

static int ppoll_of(int fd)
{
	struct pollfd fds = {.fd = fd, .events = POLLIN};
	struct timespec t = {.tv_nsec = WAIT_MS * NSEC_PER_MSEC};

	return ppoll(&fds, 1, &t, NULL);
}

static int select_of(int a, int b)
{
	struct timeval t = {.tv_usec = WAIT_MS * 1000};
	fd_set read_fds;

	FD_ZERO(&read_fds);
	FD_SET(a, &read_fds);
	FD_SET(b, &read_fds);
	return select(MAX(a, b) + 1, &read_fds, NULL, NULL, &t);
}

static int epoll_of(int a, int b, int c)
{
	struct epoll_event e = {.events = EPOLLIN};
	int fds[] = {a, b, c}, epoll = epoll_create1(EPOLL_CLOEXEC), r;

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &e);
	r = epoll_wait(epoll, &e, 1, WAIT_MS);
	close(epoll);
	return r;
}

/*
 * How a call of ioctl() comes to wait: a writer has filled the terminal, and the call sends one
 * more character. Only after a while does a reader read from the far end.
 */
#define MUCH (1 << 15) /* bytes: more than a terminal takes at once */

static void write_much(void)
{
	static char bytes[MUCH];

	(void)!write(terminal, bytes, sizeof(bytes));
	_exit(0);
}

static void read_much(void)
{
	static char bytes[MUCH];
	ssize_t n = 0, got = 1;

	nap(WAIT_MS);
	while (n < MUCH && (got = read(far_end, bytes, sizeof(bytes))) > 0)
		n += got;
	_exit(0);
}

static pid_t start(void (*run)(void))
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	run();
	_exit(1);
}

static void wait_in_ioctl(struct known *k)
{
	struct pollfd writable = {.fd = terminal, .events = POLLOUT};
	pid_t writer = start(write_much), reader;

	while (poll(&writable, 1, 0) == 1)
		spin(1);
	reader = start(read_much);
	TIMED(k, used_is, ioctl(terminal, TCXONC, TCIOFF));
	TIMED(k, WAIT_OTHER, waitpid(writer, NULL, 0));
	TIMED(k, WAIT_OTHER, waitpid(reader, NULL, 0));
}

static void body_terminals(struct truth *t)
{
	struct known *k = known_of(t);
	int second = dup(terminal), third = dup(terminal);
	uint64_t delay_ns;
	char byte;

	begin(k);
	delay_ns = run_delay_ns();
	for (int i = 0; i < N_ROUNDS; i++) {
		TIMED(k, used_is, read(terminal, &byte, 1));
		wait_in_ioctl(k);
		TIMED(k, polled_is, poll_of(terminal, -1));
		TIMED(k, polled_is, poll_of(-1, terminal));
		TIMED(k, polled_is, poll_of(terminal, second));
		TIMED(k, polled_is, ppoll_of(terminal));
		TIMED(k, polled_is, select_of(terminal, terminal));
		TIMED(k, polled_is, epoll_of(terminal, terminal, terminal));
		TIMED(k, polled_is, epoll_of(terminal, second, third));
		/* these calls also wait for something that is no terminal */
		TIMED(k, WAIT_POLL, poll_of(terminal, empty[0]));
		TIMED(k, WAIT_POLL, poll_of(empty[0], terminal));
		TIMED(k, WAIT_POLL, select_of(terminal, empty[0]));
		TIMED(k, WAIT_POLL, epoll_of(terminal, terminal, empty[0]));
		TIMED(k, WAIT_POLL, epoll_of(terminal, second, empty[0]));
		/* a device, but another one */
		TIMED(k, WAIT_POLL, poll_of(far_end, -1));
		/* no descriptor */
		TIMED(k, WAIT_POLL, poll_of(-1, -1));
	}
	k->run_delay_ns = run_delay_ns() - delay_ns;
	end(k);
}

static void count_waits_on_terminals(struct waits *ret)
{
	struct child c;
	struct probes *p;
	struct known *k;

	assert_int_equal(pipe(empty), 0);
	assert_true(empty[0] > terminal);
	c = child_start(body_terminals, NULL);
	k = known_of(c.truth);
	p = watch_terminals(&c, 0);
	*ret = (struct waits){.pid = c.pid};
	until_done(p, k, ret, 1);
	check_cause(ret, k, WAIT_POLL);
	check_cause(ret, k, polled_is);
	check_cause(ret, k, used_is);
	probes_free(p);
	child_stop(&c);
	close(empty[0]);
	close(empty[1]);
}

static void waits_in_the_driver_are_for_the_gpu(void **state)
{
	struct waits w;

	(void)state;
	polled_is = used_is = WAIT_GPU;
	list_terminals_as("nvidia-uvm");
	count_waits_on_terminals(&w);
	assert_true(w.n[WAIT_GPU] >= 9 * N_ROUNDS);
}

static void waits_for_other_devices_are_not(void **state)
{
	struct waits w;

	(void)state;
	polled_is = WAIT_POLL;
	used_is = WAIT_OTHER;
	list_terminals_as("pts");
	count_waits_on_terminals(&w);
	assert_int_equal(w.n[WAIT_GPU], 0);
}

/* ---- thinned ---- */

static void body_long_poll(struct truth *t)
{
	struct known *k = known_of(t);
	struct pollfd fds = {.fd = terminal, .events = POLLIN};

	begin(k);
	TIMED(k, WAIT_GPU, poll(&fds, 1, 3000));
	end(k);
}

/* The program that finds a long wait still going on finds its cause, too. */
static void a_thinned_wait_has_its_cause(void **state)
{
	struct child c = child_start(body_long_poll, NULL);
	struct waits w = {.pid = c.pid};
	struct probes *p;

	(void)state;
	list_terminals_as("nvidia");
	p = watch_terminals(&c, 1);
	/* The first drain loads the programs that look at long waits. */
	drain(p, &w, 1);
	if (!has_whole_waits(p)) {
		print_message("skipped: this kernel cannot walk other tasks\n");
		skip();
	}
	until_done(p, known_of(c.truth), &w, 1);
	check_cause(&w, known_of(c.truth), WAIT_GPU);
	assert_int_equal(w.us[WAIT_POLL], 0);
	probes_free(p);
	child_stop(&c);
}

/* ---- which devices are GPUs ---- */

static bool is_gpu(const struct probes *p, unsigned number)
{
	return p->settings->has_gpu && p->settings->gpu_majors[number / 64] >> number % 64 & 1;
}

static uint64_t n_failed(void)
{
	return counter_get(counter("podflame_gpu_devices_failed_total", NULL, NULL));
}

static void a_driver_that_is_loaded_later_is_known_by_the_next_drain(void **state)
{
	struct child c = child_start(body_until_woken, NULL);
	struct waits w = {.pid = c.pid};
	struct probes *p;
	uint64_t failed = n_failed();

	(void)state;
	list_terminals_as("pts");
	p = watch_terminals(&c, 0);
	assert_false(p->settings->has_gpu);
	list_terminals_as("nvidia-caps");
	drain(p, &w, 1);
	assert_true(is_gpu(p, terminal_major));
	assert_false(is_gpu(p, 1));
	assert_false(is_gpu(p, 5)); /* a block device */
	assert_int_equal(n_failed(), failed);
	unlink(devices);
	drain(p, &w, 1);
	assert_true(is_gpu(p, terminal_major));
	assert_int_equal(n_failed(), failed + 1);
	list_terminals_as("pts");
	drain(p, &w, 1);
	assert_false(p->settings->has_gpu);
	probes_free(p);
	child_stop(&c);
}

/* The argument is a pattern of test names such as "waits*"; without it, all tests run. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(waits_in_the_driver_are_for_the_gpu),
		cmocka_unit_test(waits_for_other_devices_are_not),
		cmocka_unit_test(a_thinned_wait_has_its_cause),
		cmocka_unit_test(a_driver_that_is_loaded_later_is_known_by_the_next_drain),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, begin_all, end_all);
}
