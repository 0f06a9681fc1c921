/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds and names generated code that no other runtime walks. The names come from perf maps, files
 * that the process itself writes. docs/perf-maps.md. Runs on the reader's thread.
 */
#include "node/runtime/java_attach/attach.h"
#include "node/runtime/internal.h"

#include <ctype.h>
#include <stdlib.h>

#define REFRESH_NS NSEC_PER_SEC /* after this time, a function may have been replaced */
/* time between two slices of a large file; one slice is read for all names that are missing */
#define NEXT_SLICE_NS (100 * NSEC_PER_MSEC)

struct state {
	struct perf_file file;
	struct java_requests *java; /* NULL: no JVM is asked */
	bool given;	    /* the agent has asked the JVM for the map, and the JVM has given it */
	uint64_t looked_ns; /* CLOCK_MONOTONIC: when the file was last read */
	int error;	    /* result of the last read */
};

/* ---- which code ---- */

static bool is_taken(const struct runtime_look *look, const struct mapping *m)
{
	for (size_t i = 0; i < look->n_taken; i++)
		if (look->taken[i].start < m->end && m->start < look->taken[i].end)
			return true;
	return false;
}

/* Finds the ranges of generated code. Returns false if there are more than the limit. */
static bool find_ranges(const struct runtime_look *look, struct runtime_learnt *ret)
{
	struct runtime_range *ranges = xcalloc(RUNTIME_RANGES_MAX, sizeof(*ranges));
	bool all = true;
	size_t n = 0;

	for (size_t i = 0; i < look->maps->n && all; i++) {
		const struct mapping *m = &look->maps->items[i];

		if (!runtime_mapping_is_generated(m, look->indexes[i]) || is_taken(look, m))
			continue;
		if (n && ranges[n - 1].end == m->start)
			ranges[n - 1].end = m->end;
		else if (n < RUNTIME_RANGES_MAX)
			ranges[n++] = (struct runtime_range){m->start, m->end, true};
		else
			all = false;
	}
	ret->ranges = ranges;
	ret->n_ranges = n;
	return all;
}

/* ---- the program that writes the map ---- */

static bool has_mark(const struct runtime_look *look, const char *mark, uint64_t *ret_address)
{
	const struct mapping *m;
	uint64_t address, size;

	if (runtime_find_mark(look, mark, &m, &address, &size) < 0)
		return false;
	if (ret_address)
		*ret_address = address;
	return true;
}

/* name and version of a release of Node.js, in src/node_metadata.cc */
#define NODE_TEXT "node.js/v"

static bool node_version(const struct runtime_look *look, char ret[16])
{
	_cleanup_free_ char *text = NULL;
	const char *version;
	uint64_t address;
	size_t n;

	if (!has_mark(look, "_ZN4node5StartEiPPc", NULL))
		return false;
	*ret = '\0';
	if (!has_mark(look, "\"" NODE_TEXT, &address) ||
	    runtime_memory_string(look->memory, address, 32, &text) < 0)
		return true;
	version = text + MIN(strlen(text), strlen(NODE_TEXT));
	n = strspn(version, "0123456789.");
	snprintf(ret, 16, "%.*s", (int)n, version);
	return true;
}

/*
 * Sets ret's version and problem for Node.js: how a user gets names. recognised.c has the other
 * runtimes.
 */
static void tell_writer(const struct runtime_look *look, bool has_map, struct runtime_learnt *ret)
{
	char version[16];

	if (!node_version(look, version))
		return;
	snprintf(ret->version, sizeof(ret->version), "Node.js %s", version);
	if (!has_map)
		snprintf(ret->problem, sizeof(ret->problem),
			 "JavaScript functions have no names: start it with "
			 "--perf-basic-prof (and --interpreted-frames-native-stack)");
}

/* ---- learn ---- */

/*
 * Returns whether the process has a map. HotSpot writes its whole map at one time. So an empty map
 * of HotSpot is not one: an earlier request of the agent to the JVM has left the empty file. Maps
 * of other programs are empty until their buffer is full.
 */
static bool has_map(const struct state *s)
{
	return s->file.map && !runtime_perf_file_problem(s->error) &&
	       (s->file.writer != PERF_MAP_HOTSPOT || s->given || s->error == -EAGAIN ||
		runtime_perf_map_n(s->file.map));
}

/*
 * Returns whether the map was written before the process began. Such a map counts as missing,
 * because the user can do the same about both.
 */
static bool is_older(const struct state *s)
{
	return s->error == -ETIME;
}

static void look_at_file(struct state *s)
{
	struct perf_map *given = runtime_java_map_take(s->java, s->file.id);

	if (given) {
		runtime_perf_file_set(&s->file, given);
		s->given = true;
	}
	s->error = runtime_perf_file_read(&s->file);
	s->looked_ns = now_mono_ns();
}

static int make_state(const struct runtime_look *look, struct state **ret)
{
	struct state *s = xcalloc(1, sizeof(*s));
	int r = runtime_perf_file_init(look->maps->id, &s->file);

	if (r < 0) {
		free(s);
		return r;
	}
	s->java = runtime_java_requests_ref(look->java);
	s->file.charged_ns = look->maps->charged_ns;
	s->file.writer =
		has_mark(look, "gHotSpotVMStructs", NULL) ? PERF_MAP_HOTSPOT : PERF_MAP_ANY;
	*ret = s;
	return 0;
}

static void forget(void *state)
{
	struct state *s = state;

	if (!s)
		return;
	runtime_perf_file_done(&s->file);
	runtime_java_requests_unref(s->java);
	free(s);
}

static void walk(const struct runtime_look *look, struct state *s, struct runtime_learnt *ret)
{
	struct pf_perfmap *data = xcalloc(1, sizeof(*data));

	data->generation = runtime_perf_file_generation(&s->file);
	data->trampolines = has_mark(look, "_PyRuntime", NULL);
	ret->data = data;
	ret->data_bytes = sizeof(*data);
	ret->state = s;
}

static void tell_file_problem(const struct state *s, struct runtime_learnt *ret)
{
	char path[PERF_MAP_PATH_BYTES];

	runtime_perf_map_path(s->file.own_pid, path);
	if (is_older(s) && *ret->problem) {
		size_t n = strlen(ret->problem);

		snprintf(ret->problem + n, sizeof(ret->problem) - n, "; /%s is older than it",
			 path);
		return;
	}
	snprintf(ret->problem, sizeof(ret->problem), "/%s is not used: %s", path,
		 runtime_perf_file_problem(s->error));
}

static int learn(const struct runtime_look *look, struct runtime_learnt *old,
		 struct runtime_learnt *ret)
{
	struct state *s = old ? TAKE_PTR(old->state) : NULL;
	int r = s ? 0 : make_state(look, &s);
	bool all;

	if (r < 0)
		return r;
	look_at_file(s);
	tell_writer(look, has_map(s), ret);
	if (runtime_perf_file_problem(s->error))
		tell_file_problem(s, ret);
	all = find_ranges(look, ret);
	if (has_map(s) && ret->n_ranges) {
		if (!all)
			runtime_ranges_cut(ret, "areas of generated code");
		walk(look, s, ret);
		return 0;
	}
	if (s->file.writer == PERF_MAP_HOTSPOT && ret->n_ranges && (!*ret->problem || is_older(s)))
		runtime_java_map_want(s->java, s->file.id, s->file.charged_ns);
	forget(s);
	free(TAKE_PTR(ret->ranges));
	ret->n_ranges = 0;
	return *ret->problem ? 0 : -ENOENT;
}

/* ---- resolve ---- */

static uint64_t look_again_ns(const struct state *s)
{
	return s->looked_ns + (s->error == -EAGAIN ? NEXT_SLICE_NS : REFRESH_NS);
}

static bool find(const struct state *s, uint64_t address, struct perf_function *ret)
{
	/* If the file is deleted, the lines that were read stay valid. */
	return (!s->error || s->error == -ENOENT) &&
	       runtime_perf_map_find(s->file.map, address, ret);
}

/*
 * A program writes the line before the code runs. So if the file was read after the code ran, and
 * has no line, the code has no name. One read of the file is used for all names that are asked for
 * together.
 */
static int resolve(void *state, struct memory *m, const struct runtime_words *frame,
		   const struct runtime_words *caller, struct runtime_names *ret)
{
	struct state *s = state;
	struct perf_function f;
	bool found;

	(void)caller;
	if (now_mono_ns() >= look_again_ns(s))
		look_at_file(s);
	found = find(s, frame->a, &f);
	if (!found && !s->error && s->looked_ns < m->opened_ns) {
		look_at_file(s);
		found = find(s, frame->a, &f);
	}
	if (!found && s->error < 0 && s->error != -ENOENT)
		return s->error;
	if (!found && s->given)
		runtime_java_map_want(s->java, s->file.id, s->file.charged_ns);
	if (!found)
		return -ENOENT;
	ret->kind = f.kind;
	runtime_names_add(ret, xstrdup(f.name), f.file_n ? xstrdup(f.file) : NULL, f.line, false);
	return 0;
}

static const char *const marks[] = {
	"_ZN4node5StartEiPPc", "\"" NODE_TEXT, "gHotSpotVMStructs", "_PyRuntime", NULL,
};

const struct runtime_ops runtime_perfmap_runtime = {
	.name = "perfmap",
	.title = "perf map",
	.frame_kind = FRAME_APP,
	.in_agent = true,
	.names_last_ns = 5 * NSEC_PER_SEC, /* other code may replace the code at an address */
	.marks = marks,
	.learn = learn,
	.resolve = resolve,
	.forget = forget,
};
