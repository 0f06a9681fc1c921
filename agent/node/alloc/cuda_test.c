/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the entries of CUDA drivers, known and unknown ones. Builds the drivers itself. */
#include "node/alloc/testalloc.h"

#include "lib/base/testfolder.h"
#include "node/alloc/cuda_entries.h"

#define EVENTS	(1u << PF_EVENT_HBM_ALLOC | 1u << PF_EVENT_HBM_INUSE)
#define ENTRIES "agent/node/alloc/testdata/cuda_entries.txt"

/*
 * UPROBE_SINGLE_MAX_OF_ATTACH of node/probe: the limit of attached uprobes on kernels before 6.6.
 * Each entry that is no query needs two, for its call and its return. If a driver had more entries,
 * such a kernel would have no hbm-inuse.
 */
#define SINGLE_MAX 128

/* ---- testdata/cuda_entries.txt ---- */

struct listed {
	char name[64], versions[16];
	bool counted; /* the entry gives or frees memory that is counted, or changes contexts */
};

static size_t read_list(struct listed *ret, size_t max)
{
	FILE *f = fopen(ENTRIES, "re");
	char line[256];
	size_t n = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (*line == '#')
			continue;
		assert_true(n < max);
		assert_int_equal(sscanf(line, "%63[^:]: %15[^(\n]", ret[n].name, ret[n].versions),
				 2);
		ret[n++].counted = !strchr(line, '(');
	}
	fclose(f);
	return n;
}

static struct listed list[256];
static size_t n_listed;

static void each_entry_of_the_drivers_is_known(void **state)
{
	(void)state;
	for (size_t i = 0; i < n_listed; i++) {
		const struct cuda_entry *e = alloc_cuda_find(list[i].name);

		if (list[i].counted != (e && e->site.kind != 0))
			fail_msg("%s: the table and the list do not agree", list[i].name);
	}
}

/* ---- processes with a driver ---- */

/* The source of a driver that has all entries of this version; "": of all versions. */
static char *driver_of(const char *version)
{
	_cleanup_buf_ struct buf b = {};

	buf_init(&b, 1 << 20);
	for (size_t i = 0; i < n_listed; i++)
		if (strstr(list[i].versions, version))
			buf_printf(&b, "int %s() { return %zu; }\n", list[i].name, i);
	return buf_steal(&b);
}

static void check_driver(const char *version)
{
	_cleanup_free_ char *source = driver_of(version);
	struct alloc_process p;
	pid_t pid = alloc_library_start(dir, "libcuda.so.1", source);
	struct alloc_sites *s = alloc_find(&p, pid, EVENTS);
	size_t n = 0;

	assert_string_equal(s->problem, "");
	for (size_t i = 0; i < n_listed; i++) {
		bool has = list[i].counted && strstr(list[i].versions, version);

		n += has;
		if (has != (alloc_site_of(s, list[i].name) != NULL))
			fail_msg("%s of driver %s", list[i].name, version);
	}
	assert_int_equal(s->n, n);
	for (size_t i = 0; i < s->n; i++)
		n -= PF_SITE_IS_GPU_QUERY(s->items[i].site.kind);
	assert_true(2 * n <= SINGLE_MAX);
	for (size_t i = 0; i < s->n; i++)
		assert_non_null(strstr(p.maps->items[s->items[i].mapping].path, "/libcuda.so.1"));
	alloc_process_stop(pid, &p, s);
}

static void all_entries_of_a_driver_are_sites(void **state)
{
	(void)state;
	check_driver("535");
	check_driver("550");
	check_driver("");
}

static void check_real_driver(const char *library, const char *version)
{
	_cleanup_free_ char *command = xasprintf("cp -L '%s' '%s/libcuda.so.1'", library, dir);
	_cleanup_free_ char *flags = xasprintf("-Wl,--no-as-needed -Wl,-rpath,%s "
					       "-Wl,--unresolved-symbols=ignore-all ./libcuda.so.1",
					       dir);
	struct alloc_process p;
	struct alloc_sites *s;
	size_t n = 0;
	pid_t pid;

	assert_int_equal(system(command), 0);
	pid = alloc_program_start(dir, ALLOC_WAITS, flags);
	s = alloc_find(&p, pid, EVENTS);
	assert_string_equal(s->problem, ""); /* the table has all entries of the driver */
	for (size_t i = 0; i < n_listed; i++)
		n += list[i].counted && strstr(list[i].versions, version);
	assert_int_equal(s->n, n); /* each at an address of its own */
	alloc_process_stop(pid, &p, s);
}

/* NVIDIA's own libraries, if `.ci/deps long` has got them. */
static void the_real_drivers_have_these_entries(void **state)
{
	static const struct {
		const char *suite, *version;
	} drivers[] = {{"bookworm", "535"}, {"trixie", "550"}};
	_cleanup_free_ char *home = xasprintf("%s/.cache", getenv("HOME") ?: "");
	const char *cache = getenv("XDG_CACHE_HOME") ?: home;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(drivers); i++) {
		_cleanup_free_ char *library =
			xasprintf("%s/podflame/nvidia/%s/libcuda.so.1", cache, drivers[i].suite);

		if (access(library, R_OK) < 0) {
			print_message("skipped: there is no %s\n", library);
			skip();
		}
		check_real_driver(library, drivers[i].version);
	}
}

/* ---- what is no known driver ---- */

static char *problem_of(const char *name, const char *source, size_t *ret_n)
{
	struct alloc_process p;
	pid_t pid = alloc_library_start(dir, name, source);
	struct alloc_sites *s = alloc_find(&p, pid, EVENTS);
	char *problem = xstrdup(s->problem);

	*ret_n = s->n;
	alloc_process_stop(pid, &p, s);
	return problem;
}

#define MAIN_ENTRIES                                                                               \
	"int cuInit() { return 1; } int cuMemAlloc_v2() { return 2; } "                            \
	"int cuMemFree_v2() { return 3; } "

static void a_file_is_a_driver_by_its_functions(void **state)
{
	_cleanup_free_ char *problem;
	size_t n;

	(void)state;
	problem = problem_of("libother.so", MAIN_ENTRIES, &n);
	assert_string_equal(problem, "");
	assert_int_equal(n, 3);
}

static void a_newer_entry_is_told(void **state)
{
	_cleanup_free_ char *problem;
	size_t n;

	(void)state;
	problem = problem_of("libcuda.so.1", MAIN_ENTRIES "int cuMemAlloc_v3() { return 4; }", &n);
	assert_string_equal(problem, "libcuda.so.1 has a function that podflame does not know "
				     "(cuMemAlloc_v3): what it allocates or frees is not seen");
	assert_int_equal(n, 3);
}

static void an_unknown_driver_is_told(void **state)
{
	static const char text[] =
		"libcuda.so.1 is a CUDA driver whose functions podflame does not know";
	_cleanup_free_ char *lacks = NULL, *empty = NULL;
	size_t n;

	(void)state;
	lacks = problem_of("libcuda.so.1",
			   "int cuInit() { return 1; } int cuMemAlloc() { return 2; }", &n);
	assert_string_equal(lacks, text);
	assert_int_equal(n, 0);
	empty = problem_of("libcuda.so.1", "int nothing() { return 1; }", &n);
	assert_string_equal(empty, text);
	assert_int_equal(n, 0);
}

/* The driver's file waits to be read, or cannot be read. */
static void a_driver_without_an_index_is_told(void **state)
{
	struct alloc_process p;
	pid_t pid = alloc_library_start(dir, "libcuda.so.1", MAIN_ENTRIES);
	struct alloc_sites *known = alloc_find(&p, pid, EVENTS), *s = NULL;
	struct elf_index *none[256] = {0};
	struct runtime_look look = alloc_process_look(&p);

	(void)state;
	assert_true(look.maps->n <= ARRAY_SIZE(none));
	look.indexes = none;
	assert_int_equal(alloc_sites_find(&look, EVENTS, &s), 0);
	assert_string_equal(s->problem, "libcuda.so.1 has not been read yet, or cannot be read");
	assert_int_equal(s->n, 0);
	alloc_sites_free(known);
	alloc_process_stop(pid, &p, s);
}

static void a_process_without_a_driver_has_no_problem(void **state)
{
	_cleanup_free_ char *problem;
	size_t n;

	(void)state;
	problem = problem_of("libother.so", "int cuInit() { return 1; }", &n);
	assert_string_equal(problem, "");
	assert_int_equal(n, 0);
}

/* The driver's sites are of GPU events alone, and the C library's are of memory events alone. */
static void each_event_has_its_own_sites(void **state)
{
	struct alloc_process p;
	pid_t pid = alloc_library_start(dir, "libcuda.so.1", MAIN_ENTRIES);
	struct alloc_sites *gpu = alloc_find(&p, pid, EVENTS), *memory = NULL;
	struct runtime_look look = alloc_process_look(&p);

	(void)state;
	assert_int_equal(alloc_sites_find(&look, 1u << PF_EVENT_MEM_ALLOC, &memory), 0);
	assert_non_null(alloc_site_of(gpu, "cuMemAlloc_v2"));
	assert_null(alloc_site_of(gpu, "malloc"));
	assert_null(alloc_site_of(memory, "cuMemAlloc_v2"));
	assert_non_null(alloc_site_of(memory, "malloc"));
	alloc_sites_free(memory);
	alloc_process_stop(pid, &p, gpu);
}

/* The symbols are in data, outside of the file, or at the address of another entry. */
static void hostile_symbols_give_no_site(void **state)
{
	_cleanup_free_ char *problem;
	size_t n;

	(void)state;
	problem = problem_of(
		"libcuda.so.1",
		MAIN_ENTRIES
		"int cuMemCreate = 1;\n"
		"asm(\".globl cuMemMap,cuMemUnmap,cuMemRelease\\n\"\n"
		"\".type cuMemMap,@function\\n.type cuMemUnmap,@function\\n\"\n"
		"\".set cuMemMap,cuInit+0x7000000\\n.set cuMemUnmap,cuInit-0x7000000\\n\"\n"
		"\".set cuMemRelease,cuInit\\n\");",
		&n);
	assert_string_equal(problem, "");
	assert_int_equal(n, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_entry_of_the_drivers_is_known),
		cmocka_unit_test(all_entries_of_a_driver_are_sites),
		cmocka_unit_test(the_real_drivers_have_these_entries),
		cmocka_unit_test(a_file_is_a_driver_by_its_functions),
		cmocka_unit_test(a_newer_entry_is_told),
		cmocka_unit_test(an_unknown_driver_is_told),
		cmocka_unit_test(a_driver_without_an_index_is_told),
		cmocka_unit_test(a_process_without_a_driver_has_no_problem),
		cmocka_unit_test(each_event_has_its_own_sites),
		cmocka_unit_test(hostile_symbols_give_no_site),
	};

	n_listed = read_list(list, ARRAY_SIZE(list));
	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
