// SPDX-License-Identifier: Apache-2.0
/*
 * Steps real JVMs instruction by instruction. At each instruction, the walk must get to native code
 * through the stub that calls Java. The frame's callers must be the same as at the instruction
 * before, unless that was a call, a return or a jump. The test takes minutes, so it runs only with
 * LONG. It uses Java of .ci/deps and javac of this machine.
 */
#include "node/runtime/jvm/testjvmwalk.h"

#include <fcntl.h>
#include <glob.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/base/testdir.h"
#include "node/runtime/jvm/jvm.h"
#include "node/runtime/testlive.h"

/* a blob that saves all registers, with 42 instructions, is stepped through once */
#define BLOB_STEPS 50u
#define ROUNDS	   12
#define STEPS	   2500
#define FRAMES_MAX 64

static const char source[] =
	"import java.util.*;\n"
	"public class Step {\n"
	"  interface Shape { double area(); }\n"
	"  static class A implements Shape { public double area() { return 4; } }\n"
	"  static class B implements Shape { public double area() { return Math.pow(2.5, 1.5); } "
	"}\n"
	"  static class C implements Shape { public double area() { return Math.sin(1) + 1; } }\n"
	"  static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }\n"
	"  static int thrown(int d) { if (d == 0) throw new IllegalStateException();\n"
	"    return thrown(d - 1) + 1; }\n"
	"  static long sorted(int n) { List<Integer> l = new ArrayList<>(); Random r = new "
	"Random(1);\n"
	"    for (int i = 0; i < n; i++) l.add(r.nextInt());\n"
	"    l.sort(Comparator.comparing(x -> x % 1000));\n"
	"    return l.stream().mapToLong(x -> x).filter(x -> x % 3 == 0).sum(); }\n"
	"  static synchronized long copied() { byte[] a = new byte[500], b = new byte[500];\n"
	"    for (int i = 0; i < 10; i++) System.arraycopy(a, i, b, 0, 400); return b.length; }\n"
	"  public static void main(String[] x) {\n"
	"    Shape[] s = {new A(), new B(), new C()}; double t = 0;\n"
	"    for (int n = 0;; n++) {\n"
	"      for (int i = 0; i < 300; i++) t += s[i % 3].area();\n"
	"      t += fib(12) + sorted(100) + copied() + Integer.toHexString(n).hashCode();\n"
	"      try { t += thrown(5); } catch (IllegalStateException e) { t++; }\n"
	"      if (n == 300) System.out.println(t);\n"
	"    }\n"
	"  }\n"
	"}\n";

static char folder[TESTDIR_BYTES];
static struct {
	pid_t pid, thread;
	struct live_process process;
	const struct runtime_learnt *learnt;
} live;

/* ---- a JVM ---- */

/* Starts a JVM. Returns when its program has run for a while. */
static void start(const char *java, const char *mode)
{
	char line[64];
	int out[2];
	FILE *from;

	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	live.pid = fork();
	if (live.pid == 0) {
		dup2(out[1], 1);
		execl(java, java, "-XX:-UsePerfData", "-Xmx96m", mode, "-cp", folder, "Step", NULL);
		_exit(127);
	}
	assert_true(live.pid > 0);
	close(out[1]);
	from = fdopen(out[0], "r");
	assert_non_null(from);
	assert_non_null(fgets(line, sizeof(line), from));
	fclose(from);
	host_pid = live.pid;
	host_read = host_read_process;
}

static void learn(void)
{
	live_learn(&live.process, live.pid);
	live.learnt = live_find(&live.process, PF_RUNTIME_JVM);
	assert_string_equal(live.learnt->problem, "");
}

/*
 * Gives the walk all memory that is reserved for code: the code grows while the test steps, and the
 * test reads the mappings only once.
 */
static void tell(void)
{
	const struct pf_jvm *d = live.learnt->data;
	const uint64_t code[1][2] = {{d->low, d->high}};

	host_process(d, code, 1);
}

/*
 * Returns the thread that runs main. Its name is java, and it is not the first thread of the
 * process.
 */
static pid_t main_thread(void)
{
	_cleanup_free_ char *pattern = xasprintf("/proc/%d/task/*/comm", live.pid);
	pid_t found = 0;
	glob_t g;

	assert_int_equal(glob(pattern, 0, NULL, &g), 0);
	for (size_t i = 0; i < g.gl_pathc && !found; i++) {
		_cleanup_free_ char *comm = NULL;
		pid_t tid = atoi(g.gl_pathv[i] + strlen(pattern) - strlen("*/comm"));

		if (tid != live.pid && file_read(AT_FDCWD, g.gl_pathv[i], 64, &comm, NULL) == 0 &&
		    str_has_prefix(comm, "java\n"))
			found = tid;
	}
	globfree(&g);
	return found;
}

/* Ends the JVM. May be called after a failure at any point of the test. */
static void stop(void)
{
	int status;

	if (live.pid <= 0)
		return;
	kill(live.pid, SIGKILL);
	while (live.thread && waitpid(live.thread, &status, __WALL) == live.thread &&
	       WIFSTOPPED(status))
		;
	waitpid(live.pid, NULL, __WALL);
	live_forget(&live.process);
	memset(&live, 0, sizeof(live));
}

static int teardown(void **state)
{
	(void)state;
	stop();
	return *folder ? testdir_remove(folder) : 0;
}

/* ---- stepping ---- */

struct stack {
	struct host_frame frames[FRAMES_MAX];
	size_t n; /* 0: the walk did not get to native code */
	uint64_t ip;
	uint8_t code[8]; /* the bytes at ip */
};

static void walk(const struct user_regs_struct *u, struct stack *ret)
{
	const uint64_t regs[PF_REGS] = {u->rax, u->rdx, u->rcx, u->rbx, u->rsi, u->rdi,
					u->rbp, u->rsp, u->r8,	u->r9,	u->r10, u->r11,
					u->r12, u->r13, u->r14, u->r15};
	struct host_frame f;
	uint32_t last = 0;

	memcpy(host.walk.regs, regs, sizeof(regs));
	host_walk(u->rip, u->rsp, u->rbp);
	*ret = (struct stack){.ip = u->rip};
	host_read_process(u->rip, ret->code, sizeof(ret->code));
	for (; (f = host_frame(ret->n)).kind == PF_FRAME_RUNTIME && ret->n < FRAMES_MAX; ret->n++) {
		ret->frames[ret->n] = f;
		last = f.type;
	}
	if (f.kind != PF_FRAME_NATIVE || last != PF_JVM_STUB)
		ret->n = 0;
}

static bool transfers(const uint8_t *code)
{
	uint8_t first = code[0];

	return first == 0xe8 || first == 0xe9 || first == 0xeb || first == 0xff || first == 0x41 ||
	       first == 0xc2 || first == 0xc3 || (first == 0x0f && (code[1] & 0xf0) == 0x80);
}

static bool same_callers(const struct stack *a, const struct stack *b)
{
	if (a->n != b->n)
		return false;
	for (size_t k = 1; k < a->n; k++)
		if (a->frames[k].a != b->frames[k].a || a->frames[k].b != b->frames[k].b)
			return false;
	return true;
}

struct result {
	unsigned steps, ended, changed;
};

static void print_code(const char *what, const struct stack *s)
{
	print_message("   %s at %#llx:", what, (unsigned long long)s->ip);
	for (size_t k = 0; k < sizeof(s->code); k++)
		print_message(" %02x", s->code[k]);
	print_message(", blob %#llx\n", (unsigned long long)JVM_ADDRESS(host_frame(0).a));
}

/*
 * Steps through the program. It walks only while Java's code runs; native code in between is
 * stepped, too.
 */
static void step_round(struct result *r)
{
	const struct pf_jvm *d = live.learnt->data;
	struct stack before = {0}, now;
	struct user_regs_struct u;
	int status;

	for (unsigned k = 0; k < STEPS; k++) {
		assert_int_equal(ptrace(PTRACE_GETREGS, live.thread, 0, &u), 0);
		if (pf_jvm_generated(d, u.rip)) {
			walk(&u, &now);
			r->steps++;
			if (!now.n && r->ended++ < 5)
				print_code("ends", &now);
			if (now.n && before.n && !transfers(before.code) &&
			    !same_callers(&before, &now) && r->changed++ < 5)
				print_code("changes", &now);
			before = now;
		} else {
			before.n = 0;
		}
		assert_int_equal(ptrace(PTRACE_SINGLESTEP, live.thread, 0, 0), 0);
		assert_int_equal(waitpid(live.thread, &status, __WALL), live.thread);
		assert_true(WIFSTOPPED(status));
		if (WSTOPSIG(status) == SIGTRAP)
			continue;
		/* The JVM uses this signal itself: its handler runs next. */
		ptrace(PTRACE_SINGLESTEP, live.thread, 0, WSTOPSIG(status));
		waitpid(live.thread, &status, __WALL);
		before.n = 0;
	}
}

static void step_jvm(const char *java, const char *mode)
{
	struct result r = {0};
	int status;

	start(java, mode);
	learn();
	tell();
	live.thread = main_thread();
	assert_true(live.thread > 0);
	assert_int_equal(ptrace(PTRACE_SEIZE, live.thread, 0, 0), 0);
	for (unsigned k = 0; k < ROUNDS; k++) {
		usleep(3000); /* lets the thread continue to any other instruction */
		assert_int_equal(ptrace(PTRACE_INTERRUPT, live.thread, 0, 0), 0);
		assert_int_equal(waitpid(live.thread, &status, __WALL), live.thread);
		step_round(&r);
		assert_int_equal(ptrace(PTRACE_CONT, live.thread, 0, 0), 0);
	}
	print_message("%s %s: %u steps, %u stacks not to the end, %u changed\n",
		      live.learnt->version, mode, r.steps, r.ended, r.changed);
	assert_true(r.steps > 1000);
	/*
	 * Steps at which the walk may end early: in the blob that deoptimizes C2's code, until it
	 * has a frame of its own (docs/java.md); and once, in any mode, in the blob of a safepoint.
	 */
	r.ended -= MIN(r.ended, BLOB_STEPS);
	assert_true(r.ended * (streq(mode, "-Xmixed") ? 100 : 1000) <= r.steps);
	assert_true(r.changed * 1000 <= r.steps);
	stop();
}

static bool compile(void)
{
	_cleanup_free_ char *path = NULL, *command = NULL;

	assert_int_equal(testdir_make(folder), 0);
	path = xasprintf("%s/Step.java", folder);
	assert_int_equal(file_write_atomic(path, source, strlen(source), 0644), 0);
	command = xasprintf("javac -nowarn --release 8 -d %s %s 2>/dev/null", folder, path);
	return system(command) == 0;
}

static void every_instruction_has_its_callers(void **state)
{
	static const char *const modes[] = {"-Xint", "-XX:TieredStopAtLevel=1", "-Xmixed"};
	const char *cache = getenv("XDG_CACHE_HOME");
	_cleanup_free_ char *pattern = NULL;
	glob_t g;

	(void)state;
	if (!getenv("LONG")) {
		print_message("LONG is not set: takes minutes\n");
		skip();
	}
	if (!compile()) {
		print_message("no javac\n");
		skip();
	}
	/* The pattern leaves out JDK 8, which is in a root directory of its own. */
	pattern = xasprintf("%s%s/podflame/jdk-[1-9][0-9]/bin/java", cache ? cache : getenv("HOME"),
			    cache ? "" : "/.cache");
	if (glob(pattern, 0, NULL, &g) != 0) {
		print_message("no Java: .ci/deps\n");
		skip();
	}
	for (size_t i = 0; i < g.gl_pathc; i++)
		for (size_t k = 0; k < ARRAY_SIZE(modes); k++)
			step_jvm(g.gl_pathv[i], modes[k]);
	globfree(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(every_instruction_has_its_callers, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
