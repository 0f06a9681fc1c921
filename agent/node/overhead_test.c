/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory events of processes that allocate little, much, or all the time: the decisions about them,
 * and the estimates.
 */
#include "node/testoverhead.h"

/* ---- processes: they write what they do to memory that the test can read ---- */

static void storm(void)
{
	for (;;)
		allocate(64);
}

/*
 * Allocates little until `go` is set. Then it allocates all the time, and adds up how long slow
 * allocations took.
 */
static void bursts(void)
{
	while (!truth->go) {
		allocate(64);
		usleep(20000);
	}
	for (;;) {
		uint64_t from = now_mono_ns(), ns;

		for (unsigned i = 0; i < 1000; i++)
			allocate(64);
		ns = now_mono_ns() - from;
		if (ns > 1000 * SLOW_NS)
			truth->slow_ns += ns;
	}
}

/* ---- tests ---- */

static bool both_seen(struct fixture *f)
{
	return is_steady(f, EVENT_MEM_ALLOC) && is_steady(f, EVENT_MEM_INUSE) &&
	       arrived.alloc_bytes >= 20000 && arrived.inuse_bytes >= 8192;
}

static void little_is_seen_all_the_time(void **state)
{
	struct fixture *f = *state;
	uint64_t bytes;

	begin(f, calm, ALLOC | INUSE, 1);
	run_until(f, both_seen, "20 kB allocated, 8 kB alive");
	assert_int_equal(testfollow_n_probed(f->node->follow), 1);
	kill(f->pid, SIGSTOP);
	bytes = truth->bytes + truth->leaked;
	f->node = node_free(f->node);
	assert_true(arrived.alloc_bytes <= bytes);
	assert_true(arrived.inuse_bytes <= truth->leaked + 1000);
	assert_int_equal(arrived.ppm, 0);
	kill(f->pid, SIGCONT);
}

#define TRIAL(...) (&(struct limit_spent){.attached_ns = 10 * NSEC_PER_MSEC, __VA_ARGS__})
#define BUSY	   TRIAL(.hits = 1000, .cpu_ns = 10 * NSEC_PER_MSEC)
#define CALM	   TRIAL(.hits = 1, .cpu_ns = 10 * NSEC_PER_MSEC)

static bool is_payer(struct fixture *f)
{
	return testpayers_one(f->node->limit);
}

static enum limit_mode mode_after(struct fixture *f, const struct limit_spent *const *trials,
				  size_t n)
{
	struct payer *p = testpayers_one(f->node->limit);

	p->of[EVENT_MEM_INUSE] = (struct account){.last = p->of[EVENT_MEM_INUSE].last};
	for (size_t i = 0; i < n; i++)
		limit_spent(f->node->limit, p->cgroup_id, PROBES_MEMORY, INUSE, trials[i]);
	return p->of[EVENT_MEM_INUSE].tried ? p->of[EVENT_MEM_INUSE].mode : LIMIT_SPANS;
}

/* A single busy trial must not lead to a refusal, because a refusal lasts for ten minutes. */
static void one_busy_trial_is_no_refusal(void **state)
{
	const struct limit_spent *const busy[] = {BUSY, BUSY, BUSY}, *const calm[] = {CALM},
					*const once[] = {
						TRIAL(.hits = 60, .cpu_ns = 10 * NSEC_PER_MSEC),
						CALM, CALM};
	struct fixture *f = *state;

	begin(f, sleeps, INUSE, 524288);
	run_until(f, is_payer, "a container whose cost is asked for");
	f->node->limit->trap_ns = 2000;
	assert_int_equal(mode_after(f, calm, 1), LIMIT_STEADY);
	assert_int_equal(mode_after(f, busy, 1), LIMIT_SPANS);
	assert_int_equal(mode_after(f, busy, 2), LIMIT_SPANS);
	assert_int_equal(mode_after(f, busy, 3), LIMIT_REFUSED);
	assert_int_equal(mode_after(f, once, 1), LIMIT_SPANS);
	assert_int_equal(mode_after(f, once, 3), LIMIT_STEADY);
}

static bool is_decided(struct fixture *f)
{
	const struct account *a = account(f, EVENT_MEM_ALLOC);

	return a && (a->mode == LIMIT_REFUSED || (a->mode == LIMIT_SPANS && a->spans.n > 2));
}

static bool is_detached(struct fixture *f)
{
	return follow_is_detached(f->node->follow);
}

static void a_storm_is_refused_or_estimated(void **state)
{
	struct fixture *f = *state;
	const struct account *a;

	begin(f, storm, ALLOC | INUSE, 524288);
	run_until(f, is_decided, "a decision");
	a = account(f, EVENT_MEM_ALLOC);
	print_message(
		"a storm: mode %d, load %.3f of %.0f hits in %.1f ms, span %.1f ms of %.1f ms\n",
		a->mode, limit_load(&a->cost, f->node->limit->trap_ns), a->cost.hits,
		a->cost.attached_ns / 1e6, (double)a->span.span_ns / 1e6,
		(double)a->span.wait_ns / 1e6);
	assert_int_equal(account(f, EVENT_MEM_INUSE)->mode, LIMIT_REFUSED);
	run_until(f, is_detached, "no probes");
}

static bool is_attached(struct fixture *f)
{
	return is_steady(f, EVENT_MEM_ALLOC) && testfollow_n_probed(f->node->follow) == 1;
}

static uint64_t stalls(void)
{
	return counter_get(counter("podflame_probes_stalls_total", NULL, NULL));
}

static uint64_t stalls_before;

static bool is_noticed(struct fixture *f)
{
	return stalls() > stalls_before && is_detached(f);
}

/*
 * A process allocates little, so its probes are attached steadily. Then it begins to allocate all
 * the time. The agent must notice that and detach the probes soon.
 */
static void a_sudden_storm_is_noticed(void **state)
{
	struct fixture *f = *state;

	begin(f, bursts, ALLOC, 524288);
	stalls_before = stalls();
	run_until(f, is_attached, "probes");
	truth->go = 1;
	run_until(f, is_noticed, "a storm that is noticed");
	print_message("slow for %.1f ms\n", (double)truth->slow_ns / 1e6);
	assert_false(is_steady(f, EVENT_MEM_ALLOC));
}

/* ---- estimates: the windows that have ended, and what the process allocated in them ---- */

static bool spans_seen(struct fixture *f)
{
	const struct account *a = account(f, EVENT_MEM_ALLOC);

	return a && a->mode == LIMIT_SPANS && spans_ended() >= spans_due && arrived.ppm;
}

struct seen {
	double told, truth, variance;
};

static struct seen seen_now(void)
{
	return (struct seen){(double)arrived.alloc_bytes, (double)truth->bytes, arrived.variance};
}

struct looked {
	double told, really, error;
};

static struct looked look(struct fixture *f)
{
	const struct account *a = account(f, EVENT_MEM_ALLOC);
	struct seen from = seen_now(), to;
	struct looked l;

	spans_due = spans_ended() + LOOK_SPANS;
	run_until(f, spans_seen, "more of it");
	to = seen_now();
	l = (struct looked){to.told - from.told, to.truth - from.truth,
			    sqrt(to.variance - from.variance)};
	print_message("often: load %.2f, span %.1f ms of %.0f ms: told %.2f of the truth, error "
		      "%.2f\n",
		      limit_load(&a->cost, f->node->limit->trap_ns), (double)a->span.span_ns / 1e6,
		      (double)a->span.wait_ns / 1e6, l.told / l.really, l.error / l.told);
	assert_true(l.error < l.told);
	return l;
}

static void begin_often(struct fixture *f)
{
	begin(f, often, ALLOC, 16384);
	spans_due = spans_ended() + SETTLE_SPANS;
	run_until(f, spans_seen, "an estimate");
}

static void much_is_estimated(void **state)
{
	struct fixture *f = *state;
	struct looked l;

	begin_often(f);
	l = look(f);
	/* This estimate has few spans. On a busy machine the ratio was 0.65 to 1.10. */
	assert_true(l.told > 0.4 * l.really && l.told < 2.5 * l.really);
}

static void what_is_told_is_as_sure_as_it_says(void **state)
{
	struct fixture *f = *state;
	unsigned n_within = 0;

	if (!getenv("LONG")) {
		print_message("skipped: takes ten minutes: LONG=1\n");
		skip();
	}
	begin_often(f);
	for (unsigned i = 0; i < 20; i++) {
		struct looked l = look(f);

		n_within += fabs(l.told - l.really) <= 2 * l.error;
	}
	print_message("within two errors: %u of 20\n", n_within);
	assert_true(n_within >= 16);
}

/* ---- a pause without probes, in which the process continues to allocate ---- */

static bool is_forgotten(struct fixture *f)
{
	return is_detached(f) && !testfollow_memory_is_asked_for(f->node->follow) &&
	       !account(f, EVENT_MEM_ALLOC);
}

static bool has_span(struct fixture *f)
{
	const struct account *a = account(f, EVENT_MEM_ALLOC);

	return a && a->spans.n > 0;
}

static bool is_without_spans(struct fixture *f)
{
	return testfollow_has_no_span(f->node->follow, f->pid);
}

#define PAUSE_NS (500 * NSEC_PER_MSEC) /* CPU time that the process must use in a pause */
/* how far the CPU clock of a process may be behind while the process runs */
#define TICKS_NS (50 * NSEC_PER_MSEC)
static uint64_t paused_ns;

static bool has_worked_in_pause(struct fixture *f)
{
	return program_cpu_ns(f->pid) >= paused_ns + PAUSE_NS;
}

static void work_in_pause(struct fixture *f)
{
	paused_ns = program_cpu_ns(f->pid);
	run_until(f, has_worked_in_pause, "work in the pause");
	paused_ns = program_cpu_ns(f->pid);
}

/*
 * All work for which the spans stand must have been done after the pause, however many spans there
 * are.
 */
static void assert_begins_anew(struct fixture *f)
{
	uint64_t since_ns;
	double all_ns;

	run_until(f, has_span, "a span after the pause");
	all_ns = account(f, EVENT_MEM_ALLOC)->spans.all_work_ns;
	since_ns = program_cpu_ns(f->pid) - paused_ns;
	if (all_ns > (double)(since_ns + TICKS_NS))
		fail_msg("spans stand for %.0f ms of work, and %llu ms were done since the pause",
			 all_ns / 1e6, (unsigned long long)(since_ns / NSEC_PER_MSEC));
}

static void a_pause_is_not_estimated(void **state)
{
	struct fixture *f = *state;

	begin_often(f);
	ask(f, 1u << EVENT_ON_CPU, 16384);
	run_until(f, is_forgotten, "nobody who asks");
	work_in_pause(f);
	ask(f, ALLOC, 16384);
	assert_begins_anew(f);
}

static void forget_spans(struct fixture *f)
{
	testpayers_one(f->node->limit)->of[EVENT_MEM_ALLOC].spans = (struct spans){0};
}

/*
 * While the kernel refuses the probes, the process has no spans. What it does in that time must not
 * be estimated from later spans.
 */
static void what_the_kernel_refuses_is_not_estimated(void **state)
{
	struct fixture *f = *state;

	begin_often(f);
	run_until(f, is_detached, "the end of a span");
	testfollow_refuse(f->node->follow, f->pid, true);
	run_until(f, is_without_spans, "no spans that are to come");
	forget_spans(f);
	work_in_pause(f);
	testfollow_refuse(f->node->follow, f->pid, false);
	assert_begins_anew(f);
}

static void what_has_no_room_is_not_estimated(void **state)
{
	struct fixture *f = *state;

	begin_often(f);
	run_until(f, is_detached, "the end of a span");
	/* as if ATTACHED_MAX other processes had probes */
	testfollow_add_probed(f->node->follow, 1024);
	run_until(f, is_without_spans, "no spans that are to come");
	forget_spans(f);
	work_in_pause(f);
	testfollow_add_probed(f->node->follow, -1024);
	assert_begins_anew(f);
}

static void a_refusal_is_not_estimated(void **state)
{
	struct fixture *f = *state;
	struct account *a;

	begin_often(f);
	run_until(f, is_detached, "the end of a span");
	a = &testpayers_one(f->node->limit)->of[EVENT_MEM_ALLOC];
	a->mode = LIMIT_REFUSED;
	a->asked = limit_asked(f->node->limit, testpayers_one(f->node->limit));
	a->retry_ns = UINT64_MAX;
	run_until(f, is_without_spans, "no spans that are to come");
	forget_spans(f);
	work_in_pause(f);
	a->retry_ns = 0;
	assert_begins_anew(f);
}

/* ---- the same for a Go program, whose own heap profile is read ---- */

static const char go_program[] =
	"package main\n"
	"import (\"os\"; \"os/signal\"; \"runtime\"; \"syscall\")\n"
	"var sink []byte\n"
	"func init() { runtime.MemProfileRate = 1 }\n"
	"//go:noinline\n"
	"func allocate(n int) { for i := 0; i < n; i++ { sink = make([]byte, 1 << 20) } }\n"
	"func main() {\n"
	"	asked := make(chan os.Signal, 1)\n"
	"	signal.Notify(asked, syscall.SIGUSR1, syscall.SIGUSR2)\n"
	"	runtime.MemProfile(nil, false)\n"
	"	for s := range asked {\n"
	"		if s == syscall.SIGUSR1 { allocate(100) } else { allocate(300) }\n"
	"		os.Stdout.WriteString(\"x\")\n"
	"	}\n"
	"}\n";
static struct {
	char dir[64], source[128], path[128];
	int said[2]; /* a pipe: the program writes to it after it has allocated */
} go;

#define GO_MB (1u << 20)

static bool go_build(void)
{
	_cleanup_free_ char *build = NULL;

	snprintf(go.dir, sizeof(go.dir), "/tmp/overhead-go-XXXXXX");
	assert_non_null(mkdtemp(go.dir));
	snprintf(go.path, sizeof(go.path), "%s/pf-alloc", go.dir);
	snprintf(go.source, sizeof(go.source), "%s/main.go", go.dir);
	assert_int_equal(file_write_atomic(go.source, go_program, strlen(go_program), 0600), 0);
	build = xasprintf("GOFLAGS= go build -o %s %s 2>/dev/null", go.path, go.source);
	return system(build) == 0;
}

static int go_teardown(void **state)
{
	teardown(state);
	close(go.said[0]);
	close(go.said[1]);
	unlink(go.path);
	unlink(go.source);
	rmdir(go.dir);
	return 0;
}

static void runs_go(void)
{
	if (dup2(go.said[1], STDOUT_FILENO) == STDOUT_FILENO)
		execl(go.path, go.path, NULL);
}

static bool go_is_read(struct fixture *f)
{
	return testfollow_go_heap_is_read(f->node->follow, f->pid);
}

static bool go_is_forgotten(struct fixture *f)
{
	return testfollow_has_go_heap(f->node->follow, f->pid) && is_detached(f) &&
	       !testfollow_memory_is_asked_for(f->node->follow);
}

static uint64_t bytes_due;

static bool bytes_arrived(struct fixture *f)
{
	(void)f;
	return arrived.alloc_bytes >= bytes_due;
}

static void go_allocates(struct fixture *f, int how_much)
{
	char c;

	assert_int_equal(kill(f->pid, how_much), 0);
	assert_int_equal(read(go.said[0], &c, 1), 1);
}

static void go_read_now(struct fixture *f)
{
	testfollow_read_go_heap(f->node->follow, f->pid);
	run_until(f, go_is_read, "its heap profile");
}

static void what_go_allocates_in_a_pause_is_not_told(void **state)
{
	struct fixture *f = *state;
	uint64_t before;

	assert_int_equal(pipe(go.said), 0);
	if (!go_build()) {
		print_message("skipped: no Go here\n");
		skip();
	}
	begin(f, runs_go, ALLOC, 524288);
	run_until(f, go_is_read, "its heap profile");
	go_allocates(f, SIGUSR1);
	go_read_now(f);
	bytes_due = 90 * GO_MB;
	run_until(f, bytes_arrived, "what it allocates");
	ask(f, 1u << EVENT_ON_CPU, 524288);
	run_until(f, go_is_forgotten, "nobody who asks");
	before = arrived.alloc_bytes;
	go_allocates(f, SIGUSR1);
	ask(f, ALLOC, 524288);
	go_read_now(f);
	go_allocates(f, SIGUSR2);
	go_read_now(f);
	bytes_due = before + 290 * GO_MB;
	run_until(f, bytes_arrived, "what it allocates afterwards");
	assert_true(arrived.alloc_bytes < before + 350 * GO_MB);
}

/* The argument is a pattern for the names of tests, such as "a_file*"; default: all. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(little_is_seen_all_the_time, setup, teardown),
		cmocka_unit_test_setup_teardown(one_busy_trial_is_no_refusal, setup, teardown),
		cmocka_unit_test_setup_teardown(a_storm_is_refused_or_estimated, setup, teardown),
		cmocka_unit_test_setup_teardown(a_sudden_storm_is_noticed, setup, teardown),
		cmocka_unit_test_setup_teardown(much_is_estimated, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_told_is_as_sure_as_it_says, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_pause_is_not_estimated, setup, teardown),
		cmocka_unit_test_setup_teardown(a_refusal_is_not_estimated, setup, teardown),
		cmocka_unit_test_setup_teardown(what_the_kernel_refuses_is_not_estimated, setup,
						teardown),
		cmocka_unit_test_setup_teardown(what_has_no_room_is_not_estimated, setup, teardown),
		cmocka_unit_test_setup_teardown(what_go_allocates_in_a_pause_is_not_told, setup,
						go_teardown),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	truth = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(truth != MAP_FAILED);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
