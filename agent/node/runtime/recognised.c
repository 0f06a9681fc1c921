/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runtimes that podflame recognises but does not walk, one row each. A row's text tells the user
 * that functions of the program have no names, and how to get names. A program may link a
 * runtime's library and never start the runtime. If the runtime has a variable that is 0 until the
 * program starts it, that variable decides. A runtime without such a variable counts as running if
 * it is mapped.
 */
#include "node/runtime/internal.h"

#include <stdlib.h>

/* most programs start their runtime within this time after their own start */
#define START_NS (10 * NSEC_PER_SEC)

enum sign {
	IS_MAPPED,  /* the runtime runs if its file is mapped */
	IS_STARTED, /* the runtime runs if the variable that is the mark is not 0 */
	GENERATES,  /* the runtime runs if the process has generated code that is not writable */
};
#define ROW_MARKS_MAX 3 /* marks of one runtime */
struct recognised_row {
	struct runtime_recognised seen;
	enum sign sign;
	const char *marks[ROW_MARKS_MAX]; /* as runtime_ops.marks; one of them is enough */
	/* prefix of the name of its library, used if no mark is found; NULL: none */
	const char *file;
	unsigned flag; /* enum elf_index_flag that a file of the runtime has; 0: none */
};

#define UNNAMED "its functions are not named; "

/*
 * The variables come from the C interfaces of the runtimes: ruby.h, SAPI.h, intrpvar.h, perlvars.h,
 * Rinternals.h.
 */
static const struct recognised_row rows[] = {
	{{"pypy", "PyPy",
	  UNNAMED
	  "native frames are right; stacks through its compiled code end early, with a marker",
	  false},
	 IS_MAPPED,
	 {"pypy_execute_source", "rpython_startup_code"},
	 NULL,
	 0},
	{{"native-image", "GraalVM native image",
	  "its functions are native frames, which .symtab names unless it was stripped; its Java "
	  "heap is "
	  "not seen",
	  false},
	 IS_MAPPED,
	 {"graal_create_isolate"},
	 NULL,
	 ELF_INDEX_NATIVE_IMAGE},
	{{"openj9", "OpenJ9",
	  UNNAMED
	  "native frames are right; -Xjit:perfTool writes a perf map, which names compiled methods",
	  true},
	 IS_MAPPED,
	 {"J9_CreateJavaVM", "J9VMDllMain"},
	 "libj9vm",
	 0},
	{{"dotnet", ".NET",
	  UNNAMED "stacks go through its code by frame pointers; DOTNET_PerfMapEnabled=1 writes a "
		  "perf map, "
		  "which names methods",
	  true},
	 IS_MAPPED,
	 {"g_dacTable", "DotNetRuntimeInfo", "coreclr_initialize"},
	 "libcoreclr.so",
	 0},
	{{"mono", "Mono",
	  UNNAMED "native frames are right; --jitmap writes a perf map, which names methods", true},
	 IS_MAPPED,
	 {"mono_jit_init"},
	 NULL,
	 0},
	{{"ruby", "Ruby", UNNAMED "native frames (of the interpreter and of extensions) are right",
	  false},
	 IS_STARTED,
	 {"rb_cObject"},
	 NULL,
	 0},
	{{"php", "PHP", UNNAMED "native frames (of the interpreter and of extensions) are right",
	  false},
	 IS_STARTED,
	 {"sapi_module"},
	 NULL,
	 0},
	{{"beam", "Erlang (BEAM)",
	  UNNAMED "native frames are right; +JPperf true writes a perf map, which names functions",
	  true},
	 IS_MAPPED,
	 {"enif_make_atom"},
	 NULL,
	 0},
	{{"perl", "Perl", UNNAMED "native frames (of the interpreter and of extensions) are right",
	  false},
	 IS_STARTED,
	 {"PL_curinterp", "PL_main_cv"},
	 NULL,
	 0},
	{{"r", "R", UNNAMED "native frames (of the interpreter and of extensions) are right",
	  false},
	 IS_STARTED,
	 {"R_GlobalEnv"},
	 NULL,
	 0},
	{{"wasmtime", "Wasmtime",
	  UNNAMED "stacks go through its code by frame pointers; its profiling strategy perfmap "
		  "(--profile=perfmap) names functions",
	  true},
	 GENERATES,
	 {"wasmtime_engine_clone", "\"WASMTIME_BACKTRACE_DETAILS"},
	 NULL,
	 0},
};
_Static_assert(ARRAY_SIZE(rows) <= RUNTIME_RECOGNISED_MAX, "one process may have all of them");

size_t runtime_recognised_marks(const char **ret, size_t max)
{
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		for (size_t k = 0; k < ROW_MARKS_MAX && rows[i].marks[k] && n < max; k++)
			ret[n++] = rows[i].marks[k];
	return n;
}

static bool has_file(const struct runtime_look *look, const struct recognised_row *row)
{
	for (size_t i = 0; i < look->maps->n; i++) {
		const struct elf_index *index = look->indexes[i];
		const char *path = look->maps->items[i].path, *name = strrchr(path, '/');

		if (index && elf_index_flags(index) & row->flag)
			return true;
		if (row->file && path[0] == '/' && str_has_prefix(name + 1, row->file))
			return true;
	}
	return false;
}

/*
 * Returns whether the process has generated code. Writable code does not count: it may be of
 * libffi's closures, for example.
 */
static bool generates(const struct runtime_look *look)
{
	for (size_t i = 0; i < look->maps->n; i++)
		if (runtime_mapping_is_generated(&look->maps->items[i], look->indexes[i]) &&
		    !look->maps->items[i].writable)
			return true;
	return false;
}

static bool is_young(const struct mappings *m)
{
	return now_boot_ns() < m->id.start_boottime_ns + START_NS;
}

/*
 * Returns whether the runtime of this row runs. *ret_again: the process is young, and may start the
 * runtime soon. So the caller looks again.
 */
static bool is_here(const struct runtime_look *look, const struct recognised_row *row,
		    bool *ret_again)
{
	bool found = has_file(look, row);

	for (size_t k = 0; k < ROW_MARKS_MAX && row->marks[k] && !found; k++) {
		const struct mapping *m;
		uint64_t address, size, value = 0;

		found = runtime_find_mark(look, row->marks[k], &m, &address, &size) == 0;
		if (!found || row->sign != IS_STARTED)
			continue;
		found = runtime_memory_u64(look->memory, address, &value) == 0 && value;
		*ret_again |= !found && is_young(look->maps);
	}
	return found && (row->sign != GENERATES || generates(look));
}

size_t runtime_recognised_find(const struct runtime_look *look,
			       const struct runtime_recognised *ret[static RUNTIME_RECOGNISED_MAX],
			       bool *ret_again)
{
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (is_here(look, &rows[i], ret_again))
			ret[n++] = &rows[i].seen;
	return n;
}
