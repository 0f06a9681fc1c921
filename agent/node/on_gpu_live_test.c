/* SPDX-License-Identifier: Apache-2.0 */
/*
 * on-gpu of a program that loads the real libpodflame-cuda.so into the stand-in CUDA driver
 * (e2e/gpu), from the search for the library's probes to the drains. While the library is probed,
 * the kernel keeps its semaphores raised, and the library runs CUPTI. Faults: a CUPTI that the
 * library cannot use, a library that is replaced on the disk, a process that is killed.
 */
#include "node/testprobed.h"

#include "lib/base/testfolder.h"

#define ON_GPU (1u << EVENT_ON_GPU)

static const char source[] =
	"#include <dlfcn.h>\n#include <stdio.h>\n#include <string.h>\n"
	"#include \"cuda_driver.h\"\n#include \"standin.h\"\n#include \"standin_cupti.h\"\n"
	"static void with_cupti(const char *how) {\n"
	"	void *lib = dlopen(\"libcupti.so.12\", RTLD_NOW), *handle;\n"
	"	int (*subscribe)(void **, void *, void *) = dlsym(lib, \"cuptiSubscribe\");\n"
	"	struct standin_cupti *cupti = dlsym(lib, \"standin_cupti\");\n"
	"	if (!strcmp(how, \"other profiler\")) subscribe(&handle, NULL, NULL);\n"
	"	if (!strcmp(how, \"old\")) cupti->version = 12;\n"
	"	if (!strcmp(how, \"failing\")) cupti->fails_enable = 27;\n"
	"}\n"
	"int main(int argc, char **argv) {\n"
	"	if (argc > 1) with_cupti(argv[1]);\n"
	"	char line[64]; CUcontext c; CUmodule m; CUfunction f; CUdeviceptr p;\n"
	"	cuInit(0); cuCtxCreate_v2(&c, 0, 0); cuMemAlloc_v2(&p, 100); cuModuleLoadData(&m, "
	"\"\");\n"
	"	cuModuleGetFunction(&f, m, \"_Z6vecaddPfi\");\n"
	"	standin_set_work_ns(2000000);\n"
	"	for (puts(\"ready\"); !fflush(stdout) && fgets(line, sizeof(line), stdin); ) {\n"
	"		for (int i = 0; i < 5; i++)\n"
	"			cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);\n"
	"		cuMemcpyHtoD_v2(p, line, 10);\n"
	"		printf(\"%s\", line);\n"
	"	}\n}\n";

/* ---- the program ---- */

static void compile(const char *program)
{
	const char *build = getenv("BUILD") ?: "build";
	_cleanup_free_ char *code = file_in_dir("program.c");
	_cleanup_free_ char *command = xasprintf("gcc -O1 -w -Ie2e/gpu %s -o %s %s/gpu/push/%s",
						 code, program, build, "libcuda.so.1");

	assert_int_equal(file_write_atomic(code, source, strlen(source), 0600), 0);
	assert_int_equal(system(command), 0);
}

/* Returns the path of the library. The caller frees it. */
static char *library_path(void)
{
	return xasprintf("%s/cuda/libpodflame-cuda.so", getenv("BUILD") ?: "build");
}

/* cupti: the fault of CUPTI, see with_cupti(); "none": there is no CUPTI; NULL: no fault */
static void begin_with(struct probed_program *p, const char *cupti, const char *library)
{
	const char *build = getenv("BUILD") ?: "build";
	bool none = cupti && streq(cupti, "none");
	_cleanup_free_ char *libraries = xasprintf("%s/gpu/push:%s/gpu", build, build);
	_cleanup_free_ char *program = file_in_dir("program");
	char *const argv[] = {program, none ? NULL : (char *)cupti, NULL};

	if (none)
		*strchr(libraries, ':') = '\0';
	*p = (struct probed_program){.title = cupti ?: "on-gpu"};
	compile(program);
	assert_int_equal(setenv("CUDA_INJECTION64_PATH", library, 1), 0);
	probed_start(p, argv, libraries, NULL);
	probed_await(p, "ready");
}

static void begin(struct probed_program *p)
{
	_cleanup_free_ char *library = library_path();

	begin_with(p, NULL, library);
}

static void attach(struct probed_program *p)
{
	probed_open_probes();
	probed_select(p, &(struct listed_process){.event_mask = ON_GPU});
	probed_attach(p, PROBES_GPU, ON_GPU);
}

/* Returns the semaphore of a site, in the memory of the process. */
static uint16_t semaphore_of(const struct probed_program *p, const struct alloc_site *s)
{
	_cleanup_free_ char *maps = xasprintf("/proc/%d/maps", p->pid);
	_cleanup_free_ char *memory = xasprintf("/proc/%d/mem", p->pid);
	_cleanup_close_ int fd = open(memory, O_RDONLY | O_CLOEXEC);
	FILE *f = fopen(maps, "re");
	unsigned long start, end, offset;
	uint16_t value = 0xffff;
	char line[512];

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (strstr(line, "/libpodflame-cuda.so\n") &&
		    sscanf(line, "%lx-%lx rw-p %lx", &start, &end, &offset) == 3 &&
		    s->semaphore - offset < end - start)
			assert_int_equal(pread(fd, &value, sizeof(value),
					       (off_t)(start + s->semaphore - offset)),
					 sizeof(value));
	fclose(f);
	return value;
}

static void semaphores_are(const struct probed_program *p, uint16_t value)
{
	for (size_t i = 0; i < p->sites->n; i++)
		assert_int_equal(semaphore_of(p, &p->sites->items[i]), value);
}

/* ---- what the drains report ---- */

struct gpu_sums {
	uint64_t n_kernels, kernel_us, n_copies, copy_us;
};

static void take_drain(const struct probed_program *p, struct gpu_sums *sums)
{
	struct drain *d = NULL;

	assert_int_equal(probes_drain(probes, true, &d), 0);
	for (size_t i = 0; i < d->n_samples; i++) {
		const struct raw_sample *x = &d->samples[i];
		const struct raw_stack *work = sample_drain_stack(d, x->kstack);
		bool kernel;

		if ((pid_t)x->tgid != p->pid || x->event != EVENT_ON_GPU)
			continue;
		assert_non_null(sample_drain_stack(d, x->ustack));
		assert_true(work && work->n && work->frames[0].gpu_work);
		kernel = work->frames[0].work == RAW_WORK_KERNEL;
		assert_string_equal(sample_gpu_name(work), kernel ? "_Z6vecaddPfi" : "");
		assert_true(kernel || work->frames[0].copy == 1);
		*(kernel ? &sums->n_kernels : &sums->n_copies) += x->n;
		*(kernel ? &sums->kernel_us : &sums->copy_us) += x->value;
	}
	sample_drain_free(d);
}

static void await_cupti(const struct probed_program *p)
{
	struct on_gpu_status status = {};
	struct gpu_sums none = {};

	for (unsigned n = 0; n < 6000; n++) {
		take_drain(p, &none);
		if (probes_attached_status(p->attached, &status) == 0 &&
		    status.library.state == PODFLAME_CUDA_RUNNING)
			return;
		usleep(10000);
	}
	fail_msg("the library does not run CUPTI: state %u", status.library.state);
}

static void await_work(const struct probed_program *p, struct gpu_sums *sums)
{
	for (unsigned n = 0; n < 6000 && sums->n_kernels + sums->n_copies < 6; n++) {
		take_drain(p, sums);
		usleep(10000);
	}
}

static void work(struct probed_program *p)
{
	await_cupti(p);
	assert_true(dprintf(p->to, "go\n") > 0);
	probed_await(p, "go");
}

static void work_is_exact(const struct probed_program *p)
{
	struct gpu_sums sums = {};

	await_work(p, &sums);
	assert_int_equal(sums.n_kernels, 5);
	assert_int_equal(sums.kernel_us, 5 * 2000);
	assert_int_equal(sums.n_copies, 1);
	assert_int_equal(sums.copy_us, 2000);
}

static void work_is_reported_while_the_library_is_probed(void **state)
{
	struct probed_program p;

	(void)state;
	begin(&p);
	probed_find(&p, ON_GPU);
	assert_string_equal(p.sites->problem, "");
	assert_int_equal(p.sites->n, 3);
	semaphores_are(&p, 0);
	attach(&p);
	semaphores_are(&p, 1);
	work(&p);
	work_is_exact(&p);
	p.attached = probes_detach(probes, p.attached);
	semaphores_are(&p, 0);
	probed_close(&p);
}

/* ---- faults ---- */

/* Waits until the library says that it cannot work. The caller frees the text for users. */
static char *await_problem(const struct probed_program *p)
{
	struct on_gpu_status status;
	struct gpu_sums none = {};
	char *text = NULL;

	for (unsigned n = 0; n < 6000 && !text; n++) {
		take_drain(p, &none);
		if (probes_attached_status(p->attached, &status) == 0)
			text = learn_library_problem(&status, 0);
		usleep(10000);
	}
	return text;
}

static void what_keeps_the_library_from_work_is_said(void **state)
{
	static const struct {
		const char *cupti, *text;
	} rows[] = {
		{"none", "found no libcupti"},
		{"old", "libcupti (version 12) is older than CUDA 11"},
		{"other profiler", "another profiler has CUPTI"},
		{"failing", "CUPTI failed (error 27)"},
	};
	_cleanup_free_ char *library = library_path();
	struct probed_program p;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_free_ char *text = NULL;

		begin_with(&p, rows[i].cupti, library);
		probed_find(&p, ON_GPU);
		attach(&p);
		text = await_problem(&p);
		if (!text || !strstr(text, rows[i].text))
			fail_msg("%s: %s", rows[i].cupti, text ?: "no problem");
		probed_close(&p);
	}
}

/* A process keeps the file that it has loaded. */
static void a_library_that_is_replaced_is_still_seen(void **state)
{
	_cleanup_free_ char *library = library_path(), *copy = file_in_dir("library.so");
	_cleanup_free_ char *command = xasprintf("cp %s %s", library, copy);
	struct probed_program p;

	(void)state;
	assert_int_equal(system(command), 0);
	begin_with(&p, NULL, copy);
	assert_int_equal(file_write_atomic(copy, "another", 7, 0700), 0);
	probed_find(&p, ON_GPU);
	attach(&p);
	work(&p);
	work_is_exact(&p);
	probed_close(&p);
}

/*
 * The process is killed before all of its work on the GPU was reported. The launches of this
 * process must not count for the next process.
 */
static void a_process_that_is_killed_leaves_the_next_exact(void **state)
{
	struct gpu_sums sums = {};
	struct probed_program p;

	(void)state;
	begin(&p);
	probed_find(&p, ON_GPU);
	attach(&p);
	work(&p);
	kill(p.pid, SIGKILL);
	assert_int_equal(waitpid(p.pid, NULL, 0), p.pid);
	take_drain(&p, &sums);
	assert_true(sums.n_kernels <= 5 && sums.kernel_us <= 5 * 2000);
	p.pid = 0;
	probed_close(&p);
	begin(&p);
	probed_find(&p, ON_GPU);
	attach(&p);
	work(&p);
	work_is_exact(&p);
	probed_close(&p);
}

static int free_all(void **state)
{
	probes_free(probes);
	return dir_remove(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(work_is_reported_while_the_library_is_probed),
		cmocka_unit_test(what_keeps_the_library_from_work_is_said),
		cmocka_unit_test(a_library_that_is_replaced_is_still_seen),
		cmocka_unit_test(a_process_that_is_killed_leaves_the_next_exact),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, dir_make, free_all);
}
