/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks that the stand-in for the CUDA driver does what the tests of podflame expect. Other
 * programs check that it counts what they allocate (e2e/accuracy/programs/gpu.h).
 */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda_driver.h"
#include "cuda_runtime.h"
#include "standin.h"

#define CUDA_12		    12000
#define CALL(library, name) ((__typeof__(&name))entry(library, #name))
static const char *const forms[] = {"push", "thunk"};

static const char *path_of(const char *file)
{
	static char path[4096];
	const char *build = getenv("BUILD");

	snprintf(path, sizeof(path), "%s/gpu/%s", build ? build : "build", file);
	return path;
}

static void *open_form(const char *form)
{
	char file[64];
	void *library;

	snprintf(file, sizeof(file), "%s/libcuda.so.1", form);
	library = dlopen(path_of(file), RTLD_NOW | RTLD_LOCAL);
	if (!library)
		fail_msg("%s", dlerror());
	return library;
}

static void *entry(void *library, const char *name)
{
	void *p = dlsym(library, name);

	if (!p)
		fail_msg("%s", dlerror());
	return p;
}

static void *proc(void *library, const char *name, int version, uint64_t flags, int *ret_status)
{
	void *p = NULL;

	assert_int_equal(CALL(library, cuGetProcAddress_v2)(name, &p, version, flags, ret_status),
			 CUDA_SUCCESS);
	return p;
}

/* This is the first test that initializes this form of the library. */
static void test_injects_a_library(void **state)
{
	void *lib = open_form("thunk");

	(void)state;
	assert_int_equal(setenv("CUDA_INJECTION64_PATH", path_of("injected.so"), 1), 0);
	assert_null(getenv("INJECTED"));
	assert_int_equal(CALL(lib, cuInit)(0), 0);
	assert_string_equal(getenv("INJECTED"), "yes");
	assert_int_equal(unsetenv("CUDA_INJECTION64_PATH"), 0);
}

static void test_pointers_are_exports(void **state)
{
	int status;

	(void)state;
	for (int i = 0; i < 2; i++) {
		void *lib = open_form(forms[i]);

		assert_ptr_equal(proc(lib, "cuMemAlloc", CUDA_12, 0, &status),
				 entry(lib, "cuMemAlloc_v2"));
		assert_int_equal(status, CU_GET_PROC_ADDRESS_SUCCESS);
		assert_ptr_equal(proc(lib, "cuMemAlloc", 2020, 0, NULL), entry(lib, "cuMemAlloc"));
		for (uint64_t flags = 0; flags < 2; flags++)
			assert_ptr_equal(proc(lib, "cuMemAllocAsync", CUDA_12, flags, NULL),
					 entry(lib, "cuMemAllocAsync"));
		assert_ptr_equal(proc(lib, "cuMemAllocAsync", CUDA_12, 2, NULL),
				 entry(lib, "cuMemAllocAsync_ptsz"));
		assert_ptr_equal(proc(lib, "cuMemFree", CUDA_12, 2, NULL),
				 entry(lib, "cuMemFree_v2"));
		assert_null(proc(lib, "cuMemAllocAsync", 11010, 0, &status));
		assert_int_equal(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
		assert_null(proc(lib, "cuMemAlloc_v2", CUDA_12, 0, &status));
		assert_int_equal(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	}
}

/*
 * Calls fn for each export of the library whose name begins with "cu". Returns the number of such
 * exports.
 */
static size_t each_entry(void *library, void (*fn)(const char *name, const uint8_t *code))
{
	const struct link_map *map;
	const char *names = NULL;
	const ElfW(Sym) *symbols = NULL;
	size_t n = 0;

	assert_int_equal(dlinfo(library, RTLD_DI_LINKMAP, &map), 0);
	for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
		if (d->d_tag == DT_STRTAB)
			names = (const char *)d->d_un.d_ptr;
		if (d->d_tag == DT_SYMTAB)
			symbols = (const ElfW(Sym) *)d->d_un.d_ptr;
	}
	/* The names lie behind the symbols. */
	for (const ElfW(Sym) *s = symbols + 1; (const char *)(s + 1) <= names; s++) {
		if (s->st_shndx == SHN_UNDEF || strncmp(names + s->st_name, "cu", 2) != 0)
			continue;
		fn(names + s->st_name, (const uint8_t *)(map->l_addr + s->st_value));
		n++;
	}
	return n;
}

static void begins_with_push(const char *name, const uint8_t *code)
{
	static const uint8_t push[] = {0x55, 0x48, 0x89, 0xe5}; /* push %rbp; mov %rsp,%rbp */

	if (memcmp(code, push, sizeof(push)) != 0)
		fail_msg("%s", name);
}

static void compares_and_jumps(const char *name, const uint8_t *code)
{
	static const uint8_t compare[] = {0x81, 0x3d}, jump[] = {0x74}, jump_to[] = {0xff, 0x25};

	if (memcmp(code, compare, sizeof(compare)) != 0 ||
	    memcmp(code + 10, jump, sizeof(jump)) != 0 ||
	    memcmp(code + 12, jump_to, sizeof(jump_to)) != 0)
		fail_msg("%s", name);
}

static void test_forms_of_entries(void **state)
{
	size_t n = each_entry(open_form("push"), begins_with_push);

	(void)state;
	assert_true(n > 100);
	assert_int_equal(each_entry(open_form("thunk"), compares_and_jumps), n);
}

static void launch(void *lib, uint64_t ns)
{
	CUmodule module;
	CUfunction fn;

	CALL(lib, standin_set_work_ns)(ns);
	assert_int_equal(CALL(lib, cuModuleLoadData)(&module, ""), 0);
	assert_int_equal(CALL(lib, cuModuleGetFunction)(&fn, module, "f"), 0);
	assert_int_equal(CALL(lib, cuLaunchKernel)(fn, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL), 0);
	CALL(lib, standin_set_work_ns)(0);
}

static void test_waits_end_with_the_kernel(void **state)
{
	const unsigned int ways[] = {CU_CTX_SCHED_SPIN, CU_CTX_SCHED_BLOCKING_SYNC};
	void *lib = open_form("thunk");
	CUcontext context;

	(void)state;
	assert_int_equal(CALL(lib, cuInit)(0), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(CALL(lib, cuCtxCreate_v2)(&context, ways[i], 0), 0);
		launch(lib, 20000000);
		assert_int_equal(CALL(lib, cuStreamSynchronize)(NULL), 0);
		assert_int_equal(CALL(lib, cuStreamQuery)(NULL), 0);
		launch(lib, 3600000000000);
		assert_int_equal(CALL(lib, cuStreamQuery)(NULL), CUDA_ERROR_NOT_READY);
		assert_int_equal(CALL(lib, cuCtxDestroy_v2)(context), 0);
	}
}

static void test_graph_runs_many_kernels(void **state)
{
	void *lib = open_form("push");
	CUDA_KERNEL_NODE_PARAMS params = {.gridDimX = 1};
	struct standin_counts before, after;
	CUcontext context;
	CUmodule module;
	CUgraph graph;
	CUgraphNode node;
	CUgraphExec exec;

	(void)state;
	assert_int_equal(CALL(lib, cuInit)(0), 0);
	assert_int_equal(CALL(lib, cuCtxCreate_v2)(&context, 0, 1), 0);
	assert_int_equal(CALL(lib, cuModuleLoadData)(&module, ""), 0);
	assert_int_equal(CALL(lib, cuModuleGetFunction)(&params.func, module, "f"), 0);
	assert_int_equal(CALL(lib, cuGraphCreate)(&graph, 0), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(CALL(lib, cuGraphAddKernelNode_v2)(&node, graph, NULL, 0, &params),
				 0);
	assert_int_equal(CALL(lib, cuGraphInstantiateWithFlags)(&exec, graph, 0), 0);
	CALL(lib, standin_count)(&before);
	assert_int_equal(CALL(lib, cuGraphLaunch)(exec, NULL), 0);
	CALL(lib, standin_count)(&after);
	assert_int_equal(after.launches - before.launches, 1);
	assert_int_equal(after.kernels - before.kernels, 3);
	assert_int_equal(CALL(lib, cuCtxDestroy_v2)(context), 0);
}

/* ---- what a profiler in the process learns ---- */

static struct {
	struct standin_call call;
	int site;
	uint32_t correlation;
} calls[16];
static struct standin_work works[16];
static uint32_t correlations[16]; /* of `works` */
static size_t n_calls, n_works;

static void keep_call(const struct standin_call *call, int site, uint32_t correlation)
{
	calls[n_calls].call = *call;
	calls[n_calls].site = site;
	calls[n_calls++].correlation = correlation;
}

static void keep_work(const struct standin_work *work, uint32_t correlation)
{
	works[n_works] = *work;
	correlations[n_works++] = correlation;
}

static void *profiled(const char *file)
{
	static const struct standin_hooks hooks = {keep_call, keep_work};
	void *lib = dlopen(path_of(file), RTLD_NOW | RTLD_GLOBAL);

	if (!lib)
		fail_msg("%s", dlerror());
	assert_int_equal(CALL(lib, cuInit)(0), 0);
	CALL(lib, standin_hook)(&hooks);
	n_calls = n_works = 0;
	return lib;
}

static CUfunction function(void *lib, const char *name)
{
	CUmodule module;
	CUfunction fn;

	assert_int_equal(CALL(lib, cuModuleLoadData)(&module, ""), 0);
	assert_int_equal(CALL(lib, cuModuleGetFunction)(&fn, module, name), 0);
	return fn;
}

static void assert_call(size_t i, int domain, uint32_t id, const char *kernel)
{
	assert_int_equal(calls[i].call.domain, domain);
	assert_int_equal(calls[i].call.id, id);
	if (kernel)
		assert_string_equal(calls[i].call.kernel, kernel);
	else
		assert_null(calls[i].call.kernel);
}

static void assert_work(size_t i, enum standin_kind kind, uint64_t ns, uint32_t device)
{
	assert_int_equal(works[i].kind, kind);
	assert_int_equal(works[i].ns, ns);
	assert_int_equal(works[i].device, device);
	assert_true(works[i].start_ns > 0);
}

static void test_calls_and_their_work_are_reported(void **state)
{
	void *lib = profiled("thunk/libcuda.so.1");
	CUcontext context;
	CUstream stream;
	CUfunction fn;
	CUdeviceptr p;

	(void)state;
	assert_int_equal(CALL(lib, cuCtxCreate_v2)(&context, 0, 1), 0);
	assert_int_equal(CALL(lib, cuStreamCreate)(&stream, 0), 0);
	assert_int_equal(CALL(lib, cuMemAlloc_v2)(&p, 100), 0);
	fn = function(lib, "kernel");
	CALL(lib, standin_set_work_ns)(1234);
	assert_int_equal(CALL(lib, cuLaunchKernel)(fn, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL), 0);
	assert_int_equal(CALL(lib, cuMemcpyHtoD_v2)(p, "abc", 4), 0);
	assert_int_equal(CALL(lib, cuMemsetD8Async)(p, 1, 100, stream), 0);
	assert_int_not_equal(
		CALL(lib, cuLaunchKernel)(NULL, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL), 0);
	assert_int_equal(n_calls, 8); /* each begins and ends */
	assert_call(0, 1, 307, "kernel");
	assert_call(2, 1, 276, NULL);
	assert_call(4, 1, 216, NULL);
	for (size_t i = 0; i < 8; i++)
		assert_int_equal(calls[i].site, i % 2);
	assert_int_equal(n_works, 3);
	assert_work(0, STANDIN_KERNEL, 1234, 1);
	assert_work(1, STANDIN_COPY, 1234, 1);
	assert_int_equal(works[1].copy_kind, 1); /* from the host to the device */
	assert_work(2, STANDIN_SET, 1234, 1);
	assert_int_equal(works[2].n_bytes, 100);
	assert_int_not_equal(works[2].stream, works[1].stream);
	assert_true(works[1].start_ns >= works[0].start_ns + 1234); /* in the same stream */
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(correlations[i], calls[2 * i].correlation);
	CALL(lib, standin_set_work_ns)(0);
	CALL(lib, standin_hook)(NULL);
	assert_int_equal(CALL(lib, cuCtxDestroy_v2)(context), 0);
}

static void test_nodes_of_a_graph_are_reported_at_its_launch(void **state)
{
	void *lib = profiled("push/libcuda.so.1");
	CUcontext context;
	CUstream stream;
	CUgraph graph;
	CUgraphExec exec;
	CUfunction fn;
	CUdeviceptr p;

	(void)state;
	assert_int_equal(CALL(lib, cuCtxCreate_v2)(&context, 0, 0), 0);
	assert_int_equal(CALL(lib, cuStreamCreate)(&stream, 0), 0);
	assert_int_equal(CALL(lib, cuMemAlloc_v2)(&p, 100), 0);
	fn = function(lib, "node");
	assert_int_equal(CALL(lib, cuStreamBeginCapture_v2)(stream, 0), 0);
	CALL(lib, standin_set_work_ns)(10);
	assert_int_equal(CALL(lib, cuLaunchKernel)(fn, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL),
			 0);
	CALL(lib, standin_set_work_ns)(20);
	assert_int_equal(CALL(lib, cuMemsetD8Async)(p, 1, 100, stream), 0);
	assert_int_equal(CALL(lib, cuStreamEndCapture)(stream, &graph), 0);
	assert_int_equal(CALL(lib, cuGraphInstantiateWithFlags)(&exec, graph, 0), 0);
	assert_int_equal(CALL(lib, cuGraphDestroy)(graph), 0);
	assert_int_equal(n_works, 0);
	n_calls = 0;
	assert_int_equal(CALL(lib, cuGraphLaunch)(exec, stream), 0);
	assert_int_equal(n_calls, 2);
	assert_call(0, 1, 514, NULL);
	assert_int_equal(n_works, 2);
	assert_work(0, STANDIN_KERNEL, 10, 0);
	assert_string_equal(works[0].name, "node");
	assert_work(1, STANDIN_SET, 20, 0);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(correlations[i], calls[0].correlation);
		assert_int_equal(works[i].graph, works[0].graph);
	}
	assert_int_not_equal(works[0].graph_node, works[1].graph_node);
	CALL(lib, standin_set_work_ns)(0);
	CALL(lib, standin_hook)(NULL);
	assert_int_equal(CALL(lib, cuCtxDestroy_v2)(context), 0);
}

static void test_a_call_of_the_runtime_has_one_id_with_the_drivers(void **state)
{
	void *lib = profiled("thunk/libcuda.so.1"); /* it was opened first: the runtime takes it */
	void *runtime = dlopen(path_of("libcudart.so.12"), RTLD_NOW);
	dim3 one = {1, 1, 1};
	void *p;

	(void)state;
	assert_non_null(runtime);
	CALL(runtime, __cudaRegisterFunction)
	(NULL, "host", NULL, "_Z5scalef", 0, NULL, NULL, NULL, NULL, NULL);
	assert_int_equal(CALL(runtime, cudaMalloc)(&p, 100), 0);
	assert_int_equal(CALL(runtime, cudaLaunchKernel)("host", one, one, NULL, 0, NULL), 0);
	assert_int_equal(CALL(runtime, cudaMemsetAsync)(p, 0, 100, NULL), 0);
	assert_int_equal(n_calls, 8);
	assert_call(0, 2, 211, "_Z5scalef");
	assert_call(1, 1, 307, "_Z5scalef");
	assert_call(4, 2, 51, NULL);
	for (size_t i = 1; i < 4; i++)
		assert_int_equal(calls[i].correlation, calls[0].correlation);
	assert_int_not_equal(calls[4].correlation, calls[0].correlation);
	assert_int_equal(correlations[1], calls[4].correlation);
	assert_int_equal(calls[0].call.context, works[0].context);
	CALL(lib, standin_hook)(NULL);
}

static void test_child_of_a_fork_cannot_use_it(void **state)
{
	void *lib = open_form("push");
	int n, status;
	pid_t child;

	(void)state;
	assert_int_equal(CALL(lib, cuInit)(0), 0);
	assert_int_equal(CALL(lib, cuDeviceGetCount)(&n), 0);
	assert_int_equal(n, 2);
	child = fork();
	if (!child)
		_exit(CALL(lib, cuDeviceGetCount)(&n));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), CUDA_ERROR_NOT_INITIALIZED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_injects_a_library),
		cmocka_unit_test(test_pointers_are_exports),
		cmocka_unit_test(test_forms_of_entries),
		cmocka_unit_test(test_waits_end_with_the_kernel),
		cmocka_unit_test(test_graph_runs_many_kernels),
		cmocka_unit_test(test_calls_and_their_work_are_reported),
		cmocka_unit_test(test_nodes_of_a_graph_are_reported_at_its_launch),
		cmocka_unit_test(test_a_call_of_the_runtime_has_one_id_with_the_drivers),
		cmocka_unit_test(test_child_of_a_fork_cannot_use_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
