/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the library that reports the work of GPUs: its probes, and the problem that is reported if
 * they cannot be read or are missing. Builds the libraries itself, that of podflame from its own
 * notes.
 */
#include "node/alloc/testalloc.h"

#include "lib/base/testfolder.h"

#define EVENT	(1u << PF_EVENT_ON_GPU)
#define LIBRARY "libgpuwork.so"
#define ENTRY	"int InitializeInjection() { return 1; }\n"
#define DRIVER                                                                                     \
	"int cuInit() { return 1; } int cuMemAlloc_v2() { return 2; } "                            \
	"int cuMemFree_v2() { return 3; }\n"

/* Registers as in PF_SITE_INSIDE. */
enum { RBX = 4, RDX = 3, RSI = 7, RDI = 8, R12 = 13 };

/* ---- sources of libraries ---- */

/* A library that includes a file of the directory cuda. */
static char *with(const char *file, const char *rest)
{
	_cleanup_free_ char *here = getcwd(NULL, 0);

	return xasprintf("#include \"%s/cuda/%s\"\n" ENTRY "%s", here, file, rest);
}

static char *parcagpu(const char *correlation, const char *batch)
{
	_cleanup_free_ char *probes =
		xasprintf("USDT_PROBE(\"parcagpu\", \"cuda_correlation\", \"%s\");\n"
			  "USDT_PROBE(\"parcagpu\", \"activity_batch\", \"%s\");\n",
			  correlation, batch);

	return with("usdt.h", probes);
}

/* ---- what is found ---- */

struct found {
	struct alloc_process process;
	struct alloc_sites *sites;
	pid_t pid;
};

static void open_source(struct found *f, const char *source)
{
	f->pid = alloc_library_start(dir, LIBRARY, source);
	f->sites = alloc_find(&f->process, f->pid, EVENT);
}

static void close_source(struct found *f)
{
	alloc_process_stop(f->pid, &f->process, f->sites);
}

static const struct alloc_site *of_kind(const struct found *f, uint8_t kind)
{
	for (size_t i = 0; i < f->sites->n; i++)
		if (f->sites->items[i].site.kind == kind)
			return &f->sites->items[i];
	fail_msg("there is no site of kind %u", kind);
	return NULL;
}

/* The number, in hex, that a command prints for the library. */
static uint64_t number_of(const char *command)
{
	_cleanup_free_ char *all = xasprintf("cd %s && %s", dir, command);
	FILE *f = popen(all, "r");
	unsigned long long n = 0;

	assert_int_equal(fscanf(f, "%llx", &n), 1);
	pclose(f);
	return n;
}

static void check_place(const struct alloc_site *s, const char *symbol, uint64_t semaphore)
{
	_cleanup_free_ char *command =
		xasprintf("nm " LIBRARY " | awk '$3 == \"%s\" {print $1}'", symbol);

	/* the linker gives code the same offset as its address */
	assert_int_equal(s->file_offset, number_of(command));
	assert_int_equal(s->semaphore, semaphore);
}

static void the_own_library_is_found(void **state)
{
	_cleanup_free_ char *source = with("probes.c", "");
	uint64_t semaphores;
	struct found f;

	(void)state;
	open_source(&f, source);
	assert_string_equal(f.sites->problem, "");
	assert_int_equal(f.sites->n, 3);
	semaphores = number_of("readelf -SW " LIBRARY
			       " | sed 's/^ *.[ 0-9]*. //' | awk '$1 == \".probes\" {print $4}'");
	check_place(of_kind(&f, PF_SITE_ON_GPU_LAUNCH), "probe_launch", semaphores);
	check_place(of_kind(&f, PF_SITE_ON_GPU_WORK), "probe_work", semaphores + 2);
	check_place(of_kind(&f, PF_SITE_ON_GPU_STATUS), "probe_status", semaphores + 4);
	close_source(&f);
}

#define PARCA_LACKS                                                                                \
	"parcagpu reports at most 100 launches of a thread in a second, and neither copies nor "   \
	"how many launches it left out: on-gpu lacks that work"

static void parcagpu_is_found_with_its_registers(void **state)
{
	_cleanup_free_ char *source = parcagpu("4@%edi -4@%esi 8@%rdx", "8@%r12 4@%ebx");
	const struct alloc_site *s;
	struct found f;

	(void)state;
	open_source(&f, source);
	assert_string_equal(f.sites->problem, PARCA_LACKS);
	assert_int_equal(f.sites->n, 2);
	s = of_kind(&f, PF_SITE_ON_GPU_CORRELATION);
	assert_int_equal(s->site.size_arg, RDI);
	assert_int_equal(s->site.count_arg, RSI);
	assert_int_equal(s->site.ptr_arg, RDX);
	assert_true(s->semaphore);
	s = of_kind(&f, PF_SITE_ON_GPU_BATCH);
	assert_int_equal(s->site.size_arg, R12);
	assert_int_equal(s->site.count_arg, RBX);
	assert_int_equal(s->site.ptr_arg, 0);
	close_source(&f);
}

/*
 * If a process has podflame's library and parcagpu's, only one is probed, because both report the
 * same work.
 */
static void of_two_libraries_one_is_probed(void **state)
{
	_cleanup_free_ char *source =
		with("probes.c", "USDT_PROBE(\"parcagpu\", \"cuda_correlation\", \"4@%edi -4@%esi "
				 "8@%rdx\");\nUSDT_PROBE(\"parcagpu\", \"activity_batch\", "
				 "\"8@%rdi 4@%esi\");\n");
	struct found f;

	(void)state;
	open_source(&f, source);
	assert_string_equal(f.sites->problem, "");
	assert_int_equal(f.sites->n, 3);
	(void)of_kind(&f, PF_SITE_ON_GPU_LAUNCH);
	close_source(&f);
}

/* ---- problems that are reported ---- */

static void check_told(const char *source, const char *problem)
{
	struct found f;

	open_source(&f, source);
	assert_string_equal(f.sites->problem, problem);
	assert_int_equal(f.sites->n, 0);
	close_source(&f);
}

static void check_unreadable(char *source)
{
	check_told(source, LIBRARY " has USDT probes that podflame cannot read: another version of "
				   "it may be needed");
	free(source);
}

static void arguments_that_cannot_be_read_are_told(void **state)
{
	(void)state;
	check_unreadable(parcagpu("4@-20(%rbp) -4@%esi 8@%rdx", "8@%rdi 4@%esi"));
	check_unreadable(parcagpu("4@%edi -4@$7 8@%rdx", "8@%rdi 4@%esi"));
	check_unreadable(parcagpu("4@%edi -4@%esi 8@%rsp", "8@%rdi 4@%esi"));
	check_unreadable(parcagpu("4@%edi -4@%esi 4@%edx", "8@%rdi 4@%esi"));
	check_unreadable(parcagpu("4@%edi -4@%esi", "8@%rdi 4@%esi"));
	check_unreadable(parcagpu("4@%edi -4@%esi 8@%rdx 8@%rcx", "8@%rdi 4@%esi"));
	check_unreadable(parcagpu("", ""));
	check_unreadable(parcagpu("4@%edi -4@%esi 8@%rdx", "8@%xmm0 4@%esi"));
	check_unreadable(with("usdt.h", "USDT_PROBE(\"parcagpu\", \"cuda_correlation\", "
					"\"4@%edi -4@%esi 8@%rdx\");\n"));
	check_unreadable(with("usdt.h", "USDT_PROBE(\"podflame_cuda\", \"launch\", \"8@%rdi\");\n"
					"USDT_PROBE(\"podflame_cuda\", \"work\", \"8@%rdi 4@%esi "
					"4@%edx\");\nUSDT_PROBE(\"podflame_cuda\", \"status\", "
					"\"8@%rdi 4@%esi\");\n"));
}

/* Returns the source of the note of a USDT probe at `place`, with this semaphore. */
static char *note_of(const char *provider, const char *name, const char *arguments,
		     const char *place, const char *semaphore)
{
	return xasprintf("asm(\".pushsection .note.stapsdt, \\\"\\\", @note\\n"
			 ".4byte 8, 2f - 1f, 3\\n.asciz \\\"stapsdt\\\"\\n"
			 "1: .8byte %s, _.stapsdt.base, %s\\n"
			 ".asciz \\\"%s\\\", \\\"%s\\\", \\\"%s\\\"\\n"
			 "2: .balign 4\\n.popsection\");\n",
			 place, semaphore, provider, name, arguments);
}

/*
 * Returns the source of a library with podflame's probes; `work` is at `place`, with this
 * semaphore.
 */
static char *work_at(const char *place, const char *semaphore)
{
	_cleanup_free_ char *work =
		note_of("podflame_cuda", "work", "8@%rdi 4@%esi 4@%edx", place, semaphore);
	_cleanup_free_ char *probes = xasprintf(
		"USDT_PROBE(\"podflame_cuda\", \"launch\", \"4@%%edi 4@%%esi 4@%%edx 8@%%rcx "
		"8@%%r8 4@%%r9d\");\n"
		"USDT_PROBE(\"podflame_cuda\", \"status\", \"8@%%rdi 4@%%esi\");\n%s",
		work);

	return with("usdt.h", probes);
}

/* A library of parcagpu in which the compiler has made two places of cuda_correlation. */
static char *parcagpu_twice(const char *arguments)
{
	_cleanup_free_ char *one = parcagpu("4@%edi -4@%esi 8@%rdx", "8@%rdi 4@%esi");
	_cleanup_free_ char *other =
		note_of("parcagpu", "cuda_correlation", arguments, "probe_activity_batch + 1",
			"probe_cuda_correlation_semaphore");

	return xasprintf("%s%s", one, other);
}

static void all_places_of_a_probe_are_found(void **state)
{
	_cleanup_free_ char *source = parcagpu_twice("4@%eax -4@%esi 8@%rdx");
	struct found f;

	(void)state;
	open_source(&f, source);
	assert_string_equal(f.sites->problem, PARCA_LACKS);
	assert_int_equal(f.sites->n, 3);
	close_source(&f);
	check_unreadable(parcagpu_twice("4@-20(%rbp) -4@%esi 8@%rdx"));
}

static void hostile_places_give_no_site(void **state)
{
	_cleanup_free_ char *good = work_at("probe_launch + 1", "probe_launch_semaphore");
	struct found f;

	(void)state;
	open_source(&f, good);
	assert_int_equal(f.sites->n, 3);
	close_source(&f);
	check_unreadable(work_at("probe_launch + 0x7000000", "probe_launch_semaphore"));
	check_unreadable(work_at("-1", "probe_launch_semaphore"));
	check_unreadable(work_at("probe_launch_semaphore", "probe_launch_semaphore"));
	check_unreadable(work_at("probe_launch + 1", "0"));
	check_unreadable(work_at("probe_launch + 1", "-1"));
	check_unreadable(work_at("probe_launch + 1", "probe_launch_semaphore + 0x7000000"));
	check_unreadable(work_at("probe_launch + 1", "probe_launch"));
}

static void an_unknown_library_is_told(void **state)
{
	(void)state;
	check_told(DRIVER ENTRY, LIBRARY " was loaded for a profiler of CUDA, and has no probes "
					 "that podflame knows");
}

static void a_driver_without_a_library_is_told(void **state)
{
	(void)state;
	check_told(DRIVER, "no library reports the work of its GPUs: CUDA_INJECTION64_PATH must "
			   "name libpodflame-cuda.so before the program starts");
	check_told("int nothing() { return 1; }\n", "");
}

static void check_unread(const char *name)
{
	_cleanup_free_ char *problem =
		xasprintf("%s has not been read yet, or cannot be read", name);
	pid_t pid = alloc_library_start(dir, name, ENTRY);
	struct elf_index *none[256] = {0};
	struct alloc_sites *s = NULL;
	struct alloc_process p;
	struct runtime_look look;

	alloc_process_open(&p, pid);
	look = alloc_process_look(&p);
	assert_true(look.maps->n <= ARRAY_SIZE(none));
	look.indexes = none;
	assert_int_equal(alloc_sites_find(&look, EVENT, &s), 0);
	assert_string_equal(s->problem, problem);
	assert_int_equal(s->n, 0);
	alloc_process_stop(pid, &p, s);
}

static void a_file_without_an_index_is_told(void **state)
{
	(void)state;
	check_unread("libpodflame-cuda.so");
	check_unread("libparcagpucupti.so");
	check_unread("libcuda.so.1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_own_library_is_found),
		cmocka_unit_test(parcagpu_is_found_with_its_registers),
		cmocka_unit_test(of_two_libraries_one_is_probed),
		cmocka_unit_test(arguments_that_cannot_be_read_are_told),
		cmocka_unit_test(all_places_of_a_probe_are_found),
		cmocka_unit_test(hostile_places_give_no_site),
		cmocka_unit_test(an_unknown_library_is_told),
		cmocka_unit_test(a_driver_without_a_library_is_told),
		cmocka_unit_test(a_file_without_an_index_is_told),
	};

	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
