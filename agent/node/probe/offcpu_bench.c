// SPDX-License-Identifier: Apache-2.0
/*
 * What off-cpu costs a task switch: two processes on one CPU send each other a byte. They are
 * selected or not, and an empty program runs on the same tracepoint. It prints one JSON object a
 * line, and needs root.
 */
#include "node/probe/bench_probes.h"
#include "node/probe/rows_test.h"

#include <bpf/btf.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUND_MS    300
#define ROUNDS	    7
#define TRIP_ROUNDS 9
#define MORE	    "more than an empty program on the same event"

static volatile uint64_t *shared; /* number of round trips */

/* ---- workload ---- */

struct pair {
	pid_t pids[2];
};

static void on_cpu(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

/*
 * Reads a byte and writes one, in the section of rows_test.h. CFA = rsp + 8 at each instruction.
 * With bench_turn it returns after each byte.
 */
__asm__(".pushsection pf_rows,\"ax\",@progbits\n"
	".balign 64\n"
	"pf_rows_hand_on:\n"
	"1:	mov bench_from(%rip),%edi\n"
	"	lea bench_byte(%rip),%rsi\n"
	"	mov $1,%edx\n"
	"	xor %eax,%eax\n"
	"	syscall\n"
	"	mov bench_to(%rip),%edi\n"
	"	mov $1,%eax\n"
	"	syscall\n"
	"	mov bench_count(%rip),%rax\n"
	"	incq (%rax)\n"
	"	cmpl $0,bench_turn(%rip)\n"
	"	je 1b\n"
	"	ret\n"
	".balign 64\n"
	".popsection\n");
void pf_rows_hand_on(void);
extern int bench_from, bench_to, bench_turn;
extern volatile uint64_t *bench_count;
extern char bench_byte;
int bench_from, bench_to, bench_turn;
volatile uint64_t *bench_count;
char bench_byte;

static void install_rows(struct probes *p)
{
	static const struct pf_rule rules[] = {
		{.cfa = PF_CFA_RSP, .cfa_offset = 8},
		{.cfa = PF_CFA_RSP, .cfa_offset = 16, .fp = PF_FP_CFA, .fp_offset = -16},
		{.cfa = PF_CFA_RSP, .cfa_offset = 32},
	};
	uint16_t ret = pf_rows_ret - (const char *)__start_pf_rows;
	uint16_t hand_on = (const char *)pf_rows_hand_on - (const char *)__start_pf_rows;
	const struct pf_row rows[] = {{0, 0},  {1, 1},	 {12, 0},     {64, 0},
				      {68, 2}, {ret, 0}, {hand_on, 0}};

	rows_write(p, rows, ARRAY_SIZE(rows), rules, ARRAY_SIZE(rules));
}

/* Reads and writes bytes for ever. turn: the stack differs from one wait to the next. */
static void hand_on_forever(int from, int to, unsigned depth, bool turn)
{
	bench_from = from;
	bench_to = to;
	bench_turn = turn;
	bench_count = shared;
	for (unsigned i = 0;; i++)
		pf_rows_enter(depth + i % 2, pf_rows_hand_on);
}

static struct pair pair_start(unsigned depth, bool turn)
{
	struct pair p;
	int a[2], b[2];

	if (pipe(a) || pipe(b) || write(a[1], "", 1) != 1)
		bench_die("pipe", errno);
	for (int i = 0; i < 2; i++) {
		p.pids[i] = fork();
		if (p.pids[i] < 0)
			bench_die("fork", errno);
		if (p.pids[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			on_cpu(0);
			hand_on_forever(i ? b[0] : a[0], i ? a[1] : b[1], depth, turn);
		}
	}
	for (int i = 0; i < 2; i++) {
		close(a[i]);
		close(b[i]);
	}
	return p;
}

static void pair_stop(struct pair *p)
{
	for (int i = 0; i < 2; i++) {
		kill(p->pids[i], SIGKILL);
		waitpid(p->pids[i], NULL, 0);
	}
}

/* ---- probes ---- */

/* Gives the kernel the unwind tables of the two processes, so that their stacks are complete. */
static void tables_of(struct probes *p, const struct pair *pair)
{
	uint64_t deadline = now_mono_ns() + 20 * NSEC_PER_SEC;
	unsigned n = 0;

	while (n < 2 && now_mono_ns() < deadline) {
		struct drain *d = NULL;

		if (probes_drain(p, false, &d))
			break;
		for (size_t i = 0; i < d->n_procs; i++) {
			const struct raw_proc *r = &d->procs[i];
			struct mappings *m;

			if (((pid_t)r->tgid != pair->pids[0] && (pid_t)r->tgid != pair->pids[1]) ||
			    proc_mappings_read(process_id_of(r), r->exec_id, &m))
				continue;
			rows_process(p, r, m->exec_pages);
			proc_mappings_unref(m);
			n++;
		}
		sample_drain_free(d);
		bench_nap(20);
	}
	if (n < 2)
		bench_die("processes' mappings", ENOENT);
}

static void filter(struct probes *p, const struct container_filter *f)
{
	if (probes_filter(p, f, f ? 1 : 0))
		bench_die("filter", errno);
}

static void select_pair(struct probes *p, const struct container_filter *f, const struct pair *pair)
{
	bench_join(pair->pids[0]);
	bench_join(pair->pids[1]);
	filter(p, f);
	if (probes_announce(p))
		bench_die("announce", errno);
	tables_of(p, pair);
}

/* ---- an empty program on the same tracepoint ---- */

static int empty_program(void)
{
	const struct bpf_insn insns[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = 0},
		{.code = BPF_JMP | BPF_EXIT},
	};
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = BPF_TRACE_RAW_TP);
	int fd, link;

	opts.attach_btf_id = libbpf_find_vmlinux_btf_id("sched_switch", opts.expected_attach_type);
	fd = bpf_prog_load(BPF_PROG_TYPE_TRACING, "pf_empty", "GPL", insns, 2, &opts);
	if (fd < 0)
		bench_die("empty program", fd);
	link = bpf_raw_tracepoint_open(NULL, fd);
	if (link < 0)
		bench_die("empty program's tracepoint", link);
	return fd;
}

static int program_fd(struct probes *p, const char *name)
{
	return bpf_program__fd(
		bpf_object__find_program_by_name(p->events[EVENT_OFF_CPU].obj, name));
}

/* Prints medians of rounds in which podflame's and the empty program run at the same switches. */
static void bench_switches(struct probes *p, int empty, const char *name, const char *goal,
			   const char *wake_goal, const char *note)
{
	int ours = program_fd(p, "pf_switch"), wakes = program_fd(p, "pf_wakeup");
	double switches[ROUNDS], wakeups[ROUNDS];
	_cleanup_free_ char *wake_name = xasprintf("%s_wakeup", name);

	bench_nap(ROUND_MS);
	for (int i = 0; i < ROUNDS; i++) {
		struct cost e = program_cost(empty), o = program_cost(ours),
			    w = program_cost(wakes);
		double none;

		bench_nap(ROUND_MS);
		none = ns_a_run(e, program_cost(empty));
		switches[i] = ns_a_run(o, program_cost(ours)) - none;
		wakeups[i] = ns_a_run(w, program_cost(wakes)) - none;
	}
	bench_rounds(name, switches, ROUNDS, "ns/switch", goal, note);
	bench_rounds(wake_name, wakeups, ROUNDS, "ns/wakeup", wake_goal, MORE);
}

static uint64_t pair_cpu_ns(const struct pair *pair)
{
	uint64_t ns = 0;

	for (int i = 0; i < 2; i++) {
		struct timespec t = {};
		clockid_t clock;

		if (clock_getcpuclockid(pair->pids[i], &clock) || clock_gettime(clock, &t))
			bench_die("CPU time of the pair", ESRCH);
		ns += (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
	}
	return ns;
}

/*
 * Returns the CPU time of a round trip, in ns. Other processes of the machine change it less than
 * the elapsed time.
 */
static double ns_a_trip(const struct pair *pair)
{
	uint64_t n = shared[0], ns = pair_cpu_ns(pair);

	bench_nap(ROUND_MS);
	return (double)(pair_cpu_ns(pair) - ns) / (double)(shared[0] - n);
}

/*
 * Compares the cost of a switch and a wake-up with filter f and with filter `than` (NULL: no
 * program is attached). This is the whole cost, with tracepoints and without BPF's own statistics.
 */
static void bench_trips(struct probes *p, const struct pair *pair,
			const struct container_filter *than, const struct container_filter *f,
			const char *name, const char *note)
{
	double ns[TRIP_ROUNDS];

	for (int i = 0; i < TRIP_ROUNDS; i++) {
		double off, on;

		filter(p, than);
		off = ns_a_trip(pair);
		filter(p, f);
		on = ns_a_trip(pair);
		filter(p, than);
		ns[i] = on - (off + ns_a_trip(pair)) / 2;
	}
	bench_rounds(name, ns, TRIP_ROUNDS, "ns/switch", "", note);
}

int main(void)
{
	struct container_filter own, nobody = {.cgroup_id = 1, .event_mask = 1u << EVENT_OFF_CPU};
	struct probes *p;
	struct pair pair;
	int stats, empty;

	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		bench_die("mmap", errno);
	p = bench_probes(EVENT_OFF_CPU, 99, &own);
	install_rows(p);
	pair = pair_start(20, false);
	filter(p, &nobody);
	bench_trips(p, &pair, NULL, &nobody, "offcpu.trip_unselected",
		    "whole price of a switch and a wake-up");
	select_pair(p, &own, &pair);
	own.off_note = own.off_keep = 1;
	bench_trips(p, &pair, &nobody, &own, "offcpu.trip_passed",
		    "not noted, more than unselected");
	own.off_note = 0;
	bench_trips(p, &pair, &nobody, &own, "offcpu.trip_noted", "the same, noted");
	own.off_keep = 0;
	bench_trips(p, &pair, &nobody, &own, "offcpu.trip_selected", "the same, its stacks taken");
	pair_stop(&pair);

	stats = bpf_enable_stats(BPF_STATS_RUN_TIME);
	if (stats < 0)
		bench_die("BPF statistics", stats);
	empty = empty_program();
	pair = pair_start(20, false);
	filter(p, &nobody);
	bench_switches(p, empty, "offcpu.unselected", "<= 40", "<= 40", MORE);
	select_pair(p, &own, &pair);
	bench_switches(p, empty, "offcpu.recognised", "<= 1200", "", MORE);
	own.off_keep = UINT32_MAX / 1000;
	filter(p, &own);
	bench_switches(p, empty, "offcpu.thinned", "", "",
		       "1 in 1000 is kept: the others are only noted");
	own.off_note = own.off_keep;
	filter(p, &own);
	bench_switches(p, empty, "offcpu.passed", "", "",
		       "1 in 1000 is kept, and the others are not noted");
	own.off_note = own.off_keep = 0;
	pair_stop(&pair);
	pair = pair_start(20, true);
	select_pair(p, &own, &pair);
	bench_switches(p, empty, "offcpu.walked", "", "", "22 frames");
	pair_stop(&pair);
	close(stats);
	close(empty);
	probes_free(p);
	bench_nap(50);
	bench_leave();
	return 0;
}
