/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of kernel functions. This file reads kallsyms when the first name is asked for, and again
 * after modules or BPF programs were loaded. It reads at most every 30 s, because a node may load
 * BPF programs all the time.
 */
#include "node/stack/internal.h"

#include <stdlib.h>

#define RELOAD_EVERY_NS (30 * NSEC_PER_SEC) /* a reload takes 0.1 s on a busy node */
#define CHECK_EVERY_NS	(5 * NSEC_PER_SEC)

struct kernel_names {
	char *path;
	/* NULL: no name was asked for yet, or kallsyms cannot be read */
	struct kernel_symbols *symbols;
	uint64_t fingerprint;
	uint32_t newest_bpf;
	/*
	 * something was loaded since the last read. BPF programs have no names until the next read,
	 * because a new one may be between those that are known.
	 */
	bool stale;
	uint64_t next_check_ns, next_reload_ns; /* CLOCK_MONOTONIC */
	char problem[160];
};

static void tell_problem(struct kernel_names *k, int r)
{
	k->problem[0] = '\0';
	if (r == -EADDRNOTAVAIL)
		snprintf(k->problem, sizeof(k->problem),
			 "%s shows no addresses: CAP_SYSLOG is missing, or kernel.kptr_restrict "
			 "is 2",
			 k->path);
	else if (r == -ENODATA)
		snprintf(k->problem, sizeof(k->problem), "%s names no function", k->path);
	else if (r < 0)
		snprintf(k->problem, sizeof(k->problem), "cannot read %s: %s", k->path,
			 strerror(-r));
}

static void load(struct kernel_names *k)
{
	struct kernel_symbols *symbols;
	int r = stacks_kernel_symbols_read(k->path, &symbols);

	if (r == 0) {
		stacks_kernel_symbols_free(k->symbols);
		k->symbols = symbols;
		if (stacks_kernel_symbols_count(symbols) == 0)
			r = stacks_kernel_symbols_hidden(symbols) ? -EADDRNOTAVAIL : -ENODATA;
	}
	tell_problem(k, r);
}

struct kernel_names *stacks_kernel_names_new(const char *path)
{
	struct kernel_names *k = xcalloc(1, sizeof(*k));

	k->path = xstrdup(path ? path : "/proc/kallsyms");
	tell_problem(k, stacks_kernel_symbols_look(k->path));
	return k;
}

struct kernel_names *stacks_kernel_names_free(struct kernel_names *k)
{
	if (k) {
		stacks_kernel_symbols_free(k->symbols);
		free(k->path);
		free(k);
	}
	return NULL;
}

int stacks_kernel_names_refresh(struct kernel_names *k)
{
	uint64_t fingerprint = stacks_kernel_symbols_fingerprint(k->path, &k->newest_bpf);
	uint64_t now = now_mono_ns();
	bool changed = fingerprint != k->fingerprint, early = now < k->next_reload_ns;

	k->next_check_ns = now + CHECK_EVERY_NS;
	if (!k->symbols) {
		k->fingerprint = fingerprint;
		tell_problem(k, stacks_kernel_symbols_look(k->path));
	} else if (!k->problem[0] && changed && early) {
		k->stale = true;
	} else if (changed || (k->problem[0] && !early)) {
		load(k);
		k->fingerprint = fingerprint;
		k->stale = false;
		k->next_reload_ns = now + RELOAD_EVERY_NS;
	}
	return k->problem[0] ? -ENODATA : 0;
}

const char *stacks_kernel_names_problem(const struct kernel_names *k)
{
	return k->problem;
}

void stacks_kernel_names_find(struct kernel_names *k, uint64_t address, struct frame *f)
{
	const char *name, *module;
	uint64_t start;

	if (now_mono_ns() >= k->next_check_ns)
		(void)stacks_kernel_names_refresh(k);
	if (!k->symbols && !k->problem[0] && now_mono_ns() >= k->next_reload_ns) {
		load(k);
		if (k->problem[0])
			k->next_reload_ns = now_mono_ns() + RELOAD_EVERY_NS;
	}
	if (!k->symbols ||
	    stacks_kernel_symbols_find(k->symbols, address, &start, &name, &module) < 0)
		return;
	if (k->stale && streq(module, "bpf"))
		return;
	f->address = start;
	f->name = name;
	f->module = module;
}
