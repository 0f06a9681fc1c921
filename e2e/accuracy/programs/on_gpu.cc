// SPDX-License-Identifier: Apache-2.0

// on_gpu: work of known length in C++, through the CUDA runtime, as programs of nvcc call it. A
// kernel is a template; nvcc writes a function of the host for each instance, which launches it.
#include <thread>
#include <vector>

#include "../../gpu/cuda_runtime.h"
#include "on_gpu.h"

namespace nn
{
template <typename T> struct Softmax {
};

// What nvcc makes of `template <...> __global__ void map(Op<T>, const T *, T *, int)`, but for the
// last line: the stand-in's kernel does nothing.
template <template <typename> class Op, typename T, bool InPlace>
__attribute__((noinline)) void map(Op<T>, const T *, T *, int)
{
	dim3 one = {1, 1, 1};
	WORKS(cudaLaunchKernel(reinterpret_cast<const void *>(&map<Op, T, InPlace>), one, one,
			       nullptr, 0, nullptr));
}

template <typename T> class Layer
{
      public:
	__attribute__((noinline)) void forward(unsigned us)
	{
		TAKES_US(us);
		map<Softmax, T, true>(Softmax<T>(), nullptr, nullptr, 1);
	}
};
} // namespace nn

namespace
{
__attribute__((noinline)) void hidden(float *, cudaStream_t stream)
{
	dim3 one = {1, 1, 1};
	WORKS(cudaLaunchKernel(reinterpret_cast<const void *>(hidden), one, one, nullptr, 0,
			       stream));
}
} // namespace

static cudaStream_t stream;
static char *memory;

FUNCTION(of_float)
{
	nn::Layer<float>().forward(40);
}

FUNCTION(of_double)
{
	nn::Layer<double>().forward(80);
}

FUNCTION(of_both)
{
	nn::Layer<float>().forward(3);
	nn::Layer<double>().forward(5);
}

FUNCTION(anonymous)
{
	TAKES_US(60);
	hidden(nullptr, stream);
}

FUNCTION(in_lambda)
{
	auto launch = [](unsigned us) { nn::Layer<float>().forward(us); };
	launch(14);
	launch(16);
}

FUNCTION(copies)
{
	static char host[1000];
	TAKES_US(25);
	WORKS(cudaMemcpyAsync(memory, host, sizeof(host), cudaMemcpyHostToDevice, stream));
}

FUNCTION(sets)
{
	TAKES_US(35);
	WORKS(cudaMemsetAsync(memory, 0, 1000, stream));
}

FUNCTION(of_thread)
{
	nn::Layer<double>().forward(6);
}

static void starts_threads()
{
	std::vector<std::thread> threads;
	for (int i = 0; i < 4; i++)
		threads.emplace_back(of_thread);
	for (auto &t : threads)
		t.join();
}

FUNCTION(on_second_device)
{
	WORKS(cudaSetDevice(1));
	nn::Layer<float>().forward(90);
	WORKS(cudaSetDevice(0));
}

FUNCTION(fails) // nothing was registered for this function
{
	dim3 one = {1, 1, 1};
	TAKES_US(1000);
	GIVES(cudaErrorInvalidDeviceFunction,
	      cudaLaunchKernel(reinterpret_cast<const void *>(fails), one, one, nullptr, 0,
			       nullptr));
}

// As nvcc's constructors do.
static void register_kernel(const void *host_fn, const char *mangled)
{
	__cudaRegisterFunction(nullptr, static_cast<const char *>(host_fn), nullptr, mangled, 0,
			       nullptr, nullptr, nullptr, nullptr, nullptr);
}

#define MAP(type)                                                                                 \
	"void nn::map<nn::Softmax, " type ", true>(nn::Softmax<" type ">, " type " const*, " type \
	"*, int)"
#define MAP_FLOAT  MAP("float")
#define MAP_DOUBLE MAP("double")
#define HIDDEN	   "(anonymous namespace)::hidden(float*, CUstream_st*)"

static void begin()
{
	void *p;
	register_kernel(reinterpret_cast<const void *>(&nn::map<nn::Softmax, float, true>),
			"_ZN2nn3mapINS_7SoftmaxEfLb1EEEvT_IT0_EPKS3_PS3_i");
	register_kernel(reinterpret_cast<const void *>(&nn::map<nn::Softmax, double, true>),
			"_ZN2nn3mapINS_7SoftmaxEdLb1EEEvT_IT0_EPKS3_PS3_i");
	register_kernel(reinterpret_cast<const void *>(hidden),
			"_ZN12_GLOBAL__N_16hiddenEPfP11CUstream_st");
	WORKS(cudaMalloc(&p, 1000));
	memory = static_cast<char *>(p);
	WORKS(cudaStreamCreate(&stream));
}

int main(int argc, char **argv)
{
	open_told(argc, argv);
	open_cupti();
	begin();
	wait_for_order();
	wait_until_profiled();
	runs(of_float), had("of_float", 40, MAP_FLOAT);
	runs(of_double), had("of_double", 80, MAP_DOUBLE);
	runs(of_both), had("of_both", 3, MAP_FLOAT), had("of_both", 5, MAP_DOUBLE);
	runs(anonymous), had("anonymous", 60, HIDDEN);
	runs(in_lambda), had("in_lambda", 30, MAP_FLOAT);
	runs(copies), had("copies", 25, "memcpy HtoD");
	runs(sets), had("sets", 35, "memset");
	runs(starts_threads), had("of_thread", 24, MAP_DOUBLE);
	runs(on_second_device), had("on_second_device", 90, MAP_FLOAT);
	runs(fails), had("fails", 0, MAP_FLOAT);
	wait_until_read();
	end();
}
