/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Children that demangle, under an attacker's control: they do not start, answer with any bytes,
 * hang or die. A child must never get names of two files. A text must be what a child has answered,
 * cleaned, or the mangled name. When all children work again and the pauses are over, each file has
 * its names.
 * Fuzzes: lib/symbols/demangler.c, lib/child/pool.c, lib/child/child.c
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/fuzzinput.h"
#include "lib/child/fuzzchild.h"
#include "lib/symbols/demangler.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define N_FILES	     3
#define N_NAMES	     24 /* names of one run */
#define CHILDREN_RUN 64 /* children of one run; no more can be started */
#define FIRST_PID    (1 << 30)

static struct fake {
	int sock; /* -1: it has died, or was ended */
	int file; /* whose names it gets; -1: it had none yet */
	bool ready, hangs;
} fakes[CHILDREN_RUN];
static size_t n_fakes;
static bool is_good;		     /* whether the children work as they should */
static char told[DEMANGLED_MAX + 1]; /* the text of the last answer */

/* ---- what the children do ---- */

static void tell_ready(struct fake *f)
{
	const int32_t error = 0;

	f->ready = true;
	(void)child_send(f->sock, &error, sizeof(error), NULL, 0);
}

/* Answers with a text of the input, and perhaps with lies around it. */
static size_t lie(struct demangle_reply *r)
{
	unsigned how = take(), n = take();

	r->n = (uint32_t)MIN(n, in.n);
	if (r->n)
		memcpy(r->text, in.data, r->n);
	in.data += r->n;
	in.n -= r->n;
	n = (unsigned)offsetof(struct demangle_reply, text) + r->n;
	snprintf(told, sizeof(told), "%.*s", (int)r->n, r->text);
	if (how & 1)
		r->sequence += take();
	if (how & 2)
		r->result = take();
	if (how & 4)
		r->cpu_ns = (uint64_t)take() << take() % 64;
	if (how & 8)
		r->n += take();
	return how & 16 ? take() : n;
}

static void answer(struct fake *f, uint64_t sequence)
{
	struct demangle_reply r = {.sequence = sequence, .n = 4, .text = "good"};
	size_t n = offsetof(struct demangle_reply, text) + 4;

	snprintf(told, sizeof(told), "good");
	if (!is_good) {
		f->hangs = take() % 8 == 7;
		if (f->hangs)
			return;
		n = lie(&r);
	}
	(void)child_send(f->sock, &r, n, NULL, 0);
	if (!is_good && take() % 8 == 7) {
		close(f->sock);
		f->sock = -1;
	}
}

/* Has each child do what it can do now. */
static void run_children(void)
{
	for (size_t i = 0; i < n_fakes; i++) {
		struct demangle_request q;
		struct fake *f = &fakes[i];

		if (f->sock >= 0 && !f->ready && is_good)
			tell_ready(f);
		while (f->sock >= 0 && !f->hangs &&
		       recv(f->sock, &q, sizeof(q), MSG_DONTWAIT) > 0) {
			int file = q.name[2] - 'a';

			check(f->file < 0 || f->file == file);
			f->file = file;
			answer(f, q.sequence);
		}
	}
}

/* ---- these functions replace processes ---- */

static int begin(const char *path, char *const *argv, int sock, pid_t *ret_pid)
{
	unsigned how = is_good ? 0 : take() % 16;
	struct fake *f = &fakes[n_fakes];

	(void)path;
	(void)argv;
	if (how == 15 || n_fakes == CHILDREN_RUN)
		return -ENOMEM;
	*f = (struct fake){.sock = fcntl(sock, F_DUPFD_CLOEXEC, 3), .file = -1};
	check(f->sock >= 0);
	*ret_pid = FIRST_PID + (pid_t)n_fakes++;
	if (how != 14)
		tell_ready(f);
	return 0;
}

static void end(pid_t pid)
{
	struct fake *f = &fakes[pid - FIRST_PID];

	if (f->sock >= 0)
		close(f->sock);
	f->sock = -1;
}

static bool wait_for(int sock, uint64_t ns)
{
	run_children();
	return fuzzchild_readable(sock, ns);
}

static const struct child_ops ops = {
	.now_ns = fuzzchild_now_ns,
	.sleep = fuzzchild_sleep,
	.start = begin,
	.end = end,
	.reap = fuzzchild_reap,
	.readable = wait_for,
};

/* ---- the owner ---- */

/* Asks for a name of a file: "_Za", "_Zb", ... Returns whether it was demangled. */
static bool ask_for(struct demangler *d, int file, struct name_cost *cost)
{
	const char name[] = {'_', 'Z', (char)('a' + file), '\0'};
	uint64_t again_ns;
	_cleanup_free_ char *text = elf_demangler_text(d, name, cost, &again_ns);
	_cleanup_free_ char *clean = elf_text_clean(told);

	if (streq(text, name))
		return false;
	check(streq(text, clean) && !again_ns);
	return true;
}

/* The demangler's own pauses are by the real clock. */
static void forget_pauses(struct demangler *d, struct name_cost *cost)
{
	d->retry_ns = 0;
	cost->slow_until_ns = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct name_cost costs[N_FILES] = {0};
	struct demangler *d;

	in.data = data;
	in.n = n;
	is_good = false;
	n_fakes = 0;
	fuzzchild_ns = NSEC_PER_SEC;
	d = new_demangler(NULL, take() % 2, &ops);
	for (int i = 0; i < N_NAMES && in.n; i++) {
		unsigned what = take();
		int file = (int)(what % N_FILES);

		if (what & 128)
			fuzzchild_ns += CHILD_POOL_PAUSE_NS;
		if (what & 64)
			forget_pauses(d, &costs[file]);
		ask_for(d, file, &costs[file]);
	}
	is_good = true;
	fuzzchild_ns += 2 * CHILD_POOL_PAUSE_MAX_NS;
	for (int i = 0; i < N_FILES; i++) {
		forget_pauses(d, &costs[i]);
		check(ask_for(d, i, &costs[i]) || n_fakes == CHILDREN_RUN);
	}
	elf_demangler_free(d);
	for (size_t i = 0; i < n_fakes; i++)
		check(fakes[i].sock < 0);
	return 0;
}
