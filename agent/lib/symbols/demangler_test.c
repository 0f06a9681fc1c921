/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names that children demangle: the cost of a hostile name, a child that dies, and a child that an
 * attacker controls. For the last, this program itself is the child (FAKE_VERB).
 */
#include "lib/base/testfolder.h"
#include "lib/base/testchild.h"
#include "lib/symbols/demangle.h"
#include "lib/symbols/demangler.c" /* for its clock, which the test replaces */

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define FAKE_VERB   "__fake"
#define CONSTRAINED "_ZN4shop5priceITkNS_6NumberEiEET_S1_"
#define EVIL	    "_Z4evilv"
#define TAKES_YEARS "_RMIC1aFGzzzzzzzzzz_EuEu"

static uint64_t mangled(const char *reason)
{
	return counter_get(counter("podflame_names_mangled_total", "reason", reason));
}

static uint64_t restarts(void)
{
	return counter_get(counter("podflame_demangle_child_restarts_total", NULL, NULL));
}

static void assert_shown(struct demangler *d, struct name_cost *cost, const char *name,
			 const char *as)
{
	uint64_t again_ns;
	_cleanup_free_ char *text = elf_demangler_text(d, name, cost, &again_ns);

	assert_string_equal(text, as);
	assert_true(!again_ns || streq(name, as));
}

/*
 * Checks that a failure was not added to the file's cost. The cost need not be 0: on a busy
 * machine, any name may be slow.
 */
static void assert_not_charged(const struct name_cost *cost)
{
	assert_true(cost->spent_ns < SLOW_NAMES_NS / 4);
	assert_int_equal(cost->slow_until_ns, 0);
}

/* Returns the pid of this program's child; 0: there is none. */
static pid_t child_pid(void)
{
	return testchild_pid("podflame-names");
}

static void plain_names_need_no_child(void **state)
{
	struct demangler *d = elf_demangler_new(NULL, false);
	struct name_cost cost = {0};

	(void)state;
	assert_shown(d, &cost, "main", "main");
	assert_shown(d, &cost, "_Read", "_Read");
	assert_shown(d, &cost, "a\nb\xff", "a?b?");
	assert_int_equal(child_pid(), 0);
	assert_shown(d, &cost, CONSTRAINED, "int shop::price<int>(int)");
	assert_int_not_equal(child_pid(), 0);
	assert_shown(d, &cost, "_Z", "_Z");
	assert_shown(d, &cost, "_Z\x80\n", "_Z??");
	elf_demangler_free(d);
	assert_int_equal(child_pid(), 0);
}

static void the_child_has_given_everything_up(void **state)
{
	static const char *const fields[] = {"CapEff:\t0000000000000000",
					     "CapPrm:\t0000000000000000", "NoNewPrivs:\t1",
#ifndef __SANITIZE_ADDRESS__
					     "Seccomp:\t2"
#endif
	};
	struct demangler *d = elf_demangler_new(NULL, false);
	_cleanup_free_ char *status = NULL, *path = NULL;
	struct name_cost cost = {0};

	(void)state;
	assert_shown(d, &cost, CONSTRAINED, "int shop::price<int>(int)");
	path = xasprintf("/proc/%d/status", child_pid());
	assert_int_equal(file_read(AT_FDCWD, path, 16384, &status, NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		assert_non_null(strstr(status, fields[i]));
	elf_demangler_free(d);
}

static void hostile_names_cost_no_child(void **state)
{
	struct demangler *d = elf_demangler_new(NULL, false);
	struct name_cost cost = {0};
	uint64_t before = restarts(), slow = mangled("too_slow");
	_cleanup_free_ char *deep = xmalloc(MANGLED_MAX + 1);
	pid_t child;

	(void)state;
	assert_shown(d, &cost, CONSTRAINED, "int shop::price<int>(int)");
	child = child_pid();
	memset(deep, 'Z', MANGLED_MAX);
	memcpy(deep, "_Z", 2);
	strcpy(deep + 4000, "1fvE1x");
#ifndef __SANITIZE_ADDRESS__ /* with ASan, a stack overflow at such a name would end the child */
	assert_shown(d, &cost, deep, deep);
	assert_int_equal(mangled("too_deep"), 1);
#endif
	assert_shown(d, &cost, TAKES_YEARS, TAKES_YEARS);
	assert_int_equal(mangled("too_slow"), slow + 1);
	assert_shown(d, &cost, CONSTRAINED, "int shop::price<int>(int)");
	assert_int_equal(restarts(), before);
	assert_int_equal(child_pid(), child);
	elf_demangler_free(d);
}

static void slow_names_cost_their_file_only(void **state)
{
	struct demangler *d = elf_demangler_new(NULL, false);
	struct name_cost hostile = {0}, other = {0};
	uint64_t slow = mangled("too_slow"), file = mangled("slow_file");

	(void)state;
	for (unsigned i = 0; i < 50; i++)
		assert_shown(d, &hostile, TAKES_YEARS, TAKES_YEARS);
	slow = mangled("too_slow") - slow;
	/* each costs 10 to 20 ms, because the CPU clock ticks each 10 ms */
	assert_in_range(slow, 1, 40);
	assert_int_equal(slow + mangled("slow_file") - file, 50);
	assert_shown(d, &hostile, CONSTRAINED, CONSTRAINED);
	assert_shown(d, &other, CONSTRAINED, "int shop::price<int>(int)");
	elf_demangler_free(d);
}

static void what_slow_names_cost_is_forgiven(void **state)
{
	struct demangler *d = elf_demangler_new(NULL, false);
	struct name_cost cost = {.spent_ns = SLOW_NAMES_NS - 1};
	uint64_t again_ns = 0;

	(void)state;
	/* So much time has passed that half of the file's cost is forgiven. */
	cost.forgiven_at_ns = now_mono_ns() - FORGIVEN_PART * SLOW_NAMES_NS / 2;
	assert_shown(d, &cost, TAKES_YEARS, TAKES_YEARS);
	assert_shown(d, &cost, CONSTRAINED, "int shop::price<int>(int)");
	assert_true(cost.spent_ns > 0 && cost.spent_ns < SLOW_NAMES_NS);
	/* Now no time has passed, so nothing is forgiven: one more slow name exceeds the limit. */
	cost.spent_ns = SLOW_NAMES_NS - 1;
	cost.forgiven_at_ns = now_mono_ns();
	assert_shown(d, &cost, TAKES_YEARS, TAKES_YEARS);
	assert_true(cost.slow_until_ns > now_mono_ns());
	free(elf_demangler_text(d, CONSTRAINED, &cost, &again_ns));
	assert_int_equal(again_ns, cost.slow_until_ns);
	cost.slow_until_ns = now_mono_ns();
	assert_shown(d, &cost, CONSTRAINED, "int shop::price<int>(int)");
	elf_demangler_free(d);
}

/*
 * "_Z4091xxx...": a name with its prefix is one byte too long, and then exactly as long as allowed.
 */
static void longer_names_stay_mangled(void **state)
{
	struct demangler *d = elf_demangler_new(NULL, false);
	struct name_cost cost = {0};
	uint64_t before = mangled("long_name");
	char name[MANGLED_MAX + 2];

	(void)state;
	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	memcpy(name, "_Z4091", 6);
	assert_shown(d, &cost, name, name);
	assert_int_equal(mangled("long_name"), before + 1);
	memcpy(name, "_Z4090", 6);
	name[MANGLED_MAX] = '\0';
	assert_shown(d, &cost, name, name + 6);
	assert_int_equal(mangled("long_name"), before + 1);
	elf_demangler_free(d);
}

static void a_child_that_died_while_idle_costs_nothing(void **state)
{
	struct demangler *d = elf_demangler_new(NULL, false);
	struct name_cost cost = {0};
	uint64_t before = restarts();

	(void)state;
	assert_shown(d, &cost, CONSTRAINED, "int shop::price<int>(int)");
	kill(child_pid(), SIGKILL);
	while (child_pid())
		usleep(1000);
	assert_shown(d, &cost, CONSTRAINED, "int shop::price<int>(int)");
	assert_int_equal(restarts(), before + 1);
	assert_not_charged(&cost);
	elf_demangler_free(d);
}

static void without_a_child_names_stay_mangled(void **state)
{
	static const char *const programs[] = {"/nonexistent", "/bin/true"};
	uint64_t before = mangled("no_child");

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
		struct demangler *d = elf_demangler_new(programs[i], false);
		struct name_cost cost = {0};
		uint64_t n = restarts();

		assert_shown(d, &cost, CONSTRAINED, CONSTRAINED);
		/* the first program could not be started, so no child is lost */
		assert_int_equal(restarts(), n + i);
		/*
		 * The next name does not start a child again before RETRY_NS is over. The failure
		 * is not added to the file's cost.
		 */
		assert_shown(d, &cost, CONSTRAINED, CONSTRAINED);
		assert_int_equal(restarts(), n + i);
		assert_not_charged(&cost);
		elf_demangler_free(d);
	}
	assert_int_equal(mangled("no_child"), before + 4);
}

/* ---- a child that an attacker controls ---- */

enum lie {
	SEQUENCE,
	RESULT,
	LENGTH,
	SHORT,
	NOTHING,
	LONG,
	ZERO_BYTE,
	BYTES,
	CLOCK,
	DEATH,
	SILENCE, /* gives no answer at all; it and the next ones have no row in lies[] */
	PID,	 /* answers with its pid */
	TURNS,	 /* answers "true" until it gets EVIL, and "lie" from then on */
};

static const struct {
	const char *shown;  /* the text that is shown; NULL: the mangled name */
	const char *reason; /* the reason that is counted; NULL: none */
	bool lost;
} lies[] = {
	[SEQUENCE] = {NULL, "answer_refused", true},
	[RESULT] = {NULL, "answer_refused", true},
	[LENGTH] = {NULL, "answer_refused", true},
	[SHORT] = {NULL, "answer_refused", true},
	[NOTHING] = {NULL, "answer_refused", true},
	[LONG] = {NULL, "answer_refused", true},
	[ZERO_BYTE] = {NULL, "answer_refused", true},
	[BYTES] = {"a?b?", NULL, false},
	[CLOCK] = {"text", NULL, false},
	[DEATH] = {NULL, "child_died", true},
};

static void answer(uint64_t sequence, const char *text)
{
	struct demangle_reply r = {.sequence = sequence, .n = (uint32_t)strlen(text)};

	memcpy(r.text, text, r.n);
	(void)child_send(CHILD_SOCKET_FD, &r, offsetof(struct demangle_reply, text) + r.n, NULL, 0);
}

/* Answers as the protocol wants it; only the text may be a lie. */
static void lie_in_text(enum lie which, const struct demangle_request *request)
{
	_cleanup_free_ char *pid = xasprintf("%d", getpid());
	static bool taken_over;

	taken_over |= str_has_prefix(request->name, EVIL);
	answer(request->sequence, which == PID ? pid : taken_over ? "lie" : "true");
}

static void lie(enum lie which, uint64_t sequence)
{
	static struct {
		struct demangle_reply reply;
		char more;
	} x;
	size_t n = offsetof(struct demangle_reply, text);

	x.reply = (struct demangle_reply){.sequence = sequence, .n = 4, .text = "text"};
	x.reply.sequence += which == SEQUENCE;
	x.reply.result = which == RESULT ? _DEMANGLE_RESULT_MAX : DEMANGLE_OK;
	x.reply.n = which == LENGTH ? UINT32_MAX : which == NOTHING ? 0 : 4;
	x.reply.cpu_ns = which == CLOCK ? UINT64_MAX : 1;
	if (which == ZERO_BYTE)
		x.reply.text[1] = '\0';
	if (which == BYTES)
		memcpy(x.reply.text, "a\nb\xff", 4);
	n = which == SHORT ? 8 : which == LONG ? sizeof(x) : which == NOTHING ? n : n + 4;
	if (which == DEATH)
		_exit(0);
	if (which == SILENCE)
		pause();
	(void)child_send(CHILD_SOCKET_FD, &x, n, NULL, 0);
}

static int fake_main(enum lie which)
{
	const int32_t ready = 0;
	struct demangle_request request;
	size_t n, n_fds;

	(void)child_send(CHILD_SOCKET_FD, &ready, sizeof(ready), NULL, 0);
	while (child_receive(CHILD_SOCKET_FD, &request, sizeof(request), &n, NULL, 0, &n_fds) == 0)
		if (which > SILENCE)
			lie_in_text(which, &request);
		else
			lie(which, request.sequence);
	return 0;
}

/*
 * Makes a program that is a fake child as long as the shell command `condition` succeeds, and the
 * real child afterwards.
 */
static char *fake_while(enum lie which, const char *condition)
{
	_cleanup_free_ char *self = realpath("/proc/self/exe", NULL);
	_cleanup_free_ char *text =
		xasprintf("#!/bin/sh\n%s && exec '%s' " FAKE_VERB " %d\nexec '%s' \"$@\"\n",
			  condition, self, which, self);
	char *path = xasprintf("%s/fake-%d", dir, which);

	assert_int_equal(file_write_atomic(path, text, strlen(text), 0700), 0);
	return path;
}

static char *fake(enum lie which)
{
	return fake_while(which, "true");
}

static void lies_cost_the_file_and_the_child(void **state)
{
	(void)state;
	for (enum lie i = 0; i < SILENCE; i++) {
		_cleanup_free_ char *program = fake(i);
		struct demangler *d = elf_demangler_new(program, false);
		struct name_cost cost = {0};
		uint64_t before = restarts();
		uint64_t n = lies[i].reason ? mangled(lies[i].reason) : 0;
		uint64_t n_paused = mangled("paused");

		assert_shown(d, &cost, CONSTRAINED, lies[i].shown ? lies[i].shown : CONSTRAINED);
		assert_int_equal(restarts() - before, lies[i].lost ? 2 : 0);
		if (lies[i].reason) {
			assert_int_equal(mangled(lies[i].reason), n + 1);
			/* Two children have failed, so no child is asked for the file's names. */
			assert_shown(d, &cost, CONSTRAINED, CONSTRAINED);
			assert_int_equal(mangled("paused"), n_paused + 1);
			assert_int_equal(restarts() - before, 2);
		}
		elf_demangler_free(d);
	}
}

/*
 * A name of one file takes over the child that reads it. From then on, names of this file may be
 * lies, but those of no other file.
 */
static void a_child_that_lies_harms_its_own_file_only(void **state)
{
	_cleanup_free_ char *program = fake(TURNS);
	struct demangler *d = elf_demangler_new(program, false);
	struct name_cost hostile = {0}, known = {0}, fresh = {0};

	(void)state;
	assert_shown(d, &known, CONSTRAINED, "true");
	assert_shown(d, &hostile, CONSTRAINED, "true");
	assert_shown(d, &hostile, EVIL, "lie");
	assert_shown(d, &hostile, CONSTRAINED, "lie");
	assert_shown(d, &known, CONSTRAINED, "true");
	assert_shown(d, &fresh, CONSTRAINED, "true");
	elf_demangler_free(d);
}

/* Names of many files come in turns, and each file keeps its child. */
static void each_file_has_a_child_of_its_own(void **state)
{
	_cleanup_free_ char *program = fake(PID);
	struct demangler *d = elf_demangler_new(program, false);
	struct name_cost costs[CHILDREN_MAX] = {0};
	char *pids[CHILDREN_MAX];
	uint64_t again_ns;

	(void)state;
	for (size_t i = 0; i < CHILDREN_MAX; i++) {
		pids[i] = elf_demangler_text(d, CONSTRAINED, &costs[i], &again_ns);
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(pids[i], pids[k]);
	}
	for (size_t i = 0; i < CHILDREN_MAX; i++) {
		assert_shown(d, &costs[i], CONSTRAINED, pids[i]);
		free(pids[i]);
	}
	elf_demangler_free(d);
}

static void make_executable(const char *path, const char *text)
{
	assert_int_equal(file_write_atomic(path, text, strlen(text), 0700), 0);
}

/*
 * The clock of the children's owner: clock_stands_ns is its constant time; 0: it is ahead of the
 * real time by clock_ahead_ns.
 */
static uint64_t clock_stands_ns, clock_ahead_ns;

static uint64_t clock_ns(void)
{
	return clock_stands_ns ? clock_stands_ns : now_mono_ns() + clock_ahead_ns;
}

static struct demangler *impatient_with_clock(const char *program)
{
	static struct child_ops ops;

	ops = child_kernel;
	ops.now_ns = clock_ns;
	clock_stands_ns = clock_ahead_ns = 0;
	return new_demangler(program, true, &ops);
}

static void wait_until(uint64_t ns)
{
	while (now_mono_ns() < ns)
		usleep(1000);
}

/* Returns the text, once the demangler reports that it is final. */
static char *text_in_the_end(struct demangler *d, struct name_cost *cost)
{
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC, again_ns = 1;
	char *text = NULL;

	while (again_ns && now_mono_ns() < deadline) {
		free(text);
		text = elf_demangler_text(d, CONSTRAINED, cost, &again_ns);
		wait_until(MIN(again_ns, deadline));
	}
	return text;
}

static void assert_readable_in_the_end(struct demangler *d, struct name_cost *cost)
{
	_cleanup_free_ char *text = text_in_the_end(d, cost);

	assert_string_equal(text, "int shop::price<int>(int)");
}

/*
 * Asks for names until a ready child does not answer in time. Returns when that name was asked for.
 */
static uint64_t time_out(struct demangler *d, struct name_cost *cost)
{
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC, n = mangled("timeout"), asked_ns;

	do {
		wait_until(d->retry_ns);
		asked_ns = now_mono_ns();
		assert_shown(d, cost, CONSTRAINED, CONSTRAINED);
	} while (mangled("timeout") == n && asked_ns < deadline);
	assert_int_equal(mangled("timeout"), n + 1);
	return asked_ns;
}

/*
 * A timeout ends the child, and no child is asked for the file's names during a pause. The timeout
 * is not added to the file's cost, because the machine may have been too busy.
 */
static void silence_costs_the_child_and_a_pause(void **state)
{
	_cleanup_free_ char *program = fake(SILENCE);
	struct demangler *d = impatient_with_clock(program);
	struct name_cost cost = {0}, other = {0}, third = {0};
	uint64_t before = restarts(), n_none, n, asked_ns;

	(void)state;
	asked_ns = time_out(d, &cost);
	assert_int_equal(restarts(), before + 1);
	assert_not_charged(&cost);
	/* The name may be the cause, so the names of other files need not wait. */
	assert_true(d->retry_ns < asked_ns + PAUSE_NS);
	asked_ns = time_out(d, &other);
	assert_int_equal(restarts(), before + 2);
	/*
	 * The second timeout was at another name, so the machine is too busy. The next caller,
	 * which holds a lock, does not wait for another child.
	 */
	assert_true(d->retry_ns >= asked_ns + PAUSE_NS);
	d->retry_ns = UINT64_MAX;
	n_none = mangled("no_child");
	assert_shown(d, &third, CONSTRAINED, CONSTRAINED);
	assert_int_equal(mangled("no_child"), n_none + 1);
	/* The demangler may ask a child again, but not for this file, whose own pause lasts. */
	d->retry_ns = 0;
	n = mangled("paused");
	clock_stands_ns = asked_ns;
	assert_shown(d, &cost, CONSTRAINED, CONSTRAINED);
	assert_int_equal(mangled("paused"), n + 1);
	assert_int_equal(restarts(), before + 2);
	clock_stands_ns = 0;
	free(fake_while(SILENCE, "false"));
	assert_readable_in_the_end(d, &third);
	clock_ahead_ns = CHILD_POOL_PAUSE_NS;
	assert_readable_in_the_end(d, &cost);
	elf_demangler_free(d);
}

static void a_late_answer_after_one_in_time_is_the_first(void **state)
{
	_cleanup_free_ char *program = fake(SILENCE);
	struct demangler *d = elf_demangler_new(program, true);
	struct name_cost first = {0}, second = {0};
	uint64_t asked_ns;

	(void)state;
	time_out(d, &first);
	free(fake_while(SILENCE, "false"));
	assert_readable_in_the_end(d, &second);
	assert_int_equal(kill(child_pid(), SIGSTOP), 0);
	asked_ns = time_out(d, &second);
	assert_true(d->retry_ns < asked_ns + PAUSE_NS);
	elf_demangler_free(d);
}

static void children_without_names_end(void **state)
{
	struct demangler *d = impatient_with_clock(NULL);
	struct name_cost cost = {0};

	(void)state;
	assert_readable_in_the_end(d, &cost);
	elf_demangler_rest(d);
	assert_int_not_equal(child_pid(), 0);
	clock_ahead_ns = CHILD_POOL_IDLE_NS;
	d->rest_ns = 0;
	elf_demangler_rest(d);
	assert_int_equal(child_pid(), 0);
	assert_readable_in_the_end(d, &cost);
	elf_demangler_free(d);
}

/* Two late children at one name are one loss, after which the file's pause is the shortest one. */
static void a_patient_owner_asks_two_children_that_are_late(void **state)
{
	_cleanup_free_ char *program = fake(SILENCE);
	struct demangler *d = elf_demangler_new(program, false);
	struct name_cost cost = {0};
	uint64_t n = restarts(), again_ns = 0;

	(void)state;
	d->answer_ns = NSEC_PER_MSEC;
	free(elf_demangler_text(d, CONSTRAINED, &cost, &again_ns));
	assert_int_equal(restarts(), n + 2);
	assert_int_equal(again_ns, child_pool_next_ns(d->pool, cost.owner));
	assert_in_range(again_ns, 1, now_mono_ns() + CHILD_POOL_PAUSE_NS);
	elf_demangler_free(d);
}

static void a_child_that_starts_slowly_is_not_waited_for(void **state)
{
	_cleanup_free_ char *self = realpath("/proc/self/exe", NULL);
	_cleanup_free_ char *program = xasprintf("%s/slow", dir), *go = xasprintf("%s/go", dir);
	/* The program waits until the file "go" exists, but not longer than the test. */
	_cleanup_free_ char *script =
		xasprintf("#!/bin/sh\n"
			  "while [ -d %s ] && ! [ -e %s ]; do sleep 0.01; done\n"
			  "exec '%s' \"$@\"\n",
			  dir, go, self);
	uint64_t n = restarts(), n_none = mangled("no_child");
	struct name_cost cost = {0};
	struct demangler *d;

	(void)state;
	make_executable(program, script);
	d = elf_demangler_new(program, true);
	d->answer_ns = ANSWER_NS; /* a long limit, so that this name has no timeout */
	assert_shown(d, &cost, CONSTRAINED, CONSTRAINED);
	d->retry_ns = 0;
	assert_shown(d, &cost, CONSTRAINED, CONSTRAINED);
	assert_int_equal(mangled("no_child"), n_none + 2);
	make_executable(go, "");
	assert_readable_in_the_end(d, &cost);
	assert_int_equal(restarts(), n); /* no child was lost: the slow one has answered */
	assert_not_charged(&cost);
	assert_int_equal(unlink(go), 0);
	elf_demangler_free(d);
}

/* The kernel does not end a killed child. Only the names of its own file wait for that. */
static void a_child_that_ends_slowly_is_not_waited_for(void **state)
{
	struct counter *stuck = counter("podflame_demangle_children_stuck_total", NULL, NULL);
	struct demangler *d = impatient_with_clock(NULL);
	uint64_t n_paused, before = counter_get(stuck);
	struct name_cost cost = {0}, other = {0};
	siginfo_t ended;
	pid_t pid, tracer;

	(void)state;
	assert_readable_in_the_end(d, &cost);
	pid = child_pid();
	tracer = testchild_hold_at_exit(pid);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	assert_shown(d, &cost, CONSTRAINED, CONSTRAINED);
	assert_int_equal(counter_get(stuck), before + 1);
	assert_readable_in_the_end(d, &other);
	clock_ahead_ns = CHILD_POOL_PAUSE_MAX_NS;
	n_paused = mangled("paused");
	assert_shown(d, &cost, CONSTRAINED, CONSTRAINED);
	assert_int_equal(mangled("paused"), n_paused + 1);
	kill(tracer, SIGKILL);
	assert_int_equal(waitpid(tracer, NULL, 0), tracer);
	assert_int_equal(waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT), 0);
	assert_readable_in_the_end(d, &cost);
	assert_int_equal(counter_get(stuck), before + 1);
	assert_int_equal(waitpid(pid, NULL, WNOHANG), -1); /* the owner has reaped it already */
	elf_demangler_free(d);
}

/*
 * The first child may have died for another reason than the name: the kernel may have killed it
 * because memory ran out.
 */
static void a_name_that_another_child_reads_is_innocent(void **state)
{
	_cleanup_free_ char *path = xasprintf("%s/once", dir);
	_cleanup_free_ char *once = xasprintf("mkdir %s 2>/dev/null", path);

	(void)state;
	for (enum lie i = DEATH; i <= SILENCE; i++) {
		_cleanup_free_ char *program = fake_while(i, once);
		struct demangler *d = elf_demangler_new(program, false);
		struct name_cost cost = {0};
		uint64_t before = restarts();

		assert_shown(d, &cost, CONSTRAINED, "int shop::price<int>(int)");
		assert_int_equal(restarts(), before + 1);
		assert_not_charged(&cost);
		elf_demangler_free(d);
		assert_int_equal(rmdir(path), 0);
	}
}

static void a_name_is_readable_when_a_child_starts_again(void **state)
{
	_cleanup_free_ char *program = xasprintf("%s/fake-%d", dir, CLOCK), *made = NULL;
	_cleanup_free_ char *first = NULL, *second = NULL;
	struct name_cost cost = {0};
	uint64_t again_ns = 0, now_ns = now_mono_ns();
	struct demangler *d;

	(void)state;
	(void)unlink(program);
	d = elf_demangler_new(program, false);
	first = elf_demangler_text(d, CONSTRAINED, &cost, &again_ns);
	assert_string_equal(first, CONSTRAINED);
	assert_true(again_ns > now_ns);
	made = fake_while(CLOCK, "false");
	d->retry_ns = now_ns;
	second = elf_demangler_text(d, CONSTRAINED, &cost, &again_ns);
	assert_string_equal(second, "int shop::price<int>(int)");
	assert_int_equal(again_ns, 0);
	assert_not_charged(&cost);
	elf_demangler_free(d);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain_names_need_no_child),
		cmocka_unit_test(the_child_has_given_everything_up),
		cmocka_unit_test(hostile_names_cost_no_child),
		cmocka_unit_test(slow_names_cost_their_file_only),
		cmocka_unit_test(what_slow_names_cost_is_forgiven),
		cmocka_unit_test(longer_names_stay_mangled),
		cmocka_unit_test(a_child_that_died_while_idle_costs_nothing),
		cmocka_unit_test(without_a_child_names_stay_mangled),
		cmocka_unit_test(lies_cost_the_file_and_the_child),
		cmocka_unit_test(a_child_that_lies_harms_its_own_file_only),
		cmocka_unit_test(each_file_has_a_child_of_its_own),
		cmocka_unit_test(children_without_names_end),
		cmocka_unit_test(silence_costs_the_child_and_a_pause),
		cmocka_unit_test(a_late_answer_after_one_in_time_is_the_first),
		cmocka_unit_test(a_patient_owner_asks_two_children_that_are_late),
		cmocka_unit_test(a_child_that_starts_slowly_is_not_waited_for),
		cmocka_unit_test(a_child_that_ends_slowly_is_not_waited_for),
		cmocka_unit_test(a_name_that_another_child_reads_is_innocent),
		cmocka_unit_test(a_name_is_readable_when_a_child_starts_again),
	};

	if (argc > 2 && streq(argv[1], FAKE_VERB))
		return fake_main((enum lie)atoi(argv[2]));
	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
