// SPDX-License-Identifier: Apache-2.0
/*
 * Finds the functions in which HotSpot reports allocations, by the names that its versions use:
 * this process loads libraries with these names. node/alloc_objects_test.c tests real JDKs.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#include "node/alloc/testalloc.h"
#include "node/alloc/internal.h"

#define ALLOC (1u << PF_EVENT_MEM_ALLOC)
#define INUSE (1u << PF_EVENT_MEM_INUSE)

static char dir[] = "/tmp/podflame-jvm-XXXXXX";

struct library {
	void *handle;
	struct alloc_process process;
	struct alloc_sites *sites;
};

/* Builds and opens a library. names: those of its functions, with blanks between them. */
static void open_library(struct library *l, const char *names, const char *more, const char *flags,
			 unsigned event_mask)
{
	static unsigned number;
	_cleanup_free_ char *path = xasprintf("%s/l%u.so", dir, number++);
	_cleanup_free_ char *build = xasprintf(
		"gcc -shared -fPIC -fvisibility=hidden -x c %s/l.c %s -o %s", dir, flags, path);
	_cleanup_free_ char *source = xasprintf("%s/l.c", dir), *copy = xstrdup(names);
	struct runtime_look look;
	FILE *f = fopen(source, "w");
	char *save = NULL;
	unsigned i = 0;

	assert_non_null(f);
	fprintf(f, "__attribute__((visibility(\"default\"))) long gHotSpotVMStructs;\n%s\n", more);
	for (char *s = strtok_r(copy, " ", &save); s; s = strtok_r(NULL, " ", &save), i++)
		fprintf(f, "int f%u(void) __asm__(\"%s\"); int f%u(void) { return %u; }\n", i, s, i,
			i);
	fclose(f);
	assert_int_equal(system(build), 0);
	*l = (struct library){.handle = dlopen(path, RTLD_NOW)};
	assert_non_null(l->handle);
	alloc_process_open(&l->process, getpid());
	look = alloc_process_look(&l->process);
	l->sites = xcalloc(1, sizeof(*l->sites));
	assert_int_equal(alloc_jvm_finder.find(&look, event_mask, l->sites), 0);
}

static void close_library(struct library *l)
{
	alloc_sites_free(l->sites);
	alloc_process_close(&l->process);
	dlclose(l->handle);
}

static void check(const char *names, unsigned size_arg)
{
	struct library l;

	open_library(&l, names, "", "", ALLOC);
	assert_string_equal(l.sites->problem, "");
	assert_int_equal(l.sites->n, 2);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(l.sites->items[i].site.kind, PF_SITE_JVM);
		assert_int_equal(l.sites->items[i].site.size_arg, size_arg);
		assert_int_equal(l.sites->items[i].site.ptr_arg, 1);
	}
	close_library(&l);
}

static void every_version(void **state)
{
	(void)state;
	/* JDK 8, 8 with a flight recorder, 10, 11, 16 */
	check("_ZN11AllocTracer33send_allocation_in_new_tlab_eventE11KlassHandlemm "
	      "_ZN11AllocTracer34send_allocation_outside_tlab_eventE11KlassHandlem",
	      2);
	check("_ZN11AllocTracer33send_allocation_in_new_tlab_eventE11KlassHandleP8HeapWordmm "
	      "_ZN11AllocTracer34send_allocation_outside_tlab_eventE11KlassHandleP8HeapWordm",
	      3);
	check("_ZN11AllocTracer33send_allocation_in_new_tlab_eventEP5Klassmm "
	      "_ZN11AllocTracer34send_allocation_outside_tlab_eventEP5Klassm",
	      2);
	check("_ZN11AllocTracer27send_allocation_in_new_tlabEP5KlassP8HeapWordmmP6Thread "
	      "_ZN11AllocTracer28send_allocation_outside_tlabEP5KlassP8HeapWordmP6Thread",
	      3);
	check("_ZN11AllocTracer27send_allocation_in_new_"
	      "tlabEP5KlassPP12HeapWordImplmmP10JavaThread "
	      "_ZN11AllocTracer28send_allocation_outside_"
	      "tlabEP5KlassPP12HeapWordImplmP10JavaThread "
	      "_ZN11AllocTracer28send_allocation_outside_"
	      "tlabEP5KlassPP12HeapWordImplmP10JavaThread.cold",
	      3);
}

#define NAMES                                                                                      \
	"_ZN11AllocTracer27send_allocation_in_new_tlabEP5KlassP8HeapWordmmP6Thread "               \
	"_ZN11AllocTracer28send_allocation_outside_tlabEP5KlassP8HeapWordmP6Thread"

static void what_is_not_seen_is_said(void **state)
{
	static const struct {
		const char *names, *more, *flags;
		unsigned events;
		const char *problem;
	} cases[] = {
		{NAMES, "", "-s", ALLOC, "libjvm.so has no .symtab: "},
		{NAMES, "", "-s", INUSE, "mem-inuse has no Java objects"},
		{NAMES, "", "", ALLOC | INUSE, "mem-inuse has no Java objects"},
		{NAMES, "char FastTLABRefill = 1;", "", ALLOC, "some Java objects that code of C1"},
		{NAMES, "char FastTLABRefill = 0;", "", ALLOC, ""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		bool seen = cases[i].events & ALLOC && !*cases[i].flags;
		struct library l;

		open_library(&l, cases[i].names, cases[i].more, cases[i].flags, cases[i].events);
		assert_int_equal(l.sites->n, seen ? 2 : 0);
		assert_true(str_has_prefix(l.sites->problem, cases[i].problem));
		assert_int_equal(*l.sites->problem != '\0', *cases[i].problem != '\0');
		close_library(&l);
	}
}

static void no_java(void **state)
{
	struct alloc_process p;
	struct runtime_look look;
	struct alloc_sites s = {0};

	(void)state;
	alloc_process_open(&p, getpid());
	look = alloc_process_look(&p);
	assert_int_equal(alloc_jvm_finder.find(&look, ALLOC, &s), -ENOENT);
	assert_string_equal(s.problem, "");
	alloc_process_close(&p);
}

static int set_up(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
	_cleanup_free_ char *command = xasprintf("rm -r %s", dir);

	(void)state;
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_version),
		cmocka_unit_test(what_is_not_seen_is_said),
		cmocka_unit_test(no_java),
	};

	return cmocka_run_group_tests_name("where Java allocates", tests, set_up, tear_down);
}
