/* SPDX-License-Identifier: Apache-2.0 */
/*
 * podflame doctor --pid: which events besides on-cpu podflame can record of a process, and which
 * parts of these events podflame cannot see.
 */
#include "cli/doctor.h"
#include "node/alloc/alloc.h"
#include "node/learn/learn.h"
#include "node/learn/sites.h"

#include <stdlib.h>
#include <time.h>

#define SYMBOLS_SHOWN 3
#define SITES_TURNS   20 /* tries of 100 ms each, because the process may just be starting */

/* ---- off-cpu ---- */

static void tell_off_cpu(struct doctor *d, bool go)
{
	json_t *c = cli_doctor_tell(d, "process off-cpu", true,
				    go ? "podflame sees where its threads wait, but not goroutines "
					 "that Go parks itself (channels, mutexes, timers, network)"
				       : "podflame sees where its threads wait");

	json_object_set_new(c, "event", json_string("off-cpu"));
	json_object_set_new(c, "goroutines", json_boolean(go));
}

/* ---- events of uprobes: the functions of the process that are probed ---- */

static bool has_text(const json_t *list, const char *text)
{
	size_t i;
	json_t *v;

	json_array_foreach ((json_t *)list, i, v)
		if (streq(json_string_value(v), text))
			return true;
	return false;
}

static json_t *files_file_of(json_t *list, const char *path)
{
	json_t *f = json_with(list, "path", path);

	if (f)
		return f;
	f = json_pack("{s:s, s:i, s:[]}", "path", path, "places", 0, "symbols");
	json_array_append_new(list, f);
	return f;
}

/* Returns a JSON array of {path, places, symbols}. */
static json_t *files_of(const struct alloc_sites *s, const struct mappings *m, enum event e)
{
	json_t *list = json_array();

	for (size_t i = 0; i < s->n; i++) {
		const struct alloc_site *x = &s->items[i];
		_cleanup_free_ char *path = elf_text_clean(m->items[x->mapping].path);
		_cleanup_free_ char *symbol = elf_text_clean(x->symbol);
		json_t *f, *symbols;

		if (!probes_site_hits(probes_set_of(e), &x->site, 1u << e))
			continue;
		f = files_file_of(list, path);
		symbols = json_object_get(f, "symbols");
		json_object_set_new(f, "places", json_integer(json_int_at(f, "places", 0) + 1));
		if (!has_text(symbols, symbol))
			json_array_append_new(symbols, json_string(symbol));
	}
	return list;
}

static void add_file(struct buf *b, const json_t *file)
{
	const json_t *symbols = json_object_get(file, "symbols");
	int64_t n = json_int_at(file, "places", 0);
	size_t i;
	json_t *v;

	buf_printf(b, "%s%lld place%s of %s (", b->len ? ", " : "", (long long)n, n == 1 ? "" : "s",
		   json_str_at(file, "path", ""));
	json_array_foreach ((json_t *)symbols, i, v)
		if (i < SYMBOLS_SHOWN)
			buf_printf(b, "%s%s", i ? ", " : "", json_string_value(v));
	buf_puts(b, json_array_size(symbols) > SYMBOLS_SHOWN ? ", ...)" : ")");
}

/* Returns the largest number of probe hits that one call of a probed function can cause. */
static unsigned hits_of_call(const struct alloc_sites *s, enum event e)
{
	unsigned n = 0;

	for (size_t i = 0; i < s->n; i++)
		n = MAX(n, probes_site_hits(probes_set_of(e), &s->items[i].site, 1u << e));
	return n;
}

static char *sites_text(const struct doctor *d, const struct alloc_sites *s, enum event e,
			const json_t *files)
{
	_cleanup_buf_ struct buf b = {0};
	size_t i;
	json_t *f;

	if (s->go)
		buf_puts(&b, "podflame reads Go's own heap profile, without a probe");
	json_array_foreach ((json_t *)files, i, f)
		add_file(&b, f);
	if (json_array_size(files) && d->hit_ns)
		buf_printf(&b, "; a call of one costs the process about %llu ns more",
			   (unsigned long long)d->hit_ns * hits_of_call(s, e));
	if (*s->problem)
		buf_printf(&b, "%spodflame does not see all of it: %s", b.len ? "; " : "",
			   s->problem);
	return buf_steal(&b);
}

static int find_sites(struct files *files, const struct mappings *m, enum event e,
		      struct alloc_sites **ret)
{
	const struct timespec pause = {.tv_nsec = 100 * NSEC_PER_MSEC};
	int r = -EAGAIN;

	for (int i = 0; i < SITES_TURNS && r == -EAGAIN; i++) {
		if (i)
			nanosleep(&pause, NULL);
		r = learn_alloc_sites(files, m, 1u << e, NULL, ret);
	}
	return r;
}

static json_t *tell_event(struct doctor *d, enum event e, bool ok, const char *text)
{
	const char *name = profile_event_info(e)->name;
	_cleanup_free_ char *check = xasprintf("process %s", name);
	json_t *c = cli_doctor_tell(d, check, ok, text);

	json_object_set_new(c, "event", json_string(name));
	return c;
}

static void tell_sites(struct doctor *d, const struct alloc_sites *s, const struct mappings *m,
		       enum event e)
{
	const char *lacks = learn_sites_lack(probes_set_of(e), s);
	json_t *list = files_of(s, m, e), *c;
	_cleanup_free_ char *text = lacks ? xasprintf("the process has not loaded %s", lacks)
					  : sites_text(d, s, e, list);

	/*
	 * The check succeeds even if only a part of the functions is probed, because more is often
	 * not possible. It also succeeds if the process has not loaded the library that the event
	 * is about: podflame misses nothing then.
	 */
	c = tell_event(d, e, s->n || s->go || lacks, text);
	json_object_set_new(c, "files", list);
	json_object_set_new(c, "goHeapProfile", json_boolean(s->go != NULL));
	json_object_set_new(c, "hitNs", json_integer((json_int_t)d->hit_ns));
	json_object_set_new(c, "lacks", json_string(lacks ? lacks : ""));
	json_object_set_new(c, "notSeen", json_string(s->problem));
}

static void tell_probed(struct doctor *d, struct files *files, const struct mappings *m,
			enum event e)
{
	_cleanup_free_ char *text = NULL;
	struct alloc_sites *s = NULL;
	int r = find_sites(files, m, e, &s);

	if (r < 0) {
		text = xasprintf("cannot find what to probe: %s",
				 r == -EAGAIN ? "it has just started" : strerror(-r));
		tell_event(d, e, false, text);
		return;
	}
	tell_sites(d, s, m, e);
	alloc_sites_free(s);
}

void cli_doctor_events(struct doctor *d, struct files *files, const struct mappings *m, bool go)
{
	tell_off_cpu(d, go);
	for (enum event e = 0; e < _EVENT_MAX; e++)
		if (probes_set_of(e) < _PROBES_SET_MAX)
			tell_probed(d, files, m, e);
}
