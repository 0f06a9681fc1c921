/* SPDX-License-Identifier: Apache-2.0 */
/*
 * podflame record: profiles some processes, or a cgroup, once, into a file. It needs no hub. One
 * thread drains the kernel's maps, names samples and merges them. Another thread reads debug files
 * (record_debug.c).
 */
#include "cli/record.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DRAIN_NS NSEC_PER_SEC
/* how long the mappings of an ended process are kept, because samples of it may come later */
#define HOLD_NS (10 * NSEC_PER_SEC)

/* ---- the processes to record ---- */

/* Refuses a path that cannot be written, before the recording begins. Leaves no file. */
static int check_output(const char *path)
{
	_cleanup_free_ char *tmp = xasprintf("%s.XXXXXX", path);
	struct stat st;
	int fd;

	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
		fprintf(stderr, "podflame record: --output: %s is not a regular file\n", path);
		return -EINVAL;
	}
	fd = mkostemp(tmp, O_CLOEXEC);
	if (fd < 0) {
		fprintf(stderr, "podflame record: --output: %s: %s\n", path, strerror(errno));
		return -EINVAL;
	}
	close(fd);
	unlink(tmp);
	return 0;
}

/*
 * Opens the pidfd before it reads the process. The pidfd refers to this process even if another
 * process gets the same number later.
 */
static int watch_pid(struct recording *r, uint32_t pid)
{
	uint32_t tgid = cli_process_of(pid);
	uint64_t start_ns;
	int fd;

	if (tgid && tgid != pid) {
		fprintf(stderr, "podflame record: --pid: %u is a thread of process %u\n", pid,
			tgid);
		return -EINVAL;
	}
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0 || proc_start_boottime(pid, &start_ns) < 0) {
		fprintf(stderr, "podflame record: --pid: there is no process %u\n", pid);
		if (fd >= 0)
			close(fd);
		return -ESRCH;
	}
	GROW(r->pids, r->n_pids, r->cap_pids);
	r->pids[r->n_pids++] = (struct watched_pid){
		.fd = fd,
		.listed = {.id = {start_ns, pid},
			   .event_mask = 1u << r->options->event,
			   .sample_hz = r->options->hz,
			   .settings = r->options->settings},
	};
	return 0;
}

static int open_probes(struct recording *r, const struct probe_config *c)
{
	struct field_error err = {0};
	int e = probes_new(c, &r->probes, &err);
	const struct support *s;
	size_t n;

	if (e) {
		fprintf(stderr, "podflame record: %s: %s\n", err.path, err.reason);
		return e;
	}
	cli_record_open_tables(r);
	s = probes_support(r->probes, &n);
	for (size_t i = 0; i < n; i++)
		if (!s[i].ok)
			fprintf(stderr, "podflame record: %s does not work here: %s\n",
				s[i].feature, s[i].reason);
	return 0;
}

static int begin_pids(struct recording *r)
{
	struct probe_config c = {.use_list = true, .max_sample_hz = r->options->hz};
	_cleanup_free_ struct listed_process *list = NULL;
	int e;

	for (size_t i = 0; i < r->options->n_pids; i++)
		if ((e = watch_pid(r, r->options->pids[i])))
			return e;
	e = open_probes(r, &c);
	if (e)
		return e;
	list = xcalloc(r->n_pids, sizeof(*list));
	for (size_t i = 0; i < r->n_pids; i++)
		list[i] = r->pids[i].listed;
	return probes_list(r->probes, list, r->n_pids);
}

static int begin(struct recording *r)
{
	int e = r->options->cgroup ? cli_record_begin_cgroup(r, open_probes) : begin_pids(r);

	if (e && r->probes)
		fprintf(stderr, "podflame record: cannot begin sampling: %s\n", strerror(-e));
	return e;
}

/* ---- during the recording ---- */

/*
 * Keeps the mappings of ended processes for some more time. The last samples of these processes may
 * wait for debug files, so the caller calls cli_record_debug_wait() first.
 */
static void hold_exited(struct recording *r, const struct drain *d)
{
	uint64_t hold_ns = HOLD_NS + (cli_record_debug_reads(r) ? RECORD_WAIT_NS : 0);

	for (size_t i = 0; i < d->n_procs; i++)
		if (d->procs[i].what == RAW_PROC_EXIT)
			stacks_exited(r->stacks, process_id_of(&d->procs[i]), 0,
				      d->procs[i].time_ns, hold_ns);
}

static void read_process(const struct raw_proc *p, void *recording)
{
	cli_record_read_mappings(recording, process_id_of(p), p->exec_id, p->stack, p->cgroup_id);
}

static void take_procs(struct recording *r, const struct drain *d)
{
	for (size_t i = 0; i < d->n_procs; i++) {
		const struct raw_proc *p = &d->procs[i];
		bool later = learn_later_takes(r->later, p);

		if (p->what != RAW_PROC_EXIT) {
			if (!later)
				read_process(p, r);
			continue;
		}
		cli_record_forget(r, process_id_of(p));
		cli_record_probed_forget(r, process_id_of(p));
	}
}

static void add_losses(struct recording *r, const struct losses *l)
{
	for (size_t i = 0; i < l->n; i++)
		profile_losses_add(&r->lost, 0, l->items[i].reason, l->items[i].n);
}

static void take_losses(struct recording *r, const struct drain *d)
{
	if (now_boot_ns() < r->kept_from_ns)
		return;
	add_losses(r, &d->lost);
	add_losses(r, &d->lost_records);
}

/* Loads the unwind tables of processes that run already. Discards the samples of this time. */
static int prepare(struct recording *r)
{
	int e = probes_announce(r->probes);

	for (int full = 0; !e && full < 2; full++) {
		struct drain *d = NULL;

		e = probes_drain(r->probes, full, &d);
		if (e)
			break;
		take_procs(r, d);
		take_losses(r, d);
		sample_drain_free(d);
	}
	return e;
}

static void take_sample(struct recording *r, const struct drain *d, const struct raw_sample *s)
{
	const struct raw_stack *u = s->ustack ? sample_drain_stack(d, s->ustack) : NULL;
	const struct raw_stack *k = s->kstack ? sample_drain_stack(d, s->kstack) : NULL;
	bool lost = (s->ustack && !u) || (s->kstack && !k);
	uint32_t stack;

	if (s->first_ns < r->kept_from_ns)
		return;
	r->n_samples += s->n;
	stacks_taken(r->stacks, d, s);
	cli_record_count_end(r, s, u);
	if (stacks_resolve(r->stacks, r->batch, process_id_of(s), u, k, lost, &stack) ||
	    cli_record_add(r, s, sample_drain_names(d, s->names), stack))
		r->n_too_many += s->n;
}

/*
 * Reads what is needed to name the samples: mappings that have changed, and names of functions of
 * runtimes.
 */
static void read_missing(struct recording *r, const struct drain *d)
{
	struct names_wanted **wanted;
	size_t n_wanted;

	for (size_t i = 0; i < d->n_samples; i++) {
		const struct raw_sample *s = &d->samples[i];
		const struct raw_stack *u = s->ustack ? sample_drain_stack(d, s->ustack) : NULL;

		if (u)
			cli_record_read_again(r, s, u);
	}
	for (size_t i = 0; i < d->n_samples; i++) {
		const struct raw_sample *s = &d->samples[i];
		const struct raw_stack *u = s->ustack ? sample_drain_stack(d, s->ustack) : NULL;

		if (u)
			stacks_want(r->stacks, process_id_of(s), u);
	}
	for (size_t i = 0; i < d->n_young; i++)
		stacks_want(r->stacks, process_id_of(&d->young[i]), &d->young[i].stack);
	wanted = stacks_wanted(r->stacks, &n_wanted);
	for (size_t i = 0; i < n_wanted; i++) {
		stacks_wanted_read(wanted[i]);
		stacks_named(r->stacks, wanted[i]);
		stacks_wanted_free(wanted[i]);
	}
	free(wanted);
}

void cli_record_samples(struct recording *r, struct drain *d)
{
	take_losses(r, d);
	read_missing(r, d);
	hold_exited(r, d);
	cli_record_debug_wait(r, d);
}

static void name_samples(struct recording *r, const struct drain *d)
{
	proc_mapping_files_look();
	for (size_t i = 0; i < d->n_samples; i++)
		take_sample(r, d, &d->samples[i]);
}

static const struct record_debug_ops debug_ops = {.read = files_debug, .name = name_samples};

static int take(struct recording *r, bool full)
{
	struct drain *d = NULL;
	int e;

	cli_record_probes_announce(r);
	e = probes_drain(r->probes, full, &d);
	if (e)
		return e;
	if (full)
		learn_later_round(r->later, read_process, r);
	take_procs(r, d);
	cli_record_look_again(r);
	cli_record_samples(r, d);
	if (full)
		cli_record_probes_tick(r);
	return 0;
}

static bool all_ended(const struct recording *r)
{
	for (size_t i = 0; i < r->n_pids; i++) {
		struct pollfd p = {.fd = r->pids[i].fd, .events = POLLIN};

		if (poll(&p, 1, 0) == 0)
			return false;
	}
	return r->n_pids > 0;
}

/* Reads the signals that have arrived, so that signal_fd is readable only after a new one. */
static void forget_signals(int signal_fd)
{
	struct signalfd_siginfo s;

	while (read(signal_fd, &s, sizeof(s)) == sizeof(s))
		;
}

/*
 * The delay is over. Leaves out all that was counted until now. The kernel counts equal samples of
 * a drain as one, whose time is that of the first, so this ends a drain: else the samples that
 * follow would be left out with those of the delay.
 */
static int keep_from_now(struct recording *r)
{
	uint64_t now_ns = now_boot_ns();
	int e = take(r, true);

	r->kept_from_ns = now_ns;
	return e;
}

/* Records until a signal, the end of the duration, or the end of the last process. */
static int run(struct recording *r, int signal_fd)
{
	uint64_t start_ns = now_mono_ns(), drain_ns = start_ns + DRAIN_NS, end_ns = UINT64_MAX;
	uint64_t keep_ns = UINT64_MAX;
	int e = 0;

	if (r->options->delay_ns)
		keep_ns = start_ns + r->options->delay_ns;
	if (r->options->duration_ns)
		end_ns = start_ns + r->options->delay_ns + r->options->duration_ns;
	while (!e) {
		struct pollfd p[] = {{.fd = signal_fd, .events = POLLIN},
				     {.fd = probes_wake_fd(r->probes), .events = POLLIN}};
		uint64_t watch_ns = cli_record_probes_watch(r), now = now_mono_ns();
		uint64_t until = MIN(MIN(drain_ns, keep_ns), MIN(end_ns, watch_ns));

		if (now >= end_ns || all_ended(r))
			break;
		poll(p, ARRAY_SIZE(p), until > now ? (int)((until - now) / NSEC_PER_MSEC) + 1 : 0);
		if (p[0].revents) {
			forget_signals(signal_fd);
			break;
		}
		if (now_mono_ns() >= MIN(drain_ns, keep_ns)) {
			bool delay_ends = now_mono_ns() >= keep_ns;

			e = delay_ends ? keep_from_now(r) : take(r, true);
			keep_ns = delay_ends ? UINT64_MAX : keep_ns;
			drain_ns = now_mono_ns() + DRAIN_NS;
		} else if (p[1].revents || r->forks_wait) {
			e = take(r, false);
		}
	}
	cli_record_probes_read(r);
	return e ? e : take(r, true);
}

/* ---- the whole recording ---- */

#define MIB (1 << 20)

/*
 * Returns the sum of the values for which profile_adds_up() is true. *ret_rest: whether there
 * are values for which it is false.
 */
static double sum_of(const struct recording *r, bool *ret_rest)
{
	double sum = 0;
	bool rest = false;

	for (size_t i = 0; i < r->batch->n_profiles; i++) {
		const struct profile *p = r->batch->profiles[i];

		for (size_t k = 0; k < p->n_samples; k++)
			if (profile_adds_up(p, &p->samples[k]))
				sum += (double)p->samples[k].value;
			else
				rest = true;
	}
	*ret_rest = rest;
	return sum;
}

/*
 * Returns the sum of the values in the file, as text. For on-cpu the text is empty, because the
 * number of samples shows the same.
 */
static char *total_text(const struct recording *r)
{
	enum event event = r->options->event;
	bool rest;
	double sum = sum_of(r, &rest);

	if (event == EVENT_ON_CPU)
		return xstrdup("");
	return streq(profile_event_info(event)->unit, "microseconds")
		       ? xasprintf(", %.3f s,", sum / 1e6)
		       : xasprintf(", %.3f MiB,", sum / MIB);
}

/* Prints which values of the event rdma are not in the sum, if there are any. */
static void print_rest(const struct recording *r)
{
	bool rest;

	sum_of(r, &rest);
	if (rest)
		fprintf(stderr,
			"podflame record: the sum and a .folded file are of the send queue only; "
			"a .pb.gz file has receive requests and registered memory, too, by the "
			"label rdma_operation\n");
}

static void summary(const struct recording *r, bool written)
{
	_cleanup_free_ char *total = total_text(r);

	fprintf(stderr, "podflame record: %s: %" PRIu64 " samples%s of %zu process%s\n",
		written ? r->options->output : "not written", r->n_samples, total,
		r->batch->n_profiles, r->batch->n_profiles == 1 ? "" : "es");
	if (!r->n_samples)
		fprintf(stderr, "podflame record: no process was seen that %s in that time\n",
			profile_event_info(r->options->event)->done);
	print_rest(r);
	cli_record_print_stacks(r);
	cli_record_probes_print(r);
	cli_record_print_unmapped(r);
	if (r->n_too_many)
		fprintf(stderr, "podflame record: lost: %" PRIu64 " too many different stacks\n",
			r->n_too_many);
	if (*proc_mappings_problem())
		fprintf(stderr, "podflame record: names of the processes' functions: %s\n",
			proc_mappings_problem());
	if (*stacks_kernel_problem(r->stacks))
		fprintf(stderr, "podflame record: names of kernel functions: %s\n",
			stacks_kernel_problem(r->stacks));
	cli_record_print_mangled();
	for (size_t i = 0; i < r->lost.n; i++)
		fprintf(stderr, "podflame record: lost: %" PRIu64 " %s\n", r->lost.items[i].n,
			r->lost.items[i].reason);
}

/* Whether the event works on this machine. This is known only once its programs are attached. */
static int check_support(const struct recording *r)
{
	const char *name = profile_event_info(r->options->event)->name;
	const struct support *s;
	size_t n;

	s = probes_support(r->probes, &n);
	for (size_t i = 0; i < n; i++) {
		if (s[i].ok || !streq(s[i].feature, name))
			continue;
		fprintf(stderr, "podflame record: --event %s does not work here: %s\n", name,
			s[i].reason ? s[i].reason : "");
		return -EOPNOTSUPP;
	}
	return 0;
}

static int record(struct recording *r, int signal_fd)
{
	struct files_config fc = {.parser.marks = learn_markers(),
				  .host_debug_dir = "/usr/lib/debug",
				  .patient = true};
	struct stacks_config sc = {.unnamed_by_start = r->options->unnamed_by_start};
	int e = files_new(&fc, &r->files);

	sc.files = r->files;
	if (!e)
		e = stacks_new(&sc, &r->stacks);
	if (!e)
		e = cli_record_debug_new(&debug_ops, &r->debug);
	if (e) {
		fprintf(stderr, "podflame record: symbols: %s\n", strerror(-e));
		return e;
	}
	r->batch = profile_batch_new();
	r->later = learn_later_new();
	e = begin(r);
	if (!e)
		e = check_support(r);
	if (e)
		return e;
	e = prepare(r);
	if (e) {
		fprintf(stderr, "podflame record: cannot begin sampling: %s\n", strerror(-e));
		return e;
	}
	e = cli_record_probes_check(r);
	if (e)
		return e;
	r->start_ns = now_wall_ns() + r->options->delay_ns;
	/* prepare() has discarded the samples before; those of a delay: keep_from_now() */
	r->kept_from_ns = r->options->delay_ns ? UINT64_MAX : 0;
	fprintf(stderr, "recording\n");
	e = run(r, signal_fd);
	r->end_ns = MAX(now_wall_ns(), r->start_ns);
	cli_record_debug_finish(r, signal_fd);
	if (e)
		fprintf(stderr, "podflame record: cannot read samples: %s\n", strerror(-e));
	e = cli_record_write(r);
	if (e)
		fprintf(stderr, "podflame record: --output: %s: %s\n", r->options->output,
			strerror(-e));
	summary(r, !e);
	return e;
}

static void recording_done(struct recording *r)
{
	cli_record_debug_free(r->debug);
	cli_record_probes_free(r);
	cli_record_unmapped_free(r);
	learn_later_free(r->later);
	cli_record_tables_free(r);
	probes_free(r->probes);
	stacks_free(r->stacks);
	files_free(r->files);
	profile_batch_free(r->batch);
	cli_record_rows_free(r);
	profile_losses_done(&r->lost);
	profile_losses_done(&r->unfinished);
	for (size_t i = 0; i < r->n_pids; i++)
		close(r->pids[i].fd);
	free(r->pids);
}

/*
 * Blocks SIGINT and SIGTERM, and returns a signalfd for them. The parse child inherits the blocked
 * signals, so Ctrl-C in the terminal does not end it.
 */
static int block_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int cli_cmd_record(int argc, char **argv)
{
	struct record_options o;
	struct recording r = {.options = &o};
	_cleanup_close_ int signal_fd = -1;
	int e;

	cli_record_parse(argc, argv, &o);
	signal_fd = block_signals();
	e = check_output(o.output);
	if (!e)
		e = record(&r, signal_fd);
	recording_done(&r);
	cli_record_options_done(&o);
	return e ? 1 : 0;
}
