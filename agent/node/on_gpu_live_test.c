/* SPDX-License-Identifier: Apache-2.0 */
/*
 * on-gpu of a program that loads the real libpodflame-cuda.so into the stand-in CUDA driver
 * (e2e/gpu), from the search for the library's probes to the drains. While the library is probed,
 * the kernel keeps its semaphores raised, and the library runs CUPTI.
 */
#include "node/testprobed.h"

#include "lib/base/testfolder.h"

#define ON_GPU (1u << EVENT_ON_GPU)

static const char source[] =
	"#include <stdio.h>\n#include <string.h>\n#include \"cuda_driver.h\"\n#include "
	"\"standin.h\"\n"
	"int main(void) {\n"
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

static void begin(struct probed_program *p)
{
	const char *build = getenv("BUILD") ?: "build";
	_cleanup_free_ char *libraries = xasprintf("%s/gpu/push:%s/gpu", build, build);
	_cleanup_free_ char *inject = xasprintf("%s/cuda/libpodflame-cuda.so", build);
	_cleanup_free_ char *program = file_in_dir("program"), *code = file_in_dir("program.c");
	_cleanup_free_ char *compile = xasprintf("gcc -O1 -w -Ie2e/gpu %s -o %s %s/gpu/push/%s",
						 code, program, build, "libcuda.so.1");
	char *const argv[] = {program, NULL};

	*p = (struct probed_program){.title = "on-gpu"};
	assert_int_equal(file_write_atomic(code, source, strlen(source), 0600), 0);
	assert_int_equal(system(compile), 0);
	assert_int_equal(setenv("CUDA_INJECTION64_PATH", inject, 1), 0);
	probed_start(p, argv, libraries, NULL);
	probed_await(p, "ready");
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
	const struct process_id id = {p->proc.start_boottime_ns, p->pid};
	struct on_gpu_status status = {};
	struct gpu_sums none = {};

	for (unsigned n = 0; n < 6000; n++) {
		take_drain(p, &none);
		if (probes_on_gpu_status(probes, id, &status) == 0 &&
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

static void work_is_reported_while_the_library_is_probed(void **state)
{
	struct gpu_sums sums = {};
	struct probed_program p;

	(void)state;
	begin(&p);
	probed_find(&p, ON_GPU);
	assert_string_equal(p.sites->problem, "");
	assert_int_equal(p.sites->n, 3);
	semaphores_are(&p, 0);
	probed_open_probes();
	probed_select(&p, &(struct listed_process){.event_mask = ON_GPU});
	probed_attach(&p, PROBES_GPU, ON_GPU);
	semaphores_are(&p, 1);
	await_cupti(&p);
	assert_true(dprintf(p.to, "go\n") > 0);
	probed_await(&p, "go");
	await_work(&p, &sums);
	assert_int_equal(sums.n_kernels, 5);
	assert_int_equal(sums.kernel_us, 5 * 2000);
	assert_int_equal(sums.n_copies, 1);
	assert_int_equal(sums.copy_us, 2000);
	p.attached = probes_detach(probes, p.attached);
	semaphores_are(&p, 0);
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
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, dir_make, free_all);
}
