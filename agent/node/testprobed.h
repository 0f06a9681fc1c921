/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: a program that a test starts, talks to by lines of text, and probes where it
 * allocates. All programs of a test use the same probes, because the kernel takes seconds to verify
 * them.
 */
#pragma once

#include "node/alloc/testalloc.h"
#include "node/learn/sites.h"

#include <fcntl.h>
#include <sys/wait.h>

struct probed_program {
	const char *title;
	pid_t pid; /* 0: not running */
	FILE *from;
	int to;
	struct alloc_process process;
	struct alloc_sites *sites;
	struct attached *attached;
	struct raw_proc proc;
};

static struct probes *probes;

static inline void probed_start(struct probed_program *p, char *const *argv, const char *libraries,
				const char *preload)
{
	int in[2], out[2];

	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	p->pid = fork();
	if (p->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(in[0], 0);
		dup2(out[1], 1);
		setenv("LD_LIBRARY_PATH", libraries, 1);
		if (preload)
			setenv("LD_PRELOAD", preload, 1);
		execvp(argv[0], argv);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	p->to = in[1];
	p->from = fdopen(out[0], "r");
	assert_non_null(p->from);
}

static inline void probed_read(struct probed_program *p, char *line, size_t n)
{
	if (!fgets(line, (int)n, p->from))
		fail_msg("%s: it ended", p->title);
	line[strcspn(line, "\n")] = '\0';
}

static inline void probed_await(struct probed_program *p, const char *word)
{
	char line[256];

	do
		probed_read(p, line, sizeof(line));
	while (!streq(line, word));
}

static inline void probed_end(struct probed_program *p)
{
	if (!p->pid)
		return;
	kill(p->pid, SIGKILL);
	waitpid(p->pid, NULL, 0);
	p->pid = 0;
}

static inline void probed_close(struct probed_program *p)
{
	p->attached = probes_detach(probes, p->attached);
	probed_end(p);
	fclose(p->from);
	close(p->to);
	alloc_sites_free(p->sites);
	alloc_process_close(&p->process);
}

/* ---- probes ---- */

static inline void probed_open_probes(void)
{
	const struct probe_config c = {.use_list = true, .max_sample_hz = 99};
	struct field_error err = {};

	if (!probes && probes_new(&c, &probes, &err) < 0) {
		print_message("skipped: no BPF here: %s\n", err.reason);
		skip();
	}
}

/* Selects the program, and waits until the kernel has reported it. */
static inline void probed_select(struct probed_program *p, const struct listed_process *how)
{
	struct listed_process l = *how;

	l.id.tgid = p->pid;
	assert_int_equal(proc_start_boottime(l.id.tgid, &l.id.start_boottime_ns), 0);
	assert_int_equal(probes_list(probes, &l, 1), 0);
	for (unsigned n = 0; !p->proc.tgid && n < 6000; n++) {
		struct drain *d = NULL;

		assert_int_equal(probes_announce(probes), 0);
		assert_int_equal(probes_drain(probes, false, &d), 0);
		for (size_t i = 0; i < d->n_procs; i++)
			if ((pid_t)d->procs[i].tgid == p->pid)
				p->proc = d->procs[i];
		sample_drain_free(d);
		usleep(10000);
	}
	assert_int_equal(p->proc.tgid, p->pid);
}

static inline void probed_find(struct probed_program *p, unsigned event_mask)
{
	struct runtime_look look;

	alloc_process_open(&p->process, p->pid);
	look = alloc_process_look(&p->process);
	assert_int_equal(alloc_sites_find(&look, event_mask, &p->sites), 0);
}

static inline void probed_attach(struct probed_program *p, enum probe_set set, unsigned event_mask)
{
	struct probes_refused refused;
	struct site_files f;

	learn_site_files(p->sites, p->process.maps, event_mask, &f);
	f.process.exec_id = p->proc.exec_id;
	assert_int_equal(probes_attach(probes, set,
				       (struct process_id){p->proc.start_boottime_ns, p->pid},
				       &f.process, f.files, f.n_files, &p->attached, &refused),
			 0);
	learn_site_files_done(&f);
	assert_int_equal(refused.n, 0);
}

/*
 * Finds the function of the program that allocated, without what mangling adds: the first frame
 * whose name contains "with_". "elsewhere": there is none.
 */
static inline void probed_caller(struct probed_program *p, const struct raw_stack *k, char ret[64])
{
	struct runtime_look look = alloc_process_look(&p->process);

	for (size_t i = 0; k && i < k->n; i++) {
		uint64_t at = k->frames[i].address - 1;
		const struct mapping *m = proc_mappings_find(p->process.maps, at);
		size_t mapping = m ? (size_t)(m - p->process.maps->items) : 0;
		struct elf_symbol y;
		const char *name;

		if (!m || !p->process.indexes[mapping] || k->frames[i].kernel ||
		    elf_index_symbol(p->process.indexes[mapping], at - runtime_bias(&look, m), &y) <
			    0)
			continue;
		name = strstr(y.name, "with_");
		if (!name)
			continue;
		snprintf(ret, 64, "%.*s", (int)strspn(name, "abcdefghijklmnopqrstuvwxyz_"), name);
		return;
	}
	snprintf(ret, 64, "elsewhere");
}
