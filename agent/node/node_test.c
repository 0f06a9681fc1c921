/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole node without an API server: it profiles processes with a known function, by name and by
 * cgroup. The test checks what the node sends to the hub.
 */
#include "node/internal.h"
#include "node/parse/testnames.h"
#include "node/plan/testplan.h"
#include "node/proc/stat.h"

#include <cap-ng.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "node/testsink.h"

#define UID	 "401b6bf6-91e0-4a28-870a-232376283f12"
#define ID_A	 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define ID_B	 "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define ID_OTHER "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
#define BUSY	 "nodetest-busy"
#define OTHER	 "nodetest-other"
#define LIMIT_NS (120 * NSEC_PER_SEC)

/* ---- processes ---- */

__attribute__((noinline, noclone)) void node_test_burn(void);
__attribute__((noinline, noclone)) void node_test_burn(void)
{
	for (volatile unsigned long i = 0; i < 1000000; i++)
		;
}

static void join_cgroup(const char *dir)
{
	_cleanup_free_ char *path = xasprintf("%s/cgroup.procs", dir);
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, "0", 1) != 1)
		_exit(3);
}

/* Starts a process that burns ms milliseconds of CPU time (0: until it is killed). */
static pid_t start_busy(const char *name, const char *cgroup, unsigned ms)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, name);
	if (cgroup)
		join_cgroup(cgroup);
	for (;;) {
		node_test_burn();
		if (ms && clock() > (clock_t)ms * (CLOCKS_PER_SEC / 1000))
			_exit(0);
	}
}

/*
 * Starts a process that sleeps 20 ms again and again until it is killed, with n_short very short
 * sleeps in between.
 */
static pid_t start_sleeper(const char *name, const char *cgroup, unsigned n_short)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, name);
	if (cgroup)
		join_cgroup(cgroup);
	for (;;) {
		usleep(20000);
		for (unsigned i = 0; i < n_short; i++)
			usleep(100);
	}
}

/*
 * A program without frame pointers, like programs of distributions. When a process forks, its child
 * gets the unwind tables of the process. The child writes a byte when it is in its chain of calls,
 * and stays there.
 */
static const char no_frame_pointers[] =
	"#include <unistd.h>\n"
	"#define KEEP __attribute__((noinline, noclone))\n"
	"static volatile unsigned long sink;\n"
	"KEEP void leaf(void) { for (int i = 0; i < 2000; i++) sink += i * sink; }\n"
	"KEEP void two(void) { if (write(1, \"\", 1) == 1) for (;;) { leaf(); __asm__(\"\"); } }\n"
	"KEEP void one(void) { two(); __asm__(\"\"); }\n"
	"int main(void) { if (fork() > 0) for (;;) pause(); one(); return 0; }\n";

static bool compile(const char *dir)
{
	_cleanup_free_ char *source = xasprintf("%s/chain.c", dir);
	_cleanup_free_ char *command =
		xasprintf("gcc -O2 -fomit-frame-pointer -o %s/nodetest-chain %s", dir, source);

	return file_write_atomic(source, no_frame_pointers, strlen(no_frame_pointers), 0644) == 0 &&
	       system(command) == 0;
}

/*
 * Starts the program above. Returns when its child is in the chain of calls. The process has its
 * own process group, so the child can be killed with it.
 */
static pid_t start_chain(const char *dir, const char *cgroup)
{
	_cleanup_free_ char *path = xasprintf("%s/nodetest-chain", dir);
	int fds[2];
	pid_t pid;
	char c;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid = fork();
	if (pid) {
		close(fds[1]);
		assert_int_equal(read(fds[0], &c, 1), 1);
		close(fds[0]);
		return pid;
	}
	dup2(fds[1], STDOUT_FILENO);
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	join_cgroup(cgroup);
	execl(path, path, NULL);
	_exit(3);
}

static const char python[] = "/usr/bin/python3";
static const char python_program[] = "def leaf():\n return sum(range(20000))\n"
				     "def two():\n while True: leaf()\n"
				     "def one(): two()\n"
				     "def main(): one()\n"
				     "main()\n";

static pid_t start_python(const char *cgroup)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	join_cgroup(cgroup);
	execl(python, "nodetest-python", "-c", python_program, NULL);
	_exit(3);
}

/* ---- what arrived ---- */

struct seen {
	char app_service[32], container[64], container_id[80], pod[64], node[64];
	uint32_t process_id;
	uint64_t n_samples, n_named; /* n_named: samples with node_test_burn as a frame */
	/* samples without a marker frame; samples with the frames main, one, two, leaf */
	uint64_t n_whole, n_chain;
	int64_t value, waited[_WAIT_MAX];
	unsigned event_mask;
};
static struct {
	pthread_mutex_t lock;
	struct seen items[256];
	size_t n;
	char lost[256];
	char odd[1024]; /* the last complete stack of nodetest-chain without the chain */
} arrived = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void copy_tag(const struct profile *p, const char *key, char *out, size_t n)
{
	const char *v = profile_tag_get(p, key);

	snprintf(out, n, "%s", v ? v : "");
}

static bool is_named(const struct batch *b, const struct profile_sample *s)
{
	if (s->stack == STACK_NONE)
		return false;
	for (size_t i = 0; i < b->stacks[s->stack].n; i++)
		if (str_equal(b->stacks[s->stack].frames[i]->name, "node_test_burn"))
			return true;
	return false;
}

static bool is_whole(const struct batch *b, const struct profile_sample *s)
{
	if (s->stack == STACK_NONE)
		return false;
	for (size_t i = 0; i < b->stacks[s->stack].n; i++)
		if (b->stacks[s->stack].frames[i]->kind == FRAME_MARKER)
			return false;
	return true;
}

static bool has_name(const struct frame *f, const char *name)
{
	static const char module[] = "__main__.";
	const char *own = f->name;

	if (f->kind == FRAME_PYTHON && own && str_has_prefix(own, module))
		own += strlen(module);
	return str_equal(own, name);
}

static bool is_chain(const struct batch *b, const struct profile_sample *s)
{
	static const char *const chain[] = {"main", "one", "two", "leaf"};
	size_t at = 0;

	if (s->stack == STACK_NONE)
		return false;
	for (size_t i = 0; i < b->stacks[s->stack].n && at < ARRAY_SIZE(chain); i++)
		if (has_name(b->stacks[s->stack].frames[i], chain[at]))
			at++;
	/* "leaf" may be missing: some samples are taken in the function two(), outside leaf() */
	return at >= ARRAY_SIZE(chain) - 1;
}

static void note_odd(const struct batch *b, const struct profile_sample *s)
{
	const struct stack_ref *of = &b->stacks[s->stack];
	size_t n = 0;

	for (size_t i = 0; i < of->n && n < sizeof(arrived.odd); i++)
		n += (size_t)snprintf(arrived.odd + n, sizeof(arrived.odd) - n, "%s%s",
				      i ? ";" : "",
				      of->frames[i]->name ? of->frames[i]->name : "?");
}

static void note_profile(const struct batch *b, const struct profile *p)
{
	struct seen *s = &arrived.items[arrived.n];

	for (size_t i = 0; i < p->n_losses; i++)
		snprintf(arrived.lost, sizeof(arrived.lost), "%s", p->losses[i].reason);
	if (arrived.n == ARRAY_SIZE(arrived.items) || !p->n_samples)
		return;
	arrived.n++;
	*s = (struct seen){.process_id = p->process_id, .event_mask = 1u << p->event};
	snprintf(s->app_service, sizeof(s->app_service), "%s", p->app_service);
	copy_tag(p, "container", s->container, sizeof(s->container));
	copy_tag(p, "container_id", s->container_id, sizeof(s->container_id));
	copy_tag(p, "pod", s->pod, sizeof(s->pod));
	copy_tag(p, "pod_node", s->node, sizeof(s->node));
	for (size_t i = 0; i < p->n_samples; i++) {
		s->n_samples += p->samples[i].n_samples;
		s->value += p->samples[i].value;
		s->waited[p->samples[i].wait] += p->samples[i].value;
		if (is_whole(b, &p->samples[i]))
			s->n_whole += p->samples[i].n_samples;
		if (is_chain(b, &p->samples[i]))
			s->n_chain += p->samples[i].n_samples;
		else if (is_whole(b, &p->samples[i]) && streq(p->app_service, "nodetest-chain"))
			note_odd(b, &p->samples[i]);
		if (is_named(b, &p->samples[i]))
			s->n_named += p->samples[i].n_samples;
	}
}

/* Takes what the agent would send to the hub. Runs on a worker's thread. */
static int take(const void *body, size_t n, void *arg)
{
	(void)arg;
	return testsink_take(body, n, &arrived.lock, note_profile);
}

/* Adds up all profiles with this process name (and container). */
static bool find_seen(const char *app_service, const char *container_id, struct seen *ret)
{
	bool found = false;

	*ret = (struct seen){0};
	pthread_mutex_lock(&arrived.lock);
	for (size_t i = 0; i < arrived.n; i++) {
		struct seen sum = arrived.items[i];

		if (!streq(sum.app_service, app_service) ||
		    (container_id && !streq(sum.container_id, container_id)))
			continue;
		sum.n_samples += ret->n_samples;
		sum.n_named += ret->n_named;
		sum.n_whole += ret->n_whole;
		sum.n_chain += ret->n_chain;
		sum.value += ret->value;
		sum.event_mask |= ret->event_mask;
		for (enum wait w = 0; w < _WAIT_MAX; w++)
			sum.waited[w] += ret->waited[w];
		*ret = sum;
		found = true;
	}
	pthread_mutex_unlock(&arrived.lock);
	return found;
}

/* ---- the node under test ---- */

struct fixture {
	struct loop *loop;
	struct config conf;
	struct node *node;
	char dir[64], cgroup[400], pod[512], other_pod[512];
	struct timer poll;
	bool (*until)(struct fixture *f);
	pid_t busy, other, brief; /* brief ends by itself */
	char main_dir[600], short_dir[600], other_dir[600];
	uint64_t due_ns;
	bool reached;
};

static void poll_fire(void *arg)
{
	struct fixture *f = arg;

	f->reached = f->until(f);
	if (f->reached || now_mono_ns() > f->due_ns)
		loop_stop(f->loop, 0);
	else
		timer_set(f->loop, &f->poll, 50 * NSEC_PER_MSEC, poll_fire, f);
}

static void run_until(struct fixture *f, bool (*until)(struct fixture *f), const char *what)
{
	f->until = until;
	f->due_ns = now_mono_ns() + LIMIT_NS;
	timer_set(f->loop, &f->poll, 0, poll_fire, f);
	loop_run(f->loop);
	timer_cancel(&f->poll);
	if (!f->reached)
		fail_msg("not reached: %s", what);
}

static int setup(void **state)
{
	struct fixture *f = xcalloc(1, sizeof(*f));

	arrived.n = 0;
	arrived.lost[0] = '\0';
	conf_init(&f->conf);
	snprintf(f->dir, sizeof(f->dir), "/tmp/node-test-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	free(f->conf.data_dir);
	f->conf.data_dir = xstrdup(f->dir);
	free(f->conf.node_name);
	f->conf.node_name = xstrdup("node-a");
	f->conf.window_ns = NSEC_PER_SEC;
	assert_int_equal(loop_new(&f->loop), 0);
	*state = f;
	return 0;
}

static void remove_file(const char *dir, const char *name)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", dir, name);

	unlink(path);
}

static void remove_cgroup(const char *path)
{
	uint64_t due_ns = now_mono_ns() + 60 * NSEC_PER_SEC;

	/* a killed process leaves its cgroup a little after it was reaped */
	while (*path && rmdir(path) < 0 && errno == EBUSY && now_mono_ns() < due_ns)
		usleep(1000);
}

static void stop_busy(struct fixture *f)
{
	pid_t *const pids[] = {&f->busy, &f->other, &f->brief};

	for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
		if (*pids[i] <= 0)
			continue;
		kill(*pids[i], SIGKILL);
		waitpid(*pids[i], NULL, 0);
		*pids[i] = 0;
	}
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	const char *const cgroups[] = {f->main_dir, f->short_dir, f->other_dir,
				       f->pod,	    f->other_pod, f->cgroup};

	stop_busy(f);
	for (size_t i = 0; i < ARRAY_SIZE(cgroups); i++)
		remove_cgroup(cgroups[i]);
	node_free(f->node);
	loop_free(f->loop);
	conf_done(&f->conf);
	remove_file(f->dir, "node-state.json");
	remove_file(f->dir, "chain.c");
	remove_file(f->dir, "nodetest-chain");
	rmdir(f->dir);
	free(f);
	return 0;
}

static void start_node(struct fixture *f, bool local)
{
	struct node_config c = {.conf = &f->conf, .local = local, .direct = take};
	struct field_error err = {0};

	if (geteuid() != 0) {
		print_message("skipped: needs root\n");
		skip();
	}
	if (node_new(f->loop, &c, &f->node, &err) < 0)
		fail_msg("%s: %s", err.path, err.reason);
}

/* ---- host processes ---- */

static bool busy_and_total(struct fixture *f)
{
	struct seen s;

	(void)f;
	return find_seen(BUSY, NULL, &s) && s.n_samples >= 100 && find_seen("Total", NULL, &s);
}

static void test_by_name(void **state)
{
	struct fixture *f = *state;
	struct seen s;
	pid_t busy;

	free(f->conf.on_cpu_regex);
	f->conf.on_cpu_regex = xstrdup("^" BUSY "$");
	start_node(f, true);
	f->busy = start_busy(BUSY, NULL, 0);
	f->other = start_busy(OTHER, NULL, 0);
	busy = f->busy;
	run_until(f, busy_and_total, "100 samples of " BUSY " and Total");
	stop_busy(f);
	f->node = node_free(f->node);
	assert_true(find_seen(BUSY, NULL, &s));
	assert_int_equal(s.process_id, busy);
	assert_string_equal(s.node, "node-a");
	assert_string_equal(s.pod, "");
	assert_true(names_missing() || s.n_named * 10 >= s.n_samples * 8);
	assert_true(s.value > 0);
	assert_false(find_seen(OTHER, NULL, &s));
}

static bool host_sleep_seen(struct fixture *f)
{
	struct seen s;

	(void)f;
	return find_seen("nodetest-sleep", NULL, &s) && s.waited[WAIT_SLEEP] >= 2000000;
}

/*
 * DeepFlow's off-cpu-profile: each event has its own regular expression, and waits that are too
 * short are left out.
 */
static void test_waits_by_name(void **state)
{
	struct fixture *f = *state;
	struct seen s;

	free(f->conf.on_cpu_regex);
	f->conf.on_cpu_regex = xstrdup("^" BUSY "$");
	free(f->conf.off_cpu_regex);
	f->conf.off_cpu_regex = xstrdup("^nodetest-sl");
	f->conf.off_cpu_disabled = false;
	f->conf.off_cpu_min_block_ns = 10 * NSEC_PER_MSEC;
	start_node(f, true);
	f->busy = start_busy(BUSY, NULL, 0);
	f->other = start_sleeper("nodetest-sleep", NULL, 20);
	run_until(f, host_sleep_seen, "2 s of sleep");
	run_until(f, busy_and_total, "100 samples of " BUSY " and Total");
	stop_busy(f);
	f->node = node_free(f->node);
	assert_true(find_seen("nodetest-sleep", NULL, &s));
	assert_int_equal(s.event_mask, 1u << EVENT_OFF_CPU);
	assert_int_equal(s.waited[WAIT_SLEEP] + s.waited[WAIT_RUNQUEUE], s.value);
	/* Only waits of 10 ms or more are kept, but a part of a wait may be in the run queue. */
	assert_true((uint64_t)s.value >= s.n_samples * 4000);
	assert_true(find_seen(BUSY, NULL, &s));
	assert_int_equal(s.event_mask, 1u << EVENT_ON_CPU);
}

static void test_down_time_is_told(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *path = xasprintf("%s/node-state.json", f->dir);
	static const char text[] = "{\"end\": 1000000000, \"active\": true}\n";

	assert_int_equal(file_write_atomic(path, text, strlen(text), 0644), 0);
	start_node(f, true);
	f->node = node_free(f->node);
	assert_string_equal(arrived.lost, "agent_down");
}

static json_t *read_state(const struct fixture *f)
{
	_cleanup_free_ char *path = xasprintf("%s/node-state.json", f->dir), *text = NULL;

	return file_read(AT_FDCWD, path, 4096, &text, NULL) < 0 ? NULL : json_loads(text, 0, NULL);
}

static bool first_window_left(struct fixture *f)
{
	_cleanup_json_ json_t *j = read_state(f);

	return json_int_at(j, "end", 0) > 1000000000;
}

/*
 * An agent that is killed loses its open window, and a loss that this window would have reported.
 * So the state file must say that this time is not reported yet.
 */
static void test_open_window_is_owed(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *path = xasprintf("%s/node-state.json", f->dir);
	static const char text[] = "{\"end\": 1000000000, \"active\": true}\n";
	_cleanup_json_ json_t *j = NULL;

	f->conf.window_ns = 5 * NSEC_PER_SEC;
	assert_int_equal(file_write_atomic(path, text, strlen(text), 0644), 0);
	start_node(f, true);
	assert_false(first_window_left(f));
	run_until(f, first_window_left, "the end of the first window");
	j = read_state(f);
	assert_true(json_bool_at(j, "active", false));
	assert_int_equal(json_int_at(j, "end", 0) % 5, 0);
}

/* ---- containers ---- */

static bool make_dir(char *out, size_t n, const char *parent, const char *name)
{
	snprintf(out, n, "%s/%s", parent, name);
	return mkdir(out, 0755) == 0;
}

static void make_cgroups(struct fixture *f, const char *force)
{
	struct cgroup_hierarchy h;
	struct field_error err = {0};
	char name[64];

	free(f->conf.cgroup_hierarchy);
	f->conf.cgroup_hierarchy = xstrdup(force);
	snprintf(name, sizeof(name), "kubepods-nodetest-%d", getpid());
	if (geteuid() != 0 || proc_cgroup_choose(force, &h, &err) < 0 ||
	    !make_dir(f->cgroup, sizeof(f->cgroup), h.mount, name)) {
		print_message("skipped: %s: no cgroups can be made here: %s\n", force, err.reason);
		skip();
	}
	assert_true(make_dir(f->pod, sizeof(f->pod), f->cgroup, "pod" UID));
	assert_true(make_dir(f->other_pod, sizeof(f->other_pod), f->cgroup,
			     "pod99999999-91e0-4a28-870a-232376283f12"));
}

static bool main_seen(struct fixture *f)
{
	struct seen s;

	(void)f;
	return find_seen(BUSY, ID_A, &s) && s.n_samples >= 100;
}

static bool brief_ended(struct fixture *f)
{
	if (waitpid(f->brief, NULL, WNOHANG) != f->brief)
		return false;
	f->brief = 0;
	return true;
}

static bool short_seen(struct fixture *f)
{
	struct seen s;

	(void)f;
	return find_seen("nodetest-short", ID_B, &s);
}

static bool is_idle(struct fixture *f)
{
	return !kernel_active(f->node->kernel) && !kernel_loaded(f->node->kernel);
}

static bool is_ready_and_idle(struct fixture *f)
{
	return kernel_loaded(f->node->kernel) && !kernel_active(f->node->kernel) &&
	       counter_get(counter("podflame_bpf_programs", NULL, NULL)) > 0;
}

static bool answers_ready(struct fixture *f)
{
	_cleanup_buf_ struct buf why = {0};

	return node_ready(&why, f->node);
}

static struct plan *without_pods(struct plan *p)
{
	struct plan *rest = xcalloc(1, sizeof(*rest));

	rest->pods = TAKE_PTR(p->pods);
	rest->n_pods = p->n_pods;
	p->n_pods = 0;
	plan_free(rest);
	p->targets[0].on_this_node = true;
	return p;
}

/*
 * The programs are loaded as soon as there is a target. If they were loaded only when a pod starts,
 * a pod with a short life would have ended by then.
 */
static void test_loaded_with_a_target(void **state)
{
	_cleanup_buf_ struct buf why = {0};
	struct fixture *f = *state;
	struct plan *plan;

	make_cgroups(f, "v1:memory");
	start_node(f, false);
	assert_false(node_ready(&why, f->node));
	assert_string_equal(why.data, "the API server does not know this node yet\n");
	assert_int_equal(node_start(f->node, "node-uid"), 0);
	/* an earlier test has left a value */
	counter_set(counter("podflame_bpf_programs", NULL, NULL), 0);
	proc_containers_apply(f->node->containers, without_pods(testplan(UID, UID, ID_A, true)),
			      now_boot_ns());
	kernel_sync(f->node->kernel);
	assert_false(node_ready(&why, f->node)); /* the agent is loading the programs */
	run_until(f, is_ready_and_idle, "loaded");
	run_until(f, answers_ready, "ready");
	assert_int_equal(counter_get(counter("podflame_node_hz", NULL, NULL)), 0);
	plan = without_pods(testplan(UID, UID, ID_A, true));
	plan->targets[0].suspended = true;
	proc_containers_apply(f->node->containers, plan, now_boot_ns());
	kernel_sync(f->node->kernel);
	run_until(f, is_idle, "unloaded");
	assert_int_equal(counter_get(counter("podflame_bpf_programs", NULL, NULL)), 0);
	f->node = node_free(f->node);
}

static void hold_ptrace(bool hold)
{
	assert_int_equal(capng_get_caps_process(), 0);
	assert_int_equal(
		capng_update(hold ? CAPNG_ADD : CAPNG_DROP, CAPNG_EFFECTIVE, CAP_SYS_PTRACE), 0);
	assert_int_equal(capng_apply(CAPNG_SELECT_CAPS), 0);
}

/*
 * The API server sends the node object every few minutes. node_start must not log its messages
 * again.
 */
static void test_known_once(void **state)
{
	struct fixture *f = *state;
	int fd = memfd_create("log", MFD_CLOEXEC), stderr_fd = dup(STDERR_FILENO);
	char log[4096] = "";
	unsigned n = 0;

	start_node(f, false);
	hold_ptrace(false);
	dup2(fd, STDERR_FILENO);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(node_start(f->node, "node-uid"), 0);
	dup2(stderr_fd, STDERR_FILENO);
	hold_ptrace(true);
	assert_true(pread(fd, log, sizeof(log) - 1, 0) > 0);
	for (const char *s = log; (s = strstr(s, "CAP_SYS_PTRACE is missing")); s++)
		n++;
	assert_int_equal(n, 1);
	close(fd);
	close(stderr_fd);
	f->node = node_free(f->node);
}

static void by_cgroup(struct fixture *f, const char *force)
{
	struct seen s;

	make_cgroups(f, force);
	assert_true(make_dir(f->main_dir, sizeof(f->main_dir), f->pod, ID_A));
	assert_true(make_dir(f->other_dir, sizeof(f->other_dir), f->other_pod, ID_OTHER));
	f->busy = start_busy(BUSY, f->main_dir, 0);
	f->other = start_busy(OTHER, f->other_dir, 0);
	start_node(f, false);
	assert_int_equal(node_start(f->node, "node-uid"), 0);
	proc_containers_apply(f->node->containers, testplan(UID, UID, ID_A, true), now_boot_ns());
	kernel_sync(f->node->kernel);
	run_until(f, main_seen, "100 samples of the selected container");
	/*
	 * A container whose pod the plan does not have yet, and which lives shorter than a window.
	 */
	assert_true(make_dir(f->short_dir, sizeof(f->short_dir), f->pod, ID_B));
	f->brief = start_busy("nodetest-short", f->short_dir, 1000);
	run_until(f, brief_ended, "the end of the short process");
	remove_cgroup(f->short_dir);
	run_until(f, short_seen, "the short container");
	/* No target selects anything any more: the agent unloads everything from the kernel. */
	proc_containers_apply(f->node->containers, NULL, now_boot_ns());
	kernel_sync(f->node->kernel);
	run_until(f, is_idle, "unloaded");
	stop_busy(f);
	f->node = node_free(f->node);

	assert_true(find_seen(BUSY, ID_A, &s));
	assert_string_equal(s.container, "main");
	assert_string_equal(s.pod, "web-1");
	assert_true(names_missing() || s.n_named * 10 >= s.n_samples * 8);
	assert_true(find_seen("nodetest-short", ID_B, &s));
	assert_string_equal(s.container, "");
	assert_string_equal(s.pod, "web-1");
	/* 1 s at 99 Hz; if three processes share a CPU, the number varies by 8 */
	assert_true(s.n_samples >= 60);
	assert_true(names_missing() || s.n_named * 10 >= s.n_samples * 8);
	assert_false(find_seen(OTHER, NULL, &s));
	assert_false(find_seen("Total", NULL, &s));
}

static bool sleep_seen(struct fixture *f)
{
	struct seen s;

	(void)f;
	return find_seen("nodetest-sleep", ID_A, &s) && s.waited[WAIT_SLEEP] >= 3000000;
}

/*
 * A target that asks only for waits: their whole time is reported, with its cause, and nothing
 * twice. There are no on-cpu ticks.
 */
static void test_waits_of_a_container(void **state)
{
	struct fixture *f = *state;
	struct plan *plan = testplan(UID, UID, ID_A, true);
	const unsigned off_cpu = 1u << EVENT_OFF_CPU;
	const struct event_settings settings = {.min_block_us = 50, .max_block_us = 3600000000};
	uint64_t from_ns;
	struct seen s;

	plan->pods->arm_event_mask = plan->pods->containers->event_mask = off_cpu;
	plan->pods->arm_sample_hz = plan->pods->containers->sample_hz = 0;
	plan->pods->arm_settings = plan->pods->containers->settings = settings;
	make_cgroups(f, "v1:memory");
	assert_true(make_dir(f->main_dir, sizeof(f->main_dir), f->pod, ID_A));
	from_ns = now_boot_ns();
	f->busy = start_sleeper("nodetest-sleep", f->main_dir, 0);
	start_node(f, false);
	assert_int_equal(node_start(f->node, "node-uid"), 0);
	proc_containers_apply(f->node->containers, plan, now_boot_ns());
	kernel_sync(f->node->kernel);
	run_until(f, sleep_seen, "3 s of sleep");
	stop_busy(f);
	f->node = node_free(f->node);

	assert_true(find_seen("nodetest-sleep", ID_A, &s));
	assert_int_equal(s.event_mask, off_cpu);
	assert_string_equal(s.pod, "web-1");
	assert_true((uint64_t)s.value <= (now_boot_ns() - from_ns) / 1000);
	assert_int_equal(s.waited[WAIT_SLEEP] + s.waited[WAIT_RUNQUEUE], s.value);
}

static bool chain_seen(struct fixture *f)
{
	struct seen s;

	(void)f;
	return find_seen("nodetest-chain", ID_A, &s) && s.n_samples >= 300;
}

/*
 * Stacks are complete from the first sample on, because the files of a process are parsed when its
 * pod is selected or when the process starts.
 */
static void test_whole_stacks(void **state)
{
	struct fixture *f = *state;
	struct seen s;

	make_cgroups(f, "v1:memory");
	if (!compile(f->dir)) {
		print_message("skipped: gcc does not work here\n");
		skip();
	}
	assert_true(make_dir(f->main_dir, sizeof(f->main_dir), f->pod, ID_A));
	f->busy = start_chain(f->dir, f->main_dir);
	start_node(f, false);
	assert_int_equal(node_start(f->node, "node-uid"), 0);
	proc_containers_apply(f->node->containers, testplan(UID, UID, ID_A, true), now_boot_ns());
	kernel_sync(f->node->kernel);
	run_until(f, chain_seen, "300 samples of the chain");
	assert_true(counter_get(counter("podflame_unwind_processes", NULL, NULL)) >= 2);
	assert_true(counter_get(counter("podflame_unwind_files", "state", "tables")) >= 2);
	/* end the node before the processes: late in its exit, a task has no user stack any more */
	f->node = node_free(f->node);
	kill(-f->busy, SIGKILL);
	stop_busy(f);
	assert_true(find_seen("nodetest-chain", ID_A, &s));
	if (!names_missing() && (s.n_whole * 100 < s.n_samples * 97 || s.n_chain < s.n_whole))
		fail_msg("of %lu stacks %lu are whole, %lu have the chain; one that has not: %s",
			 s.n_samples, s.n_whole, s.n_chain, arrived.odd);
}

static bool python_seen(struct fixture *f)
{
	struct seen s;

	(void)f;
	return find_seen("python3", ID_A, &s) && s.n_chain > 0 && s.n_samples >= 100;
}

/*
 * A Python program starts while the node runs: the agent finds its runtime, walks its frames and
 * names its functions.
 */
static void test_python_functions(void **state)
{
	struct fixture *f = *state;
	struct seen s;

	make_cgroups(f, "v1:memory");
	if (access(python, X_OK) < 0 || names_missing()) {
		print_message("skipped: no %s, or no names\n", python);
		skip();
	}
	assert_true(make_dir(f->main_dir, sizeof(f->main_dir), f->pod, ID_A));
	start_node(f, false);
	assert_int_equal(node_start(f->node, "node-uid"), 0);
	proc_containers_apply(f->node->containers, testplan(UID, UID, ID_A, true), now_boot_ns());
	kernel_sync(f->node->kernel);
	f->busy = start_python(f->main_dir);
	run_until(f, python_seen, "functions of the Python program");
	pthread_mutex_lock(&arrived.lock);
	arrived.n = 0; /* samples from before the runtime was found have native frames only */
	pthread_mutex_unlock(&arrived.lock);
	run_until(f, python_seen, "100 samples more");
	stop_busy(f);
	f->node = node_free(f->node);
	assert_true(find_seen("python3", ID_A, &s));
	if (s.n_chain * 100 < s.n_samples * 95 || s.n_whole * 100 < s.n_samples * 95)
		fail_msg("of %lu stacks %lu are whole, %lu have the chain", s.n_samples, s.n_whole,
			 s.n_chain);
}

static void test_by_cgroup_v1(void **state)
{
	by_cgroup(*state, "v1:memory");
}

static void test_by_cgroup_v2(void **state)
{
	by_cgroup(*state, "v2");
}

/* ---- parts ---- */

static void test_stat(void **state)
{
	static const char text[] = "42 (a) b) (c) S 1 2 3 0 -1 2097152 5 0 0 0 1 2 3 4 20 0 1 0 "
				   "98765 1000 2\n";
	struct proc_stat s;

	(void)state;
	assert_int_equal(proc_stat_parse(text, &s), 0);
	assert_string_equal(s.comm, "a) b) (c");
	assert_int_equal(s.flags, 2097152);
	assert_int_equal(s.start_ticks, 98765);
	assert_int_equal(proc_stat_parse("42 (x", &s), -EINVAL);
	assert_int_equal(proc_stat_parse("42 (x) S 1", &s), -EINVAL);
	assert_int_equal(proc_stat_parse("", &s), -EINVAL);
}

static void test_bad_regex(void **state)
{
	struct fixture *f = *state;
	struct node_config c = {.conf = &f->conf, .local = true, .direct = take};
	struct field_error err = {0};
	struct node *n;

	free(f->conf.on_cpu_regex);
	f->conf.on_cpu_regex = xstrdup("(");
	assert_int_equal(node_new(f->loop, &c, &n, &err), -EINVAL);
	assert_string_equal(err.path, "on-cpu-profile.regex");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stat),
		cmocka_unit_test_setup_teardown(test_bad_regex, setup, teardown),
		cmocka_unit_test_setup_teardown(test_by_name, setup, teardown),
		cmocka_unit_test_setup_teardown(test_waits_by_name, setup, teardown),
		cmocka_unit_test_setup_teardown(test_down_time_is_told, setup, teardown),
		cmocka_unit_test_setup_teardown(test_open_window_is_owed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_waits_of_a_container, setup, teardown),
		cmocka_unit_test_setup_teardown(test_whole_stacks, setup, teardown),
		cmocka_unit_test_setup_teardown(test_python_functions, setup, teardown),
		cmocka_unit_test_setup_teardown(test_loaded_with_a_target, setup, teardown),
		cmocka_unit_test_setup_teardown(test_known_once, setup, teardown),
		cmocka_unit_test_setup_teardown(test_by_cgroup_v1, setup, teardown),
		cmocka_unit_test_setup_teardown(test_by_cgroup_v2, setup, teardown),
	};

	/* the parser runs this program as its child */
	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
