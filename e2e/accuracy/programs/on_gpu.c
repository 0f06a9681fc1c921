/* SPDX-License-Identifier: Apache-2.0 */
/*
 * on_gpu: gives work of known length to GPUs through the CUDA driver: kernels, copies, sets and
 * graphs, in several streams, devices and threads.
 */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../gpu/cuda_driver.h"
#include "on_gpu.h"

static CUcontext first, second; /* of device 0 and 1; `first` is current */
static CUstream stream, other_stream;
static CUfunction add, reduce, gemm;
static CUdeviceptr memory;
static CUgraphExec graph, captured;

static void launch(CUfunction f, uint64_t us, CUstream s)
{
	TAKES_US(us);
	WORKS(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, s, NULL, NULL));
}

/* ---- kernels ---- */

FUNCTION(one_kernel)
{
	launch(add, 300, NULL);
}

FUNCTION(two_kernels)
{
	launch(add, 100, NULL);
	launch(reduce, 50, NULL);
	launch(add, 7, NULL);
}

FUNCTION(by_other_entries)
{
	CUlaunchConfig c = {1, 1, 1, 32, 1, 1, 0, stream, NULL, 0};

	TAKES_US(11);
	WORKS(cuLaunchKernelEx(&c, gemm, NULL, NULL));
	TAKES_US(12);
	WORKS(cuLaunchKernelEx_ptsz(&c, gemm, NULL, NULL));
	TAKES_US(13);
	WORKS(cuLaunchKernel_ptsz(gemm, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
}

FUNCTION(by_pointer) /* as libcudart calls the driver */
{
	CUresult (*launch_kernel)(CUfunction, unsigned int, unsigned int, unsigned int,
				  unsigned int, unsigned int, unsigned int, unsigned int, CUstream,
				  void **, void **);

	WORKS(cuGetProcAddress_v2("cuLaunchKernel", (void **)&launch_kernel, 12000, 0, NULL));
	TAKES_US(20);
	WORKS(launch_kernel(reduce, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
}

FUNCTION(in_two_streams)
{
	launch(add, 10, stream);
	launch(add, 15, other_stream);
}

FUNCTION(on_second_device)
{
	WORKS(cuCtxPushCurrent_v2(second));
	launch(add, 40, NULL);
	WORKS(cuCtxPopCurrent_v2(NULL));
}

FUNCTION(fails)
{
	TAKES_US(1000);
	GIVES(CUDA_ERROR_INVALID_VALUE,
	      cuLaunchKernel(add, 0, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
	GIVES(CUDA_ERROR_INVALID_HANDLE,
	      cuLaunchKernel(NULL, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
}

__attribute__((noinline, noclone)) static void descends(unsigned int depth)
{
	if (depth)
		descends(depth - 1);
	else
		launch(gemm, 9, NULL);
	__asm__ volatile(""); /* so the call above is not the last thing, and stays a call */
}

FUNCTION(recursive)
{
	descends(30);
}

/* ---- copies and sets ---- */

FUNCTION(copies)
{
	static char host[4096];

	TAKES_US(21);
	WORKS(cuMemcpyHtoD_v2(memory, host, sizeof(host)));
	TAKES_US(22);
	WORKS(cuMemcpyDtoHAsync_v2(host, memory, sizeof(host), stream));
	TAKES_US(23);
	WORKS(cuMemcpyAsync(memory, memory, sizeof(host), stream));
}

FUNCTION(sets)
{
	TAKES_US(31);
	WORKS(cuMemsetD8_v2(memory, 0, 4096));
	TAKES_US(32);
	WORKS(cuMemsetD8Async(memory, 0, 4096, stream));
}

/* ---- graphs ---- */

FUNCTION(graph_of_many) /* one launch, 50 kernels */
{
	WORKS(cuGraphLaunch(graph, stream));
}

FUNCTION(graph_captured)
{
	WORKS(cuGraphLaunch(captured, NULL));
}

/* ---- threads and processes ---- */

FUNCTION(of_thread)
{
	WORKS(cuCtxSetCurrent(first));
	launch(add, 5, NULL);
	launch(reduce, 6, stream);
}

static void *thread(void *arg)
{
	of_thread();
	return arg;
}

static void starts_threads(void)
{
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		if (pthread_create(&threads[i], NULL, thread, NULL))
			fail("pthread_create");
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}

FUNCTION(in_child) /* which cannot use the driver */
{
	TAKES_US(1000);
	GIVES(CUDA_ERROR_NOT_INITIALIZED,
	      cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
	_exit(0);
}

FUNCTION(forks)
{
	pid_t child = fork();
	int status;

	if (child == 0)
		in_child();
	if (child < 0 || waitpid(child, &status, 0) != child || status)
		fail("fork");
	launch(add, 8, NULL);
}

/* ---- what is known ---- */

static CUfunction function(CUmodule module, const char *name)
{
	CUfunction f;

	WORKS(cuModuleGetFunction(&f, module, name));
	return f;
}

static void make_graphs(void)
{
	CUDA_KERNEL_NODE_PARAMS node = {.gridDimX = 1};
	CUgraphNode handle;
	CUgraph g;

	WORKS(cuGraphCreate(&g, 0));
	for (unsigned int i = 0; i < 50; i++) {
		node.func = i % 5 ? add : reduce;
		TAKES_US(i % 5 ? 2 : 3);
		WORKS(cuGraphAddKernelNode_v2(&handle, g, NULL, 0, &node));
	}
	WORKS(cuGraphInstantiateWithFlags(&graph, g, 0));
	WORKS(cuStreamBeginCapture_v2(stream, 0));
	launch(gemm, 17, stream);
	TAKES_US(4);
	WORKS(cuMemsetD8Async(memory, 0, 4096, stream));
	WORKS(cuStreamEndCapture(stream, &g));
	WORKS(cuGraphInstantiateWithFlags(&captured, g, 0));
}

static void begin(void)
{
	CUmodule module;

	WORKS(cuInit(0));
	WORKS(cuCtxCreate_v2(&second, 0, 1));
	WORKS(cuCtxPopCurrent_v2(NULL));
	WORKS(cuCtxCreate_v2(&first, 0, 0));
	WORKS(cuStreamCreate(&stream, 0));
	WORKS(cuStreamCreate(&other_stream, 0));
	WORKS(cuMemAlloc_v2(&memory, 4096));
	WORKS(cuModuleLoadData(&module, ""));
	add = function(module, "vector_add");
	reduce = function(module, "_Z6reduceIfLi128EEvPKT_PS0_m");
	gemm = function(module, "_ZN4blas6detail4gemmINS_5Tile2ILi64ELi32EEEEEvT_PfS5_");
	make_graphs();
}

#define ADD    "vector_add"
#define REDUCE "void reduce<float, 128>(float const*, float*, unsigned long)"
#define GEMM   "void blas::detail::gemm<blas::Tile2<64, 32> >(blas::Tile2<64, 32>, float*, float*)"

static void run_all(void)
{
	runs(one_kernel), had("one_kernel", 300, ADD);
	runs(two_kernels), had("two_kernels", 107, ADD), had("two_kernels", 50, REDUCE);
	runs(by_other_entries), had("by_other_entries", 36, GEMM);
	runs(by_pointer), had("by_pointer", 20, REDUCE);
	runs(in_two_streams), had("in_two_streams", 25, ADD);
	runs(on_second_device), had("on_second_device", 40, ADD);
	runs(fails), had("fails", 0, ADD);
	runs(recursive), had("recursive", 9, GEMM);
	runs(copies), had("copies", 21, "memcpy HtoD"), had("copies", 22, "memcpy DtoH");
	had("copies", 23, "memcpy DtoD");
	runs(sets), had("sets", 63, "memset");
	runs(graph_of_many), had("graph_of_many", 80, ADD), had("graph_of_many", 30, REDUCE);
	runs(graph_captured), had("graph_captured", 17, GEMM), had("graph_captured", 4, "memset");
	runs(starts_threads), had("of_thread", 20, ADD), had("of_thread", 24, REDUCE);
	runs(forks), had("forks", 8, ADD), had("in_child", 0, ADD);
}

int main(int argc, char **argv)
{
	open_told(argc, argv);
	open_cupti();
	begin();
	wait_for_order();
	wait_until_profiled();
	run_all();
	wait_until_read();
	end();
}
